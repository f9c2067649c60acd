"""Campaigns of three classes, with a loss, by class, and with rows that no annotator can label."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from campaign_kit import CLASSES, forgotten, noisy_labels, rows_and_labels, same_state, three_classes, unlabelled
from coremargin.active import Campaign
from coremargin.active.answers import Annotation
from coremargin.data.store import Store
from coremargin.errors import LabelError, SpecError
from coremargin.formats.draws import drawn
from coremargin.maths.evidence import share_of
from coremargin.models.registry import load
from coremargin.verify import verify
from coremargin.verify.examine import examine

THREE, NAMES = three_classes()
X, LABELS = rows_and_labels()
NOISY = noisy_labels(LABELS, share=0.02)


def oracle(labels: list[str]) -> Any:
    """Somebody who knows all of these."""
    return lambda rows: {int(row): labels[int(row)] for row in rows}


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """600 rows of three classes, each of which a hyperplane tells from the rest."""
    return unlabelled(tmp_path / "three.zarr", THREE)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """600 rows of two classes."""
    return unlabelled(tmp_path / "two.zarr", X)


def test_three_classes(tmp_path: Path, three: Path) -> None:
    """A campaign of three classes ends in a model that labels all rows, whose margins of each class against the rest
    hold for all rows; the log alone gives the state again, and verify finds it true.
    """
    campaign = Campaign.create(tmp_path / "c", three, classes="abc", error=0.05)
    status = campaign.run(oracle(NAMES))
    assert status["status"] == "certified"
    assert status["labels_asked"] < 300
    model = load(campaign.path / "model")
    assert model.predict(THREE).tolist() == NAMES
    for one, label in zip(model.record["members"], "abc", strict=True):
        signs = np.where(np.array(NAMES) == label, 1, -1)
        k = "abc".index(label)
        margin = (signs * (THREE.astype(np.float64) @ model.coef[k] + model.intercept[k])).min()
        assert 0.9 * one["upper"] <= one["lower"] <= margin * (1 + 1e-9)
    assert status["error_bound"] <= 30
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))
    assert verify(campaign.path, three).ok


def test_answers_of_three_classes_that_contradict_each_other(tmp_path: Path, three: Path) -> None:
    """A wrong answer deep in another class ends in rows that show it, with the class that cannot be told from the rest;
    corrected, the campaign goes on to its proof.
    """
    campaign = Campaign.create(tmp_path / "c", three, classes="abc", error=0.05)
    some = [NAMES.index(label) for label in "abc"]
    campaign.tell(some, list("abc"), examples=True)
    wrong = int(np.argmax(THREE[:, 0]))
    assert NAMES[wrong] == "a"
    campaign.tell([wrong], ["c"], examples=True)
    status = campaign.run(oracle(NAMES))
    assert status["status"] == "not_separable"
    assert status["against_rest"] in ("a", "c")
    assert wrong in {one["row"] for one in status["contradiction"]}
    assert load(campaign.path / "model").status == "not_separable"
    campaign.correct(wrong, "a")
    assert campaign.run(oracle(NAMES))["status"] == "certified"


def test_a_class_that_no_row_has(tmp_path: Path) -> None:
    """Where draws have found no row of one of three classes that is said, and an example of it goes on."""
    some = np.array([label != "c" for label in NAMES])
    store, names = unlabelled(tmp_path / "s", THREE[some]), [label for label in NAMES if label != "c"]
    campaign = Campaign.create(tmp_path / "c", store, classes="abc", error=0.05)
    with pytest.raises(LabelError, match=r"expected rows of 3 classes, found \d+ answers, none of them 'c'; .* such a"):
        campaign.run(oracle(names))
    status = campaign.status
    assert (status["status"], status["reason"]) == ("stopped", "no answer has 'c'")
    row = next(row for row in range(len(names)) if row not in campaign._state.labels)
    campaign.tell([row], ["c"], examples=True)
    assert campaign.status["status"] != "stopped"


@pytest.mark.slow
def test_noisy_answers_end_in_an_interval(tmp_path: Path, two: Path) -> None:
    """With a loss answers may contradict each other: the campaign is certified by draws of which some are wrong, and
    the interval that is claimed holds for the rows without an answer, as they would be answered.
    """
    asked = {"loss": "hinge", "C": 1.0, "error": 0.15, "confidence": 0.9, "trial": 120}
    campaign = Campaign.create(tmp_path / "c", two, classes=CLASSES, **asked)
    status = campaign.run(oracle(NOISY))
    assert status["status"] == "certified"
    evidence, model = status["evidence"], load(campaign.path / "model")
    known = {*model.arrays()["answered_ids"].tolist()}
    rest = [row for row in range(600) if row not in known]
    wrong = sum(label != NOISY[row] for row, label in zip(rest, model.predict(X[rest]).tolist(), strict=True))
    assert evidence["draws"] == 120
    assert evidence["population"] == len(rest)
    assert evidence["error_least"] <= wrong <= evidence["error_bound"] <= 0.15 * len(rest)
    order = (row for row in drawn(model.store_digest, 0, evidence["attempt"], 600) if row not in known)
    assert model.arrays()["draws_ids"].tolist() == [next(order) for _ in range(120)]
    delta, bad = share_of(1 - 0.9, evidence["attempt"]) / 2, evidence["error_bound"] + 1
    assert hypergeom.cdf(evidence["wrong"], len(rest), bad, 120) <= delta
    assert hypergeom.cdf(evidence["wrong"], len(rest), bad - 1, 120) > delta
    assert 0 < status["upper"] - status["lower"] <= 0.1 * status["upper"]
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))
    assert verify(campaign.path, two).ok


def test_a_finished_trial_is_told_while_the_campaign_goes_on(tmp_path: Path, two: Path) -> None:
    """Where a trial does not show what was asked for the campaign goes on, and what was seen is told as long as no
    other answer comes; whoever stops then has a model with its interval, which verify finds true.
    """
    labels = noisy_labels(LABELS, share=0.2)
    asked = {"loss": "squared_hinge", "C": 0.1, "error": 0.1, "confidence": 0.9, "trial": 40}
    campaign = Campaign.create(tmp_path / "c", two, classes=CLASSES, **asked)
    for _ in range(400):
        if campaign.status["evidence"] is not None:
            break
        for one in campaign.ask(5):
            campaign.tell([one.row], [labels[one.row]])
    status = campaign.status
    assert (status["status"], status["evidence"]["draws"]) == ("running", 40)
    assert status["evidence"]["wrong"] > 0
    assert 0 < status["error_least"] < status["error_bound"]
    campaign.stop()
    model = load(campaign.path / "model")
    assert (model.status, model.evidence) == ("stopped", status["evidence"])
    assert verify(campaign.path, two).ok
    (question,) = campaign.ask(1)
    assert question.why == "query"
    campaign.tell([question.row], [labels[question.row]])
    assert campaign.status["evidence"] is None
    assert load(campaign.path / "model").evidence is None
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_what_is_asked_of_each_class(tmp_path: Path) -> None:
    """With a rare class and by_class the share holds of the rows that are given each of them, which the strata say."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((1000, 3)).astype(np.float32)
    rows[:, 0] += np.where(np.arange(1000) % 20 == 0, 5, -5).astype(np.float32)
    labels = ["rare" if row % 20 == 0 else "often" for row in range(1000)]
    store = unlabelled(tmp_path / "s", rows)
    campaign = Campaign.create(tmp_path / "c", store, classes=["often", "rare"], error=0.1, by_class=True)
    rare = labels.index("rare")
    campaign.tell([rare, 1], ["rare", "often"], examples=True)
    status = campaign.run(oracle(labels))
    assert status["status"] == "certified"
    strata = {part["label"]: part for part in status["evidence"]["strata"]}
    model = load(campaign.path / "model")
    given = Counter(labels[row] for row in range(1000) if row not in model.arrays()["answered_ids"])
    assert {label: part["population"] for label, part in strata.items()} == given
    assert all(part["error_bound"] <= 0.1 * part["population"] for part in strata.values())
    assert verify(campaign.path, store).ok


