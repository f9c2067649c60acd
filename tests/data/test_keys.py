"""Rows named by keys: found whatever came when, each one once, and damage to keys is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.key_runs import Entries, Run, first_twice, write_run
from coremargin.data.local_storage import LocalStorage
from coremargin.data.row_selection import index_of
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, OutputError, StoreError, UsageError
from coremargin.formats.columns import ColumnsRecord, plain_columns
from coremargin.formats.raw_array import read_raw_array
from coremargin.verify.rows import Rows
from keys_kit import columns, create, found, keys_of, put, small_runs, write
from store_kit import FAULTS, edit_attributes, edit_json, write_store


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys make a run, and fewer a file of it."""
    small_runs(monkeypatch.setattr)


@pytest.fixture
def store(tmp_path: Path, small: None) -> Path:
    """300 rows with the keys 1000 to 1299, in an order of their own, in two commits, of classes a and b."""
    path, keys = tmp_path / "s.zarr", (np.random.default_rng(5).permutation(300) + 1000).tolist()
    with create(path, chunk_rows=32) as writer:
        put(writer, keys[:200])
        writer.commit()
        put(writer, keys[200:])
    return path


def order(path: Path) -> list[int]:
    """The keys of the store of the fixture, in the order of rows."""
    return [int(key) for key in np.random.default_rng(5).permutation(300) + 1000]


def runs_of(path: Path) -> list[dict[str, Any]]:
    """The runs that the root names."""
    found: list[dict[str, Any]] = json.loads((path / "zarr.json").read_text())["attributes"]["keys"]
    return found


def test_keys_find_their_rows(store: Path) -> None:
    """Whole numbers, the same as floats and as texts, find one row; what has no row finds none."""
    keys, opened = order(store), Store.open(store)
    assert found(opened, keys) == list(range(300))
    assert found(opened, [1000.0, "1000", " 1000.0 ", np.int32(1000)]) == [keys.index(1000)] * 4
    assert found(opened, ["01000", "999", "", "1300"][:2]) == [-1, -1]
    assert [run["rows"] for run in runs_of(store)] == [64, 64, 64, 8, 64, 36]
    assert check_store(store).whole


@pytest.mark.specimens(3)
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_agree_with_a_dict(tmp_path: Path, small: None, seed: int) -> None:
    """Whatever comes, goes by key, and is compacted: a key finds the row that a dict says, and no other."""
    rng, path = np.random.default_rng(seed), tmp_path / "s.zarr"
    names = [f"k{number}" if number % 3 else number for number in rng.permutation(2000).tolist()]
    rows = [names.pop() for _ in range(int(rng.integers(1, 150)))]
    gone = set[Any]()
    write(create(path, chunk_rows=int(rng.integers(3, 70))), rows)
    for _ in range(12):
        did = rng.choice(["append", "append", "remove", "label", "compact"])
        if did == "append":
            new = [names.pop() for _ in range(int(rng.integers(1, 120)))]
            write(StoreWriter.append(path), *(new[start : start + 50] for start in range(0, len(new), 50)))
            rows += new
        elif did == "remove":
            here = [key for key in rows[4:] if key not in gone]
            out = [here[at] for at in rng.choice(len(here), min(len(here), 9), replace=False)] if here else []
            if out:
                assert remove_rows(path, keys=out).removed == len(out)
            gone |= set(out)
        elif did == "label":
            assert write_labels(path, keys=[rows[0], rows[-1]], labels=["a", "b"]).given == 2
        elif gone:
            compact(path)
            rows, gone = [key for key in rows if key not in gone], set()
        opened = Store.open(path)
        dictionary = {key: row for row, key in enumerate(rows)}
        asked = [*rows, *names[:50]]
        assert found(opened, asked) == [dictionary.get(key, -1) for key in asked]
        weights = [opened.weights(chunk) for chunk in range(opened.chunks)]
        counts = np.ones(len(rows)) if weights[0] is None else np.concatenate([np.array(one) for one in weights])
        assert {key for key, weight in zip(rows, counts, strict=True) if weight == 0} == gone
        assert sum(run["rows"] for run in runs_of(path)) == len(rows)
        opened.release()  # who reads a store keeps it from being compacted
    assert check_store(path).whole


