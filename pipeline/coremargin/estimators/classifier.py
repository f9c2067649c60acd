"""``MarginCoresetClassifier``: a linear support vector machine whose optimality is proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from coremargin.data.arrays import ArraySource
from coremargin.data.lazy import LazySource
from coremargin.errors import UsageError
from coremargin.estimators.batches import InBatches
from coremargin.estimators.inputs import decision_values, factors_of, source_of
from coremargin.estimators.past import Past, room
from coremargin.estimators.support import check_proof, deciders, present, support_of
from coremargin.learn.api import train
from coremargin.models.converters import Linear, as_onnx, as_sklearn
from coremargin.models.decision import decided
from coremargin.spec import parse_size

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.utils import Tags

    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel


class MarginCoresetClassifier(InBatches, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear support vector machine, trained to a proven gap.

    Minimises 1/2 ||w||^2 + C sum_i s_i loss(y_i (w.x_i + b)) with an intercept that is not penalised, the problem of
    ``SVC(kernel="linear")``, or separates with the largest margin (``loss=None``). Of more than two classes each one
    is set against the rest, all of them in the same scans, or all against each other (``multi_class``).

    Parameters
    ----------
    loss: "squared_hinge", "hinge", or None for the hard margin (``coremargin.train``: None unless given).
    C: price of a row's loss; class_weight: factors of C, {label: factor} or "balanced": n / (k n_class). A hard margin
    reads neither.
    epsilon: the value (hard margin: the margin) is proven to be within this share of the best possible.
    fit_intercept: False for a hyperplane through the origin (of the scaled rows).
    multi_class: "ovr", one class against the rest, or "crammer_singer", one problem about all classes (with the hinge
    or without a loss; not for ``partial_fit``).
    scaling: "standard", "minmax", "maxabs" or "rownorm": rows are scaled as they are read, from statistics of all rows,
    as a scaler before this one in a pipeline would; ``coef_`` and ``intercept_`` are for rows as they come, up to
    rounding (of "rownorm": for rows divided by their lengths). Not for ``partial_fit``.
    cluster: where to scan a store: a file of ``cluster/``, a scheduler's address, "embedded", "threads", None chooses.
    memory: for the rows kept in this process, such as "256 MiB".

    Attributes
    ----------
    coef_ (1, d), intercept_ (1,), classes_ (2,); of more than two classes (k, d), (k,), (k,). n_features_in_,
    feature_names_in_ (of data frames), n_iter_: scans of all rows.
    certificate_: both bounds and what they prove; of several classes with "ovr" a list, one for each. model_: the
    ``Model``, ``FleetModel`` or ``MulticlassModel``, which has ``save`` and is what ``coremargin verify`` checks.
    support_ (m,), coreset_ (m, d): positions and values of the rows that decide the answer: for a hard margin those
    that carry the proof; with a loss all rows that have one or lie on the edge, known for rows in memory only, their
    values if ``memory`` holds them.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> machine = make_pipeline(StandardScaler(), MarginCoresetClassifier(C=0.1)).fit(X, y)
    >>> machine[-1].certificate_.ratio > 0.999
    True
    """

    def __init__(  # noqa: PLR0913 - one word for each decision, all with a default
        self,
        *,
        loss: str | None = "squared_hinge",
        C: float = 1.0,
        epsilon: float = 1e-3,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        multi_class: str = "ovr",
        scaling: str | None = None,
        cluster: str | None = None,
        memory: str | int = "256 MiB",
    ) -> None:
        self.loss = loss
        self.C = C
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.multi_class = multi_class
        self.scaling = scaling
        self.cluster = cluster
        self.memory = memory

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows X (n, d) with labels y (n,), or on a store: its path or a ``Store``, without y.

        sample_weight (n,): factors of the price of a row; 0 leaves it out, a hard margin reads nothing else of them.

        X: an array, a sparse matrix, a data frame, a Dask array or a Zarr array; the last two are read block by block,
        never as a whole, in one pass that counts what is in them and in every scan.
        Raises ValueError for rows, labels or parameters that cannot be used, NotCertified when a hard margin is asked
        for and no hyperplane separates the rows. Warns (ConvergenceWarning) when more scans would not reach epsilon.
        """
        if self.multi_class not in ("ovr", "crammer_singer"):
            raise UsageError(f"multi_class: expected 'ovr' or 'crammer_singer', found {self.multi_class!r}")
        source = source_of(self, X, y, sample_weight)
        model, scans = self._trained(source)
        models = deciders(model)
        check_proof(models, self.epsilon)
        self._adopt(model, scans)
        self._forget("support_", "coreset_", "_past")
        arrays = source if isinstance(source, ArraySource) and not isinstance(source, LazySource) else None
        if self.loss is None or arrays is not None:
            self.support_ = support_of(models, source)
            most = room(source, parse_size(self.memory))
            if len(self.support_) <= most:
                self.coreset_ = source.rows_at(self.support_)[0]
            if arrays is not None and arrays.rows <= most and hasattr(self, "partial_fit"):
                self._remember(Past.of(arrays), models, 2 * len(self.support_))
        return self

    def _trained(self, source: Source) -> tuple[AnyModel, int]:
        """The model of a source, of all its classes, and the scans that it took."""
        asked: dict[str, Any] = {}
        two = len(present(source)) == 2 and self.multi_class == "ovr"
        if not two:
            asked["classes"] = self.multi_class.replace("_", "-")
        if self.loss is not None:
            asked["C"] = self.C
            if self.class_weight is not None and two:  # of several classes they are weights of the rows
                asked["class_weight"] = self._weights(source.classes)
        rounds: list[dict[str, Any]] = []
        model = train(
            source, cluster=self.cluster, loss=cast("Any", self.loss), epsilon=self.epsilon,
            intercept=bool(self.fit_intercept), memory=self.memory, scaling=cast("Any", self.scaling),
            on_round=rounds.append, **asked,
        )  # fmt: skip
        return model, max(1, sum(record["kind"] == "scan" for record in rounds))

    def _adopt(self, model: AnyModel, scans: int) -> None:
        """Set what is learnt."""
        linear = model.linear()
        self.model_, self.n_iter_ = model, scans
        self.classes_, (self.coef_, self.intercept_) = linear.classes, linear.folded()
        claims = [one.certificate for one in deciders(model)]
        self.certificate_ = claims[0] if len(claims) == 1 else claims

    def _forget(self, *names: str) -> None:
        """What an earlier fit knew and this one does not."""
        for name in names:
            if hasattr(self, name):
                delattr(self, name)

    def _weights(self, classes: tuple[Any, ...]) -> str | list[float] | None:
        """class_weight as factors for the negative and the positive class."""
        if self.class_weight is None or isinstance(self.class_weight, str):
            return self.class_weight
        return factors_of(self.class_weight, sorted(classes))

    def decision_function(self, X: Any) -> Any:
        """w.z + b of each row, scaled as in training: (n,), positive towards ``classes_[1]``.

        Of several classes (n, k), the largest wins.
        X: what ``fit`` takes. Of a Dask array a Dask array, nothing computed yet; else an array.
        """
        check_is_fitted(self)
        return decision_values(self, X)

    def predict(self, X: Any) -> Any:
        """The label of each row (n,); of a Dask array a Dask array."""
        values = self.decision_function(X)
        if hasattr(values, "map_blocks"):
            values = values.rechunk({1: -1}) if values.ndim == 2 else values
            dropped = 1 if values.ndim == 2 else None
            return values.map_blocks(self._labels, drop_axis=dropped, dtype=self.classes_.dtype)
        return self._labels(values)

    def _labels(self, values: NDArray[np.float64]) -> NDArray[Any]:
        return np.asarray(self.classes_[decided(values)])

    def to_sklearn(self) -> Any:
        """A fitted ``LinearSVC`` with the same decision values: for places where coremargin is not installed."""
        return as_sklearn(self._linear(), getattr(self, "feature_names_in_", None))

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ``onnx.ModelProto`` that predicts the same; see ``coremargin.models.export.as_onnx``."""
        return as_onnx(self._linear(), precision)

    def _linear(self) -> Linear:
        check_is_fitted(self)
        model: AnyModel = self.model_
        return model.linear()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
