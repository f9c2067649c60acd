"""``partial_fit``: training on batches, with a certificate for all rows seen."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from coremargin.argument_names import named_arguments
from coremargin.engine.default_memory import LEAST, memory_of
from coremargin.errors import UsageError
from coremargin.estimators.class_weights import weighs_rows
from coremargin.estimators.history import FEWEST, History, PartialFitState, rows_that_fit
from coremargin.estimators.inputs import batch_of
from coremargin.estimators.support import check_separable, deciders, positives, support_of, warn_unproven
from coremargin.maths.margin import NEGATIVE, POSITIVE, best_offset, is_certified, lower_bound, ratio, safe_projections
from coremargin.models.decision import label_array
from coremargin.problems.soft.losses.table import LOSSES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from coremargin.data.arrays import ArraySource
    from coremargin.models.fleet import FleetModel
    from coremargin.models.model import Model

#: Positions between the previous hyperplane (0) and the new one (1) that are tried if the new one is not certified.
_LINE_POINTS = (1.0, 0.95, 0.9, 0.75, 0.5, 0.25, 0.0)
#: Parameters that must not change after the first batch, since the certificate covers all batches.
_FIXED = (
    *("loss", "C", "epsilon", "fit_intercept", "class_weight", "relative_margin", "columns", "multi_class"),
    *("scaling", "map"),
)
#: Advice for a model that is not certified after rows were dropped.
_DROPPED = "rows of earlier batches were dropped; give more memory, or fit a store of all rows"
#: Attributes that start the training on waiting batches.
_FITTED = ("model_", "n_iter_", "coef_", "intercept_", "certificate_", "support_", "coreset_")


def _supports_partial_fit(estimator: PartialFitMixin) -> bool:
    """For ``available_if``: raises UsageError for parameters that need all rows at once."""
    for name, when in (("class_weight", estimator.class_weight == "balanced"), ("scaling", estimator.scaling)):
        if when:
            raise UsageError(
                f"{name}: {getattr(estimator, name)!r} needs all rows at once; pass factors of "
                "classes and scaled rows to partial_fit"
            )
    if estimator.map is not None:
        raise UsageError(f"map: {estimator.map!r} needs all rows at once; pass mapped rows to partial_fit")
    if estimator.loss == "auto":
        raise UsageError("loss: 'auto' needs all rows at once; partial_fit takes 'squared_hinge', 'hinge' or None")
    if estimator.loss == "logistic":
        raise UsageError("loss: 'logistic' needs all rows at once; partial_fit takes 'squared_hinge', 'hinge' or None")
    if estimator.relative_margin is not None:
        raise UsageError(f"relative_margin: {estimator.relative_margin!r} needs all rows at once; use fit")
    if estimator.multi_class != "ovr":
        raise UsageError(f"multi_class: {estimator.multi_class!r} needs all rows at once; partial_fit takes 'ovr'")
    return True


class PartialFitMixin:
    """``partial_fit`` of an estimator with these parameters and methods."""

    loss: str | None
    C: float
    epsilon: float
    class_weight: Mapping[Any, float] | str | None
    scaling: str | None
    relative_margin: float | None
    map: str | None
    multi_class: str
    columns: Mapping[str, Any] | None
    memory: str | int | None
    _train: Callable[..., tuple[Any, int]]
    _set_attributes: Callable[..., None]
    _delete_attributes: Callable[..., None]
    _class_factors: Callable[[tuple[Any, ...]], Any]

    @available_if(_supports_partial_fit)  # type: ignore[untyped-decorator]
    @named_arguments()
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on a further batch; ``certificate_`` covers all rows seen since the first.

        With a loss, a batch is checked and waits. Training runs when a fitted attribute is used next (``certificate_``,
        ``model_``, ``coef_``, ``predict``, ...), on all rows in memory; until then the estimator can be copied and
        pickled. The first batch is trained on at once, and so is one that makes it necessary to drop rows.

        Rows stay in memory as long as half of ``memory`` holds them. Until then the result is that of ``fit`` on all
        batches, to the bit, and ``coremargin verify`` can check ``model_`` against a store of them. Afterwards rows
        with the largest margins are dropped, and bounds on them remain (estimators/history.py). If these do not prove
        epsilon, the status is "stopped" and a ConvergenceWarning is issued; ``fit`` on a store of all rows proves more.
        A hard margin that the new rows respect stays as it is, after one look at them; otherwise it is trained again at
        once.

        The first batch decides how columns of a table are encoded: later batches use its categories, medians and word
        weights, as ``coremargin.ingest`` does with ``append``. Columns are found by name. A category that the first
        batch did not have is encoded as unknown or refused (``columns``: unknown); a missing value in a column that had
        none is refused unless ``missing`` is set.

        ``classes_`` has all classes that were declared in the first call, as in scikit-learn. A class without rows is
        never predicted: model and certificate are about the others, and its column of ``decision_function`` is the
        smallest float64. With rows of one class only, that class is predicted, and ``certificate_`` and ``coef_`` raise
        NotFittedError.

        ``partial_fit`` is not available with scaling, a map, class_weight="balanced", loss="auto", loss="logistic", a
        relative margin or "crammer_singer". It can follow ``fit`` on rows in memory, if ``memory`` holds them; after
        ``fit`` on a store or on more rows, start with a clone.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), or table
            The batch, in memory.
        y : array_like of shape (n,) or str
            Labels, or the name of the column with labels.
        classes : array_like of shape (k,), optional
            All labels, in the first call; None: those of the first batch. A class may have its first rows in a later
            batch.
        sample_weight : array_like of shape (n,) or str, optional
            As for ``fit``; if used, from the first batch on.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            As for ``fit``; a batch that is refused changes nothing.
        NotCertified
            As for ``fit``.
        UsageError
            Rows that are not in memory, parameters that changed since the first batch, or too many rows that the proof
            needs for the memory.
        """
        state: PartialFitState | None = getattr(self, "_partial_fit_state", None)
        self._check_parameters(state)
        batch, columns, declared = batch_of(self, X, y, classes, sample_weight, state)
        if state is None:
            state = PartialFitState(self._fixed_parameters(), columns, declared)
        first, state = state.history is None, state.add_batch(batch)
        ready = len(state.present) > 1
        if ready and (self.loss is None or first or not self._fits_in_memory(state)):
            self._train_on_all_rows(state)
            return self
        if not ready and not self._fits_in_memory(state):
            raise UsageError(
                f"memory: {state.rows:,} rows of one class fill it, rows of others are missing; give more memory, or "
                "mix the classes in the batches"
            )
        state.check(self._class_c(state) if ready else None)
        self._partial_fit_state = state
        self._delete_attributes(*_FITTED, "_places")
        self.classes_ = label_array(declared)
        return self

    def __getattr__(self, name: str) -> Any:
        """Train on waiting batches when a fitted attribute is used."""
        state: PartialFitState | None = vars(self).get("_partial_fit_state")
        if name in _FITTED and state is not None and state.waiting:
            if len(state.present) < 2:
                raise NotFittedError(f"{name}: {state.describe_missing()}")
            self._train_on_all_rows(state)
        return object.__getattribute__(self, name)  # raises AttributeError

    def _fits_in_memory(self, state: PartialFitState) -> bool:
        """Whether half of ``memory`` holds all rows; available memory is queried only if necessary."""
        if self.memory is None and state.fits(LEAST // 2):
            return True
        return state.fits(memory_of(self.memory) // 2)

    def _train_on_all_rows(self, state: PartialFitState) -> None:
        """Train on all rows, with the parameters of the first batch; an error changes nothing."""
        before: Model | FleetModel | None = vars(self).get("model_")
        fresh, history, scans = clone(self).set_params(**state.parameters), state.all_rows(), 1
        if before is not None and len(deciders(before)) != len(history.positives):
            before = None  # it has fewer classes
        source = history.source(state.columns)
        model = extend_certificates(before, history) if before else None
        if model is None:
            found, scans = fresh._train(source, len(state.declared))  # noqa: SLF001 - of the same class
            support = history.ids[support_of(deciders(found), source)]
            model = certify_all_rows(found, history, before)
        else:
            support = np.unique(np.concatenate([one.coreset_ids for one in deciders(model)]))
        models = deciders(model)
        check_separable(models)
        rows = source.rows_at(np.searchsorted(history.ids, support))[0]
        class_c = fresh._class_c(state)  # noqa: SLF001
        remaining = _drop_far_rows(history, models, class_c, rows_that_fit(source, memory_of(self.memory) // 2))
        self._set_attributes(model, scans, state.declared)
        self.support_, self.coreset_ = support, rows
        self._partial_fit_state = state.after_training(remaining)  # last: an interrupted training starts again
        warn_unproven(models, fresh.epsilon, _DROPPED)

    def _save_history(self, source: ArraySource, models: list[Model], most: int) -> None:
        """Keep at most ``most`` rows after ``fit``, for ``partial_fit``; models: trained on the source."""
        history = History.of(source)
        declared = tuple(history.classes[code] for code in history.present)
        state = PartialFitState(self._fixed_parameters(), source.columns, declared).after_training(history)
        self._partial_fit_state = state.after_training(
            _drop_far_rows(history, models, self._class_c(state), max(FEWEST, most))
        )

    def _fixed_parameters(self) -> dict[str, Any]:
        """Copies of the parameters that must not change; they may contain dicts."""
        return {name: deepcopy(getattr(self, name)) for name in _FIXED}

    def _check_parameters(self, state: PartialFitState | None) -> None:
        if state is None:
            if hasattr(self, "coef_"):
                raise UsageError("partial_fit: fit has saved no rows to continue with; call partial_fit on a clone")
            return
        for name, was in state.parameters.items():
            now = getattr(self, name)
            if now != was:
                raise UsageError(f"{name}: expected {was!r} as for the first batch, found {now!r}; use a clone")

    def _class_c(self, state: PartialFitState) -> list[NDArray[np.float64]]:
        """C (2,) of the positive and the negative side of each problem."""
        if weighs_rows(self, len(state.declared)):
            return [np.full(2, float(self.C))] * len(positives(state.present))
        negative, positive = self._class_factors(state.declared) or (1.0, 1.0)
        return [float(self.C) * np.array([float(positive), float(negative)])]


def certify_all_rows(
    found: Model | FleetModel, history: History, before: Model | FleetModel | None
) -> Model | FleetModel:
    """A model trained on ``history.source()`` with certificates for all rows seen.

    before: the previous model. One bound of the rows in memory also holds for all rows; the other one is corrected by
    what dropped rows may lose. If the gap exceeds epsilon, the status is "stopped". A hard margin may get a hyperplane
    between the previous and the new one if that proves more. Metrics of a multi-model job on all rows are not known.
    """
    earlier = [None] * len(history.positives) if before is None else before.deciders()
    models = [
        _certify(model, history, k, old) for k, (model, old) in enumerate(zip(found.deciders(), earlier, strict=True))
    ]
    return found.with_deciders(models)


def _certify(model: Model, history: History, k: int, before: Model | None) -> Model:
    lower, upper = model.certificate.lower, model.certificate.upper
    if model.status == "not_separable" or not history.dropped:
        return _with_certificate(model, history, lower, upper, model.status)
    if model.certificate.is_margin:
        return _certify_margin(model, history, k, before)
    lost = history.max_loss(k, model.w, model.b, LOSSES[model.parameters["loss"]])
    value = (np.inf if upper is None else upper) + lost
    proven = is_certified(lower or 0.0, value, model.certificate.epsilon)
    return _with_certificate(model, history, lower, value, "certified" if proven else "stopped")


def extend_certificates(before: Model | FleetModel, history: History) -> Model | FleetModel | None:
    """The previous hard margins with certificates for all rows seen, or None if new rows violate them."""
    models = []
    for k, model in enumerate(before.deciders()):
        upper = model.certificate.upper
        if not model.certificate.is_margin or upper is None:
            return None
        lower, hypothesis = _best_hyperplane(
            history, k, model.w[:, None], intercept=bool(model.parameters["intercept"])
        )
        if not is_certified(lower, upper, model.certificate.epsilon):
            return None
        models.append(
            _with_certificate(
                _with_hyperplane(model, hypothesis), history, lower, upper, "certified", ids=model.coreset_ids
            )
        )
    return before.with_deciders(models)


def _drop_far_rows(
    history: History, models: Sequence[Model], class_c: Sequence[NDArray[np.float64]], most: int
) -> History:
    """Drop rows so that ``most`` stay; class_c (2,): of the sides of each problem. Raises UsageError."""
    margin = models[0].certificate.is_margin
    return history.drop_far_rows(
        [(model.w, model.b) for model in models],
        [(model.certificate.lower or model.certificate.upper or 1.0) if margin else 1.0 for model in models],
        class_c,
        most,
        np.unique(np.concatenate([model.coreset_ids for model in models])) if margin else None,
    )


def _certify_margin(model: Model, history: History, k: int, before: Model | None) -> Model:
    upper = model.certificate.upper
    directions = model.w[:, None]
    if before is not None:
        t = np.array(_LINE_POINTS)
        directions = np.outer(model.w, t) + np.outer(before.w, 1.0 - t)
    lower, hypothesis = _best_hyperplane(history, k, directions, intercept=bool(model.parameters["intercept"]))
    if lower <= 0:  # nothing is proven for dropped rows: the model of rows in memory, without a lower bound
        return _with_certificate(model, history, None, upper, "stopped")
    proven = upper is not None and is_certified(lower, upper, model.certificate.epsilon)
    return _with_certificate(
        _with_hyperplane(model, hypothesis), history, lower, upper, "certified" if proven else "stopped"
    )


def _best_hyperplane(
    history: History, k: int, directions: NDArray[np.float64], *, intercept: bool
) -> tuple[float, tuple[NDArray[np.float64], float]]:
    """The largest margin proven for all rows by one of the directions (d, j), and its hyperplane, normalised."""
    signs, least = history.signs(k), history.lower_bounds(k, directions)
    for side, sign in ((POSITIVE, 1), (NEGATIVE, -1)):
        mine = np.flatnonzero((signs == sign) & (history.weights > 0))
        if len(mine):
            values = safe_projections(history.rows[mine], signs[mine], directions).min(axis=0)
            least[side] = np.minimum(least[side], values)
    lower, offset = lower_bound(least, directions, intercept), best_offset(least, intercept)
    j = int(np.argmax(lower))
    length = float(np.linalg.norm(directions[:, j]))
    return float(lower[j]), (directions[:, j] / length, float(offset[j]) / length)


def _with_hyperplane(model: Model, hypothesis: tuple[NDArray[np.float64], float]) -> Model:
    return replace(model, numbers={**model.numbers, "w": hypothesis[0], "b": np.array([hypothesis[1]])})


def _with_certificate(
    model: Model,
    history: History,
    lower: float | None,
    upper: float | None,
    status: str,
    ids: NDArray[np.int64] | None = None,
) -> Model:
    """The model with bounds for all rows seen; ids: of its coreset among all rows, if known.

    Block bounds of a hard margin are removed, as they refer to chunks of the rows in memory, and its claim to be a
    compression scheme.
    """
    proven = None if model.status == "not_separable" or lower is None or upper is None else ratio(lower, upper)
    claims: dict[str, Any] = {
        **{name: value for name, value in model.record["certificate"].items() if name != "store_sha256"},
        "lower": lower,
        "upper": upper,
        "ratio": proven,
        "store_digest": history.digest,
        "radius": history.radius,
    }
    record = {**model.record, "rows": history.rows_seen, "status": status, "certificate": claims}
    record.pop("compression", None)
    numbers = {name: values for name, values in model.numbers.items() if not name.startswith("block_bounds")}
    numbers["coreset_ids"] = history.ids[model.coreset_ids] if ids is None else ids
    return replace(model, record=record, numbers=numbers)