@pytest.mark.slow
@pytest.mark.parametrize("when", ["first", "draw"])
def test_rows_that_nobody_can_label(tmp_path: Path, two: Path, when: str) -> None:
    """They are asked about no more, and a draw that is one of them gives its place to the next of the order: the
    attempt goes on. The model says how many they are; one that is labelled later ends the attempt.
    """
    campaign = Campaign.create(tmp_path / "c", two, classes=CLASSES, error=0.05)
    unsure: list[int] = []
    while campaign.status["status"] == "running":
        for one in campaign.ask(5):
            if len(unsure) < 4 and (when == "first" or one.why == "draw"):
                campaign.skip(one.row, unsure=True)
                unsure.append(one.row)
            else:
                campaign.tell([one.row], [LABELS[one.row]])
    status = campaign.status
    assert (status["unsure"], status["unsure_rows"]) == (4, sorted(unsure))
    assert (status["status"], status["attempt"], status["passed"]) == ("certified", 1, 0)
    model = load(campaign.path / "model")
    known = {*model.arrays()["answered_ids"].tolist(), *unsure}
    assert status["population"] == 600 - len(known)
    order = (row for row in drawn(model.store_digest, 0, 1, 600) if row not in known)
    assert model.arrays()["draws_ids"].tolist() == [next(order) for _ in range(status["evidence"]["draws"])]
    assert (model.record["unsure"], model.arrays()["unsure_ids"].tolist()) == (4, sorted(unsure))
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))
    assert verify(campaign.path, two).ok
    wrong = {"ham": "spam", "spam": "ham"}[LABELS[unsure[0]]]
    campaign.tell([unsure[0]], [wrong])
    assert campaign.status["unsure"] == 3
    assert campaign.status["status"] != "certified"
    campaign.correct(unsure[0], LABELS[unsure[0]])
    assert campaign.run(oracle(LABELS))["status"] == "certified"
    assert same_state(campaign, forgotten(campaign, tmp_path / "again"))


