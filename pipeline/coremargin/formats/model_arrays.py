"""The arrays of a model (``arrays.npz``): how a record describes them, and their check against it.

Lengths that only the arrays themselves know stand as letters, and arrays that share one agree about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from coremargin.errors import DataError

ROWS = "coreset_x"


class Numbers(NamedTuple):
    """One array: its kind as NumPy writes it, or several, and its shape.

    finite: false where inf and NaN have a meaning: nothing is known.
    """

    kind: str
    shape: tuple[int | str, ...]
    finite: bool = True


Schema: TypeAlias = dict[str, Numbers]  #: by name


class Described(Protocol):
    """The part of a record that describes its arrays; model_record.py implements it."""

    def schema(self, names: frozenset[str]) -> Schema:
        """The arrays that there have to be; names: of those that are there."""

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Raises DataError for numbers that mean nothing."""


def check_arrays(record: Described, arrays: Mapping[str, np.ndarray], place: str) -> None:
    """Raises DataError unless these are all arrays of such a model, each of its kind and shape, and finite."""
    schema = record.schema(frozenset(arrays))
    if set(arrays) != set(schema):
        wrong = ", ".join(sorted(set(arrays) ^ set(schema))[:8])
        raise DataError(f"{place}: expected {', '.join(sorted(schema))}; missing or unknown: {wrong}; get a whole copy")
    lengths: dict[str, int] = {}
    for name, (kind, shape, finite) in schema.items():
        values = arrays[name]
        kinds = [np.dtype(word) for word in kind.split()]
        if values.dtype not in kinds:
            known = " or ".join(map(str, kinds))
            raise DataError(f"{place}: {name}: expected {known}, found {values.dtype}; get an unaltered copy")
        wanted = tuple(lengths.get(size, size) if isinstance(size, str) else size for size in shape)
        fits = values.ndim == len(wanted) and all(
            isinstance(size, str) or size == found for size, found in zip(wanted, values.shape, strict=True)
        )
        if not fits:
            text = f"expected shape ({', '.join(map(str, wanted))}) as the record says, found {values.shape}"
            raise DataError(f"{place}: {name}: {text}; get an unaltered copy")
        lengths |= {size: found for size, found in zip(wanted, values.shape, strict=True) if isinstance(size, str)}
        if values.dtype.kind == "f" and finite and not np.isfinite(values).all():
            raise DataError(f"{place}: {name}: expected finite numbers, found NaN or infinity; get an unaltered copy")
    record.check_values(arrays, place)


def rows_schema(m: int, width: int, names: frozenset[str]) -> Schema:
    """Rows (m, width): one array, or the parts of a CSR matrix where these are there; of no width always one."""
    if ROWS in names or not width:
        return {ROWS: Numbers("f8", (m, width))}
    return {
        f"{ROWS}_data": Numbers("f8", ("values",)),
        f"{ROWS}_indices": Numbers("i4 i8", ("values",)),
        f"{ROWS}_indptr": Numbers("i4 i8", (m + 1,)),
        f"{ROWS}_shape": Numbers("i8", (2,)),
    }


def check_rows(arrays: Mapping[str, np.ndarray], m: int, d: int, place: str) -> None:
    """Raises DataError unless the parts of a CSR matrix, if it is one, are those of rows (m, d)."""
    if f"{ROWS}_data" not in arrays:
        return
    data, indices, indptr, shape = (arrays[f"{ROWS}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    demand(shape.tolist() == [m, d], place, f"{ROWS}_shape", f"({m}, {d}) as the record says")
    fits = indptr[0] == 0 and indptr[-1] == len(data) and rising(indptr, len(data))
    demand(fits, place, f"{ROWS}_indptr", "row starts that fit the values")
    first = np.zeros(len(indices), dtype=bool)
    first[indptr[:-1][np.diff(indptr) > 0]] = True
    ascending = (first[1:] | (np.diff(indices) > 0)).all()
    inside = len(indices) == 0 or (indices.min() >= 0 and indices.max() < d)
    demand(ascending and inside, place, f"{ROWS}_indices", f"columns below {d} that ascend in each row")


def rising(values: np.ndarray, most: int) -> bool:
    """Whether places from 0 to ``most`` never fall; differences of others could wrap around."""
    return bool(((values >= 0) & (values <= most)).all() and (np.diff(values) >= 0).all())


def demand(ok: Any, place: str, name: str, what: str) -> None:
    """Raises DataError unless an array holds what it has to."""
    if not ok:
        raise DataError(f"{place}: {name}: expected {what}, found others; get an unaltered copy")
