"""Kernel machines: certificates, agreement with scikit-learn's SVC, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_kit import step
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.errors import CoremarginError
from coremargin.problems.kernel.columns import class_costs
from coremargin.problems.kernel.kernel_margin import KernelMargin
from coremargin.problems.kernel.probe import undecided_rows
from coremargin.problems.registry import new_job, problem_of
from model_kit import store_of


def _ring(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two rings that a few rows have left."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    radius, angle = 1.0 + y + 0.2 * rng.normal(size=rows), rng.uniform(0, 2 * np.pi, rows)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


def _train(X: Any, y: Any, **asked: Any) -> Any:
    return coremargin.train(X, y, **{"kernel": "rbf", "loss": "hinge", "epsilon": 1e-6} | asked)


def test_rounding_decides_where_another_class_is_within_it() -> None:
    """Of one column about 0, of several about the largest; NaN and what has no bound are undecided."""
    one = undecided_rows(
        np.array([[2.0], [-2.0], [0.5], [np.nan], [1e9]]), np.array([[1.0], [1.0], [1.0], [1.0], [np.inf]])
    )
    assert one.tolist() == [False, False, True, True, True]
    several = np.array([[3.0, 0.0, -9.0], [3.0, 1.5, 0.0], [0.0, np.nan, 1.0]])
    assert undecided_rows(several, np.ones((3, 3))).tolist() == [False, True, True]


def test_balanced_costs_of_a_light_side_keep_their_digits() -> None:
    """Of a class that weighs 1e-17 of the others, whose sum the difference of two sums would not have."""
    two, three = (class_costs(1.0, "balanced", np.array(totals)) for totals in ([1.0, 1e17], [1e17, 0.5, 0.5]))
    assert two == pytest.approx(np.array([[0.5, 5e16]]), rel=1e-15)
    assert three[0] == pytest.approx([0.5, 5e16], rel=1e-15)


CASES = [
    {"C": 1.0},
    {"C": 30.0, "gamma": 0.05},
    {"kernel": "poly", "degree": 2, "coef0": 1.0},
    {"kernel": "linear"},
    {"class_weight": [1.0, 3.0]},
    {"class_weight": "balanced", "C": 0.3},
]


@pytest.mark.parametrize("asked", CASES, ids=str)
def test_the_hinge_is_certified_and_decides_as_svc_does(asked: dict[str, Any]) -> None:
    """For all kernels and class weights."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = _train(X, y, **asked)
    assert model.status == "certified"
    assert model.certificate.ratio >= 1 - 1e-6
    weight = asked.get("class_weight")
    judge = SVC(
        C=asked.get("C", 1.0),
        kernel=asked.get("kernel", "rbf"),
        gamma=asked.get("gamma", "scale"),
        degree=asked.get("degree", 3),
        coef0=asked.get("coef0", 0.0),
        tol=1e-9,
        class_weight=dict(enumerate(weight)) if isinstance(weight, list) else weight,
    ).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), judge.decision_function(X), atol=1e-4)


def test_a_hard_margin_is_that_of_a_hyperplane_where_the_kernel_is_none() -> None:
    """The linear kernel against the linear problem: two solvers, two proofs, one margin."""
    X, y = load_iris(return_X_y=True)
    y = y == 0
    found, judge = coremargin.train(X, y, kernel="linear", epsilon=1e-5), coremargin.train(X, y, epsilon=1e-5)
    assert found.status == judge.status == "certified"
    assert found.certificate.lower <= judge.certificate.upper
    assert judge.certificate.lower <= found.certificate.upper


def test_a_hard_margin_of_a_ring_has_no_row_on_the_wrong_side() -> None:
    """Rows that no hyperplane separates."""
    X, y = _ring(400)
    X *= np.where(np.abs(np.hypot(*X.T) - 1 - y) < 0.4, 1.0, (1.0 + y) / np.hypot(*X.T))[:, None]
    model = coremargin.train(X, y, kernel="rbf", epsilon=1e-4)
    judge = SVC(C=1e9, tol=1e-9).fit(X, y)
    assert model.status == "certified"
    assert (model.predict(X) == y).all()
    np.testing.assert_allclose(model.decision_function(X), judge.decision_function(X), rtol=1e-3, atol=1e-2)


