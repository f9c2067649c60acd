"""``partial_fit``: batches one after the other, and a certificate about all rows of all of them."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from coremargin.argument_names import named_arguments
from coremargin.engine.default_memory import LEAST, memory_of
from coremargin.errors import UsageError
from coremargin.estimators.class_weights import weighs_rows
from coremargin.estimators.continuing import about_all, relieved, stand
from coremargin.estimators.history import FEWEST, History, room
from coremargin.estimators.inputs import batch_of
from coremargin.estimators.seen import Seen
from coremargin.estimators.support import check_separable, deciders, positives, support_of, warn_unproven
from coremargin.models.decision import label_array

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from coremargin.data.arrays import ArraySource
    from coremargin.models.fleet import FleetModel
    from coremargin.models.model import Model

#: Parameters that the proof of all rows rests on: they stay as they were for the first batch.
_TERMS = ("loss", "C", "epsilon", "fit_intercept", "class_weight", "columns", "multi_class", "scaling", "map")
#: Why a proof is not complete, where rows came bit by bit.
_LET_GO = "rows of earlier batches were let go; give more memory, or fit a store of all rows"
#: What is learnt from rows, and not before it is looked at where batches wait.
_LEARNT = ("model_", "n_iter_", "coef_", "intercept_", "certificate_", "support_", "coreset_")


def _knows_batches(estimator: InBatches) -> bool:
    """Whether the parameters mean something for rows that come bit by bit; else there is no ``partial_fit``."""
    for name, when in (("class_weight", estimator.class_weight == "balanced"), ("scaling", estimator.scaling)):
        if when:
            raise UsageError(
                f"{name}: {getattr(estimator, name)!r} is not known before all rows are; "
                "give partial_fit factors, and rows that are scaled"
            )
    if estimator.map is not None:
        raise UsageError(f"map: {estimator.map!r} is made of all rows; give partial_fit rows that are mapped")
    if estimator.loss == "auto":
        raise UsageError("loss: 'auto' is decided by all rows at once; batches take 'squared_hinge', 'hinge' or None")
    if estimator.loss == "logistic":
        raise UsageError("loss: 'logistic' is trained on all rows; batches take 'squared_hinge', 'hinge' or None")
    if estimator.multi_class != "ovr":
        raise UsageError(f"multi_class: {estimator.multi_class!r} is learnt from all rows at once; batches take 'ovr'")
    return True


class InBatches:
    """What an estimator of maximum margins needs to learn from batches; it has these parameters and methods."""

    loss: str | None
    C: float
    epsilon: float
    class_weight: Mapping[Any, float] | str | None
    scaling: str | None
    map: str | None
    multi_class: str
    columns: Mapping[str, Any] | None
    memory: str | int | None
    _trained: Callable[..., tuple[Any, int]]
    _adopt: Callable[..., None]
    _forget: Callable[..., None]
    _weights: Callable[[tuple[Any, ...]], Any]

    @available_if(_knows_batches)  # type: ignore[untyped-decorator]
    @named_arguments()
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on with a batch of rows; ``certificate_`` is about all rows seen since the first.

        With a loss a batch is checked and taken in, which costs what it brings, and waits. Whoever looks at what is
        learnt next (``certificate_``, ``model_``, ``coef_``, ``predict``, ...) waits for a training on all rows, one
        for all batches since the last look; a machine may be copied and pickled before. The first batch is learnt from
        at once, and so is one that leaves rows to let go, of which there are then enough for some batches.

        Rows are kept while half of ``memory`` holds them: until then the answer is that of ``fit`` on all batches, to
        the digest, so that ``coremargin verify`` checks ``model_`` against a store of them. Then rows with the largest
        margins are let go, and what is known of them (floors and a ball, see estimators/history.py) bounds what a new
        hypothesis does to them. Where that does not prove epsilon, the bounds are what it does prove, the status is
        "stopped", and a ConvergenceWarning says so when it is learnt: ``fit`` on a store of all rows proves more. A
        hard margin that the new rows respect stays as it is, for the price of one look at them; any other is learnt
        anew at once.

        What the columns of a table become is decided by the first batch, as of a store by the rows that are ingested
        first: later batches go on with its categories, medians and weights of words, as ``coremargin.ingest`` with
        ``append`` does. Columns are found by name; a category that the first batch did not have is none of those there
        are, or refused (``columns``: unknown), and so is a gap where it had none and ``missing`` is not said.

        ``classes_`` has all classes that were named in the first call, as of scikit-learn's classifiers. Until a class
        has rows it is never predicted: the model and its certificate are about the classes that have some, and its
        column of ``decision_function`` is the lowest number there is. While there are rows of one class only, that
        class is predicted, and nothing is learnt yet: ``certificate_`` and ``coef_`` raise NotFittedError.

        With scaling, a map, class_weight="balanced", loss="auto", loss="logistic" or "crammer_singer" there is no
        ``partial_fit``. After ``fit`` on rows in memory, no more of them than ``memory`` holds, it goes on from there;
        after ``fit`` on a store or more rows nothing was kept: begin with a clone.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), or table
            The batch, in memory.
        y : array_like of shape (n,) or str
            Its labels, or the name of the column that holds them.
        classes : array_like of shape (k,), optional
            All labels there will be, in the first call; None: those of the first batch. Later batches may bring the
            first rows of a class.
        sample_weight : array_like of shape (n,) or str, optional
            As for ``fit``; if there are any, from the first batch on.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            As ``fit`` does; a batch that is refused leaves everything as it was.
        NotCertified
            As ``fit`` does.
        UsageError
            Rows that are not in memory, parameters that changed since the first batch, or rows that decide the answer
            and no longer fit into memory.
        """
        seen: Seen | None = getattr(self, "_seen", None)
        self._check_terms(seen)
        batch, columns, declared = batch_of(self, X, y, classes, sample_weight, seen)
        if seen is None:
            seen = Seen(self._terms(), columns, declared)
        first, seen = seen.history is None, seen.then(batch)
        ready = len(seen.present) > 1
        if ready and (self.loss is None or first or not self._holds(seen)):
            self._learn(seen)
            return self
        if not ready and not self._holds(seen):
            raise UsageError(
                f"memory: {seen.rows:,} rows of one class fill it, and rows of others are still missing; give more "
                "memory, or mix the classes in the batches"
            )
        seen.check(self._class_c(seen) if ready else None)
        self._seen = seen
        self._forget(*_LEARNT, "_places")
        self.classes_ = label_array(declared)
        return self

    def __getattr__(self, name: str) -> Any:
        """What is learnt from batches that wait, when it is looked at. Raises as training does."""
        seen: Seen | None = vars(self).get("_seen")
        if name in _LEARNT and seen is not None and seen.waiting:
            if len(seen.present) < 2:
                raise NotFittedError(f"{name}: {seen.describe_missing()}")
            self._learn(seen)
        return object.__getattribute__(self, name)  # which says why there is none

    def _holds(self, seen: Seen) -> bool:
        """Whether half of ``memory`` holds the rows kept; what there is is not asked where the least would do."""
        if self.memory is None and seen.fits(LEAST // 2):
            return True
        return seen.fits(memory_of(self.memory) // 2)

    def _learn(self, seen: Seen) -> None:
        """Learn from all rows seen, by the terms of the first batch; until it is done everything is as it was."""
        before: Model | FleetModel | None = vars(self).get("model_")
        begun, history, scans = clone(self).set_params(**seen.terms), seen.whole(), 1
        if before is not None and len(deciders(before)) != len(history.positives):
            before = None  # of fewer classes
        source = history.source(seen.columns)
        model = stand(before, history) if before else None
        if model is None:
            found, scans = begun._trained(source, len(seen.declared))  # noqa: SLF001 - a machine like this one
            support = history.ids[support_of(deciders(found), source)]
            model = about_all(found, history, before)
        else:
            support = np.unique(np.concatenate([one.coreset_ids for one in deciders(model)]))
        models = deciders(model)
        check_separable(models)
        rows = source.rows_at(np.searchsorted(history.ids, support))[0]
        class_c = begun._class_c(seen)  # noqa: SLF001
        kept = relieved(history, models, class_c, room(source, memory_of(self.memory) // 2))
        self._adopt(model, scans, seen.declared)
        self.support_, self.coreset_ = support, rows
        self._seen = seen.learnt(kept)  # last: until then whoever looks learns again
        warn_unproven(models, begun.epsilon, _LET_GO)

    def _remember(self, source: ArraySource, models: list[Model], most: int) -> None:
        """Keep at most ``most`` rows of a source, of which these are the models, for batches that may follow."""
        history = History.of(source)
        declared = tuple(history.classes[code] for code in history.present)
        seen = Seen(self._terms(), source.columns, declared).learnt(history)
        self._seen = seen.learnt(relieved(history, models, self._class_c(seen), max(FEWEST, most)))

    def _terms(self) -> dict[str, Any]:
        """The parameters that the proof of all rows rests on; a dict among them may change in its place."""
        return {name: deepcopy(getattr(self, name)) for name in _TERMS}

    def _check_terms(self, seen: Seen | None) -> None:
        if seen is None:
            if hasattr(self, "coef_"):
                raise UsageError(
                    "partial_fit: fit on this kept no rows to go on from; begin with partial_fit on a clone"
                )
            return
        for name, was in seen.terms.items():
            now = getattr(self, name)
            if now != was:
                raise UsageError(f"{name}: expected {was!r} as for the first batch, found {now!r}; begin with a clone")

    def _class_c(self, seen: Seen) -> list[NDArray[np.float64]]:
        """What a loss costs on the positive and on the negative side of each problem."""
        if weighs_rows(self, len(seen.declared)):
            return [np.full(2, float(self.C))] * len(positives(seen.present))
        negative, positive = self._weights(seen.declared) or (1.0, 1.0)
        return [float(self.C) * np.array([float(positive), float(negative)])]
