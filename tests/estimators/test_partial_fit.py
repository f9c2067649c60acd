"""Batches: the certificate is about all rows seen, and true, whatever was dropped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.svm import SVC

import coremargin
from coremargin.errors import LabelError, NotCertified, UsageError
from coremargin.estimators import MarginCoresetClassifier, history
from coremargin.estimators.support import deciders

if TYPE_CHECKING:
    from coremargin.data.store import Store

LOSSES = pytest.mark.parametrize("loss", [None, "hinge", "squared_hinge"])
FEATURES = 8


@pytest.fixture
def rows(loss: str | None, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """1,200 rows far from the origin, separable by 0.3; with a loss 2 % have the other label."""
    plane = rng.normal(size=FEATURES)
    plane /= np.linalg.norm(plane)
    X = rng.normal(size=(1200, FEATURES))
    y = np.where(X @ plane > 0, 1, -1)
    X += 0.3 * y[:, None] * plane + 5.0
    return X, y if loss is None else np.where(rng.random(len(y)) < 0.02, -y, y)


def in_batches(machine: Any, X: np.ndarray, y: np.ndarray, sizes: list[int]) -> Any:
    """``partial_fit`` on runs of rows of these sizes; after each the certificate is checked against all rows so far."""
    stop = 0
    for size in sizes:
        start, stop = stop, stop + size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what it says is checked below
            machine.partial_fit(X[start:stop], y[start:stop])
        check_claims(machine, X[:stop], y[:stop])
    assert stop == len(X)
    return machine


def value_of(machine: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Smallest margin, or value of the objective, of the hypothesis on all rows; computed here."""
    margins = y * (X @ machine.coef_[0] + machine.intercept_[0])
    if machine.loss is None:
        return float(margins.min() / np.linalg.norm(machine.coef_))
    lost = np.maximum(0.0, 1.0 - margins) ** (2 if machine.loss == "squared_hinge" else 1)
    return float(0.5 * machine.coef_[0] @ machine.coef_[0] + machine.C * lost.sum())


def check_claims(machine: Any, X: np.ndarray, y: np.ndarray) -> None:
    """The bounds are true of all rows seen: of this hypothesis, and of the best one, found by ``fit``."""
    claims, value = machine.certificate_, value_of(machine, X, y)
    best = clone(machine).set_params(memory="256 MiB", epsilon=1e-9).fit(X, y).certificate_
    if machine.loss is None:
        assert claims.upper >= best.lower
        assert claims.lower is None or claims.lower <= value
    else:
        assert claims.lower <= best.upper
        assert claims.upper >= value
    assert (machine.model_.status == "certified") == (claims.ratio is not None and claims.ratio >= 1 - machine.epsilon)


@LOSSES
def test_batches_that_fit_into_memory_are_a_fit(
    loss: str | None, rows: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store], tmp_path: Path
) -> None:
    """Until memory is used up the answer is that of ``fit`` on all rows, and `verify` checks it on a store of them."""
    X, y = rows
    machine = in_batches(MarginCoresetClassifier(loss=loss, C=0.1), X, y, [500, 300, 1, 399])
    whole = MarginCoresetClassifier(loss=loss, C=0.1).fit(X, y)
    assert machine.certificate_.store_digest == whole.certificate_.store_digest
    assert machine.model_.rows == len(X)
    if loss is not None:  # a hard margin may stand as it was, within epsilon
        np.testing.assert_array_equal(machine.coef_, whole.coef_)
        np.testing.assert_array_equal(machine.support_, whole.support_)
    np.testing.assert_array_equal(machine.coreset_, X[machine.support_])
    machine.model_.save(tmp_path / "rows.model")
    assert coremargin.verify(tmp_path / "rows.model", make_store(X, y, chunk_rows=256).path).ok


def test_a_hard_margin_stays_certified_with_few_rows_kept(
    make_separable: Callable[..., Any], make_store: Callable[..., Store], tmp_path: Path
) -> None:
    """With room for a tenth of the rows floors and balls prove the rest, and `verify` finds it true of every row."""
    X, y = make_separable(3000, 6, dtype="float64")
    machine = MarginCoresetClassifier(loss=None, memory=2 * 300 * 8 * 6)
    in_batches(machine, X, y, [600] * 5)
    assert machine.model_.status == "certified"
    assert len(machine._partial_fit_state.history.ids) == 300
    assert machine._partial_fit_state.history.dropped
    machine.model_.save(tmp_path / "rows.model")
    assert coremargin.verify(tmp_path / "rows.model", make_store(X, y).path).ok