def test_each_digit_against_the_rest_has_its_own_proof() -> None:
    """Ten columns by the same scans, each as the SVC of its two sides."""
    X, y = load_digits(return_X_y=True)
    model = _train(X[:600], y[:600], classes="ovr", epsilon=1e-5)
    assert model.status == "certified"
    assert (model.lowers >= (1 - 1e-5) * model.uppers).all()
    assert model.certificate.lower == pytest.approx(model.lowers.sum())
    values = model.decision_function(X[:600])
    for k in (0, 7):
        judge = SVC(tol=1e-9).fit(X[:600], y[:600] == k)
        np.testing.assert_allclose(values[:, k], judge.decision_function(X[:600]), atol=1e-3)
    assert (model.predict(X[600:]) == y[600:]).mean() > 0.9


@pytest.mark.parametrize("intercept", [True, False])
def test_the_squared_hinge_is_a_hinge_with_a_ridge(intercept: bool) -> None:
    """1 / (2 C) on the diagonal of the kernel matrix, and no price: LIBSVM solves that, with an intercept."""
    X, y = _ring(300, 1)
    model = _train(X, y, loss="squared_hinge", C=2.0, gamma=1.0, intercept=intercept)
    assert model.status == "certified"
    if intercept:
        matrix = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2))
        judge = SVC(C=1e8, kernel="precomputed", tol=1e-9).fit(matrix + np.eye(300) / 4, y)
        dual = np.zeros(300)
        dual[judge.support_] = judge.dual_coef_[0]
        np.testing.assert_allclose(model.decision_function(X), matrix @ dual + judge.intercept_, atol=1e-4)
    else:
        assert not model.offsets.any()


def test_sparse_rows_give_what_dense_ones_do() -> None:
    """With and without scaling."""
    X, y = load_digits(return_X_y=True)
    for scaling in (None, "maxabs"):
        models = [_train(rows[:300], y[:300] > 4, scaling=scaling) for rows in (X, sp.csr_array(X))]
        assert [one.status for one in models] == ["certified"] * 2
        np.testing.assert_allclose(*(one.decision_function(X) for one in models), atol=1e-4)


def test_a_weight_is_a_repetition() -> None:
    """Rows of weight 0 are not there."""
    X, y = _ring(200, 2)
    weights = np.random.default_rng(2).integers(0, 3, 200)
    found = _train(X, y, weights=weights.astype(float), gamma=1.0)
    again = _train(np.repeat(X, weights, axis=0), np.repeat(y, weights), gamma=1.0)
    np.testing.assert_allclose(found.decision_function(X), again.decision_function(X), atol=1e-4)
    assert found.certificate.upper == pytest.approx(again.certificate.upper, rel=1e-5)


def _problem(**options: Any) -> KernelMargin:
    X, y = _ring(2400, 3)
    source = ArraySource(X, y, chunk_rows=100)
    job = new_job(store="s", out="m", **{"kernel": "rbf", "loss": "hinge", "gamma": 1.0} | options)
    problem = problem_of(job, source)
    assert isinstance(problem, KernelMargin)
    return problem


def test_summaries_merge_in_any_grouping() -> None:
    """An empty summary changes nothing."""
    problem = _problem()
    state = step(problem, problem.start())
    probe = problem.probe(state)
    blocks = plan_blocks(problem.source, 5000)
    parts = [probe.narrow(block)(problem.source, block) for block in blocks]
    left = probe.empty()
    for part in parts:
        left = left.merge(part)
    right = parts[0].merge(parts[1].merge(probe.empty()))
    for part in parts[2:]:
        right = right.merge(part)
    assert left.counted.tolist() == right.counted.tolist() == [2400]
    assert left.sent.ids.tolist() == right.sent.ids.tolist()
    np.testing.assert_allclose(left.losses, right.losses, rtol=1e-12)


def test_a_full_working_set_replaces_rows_that_carry_nothing() -> None:
    """Of 1,500 rows some 570 carry the machine: a capacity of 620 rows suffices, though more than that are added."""
    rng = np.random.default_rng(0)
    y = np.arange(1500) % 2
    radius, angle = 1.0 + y + 0.5 * rng.normal(size=1500), rng.uniform(0, 6.3, 1500)
    X, rounds = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), list[dict[str, Any]]()
    memory = f"{int(4 * 620**2 / 0.75) + 32 * 620} B"
    model = _train(X, y, memory=memory, gamma=0.5, epsilon=1e-3, on_round=rounds.append)
    assert model.status == "certified"
    assert max(record["working_set_rows"] for record in rounds) < 640
    assert sum(record["new_rows"] for record in rounds) > 700


