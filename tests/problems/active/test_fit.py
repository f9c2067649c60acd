"""Soft margins of few rows: bounds meet, whatever C is, and both are bounds."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coremargin.active import Campaign
from coremargin.data.writer import StoreWriter
from coremargin.problems.active.fit import least_values
from coremargin.problems.active.hypothesis import Hypothesis
from coremargin.problems.active.state import Answered
from coremargin.verify import verify


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
    fitted = least_values(rows, Hypothesis.empty(6, 1, soft=True), loss, C, intercept=intercept)  # type: ignore[arg-type]
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


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("offset", [1e7, 1e11, 1e13])
def test_bounds_hold_of_rows_far_from_the_origin(offset: float, loss: str, intercept: bool) -> None:
    """In rational arithmetic: margins lose digits there, and so does the sum of rows by their dual weights."""
    rng = np.random.default_rng(3)
    X, codes = rng.normal(size=(30, 2)), np.arange(30, dtype=np.int32) % 2
    X = X + np.where(codes == 1, 1.0, -1.0)[:, None] + offset
    rows = Answered(np.arange(30), X, codes, np.zeros((30, 1)))
    fitted = least_values(rows, Hypothesis.empty(2, 1, soft=True), loss, 2.0, intercept=intercept)  # type: ignore[arg-type]
    w, b = [Fraction(one) for one in fitted.hypothesis.w[0]], Fraction(float(fitted.hypothesis.b[0]))
    value = sum(one * one for one in w) / 2
    for x, sign in zip(X.tolist(), rows.signs(0).tolist(), strict=True):
        slack = max(Fraction(0), 1 - sign * (sum(Fraction(one) * v for one, v in zip(x, w, strict=True)) + b))
        value += 2 * (slack * slack if loss == "squared_hinge" else slack)
    assert value <= fitted.upper[0]
    assert fitted.lower[0] <= value


@pytest.mark.specimens(4)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize(("offset", "C"), [(0.0, 1e8), (0.0, 1e12), (1e7, 0.2), (1e11, 0.2), (1e13, 0.2)])
def test_campaigns_that_rounding_matters_to_verify(tmp_path: Path, offset: float, C: float, loss: str) -> None:
    """Far from the origin, or with a C by which a margin's last digit counts, what is claimed is what is found."""
    rng = np.random.default_rng(4)
    X, codes = rng.normal(size=(40, 2)), np.arange(40) % 2
    X = X + np.where(codes == 1, 1.0, -1.0)[:, None] + offset
    with StoreWriter.create(tmp_path / "s", features=2, dtype="float64", chunk_bytes=160) as writer:
        writer.write(X, None, None, origin="test")
    campaign = Campaign.create(
        tmp_path / "c",
        tmp_path / "s",
        classes=["a", "b"],
        error=0.3,
        confidence=0.6,
        loss=loss,
        C=C,  # type: ignore[arg-type]
    )
    while asked := campaign.ask(3):
        campaign.tell([one.row for one in asked], ["ab"[codes[one.row]] for one in asked])
    campaign.close()
    assert verify(tmp_path / "c", tmp_path / "s").ok
