"""What a campaign refuses: each with a message that says what to do, and nothing lost or half taken."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import coremargin
from campaign_kit import CLASSES, rows_and_labels, same_state, unlabelled
from coremargin.active import Campaign
from coremargin.active import log as campaign_log
from coremargin.active.answer_files import oracle_of, read_answers_of, write_questions
from coremargin.active.answers import Annotation
from coremargin.active.log import Log
from coremargin.active.status import status_without_state
from coremargin.cli import main
from coremargin.data import chained_log as log_module
from coremargin.data.locked import Locked
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, DataError, LabelError, OutputError, SpecError, StoreError, UsageError

X, LABELS = rows_and_labels(200, 3)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """200 rows of 3 features."""
    return unlabelled(tmp_path / "rows.zarr", X)


@pytest.fixture
def campaign(tmp_path: Path, store: Path) -> Campaign:
    """A campaign with two answers, and a question that is open."""
    begun = Campaign.create(tmp_path / "c", store, classes=CLASSES)
    for _ in range(2):
        row = begun.ask()[0].row
        begun.tell([row], [LABELS[row]])
    begun.ask()
    return begun


def log_of(campaign: Campaign) -> bytes:
    """The bytes of its log."""
    return (campaign.path / "answers.jsonl").read_bytes()


def test_answers_that_cannot_be_taken(campaign: Campaign) -> None:
    """A row that was not asked, an unknown label, another answer for a row, a row beyond the store, changes of nothing:
    refused by a message that names the row, and none of the answers that came with it is taken.
    """
    before, opened = log_of(campaign), campaign.ask(again=True)[0].row
    first = campaign._state.log.lines[0]
    other = {"ham": "spam", "spam": "ham"}[str(first.label)]
    stranger = next(row for row in range(200) if row not in {opened, *campaign._state.labels})
    for error, message, rows, labels in [
        (DataError, rf"row {stranger}: expected a row that was asked about, found one", [opened, stranger], CLASSES),
        (LabelError, r"expected 'ham' or 'spam', found 'egg'", [opened], ["egg"]),
        (LabelError, r"expected 'ham' or 'spam', found 1", [opened], [1]),
        (LabelError, r"expected 'ham' or 'spam', found None", [opened], [None]),
        (DataError, rf"row {first.row}: expected {first.label!r}, which it was answered with", [first.row], [other]),
        (DataError, rf"row {opened}: expected 'ham', which it was answered with, found 'spam'", [opened] * 2, CLASSES),
        (DataError, r"expected a row from 0 to 199, found 200", [opened, 200], CLASSES),
        (UsageError, r"expected a label for each of 2 rows, found 1", [opened, 3], ["ham"]),
    ]:
        with pytest.raises(error, match=message):
            campaign.tell(rows, labels)
    for change, message in [
        (lambda: campaign.correct(opened, "ham"), "expected one with an answer to correct, found none"),
        (lambda: campaign.undo(opened), "expected one with an answer to undo, found none"),
        (lambda: campaign.skip(first.row), "take it back with 'undo'"),
        (lambda: campaign.skip(stranger), "expected a row that was asked about"),
    ]:
        with pytest.raises(DataError, match=message):
            change()
    assert log_of(campaign) == before
    assert campaign.tell([first.row, opened], [first.label, LABELS[opened]]) == 1  # the first was told before


def test_a_third_label_says_how_classes_are_named(tmp_path: Path, store: Path, campaign: Campaign) -> None:
    """Where two labels came first a third one is refused with how more classes are named; not so where two are."""
    begun = Campaign.create(tmp_path / "d", store)
    rows = [one.row for one in begun.ask(4)]
    begun.tell(rows[:2], ["ham", "spam"])
    with pytest.raises(
        LabelError, match="expected 'ham' or 'spam', found 'egg'; correct the answer; .* --classes A,B,C"
    ):
        begun.tell(rows[2:3], ["egg"])
    with pytest.raises(LabelError, match="found 'egg'; correct the answer$"):
        campaign.tell([campaign.ask(again=True)[0].row], ["egg"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "row,label\n1,ham\n2,spa", "line 3: expected the end of the line, found the end of the file"),
        ("a.csv", "1,ham\n", "line 1: expected a head with the columns row and label"),
        ("a.csv", "row,label\n1,ham,3\n", "line 2: expected 2 columns as in the head, found more"),
        ("a.csv", "row,label\n1\n", "line 2: expected 2 columns as in the head, found fewer"),
        ("a.csv", "row,label\n1.5,ham\n", "line 2: row: expected a whole number, found '1.5'"),
        ("a.csv", 'row,label\n1,"ham\n', "line 2: cannot be read: unexpected end of data"),
        ("a.csv", "row,label,action\n1,ham,eat\n", "action: expected one of label, skip, unsure, undo, correct, found"),
        ("a.jsonl", '{"row": 1, "label": "ham"}\n{"row": 2, "lab', "line 2: expected JSON, cannot be read"),
        ("a.jsonl", '{"row": true, "label": "ham"}\n', "line 1: row: expected a whole number, found True"),
        ("a.csv", b"row,label\n1,\xff\n", "expected text in UTF-8"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read(campaign: Campaign, tmp_path: Path, name: str, text: Any, message: str) -> None:
    """A file with half a line, or a line of another kind, is refused by the number of that line."""
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    before = log_of(campaign)
    with pytest.raises((DataError, UsageError), match=message):
        campaign.answer(read_answers_of(tmp_path / name), examples=True)
    assert log_of(campaign) == before


def test_half_a_line_of_the_log_is_cut_off(campaign: Campaign, caplog: pytest.LogCaptureFixture) -> None:
    """What a killed writer left is cut off, with a warning; the answers before it hold, and the campaign goes on."""
    whole = log_of(campaign)
    with (campaign.path / "answers.jsonl").open("ab") as file:
        file.write(b'{"number": 3, "row"')
    again = Campaign(campaign.path)
    assert "19 bytes of half a line after line 2 are cut off" in caplog.text
    assert log_of(again) == whole
    row = again.ask(again=True)[0].row
    assert again.tell([row], [LABELS[row]]) == 1
    assert len(Campaign(campaign.path)._state.log.lines) == 3


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0, None])
def test_a_telling_is_whole_after_a_kill(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, share: float | None
) -> None:
    """Killed at any byte of a file of answers, all of it is in the log when the campaign is opened again, once; killed
    before, nothing; the same file may be told once more.
    """
    rows = [one.row for one in campaign.ask(5)]
    before, undone = log_of(campaign), next(iter(campaign._state.labels))
    given = [Annotation(row, LABELS[row]) for row in rows] + [Annotation(undone, None, "undo")]

    def died(self: Log, data: bytes) -> None:
        if share is not None:
            with self._path.open("ab", buffering=0) as file:
                file.write(data[: int(share * len(data))])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*((Log, "_write") if share is not None else (log_module, "write_whole")), died)
        with pytest.raises(KeyboardInterrupt):
            campaign.answer(given)
    again = Campaign(campaign.path)
    expected = [] if share is None else [(one.row, one.action) for one in given]
    assert [(line.row, line.action) for line in again._state.log.lines[2:]] == expected
    assert log_of(again).startswith(before)
    assert not (campaign.path / "telling").exists()
    assert again.answer(given) == (6 if share is None else 0)
    assert campaign.status["labels"] == again.status["labels"]
    assert same_state(campaign, again)


def test_a_telling_that_the_disk_has_no_room_for(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is in the log, then or later."""
    rows, before = [one.row for one in campaign.ask(3)], log_of(campaign)

    def full(self: Log, data: bytes) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(data[:400])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(Log, "_write", full)
        with pytest.raises(OutputError, match="the disk is full"):
            campaign.tell(rows, [LABELS[row] for row in rows])
    assert log_of(campaign) == before
    assert len(Campaign(campaign.path)._state.log.lines) == 2
    assert campaign.tell(rows, [LABELS[row] for row in rows]) == 3


