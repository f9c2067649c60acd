"""Views: their digests, their way to other processes, and what lies under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cloudpickle
import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.data.opened import open_source
from coremargin.data.store import Store
from coremargin.data.view import View, root
from store_kit import all_rows, write_store

if TYPE_CHECKING:
    from pathlib import Path


class Negated(View):
    """Every value with the other sign."""

    kind = "negated"

    def read(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and codes of a chunk."""
        X, y = self.base.read(chunk)
        return -X, y


@pytest.fixture
def store(tmp_path: Path, rng: np.random.Generator) -> Store:
    """A store of 200 rows in four chunks."""
    return write_store(tmp_path / "s.zarr", rng.normal(size=(200, 3)).astype(np.float32), np.arange(200) % 2)


def test_a_view_is_made_once_per_process(store: Store) -> None:
    """Handles that arrive in a process one after another give the same object over the same open store."""
    view = Negated(View(store, 7))
    twins = [open_source(cloudpickle.loads(cloudpickle.dumps(view.handle()))) for _ in range(3)]
    assert twins[0] is twins[1] is twins[2]
    assert isinstance(twins[0], Negated)
    assert root(twins[0]) is open_source(store.handle())
    np.testing.assert_array_equal(all_rows(twins[0])[0], -all_rows(store)[0])


def test_views_of_arrays_keep_to_their_own_arrays(rng: np.random.Generator) -> None:
    """Equal arrays in two places have equal digests; each view shows its own."""
    X, y = rng.normal(size=(50, 2)), np.arange(50) % 2
    first, second = View(ArraySource(X, y)), View(ArraySource(X.copy(), y))
    assert first.digest == second.digest
    assert root(open_source(first.handle())) is first.base
    assert root(open_source(second.handle())) is second.base


def test_a_newer_commit_gets_its_own_view(store: Store) -> None:
    """The view of the rows then and the view of the rows now are two, with two digests."""
    from coremargin.data.writer import StoreWriter

    old = open_source(View(store, 1).handle())
    with StoreWriter.append(store.path) as writer:
        writer.write(np.ones((10, 3), np.float32), np.ones(10, int))
    new = open_source(View(Store.open(store.path), 1).handle())
    assert (old.rows, new.rows) == (200, 210)
    assert old.digest != new.digest


def test_digest_depends_on_all_that_a_view_is_made_of(store: Store) -> None:
    """Kind and arguments, their types and shapes, all count; equal ones give equal digests."""
    arguments = [
        (), (1,), (1.0,), ("1",), (True,), (None,), ((1,),), (1, 1), ("11",), (b"1",), (np.array([1]),),
        (np.array([1.0]),), (np.array([[1]]),), (np.array([1, 2]),), (np.array([1]), np.array([2])),
    ]  # fmt: skip
    digests = [View(store, *values).digest for values in arguments] + [Negated(store).digest, store.digest]
    assert len(set(digests)) == len(digests)
    assert View(store, np.array([1, 2])).digest == View(store, np.arange(1, 3)).digest
    with pytest.raises(TypeError, match="plain values and arrays, got dict"):
        View(store, {})
