"""Learning from arrays of several classes, with a loss, by class, and with rows that no annotator can label.

What is claimed is computed again from the labels that only the test knows, by NumPy, SciPy and scikit-learn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom
from sklearn.datasets import load_digits, load_iris
from sklearn.svm import SVC, LinearSVC

from campaign_kit import three_classes
from coremargin.active import ActiveLearner
from coremargin.errors import DataError, LabelError
from coremargin.maths.evidence import share_of


def blobs() -> tuple[np.ndarray, list[str]]:
    """Three clouds, each apart from the rest."""
    return three_classes()


def iris() -> tuple[np.ndarray, list[str]]:
    """Setosa, and the others: versicolor and virginica are no two classes that a hyperplane tells apart."""
    found = load_iris()
    return found.data, [("setosa", "other", "other")[code] for code in found.target]


def digits() -> tuple[np.ndarray, list[int]]:
    """Noughts, ones and twos, of 64 pixels."""
    found = load_digits(n_class=3)
    return found.data / 16.0, found.target.tolist()


def played(learner: ActiveLearner, labels: Sequence[Any], nobody: Collection[int] = (), batch: int = 1) -> list[int]:
    """Rows in the order that they were asked about, to the end; no annotator can label some."""
    rows: list[int] = []
    while len(ids := learner.query(batch)[0]):
        known = [row for row in ids.tolist() if row not in nobody]
        learner.teach(known, [labels[row] for row in known])
        learner.unsure(set(ids.tolist()) - set(known))
        rows += ids.tolist()
    assert len(rows) == len(set(rows)), "no row is asked about twice"
    return rows


def at_most(rows: int, draws: int, wrong: int, delta: float) -> int:
    """The largest number of wrong rows at which so few wrong draws are no rarer than delta, by SciPy."""
    most = [bad for bad in range(wrong, rows - draws + wrong + 1) if hypergeom.cdf(wrong, rows, bad, draws) > delta]
    return max(most, default=wrong)


@pytest.mark.slow
def test_a_class_that_only_draws_have_is_learnt() -> None:
    """Rows of a fourth class lie deep in the first one, where no question comes: a draw finds one, few enough are wrong
    for the share that was asked for, and yet it goes on, as no hyperplane knows that class.
    """
    X, labels = blobs()
    inside = [row for row, label in enumerate(labels) if label == "a"]
    for row in sorted(inside, key=lambda row: -float(X[row, 0]))[:20]:
        labels[row] = "d"
    first = [labels.index(label) for label in "abc"]
    asked: dict[str, Any] = {"loss": "hinge", "C": 1.0, "trial": 60, "error": 0.3, "confidence": 0.9}
    learner = ActiveLearner(X, X[first], [labels[row] for row in first], classes="abcd", **asked)
    labels += [labels[row] for row in first]
    while not len(learner._learner.state.draws):
        learner.teach(ids := learner.query(1)[0], [labels[row] for row in ids])
    assert 3 not in learner._learner.state.answered.seen_classes
    assert "d" in [labels[row] for row in learner._learner.state.draws.ids]
    played(learner, labels)
    assert learner.status == "certified"
    assert learner._learner.state.attempt > 1
    assert learner._learner.state.answered.seen_classes.tolist() == [0, 1, 2, 3]


def check_margins(learner: ActiveLearner, X: np.ndarray, labels: Sequence[Any]) -> None:
    """Each plane has the margin that it claims on all rows; none has more than the upper bound on the rows answered."""
    model = learner.model
    several = len(model.classes) > 2
    places = model.numbers["answered_ids"]
    members = model.record["members"] if several else [model.record["certificate"]]
    for k, one in enumerate(members):
        signs = np.where(np.array(labels) == model.classes[k if several else 1], 1, -1)
        values = X @ (model.coef[k] if several else model.coef) + (model.intercept[k] if several else model.intercept)
        assert one["lower"] <= (signs * values).min() * (1 + 1e-9)
        assert 0.9 * one["upper"] <= one["lower"] <= one["upper"]
        best = 1 / np.linalg.norm(SVC(kernel="linear", C=1e10, tol=1e-9).fit(X[places], signs[places]).coef_)
        assert one["lower"] <= best * (1 + 1e-6)
        assert one["upper"] >= best * (1 - 1e-6)


@pytest.mark.parametrize("rows", [blobs, iris, digits])
def test_margins_of_several_classes(rows: Any) -> None:
    """The margins claimed hold for all rows by their true labels, and no plane could have much more; all labels are
    right, with far fewer answers than there are rows.
    """
    X, labels = rows()
    learner = ActiveLearner(X, classes=sorted(set(labels)), error=0.1, confidence=0.9)
    asked = played(learner, labels)
    assert learner.status == "certified"
    check_margins(learner, X.astype(np.float64), labels)
    shown = learner.evidence
    assert shown is not None
    assert shown["wrong"] == 0
    bound = at_most(shown["population"], shown["draws"], 0, share_of(1 - 0.9, shown["attempt"]))
    assert bound <= shown["error_bound"] <= 0.1 * shown["population"]
    assert (learner.predict(X) != np.array(labels)).sum() <= shown["error_bound"]
    assert learner.score(X, labels) == 1.0
    assert len(asked) < 0.6 * len(X)
    assert learner.model.answers == len(asked)


def soft_value(model: Any, plane: int, X: np.ndarray, signs: np.ndarray, loss: str, C: float) -> float:
    """1/2 |w|^2 + C sum loss."""
    several = len(model.classes) > 2
    w = model.hypothesis[plane, :-1] if several else model.w
    b = model.hypothesis[plane, -1] if several else model.b
    lost = np.maximum(0.0, 1.0 - signs * (X @ w + b))
    return float(w @ w / 2 + C * (lost if loss == "hinge" else lost**2).sum())


def check_values(learner: ActiveLearner, X: np.ndarray, labels: Sequence[Any], loss: str, C: float) -> None:
    """Upper is the value over the rows answered; lower is no more than what scikit-learn finds, and they are near."""
    model = learner.model
    several = len(model.classes) > 2
    ids = model.numbers["answered_ids"]
    members = model.record["members"] if several else [model.record["certificate"]]
    for k, one in enumerate(members):
        signs = np.where(np.array(labels)[ids] == model.classes[k if several else 1], 1, -1)
        value = soft_value(model, k, X[ids], signs, loss, C)
        assert one["upper"] == pytest.approx(value, rel=1e-9)
        if loss == "hinge":
            other = SVC(kernel="linear", C=C, tol=1e-8).fit(X[ids], signs)
            lost = np.maximum(0.0, 1.0 - signs * other.decision_function(X[ids])).sum()
            best = float((other.coef_**2).sum() / 2 + C * lost)
            assert one["lower"] <= best * (1 + 1e-9)
            assert one["lower"] >= best * (1 - 1e-4)
        assert one["lower"] >= (1 - 1e-5) * one["upper"]


def check_draws(learner: ActiveLearner, X: np.ndarray, labels: Sequence[Any], confidence: float) -> None:
    """Draws are counted rightly, and both bounds are those of SciPy; the truth lies between, in this very play."""
    model, shown = learner.model, learner.evidence
    assert shown is not None
    truth, given = np.array(labels), model.predict(X)
    drawn = model.numbers["draws_ids"]
    out = np.zeros(len(X), bool)
    out[model.numbers["answered_ids"]] = out[model.unsure_ids] = True
    parts = shown.get("strata") or [shown | {"label": None}]
    delta = share_of(1 - confidence, shown["attempt"]) / len(parts) / (2 if "loss" in model.parameters else 1)
    for part in parts:
        mine = np.ones(len(X), bool) if part["label"] is None else given == part["label"]
        own = drawn[mine[drawn]]
        wrong = int((given[own] != truth[own]).sum())
        assert (part["draws"], part["wrong"], part["population"]) == (len(own), wrong, int((mine & ~out).sum()))
        bound = at_most(part["population"], len(own), wrong, delta)
        assert bound <= part["error_bound"] <= bound + 1 + 1e-9 * part["population"]
        least = part["population"] - at_most(part["population"], len(own), len(own) - wrong, delta)
        assert part.get("error_least", 0) <= least
        bad = int((mine & ~out & (given != truth)).sum())
        assert part.get("error_least", 0) <= bad <= part["error_bound"]


def turned(labels: Sequence[Any], share: float, seed: int = 3) -> list[Any]:
    """A share of the labels turned into others."""
    rng, kinds = np.random.default_rng(seed), sorted(set(labels))
    other = [kinds[(kinds.index(label) + 1) % len(kinds)] for label in labels]
    return [new if rng.random() < share else label for label, new in zip(labels, other, strict=True)]


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("loss", "several"), [("hinge", False), ("squared_hinge", False), ("hinge", True)])
def test_labels_that_contradict_each_other(loss: Any, several: bool) -> None:
    """With 5 % of labels turned, the values are those of scikit-learn's problem over the rows answered, the interval of
    wrong rows is that of the draws, and most rows get the label that was not turned.
    """
    X, clean = three_classes(1500)
    clean = clean if several else ["no" if label == "a" else "yes" for label in clean]
    labels = turned(clean, 0.05)
    learner = ActiveLearner(X, classes=sorted(set(clean)), loss=loss, C=0.1, error=0.2, confidence=0.9)
    played(learner, labels)
    assert learner.status == "certified"
    check_values(learner, X.astype(np.float64), labels, loss, 0.1)
    check_draws(learner, X, labels, 0.9)
    shown = learner.evidence
    assert shown is not None
    assert shown["wrong"] > 0
    assert shown["error_least"] > 0
    assert shown["error_bound"] <= 0.2 * shown["population"]
    assert learner.model.parameters["trial"] == shown["draws"]
    assert learner.score(X, clean) > 0.98


def test_c_by_folds_of_the_training_rows() -> None:
    """C "auto" is a number in the end, with which LinearSVC labels the rows of the training set, too."""
    X, clean = three_classes(600)
    two = ["no" if label == "a" else "yes" for label in clean]
    labels = turned(two, 0.05)
    learner = ActiveLearner(X[80:], X[:80], labels[:80], loss="hinge", C="auto", trial=30, error=0.3, confidence=0.9)
    C = learner._job.C
    assert isinstance(C, float)
    assert LinearSVC(C=C, loss="hinge").fit(X[:80], labels[:80]).score(X[80:], two[80:]) > 0.95
    with pytest.raises(DataError, match='ActiveLearner: C "auto": expected examples'):
        ActiveLearner(X, loss="hinge", C="auto")


def test_by_class_says_more_of_a_rare_one() -> None:
    """Of 3 % of the rows the bound is one of their own: without it, all of them could be wrong; it is SciPy's."""
    rng = np.random.default_rng(8)
    codes = (rng.random(2000) < 0.03).astype(int)
    X = (rng.uniform(-0.9, 0.9, (2000, 3)) + 2 * np.eye(2, 3)[codes]).astype(np.float32)
    labels = [("plain", "rare")[code] for code in codes]
    learner = ActiveLearner(X, classes=("plain", "rare"), error=0.1, confidence=0.9, by_class=True)
    played(learner, labels)
    check_margins(learner, X.astype(np.float64), labels)
    check_draws(learner, X, labels, 0.9)
    shown = learner.evidence
    assert shown is not None
    assert [part["label"] for part in shown["strata"]] == ["plain", "rare"]
    rare = shown["strata"][1]
    assert rare["error_bound"] <= 0.1 * rare["population"]
    alone = ActiveLearner(X, classes=("plain", "rare"), error=0.1, confidence=0.9)
    played(alone, labels)
    assert alone.evidence is not None
    assert alone.evidence["error_bound"] > rare["population"]
    assert learner.score(X, labels) == 1.0