def test_a_telling_that_cannot_be_taken_back_is_whole(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk takes neither the rest of it nor its beginning away, the next reader writes it to its end."""
    rows = [one.row for one in campaign.ask(3)]

    def failing(self: Log, data: bytes | int) -> None:
        if isinstance(data, bytes):
            with self._path.open("ab", buffering=0) as file:
                file.write(data[:400])
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patched:
        patched.setattr(Log, "_write", failing)
        patched.setattr(Log, "_cut", failing)
        with pytest.raises(OutputError, match="broken"):
            campaign.tell(rows, [LABELS[row] for row in rows])
    assert [line.row for line in Campaign(campaign.path)._state.log.lines[2:]] == rows


@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_an_answer_behind_an_interrupted_one(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, share: float, many: int
) -> None:
    """Nothing is written behind what an interrupted call has left, though the lock was held all the time."""
    rows = [one.row for one in campaign.ask(4)]

    def interrupted(self: Log, data: bytes) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(data[: int(share * len(data))])
        raise KeyboardInterrupt

    with campaign.locked():
        with monkeypatch.context() as patched:
            patched.setattr(Log, "_write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                campaign.tell(rows[:many], [LABELS[row] for row in rows[:many]])
        assert campaign.tell(rows[many:], [LABELS[row] for row in rows[many:]]) == 4 - many
    again = Campaign(campaign.path)
    lost = many == 1 and share < 1
    assert [line.row for line in again._state.log.lines[2:]] == rows[many if lost else 0 :]
    assert same_state(campaign, again)


def test_threads_take_turns(campaign: Campaign) -> None:
    """A thread that answers waits for one that holds the campaign, as another process would."""
    (question,), begun, enough = campaign.ask(1), threading.Event(), threading.Event()

    def holding() -> None:
        with campaign.locked():
            begun.set()
            enough.wait(60)

    threads = [
        threading.Thread(target=holding),
        threading.Thread(target=lambda: campaign.tell([question.row], [LABELS[question.row]])),
    ]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    threads[1].join(0.3)
    assert len(campaign._state.log.lines) == 2
    enough.set()
    for thread in threads:
        thread.join(60)
    assert len(campaign._state.log.lines) == 3


def test_questions_are_written_over_nothing(campaign: Campaign, tmp_path: Path) -> None:
    """A file that came there while the store was read stays as it is, and the questions wait."""
    questions, file = campaign.ask(2), tmp_path / "q.csv"
    file.write_text("somebody's")
    with pytest.raises(OutputError, match=r"q.csv.*the questions wait: `coremargin active ask --again --to`"):
        write_questions(file, questions)
    assert file.read_text() == "somebody's"
    assert [one.row for one in campaign.ask(1, again=True)][1:] == [one.row for one in questions]


def spoilt(line: bytes) -> bytes:
    """A line with another label."""
    return line.replace(b'"ham"', b'"HAM"').replace(b'"spam"', b'"ham"').replace(b'"HAM"', b'"spam"')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [lines[0], b"{", lines[2]], "line 2: expected JSON, cannot be read"),
        (lambda lines: [lines[0], lines[2]], "line 2: number: expected 2, found 3: lines were changed"),
        (lambda lines: [spoilt(lines[0]), *lines[1:]], "line 2: hash of the line before: expected [0-9a-f]{64}, found"),
        (lambda lines: [lines[1], lines[0], lines[2]], "line 1: number: expected 1, found 2"),
        (lambda lines: [lines[0].replace(b'"who"', b'"who_"'), *lines[1:]], "line 1: .*who"),
        (lambda lines: [lines[0].replace(b'"row": ', b'"row": 9'), *lines[1:]], "line 1: expected a row below|hash of"),
    ],
)  # fmt: skip
def test_a_log_that_was_changed(campaign: Campaign, change: Callable[[list[bytes]], list[bytes]], message: str) -> None:
    """A line that was changed, left out, moved or made unreadable is refused by its number."""
    row = campaign.ask(again=True)[0].row
    campaign.tell([row], [LABELS[row]])
    lines = log_of(campaign).split(b"\n")[:-1]
    (campaign.path / "answers.jsonl").write_bytes(b"".join(line + b"\n" for line in change(lines)))
    with pytest.raises(DataError, match=message):
        Campaign(campaign.path)


def test_a_log_that_was_cut_is_no_shorter_campaign(campaign: Campaign) -> None:
    """Whoever has read the log notices that lines are gone, and so does who finds a state that knows more than the log:
    nothing is forgotten unless somebody says so.
    """
    campaign.close()
    (campaign.path / "answers.jsonl").write_bytes(log_of(campaign).split(b"\n")[0] + b"\n")
    with pytest.raises(DataError, match="lines are gone"):
        _ = campaign.status
    before = sorted(path.name for path in campaign.path.rglob("*"))
    for look in (Campaign, status_without_state):
        with pytest.raises(DataError, match="expected 2 lines at least, which the campaign's state is about, found 1"):
            look(campaign.path)
    assert sorted(path.name for path in campaign.path.rglob("*")) == before
    shutil.rmtree(campaign.path / "state")
    assert Campaign(campaign.path).status["labels_asked"] == 1


@pytest.mark.parametrize("content", [b"", b"none\n", b"-3\n{}", b"\xff\xfe"])
def test_lines_that_go_together_are_no_lines(campaign: Campaign, content: bytes) -> None:
    """A file of lines that are to be written together which does not say where they begin is named."""
    campaign.close()
    (campaign.path / "telling").write_bytes(content)
    with pytest.raises(DataError, match="telling: expected where its lines begin in the log, found"):
        Campaign(campaign.path)


def test_numbers_that_are_none(campaign: Campaign) -> None:
    """Rows and counts are whole numbers, and a time to wait is above 0: nothing is taken for another."""
    row = campaign.ask(1)[0].row
    for one in (row + 0.7, "x", None, True):
        with pytest.raises(DataError, match="expected the number of a row, found"):
            campaign.tell([one], ["ham"])
        with pytest.raises(DataError, match="expected the number of a row, found"):
            campaign.skip(one)  # type: ignore[arg-type] # that is what is refused
    for n in (0, 2.5, True):
        with pytest.raises(UsageError, match="n: expected at least one row, found"):
            campaign.ask(n)  # type: ignore[arg-type] # that is what is refused
    with pytest.raises(UsageError, match="expires: expected a time above 0, found '0 s'"):
        Campaign.create(campaign.path.with_name("d"), campaign.settings.store, expires="0 s")
    assert not campaign.path.with_name("d").exists()


def test_no_more_answers_than_were_asked_for(campaign: Campaign) -> None:
    """However many questions are asked at a time."""
    before = campaign.status["labels"]
    assert (
        campaign.run(lambda rows: {row: LABELS[row] for row in rows}, batch=40, most=before + 5)["labels"] == before + 5
    )


def test_a_campaign_whose_facts_were_changed(campaign: Campaign) -> None:
    """The log goes on from the bytes of campaign.toml: with another seed or error it is not this campaign's."""
    settings = campaign.path / "campaign.toml"
    text = settings.read_text()
    settings.write_text(text.replace("error = 0.01", "error = 0.5"))
    with pytest.raises(DataError, match="line 1: hash of the line before"):
        Campaign(campaign.path)
    settings.write_text(text.replace("version = 1", "version = 2"))
    with pytest.raises(DataError, match="expected version 1, found 2; it was made by a newer coremargin: upgrade"):
        Campaign(campaign.path)
    settings.write_text(text + "colour = 3\n")
    with pytest.raises(DataError, match="unknown key 'colour'"):
        Campaign(campaign.path)
    settings.unlink()
    with pytest.raises(DataError, match="expected a campaign, found no campaign.toml; `coremargin active start"):
        Campaign(campaign.path)


def test_a_store_that_changed(campaign: Campaign, store: Path, tmp_path: Path) -> None:
    """Rows that were appended change nothing; a store with other rows, or fewer, is refused."""
    with StoreWriter.append(store) as writer:
        writer.write(X[:50], None, origin="more")
    assert same_state(campaign, Campaign(campaign.path))
    assert Campaign(campaign.path).settings.rows == 200
    os.rename(store, tmp_path / "away")
    unlabelled(store, X + np.float32(1))
    with pytest.raises(StoreError, match="expected a commit of 200 rows with .*, found sha256:.* of 200 rows"):
        Campaign(campaign.path)
    os.rename(store, tmp_path / "other")
    unlabelled(store, X[:150])
    with pytest.raises(StoreError, match="expected a commit of 200 rows with .*, found sha256:.* of 150 rows"):
        Campaign(campaign.path)


def test_two_processes(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one works the other is refused after a moment; one after the other they go on from each other's answers."""
    monkeypatch.setattr(campaign_log, "PATIENCE_S", 0.1)
    code = (
        "import sys, time; from coremargin.active import Campaign; c = Campaign(sys.argv[1])\n"
        "with c.locked():\n    print('held', flush=True); sys.stdin.read(1)\n"
        "q = c.ask(again=True)[0]; c.tell([q.row], [sys.argv[2]])"
    )
    row = campaign.ask(again=True)[0].row
    with subprocess.Popen(
        [sys.executable, "-c", code, str(campaign.path), LABELS[row]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(Busy, match="another job is writing this campaign; wait for it"):
            campaign.ask()
        other.stdin.write(b"x")
        other.stdin.close()
        assert other.wait(60) == 0
    assert campaign.status["labels_asked"] == 3
    assert same_state(campaign, Campaign(campaign.path))
    assert [line.number for line in campaign._state.log.lines] == [1, 2, 3]


def test_a_state_that_is_damaged_is_made_again(campaign: Campaign) -> None:
    """The folder of the state may be lost, cut short or about something else: the log is what counts."""
    campaign.close()
    (path,) = (campaign.path / "state").glob("state-*.npz")
    path.write_bytes(path.read_bytes()[:-100])
    with Campaign(campaign.path) as again:
        assert same_state(campaign, again)
    (campaign.path / "state" / "job.json").write_text(json.dumps({"identity": {}}))
    assert same_state(campaign, Campaign(campaign.path))


def test_campaigns_that_cannot_begin(tmp_path: Path, store: Path, campaign: Campaign) -> None:
    """A place that is taken, a share beyond its range, one class twice: refused, and nothing is left behind."""
    with pytest.raises(UsageError, match="a campaign is there already; continue it"):
        Campaign.create(campaign.path, store)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="something is there already"):
        Campaign.create(tmp_path / "file", store)
    with pytest.raises(UsageError, match="lies in a store"):
        Campaign.create(store / "c", store)
    for asked, message in [({"error": 1.0}, "error: expected a share"), ({"confidence": 0.0}, "confidence: expected")]:
        with pytest.raises(SpecError, match=message):
            Campaign.create(tmp_path / "d", store, **asked)
    with pytest.raises(DataError, match="expected different labels of one kind"):
        Campaign.create(tmp_path / "d", store, classes=["a", "a"])
    with pytest.raises(StoreError):
        Campaign.create(tmp_path / "d", tmp_path / "nowhere")
    assert not (tmp_path / "d").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_examples_are_there_or_the_campaign_is_not(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad example leaves no campaign without the others; good ones are in the log of a folder that appears whole."""
    text = "row,label\n3,ham\n5,{}\n"
    for number, (name, error) in enumerate([("egg", LabelError), ("spam", None)]):
        (tmp_path / "examples.csv").write_text(text.format(name))
        given, place = read_answers_of(tmp_path / "examples.csv"), tmp_path / f"e{number}"
        if error is not None:
            with pytest.raises(error, match="examples.csv, line 3: expected 'ham' or 'spam', found 'egg'"):
                Campaign.create(place, store, classes=CLASSES, examples=given)
            assert sorted(tmp_path.iterdir()) == [tmp_path / "examples.csv", store]
            continue
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", lambda *_: died())
            with pytest.raises(KeyboardInterrupt):
                Campaign.create(place, store, classes=CLASSES, examples=given)
        assert not place.exists()
        begun = Campaign.create(place, store, classes=CLASSES, examples=given)
        lines = [(line.row, line.label, line.why) for line in begun._state.log.lines]
        assert lines == [(3, "ham", "example"), (5, "spam", "example")]
        assert begun.status["labels_asked"] == 2


def died() -> None:
    """As if nothing came after."""
    raise KeyboardInterrupt


def test_a_campaign_begins_alone(tmp_path: Path, store: Path) -> None:
    """What a killed beginning left is swept, what lies in its place and is somebody's is not, and two do not begin at
    the same time.
    """
    aside = tmp_path / ".c.aside"
    aside.mkdir()
    (aside / "answers.jsonl").write_text("{}\n")
    (aside / "campaign.toml").write_text("seed = 1\n")
    assert Campaign.create(tmp_path / "c", store).status["labels_asked"] == 0
    assert not aside.exists()
    other = tmp_path / ".d.aside"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="found something else: notes.txt"):
        Campaign.create(tmp_path / "d", store)
    assert (other / "notes.txt").read_text() == "mine"
    with Locked(tmp_path / "e", "a campaign there"), pytest.raises(Busy, match="another job is writing a campaign"):
        Campaign.create(tmp_path / "e", store)
    assert not (tmp_path / "e").exists()


def test_classes_and_sizes_of_any_spelling(tmp_path: Path, store: Path) -> None:
    """NumPy's numbers are classes, sizes and times may be texts; one class, one of them twice, or a text that is no
    size are refused with what is expected.
    """
    begun = Campaign.create(
        tmp_path / "a", store, classes=np.unique([3, 7, 3]), memory="64 MiB", block="2 MB", expires="1 h"
    )
    settings = begun.settings
    assert (settings.classes, settings.memory, settings.block, settings.expires) == (
        [3, 7],
        64 << 20,
        2_000_000,
        3600.0,
    )
    for classes, message in ((["a"], "two labels, .* found 1; name all"), (["a", "b", "a"], "different labels")):
        with pytest.raises(LabelError, match=rf"classes: expected {message}"):
            Campaign.create(tmp_path / "b", store, classes=classes)
    with pytest.raises(SpecError, match="memory: not a size: 'much'"):
        Campaign.create(tmp_path / "b", store, memory="much")
    with pytest.raises(SpecError, match="not a duration: 'soon'"):
        Campaign.create(tmp_path / "b", store, expires="soon")


def test_labels_of_any_kind(tmp_path: Path, store: Path) -> None:
    """Without names the first two labels are the classes; whole numbers and booleans are known by their texts, too."""
    campaign = Campaign.create(tmp_path / "c", store)
    rows = [one.row for one in campaign.ask(3)]
    campaign.tell(rows[:2], [np.int64(1), "0"])
    assert campaign.classes == [1, 0]
    with pytest.raises(LabelError, match="expected 1 or 0, found 2"):
        campaign.tell(rows[2:], [2])
    with pytest.raises(LabelError, match="expected 1 or 0, found True"):
        campaign.tell(rows[2:], [True])
    other = Campaign.create(tmp_path / "d", store, classes=[False, True])
    (one,) = other.ask()
    assert other.tell([one.row], ["true"]) == 1
    assert other._state.labels == {one.row: True}


def test_questions_are_on_the_disk(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody sees a question the folder that names its file is synced, behind the file."""
    steps: list[str] = []
    for name in ("replace", "fsync"):
        real = getattr(os, name)

        def noted(*args: Any, name: str = name, real: Any = real) -> Any:
            steps.append(name if name != "fsync" else str(Path(f"/proc/self/fd/{args[0]}").readlink()))
            return real(*args)

        monkeypatch.setattr(os, name, noted)
    assert campaign.ask(3)
    assert steps == [str(campaign.path / ".asked.json.aside"), "replace", str(campaign.path)]


def test_answers_as_other_programs_save_them(tmp_path: Path) -> None:
    """Semicolons, tabs, Excel's first line, marks of byte order, whole numbers with a point, labels over two lines."""
    for text in (
        "row,label\n151,ham\n152.0,spam\n",
        "row;label\n151.0;ham\n152;spam\n",
        "sep=;\r\nrow;label\r\n151;ham\r\n152.00;spam\r\n",
        "\ufeffrow\tlabel\n151\tham\n152\tspam\n",
        '"label";"row"\n"ham";"151"\n"spam";"152"\n',
    ):
        (tmp_path / "a.csv").write_text(text, newline="")
        assert [(one.row, one.label) for one in read_answers_of(tmp_path / "a.csv")] == [(151, "ham"), (152, "spam")]
    (tmp_path / "a.csv").write_text('row;label\n1;"a\nb"\n\n2;"c"\n2.5;d\n')
    with pytest.raises(DataError, match="a.csv, line 6: row: expected a whole number, found '2.5'"):
        read_answers_of(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text('row;label\n1;"a\nb"\n')
    assert [(one.row, one.label, one.place) for one in read_answers_of(tmp_path / "b.csv")] == [
        (1, "a\nb", f"{tmp_path / 'b.csv'}, line 2")
    ]
    (tmp_path / "labels.txt").write_text('ham\n"a\nb"\nspam\n\n\n')
    assert oracle_of(tmp_path / "labels.txt", 3)([0, 1, 2]) == {0: "ham", 1: "a\nb", 2: "spam"}


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", [{}, {"loss": "hinge", "C": 1.0, "trial": 20}])
@pytest.mark.parametrize(
    ("classes", "missing"),
    [(None, "all answers are 'a': no row of a second class is known"), ("ab", "no answer has 'b'"),
     ("abc", "no answer has 'b', 'c'")],
)  # fmt: skip
def test_answers_of_one_class_say_what_is_missing(
    classes: Any, missing: str, loss: Any, rng: np.random.Generator, tmp_path: Path
) -> None:
    """With ``by_class``, too: the status names the classes without an answer, and so do the report and the model."""
    coremargin.ingest(rng.normal(size=(60, 2)), tmp_path / "s.zarr", unlabelled=True)
    begun = Campaign.create(
        tmp_path / "c", tmp_path / "s.zarr", classes=classes, by_class=True, error=0.3, confidence=0.6, **loss
    )
    with pytest.raises(LabelError, match="none of them 'b'|all of them 'a'"):
        begun.run(lambda rows: dict.fromkeys(rows, "a"))
    status = begun.status
    assert (status["status"], status["reason"]) == ("stopped", missing)
    assert status["answered_by_class"][0] == status["labels"]
    assert CliRunner().invoke(main, ["active", "status", str(begun.path)]).exit_code == 0
    with pytest.raises(UsageError, match="expected answers of two classes, found .* all of them 'a'"):
        begun.report()
    assert begun.write_labels().added == status["labels"]
