"""Batches with a loss wait until somebody looks at what is learnt: what they cost, and that nobody can tell."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  what users do with estimators
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.validation import check_is_fitted

import coremargin
from coremargin.errors import BadRow, LabelError, UsageError
from coremargin.estimators import MarginCoresetClassifier, history

if TYPE_CHECKING:
    from coremargin.data.store import Store

LEARNT = {"model_", "n_iter_", "coef_", "intercept_", "certificate_", "support_", "coreset_"}
RUNS = np.array_split(np.arange(400), 100)


def rows_of(rng: np.random.Generator, classes: int, features: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """400 rows around a centre for each class, those of all classes among the first ones."""
    centres = rng.normal(size=(classes, features))
    y = -np.arange(400) % classes  # whose labels do not come in their order
    return np.round(centres[y] + rng.normal(size=(400, features)), 3), y


def counted(machine: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that machines of this kind are trained on from now on."""
    trained, rows = type(machine)._train, list[int]()

    def noted(self: Any, source: Any, *declared: int) -> Any:
        rows.append(source.rows)
        return trained(self, source, *declared)

    monkeypatch.setattr(type(machine), "_train", noted)
    return rows


@pytest.mark.specimens(3)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("loss", "classes"), [("hinge", 2), ("squared_hinge", 2), ("hinge", 4), ("squared_hinge", 4)])
def test_a_hundred_batches_are_one_training(
    loss: str, classes: int, kind: Callable[[Any], Any], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch,
    make_store: Callable[..., Store], tmp_path: Path,
) -> None:  # fmt: skip
    """Whatever was pickled on the way: the answer is that of ``fit``, trained once, and `verify` checks it."""
    X, y = rows_of(rng, classes)
    machine = MarginCoresetClassifier(loss=loss, C=0.1)
    trained = counted(machine, monkeypatch)
    monkeypatch.setattr(history, "MERGED_PARTS", 4)
    for number, run in enumerate(RUNS):
        machine.partial_fit(kind(X[run]), y[run], classes=range(classes))
        if number % 40 == 20:
            machine = pickle.loads(pickle.dumps(machine))  # noqa: S301 - of this test's own making
    assert trained == [4]
    assert (
        len(machine._partial_fit_state.waiting) < 4 * 4
    )  # parts of about 1, 4, 16 and 64 batches, of each less than 4
    check_is_fitted(machine)
    whole = MarginCoresetClassifier(loss=loss, C=0.1).fit(kind(X), y)
    np.testing.assert_array_equal(machine.predict(kind(X)), whole.predict(kind(X)))
    for name in ("coef_", "intercept_", "support_", "classes_"):
        np.testing.assert_array_equal(getattr(machine, name), getattr(whole, name))
    assert machine.certificate_ == whole.certificate_
    assert trained == [4, 400, 400]
    if kind is np.asarray:
        machine.model_.save(tmp_path / "rows.model")
        assert coremargin.verify(tmp_path / "rows.model", make_store(X, y).path).ok


