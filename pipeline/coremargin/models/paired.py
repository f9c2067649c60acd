"""Two models on the same rows, in one pass: what each has right, and where they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.group_parts import group_parts
from coremargin.errors import LabelError
from coremargin.models.decided_groups import decide
from coremargin.models.decision import Scorer, decided
from coremargin.models.evaluate import shares_of
from coremargin.models.executor import probe_in_order
from coremargin.models.matching import scorer_for

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Block
    from coremargin.models.fleet import AnyModel


@dataclass(frozen=True)
class Scores:
    """Of one model, as ``Evaluation`` has them: accuracy, mean F1 of the classes, mean recall of those there."""

    accuracy: float
    f1: float
    balanced_accuracy: float


@dataclass(frozen=True)
class Paired:
    """Labelled rows of weight above 0: how many, what each model scores, and how many only one of them has right."""

    rows: int
    first: Scores
    second: Scores
    only_first: int
    only_second: int


@dataclass(frozen=True)
class _Question:
    """What two scorers say about the chunks of a block.

    places: of each, its classes among all ``labels`` there are; sides: code -> label.
    """

    scorers: tuple[Scorer, Scorer]
    places: tuple[np.ndarray, np.ndarray]
    sides: np.ndarray
    labels: int

    def __call__(self, source: Source, block: Block) -> np.ndarray:
        """How many rows (3, k, k): label against label given by each, and right by the first against the second."""
        counts = np.zeros((3, self.labels, self.labels), np.int64)
        if any(scorer.grouped for scorer in self.scorers):
            for part in group_parts(source, block.chunks):
                known = _counts(part.codes, part.weights)
                places = [decide(scorer, part, source.name)[0][known] for scorer in self.scorers]
                counts += self._count(part.codes[known], places)
            return counts
        return sum((self._of(source, chunk) for chunk in block.chunks), counts)

    def _of(self, source: Source, chunk: int) -> np.ndarray:
        rows, codes = source.read(chunk)
        known = _counts(codes, source.weights(chunk))
        if not known.any():
            return np.zeros((3, self.labels, self.labels), np.int64)
        rows = rows if known.all() else rows[known]
        ids = source.span(chunk)[0] + np.flatnonzero(known)

        def place(row: int) -> str:
            return f"{source.name}, row {ids[row]}"

        return self._count(codes[known], [decided(scorer.values(rows, place)) for scorer in self.scorers])

    def _count(self, codes: np.ndarray, decisions: list[np.ndarray]) -> np.ndarray:
        """Rows with labels (n,), and what each scorer decides (n,)."""
        counts, truth, right = np.zeros((3, self.labels, self.labels), np.int64), self.sides[codes], []
        for own, found, places in zip(counts, decisions, self.places, strict=False):
            given = places[found]
            np.add.at(own, (truth, given), 1)
            right.append(given == truth)
        np.add.at(counts[2], (right[0].astype(int), right[1].astype(int)), 1)
        return counts


def _counts(codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Which rows (n,) count: those with a label and a weight above 0."""
    return codes >= 0 if weights is None else (codes >= 0) & (weights > 0)


def compare(first: AnyModel, second: AnyModel, source: Source, cluster: Cluster = None) -> Paired:
    """Hold two models against the labelled rows of a source. A label that a model does not know is one it has wrong.

    Raises LabelError (no labelled row that counts), DataError (other columns or features, damage).
    """
    labels = list(dict.fromkeys([*source.classes, *first.classes, *second.classes]))
    width = max(2, len(labels))
    scorers = scorer_for(first, source), scorer_for(second, source)
    places = _places(first, labels), _places(second, labels)
    question: Any = _Question(scorers, places, np.arange(len(labels)), width)
    with probe_in_order(source, question, cluster) as found:
        counts = sum(found, np.zeros((3, width, width), np.int64))
    rows = int(counts[0].sum())
    if not rows:
        raise LabelError(f"{source.name}: expected labelled rows that count, found none; nothing to compare")
    only_first, only_second = int(counts[2][1, 0]), int(counts[2][0, 1])
    return Paired(rows, _scores(counts[0]), _scores(counts[1]), only_first, only_second)


def _places(model: AnyModel, labels: list[Any]) -> np.ndarray:
    """Where a model's classes are among all labels."""
    return np.array([labels.index(label) for label in model.labels])


def _scores(confusion: np.ndarray) -> Scores:
    _, recall, f1 = shares_of(confusion)
    there = confusion.sum(axis=1) > 0
    named = there | (confusion.sum(axis=0) > 0)
    return Scores(
        accuracy=float(np.diag(confusion).sum() / confusion.sum()),
        f1=float(f1[named].mean()),
        balanced_accuracy=float(recall[there].mean()),
    )
