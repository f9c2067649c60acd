"""Job files, and what a job would do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin import spec as specs
from coremargin.data.store import Store
from coremargin.engine.clusters.connect import render
from coremargin.engine.clusters.specs import Threads, load_cluster, resolve
from coremargin.engine.plan import plan_blocks
from coremargin.learn.train import keeps_rows, with_memory
from coremargin.problems.registry import kind_of, problem_of
from coremargin.report.text import count, facts
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import ClusterSpec
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.problem import AnyProblem
    from coremargin.learn.retrain import Retraining
    from coremargin.problems.job import TrainJob


def cluster_of(job: TrainJob, given: str | None) -> ClusterSpec:
    """Where to run: what the command line says, else what the job says, else the default."""
    return load_cluster(given if given is not None else job.cluster)


def plan_of(job: TrainJob, given: str | None, beginning: Retraining | None = None) -> dict[str, Any]:
    """What a job would do, as plain values; beginning: that of a retraining."""
    requested = job.memory is not None
    job = with_memory(job)
    cluster = cluster_of(job, given)
    source = Store.open(job.store)
    problem = problem_of(job, source)  # refuses what training would refuse
    cluster = resolve(cluster, source.nbytes)
    blocks = plan_blocks(source, max(job.block, problem.least_block_bytes))
    sample = problem.sample_chunks
    started = time.perf_counter()
    rows, _ = problem.source.read(sample[0])
    rows.sum(dtype="float64")  # a map is read when it is touched
    rate = rows.shape[0] * (source.nbytes / source.rows) / (time.perf_counter() - started)
    sample_bytes = len(sample) * source.nbytes // source.chunks
    stages = [size * source.nbytes // source.chunks for size in problem.stage_chunks]
    kept = isinstance(cluster, Threads) and keeps_rows(problem, source, job, requested=requested)
    kind = kind_of(job)
    after = kind.scans_after(job)
    reads = kind.reads_needed(job, problem, in_memory=kept)
    expected = reads * source.nbytes + (0 if kept or stages else sample_bytes)
    return {
        "store": source.name,
        "rows": source.rows,
        "features": source.features,
        "store_bytes": source.nbytes,
        "chunks": source.chunks,
        "blocks": len(blocks),
        "chunks_per_block": max(len(block.chunks) for block in blocks),
        "models": kind.members(problem),
        "sample_bytes": sample_bytes,
        "stages_bytes": stages,
        "bytes_per_scan": source.nbytes,
        "reading": kind.describe_reading(job),
        "reads_expected": reads,
        "bytes_expected": expected,
        "kept_in_memory": kept,
        "scans_after": after,
        "scan_told": kind.scan_purpose,
        "again_told": kind.rereads,
        "memory_told": kind.memory_purpose(problem),
        "bytes_per_second_one_core": rate,
        "seconds_expected": expected / rate,
        "pool_bytes": job.memory_bytes,
        **_wanted(problem.memory_need),
        "cluster": render(cluster),
        "job": specs.dump(job),
        **({} if beginning is None else _again(beginning, problem, source)),
        **({"note": note} if (note := kind.note(problem)) else {}),
    }


def _again(beginning: Retraining, problem: AnyProblem, source: Store) -> dict[str, Any]:
    """What a retraining goes on from, and what it reads first: what changed, which is read here, too, and what that
    has left unproven.
    """
    state, facts = beginning.start(problem)
    about = facts["retrained"]
    chunks = np.flatnonzero(~problem.skip(state)) if state.status == "running" else np.zeros(0, np.intp)
    rows = sum(stop - start for start, stop in map(source.span, chunks.tolist()))
    return {"retrained": about, "bytes_first": state.sample_bytes + rows * source.nbytes // source.rows}


def _wanted(want: MemoryNeed | None) -> dict[str, Any]:
    """What memory the rows would like, where that is known."""
    if want is None:
        return {}
    less = f"; {want.holds}; {want.less}" if want.short else "; with more little would be gained"
    told = f"about {format_size(want.size)} at most, for {want.rows:,} {want.what}{less}"
    return {"wanted_bytes": want.size, "wanted_rows": want.rows, "wanted": told}


def _reading(plan: dict[str, Any], tasks: str) -> list[tuple[str, str]]:
    """What will be read."""
    expected, stages = format_size(plan["bytes_expected"]), plan["stages_bytes"]
    kept = f"about {expected}: all rows fit into memory, each is read once"
    scans = f"about {expected} with {plan['reads_expected']} scans, as most data need"
    if plan["reading"]:
        scans = plan["reading"]
    if stages:
        sizes = ", ".join(format_size(size) for size in stages)
        return [
            ("one read", f"{format_size(plan['bytes_per_scan'])} in {count(len(stages), 'stage')}: {sizes}"),
            ("tasks", f"{tasks}, a few more for the stages"),
            *([("a scan", plan["scan_told"])] if plan["scans_after"] else []),
            ("in all", kept if plan["kept_in_memory"] else f"about {expected}; {plan['again_told']}"),
        ]
    return [
        *([] if plan["reading"] else [("sample", format_size(plan["sample_bytes"]))]),
        ("a scan", f"{format_size(plan['bytes_per_scan'])} in {tasks}"),
        ("in all", kept if plan["kept_in_memory"] else scans),
    ]


def _changes(plan: dict[str, Any]) -> list[tuple[str, str]]:
    """Of a retraining: what changed since, and what is read first."""
    about = plan.get("retrained")
    if about is None:
        return []
    brought = (
        f"{count(about['rows_appended'], 'row')} appended, {about['rows_changed']:,} changed since {about['model']}"
    )
    if "from_nothing" in about:
        return [("changes", brought), ("retraining", f"from scratch: {about['from_nothing']}")]
    first = f"goes on from there: first it reads {format_size(plan['bytes_first'])}, which is what is new and what that"
    return [("changes", brought), ("retraining", f"{first} leaves unproven; what follows is what it reads at most")]


def plan_text(plan: dict[str, Any]) -> list[str]:
    """The plan for people."""
    rate = f"{format_size(plan['bytes_per_second_one_core'])}/s, measured on one chunk by one core just now"
    tasks = f"{count(plan['blocks'], 'task')} of up to {count(plan['chunks_per_block'], 'chunk')}"
    pairs = [
        ("store", plan["store"]),
        ("shape", f"{plan['rows']:,} rows x {plan['features']:,} features, {format_size(plan['store_bytes'])}"),
        *([("models", f"{plan['models']:,}, all answered by the same scans")] if plan["models"] > 1 else []),
        *_changes(plan),
        *_reading(plan, tasks),
        ("time", f"about {format_seconds(plan['seconds_expected'])} of reading at {rate}"),
        ("memory", f"{format_size(plan['pool_bytes'])} {plan['memory_told']}"),
        *([("wanted", plan["wanted"])] if "wanted" in plan else []),
        *([("note", plan["note"])] if "note" in plan else []),
    ]
    texts = ("# the job", *plan["job"].split("\n"), "# where it runs", *plan["cluster"].split("\n"))
    return [*facts(pairs), "", *texts]
