"""What a store has gained and lost between two of its commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coremargin.data import amend
from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.changes import CHANGES
from coremargin.data.difference import FILE, ChangedRows, difference, earlier, write_changed_rows
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import StoreError

Maker = Callable[..., Store]
NOTE = 32  #: bytes of a row that is noted


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


@pytest.fixture(params=["noted", "compared"])
def noted(request: pytest.FixtureRequest) -> Callable[[Store], bool]:
    """``noted(store)``: whether commits note which rows they have changed; else the notes are gone from now on."""

    def asked(store: Store) -> bool:
        if request.param == "compared":
            for note in store.path.glob(f"{CHANGES}/*/{FILE}"):
                note.unlink()
        return bool(request.param == "noted")

    return asked


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


def test_labels_that_have_changed(store: Store, noted: Callable[[Store], bool]) -> None:
    """With their codes then and now, in whole chunks and in one that has grown: from notes, or labels, read twice."""
    write_labels(store.path, [3, 70, 199], ["a", None, "c"])
    now = append(store, ["a"] * 20)
    known = noted(now)
    found = difference(store, now)
    assert found.ids.tolist() == [3, 70, 199]
    assert found.codes_before.tolist() == [1, 0, 1]
    assert found.codes_after.tolist() == [0, -1, 2]
    assert found.weights_before.tolist() == found.weights_after.tolist() == [1, 1, 1]
    assert found.nbytes == (3 * NOTE if known else 8 * (64 + 64 + 8))
    assert found.appended == 20


def test_rows_that_were_taken_out(store: Store, noted: Callable[[Store], bool]) -> None:
    """Of a store whose rows came without weights only the chunks are read that have some since."""
    remove_rows(store.path, [3])
    known = noted(store)
    found = difference(store, Store.open(store.path))
    assert (found.ids.tolist(), found.weights_before.tolist(), found.weights_after.tolist()) == ([3], [1], [0])
    assert found.nbytes == (NOTE if known else (4 + 8) * 64)  # labels are the same: once
    set_weights(store.path, [3, 199], [1.0, 2.5])
    now = append(store, ["a"] * 20)
    found = difference(store, now)
    assert (found.ids.tolist(), found.weights_after.tolist(), found.appended) == ([199], [2.5], 20)


def test_what_is_the_same_is_read_once(make_store: Maker, noted: Callable[[Store], bool]) -> None:
    """Of labels and weights, in the chunks where only the others have changed; both are known of the rows that have."""
    weights = np.linspace(0.5, 2.0, 200)
    store = make_store(rows(200), ["a", "b"] * 100, weights=weights)
    write_labels(store.path, [3], ["a"])
    set_weights(store.path, [130], [5.0])
    known = noted(store)
    found = difference(store, Store.open(store.path))
    assert found.ids.tolist() == [3, 130]
    assert (found.codes_before.tolist(), found.codes_after.tolist()) == ([1, 0], [0, 0])
    assert found.weights_before.tolist() == [weights[3], weights[130]]
    assert found.weights_after.tolist() == [weights[3], 5.0]
    assert found.nbytes == (2 * NOTE if known else 64 * (2 * 4 + 8) + 64 * (4 + 2 * 8))


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
        with pytest.raises(StoreError, match="the store was rewritten"):
            difference(old, new)


CHANGED: dict[str, Callable[[ChangedRows], ChangedRows]] = {
    "a row of another chunk": lambda rows: replace(rows, ids=rows.ids + 64),
    "a row less": lambda rows: rows.take(np.arange(1, len(rows.ids))),
    "a negative row": lambda rows: replace(rows, ids=rows.ids - 64),
    "not increasing": lambda rows: rows.take(np.array([1, 0])),
    "a code of no class": lambda rows: replace(rows, codes_after=rows.codes_after + np.int32(7)),
    "a weight of nan": lambda rows: replace(rows, weights_after=rows.weights_after * np.nan),
    "other numbers": lambda rows: replace(rows, ids=rows.ids.astype(np.int32)),
    "of other lengths": lambda rows: replace(rows, codes_before=rows.codes_before[:1]),
    "more than one column": lambda rows: replace(rows, weights_before=rows.weights_before[:, None]),
}


@pytest.mark.parametrize("harm", CHANGED)
def test_a_note_that_cannot_be_is_not_believed(store: Store, harm: str) -> None:
    """Where it is not what the checksums of chunks say, labels are compared."""
    write_labels(store.path, [3, 71], ["a", "a"])
    now = Store.open(store.path)
    found = difference(store, now)
    note = store.path / CHANGES / "000001" / FILE
    note.unlink()
    true = ChangedRows(
        found.ids, found.codes_before, found.codes_after, found.weights_before, found.weights_after
    )  # fmt: skip
    write_changed_rows(LocalStorage(store.path), "000001", CHANGED[harm](true))
    again = difference(store, now)
    assert again.nbytes == 8 * 2 * 64
    assert (again.ids.tolist(), again.codes_after.tolist()) == ([3, 71], [0, 0])


@pytest.mark.parametrize("harm", ["cut", "a folder", "empty"])
def test_a_damaged_note_is_not_read(store: Store, harm: str) -> None:
    """Nothing rests on it: labels are compared, and the store is whole without."""
    write_labels(store.path, [3, 71], ["a", "a"])
    note = store.path / CHANGES / "000001" / FILE
    content = note.read_bytes()
    note.unlink()
    if harm == "a folder":
        note.mkdir()
    else:
        note.write_bytes(content[:-9] if harm == "cut" else b"")
    found = difference(store, Store.open(store.path))
    assert (found.ids.tolist(), found.nbytes) == ([3, 71], 8 * 2 * 64)


def test_no_bit_of_a_note_that_turns_matters(store: Store) -> None:
    """The difference is the same, whether it is noticed or is in none of the numbers."""
    write_labels(store.path, [3, 71], ["a", "a"])
    now = Store.open(store.path)
    note = store.path / CHANGES / "000001" / FILE
    content = note.read_bytes()
    for place in range(0, len(content), 11):
        note.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        found = difference(store, now)
        assert (found.ids.tolist(), found.codes_before.tolist(), found.codes_after.tolist()) == (
            [3, 71],
            [1, 1],
            [0, 0],
        )


def test_a_commit_that_changes_very_many_rows_notes_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note is kept in memory until it is written: beyond some size there is none, and labels are compared."""
    monkeypatch.setattr(amend, "MOST_NOTED", 3)
    write_labels(store.path, [1, 3, 71, 133], ["a"] * 4)
    assert not list(store.path.glob(f"{CHANGES}/*/{FILE}"))
    assert difference(store, Store.open(store.path)).ids.tolist() == [1, 3, 71, 133]


def test_changes_one_after_the_other(store: Store) -> None:
    """What several commits note comes to what comparing the first with the last finds, whatever they did."""
    rng = np.random.default_rng(4)
    states = [Store.open(store.path)]
    for night in range(12):
        ids = np.unique(rng.integers(0, states[-1].rows, 6))
        if night % 3 == 2:
            append(states[-1], ["a", "b"] * 3)
        elif night % 3:
            set_weights(store.path, ids, rng.integers(0, 3, len(ids)) / 2)
        else:
            write_labels(store.path, ids, [("a", "b", None)[k] for k in rng.integers(0, 3, len(ids))])
        states.append(Store.open(store.path))
    pairs = [(old, new) for k, old in enumerate(states) for new in states[k + 1 :]]
    noted = [difference(old, new) for old, new in pairs]
    for note in store.path.glob(f"{CHANGES}/*/{FILE}"):
        note.unlink()
    for (old, new), found in zip(pairs, noted, strict=True):
        compared = difference(old, new)
        for name in ("ids", "codes_before", "codes_after", "weights_before", "weights_after"):
            assert np.array_equal(getattr(found, name), getattr(compared, name)), name
