"""Files of an inbox: each is taken in once, a bad one whole or not at all, and what came when stands in the log."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from coremargin.data import inbox as room
from coremargin.data.compact import compact
from coremargin.data.inbox import Inbox, take_in
from coremargin.data.reweigh import remove_rows
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, ColumnsUnclear, DataError, StoreError, UsageError
from night_kit import expected, put, taken

WORDS = {"label": "paid"}


@pytest.fixture
def box(tmp_path: Path) -> Inbox:
    """An inbox with two files."""
    (tmp_path / "inbox").mkdir()
    put(tmp_path, "day1.csv", 20, 1)
    put(tmp_path, "day2.csv", 30, 2)
    return Inbox(tmp_path / "inbox", tmp_path / "inbox" / "done", tmp_path / "inbox" / "quarantine", 5.0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the rows go."""
    return tmp_path / "rows.zarr"


def names(folder: Path) -> list[str]:
    """Of the files in a folder."""
    return sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.exists() else []


def test_two_days_at_once(box: Inbox, store: Path, tmp_path: Path) -> None:
    """Each file is a commit with its name, size and hash; then it is in the folder of those that are done."""
    assert take_in(box, store, WORDS).rows == {"day1.csv": 20, "day2.csv": 30}
    assert taken(tmp_path) == expected((20, 1), (30, 2))
    log = Store.open(store).log
    assert [entry.note for entry in log] == ["day1.csv", "day2.csv"]
    marks = [mark for entry in log for mark in entry.files or ()]
    assert [(mark.name, mark.nbytes) for mark in marks] == [
        (name, (box.done / name).stat().st_size) for name in ("day1.csv", "day2.csv")
    ]
    assert (names(box.path), names(box.done)) == ([], ["day1.csv", "day2.csv"])
    assert not take_in(box, store, WORDS)


def test_yesterdays_file_again(box: Inbox, store: Path, tmp_path: Path) -> None:
    """It is known by its content, whatever it is called, also after the store was compacted and its rows are gone."""
    take_in(box, store, WORDS)
    shutil.copy(box.done / "day1.csv", box.path / "day3.csv")
    os.utime(box.path / "day3.csv", (1e9, 1e9))
    found = take_in(box, store, WORDS)
    assert (found.rows, found.known) == ({}, {"day3.csv": 0})
    assert Store.open(store).rows == 50
    for rows in (range(20), range(2)):  # all of the first file; then some of the second
        remove_rows(store, list(rows))
        compact(store)
        shutil.copy(box.done / "day1.csv", box.path / "day1.csv")
        os.utime(box.path / "day1.csv", (1e9, 1e9))
        assert take_in(box, store, WORDS).known == {"day1.csv": 0}
    assert taken(tmp_path) == expected((30, 2))[2:]


