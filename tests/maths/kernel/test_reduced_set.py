"""Smaller expansions: what they are nearest to, and that no other weights on the same rows are nearer."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.expansion import Expansion
from coremargin.maths.kernel.functions import Kernel
from coremargin.maths.kernel.reduced_set import reduce_expansion

KERNELS = [Kernel("rbf", gamma=0.7), Kernel("poly", gamma=0.5, degree=3, coef0=1.0), Kernel("linear")]


def _expansion(kernel: Kernel, rows: int = 60, columns: int = 2) -> Expansion:
    rng = np.random.default_rng(3)
    return Expansion(kernel, rng.normal(size=(rows, 3)), rng.normal(size=(rows, columns)), np.zeros(columns))


def _distances(whole: Expansion, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """||f - f'||^2 (k,) by all kernel values."""
    values = whole.kernel.block(whole.points, whole.points)
    apart = whole.weights.copy()
    apart[places] -= weights
    return np.asarray(((values @ apart) * apart).sum(axis=0))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda one: one.name)
def test_weights_are_the_best_on_their_rows(kernel: Kernel) -> None:
    """What is left has no part in their span: it is 0 at each of these rows."""
    whole = _expansion(kernel)
    found = reduce_expansion(whole, 12)
    small = Expansion(kernel, whole.rows[found.places], found.weights, whole.offsets)
    left = whole.values(small.points) - small.values(small.points)
    np.testing.assert_allclose(left, 0.0, atol=1e-9 * np.abs(whole.values(whole.points)).max())


def test_rows_are_chosen_well() -> None:
    """Nearer than rows by lot with their best weights, and nearer with every row more."""
    whole, rng = _expansion(KERNELS[0]), np.random.default_rng(0)
    left = [
        _distances(whole, found.places, found.weights).sum()
        for found in (reduce_expansion(whole, r) for r in (6, 12, 24))
    ]
    assert (np.diff(left) < 0).all()
    for _ in range(20):
        lot = np.sort(rng.choice(60, 24, replace=False))
        values = whole.kernel.block(whole.points.take(lot), whole.points.take(lot))
        best = np.linalg.solve(values, whole.values(whole.points.take(lot)))
        assert _distances(whole, lot, best).sum() > left[-1]


def test_rows_that_say_nothing_new_are_not_chosen() -> None:
    """A hyperplane in three dimensions rests on three rows; equal rows count once; of nothing, nothing is left."""
    assert len(reduce_expansion(_expansion(KERNELS[2]), 50).places) == 3
    once = _expansion(KERNELS[0], 8)
    twice = Expansion(once.kernel, np.tile(once.rows, (2, 1)), np.tile(once.weights, (2, 1)), once.offsets)
    found = reduce_expansion(twice, 15)
    assert len(found.places) == 8
    assert (np.diff(found.places) > 0).all()
    assert _distances(twice, found.places, found.weights).max() < 1e-12
    nothing = Expansion(once.kernel, once.rows, np.zeros_like(once.weights), once.offsets)
    assert len(reduce_expansion(nothing, 3).places) == 0


def test_a_function_that_rounds_is_reduced_as_far_as_its_values_tell() -> None:
    """Values of rank 3, off by 1e-7 of a row with itself: three rows say what these tell, none is chosen for that."""
    rng = np.random.default_rng(5)
    x, weights = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))

    def rounded(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        sizes = np.linalg.norm(X, axis=1)[:, None] * np.linalg.norm(Z, axis=1)[None, :]
        return np.asarray(X @ Z.T + 1e-7 * sizes * (X[:, None] == Z[None]).all(axis=2))

    whole = Expansion(CallableKernel(function=rounded, eta=1e-7), x, weights, np.zeros(2))
    small = reduce_expansion(whole, 40)
    assert len(small.places) == 3
    np.testing.assert_allclose(x @ x[small.places].T @ small.weights, x @ x.T @ weights, atol=1e-3)
