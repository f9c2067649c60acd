"""Where the groups of new rows go: what is checked as they come, and kept until their chunks are written."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coremargin.data.group_parts import groups_of
from coremargin.data.groups import check_group_weights, too_long
from coremargin.data.key_runs import KeySink
from coremargin.data.key_values import hashed
from coremargin.errors import BadRow

if TYPE_CHECKING:
    from coremargin.data.format import Facts
    from coremargin.data.groups import GroupRuns
    from coremargin.data.place import Place
    from coremargin.data.store import Store


class GroupSink:
    """Groups of the rows of one writer, until their chunks are written; ``keys`` has their keys.

    All rows of a group have the same weight.
    """

    def __init__(self, place: Place, facts: Facts) -> None:
        self.keys = KeySink(place, facts, None)
        self._border = facts.rows  # no group goes on beyond a commit
        self._begun = _Begun(0, "", "")  # the last group
        self._longest = 0, self._begun  # rows so far, of any group
        self._weight = 1.0  # of the last row
        self._starts = list[int]()  # of groups that begin in chunks that are not written
        self._ids = list[str]()

    @classmethod
    def resume(cls, store: Store, place: Place, facts: Facts) -> GroupSink:
        """Go on after the last commit of a store with groups."""
        sink, groups = cls(place, facts), groups_of(store)
        ends = int(np.flatnonzero(groups.counts)[-1])
        start, name = int(groups.offsets(ends)[-2]), groups.ids(ends)[-1]
        sink._begun = _Begun(start, name, f"row {start:,} of {store.name}")
        if store.rows % store.chunk_rows:
            sink._starts, sink._ids = groups.offsets(store.chunks - 1)[:-1].tolist(), groups.ids(store.chunks - 1)
        return sink

    def add(self, first: int, runs: GroupRuns, weights: np.ndarray | None, chunk_rows: int) -> None:
        """Take the groups of rows from ``first`` on, with their weights (m,), if the store has some.

        Raises BadRow: a group that goes on from an earlier commit, is longer than a chunk, or has several weights.
        Nothing is taken then.
        """
        same = first > 0 and runs.ids[0] == self._begun.name
        if same and first == self._border:
            raise BadRow(
                f"{runs.place(0)}: group {self._begun.name!r} goes on from an earlier commit, where it begins at "
                f"{self._begun.place}; expected a new group: an append adds no rows to one"
            )
        if weights is not None:
            check_group_weights(runs, weights, self._weight if same else None)
        starts, ids = (first + runs.starts)[same:], runs.ids[same:]
        begins = np.append(self._begun.start, starts) if same else starts  # of all groups that have rows here
        names = [self._begun.name] * same + ids

        def begun(number: int) -> _Begun:
            start = int(begins[number])
            return _Begun(start, names[number], runs.place(start - first) if start >= first else self._begun.place)

        lengths = np.diff(begins, append=first + runs.rows)
        longest = int(np.argmax(lengths))
        if lengths[longest] > self._longest[0]:
            _refuse_long(int(lengths[longest]), begun(longest), chunk_rows)
            self._longest = int(lengths[longest]), begun(longest)
        if len(ids):
            self.keys.add_groups(first, starts, hashed(ids), runs.place)
            self._starts += starts.tolist()
            self._ids += ids
            self._begun = begun(-1)
        self._weight = 1.0 if weights is None else float(weights[-1])

    def refuse_long(self, chunk_rows: int) -> None:
        """Raise BadRow for a group with more rows than a chunk."""
        _refuse_long(*self._longest, chunk_rows)

    def take(self, stop: int, *, keep: bool = False) -> tuple[np.ndarray, list[str]]:
        """Row ids and ids of groups that begin before row ``stop`` in chunks that were not taken; keep: take none."""
        count = bisect_left(self._starts, stop)
        found = np.array(self._starts[:count], np.int64), self._ids[:count]
        if not keep:
            del self._starts[:count], self._ids[:count]
        return found

    def settle(self, facts: Facts) -> None:
        """The rows so far are committed."""
        self.keys.settle(facts)
        self._border = facts.rows


def _refuse_long(rows: int, begun: _Begun, chunk_rows: int) -> None:
    if rows > chunk_rows:
        raise BadRow(too_long(begun.place, begun.name, rows, chunk_rows))


class _Begun(NamedTuple):
    """A group: its first row, its id, and where this row is, for messages."""

    start: int
    name: str
    place: str
