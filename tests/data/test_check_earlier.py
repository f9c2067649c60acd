"""``check`` of a store whose labels were changed: what only earlier commits read has to be there, too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from coremargin.cli import main
from coremargin.data import readers as reader_module
from coremargin.data.amend import write_labels
from coremargin.data.check import check_store
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from store_kit import FAULTS, edit_json, write_store

ROWS = 300


@pytest.fixture
def history(tmp_path: Path, rng: np.random.Generator) -> tuple[Path, list[str]]:
    """A store in chunks of 64 and the digests of its commits: 300 rows; two changes in chunks 0 and 4; 21 more rows,
    which grow chunk 4 and begin chunk 5; a change in chunk 4.
    """  # fmt: skip
    path = write_store(tmp_path / "s.zarr", rng.normal(size=(ROWS, 4)).astype(np.float32), ["a"] * ROWS).path
    digests = [Store.open(path).digest]
    digests += [write_labels(path, ids, ["b", "c"]).digest for ids in ([0, 290], [1, 291])]
    with StoreWriter.append(path) as writer:
        writer.write(rng.normal(size=(21, 4)).astype(np.float32), ["a"] * 21)
    digests += [Store.open(path).digest, write_labels(path, [292], ["b"]).digest]
    return path, digests


def found(path: Path) -> list[tuple[int | None, str]]:
    """Chunk and text of all damage."""
    return [(damage.chunk, damage.what) for damage in check_store(path).damaged]


@pytest.mark.specimens(13)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("file", "chunk", "commit"),
    [
        ("y/c.0", 0, 0),
        ("y/c.4", 4, 0),
        ("changes/000001/y/c.0", 0, 1),
        ("changes/000001/y/c.4", 4, 1),
        ("changes/000002/y/c.4", 4, 3),
    ],
)
def test_labels_that_only_earlier_commits_have_are_read(
    history: tuple[Path, list[str]], file: str, chunk: int, commit: int, fault: str
) -> None:
    """A damaged file that the last commit no longer reads is named once, with the last commit that does; that one is
    damaged by itself, the last one is whole by itself.
    """  # fmt: skip
    path, digests = history
    assert check_store(path).whole
    data = FAULTS[fault]((path / file).read_bytes())
    (path / file).unlink() if data is None else (path / file).write_bytes(data)
    [(number, text)] = found(path)
    assert number == chunk
    assert f"as of the commit {digests[commit]} of {321 if commit > 2 else 300} rows: " in text
    assert file in text
    assert not check_store(path, digest=digests[commit]).whole
    assert check_store(path, digest=digests[-1]).whole


def test_every_label_file_is_read_once(history: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and labels of the last commit are read once, of earlier ones only the files of labels that are left."""
    path, _ = history
    reads: list[str] = []
    real = reader_module.ArrayReader.reread

    def counted(self: Any, chunk: int) -> Any:
        reads.append(self.layout.key(chunk))
        return real(self, chunk)

    monkeypatch.setattr(reader_module.ArrayReader, "reread", counted)
    assert check_store(path).whole
    every = {file.relative_to(path).as_posix() for file in path.rglob("c.*") if "blocks" not in file.parts}
    assert len(reads) == len(set(reads))
    assert set(reads) == every


def test_commits_that_cannot_be_opened_are_named(history: tuple[Path, list[str]]) -> None:
    """Where what a commit says of its changes is gone, that commit is named, and no other."""
    path, digests = history
    shutil.rmtree(path / "blocks" / "000001")
    assert found(path) == [(None, found(path)[0][1])]
    assert f"as of the commit {digests[1]} of 300 rows: " in found(path)[0][1]
    assert "blocks/000001" in found(path)[0][1]


def test_arrays_of_earlier_labels_describe_themselves(history: tuple[Path, list[str]]) -> None:
    """An array that zarr-python would read otherwise, or not at all, is damage; its chunks are read all the same."""
    path, digests = history
    array = path / "changes" / "000001" / "y"
    edit_json(array / "zarr.json", lambda values: values.update(shape=[299]))
    [(chunk, text)] = found(path)
    assert (chunk, f"as of the commit {digests[1]} of 300 rows: " in text, "got (299,)" in text) == (None, True, True)
    (array / "zarr.json").unlink()
    (array / "c.0").unlink()
    assert [chunk for chunk, _ in found(path)] == [None, 0]


def test_of_two_commits_with_one_digest_the_later_one_counts(tmp_path: Path, rng: np.random.Generator) -> None:
    """Labels that were set and set back: what only the first commit of a digest has may go, for nobody opens that one,
    but what a commit before it shares with it may not.
    """  # fmt: skip
    path = write_store(tmp_path / "s.zarr", rng.normal(size=(40, 4)).astype(np.float32), ["a", "b"] * 20).path
    first = Store.open(path).digest
    with StoreWriter.append(path) as writer:
        writer.write(rng.normal(size=(5, 4)).astype(np.float32), ["a"] * 5)
    write_labels(path, [0], ["b"])
    write_labels(path, [0], ["a"])
    assert check_store(path).whole
    labels = (path / "y" / "c.0").read_bytes()
    (path / "y" / "c.0").unlink()
    [(chunk, text)] = found(path)
    assert (chunk, first in text) == (0, True)
    (path / "y" / "c.0").write_bytes(labels)
    write_labels(path, [1], ["a"])
    write_labels(path, [1], ["b"])
    (path / "changes" / "000003" / "y" / "c.0").unlink()
    assert check_store(path).whole
    assert Store.open(path, digest=Store.open(path).log[1].commit.digest).commits == 6
    last = write_labels(path, [2], ["b"])
    shutil.rmtree(path / "blocks" / "000005")
    assert [digest in text for _, text in found(path) for digest in (last.digest, first)] == [False, False]
    assert len(found(path)) == 1


def test_the_command_says_which_commit_is_damaged(history: tuple[Path, list[str]]) -> None:
    """``check`` ends with exit code 3 and the commit's name; of the last commit alone it says that it is whole."""
    path, digests = history
    (path / "y" / "c.0").unlink()
    run = CliRunner().invoke
    result = run(main, ["check", str(path)])
    assert (result.exit_code, digests[0] in result.output, "1 of 6 chunks (0)" in result.output) == (3, True, True)
    assert run(main, ["check", str(path), "--commit", digests[-1]]).exit_code == 0


def test_bytes_that_were_read(history: tuple[Path, list[str]]) -> None:
    """All bytes of arrays are counted, those of earlier labels too, and none twice."""
    path, _ = history
    report = check_store(path)
    folders = [path / "X", path / "y", *(path / "changes").glob("*/y")]
    assert report.bytes_read == sum(file.stat().st_size for folder in folders for file in folder.rglob("*"))