def test_from_a_contradiction_to_a_loss(tmp_path: Path, two: Path) -> None:
    """The answers that a campaign without a loss has ended with begin one with a loss, whose C their folds choose."""
    hard = Campaign.create(tmp_path / "hard", two, classes=CLASSES, error=0.15, confidence=0.9)
    hard.tell(range(60), NOISY[:60], examples=True)
    assert hard.run(oracle(NOISY))["status"] == "not_separable"
    asked = {"loss": "hinge", "C": "auto", "error": 0.15, "confidence": 0.9, "trial": 120}
    soft = Campaign.create(tmp_path / "soft", two, classes=CLASSES, examples=hard.path, **asked)
    assert soft._state.labels == hard._state.labels
    assert soft.run(oracle(NOISY))["status"] == "certified"
    record = json.loads((soft.path / "model" / "model.json").read_text())
    assert record["parameters"]["C"] == soft.settings.C
    assert verify(soft.path, two).ok


def test_nothing_is_shown_where_nobody_can_tell(tmp_path: Path, three: Path) -> None:
    """By class: rows that no answer gives a class are drawn as long as there are any; none is claimed to have a label
    that nobody has looked at.
    """
    campaign = Campaign.create(tmp_path / "c", three, classes="abc", by_class=True, error=0.2, memory=1000)
    for _ in range(40):
        for question in campaign.ask(5):
            campaign.skip(question.row, unsure=True)
    assert campaign.status["status"] == "running"
    assert campaign.status["labels"] == 0
    rows = [question.row for question in campaign.ask(5)]
    campaign.tell(rows, [NAMES[row] for row in rows])
    assert campaign.run(oracle(NAMES))["status"] == "certified"
    assert verify(campaign.path, three).ok


@pytest.mark.slow
def test_a_label_comes_late_for_a_row_that_nobody_could_tell(tmp_path: Path, two: Path) -> None:
    """It is asked about as any row that has an answer: the attempt is void, and the row is one of those answered."""
    campaign = Campaign.create(tmp_path / "c", two, classes=CLASSES, error=0.05)
    first = campaign.ask()[0].row
    campaign.skip(first, unsure=True)
    assert campaign.run(oracle(LABELS))["status"] == "certified"
    before = campaign.status["attempt"]
    campaign.tell([first], [LABELS[first]])
    status = campaign.run(oracle(LABELS))
    assert (status["status"], status["unsure_rows"], status["attempt"]) == ("certified", [], before + 1)
    assert first in campaign.model.numbers["answered_ids"]
    assert verify(campaign.path, two).ok


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_log_alone_gives_trials_again(tmp_path: Path, seed: int) -> None:
    """After trials that did not show what was asked for, too: the same bits, the same hypotheses tried."""
    rows, labels = rows_and_labels(300, seed=seed)
    noisy = noisy_labels(labels, 0.1, seed)
    asked: dict[str, Any] = {"error": 0.1, "confidence": 0.5, "loss": "hinge", "C": 0.1, "trial": 25, "seed": seed}
    campaign = Campaign.create(tmp_path / "c", unlabelled(tmp_path / "r", rows), classes=CLASSES, **asked)
    campaign.run(oracle(noisy), batch=5)
    assert campaign.status["attempt"] > 1
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_the_smallest_c_ends(tmp_path: Path) -> None:
    """Where every row is within |w.x + b| < 1 all may be asked about, and that is the end of it; and a trial shows what
    it shows.
    """
    rows, labels = rows_and_labels(60)
    store = unlabelled(tmp_path / "r", rows)
    asked: dict[str, Any] = {"classes": CLASSES, "loss": "hinge", "C": 1e-6, "error": 0.2, "confidence": 0.9}
    campaign = Campaign.create(tmp_path / "c", store, **asked)
    assert campaign.run(oracle(labels))["status"] == "certified"
    every = Campaign.create(tmp_path / "e", store, **asked, trial=60)
    every.tell(range(60), labels, examples=True)
    status = every.run(oracle(labels))
    assert (status["status"], status["labels"], status["evidence"]) == ("certified", 60, None)
    assert verify(every.path, store).ok


