"""What a finished job leaves: the model, how the run went, and its rounds."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin import spec as specs
from coremargin.data.scaled import scaling_of, unscaled
from coremargin.learn.model import Model
from coremargin.maths.margin import ratio

if TYPE_CHECKING:
    from coremargin.learn.job import TrainJob
    from coremargin.learn.loop import ScanCost
    from coremargin.learn.protocol import Problem
    from coremargin.learn.train import Meters
    from coremargin.scan.protocols import Executor

VERSIONS = ("coremargin", "numpy", "scipy", "dask", "distributed", "zarr")


@dataclass(frozen=True)
class Outcome:
    """A model, and how it came to be: ``run`` and ``rounds`` as in the model's folder."""

    model: Model
    run: dict[str, Any]
    rounds: list[dict[str, Any]]
    resumable: bool = False  #: stopped at a limit: more scans would help

    def summary(self) -> dict[str, Any]:
        """One flat record for machines."""
        certificate = self.model.record["certificate"]
        run = {key: self.run[key] for key in _RUN_KEYS}
        bounds = {key: certificate[key] for key in ("epsilon", "lower", "upper", "ratio", "coreset_rows")}
        shape = {"rows": self.model.rows, "features": self.model.features}
        return {"status": self.model.status, **bounds, **shape, **run}


_RUN_KEYS = (
    "scans", "bytes_read", "sample_bytes", "store_bytes", "pool_rows", "seconds", "peak_rss_bytes", "resumed",
    "store", "out",
)  # fmt: skip


def round_record(kind: str, problem: Problem, state: Any, cost: ScanCost) -> dict[str, Any]:
    """One line of ``rounds.jsonl``."""
    told = problem.figures(state)
    finite = {name: None if value in (np.inf, -np.inf) else value for name, value in told.items()}
    return {
        "round": state.round, "kind": kind, **finite, "ratio": ratio(told["lower"], told["upper"]),
        "chunks": cost.chunks, "chunks_read": cost.chunks_read, "chunks_skipped": cost.chunks - cost.chunks_read,
        "bytes_read": cost.bytes_read, "seconds": cost.seconds, "solve_seconds": cost.solve_seconds,
        "status": state.status,
    }  # fmt: skip


def as_model(job: TrainJob, problem: Problem, state: Any) -> Model:
    """The model that a state stands for; nothing in it depends on the run: no clock, no host."""
    source, found, scaling = problem.source, problem.result(state), scaling_of(problem.source)
    positive, negative = problem.codes
    lower = found.lower if found.lower is not None and np.isfinite(found.lower) else None
    upper = found.upper if found.upper is not None and np.isfinite(found.upper) else None
    record = {
        "format": "coremargin-model", "version": 1, "problem": job.problem, "status": found.status,
        "parameters": job.parameters(), "classes": [source.classes[negative], source.classes[positive]],
        "features": source.features, "rows": source.rows, "dtype": source.dtype.name,
        "certificate": {
            "kind": found.kind, "lower": lower, "upper": upper,
            "ratio": None if found.kind == "not_separable" or lower is None or upper is None else ratio(lower, upper),
            "epsilon": job.epsilon, "coreset_rows": len(found.ids), "store_digest": unscaled(source).digest,
            "radius": float(source.scalars().max_norm.max()),
        },
        "software": {"coremargin": version("coremargin")},
    }  # fmt: skip
    return Model(
        record=record, w=found.w, b=found.b, alpha=found.weights, coreset_ids=found.ids, coreset_x=found.rows,
        coreset_y=found.signs, ledger={name.removeprefix("ledger_"): values for name, values in found.extra.items()},
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor,
    )  # fmt: skip


def as_run(job: TrainJob, problem: Problem, state: Any, meters: Meters, executor: Executor) -> dict[str, Any]:
    """The content of ``run.json``."""
    source, told, found = problem.source, problem.figures(state), problem.result(state)
    versions = {"python": platform.python_version()} | {name: version(name) for name in VERSIONS}
    return {
        "started": meters.started, "seconds": meters.seconds, "scans": meters.scans, "sample_scans": 1,
        "bytes_read": meters.bytes_read, "sample_bytes": meters.rounds[0]["bytes_read"], "store_bytes": source.nbytes,
        "peak_rss_bytes": executor.peak_rss_bytes(), "pool_rows": told["pool_rows"], "executor": executor.description,
        "store": source.name, "out": str(job.out), "versions": versions, "job": specs.dump(job),
        "resumed": meters.resumed, "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "reason": found.reason,
        "histogram": {
            "edges": np.linspace(state.low, state.high, state.histogram.shape[1] + 1).tolist(),
            "positive": state.histogram[0].tolist(), "negative": state.histogram[1].tolist(),
            "hypothesis": "final" if found.final else "last scan",
        },
        "margins": {"rows_below_upper": told["rows_below"]},
    }  # fmt: skip
