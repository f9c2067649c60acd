"""Balls in feature space given a kernel matrix: their optimality, and errors of distances."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from coremargin.maths.kernel.enclosing import solve_kernel_ball, squared_distances
from coremargin.maths.kernel.expansion import Expansion
from coremargin.maths.kernel.functions import Kernel


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("nu", [None, 0.02, 0.2, 0.7])
def test_the_gap_closes_from_any_start(rng: np.random.Generator, nu: float | None, dtype: type) -> None:
    """Weights in their boxes that sum to 1, no row outside that has room, and bounds that meet."""
    rows = rng.standard_normal((150, 3))
    kernel = Kernel("rbf", gamma=0.2)
    points = kernel.points(rows)
    matrix = np.ascontiguousarray(kernel.block(points, points), dtype)
    boxes = np.ones(150) if nu is None else rng.uniform(0.5, 2.0, 150)
    boxes = boxes if nu is None else boxes / (nu * boxes.sum())
    tolerance = 1e-9 if dtype is np.float64 else 1e-4
    values = []
    for start in (np.zeros(150), np.ones(150), rng.uniform(0, 1, 150), boxes):
        found = solve_kernel_ball(matrix, boxes, start, tolerance)
        assert found.value - found.bound <= tolerance * found.value
        assert (found.weights >= 0).all()
        assert (found.weights <= boxes).all()
        assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
        exact = matrix.astype(np.float64)
        squares = exact.diagonal() - 2 * exact @ found.weights + found.weights @ exact @ found.weights
        assert (squares[found.weights < boxes] <= found.square + 1e-12).all()
        values.append(found.bound)
    assert np.ptp(values) <= 2 * tolerance


@pytest.mark.parametrize("coef0", [0.0, 1.0])
def test_errors_of_distances_are_bounded(rng: np.random.Generator, coef0: float) -> None:
    """Of a polynomial, whose values rational numbers give exactly."""
    rows, weights = rng.standard_normal((6, 3)) * 10, rng.uniform(0, 1, 4)
    kernel = Kernel("poly", gamma=0.5, degree=3, coef0=coef0)
    centre = Expansion(kernel, rows[:4], weights[:, None], np.zeros(1))

    def value(x: np.ndarray, z: np.ndarray) -> Fraction:
        product = sum((Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), z.tolist(), strict=True)), Fraction(0))
        return (product / 2 + Fraction(coef0)) ** 3

    a = [Fraction(weight) for weight in weights.tolist()]
    norm = sum(a[i] * a[j] * value(rows[i], rows[j]) for i in range(4) for j in range(4))
    found, errors = squared_distances(centre, (float(norm), 2 * abs(float(norm)) * 2.0**-53), kernel.points(rows))
    for k, x in enumerate(rows):
        exact = value(x, x) - 2 * sum(a[i] * value(rows[i], x) for i in range(4)) + norm
        assert abs(Fraction(float(found[k])) - exact) <= Fraction(float(errors[k]))
        assert errors[k] <= 1e-9 * float(value(x, x) + norm)
