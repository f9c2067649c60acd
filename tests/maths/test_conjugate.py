"""Conjugate gradients against a direct solver."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.maths.conjugate import conjugate_gradients


def system(seed: int, n: int = 30, spread: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """A positive definite matrix in units that differ by powers of ten, and a right side."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((2 * n, n)) * 10.0 ** rng.uniform(-spread, spread, n)
    return z.T @ z + np.eye(n), rng.standard_normal(n)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_it_finds_what_a_direct_solver_finds(seed: int, *, scaled: bool) -> None:
    """Scaled by the diagonal, a system in unlike units is solved to the share that is asked for, by either measure."""
    matrix, right = system(seed)
    diagonal, share = np.diag(matrix).copy(), 1e-24
    x, found = conjugate_gradients(lambda v: matrix @ v, right, share, 500, diagonal=diagonal, scaled=scaled)
    assert found
    left, weights = right - matrix @ x, 1 / diagonal if scaled else np.ones(len(right))
    assert weights @ left**2 <= 1e-20 * (weights @ right**2)
    assert x == pytest.approx(np.linalg.solve(matrix, right), rel=1e-6, abs=1e-9 * np.abs(x).max())


def test_a_rough_share_takes_fewer_products() -> None:
    """It ends as soon as the share is reached, and says so; in too few turns it says that it is not."""
    matrix, right = system(1, spread=0.5)
    counts = []
    for share in (1e-2, 1e-20):
        seen: list[np.ndarray] = []
        x, found = conjugate_gradients(lambda v, seen=seen: (seen.append(v), matrix @ v)[1], right, share, 500)
        assert found
        assert np.sum((right - matrix @ x) ** 2) <= 1.01 * share * np.sum(right**2)
        counts.append(len(seen))
    assert counts[0] < counts[1]
    assert not conjugate_gradients(lambda v: matrix @ v, right, 1e-20, counts[0])[1]


def test_a_matrix_on_the_right_is_one_vector() -> None:
    """A right side of two dimensions is solved as its entries in a row would be."""
    matrix, right = system(2, spread=0.3)
    flat, _ = conjugate_gradients(lambda v: matrix @ v, right, 1e-24, 500)
    folded, found = conjugate_gradients(
        lambda v: (matrix @ v.ravel()).reshape(v.shape), right.reshape(5, 6), 1e-24, 500
    )  # fmt: skip
    assert found
    assert folded.shape == (5, 6)
    assert folded.ravel() == pytest.approx(flat, rel=1e-9, abs=1e-12)


def test_nothing_on_the_right_is_nothing() -> None:
    """For a right side of zeros the answer is zeros, without a division by zero."""
    matrix, right = system(3)
    x, _ = conjugate_gradients(lambda v: matrix @ v, 0.0 * right, 1e-2, 10, diagonal=np.diag(matrix))
    assert not x.any()
