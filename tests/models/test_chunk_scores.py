"""Chunks of labels, counted as conlleval does."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.models.chunk_scores import ChunkLabels, chunk_scores

Group = list[str]


def count(true: list[Group], predicted: list[Group]) -> dict[str | None, tuple[int, int, int]]:
    """Chunks that are there, that are predicted, and that are correct, by type; None: all."""
    labels = sorted({label for group in [*true, *predicted] for label in group})
    found = ChunkLabels.from_labels(labels)
    assert found is not None
    codes = [np.array([labels.index(label) for group in part for label in group]) for part in (true, predicted)]
    first = np.zeros(len(codes[0]), bool)
    first[np.cumsum([0, *map(len, true)])[:-1]] = True
    scores = chunk_scores(found, found.count(codes[0], codes[1], first))
    return {score.type: (score.chunks, score.predicted, score.correct) for score in scores}


def conlleval(true: list[Group], predicted: list[Group]) -> dict[str | None, tuple[int, int, int]]:
    """The state machine of the shared task's program, line by line: endOfChunk and startOfChunk, B, I, E, S and O."""

    def split(label: str) -> tuple[str, str]:
        tag, _, kind = label.partition("-")
        return tag, kind

    def ends(before: tuple[str, str], now: tuple[str, str]) -> bool:
        pairs = {"BB", "BO", "BS", "IB", "IO", "IS", "EE", "EI", "EO", "EB", "ES", "SB", "SI", "SE", "SS", "SO"}
        return before[0] + now[0] in pairs or (before[0] != "O" and before[1] != now[1])

    def starts(before: tuple[str, str], now: tuple[str, str]) -> bool:
        pairs = {"BB", "IB", "OB", "OI", "EE", "EI", "EB", "OE", "SB", "SI", "SE"}
        return now[0] == "S" or before[0] + now[0] in pairs or (now[0] != "O" and before[1] != now[1])

    counts: dict[str | None, list[int]] = {}

    def add(kind: str, place: int) -> None:
        for name in (None, kind):
            counts.setdefault(name, [0, 0, 0])[place] += 1

    for one, other in zip(true, predicted, strict=True):
        old, old_found, correct = ("O", ""), ("O", ""), False
        for label, label_found in [*zip(one, other, strict=True), ("O", "O")]:
            now, found = split(label), split(label_found)
            if correct:
                end, end_found = ends(old, now), ends(old_found, found)
                if end and end_found and old[1] == old_found[1]:
                    correct = False
                    add(old[1], 2)
                elif end != end_found or now[1] != found[1]:
                    correct = False
            if starts(old, now) and starts(old_found, found) and now[1] == found[1]:
                correct = True
            if starts(old, now):
                add(now[1], 0)
            if starts(old_found, found):
                add(found[1], 1)
            old, old_found = now, found
    return {name: (places[0], places[1], places[2]) for name, places in counts.items()}


@pytest.mark.parametrize(
    ("true", "predicted", "expected"),
    [
        (["B-NP", "I-NP", "O"], ["B-NP", "I-NP", "O"], (1, 1, 1)),
        (["B-NP", "I-NP", "O"], ["I-NP", "I-NP", "O"], (1, 1, 1)),  # I after the border begins a chunk
        (["B-NP", "I-NP", "I-NP"], ["B-NP", "B-NP", "I-NP"], (1, 2, 0)),  # two chunks in place of one
        (["O", "B-VP", "B-VP"], ["O", "I-VP", "B-VP"], (2, 2, 2)),  # I after O begins a chunk
        (["B-NP", "I-NP", "I-VP"], ["B-NP", "I-NP", "B-VP"], (2, 2, 2)),  # another type begins a chunk
        (["B-NP", "I-NP", "O"], ["B-NP", "O", "O"], (1, 1, 0)),  # the end counts
        (["B-NP", "I-NP"], ["B-VP", "I-VP"], (1, 1, 0)),  # the type counts
        (["B-NP", "E-NP", "S-NP"], ["B-NP", "I-NP", "S-NP"], (2, 2, 2)),
        (["O", "O", "B-NP"], ["O", "O", "O"], (1, 0, 0)),
    ],
)
def test_chunks_by_hand(true: Group, predicted: Group, expected: tuple[int, int, int]) -> None:
    """Chunks that are there, that are predicted and that are correct, worked out by hand."""
    assert count([true], [predicted])[None] == expected


def test_a_chunk_ends_with_its_group() -> None:
    """The same labels are one chunk in one group and two in two groups."""
    labels = ["B-NP", "I-NP"]
    assert count([labels], [labels])[None] == (1, 1, 1)
    assert count([["B-NP"], ["I-NP"]], [["B-NP"], ["I-NP"]])[None] == (2, 2, 2)


@pytest.mark.parametrize("tags", ["BI", "BIES"])
def test_counts_are_those_of_conlleval(tags: str) -> None:
    """Random labels, predicted labels that differ in every fourth place, groups of one to nine rows."""
    rng = np.random.default_rng(0)
    labels = np.array(["O", *(f"{tag}-{kind}" for tag in tags for kind in ("NP", "VP", "a-b"))])
    for _ in range(50):
        sizes = rng.integers(1, 10, 6)
        true = [labels[rng.integers(len(labels), size=size)].tolist() for size in sizes]
        predicted = [[label if rng.random() < 0.75 else str(rng.choice(labels)) for label in group] for group in true]
        found = {name: counts for name, counts in count(true, predicted).items() if any(counts)}
        assert found == conlleval(true, predicted)


def test_shares_of_chunks() -> None:
    """Three of five predicted chunks are correct, of four that are there: precision 60 %, recall 75 %, F1 66.67 %."""
    labels = ["B-A", "I-A", "O"]
    found = ChunkLabels.from_labels(labels)
    assert found is not None
    true = np.array([0, 2, 0, 2, 0, 2, 0, 1, 2, 2])
    predicted = np.array([0, 2, 0, 2, 0, 2, 0, 2, 0, 2])
    every = chunk_scores(found, found.count(true, predicted, np.arange(10) == 0))[0]
    assert (every.chunks, every.predicted, every.correct) == (4, 5, 3)
    assert (every.precision, every.recall) == (0.6, 0.75)
    assert every.f1 == pytest.approx(2 / 3)


@pytest.mark.parametrize("labels", [["a", "b"], [1, 2], ["O"], ["B-NP", "x"], ["B-", "O"], ["b-NP", "O"]])
def test_other_labels_have_no_chunks(labels: list[object]) -> None:
    """Labels that are not all O or a tag with a type say nothing of chunks."""
    assert ChunkLabels.from_labels(labels) is None