@pytest.mark.parametrize("memory", ["2 MiB", "4 KiB"])
def test_a_working_set_that_is_too_small_ends_with_what_is_proven(memory: str) -> None:
    """The bounds hold; the reason says what would help."""
    X, y = _ring(3000, 4)
    y = np.where(np.random.default_rng(5).random(3000) < 0.2, 1 - y, y)
    rounds: list[dict[str, Any]] = []
    model = _train(X, y, memory=memory, gamma=1.0, on_round=rounds.append)
    whole = _train(X, y, gamma=1.0, epsilon=1e-3)
    assert model.status == "stopped"
    assert whole.status == "certified"
    assert 0 < model.certificate.lower <= whole.certificate.upper
    assert model.certificate.upper >= whole.certificate.lower
    assert rounds[-1]["status"] == "full"


def test_a_limit_leaves_what_was_proven_until_then(tmp_path: Path) -> None:
    """One scan of all rows, and a model that `verify` takes."""
    X, y = _ring(6000, 6)
    store = store_of(tmp_path / "s.zarr", X, y.tolist(), 500)
    model = coremargin.train(store, out=tmp_path / "m", kernel="rbf", loss="hinge", epsilon=1e-7, max_scans=2)
    assert model.status == "stopped"
    assert coremargin.verify(tmp_path / "m", store).ok


REFUSED = {
    "gamma 0": ({"gamma": 0.0}, "gamma: expected scale, or a number above 0"),
    "gamma 1e-101": ({"gamma": 1e-101}, "gamma: expected scale, or a number above 0, from 1e-100 to"),
    "gamma nan": ({"gamma": float("nan")}, "gamma: expected scale, or a number above 0"),
    "degree 0": ({"kernel": "poly", "degree": 0}, "degree: expected a whole number from 1"),
    "coef0": ({"kernel": "poly", "coef0": -1.0}, "not positive semi-definite"),
    "sigmoid": ({"kernel": "sigmoid"}, "'sigmoid' is not positive semi-definite"),
    "other's": ({"kernel": "linear", "gamma": 2.0}, "gamma: the kernel 'linear' has none"),
    "degree of rbf": ({"degree": 2}, "degree: the kernel 'rbf' has none"),
    "no kernel": ({"kernel": None, "gamma": 1.0}, "it belongs to a machine with a kernel"),
    "rownorm": ({"scaling": "rownorm"}, "gamma 'scale' of rows that are divided by their lengths"),
    "hard C": ({"loss": None, "C": 2.0}, "a hard margin has none"),
    "overflow": ({"kernel": "poly", "degree": 100, "gamma": 1e10}, "overflows"),
    "memory": ({"memory": 40}, "give more memory"),
    "a gamma beyond digits": ({"gamma": 1e100}, r"gamma 1e\+100 leaves no digit of the kernel values"),
    "another kernel": ({"kernel": "laplacian"}, "or a function as module:function; found 'laplacian'"),
}


@pytest.mark.parametrize(("asked", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused(asked: dict[str, Any], message: str) -> None:
    """Before a row is read, with what to do."""
    X, y = _ring(50)
    with pytest.raises(CoremarginError, match=message):
        _train(X, y, **asked)


def test_constant_features_have_no_scale() -> None:
    """Nor can anything be learnt from them; a number is taken."""
    X, y = np.full((20, 3), 2.0), np.arange(20) % 2
    with pytest.raises(CoremarginError, match="all numbers are equal"):
        _train(X, y)
    assert _train(X, y, gamma=1.0).status == "certified"


def test_three_classes_need_an_option() -> None:
    """The message names it."""
    X, y = load_iris(return_X_y=True)
    with pytest.raises(CoremarginError, match="classes='ovr'"):
        _train(X, y)


def test_equal_rows_of_two_classes_are_named() -> None:
    """Under a hard margin nothing separates them."""
    X, y = _ring(100, 7)
    X[17], y[17], y[40] = X[40], 0, 1
    with pytest.raises(CoremarginError, match="rows 17 and 40 are equal"):
        coremargin.train(X, y, kernel="rbf", epsilon=1e-3)


def test_features_have_no_weights() -> None:
    """Whoever asks for them is told why."""
    X, y = _ring(100, 8)
    model = _train(X, y, epsilon=1e-3)
    with pytest.raises(CoremarginError, match="no weights of features"):
        model.coefficients()
