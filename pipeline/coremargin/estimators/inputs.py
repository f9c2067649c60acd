"""Sources for training from arrays, tables, files, batches, Dask and Zarr arrays, and stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from coremargin.data.arrays import ArraySource
from coremargin.data.external_arrays import LazySource, at_once, is_lazy
from coremargin.data.labels import LabelCoder, all_labels
from coremargin.data.rows import refuse_rounded
from coremargin.data.source import Source, is_source
from coremargin.data.sources.files import names_files
from coremargin.data.sources.opening import are_batches, needs_ingest
from coremargin.data.store import Store
from coremargin.data.tables.objects import is_whole_table, number_columns, table_of, without_index
from coremargin.data.view import columns_of
from coremargin.data.weights import as_weights
from coremargin.engine.default_memory import memory_of
from coremargin.errors import LabelError, UsageError
from coremargin.estimators.class_weights import row_weights, weighs_rows
from coremargin.estimators.history import History, rows_that_fit
from coremargin.estimators.support import present
from coremargin.learn.tables import becomes_store, store_of, store_of_next_batch
from coremargin.maths.rows import concatenate, is_sparse
from coremargin.models.decision import label_array

if TYPE_CHECKING:
    from coremargin.estimators.history import PartialFitState
    from coremargin.formats.columns import ColumnsRecord

_NO_LABELS = "y: expected labels of the rows, or the name of the column with labels, got none"
DTYPES = (np.float64, np.float32)  #: of arrays after scikit-learn's validation


@contextmanager
def source_of(estimator: Any, X: Any, y: Any, weights: Any = None) -> Iterator[Source]:
    """Yield rows, labels and weights as a source, and set ``n_features_in_`` and related attributes of the estimator.

    X: a store, its path or another source, with its own labels and weights; a Dask or Zarr array, read block by block;
    tables with other columns than numbers, files and batches, which are ingested into a temporary store; anything else
    is validated by scikit-learn. With several classes, class_weight multiplies the weights of the rows.
    Raises UsageError, LabelError, DataError, and ValueError as scikit-learn does.
    """
    columns = _column_options(estimator, X)
    if y is None and is_whole_table(X) and becomes_store(X, y, columns):
        raise UsageError(_NO_LABELS)
    _check_targets(y)
    with store_of(X, y, _column_weights(weights), columns) as (rows, _, _):
        source = (
            _open_rows(estimator, X, y, weights) if rows is X else _load_table(estimator, Store.open(rows), weights)
        )
        _check_classes(source)
        _set_column_attributes(estimator, X, source)
        yield source


def _column_options(estimator: Any, X: Any) -> Any:
    """Options for columns; an array has none, so that {} means None."""
    is_array = not (is_source(X) or names_files(X) or is_whole_table(X) or are_batches(X))
    return (estimator.columns or None) if is_array else estimator.columns


def _column_weights(weights: Any) -> Any:
    """Weights for ``ingest``, which takes a number as a column, not as the weight of all rows."""
    return None if isinstance(weights, Real) else weights


def _check_targets(y: Any) -> None:
    """Raise ValueError, as scikit-learn does, for continuous labels."""
    here = isinstance(getattr(y, "dtype", None), np.dtype) and not hasattr(y, "__dask_graph__")
    if here and y.dtype.kind == "f" and np.isfinite(y).all():
        check_classification_targets(y)


def _open_rows(estimator: Any, X: Any, y: Any, weights: Any) -> Source:
    """A source of rows that need not be ingested."""
    if isinstance(X, str | os.PathLike | Source):
        for name, value in (("y", y), ("sample_weight", weights)):
            if value is not None:
                raise UsageError(f"{name}: a store has its own labels and weights; pass {name} with arrays only")
        _delete_column_names(estimator)
        source = Store.open(X) if isinstance(X, str | os.PathLike) else X
        return _check_store(estimator, source, "in a store; ingest it with weights")
    if is_blocks(X):
        if y is None:
            raise UsageError("y: expected labels of the rows, got none")
        _delete_column_names(estimator)
        y, weights = class_labels(at_once(y)), at_once(weights)
        return LazySource(X, counted_labels(y, weights), weights=row_weights(estimator, y, weights))
    refuse_rounded(X, "X")
    table, rows = (X, y), without_index(X, "X")
    X, y = validate_data(estimator, rows, class_labels(y), accept_sparse="csr", dtype=DTYPES, y_numeric=False)
    check_classification_targets(y)
    _save_column_names(estimator, *table)
    return ArraySource(X, counted_labels(y, weights), weights=row_weights(estimator, y, weights))


def _save_column_names(estimator: Any, X: Any, y: Any) -> None:
    """Save the columns of a numeric table that is validated as an array, for the model.

    ``_columns_of_array`` marks that scikit-learn checks the names of this estimator.
    """
    estimator._columns_of_array = number_columns(X, "X", y) if hasattr(estimator, "feature_names_in_") else None  # noqa: SLF001


def class_labels(y: Any) -> Any:
    """Labels of any type as an array (n,), for scikit-learn's checks.

    Raises LabelError for missing labels, naming their rows, and for ambiguous ones (1 and True, 1 and "1").
    """
    found = y if hasattr(y, "ndim") else np.asarray(y)
    if y is None or found.ndim == 0 or getattr(getattr(found, "dtype", None), "kind", "") == "c":
        return y
    if found.ndim > 1:
        y = column_or_1d(y, warn=True)
    labels = all_labels(y, "y")
    if labels.dtype.kind == "O" and not all(isinstance(label, str | bytes) for label in labels):
        coder = LabelCoder()
        codes = coder.encode(labels, len(labels), "y")
        labels = label_array(coder.classes)[codes]
    return labels


def counted_labels(y: Any, weights: Any) -> Any:
    """Labels (n,), replaced by None for classes all of whose rows have weight 0."""
    if weights is None or isinstance(weights, Real):
        return y
    counts = as_weights(weights, len(y), "sample_weight") > 0
    labels, codes = np.unique(y, return_inverse=True)
    absent = np.bincount(codes, counts, len(labels)) == 0
    if not absent.any() or absent.all():
        return y
    found = y.astype(object)
    found[absent[codes]] = None
    return found


def _check_store(estimator: Any, source: Source, why: str) -> Source:
    """Raises UsageError if class_weight would have to change the weights in a store."""
    if estimator.class_weight is not None and weighs_rows(estimator, len(present(source))):
        raise UsageError(f"class_weight: expected none with several classes {why}")
    return source


def _load_table(estimator: Any, store: Store, weights: Any) -> Source:
    """The rows of a temporary store, in memory if ``memory`` holds them.

    weights: a number for all rows; otherwise those of the store are used.
    """
    _delete_column_names(estimator)
    if store.rows > rows_that_fit(store, memory_of(estimator.memory)):
        if isinstance(weights, Real):
            raise UsageError(f"sample_weight: expected one for each row, or the name of their column, got {weights}")
        return _check_store(estimator, store, "of more rows than memory holds; give more memory, or sample_weight")
    rows, labels, own = _load_store(store)
    check_classification_targets(labels)
    weights = weights if isinstance(weights, Real) else own
    counted, weights = counted_labels(labels, weights), row_weights(estimator, labels, weights)
    classes = store.classes if counted is labels else None
    return ArraySource(rows, counted, weights=weights, classes=classes, columns=store.columns)


def _load_store(store: Store) -> tuple[Any, Any, Any]:
    """All rows, labels and weights of a store."""
    parts = [store.read(chunk) for chunk in range(store.chunks)]
    weights = [store.weights(chunk) for chunk in range(store.chunks)]
    labels = label_array(store.classes)[np.concatenate([codes for _, codes in parts])]
    own = None if weights[0] is None else np.concatenate([part for part in weights if part is not None])
    return concatenate([rows for rows, _ in parts]), labels, own


def _delete_column_names(estimator: Any) -> None:
    """Delete the column names of an earlier fit."""
    vars(estimator).pop("_columns_of_array", None)
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _set_column_attributes(estimator: Any, X: Any, source: Source) -> None:
    """Set ``n_features_in_``, ``dropped_columns_`` and, for named columns, ``feature_names_in_``.

    For a table, all its columns except labels and weights count; for files and batches only those that became features.
    scikit-learn sets the names of arrays.
    """
    columns = columns_of(source)
    if columns is None:
        estimator.n_features_in_, estimator.dropped_columns_ = source.features, ()
        return
    table = table_of(X)
    all_names, features = columns.names if table is None else (table.names or ()), set(columns.names)
    names = tuple(name for name in all_names if name in features or name not in columns.other_names)
    estimator.n_features_in_ = len(names)
    dropped = (estimator.columns or {}).get("drop")
    if table is not None:  # they may be numbers
        dropped = [name for name in names if name not in features]
    estimator.dropped_columns_ = (dropped,) if isinstance(dropped, str | int) else tuple(dropped or ())
    if columns.named:
        estimator.feature_names_in_ = np.array(names, dtype=object)


def batch_of(
    estimator: Any, X: Any, y: Any, classes: Any, weights: Any, state: PartialFitState | None
) -> tuple[History, ColumnsRecord | None, tuple[Any, ...]]:
    """A batch for ``partial_fit``, its columns, and all declared labels in order.

    classes: all labels; None: those of the first batch. Raises as ``source_of``.
    """
    columns, before, original = (None, None, X) if state is None else (state.columns, state.parts[0], X)
    _check_in_memory(X, columns, first=before is None)
    if columns is not None or (before is None and becomes_store(X, y, _column_options(estimator, X))):
        X, y, weights, columns = _load_table_batch(estimator, X, y, weights, columns)
    else:
        refuse_rounded(X, "X")
        own, labels = without_index(X, "X"), class_labels(y)
        X, labels = validate_data(
            estimator, own, labels, reset=before is None, accept_sparse="csr", dtype=DTYPES, y_numeric=False
        )
        if before is None:
            _save_column_names(estimator, original, y)
        y = labels
    check_classification_targets(y)
    declared = _declared_classes(classes, y, state)
    weights = row_weights(estimator, y, weights, declared)
    known = () if state is None else state.classes
    if before is None:
        first = ArraySource(X, y, weights=weights, classes=_add_classes(known, y), columns=columns, part=True)
        _set_column_attributes(estimator, original, first)
        return History.of(first), columns, declared
    if weights is not None and not before.weighted:
        raise UsageError("sample_weight: expected none, as the first batch had none; begin with weights of 1")
    if weights is None and before.weighted:
        weights = np.ones(len(y))
    rows = _match_first_batch(X, before)
    batch = ArraySource(rows, y, weights=weights, classes=_add_classes(known, y), part=True)
    return History.of(batch), columns, declared


def _declared_classes(classes: Any, y: Any, state: PartialFitState | None) -> tuple[Any, ...]:
    """Declared labels in order. Raises UsageError if they differ from the first call, LabelError for others in y."""
    announced = None if classes is None else tuple(np.unique(class_labels(classes)).tolist())
    if state is not None and announced is not None and announced != state.declared:
        raise UsageError(f"classes: expected those of the first call, {list(state.declared)}, got {list(announced)}")
    found = np.unique(y).tolist()
    declared = state.declared if state is not None else announced or tuple(found)
    if len(declared) < 2:
        if announced is not None:
            raise LabelError(f"classes: expected two or more, got {list(announced)}")
        raise LabelError(
            f"y: expected rows of every class in the first batch, found only {found[0]!r}; name all classes in the "
            "first call: classes=[...]"
        )
    strange = [label for label in found if label not in declared]
    if strange:
        row = int(np.argmax(np.asarray(y) == strange[0]))
        raise LabelError(f"y: row {row}: expected labels among {list(declared)}, got {strange[0]!r}")
    return declared


def _add_classes(known: tuple[Any, ...], y: Any) -> tuple[Any, ...]:
    """Known labels, and new ones in order of appearance, as in a store."""
    labels, first = np.unique(y, return_index=True)
    added = [label for label in labels[np.argsort(first)].tolist() if label not in known]
    return (*known, *added)


def _check_in_memory(X: Any, columns: ColumnsRecord | None, *, first: bool) -> None:
    """Raise UsageError for rows that are not in memory, and for another kind of rows than in the first batch.

    columns: of the first batch, if it was a table.
    """
    table, elsewhere = is_whole_table(X), is_source(X) or names_files(X)
    if elsewhere or is_blocks(X) or (not table and are_batches(X)):
        raise UsageError(f"partial_fit: expected rows in memory, got {type(X).__name__}; give its blocks one by one")
    if columns is not None and not table:
        raise UsageError(f"X: expected a table with the columns of the first batch, got {type(X).__name__}")
    if not first and columns is None and needs_ingest(X):
        raise UsageError("X: expected numbers as in the first batch, got a table with columns that are none")


def _load_table_batch(
    estimator: Any, X: Any, y: Any, weights: Any, known: ColumnsRecord | None
) -> tuple[Any, Any, Any, ColumnsRecord | None]:
    """Rows, labels, weights and columns of a table; known: the columns of the first batch."""
    if y is None:
        raise UsageError(_NO_LABELS)
    _check_targets(y)
    options, own_weights = estimator.columns, _column_weights(weights)
    if known is None:
        ingested = store_of(X, y, own_weights, options)
    else:
        ingested = store_of_next_batch(X, y, own_weights, options, known)
    with ingested as (path, _, _):
        store = Store.open(path)
        rows, labels, own = _load_store(store)
        return rows, labels, weights if isinstance(weights, Real) else own, store.columns


def _match_first_batch(X: Any, history: History) -> Any:
    """Convert to the dtype and sparsity of the first batch. Raises UsageError if values would be rounded."""
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


def is_blocks(X: Any) -> bool:
    """Whether X is a Dask or Zarr array. Raises UsageError for other Dask collections."""
    if hasattr(X, "__dask_graph__") and not is_lazy(X) and not are_batches(X):
        raise UsageError(f"{type(X).__name__}: expected a Dask array or DataFrame; convert it")
    return is_lazy(X)


def _check_classes(source: Source) -> None:
    codes = present(source)
    if len(codes) == 1:
        label = source.classes[codes[0]]
        raise LabelError(f"y: expected two classes, found 1 class, {label!r}; a classifier needs rows of both")
