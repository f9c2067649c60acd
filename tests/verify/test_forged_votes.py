"""Campaigns of several people about a row: honest ones are confirmed, labels that nobody has settled are named."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coremargin.active import Campaign
from coremargin.errors import DataError
from coremargin.verify.examine import examine
from forge_active import two_sides
from forge_changes import failures

Lines = list[dict[str, Any]]
Folder = tuple[Path, Path]


@pytest.fixture(scope="module", params=[None, "judith"])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A campaign of two people, who disagree about the first row, and take one vote back; and its store."""
    folder = tmp_path_factory.mktemp("votes")
    rows, truth = two_sides(folder, 60)
    campaign = Campaign.create(
        folder / "c", rows.path, classes=["no", "yes"], error=0.5, confidence=0.5, people=2, settle=request.param
    )
    number = 0
    while campaign.status["status"] == "running" and number < 12:
        [one] = campaign.ask(1, who="anna")
        label, number = ["no", "yes"][int(truth[one.row] > 0)], number + 1
        campaign.tell([one.row], ["yes"], who="anna")
        if label != "yes" and number % 2:
            campaign.undo(one.row, who="anna")
            campaign.tell([one.row], [label], who="anna")
        campaign.tell([one.row], [label], who="ben")
        if campaign.answer_of(one.row) is None:
            campaign.tell([one.row], [label], who=request.param or "cleo")
    campaign.stop()
    campaign.close()
    return folder / "c", rows.path


def lines_in(path: Path) -> Lines:
    """Of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def forged(asked: Folder, folder: Path, change: Callable[[Lines], Lines]) -> Path:
    """A copy of the campaign whose votes were changed, all hashes made anew."""
    path = Path(shutil.copytree(asked[0], folder / "c"))
    before, data = hashlib.sha256((path / "campaign.toml").read_bytes()).hexdigest(), b""
    for number, vote in enumerate(change(lines_in(path / "votes.jsonl")), 1):
        text = json.dumps({**vote, "number": number, "before": before}).encode()
        before, data = hashlib.sha256(text).hexdigest(), data + text + b"\n"
    (path / "votes.jsonl").write_bytes(data)
    return path


def test_honest_votes_are_confirmed(asked: Folder) -> None:
    """Those of a campaign as people leave it, which the verdict counts."""
    found = examine(*asked)
    assert found.ok, found.failures
    [text] = [check.text for check in found.checks if check.name == "votes"]
    voters = [line["who"] for line in lines_in(asked[0] / "answers.jsonl") if line["action"] == "label"]
    others = voters.count("judith")
    apart = (
        f"; {others} are examples, or of the annotator who settles the rest, which are not voted on" if others else ""
    )
    assert text == f"{len(voters) - others} labels were settled by those of 2 people or more{apart}"


def test_labels_without_votes_are_counted_apart(tmp_path: Path) -> None:
    """Whoever calls labels examples, for which nobody is asked, has a campaign that says how many there are."""
    rows, truth = two_sides(tmp_path, 60)
    campaign = Campaign.create(tmp_path / "c", rows.path, classes=["no", "yes"], people=2)
    campaign.tell(range(8), [["no", "yes"][int(side > 0)] for side in truth[:8]], who="anna", examples=True)
    row = campaign.ask(1, who="anna")[0].row
    for who in ("anna", "ben"):
        campaign.tell([row], [["no", "yes"][int(truth[row] > 0)]], who=who)
    campaign.stop()
    campaign.close()
    [text] = [check.text for check in examine(tmp_path / "c", rows.path).checks if check.name == "votes"]
    assert text.startswith("1 labels were settled by those of 2 people or more; 8 are examples")


def test_a_vote_that_was_taken_back_may_settle_a_label(tmp_path: Path) -> None:
    """Where people disagree so that nothing is settled, and one of them thinks better of it, that is no forgery."""
    rows, _ = two_sides(tmp_path, 60)
    campaign = Campaign.create(tmp_path / "c", rows.path, classes=["a", "b", "c"], people=2)
    row = campaign.ask(1, who="anna")[0].row
    for who, label in (("anna", "a"), ("ben", "b"), ("cleo", "c"), ("dora", "b"), ("emil", "a")):
        assert campaign.tell([row], [label], who=who) == 1
    assert campaign.answer_of(row) is None
    for who in ("emil", "anna"):
        campaign.undo(row, who=who)
    assert campaign.answer_of(row) == "b"
    for label in "abc":
        other = campaign.ask(1, who="anna")[0].row
        for who in ("anna", "ben"):
            campaign.tell([other], [label], who=who)
    campaign.stop()
    campaign.close()
    [text] = [check.text for check in examine(tmp_path / "c", rows.path).checks if check.name == "votes"]
    assert text == "4 labels were settled by those of 2 people or more"


def without_last(votes: Lines) -> Lines:
    """The vote that settled the last label is gone."""
    return votes[:-1]


def turned(votes: Lines) -> Lines:
    """The last person has said something else."""
    return [*votes[:-1], votes[-1] | {"label": "no" if votes[-1]["label"] == "yes" else "yes"}]


def elsewhere(votes: Lines) -> Lines:
    """The last vote is about another row."""
    return [*votes[:-1], votes[-1] | {"row": 59 if votes[-1]["row"] != 59 else 58}]


def one_person(votes: Lines) -> Lines:
    """All votes are those of one person."""
    return [vote | {"who": "anna"} for vote in votes]


def strangers(votes: Lines) -> Lines:
    """Others have voted than those whom the log names."""
    return [vote | {"who": vote["who"] + "a"} for vote in votes]


def taken_back(votes: Lines) -> Lines:
    """Somebody took the vote before the last one back."""
    back = votes[-2] | {"action": "undo", "label": None, "id": "0" * 32}
    return [*votes[:-1], back, votes[-1]]


@pytest.mark.parametrize("change", [without_last, turned, elsewhere, one_person, strangers, taken_back])
def test_labels_that_nobody_has_settled(asked: Folder, tmp_path: Path, change: Callable[[Lines], Lines]) -> None:
    """Votes that do not come to what the log says, however well they are chained."""
    assert failures(forged(asked, tmp_path, change), asked[1]) == ["votes"]


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_votes_that_are_no_chain(asked: Folder, tmp_path: Path, harm: str) -> None:
    """A vote that was changed by itself, or a file that is gone, is refused as the campaign is read."""
    path = Path(shutil.copytree(asked[0], tmp_path / "c"))
    if harm == "gone":
        (path / "votes.jsonl").unlink()
    else:
        text = (path / "votes.jsonl").read_text()
        (path / "votes.jsonl").write_text(text.replace('"anna"', '"ann"', 1))
    with pytest.raises(DataError, match=r"votes\.jsonl"):
        examine(path, asked[1])
