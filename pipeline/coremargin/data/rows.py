"""Rows as they come in: any real numbers, checked and made finite floats of the store's kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from coremargin.data.narrow_rows import describe_unfit, first_unfit, narrow, widen
from coremargin.errors import BadRow

#: Binary digits of the floating-point types; numbers that an integer type would round are refused.
_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_LARGEST_EXACT = 1 << 24  # whole numbers up to here are exact in float32
_LARGEST_WHOLE = 2.0**53  # floats above are whole whatever they mean


def as_rows(X: Any, *, dtype: np.dtype[Any], place: str, features: int | None = None, first: int = 0) -> np.ndarray:
    """Rows (n, d) of ``dtype``, native byte order, all finite; a view where nothing has to change.

    place: for messages, such as a file; first: number of the first row within that place.
    Raises BadRow: not real numbers, ragged, another number of features, NaN or infinite, too large for ``dtype``.
    """
    values = _numbers_of_width(X, place, features, first)
    if values.size == 0:
        return values.astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        rows = values.astype(dtype, copy=False)
        low, high = rows.min(axis=0), rows.max(axis=0)  # NaN passes through both, an infinity through one
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        _refuse(values, rows, place, first)
    return rows


def as_narrow_rows(X: Any, *, name: str, place: str, features: int, first: int = 0) -> np.ndarray:
    """Rows (n, d) in a narrow stored type, the others as for ``as_rows``.

    Raises BadRow also for a number that an integer type would round.
    """
    values = _numbers_of_width(X, place, features, first)
    at = first_unfit(values, name)
    if at is not None:
        row, column = divmod(at, values.shape[1])
        where = f"{place}: row {first + row}, column {column} (counted from 0)"
        raise BadRow(f"{where}: found {describe_unfit(values[row, column], name)}")
    return narrow(values, name)


def _numbers_of_width(X: Any, place: str, features: int | None, first: int) -> np.ndarray:
    values = as_numbers(X, place)
    if features is not None and values.shape[1] != features:
        raise BadRow(f"{place}: expected rows of {features} features, got {values.shape[1]} (from row {first})")
    return values


def as_numbers(X: Any, place: str) -> np.ndarray:
    """A matrix (n, d) of booleans, integers or floats; BadRow for anything else."""
    try:
        values = np.asarray(X)
    except ValueError as error:
        raise BadRow(f"{place}: expected rows of equal length, got ragged ones ({error})") from error
    if values.dtype.kind not in "biuf":
        hint = "convert the columns to numbers first"
        raise BadRow(f"{place}: expected real numbers, got values of type {values.dtype}; {hint}")
    if values.ndim != 2:
        raise BadRow(f"{place}: expected a matrix of rows and features, got an array of shape {values.shape}")
    return values


def in_memory_dtype(X: Any, place: str) -> np.dtype[Any]:
    """The precision that keeps the values of X: float32 for float32 and smaller kinds, else float64."""
    values = as_numbers(X, place)
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        return np.dtype(np.float32 if size <= 4 else np.float64)
    if kind == "b" or size <= 2 or values.size == 0:
        return np.dtype(np.float32)
    exact = int(values.max()) <= _LARGEST_EXACT and int(values.min()) >= -_LARGEST_EXACT
    return np.dtype(np.float32 if exact else np.float64)


def rounded_whole(values: np.ndarray, name: str) -> np.ndarray:
    """Positions (k,) in the flattened ``values``, finite numbers, of whole numbers that a stored type does not hold.

    Such numbers count or name something, and are meant to the last digit. Floats above 2^53 are all whole: they are
    measurements, and rounded like any other.
    """
    digits, floats = _DIGITS.get(name, 0), values.dtype.kind == "f"
    limit, flat = 1 << digits, values.reshape(-1)
    if not flat.size or not digits or (floats and np.finfo(values.dtype).nmant < digits):
        return np.zeros(0, np.intp)
    if flat.max() <= limit and flat.min() >= -limit:
        return np.zeros(0, np.intp)
    large = np.flatnonzero((flat > limit) | (flat < -limit))
    found = flat[large]
    if floats:
        whole = (found == np.floor(found)) & (np.abs(found) <= _LARGEST_WHOLE)
        return np.asarray(large[whole][widen(narrow(found[whole], name)) != found[whole]])
    sizes = found.astype(np.uint64)
    sizes[found < 0] = ~sizes[found < 0] + np.uint64(1)
    lowest = sizes & (~sizes + np.uint64(1))
    return np.asarray(large[sizes // lowest >= np.uint64(limit)])  # more binary digits than there is room for


def refuse_rounded(X: Any, place: str, first: int = 0) -> None:
    """Raise BadRow for a whole number that float64 does not hold, in rows X that are to become float64.

    X: an array, a list of rows, or a SciPy sparse matrix; what is none of these, others refuse.
    """
    sparse = hasattr(X, "tocsr")
    if not sparse and not isinstance(X, np.ndarray | list | tuple):
        return
    stored = getattr(X, "data", None) if sparse else X
    if sparse and not (isinstance(stored, np.ndarray) and stored.dtype != object):
        stored = X.tocoo().data  # dictionaries and lists of lists keep their values elsewhere
    try:
        values = np.asarray(stored)
    except ValueError:
        return
    if values.dtype == object:
        whole = np.fromiter((type(one) is int and abs(one) > _LARGEST_WHOLE for one in values.flat), bool, values.size)
        found = [at for at in np.flatnonzero(whole).tolist() if int(float(values.flat[at])) != values.flat[at]]
    elif values.dtype.kind in "iu" and values.itemsize == 8:
        found = rounded_whole(values, "float64").tolist()
    else:
        return
    if found and (sparse or values.ndim == 2):
        at = found[0]
        where = place
        if not sparse or getattr(X, "format", "") == "csr":
            row, column = divmod(at, values.shape[1]) if not sparse else (_row_of(X, at), X.indices[at])
            where = f"{place}: row {first + row}, column {column} (counted from 0)"
        raise BadRow(
            f"{where}: found {values.flat[at]}, expected whole numbers that float64 holds (all up to 2^53); leave the "
            "column out, or convert it with .astype(float) to round it"
        )


def _row_of(X: Any, at: int) -> int:
    """The row of value number ``at`` of CSR rows."""
    return int(np.searchsorted(X.indptr, at, side="right")) - 1


def _refuse(values: np.ndarray, rows: np.ndarray, place: str, first: int) -> None:
    row, column = (int(index) for index in np.argwhere(~np.isfinite(rows))[0])
    value = values[row, column]
    where = f"{place}: row {first + row}, column {column} (counted from 0)"
    if np.isfinite(value):
        largest = np.finfo(rows.dtype).max
        raise BadRow(f"{where}: {value} is beyond the range of {rows.dtype} (up to {largest:.3g}); use --dtype float64")
    raise BadRow(f"{where}: expected a finite number, got {value}; fill in or drop such rows first")
