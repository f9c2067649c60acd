"""What all estimators do once they are fitted: decision values, labels, names of features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from coremargin.argument_names import named_arguments
from coremargin.estimators.class_weights import factors_of
from coremargin.estimators.decisions import decision_values
from coremargin.models.decision import decided

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.utils import Tags

    from coremargin.models.fleet import AnyModel


class Deciding:
    """What an estimator has that sets ``model_`` and ``classes_`` when it is fitted."""

    class_weight: Mapping[Any, float] | str | None
    columns: Mapping[str, Any] | None
    model_: AnyModel
    classes_: NDArray[Any]

    def _forget(self, *names: str) -> None:
        """What was known before and no longer holds."""
        for name in names:
            self.__dict__.pop(name, None)

    def _with_columns(self, model: AnyModel) -> AnyModel:
        """The model with the names of a table of numbers that was read as an array."""
        columns = vars(self).get("_columns_of_array")
        return model if model.columns is not None or columns is None else model.with_columns(columns)

    def _weights(self, classes: tuple[Any, ...]) -> str | list[float] | None:
        """class_weight as factors for the negative and the positive class."""
        if self.class_weight is None or isinstance(self.class_weight, str):
            return self.class_weight
        return factors_of(self.class_weight, sorted(classes))

    @named_arguments()
    def decision_function(self, X: Any) -> Any:
        """Decision values w.z + b of each row, scaled as in training.

        Of tables, columns are found by their names, whatever their order, and become features as in training; those of
        label and weights, if ``fit`` took them by name, and those that it dropped, may be there. Other columns are
        refused with the difference. An array for a model of a table holds its features.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), table, path-like, Store or batches
            What ``fit`` takes.

        Returns
        -------
        ndarray or Dask array of shape (n,) or (n, k)
            Positive towards ``classes_[1]``; of several classes the largest wins. Of a Dask array a Dask array, nothing
            computed yet.
        """
        check_is_fitted(self)
        return decision_values(self, X)

    def predict(self, X: Any) -> Any:
        """The label of each row.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), table, path-like, Store or batches
            What ``fit`` takes; see ``decision_function``.

        Returns
        -------
        ndarray or Dask array of shape (n,)
            Of a Dask array a Dask array.
        """
        values = self.decision_function(X)
        if hasattr(values, "map_blocks"):
            values = values.rechunk({1: -1}) if values.ndim == 2 else values
            dropped = 1 if values.ndim == 2 else None
            return values.map_blocks(self._labels, drop_axis=dropped, dtype=self.classes_.dtype)
        return self._labels(values)

    def _labels(self, values: NDArray[np.float64]) -> NDArray[Any]:
        return np.asarray(self.classes_[decided(values)])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the features that ``coef_`` has weights of: what columns became, "age", "job=nurse".

        As a transformer before a linear model names them.

        Parameters
        ----------
        input_features : array_like of str, optional
            Names of the columns, if they had none; else they must be ``feature_names_in_``.

        Returns
        -------
        ndarray of shape (d,)
            Of rows without names "x0", "x1", ...
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        features = self.model_.feature_names
        return names if features is None else np.array(features, dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of the classes beside this one
        tags.input_tags.sparse = True
        if isinstance(self.columns, Mapping):
            tags.input_tags.categorical = tags.input_tags.string = True
            tags.input_tags.allow_nan = bool(self.columns.get("missing"))
        return tags
