"""``MarginCoresetClassifier``: a linear support vector machine whose optimality is proven."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from coremargin.data.arrays import ArraySource
from coremargin.data.lazy import LazySource
from coremargin.errors import NotCertified, UsageError
from coremargin.estimators.inputs import decision_values, source_of
from coremargin.estimators.support import support_of
from coremargin.learn.api import train
from coremargin.learn.export import Linear, as_onnx, as_sklearn, linear_of
from coremargin.learn.model import label_array

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.utils import Tags

    from coremargin.data.source import Source
    from coremargin.learn.model import Model


class MarginCoresetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear support vector machine for two classes, trained to a proven gap.

    Minimises 1/2 ||w||^2 + C sum_i s_i loss(y_i (w.x_i + b)) with an intercept that is not penalised, the problem of
    ``SVC(kernel="linear")``, or separates with the largest margin (``loss=None``).

    Parameters
    ----------
    loss: "squared_hinge", "hinge", or None for the hard margin (``coremargin.train``: None unless given).
    C: price of a row's loss; class_weight: factors of C, {label: factor} or "balanced". A hard margin reads neither.
    epsilon: the value (hard margin: the margin) is proven to be within this share of the best possible.
    fit_intercept: False for a hyperplane through the origin.
    cluster: where to scan a store: a file of ``cluster/``, a scheduler's address, "embedded", "threads", None chooses.
    memory: for the rows kept in this process, such as "256 MiB".

    Attributes
    ----------
    coef_ (1, d), intercept_ (1,), classes_ (2,), n_features_in_, feature_names_in_ (of data frames), n_iter_: scans of
    all rows.
    certificate_: both bounds and what they prove; model_: the ``Model`` that ``save`` writes and ``coremargin verify``
    checks.
    support_ (m,), coreset_ (m, d): positions and values of the rows that decide the answer: for a hard margin those
    that carry the proof; with a loss all rows that have one or lie on the edge, known for rows in memory only.

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

    def __init__(
        self,
        *,
        loss: str | None = "squared_hinge",
        C: float = 1.0,
        epsilon: float = 1e-3,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        cluster: str | None = None,
        memory: str | int = "256 MiB",
    ) -> None:
        self.loss = loss
        self.C = C
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.cluster = cluster
        self.memory = memory

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on rows X (n, d) with labels y (n,), or on a store: its path or a ``Store``, without y.

        X: an array, a data frame, a Dask array or a Zarr array; the last two are read block by block, never as a whole,
        in one pass that counts what is in them and in every scan.
        Raises ValueError for rows, labels or parameters that cannot be used, NotCertified when a hard margin is asked
        for and no hyperplane separates the rows. Warns (ConvergenceWarning) when more scans would not reach epsilon.
        """
        source = source_of(self, X, y)
        price: dict[str, Any] = {} if self.loss is None else {"C": self.C, "class_weight": self._weights(source)}
        rounds: list[dict[str, Any]] = []
        found = train(
            source, cluster=self.cluster, loss=self.loss, epsilon=self.epsilon, intercept=bool(self.fit_intercept),
            memory=self.memory, on_round=rounds.append,
            **{key: value for key, value in price.items() if value is not None},
        )  # fmt: skip
        model = cast("Model", found)  # neither classes nor folds were asked for
        self._check_proof(model)
        self.model_, self.certificate_ = model, model.certificate
        self.classes_ = label_array(sorted(model.classes))
        self.coef_, self.intercept_ = model.w[None, :].copy(), np.array([model.b])
        self.n_iter_ = max(1, sum(record["kind"] == "scan" for record in rounds))
        self._keep_support(model, source)
        return self

    def _check_proof(self, model: Model) -> None:
        """Raise NotCertified, or warn, where the proof that was asked for is not there."""
        if model.status == "not_separable":
            raise NotCertified(
                f"no hyperplane separates the rows: the hulls of rows {model.coreset_ids[:8].tolist()} meet; "
                f"choose loss='hinge' or loss='squared_hinge'"
            )
        if model.status == "stopped":
            message = (
                f"not certified to epsilon = {self.epsilon}: the ratio of the bounds is {model.certificate.ratio}, and "
                f"more scans would not raise it; choose a larger epsilon or more memory"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def _keep_support(self, model: Model, source: Source) -> None:
        """Set ``support_`` and ``coreset_``, or forget those of an earlier fit where nobody knows."""
        if self.loss is None:
            self.support_, self.coreset_ = model.coreset_ids.copy(), model.coreset_x.copy()
        elif isinstance(source, ArraySource) and not isinstance(source, LazySource):
            self.support_ = support_of(model, source)
            self.coreset_ = source.rows_at(self.support_)[0]
        else:
            for name in ("support_", "coreset_"):
                if hasattr(self, name):
                    delattr(self, name)

    def _weights(self, source: Source) -> str | list[float] | None:
        """class_weight as factors for the negative and the positive class."""
        if self.class_weight is None or isinstance(self.class_weight, str):
            return self.class_weight
        labels = sorted(source.classes)
        strangers = [label for label in self.class_weight if label not in labels]
        if strangers:
            raise UsageError(f"class_weight: expected factors for the labels {labels}, found one for {strangers[0]!r}")
        return [float(self.class_weight.get(label, 1.0)) for label in labels]

    def decision_function(self, X: Any) -> Any:
        """w.x + b of each row (n,), positive towards ``classes_[1]``.

        X: what ``fit`` takes. Of a Dask array a Dask array, nothing computed yet; else an array.
        """
        check_is_fitted(self)
        return decision_values(self, X, self.coef_, self.intercept_)

    def predict(self, X: Any) -> Any:
        """The label of each row (n,); of a Dask array a Dask array."""
        values = self.decision_function(X)
        if hasattr(values, "map_blocks"):
            return values.map_blocks(self._labels, dtype=self.classes_.dtype)
        return self._labels(values)

    def _labels(self, values: NDArray[np.float64]) -> NDArray[Any]:
        return np.asarray(self.classes_[(values > 0).astype(np.intp)])

    def to_sklearn(self) -> Any:
        """A fitted ``LinearSVC`` with the same decision values: for places where coremargin is not installed."""
        return as_sklearn(self._linear(), getattr(self, "feature_names_in_", None))

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ``onnx.ModelProto`` that predicts the same; see ``coremargin.learn.export.as_onnx``."""
        return as_onnx(self._linear(), precision)

    def _linear(self) -> Linear:
        check_is_fitted(self)
        return linear_of(self.model_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
