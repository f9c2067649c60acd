"""A model of a kernel on fewer rows: chosen among those that carry it, and what that costs on all rows, proven."""

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

from coremargin.data.difference import earlier
from coremargin.data.folder import check_target
from coremargin.data.locked import Locked
from coremargin.data.scaled import Scaled
from coremargin.data.store import Store
from coremargin.engine.calls import ask_in_order
from coremargin.engine.clusters.specs import local_cluster
from coremargin.errors import UsageError
from coremargin.formats.local_path import local_path
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.expansion import Expansion
from coremargin.maths.kernel.reduced import reduced
from coremargin.maths.margin import ratio
from coremargin.models.brought import faults_named
from coremargin.models.executor import executor_of
from coremargin.models.files import MODEL, check_outside
from coremargin.models.kernel import KernelModel
from coremargin.models.predict import opened_model
from coremargin.problems.common.classes import class_codes, class_index, class_weights
from coremargin.problems.common.threads import one_blas_thread
from coremargin.problems.kernel.bounds import lower_bound, square, upper_bound
from coremargin.problems.kernel.columns import Columns, Setting, class_costs
from coremargin.problems.kernel.compared import Compare, Compared
from coremargin.problems.kernel.result import bounds_of_all, column_bounds
from coremargin.problems.kernel.state import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Executor
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.maths.kernel.reduced import Reduced
    from coremargin.models.fleet import AnyModel

Array = NDArray[np.float64]


def reduce(  # noqa: PLR0913 - one word for each decision, all but four with a default
    model: AnyModel | str | os.PathLike[str], store: Store | str | os.PathLike[str], out: str | os.PathLike[str], *,
    rows: int, C: float | None = None, gamma: str | float | None = None, kernel: KernelFunction | None = None,
    cluster: str | os.PathLike[str] | None = None, overwrite: bool = False,
    report: Callable[[Path], object] | None = None, on_progress: Callable[[int, int], object] | None = None,
) -> KernelModel:  # fmt: skip
    """Write a model to the folder ``out`` that decides nearly as another one does, by so many rows at most.

    Fewer, where these say all that there is to say. What decides is the nearest to it, in the norm of the kernel, that
    these rows can carry. One scan proves how far the two are apart on any row, how many rows may be given another
    class, and what the smaller one is worth as a solution of the problem: its certificate is about that.

    Parameters
    ----------
    model : KernelModel or path-like
        Of a kernel.
    store : Store or path-like
        What it was trained on.
    out : path-like
        The folder of the new model, which appears whole or not at all.
    rows : int
        From 1 to less than those that carry the model.
    C, gamma : float, float or "scale", optional
        Of a fleet, whose member for these is made smaller; without them the one that was chosen.
    kernel : callable, optional
        Of a model in a folder whose kernel is a function: that function.
    cluster : path-like, optional
        Where to compute, as for ``train``; the threads of this process by default.
    overwrite : bool, default False
        Replace a model that is there.
    report : callable, optional
        Called with the folder, adds ``report.html`` to it.
    on_progress : callable, optional
        Called with rows done and rows in all after each block.

    Returns
    -------
    KernelModel
        With a ``reduced`` in its record.

    Raises
    ------
    UsageError
        No model of a kernel, no such number of rows, several values of C or gamma, or something is there.
    StoreError
        The model is about other rows.
    OutputError
        No room, no permission.
    """
    path, cluster = Path(os.path.abspath(local_path(out))), local_cluster(cluster)
    whole = _reducible(opened_model(model, C, gamma, kernel), rows)
    check_outside(path)
    if isinstance(model, str | os.PathLike) and local_path(model).resolve() == path.resolve():
        raise UsageError(f"{path}: expected another place than that of the larger model, which would be lost")
    opened = store if isinstance(store, Store) else Store.open(store)
    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    with Locked(path, "this model"):
        check_target(path, MODEL, overwrite=overwrite)
        source = _as_trained(whole, earlier(opened, whole.store_digest))
        with executor_of(source, "threads" if cluster is None else cluster) as executor:
            made, answer = _Reducing(whole, source).made(rows, executor, on_progress)
            run: dict[str, Any] = {
                "started": started, "seconds": time.perf_counter() - began, "scans": 1, "sample_scans": 0,
                "bytes_read": source.nbytes, "store_bytes": source.nbytes, "store": source.name, "out": str(path),
                "peak_rss_bytes": executor.peak_rss_bytes(), "executor": executor.description, "resumable": False,
                "confusion": answer.confusion.tolist(), "confusion_of": "final",
            }  # fmt: skip
        made.save(path, run, report=report, overwrite=overwrite)
    return made


def _reducible(model: AnyModel, rows: int) -> KernelModel:
    """The model, of a fleet the one that decides. Raises UsageError where it has not more rows than that."""
    if model.problem == "kernel":
        (model,) = model.deciders()
    if not isinstance(model, KernelModel):
        raise UsageError(
            f"expected a model of a kernel, found one of problem {model.problem!r}: it has no rows to spare"
        )
    if "view" in model.record:
        raise UsageError("expected a model of all rows, found a member of a fleet that holds out a fold")
    most = len(model.coreset_ids)
    if not 1 <= rows < most:
        raise UsageError(f"rows: {most:,} carry the model, expected a number from 1 to {most - 1:,}; found {rows:,}")
    return model


