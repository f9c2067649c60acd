"""What users have, as sources for training: arrays, tables, files, batches, Dask, Zarr, stores."""

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
from coremargin.estimators.history import History, room
from coremargin.estimators.support import present
from coremargin.learn.tables import becomes_store, later_store_of, store_of
from coremargin.maths.rows import concatenate, is_sparse
from coremargin.models.decision import label_array

if TYPE_CHECKING:
    from coremargin.estimators.seen import Seen
    from coremargin.formats.columns import ColumnsRecord

_NO_LABELS = "y: expected labels for the rows, or the name of the column that holds them, got none"
DTYPES = (np.float64, np.float32)  #: of arrays as scikit-learn is to hand them over


@contextmanager
def source_of(estimator: Any, X: Any, y: Any, weights: Any = None) -> Iterator[Source]:
    """Rows, labels and weights to train ``estimator`` on, until the end; sets ``n_features_in_`` and what goes with it.

    X: a store, its path or any source, with its own labels and weights; a Dask or Zarr array, read block by block; a
    table with columns that are no numbers, files or batches, which ``ingest`` makes a store for the moment; all else
    goes through scikit-learn's validation. Of several classes, class_weight multiplies the rows' weights.
    Raises UsageError, LabelError, DataError, and ValueError as scikit-learn does.
    """
    columns = _said(estimator, X)
    if y is None and is_whole_table(X) and becomes_store(X, y, columns):
        raise UsageError(_NO_LABELS)
    _check_targets(y)
    with store_of(X, y, _beside(weights), columns) as (rows, _, _):
        source = _given(estimator, X, y, weights) if rows is X else _of_table(estimator, Store.open(rows), weights)
        _check_classes(source)
        note_columns(estimator, X, source)
        yield source


def _said(estimator: Any, X: Any) -> Any:
    """What is said of columns; of an array, which has none, no word is as good as none at all."""
    array = not (is_source(X) or names_files(X) or is_whole_table(X) or are_batches(X))
    return (estimator.columns or None) if array else estimator.columns


def _beside(weights: Any) -> Any:
    """Weights as ``ingest`` takes them: a number, which is that of all rows here, is one of a column there."""
    return None if isinstance(weights, Real) else weights


def _check_targets(y: Any) -> None:
    """Raise ValueError, as scikit-learn does, for labels that are measurements; gaps are named by who reads them."""
    here = isinstance(getattr(y, "dtype", None), np.dtype) and not hasattr(y, "__dask_graph__")
    if here and y.dtype.kind == "f" and np.isfinite(y).all():
        check_classification_targets(y)


def _given(estimator: Any, X: Any, y: Any, weights: Any) -> Source:
    """The source of rows that no store has to be made of."""
    if isinstance(X, str | os.PathLike | Source):
        for name, given in (("y", y), ("sample_weight", weights)):
            if given is not None:
                raise UsageError(f"{name}: a store has its own labels and weights; give {name} only with arrays")
        _forget_names(estimator)
        source = Store.open(X) if isinstance(X, str | os.PathLike) else X
        return _checked_store(estimator, source, "in a store; ingest it with weights")
    if is_blocks(X):
        if y is None:
            raise UsageError("y: expected labels for the rows, got none")
        _forget_names(estimator)
        y, given = class_labels(at_once(y)), at_once(weights)
        return LazySource(X, counted_labels(y, given), weights=row_weights(estimator, y, given))
    refuse_rounded(X, "X")
    given, own = (X, y), without_index(X, "X")
    X, y = validate_data(estimator, own, class_labels(y), accept_sparse="csr", dtype=DTYPES, y_numeric=False)
    check_classification_targets(y)
    _note_names(estimator, *given)
    return ArraySource(X, counted_labels(y, weights), weights=row_weights(estimator, y, weights))


def _note_names(estimator: Any, X: Any, y: Any) -> None:
    """Keep the columns of a table of numbers that is read as an array: its model is saved with them.

    scikit-learn's checks of names hold for the estimator, which knows by ``_columns_of_array`` that they do.
    """
    estimator._columns_of_array = number_columns(X, "X", y) if hasattr(estimator, "feature_names_in_") else None  # noqa: SLF001


