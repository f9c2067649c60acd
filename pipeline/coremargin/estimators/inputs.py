"""What users have, as sources for training and as rows to predict: arrays, data frames, Dask, Zarr, stores."""

from __future__ import annotations

import os
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from coremargin.data.arrays import ArraySource
from coremargin.data.lazy import LazySource, at_once, computed, is_lazy
from coremargin.data.source import Source
from coremargin.data.store import Store
from coremargin.data.weights import as_weights
from coremargin.errors import LabelError, UsageError
from coremargin.estimators.history import History
from coremargin.estimators.support import present
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

_DTYPES = (np.float64, np.float32)


def source_of(estimator: Any, X: Any, y: Any, weights: Any = None) -> Source:
    """Rows, labels and weights to train ``estimator`` on; sets ``n_features_in_``, of data frames their names too.

    X: a store, its path or any source, with its own labels and weights; a Dask or Zarr array, read block by block; all
    else goes through scikit-learn's validation. Of several classes, class_weight multiplies the rows' weights.
    Raises UsageError, LabelError, DataError, and ValueError as scikit-learn does.
    """
    if isinstance(X, str | os.PathLike | Source):
        for name, given in (("y", y), ("sample_weight", weights)):
            if given is not None:
                raise UsageError(f"{name}: a store has its own labels and weights; give {name} only with arrays")
        source: Source = X if isinstance(X, Source) else Store.open(X)
        if estimator.class_weight is not None and _weighs_rows(estimator, len(present(source))):
            raise UsageError("class_weight: expected none with several classes in a store; ingest it with weights")
    elif _is_lazy(X):
        if y is None:
            raise UsageError("y: expected labels for the rows, got none")
        y = at_once(y)
        source = LazySource(X, y, weights=row_weights(estimator, y, weights))
    else:
        X, y = validate_data(estimator, X, y, accept_sparse="csr", dtype=_DTYPES, y_numeric=False)
        check_classification_targets(y)
        source = ArraySource(X, y, weights=row_weights(estimator, y, weights))
    _check_classes(source)
    estimator.n_features_in_ = source.features
    if hasattr(estimator, "feature_names_in_") and isinstance(source, Store | LazySource):
        del estimator.feature_names_in_  # of an earlier fit
    return source


def _weighs_rows(estimator: Any, classes: int) -> bool:
    """Whether class_weight goes into the weights of rows; a model of two classes has a parameter for it."""
    return classes > 2 or estimator.multi_class != "ovr"


def row_weights(estimator: Any, y: Any, weights: Any, classes: Sequence[Any] | None = None) -> Any:
    """Weights (n,) of the rows with labels y (n,), None: all 1; with the factor of each row's class where that is due.

    classes: the labels there are; None: those of y.
    """
    class_weight, rows = estimator.class_weight, len(y)
    if isinstance(weights, Real):
        weights = np.full(rows, float(weights))
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    if class_weight is None or not _weighs_rows(estimator, len(labels if classes is None else classes)):
        return weights
    given = np.ones(rows) if weights is None else as_weights(at_once(weights), rows, "sample_weight")
    if class_weight == "balanced":
        totals = np.bincount(codes, given)
        factors = np.divide(totals.sum(), len(labels) * totals, out=np.ones(len(labels)), where=totals > 0)
    else:
        factors = np.array(factors_of(class_weight, labels.tolist(), classes))
    return factors[codes] * given


def factors_of(
    class_weight: Mapping[Any, float], labels: Sequence[Any], known: Sequence[Any] | None = None
) -> list[float]:
    """The factor of each label, 1 where none is given. Raises UsageError for one that is not among ``known``."""
    known = sorted(labels if known is None else known)
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise UsageError(f"class_weight: expected factors for the labels {known}, found one for {unknown[0]!r}")
    return [float(class_weight.get(label, 1.0)) for label in labels]


def batch_of(estimator: Any, X: Any, y: Any, classes: Any, weights: Any, history: History | None) -> History:
    """The rows of one batch for ``partial_fit``, in memory, checked against what was seen before.

    classes: all labels there will be; None: those of the first batch. Raises as ``source_of`` does.
    """
    if isinstance(X, str | os.PathLike | Source) or _is_lazy(X):
        raise UsageError(f"partial_fit: expected rows in memory, got {type(X).__name__}; give its blocks one by one")
    X, y = validate_data(estimator, X, y, reset=history is None, accept_sparse="csr", dtype=_DTYPES, y_numeric=False)
    check_classification_targets(y)
    known = None if classes is None else tuple(np.unique(np.asarray(classes)).tolist())
    if history is not None and known is not None and set(known) != set(history.classes):
        raise UsageError(f"classes: expected those of the first call, {sorted(history.classes)}, got {list(known)}")
    known = known if history is None else history.classes
    weights = row_weights(estimator, y, weights, known)
    if history is None:
        first = ArraySource(X, y, weights=weights, classes=known)
        missing = [label for code, label in enumerate(first.classes) if code not in present(first)]
        if missing or len(first.classes) == 1:
            names = ", ".join(repr(label) for label in missing) or "a second one"
            raise LabelError(f"y: expected rows of every class in the first batch, found none of {names}")
        return History.of(first)
    if weights is not None and not history.weighted:
        raise UsageError("sample_weight: expected none, as the first batch had none; begin with weights of 1")
    if weights is None and history.weighted:
        weights = np.ones(len(y))
    return History.of(ArraySource(_as_before(X, history), y, weights=weights, classes=history.classes))


def _as_before(X: Any, history: History) -> Any:
    """The same values in the kind and precision of the first batch; UsageError where they would be rounded."""
    if is_sparse(X) != is_sparse(history.rows):
        kind = "sparse" if is_sparse(history.rows) else "dense"
        raise UsageError(f"X: expected {kind} rows as in the first batch, got {type(X).__name__}; convert them")
    with np.errstate(over="ignore"):
        rows = X.astype(history.rows.dtype, copy=False)
    if rows.dtype.itemsize < X.dtype.itemsize:
        was, now = (X.data, rows.data) if is_sparse(X) else (X, rows)
        if not np.array_equal(was, now):
            raise UsageError(
                f"X: expected values of {rows.dtype} as in the first batch, got {X.dtype}; begin with {X.dtype}"
            )
    return rows


def _check_classes(source: Source) -> None:
    codes = present(source)
    if len(codes) == 1:
        label = source.classes[codes[0]]
        raise LabelError(f"y: expected two classes, found 1 class, {label!r}; a classifier needs rows of both")


def decision_values(estimator: Any, X: Any) -> Any:
    """Decision values of the rows: (n,) of two classes, else (n, k). A Dask array stays lazy.

    X: as for ``source_of``; labels of a store are not looked at. Rows are scaled as ``Scorer`` says.
    """
    values = estimator.model_.scorer().values
    if isinstance(X, str | os.PathLike | Source):
        source = X if isinstance(X, Source) else Store.open(X)
        _same_features(estimator, source.features, source.name)
        return np.concatenate([
            values(source.read(chunk)[0], _numbered(source.name, source.span(chunk)[0]))
            for chunk in range(source.chunks)
        ])  # fmt: skip
    if not _is_lazy(X):
        return values(validate_data(estimator, X, accept_sparse="csr", dtype=_DTYPES, reset=False))
    _same_features(estimator, X.shape[1], "X")
    if not hasattr(X, "map_blocks"):
        return np.concatenate([values(part, _numbered("X", start)) for start, part in _slices(X)])
    whole = X.rechunk({1: -1})
    width = len(estimator.intercept_)
    if width == 1:
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
