"""What a fleet knows between two scans: its members' states, and their rows, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import ratio
from coremargin.maths.rows import Rows, as_float64, concatenate, take, to_arrays
from coremargin.problems.common.pool import Pool
from coremargin.problems.fleet.summary import packed
from coremargin.problems.hard.state import HardMarginState
from coremargin.problems.soft.state import SoftState

MemberState: TypeAlias = HardMarginState | SoftState


@dataclass(frozen=True)
class SharedRows:
    """Rows of the store that members hold: ids (u,) increasing, rows (u, d).

    They are in the store's precision, or in the form that takes the least memory (``compact``) where all are held.
    """

    ids: NDArray[np.int64]
    rows: Rows

    def of(self, ids: NDArray[np.int64]) -> Rows:
        """Rows (m, d) of these ids, all of which are among the shared rows."""
        if len(ids) == len(self.ids):
            return self.rows
        return take(self.rows, np.searchsorted(self.ids, ids))

    @classmethod
    def bound(
        cls, wanted: NDArray[np.int64], parts: Sequence[tuple[NDArray[np.int64], Rows]], dtype: Any
    ) -> SharedRows:
        """The rows ``wanted`` (increasing), each from the first of the parts (ids, rows) that has it."""
        ids = np.concatenate([part_ids for part_ids, _ in parts])
        known, first = np.unique(ids, return_index=True)
        place = first[np.searchsorted(known, wanted)]
        starts = np.cumsum([0, *(len(part_ids) for part_ids, _ in parts)])
        chosen, whose = [], []
        for (_, rows), start, stop in zip(parts, starts[:-1], starts[1:], strict=True):
            mine = np.flatnonzero((place >= start) & (place < stop))
            chosen.append(take(rows, place[mine] - start).astype(dtype))
            whose.append(mine)
        return cls(wanted, take(concatenate(chosen), np.argsort(np.concatenate(whose))))


def pools(state: MemberState) -> dict[str, Pool]:
    """The rows that a state holds, by the name of the field."""
    holder = state.rows if isinstance(state, SoftState) else state
    values = {field.name: getattr(holder, field.name) for field in fields(holder)}
    return {name: value for name, value in values.items() if isinstance(value, Pool)}


def without_rows(state: MemberState) -> MemberState:
    """The state without the rows themselves."""
    rows: dict[str, Any] = {name: _with(pool, np.zeros((len(pool), 0))) for name, pool in pools(state).items()}
    return _holding(state, rows)


def with_rows(state: MemberState, shared_rows: SharedRows, *, as_it_is: bool = False) -> MemberState:
    """The state with its rows from the shared rows: exact, they are the store's; in float64, or as these have them."""
    mine = {name: (pool, shared_rows.of(pool.ids)) for name, pool in pools(state).items()}
    rows: dict[str, Any] = {
        name: _with(pool, some if as_it_is else as_float64(some)) for name, (pool, some) in mine.items()
    }
    return _holding(state, rows)


def _holding(state: MemberState, rows: dict[str, Any]) -> MemberState:
    """The state with these pools, by the name of the field."""
    if isinstance(state, SoftState):
        return replace(state, rows=replace(state.rows, **rows))
    return replace(state, **rows)


def _with(pool: Pool, rows: Any) -> Pool:
    return replace(pool, rows=rows)


@dataclass(frozen=True)
class FleetState:
    """Between two scans.

    members: the states of the members, without rows; those are shared. evaluated: ``confusion`` (ensembles, k, k) is
    about the members' final hypotheses. sample_bytes: read before the first scan.
    """

    round: int
    members: tuple[MemberState, ...]
    shared_rows: SharedRows
    evaluated: bool
    confusion: NDArray[np.int64]
    sample_bytes: int

    @property
    def status(self) -> str:
        """The word of all members: "running" while one is, "certified" when all are, else the first other one."""
        statuses = [member.status for member in self.members]
        if "running" in statuses:
            return "running"
        return next((status for status in statuses if status != "certified"), "certified")

    @property
    def worst(self) -> MemberState:
        """The member with the lowest ratio of its bounds, of equal ones the first."""
        return min(self.members, key=lambda member: ratio(member.lower, member.upper))

    @property
    def lower(self) -> float:
        """Of the member with the lowest ratio."""
        return self.worst.lower

    @property
    def upper(self) -> float:
        """Of the member with the lowest ratio."""
        return self.worst.upper

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact; the problem's ``restore`` gives the same bits back."""
        numbers = {"round": np.array(self.round), "evaluated": np.array(self.evaluated)}
        own = {
            "shared_ids": self.shared_rows.ids,
            "confusion": self.confusion,
            "sample_bytes": np.array(self.sample_bytes),
        }
        rows = to_arrays("shared_rows", self.shared_rows.rows)
        return {**numbers, **own, **rows, **packed([member.to_arrays() for member in self.members])}
