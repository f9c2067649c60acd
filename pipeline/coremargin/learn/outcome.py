"""What a finished job leaves: the model, how the run went, and its rounds."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin import spec as specs
from coremargin.learn.model import Model
from coremargin.maths.margin import ratio

if TYPE_CHECKING:
    from coremargin.learn.job import TrainJob
    from coremargin.learn.loop import ScanCost
    from coremargin.learn.train import Meters
    from coremargin.problems.hard_margin import HardMargin
    from coremargin.problems.margin_state import HardMarginState
    from coremargin.scan.protocols import Executor

VERSIONS = ("coremargin", "numpy", "scipy", "dask", "distributed", "zarr")


@dataclass(frozen=True)
class Outcome:
    """A model, and how it came to be: ``run`` and ``rounds`` as in the model's folder."""

    model: Model
    run: dict[str, Any]
    rounds: list[dict[str, Any]]

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


def round_record(kind: str, state: HardMarginState, cost: ScanCost) -> dict[str, Any]:
    """One line of ``rounds.jsonl``."""
    best = None if state.lower == -np.inf else state.lower
    return {
        "round": state.round, "kind": kind, "lower": best,
        "lower_now": None if state.lower_now == -np.inf else state.lower_now,
        "upper": state.upper if np.isfinite(state.upper) else None, "ratio": ratio(state.lower, state.upper),
        "pool_rows": len(state.pool), "coreset_rows": len(state.coreset), "new_rows": state.new_rows,
        "chunks": cost.chunks, "chunks_read": cost.chunks_read, "chunks_skipped": cost.chunks - cost.chunks_read,
        "bytes_read": cost.bytes_read, "seconds": cost.seconds, "solve_seconds": cost.solve_seconds,
        "rows_below": None if state.rows_below < 0 else state.rows_below, "status": state.status,
    }  # fmt: skip


def as_model(job: TrainJob, problem: HardMargin, state: HardMarginState) -> Model:
    """The model that a state stands for; nothing in it depends on the run: no clock, no host."""
    source, core = problem.source, state.coreset
    positive, negative = problem.codes
    status = {"running": "stopped", "stalled": "stopped"}.get(state.status, state.status)
    hypothesis = state.best or state.newest
    margin = status != "not_separable"
    record = {
        "format": "coremargin-model", "version": 1, "problem": "hard_margin", "status": status,
        "parameters": job.parameters(), "classes": [source.classes[negative], source.classes[positive]],
        "features": source.features, "rows": source.rows, "dtype": source.dtype.name,
        "certificate": {
            "kind": "margin" if margin else "not_separable",
            "lower": state.lower if margin else None, "upper": state.upper,
            "ratio": ratio(state.lower, state.upper) if margin else None, "epsilon": job.epsilon,
            "coreset_rows": len(core), "store_digest": source.digest,
            "radius": float(source.scalars().max_norm.max()),
        },
        "software": {"coremargin": version("coremargin")},
    }  # fmt: skip
    ledger = {
        "floor": state.ledger.floor, "which": state.ledger.which, "directions": state.ledger.directions,
        "pool_ids": state.pool.ids,
    }  # fmt: skip
    return Model(
        record=record, w=hypothesis.w, b=hypothesis.b, alpha=core.weights, coreset_ids=core.ids, coreset_x=core.rows,
        coreset_y=core.signs, ledger=ledger,
    )  # fmt: skip


def _scanned_last(state: HardMarginState) -> bool:
    """True when the last scan was about the hypothesis that the model keeps."""
    return state.best is not None and np.array_equal(state.best.w, state.newest.w)


def as_run(
    job: TrainJob, problem: HardMargin, state: HardMarginState, meters: Meters, executor: Executor
) -> dict[str, Any]:
    """The content of ``run.json``."""
    source = problem.source
    versions = {"python": platform.python_version()} | {name: version(name) for name in VERSIONS}
    return {
        "started": meters.started, "seconds": meters.seconds, "scans": meters.scans, "sample_scans": 1,
        "bytes_read": meters.bytes_read, "sample_bytes": meters.rounds[0]["bytes_read"], "store_bytes": source.nbytes,
        "peak_rss_bytes": executor.peak_rss_bytes(), "pool_rows": len(state.pool), "executor": executor.description,
        "store": source.name, "out": str(job.out), "versions": versions, "job": specs.dump(job),
        "resumed": meters.resumed, "ended": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "reason": {"running": "a limit was reached", "stalled": "float64 cannot tell the remaining rows apart"}.get(
            state.status, state.status
        ),
        "histogram": {
            "edges": np.linspace(state.low, state.high, state.histogram.shape[1] + 1).tolist(),
            "positive": state.histogram[0].tolist(), "negative": state.histogram[1].tolist(),
            "hypothesis": "final" if _scanned_last(state) else "last scan",
        },
        "margins": {"rows_below_upper": state.rows_below},
    }  # fmt: skip
