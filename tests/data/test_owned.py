"""What is ours: only folders that hold nothing else are replaced or removed, and nothing beyond them is touched."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.owned import STORE
from coremargin.data.store import Store
from coremargin.data.synth import Recipe, synth
from coremargin.data.writer import StoreWriter
from coremargin.errors import OutputError, UsageError

X = np.arange(600.0).reshape(200, 3)
Y = np.arange(200) % 2


def written(path: Path, *, overwrite: bool = False, sparse: bool = False, rows: int = 200) -> Path:
    """A store of several chunks, weights and two commits."""
    with StoreWriter.create(
        path, features=3, chunk_rows=64, overwrite=overwrite, sparse=sparse, weighted=True
    ) as writer:
        writer.write(X[:rows], Y[:rows], np.ones(rows))
        writer.commit()
        writer.write(X[:5], Y[:5], np.ones(5))
    return path


def precious(folder: Path) -> dict[str, Callable[[Path], object]]:
    """Ways to leave something of one's own in a folder, some of which lead to ``folder``."""
    return {
        "notes.txt": lambda path: path.write_text("mine"),
        ".hidden": lambda path: path.write_text("mine"),
        "X/notes.txt": lambda path: path.write_text("mine"),
        "blocks/000000/mine/zarr.json": lambda path: (path.parent.mkdir(), path.write_text("{}")),
        "deep/er": lambda path: path.mkdir(parents=True),
        "y/c.7": lambda path: path.symlink_to(folder / "kept"),
        "y/c.8": lambda path: path.mkdir(),
        "y/c.9": os.mkfifo,
        "linked": lambda path: path.symlink_to(folder),
        ".notes.aside": lambda path: path.write_text("mine"),
        "X/.zarr.json.aside": lambda path: path.symlink_to(folder / "kept"),
        "socket": listen,
    }


def listen(path: Path) -> None:
    """Leave a socket."""
    with socket.socket(socket.AF_UNIX) as ear:
        ear.bind(str(path))


@pytest.mark.parametrize("sparse", [False, True])
def test_every_file_of_a_store_is_its_own(tmp_path: Path, *, sparse: bool) -> None:
    """Nothing that a writer makes is taken for a stranger, in a store of its own and in one by another name."""
    path = written(tmp_path / "s.zarr", sparse=sparse)
    assert STORE.foreign_files(path) == []
    assert STORE.is_at(path)
    assert not STORE.is_at(path / "X")
    written(path, overwrite=True, sparse=not sparse)
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.zarr"]
    STORE.remove(path)
    assert not path.exists()