def _as_trained(model: KernelModel, store: Store) -> Source:
    """The rows as they were trained on: scaled by the model's own numbers."""
    how = model.row_scaling
    return store if how is None else Scaled(store, how.kind, how.shift, how.factor)


@dataclass(frozen=True)
class _Reducing:
    """A model, and the rows that it is about."""

    model: KernelModel
    source: Source

    def made(
        self, rows: int, executor: Executor, on_progress: Callable[[int, int], object] | None
    ) -> tuple[KernelModel, Compared]:
        """The smaller model, and what the scan said."""
        model = self.model
        named = partial(faults_named, model.kernel, "the model", model.coreset_ids)
        with one_blas_thread(), named():  # the same bits on any number of cores
            small = reduced(model.whole, rows)
            both = self._both(small)
            _ = both.points  # which scans and bounds begin with
        answer = self._compared(both, executor, on_progress)
        if not np.isfinite(answer.distance):
            raise UsageError(f"{self.source.name}: the kernel overflows on some rows; nothing is known of them")
        with named():
            machine = self._proven(both, answer)
        return self._model(small, answer, machine), answer

    @property
    def columns(self) -> Columns:
        """What stands against what, and what rows cost."""
        asked, codes = self.model.parameters, class_codes(self.source)
        totals = class_weights(self.source, codes)
        cost = float(asked.get("C", 1.0))
        costs = class_costs(cost, asked.get("class_weight"), totals)
        return Columns((Setting(0, cost, None),), len(codes), costs, asked.get("loss"), asked["intercept"])

    def _both(self, small: Reduced) -> Expansion:
        """The smaller functions, then the whole ones, on the same rows."""
        model = self.model
        weights = np.hstack([np.zeros_like(model.weights), model.weights])
        weights[small.places, : len(model.offsets)] = small.weights
        return Expansion(model.kernel, model.coreset_x, weights, np.tile(model.offsets, 2))

    def _compared(
        self, both: Expansion, executor: Executor, on_progress: Callable[[int, int], object] | None
    ) -> Compared:
        """What all rows say."""
        source, columns = self.source, self.columns
        question = Compare(both, columns, class_index(class_codes(source)))
        answer = Compared.nothing(len(columns), columns.classes)
        with closing(ask_in_order(executor, source, question)) as answers:
            for one in answers:
                answer = answer.merge(one)
                if on_progress is not None:
                    on_progress(answer.rows, source.rows)
        return answer

    def _proven(self, both: Expansion, answer: Compared) -> Machine:
        """The bounds that the whole coreset's duals and the value of the smaller functions prove."""
        model, columns = self.model, self.columns
        points, kernel = both.points, model.kernel
        longest = float(self.source.scalars().max_norm.max())
        if isinstance(kernel, CallableKernel):
            longest = answer.longest
        reach = float(np.sqrt(kernel.largest(longest, longest)))
        signs = columns.signs(model.coreset_classes, model.coreset_ids)
        shares = np.ones(len(signs)) if self.source.weights(0) is None else self._shares()
        costs, lower, upper = columns.costs(signs, shares), *np.empty((2, len(columns)))
        for k in range(len(columns)):
            own, whole = (square(kernel, points, both.weights[:, c], both.lengths) for c in (k, k + len(columns)))
            losses, least = float(answer.losses[k]), float(answer.smallest[k])
            upper[k] = upper_bound(own, losses, least, answer.rows, hard=columns.loss is None)
            found = lower_bound(columns.side(k, signs, costs), model.duals[:, k], whole, reach, float(upper[k]))
            lower[k] = max(0.0, found)
        return Machine(model.duals, model.offsets, lower, upper)

    def _shares(self) -> Array:
        """Sample weights (m,) of the coreset's rows."""
        ids, found = self.model.coreset_ids, np.ones(len(self.model.coreset_ids))
        for chunk in range(self.source.chunks):
            start, stop = self.source.span(chunk)
            mine, weights = np.flatnonzero((ids >= start) & (ids < stop)), self.source.weights(chunk)
            if len(mine) and weights is not None:
                found[mine] = weights[ids[mine] - start]
        return found

    def _model(self, small: Reduced, answer: Compared, machine: Machine) -> KernelModel:
        """The same model, decided by fewer rows, with what is proven of these."""
        model, hard = self.model, self.columns.loss is None
        epsilon = float(model.certificate.epsilon)
        lowers, uppers = column_bounds(machine, hard=hard)
        lower, upper = (bounds_of_all(bounds, hard=hard) for bounds in (lowers, uppers))
        known = None if lower is None or upper is None else ratio(lower, upper)
        proven = bool(machine.certified(epsilon, margins=hard).all())
        record = dict(model.record)
        record |= {
            "status": "certified" if proven else "stopped",
            "certificate": model.record["certificate"] | {"lower": lower, "upper": upper, "ratio": known},
            "reduced": {"rows": len(small.places), "distance": answer.distance, "changed": answer.changed},
        }
        return replace(
            model, record=record, lowers=lowers, uppers=uppers, reduced_places=small.places,
            reduced_weights=small.weights,
        )  # fmt: skip
