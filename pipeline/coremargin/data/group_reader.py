"""What reads the groups of a store, chunk by chunk, and checks them against the manifest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.groups import IDS, STARTS, decoded_ids
from coremargin.data.readers import ObjectProblem, ValueReader, undamaged
from coremargin.errors import DamagedChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coremargin.data.groups import GroupColumns
    from coremargin.data.layout import ArrayLayout


class StoreGroups:
    """Reads the groups of a store, checked against its statistics. Safe in many threads."""

    def __init__(
        self,
        layouts: Mapping[str, ArrayLayout],
        columns: GroupColumns,
        rows: int,
        span: Callable[[int], tuple[int, int]],
    ) -> None:
        """columns: of all chunks; rows: of the commit; span: rows of a chunk."""
        self.counts, self._columns, self._rows, self._span = columns.sizes[:, STARTS], columns, rows, span
        self._readers = ValueReader(layouts["groups"], 0), ValueReader(layouts["group_ids"], 0)
        self._first = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(columns.sizes, axis=0)])

    def offsets(self, chunk: int) -> np.ndarray:
        """Row ids (k + 1,) int64 at which the k groups of a chunk begin, and where the last one ends.

        Raises DamagedChunk.
        """
        starts, (low, high) = self._starts(chunk), self._span(chunk)
        following = np.flatnonzero(self.counts[chunk + 1 : chunk + 3])  # a group ends in the chunk after its own
        end = int(self._starts(chunk + 1 + int(following[0]))[0]) if len(following) else self._rows
        found = np.append(starts, end)
        inside = not len(starts) or (starts[0] >= low and starts[-1] < high and (chunk > 0 or starts[0] == 0))
        if not inside or not (np.diff(found) > 0).all() or (len(starts) and (np.diff(found) > high - low).any()):
            self._damaged(chunk, "the rows at which groups begin are not those of groups of at most a chunk")
        return found

    def ids(self, chunk: int) -> list[str]:
        """Ids of the k groups of a chunk. Raises DamagedChunk."""
        try:
            found = decoded_ids(self._values(chunk, IDS))
        except ValueError as error:
            self._damaged(chunk, f"the ids of groups are no text ({error})", error)
        if len(found) != self.counts[chunk]:
            self._damaged(chunk, f"expected ids of {self.counts[chunk]:,} groups, found {len(found):,}")
        return found

    def hashes(self, chunk: int) -> np.ndarray:
        """Recorded SHA-256 (2, 32) of the rows at which the groups of a chunk begin, and of their ids."""
        found: np.ndarray = self._columns.hashes[chunk]
        return found

    def head(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        """What lies before the entries of a chunk in the files that have the first ones; for going on with a store."""
        found = []
        for part, reader in enumerate(self._readers):
            count, step = int(self._first[chunk, part]), reader.layout.chunk_rows
            try:
                whole = reader.check_object(count // step) if count % step else np.empty(0, reader.layout.dtype)
            except ObjectProblem as problem:
                self._damaged(chunk, str(problem), problem)
            found.append(whole[: count % step].copy())
        return found[STARTS], found[IDS]

    def check_files(self) -> None:
        """Read every file whole. Raises DamagedChunk for the first that is altered."""
        chunk = len(self.counts) - 1
        for part, reader in enumerate(self._readers):
            end, step, values = int(self._first[-1, part]) + (part == STARTS), reader.layout.chunk_rows, np.empty(0)
            try:
                for number in range(-(-end // step)):
                    values = reader.check_object(number)
            except ObjectProblem as problem:
                self._damaged(chunk, str(problem), problem)
            if part == STARTS and values[(end - 1) % step] != self._rows:
                self._damaged(chunk, "the last entry of groups is not the number of rows")

    def before(self, chunk: int) -> tuple[int, int]:
        """How many groups begin before a chunk, and bytes of their ids."""
        starts, ids = self._first[chunk].tolist()
        return starts, ids

    def _starts(self, chunk: int) -> np.ndarray:
        return self._values(chunk, STARTS)

    def _values(self, chunk: int, part: int) -> np.ndarray:
        reader = self._readers[part]
        return undamaged(partial(self._read_once, part=part), chunk, reader.layout.storage, reader.forget)

    def _read_once(self, chunk: int, part: int) -> np.ndarray:
        low, high = self._first[chunk : chunk + 2, part].tolist()
        try:
            values = self._readers[part].read(low, high)[0] if high > low else np.empty(0, ("<i8", "u1")[part])
        except ObjectProblem as problem:
            self._damaged(chunk, str(problem), problem)
        got = crc32c(np.ascontiguousarray(values).data.cast("B")) if len(values) else 0
        if got != (expected := int(self._columns.marks[chunk, part])):
            name = self._readers[part].layout.name
            self._damaged(chunk, f"{name} were altered: they have checksum {got:08x}, expected {expected:08x}")
        return values

    def _damaged(self, chunk: int, what: str, cause: BaseException | None = None) -> NoReturn:
        store, (start, stop) = self._readers[STARTS].layout.storage.name, self._span(chunk)
        raise DamagedChunk(
            f"{store}: chunk {chunk} (rows {start} to {stop - 1}), {what}; `coremargin check {store}` lists all "
            "damage, then restore the file from a copy or ingest again"
        ) from cause
