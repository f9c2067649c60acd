"""Keys of a store's rows on disk: sorted runs of hashes with row ids, each bounded, so that few bytes find a row.

A run is a group ``keys/000003-0``, named for the commit that wrote it, of arrays in files of 1 MiB::

    high, low   (m,) uint64   halves of the hashes, ascending by both
    row         (m,) int64    the row of each
    first       (k,) uint64   the first of each file of ``high``

The root ``zarr.json`` names the runs that have the rows of all commits. A row keeps its key: an earlier commit has the
keys of its rows, whatever runs they were merged into. None of this enters the digest of a store.

``KeySink`` sorts new keys in memory up to a run and writes them; the commit of their rows makes them visible. Small
runs of earlier commits are merged into the next one, so that few are ever read. What was merged stays on disk until
another writer comes: who reads the commit before finds it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coremargin.data.format import GROUP_KEYS, KEY_PARTS, KEYS
from coremargin.data.groups import reappeared
from coremargin.data.key_values import place_among
from coremargin.data.owned import STORE
from coremargin.data.plain import group_metadata, write_array
from coremargin.data.storage import write_json
from coremargin.errors import BadRow, StoreError
from coremargin.formats.raw_array import read_raw_array
from coremargin.formats.store_record import KeyRun
from coremargin.formats.zarr_metadata import read_array_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coremargin.data.format import Facts
    from coremargin.data.key_values import Keys, Placed
    from coremargin.data.place import Place
    from coremargin.data.storage import Storage
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.storage import ReadableStorage


RUN_ROWS = 1 << 21  #: of a run, at most: 50 MB, about thrice that while it is sorted


class Entries(NamedTuple):
    """Keys by the halves of their hashes, (m,) uint64, and the rows (m,) int64 that have them."""

    high: np.ndarray
    low: np.ndarray
    row: np.ndarray

    @classmethod
    def of(cls, hashes: np.ndarray, first: int) -> Entries:
        """Of rows in order, from ``first`` on."""
        return cls(hashes[:, 0], hashes[:, 1], np.arange(first, first + len(hashes)))

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """One after the other."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def part(self, at: slice | np.ndarray) -> Entries:
        """Some of them."""
        return Entries(self.high[at], self.low[at], self.row[at])

    def sorted(self) -> Entries:
        """By hash; rows of one key as they came."""
        order = np.argsort(self.high, kind="stable")
        if (np.diff(self.high[order]) == 0).any():
            order = np.lexsort((self.low, self.high))
        return self.part(order)

    def between(self, low: int, high: int) -> Entries:
        """Of sorted ones those whose high half is in [low, high]."""
        start = int(np.searchsorted(self.high, np.uint64(low), side="left"))
        return self.part(slice(start, int(np.searchsorted(self.high, np.uint64(high), side="right"))))

    def highs(self, low: int, high: int) -> np.ndarray:
        """Their high halves alone."""
        return self.between(low, high).high

    def twice(self) -> tuple[int, int] | None:
        """Of sorted ones the first row that has the key of one before it: (before, row)."""
        same = np.flatnonzero((self.high[1:] == self.high[:-1]) & (self.low[1:] == self.low[:-1]))
        if not len(same):
            return None
        at = same[np.argmin(self.row[same + 1])]
        return int(self.row[at]), int(self.row[at + 1])


