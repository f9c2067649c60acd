"""Chunks of rows by labels such as B-NP, I-NP and O, and F1 of chunks, counted as the program conlleval does.

A chunk begins at a label other than O if it is a B or an S, if its type differs from that of the label before, if the
label before is O or ends a chunk (E, S), or if it is the first of its group. It lasts until the next chunk or O. A
predicted chunk is correct if a chunk of the same type has the same rows [1]_.

References
----------
.. [1] E. F. Tjong Kim Sang, S. Buchholz, "Introduction to the CoNLL-2000 Shared Task: Chunking", CoNLL 2000.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_TAG = re.compile("([BIES])-(.+)", re.DOTALL)
_OUTSIDE = "O"


@dataclass(frozen=True)
class ChunkLabels:
    """What labels say of chunks.

    types (k,): the type of each, -1 for O; begins, ends (k,): whether a chunk begins or ends there, whatever is around
    it. names: of the types.
    """

    types: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def from_labels(cls, labels: Sequence[Any]) -> ChunkLabels | None:
        """What these labels say; None unless all are O, or B, I, E or S with a type, as in "B-NP"."""
        found = [_TAG.fullmatch(label) if isinstance(label, str) else None for label in labels]
        if not any(found) or any(tag is None and label != _OUTSIDE for tag, label in zip(found, labels, strict=True)):
            return None
        names = sorted({tag[2] for tag in found if tag})
        return cls(
            np.array([names.index(tag[2]) if tag else -1 for tag in found]),
            np.array([tag is not None and tag[1] in "BS" for tag in found]),
            np.array([tag is not None and tag[1] in "ES" for tag in found]),
            tuple(names),
        )

    def chunks(self, places: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """First row, row after the last, and type of each chunk; places (n,) of labels; first (n,): a group begins."""
        types, before = self.types[places], np.roll(places, 1)
        inside = types >= 0
        new = first | self.begins[places] | self.ends[before] | (self.types[before] != types)
        starts = np.flatnonzero(inside & new)
        borders = np.append(np.flatnonzero(~inside | new), len(places))
        return starts, borders[np.searchsorted(borders, starts, side="right")], types[starts]

    def count(self, true: np.ndarray, predicted: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Chunks of each type (3, types), int64: those that are there, that are predicted, and that are correct."""
        starts, stops, types = self.chunks(true, first)
        found_starts, found_stops, found_types = self.chunks(predicted, first)
        _, one, other = np.intersect1d(starts, found_starts, assume_unique=True, return_indices=True)
        correct = (stops[one] == found_stops[other]) & (types[one] == found_types[other])
        return np.stack(
            [np.bincount(some, minlength=len(self.names)) for some in (types, found_types, types[one][correct])]
        )


@dataclass(frozen=True)
class ChunkScore:
    """Chunks of one type, or of all (type None): how many there are, are predicted, are correct; shares of these."""

    type: str | None
    chunks: int
    predicted: int
    correct: int
    precision: float  #: of the predicted ones, those that are correct; 0 when none was predicted
    recall: float  #: of those that are there, those that were found; 0 when there are none
    f1: float  #: harmonic mean of the two


def chunk_scores(labels: ChunkLabels, counts: np.ndarray) -> tuple[ChunkScore, ...]:
    """Scores of all chunks, then of those of each type; counts (3, types)."""
    every = zip([None, *labels.names], np.column_stack([counts.sum(axis=1), counts]).T.tolist(), strict=True)
    return tuple(
        ChunkScore(
            name,
            there,
            predicted,
            correct,
            correct / predicted if predicted else 0.0,
            correct / there if there else 0.0,
            2 * correct / (there + predicted) if there + predicted else 0.0,
        )
        for name, (there, predicted, correct) in every
    )
