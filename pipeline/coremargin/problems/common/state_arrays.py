"""States and summaries as plain arrays, for checkpoints: an array for each field, several for rows, none for None."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import to_arrays

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

#: Constructors of the fields that take several arrays, called with the name of the field and all arrays.
Makers: TypeAlias = Mapping[str, Callable[[str, Arrays], Any]]


def state_to_arrays(state: Any, statuses: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass as arrays, exact: ``state_from_arrays`` gives the same bits back.

    A status is stored as its position in ``statuses``. Fields with a method ``to_arrays(name)`` name their own arrays;
    the fields of other dataclasses are stored as if they were the whole's. Raises ValueError for two arrays of one
    name.
    """
    arrays: dict[str, Any] = {}
    for f in fields(state):
        found = _field_to_arrays(f.name, getattr(state, f.name), statuses)
        if twice := sorted(arrays.keys() & found.keys()):
            raise ValueError(
                f"{type(state).__name__}.{f.name}: expected arrays of names of their own, found {twice[0]!r} there "
                f"already; rename a field"
            )
        arrays |= found
    return arrays


def _field_to_arrays(name: str, value: Any, statuses: Sequence[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {name: np.array(statuses.index(value))}
    if hasattr(value, "to_arrays"):
        return dict(value.to_arrays(name))
    if is_dataclass(value):
        return state_to_arrays(value, statuses)
    sparse = hasattr(value, "indptr")  # unlike scipy.sparse.issparse, this does not import SciPy
    return to_arrays(name, value) if sparse else {name: np.asarray(value)}


def state_from_arrays(
    kind: type, arrays: Arrays, makers: Makers, statuses: Sequence[str] = (), may_lack: Sequence[str] = ()
) -> dict[str, Any]:
    """The fields that ``state_to_arrays`` stored; an array without dimensions becomes a number.

    may_lack: fields that are None if their array is missing. Raises KeyError if another one is.
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


def part_from_arrays(
    kind: type, makers: Makers | None = None, *, may_lack: Sequence[str] = ()
) -> Callable[[str, Arrays], Any]:
    """The constructor of a part whose fields were stored as if they were the whole's."""
    return lambda _, arrays: kind(**state_from_arrays(kind, arrays, makers or {}, may_lack=may_lack))