@pytest.mark.parametrize(("loss", "room"), [(None, 40), ("hinge", 400), ("squared_hinge", 700)])
def test_claims_stay_true_when_rows_are_let_go(
    loss: str | None, room: int, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    """With little room the certificate claims less, never something false; not proven means "stopped"."""
    machine = MarginCoresetClassifier(loss=loss, C=0.1, memory=2 * room * 8 * FEATURES)
    in_batches(machine, *rows, [300] * 4)
    assert machine._partial_fit_state.history.dropped
    assert len(machine._partial_fit_state.history.ids) <= room


def test_rows_that_turn_the_plane_end_the_proof(rng: np.random.Generator) -> None:
    """When new rows move the plane far, what is known of old rows proves little: stopped, with a warning that says so.

    And the old rows are not forgotten: whatever lower bound is left holds for them.
    """
    X = rng.normal(size=(400, 3)) * [3.0, 3.0, 0.05]
    y = np.where(X[:, 2] > 0, 1, -1)
    X[:, 2] += y
    turned = X[:100] + y[:100, None] * np.array([8.0, 0.0, -0.9])
    machine = MarginCoresetClassifier(loss=None, memory=2 * 16 * 8 * 3).partial_fit(X, y)
    with pytest.warns(ConvergenceWarning, match="rows of earlier batches were dropped"):
        machine.partial_fit(turned[:50], y[:50])
    assert machine.model_.status == "stopped"
    seen, labels = np.concatenate([X, turned[:50]]), np.concatenate([y, y[:50]])
    check_claims(machine, seen, labels)


def test_a_margin_that_new_rows_respect_is_kept(make_separable: Callable[..., Any]) -> None:
    """Rows beyond the margin change neither the hypothesis nor the coreset; the digest is about them too."""
    X, y = make_separable(400, 4, dtype="float64")
    machine = MarginCoresetClassifier(loss=None).partial_fit(X, y)
    w, digest = machine.coef_.copy(), machine.certificate_.store_digest
    far = X + 3.0 * y[:, None] * w
    machine.partial_fit(far, y)
    np.testing.assert_allclose(machine.coef_, w, rtol=1e-12)
    assert machine.certificate_.store_digest != digest
    assert (machine.support_ < 400).all()
    check_claims(machine, np.concatenate([X, far]), np.concatenate([y, y]))


def test_many_bunches_become_one(make_separable: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches come, no more than a fixed number of bunches is remembered, and the claims stay true."""
    monkeypatch.setattr(history, "MOST_GROUPS", 3)
    X, y = make_separable(1000, 4, dtype="float64")
    machine = MarginCoresetClassifier(loss=None, memory=2 * 60 * 8 * 4)
    in_batches(machine, X, y, [100] * 10)
    assert len(machine._partial_fit_state.history.dropped) <= 3
    assert machine.certificate_.lower > 0


def test_a_contradiction_with_an_earlier_batch_is_found(make_separable: Callable[..., Any]) -> None:
    """A row that equals one of the coreset but has the other label leaves no margin; the machine stays as it was."""
    X, y = make_separable(200, 4, dtype="float64")
    machine = MarginCoresetClassifier(loss=None).partial_fit(X, y)
    before, row = machine.coef_, machine.support_[0]
    with pytest.raises(NotCertified, match="no hyperplane separates the rows"):
        machine.partial_fit(X[[row]], -y[[row]])
    assert machine.coef_ is before
    machine.partial_fit(X[[row]], y[[row]])
    assert machine.model_.rows == 201


def test_labels_are_those_that_were_announced(make_separable: Callable[..., Any]) -> None:
    """A label that no earlier call spoke of is refused; a later batch may be of one class."""
    X, y = make_separable(100, 3, dtype="float64")
    machine = MarginCoresetClassifier().partial_fit(X, y, classes=[-1, 1])
    machine.partial_fit(X[y == 1], y[y == 1])
    with pytest.raises(LabelError, match=r"row 0: expected labels among \[-1, 1\], got 7"):
        machine.partial_fit(X[:1], [7])
    with pytest.raises(UsageError, match="expected those of the first call"):
        machine.partial_fit(X, y, classes=[-1, 0])
    with pytest.raises(LabelError, match=r"found only 1; name all classes in the first call"):
        MarginCoresetClassifier().partial_fit(X[y == 1], y[y == 1])
    with pytest.raises(LabelError, match=r"classes: expected two or more, got \[1\]"):
        MarginCoresetClassifier().partial_fit(X[y == 1], y[y == 1], classes=[1])


@LOSSES
@pytest.mark.parametrize("names", [["b", "a"], [2, 0, 1]])
def test_classes_may_come_one_after_the_other(loss: str | None, names: list[Any], rng: np.random.Generator) -> None:
    """Named classes without rows are in ``classes_`` and never predicted; with the last one the answer is ``fit``'s."""
    places = rng.integers(0, len(names), 120)
    X, y = rng.normal(size=(120, 4)), np.array(names)[places]
    X[np.arange(120), places] += 8.0
    machine = MarginCoresetClassifier(loss=loss, epsilon=1e-6)
    order = np.argsort(places, kind="stable")
    for last in range(len(names)):
        mine = np.flatnonzero(places == last)
        machine.partial_fit(X[mine], y[mine], classes=names)
        assert machine.classes_.tolist() == sorted(names)
        assert set(machine.predict(X)) <= set(names[: last + 1])
        values = machine.decision_function(X)
        assert values.shape == ((120,) if len(names) == 2 else (120, 3))
        if last == 0:
            with pytest.raises(NotFittedError, match=f"not seen rows of {min(names[1:])!r}"):
                _ = machine.certificate_
        elif len(names) > 2:
            np.testing.assert_allclose(X @ machine.coef_.T + machine.intercept_, values)
    whole = MarginCoresetClassifier(loss=loss, epsilon=1e-6).fit(X[order], y[order])
    assert deciders(machine.model_)[0].certificate.store_digest == deciders(whole.model_)[0].certificate.store_digest
    np.testing.assert_allclose(machine.coef_, whole.coef_, atol=2e-3)


@pytest.mark.slow
@LOSSES
def test_a_class_may_come_after_rows_were_let_go(loss: str | None, rng: np.random.Generator) -> None:
    """What is claimed of rows that were dropped before a class had its first row is true of every class."""
    y = np.sort(rng.integers(0, 3, 1500) % 3)
    y = np.concatenate([rng.permutation(y[y < 2]), y[y == 2]])
    X = rng.normal(size=(1500, 4))
    X[np.arange(1500), y] += 8.0 if loss is None else 4.0
    machine = MarginCoresetClassifier(loss=loss, C=0.1, memory=str(2 * 300 * 8 * 4))
    for stop in range(150, 1501, 150):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.partial_fit(X[stop - 150 : stop], y[stop - 150 : stop], classes=[0, 1, 2])
        best = MarginCoresetClassifier(loss=loss, C=0.1, epsilon=1e-9).fit(X[:stop], y[:stop])
        sides = [1] if len(np.unique(y[:stop])) == 2 else [0, 1, 2]
        for k, ours, theirs in zip(sides, deciders(machine.model_), deciders(best.model_), strict=True):
            w, claims = machine.coef_[k], ours.certificate
            margins = np.where(y[:stop] == k, 1, -1) * (X[:stop] @ w + machine.intercept_[k])
            if loss is None:
                assert claims.upper >= theirs.certificate.lower
                assert claims.lower is None or claims.lower <= margins.min() / np.linalg.norm(w) + 1e-12
            else:
                lost = np.maximum(0.0, 1.0 - margins) ** (2 if loss == "squared_hinge" else 1)
                assert claims.lower <= theirs.certificate.upper
                assert claims.upper >= (0.5 * w @ w + 0.1 * lost.sum()) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": 2.0}, "C: expected 1.0 as for the first batch, found 2.0; use a clone"),
        ({"loss": None}, "loss: expected 'squared_hinge' as for the first batch, found None"),
        ({"class_weight": {1: 2.0}}, r"class_weight: expected None as for the first batch, found \{1: 2.0\}"),
    ],
)
def test_terms_do_not_change_on_the_way(
    change: dict[str, Any], message: str, make_separable: Callable[..., Any]
) -> None:
    """What the sums of earlier batches rest on cannot be changed between two batches."""
    X, y = make_separable(100, 3)
    machine = MarginCoresetClassifier().partial_fit(X, y)
    with pytest.raises(UsageError, match=message):
        machine.set_params(**change).partial_fit(X, y)


