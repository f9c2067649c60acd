from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.errors import BadRow, LabelError
from coremargin.problems.common.classes import two_classes
from coremargin.problems.common.sample import first_row, read_sample, sample_chunks
from coremargin.problems.hard.hard_margin import HardMargin


def source_of(y: Any, *, chunk_rows: int = 10, features: int = 3) -> ArraySource:
    """Rows that say their number, with these labels."""
    n = len(y)
    return ArraySource(np.repeat(np.arange(n, dtype=np.float32)[:, None], features, axis=1), y, chunk_rows=chunk_rows)


@pytest.mark.parametrize("labels", [["b", "a"], ["a", "b"], [7, -3], [False, True], [2.5, 1.5]])
def test_the_larger_label_is_positive(labels: list[Any]) -> None:
    """Of two labels the larger is the positive class, in whatever order they appeared."""
    source = source_of(labels * 5)
    positive, negative = two_classes(source)
    assert source.classes[positive] == max(labels)
    assert source.classes[negative] == min(labels)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([None] * 4, "no labelled row"),
        (["cat"] * 4, "only 'cat'"),
        (["x", "y", "z"], "--only x,y"),
        ([str(k) for k in range(20)], "found 20"),
    ],
)
def test_other_than_two_classes_are_refused(labels: list[Any], words: str) -> None:
    """No, one, three or twenty classes are refused with what was found and what to do."""
    with pytest.raises(LabelError, match=words):
        two_classes(source_of(labels))


def test_a_class_without_rows_does_not_count() -> None:
    """Two classes with rows are two classes, even when a third label is known."""
    source = ArraySource(np.eye(4), ["a", "c", "a", "c"], classes=("a", "b", "c"))
    assert two_classes(source) == (2, 0)


def test_the_sample_of_sorted_labels_has_both_classes() -> None:
    """However labels are sorted and however few rows a class has, the sampled chunks hold rows of both."""
    for few, last in ((1, True), (1, False), (15, True), (500, True)):
        y = np.array([0] * (1000 - few) + [1] * few)
        source = source_of(y if last else y[::-1])
        chunks = sample_chunks(source, (1, 0), 0.02, 500)
        signs = read_sample(source, chunks, (1, 0)).signs
        assert set(signs.tolist()) == {-1, 1}
        assert len(chunks) <= 4
        assert chunks == sorted(set(chunks))


def test_the_sample_is_spread_and_bounded() -> None:
    """The sample reads the share asked for, evenly spread, no more than the limit, and all of a small store."""
    source = source_of([0, 1] * 500)
    chunk_bytes = source.nbytes // source.chunks
    assert sample_chunks(source, (1, 0), 0.1, source.nbytes) == list(range(100))
    tenth = sample_chunks(source, (1, 0), 0.1, source.nbytes - 1)
    assert np.diff(tenth).tolist() == [10] * 9
    assert len(sample_chunks(source, (1, 0), 0.5, 3 * chunk_bytes)) == 3
    assert len(sample_chunks(source, (1, 0), 1e-9, 1)) == 1


def test_sampled_rows_are_labelled_rows_of_their_chunks() -> None:
    """Ids, rows and signs of a sample belong together; unlabelled rows are left out."""
    source = source_of(np.array([0, None, 1] * 10, object))
    found = read_sample(source, [0, 2], (1, 0))
    ids, rows, signs = found.ids, found.rows, found.signs
    assert ids.tolist() == [k for k in range(30) if k // 10 in (0, 2) and k % 3 != 1]
    assert (rows[:, 0] == ids).all()
    assert (signs == np.where(ids % 3 == 2, 1, -1)).all()


def test_the_first_row_is_the_first_labelled_one() -> None:
    """The paper's start is one example: the first row that has a label."""
    source = source_of(np.array([None] * 25 + [1, 0], object))
    found = first_row(source, (0, 1))
    ids, rows, signs, chunk = found.ids, found.rows, found.signs, found.chunks[0]
    assert (ids.tolist(), rows[0, 0], signs.tolist(), chunk) == ([25], 25, [1], 2)


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e160, 1e300])
@pytest.mark.parametrize("strategy", ["fast", "paper", "any-violator"])
def test_rows_at_the_ends_of_float64_are_refused(rng: np.random.Generator, size: float, strategy: Any) -> None:
    """Rows whose squares under- or overflow are refused, with their length, instead of giving a false proof."""
    X, y = rng.standard_normal((40, 3)), np.array([0, 1] * 20)
    X[:, 0] += 9 * y
    with pytest.raises(BadRow, match="rescale"):
        HardMargin(ArraySource(X / 20 * size, y), 0.1, strategy=strategy).start()


def test_float32_rows_are_never_refused_for_their_size(rng: np.random.Generator) -> None:
    """The smallest and the largest float32 numbers, and zeros, are within what can be proven."""
    y = np.array([0, 1] * 20)
    for size in (1e-45, 1e38, 0.0):
        X = (np.sign(rng.standard_normal((40, 3))) * size).astype(np.float32)
        assert HardMargin(ArraySource(X, y), 0.1).start().status in ("running", "not_separable")
