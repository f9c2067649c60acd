"""Files of an inbox: each is taken in once, a bad one whole or not at all, and what came when stands in the log."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import time
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from changes_kit import before_changes
from coremargin.data import inbox as room
from coremargin.data.amend import remove_rows
from coremargin.data.compact import compact
from coremargin.data.files import rename_new
from coremargin.data.inbox import Inbox, take_in
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, ColumnsUnclear, DataError, Running, StoreError, UsageError
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
    """Whoever is killed right after the commit leaves a claimed file that the next run knows."""
    with monkeypatch.context() as patched:
        patched.setattr(room, "_move", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            take_in(box, store, WORDS)
    assert names(box.path) == ["day2.csv"]
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


def test_a_second_run_leaves_the_inbox_alone(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one run reads the files of an inbox, another ends with Running, and the first one goes on undisturbed."""
    real = room._hash

    def meanwhile(path: Path) -> str:
        with pytest.raises(Running, match="another run is ingesting its files"):
            take_in(box, store, WORDS)
        return real(path)

    monkeypatch.setattr(room, "_hash", meanwhile)
    assert take_in(box, store, WORDS).rows == {"day1.csv": 20, "day2.csv": 30}
    assert taken(tmp_path) == expected((20, 1), (30, 2))
    assert sorted(path.name for path in box.path.iterdir()) == ["done"]


