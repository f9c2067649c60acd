"""Rows of several classes: which classes a store has, the labelled rows of a chunk, rows held in the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import LabelError, StoreError
from coremargin.maths import rows as kinds

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]
Classes = NDArray[np.int32]


def class_codes(source: Source) -> tuple[int, ...]:
    """Label codes in the order of the labels: class k of a model is ``codes[k]``.

    Raises StoreError for no rows, LabelError for fewer than two classes and for a class that has no rows.
    """
    if source.rows == 0:
        raise StoreError(f"{source.name}: expected rows, found an empty store; ingest some first")
    counts = source.scalars().counts.sum(axis=0)
    if not counts.any():
        raise LabelError(f"{source.name}: expected classes, found no labelled row; ingest with --labels or --label")
    present = [repr(source.classes[code]) for code in np.flatnonzero(counts)]
    if len(present) == 1:
        raise LabelError(
            f"{source.name}: expected at least two classes, found only {present[0]}; a margin needs rows of two"
        )
    if not counts.all():
        absent = source.classes[int(np.argmin(counts))]
        raise LabelError(
            f"{source.name}: expected rows of every class, found none of {absent!r}; leave that class out: ingest with "
            f"--only {','.join(str(source.classes[code]) for code in np.flatnonzero(counts)[:8])}"
        )
    return tuple(sorted(range(len(counts)), key=lambda code: source.classes[code]))


def places(codes: tuple[int, ...]) -> Classes:
    """Label code -> class k; the last entry is for code -1: unlabelled, class -1."""
    place = np.full(len(codes) + 1, -1, np.int32)
    place[list(codes)] = np.arange(len(codes))
    return place


@dataclass(frozen=True)
class ClassRows:
    """Rows with their classes: ids (m,) int64, rows (m, d), classes (m,) int32, shares (m,): their sample weights."""

    ids: NDArray[np.int64]
    rows: Rows
    classes: Classes
    shares: Array

    @classmethod
    def nothing(cls, features: int, dtype: Any = np.float64, *, sparse: bool = False) -> ClassRows:
        """No rows."""
        none = np.zeros(0, np.int64)
        rows = kinds.nothing(features, dtype, sparse=sparse)
        return cls(none, rows, none.astype(np.int32), np.zeros(0))

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, positions: NDArray[Any]) -> ClassRows:
        """Only the rows at these positions."""
        rows = kinds.take(self.rows, positions)
        return ClassRows(self.ids[positions], rows, self.classes[positions], self.shares[positions])

    def bare(self) -> ClassRows:
        """Without the rows themselves."""
        return ClassRows(self.ids, np.zeros((len(self), 0)), self.classes, self.shares)

    def exact(self) -> ClassRows:
        """With rows in float64."""
        return ClassRows(self.ids, kinds.as_float64(self.rows), self.classes, self.shares)

    def ready(self) -> ClassRows:
        """To be multiplied many times: sparse rows in float64, which saves a copy each time; dense ones as they are."""
        return self.exact() if kinds.is_sparse(self.rows) else self

    @classmethod
    def joined(cls, parts: list[ClassRows]) -> ClassRows:
        """All rows of the parts, one part after the other."""
        return cls(
            np.concatenate([part.ids for part in parts]), kinds.concatenate([part.rows for part in parts]),
            np.concatenate([part.classes for part in parts]), np.concatenate([part.shares for part in parts]),
        )  # fmt: skip

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays by name."""
        arrays: dict[str, NDArray[Any]] = {
            f"{name}_{part}": getattr(self, part) for part in ("ids", "classes", "shares")
        }
        return arrays | kinds.to_arrays(f"{name}_x", self.rows)

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> ClassRows:
        """Inverse of ``to_arrays``."""
        ids, classes, shares = (arrays[f"{name}_{part}"] for part in ("ids", "classes", "shares"))
        return cls(ids, kinds.from_arrays(f"{name}_x", arrays), classes, shares)


def read_labelled(source: Source, chunk: int, place: Classes) -> ClassRows:
    """The rows of a chunk that have a label and a weight above 0; rows are those of ``read``, or a copy."""
    rows, codes = source.read(chunk)
    weights, classes = source.weights(chunk), place[codes]
    shares = np.ones(len(classes)) if weights is None else np.asarray(weights, np.float64)
    start, stop = source.span(chunk)
    found = ClassRows(np.arange(start, stop), rows, classes, shares)
    mine = (classes >= 0) & (shares > 0)
    return found if mine.all() else found.take(np.flatnonzero(mine))


def sample_of_classes(source: Source, codes: tuple[int, ...], share: float, limit_bytes: int) -> list[int]:
    """Chunks spread evenly over the store, with rows of every class among them; all chunks of a small store."""
    if source.nbytes <= limit_bytes:
        return list(range(source.chunks))
    counts = source.scalars().counts[:, list(codes)]
    chunk_bytes = max(1, source.nbytes // source.chunks)
    wanted = max(1, min(round(share * source.chunks), limit_bytes // chunk_bytes))
    chosen = set(((np.arange(wanted) + 0.5) * source.chunks / wanted).astype(int).tolist())
    for k in range(len(codes)):
        if not counts[sorted(chosen), k].any():
            chosen.add(int(counts[:, k].argmax()))
    return sorted(chosen)


def thinned(classes: Classes, most: int) -> NDArray[np.intp]:
    """At most about ``most`` positions, evenly spread within each class; a rare class keeps its rows."""
    parts = [np.flatnonzero(classes == k) for k in np.unique(classes)]
    kept, left = [], most
    for k, part in enumerate(sorted(parts, key=len)):
        mine = max(1, min(len(part), left // (len(parts) - k)))
        kept.append(part[np.linspace(0, len(part) - 1, mine).astype(np.intp)])
        left -= mine
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.intp)