@pytest.mark.parametrize("stranger", list(precious(Path())))
def test_a_store_with_anything_else_in_it_is_not_overwritten(tmp_path: Path, stranger: str) -> None:
    """Whatever somebody left in a store keeps it from being replaced; the message names it, and nothing is lost."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine")
    path = written(tmp_path / "s.zarr")
    precious(outside)[stranger](path / stranger)
    with pytest.raises(UsageError, match=f"holds more: {stranger.removesuffix('/zarr.json').removesuffix('/er')}"):
        written(path, overwrite=True)
    with pytest.raises(UsageError, match="holds more"):
        synth(path, Recipe(10, 2), overwrite=True)
    assert os.path.lexists(path / stranger)
    assert Store.open(path).rows == 205
    assert (outside / "kept").read_text() == "mine"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["outside", "s.zarr"]


def test_removing_takes_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    """Whatever is there when a store is removed, and is not of a store, stays; no link is followed."""
    outside, ways = tmp_path / "outside", precious(tmp_path / "outside")
    outside.mkdir()
    (outside / "kept").write_text("mine")
    path = written(tmp_path / "s.zarr")
    (outside / "X").mkdir()
    (outside / "X" / "c.0.0").write_text("mine")
    (outside / "X" / "zarr.json").write_text("mine")
    shutil.rmtree(path / "X")
    (path / "X").symlink_to(outside / "X")
    for stranger, leave in ways.items():
        if not stranger.startswith("X/"):
            leave(path / stranger)
    STORE.remove(path)
    left = {entry.relative_to(path).as_posix() for entry in path.rglob("*") if not entry.is_dir() or entry.is_symlink()}
    assert left == {"X", *(stranger for stranger in ways if not stranger.startswith("X/"))} - {"deep/er", "y/c.8"}
    assert (path / "deep" / "er").is_dir()
    assert sorted(entry.name for entry in outside.rglob("*")) == ["X", "c.0.0", "kept", "zarr.json"]


def test_a_link_is_not_removed_in_place_of_what_it_leads_to(tmp_path: Path) -> None:
    """Removing or sweeping follows no link, not even the one that it was given."""
    path, link = written(tmp_path / "s.zarr"), tmp_path / "link"
    (path / ".zarr.json.aside").write_text("x")
    link.symlink_to(path)
    with pytest.raises(OSError, match="link"):
        STORE.remove(link)
    STORE.sweep(link)
    assert (path / ".zarr.json.aside").exists()
    assert Store.open(path).rows == 205


def test_what_comes_in_while_a_store_is_made_anew_is_noticed(tmp_path: Path) -> None:
    """A file that somebody puts into the old store meanwhile is found before the exchange, and the old store stays."""
    path = written(tmp_path / "s.zarr")
    writer = StoreWriter.create(path, features=3, overwrite=True)
    writer.write(X[:20], Y[:20])
    (path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds more: notes.txt"):
        writer.commit()
    writer.close()
    assert (path / "notes.txt").read_text() == "mine"
    assert Store.open(path).rows == 205
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.zarr"]


def test_a_store_is_overwritten_through_a_link(tmp_path: Path) -> None:
    """A link keeps leading to the store that is replaced, however often; nothing is left beside either."""
    real, link = written(tmp_path / "real.zarr"), tmp_path / "link.zarr"
    link.symlink_to("real.zarr")
    for rows in (10, 20, 30):
        written(link, overwrite=True, rows=rows)
        assert Store.open(real).rows == rows + 5
    assert link.is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link.zarr", "real.zarr"]


@pytest.mark.parametrize("harm", ["file", "link"])
def test_what_only_has_the_name_of_an_unfinished_store_stays(tmp_path: Path, harm: str) -> None:
    """The folder in which a store is built is cleared of what a killed writer left, and of nothing else."""
    outside, building = tmp_path / "outside", tmp_path / ".s.zarr.building"
    outside.mkdir()
    (outside / "zarr.json").write_text("mine")
    if harm == "link":
        building.symlink_to(outside)
    else:
        shutil.copytree(written(tmp_path / "left.zarr") / "X", building / "X")
        (building / "X" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="notes.txt; move that away|found a link; move it away"):
        written(tmp_path / "s.zarr")
    assert (outside / "zarr.json").read_text() == "mine"
    if harm == "file":
        (building / "X" / "notes.txt").unlink()
        written(tmp_path / "s.zarr")
        assert not building.exists()


def test_appending_sweeps_only_what_a_writer_left(tmp_path: Path) -> None:
    """Files that a killed writer left aside go when somebody appends; others by such names stay."""
    path = written(tmp_path / "s.zarr")
    ours = ["X/.c.3.0.aside", "y/.c.3.aside", ".zarr.json.aside", "blocks/.000002.aside"]
    theirs = [".notes.aside", "X/.notes.aside", "X/.c.3.txt.aside"]
    for name in (*ours[:-1], *theirs):
        (path / name).write_text("x")
    shutil.copytree(path / "blocks" / "000001", path / ours[-1])
    with StoreWriter.append(path) as writer:
        writer.write(X[:5], Y[:5], np.ones(5))
    assert [name for name in ours if (path / name).exists()] == []
    assert [name for name in theirs if (path / name).exists()] == theirs


def test_a_file_aside_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    """A link where a file is being written leads nobody's file to harm; a hard link's other name keeps its bytes."""
    path = written(tmp_path / "s.zarr")
    kept = tmp_path / "kept"
    kept.write_text("mine")
    os.link(kept, path / ".zarr.json.aside")
    with StoreWriter.append(path) as writer:
        writer.write(X[:5], Y[:5], np.ones(5))
    assert kept.read_text() == "mine"
    (path / ".zarr.json.aside").symlink_to(kept)
    with pytest.raises(OutputError, match="File exists"), StoreWriter.append(path) as writer:
        writer.write(X[:5], Y[:5], np.ones(5))
    assert kept.read_text() == "mine"
    assert Store.open(path).rows == 210


def test_names_are_all_that_counts_of_what_is_unfinished(tmp_path: Path) -> None:
    """Of a whole folder the record must say what it is; of an unfinished one, names are enough."""
    path = written(tmp_path / "s.zarr")
    (path / "zarr.json").write_text('{"attributes": {"format": "theirs"}}')
    assert STORE.foreign_files(path) == ["zarr.json of another format"]
    for text in ("", "[" * 100_000, "null", '{"attributes": []}', '{"attributes": {"format": ["coremargin-store"]}}'):
        (path / "zarr.json").write_text(text)
        assert STORE.foreign_files(path) == ["zarr.json of another format"]
    assert STORE.foreign_files(path, whole=False) == []
    (path / "zarr.json").unlink()
    assert STORE.foreign_files(path) == ["no zarr.json"]
    os.mkfifo(path / "zarr.json")
    assert not STORE.is_at(path)
    assert STORE.foreign_files(path) == ["zarr.json (no file)"]
    (tmp_path / "empty").mkdir()
    assert STORE.foreign_files(tmp_path / "empty") == []


def test_chunks_in_folders_are_a_store_too(make_store: Callable[..., Any], tmp_path: Path) -> None:
    """Where another writer put chunks into folders (c/0/0) they are the store's as well."""
    path = make_store(X, Y).path
    for chunk in list((path / "X").glob("c.*")):
        place = path / "X" / chunk.name.replace(".", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        chunk.rename(place)
    assert STORE.foreign_files(path) == []
    STORE.remove(path)
    assert not path.exists()
