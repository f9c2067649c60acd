"""What commits that changed labels say of the chunks that they changed; see formats/store_record.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.statistics import widened
from coremargin.errors import StoreError
from coremargin.formats.raw_array import read_raw_array
from coremargin.formats.store_record import changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coremargin.data.format import Commit

CHANGES = "changes"
_LABELS = np.uint64(0xFFFFFFFF)  # the half of a chunk's digest that is about labels
_MERGE_ENTRIES = 4096  # entries of small commits are repeated by the next one up to this many
_MERGE_RATIO = 3


@dataclass(frozen=True)
class Changed:
    """Entries of chunks (m,): number, ascending; which commit's array has the labels; their crc32c; class counts."""

    chunk: np.ndarray
    array: np.ndarray
    y: np.ndarray
    unlabelled: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, chunk: np.ndarray, array: np.ndarray, columns: Mapping[str, np.ndarray]) -> Changed:
        """Of some chunks, from columns of all."""
        y = (columns["digest"][chunk] & _LABELS).astype(np.uint32)
        return cls(chunk, array[chunk], y, columns["unlabelled"][chunk], columns["counts"][chunk])

    def take(self, where: np.ndarray) -> Changed:
        """Some of them."""
        return Changed(*(values[where] for values in vars(self).values()))

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        """Let them stand in columns of all chunks: ``digest``, ``unlabelled``, ``counts``."""
        digest = columns["digest"]
        digest[self.chunk] = digest[self.chunk] & ~_LABELS | self.y
        columns["unlabelled"][self.chunk] = self.unlabelled
        columns["counts"][self.chunk] = widened(self.counts, columns["counts"].shape[1])


def read_changes(blocks: Path, commits: Sequence[Commit]) -> list[tuple[int, Changed]]:
    """Entries that stand for these commits, in order, with the place of the commit that they are read of.

    Raises StoreError.
    """
    return [(number, _read(blocks, commits, number, stop)) for number, stop, _ in changes(commits)]


def _read(blocks: Path, commits: Sequence[Commit], number: int, stop: int) -> Changed:
    commit = commits[number]
    folder = blocks / commit.group
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {
        "chunk": ("int64", ()), "array": ("int64", ()), "y": ("uint32", ()), "unlabelled": ("int64", ()),
        "counts": ("int64", (commit.classes,)),
    }  # fmt: skip
    columns = {
        name: read_raw_array(folder / name, 0, commit.changed, dtype, tail) for name, (dtype, tail) in kinds.items()
    }
    found = Changed(**columns)
    if not (np.diff(found.chunk, prepend=-1) > 0).all() or found.chunk[-1] >= commit.last:
        raise StoreError(f"{folder}/chunk: expected chunks below {commit.last}, ascending; restore it from a copy")
    return found.take(found.chunk < stop)


def folders_of(blocks: Path, commits: Sequence[Commit], array: np.ndarray) -> dict[int, str]:
    """Where labels of chunks lie that do not lie in ``y``, by number; array (c,): whose array has them. StoreError."""
    changed = np.flatnonzero(array)
    known = np.array([commit.changed > 0 for commit in commits])
    named = array[changed]
    if not ((named > 0) & (named < len(commits))).all() or not known[named].all():
        raise StoreError(
            f"{blocks}: expected labels in arrays of the {int(known.sum()):,} commits that changed some, found other "
            f"numbers; restore it from a copy"
        )
    groups = [commit.group for commit in commits]
    return {
        chunk: f"{CHANGES}/{groups[number]}/y" for chunk, number in zip(changed.tolist(), named.tolist(), strict=True)
    }


def merged(
    known: Sequence[tuple[int, Changed]], commits: Sequence[Commit], chunks: np.ndarray
) -> tuple[np.ndarray, int]:
    """Chunks (m,) of which the next commit, which changes some, has entries, and the first commit that it repeats."""
    since = len(commits)
    for number, entries in reversed(known):
        both = np.union1d(chunks, entries.chunk)
        if len(both) > min(_MERGE_ENTRIES, _MERGE_RATIO * len(chunks)):
            break
        chunks, since = both, commits[number].since
    return chunks, since