def test_the_same_rows_from_another_inbox(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content that another job commits meanwhile is known, even if that job makes the store."""
    other = Inbox(tmp_path / "other", box.done, box.quarantine, 5.0)
    shutil.copytree(box.path, other.path)
    real = room._ingested_hashes

    def meanwhile(path: Path) -> dict[str, int]:
        known = real(path)
        monkeypatch.setattr(room, "_ingested_hashes", real)
        take_in(other, store, WORDS)
        return known

    monkeypatch.setattr(room, "_ingested_hashes", meanwhile)
    found = take_in(box, store, WORDS)
    assert (found.rows, found.known, found.refused) == ({}, {"day1.csv": 0, "day2.csv": 1}, {})
    assert taken(tmp_path) == expected((20, 1), (30, 2))
    assert len(names(box.done)) == 4


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_replaced_file_is_ingested_at_every_moment(tmp_path: Path, stride: int) -> None:
    """A producer that puts another file in the place of one, before any change on disk, loses none of its rows."""
    number, replaced, claimed = 1, True, True
    while replaced:
        folder = tmp_path / str(number)
        box, store = Inbox(folder / "inbox", folder / "done", folder / "bad", 5.0), folder / "rows.zarr"
        box.path.mkdir(parents=True)
        old, new = put(folder, "day.csv", 4, 1), put(folder, "new.csv", 5, 2, inbox=False)
        replaced, claimed = False, True

        def produce(change: int, *, old: Path = old, new: Path = new, when: int = number) -> None:
            nonlocal replaced, claimed
            if change == when:
                claimed, replaced = not old.exists(), True
                os.replace(new, old)

        with before_changes(produce):
            take_in(box, store, WORDS)
        take_in(box, store, WORDS)
        files = [(4, 1)] * claimed + [(5, 2)] * replaced
        assert taken(folder) == expected(*files), number
        assert len(names(box.done)) == len(files), number
        assert (names(box.path), names(box.quarantine)) == ([], [])
        number += stride
    assert number > 50


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_file_that_grows_is_never_half_ingested(tmp_path: Path, stride: int) -> None:
    """Lines added in place before the commit are ingested with the others; after it, the file is in quarantine."""
    number, grown, ends = 1, True, set[str]()
    while grown:
        folder = tmp_path / str(number)
        box, store = Inbox(folder / "inbox", folder / "done", folder / "bad", 5.0), folder / "rows.zarr"
        box.path.mkdir(parents=True)
        grown = False
        with put(folder, "day.csv", 4, 1).open("a") as writer:

            def produce(change: int, *, when: int = number, writer: TextIO = writer) -> None:
                nonlocal grown
                if change == when:
                    writer.write("9,9,9000,yes\n")
                    writer.flush()
                    os.utime(writer.fileno(), (1e9, 1e9))
                    grown = True

            with before_changes(produce):
                first = take_in(box, store, WORDS)
        again = take_in(box, store, WORDS)
        rows = taken(folder)
        if names(box.quarantine):
            ends.add("refused")
            assert "was written to after commit 0" in {**first.refused, **again.refused}["day.csv"]
            assert rows == expected((4, 1))
        elif grown and len(rows) == 4:  # it was done by then
            assert (box.done / "day.csv").read_text().endswith("9,9,9000,yes\n")
        else:
            ends.add("whole")
            assert rows == [*expected((4, 1)), *[9000] * grown], number
        number += stride
    assert ends == {"refused", "whole"}


def test_a_claimed_file_that_changed_after_its_commit(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run after a kill puts it into quarantine: which of its rows are new, it cannot know."""
    with monkeypatch.context() as patched:
        patched.setattr(room, "_move", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            take_in(box, store, WORDS)
    (claimed,) = (box.path / room.CLAIMED).rglob("day1.csv")
    with claimed.open("a") as file:
        file.write("0,0,9,yes\n")
    os.utime(claimed, (1e9, 1e9))
    found = take_in(box, store, WORDS)
    assert "was written to after commit 0" in found.refused["day1.csv"]
    assert taken(tmp_path) == expected((20, 1), (30, 2))


def test_two_files_of_one_name_in_one_run(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a killed run has claimed comes first; both are ingested, counted and kept."""
    with monkeypatch.context() as patched:
        patched.setattr(room, "_hash", lambda _: os._exit(9))
        child = os.fork()
        if child == 0:
            take_in(box, store, WORDS)
        os.waitpid(child, 0)
    assert not (box.path / "day1.csv").exists()
    put(tmp_path, "day1.csv", 7, 3)
    found = take_in(box, store, WORDS)
    assert found.rows == {"day1.csv": 20, "day1.csv (2)": 7, "day2.csv": 30}
    assert taken(tmp_path) == expected((20, 1), (7, 3), (30, 2))
    assert len(names(box.done)) == 3
    assert not (box.path / room.CLAIMED).exists()


def test_names_that_are_taken_where_files_go(box: Inbox, store: Path, tmp_path: Path) -> None:
    """No file in done or quarantine is ever replaced, however often a name or a content comes again."""
    for number in range(4):
        put(tmp_path, "day.csv", 3, number + 10)
        put(tmp_path, "same.csv", 3, 5)
        bad = put(tmp_path, "bad.csv", 1, 1)
        bad.write_text("x,z,from,paid\n1,2,nan,yes\n")
        os.utime(bad, (1e9, 1e9))
        take_in(box, store, WORDS)
    assert len(names(box.done)) == 2 + 4 + 4
    assert len(names(box.quarantine)) == 8
    assert taken(tmp_path) == expected((20, 1), (30, 2), (3, 5), *((3, number + 10) for number in range(4)))


def test_odd_entries_are_in_nobodys_way(box: Inbox, store: Path, tmp_path: Path) -> None:
    """Circles of links, links to nothing and through files, pipes and sockets go to quarantine; good files are read."""
    odd = {"loop.csv": "loop.csv", "gone.csv": "nowhere", "through.csv": "day1.csv/x.csv", "long.csv": "x" * 300}
    for name, target in odd.items():
        (box.path / name).symlink_to(target)
        os.utime(box.path / name, (1e9, 1e9), follow_symlinks=False)
    os.mkfifo(box.path / "pipe.csv")
    os.utime(box.path / "pipe.csv", (1e9, 1e9))
    with socket.socket(socket.AF_UNIX) as listening:
        at = os.open(box.path, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{at}/socket.csv")
        os.close(at)
    os.utime(box.path / "socket.csv", (1e9, 1e9))
    for name in ("folder.parquet", "rows.zarr"):
        (box.path / name).mkdir()
    others = ["X.npy", "book.xlsx", "lines.JSONL", "rows.csv.zip", "rows.csv.zst"]
    for name in others:
        (box.path / name).touch()
    found = take_in(box, store, WORDS)
    assert found.rows == {"day1.csv": 20, "day2.csv": 30}
    assert sorted(found.refused) == sorted([*odd, "pipe.csv", "socket.csv"])
    assert sorted(found.left) == sorted([*others, "folder.parquet", "rows.zarr"])
    assert len([path for path in box.quarantine.iterdir() if path.name.endswith(".why.txt")]) == 6
    assert not take_in(box, store, WORDS)


def test_odd_names(box: Inbox, store: Path, tmp_path: Path) -> None:
    """Names may be any bytes; they are shown so that a terminal and a log can hold them."""
    odd = [b"a\xff.csv", b"b\n\x1b[31m.csv", b"[x]*.csv", "ü 表.csv".encode(), b"~.csv", b"-rf.csv", b"q'\"$(x).csv"]
    for number, name in enumerate(odd):
        put(tmp_path, os.fsdecode(name), 3, number + 3)
    bad = put(tmp_path, os.fsdecode(b"bad\xfe\n.csv"), 1, 1)
    bad.write_text("x,z,from,paid\n1,2,nan,yes\n")
    os.utime(bad, (1e9, 1e9))
    found = take_in(box, store, WORDS)
    assert {r"a\xff.csv", r"b\n\x1b[31m.csv"} <= set(found.rows)
    assert list(found.refused) == [r"bad\xfe\n.csv"]
    assert all(name.isprintable() for name in found.rows)
    assert taken(tmp_path) == expected((20, 1), (30, 2), *((3, number + 3) for number in range(len(odd))))
    assert len(names(box.done)) == 2 + len(odd)
    assert [mark.name for entry in Store.open(store).log for mark in entry.files or ()] == list(found.rows)


def test_links_to_files_stay_links_to_them(box: Inbox, store: Path, tmp_path: Path) -> None:
    """A link's rows are ingested once, and it leads to its file from wherever it is moved."""
    (tmp_path / "files").mkdir()
    put(tmp_path, "real.csv", 5, 3).rename(tmp_path / "files" / "real.csv")
    (box.path / "link.csv").symlink_to("../files/real.csv")
    assert take_in(box, store, WORDS).rows == {"day1.csv": 20, "day2.csv": 30, "link.csv": 5}
    assert (box.done / "link.csv").resolve() == tmp_path / "files" / "real.csv"
    assert taken(tmp_path) == expected((20, 1), (30, 2), (5, 3))


@pytest.mark.parametrize("failed", [errno.EACCES, errno.EIO])
def test_files_that_cannot_be_read_or_moved_as_others(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: int
) -> None:
    """One that cannot be read is put aside, one with the longest name too; other file systems are copied to."""
    real = room._hash

    def refused(path: Path) -> str:
        if path.name == "day1.csv":
            raise OSError(failed, os.strerror(failed), str(path))
        return real(path)

    def elsewhere(old: Path, new: Path) -> None:
        if new.parent != box.path:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename_new(old, new)

    monkeypatch.setattr(room, "_hash", refused)
    monkeypatch.setattr(room, "rename_new", elsewhere)
    (box.path / "gone.csv").symlink_to("nowhere")
    os.utime(box.path / "gone.csv", (1e9, 1e9), follow_symlinks=False)
    for letter in "ab":
        put(tmp_path, f"{letter * 251}.csv", 1, 3).write_text(f"x,z,from,paid\n1,2,nan,{letter}\n")
        os.utime(box.path / f"{letter * 251}.csv", (1e9, 1e9))
    content = (box.path / "day2.csv").read_bytes()
    found = take_in(box, store, WORDS)
    assert found.rows == {"day2.csv": 30}
    assert found.refused["day1.csv"].endswith(f"cannot be read: {os.strerror(failed)}")
    assert (names(box.path), names(box.done)) == ([], ["day2.csv"])
    assert (box.done / "day2.csv").read_bytes() == content
    assert (box.quarantine / "gone.csv").is_symlink()
    assert len(names(box.quarantine)) == 7


def test_a_file_that_may_not_be_moved_stays(
    box: Inbox, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported, its rows are not ingested, and the files after it are."""
    rename = os.rename

    def refused(old: Path, new: Path) -> None:
        if Path(old).name == "day1.csv":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        rename(old, new)

    monkeypatch.setattr(os, "rename", refused)
    found = take_in(box, store, WORDS)
    assert (list(found.rows), list(found.refused)) == (["day2.csv"], ["day1.csv"])
    assert (names(box.path), taken(tmp_path)) == (["day1.csv"], expected((30, 2)))


@pytest.mark.parametrize("harm", ["file", "folder", "stranger"])
def test_the_claims_folder_is_in_nobodys_way(box: Inbox, store: Path, harm: str) -> None:
    """Whatever is found where claimed files are put is left alone, and the run goes on."""
    claimed = box.path / room.CLAIMED
    if harm == "file":
        claimed.write_text("mine")
    else:
        (claimed / ("0" * 16 if harm == "folder" else "mine")).mkdir(parents=True)
    assert take_in(box, store, WORDS).rows == {"day1.csv": 20, "day2.csv": 30}
    assert claimed.exists() == (harm == "stranger")


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

    def grows(path: Path) -> str:
        with path.open("a") as file:
            file.write("0,0,9,yes\n")
        return "0" * 64

    take_in(box, store, WORDS)
    put(tmp_path, "day2.csv", 30, 3)
    monkeypatch.setattr(room, "_hash", grows)
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


@pytest.mark.parametrize(
    "content",
    [
        "a,b,c,d\n",
        "x,z,paid\n",
        "x,z,from,more,paid\n",
        "# nothing\n",
        "<html>404</html>\n",
        '{"error": 404}\n',
        "x z\n",
        pytest.param(",".join(f"column{k}" for k in range(20_000)), id="wide"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_no_rows_and_no_table_either(box: Inbox, store: Path, tmp_path: Path, content: str, *, first: bool) -> None:
    """A text without rows is an empty table if it names the columns of the others, and else goes to quarantine."""
    if not first:
        take_in(box, store, WORDS)
    path = put(tmp_path, "a.csv", 1, 1)
    for text in (content, "from,paid,z,x\n"):
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
        found = take_in(box, store, WORDS)
        assert ("a.csv" in found.refused, found.rows.get("a.csv")) == ((True, None) if text == content else (False, 0))
        assert "has no rows" in found.refused.get("a.csv", "has no rows")
    assert taken(tmp_path) == expected((20, 1), (30, 2))


def test_empty_parquet_files(box: Inbox, store: Path, tmp_path: Path) -> None:
    """They are done if they have the columns of the others, and go to quarantine if not."""
    take_in(box, store, WORDS)
    columns = {"x": pa.float64(), "z": pa.float64(), "from": pa.int64(), "paid": pa.string()}
    for name in ("good", "bad"):
        arrays = {column: pa.array([], kind) for column, kind in columns.items() if column != "z" or name == "good"}
        pq.write_table(pa.table(arrays), box.path / f"{name}.pq")
        os.utime(box.path / f"{name}.pq", (1e9, 1e9))
    found = take_in(box, store, WORDS)
    assert (found.rows, list(found.refused)) == ({"good.pq": 0}, ["bad.pq"])
    assert "'z' is missing" in found.refused["bad.pq"]


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
