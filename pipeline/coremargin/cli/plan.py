"""``coremargin plan``: what a job would read, how long it would take, and where it would run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin import spec as specs
from coremargin.data.store import Store
from coremargin.data.view import scan_bytes
from coremargin.engine.clusters.connect import render
from coremargin.engine.clusters.specs import Threads, load_cluster, resolve
from coremargin.engine.plan import plan_blocks
from coremargin.learn.ellipsoid_scaling import earlier_ellipsoid, preliminary_ellipsoid
from coremargin.learn.train import keeps_rows, set_default_memory
from coremargin.problems.registry import kind_of, problem_of
from coremargin.report.text import count, facts
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.problem import AnyProblem
    from coremargin.learn.retrain import Retraining
    from coremargin.problems.job import TrainJob
    from coremargin.problems.registry import AnyKind


def plan_job(job: TrainJob, cluster: str | None, retraining: Retraining | None = None) -> dict[str, Any]:
    """The plan as JSON; cluster: replaces that of the job."""
    requested = job.memory is not None
    job = set_default_memory(job)
    spec = load_cluster(job.cluster if cluster is None else cluster)
    source = Store.open(job.store)
    ellipsoid, kept = preliminary_ellipsoid(job, source), None
    if ellipsoid is not None and retraining is not None:
        kept = earlier_ellipsoid(retraining.model, source)
    problem = problem_of(
        job, source, (), ellipsoid if kept is None else kept.arrays
    )  # raises the errors of the training
    spec = resolve(spec, source.nbytes)
    blocks = plan_blocks(source, max(job.block, problem.least_block_bytes))
    sample = problem.sample_chunks
    started = time.perf_counter()
    rows, _ = problem.source.read(sample[0] if sample else 0)
    rows.sum(dtype="float64")  # memory maps are read on access
    rate = rows.shape[0] * (scan_bytes(source) / source.rows) / (time.perf_counter() - started)
    sample_bytes = len(sample) * scan_bytes(source) // source.chunks
    stages = [size * scan_bytes(source) // source.chunks for size in problem.stage_chunks]
    in_memory = isinstance(spec, Threads) and keeps_rows(problem, source, job, requested=requested)
    kind = kind_of(job)
    after = kind.scans_after(job)
    reads = kind.reads_needed(job, problem, in_memory=in_memory)
    before = int(ellipsoid is not None and kept is None and not in_memory)  # the read that finds the ellipsoid
    expected = (reads + before) * scan_bytes(source) + (0 if in_memory or stages else sample_bytes)
    return {
        "store": source.name,
        "rows": source.rows,
        "features": source.features,
        "store_bytes": scan_bytes(source),
        "chunks": source.chunks,
        "blocks": len(blocks),
        "chunks_per_block": max(len(block.chunks) for block in blocks),
        "models": kind.members(problem),
        "sample_bytes": sample_bytes,
        "stages_bytes": stages,
        "bytes_per_scan": scan_bytes(source),
        "reading": kind.describe_reading(job),
        "reads_before": before,
        "reads_expected": reads,
        "bytes_expected": expected,
        "in_memory": in_memory,
        "scans_after": after,
        "scan_purpose": kind.scan_purpose,
        "rereads": kind.rereads,
        "memory_purpose": kind.memory_purpose(problem),
        "bytes_per_second_one_core": rate,
        "seconds_expected": expected / rate,
        "working_set_bytes": job.memory_bytes,
        **_plan_memory(problem.memory_need),
        "cluster": render(spec),
        "job": specs.dump(job),
        **({} if retraining is None else _plan_retraining(retraining, problem, source)),
        **({"published": published} if (published := kind.bounds_before(job, problem)) else {}),
        **({"note": note} if (note := kind.note(problem)) else {}),
    }


def _plan_retraining(retraining: Retraining, problem: AnyProblem, source: Store) -> dict[str, Any]:
    """Changes since the earlier model, and the bytes read first: changed rows, and those left unproven."""
    state, entries = retraining.start(problem)
    chunks = np.flatnonzero(~problem.skip(state)) if state.status == "running" else np.zeros(0, np.intp)
    rows = sum(stop - start for start, stop in map(source.span, chunks.tolist()))
    return {
        "retrained": entries["retrained"],
        "bytes_first": state.sample_bytes + rows * scan_bytes(source) // source.rows,
    }


def _plan_memory(want: MemoryNeed | None) -> dict[str, Any]:
    if want is None:
        return {}
    less = f"; {want.holds}; {want.less}" if want.short else "; more would hardly help"
    text = f"about {format_size(want.size)} at most, for {want.rows:,} {want.what}{less}"
    return {"wanted_bytes": want.size, "wanted_rows": want.rows, "wanted": text}


def _describe_reads(plan: dict[str, Any], tasks: str) -> list[tuple[str, str]]:
    expected, stages = format_size(plan["bytes_expected"]), plan["stages_bytes"]
    once = f"about {expected}: all rows fit in memory and are read once"
    scans = f"about {expected} with {plan['reads_expected'] + plan['reads_before']} scans, which most data need"
    if plan["reading"]:
        scans = plan["reading"]
    first = []
    if plan["reads_before"]:
        first = [("scaling", f"{format_size(plan['bytes_per_scan'])}, read before the rows are scaled")]
    if stages:
        sizes = ", ".join(format_size(size) for size in stages)
        return [
            *first,
            ("one read", f"{format_size(plan['bytes_per_scan'])} in {count(len(stages), 'stage')}: {sizes}"),
            ("tasks", f"{tasks}, a few more for the stages"),
            *([("scan", plan["scan_purpose"])] if plan["scans_after"] else []),
            ("total", once if plan["in_memory"] else f"about {expected}; {plan['rereads']}"),
        ]
    return [
        *first,
        *([] if plan["reading"] else [("sample", format_size(plan["sample_bytes"]))]),
        ("scan", f"{format_size(plan['bytes_per_scan'])} in {tasks}"),
        ("total", once if plan["in_memory"] else scans),
    ]


def _describe_retraining(plan: dict[str, Any]) -> list[tuple[str, str]]:
    retrained = plan.get("retrained")
    if retrained is None:
        return []
    appended, changed = count(retrained["rows_appended"], "row"), f"{retrained['rows_changed']:,}"
    changes = f"{appended} appended, {changed} changed since {retrained['model']}"
    if "from_scratch" in retrained:
        return [("changes", changes), ("retraining", f"from scratch: {retrained['from_scratch']}")]
    first = f"warm start: first reads {format_size(plan['bytes_first'])}, new rows and those that the change leaves"
    return [("changes", changes), ("retraining", f"{first} unproven; the figures below are upper limits")]


def describe_plan(plan: dict[str, Any], kind: AnyKind) -> list[str]:
    """Lines for a terminal; kind: that of the job."""
    rate = f"{format_size(plan['bytes_per_second_one_core'])}/s, measured now on one chunk and one core"
    tasks = f"{count(plan['blocks'], 'task')} of up to {count(plan['chunks_per_block'], 'chunk')}"
    pairs = [
        ("store", plan["store"]),
        ("shape", f"{plan['rows']:,} rows x {plan['features']:,} features, {format_size(plan['store_bytes'])}"),
        *([("models", f"{plan['models']:,}, trained in the same scans")] if plan["models"] > 1 else []),
        *_describe_retraining(plan),
        *_describe_reads(plan, tasks),
        ("time", f"about {format_seconds(plan['seconds_expected'])} of reading at {rate}"),
        ("memory", f"{format_size(plan['working_set_bytes'])} {plan['memory_purpose']}"),
        *([("wanted", plan["wanted"])] if "wanted" in plan else []),
        *(kind.describe_before(plan["published"]) if "published" in plan else []),
        *([("note", plan["note"])] if "note" in plan else []),
    ]
    texts = ("# the job", *plan["job"].split("\n"), "# where it runs", *plan["cluster"].split("\n"))
    return [*facts(pairs), "", *texts]
