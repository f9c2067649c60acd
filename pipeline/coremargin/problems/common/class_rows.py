"""Rows of several classes: which classes a store has, the labelled rows of a chunk, rows held in the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import Part
from coremargin.errors import LabelError, StoreError
from coremargin.maths import rows as row_ops
from coremargin.problems.common.driver_rows import DriverRows

if TYPE_CHECKING:
    from coremargin.data.source import Source

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
class ClassRows(DriverRows):
    """Rows with their classes: ids (m,) int64, rows (m, d), classes (m,) int32, shares (m,): their sample weights."""

    ROWS: ClassVar[str] = "x"

    classes: Classes
    shares: Array

    @classmethod
    def nothing(cls, features: int, dtype: Any = np.float64, *, sparse: bool = False) -> ClassRows:
        """No rows."""
        none = np.zeros(0, np.int64)
        rows = row_ops.nothing(features, dtype, sparse=sparse)
        return cls(none, rows, none.astype(np.int32), np.zeros(0))

    def bare(self) -> ClassRows:
        """Without the rows themselves."""
        return replace(self, rows=np.zeros((len(self), 0)))

    def exact(self) -> ClassRows:
        """With rows in float64."""
        return replace(self, rows=row_ops.as_float64(self.rows))

    def ready(self) -> ClassRows:
        """To be multiplied many times: sparse rows in float64, which saves a copy each time; dense ones as they are."""
        return self.exact() if row_ops.is_sparse(self.rows) else self


def read_labelled(source: Source, chunk: int, place: Classes) -> ClassRows:
    """The rows of a chunk that have a label and a weight above 0; rows are those of ``read``, or a copy."""
    return labelled(Part(source.span(chunk)[0], *source.read(chunk), source.weights(chunk), 1.0), place)


def labelled(part: Part, place: Classes) -> ClassRows:
    """The same of a part of a chunk."""
    classes = place[part.codes]
    shares = np.ones(len(classes)) if part.weights is None else np.asarray(part.weights, np.float64)
    found = ClassRows(np.arange(part.start, part.stop), part.rows, classes, shares)
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


def counted(classes: Classes, given: NDArray[np.intp], size: int) -> NDArray[np.int64]:
    """Rows of class i that are given class j (K, K)."""
    cell = classes.astype(np.int64) * size + given
    return np.bincount(cell, minlength=size * size).reshape(size, size)