@pytest.mark.specimens(1)
@pytest.mark.parametrize("asked", [{}, {"loss": "hinge", "C": 0.1, "trial": 40, "error": 0.3}, {"by_class": True}])
def test_rows_that_nobody_can_label(asked: dict[str, Any]) -> None:
    """Of a tenth of the rows, draws among them, nothing is claimed: they are no answers and not in the population; what
    is claimed of all others holds. Of a row that has a label nobody can say that it has none.
    """
    X, labels = three_classes()
    nobody = set(np.random.default_rng(2).choice(600, 60, replace=False).tolist())
    learner = ActiveLearner(X, classes="abc", **{"error": 0.1, "confidence": 0.9} | asked)
    rows = played(learner, labels, nobody, batch=3)
    assert learner.status == "certified"
    model, shown = learner.model, learner.evidence
    assert shown is not None
    assert model.unsure_ids.tolist() == sorted(nobody & set(rows)) != []
    assert model.record["unsure"] == len(model.unsure_ids)
    answered = model.numbers["answered_ids"]
    assert shown["population"] == 600 - len(answered) - len(model.unsure_ids)
    assert not nobody & {*answered.tolist(), *model.numbers["draws_ids"].tolist()}
    check_draws(learner, X, labels, 0.9)
    if "loss" not in asked:
        check_margins_of(learner, X, labels)
    learner.unsure([int(answered[0])])
    assert learner.model.record == model.record


