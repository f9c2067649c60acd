"""Sparse rows: SciPy matrices of any format made canonical, and CSR arrays from parts that are known to be good.

Canonical means: row after row, indices ascending, none twice, no explicit zeros, all values finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import BadRow

if TYPE_CHECKING:
    from scipy.sparse import csr_array

INDEX_DTYPE = np.dtype("<i4")  #: of feature numbers, on disk and in memory
INDPTR_DTYPE = np.dtype("<i8")  #: of row starts on disk


def csr_rows(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, features: int) -> csr_array:
    """Rows (n, d) from canonical parts, without a copy or a look at them; indptr (n + 1,) starts at 0."""
    from scipy.sparse import csr_array  # only here: stores of dense rows do without

    rows = csr_array((len(indptr) - 1, features), dtype=data.dtype)
    rows.data, rows.indices, rows.indptr = data, indices, indptr  # given to SciPy at once, views would be copied
    rows.has_sorted_indices = rows.has_canonical_format = True
    return rows


def csr_slice(X: csr_array, start: int, stop: int) -> csr_array:
    """Rows [start, stop) of canonical rows; values and indices are views."""
    low, high = int(X.indptr[start]), int(X.indptr[stop])
    return csr_rows(X.data[low:high], X.indices[low:high], X.indptr[start : stop + 1] - X.indptr[start], X.shape[1])


def as_sparse_rows(
    X: Any, *, dtype: np.dtype[Any], place: str, features: int | None = None, first: int = 0
) -> csr_array:
    """Canonical rows (n, d) of ``dtype`` from a SciPy matrix; nothing is copied where nothing has to change.

    Indices are sorted, duplicates summed, explicit zeros dropped. place, first: for messages, as in ``as_rows``.
    Raises BadRow: not real numbers, another number of features, indices beyond them, NaN or infinite, too large.
    """
    if len(X.shape) != 2 or X.dtype.kind not in "biuf":
        raise BadRow(f"{place}: expected a sparse matrix of real numbers, got {X.dtype} of shape {X.shape}")
    if features is not None and X.shape[1] != features:
        raise BadRow(f"{place}: expected rows of {features} features, got {X.shape[1]} (from row {first})")
    check_structure(X, place, first)
    rows = X.tocsr()
    if not _ascending(rows):  # a copy: the caller's matrix stays as it is, and small integers do not wrap
        parts = (rows.data.astype(np.float64), rows.indices.copy(), rows.indptr.copy())
        from scipy.sparse import csr_array

        rows = csr_array(parts, shape=rows.shape)
        rows.sum_duplicates()
    with np.errstate(over="ignore", invalid="ignore"):
        data = rows.data.astype(dtype, copy=False)
    _check_values(rows, data, place, first)
    if not data.all():
        kept = np.flatnonzero(data)
        counts = np.concatenate([[0], np.cumsum(data != 0)])
        return csr_rows(data[kept], _narrow(rows.indices[kept]), _narrow(counts[rows.indptr]), rows.shape[1])
    return csr_rows(data, _narrow(rows.indices), _narrow(rows.indptr), rows.shape[1])


def _ascending(rows: csr_array) -> bool:
    """Whether indices ascend within each row; SciPy's own word for it may be older than the arrays."""
    rises = np.diff(rows.indices) > 0
    starts = rows.indptr[1:-1]
    rises[starts[(starts > 0) & (starts < len(rows.indices))] - 1] = True  # from one row to the next
    return bool(rises.all())


def _narrow(values: np.ndarray) -> np.ndarray:
    """Indices or row starts as int32 where they fit; int32 and int64 do not mix in one matrix without copies."""
    fits = not values.size or values.max() <= np.iinfo(np.int32).max
    return values.astype(np.int32 if fits else np.int64, copy=False)


def check_structure(X: Any, place: str, first: int = 0) -> None:
    """Refuse what would make SciPy read beyond its arrays."""
    if X.format not in ("csr", "csc", "bsr"):
        return  # checked by SciPy when they are made
    if X.format == "csr":
        starts, bad = X.indptr, (X.indices < 0) | (X.indices >= X.shape[1])
        if len(starts) == X.shape[0] + 1 and starts[0] == 0 and (np.diff(starts) >= 0).all() and bad.any():
            at = int(np.argmax(bad))
            row = int(np.searchsorted(starts, at, side="right")) - 1
            if row < X.shape[0]:
                raise BadRow(
                    f"{place}: row {first + row}: found feature {X.indices[at]}, expected 0 to {X.shape[1] - 1}; "
                    f"give the matrix its true shape"
                )
    try:
        X.check_format(full_check=True)
    except ValueError as error:
        raise BadRow(f"{place}: expected a sparse matrix that fits together, found that {error}") from error


def _check_values(rows: csr_array, data: np.ndarray, place: str, first: int) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(data.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(data)
    if not bad.any():
        return
    at = int(np.argmax(bad))
    row, value = int(np.searchsorted(rows.indptr, at, side="right")) - 1, rows.data[at]
    where = f"{place}: row {first + row}, column {rows.indices[at]} (counted from 0)"
    if np.isfinite(value):
        largest = np.finfo(data.dtype).max
        raise BadRow(f"{where}: {value} is beyond the range of {data.dtype} (up to {largest:.3g}); use --dtype float64")
    raise BadRow(f"{where}: expected a finite number, got {value}; fill in or drop such rows first")
