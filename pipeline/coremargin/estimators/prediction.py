"""Prediction with fitted estimators, for arrays, tables, files, batches, Dask and Zarr arrays, and stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from coremargin.argument_names import named_arguments
from coremargin.data.external_arrays import computed
from coremargin.data.rows import refuse_rounded
from coremargin.data.source import Source, is_source
from coremargin.data.sources.files import names_files
from coremargin.data.sources.opening import are_batches
from coremargin.data.tables.objects import is_whole_table, without_index
from coremargin.estimators.class_weights import factors_of
from coremargin.estimators.inputs import DTYPES, is_blocks
from coremargin.models import raw_rows
from coremargin.models.decision import decided
from coremargin.models.matching import scorer_for
from coremargin.models.rows import rows_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from sklearn.utils import Tags

    from coremargin.estimators.history import PartialFitState
    from coremargin.models.fleet import AnyModel

LOWEST = float(np.finfo(np.float64).min)  #: decision value of a class without rows


class PredictMixin:
    """Methods of a fitted estimator, which has ``model_`` and ``classes_``."""

    class_weight: Mapping[Any, float] | str | None
    columns: Mapping[str, Any] | None
    model_: AnyModel
    classes_: NDArray[Any]

    def _delete_attributes(self, *names: str) -> None:
        """Delete attributes of an earlier fit."""
        for name in names:
            self.__dict__.pop(name, None)

    def _with_columns(self, model: AnyModel) -> AnyModel:
        """Add the columns of a numeric table that was read as an array."""
        columns = vars(self).get("_columns_of_array")
        return model if model.columns is not None or columns is None else model.with_columns(columns)

    def _class_factors(self, classes: tuple[Any, ...]) -> str | list[float] | None:
        """``class_weight`` as factors of the negative and the positive class."""
        if self.class_weight is None or isinstance(self.class_weight, str):
            return self.class_weight
        return factors_of(self.class_weight, sorted(classes))

    @named_arguments()
    def decision_function(self, X: Any) -> Any:
        """Decision values w.z + b of rows z, scaled and mapped as in training.

        Columns of tables are found by name, in any order, and encoded as in training. Columns of labels and weights, if
        ``fit`` found them by name, and dropped ones may be present; other columns are refused. An array for a model of
        a table contains its features.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), table, path-like, Store or batches
            As for ``fit``.

        Returns
        -------
        ndarray or Dask array of shape (n,) or (n, k)
            Positive for ``classes_[1]``; with several classes the largest is predicted. For a Dask array a lazy Dask
            array.
        """
        check_is_fitted(self)
        return decision_values(self, X)

    def predict(self, X: Any) -> Any:
        """Predict the label of each row.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), table, path-like, Store or batches
            As for ``fit``; see ``decision_function``.

        Returns
        -------
        ndarray or Dask array of shape (n,)
            For a Dask array a Dask array.
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
        """Names of the features of ``coef_``: encoded columns of a table, such as "age" and "job=nurse".

        Parameters
        ----------
        input_features : array_like of str, optional
            Names of the columns; must equal ``feature_names_in_`` if there are any.

        Returns
        -------
        ndarray of shape (d,)
            "x0", "x1", ... for rows without names.
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        features = self.model_.feature_names
        return names if features is None else np.array(features, dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of scikit-learn's classes
        tags.input_tags.sparse = True
        if isinstance(self.columns, Mapping):
            tags.input_tags.categorical = tags.input_tags.string = True
            tags.input_tags.allow_nan = bool(self.columns.get("missing"))
        return tags


def decision_values(estimator: Any, X: Any) -> Any:
    """Decision values (n,) for two classes, else (n, k); lazy for Dask arrays.

    X: as for ``source_of``; labels are ignored.
    """
    if (
        "model_" not in vars(estimator)
        and (state := vars(estimator).get("_partial_fit_state"))
        and len(state.present) == 1
    ):
        return _predict_one_class(estimator, X, state)
    values, places = _score_rows(estimator, X), vars(estimator).get("_places")
    if places is None:
        return values
    classes = len(estimator.classes_)
    if hasattr(values, "map_blocks"):
        return values.map_blocks(
            expand_to_all_classes,
            places,
            classes,
            dtype=np.float64,
            chunks=(values.chunks[0], (classes,)),
            new_axis=1 if values.ndim == 1 else None,
        )
    return expand_to_all_classes(values, places, classes)


def expand_to_all_classes(values: NDArray[np.float64], places: list[int], classes: int) -> NDArray[np.float64]:
    """Decision values (n, k) of all classes, from those of the two (n,) or m (n, m) classes with rows.

    The others get ``LOWEST``, as in scikit-learn's ``cross_val_predict``.
    """
    found = np.full((len(values), classes), LOWEST)
    found[:, places] = np.stack([-values, values], axis=1) if values.ndim == 1 else values
    return found


def _predict_one_class(estimator: Any, X: Any, state: PartialFitState) -> NDArray[np.float64]:
    """Decision values if ``partial_fit`` has seen rows of one class only, which is then predicted."""
    if _needs_store(X) or is_blocks(X) or state.columns is not None:
        raise NotFittedError(f"decision_function: {state.describe_missing()}")
    X = validate_data(estimator, X, accept_sparse="csr", dtype=DTYPES, reset=False)
    place = state.declared.index(state.classes[state.present[0]])
    if len(state.declared) == 2:
        return np.full(X.shape[0], 1.0 if place else -1.0)
    return expand_to_all_classes(np.ones((X.shape[0], 1)), [place], len(state.declared))


def _score_rows(estimator: Any, X: Any) -> Any:
    """Decision values of the classes of the model."""
    model = estimator.model_
    if _needs_store(X):
        with rows_for(model, X, labelled=False, drop=estimator.dropped_columns_) as source:
            return _score_source(estimator, source)
    if is_blocks(X):
        return _score_blocks(estimator, X)
    if model.columns is None or vars(estimator).get("_columns_of_array") is not None:
        refuse_rounded(X, "X")
        X = validate_data(estimator, without_index(X, "X"), accept_sparse="csr", dtype=DTYPES, reset=False)
    return raw_rows.decision_values(model.scorer(), X, model.columns, estimator.dropped_columns_)


def _needs_store(X: Any) -> bool:
    """Whether rows come from a store, or have to be ingested first: files, batches, data sets."""
    if is_source(X) or names_files(X):
        return True
    return not raw_rows.is_table(X) if is_whole_table(X) else are_batches(X)


def _score_source(estimator: Any, source: Source) -> NDArray[np.float64]:
    if estimator.model_.columns is None:
        _check_features(estimator, source.features, source.name)
    values = scorer_for(estimator.model_, source).values
    return np.concatenate(
        [values(source.read(chunk)[0], _row_name(source.name, source.span(chunk)[0])) for chunk in range(source.chunks)]
    )


def _score_blocks(estimator: Any, X: Any) -> Any:
    """For a Zarr array, or lazily for a Dask array."""
    _check_features(estimator, X.shape[1], "X")
    values = estimator.model_.scorer().values
    if not hasattr(X, "map_blocks"):
        return np.concatenate([values(part, _row_name("X", start)) for start, part in _iterate_blocks(X)])
    whole = X.rechunk({1: -1})
    places = vars(estimator).get("_places")
    width = len(estimator.intercept_ if places is None else places)
    if width == 1 or (places is not None and width == 2):
        return whole.map_blocks(values, drop_axis=1, dtype=np.float64)
    return whole.map_blocks(values, chunks=(whole.chunks[0], (width,)), dtype=np.float64)


def _row_name(name: str, first: int) -> Callable[[int], str]:
    """Names of rows for messages; first: number of the first row."""
    return lambda row: f"{name}, row {first + row}"


def _iterate_blocks(X: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """Chunks or shards of a Zarr array, with the number of their first row."""
    step = int((getattr(X, "shards", None) or X.chunks or (1,))[0])
    for start in range(0, X.shape[0], step):
        yield start, computed(X[start : start + step])


def _check_features(estimator: Any, features: int, place: str) -> None:
    expected = estimator.model_.features
    if features != expected:
        raise ValueError(
            f"{place} has {features} features, but {type(estimator).__name__} is expecting {expected} features as input"
        )
