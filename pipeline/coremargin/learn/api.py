"""The Python door: ``coremargin.train``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coremargin.data.arrays import ArraySource
from coremargin.data.lazy import LazySource, is_lazy
from coremargin.data.source import Source
from coremargin.data.store import Store
from coremargin.errors import UsageError
from coremargin.learn.train import (
    Begin,
    Progress,
    check_output,
    no_checkpoint,
    open_store,
    run_problem,
    train_job,
)
from coremargin.models.asked import executor_of
from coremargin.problems.registry import job_of, problem_of
from coremargin.problems.report import write_report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from coremargin.formats.model_record import Loss, ScalingKind, Strategy
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.outliers.spec import Search


def train(  # noqa: PLR0913 - rows, what belongs to them, the question and where to; all but one with a default
    source: Any,
    y: Any = None,
    *,
    weights: Any = None,
    out: str | os.PathLike[str] | None = None,
    epsilon: float = 1e-3,
    intercept: bool = True,
    loss: Loss | None = None,
    C: float | Sequence[float] | NDArray[Any] = 1.0,
    class_weight: Literal["balanced"] | Sequence[float] | None = None,
    classes: Literal["ovr", "crammer-singer"] | None = None,
    folds: int | None = None,
    fold_seed: int = 0,
    outliers: int | str | Sequence[int] | NDArray[Any] | None = None,
    outlier_search: Search | None = None,
    strategy: Strategy = "fast",
    scaling: ScalingKind | None = None,
    memory: int | str = 256 * 2**20,
    sample: float = 0.04,
    block: int | str = 128 * 2**20,
    max_scans: int | None = None,
    time_limit: float | str | None = None,
    cluster: str | os.PathLike[str] | None = None,
    begin: Begin = "new",
    overwrite: bool = False,
    on_round: Callable[[dict[str, Any]], None] | None = None,
) -> AnyModel:
    """Train a maximum-margin classifier and prove it.

    Parameters
    ----------
    source: the path of a store, a ``Store`` or other ``Source``, or rows X (n, d) with labels ``y`` (n,): an array in
        memory, a SciPy sparse matrix, or a Dask or Zarr array, which is read block by block, once more than a store to
        count what is in it.
    weights: of rows X in memory, (n,), finite, not negative, not all zero; a store has its own.
    out: folder for the model, with a report and checkpoints on the way; None keeps the model in memory.
    cluster: a file of ``cluster/``, a scheduler's address, "embedded" or "threads"; None chooses by size.
    begin: "resume" goes on where an interrupted run stopped, if there is one; "restart" throws its checkpoint away.
    overwrite: replace a model that is there. on_round: called with a record after every round.
    epsilon, intercept, scaling, memory, sample, block, max_scans, time_limit: of every job, see ``TrainJob``.
    strategy: of a hard margin (``HardMarginJob``). loss, C, class_weight: of a soft margin (``SoftMarginJob``).
    classes: "ovr" for one model a class, each against the rest, from the same scans, as are those for C as a list and
        for folds, with fold_seed (``FleetJob``); "crammer-singer" for one of all classes (``CrammerSingerJob``).
    outliers, outlier_search: rows that may be left out (``OutlierJob``).
        Numbers may be NumPy's, lists of them arrays or ranges.

    Returns the model; ask ``model.status`` and ``model.certificate`` what is proven. With classes, folds or a list of
    C it is a fleet: ``model.members`` have certificates each. Raises CoremarginError.

    The published algorithms for outliers, every subset of a few dozen rows, are ``coremargin.learn.published``.
    """
    if begin not in ("new", "resume", "restart"):
        raise UsageError(f"begin: expected 'new', 'resume' or 'restart', got {begin!r}")
    rows = _source(source, y, weights)
    parameters = {
        "epsilon": epsilon, "intercept": intercept, "loss": loss, "C": C, "class_weight": class_weight,
        "classes": classes, "folds": folds, "fold_seed": fold_seed, "outliers": outliers,
        "outlier_search": outlier_search, "strategy": strategy, "scaling": scaling, "memory": memory, "sample": sample,
        "block": block, "max_scans": max_scans, "time_limit": time_limit,
    }  # fmt: skip
    place = os.fspath(out) if out is not None else "model"
    job = job_of({"job": "train", "store": rows.name, "out": place, **_plain(parameters)}, where="coremargin.train")
    if out is not None:
        rows = open_store(job, begin) if isinstance(source, str | os.PathLike) else rows
        check_output(job, begin, overwrite=overwrite)
    progress = Progress(on_round=on_round) if on_round else Progress()
    with executor_of(rows, cluster) as executor:
        if out is None:
            return run_problem(job, problem_of(job, rows), executor, no_checkpoint(), progress).model
        report = partial(write_report, name=Path(out).name)
        outcome = train_job(
            job, rows, executor, begin=begin, overwrite=overwrite, report=report, progress=progress
        )  # fmt: skip
        return outcome.model


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with NumPy's numbers and arrays, and ranges, as numbers and lists: what job files can say."""
    return {name: _plain_value(value) for name, value in parameters.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain_value(one) for one in value] if isinstance(value, range | list | tuple) else value


def _source(source: Any, y: Any, weights: Any) -> Source:
    if isinstance(source, str | os.PathLike | Source):
        if y is not None or weights is not None:
            what = "y" if y is not None else "weights"
            raise UsageError(f"{what}: a store has its own labels and weights; give {what} only with arrays")
        return source if isinstance(source, Source) else Store.open(Path(source))
    if y is None:
        raise UsageError("y: expected labels for the rows, got none; or give the path of a store")
    if is_lazy(source):
        if weights is not None:
            raise UsageError("weights: rows read block by block have none; ingest them into a store with their weights")
        return LazySource(source, y)
    return ArraySource(source, y, weights=weights)
