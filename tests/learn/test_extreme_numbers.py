"""Jobs whose numbers are many powers of ten apart: an answer, or an end that says why, within the time."""

from __future__ import annotations

import time
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC

import coremargin
from coremargin.maths.breakdown import exact_sum
from coremargin.maths.margin import meets
from coremargin.maths.nearest import nearest_point
from coremargin.maths.stopping import stoppable
from coremargin.verify.margins import uncancelled


def train(*rows: Any, **parameters: Any) -> Any:
    """A model, and no warning on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return coremargin.train(*rows, cluster="threads", max_scans=6, **parameters)


def blobs(rows: int, features: int, classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels by chance, each class at least once."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    labels[:classes] = np.arange(classes)
    return np.round(rng.standard_normal((rows, features)) * 1024) / 1024, labels


@pytest.mark.parametrize("size", [1e7, 1e9, 1e120])
def test_large_column_stops_several_classes_without_an_error(size: float) -> None:
    """A Hessian that rounding leaves without definiteness ends no job."""
    for seed in range(3):
        X, y = blobs(30, 3, 3, seed)
        X[:, 2] = size
        model = train(X, y, classes="crammer-singer", loss="hinge", C=1.0)
        assert model.status == "certified" or (size > 1e7 and model.status == "stopped")


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize(
    "parameters", [{"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": 1.0}, {"kernel": "linear"}]
)
def test_kernel_values_that_overflow_prove_nothing(loss: str, parameters: dict[str, Any]) -> None:
    """Sums that are not finite end a job as stopped, not as certified and not by an error."""
    X, y = blobs(12, 2)
    weights = np.where(np.arange(12) % 2, 1e100, 1e-100)
    model = train(X + 1e12, y, weights=weights, loss=loss, C=1e13, **parameters)
    assert model.status == "stopped"


@pytest.mark.parametrize("offset", [0.0, 300.0, 1e3, 1e6, 1e8])
def test_rows_far_from_the_origin_are_solved_as_others_are(offset: float) -> None:
    """Hinges of rows far away are certified at once, at the value that LIBSVM finds for centred rows."""
    X, y = blobs(20, 3)
    started = time.process_time()
    fleet = train(X + offset, y, loss="hinge", C=[1e3, 1e4], epsilon=1e-3)
    assert time.process_time() - started < 5.0
    for model in fleet.members.values():
        assert model.status == "certified"
        cost = model.record["parameters"]["C"]
        svc = SVC(kernel="linear", C=cost, tol=1e-9).fit(X, y)
        slack = np.maximum(0.0, 1.0 - np.where(y == 1, 1, -1) * svc.decision_function(X))
        value = 0.5 * float((svc.coef_**2).sum()) + cost * float(slack.sum())
        assert model.certificate.upper >= value * (1 - 2e-3)
        assert model.certificate.lower <= value * (1 + 1e-6)


@pytest.mark.parametrize("parameters", [{}, {"intercept": False}, {"classes": "crammer-singer"}, {"classes": "ovr"}])
def test_separable_rows_beside_a_large_column_are_not_called_inseparable(parameters: dict[str, Any]) -> None:
    """A column of time stamps says nothing of the classes; another one separates them."""
    X, y = blobs(40, 2)
    X[:, 0] = np.round(1.7e18 + X[:, 0] * 1e16)
    X[:, 1] = np.where(y == 1, 1.0, -1.0) * (0.5 + np.abs(X[:, 1]))
    model = train(X, y, **parameters)
    assert model.status != "not_separable"


def test_one_huge_row_makes_no_classes_inseparable() -> None:
    """Three classes with a margin stay separable when one of their rows is very long."""
    X = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0], [0.1, 3.0], [2.5, -1.0], [-2.5, -1.2], [0.0, 1e100]])
    model = train(X, np.array([0, 1, 2, 0, 1, 2, 0]), classes="crammer-singer")
    assert model.status != "not_separable"


def test_inseparable_rows_are_found_in_any_units() -> None:
    """Powers of two for each feature change nothing of whether rows can be separated."""
    X, y = blobs(60, 4)
    for scales in ([1.0] * 4, [2.0**60, 1.0, 2.0**-60, 2.0**-200]):
        for parameters in ({}, {"intercept": False}, {"classes": "crammer-singer"}):
            assert train(X * scales, y, **parameters).status == "not_separable"


def test_a_sum_that_keeps_a_small_feature_is_not_nothing() -> None:
    """Weights that cancel a column of 1e20 and leave one of 1 prove nothing, for trainer and verifier."""
    rows, signs = np.array([[1e20, 1.0], [1e20, -1.0]]), np.array([1, -1])
    weights = np.ones(2)
    assert not meets(rows, signs, weights, True)
    assert meets(np.abs(rows), signs, weights, True)
    claim: Any = SimpleNamespace(status="not_separable", features=2, moved=0.0, radius=1e20)
    mixes = [(weights * signs, np.zeros(2))]
    assert [check.ok for check in uncancelled(claim, rows, mixes, weights, centred=True)] == [False]
    assert not uncancelled(claim, np.abs(rows), mixes, weights, centred=True)


def test_factors_of_many_rows_look_at_the_limit() -> None:
    """A solve that begins with many rows can be ended while these are put in order."""

    class Late(Exception):
        """Time is over."""

    looked = 0

    def check() -> None:
        nonlocal looked
        looked += 1
        if looked > 20:
            raise Late

    rows = np.random.default_rng(0).standard_normal((200, 150)) + 3.0
    with stoppable(check), pytest.raises(Late):
        nearest_point(rows, np.zeros(200, np.int64), np.full(200, 1 / 200))


def test_sums_that_are_not_finite_are_nan() -> None:
    """Neither infinities of both signs nor an overflow on the way raises anything."""
    assert np.isnan(exact_sum([np.inf, -np.inf]))
    assert np.isnan(exact_sum([1e308, 1e308]))
    assert exact_sum([1e16, 1.0, -1e16]) == 1.0
