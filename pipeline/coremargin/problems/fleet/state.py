"""What a fleet knows between two scans: its members' states, and their rows, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import ratio
from coremargin.maths.rows import Rows, as_float64, concatenate, take
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.fleet.summary import packed
from coremargin.problems.hard.state import HardMarginState
from coremargin.problems.soft.state import SoftState

MemberState: TypeAlias = HardMarginState | SoftState
S = TypeVar("S")


@dataclass(frozen=True)
class SharedRows(DriverRows):
    """Rows of the store that members hold: ids (u,) increasing, rows (u, d).

    They are in the store's precision, or in the form that takes the least memory (``compact``) where all are held.
    """

    def of(self, ids: NDArray[np.int64]) -> Rows:
        """Rows (m, d) of these ids, all of which are among the shared rows."""
        if np.array_equal(ids, self.ids):
            return self.rows
        return take(self.rows, np.searchsorted(self.ids, ids))

    @classmethod
    def bound(cls, wanted: NDArray[np.int64], parts: Sequence[DriverRows], dtype: Any) -> SharedRows:
        """The rows ``wanted`` (increasing), each from the first of the parts that has it."""
        known, first = np.unique(np.concatenate([part.ids for part in parts]), return_index=True)
        place = first[np.searchsorted(known, wanted)]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        chosen, whose = [], []
        for part, start, stop in zip(parts, starts[:-1], starts[1:], strict=True):
            mine = np.flatnonzero((place >= start) & (place < stop))
            chosen.append(take(part.rows, place[mine] - start).astype(dtype))
            whose.append(mine)
        return cls(wanted, take(concatenate(chosen), np.argsort(np.concatenate(whose))))


def rows_of(state: Any) -> dict[str, DriverRows]:
    """The rows that a state holds, in its fields or in those of its parts, by the name of the field."""
    found: dict[str, DriverRows] = {}
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, DriverRows):
            found[field.name] = value
        elif is_dataclass(value):
            found |= rows_of(value)
    return found


def without_rows(state: S) -> S:
    """The state without the rows themselves."""
    return holding(state, {name: replace(own, rows=np.zeros((len(own), 0))) for name, own in rows_of(state).items()})


def with_rows(state: S, shared_rows: SharedRows, *, as_it_is: bool = False) -> S:
    """The state with its rows from the shared rows: exact, they are the store's; in float64, or as these have them."""
    mine = {name: (own, shared_rows.of(own.ids)) for name, own in rows_of(state).items()}
    return holding(
        state, {name: replace(own, rows=some if as_it_is else as_float64(some)) for name, (own, some) in mine.items()}
    )


def holding(state: S, rows: Mapping[str, DriverRows]) -> S:
    """The state with these rows, by the name of the field."""
    changed: dict[str, Any] = {}
    for field in fields(state):  # type: ignore[arg-type]  # states are dataclasses
        value = getattr(state, field.name)
        if isinstance(value, DriverRows):
            changed[field.name] = rows.get(field.name, value)
        elif is_dataclass(value) and rows_of(value):
            changed[field.name] = holding(value, rows)
    return replace(state, **changed)  # type: ignore[type-var]


def together(statuses: Sequence[str]) -> str:
    """The word of all: "running" while one is, "certified" when all are, else the first other one."""
    if "running" in statuses:
        return "running"
    return next((status for status in statuses if status != "certified"), "certified")


@dataclass(frozen=True)
class FleetState:
    """Between two scans.

    scans: those over all rows that are done, a pass in parts being one. members: the states of the members, without
    rows; those are shared. evaluated: ``confusion`` (ensembles, k, k) is about the members' final hypotheses or,
    as_read, about those that there were when each row was read, or of new rows alone. sample_bytes: read before the
    first scan.
    """

    round: int
    scans: int
    members: tuple[MemberState, ...]
    shared_rows: SharedRows
    evaluated: bool
    confusion: NDArray[np.int64]
    sample_bytes: int
    as_read: bool = False

    @property
    def status(self) -> str:
        """The word of all members."""
        return together([member.status for member in self.members])

    @property
    def worst(self) -> int:
        """The number of the member with the lowest ratio of its bounds, of equal ones the first."""
        members = self.members
        return min(range(len(members)), key=lambda k: ratio(members[k].lower, members[k].upper))

    @property
    def lower(self) -> float:
        """Of the member with the lowest ratio."""
        return self.members[self.worst].lower

    @property
    def upper(self) -> float:
        """Of the member with the lowest ratio."""
        return self.members[self.worst].upper

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact; the problem's ``restore`` gives the same bits back."""
        own = {
            "round": np.array(self.round), "scans": np.array(self.scans), "evaluated": np.array(self.evaluated),
            "confusion": self.confusion, "sample_bytes": np.array(self.sample_bytes),
            "as_read": np.array(self.as_read),
        }  # fmt: skip
        return own | self.shared_rows.to_arrays("shared") | packed([member.to_arrays() for member in self.members])

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], members: Sequence[MemberState]) -> FleetState:
        """The state of these members that ``to_arrays`` gave."""
        return cls(
            round=int(arrays["round"]), scans=int(arrays["scans"]), members=tuple(members),
            shared_rows=SharedRows.from_arrays("shared", arrays), evaluated=bool(arrays["evaluated"]),
            confusion=arrays["confusion"], sample_bytes=int(arrays["sample_bytes"]), as_read=bool(arrays["as_read"]),
        )  # fmt: skip
