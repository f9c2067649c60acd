"""Answers that come while the campaign is at work: each is taken once, whoever is killed and whenever."""

from __future__ import annotations

import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from campaign_kit import CLASSES, rows_and_labels, same_state, unlabelled
from coremargin.active import Campaign
from coremargin.active import inbox as inbox_module
from coremargin.active.inbox import Inbox, ReceivedAnswer, received_answer
from coremargin.active.status import distance_of, forecast
from coremargin.errors import DataError, OutputError

if TYPE_CHECKING:
    from coremargin.formats.answers import Line

X, LABELS = rows_and_labels(300, 3)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """One about 300 rows, with two scans ahead of it."""
    store = unlabelled(tmp_path / "rows.zarr", X)
    return Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.2, confidence=0.8, memory=4000)


def answer(row: int, label: str | None = None, **more: Any) -> ReceivedAnswer:
    """What somebody says of a row."""
    given = {"action": "label", "who": "anna", "id": secrets.token_hex(16), **more}
    return received_answer(row, label or (LABELS[row] if given["action"] == "label" else None), **given)


def labels_of(campaign: Campaign) -> list[Line]:
    """The lines of the log."""
    campaign.status  # noqa: B018 - reads what others have written
    return list(campaign._state.log.lines)


def test_the_next_to_hold_the_campaign_takes_them(campaign: Campaign) -> None:
    """In their order, with the name and the time of who gave them; then the inbox is empty."""
    inbox, rows = Inbox(campaign.path), [one.row for one in campaign.ask(3)]
    given = [answer(row) for row in rows]
    given.insert(1, answer(rows[0], action="undo"))
    for one in given:
        inbox.put(one)
    assert inbox.read()[0] == given
    other = Campaign(campaign.path)
    lines = labels_of(other)
    assert [(line.row, line.action, line.who, line.when, line.id) for line in lines] == [
        (one.row, one.action, "anna", one.when, one.id) for one in given
    ]
    assert inbox.read() == ([], 0)
    assert other.status["labels"] == 2
    assert labels_of(campaign) == lines
    assert same_state(campaign, other)


