"""Rows in whole groups: those that begin in some chunks, which are read once where they follow each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coremargin.data.sparse import csr_slice
from coremargin.errors import UsageError
from coremargin.maths.rows import concatenate, is_sparse

if TYPE_CHECKING:
    from coremargin.data.groups import Groups
    from coremargin.data.source import Source


@dataclass(frozen=True)
class GroupPart:
    """The k whole groups that begin in a chunk.

    chunk: its number. first: the number of its first group, counted over the source. start: the id of its first row.
    rows (n, d), codes (n,) int32, weights (n,) float64 or None: all are 1. offsets (k + 1,) int64: group i has the
    rows [offsets[i], offsets[i + 1]) of these; offsets[0] = 0, offsets[k] = n.
    """

    chunk: int
    first: int
    start: int
    rows: Any
    codes: np.ndarray
    weights: np.ndarray | None
    offsets: np.ndarray


def groups_of(source: Source) -> Groups:
    """The groups of a source. Raises UsageError: its rows have none."""
    if source.groups is None:
        raise UsageError(
            f"{source.name}: expected rows in groups, found rows without; `coremargin ingest --group COLUMN` makes "
            "stores with groups, `groups=` names those of arrays"
        )
    return source.groups


def group_parts(source: Source, chunks: Sequence[int]) -> Iterator[GroupPart]:
    """The groups that begin in each of these chunks, in their order, whole; chunks in which none begins give no part.

    Rows are as ``read`` gives them: read-only, in ``dtype``, views where no group crosses the end of the chunk; copy
    them to keep them for longer than two parts. The last group of a chunk may end in the next one, whose rows are then
    read, and kept in case that chunk comes next. Raises UsageError, DamagedChunk.
    """
    groups = groups_of(source)
    numbers = np.cumsum(groups.counts) - groups.counts
    ahead: tuple[int, _ChunkRows] | None = None
    for chunk in chunks:
        if not groups.counts[chunk]:
            continue
        here = ahead[1] if ahead is not None and ahead[0] == chunk else _read(source, chunk)
        ahead, offsets = None, groups.offsets(chunk)
        (start, stop), begin, end = source.span(chunk), int(offsets[0]), int(offsets[-1])
        part = here.part(begin - start, min(end, stop) - start)
        if end > stop:
            ahead = chunk + 1, _read(source, chunk + 1)
            part = part.followed_by(ahead[1].part(0, end - stop))
        yield GroupPart(chunk, int(numbers[chunk]), begin, *part, offsets - begin)


def group_bounds(source: Source, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the groups that have some of these rows begin and end: row ids (k,) int64 each, ascending.

    rows (m,): ids in any order. Raises UsageError, DamagedChunk.
    """
    groups, chunks = groups_of(source), np.unique(rows // source.chunk_rows)
    read = np.union1d(chunks, np.maximum(chunks - 1, 0)).tolist()  # a group may begin in the chunk before
    found = [groups.offsets(chunk) for chunk in read if groups.counts[chunk]]
    starts, ends = (np.concatenate([part[side] for part in found]) for side in (slice(-1), slice(1, None)))
    at = np.unique(np.searchsorted(starts, rows, side="right") - 1)
    return starts[at], ends[at]


def row_groups(source: Source, chunk: int) -> np.ndarray:
    """The id (n,) of the group of each row of a chunk. Raises UsageError, DamagedChunk."""
    groups, (start, stop) = groups_of(source), source.span(chunk)
    found, read = np.empty(stop - start, object), [chunk - 1, chunk] if chunk else [chunk]
    for one in read:
        if groups.counts[one]:
            offsets = np.clip(groups.offsets(one) - start, 0, stop - start)
            found[offsets[0] : offsets[-1]] = np.repeat(np.array(groups.ids(one), object), np.diff(offsets))
    return found


class _ChunkRows(NamedTuple):
    rows: Any
    codes: np.ndarray
    weights: np.ndarray | None

    def part(self, start: int, stop: int) -> _ChunkRows:
        if (start, stop) == (0, len(self.codes)):
            return self
        weights = None if self.weights is None else self.weights[start:stop]
        rows = csr_slice(self.rows, start, stop) if is_sparse(self.rows) else self.rows[start:stop]
        return _ChunkRows(rows, self.codes[start:stop], weights)

    def followed_by(self, other: _ChunkRows) -> _ChunkRows:
        weights = None
        if self.weights is not None and other.weights is not None:
            weights = np.concatenate([self.weights, other.weights])
        return _ChunkRows(concatenate([self.rows, other.rows]), np.concatenate([self.codes, other.codes]), weights)


def _read(source: Source, chunk: int) -> _ChunkRows:
    return _ChunkRows(*source.read(chunk), source.weights(chunk))
