"""Active learning on arrays: the habits of modAL, the proof of a campaign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from campaign_kit import CLASSES, rows_and_labels, unlabelled
from coremargin.active import ActiveLearner, Campaign, StreamLearner
from coremargin.errors import DataError, LabelError, UsageError

X, LABELS = rows_and_labels()


def taught(learner: ActiveLearner, batch: int = 1) -> list[int]:
    """Rows in the order they were asked about, to the end."""
    rows = []
    while len(ids := learner.query(batch)[0]):
        learner.teach(ids, [LABELS[row] for row in ids])
        rows += ids.tolist()
    return rows


def test_it_asks_what_a_campaign_asks(tmp_path: object) -> None:
    """In memory the hypothesis is that of a campaign about the same rows in chunks as large, to the bit."""
    learner = ActiveLearner(X, classes=CLASSES, error=0.05)
    store = unlabelled(tmp_path / "s", X, chunk_rows=600)  # type: ignore[operator]
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05)  # type: ignore[operator]
    campaign.run(lambda rows: {row: LABELS[row] for row in rows})
    queries = [line.row for line in campaign._state.log.lines if line.why != "draw"]
    asked = taught(learner)
    assert asked[: len(queries)] == queries  # draws follow from the digest, which knows how rows are stored
    assert learner.status == "certified"
    assert learner.model.w.tobytes() == campaign.model.w.tobytes()
    assert learner.evidence == learner.model.evidence
    assert learner.model.log is None
    assert learner.predict(X).tolist() == LABELS
    assert learner.score(X, LABELS) == 1.0


@pytest.mark.parametrize("sparse", [False, True])
def test_training_rows_and_batches(sparse: bool) -> None:
    """Rows with labels may be there from the start; batches give rows as they are; a label taught again is changed."""
    pool = csr_array(X) if sparse else X
    learner = ActiveLearner(pool[:580], pool[580:], LABELS[580:], error=0.05)
    assert set(learner.classes) == set(CLASSES)
    ids, rows = learner.query(4)
    assert len(set(ids.tolist())) == 4 == rows.shape[0]
    np.testing.assert_array_equal(rows.toarray() if sparse else rows, X[ids].astype(np.float64))
    wrong = {"ham": "spam", "spam": "ham"}[LABELS[ids[0]]]
    learner.teach(ids[:1], [wrong])
    learner.teach(ids[:1], [LABELS[ids[0]]])
    taught(learner, batch=5)
    assert learner.status == "certified"
    assert learner.predict(pool).tolist() == LABELS


def test_labels_are_taken_together_or_not_at_all() -> None:
    """One bad label among good ones leaves the learner as it was; a typo that is changed leaves no class behind."""
    learner = ActiveLearner(X, error=0.05)
    learner.teach([3], ["hma"])
    state = learner._learner.state
    with pytest.raises(LabelError, match="row 2: expected 'hma' or 'spam', found 'egg'"):
        learner.teach([1, 2], ["spam", "egg"])
    assert (learner.classes, learner._learner.state) == (["hma"], state)
    learner.teach([3], [LABELS[3]])
    assert learner.classes == [LABELS[3]]
    taught(learner)
    assert learner.status == "certified"
    assert learner.predict(X).tolist() == LABELS


def test_classes_are_plain_labels(tmp_path: Path) -> None:
    """NumPy's numbers are written as numbers; one class, or two that are equal, are refused."""
    codes = np.array([CLASSES.index(label) for label in LABELS])
    learner = ActiveLearner(X, classes=np.unique(codes), error=0.05)
    while len(ids := learner.query(1)[0]):
        learner.teach(ids, codes[ids])
    learner.model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "model.json").read_text())["classes"] == [0, 1]
    for classes, message in [("a", "found 1"), ("aa", "expected different labels of one kind")]:
        with pytest.raises(LabelError, match=message):
            ActiveLearner(X, classes=classes)


