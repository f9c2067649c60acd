"""What a finished job leaves: the model, how the run went, and its rounds."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coremargin import spec as specs
from coremargin.learn.fleet_outcome import as_fleet, model_of, reason_of
from coremargin.learn.multiclass_outcome import multiclass_of, told_of
from coremargin.maths.margin import ratio
from coremargin.models.fleet import FleetModel
from coremargin.problems.fleet.problem import Fleet
from coremargin.problems.multiclass.job import ClassesJob

if TYPE_CHECKING:
    from coremargin.engine.loop import ScanCost
    from coremargin.engine.problem import OneProblem, Problem
    from coremargin.engine.protocols import Executor
    from coremargin.learn.job import TrainJob
    from coremargin.models.fleet import AnyModel

VERSIONS = ("coremargin", "numpy", "scipy", "dask", "distributed", "zarr")


@dataclass
class Meters:
    """What a job has cost so far; goes into checkpoints, so that a resumed job counts all of it."""

    seconds: float = 0.0
    scans: int = 0
    bytes_read: int = 0
    resumed: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def as_now(self) -> dict[str, Any]:
        """What they show, as JSON; what is counted later does not change it."""
        return {**vars(self), "rounds": list(self.rounds)}


@dataclass(frozen=True)
class Outcome:
    """A model, and how it came to be: ``run`` and ``rounds`` as in the model's folder."""

    model: AnyModel
    run: dict[str, Any]
    rounds: list[dict[str, Any]]
    resumable: bool = False  #: stopped at a limit: more scans would help
    found: bool = False  #: was there before, whole: what it claims was not looked at again

    def summary(self) -> dict[str, Any]:
        """One flat record for machines."""
        run = {key: self.run[key] for key in _RUN_KEYS}
        bounds = self._bounds(self.model)
        shape = {"rows": self.model.rows, "features": self.model.features}
        return {"status": self.model.status, **bounds, **shape, **run}

    def _bounds(self, model: AnyModel) -> dict[str, Any]:
        if not isinstance(model, FleetModel):
            certificate = model.record["certificate"]
            return {key: certificate[key] for key in ("epsilon", "lower", "upper", "ratio", "coreset_rows")}
        told = {key: self.run[key] for key in ("members", "members_certified")}
        ratios = [entry["ratio"] or 0.0 for entry in model.record["members"]]
        tables = {key: model.record[key] for key in ("evaluations", "validation", "chosen")}
        return {"epsilon": model.parameters["epsilon"], **told, "lowest_ratio": min(ratios), **tables}


_RUN_KEYS = (
    "scans", "bytes_read", "sample_bytes", "store_bytes", "pool_rows", "seconds", "peak_rss_bytes", "resumed",
    "store", "out",
)  # fmt: skip


def round_record(kind: str, problem: Problem, state: Any, cost: ScanCost) -> dict[str, Any]:
    """One line of ``rounds.jsonl``."""
    told = problem.figures(state)
    number = told.pop("scan", state.round)
    finite = {name: None if value in (np.inf, -np.inf) else value for name, value in told.items()}
    return {
        "round": number, "kind": kind, **finite, "ratio": ratio(told["lower"], told["upper"]),
        "chunks": cost.chunks, "chunks_read": cost.chunks_read, "chunks_skipped": cost.chunks - cost.chunks_read,
        "bytes_read": cost.bytes_read, "seconds": cost.seconds, "solve_seconds": cost.solve_seconds,
        "status": state.status,
    }  # fmt: skip


def as_model(job: TrainJob, problem: Problem, state: Any) -> AnyModel:
    """The model that a state stands for; nothing in it depends on the run: no clock, no host."""
    if isinstance(problem, Fleet):
        return as_fleet(job, problem, state)
    if isinstance(problem, ClassesJob):
        return multiclass_of(job, problem, state)
    one = cast("OneProblem", problem)
    return model_of(problem.source, one.codes, one.result(state), job.problem, job.parameters())


def as_run(job: TrainJob, problem: Problem, state: Any, meters: Meters, executor: Executor) -> dict[str, Any]:
    """The content of ``run.json``."""
    source, told = problem.source, problem.figures(state)
    versions = {"python": platform.python_version()} | {name: version(name) for name in VERSIONS}
    run: dict[str, Any] = {
        "started": meters.started, "seconds": meters.seconds, "scans": meters.scans, "sample_scans": 1,
        "bytes_read": meters.bytes_read, "sample_bytes": meters.rounds[0]["bytes_read"], "store_bytes": source.nbytes,
        "peak_rss_bytes": executor.peak_rss_bytes(), "pool_rows": told["pool_rows"], "executor": executor.description,
        "store": source.name, "out": str(job.out), "versions": versions, "job": specs.dump(job),
        "resumed": meters.resumed, "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }  # fmt: skip
    if isinstance(problem, Fleet):
        words = [member.status for member in state.members]
        return run | {"members": len(words), "members_certified": words.count("certified"), "reason": reason_of(state)}
    if isinstance(problem, ClassesJob):
        return run | told_of(problem, state)
    found = cast("OneProblem", problem).result(state)
    return run | {
        "reason": found.reason,
        "histogram": {
            "edges": np.linspace(state.low, state.high, state.histogram.shape[1] + 1).tolist(),
            "positive": state.histogram[0].tolist(), "negative": state.histogram[1].tolist(),
            "hypothesis": "final" if found.final else "last scan",
        },
        "margins": {"rows_below_upper": told["rows_below"]},
    }  # fmt: skip
