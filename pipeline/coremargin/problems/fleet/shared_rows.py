"""What the members of a fleet share: each row once, and one array for equal arrays of many members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, as_float64, concatenate, take
from coremargin.problems.common.driver_rows import DriverRows

S = TypeVar("S")


@dataclass(frozen=True)
class SharedRows(DriverRows):
    """Rows of the store that members hold: ids (u,) increasing, rows (u, d).

    They are in the store's precision or, if all rows are held, in the form that takes the least memory (``compact``).
    """

    def select(self, ids: NDArray[np.int64]) -> Rows:
        """The rows (m, d) with these ids, all of which must be there."""
        if np.array_equal(ids, self.ids):
            return self.rows
        return take(self.rows, np.searchsorted(self.ids, ids))

    @classmethod
    def collect(cls, wanted: NDArray[np.int64], parts: Sequence[DriverRows], dtype: Any) -> SharedRows:
        """The rows with the ids ``wanted`` (increasing), each from the first part that has it."""
        known, first = np.unique(np.concatenate([part.ids for part in parts]), return_index=True)
        place = first[np.searchsorted(known, wanted)]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        chosen, positions = [], []
        for part, start, stop in zip(parts, starts[:-1], starts[1:], strict=True):
            mine = np.flatnonzero((place >= start) & (place < stop))
            chosen.append(take(part.rows, place[mine] - start).astype(dtype))
            positions.append(mine)
        return cls(wanted, take(concatenate(chosen), np.argsort(np.concatenate(positions))))


def held_rows(state: Any) -> dict[str, DriverRows]:
    """The rows in the fields of a state or of its parts, by the name of the field."""
    found: dict[str, DriverRows] = {}
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, DriverRows):
            found[field.name] = value
        elif is_dataclass(value):
            found |= held_rows(value)
    return found


def without_rows(state: S) -> S:
    """The state with the ids of its rows only."""
    return replace_rows(
        state, {name: replace(own, rows=np.zeros((len(own), 0))) for name, own in held_rows(state).items()}
    )


def with_rows(state: S, shared_rows: SharedRows, *, as_read: bool = False) -> S:
    """The state with its rows taken from the shared ones, in float64 or in the form that these have."""
    mine = {name: (own, shared_rows.select(own.ids)) for name, own in held_rows(state).items()}
    return replace_rows(
        state, {name: replace(own, rows=some if as_read else as_float64(some)) for name, (own, some) in mine.items()}
    )


def replace_rows(state: S, rows: Mapping[str, DriverRows]) -> S:
    """The state with these rows, by the name of the field."""
    changed: dict[str, Any] = {}
    for field in fields(state):  # type: ignore[arg-type]  # states are dataclasses
        value = getattr(state, field.name)
        if isinstance(value, DriverRows):
            changed[field.name] = rows.get(field.name, value)
        elif is_dataclass(value) and held_rows(value):
            changed[field.name] = replace_rows(value, rows)
    return replace(state, **changed)  # type: ignore[type-var]


_MARK = "members."
#: The most dimensions of a packed array.
DIMENSIONS = 4


def pack_arrays(members: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of many members as a few: those of equal names concatenated, with their shapes (members, 4).

    A file of ten thousand small arrays would take longer to write than a scan. In the shapes -2 stands for an array
    that a member lacks, and -1 for a dimension that an array lacks.
    """
    arrays: dict[str, NDArray[Any]] = {f"{_MARK}count": np.array(len(members))}
    for name in sorted({name for member in members for name in member}):
        found = [member.get(name) for member in members]
        shapes = [
            (-2,) * DIMENSIONS if values is None else (*values.shape, *(-1,) * DIMENSIONS)[:DIMENSIONS]
            for values in found
        ]
        arrays[f"{_MARK}{name}"] = np.concatenate([values.ravel() for values in found if values is not None])
        arrays[f"{_MARK}{name}.shape"] = np.array(shapes, np.int64).reshape(len(members), DIMENSIONS)
    return arrays


def unpack_arrays(arrays: Mapping[str, NDArray[Any]]) -> list[dict[str, NDArray[Any]]]:
    """Inverse of ``pack_arrays``; other arrays are ignored."""
    members: list[dict[str, NDArray[Any]]] = [{} for _ in range(int(arrays[f"{_MARK}count"]))]
    for key in [key for key in arrays if key.startswith(_MARK) and key.endswith(".shape")]:
        name, values, first = key.removeprefix(_MARK).removesuffix(".shape"), arrays[key.removesuffix(".shape")], 0
        for member, shape in zip(members, arrays[key].tolist(), strict=True):
            if shape[0] != -2:
                size = tuple(length for length in shape if length >= 0)
                stop = first + int(np.prod(size, dtype=np.int64))
                member[name] = values[first:stop].reshape(size)
                first = stop
    return members
