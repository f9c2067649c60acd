"""Decision values of what users have: arrays, tables by the model's columns, files, batches, Dask, Zarr, stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from coremargin.data.external_arrays import computed
from coremargin.data.rows import refuse_rounded
from coremargin.data.source import Source, is_source
from coremargin.data.sources.files import names_files
from coremargin.data.sources.opening import are_batches
from coremargin.data.tables.objects import is_whole_table, without_index
from coremargin.estimators.inputs import DTYPES, is_blocks
from coremargin.models import raw_rows
from coremargin.models.matching import scorer_for
from coremargin.models.rows import rows_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from coremargin.estimators.seen import Seen

LOWEST = float(np.finfo(np.float64).min)  #: decision value of a class that has had no rows


def decision_values(estimator: Any, X: Any) -> Any:
    """Decision values of the rows: (n,) of two classes, else (n, k). A Dask array stays lazy.

    X: as for ``source_of``; labels are not looked at. Columns of tables, files and stores are found by their names,
    whatever their order, where the model has columns. Rows are scaled as ``Scorer`` says.
    """
    if "model_" not in vars(estimator) and (seen := vars(estimator).get("_seen")) and len(seen.present) == 1:
        return _of_one_class(estimator, X, seen)
    values, places = _of_model(estimator, X), vars(estimator).get("_places")
    if places is None:
        return values
    classes = len(estimator.classes_)
    if hasattr(values, "map_blocks"):
        return values.map_blocks(
            of_all_classes,
            places,
            classes,
            dtype=np.float64,
            chunks=(values.chunks[0], (classes,)),
            new_axis=1 if values.ndim == 1 else None,
        )
    return of_all_classes(values, places, classes)


def of_all_classes(values: NDArray[np.float64], places: list[int], classes: int) -> NDArray[np.float64]:
    """Decision values (n, k) of all classes, from those of the two (n,), or the m (n, m), that have had rows.

    The others have the lowest number, as in scikit-learn's ``cross_val_predict``, and are never ahead.
    """
    found = np.full((len(values), classes), LOWEST)
    found[:, places] = np.stack([-values, values], axis=1) if values.ndim == 1 else values
    return found


def _of_one_class(estimator: Any, X: Any, seen: Seen) -> NDArray[np.float64]:
    """Decision values while ``partial_fit`` has had rows of one class only, to which all rows belong then."""
    if _is_read(X) or is_blocks(X) or seen.columns is not None:
        raise NotFittedError(f"decision_function: {seen.describe_missing()}")
    X = validate_data(estimator, X, accept_sparse="csr", dtype=DTYPES, reset=False)
    place = seen.declared.index(seen.classes[seen.present[0]])
    if len(seen.declared) == 2:
        return np.full(X.shape[0], 1.0 if place else -1.0)
    return of_all_classes(np.ones((X.shape[0], 1)), [place], len(seen.declared))


def _of_model(estimator: Any, X: Any) -> Any:
    """Decision values of the classes that the model has."""
    model = estimator.model_
    if _is_read(X):
        with rows_for(model, X, labelled=False, drop=estimator.dropped_columns_) as source:
            return _of_source(estimator, source)
    if is_blocks(X):
        return _of_blocks(estimator, X)
    if model.columns is None or vars(estimator).get("_columns_of_array") is not None:
        refuse_rounded(X, "X")
        X = validate_data(estimator, without_index(X, "X"), accept_sparse="csr", dtype=DTYPES, reset=False)
    return raw_rows.decision_values(model.scorer(), X, model.columns, estimator.dropped_columns_)


def _is_read(X: Any) -> bool:
    """Whether rows are read from a store, their own or one that is made of them: files, batches, data sets."""
    if is_source(X) or names_files(X):
        return True
    return not raw_rows.is_table(X) if is_whole_table(X) else are_batches(X)


def _of_source(estimator: Any, source: Source) -> NDArray[np.float64]:
    if estimator.model_.columns is None:
        _same_features(estimator, source.features, source.name)
    values = scorer_for(estimator.model_, source).values
    return np.concatenate(
        [values(source.read(chunk)[0], _numbered(source.name, source.span(chunk)[0])) for chunk in range(source.chunks)]
    )


def _of_blocks(estimator: Any, X: Any) -> Any:
    """Of an array of Zarr, and lazily of one of Dask: numbers, in the place of the model's features."""
    _same_features(estimator, X.shape[1], "X")
    values = estimator.model_.scorer().values
    if not hasattr(X, "map_blocks"):
        return np.concatenate([values(part, _numbered("X", start)) for start, part in _slices(X)])
    whole = X.rechunk({1: -1})
    places = vars(estimator).get("_places")
    width = len(estimator.intercept_ if places is None else places)
    if width == 1 or (places is not None and width == 2):
        return whole.map_blocks(values, drop_axis=1, dtype=np.float64)
    return whole.map_blocks(values, chunks=(whole.chunks[0], (width,)), dtype=np.float64)


def _numbered(name: str, first: int) -> Callable[[int], str]:
    """Where rows are, of which the first is number ``first``."""
    return lambda row: f"{name}, row {first + row}"


def _slices(X: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """A Zarr array by its chunks, or shards, of rows, each with the number of its first row."""
    step = int((getattr(X, "shards", None) or X.chunks or (1,))[0])
    for start in range(0, X.shape[0], step):
        yield start, computed(X[start : start + step])


def _same_features(estimator: Any, features: int, place: str) -> None:
    expected = estimator.model_.features
    if features != expected:
        raise ValueError(
            f"{place} has {features} features, but {type(estimator).__name__} is expecting {expected} features as input"
        )