class Run:
    """A run of a store. Raises StoreError that names the file for what is missing or altered."""

    def __init__(self, storage: ReadableStorage, record: KeyRun, folder: str = KEYS) -> None:
        self._storage, self.key, self.rows = storage, f"{folder}/{record.group}", record.rows
        self.name = f"{storage.name}/{self.key}"  #: for messages

    @cached_property
    def step(self) -> int:
        """Entries of a file."""
        return read_array_metadata(self._storage, f"{self.key}/high").chunks[0]

    @cached_property
    def first(self) -> np.ndarray:
        """The first hash of each file, its high half."""
        return read_raw_array(self._storage, f"{self.key}/first", 0, -(-self.rows // self.step), "uint64")

    def read(self, start: int = 0, stop: int | None = None) -> Entries:
        """Entries [start, stop)."""
        return Entries(self._part("high", start, stop), self._part("low", start, stop), self._part("row", start, stop))

    def pieces(self) -> Iterator[Entries]:
        """All entries, a file at a time."""
        for start in range(0, self.rows, self.step):
            yield self.read(start, min(self.rows, start + self.step))

    def between(self, low: int, high: int) -> Entries:
        """Entries whose high half is in [low, high]."""
        return self.read(*self._files(low, high)).between(low, high)

    def highs(self, low: int, high: int) -> np.ndarray:
        """Their high halves alone, (m,) uint64."""
        found = self._part("high", *self._files(low, high))
        return found[np.searchsorted(found, np.uint64(low)) : np.searchsorted(found, np.uint64(high), side="right")]

    def _files(self, low: int, high: int) -> tuple[int, int]:
        """Entries [start, stop) of whole files that have those between."""
        start = max(0, int(np.searchsorted(self.first, np.uint64(low), side="left")) - 1)
        stop = max(start, int(np.searchsorted(self.first, np.uint64(high), side="right")))
        return start * self.step, min(self.rows, stop * self.step)

    def may_have(self, high: np.ndarray) -> bool:
        """Whether some high half (m,), which ascend, is that of a key here."""
        return any(
            bool((stored[np.minimum(np.searchsorted(stored, mine), len(stored) - 1)] == mine).any())
            for stored, mine in ((self._high(chunk), high[part]) for chunk, part in self._chunks(high))
        )

    def find(self, high: np.ndarray, low: np.ndarray) -> np.ndarray:
        """Rows (m,) int64 of hashes, whose high halves ascend, -1 where there is none; reads the files that matter."""
        found = np.full(len(high), -1)
        for chunk, mine in self._chunks(high):
            there = self._find_in(chunk, high[mine], low[mine])
            found[mine] = np.where(there < 0, found[mine], there)
        return found

    def _chunks(self, high: np.ndarray) -> Iterator[tuple[int, slice]]:
        """Files that may have ascending high halves (m,), and which of these each; equal ones may lie in several."""
        last = np.searchsorted(self.first, high, side="right") - 1
        since = np.maximum(np.searchsorted(self.first, high, side="left") - 1, 0)
        begun = np.bincount(since[last >= 0], minlength=len(self.first) + 1)
        ended = np.bincount(last[last >= 0] + 1, minlength=len(self.first) + 1)
        for chunk in np.flatnonzero(np.cumsum(begun - ended)).tolist():
            yield chunk, slice(int(np.searchsorted(last, chunk)), int(np.searchsorted(since, chunk, side="right")))

    def _high(self, chunk: int) -> np.ndarray:
        return self._part("high", chunk * self.step, min(self.rows, (chunk + 1) * self.step))

    def _find_in(self, chunk: int, high: np.ndarray, low: np.ndarray) -> np.ndarray:
        start = chunk * self.step
        stop = min(self.rows, start + self.step)
        stored, found = self._high(chunk), np.full(len(high), -1)
        at = np.searchsorted(stored, high, side="left")
        left = np.flatnonzero(stored[np.minimum(at, len(stored) - 1)] == high)
        if len(left):
            lows, rows = self._part("low", start, stop), self._part("row", start, stop)
            while len(left):  # once, but for hashes that have one half in common
                same = lows[at[left]] == low[left]
                found[left[same]] = rows[at[left[same]]]
                left = left[~same]
                at[left] += 1
                left = left[at[left] < len(stored)]
                left = left[stored[at[left]] == high[left]]
        return found

    def _part(self, part: str, start: int, stop: int | None) -> np.ndarray:
        dtype = "int64" if part == "row" else "uint64"
        return read_raw_array(self._storage, f"{self.key}/{part}", start, self.rows if stop is None else stop, dtype)


def write_run(storage: Storage, group: str, entries: Entries, folder: str = KEYS) -> KeyRun:
    """Write sorted entries as a new run, which is not read before a root names it."""
    key = f"{folder}/{group}"
    if not storage.exists(f"{folder}/zarr.json"):
        write_json(storage, f"{folder}/zarr.json", group_metadata({}))
    for part, values in entries._asdict().items():
        write_array(storage, f"{key}/{part}", values, ("key",))
    step = read_array_metadata(storage, f"{key}/high").chunks[0]
    write_array(storage, f"{key}/first", entries.high[::step], ("file",))
    write_json(storage, f"{key}/zarr.json", group_metadata({}))
    storage.sync(*(f"{key}/{part}" for part in KEY_PARTS), key, folder)
    return KeyRun(group=group, rows=len(entries.row))


def first_twice(new: Sequence[Run | Entries], old: Sequence[Run]) -> tuple[int, int] | None:
    """A row of the new keys that has the key of another, and this one: (before, row); old ones are known to differ.

    They are looked at by parts of all hashes, each about as many as a run: what has one key lies in one part.
    """
    rows = sum(run.rows if isinstance(run, Run) else len(run.row) for run in new)
    parts = -(-rows // RUN_ROWS)
    for part in range(parts):
        low, high = (part << 64) // parts, ((part + 1) << 64) // parts - 1
        highs = np.concatenate([run.highs(low, high) for run in new])
        highs.sort()
        if not ((highs[1:] == highs[:-1]).any() or any(run.may_have(highs) for run in old)):
            continue  # as nearly always
        entries = Entries.joined([run.between(low, high) for run in new]).sorted()
        pair = entries.twice()
        for run in old:
            there = run.find(entries.high, entries.low)
            if (hits := np.flatnonzero(there >= 0)).size:
                at = hits[np.argmin(entries.row[hits])]
                here = int(there[at]), int(entries.row[at])
                pair = here if pair is None or here[1] < pair[1] else pair
        if pair is not None:
            return pair
    return None


class KeyIndex:
    """The keys of all rows of a store, as its last commit has them, or of the first rows of all groups."""

    def __init__(self, storage: ReadableStorage, runs: Sequence[KeyRun], rows: int, groups: int | None = None) -> None:
        """rows: of the last commit; groups: how many it has, if these are their keys.

        Raises StoreError for runs that are not of these rows.
        """
        self.rows, keys = rows, rows if groups is None else groups
        named = {run.group for run in runs}
        if sum(run.rows for run in runs) != keys or len(named) < len(runs):
            raise StoreError(
                f"{storage.name}/zarr.json: expected {keys:,} keys in runs of different names, found "
                f"{sum(run.rows for run in runs):,} in {len(named):,}; restore it from a copy"
            )
        self.runs = [Run(storage, run, KEYS if groups is None else GROUP_KEYS) for run in runs]

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Rows (m,) int64 of hashes (m, 2), -1 where none has it."""
        order = np.argsort(hashes[:, 0], kind="stable")
        high, low = hashes[order, 0], hashes[order, 1]
        found, rows = np.full(len(high), -1), np.empty(len(high), np.int64)
        for run in self.runs:
            there = run.find(high, low)
            if there.size and there.max() >= self.rows:
                raise StoreError(
                    f"{run.name}: expected rows below {self.rows:,}, found {there.max():,}; restore it from a copy"
                )
            found = np.where(there < 0, found, there)
        rows[order] = found
        return rows


_MERGE_RATIO = 3
_MERGE_ROWS = 1 << 16  # that are merged into the next run, however small that is: files cost more than what is in them


class KeySink:
    """Keys of the rows of one writer, or of the first rows of its groups.

    title: what they are, for messages: "column 'order'"; None: keys of groups.
    """

    def __init__(self, place: Place, facts: Facts, title: str | None) -> None:
        self._place, self._title, self._folder = place, title, GROUP_KEYS if title is None else KEYS
        self._committed, self._number = facts.rows, facts.number
        self._standing = facts.groups if title is None else facts.keys
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

    def add_groups(self, first: int, starts: np.ndarray, hashes: np.ndarray, place: Callable[[int], str]) -> None:
        """Keys (k, 2) of groups that begin at these rows (k,), of a batch of rows from ``first`` on."""
        self._came.append((first, place))
        self._take(Entries(hashes[:, 0], hashes[:, 1], starts))

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
        held = Entries.joined(self._held).sorted() if self._count else None
        new: list[Run | Entries] = [self._run(run) for run in self._fresh]
        self._refuse(first_twice(new + ([] if held is None else [held]), [self._run(run) for run in self._standing]))
        if held is None:
            return (*self._standing, *self._fresh)
        known = [*self._standing, *self._fresh]
        merged, rows = len(known), len(held.row)
        while merged and rows + known[merged - 1].rows <= min(RUN_ROWS, max(_MERGE_ROWS, _MERGE_RATIO * rows)):
            merged -= 1
            rows += known[merged].rows
        parts = [self._run(run).read() for run in known[merged:]]
        return (*known[:merged], self._written(Entries.joined([*parts, held]).sorted()))

    def settle(self, facts: Facts) -> None:
        """The root names what ``runs`` gave."""
        self._committed, self._number = facts.rows, facts.number
        self._standing = facts.groups if self._title is None else facts.keys
        self._fresh, self._held, self._count, self._groups, self._came = [], [], 0, 0, []

    def close(self) -> None:
        """Remove what no root names."""
        named = {run.group for run in self._standing}
        for number in range(self._groups):
            if self._group(number) not in named:
                with suppress(OSError):
                    self._place.storage.remove(f"{self._folder}/{self._group(number)}", STORE.owns)

    def _group(self, number: int) -> str:
        return f"{self._number:06d}-{number}"

    def _written(self, entries: Entries) -> KeyRun:
        self._groups += 1
        return write_run(self._place.storage, self._group(self._groups - 1), entries, self._folder)

    def _run(self, record: KeyRun) -> Run:
        return Run(self._place.storage, record, self._folder)

    def _refuse(self, pair: tuple[int, int] | None) -> None:
        """Raise BadRow for a row that has the key of one before it."""
        if pair is None:
            return
        before, row = pair
        if self._title is None:
            if before >= self._committed:
                raise BadRow(reappeared(self._named(row), self._named(before)))
            raise BadRow(
                f"{self._named(row)}: found a group that is there already, from row {before:,} of {self._place.name} "
                "on; expected new groups (one that was removed keeps its id until the store is compacted)"
            )
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