def test_what_it_refuses() -> None:
    """Rows that are not there, or no rows, a third label, labels that are missing, answers that are all the same."""
    learner = ActiveLearner(X, classes=CLASSES, error=0.1, confidence=0.9)
    with pytest.raises(DataError, match="expected rows from 0 to 599"):
        learner.teach([600], ["ham"])
    for row in (1.7, "x", True, -1):
        with pytest.raises(DataError, match=f"ids: expected the number of a row, found {row!r}"):
            learner.teach([row], ["ham"])
    for n in (0, -1, 2.5):
        with pytest.raises(UsageError, match=f"n: expected at least one row, found {n}"):
            learner.query(n)  # type: ignore[arg-type] # that is what is refused
    with pytest.raises(UsageError, match=r"as wide as those of X_pool, \(600, 4\), found \(600, 3\)"):
        ActiveLearner(X, X[:, 1:], LABELS)
    with pytest.raises(UsageError, match="dense or sparse as those of X_pool are"):
        ActiveLearner(X, csr_array(X), LABELS)
    with pytest.raises(LabelError, match="expected 'ham' or 'spam', found 'egg'"):
        learner.teach([0], ["egg"])
    with pytest.raises(UsageError, match="expected one for each of 2 rows, found 1"):
        learner.teach([0, 1], ["ham"])
    with pytest.raises(UsageError, match="expected answers of two classes"):
        learner.predict(X)
    with pytest.raises(UsageError, match="expected a label for each row of X_training, found 1"):
        ActiveLearner(X, X, ["ham"])
    while learner.status == "running":
        ids, _ = learner.query(10)
        learner.teach(ids, ["ham"] * len(ids))
    with pytest.raises(LabelError, match=r"expected rows of two classes, found \d+ answers, all of them 'ham'$"):
        learner.query()
    assert learner.status == "stopped"


@pytest.mark.parametrize("loss", [None, "hinge"])
def test_a_solve_that_breaks_down_ends_the_campaign(monkeypatch: pytest.MonkeyPatch, loss: Any) -> None:
    """As stalled, with the last hypothesis and nothing claimed of it; a stream of rows ends so, too."""
    rows = np.array([[-3.0], [-2.0], [2.0], [3.0], [4.0]])
    names = {None: "largest_margins", "hinge": "least_values"}
    learner = ActiveLearner(rows, classes=["a", "b"], loss=loss, C=None if loss is None else 1.0)
    learner.teach([0, 3], ["a", "b"])

    def broken(*_: Any, **__: Any) -> Any:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(f"coremargin.problems.active.problem.{names[loss]}", broken)
    learner.teach([1], ["a"])
    assert (learner.status, learner.model.status) == ("stalled", "stopped")
    assert (learner.model.certificate.lower, learner.model.certificate.upper) == (None, None)
    assert learner.predict(rows).tolist() == ["a", "a", "b", "b", "b"]
    assert len(learner.query()[0]) == 0
    if loss is None:
        assert StreamLearner(classes=["a", "b"]).learn(rows, lambda row: "ab"[int(row[0] > 0)]) == "stalled"


@pytest.mark.parametrize("table", [pd.DataFrame, pa.Table.from_pandas, lambda frame: frame.astype("Float64")])
def test_columns_of_a_frame_are_found_by_their_names(table: object) -> None:
    """In X_training, and where rows are predicted; others are refused."""
    names = [f"c{column}" for column in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    turned = frame[names[::-1]]
    learner = ActiveLearner(table(frame), turned[:9], LABELS[:9], classes=CLASSES, error=0.05)  # type: ignore[operator]
    plain = ActiveLearner(X, X[:9], LABELS[:9], classes=CLASSES, error=0.05)
    assert learner.model.feature_names == tuple(names)
    np.testing.assert_array_equal(learner.model.decision_function(turned), plain.model.decision_function(X))
    with pytest.raises(DataError, match="X_training: other columns than those of X_pool: 'c0' is missing"):
        ActiveLearner(frame, turned.rename(columns={"c0": "zz"}), LABELS)
    with pytest.raises(UsageError, match="X_pool: expected columns of numbers, found others"):
        ActiveLearner(frame.assign(word="w"))