def test_rows_are_named_by_ids_or_by_keys(store: Path) -> None:
    """Labels, weights and removals by key are those by id; an unknown key, one twice, both or neither are refused."""
    keys, other = order(store), shutil.copytree(store, store.parent / "other.zarr")
    for path, one in ((store, {"keys": [keys[70], str(keys[3])]}), (other, {"ids": [70, 3]})):
        set_weights(path, weights=[2.0, 3.0], **one)
        write_labels(path, labels=["c", "c"], **one)
        remove_rows(path, **{name: value[:1] for name, value in one.items()})
    assert Store.open(store).digest == Store.open(other).digest
    before = (store / "zarr.json").read_bytes()
    for given, message in (
        ({"keys": [1001, 4711]}, "found the key '4711', which no row has; correct it"),
        ({"keys": [1001, 1002, "1001.0"]}, f"found key '1001' .row {keys.index(1001)}. twice"),
        ({"keys": [keys[70]]}, f"key '{keys[70]}' .row 70. has been taken out already"),
        ({"keys": [1001], "ids": [1]}, "either by ids or by keys"),
        ({}, "either by ids or by keys"),
        ({"keys": "1001"}, "expected several of them, got str"),
        ({"keys": [1001, None]}, "keys, number 1: found no key"),
        ({"keys": [True]}, "found True, expected a whole number or a text"),
        ({"keys": [0.5]}, "found 0.5, expected a whole number or a text"),
    ):
        with pytest.raises(UsageError, match=message):
            remove_rows(store, **given)
    with pytest.raises(UsageError, match=f"key '{keys[70]}' .row 70. was taken out"):
        write_labels(store, keys=[keys[70]], labels=["a"], counting=True)
    assert write_labels(store, keys=[keys[9]], labels=["c"]).called == (f"key '{keys[9]}' (row 9)",)
    assert before != (store / "zarr.json").read_bytes()


def test_a_store_without_keys_says_so(tmp_path: Path) -> None:
    """Keys for a store whose rows have none, and rows without keys for one whose rows have them, are refused."""
    plain = write_store(tmp_path / "p.zarr", np.ones((5, 3)), ["a"] * 5).path
    with pytest.raises(UsageError, match="its rows have no keys"):
        remove_rows(plain, keys=[1])
    with pytest.raises(UsageError, match="rows have no keys there"), StoreWriter.append(plain) as writer:
        writer.write(np.ones((1, 3)), ["a"], keys=keys_of([1]))
    with pytest.raises(UsageError, match="every row has a key there"), create(tmp_path / "k.zarr") as writer:
        writer.write(np.ones((1, 3)), ["a"])
    assert not (tmp_path / "k.zarr").exists()


