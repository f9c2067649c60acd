"""Operations on rows of both kinds: a dense array (n, d), or a sparse ``csr_array`` (n, d).

Sparse rows have sorted column indices without duplicates, as sources return them; operations use their stored values
only, so that none makes them dense. Sums and products are in float64 unless ``dtype`` says otherwise; the error of a
dot product is at most gamma(terms(rows)) times the sum of the terms' sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]
Rows: TypeAlias = "NDArray[np.floating[Any]] | csr_array"

#: Dense rows are multiplied in tiles of this size: the second column then finds them in the cache.
TILE_BYTES = 1 << 20
#: Sparse rows with a larger share of values are multiplied with each other as dense ones: measured, it is faster.
DENSE_GRAM = 0.09
_PARTS = ("data", "indices", "indptr", "shape")


def is_sparse(rows: Any) -> TypeGuard[csr_array]:
    """True for a csr_array."""
    return not isinstance(rows, np.ndarray) and bool(_sparse().issparse(rows))


def of_dense(x: NDArray[np.floating[Any]], *, sparse: bool) -> Rows:
    """Dense rows (n, d) unchanged or, if ``sparse``, as a csr_array of their nonzero values."""
    return _sparse().csr_array(x) if sparse else x


def nothing(features: int, dtype: Any = np.float64, *, sparse: bool = False) -> Rows:
    """No rows (0, d)."""
    return _sparse().csr_array((0, features), dtype=dtype) if sparse else np.zeros((0, features), dtype)


def precision(rows: Rows) -> np.dtype[Any]:
    """The precision of scans: that of dense rows; float64 for sparse rows, whose indices cost more than the digits."""
    return np.dtype(np.float64) if is_sparse(rows) else rows.dtype


def products(rows: Rows, columns: NDArray[np.floating[Any]], dtype: Any = np.float64) -> NDArray[np.floating[Any]]:
    """(rows @ columns).T (k, n) in ``dtype`` for rows (n, d) and columns (d, k), a tile at a time; overflow is inf."""
    dtype = np.dtype(dtype)
    out = np.empty((columns.shape[1], rows.shape[0]), dtype)
    each = [np.ascontiguousarray(column, dtype=dtype) for column in columns.T]
    if is_sparse(rows):
        exact = rows.astype(dtype, copy=False)
        for k, column in enumerate(each):
            out[k] = exact @ column
        return out
    step = _tile_rows(rows, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(rows), step):
            tile = rows[first : first + step]
            tile = tile if tile.dtype == dtype else tile.astype(dtype)
            for k, column in enumerate(each):
                np.dot(tile, column, out=out[k, first : first + len(tile)])
    return out


def many_products(rows: Rows, columns: NDArray[np.floating[Any]], dtype: Any = np.float64) -> NDArray[np.floating[Any]]:
    """As ``products``, by one matrix product per tile: for many columns, if the last bits may differ."""
    dtype = np.dtype(dtype)
    exact = np.ascontiguousarray(columns, dtype=dtype)
    if is_sparse(rows):
        return np.ascontiguousarray((rows.astype(dtype, copy=False) @ exact).T)
    out = np.empty((columns.shape[1], rows.shape[0]), dtype)
    step = _tile_rows(rows, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            out[:, part] = (rows[part].astype(dtype, copy=False) @ exact).T
    return out


def weighted_sums(rows: Rows, columns: Array) -> Array:
    """columns.T @ rows (k, d) for rows (n, d) and columns (n, k), a tile at a time."""
    if is_sparse(rows):
        return np.ascontiguousarray((rows.astype(np.float64, copy=False).T @ columns).T)
    step = _tile_rows(rows, np.dtype(np.float64))
    total = np.zeros((columns.shape[1], rows.shape[1]))
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        total += columns[part].T @ rows[part].astype(np.float64)
    return total


def weighted_sum(rows: Rows, weights: Array) -> Array:
    """weights @ rows (d,) for rows (n, d) and weights (n,)."""
    if is_sparse(rows):
        return np.asarray(rows.T.astype(np.float64, copy=False) @ weights)
    if rows.dtype != np.float64:  # convert tile by tile, never all rows
        return np.asarray(weighted_sums(rows, weights[:, None])[0])
    return np.asarray(weights @ rows)


def tiles(rows: Rows) -> list[slice]:
    """Parts of rows that fit into a cache as dense float64 arrays."""
    step = _tile_rows(rows, np.dtype(np.float64))
    return [slice(first, first + step) for first in range(0, rows.shape[0], step)]


def curvature(rows: Rows, weights: Array) -> Array:
    """rows' diag(weights) rows (d, d), dense, of rows (n, d) and weights (n,) >= 0.

    Symmetric products cost half of general ones; a tile at a time unless rows stay sparse.
    """
    root, total = np.sqrt(weights), np.zeros((rows.shape[1], rows.shape[1]))
    if is_sparse(rows) and rows.nnz <= DENSE_GRAM * rows.shape[0] * rows.shape[1]:
        scaled: Any = signed(rows, root)
        return np.asarray((scaled.T @ scaled).toarray())
    for tile in tiles(rows):
        may_stop()  # a sum over many rows may take longer than all later steps
        part = dense(rows[tile]) * root[tile, None]
        total += part.T @ part
    return total


def signed_points(rows: Rows, signs: NDArray[Any], last: float) -> Rows:
    """y_i (x_i, last) (n, d + 1) in float64 for rows (n, d) and signs (n,); a copy."""
    edge = (last * np.asarray(signs, dtype=np.float64))[:, None]
    if is_sparse(rows):
        return _sparse().hstack([signed(rows, signs), _sparse().csr_array(edge)], format="csr")
    made = np.empty((rows.shape[0], rows.shape[1] + 1))
    np.multiply(rows, np.asarray(signs)[:, None], out=made[:, :-1], dtype=np.float64)
    made[:, -1:] = edge
    return made


def gram(rows: Rows) -> Array:
    """All dot products (n, n) of rows (n, d) with each other."""
    exact = as_float64(rows)
    if is_sparse(exact) and exact.nnz > DENSE_GRAM * exact.shape[0] * exact.shape[1]:
        exact = exact.toarray()
    return np.asarray((exact @ exact.T).toarray() if is_sparse(exact) else exact @ exact.T)


def square_sums(rows: Rows, weights: Array) -> Array:
    """sum_i weight_i x_i * x_i (d,) for rows (n, d) and weights (n,)."""
    if is_sparse(rows):
        total, step = np.zeros(rows.shape[1]), max(1, TILE_BYTES * rows.shape[0] // (8 * max(1, rows.nnz)))
        for first in range(0, rows.shape[0], step):
            part = rows[first : first + step]
            squares = _sparse().csr_array(
                (np.square(part.data, dtype=np.float64), part.indices, part.indptr), shape=part.shape
            )
            total += squares.T @ weights[first : first + step]
        return total
    return np.asarray(np.einsum("ij,ij,i->j", rows, rows, weights, dtype=np.float64))


def row_sizes(rows: Rows) -> NDArray[np.int64]:
    """Bytes (n,) that each row takes."""
    if is_sparse(rows):
        return np.asarray(np.diff(rows.indptr) * (rows.dtype.itemsize + rows.indices.itemsize) + 8, np.int64)
    return np.full(rows.shape[0], rows.shape[1] * rows.dtype.itemsize)


def lengths(rows: Rows) -> Array:
    """||x|| (n,) of rows (n, d)."""
    if not is_sparse(rows):
        step = _tile_rows(rows, np.dtype(np.float64))
        each = (np.asarray(rows[first : first + step], dtype=np.float64) for first in range(0, len(rows), step))
        return np.concatenate([np.zeros(0), *(np.linalg.norm(tile, axis=1) for tile in each)])
    squares, found = np.square(rows.data, dtype=np.float64), np.zeros(rows.shape[0])
    filled = np.flatnonzero(np.diff(rows.indptr))
    if len(filled):
        found[filled] = np.sqrt(np.add.reduceat(squares, rows.indptr[filled]))
    return found


def terms(rows: Rows) -> int:
    """The largest number of terms of a dot product with one of these rows; products with a zero are exact."""
    return int(np.diff(rows.indptr).max(initial=0)) if is_sparse(rows) else int(rows.shape[1])


def all_zero(rows: Rows) -> bool:
    """True when no value of any row differs from zero."""
    return not (rows.data if is_sparse(rows) else rows).any()


def vector(rows: Rows, k: int) -> Array:
    """Row k as a dense vector (d,) in float64; a copy."""
    row = take(rows, [k])
    return np.array((row.toarray() if is_sparse(row) else row)[0], dtype=np.float64)


def parts(rows: Rows) -> Iterator[tuple[Array, NDArray[np.integer] | slice]]:
    """For each row the values (m,) in float64 that may be nonzero, and their columns (m,)."""
    exact = as_float64(rows)
    if not is_sparse(exact):
        for row in exact:
            yield row, slice(None)
        return
    for first, stop in pairwise(exact.indptr.tolist()):
        yield exact.data[first:stop], exact.indices[first:stop]


def filled(rows: Rows) -> Array:
    """Rows (n, d) as a dense array (n, k) in float64; for sparse rows, k is the number of features that occur."""
    if not is_sparse(rows):
        return np.asarray(rows, dtype=np.float64)
    used = np.unique(rows.indices)
    return (
        np.ascontiguousarray(rows[:, used].toarray(), dtype=np.float64) if len(used) else np.zeros((rows.shape[0], 1))
    )


def dense(rows: Rows) -> Array:
    """The rows as a dense array (n, d) in float64; no copy if they already are."""
    return np.asarray(rows.toarray() if is_sparse(rows) else rows, dtype=np.float64)


def take(rows: Rows, positions: Any) -> Rows:
    """The rows at positions (m,), or where a mask (n,) is true; a copy."""
    return rows[np.asarray(positions)]


def concatenate(parts: Sequence[Rows]) -> Rows:
    """All rows of the parts, which are all dense or all sparse, in order."""
    return _sparse().vstack(parts, format="csr") if is_sparse(parts[0]) else np.concatenate(parts)


def gathered(parts: Iterable[Rows], most: int, empty: Rows) -> Rows:
    """Copies of all rows of the parts, at most ``most`` rows; ``empty`` (0, d) is an array of the same kind.

    Parts may share one buffer, as those of a reader do; memory never holds dense rows twice.
    """
    if is_sparse(empty):
        return concatenate([empty, *(part.copy() for part in parts)])
    gathered_rows, stop = np.empty((most, empty.shape[1]), empty.dtype), 0
    for part in parts:
        first, stop = stop, stop + part.shape[0]
        gathered_rows[first:stop] = part
    return gathered_rows[:stop]


def as_float64(rows: Rows) -> Rows:
    """The rows in float64; no copy if they already are."""
    return rows.astype(np.float64, copy=False)


def frozen_rows(rows: Rows) -> Rows:
    """A read-only copy in float64."""
    copy = rows.astype(np.float64)
    for values in (copy.data, copy.indices, copy.indptr) if is_sparse(copy) else (copy,):
        values.flags.writeable = False
    return copy


def signed(rows: Rows, signs: NDArray[Any]) -> Rows:
    """y_i x_i (n, d) in float64 for rows (n, d) and signs (n,); a copy."""
    if not is_sparse(rows):
        return np.asarray(rows, dtype=np.float64) * np.asarray(signs, dtype=np.float64)[:, None]
    values = rows.data * np.repeat(np.asarray(signs, dtype=np.float64), np.diff(rows.indptr))
    return _sparse().csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def to_arrays(name: str, rows: Rows) -> dict[str, NDArray[Any]]:
    """Plain arrays by name; for sparse rows ``NAME_data``, ``NAME_indices``, ``NAME_indptr`` and ``NAME_shape``."""
    if not is_sparse(rows):
        return {name: np.asarray(rows)}
    parts = (rows.data, rows.indices, rows.indptr, np.array(rows.shape, np.int64))
    return {f"{name}_{part}": values for part, values in zip(_PARTS, parts, strict=True)}


def from_arrays(name: str, arrays: Mapping[str, NDArray[Any]]) -> Rows:
    """Inverse of ``to_arrays``, to the bit. Raises KeyError or ValueError when the parts do not make rows."""
    if name in arrays:
        return arrays[name]
    data, indices, indptr, shape = (arrays[f"{name}_{part}"] for part in _PARTS)
    if shape.shape != (2,) or [values.dtype.kind for values in (data, indices, indptr, shape)] != ["f", "i", "i", "i"]:
        raise ValueError(f"{name}: expected values, indices, indptr and a shape of two whole numbers, found others")
    rows = _sparse().csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
    rows.check_format(full_check=True)
    if not rows.has_canonical_format:
        raise ValueError(f"{name}: expected sorted column indices without duplicates, found others")
    return rows


def _sparse() -> Any:
    """SciPy's sparse module, imported only for sparse rows."""
    import scipy.sparse

    return scipy.sparse


def _tile_rows(rows: Rows, dtype: np.dtype[Any]) -> int:
    return int(max(1, TILE_BYTES // (rows.shape[1] * dtype.itemsize)))
