"""``MarginCoresetClassifier``: a linear support vector machine whose optimality is proven."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from coremargin.data.arrays import ArraySource
from coremargin.data.store import Store
from coremargin.errors import LabelError, NotCertified, UsageError
from coremargin.learn.api import train

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.utils import Tags

    from coremargin.data.source import Source


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
    coef_ (1, d), intercept_ (1,), classes_ (2,), n_features_in_, n_iter_: scans of all rows.
    certificate_: both bounds and what they prove; model_: the ``Model`` that ``save`` writes and ``coremargin verify``
    checks. Hard margin only: coreset_ (m, d), the rows that carry it, and support_ (m,), their positions.

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

        Raises ValueError for rows, labels or parameters that cannot be used, NotCertified when a hard margin is asked
        for and no hyperplane separates the rows. Warns (ConvergenceWarning) when more scans would not reach epsilon.
        """
        source = self._source(X, y)
        price: dict[str, Any] = {} if self.loss is None else {"C": self.C, "class_weight": self._weights(source)}
        rounds: list[dict[str, Any]] = []
        model = train(
            source, cluster=self.cluster, loss=self.loss, epsilon=self.epsilon, intercept=bool(self.fit_intercept),
            memory=self.memory, on_round=rounds.append,
            **{key: value for key, value in price.items() if value is not None},
        )  # fmt: skip
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
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        self.model_, self.certificate_ = model, model.certificate
        self.classes_ = np.array(sorted(model.classes))
        self.coef_, self.intercept_ = model.w[None, :].copy(), np.array([model.b])
        for name in ("support_", "coreset_"):  # of an earlier fit
            if hasattr(self, name):
                delattr(self, name)
        if self.loss is None:
            self.support_, self.coreset_ = model.coreset_ids.copy(), model.coreset_x.copy()
        self.n_iter_ = max(1, sum(record["kind"] == "scan" for record in rounds))
        self.n_features_in_ = model.features
        return self

    def _source(self, X: Any, y: Any) -> Source:
        if isinstance(X, str | os.PathLike | Store):
            if y is not None:
                raise UsageError("y: a store has its own labels; give y only with rows in memory")
            return X if isinstance(X, Store) else Store.open(X)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=False)
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if len(np.unique(y)) == 1:
            raise LabelError(f"y: expected two classes, found 1 class, {y[0]!r}; a classifier needs rows of both")
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        return ArraySource(X, y)

    def _weights(self, source: Source) -> str | list[float] | None:
        """class_weight as factors for the negative and the positive class."""
        if self.class_weight is None or isinstance(self.class_weight, str):
            return self.class_weight
        labels = sorted(source.classes)
        strangers = [label for label in self.class_weight if label not in labels]
        if strangers:
            raise UsageError(f"class_weight: expected factors for the labels {labels}, found one for {strangers[0]!r}")
        return [float(self.class_weight.get(label, 1.0)) for label in labels]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """w.x + b of each row (n,), positive towards ``classes_[1]``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(X @ self.coef_[0] + self.intercept_[0], dtype=np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each row (n,)."""
        positive = (self.decision_function(X) > 0).astype(np.intp)
        return np.asarray(self.classes_[positive])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
