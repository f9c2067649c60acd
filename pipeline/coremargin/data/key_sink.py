"""Keys on their way into a store: sorted in memory up to a run, written, and made visible by the commit of their rows.

Small runs of earlier commits are merged into the next one, so that few are ever read. What was merged stays on disk
until another writer comes: who reads the commit before finds it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.format import KEYS
from coremargin.data.key_runs import RUN_ROWS, Entries, Run, first_twice, write_run
from coremargin.data.key_values import place_among
from coremargin.data.owned import STORE
from coremargin.errors import BadRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coremargin.data.format import Facts
    from coremargin.data.key_values import Keys, Placed
    from coremargin.data.place import Place
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.store_record import KeyRun

_MERGE_RATIO = 3
_MERGE_ROWS = 1 << 16  # that are merged into the next run, however small that is: files cost more than what is in them


class KeySink:
    """Keys of the rows of one writer. title: what they are, for messages: "column 'order'"."""

    def __init__(self, place: Place, facts: Facts, title: str) -> None:
        self._place, self._title = place, title
        self._standing, self._committed, self._number = facts.keys, facts.rows, facts.number
        self._fresh: list[KeyRun] = []  # written, and named by no root yet
        self._held: list[Entries] = []  # not written
        self._count = 0  # of these
        self._came: list[Placed] = []
        self._groups = 0
        self.known = False  #: keys of all rows were taken: none come with the rows

    def add(self, first: int, keys: Keys) -> None:
        """Keys of rows from ``first`` on. Raises BadRow for one that is there twice, as a commit does at last."""
        self._came.append((first, keys.place))
        self._take(Entries.of(keys.hashes, first))

    def take_all(self, parts: Iterable[Entries]) -> None:
        """Keys of all rows to come, in whatever order."""
        self.known = True
        for entries in parts:
            self._take(entries)

    def _take(self, entries: Entries) -> None:
        self._held.append(entries)
        self._count += len(entries.row)
        while self._count >= RUN_ROWS:
            self._held = [Entries.joined(self._held)]
            run = self._held[0].part(slice(RUN_ROWS)).sorted()
            self._refuse(run.twice())
            self._fresh.append(self._written(run))
            self._held = [self._held[0].part(np.arange(RUN_ROWS, self._count))]  # a copy: no views keep the run
            self._count -= RUN_ROWS

    def runs(self) -> tuple[KeyRun, ...]:
        """The runs of all rows, of those that came since the last commit too, on disk. Raises BadRow, OutputError."""
        if not self._fresh and not self._count:
            return self._standing
        storage = self._place.storage
        held = Entries.joined(self._held).sorted() if self._count else None
        new: list[Run | Entries] = [Run(storage, run) for run in self._fresh]
        self._refuse(first_twice(new + ([] if held is None else [held]), [Run(storage, run) for run in self._standing]))
        if held is None:
            return (*self._standing, *self._fresh)
        known = [*self._standing, *self._fresh]
        merged, rows = len(known), len(held.row)
        while merged and rows + known[merged - 1].rows <= min(RUN_ROWS, max(_MERGE_ROWS, _MERGE_RATIO * rows)):
            merged -= 1
            rows += known[merged].rows
        parts = [Run(storage, run).read() for run in known[merged:]]
        return (*known[:merged], self._written(Entries.joined([*parts, held]).sorted()))

    def settle(self, facts: Facts) -> None:
        """The root names what ``runs`` gave."""
        self._standing, self._committed, self._number = facts.keys, facts.rows, facts.number
        self._fresh, self._held, self._count, self._groups, self._came = [], [], 0, 0, []

    def close(self) -> None:
        """Remove what no root names."""
        named = {run.group for run in self._standing}
        for number in range(self._groups):
            if self._group(number) not in named:
                with suppress(OSError):
                    self._place.storage.remove(f"{KEYS}/{self._group(number)}", STORE.owns)

    def _group(self, number: int) -> str:
        return f"{self._number:06d}-{number}"

    def _written(self, entries: Entries) -> KeyRun:
        self._groups += 1
        return write_run(self._place.storage, self._group(self._groups - 1), entries)

    def _refuse(self, pair: tuple[int, int] | None) -> None:
        """Raise BadRow for a row that has the key of one before it."""
        if pair is None:
            return
        before, row = pair
        if before >= self._committed:
            raise BadRow(
                f"{self._named(row)}, {self._title}: found the key of {self._named(before)}, expected one of its own; "
                "correct one of them, or remove it"
            )
        raise BadRow(
            f"{self._named(row)}, {self._title}: found the key of row {before:,} of {self._place.name}, expected one "
            "of its own; correct it, or remove it (a row that was taken out has its key until the store is compacted)"
        )

    def _named(self, row: int) -> str:
        """A row as people would look it up."""
        return place_among(self._came, row)


def key_sink(place: Place, facts: Facts, columns: ColumnsRecord | None) -> KeySink | None:
    """Where keys of rows go, if the store's columns say that rows have some."""
    if columns is None or columns.key is None:
        return None
    return KeySink(place, facts, f"column {columns.key!r}" if columns.named else f"column {columns.key}")