def test_terms_do_not_change_in_their_place(make_separable: Callable[..., Any]) -> None:
    """A dict of class weights that got other values since the first batch is another one."""
    X, y = make_separable(100, 3)
    weights = {-1: 1.0, 1: 2.0}
    machine = MarginCoresetClassifier(class_weight=weights).partial_fit(X, y)
    weights[1] = 7.0
    with pytest.raises(UsageError, match=r"class_weight: expected \{-1: 1.0, 1: 2.0\} as for the first batch"):
        machine.partial_fit(X, y)


@pytest.mark.parametrize(("name", "value"), [("class_weight", "balanced"), ("scaling", "standard")])
def test_what_all_rows_decide_is_not_for_batches(name: str, value: str, make_separable: Callable[..., Any]) -> None:
    """With parameters that are known from all rows only there is no ``partial_fit``, and the error says why."""
    machine = MarginCoresetClassifier(**{name: value})
    assert not hasattr(machine, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        machine.partial_fit(*make_separable(100, 3))
    assert f"{name}: '{value}' needs all rows at once" in str(caught.value.__cause__)


@LOSSES
def test_batches_go_on_from_a_fit(loss: str | None, rows: tuple[np.ndarray, np.ndarray]) -> None:
    """``fit`` keeps the rows that decide and what proves the others: batches after it speak of all rows, truly."""
    X, y = rows
    machine = MarginCoresetClassifier(loss=loss, C=0.1).fit(X[:800], y[:800])
    assert len(machine._partial_fit_state.history.ids) <= max(16, 2 * len(machine.support_))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.partial_fit(X[800:], y[800:])
        assert machine.model_.rows == 1200  # which is learnt now
    check_claims(machine, X, y)
    assert machine.certificate_.store_digest == MarginCoresetClassifier().fit(X, y).certificate_.store_digest


def test_fit_on_a_store_keeps_no_rows(make_separable: Callable[..., Any], make_store: Callable[..., Store]) -> None:
    """After ``fit`` on a store there is nothing to go on from, and it forgets the batches before it."""
    X, y = make_separable(100, 3)
    store = make_store(X, y)
    machine = MarginCoresetClassifier().partial_fit(X, y).fit(store)
    assert not hasattr(machine, "_partial_fit_state")
    with pytest.raises(UsageError, match="has saved no rows to continue with; call partial_fit on a clone"):
        machine.partial_fit(X, y)
    with pytest.raises(UsageError, match="expected rows in memory, got Store"):
        clone(machine).partial_fit(store)


def test_precision_is_that_of_the_first_batch(make_separable: Callable[..., Any]) -> None:
    """Values that float32 holds may follow in float64; others would be rounded and are refused."""
    X, y = make_separable(100, 3)
    machine = MarginCoresetClassifier().partial_fit(X, y).partial_fit(X.astype(np.float64), y)
    assert machine.model_.record["dtype"] == "float32"
    with pytest.raises(UsageError, match="expected values of float32 as in the first batch, got float64"):
        machine.partial_fit(X.astype(np.float64) + 1e-12, y)


def test_rows_that_decide_are_never_let_go(rng: np.random.Generator) -> None:
    """Where the rows with a loss alone fill the memory there is an error, not a guess."""
    X, y = rng.normal(size=(300, 2)), np.where(rng.random(300) < 0.5, "a", "b")
    with pytest.raises(UsageError, match="rows are needed for the proof, 50 fit in memory"):
        MarginCoresetClassifier(memory=2 * 50 * 8 * 2).partial_fit(X, y)


@pytest.mark.parametrize("empty", [slice(0, 20), slice(20, 40), slice(40, 60)])
def test_a_batch_whose_rows_all_have_weight_0_changes_nothing(empty: slice, rng: np.random.Generator) -> None:
    """Be it the first, the last or another one."""
    X = rng.normal(size=(60, 3))
    y, weights = (X[:, 0] + 0.5 * rng.normal(size=60) > 0).astype(int), np.ones(60)
    weights[empty] = 0
    machine = MarginCoresetClassifier(loss="hinge", epsilon=1e-6)
    for part in (slice(0, 20), slice(20, 40), slice(40, 60)):
        machine.partial_fit(X[part], y[part], classes=[0, 1], sample_weight=weights[part])
    alone = SVC(kernel="linear", tol=1e-9).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(machine.decision_function(X), alone.decision_function(X), atol=1e-4)
