"""``OneClassBall``: what scikit-learn asks of a detector of outliers, and its OneClassSVM as the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import OneClassSVM
from sklearn.utils.estimator_checks import parametrize_with_checks

import coremargin
from coremargin.errors import UsageError
from coremargin.estimators import OneClassBall


def none_outside(estimator: Any) -> dict[str, str]:
    """The checks that want outliers among the rows of the training, which a ball around all of them has not."""
    checks = ("check_outliers_train", "check_outliers_fit_predict")
    return {} if estimator.nu else dict.fromkeys(checks, "no row is outside of the ball around all rows")


@pytest.mark.slow
@parametrize_with_checks(
    [OneClassBall(epsilon=1e-9), OneClassBall(nu=None, epsilon=1e-9)], expected_failed_checks=none_outside
)
def test_scikit_learn_finds_nothing_to_object_to(estimator: Any, check: Any) -> None:
    """Every check of scikit-learn passes, with none excused where a share of the rows may lie outside."""
    check(estimator)


def test_of_rows_of_one_length_it_is_the_one_class_machine() -> None:
    """The same rows are outside, but for those on the sphere."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 4)) + 1.0
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    ball, judge = (
        OneClassBall(nu=0.1, epsilon=1e-9).fit(rows),
        OneClassSVM(kernel="linear", nu=0.1, tol=1e-10).fit(rows),
    )
    sure = np.abs(ball.decision_function(rows)) > 1e-5
    assert sure.sum() > 290
    assert (ball.predict(rows) == judge.predict(rows))[sure].all()
    np.testing.assert_allclose(ball.center_, judge.coef_[0] / 30, atol=1e-6)


def test_scores_distances_and_decisions_belong_together(tmp_path: Path) -> None:
    """Of dense and sparse rows, with a share outside and without; the model is one that verify takes."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((200, 3))
    for nu in (0.2, None):
        ball = OneClassBall(nu=nu).fit(rows)
        scores = ball.score_samples(rows)
        np.testing.assert_allclose(scores, -np.linalg.norm(rows - ball.center_, axis=1))
        np.testing.assert_array_equal(ball.decision_function(rows), scores - ball.offset_)
        assert (ball.fit_predict(rows) == -1).sum() <= 200 * (nu or 0)
        np.testing.assert_allclose(OneClassBall(nu=nu).fit(sp.csr_array(rows)).center_, ball.center_, atol=1e-2)
        ball.model_.save(tmp_path / str(nu))
        coremargin.ingest(rows, tmp_path / f"{nu}.zarr", unlabelled=True, dtype="float64")
        assert coremargin.verify(tmp_path / str(nu), tmp_path / f"{nu}.zarr").ok


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"nu": 0.01}, "nu: expected at least 1 / n_samples with n_samples = 4, found 0.01"),
        ({"nu": 1.0}, "nu: "),
        ({"nu": [0.1, 0.5]}, "nu: expected one value, found .* GridSearchCV"),
    ],
)
def test_what_it_does_not_take_is_refused(asked: dict[str, Any], message: str) -> None:
    """By name."""
    with pytest.raises(UsageError, match=message):
        OneClassBall(**asked).fit([[0.0], [1.0], [2.0], [3.0]])
