"""Groups of rows: sequences, queries, documents. A group is a run of rows, and has an id, a text or a whole number.

Chunks know nothing of groups: a group belongs to the chunk where it begins. It has at most as many rows as a chunk, and
so it ends there or in the next one: ``group_parts`` (group_parts.py) reads whole groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.chunk_hashes import BYTES, hash_values
from coremargin.data.key_values import key_text
from coremargin.errors import BadRow, UsageError
from coremargin.formats.limits import LONGEST_LABEL

STARTS, IDS = range(2)  #: columns of ``GroupColumns``
END = "\n"  #: ends an id where they are stored
#: Columns of ``GroupColumns`` where they are stored: field, dtype and row shape.
GROUP_COLUMNS = {
    "groups": ("sizes", "int64", (2,)),
    "group_marks": ("marks", "uint32", (2,)),
    "group_sha256": ("hashes", "uint8", (2, BYTES)),
}
_SHOWN = 80  # characters of an id that a message shows


class Groups(Protocol):
    """The groups of a source, by the chunks in which they begin."""

    counts: np.ndarray  #: (chunks,) int64, groups that begin in each chunk

    def offsets(self, chunk: int) -> np.ndarray:
        """Row ids (k + 1,) int64 at which the k groups of a chunk begin, and where the last one ends.

        Raises DamagedChunk.
        """

    def ids(self, chunk: int) -> list[str]:
        """Ids of the k groups of a chunk. Raises DamagedChunk."""


class GroupRuns(NamedTuple):
    """So many consecutive rows, at least one, by group: where each begins, (k,) int64 with starts[0] = 0, and its id.

    place(i) names row i for messages.
    """

    rows: int
    starts: np.ndarray
    ids: list[str]
    place: Callable[[int], str]


def group_runs(values: Any, rows: int, place: Callable[[int], str]) -> GroupRuns:
    """The groups of rows with these ids, (rows,) texts or whole numbers. place: names a row.

    Raises BadRow: an id is missing, of another kind, or too long. UsageError: another number of ids.
    """
    # NumPy makes texts of lists of texts and NaN, which is no id
    found = np.asarray(values, object if isinstance(values, list | tuple) else None)
    if found.ndim != 1 or len(found) != rows:
        raise UsageError(f"groups: expected an id for each of {rows:,} rows, got shape {found.shape}")
    if found.dtype.kind in "iuU" or (found.dtype.kind == "O" and set(map(type, found.tolist())) <= {str, int}):
        starts = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]])) if rows else np.zeros(0, np.int64)
        ids = [checked_id(value, place, int(row)) for row, value in zip(starts, found[starts].tolist(), strict=True)]
    else:
        starts = np.arange(rows)
        ids = [checked_id(value, place, row) for row, value in enumerate(found.tolist())]
    first = [k for k in range(len(ids)) if not k or ids[k] != ids[k - 1]]  # "1" and "1.0" are one id
    return GroupRuns(rows, starts[first].astype(np.int64), [ids[k] for k in first], place)


def checked_id(value: Any, place: Callable[[int], str], row: int) -> str:
    """An id as text. place(row): where it is. Raises BadRow."""
    try:
        text = key_text(value)
        if text is not None:
            text.encode()
    except (TypeError, ValueError):
        shown = repr(value)[:_SHOWN]
        raise BadRow(f"{place(row)}: found the group {shown}, expected a whole number or a text") from None
    if text is None:
        raise BadRow(f"{place(row)}: found no group, expected one for every row; fill it in, or remove the row")
    if END in text or len(text) > LONGEST_LABEL:
        raise BadRow(
            f"{place(row)}: found the group {text[:_SHOWN]!r}, expected one line of at most {LONGEST_LABEL:,} "
            "characters; shorten it"
        )
    return text


def check_group_weights(runs: GroupRuns, weights: np.ndarray, before: float | None = None) -> None:
    """Raise BadRow unless all rows of a group have one weight; weights (m,) of the rows.

    before: the weight of the row before these, if it is of their first group.
    """
    differs = np.concatenate([[before is not None and weights[0] != before], weights[1:] != weights[:-1]])
    differs[runs.starts[1:]] = False
    if differs.any():
        row = int(np.argmax(differs))
        name = runs.ids[int(np.searchsorted(runs.starts, row, side="right")) - 1]
        raise BadRow(
            f"{runs.place(row)}: found weight {weights[row]} in group {name[:_SHOWN]!r}, whose row before has "
            f"{before if not row else weights[row - 1]}; expected one weight for all rows of a group"
        )


def encoded_ids(ids: Sequence[str]) -> np.ndarray:
    """Ids as stored, (b,) uint8: UTF-8, each with a line break at its end."""
    return np.frombuffer("".join(one + END for one in ids).encode(), np.uint8)


def decoded_ids(data: np.ndarray) -> list[str]:
    """The reverse. Raises ValueError."""
    text = data.tobytes().decode()
    if text and not text.endswith(END):
        raise ValueError("an id has no end")
    return text.split(END)[:-1]


@dataclass(frozen=True)
class GroupColumns:
    """What is recorded of the groups that begin in each chunk (c,).

    sizes (c, 2) int64: how many there are, bytes of their ids; marks (c, 2) uint32, crc32c, and hashes (c, 2, 32)
    uint8, SHA-256, of the row ids at which they begin (int64) and of their ids as stored.
    """

    sizes: np.ndarray
    marks: np.ndarray
    hashes: np.ndarray

    @classmethod
    def of_chunk(cls, starts: np.ndarray, ids: Sequence[str]) -> GroupColumns:
        """Of one chunk: row ids (k,) int64 and ids of the groups that begin there."""
        parts = starts.astype("<i8", copy=False), encoded_ids(ids)
        return cls(
            np.array([[len(starts), len(parts[IDS])]]),
            np.array([[crc32c(np.ascontiguousarray(part).data.cast("B")) if len(part) else 0 for part in parts]], "u4"),
            np.stack([hash_values(part) for part in parts])[None],
        )

    def part(self, start: int, stop: int) -> GroupColumns:
        """Those of the chunks [start, stop)."""
        return GroupColumns(self.sizes[start:stop], self.marks[start:stop], self.hashes[start:stop])

    @classmethod
    def joined(cls, parts: Sequence[GroupColumns]) -> GroupColumns:
        """The chunks of all parts (at least one), in order."""
        return cls(*(np.concatenate(same) for same in zip(*(vars(part).values() for part in parts), strict=True)))


class ArrayGroups:
    """Groups of rows in memory.

    starts (k,) int64: row ids at which they begin; ids: of each. Chunks are runs of ``chunk_rows`` of ``rows`` rows.
    """

    def __init__(self, starts: np.ndarray, ids: list[str], rows: int, chunk_rows: int) -> None:
        self._starts, self._ids = np.append(starts, rows), ids
        self._first = np.searchsorted(starts, np.arange(0, rows + chunk_rows, chunk_rows))
        self.counts = np.diff(self._first)

    def offsets(self, chunk: int) -> np.ndarray:
        """Row ids (k + 1,) int64 at which the k groups of a chunk begin, and where the last one ends."""
        return self._starts[self._first[chunk] : self._first[chunk + 1] + 1]

    def ids(self, chunk: int) -> list[str]:
        """Ids of the k groups of a chunk."""
        return self._ids[self._first[chunk] : self._first[chunk + 1]]

    def columns(self) -> GroupColumns:
        """What a store would record."""
        return GroupColumns.joined(
            [GroupColumns.of_chunk(self.offsets(chunk)[:-1], self.ids(chunk)) for chunk in range(len(self.counts))]
        )


def array_groups(values: Any, weights: np.ndarray | None, rows: int, chunk_rows: int) -> ArrayGroups:
    """Groups of rows in memory from an id of each row, those of a group one after the other, and weights (rows,).

    Raises BadRow: an id that comes again later, or is none; a group that is longer than a chunk, or has several
    weights. UsageError: another number of ids.
    """
    runs = group_runs(values, rows, lambda row: f"groups: row {row:,}")
    if weights is not None:
        check_group_weights(runs, weights)
    seen = dict[str, int]()
    for start, name in zip(runs.starts.tolist(), runs.ids, strict=True):
        if name in seen:
            raise BadRow(reappeared(f"groups: row {start:,}", f"row {seen[name]:,}", name))
        seen[name] = start
    lengths = np.diff(runs.starts, append=rows)
    if lengths[longest := int(np.argmax(lengths))] > chunk_rows:
        place = f"groups: row {runs.starts[longest]:,}"
        raise BadRow(too_long(place, runs.ids[longest], int(lengths[longest]), chunk_rows))
    return ArrayGroups(runs.starts, runs.ids, rows, chunk_rows)


def reappeared(place: str, before: str, name: str | None = None) -> str:
    """The message about a group that comes again. place, before: where it begins, and where it began."""
    group = "a group" if name is None else f"group {name[:_SHOWN]!r}"
    return (
        f"{place}: found {group} again, which began at {before} and has ended; expected all rows of a group one after "
        "the other: sort the rows by group"
    )


def too_long(place: str, name: str, rows: int, chunk_rows: int) -> str:
    """The message about a group that is longer than a chunk; place: where it begins."""
    return (
        f"{place}: group {name[:_SHOWN]!r} has {rows:,} rows or more, expected at most {chunk_rows:,}, the rows of a "
        "chunk; split the group, or make a new store with larger chunks (chunk_bytes)"
    )
