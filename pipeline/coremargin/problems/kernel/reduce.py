"""Reducing a kernel model: fewer of its rows decide, and one scan proves what that costs on all rows."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.blas import one_blas_thread
from coremargin.data.difference import earlier
from coremargin.data.locked import Locked
from coremargin.data.scaled import scaled_as
from coremargin.data.storages import open_storage
from coremargin.data.store import Store
from coremargin.data.view import scan_bytes
from coremargin.engine.calls import map_blocks
from coremargin.engine.clusters.specs import local_cluster
from coremargin.errors import UsageError
from coremargin.formats.local_path import local_path
from coremargin.formats.location import is_remote, location
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.expansion import Expansion
from coremargin.maths.kernel.machine import weighted_losses
from coremargin.maths.kernel.reduced_set import reduce_expansion
from coremargin.maths.margin import ratio
from coremargin.models.executor import executor_of
from coremargin.models.files import MODEL, check_outside
from coremargin.models.kernel import KernelModel
from coremargin.models.predict import opened_model
from coremargin.models.user_kernel import faults_named
from coremargin.problems.common.classes import class_codes, class_index, class_weights
from coremargin.problems.common.driver_rows import ClassRows, confusion_counts, predicted_classes, read_labelled_rows
from coremargin.problems.kernel.bounds import claimed_bounds, lower_bound, squared_norm, total_bound, upper_bound
from coremargin.problems.kernel.columns import Columns, Setting, class_costs
from coremargin.problems.kernel.kernel_margin import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.data.source import Source
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Block, Executor
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.maths.kernel.reduced_set import ReducedSet
    from coremargin.models.fleet import AnyModel

Array = NDArray[np.float64]


def reduce(  # noqa: PLR0913 - one option for each decision, all but four with a default
    model: AnyModel | str | os.PathLike[str],
    store: Store | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    rows: int,
    C: float | None = None,
    gamma: str | float | None = None,
    kernel: KernelFunction | None = None,
    cluster: Cluster = None,
    overwrite: bool = False,
    report: Callable[[Path], object] | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> KernelModel:
    """Write a model to ``out`` that decides nearly as another one does, with at most ``rows`` of its rows.

    It has fewer rows where further ones would add nothing. Its functions are the nearest, in the norm of the kernel,
    that these rows can carry. One scan proves how far the decision values of any row may differ, how many rows may be
    given another class, and bounds for the reduced model as a solution of the problem, which its certificate states.

    Parameters
    ----------
    model : KernelModel or path-like
        The model to reduce.
    store : Store or path-like
        The rows it was trained on.
    out : path-like
        The folder or address of the new model, written atomically.
    rows : int
        From 1 to less than the number of rows that carry the model.
    C, gamma : float, float or "scale", optional
        Of models trained together, the member to reduce; without them the selected one.
    kernel : callable, optional
        The kernel of a model in a folder, if it is a user-defined function.
    cluster : path-like or Dask Client, optional
        Where to compute, as for ``train``; by default threads of this process.
    overwrite : bool, default False
        Replace an existing model.
    report : callable, optional
        Called with the folder; adds ``report.html`` to it.
    on_progress : callable, optional
        Called after each block with the rows done and all rows.

    Returns
    -------
    KernelModel
        Its record has an entry ``reduced``.

    Raises
    ------
    UsageError
        No kernel model, one with a relative margin, no such number of rows, several values of C or gamma, or ``out``
        exists.
    StoreError
        The model was trained on other rows.
    OutputError
        No space, no permission.
    """
    path = location(out if is_remote(out) else os.path.abspath(local_path(out)))
    cluster = local_cluster(cluster)
    whole = _reducible_model(opened_model(model, C, gamma, kernel), rows)
    check_outside(path)
    if isinstance(model, str | os.PathLike) and _is_same_place(model, path):
        raise UsageError(f"{path}: expected another folder than that of the model to reduce, which would be lost")
    opened = store if isinstance(store, Store) else Store.open(store)
    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    with Locked(path, "this model"):
        open_storage(path).resolved().check_replaceable(MODEL, overwrite=overwrite)
        rows_then, how = earlier(opened, whole.store_digest, whole.store_sha256), whole.row_scaling
        source: Source = rows_then
        if how is not None:  # by the model's own numbers
            source = scaled_as(rows_then, how, whole.numbers)
        with executor_of(source, "threads" if cluster is None else cluster) as executor:
            made, comparison = _Reduction(whole, source).run(rows, executor, on_progress)
            run: dict[str, Any] = {
                "started": started,
                "seconds": time.perf_counter() - began,
                "scans": 1,
                "sample_scans": 0,
                "bytes_read": scan_bytes(source),
                "store_bytes": scan_bytes(source),
                "store": source.name,
                "out": str(path),
                "peak_rss_bytes": executor.peak_rss_bytes(),
                "executor": executor.description,
                "resumable": False,
                "confusion": comparison.confusion.tolist(),
                "confusion_of": "final",
            }
        made.save(path, run, report=report, overwrite=overwrite)
    return made


def _is_same_place(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    if is_remote(one) or is_remote(other):
        return is_remote(one) and is_remote(other) and str(location(one)) == str(location(other))
    return local_path(one).resolve() == local_path(other).resolve()


def _reducible_model(model: AnyModel, rows: int) -> KernelModel:
    """The model, or the selected one of several. Raises UsageError unless it has more rows than that."""
    if model.problem == "kernel":
        (model,) = model.deciders()
    if not isinstance(model, KernelModel):
        raise UsageError(
            f"expected a model of a kernel, found one of problem {model.problem!r}: it has no rows to remove"
        )
    if "relative_margin" in model.parameters:
        raise UsageError(
            "a model with a relative margin cannot be reduced: decision values of fewer rows may lie beyond its bound; "
            "reduce one that was trained without relative_margin"
        )
    if "outliers" in model.parameters:
        raise UsageError("expected a model of all rows, found one that leaves out outliers")
    if "view" in model.record:
        raise UsageError("expected a model of all rows, found one that holds out a fold")
    most = len(model.coreset_ids)
    if not 1 <= rows < most:
        raise UsageError(f"rows: {most:,} carry the model, expected a number from 1 to {most - 1:,}; found {rows:,}")
    return model


@dataclass(frozen=True)
class Comparison:
    """How a reduced model and the whole one compare on some rows.

    losses (k,), smallest (k,), confusion (K, K): of the reduced model, as in ``KernelSummary``. distance: the largest
    |f - f'| of a row and a column, rounded up. changed: rows that may be given another class, within rounding. rows:
    their number. longest: the largest length of a row, as points have it.
    """

    losses: Array
    smallest: Array
    confusion: NDArray[np.int64]
    distance: float
    changed: int
    rows: int
    longest: float

    @classmethod
    def empty(cls, columns: int, classes: int) -> Comparison:
        """The identity of ``merge``."""
        return cls(np.zeros(columns), np.full(columns, np.inf), np.zeros((classes, classes), np.int64), 0.0, 0, 0, 0.0)

    def merge(self, later: Comparison) -> Comparison:
        """The comparison on these rows and later ones."""
        return Comparison(
            losses=self.losses + later.losses,
            smallest=np.minimum(self.smallest, later.smallest),
            confusion=self.confusion + later.confusion,
            distance=float(np.maximum(self.distance, later.distance)),
            changed=self.changed + later.changed,
            rows=self.rows + later.rows,
            longest=max(self.longest, later.longest),
        )


@dataclass(frozen=True)
class ComparisonProbe:
    """The query of the scan; both: 2 k columns on the same rows, the reduced functions, then the whole ones."""

    both: Expansion
    columns: Columns
    class_of: NDArray[np.int32]

    def __call__(self, source: Source, block: Block) -> Comparison:
        """The comparison on the labelled rows of a block."""
        found = Comparison.empty(len(self.columns), self.columns.classes)
        for chunk in block.chunks:
            rows = read_labelled_rows(source, chunk, self.class_of)
            if len(rows):
                with faults_named(self.both.kernel, source.name, rows.ids, chunk):
                    found = found.merge(self._compare(rows))
        return found

    def _compare(self, rows: ClassRows) -> Comparison:
        x, k = self.both.kernel.points(rows.rows), len(self.columns)
        values, errors = self.both.values(x), self.both.errors(x)
        reduced, whole = (values[:, :k], errors[:, :k]), (values[:, k:], errors[:, k:])
        signs = self.columns.signs(rows.classes, rows.ids)
        margins = signs * reduced[0] - reduced[1]
        lost = weighted_losses(self.columns.loss, self.columns.costs(signs, rows.shares), 1.0 - margins)
        apart = np.abs(reduced[0] - whole[0]) + reduced[1] + whole[1]
        now, before = _certain_classes(*reduced), _certain_classes(*whole)
        return Comparison(
            losses=lost.sum(axis=0),
            smallest=margins.min(axis=0),
            confusion=confusion_counts(rows.classes, predicted_classes(reduced[0]), self.columns.classes),
            distance=float(apart.max()),
            changed=int(np.count_nonzero((now != before) | (now < 0))),
            rows=len(rows),
            longest=x.longest,
        )


def _certain_classes(values: Array, errors: Array) -> NDArray[np.intp]:
    """The classes (n,) that values (n, k) name whatever their errors are; -1 where these leave it open."""
    if values.shape[1] == 1:
        found = np.where(values > errors, 1, np.where(values < -errors, 0, -1))
        return np.asarray(found[:, 0], np.intp)
    own, rows = values.argmax(axis=1), np.arange(len(values))
    others = values + errors
    others[rows, own] = -np.inf
    return np.where((values - errors)[rows, own] > others.max(axis=1), own, -1)


@dataclass(frozen=True)
class _Reduction:
    """A model, and the rows that it was trained on."""

    model: KernelModel
    source: Source

    def run(
        self, rows: int, executor: Executor, on_progress: Callable[[int, int], object] | None
    ) -> tuple[KernelModel, Comparison]:
        """The reduced model, and the comparison on all rows."""
        model, columns = self.model, self._columns()
        named = partial(faults_named, model.kernel, "the model", model.coreset_ids)
        with one_blas_thread(), named():  # the same bits on any number of cores
            reduced = reduce_expansion(model.whole, rows)
            both = self._both(reduced)
            _ = both.points
        comparison = Comparison.empty(len(columns), columns.classes)
        probe = ComparisonProbe(both, columns, class_index(class_codes(self.source)))
        with closing(map_blocks(executor, self.source, probe)) as found:
            for one in found:
                comparison = comparison.merge(one)
                if on_progress is not None:
                    on_progress(comparison.rows, self.source.rows)
        if not np.isfinite(comparison.distance):
            raise UsageError(f"{self.source.name}: the kernel overflows on some rows; nothing can be proven")
        with named():
            machine = self._prove(both, columns, comparison)
        return self._reduced_model(reduced, comparison, machine, hard=columns.loss is None), comparison

    def _columns(self) -> Columns:
        """The columns of the model, with the costs of their rows."""
        parameters, codes = self.model.parameters, class_codes(self.source)
        totals = class_weights(self.source, codes)
        cost = float(parameters.get("C", 1.0))
        costs = class_costs(cost, parameters.get("class_weight"), totals)
        return Columns((Setting(0, cost, None),), len(codes), costs, parameters.get("loss"), parameters["intercept"])

    def _both(self, reduced: ReducedSet) -> Expansion:
        """The reduced functions, then the whole ones, on the same rows."""
        model = self.model
        weights = np.hstack([np.zeros_like(model.weights), model.weights])
        weights[reduced.places, : len(model.offsets)] = reduced.weights
        return Expansion(model.kernel, model.coreset_x, weights, np.tile(model.offsets, 2))

    def _prove(self, both: Expansion, columns: Columns, comparison: Comparison) -> Machine:
        """The bounds that the duals of the whole coreset and the value of the reduced functions prove."""
        model, points, kernel = self.model, both.points, self.model.kernel
        longest = float(self.source.scalars().max_norm.max())
        if isinstance(kernel, CallableKernel):
            longest = comparison.longest
        reach = float(np.sqrt(kernel.value_bound(longest, longest)))
        signs = columns.signs(model.coreset_classes, model.coreset_ids)
        costs, lower, upper = columns.costs(signs, self._sample_weights()), *np.empty((2, len(columns)))
        for k in range(len(columns)):
            own, whole = (squared_norm(kernel, points, both.weights[:, c], both.lengths) for c in (k, k + len(columns)))
            losses, least = float(comparison.losses[k]), float(comparison.smallest[k])
            upper[k] = upper_bound(own, losses, least, comparison.rows, hard=columns.loss is None)
            found = lower_bound(columns.side(k, signs, costs), model.duals[:, k], whole, reach, float(upper[k]))
            lower[k] = max(0.0, found)
        return Machine(model.duals, model.offsets, lower, upper, np.ones(len(columns)))

    def _sample_weights(self) -> Array:
        """Sample weights (m,) of the coreset's rows."""
        ids, found = self.model.coreset_ids, np.ones(len(self.model.coreset_ids))
        if self.source.weights(0) is None:
            return found
        for chunk in range(self.source.chunks):
            start, stop = self.source.span(chunk)
            mine, weights = np.flatnonzero((ids >= start) & (ids < stop)), self.source.weights(chunk)
            if len(mine) and weights is not None:
                found[mine] = weights[ids[mine] - start]
        return found

    def _reduced_model(
        self, reduced: ReducedSet, comparison: Comparison, machine: Machine, *, hard: bool
    ) -> KernelModel:
        """The model decided by fewer rows, with what is proven of these."""
        model = self.model
        lowers, uppers = claimed_bounds(machine.lower, machine.upper, hard=hard)
        lower, upper = (total_bound(bounds, hard=hard) for bounds in (lowers, uppers))
        known = None if lower is None or upper is None else ratio(lower, upper)
        proven = bool(machine.certified(float(model.certificate.epsilon), margins=hard).all())
        record = dict(model.record)
        record |= {
            "status": "certified" if proven else "stopped",
            "certificate": model.record["certificate"] | {"lower": lower, "upper": upper, "ratio": known},
            "reduced": {
                "rows": len(reduced.places),
                "distance": comparison.distance,
                "changed": comparison.changed,
            },
        }
        fewer = {"reduced_places": reduced.places, "reduced_weights": reduced.weights}
        return replace(model, record=record, numbers={**model.numbers, "lowers": lowers, "uppers": uppers, **fewer})
