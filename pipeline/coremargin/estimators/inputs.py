"""What users have, as sources for training and as rows to predict: arrays, data frames, Dask, Zarr, stores."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import validate_data

from coremargin.data.arrays import ArraySource
from coremargin.data.lazy import LazySource, computed, is_lazy
from coremargin.data.source import Source
from coremargin.data.store import Store
from coremargin.errors import LabelError, UsageError
from coremargin.estimators.past import Past
from coremargin.maths.scaling import unit_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_DTYPES = (np.float64, np.float32)


def source_of(estimator: Any, X: Any, y: Any) -> Source:
    """Rows and labels to train ``estimator`` on; sets ``n_features_in_`` and, for data frames, ``feature_names_in_``.

    X: a store, its path or any source, with its own labels; a Dask or Zarr array, read block by block; all else goes
    through scikit-learn's validation. Raises UsageError, LabelError, DataError, and ValueError as scikit-learn does.
    """
    if isinstance(X, str | os.PathLike | Source):
        if y is not None:
            raise UsageError("y: a store has its own labels; give y only with arrays")
        source: Source = X if isinstance(X, Source) else Store.open(X)
    elif _is_lazy(X):
        if y is None:
            raise UsageError("y: expected labels for the rows, got none")
        source = LazySource(X, y)
    else:
        X, y = validate_data(estimator, X, y, dtype=_DTYPES, y_numeric=False)
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if len(np.unique(y)) > 1 and kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        source = ArraySource(X, y)
    _check_classes(source)
    estimator.n_features_in_ = source.features
    if not hasattr(X, "columns") and hasattr(estimator, "feature_names_in_") and isinstance(source, Store | LazySource):
        del estimator.feature_names_in_  # of an earlier fit
    return source


def batch_of(estimator: Any, X: Any, y: Any, classes: Any, past: Past | None) -> Past:
    """The rows of one batch for ``partial_fit``, in memory, checked against what was seen before.

    classes: all labels there will be; None: those of the first batch. Raises as ``source_of`` does.
    """
    if isinstance(X, str | os.PathLike | Source) or _is_lazy(X):
        raise UsageError(f"partial_fit: expected rows in memory, got {type(X).__name__}; give its blocks one by one")
    X, y = validate_data(estimator, X, y, reset=past is None, dtype=_DTYPES, y_numeric=False)
    check_classification_targets(y)
    known = None if classes is None else tuple(np.unique(np.asarray(classes)).tolist())
    if past is None:
        return Past.of(ArraySource(X, y, classes=known))
    if known is not None and set(known) != set(past.classes):
        raise UsageError(f"classes: expected those of the first call, {sorted(past.classes)}, got {list(known)}")
    return Past.of(ArraySource(_in_precision(X, past.rows.dtype), y, classes=past.classes))


def _in_precision(X: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same values in the precision of the first batch; UsageError where that would round them."""
    with np.errstate(over="ignore"):
        rows = X.astype(dtype, copy=False)
    if rows.dtype.itemsize < X.dtype.itemsize and not np.array_equal(rows, X):
        raise UsageError(f"X: expected values of {dtype} as in the first batch, got {X.dtype}; begin with {X.dtype}")
    return rows


def _check_classes(source: Source) -> None:
    present = np.flatnonzero(source.scalars().counts.sum(axis=0))
    if len(present) == 1:
        label = source.classes[present[0]]
        raise LabelError(f"y: expected two classes, found 1 class, {label!r}; a classifier needs rows of both")


def decision_values(estimator: Any, X: Any, coef: NDArray[Any], intercept: NDArray[Any]) -> Any:
    """X coef.T + intercept: (n,) for one row of coefficients (1, d), else (n, k). A Dask array stays lazy.

    X: as for ``source_of``; labels of a store are not looked at. Rows are divided by their lengths first where the
    estimator was fitted so.
    """
    values = partial(_values, coef=coef, intercept=intercept, unit=estimator.model_.scaling == "rownorm")
    if isinstance(X, str | os.PathLike | Source):
        source = X if isinstance(X, Source) else Store.open(X)
        _same_features(estimator, source.features, source.name)
        return np.concatenate([values(source.read(chunk)[0]) for chunk in range(source.chunks)])
    if not _is_lazy(X):
        return values(validate_data(estimator, X, dtype=_DTYPES, reset=False))
    _same_features(estimator, X.shape[1], "X")
    if not hasattr(X, "map_blocks"):
        return np.concatenate([values(part) for part in _slices(X)])
    whole = X.rechunk({1: -1})
    if len(coef) == 1:
        return whole.map_blocks(values, drop_axis=1, dtype=np.float64)
    return whole.map_blocks(values, chunks=(whole.chunks[0], (len(coef),)), dtype=np.float64)


def _values(rows: Any, coef: NDArray[Any], intercept: NDArray[Any], *, unit: bool) -> NDArray[np.float64]:
    if unit:
        rows = unit_rows(np.asarray(rows, dtype=np.float64))
    values = np.asarray(rows @ coef.T.astype(np.float64) + intercept, dtype=np.float64)
    return values[:, 0] if len(coef) == 1 else values


def _slices(X: Any) -> Iterator[NDArray[Any]]:
    """A Zarr array by its chunks, or shards, of rows."""
    step = int((getattr(X, "shards", None) or X.chunks or (1,))[0])
    for start in range(0, X.shape[0], step):
        yield computed(X[start : start + step])


def _is_lazy(X: Any) -> bool:
    if hasattr(X, "__dask_graph__") and not is_lazy(X):
        raise UsageError(f"{type(X).__name__}: expected an array; make one by .to_dask_array(lengths=True)")
    return is_lazy(X)


def _same_features(estimator: Any, features: int, place: str) -> None:
    if features != estimator.n_features_in_:
        raise ValueError(
            f"{place} has {features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
