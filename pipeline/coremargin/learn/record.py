"""The records of a run: ``rounds.jsonl`` and ``run.json``."""

from __future__ import annotations

import math
import platform
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin import spec as specs
from coremargin.data.store import Store
from coremargin.data.view import root, scan_bytes
from coremargin.formats.run_record import parts_of
from coremargin.maths.margin import ratio
from coremargin.problems.registry import kind_of, kind_of_model
from coremargin.problems.resuming import resume_words
from coremargin.version import version

if TYPE_CHECKING:
    from coremargin.engine.loop import ScanCost
    from coremargin.engine.problem import AnyProblem, Round
    from coremargin.engine.protocols import Executor
    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import Outcome

VERSIONS = ("coremargin", "numpy", "scipy", "dask", "distributed", "zarr")


@dataclass
class RunCounters:
    """Cost of a job so far. It is part of checkpoints, so that a resumed job counts all of it.

    bounds: seconds, lower and upper bound, for jobs that work between scans. held: chunks in memory. about: entries of
    ``run.json`` about the start. Work that a resumed job repeats is not counted: figures are those of an uninterrupted
    run.
    """

    seconds: float = 0.0
    scans: int = 0
    bytes_read: int = 0
    resumed: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    bounds: list[list[float | None]] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def as_now(self) -> dict[str, Any]:
        """A copy, as JSON."""
        return {**vars(self), "rounds": list(self.rounds), "bounds": list(self.bounds)}

    def holds(self, chunks: frozenset[int]) -> None:
        """Add chunks that are in memory now."""
        self.held = sorted(chunks.union(self.held))

    def sampled(self, found: Round, cost: ScanCost) -> None:
        """Add the read before the first scan: a sample or, for a warm start, the rows that changed (``changed``)."""
        self._append("sample", found, cost)
        if "from_scratch" not in self.about.get("retrained", {"from_scratch": ""}):
            self.rounds[-1]["changed"] = True

    def scanned(self, found: Round, cost: ScanCost) -> None:
        """Add a scan or a part of one; stages have records of their own, other parts share that of their scan."""
        record, last = _record("scan", found, cost), self.rounds[-1] if self.rounds else {}
        if found.stage is not None or last.get("round") != found.number:
            self.scans += found.stage is None
            self._append("scan", found, cost)
            return
        self.bytes_read += cost.bytes_read
        record |= {key: last[key] + record[key] for key in _SPENT}
        if "where" in last or "where" in record:  # without it, all chunks were read
            before, now = (line.get("where") or parts_of(cost.chunks) for line in (last, record))
            record["where"] = [a + b for a, b in zip(before, now, strict=True)]
        record["chunks_skipped"] = cost.chunks - record["chunks_read"]
        self.rounds[-1] = record

    def worked(self, found: Round) -> None:
        """Add the bounds, if they have changed."""
        bounds = [None if math.isinf(value) else value for value in (found.lower, found.upper)]
        if not self.bounds or self.bounds[-1][1:] != bounds:
            self.bounds.append([self.seconds, *bounds])

    def _append(self, kind: str, found: Round, cost: ScanCost) -> None:
        self.scans += found.stage == 1
        self.bytes_read += cost.bytes_read
        self.rounds.append(_record("stage" if found.stage else kind, found, cost))


_SPENT = ("chunks_read", "bytes_read", "seconds", "solve_seconds", "new_rows")


def _record(kind: str, found: Round, cost: ScanCost) -> dict[str, Any]:
    """One line of ``rounds.jsonl``."""
    finite = {name: None if value in (np.inf, -np.inf) else value for name, value in found.figures.items()}
    return {
        "round": found.number,
        "kind": kind,
        **finite,
        "ratio": ratio(found.lower, found.upper),
        "chunks": cost.chunks,
        "chunks_read": cost.chunks_read,
        "chunks_skipped": cost.chunks - cost.chunks_read,
        "bytes_read": cost.bytes_read,
        "seconds": cost.seconds,
        "solve_seconds": cost.solve_seconds,
        "status": found.status,
        **({"where": list(cost.where)} if cost.where else {}),
    }


def run_record(
    job: TrainJob, problem: AnyProblem, state: Any, counters: RunCounters, executor: Executor
) -> dict[str, Any]:
    """``run.json``."""
    source, found = problem.source, problem.round_of(state)
    versions = {"python": platform.python_version()} | {name: version(name) for name in VERSIONS}
    run: dict[str, Any] = {
        "started": counters.started,
        "seconds": counters.seconds,
        "scans": counters.scans,
        "sample_scans": sum(line["kind"] == "sample" for line in counters.rounds),
        "stages": sum(line["kind"] == "stage" for line in counters.rounds),
        "staged_reads": sum(line.get("stage") == 1 for line in counters.rounds),
        "bytes_read": counters.bytes_read,
        "sample_bytes": counters.rounds[0]["bytes_read"] if counters.rounds else 0,
        "store_bytes": scan_bytes(source),
        "peak_rss_bytes": executor.peak_rss_bytes(),
        "working_set_rows": found.working_set_rows,
        "executor": executor.description,
        "store": source.name,
        "out": str(job.out),
        "versions": versions,
        "job": specs.dump(job),
        "resume": resume_words(job) if isinstance(root(source), Store) else None,
        "memory": _memory(job, problem, state, counters),
        "resumed": counters.resumed,
        "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    if counters.bounds:  # the last ones hold until the end
        run["bounds"] = [*counters.bounds, [counters.seconds, *counters.bounds[-1][1:]]]
    return run | kind_of(job).facts(problem, state) | counters.about


def _memory(job: TrainJob, problem: AnyProblem, state: Any, counters: RunCounters) -> dict[str, Any]:
    """Memory for rows, and how much more would help, if known."""
    want = kind_of(job).wanted(problem, state)
    if want is None:
        return {"bytes": job.memory_bytes}
    short = want.shortage(scans=counters.scans, status=state.status)
    return {"bytes": want.given, "wanted_bytes": want.size, "wanted_rows": want.rows, "short": short}


def summary_of(outcome: Outcome) -> dict[str, Any]:
    """The flat record that ``train --json`` prints: certificate, rows and cost."""
    model, run = outcome.model, outcome.run
    claims = kind_of_model(model).summary(model, run)
    shape = {"rows": model.rows, "features": model.features}
    state = {f"retraining_{key}": run["retraining"][key] for key in ("bytes", "seconds") if "retraining" in run}
    return {"status": model.status, **claims, **shape, **{key: run[key] for key in _RUN_KEYS}, **state}


_RUN_KEYS = (
    "scans",
    "stages",
    "bytes_read",
    "sample_bytes",
    "store_bytes",
    "working_set_rows",
    "seconds",
    "peak_rss_bytes",
    "resumed",
    "store",
    "out",
)