@pytest.mark.slow
def test_weights_and_factors_of_classes_are_those_of_fit(rng: np.random.Generator) -> None:
    """Of two and of more classes; and without an intercept the answer is LinearSVC's, with one that of SVC."""
    for classes in (2, 3):
        X, y = rows_of(rng, classes)
        weights, factors = 1.0 + np.arange(400) % 3, {0: 2.0, 1: 0.5}
        machine = MarginCoresetClassifier(class_weight=factors, C=0.1)
        for run in RUNS:
            machine.partial_fit(X[run], y[run], sample_weight=weights[run])
        whole = MarginCoresetClassifier(class_weight=factors, C=0.1).fit(X, y, weights)
        np.testing.assert_array_equal(machine.coef_, whole.coef_)
        plain = MarginCoresetClassifier(C=0.1, fit_intercept=False, epsilon=1e-8)
        edged = MarginCoresetClassifier(C=0.1, loss="hinge", epsilon=1e-8)
        for run in RUNS:
            plain.partial_fit(X[run], y[run])
            edged.partial_fit(X[run], y[run] == 0)
        theirs = LinearSVC(C=0.1, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(X, y)
        np.testing.assert_allclose(plain.coef_, theirs.coef_, atol=1e-3)
        theirs = SVC(C=0.1, kernel="linear", tol=1e-8).fit(X, y == 0)
        np.testing.assert_allclose(edged.coef_, theirs.coef_, atol=1e-3)


def test_looking_is_what_learns(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any name, once for all batches since the last look; names that nothing is learnt of are no look."""
    X, y = rows_of(rng, 2)
    machine = MarginCoresetClassifier().partial_fit(X[:100], y[:100])
    trained = counted(machine, monkeypatch)
    for name in sorted(LEARNT):
        machine.partial_fit(X[100:110], y[100:110])
        assert not LEARNT & set(vars(machine))
        assert machine.classes_.tolist() == [0, 1]
        assert machine.n_features_in_ == 12
        assert not hasattr(machine, "feature_names_in_")
        before = len(trained)
        assert hasattr(machine, name)
        assert set(vars(machine)) >= LEARNT
        assert machine.certificate_.store_digest == machine.model_.store_digest
        assert len(trained) == before + 1
    assert trained == [110 + 10 * k for k in range(len(LEARNT))]


def test_a_copy_goes_its_own_way(rng: np.random.Generator) -> None:
    """Batches that a shallow copy takes in are not the original's."""
    X, y = rows_of(rng, 2)
    machine = MarginCoresetClassifier().partial_fit(X[:100], y[:100]).partial_fit(X[100:200], y[100:200])
    other = copy.copy(machine).partial_fit(X[200:], y[200:])
    assert machine.model_.rows == 200
    assert other.model_.rows == 400


def test_what_is_refused_does_not_wait(rng: np.random.Generator) -> None:
    """Rows, weights and labels that no training would take are refused at once; the batches before them are learnt."""
    X, y = rows_of(rng, 2)
    machine = MarginCoresetClassifier().partial_fit(X[:100], y[:100], sample_weight=np.ones(100))
    machine.partial_fit(X[100:200], y[100:200])
    before = machine._partial_fit_state
    with pytest.raises(BadRow, match="X: expected the longest row to have a length from .*, found"):
        machine.partial_fit(X[200:] * 1e140, y[200:])
    with pytest.raises(UsageError, match=r"X: expected C times the weights of a class, summed up, .*, found 1e\+150"):
        machine.partial_fit(X[200:201], y[200:201], sample_weight=[1e150])
    with pytest.raises(LabelError, match=r"row 0: expected labels among \[0, 1\], got 7"):
        machine.partial_fit(X[200:], y[200:] + 7)
    assert machine._partial_fit_state is before
    whole = MarginCoresetClassifier().fit(X[:200], y[:200])
    np.testing.assert_array_equal(machine.coef_, whole.coef_)


def test_batches_are_learnt_by_the_terms_that_they_came_with(rng: np.random.Generator) -> None:
    """Whatever the parameters were set to before the look; the next batch is refused as ever."""
    X, y = rows_of(rng, 2)
    machine = MarginCoresetClassifier(C=0.1).partial_fit(X[:200], y[:200]).partial_fit(X[200:], y[200:])
    machine.set_params(C=100.0, loss=None, scaling="standard")
    np.testing.assert_array_equal(machine.coef_, MarginCoresetClassifier(C=0.1).fit(X, y).coef_)
    with pytest.raises(UsageError, match=r"C: expected 0.1 as for the first batch, found 100.0"):
        machine.set_params(loss="squared_hinge", scaling=None).partial_fit(X, y)


def test_a_look_that_fails_may_be_tried_again(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted training leaves the batches waiting, each of them once; ``fit`` forgets them."""
    X, y = rows_of(rng, 2)
    machine = MarginCoresetClassifier().partial_fit(X[:200], y[:200]).partial_fit(X[200:], y[200:])
    with monkeypatch.context() as patch:
        patch.setattr(MarginCoresetClassifier, "_set_attributes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            machine.predict(X)
    assert machine.model_.rows == 400
    np.testing.assert_array_equal(machine.coef_, MarginCoresetClassifier().fit(X, y).coef_)
    machine.partial_fit(X, y).fit(X[:50], y[:50])
    assert machine.model_.rows == 50


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_batches_wait_where_memory_is_short(
    loss: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of them are learnt from at once; what is claimed after any of them is true of all rows, and of how many."""
    X, y = rows_of(rng, 2)
    X += 3.0 * np.where(y == 1, 1.0, -1.0)[:, None] * (np.arange(12) == 0)  # few rows have a loss
    machine = MarginCoresetClassifier(loss=loss, C=0.1, memory=2 * 240 * 8 * 12)
    trained = counted(machine, monkeypatch)
    for run in RUNS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what it says is checked below
            machine.partial_fit(X[run], y[run])
    assert 2 <= len(trained) <= 6
    assert machine._partial_fit_state.history.dropped
    assert (
        len(machine._partial_fit_state.history.ids) + sum(part.rows_seen for part in machine._partial_fit_state.waiting)
        <= 240
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        claims = machine.certificate_
    best = MarginCoresetClassifier(loss=loss, C=0.1, epsilon=1e-9).fit(X, y).certificate_
    lost = np.maximum(0.0, 1.0 - np.where(y == 1, 1, -1) * machine.decision_function(X))
    value = 0.5 * (machine.coef_**2).sum() + 0.1 * (lost if loss == "hinge" else lost**2).sum()
    assert claims.lower <= best.upper
    assert claims.upper >= value
    assert claims.store_digest == best.store_digest
    assert machine.model_.rows == 400


def interrupted(*_: Any) -> None:
    """Somebody presses Ctrl-C."""
    raise KeyboardInterrupt
