"""What commits that changed labels or weights say of the chunks that they changed; see formats/store_record.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.digest import WEIGHTS
from coremargin.data.format import BLOCKS, CHANGES
from coremargin.data.statistics import widened
from coremargin.errors import StoreError
from coremargin.formats.raw_array import preload_raw_arrays, read_raw_array
from coremargin.formats.store_record import changes, group_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.data.format import Commit
    from coremargin.formats.storage import ReadableStorage

_LABELS = np.uint64(0xFFFFFFFF)  # the half of a chunk's digest that is about labels
_MERGE_ENTRIES = 4096  # entries of small commits are repeated by the next one up to this many
_MERGE_RATIO = 3
_FEW = 256  # entries that are repeated whatever the ratio


@dataclass(frozen=True)
class Places:
    """Where labels and weights of chunks lie: in which commit's array (c,), 0 where they first came."""

    labels: np.ndarray
    weights: np.ndarray

    @classmethod
    def nothing(cls, chunks: int) -> Places:
        """Where they first came."""
        return cls(np.zeros(chunks, np.int64), np.zeros(chunks, np.int64))

    def put(self, first: Places) -> None:
        """Let those of the first chunks be these."""
        self.labels[: len(first.labels)] = first.labels
        self.weights[: len(first.weights)] = first.weights

    def part(self, start: int, stop: int) -> Places:
        """Those of the chunks [start, stop)."""
        return Places(self.labels[start:stop], self.weights[start:stop])


@dataclass(frozen=True)
class Changed:
    """Entries of chunks (m,): number, ascending; which commit's array has the labels; their crc32c; class counts.

    The same of weights, where ``weights_array`` is not None.
    """

    chunk: np.ndarray
    array: np.ndarray
    y: np.ndarray
    unlabelled: np.ndarray
    counts: np.ndarray
    weights_array: np.ndarray | None = None
    weights: np.ndarray | None = None

    @classmethod
    def of(cls, chunk: np.ndarray, places: Places, columns: Mapping[str, np.ndarray]) -> Changed:
        """Of some chunks, from columns of all."""
        y = (columns["digest"][chunk] & _LABELS).astype(np.uint32)
        found = cls(chunk, places.labels[chunk], y, columns["unlabelled"][chunk], columns["counts"][chunk])
        if not places.weights.any():
            return found
        return replace(found, weights_array=places.weights[chunk], weights=columns["marks"][chunk, WEIGHTS])

    def columns(self) -> dict[str, np.ndarray]:
        """As a commit's group has them."""
        return {name: values for name, values in vars(self).items() if values is not None}

    def take(self, where: np.ndarray) -> Changed:
        """Some of them."""
        return Changed(**{name: values[where] for name, values in self.columns().items()})

    def put(self, columns: Mapping[str, np.ndarray]) -> None:
        """Let them stand in columns of all chunks: ``digest``, ``unlabelled``, ``counts``, ``marks``."""
        digest = columns["digest"]
        digest[self.chunk] = digest[self.chunk] & ~_LABELS | self.y
        columns["unlabelled"][self.chunk] = self.unlabelled
        columns["counts"][self.chunk] = widened(self.counts, columns["counts"].shape[1])
        if self.weights is not None:
            columns["marks"][self.chunk, WEIGHTS] = self.weights

    def place(self, places: Places) -> None:
        """Let them say where labels and weights lie."""
        places.labels[self.chunk] = self.array
        if self.weights_array is not None:
            places.weights[self.chunk] = self.weights_array


def read_changes(storage: ReadableStorage, commits: Sequence[Commit]) -> list[tuple[int, Changed]]:
    """Entries that stand for these commits, in order, with the number of the commit that they are read of.

    Raises StoreError.
    """
    wanted = changes(commits)
    preload_raw_arrays(
        storage,
        [
            (f"{BLOCKS}/{commit.group}/{name}", 1 + len(tail))
            for _, _, commit in wanted
            for name, (_, tail) in _kinds(commit).items()
        ],
    )
    return [(number, _read(storage, commit, stop)) for number, stop, commit in wanted]


def _kinds(commit: Commit) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and row shape of the columns of a commit that changed labels or weights."""
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {
        "chunk": ("int64", ()),
        "array": ("int64", ()),
        "y": ("uint32", ()),
        "unlabelled": ("int64", ()),
        "counts": ("int64", (commit.classes,)),
    }
    return kinds | ({"weights_array": ("int64", ()), "weights": ("uint32", ())} if commit.weights else {})


def _read(storage: ReadableStorage, commit: Commit, stop: int) -> Changed:
    group = f"{BLOCKS}/{commit.group}"
    columns = {
        name: read_raw_array(storage, f"{group}/{name}", 0, commit.changed, dtype, tail)
        for name, (dtype, tail) in _kinds(commit).items()
    }
    found = Changed(**columns)
    if not (np.diff(found.chunk, prepend=-1) > 0).all() or found.chunk[-1] >= commit.last:
        place = f"{storage.name}/{group}/chunk"
        raise StoreError(f"{place}: expected chunks below {commit.last}, ascending; restore it from a copy")
    return found.take(found.chunk < stop)


def folders_of(place: str, last: Commit, array: np.ndarray, part: str) -> dict[int, str]:
    """Where chunks lie that were changed, by number; array (c,): whose array has them. part: "y" or "weights".

    place: of the entries, for messages.

    Raises StoreError.
    """
    changed = np.flatnonzero(array)
    named = array[changed]
    if not ((named > 0) & (named <= last.number)).all():
        raise StoreError(
            f"{place}: expected {part} in arrays of commits up to {last.number:,}, found other numbers; restore it "
            f"from a copy"
        )
    return {
        chunk: f"{CHANGES}/{group_of(number)}/{part}"
        for chunk, number in zip(changed.tolist(), named.tolist(), strict=True)
    }


def merged(
    known: Sequence[tuple[int, Changed]], commits: Sequence[Commit], chunks: np.ndarray
) -> tuple[np.ndarray, int]:
    """Chunks (m,) of which the next commit, which changes some, has entries, and the first commit that it repeats."""
    since, of = commits[-1].number + 1, {commit.number: commit for commit in commits}
    for number, entries in reversed(known):
        both = np.union1d(chunks, entries.chunk)
        if len(both) > min(_MERGE_ENTRIES, max(_FEW, _MERGE_RATIO * len(chunks))):
            break
        chunks, since = both, of[number].since
    return chunks, since