def test_who_is_killed_between_the_log_and_the_inbox(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the log has is not taken again, though it lies in the inbox still: not after it was changed, either."""
    inbox, row = Inbox(campaign.path), campaign.ask(1)[0].row
    inbox.put(answer(row))
    inbox.put(answer(row, action="undo"))
    inbox.put(answer(row))

    def killed(self: Inbox, size: int) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(inbox_module.Inbox, "cleared", killed)
        with pytest.raises(KeyboardInterrupt):
            campaign.ask(1)
    assert len(inbox.read()[0]) == 3
    lines = labels_of(Campaign(campaign.path))
    assert [line.action for line in lines] == ["label", "undo", "label"]
    assert inbox.read() == ([], 0)


def test_half_a_line_was_never_taken(campaign: Campaign) -> None:
    """What a killed process left of an answer is cut off by the next one, and read by nobody."""
    inbox, rows = Inbox(campaign.path), [one.row for one in campaign.ask(2)]
    inbox.put(answer(rows[0]))
    with (campaign.path / inbox_module.FILE).open("ab") as file:
        file.write(b'{"id":"half')
    assert len(inbox.read()[0]) == 1
    inbox.put(answer(rows[1]))
    assert [one.row for one in inbox.read()[0]] == rows
    assert campaign.status["labels"] == 2


def test_what_cannot_be_taken_is_told_and_goes(campaign: Campaign) -> None:
    """Somebody else has answered otherwise meanwhile: that answer stays, and the other is in nobody's way."""
    inbox, rows = Inbox(campaign.path), [one.row for one in campaign.ask(2)]
    campaign.tell(rows[:1], [LABELS[rows[0]]])
    other = CLASSES[1 - CLASSES.index(LABELS[rows[0]])]
    for one in (answer(rows[0], other), answer(rows[0]), answer(rows[1])):
        inbox.put(one)
    assert campaign.status["labels"] == 2
    [(refused, why)] = campaign.refused
    assert refused.row == rows[0]
    assert f"expected {LABELS[rows[0]]!r}, which it was answered with" in why
    assert inbox.read() == ([], 0)


def test_damage_is_told(campaign: Campaign) -> None:
    """A line of the inbox that is none is said with its number, and nothing is thrown away."""
    (campaign.path / inbox_module.FILE).write_bytes(b"{}\n")
    with pytest.raises(DataError, match=r"inbox.jsonl, line 1"):
        campaign.status  # noqa: B018 - reads
    assert (campaign.path / inbox_module.FILE).read_bytes() == b"{}\n"


def test_a_full_disk_leaves_no_half(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that was not written whole is not there at all."""
    inbox, rows = Inbox(campaign.path), [one.row for one in campaign.ask(2)]
    inbox.put(answer(rows[0]))

    def full(file: int) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="the disk is full"):
            inbox.put(answer(rows[1]))
    assert [one.row for one in inbox.read()[0]] == rows[:1]


def test_many_at_once(tmp_path: Path) -> None:
    """Threads that put answers while another takes them lose none."""
    inbox, taken = Inbox(tmp_path), list[str]()
    given = [[answer(k) for k in range(20)] for _ in range(4)]
    ended = threading.Event()

    def take() -> None:
        while True:
            last = ended.is_set()
            found, size = inbox.read()
            if size and inbox.cleared(size):
                taken.extend(one.id for one in found)
            elif last and not size:
                return

    taker = threading.Thread(target=take)
    threads = [threading.Thread(target=lambda mine=mine: [inbox.put(one) for one in mine]) for mine in given]
    for thread in [taker, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    taker.join()
    assert sorted(taken) == sorted(one.id for mine in given for one in mine)


def test_an_id_is_in_the_log_once(campaign: Campaign) -> None:
    """A log in which the same answer stands twice is refused."""
    rows = [one.row for one in campaign.ask(2)]
    one, other = answer(rows[0]), answer(rows[1])
    campaign.answer([one.given, other.given])
    path = campaign.path / "answers.jsonl"
    first, second = path.read_bytes().splitlines()
    path.write_bytes(first + b"\n" + second.replace(other.id.encode(), one.id.encode()) + b"\n")
    with pytest.raises(DataError, match="line 2: id: expected another"):
        Campaign(campaign.path)


def test_to_look_ahead_spends_no_attempt(campaign: Campaign) -> None:
    """Where answers are awaited, and no row in memory is worth a question, a scan finds more to ask; where it would
    draw, it leaves all as it was, and is not done twice for nothing.
    """
    looked = 0
    while campaign.status["status"] == "running":
        questions = campaign.ask(3)
        rows = [one.row for one in questions or campaign.ask(3, again=True)]
        before = campaign.status
        if campaign.look_ahead():
            looked += 1
            after = campaign.status
            assert after["attempt"] == before["attempt"]
            assert after["draws_open"] == before["draws_open"] == 0
            assert not campaign.look_ahead()
        campaign.tell(rows, [LABELS[row] for row in rows])
    assert looked > 0
    assert campaign.status["status"] == "certified"
    forgotten = Campaign(campaign.path)
    assert same_state(campaign, forgotten)


def test_what_is_left_to_do(campaign: Campaign) -> None:
    """Draws are counted as they are, and nothing is left at the end; a question lies within the slab."""
    seen = list[tuple[int, int]]()
    while campaign.status["status"] == "running":
        question = campaign.ask(1)[0]
        learner = campaign._state.learner
        left = forecast(learner)
        seen.append((left.draws, left.near))
        if question.why == "query":
            near = distance_of(learner, question.row)
            assert near is not None
            assert near[0] < near[1]
        if question.why == "draw":
            assert (left.draws, left.near) == (campaign.status["draws_open"], 0)
        campaign.tell([question.row], [LABELS[question.row]])
    assert seen[0][1] > 0
    assert seen[-1] == (1, 0)
    assert forecast(campaign._state.learner).total == 0
