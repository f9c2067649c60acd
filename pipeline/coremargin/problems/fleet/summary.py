"""The answer to a fleet's question: those of its members, and the rows that they send, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.rows import Rows, concatenate, from_arrays, take, to_arrays
from coremargin.problems.hard.probe import MarginSummary
from coremargin.problems.soft.stage_summary import StageSummary
from coremargin.problems.soft.summary import NearMarginSummary

Part: TypeAlias = MarginSummary | NearMarginSummary | StageSummary


@dataclass(frozen=True)
class FleetSummary:
    """What the rows of some blocks say to the members of a fleet.

    parts: one answer a member, each with the ids of the rows that it wants and no rows; row_id (u,) increasing, row_x
    (u, d): the rows that any member wants. confusion (ensembles, k, k) int64: rows of each class that were given each
    class.
    """

    parts: tuple[Part, ...]
    row_id: NDArray[np.int64]
    row_x: Rows
    confusion: NDArray[np.int64]

    def merge(self, later: FleetSummary) -> FleetSummary:
        """This answer and that of later blocks."""
        return FleetSummary(
            tuple(mine.merge(other) for mine, other in zip(self.parts, later.parts, strict=True)),  # type: ignore[arg-type]
            np.concatenate([self.row_id, later.row_id]),
            concatenate([self.row_x, later.row_x]),
            self.confusion + later.confusion,
        )

    def part(self, member: int) -> Part:
        """The answer to one member, with its rows, unless it only names them."""
        found = self.parts[member]
        sent = found.row_id if len(self.row_id) else found.row_id[:0]
        return found.with_rows(take(self.row_x, np.searchsorted(self.row_id, sent)))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        own = {"row_id": self.row_id, "confusion": self.confusion} | to_arrays("row_x", self.row_x)
        return own | packed([part.to_arrays() for part in self.parts])

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], makers: Sequence[Callable[[Mapping[str, NDArray[Any]]], Part]]
    ) -> FleetSummary:
        """Inverse of ``to_arrays``; makers: of the members' answers."""
        parts = (make(values) for make, values in zip(makers, unpacked(arrays), strict=True))
        return cls(tuple(parts), arrays["row_id"], from_arrays("row_x", arrays), arrays["confusion"])


def without_rows(part: Part) -> Part:
    """The same answer, its rows left out."""
    return part.with_rows(np.zeros((len(part.row_id), 0)))


_MARK = "members."
#: Of arrays that members may have, at most.
DIMENSIONS = 4


def packed(members: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of many members as a few: equal names behind one another, and their shapes (members, 4).

    A file of ten thousand small arrays would take longer to write than a scan. An array that a member does not have
    has the shape -2 in each dimension; dimensions that an array does not have are -1.
    """
    arrays: dict[str, NDArray[Any]] = {f"{_MARK}count": np.array(len(members))}
    for name in sorted({name for member in members for name in member}):
        given = [member.get(name) for member in members]
        shapes = [
            (-2,) * DIMENSIONS if values is None else (*values.shape, *(-1,) * DIMENSIONS)[:DIMENSIONS]
            for values in given
        ]
        arrays[f"{_MARK}{name}"] = np.concatenate([values.ravel() for values in given if values is not None])
        arrays[f"{_MARK}{name}.shape"] = np.array(shapes, np.int64).reshape(len(members), DIMENSIONS)
    return arrays


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> list[dict[str, NDArray[Any]]]:
    """Inverse of ``packed``; other arrays are passed over."""
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