def test_a_class_that_no_row_has_ends_with_a_loss(tmp_path: Path, three: Path) -> None:
    """The class is named when the draws show what was asked for, and when all rows are answered."""
    asked: dict[str, Any] = {"classes": "abcd", "loss": "hinge", "C": 1.0, "error": 0.3, "confidence": 0.9}
    campaign = Campaign.create(tmp_path / "c", three, **asked)
    with pytest.raises(LabelError, match=r"found \d+ answers, none of them 'd'"):
        campaign.run(oracle(NAMES))
    assert campaign.status["labels"] < len(NAMES) // 2
    every = Campaign.create(tmp_path / "e", three, **asked)
    every.tell(range(len(NAMES)), NAMES, examples=True)
    with pytest.raises(LabelError, match="none of them 'd'; all rows are answered"):
        every.run(oracle(NAMES))


@pytest.mark.slow
def test_rows_set_aside_after_the_draws_void_them(tmp_path: Path, two: Path) -> None:
    """What is set aside when draws are known could be chosen by them: the attempt is spent, and a new one draws from
    what is left; so it is for a certified campaign. A draw that no annotator can label has the next one in its place.
    """
    campaign = Campaign.create(tmp_path / "c", two, classes=CLASSES, loss="hinge", C=0.05, error=0.3, trial=40)
    assert campaign.run(oracle(NOISY), batch=5)["status"] == "certified"
    drawn_rows = campaign.model.arrays()["draws_ids"].tolist()
    free = [row for row in range(len(NOISY)) if row not in campaign._state.labels]
    campaign.answer([Annotation(row, None, "unsure") for row in free[:30]], examples=True)
    status = campaign.status
    assert (status["status"], status["attempt"], status["evidence"]) == ("running", 2, None)
    while not len(campaign._state.state.draws):
        rows = [one.row for one in campaign.ask(5)]
        campaign.tell(rows, [NOISY[row] for row in rows])
    first = campaign.ask(1)[0].row
    assert first in campaign._state.state.draws.ids
    campaign.skip(first, unsure=True)
    assert campaign.run(oracle(NOISY), batch=5)["status"] == "certified"
    assert campaign.status["attempt"] == 2
    assert campaign.status["unsure_rows"] == sorted([*free[:30], first])
    assert (campaign.skip(first), campaign.skip(first, unsure=True)) == (0, 0)  # it is set aside: nothing to put off
    assert (campaign.status["status"], campaign.status["attempt"]) == ("certified", 2)
    assert not {*drawn_rows, first} & set(campaign.model.arrays()["draws_ids"].tolist())
    found = examine(campaign.path, two)
    assert found.ok
    assert any(check.name == "draws set aside" for check in found.checks)
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_rows_that_are_taken_back_are_asked_about_and_never_drawn(tmp_path: Path, two: Path) -> None:
    """The last one first, before any other; meanwhile they are set aside like those that no annotator can label."""
    campaign = Campaign.create(tmp_path / "c", two, classes=CLASSES, error=0.05)
    order = list(drawn(Store.open(two).digest, 0, 1, len(LABELS)))[:12]
    campaign.tell(order, [LABELS[row] for row in order], examples=True)
    for row in order[:3]:
        campaign.undo(row)
    assert [one.row for one in campaign.ask(5)] == order[2::-1]
    assert campaign.status["unsure_rows"] == sorted(order[:3])
    campaign.tell(order[2:3], [LABELS[order[2]]])
    for row in order[:2]:
        campaign.skip(row, unsure=True)
    status = campaign.run(oracle(LABELS))
    assert (status["status"], status["unsure_rows"]) == ("certified", sorted(order[:2]))
    arrays = campaign.model.arrays()
    assert not set(order) & set(arrays["draws_ids"].tolist())
    assert order[2] in arrays["answered_ids"]
    assert verify(campaign.path, two).ok
    assert same_state(campaign, forgotten(campaign, tmp_path / "copy"))


def test_a_trial_that_can_show_nothing_is_refused(tmp_path: Path, two: Path) -> None:
    """Before the first question, with the number of rows that it takes."""
    with pytest.raises(SpecError, match=r"trial: expected at least \d+ rows, found 5"):
        Campaign.create(tmp_path / "c", two, classes=CLASSES, loss="hinge", C=1.0, error=0.01, trial=5)
    assert not (tmp_path / "c").exists()
