"""Rows in the driver's memory, with labels, dual weights or sample weights.

A subclass of ``DriverRows`` adds arrays with one entry for each row; all methods apply to these arrays, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import Part
from coremargin.maths import rows as row_ops

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.sent import SentRows

Array = NDArray[np.float64]
Classes = NDArray[np.int32]


@dataclass(frozen=True)
class DriverRows:
    """ids (m,) int64 and rows (m, d), dense or sparse."""

    #: The name of the rows among the arrays of a checkpoint.
    ROWS: ClassVar[str] = "rows"

    ids: NDArray[np.int64]
    rows: Rows

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, positions: NDArray[Any]) -> Self:
        """The rows at these positions, or where a mask is true; all rows in their order are not copied."""
        mask = positions.dtype == np.bool_
        if len(positions) == len(self) and (positions if mask else positions == np.arange(len(self))).all():
            return self
        known = {name: getattr(self, name)[positions] for name in self._known()}
        return replace(self, rows=row_ops.take(self.rows, positions), **known)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """All rows of the parts, one part after the other; a single part is not copied."""
        if len(parts) == 1:
            return parts[0]
        known: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in cls._known()}
        return cls(rows=row_ops.concatenate([part.rows for part in parts]), **known)

    def in_order(self) -> Self:
        """The rows by increasing ids; rows that are in order are not copied."""
        if (self.ids[1:] >= self.ids[:-1]).all():
            return self
        return self.take(np.argsort(self.ids, kind="stable"))

    def unlike(self, ids: NDArray[np.int64]) -> NDArray[np.intp]:
        """Positions of the rows whose ids are none of these."""
        return np.flatnonzero(np.isin(self.ids, ids, invert=True))

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays ``NAME_ids``, ``NAME_rows`` or its parts, and so on; exact."""
        known = {f"{name}_{field}": getattr(self, field) for field in self._known()}
        return known | row_ops.to_arrays(f"{name}_{self.ROWS}", self.rows)

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of ``to_arrays``."""
        known: dict[str, Any] = {field: arrays[f"{name}_{field}"] for field in cls._known()}
        return cls(rows=row_ops.from_arrays(f"{name}_{cls.ROWS}", arrays), **known)

    @classmethod
    def _known(cls) -> list[str]:
        return [field.name for field in fields(cls) if field.name != "rows"]


@dataclass(frozen=True)
class SignedRows(DriverRows):
    """Rows of two classes: signs (m,) int8; classes that extend it may add arrays (m,) of float64."""

    signs: NDArray[np.int8]

    @classmethod
    def nothing(cls, features: int, dtype: Any = np.float64, *, sparse: bool = False) -> Self:
        """No rows; dtype: of those that may be added."""
        known: dict[str, Any] = {name: np.zeros(0) for name in cls._known()}
        known |= {"ids": np.zeros(0, np.int64), "signs": np.zeros(0, np.int8)}
        return cls(rows=row_ops.nothing(features, np.float64 if sparse else dtype, sparse=sparse), **known)


@dataclass(frozen=True)
class WorkingSet(SignedRows):
    """The rows that a solver of two classes works on, in the order in which they were added.

    weights (m,): the dual weights of the last solution. Dense rows are in the source's precision, sparse rows in
    float64, which saves a copy in each product.
    """

    weights: Array

    @classmethod
    def unweighted(cls, ids: NDArray[np.int64], rows: Rows, signs: NDArray[np.int8]) -> WorkingSet:
        """Rows of weight zero."""
        return cls(ids, row_ops.as_float64(rows) if row_ops.is_sparse(rows) else rows, signs, np.zeros(len(ids)))

    def weighted(self, weights: Array) -> WorkingSet:
        """The same rows with other weights."""
        return WorkingSet(self.ids, self.rows, self.signs, weights)

    @property
    def both_classes(self) -> bool:
        """Whether there are rows of both signs."""
        return bool((self.signs > 0).any() and (self.signs < 0).any())

    @property
    def support(self) -> NDArray[np.intp]:
        """Positions of the rows with non-zero weight."""
        return np.flatnonzero(self.weights > 0)

    def add(self, coming: SentRows) -> WorkingSet:
        """Add these rows with weight zero, except those that are in the working set already."""
        fresh = coming.where(~isin_ids(coming.ids, self.ids))
        if not len(fresh) and len(self):
            return self
        return WorkingSet.concatenate([self, *(WorkingSet.unweighted(*part) for part in fresh.parts)])

    def lowest(self, margins: Array, limit: int) -> NDArray[np.intp]:
        """Positions (increasing) of at most ``limit`` rows: all with weight, then those with the lowest margins."""
        if len(self) <= limit:
            return np.arange(len(self))
        rank = np.where(self.weights > 0, -np.inf, margins)
        keep = max(limit, int((self.weights > 0).sum()))
        return np.sort(np.lexsort([self.ids, rank])[:keep])


@dataclass(frozen=True)
class ClassRows(DriverRows):
    """Rows of several classes: classes (m,) int32 and shares (m,), their sample weights."""

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
        """The same with empty rows (m, 0)."""
        return replace(self, rows=np.zeros((len(self), 0)))

    def exact(self) -> ClassRows:
        """With rows in float64."""
        return replace(self, rows=row_ops.as_float64(self.rows))

    def ready(self) -> ClassRows:
        """Prepared for many products: sparse rows in float64, which saves a copy each time; dense rows unchanged."""
        return self.exact() if row_ops.is_sparse(self.rows) else self


def read_labelled_rows(source: Source, chunk: int, class_index: Classes) -> ClassRows:
    """The rows of a chunk that have a label and a weight above 0; ``class_index`` as in ``classes.class_index``."""
    return labelled_rows(Part(source.span(chunk)[0], *source.read(chunk), source.weights(chunk), 1.0), class_index)


def labelled_rows(part: Part, class_index: Classes) -> ClassRows:
    """The rows of a part of a chunk that have a label and a weight above 0; views, where all rows do."""
    classes = class_index[part.codes]
    shares = np.ones(len(classes)) if part.weights is None else np.asarray(part.weights, np.float64)
    found = ClassRows(np.arange(part.start, part.stop), part.rows, classes, shares)
    mine = (classes >= 0) & (shares > 0)
    return found if mine.all() else found.take(np.flatnonzero(mine))


def thin_by_class(classes: Classes, most: int) -> NDArray[np.intp]:
    """At most about ``most`` positions, evenly spread within each class; a rare class keeps its rows."""
    parts = [np.flatnonzero(classes == k) for k in np.unique(classes)]
    kept, left = [], most
    for k, part in enumerate(sorted(parts, key=len)):
        mine = max(1, min(len(part), left // (len(parts) - k)))
        kept.append(part[np.linspace(0, len(part) - 1, mine).astype(np.intp)])
        left -= mine
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.intp)


def predicted_classes(values: Array) -> NDArray[np.intp]:
    """The class (n,) with the largest decision value (n, k), the first of equal ones; of one value its side."""
    return np.asarray((values[:, 0] > 0) if values.shape[1] == 1 else values.argmax(axis=1), np.intp)


def confusion_counts(classes: NDArray[np.integer[Any]], predicted: NDArray[np.intp], size: int) -> NDArray[np.int64]:
    """Rows of class i that are predicted as class j (K, K)."""
    cell = classes.astype(np.int64) * size + predicted
    return np.bincount(cell, minlength=size * size).reshape(size, size)


def isin_ids(ids: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``np.isin`` by one sort of the others. For 670,000 of the ids of 10 TB: 0.01 s, ``np.isin`` 0.66 s."""
    if not len(others):
        return np.zeros(len(ids), bool)
    ordered = np.sort(others)
    place = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    return np.asarray(ordered[place] == ids)


def ids_in_chunks(ids: NDArray[np.int64], chunks: Sequence[int], chunk_rows: int) -> NDArray[np.int64]:
    """Those of increasing ids (m,) whose rows are in ``chunks``, increasing, of so many rows each."""
    numbers = np.array(chunks)
    first = np.searchsorted(ids, numbers * chunk_rows)
    stop = np.searchsorted(ids, (numbers + 1) * chunk_rows)
    return np.concatenate([ids[:0], *(ids[a:b] for a, b in zip(first.tolist(), stop.tolist(), strict=True) if a < b)])