def class_labels(y: Any) -> Any:
    """Labels, of whatever type, as an array (n,) for scikit-learn, which refuses what else is wrong with them.

    Raises LabelError that names the rows without a label, and for labels of several kinds (1 and True, 1 and "1").
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
    """Labels (n,), None for the rows of classes of which every row has weight 0: there are no such classes then."""
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


def _checked_store(estimator: Any, source: Source, why: str) -> Source:
    """The store; UsageError where its rows are to have other weights than it holds."""
    if estimator.class_weight is not None and weighs_rows(estimator, len(present(source))):
        raise UsageError(f"class_weight: expected none with several classes {why}")
    return source


def _of_table(estimator: Any, store: Store, weights: Any) -> Source:
    """The rows of a store that was made for the moment: in memory, where ``memory`` holds them, as arrays are.

    weights: a number for all rows; else those of the store count.
    """
    _forget_names(estimator)
    if store.rows > room(store, memory_of(estimator.memory)):
        if isinstance(weights, Real):
            raise UsageError(f"sample_weight: expected one for each row, or the name of their column, got {weights}")
        return _checked_store(estimator, store, "of more rows than memory holds; give more memory, or sample_weight")
    rows, labels, own = _loaded(store)
    check_classification_targets(labels)
    given = weights if isinstance(weights, Real) else own
    counted, weights = counted_labels(labels, given), row_weights(estimator, labels, given)
    classes = store.classes if counted is labels else None
    return ArraySource(rows, counted, weights=weights, classes=classes, columns=store.columns)


def _loaded(store: Store) -> tuple[Any, Any, Any]:
    """Rows, labels and weights of a store, all of them."""
    parts = [store.read(chunk) for chunk in range(store.chunks)]
    weights = [store.weights(chunk) for chunk in range(store.chunks)]
    labels = label_array(store.classes)[np.concatenate([codes for _, codes in parts])]
    own = None if weights[0] is None else np.concatenate([part for part in weights if part is not None])
    return concatenate([rows for rows, _ in parts]), labels, own


def _forget_names(estimator: Any) -> None:
    """Names of columns that an earlier fit has seen."""
    vars(estimator).pop("_columns_of_array", None)
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def note_columns(estimator: Any, X: Any, source: Source) -> None:
    """Set ``n_features_in_``, ``feature_names_in_`` where there are names, and ``dropped_columns_``.

    The columns of a table are those that it was given with, but for label and weights; of files and batches, of which
    no more is known, those that became features. Names of an array's columns are scikit-learn's matter.
    """
    columns = columns_of(source)
    if columns is None:
        estimator.n_features_in_, estimator.dropped_columns_ = source.features, ()
        return
    table = table_of(X)
    given, features = columns.names if table is None else (table.names or ()), set(columns.names)
    names = tuple(name for name in given if name in features or name not in columns.other_names)
    estimator.n_features_in_ = len(names)
    dropped = (estimator.columns or {}).get("drop")
    if table is not None:  # which may be given by their numbers
        dropped = [name for name in names if name not in features]
    estimator.dropped_columns_ = (dropped,) if isinstance(dropped, str | int) else tuple(dropped or ())
    if columns.named:
        estimator.feature_names_in_ = np.array(names, dtype=object)


def batch_of(
    estimator: Any, X: Any, y: Any, classes: Any, weights: Any, seen: Seen | None
) -> tuple[History, ColumnsRecord | None, tuple[Any, ...]]:
    """The rows of one batch for ``partial_fit``, in memory, checked against what was seen before; and their columns.

    classes: all labels there will be; None: those of the first batch. They are the last of what is returned, in order.
    Raises as ``source_of`` does.
    """
    columns, before, given = (None, None, X) if seen is None else (seen.columns, seen.parts[0], X)
    _check_in_memory(X, columns, first=before is None)
    if columns is not None or (before is None and becomes_store(X, y, _said(estimator, X))):
        X, y, weights, columns = _of_table_batch(estimator, X, y, weights, columns)
    else:
        refuse_rounded(X, "X")
        own, labels = without_index(X, "X"), class_labels(y)
        X, labels = validate_data(
            estimator, own, labels, reset=before is None, accept_sparse="csr", dtype=DTYPES, y_numeric=False
        )
        if before is None:
            _note_names(estimator, given, y)
        y = labels
    check_classification_targets(y)
    declared = _declared(classes, y, seen)
    weights = row_weights(estimator, y, weights, declared)
    known = () if seen is None else seen.classes
    if before is None:
        first = ArraySource(X, y, weights=weights, classes=_appearing(known, y), columns=columns, part=True)
        note_columns(estimator, given, first)
        return History.of(first), columns, declared
    if weights is not None and not before.weighted:
        raise UsageError("sample_weight: expected none, as the first batch had none; begin with weights of 1")
    if weights is None and before.weighted:
        weights = np.ones(len(y))
    rows = _as_before(X, before)
    batch = ArraySource(rows, y, weights=weights, classes=_appearing(known, y), part=True)
    return History.of(batch), columns, declared


def _declared(classes: Any, y: Any, seen: Seen | None) -> tuple[Any, ...]:
    """All labels there will be, in order. Raises UsageError where others were announced, LabelError for one of y."""
    announced = None if classes is None else tuple(np.unique(class_labels(classes)).tolist())
    if seen is not None and announced is not None and announced != seen.declared:
        raise UsageError(f"classes: expected those of the first call, {list(seen.declared)}, got {list(announced)}")
    found = np.unique(y).tolist()
    declared = seen.declared if seen is not None else announced or tuple(found)
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


def _appearing(known: tuple[Any, ...], y: Any) -> tuple[Any, ...]:
    """The labels that are known, and those that y adds in the order in which it brings them: as a store has them."""
    labels, first = np.unique(y, return_index=True)
    added = [label for label in labels[np.argsort(first)].tolist() if label not in known]
    return (*known, *added)


def _check_in_memory(X: Any, columns: ColumnsRecord | None, *, first: bool) -> None:
    """Raise UsageError for rows that lie elsewhere, and for those of another kind than the first batch.

    columns: what became of those of the first batch, which this one is or is not.
    """
    table, elsewhere = is_whole_table(X), is_source(X) or names_files(X)
    if elsewhere or is_blocks(X) or (not table and are_batches(X)):
        raise UsageError(f"partial_fit: expected rows in memory, got {type(X).__name__}; give its blocks one by one")
    if columns is not None and not table:
        raise UsageError(f"X: expected a table with the columns of the first batch, got {type(X).__name__}")
    if not first and columns is None and needs_ingest(X):
        raise UsageError("X: expected numbers as in the first batch, got a table with columns that are none")


def _of_table_batch(
    estimator: Any, X: Any, y: Any, weights: Any, known: ColumnsRecord | None
) -> tuple[Any, Any, Any, ColumnsRecord | None]:
    """Rows, labels, weights and columns of a batch that is a table; known: what became of those of the first one."""
    if y is None:
        raise UsageError(_NO_LABELS)
    _check_targets(y)
    said, beside = estimator.columns, _beside(weights)
    making = store_of(X, y, beside, said) if known is None else later_store_of(X, y, beside, said, known)
    with making as (path, _, _):
        store = Store.open(path)
        rows, labels, own = _loaded(store)
        return rows, labels, weights if isinstance(weights, Real) else own, store.columns


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


def is_blocks(X: Any) -> bool:
    """Whether rows come block by block. Raises UsageError for what Dask has beside arrays and data frames."""
    if hasattr(X, "__dask_graph__") and not is_lazy(X) and not are_batches(X):
        raise UsageError(f"{type(X).__name__}: expected an array or a DataFrame of Dask; make one of it")
    return is_lazy(X)


def _check_classes(source: Source) -> None:
    codes = present(source)
    if len(codes) == 1:
        label = source.classes[codes[0]]
        raise LabelError(f"y: expected two classes, found 1 class, {label!r}; a classifier needs rows of both")
