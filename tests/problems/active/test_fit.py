"""Soft margins of few rows: bounds meet, whatever C is, and both are bounds."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.problems.active.answered import Answered
from coremargin.problems.active.fit import least_values
from coremargin.problems.active.hypothesis import Hypothesis


def answered(kind: str) -> Answered:
    """200 rows whose classes a plane tells apart, or nearly."""
    rng = np.random.default_rng(1)
    X, w = rng.normal(size=(200, 6)), rng.normal(size=6)
    w /= np.linalg.norm(w)
    codes = (X @ w > 0).astype(np.int32)
    X += np.outer(np.where(codes == 1, 0.3, -0.3), w)
    wrong = rng.random(200) < 0.05 if kind == "noisy" else np.zeros(200, bool)
    return Answered(np.arange(200), X, np.where(wrong, 1 - codes, codes).astype(np.int32), np.zeros((200, 1)))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize(("kind", "C"), [
    ("noisy", 1e-50), ("noisy", 1e-6), ("noisy", 1.0), ("noisy", 1e6), ("separable", 1e-6), ("separable", 1.0),
    ("separable", 1e50),
])  # fmt: skip
def test_bounds_meet_whatever_the_cost(kind: str, C: float, loss: str, intercept: bool) -> None:
    """The value is that of the hypothesis, no hyperplane near it is below the dual's bound, and both are close."""
    rows = answered(kind)
    fitted = least_values(rows, Hypothesis.nothing(6, 1, soft=True), loss, C, intercept=intercept)  # type: ignore[arg-type]
    w, b = fitted.hypothesis.w[0], float(fitted.hypothesis.b[0])

    def value(w: np.ndarray, b: float) -> float:
        slack = np.maximum(0.0, 1.0 - rows.signs(0) * (rows.rows @ w + b))
        return float(0.5 * w @ w + C * (slack**2 if loss == "squared_hinge" else slack).sum())

    assert value(w, b) <= fitted.upper[0] * (1 + 1e-12)
    assert (1 - 1e-4) * fitted.upper[0] <= fitted.lower[0] <= value(w, b)
    rng = np.random.default_rng(2)
    for _ in range(200):
        step = 10.0 ** rng.uniform(-6, 0)
        assert value(w * (1 + step * rng.normal(size=6)), b + intercept * step * rng.normal()) >= fitted.lower[0]
    assert intercept or b == 0.0
