"""Rows in memory in the smaller of two forms: dense in their own precision, or sparse in float64.

Products of sparse rows cost as many operations as there are nonzero values, so the smaller form is also the faster one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import Rows, as_float64, concatenate, gathered, is_sparse, of_dense

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def in_smaller_form(rows: Rows) -> Rows:
    """The same rows, with dense rows converted to sparse ones if that takes less memory.

    Values of sparse rows are converted to float64, which saves a copy in each product; dense rows are not converted.
    """
    if is_sparse(rows):
        return as_float64(rows)
    return as_float64(of_dense(rows, sparse=True)) if _sparse_bytes(_stored(rows), len(rows)) < rows.nbytes else rows


def compact(parts: list[Rows]) -> Rows:
    """As ``concatenate``, for rows from ``in_smaller_form``: sparse if that takes less memory for all of them together.

    ``parts`` is emptied meanwhile, so that memory never holds the rows twice.
    """
    rows, features = sum(part.shape[0] for part in parts), parts[0].shape[1]
    values, dense = sum(map(_stored, parts)), [part.dtype for part in parts if not is_sparse(part)]
    parts.reverse()
    if not dense or _sparse_bytes(values, rows) < dense[0].itemsize * rows * features:
        return _joined(parts, rows, features, values)
    popped = (parts.pop() for _ in range(len(parts)))
    filled_in = (part.toarray() if is_sparse(part) else part for part in popped)
    return gathered(filled_in, rows, np.zeros((0, features), dense[0]))


def concatenate_and_free(parts: list[Rows]) -> Rows:
    """As ``concatenate``; ``parts`` is emptied meanwhile, so that memory rarely holds dense rows twice."""
    if is_sparse(parts[0]):
        return concatenate(parts)
    rows, empty = sum(part.shape[0] for part in parts), parts[0][:0]
    parts.reverse()
    return gathered((parts.pop() for _ in range(len(parts))), rows, np.zeros(empty.shape, empty.dtype))


def _joined(parts: list[Rows], rows: int, features: int, values: int) -> csr_array:
    """Sparse rows of the parts, the last one first."""
    from scipy.sparse import csr_array  # only here: dense rows do not need it

    index = np.int32 if max(values, features) < 2**31 else np.int64
    data, indices, indptr = np.empty(values), np.empty(values, index), np.zeros(rows + 1, index)
    first = row = 0
    while parts:
        part = csr_array(parts.pop())
        stop, end = first + part.nnz, row + part.shape[0]
        data[first:stop], indices[first:stop] = part.data, part.indices
        indptr[row + 1 : end + 1] = first + part.indptr[1:].astype(index)
        first, row = stop, end
    return csr_array((data, indices, indptr), shape=(rows, features))


def _stored(rows: Rows) -> int:
    return int(rows.nnz if is_sparse(rows) else np.count_nonzero(rows))


def _sparse_bytes(values: int, rows: int) -> int:
    return 12 * values + 4 * rows
