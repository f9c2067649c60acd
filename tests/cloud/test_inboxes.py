"""Inboxes in buckets: each object is ingested once, known by its address and ETag; nothing there is moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from coremargin.data.object_inbox import take_in_objects
from coremargin.data.store import Store
from coremargin.data.store_paths import is_store
from coremargin.errors import ColumnsUnclear, DataError, RunError, StoreError
from coremargin.formats.location import Location, location
from coremargin.formats.object_storage import ObjectReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from cloud_kit import BucketServer


@pytest.fixture
def folder(server: BucketServer) -> Path:
    """The inbox as a folder."""
    found = server.root / "buck" / "inbox"
    found.mkdir()
    return found


def put(path: Path, rows: int = 10, start: int = 0, **columns: Any) -> None:
    """A table of numbers and labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [float(number) for number in range(start, start + rows)]
    table = pa.table({"a": values, "b": values[::-1], "label": [number % 2 for number in range(rows)], **columns})
    (pq.write_table if path.suffix == ".parquet" else pc.write_csv)(table, path)


def test_each_object_is_ingested_once(
    folder: Path, at: Callable[..., Location], server: BucketServer, tmp_path: Path
) -> None:
    """In the order of keys, also below folders; a replaced object is another one; no object is written or moved."""
    store, inbox = tmp_path / "rows.zarr", at("inbox/")
    put(folder / "2026/11/a.parquet")
    put(folder / "b.csv", start=10)
    put(folder / "_half.csv", start=20)
    (folder / "notes.txt").write_text("x")
    (folder / "other.npy").write_bytes(b"x")
    found = take_in_objects(inbox, store, {})
    assert list(found.rows.items()) == [
        ("s3://buck/inbox/2026/11/a.parquet", 10),
        ("s3://buck/inbox/b.csv", 10),
    ]
    assert list(found.left) == ["s3://buck/inbox/other.npy"]
    assert Store.open(store).rows == 20
    assert not take_in_objects(inbox, store, {})
    put(folder / "b.csv", start=30)  # another content, with another ETag
    put(folder / "c.parquet", rows=5)
    assert list(take_in_objects(inbox, store, {}).rows.values()) == [10, 5]
    marks = [mark for entry in Store.open(store).log for mark in entry.files or ()]
    assert [mark.name.rpartition("/")[2] for mark in marks] == ["a.parquet", "b.csv", "b.csv", "c.parquet"]
    assert marks[1].tag != marks[2].tag
    assert {method for method, _ in server.requests} == {"GET", "HEAD"}


def test_an_object_is_no_inbox(folder: Path, at: Callable[..., Location], tmp_path: Path) -> None:
    """It would be one without objects; a prefix without any is an empty inbox."""
    put(folder / "b.csv")
    for address in ("inbox/b.csv", "inbox/b.*"):
        with pytest.raises(DataError, match="s3://buck/inbox/b.csv: expected a prefix with objects below it"):
            take_in_objects(at(address), tmp_path / "rows.zarr", {})
    assert not take_in_objects(at("none"), tmp_path / "rows.zarr", {})


def test_objects_that_are_refused(folder: Path, at: Callable[..., Location], tmp_path: Path) -> None:
    """Stay where they are, with the reason, and the others are ingested; once replaced they come, too."""
    store, inbox = tmp_path / "rows.zarr", at("inbox")
    (folder / "a.csv").write_text("a,b,label\n1,2,0\n1,x,1\n")
    put(folder / "b.csv")
    put(folder / "empty.parquet", rows=0)
    found = take_in_objects(inbox, store, {})
    assert list(found.rows) == ["s3://buck/inbox/b.csv"]
    assert list(found.refused) == ["s3://buck/inbox/a.csv"]
    assert list(found.left) == ["s3://buck/inbox/empty.parquet"]
    assert list(take_in_objects(inbox, store, {}).refused) == ["s3://buck/inbox/a.csv"]
    put(folder / "a.csv", start=50)
    assert list(take_in_objects(inbox, store, {}).rows) == ["s3://buck/inbox/a.csv"]


def test_columns_that_need_a_decision(folder: Path, at: Callable[..., Location], tmp_path: Path) -> None:
    """Are reported where no object decides, and nothing is made."""
    put(folder / "a.csv", word=["x", "y"] * 5)
    with pytest.raises(ColumnsUnclear, match="word"):
        take_in_objects(at("inbox"), tmp_path / "rows.zarr", {})
    assert not (tmp_path / "rows.zarr").exists()
    assert take_in_objects(at("inbox"), tmp_path / "rows.zarr", {"categorical": "auto"}).rows


def test_an_object_that_changes_waits(
    folder: Path, at: Callable[..., Location], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the next run, which takes the new content."""
    put(folder / "a.csv", rows=40_000)
    fetch, calls = ObjectReader.fetch, list[str]()

    def meanwhile(self: ObjectReader, key: str, *arguments: Any, **more: Any) -> Any:
        calls.append(key)
        if len(calls) == 4:
            put(folder / "a.csv", rows=7)
        return fetch(self, key, *arguments, **more)

    monkeypatch.setattr(ObjectReader, "fetch", meanwhile)
    assert take_in_objects(at("inbox"), tmp_path / "rows.zarr", {}).waiting == ["s3://buck/inbox/a.csv"]
    assert take_in_objects(at("inbox"), tmp_path / "rows.zarr", {}).rows == {"s3://buck/inbox/a.csv": 7}


def test_services_that_refuse(server: BucketServer, at: Callable[..., Location], folder: Path, tmp_path: Path) -> None:
    """Are reported by name."""
    put(folder / "a.csv")
    with pytest.raises(StoreError, match="no such bucket"):
        take_in_objects(location("s3://nowhere/inbox", {"endpoint": server.endpoint}), tmp_path / "rows.zarr", {})
    server.hidden = True
    with pytest.raises(RunError, match="access denied"):
        take_in_objects(at("inbox"), tmp_path / "rows.zarr", {})


def test_the_nightly_job(run: Callable[..., Result], server: BucketServer, folder: Path, tmp_path: Path) -> None:
    """Takes objects in, trains, and finds nothing new the second time; folders of files are refused."""
    put(folder / "a.csv", rows=50)
    text = f"""job = "nightly"
store = "rows.zarr"
registry = "registry"

[ingest]
inbox = {{ address = "s3://buck/inbox", endpoint = "{server.endpoint}" }}

[train]
loss = "hinge"
"""
    (tmp_path / "nightly.toml").write_text(text)
    first = run("run", str(tmp_path / "nightly.toml"))
    assert first.exit_code == 0, first.output
    assert "50 rows from 1 file" in first.output
    assert is_store(tmp_path / "rows.zarr")
    assert "nothing new" in run("run", str(tmp_path / "nightly.toml")).output
    (tmp_path / "nightly.toml").write_text(text.replace("[train]", 'done = "done"\n\n[train]'))
    refused = run("run", str(tmp_path / "nightly.toml"))
    assert refused.exit_code == 2
    assert "objects of an inbox at an address are not moved" in refused.output
