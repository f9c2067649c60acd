"""The Python door: ``coremargin.train``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin import spec as specs
from coremargin.data.arrays import ArraySource
from coremargin.data.lazy import LazySource, is_lazy
from coremargin.data.source import Source
from coremargin.data.store import Store
from coremargin.errors import UsageError
from coremargin.learn.job import TrainJob
from coremargin.learn.posed import problem_of
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
from coremargin.report.write import write_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.models.fleet import AnyModel


def train(  # noqa: PLR0913 - rows, what belongs to them, where to and how; all but one with a default
    source: Any,
    y: Any = None,
    *,
    weights: Any = None,
    out: str | os.PathLike[str] | None = None,
    cluster: str | os.PathLike[str] | None = None,
    begin: Begin = "new",
    overwrite: bool = False,
    on_round: Callable[[dict[str, Any]], None] | None = None,
    **parameters: Any,
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
    parameters: epsilon (1e-3), intercept (True), loss (None: hard margin), C, class_weight, scaling, outliers,
        outlier_search, strategy ("fast"), memory, sample, block, max_scans, time_limit; for many models from the same
        scans classes ("ovr"), C as a list, folds, fold_seed; for one of several classes at once classes
        ("crammer-singer"); see ``TrainJob``. Numbers may be NumPy's, lists of them arrays or ranges.

    Returns the model; ask ``model.status`` and ``model.certificate`` what is proven. With classes, folds or a list of
    C it is a fleet: ``model.members`` have certificates each. Raises CoremarginError.

    The published algorithms for outliers, every subset of a few dozen rows, are ``coremargin.learn.published``.
    """
    if begin not in ("new", "resume", "restart"):
        raise UsageError(f"begin: expected 'new', 'resume' or 'restart', got {begin!r}")
    rows = _source(source, y, weights)
    place = os.fspath(out) if out is not None else "model"
    job = specs.convert(
        {"job": "train", "store": rows.name, "out": place, **_plain(parameters)}, TrainJob, where="coremargin.train"
    )
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