@pytest.mark.parametrize("count", [40, 64, 150, 500])
def test_a_key_that_is_there_twice(tmp_path: Path, small: None, count: int) -> None:
    """Within a batch, across batches and runs, and against the store: both places are told, and nothing changes."""
    path, keys = tmp_path / "s.zarr", [f"k{number}" for number in range(count)]
    for first, second in ((0, count - 1), (3, count // 2)):
        twice = [*keys[:second], keys[first], *keys[second + 1 :]]
        with pytest.raises(BadRow) as caught:
            write(create(path, chunk_rows=32), twice[: count // 2 + 1], twice[count // 2 + 1 :])
        here = second if second <= count // 2 else second - count // 2 - 1
        assert str(caught.value).startswith(
            f"given, row {here}, column 'order': found the key of given, row {first}, expected"
        )
        assert not path.exists()
    write(create(path, chunk_rows=32), keys)
    names = ("zarr.json", "log.jsonl", "columns.json")
    before, runs = [(path / name).read_bytes() for name in names], sorted((path / "keys").rglob("*"))
    with pytest.raises(BadRow, match=rf"given, row 1, column 'order': found the key of row {count // 3} of .*s.zarr"):
        write(StoreWriter.append(path), ["new", keys[count // 3], *(f"n{number}" for number in range(count))])
    assert [(path / name).read_bytes() for name in names] == before
    assert sorted((path / "keys").rglob("*")) == runs
    remove_rows(path, keys=[keys[7]])
    with pytest.raises(BadRow, match="a row that was taken out has its key until the store is compacted"):
        write(StoreWriter.append(path), [keys[7]])
    compact(path)
    write(StoreWriter.append(path), [keys[7]])
    assert found(Store.open(path), [keys[7]]) == [count - 1]
    assert check_store(path).whole


def test_a_refused_commit_is_refused_again(tmp_path: Path, small: None) -> None:
    """Who goes on after a key that is there twice does not commit it by and by."""
    writer = create(tmp_path / "s.zarr")
    put(writer, [1, 2, 1])
    for _ in range(2):
        with pytest.raises(BadRow, match="found the key of given, row 0"):
            writer.commit()
    writer.close()
    assert not (tmp_path / "s.zarr").exists()
    assert not list(tmp_path.iterdir())


def test_hashes_that_have_a_half_in_common(tmp_path: Path, small: None) -> None:
    """Keys whose hashes agree in the first 64 bits are told apart, across files of a run too."""
    high = np.repeat(np.array([3, 7, 9], np.uint64), [5, 40, 3])
    low = np.arange(48, dtype=np.uint64) * np.uint64(2)
    entries = Entries(high, low, np.arange(48))
    storage = LocalStorage(tmp_path)
    run = Run(storage, write_run(storage, "000000-0", entries))
    assert run.step == 16
    assert run.find(high, low).tolist() == list(range(48))
    assert (run.find(high, low + np.uint64(1)) == -1).all()
    assert (run.find(np.array([0, 5, 2**64 - 1], np.uint64), np.zeros(3, np.uint64)) == -1).all()
    assert [len(run.between(*bounds).row) for bounds in ((0, 2), (3, 3), (4, 8), (7, 2**64 - 1))] == [0, 5, 40, 43]
    assert [len(run.highs(*bounds)) for bounds in ((0, 2), (3, 3), (4, 8), (7, 2**64 - 1))] == [0, 5, 40, 43]
    assert [run.may_have(np.array([one], np.uint64)) for one in (0, 3, 5, 9, 10)] == [False, True, False, True, False]
    assert first_twice([run], []) is None
    assert first_twice([Entries(high[4:5], low[4:5], np.array([99]))], [run]) == (4, 99)


def test_a_look_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None) -> None:
    """A key costs one file of hashes in each run, and one more of two arrays in the run that has it."""
    monkeypatch.setattr("coremargin.data.key_runs._MERGE_ROWS", 0)
    path = tmp_path / "s.zarr"
    write(create(path), list(range(640)))
    read = list[tuple[str, int]]()

    def noting(storage: Any, array: str, start: int, stop: int, dtype: str) -> np.ndarray:
        read.append((array.rpartition("/")[2], stop - start))
        return read_raw_array(storage, array, start, stop, dtype)

    monkeypatch.setattr("coremargin.data.key_runs.read_raw_array", noting)
    assert found(Store.open(path), [555]) == [555]
    assert sorted(read) == [("first", 4)] * 10 + [("high", 16)] * 10 + [("low", 16), ("row", 16)]


def test_small_runs_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small appends leave few runs; what was merged goes when the next writer comes."""
    small_runs(monkeypatch.setattr, run=4096, merged=8, file_bytes=1024)
    path = tmp_path / "s.zarr"
    write(create(path), [0])
    for number in range(1, 60):
        write(StoreWriter.append(path), [number])
        assert len(runs_of(path)) <= 4
    named = {run["group"] for run in runs_of(path)}
    assert len(list((path / "keys").iterdir())) - 1 > len(named)
    remove_rows(path, [5])
    assert {one.name for one in (path / "keys").iterdir()} == {*named, "zarr.json"}
    assert found(Store.open(path), range(60)) == list(range(60))


def test_keys_stay_out_of_the_digest(store: Path, tmp_path: Path) -> None:
    """A store with keys has the content of one without; earlier commits have the keys of their rows."""
    keyed, plain = tmp_path / "k.zarr", tmp_path / "p.zarr"
    X, y = np.arange(30.0).reshape(10, 3), ["a", "b"] * 5
    with create(keyed, chunk_rows=4) as writer:
        writer.write(X, y, keys=keys_of(range(10)))
    with StoreWriter.create(plain, features=3, columns=columns(None), chunk_rows=4) as writer:
        writer.write(X, y)
    assert Store.open(keyed).digest == Store.open(plain).digest
    assert found(Store.open(store, commit=0), [1005]) == [order(store).index(1005)]
    assert b"key" not in (plain / "columns.json").read_bytes()


def damaged(path: Path) -> list[str]:
    """What check finds."""
    return [one.what for one in check_store(path).damaged]


@pytest.mark.parametrize("part", ["high", "low", "row", "first"])
@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "extra bytes"])
def test_damaged_keys_are_named(store: Path, part: str, fault: str) -> None:
    """Whatever becomes of a file of keys, check names its run, and who looks a key up there is told."""
    group = runs_of(store)[1]["group"]
    file = store / "keys" / group / part / "c.0"
    content = FAULTS[fault](file.read_bytes())
    file.unlink() if content is None else file.write_bytes(content)
    assert any(group in what for what in damaged(store))
    with pytest.raises(StoreError, match=f"keys/{group}"):
        found(Store.open(store), order(store))
    assert Store.open(store).rows == Rows(store).rows == 300


def test_keys_that_move_while_they_are_checked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers come while keys are checked, and the second takes away what the first has merged: no damage."""
    calls = list[int]()

    def index_then_writers(opened: Store) -> Any:
        index = index_of(opened)
        calls.append(len(runs_of(store)))
        if len(calls) == 1:
            write(StoreWriter.append(store), [f"n{number}" for number in range(20)])
            remove_rows(store, keys=["n3"])
        return index

    monkeypatch.setattr("coremargin.data.check.index_of", index_then_writers)
    assert check_store(store).whole
    assert len(calls) == 2


def rewritten(path: Path, number: int, change: Any) -> None:
    """Write a run again, in its place, with other content and fitting checksums."""
    group = runs_of(path)[number]["group"]
    entries = Run(LocalStorage(path), type("KeyRun", (), runs_of(path)[number])()).read()
    shutil.rmtree(path / "keys" / group)
    high, low, row = (values.copy() for values in entries)
    change(high, low, row)
    write_run(LocalStorage(path), group, Entries(high, low, row))


def swapped(high: np.ndarray, low: np.ndarray, row: np.ndarray) -> None:
    """Two keys out of order."""
    high[[3, 4]] = high[[4, 3]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swapped, "file 0 of its keys is not in order"),
        (lambda high, low, row: high.__setitem__(5, high[4]) or low.__setitem__(5, low[4]), "not in order"),
        (lambda high, low, row: row.__setitem__(5, row[4]), "found another key for row"),
        (lambda high, low, row: row.__setitem__(5, 250), "found another key for row 250"),
        (lambda high, low, row: row.__setitem__(5, 300), "expected rows from 0 to 299, found"),
        (lambda high, low, row: row.__setitem__(5, -1), "expected rows from 0 to 299, found"),
    ],
)
def test_runs_that_cannot_be_are_named(store: Path, change: Any, message: str) -> None:
    """Keys in another order than theirs, a row with two keys, and one that is not there."""
    rewritten(store, 1, change)
    assert message in damaged(store)[0]


def test_rows_that_share_a_key_are_named(store: Path) -> None:
    """One key in two runs, each of them sound by itself."""
    high, low, _ = Run(LocalStorage(store), type("KeyRun", (), runs_of(store)[0])()).read()

    def same(highs: np.ndarray, lows: np.ndarray, row: np.ndarray) -> None:
        at = int(np.searchsorted(highs, high[7]))
        highs[min(at, 63)], lows[min(at, 63)] = high[7], low[7]

    rewritten(store, 1, same)
    assert "expected a key of its own for each row" in damaged(store)[0]


@pytest.mark.parametrize(
    "forged",
    [
        lambda runs: runs[:-1],
        lambda runs: [*runs, runs[0]],
        lambda runs: [
            {**runs[0], "rows": runs[0]["rows"] - 1},
            *runs[1:-1],
            {**runs[-1], "rows": runs[-1]["rows"] + 1},
        ],
        lambda runs: [{"group": "000009-0", "rows": 300}],
        lambda runs: [],
        lambda runs: [{"group": "000000-0", "rows": 1 << 40}],
        lambda runs: None,
    ],
)
def test_forged_runs_are_refused_and_harmless(store: Path, forged: Any) -> None:
    """Who looks keys up, adds some or checks them sees it; what reads rows, and the verifier, does not need them."""
    runs = forged(runs_of(store))
    if runs is None:
        edit_json(store / "zarr.json", lambda root: root["attributes"].pop("keys"))
    else:
        edit_attributes(store, keys=runs)
    with pytest.raises((StoreError, OutputError)):
        remove_rows(store, keys=order(store))
    assert damaged(store)
    assert sum(len(chunk.codes) for chunk, _ in Rows(store).scan(lambda chunk: None)) == 300
    assert Store.open(store).rows == 300
    with pytest.raises(StoreError):
        write(StoreWriter.append(store), list(range(64)))
    assert Store.open(store).rows == 300


@pytest.mark.parametrize(
    "group", ["../X", "keys", "0-0", "000000-0/..", "000000", "000000-0\n", "", "/000000-0", "000000-000000000000"]
)
def test_groups_of_other_names_are_refused(store: Path, group: str) -> None:
    """A run lies in the folder of keys: no name leads out of it."""
    edit_attributes(store, keys=[{"group": group, "rows": 300}])
    with pytest.raises(StoreError, match="keys"):
        Store.open(store)


def test_records_of_columns_go_by_their_names() -> None:
    """A column of keys is beside the features, unless one of these is called so; records without are as ever."""
    assert columns().other_names == {"order", None}
    assert ColumnsRecord(columns=plain_columns(["order", "b"]), key="order", label="b").other_names == {None}
    assert "key" not in json.loads(columns(None).encoded())
    assert json.loads(columns().encoded())["key"] == "order"
