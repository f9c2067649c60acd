"""Folds of cross-validation: which rows are held out, as a fixed function of the row's id.

The fold of a row is a hash of its id and a seed, so that no list of folds is kept or sent, rows that are appended
change nothing about those that were there, and a check of a result finds the same folds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import View

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.data.statistics import ChunkScalars, ChunkStatistics

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014): each bit depends on all bits."""
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def fold_of(ids: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold (n,), from 0 to ``folds`` - 1, of rows with these ids (n,) >= 0; seed from 0 to 2^63 - 1.

    mixed(mixed(seed) + (id + 1) golden) mod folds, in 64 bits without sign: the id-th number of SplitMix64.
    """
    start = _mixed(np.array([seed], np.uint64))
    numbers = _mixed(start + (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    return (numbers % np.uint64(folds)).astype(np.int64)


def masked(codes: NDArray[np.int32], fold: NDArray[np.int64], held_out: int) -> NDArray[np.int32]:
    """Codes (n,), read-only, with -1, as unlabelled rows have it, for the rows of fold ``held_out``."""
    shown = np.where(fold == held_out, np.int32(-1), codes)
    shown.flags.writeable = False
    return shown


def fold_counts(source: Source, folds: int, seed: int, *, weighed: bool = False) -> NDArray[np.int64]:
    """Rows (folds, chunks, classes) of each class in each fold and chunk: one pass over the labels, not the rows.

    weighed: only those of a weight above 0, of a source that has weights.
    """
    classes = len(source.classes)
    counts = np.zeros((folds, source.chunks, classes), np.int64)
    for chunk in range(source.chunks):
        codes = source.labels(chunk)
        weights = source.weights(chunk) if weighed else None
        known = np.flatnonzero(codes >= 0 if weights is None else (codes >= 0) & (weights > 0))
        fold = fold_of(known + source.span(chunk)[0], folds, seed)
        together = np.bincount(fold * classes + codes[known], minlength=folds * classes)
        counts[:, chunk] = together.reshape(folds, classes)
    return counts


class Masked(View):
    """The rows outside of one fold; those of the fold have no label.

    held_out: the fold; folds: how many there are; seed: which rows they have. The counts of what is left
    need the labels: pass them if they are counted (``fold_counts``), else one pass over the labels is made.
    """

    kind = "masked"

    def __init__(
        self, base: Source, held_out: int, folds: int, seed: int, counts: NDArray[np.int64] | None = None
    ) -> None:
        super().__init__(base, held_out, folds, seed)
        self.held_out, self.folds, self.seed = held_out, folds, seed
        self._given = counts

    def read(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and codes of a chunk."""
        rows, codes = self.base.read(chunk)
        return rows, self._shown(np.arange(*self.span(chunk)), codes)

    def labels(self, chunk: int) -> np.ndarray:
        """Codes of a chunk."""
        return self._shown(np.arange(*self.span(chunk)), self.base.labels(chunk))

    def rows_at(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and codes of the given row ids."""
        rows, codes = self.base.rows_at(ids)
        return rows, self._shown(np.asarray(ids, np.int64), codes)

    def _shown(self, ids: NDArray[np.int64], codes: np.ndarray) -> np.ndarray:
        return masked(codes, fold_of(ids, self.folds, self.seed), self.held_out)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows (chunks, classes) of each class that are not held out."""
        if self._given is not None:
            return self._given
        every: NDArray[np.int64] = self.base.scalars().counts
        return np.asarray(every - fold_counts(self.base, self.folds, self.seed)[self.held_out])

    def scalars(self) -> ChunkScalars:
        """Counts of what is left; lengths and radii are those of all rows."""
        known = self.base.scalars()
        return replace(known, counts=self.counts, unlabelled=known.rows - self.counts.sum(axis=1))

    def statistics(self, start: int = 0, stop: int | None = None) -> ChunkStatistics:
        """Counts of what is left; all else is that of all rows."""
        known, counts = self.base.statistics(start, stop), self.counts[start:stop]
        return replace(known, counts=counts, unlabelled=known.rows - counts.sum(axis=1))
