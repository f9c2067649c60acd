"""Several people about the same row: votes, agreement, conflicts, who settles them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from campaign_kit import CLASSES, forgotten, rows_and_labels, same_state, unlabelled
from coremargin.active import Campaign
from coremargin.active.answers import Annotation
from coremargin.active.inbox import Inbox, received_answer
from coremargin.errors import DataError, UsageError
from coremargin.maths.active.agreement import cohen_kappa, fleiss_kappa

X, LABELS = rows_and_labels(200, 3)


def begun(path: Path, **more: Any) -> Campaign:
    """A campaign that asks two people."""
    store = unlabelled(path / "rows.zarr", X)
    return Campaign.create(path / "c", store, **{"classes": CLASSES, "error": 0.2, "people": 2, **more})


def other(label: str) -> str:
    """The wrong one."""
    return CLASSES[1 - CLASSES.index(label)]


def test_a_label_needs_both(tmp_path: Path) -> None:
    """One answer is none yet, and asks nobody twice; two that agree are a label, with the names of both."""
    campaign = begun(tmp_path)
    row = campaign.ask(1, who="anna")[0].row
    assert [one.row for one in campaign.ask(1, who="ben", again=True)] == [row]
    assert campaign.tell([row], [LABELS[row]], who="anna") == 1
    assert (campaign.answer_of(row), campaign.status["labels"]) == (None, 0)
    assert campaign.ask(1, who="anna", again=True) == []
    assert campaign.answers_of("anna") == [(row, LABELS[row])]
    assert campaign.undo(who="anna") == 1
    assert campaign.answers_of("anna") == []
    campaign.tell([row], [LABELS[row]], who="anna")
    campaign.tell([row], [LABELS[row]], who="ben")
    assert campaign.answer_of(row) == LABELS[row]
    assert campaign._state.log.lines[-1].who == "anna, ben"
    assert campaign.ask(1, who="ben", again=True) == []
    campaign.undo(row, who="ben")  # of a row that was settled: it is asked of both again
    assert campaign.answer_of(row) is None
    assert campaign.answers_of("anna") == campaign.answers_of("ben") == []


def test_most_people_settle(tmp_path: Path) -> None:
    """Two who disagree are a conflict that is listed, and a third is asked, whose answer decides."""
    campaign = begun(tmp_path)
    row = campaign.ask(1, who="anna")[0].row
    campaign.tell([row], [LABELS[row]], who="anna")
    campaign.tell([row], [other(LABELS[row])], who="ben")
    assert campaign.answer_of(row) is None
    [conflict] = campaign.status["conflicts"]
    assert conflict == {"row": row, "said": {"anna": LABELS[row], "ben": other(LABELS[row])}}
    assert row not in [one.row for one in campaign.ask(1, who="ben", again=True)]
    assert row in [one.row for one in campaign.ask(1, who="cleo", again=True)]
    campaign.tell([row], [LABELS[row]], who="cleo")
    assert campaign.answer_of(row) == LABELS[row]
    assert campaign._state.log.lines[-1].who == "anna, cleo"
    assert campaign.status["conflicts"] == []


def test_a_named_person_settles(tmp_path: Path) -> None:
    """What two disagree about is asked of the one who is named, and of nobody else; that answer holds at once."""
    campaign = begun(tmp_path, settle="judith")
    assert campaign.ask(2, who="judith") == []
    row = campaign.ask(1, who="anna")[0].row
    campaign.tell([row], [LABELS[row]], who="anna")
    assert campaign.ask(1, who="judith", again=True) == []
    campaign.tell([row], [other(LABELS[row])], who="ben")
    assert row not in [one.row for one in campaign.ask(1, who="cleo", again=True)]
    assert [one.row for one in campaign.ask(1, who="judith", again=True)] == [row]
    campaign.tell([row], [LABELS[row]], who="judith")
    assert campaign.answer_of(row) == LABELS[row]
    assert campaign._state.log.lines[-1].who == "judith"


def test_to_a_proof_by_two(tmp_path: Path) -> None:
    """Two people who agree come to a model that is certified; the log alone gives the same state; nothing doubles."""
    campaign, inbox = begun(tmp_path), Inbox(tmp_path / "c")
    while campaign.status["status"] == "running":
        for who in ("anna", "ben"):
            for one in campaign.ask(3, who=who, again=True) or campaign.ask(3, who=who):
                said = received_answer(one.row, LABELS[one.row], "label", who, secrets.token_hex(16))
                inbox.put(said)
                inbox.put(said)
    assert campaign.status["status"] == "certified"
    rows = [line.row for line in campaign._state.log.lines]
    assert len(rows) == len(set(rows))
    assert {line.who for line in campaign._state.log.lines} <= {"anna, ben", "ben, anna"}
    assert same_state(campaign, forgotten(campaign, tmp_path / "again"))


def test_a_function_is_one_person(tmp_path: Path) -> None:
    """What answers by itself is refused: it would vote about the same rows for ever."""
    campaign = begun(tmp_path)
    with pytest.raises(UsageError, match="asks 2 people about each row"):
        campaign.run(lambda rows: {row: LABELS[row] for row in rows})
    assert (tmp_path / "c" / "votes.jsonl").read_text() == ""


@pytest.mark.parametrize("harm", ["changed", "cut", "gone"])
def test_votes_are_chained(tmp_path: Path, harm: str) -> None:
    """A vote that was changed, that settled a label and is left out, or a file that is gone: an error that names it."""
    campaign, file = begun(tmp_path), tmp_path / "c" / "votes.jsonl"
    row = campaign.ask(1, who="anna")[0].row
    for who in ("anna", "ben"):
        campaign.tell([row], [LABELS[row]], who=who)
    Campaign(campaign.path).close()
    first, second = file.read_text().splitlines(keepends=True)
    if harm == "changed":
        file.write_text(first.replace('"anna"', '"ann"') + second)
    elif harm == "cut":
        file.write_text(first)
    else:
        file.unlink()
    with pytest.raises(DataError, match=r"votes\.jsonl"):
        Campaign(campaign.path)


def test_half_a_vote_is_cut_off(tmp_path: Path) -> None:
    """What a killed writer left of a line was told to nobody: the votes before it hold, and the next one follows."""
    campaign, file = begun(tmp_path), tmp_path / "c" / "votes.jsonl"
    row = campaign.ask(1, who="anna")[0].row
    campaign.tell([row], [LABELS[row]], who="anna")
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 2])
    again = Campaign(campaign.path)
    again.tell([row], [LABELS[row]], who="ben")
    assert again.answer_of(row) == LABELS[row]
    assert file.read_bytes().startswith(whole)
    assert len(file.read_bytes().splitlines()) == 2


def test_a_vote_counts_for_who_gave_it(tmp_path: Path) -> None:
    """Whoever tells the answers of others names them: two of one person are one."""
    campaign = begun(tmp_path)
    row = campaign.ask(1, who="anna")[0].row
    said = [Annotation(row, LABELS[row], place="a", who=who) for who in ("anna", "anna")]
    campaign.answer(said[:1], who="a clerk")
    campaign.answer(said[1:], who="a clerk")
    assert campaign.answer_of(row) is None
    campaign.answer([Annotation(row, LABELS[row], place="a", who="ben")], who="a clerk")
    assert campaign.answer_of(row) == LABELS[row]
    assert campaign._state.log.lines[-1].who == "anna, ben"


def test_who_is_killed_before_a_label_is_settled(tmp_path: Path) -> None:
    """Votes that are enough settle their row for whoever comes next."""
    campaign = begun(tmp_path)
    row = campaign.ask(1, who="anna")[0].row
    for who in ("anna", "ben"):
        campaign._votes.put(received_answer(row, LABELS[row], "label", who, secrets.token_hex(16)))
    assert Campaign(campaign.path).answer_of(row) == LABELS[row]
    assert campaign.status["labels"] == 1


def test_agreement_beyond_chance(rng: np.random.Generator) -> None:
    """Cohen's kappa is scikit-learn's; Fleiss' that of its published table; where chance has them agree, none."""
    for _ in range(20):
        first, second = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
        second[:30] = first[:30]
        ours = cohen_kappa(list(zip(first.tolist(), second.tolist(), strict=True)))
        assert ours == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
    assert cohen_kappa([("a", "a")] * 5) is None
    assert cohen_kappa([]) is None
    # ten subjects, fourteen raters, five categories: the worked example that texts on Fleiss' kappa share, 0.210
    table = [
        (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
    ]  # fmt: skip
    rows = [[k for k, n in enumerate(line) for _ in range(n)] for line in table]
    assert fleiss_kappa(rows) == pytest.approx(0.210, abs=5e-4)
    assert fleiss_kappa([]) is None
    assert fleiss_kappa([["a", "a"]]) is None
    with pytest.raises(ValueError, match="the same number of answers"):
        fleiss_kappa([["a", "b"], ["a"]])


@pytest.mark.parametrize(("people", "settle"), [(1, None), (21, None), (True, None), (None, "judith"), (2, " ")])
def test_people_that_cannot_be(tmp_path: Path, people: Any, settle: str | None) -> None:
    """A number of people that makes no sense, or somebody who settles what nobody disagrees about, is refused."""
    with pytest.raises(UsageError, match="people|settle"):
        begun(tmp_path, people=people, settle=settle)
