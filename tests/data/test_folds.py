"""Folds and one class against the rest: views whose codes and counts are those of a plain loop over the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.data.folds import Masked, fold_counts, fold_of
from coremargin.data.opened import open_source
from coremargin.data.relabelled import Relabelled
from coremargin.verify.folds import folds_of
from store_kit import all_rows, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.source import Source

MASK = (1 << 64) - 1


def splitmix64(state: int) -> tuple[int, int]:
    """The generator as published: next state and number."""
    state = (state + 0x9E3779B97F4A7C15) & MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)


def plain_fold(row: int, folds: int, seed: int) -> int:
    """The fold of a row by whole numbers of any size."""
    z = seed
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    state = z ^ (z >> 31)
    return splitmix64((state + row * 0x9E3779B97F4A7C15) & MASK)[1] % folds


def test_the_generator_is_the_published_one() -> None:
    """Seed 1234567 gives the numbers that go with SplitMix64 everywhere."""
    state, found = 1234567, []
    for _ in range(3):
        state, number = splitmix64(state)
        found.append(number)
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(("folds", "seed"), [(2, 0), (5, 1), (10, 2**63 - 1), (1000, 12345)])
def test_folds_are_those_of_whole_numbers(folds: int, seed: int) -> None:
    """Trainer and verifier, each with code of its own, find the folds that arithmetic without overflow finds."""
    rows = np.array([*range(300), 2**40, 2**62])
    expected = [plain_fold(int(row), folds, seed) for row in rows]
    assert fold_of(rows, folds, seed).tolist() == expected
    assert folds_of(0, 300, folds, seed).tolist() == expected[:300]
    assert folds_of(2**40, 1, folds, seed).tolist() == expected[300:301]


def test_folds_are_of_equal_size_and_seeds_give_others() -> None:
    """Of 100,000 rows each of five folds has a fifth, within four standard deviations; two seeds agree on a fifth."""
    rows = np.arange(100_000)
    first, second = fold_of(rows, 5, 0), fold_of(rows, 5, 1)
    assert np.abs(np.bincount(first, minlength=5) - 20_000).max() < 4 * np.sqrt(100_000 * 0.16)
    assert abs(np.count_nonzero(first == second) - 20_000) < 4 * np.sqrt(100_000 * 0.16)


@pytest.fixture(params=["arrays", "store"])
def source(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator) -> Source:
    """300 rows of four classes, one in ten without label, in five chunks."""
    X = rng.standard_normal((300, 3)).astype(np.float32)
    y = rng.choice(np.array(["b", "a", "d", "c", None], object), 300, p=[0.4, 0.3, 0.15, 0.05, 0.1])
    y[:4] = "b", "a", "d", "c"
    return ArraySource(X, y, chunk_rows=64) if request.param == "arrays" else write_store(tmp_path / "s.zarr", X, y)


def assert_told_truly(view: Source, codes: np.ndarray) -> None:
    """A view shows these codes however it is asked, and its counts are theirs, chunk by chunk."""
    rows, shown = all_rows(view)
    np.testing.assert_array_equal(rows, all_rows(view.base)[0])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(shown, codes)
    np.testing.assert_array_equal(np.concatenate([view.labels(k) for k in range(view.chunks)]), codes)
    ids = np.array([299, 0, 130, 0])
    np.testing.assert_array_equal(view.rows_at(ids)[1], codes[ids])
    for told in (view.scalars(), view.statistics(), view.statistics(1, 3)):
        first = 1 if len(told.counts) == 2 else 0
        for k, (counts, unlabelled) in enumerate(zip(told.counts, told.unlabelled, strict=True), first):
            mine = codes[slice(*view.span(k))]
            assert counts.tolist() == [np.count_nonzero(mine == code) for code in range(len(view.classes))]
            assert unlabelled == np.count_nonzero(mine < 0)


def test_one_class_against_the_rest(source: Source) -> None:
    """True for the class, False for other labels, nothing for rows without."""
    codes = all_rows(source)[1]
    for positive in range(4):
        view = Relabelled(source, positive)
        assert view.classes == (False, True)
        assert_told_truly(view, np.where(codes < 0, -1, codes == positive))


def test_a_fold_held_out(source: Source) -> None:
    """Rows of the fold have no label, given counts and counts of its own are equal, and all folds are all rows."""
    codes = all_rows(source)[1]
    fold = np.array([plain_fold(row, 3, 7) for row in range(300)])
    counts = fold_counts(source, 3, 7)
    assert (counts.sum(axis=0) == source.scalars().counts).all()
    for held_out in range(3):
        assert_told_truly(Masked(source, held_out, 3, 7), np.where(fold == held_out, -1, codes))
        assert_told_truly(
            Masked(source, held_out, 3, 7, counts.sum(axis=0) - counts[held_out]), np.where(fold == held_out, -1, codes)
        )


def test_views_of_views_travel(source: Source) -> None:
    """A class against the rest with a fold held out is made again from its handle, with the same digest."""
    codes = all_rows(source)[1]
    fold = np.array([plain_fold(row, 4, 0) for row in range(300)])
    view = Relabelled(Masked(source, 2, 4, 0), 1)
    again = open_source(view.handle())
    assert again.digest == view.digest
    for shown in (view, again):
        assert_told_truly(shown, np.where((codes < 0) | (fold == 2), -1, codes == 1))
    others = [Relabelled(source, 1), Relabelled(Masked(source, 1, 4, 0), 1), Relabelled(Masked(source, 2, 4, 1), 1)]
    assert len({view.digest, *(other.digest for other in others)}) == 4
