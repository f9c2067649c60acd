"""Groups of a store that changes: ingested from files, appended, removed, expired, compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from coremargin.data.amend import remove_rows, set_weights
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.expire import expire
from coremargin.data.group_parts import group_bounds, groups_of, row_groups
from coremargin.data.ingest import ingest
from coremargin.data.memory_storage import InMemoryStorage
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, DamagedChunk, StoreError, UsageError
from coremargin.verify.rows import Rows

if TYPE_CHECKING:
    from pathlib import Path

CSV = "query,x,y\nq1,1,0\nq1,2,1\nq2,3,0\n"


def ids_of(store: Store) -> list[str]:
    """The id of each row's group, by ``row_groups``."""
    return [name for chunk in range(store.chunks) for name in row_groups(store, chunk)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two commits of ten groups, 30 rows each, in chunks of 7."""
    path, rng = tmp_path / "g.zarr", np.random.default_rng(0)
    for commit in range(2):
        sizes = rng.multinomial(10, np.full(10, 0.1)) + 2
        ids = np.repeat([f"{commit}-{number}" for number in range(10)], sizes)
        options: dict[str, Any] = {"features": 2, "grouped": True, "chunk_rows": 7}
        with StoreWriter.append(path) if commit else StoreWriter.create(path, **options) as writer:
            writer.write(rng.normal(size=(len(ids), 2)), np.arange(len(ids)) % 2, groups=ids)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "svmlight", "array", "file"])
def test_groups_come_from_columns_qid_and_arrays(tmp_path: Path, kind: str) -> None:
    """The same groups, whatever they come from; an append finds the column."""
    path, source, group = tmp_path / "g.zarr", tmp_path / f"rows.{kind}", "query"
    more: Any = tmp_path / f"more.{kind}"
    options: dict[str, Any] = {}
    for file, text in ((source, CSV), (more, CSV.replace("q", "p").replace("puery", "query"))):
        if kind == "csv":
            file.write_text(text)
        elif kind == "parquet":
            columns = zip(*(line.split(",") for line in text.split()[1:]), strict=True)
            names, x, y = (list(column) for column in columns)
            pq.write_table(pa.table({"query": names, "x": list(map(float, x)), "y": list(map(int, y))}), file)
        elif kind == "svmlight":
            lines = [line.split(",") for line in text.split()[1:]]
            numbers = {"q1": 1, "q2": 2, "p1": 3, "p2": 4}
            file.write_text("".join(f"{y} qid:{numbers[name]} 1:{x} # qid:9\n" for name, x, y in lines))
            group = "qid"
    if kind in ("array", "file"):
        X, options = np.array([[1.0], [2.0], [3.0]]), {"labels": [0, 1, 0]}
        given: Any = ["q1", "q1", "q2"]
        if kind == "file":
            given = tmp_path / "groups.txt"
            given.write_text("q1\nq1\nq2\n")
        report = ingest(X, path, group=given, **options)
        with pytest.raises(UsageError, match="its rows are in groups: say --group"):
            ingest(X, path, append=True, **options)
        ingest(X, path, append=True, group=["p1", "p1", "p2"], **options)
    else:
        report = ingest(source, path, group=group)
        ingest(more, path, append=True)
    names = {"svmlight": ["1", "1", "2", "3", "3", "4"]}.get(kind, ["q1", "q1", "q2", "p1", "p1", "p2"])
    assert report.group_from is not None
    opened = Store.open(path)
    assert ids_of(opened) == names
    assert opened.features == 1
    assert opened.read(0)[0][:, 0].tolist() == [1.0, 2.0, 3.0] * 2
    assert check_store(path).whole


@pytest.mark.parametrize(
    ("name", "text", "group", "message"),
    [
        (
            "a.csv",
            "q,x,y\n1,1,0\n2,2,1\n1,3,0\n",
            "q",
            r"a.csv, line 4: found a group again, which began at .*a.csv, line 2",
        ),
        ("a.csv", "q,x,y\n1,1,0\n,2,1\n", "q", r"a.csv, line 3: found no group"),
        ("a.svm", "1 qid:1 1:1\n0 1:2\n", "qid", r"a.svm, line 2: found no query id"),
        ("a.svm", "1 qid:1 qid:2 1:1\n", "qid", r"a.svm, line 1: found two query ids"),
        ("a.svm", "1 qid:1 1:1\n", "query", r"--group query: expected qid"),
    ],
)
def test_bad_groups_are_refused_by_file_and_line(
    tmp_path: Path, name: str, text: str, group: str, message: str
) -> None:
    """Nothing is written."""
    (tmp_path / name).write_text(text)
    with pytest.raises((BadRow, UsageError), match=message):
        ingest(tmp_path / name, tmp_path / "g.zarr", group=group)
    assert not (tmp_path / "g.zarr").exists()


@pytest.mark.parametrize("dtype", ["category", "Int64", "string", "str"])
def test_groups_of_data_frames(tmp_path: Path, dtype: str) -> None:
    """Categories, whole numbers that may be missing, texts."""
    frame = pd.DataFrame({"q": [1, 1, 2], "x": [1.0, 2.0, 3.0], "y": [0, 1, 0]}).astype({"q": dtype})
    ingest(frame, tmp_path / "g.zarr", label="y", group="q")
    store = Store.open(tmp_path / "g.zarr")
    assert ids_of(store) == ["1", "1", "2"]
    assert store.features == 1
    if dtype != "str":
        frame.loc[1, "q"] = None
        with pytest.raises(BadRow, match="row 1: found no group"):
            ingest(frame, tmp_path / "g.zarr", label="y", group="q", overwrite=True)


def test_only_is_refused(tmp_path: Path) -> None:
    """It would keep parts of groups."""
    (tmp_path / "a.csv").write_text(CSV)
    with pytest.raises(UsageError, match="--only cannot be combined with groups"):
        ingest(tmp_path / "a.csv", tmp_path / "g.zarr", group="query", only=[0])


def test_bounds_of_groups_by_any_of_their_rows(store: Path) -> None:
    """In the chunk of the row, and in the one before."""
    opened = Store.open(store)
    names = np.array(ids_of(opened))
    for row in range(opened.rows):
        starts, ends = group_bounds(opened, np.array([row]))
        assert (starts.tolist(), ends.tolist()) == (
            [int(np.argmax(names == names[row]))],
            [int(np.flatnonzero(names == names[row])[-1]) + 1],
        )
    starts, _ = group_bounds(opened, np.arange(opened.rows))
    assert len(starts) == groups_of(opened).counts.sum() == 20


def test_whole_groups_are_removed_and_weighed(store: Path) -> None:
    """Parts are refused, and change nothing."""
    names = np.array(ids_of(Store.open(store)))
    rows = np.flatnonzero(names == "0-3")
    digest = Store.open(store).digest
    with pytest.raises(UsageError, match=rf"group '0-3' has the rows {rows[0]} to {rows[-1]}, expected one weight"):
        remove_rows(store, rows[1:])
    with pytest.raises(UsageError, match="expected one weight for all of them"):
        set_weights(store, rows, np.arange(len(rows)) + 1.0)
    with pytest.raises(UsageError, match="found no group 'x'"):
        remove_rows(store, groups=["x"])
    with pytest.raises(UsageError, match="expected each group once, found '0-3' twice"):
        remove_rows(store, groups=["0-3", "0-3"])
    assert Store.open(store).digest == digest
    remove_rows(store, groups=["0-3", "1-9"])
    set_weights(store, np.flatnonzero(names == "1-1"), np.full(np.count_nonzero(names == "1-1"), 2.0))
    opened = Store.open(store)
    weights = np.concatenate([opened.weights(chunk) for chunk in range(opened.chunks)])
    assert np.array_equal(weights, np.where(np.isin(names, ["0-3", "1-9"]), 0.0, np.where(names == "1-1", 2.0, 1.0)))
    assert check_store(store).whole


def test_expired_and_compacted_stores_keep_whole_groups(store: Path) -> None:
    """The ids of those that are gone may come again."""
    opened = Store.open(store)
    names, X = ids_of(opened), np.concatenate([opened.read(chunk)[0] for chunk in range(opened.chunks)])
    first = opened.log[0].time
    del opened  # who reads a store keeps it where it is
    remove_rows(store, groups=["1-4"])
    assert expire(store, 1.0, now=first + 1.0 + 1e-4, force=True).removed >= names.index("1-0")
    compact(store)
    opened = Store.open(store)
    left = [at for at, name in enumerate(names) if name in set(ids_of(opened))]
    assert ids_of(opened) == [names[at] for at in left]
    assert "1-4" not in ids_of(opened)
    assert np.array_equal(np.concatenate([opened.read(chunk)[0] for chunk in range(opened.chunks)]), X[left])
    with StoreWriter.append(store) as writer:
        writer.write(np.eye(2), [0, 1], groups=["1-4", "0-0"])
    assert ids_of(Store.open(store))[-2:] == ["1-4", "0-0"]
    assert check_store(store).whole
    reader = Rows(store, compute_sha256=True)
    assert len(list(reader.scan(lambda chunk: None))) == Store.open(store).chunks


def test_groups_at_an_address_are_as_on_disk(store: Path) -> None:
    """Written, appended, removed, compacted and checked by the same code."""
    opened, address = Store.open(store), "memory://groups-at-an-address"
    try:
        for commit, first in enumerate((0, opened.log[0].commit.rows)):
            options: dict[str, Any] = {"features": 2, "grouped": True, "chunk_rows": 7}
            with StoreWriter.append(address) if commit else StoreWriter.create(address, **options) as writer:
                rows = np.arange(first, opened.log[commit].commit.rows)
                labels = [opened.classes[code] for code in opened.rows_at(rows)[1]]
                writer.write(opened.rows_at(rows)[0], labels, groups=np.array(ids_of(opened))[rows])
        assert Store.open(address).digest == opened.digest
        assert Store.open(address).sha256 == opened.sha256
        remove_rows(address, groups=["0-0"])
        compact(address)
        assert ids_of(Store.open(address)) == [name for name in ids_of(opened) if name != "0-0"]
        assert check_store(address).whole
    finally:
        InMemoryStorage._known.clear()


@pytest.mark.parametrize("name", ["groups/c.0", "group_ids/c.0", "group_keys/000001-0/row/c.0"])
def test_check_finds_damage_to_groups(store: Path, name: str) -> None:
    """In what is used, and in the padding of files."""
    file = store / name
    data = bytearray(file.read_bytes())
    for at in (0, len(data) - 9):
        changed = data.copy()
        changed[at] ^= 1
        file.write_bytes(changed)
        assert any(name.split("/", maxsplit=1)[0] in damage.what for damage in check_store(store).damaged)
    file.write_bytes(data)
    assert check_store(store).whole


def test_forged_groups_are_refused(store: Path) -> None:
    """Groups with checksums of their own: the commit has others."""
    group = zarr.open_group(store, mode="r+")
    starts = group["groups"][:]
    at = int(np.flatnonzero(np.diff(starts) > 1)[0]) + 1
    group["groups"][at] = starts[at] - 1
    chunk = int(starts[at]) // 7
    opened = Store.open(store)
    with pytest.raises(DamagedChunk, match="groups were altered"):
        groups_of(opened).offsets(chunk)
    marks = group["blocks/000001/group_marks"]
    own = group["groups"][:-1][(starts[:-1] // 7) == chunk]
    marks[chunk, 0] = crc32c.crc32c(own.tobytes())
    with pytest.raises(StoreError, match="the metadata was altered"):
        groups_of(Store.open(store))
    with pytest.raises((DamagedChunk, StoreError), match="altered|not what was ingested"):
        list(Rows(store).scan(lambda chunk: None))