def test_rows_that_are_labelled_after_all() -> None:
    """A row that no annotator could label counts again as soon as somebody can: while it asks, and when all is proven,
    which is proven anew then.
    """
    X, labels = three_classes()
    learner = ActiveLearner(X, classes="abc", error=0.1, confidence=0.9)
    some = [labels.index(label) for label in "abc"]
    learner.unsure([*some, 500])
    learner.teach(some, list("abc"))
    assert learner.model.unsure_ids.tolist() == [500]
    assert learner.model.numbers["answered_ids"].tolist() == sorted(some)
    played(learner, labels, {row for row in range(600) if row % 10 == 5})
    assert 500 in learner.model.unsure_ids
    learner.teach([500], [labels[500]])
    assert learner.status == "running"
    played(learner, labels, {row for row in range(600) if row % 10 == 5 and row != 500})
    assert learner.status == "certified"
    assert 500 in learner.model.numbers["answered_ids"]
    assert 500 not in learner.model.unsure_ids


def check_margins_of(learner: ActiveLearner, X: np.ndarray, labels: Sequence[Any]) -> None:
    """Each plane has the margin that it claims on all rows but those that no annotator can label."""
    inside = np.setdiff1d(np.arange(len(X)), learner.model.unsure_ids)
    for k, one in enumerate(learner.model.record["members"]):
        signs = np.where(np.array(labels)[inside] == learner.classes[k], 1, -1)
        values = X[inside] @ learner.model.coef[k] + learner.model.intercept[k]
        assert one["lower"] <= (signs * values).min() * (1 + 1e-9)


def test_what_is_refused_of_several_classes() -> None:
    """A label of none of the classes, rows that are not there; a class that nobody finds is named."""
    X, labels = three_classes()
    learner = ActiveLearner(X, classes="abcd", error=0.2, confidence=0.8)
    with pytest.raises(LabelError, match="row 0: expected 'a' or 'b' or 'c' or 'd', found 'e'"):
        learner.teach([0], ["e"])
    with pytest.raises(DataError, match="expected rows from 0 to 599, found"):
        learner.unsure([0, 600])
    with pytest.raises(LabelError, match="expected rows of 4 classes, found .* answers, none of them 'd'"):
        played(learner, labels)
