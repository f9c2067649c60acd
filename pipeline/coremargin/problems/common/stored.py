"""States and answers as plain arrays, for checkpoints: one array a field, several for rows, none for nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import to_arrays

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

#: Of the fields that take several arrays: what makes them again, from their name and all arrays.
Makers: TypeAlias = Mapping[str, Callable[[str, Arrays], Any]]


def arrays_of(values: Any, statuses: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """The fields of a dataclass as arrays, exact: ``fields_of`` gives the same bits back.

    A word is stored as its place in ``statuses``. Pools and rows of classes name their own arrays; the fields of other
    parts are stored as if they were the whole's. Raises ValueError for two arrays of one name.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for f in fields(values):
        found = _arrays_of_field(f.name, getattr(values, f.name), statuses)
        if twice := sorted(arrays.keys() & found.keys()):
            raise ValueError(
                f"{type(values).__name__}.{f.name}: expected arrays of names of their own, found {twice[0]!r} there "
                f"already; rename a field"
            )
        arrays |= found
    return arrays


def _arrays_of_field(name: str, value: Any, statuses: Sequence[str]) -> dict[str, NDArray[Any]]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {name: np.array(statuses.index(value))}
    if hasattr(value, "to_arrays"):
        return dict(value.to_arrays(name))
    if is_dataclass(value):
        return arrays_of(value, statuses)
    sparse = hasattr(value, "indptr")  # asked like this, numbers do not load what knows sparse rows
    return to_arrays(name, value) if sparse else {name: np.asarray(value)}


def fields_of(
    kind: type, arrays: Arrays, makers: Makers, statuses: Sequence[str] = (), may_lack: Sequence[str] = ()
) -> dict[str, Any]:
    """What ``arrays_of`` was given, by field; an array without dimensions becomes a number.

    may_lack: fields that are None where their array is missing. Raises KeyError when another one is.
    """
    values: dict[str, Any] = {}
    for f in fields(kind):
        if f.name in makers:
            values[f.name] = makers[f.name](f.name, arrays)
        elif f.name == "status":
            values[f.name] = statuses[int(arrays[f.name])]
        elif f.name in may_lack and f.name not in arrays:
            values[f.name] = None
        else:
            value = arrays[f.name]
            values[f.name] = value.item() if value.ndim == 0 else value
    return values


def part_of(kind: type, makers: Makers | None = None, *, may_lack: Sequence[str] = ()) -> Callable[[str, Arrays], Any]:
    """What makes a part again, of which ``arrays_of`` stored the fields as if they were the whole's."""
    return lambda _, arrays: kind(**fields_of(kind, arrays, makers or {}, may_lack=may_lack))
