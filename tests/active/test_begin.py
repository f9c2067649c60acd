"""How campaigns begin: what is said, what is found before, and answers that another campaign has."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign_kit import CLASSES, noisy_labels, rows_and_labels, same_state, unlabelled
from coremargin.active import Campaign
from coremargin.active.answers import Annotation
from coremargin.active.create import check_same_job, job_of, read_settings
from coremargin.active.penalty import choose_cost
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DataError, LabelError, SpecError
from coremargin.maths.evidence import trial_size
from coremargin.problems.active.problem import ActiveMargin
from coremargin.problems.active.spec import ActiveJob

X, LABELS = rows_and_labels(200, 3)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """200 rows of 3 features."""
    return unlabelled(tmp_path / "rows.zarr", X)


@pytest.fixture
def earlier(tmp_path: Path, store: Path) -> Campaign:
    """A campaign with eight answers, one of them corrected, one taken back, and a row that no annotator could label."""
    begun = Campaign.create(tmp_path / "old", store, classes=CLASSES)
    rows = [one.row for one in begun.ask(9)]
    begun.tell(rows[:8], [LABELS[row] for row in rows[:8]])
    begun.correct(rows[0], {"ham": "spam", "spam": "ham"}[LABELS[rows[0]]])
    begun.undo(rows[1])
    begun.skip(rows[8], unsure=True)
    return begun


def facts_of(campaign: Campaign) -> dict[str, Any]:
    """What its file says."""
    return tomllib.loads((campaign.path / "campaign.toml").read_text())


def test_answers_of_another_campaign(tmp_path: Path, store: Path, earlier: Campaign) -> None:
    """Those that hold are examples, as they were corrected, and rows that no annotator could label, or whose answers
    were taken back, are none to ask about; a store that has grown since has the same rows in the same places.
    """
    with StoreWriter.append(store) as writer:
        writer.write(X[:50], None, origin="more")
    begun = Campaign.create(tmp_path / "new", store, examples=earlier.path)
    assert begun.settings.classes == list(CLASSES)
    assert begun._state.labels == earlier._state.labels
    assert len(begun._state.labels) == 7
    assert begun.settings.rows == 250
    unsure, undone = (next(one.row for one in earlier._state.log.lines if one.action == k) for k in ("unsure", "undo"))
    actions = [(line.row, line.action, line.why) for line in begun._state.log.lines]
    assert sorted(actions[7:]) == sorted([(unsure, "unsure", "example"), (undone, "unsure", "example")])
    more = [Annotation(199, LABELS[199])] if 199 not in begun._state.labels else []
    assert len(Campaign.create(tmp_path / "no", store, classes=CLASSES, examples=more)._state.labels) == len(more)


def test_answers_of_a_campaign_about_other_rows(tmp_path: Path, store: Path, earlier: Campaign) -> None:
    """Row numbers of another store mean other rows: refused, as is a folder that is no campaign; nothing is made."""
    other = unlabelled(tmp_path / "other.zarr", X + np.float32(1))
    few = unlabelled(tmp_path / "few.zarr", X[:100])
    for place in (other, few):
        with pytest.raises(DataError, match="old: expected a campaign about rows of .* which is none of its commits"):
            Campaign.create(tmp_path / "new", place, classes=CLASSES, examples=earlier.path)
    with pytest.raises(DataError, match="rows.zarr: expected a campaign, found no campaign.toml"):
        Campaign.create(tmp_path / "new", store, classes=CLASSES, examples=store)
    with pytest.raises(LabelError, match=r"old, row \d+: expected 'a' or 'b', found '"):
        Campaign.create(tmp_path / "new", store, classes="ab", examples=earlier.path)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_what_is_found_before_a_campaign_begins(tmp_path: Path, store: Path) -> None:
    """C by folds of the examples as they are scaled, and the number of draws of a trial: numbers in the file, which a
    job that leaves them to be found goes on with, and one that says others does not.
    """
    rng = np.random.default_rng(1)
    rows = rng.permutation(200)[:60]
    given = [Annotation(int(row), LABELS[row]) for row in rows]
    asked: dict[str, Any] = {"loss": "hinge", "error": 0.2, "scaling": "standard", "seed": 3}
    begun = Campaign.create(tmp_path / "c", store, classes=CLASSES, C="auto", examples=given, by_class=True, **asked)
    codes = {int(row): CLASSES.index(LABELS[row]) for row in rows}
    source = scaled(Store.open(store), "standard")
    wanted = choose_cost(source, codes, CLASSES, loss="hinge", intercept=True, seed=3, place="")
    found = facts_of(begun)
    assert (found["loss"], found["C"], found["by_class"]) == ("hinge", wanted, True)
    assert found["trial"] == trial_size(0.2, 0.99, strata=2, rows=Store.open(store).rows)
    assert found["C"] == begun.settings.C
    job = ActiveJob(store=store, out=begun.path, by_class=True, C="auto", **asked)
    check_same_job(job)
    said = job_of(read_settings(begun.path)[0], begun.path)
    assert (said.C, said.trial, said.by_class, said.classes) == (wanted, found["trial"], True, list(CLASSES))
    for more, message in [
        ({"trial": 7}, f"trial: expected {found['trial']} as the campaign there says, found 7"),
        ({"C": 17.0}, f"C: expected {wanted}"),
        ({"by_class": False}, "by_class: expected True"),
        ({"classes": ["spam", "ham"]}, "classes: expected"),
    ]:
        with pytest.raises(SpecError, match=message):
            check_same_job(ActiveJob(**{**{name: getattr(job, name) for name in job.__struct_fields__}, **more}))
    with pytest.raises(SpecError, match="loss: expected hinge as the campaign there says, found None"):
        check_same_job(ActiveJob(store=store, out=begun.path, by_class=True, error=0.2, scaling="standard", seed=3))


def test_c_cannot_be_found(tmp_path: Path, store: Path, earlier: Campaign) -> None:
    """Without examples of each class there are no folds: the class is named, and nothing is made."""
    for examples, message in ((earlier.path, r"found \d of '"), ((), "found 0 of 'ham'; give more with examples")):
        with pytest.raises(DataError, match=rf'new: C "auto": expected examples of each class, 5 rows .*{message}'):
            Campaign.create(tmp_path / "new", store, classes=CLASSES, loss="hinge", C="auto", examples=examples)
    with pytest.raises(SpecError, match="C: expected a number above 0, or 'auto', with loss 'hinge'; found none"):
        Campaign.create(tmp_path / "new", store, loss="hinge")
    with pytest.raises(SpecError, match="trial: it belongs to a loss, found 5; give loss too"):
        Campaign.create(tmp_path / "new", store, trial=5)
    assert not (tmp_path / "new").exists()


def test_classes_of_a_store(tmp_path: Path) -> None:
    """A store that names three classes has a campaign of three, in their order; more than it names may be named."""
    labels = ["c", "a", "b", "a"] * 50
    store = unlabelled(tmp_path / "three.zarr", X, labels)
    assert Campaign.create(tmp_path / "c", store).classes == ["a", "b", "c"]
    assert Campaign.create(tmp_path / "d", store, classes="dcba").classes == ["d", "c", "b", "a"]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("said", [{}, {"loss": "hinge", "C": 1.0, "trial": 200}], ids=["hard", "hinge"])
def test_examples_are_solved_for_once(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    """What is known before is one solve, however many rows it is; and the state is the same to the bit, whether it came
    at once or in parts, to one process or to others, and whether or not questions were asked meanwhile.
    """
    labels = noisy_labels(LABELS, 0.1) if said else LABELS
    solved, calls = ActiveMargin.solve, list[int]()

    def counted(self: ActiveMargin, state: Any) -> Any:
        calls.append(len(state.answered))
        return solved(self, state)

    monkeypatch.setattr(ActiveMargin, "solve", counted)
    given = [Annotation(row, labels[row]) for row in range(60)]
    first = Campaign.create(tmp_path / "first", store, classes=CLASSES, examples=given[:6], **said)
    assert calls == [6]
    assert first.ask(1)
    assert first.status["scans"] == 0
    shutil.copytree(first.path, tmp_path / "late")  # one that has come so far, and hears of the others later
    for one in given[6:12]:
        first.tell([one.row], [one.label], examples=True)
    first.answer(given[12:], examples=True)
    shutil.copy(first.path / "answers.jsonl", tmp_path / "late")
    late = Campaign(tmp_path / "late")
    calls.clear()
    shutil.copytree(first.path, tmp_path / "anew", ignore=shutil.ignore_patterns("state"))
    anew = Campaign(tmp_path / "anew")
    assert calls == [60]
    assert same_state(first, anew)
    assert same_state(first, late)
    for campaign in (first, anew, late):
        campaign.run(lambda rows: {row: labels[row] for row in rows}, most=70)
    assert same_state(first, anew)
    assert same_state(first, late)
