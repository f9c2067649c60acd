"""Synthetic stores are what their recipe says, for any number of threads and any chunks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.check import check_store
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.data.synth import Recipe, plane, recipe_of, rows_of, synth
from coremargin.errors import OutputError, UsageError
from store_kit import all_rows, write_store

RECIPE = Recipe(rows=5000, features=30, margin=0.5, seed=11, chunk_bytes=64 << 10)


def test_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    """One thread and many write the same files, but for the moment in the log."""
    one = synth(tmp_path / "one.zarr", RECIPE, workers=1).path
    many = synth(tmp_path / "many.zarr", RECIPE, workers=7).path
    files = sorted(file.relative_to(one) for file in one.rglob("*") if file.is_file())
    assert files == sorted(file.relative_to(many) for file in many.rglob("*") if file.is_file())
    timed = (Path("log.jsonl"), Path("zarr.json"))  # the root has the checksum of the log
    assert all((one / file).read_bytes() == (many / file).read_bytes() for file in files if file not in timed)
    assert Store.open(one).digest == Store.open(many).digest
    assert check_store(one).whole


def test_rows_do_not_depend_on_chunks_or_length(tmp_path: Path) -> None:
    """Another size of chunks gives the same rows, and a longer store begins with the rows of a shorter one."""
    store = synth(tmp_path / "a.zarr", RECIPE)
    other = synth(tmp_path / "b.zarr", replace(RECIPE, chunk_bytes=17_000))
    assert (store.chunk_rows, other.chunk_rows) == (546, 141)
    assert store.digest == other.digest
    longer = rows_of(replace(RECIPE, rows=9000), 4321, 5678)
    X, y = all_rows(store)
    np.testing.assert_array_equal(longer[0][: 5000 - 4321], X[4321:])
    np.testing.assert_array_equal(longer[1][: 5000 - 4321], y[4321:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_separable_with_the_margin(tmp_path: Path, dtype: str) -> None:
    """Without noise every row lies on its side of the recipe's plane, at the margin or farther."""
    recipe = replace(RECIPE, dtype=dtype)
    store = synth(tmp_path / "s.zarr", recipe)
    X, codes = all_rows(store)
    u, offset = plane(recipe)
    margins = np.array(store.classes)[codes] * (X.astype(np.float64) @ u + offset)
    assert np.isclose(np.linalg.norm(u), 1)
    assert 0.5 - 1e-6 <= margins.min() < 0.51
    assert store.dtype == dtype
    assert store.classes == (-1, 1)
    assert 0.3 < store.scalars().counts.sum(axis=0)[0] / 5000 < 0.7


def test_noise(tmp_path: Path) -> None:
    """The share ``noise`` of the labels is flipped, and nothing else changes."""
    X, y = rows_of(RECIPE, 0, 5000)
    noisy_X, noisy_y = rows_of(replace(RECIPE, noise=0.1), 0, 5000)
    np.testing.assert_array_equal(X, noisy_X)
    assert 0.08 < (y != noisy_y).mean() < 0.12


def test_seeds_differ() -> None:
    """Another seed gives other rows and another plane."""
    other = replace(RECIPE, seed=12)
    assert not np.array_equal(rows_of(RECIPE, 0, 10)[0], rows_of(other, 0, 10)[0])
    assert abs(plane(RECIPE)[0] @ plane(other)[0]) < 0.9


def test_recipe_is_kept(tmp_path: Path, rng: np.random.Generator) -> None:
    """A store knows the recipe it was made from; one made from files has none."""
    assert recipe_of(synth(tmp_path / "s.zarr", RECIPE)) == RECIPE
    assert recipe_of(write_store(tmp_path / "t.zarr", rng.normal(size=(3, 2)), None)) is None


def test_progress(tmp_path: Path) -> None:
    """Progress counts rows up to the last one, and bytes of finished files."""
    seen: list[tuple[int, int]] = []
    synth(tmp_path / "s.zarr", RECIPE, workers=2, on_progress=lambda rows, size: seen.append((rows, size)))
    rows, sizes = zip(*seen, strict=True)
    assert rows[-1] == 5000
    assert list(rows) == sorted(set(rows))
    assert sizes[-1] >= 5000 * (30 * 4 + 4)


def test_leaving_early_leaves_nothing(tmp_path: Path) -> None:
    """An interrupted generation leaves no store behind, and an old one as it was."""
    old = synth(tmp_path / "s.zarr", replace(RECIPE, rows=10)).digest

    def stop(rows: int, size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synth(tmp_path / "s.zarr", RECIPE, overwrite=True, on_progress=stop)
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.zarr"]
    assert Store.open(tmp_path / "s.zarr").digest == old


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that will not fit is refused before the first row is made."""
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda storage: 1000)
    with pytest.raises(OutputError, match="needs [0-9,]+ bytes, 1,000 are free"):
        synth(tmp_path / "s.zarr", RECIPE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 0},
        {"features": 0},
        {"margin": -1.0},
        {"margin": float("nan")},
        {"noise": 1.5},
        {"density": 1.5},
        {"density": -0.1},
        {"seed": -1},
        {"dtype": "int8"},
        {"chunk_bytes": 0},
    ],
)
def test_bad_recipes(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A recipe that cannot be made is refused, naming the value."""
    with pytest.raises(UsageError, match=f"{next(iter(changes))}: expected"):
        synth(tmp_path / "s.zarr", replace(RECIPE, **changes))
    assert list(tmp_path.iterdir()) == []


SPARSE = replace(RECIPE, rows=3000, features=400, density=0.03, margin=0.05)


class TestSparse:
    """Sparse recipes: the same promises."""

    def test_rows(self) -> None:
        """Every row has its share of features, lies ``margin`` or more from the plane, on the side of its label."""
        X, codes = rows_of(SPARSE, 0, 3000)
        assert (X.format, X.shape, X.dtype) == ("csr", (3000, 400), np.float32)
        assert set(np.diff(X.indptr).tolist()) == {12}
        u, offset = plane(SPARSE)
        assert np.linalg.norm(u) == pytest.approx(1)
        margins = (X.astype(np.float64) @ u + offset) * (2 * codes - 1)
        assert margins.min() > 0.05 * (1 - 1e-5)
        assert margins.min() < 0.051
        assert 0.2 < codes.mean() < 0.8

    @pytest.mark.specimens(1)
    @pytest.mark.parametrize("chunk_bytes", [2000, 1 << 23])
    def test_store(self, tmp_path: Path, chunk_bytes: int) -> None:
        """The store holds these rows, whatever the chunks and threads, and is whole."""
        one = synth(tmp_path / "one.zarr", replace(SPARSE, chunk_bytes=chunk_bytes), workers=1)
        two = synth(tmp_path / "two.zarr", replace(SPARSE, chunk_bytes=5000), workers=3)
        assert one.sparse
        assert one.digest == two.digest
        X, codes = rows_of(SPARSE, 0, 3000)
        found, labels = one.rows_at(np.arange(3000))
        np.testing.assert_array_equal(found.toarray(), X.toarray())
        np.testing.assert_array_equal(labels, codes)
        assert check_store(one.path, workers=1).whole
        assert check_store(two.path, workers=1).whole
        assert one.nbytes == 3000 * SPARSE.row_bytes

    def test_longer_stores_begin_alike(self) -> None:
        """The first rows do not depend on how many follow, nor on where reading begins."""
        whole = rows_of(replace(SPARSE, rows=9000), 0, 9000)[0]
        np.testing.assert_array_equal(rows_of(SPARSE, 700, 2000)[0].toarray(), whole[700:2000].toarray())