def test_one_that_was_committed_but_not_moved(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed right after the commit leaves a file that the next run knows."""
    with monkeypatch.context() as patched:
        patched.setattr(room, "_move", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            take_in(box, store, WORDS)
    assert "day1.csv" in names(box.path)
    found = take_in(box, store, WORDS)
    assert (found.known, found.rows) == ({"day1.csv": 0}, {"day2.csv": 30})
    assert taken(tmp_path) == expected((20, 1), (30, 2))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x,z,from,paid\n1,2,3,yes\n1,2,oops,no\n", "line 3, column 'from': found 'oops', expected a number"),
        ("x,z,from,paid\n1,2,3,perhaps\n", "found the label 'perhaps', which no row of the store has"),
        ("x,from,paid\n1,2,yes\n", "'z' is missing"),
        ("x,z,from\n1,2,3\n", "no column named 'paid'"),
        ("", "the file is empty"),
        ("x,z,from,paid\n1,2,3,yes\n1,2\n", "line 3"),
        ("x,z,from,paid\n1,nan,3,yes\n", "found no value"),
    ],
)
def test_a_bad_file_is_put_aside_whole(box: Inbox, store: Path, tmp_path: Path, content: str, words: str) -> None:
    """None of its rows are taken in, the reason lies beside it, and the files after it are taken in."""
    take_in(box, store, WORDS)
    bad = box.path / "bad.csv"
    bad.write_text(content)
    os.utime(bad, (1e9, 1e9))
    put(tmp_path, "day3.csv", 10, 3)
    found = take_in(box, store, WORDS)
    assert list(found.refused) == ["bad.csv"]
    assert words in found.refused["bad.csv"]
    assert found.rows == {"day3.csv": 10}
    assert (box.quarantine / "bad.csv").read_text() == content
    assert words in (box.quarantine / "bad.csv.why.txt").read_text()
    assert taken(tmp_path) == expected((20, 1), (30, 2), (10, 3))
    bad.write_text(content + "1,2\n")  # the next day, under the same name
    os.utime(bad, (1e9, 1e9))
    take_in(box, store, WORDS)
    assert len(names(box.quarantine)) == 4


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("seam", ["_known", "_ingest"])
def test_another_job_takes_the_same_files(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seam: str, *, moved: bool
) -> None:
    """Whoever comes second takes in no row again, makes no store again, and puts nothing into quarantine."""
    real, others = getattr(room, seam), list[room.Taken]()

    def meanwhile(*words: Any, **more: Any) -> Any:
        """The other job does all there is to do, or is about to move its files."""
        known = real(*words) if seam == "_known" else None
        with monkeypatch.context() as patched:
            patched.setattr(room, seam, real)
            if not moved:
                patched.setattr(room, "_move", lambda *_: None)
            others.append(take_in(box, store, WORDS))
        monkeypatch.setattr(room, seam, real)
        return real(*words, **more) if known is None else known

    monkeypatch.setattr(room, seam, meanwhile)
    found = take_in(box, store, WORDS)
    assert others[0].rows == {"day1.csv": 20, "day2.csv": 30}
    assert (found.rows, found.refused) == ({}, {})
    assert found.known == ({} if moved else {"day1.csv": 0, "day2.csv": 1})
    assert taken(tmp_path) == expected((20, 1), (30, 2))
    assert (names(box.path), names(box.quarantine)) == ([], [])


def test_files_that_cannot_be_read_or_moved_as_others(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without permission is put aside, one with the longest name too; other file systems are copied to."""
    real, rename = room._hash, os.rename

    def refused(path: Path) -> str:
        if path.name == "day1.csv":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    def elsewhere(old: Path, new: Path) -> None:
        if Path(old).parent == box.path:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(old, new)

    monkeypatch.setattr(room, "_hash", refused)
    monkeypatch.setattr(os, "rename", elsewhere)
    for letter in "ab":
        put(tmp_path, f"{letter * 251}.csv", 1, 3).write_text(f"x,z,from,paid\n1,2,nan,{letter}\n")
        os.utime(box.path / f"{letter * 251}.csv", (1e9, 1e9))
    content = (box.path / "day2.csv").read_bytes()
    found = take_in(box, store, WORDS)
    assert found.rows == {"day2.csv": 30}
    assert found.refused["day1.csv"].endswith("cannot be read: Permission denied")
    assert (names(box.path), names(box.done)) == ([], ["day2.csv"])
    assert (box.done / "day2.csv").read_bytes() == content
    assert len(names(box.quarantine)) == 6


def test_keys_that_are_there_or_missing(tmp_path: Path, store: Path) -> None:
    """A file with a key that another row has, or without one, is put aside whole, with both places named."""
    box = Inbox(tmp_path / "in", tmp_path / "done", tmp_path / "bad")
    box.path.mkdir()
    for name, lines in (
        ("a", "1,2,yes\n2,3,no\n"),
        ("b", "3,4,yes\n1,5,no\n"),
        ("c", "4,4,yes\n,5,no\n"),
        ("d", "5,6,no\n"),
    ):
        (box.path / f"{name}.csv").write_text(f"order,x,paid\n{lines}")
        os.utime(box.path / f"{name}.csv", (1e9, 1e9))
    found = take_in(box, store, {"label": "paid", "key": "order"})
    assert found.rows == {"a.csv": 2, "d.csv": 1}
    assert "found the key of" in found.refused["b.csv"]
    assert "found no key" in found.refused["c.csv"]


def test_files_that_are_not_whole_yet_wait(box: Inbox, store: Path) -> None:
    """Names of parts, hidden names, other kinds of files and folders are left; so is what changed a moment ago."""
    for name in (".day4.csv", "_day4.csv", "day4.csv.part", "day4.csv.tmp", "notes.txt"):
        shutil.copy(box.path / "day1.csv", box.path / name)
        os.utime(box.path / name, (1e9, 1e9))
    (box.path / "folder.csv").mkdir()
    shutil.copy(box.path / "day1.csv", box.path / "new.csv")
    found = take_in(box, store, WORDS)
    assert (list(found.rows), found.waiting) == (["day1.csv", "day2.csv"], ["new.csv"])
    assert Store.open(store).rows == 50
    assert len(names(box.path)) == 6


def test_a_file_that_changes_while_it_is_read(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is committed; it is taken in when it is whole."""
    real = room.taken_before

    def grows(*words: Any) -> Any:
        with (box.path / "day2.csv").open("a") as file:
            file.write("0,0,9,yes\n")
        return real(*words)

    take_in(box, store, WORDS)
    put(tmp_path, "day2.csv", 30, 3)
    monkeypatch.setattr(room, "_hash", lambda path: (grows(()), "0" * 64)[1])
    assert take_in(box, store, WORDS).waiting == ["day2.csv"]
    assert taken(tmp_path) == expected((20, 1), (30, 2))
    monkeypatch.undo()
    put(tmp_path, "day2.csv", 30, 3)
    assert take_in(box, store, WORDS).rows == {"day2.csv": 30}


def test_a_clock_that_is_wrong(box: Inbox, store: Path) -> None:
    """A file whose time is yet to come is taken in: it does not wait for that time."""
    os.utime(box.path / "day1.csv", (time.time() + 1e6, time.time() + 1e6))
    assert list(take_in(box, store, WORDS).rows) == ["day1.csv", "day2.csv"]


def test_a_day_without_rows(box: Inbox, store: Path) -> None:
    """A header alone is no fault: it is done."""
    (box.path / "day0.csv").write_text("x,z,from,paid\n")
    os.utime(box.path / "day0.csv", (1e9, 1e9))
    assert take_in(box, store, WORDS).rows == {"day0.csv": 0, "day1.csv": 20, "day2.csv": 30}
    assert names(box.done) == ["day0.csv", "day1.csv", "day2.csv"]


def test_words_that_go_with_no_file_are_an_error(box: Inbox, store: Path) -> None:
    """No file is put aside where the job is wrong; one that is alone in being wrong is."""
    with pytest.raises(UsageError, match="no column named 'pay'"):
        take_in(box, store, {"label": "pay"})
    (box.path / "a.csv").write_text("x,z,from,paid\n1,2,word,yes\n")
    os.utime(box.path / "a.csv", (1e9, 1e9))
    assert len(names(box.path)) == 3
    found = take_in(box, store, WORDS)
    assert (list(found.rows), list(found.refused)) == (["day1.csv", "day2.csv"], ["a.csv"])


def test_columns_that_need_a_word_are_an_error(tmp_path: Path, store: Path) -> None:
    """As long as no file is understood, nothing moves."""
    box = Inbox(tmp_path / "in", tmp_path / "done", tmp_path / "bad")
    box.path.mkdir()
    (box.path / "a.csv").write_text("x,word,paid\n1,blue,yes\n2,green,no\n")
    os.utime(box.path / "a.csv", (1e9, 1e9))
    with pytest.raises(ColumnsUnclear, match="word"):
        take_in(box, store, WORDS)
    assert (names(box.path), names(box.quarantine)) == (["a.csv"], [])
    assert take_in(box, store, {**WORDS, "categorical": "word"}).rows == {"a.csv": 2}


def test_what_is_wrong_with_the_store_is_no_fault_of_a_file(box: Inbox, store: Path, tmp_path: Path) -> None:
    """A store that is damaged, one that somebody writes to, an inbox that is not there: nothing moves."""
    take_in(box, store, WORDS)
    put(tmp_path, "day3.csv", 5, 3)
    other = StoreWriter.append(store)
    with pytest.raises(Busy):
        take_in(box, store, WORDS)
    other.close()
    root = (store / "zarr.json").read_text()
    (store / "zarr.json").write_text(root.replace('"rows": 50', '"rows": 51'))
    with pytest.raises(StoreError):
        take_in(box, store, WORDS)
    (store / "zarr.json").write_text(root)
    with pytest.raises(DataError, match="expected a folder of files to take in"):
        take_in(Inbox(tmp_path / "none", box.done, box.quarantine), store, WORDS)
    assert names(box.path) == ["day3.csv"]
    assert take_in(box, store, WORDS).rows == {"day3.csv": 5}
