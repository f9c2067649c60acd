"""What a store has gained and lost between two of its commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coremargin.data.difference import difference, earlier
from coremargin.data.relabel import write_labels
from coremargin.data.reweigh import remove_rows, set_weights
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import StoreError

Maker = Callable[..., Store]


def rows(n: int, seed: int = 0) -> np.ndarray:
    """Some rows."""
    return np.random.default_rng(seed).standard_normal((n, 3)).astype(np.float32)


@pytest.fixture
def store(make_store: Maker) -> Store:
    """200 rows in 4 chunks, the last of 8, labels "a" and "b" by turns."""
    return make_store(rows(200), ["a", "b"] * 100)


def append(store: Store, labels: list[Any]) -> Store:
    """More rows."""
    with StoreWriter.append(store.path) as writer:
        writer.write(rows(len(labels), 1), labels, origin="test")
    return Store.open(store.path)


def test_nothing(store: Store) -> None:
    """A commit and itself."""
    found = difference(store, Store.open(store.path))
    assert not found
    assert (found.before, found.after, found.changed, found.appended, found.nbytes) == (200, 200, 0, 0, 0)


@pytest.mark.parametrize("count", [1, 56, 500])
def test_rows_that_were_appended(store: Store, count: int) -> None:
    """They are known by their numbers; where only rows came, no label is read, of the chunk that grew neither."""
    found = difference(store, append(store, ["a"] * count))
    assert found
    assert (found.appended, found.changed, found.nbytes) == (count, 0, 0)


def test_labels_that_have_changed(store: Store) -> None:
    """With their codes then and now, in whole chunks and in one that has grown; labels are read twice, nothing else."""
    write_labels(store.path, [3, 70, 199], ["a", None, "c"])
    now = append(store, ["a"] * 20)
    found = difference(store, now)
    assert found.ids.tolist() == [3, 70, 199]
    assert found.codes_before.tolist() == [1, 0, 1]
    assert found.codes_after.tolist() == [0, -1, 2]
    assert found.weights_before.tolist() == found.weights_after.tolist() == [1, 1, 1]
    assert found.nbytes == 8 * (64 + 64 + 8)
    assert found.appended == 20


def test_rows_that_were_taken_out(store: Store) -> None:
    """Of a store whose rows came without weights only the chunks are read that have some since."""
    remove_rows(store.path, [3])
    found = difference(store, Store.open(store.path))
    assert (found.ids.tolist(), found.weights_before.tolist(), found.weights_after.tolist()) == ([3], [1], [0])
    assert found.nbytes == (4 + 8) * 64  # labels are the same: once
    set_weights(store.path, [3, 199], [1.0, 2.5])
    now = append(store, ["a"] * 20)
    found = difference(store, now)
    assert (found.ids.tolist(), found.weights_after.tolist(), found.appended) == ([199], [2.5], 20)


def test_what_is_the_same_is_read_once(make_store: Maker) -> None:
    """Of labels and weights, in the chunks where only the others have changed; both are known of the rows that have."""
    weights = np.linspace(0.5, 2.0, 200)
    store = make_store(rows(200), ["a", "b"] * 100, weights=weights)
    write_labels(store.path, [3], ["a"])
    set_weights(store.path, [130], [5.0])
    found = difference(store, Store.open(store.path))
    assert found.ids.tolist() == [3, 130]
    assert (found.codes_before.tolist(), found.codes_after.tolist()) == ([1, 0], [0, 0])
    assert found.weights_before.tolist() == [weights[3], weights[130]]
    assert found.weights_after.tolist() == [weights[3], 5.0]
    assert found.nbytes == 64 * (2 * 4 + 8) + 64 * (4 + 2 * 8)


def test_labels_that_have_changed_and_changed_back(store: Store) -> None:
    """Are none."""
    write_labels(store.path, [3], ["a"])
    write_labels(store.path, [3], ["b"])
    assert not difference(store, Store.open(store.path))


def test_what_happened_since_any_commit(store: Store) -> None:
    """Two commits in the past are compared as any two."""
    second = append(store, ["a"] * 30)
    write_labels(store.path, [0], [None])
    third = Store.open(store.path)
    append(third, ["b"] * 10)
    assert earlier(third, second.digest).rows == 230
    found = difference(earlier(third, second.digest), earlier(third, third.digest))
    assert (found.appended, found.ids.tolist()) == (0, [0])


def test_another_store(store: Store, make_store: Maker) -> None:
    """A commit that is gone is named, with what to do; rows that are others are noticed."""
    other = make_store(rows(300, 9), ["a", "b"] * 150, name="other.zarr")
    with pytest.raises(StoreError, match="expected a commit with the content") as caught:
        earlier(other, store.digest)
    assert "train a new model" in caught.value.__notes__[0]
    for old, new in ((store, other), (other, store)):
        with pytest.raises(StoreError, match="written anew"):
            difference(old, new)
