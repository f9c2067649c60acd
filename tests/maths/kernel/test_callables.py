"""Functions as kernels: their values and bounds, and what shows that one is no kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import own_kernels
import pytest
import scipy.sparse as sp

from coremargin.maths.kernel import callables
from coremargin.maths.kernel.callables import CallableKernel, check_semidefinite
from coremargin.maths.kernel.functions import TILE_ROWS, Kernel, KernelFault, Lengths, Points
from coremargin.maths.stopping import stoppable


def _rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3))


def _error(one: CallableKernel, x: Points, z: Points, weights: np.ndarray) -> np.ndarray:
    return one.sums_error(x, Lengths.from_points(z, weights), np.abs(weights).sum(axis=0), len(z))


def test_values_are_those_of_the_kernel_that_the_function_is() -> None:
    """In more rows than one tile has; lengths are those in its space, and no less."""
    x, z = _rows(TILE_ROWS + 40), _rows(90, 1)
    one, judge = CallableKernel(function=own_kernels.rbf), Kernel("rbf", gamma=own_kernels.GAMMA)
    a, b = one.points(x), one.points(z)
    np.testing.assert_allclose(one.block(a, b), judge.block(judge.points(x), judge.points(z)), atol=1e-14)
    assert ((a.lengths >= 1) & (a.lengths <= 1 + 1e-9)).all()


def test_sums_are_within_what_the_error_says_of_every_kernel_that_near() -> None:
    """Of a kernel from which values are off by eta of both lengths the bound holds, and is met in the worst case."""
    x, z, eta = _rows(50), _rows(30, 1), 1e-4
    weights = np.random.default_rng(2).normal(size=(30, 2))
    lengths = [np.sqrt((rows * rows).sum(axis=1)) for rows in (x, z)]

    def off(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        sizes = np.sqrt((X * X).sum(axis=1))[:, None] * np.sqrt((Z * Z).sum(axis=1))[None, :]
        return np.asarray(X @ Z.T - eta * sizes)

    one = CallableKernel(function=off, eta=eta)
    a, b = one.points(x), one.points(z)
    found, error = one.sums(a, b, weights), _error(one, a, b, weights)
    assert (np.abs(found - x @ z.T @ weights) <= error).all()
    worst = np.abs(one.sums(a, b, np.ones((30, 1)))[:, 0] - (x @ z.T).sum(axis=1))
    np.testing.assert_allclose(worst, eta * lengths[0] * lengths[1].sum(), rtol=1e-6)
    assert (worst >= 0.99 * _error(one, a, b, np.ones((30, 1)))[:, 0]).all()


def test_the_function_gets_copies_which_are_dense() -> None:
    """It may write into them; sparse rows are made dense for it, a few at a time."""
    x = _rows(40)
    x[np.abs(x) < 0.5] = 0.0
    one = CallableKernel(function=own_kernels.greedy)
    a, b = one.points(x), one.points(sp.csr_array(x))
    np.testing.assert_array_equal(one.block(a, a), one.block(b, b))
    np.testing.assert_allclose(one.block(b, b), x @ x.T)


def test_wide_rows_are_dense_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few there is room for, the values are the same."""
    x, asked = _rows(40), list[tuple[int, int]]()

    def counting(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        asked.append((len(X), len(Z)))
        return own_kernels.rbf(X, Z)

    one = CallableKernel(function=counting)
    a = one.points(x)
    whole = one.block(a, a)
    monkeypatch.setattr(callables, "DENSE", 3 * 7)
    asked.clear()
    np.testing.assert_array_equal(one.block(a, a), whole)
    assert max(map(max, asked)) == 7


FAULTS: dict[str, tuple[Any, str]] = {
    "skew": (own_kernels.skew, "it is not symmetric, within kernel_error 1e-10"),
    "indefinite": (own_kernels.indefinite, "it is not positive semi-definite"),
    "negative": (own_kernels.negative, r"k\(x, x\) = -.*, expected a number from 0 on"),
    "too large": (own_kernels.too_large, "is at most the square root of their product"),
    "by shape": (own_kernels.by_shape, "when computed alongside other rows"),
    "shape": (own_kernels.of_one_row, r"expected an array of shape \(32, 32\) .* found one of shape \(32,\)"),
    "words": (own_kernels.words, "of real numbers .* of <U1"),
    "broken": (own_kernels.broken, "it raised ZeroDivisionError: no such thing"),
}


@pytest.mark.parametrize(("function", "message"), FAULTS.values(), ids=FAULTS)
def test_what_is_no_kernel_is_found_on_some_rows(function: Any, message: str) -> None:
    """By their values with each other."""
    one = CallableKernel(function=function)
    with pytest.raises(KernelFault, match=message):
        one.check_values(one.points(_rows(120)))


@pytest.mark.parametrize("function", [own_kernels.rbf, own_kernels.greedy], ids=lambda one: one.__name__)
def test_nothing_is_found_of_kernels(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in groups, where rows are many; one of them of rank 3."""
    one = CallableKernel(function=function)
    one.check_values(one.points(_rows(120)))
    monkeypatch.setattr(callables, "CHECKED", 50)
    one.check_values(one.points(_rows(120)))


def test_a_fault_names_the_row_wherever_it_lies() -> None:
    """In a later block on the diagonal, in a later tile, in a group."""
    x = _rows(TILE_ROWS + 60)
    x[TILE_ROWS + 50, 0] = 6.0
    one = CallableKernel(function=own_kernels.with_nan)
    with pytest.raises(KernelFault) as found:
        one.points(x)
    assert found.value.row == TILE_ROWS + 50
    good = CallableKernel(function=own_kernels.rbf).points(x)
    with pytest.raises(KernelFault) as found:
        one.sums(good, good.take(slice(0, 5)), np.ones((5, 1)))
    assert (found.value.row, found.value.other) == (TILE_ROWS + 50, 0)


def test_an_eigenvalue_may_be_as_low_as_the_error_explains_and_no_lower() -> None:
    """-eta sum k(x, x): what a matrix that is that near to a kernel's can have."""
    eta, lengths = 1e-6, np.ones(4)
    good = np.ones((4, 4))
    check_semidefinite(good - 0.9 * eta * 4 * np.eye(4), lengths, eta)
    with pytest.raises(KernelFault, match="an eigenvalue below -4e-06"):
        check_semidefinite(good - 1.1 * eta * 4 * np.eye(4), lengths, eta)


def test_whoever_waits_no_longer_is_asked_between_tiles() -> None:
    """A slow function is ended between two of its calls."""
    one, calls = CallableKernel(function=own_kernels.rbf), [0]
    a = one.points(_rows(3 * TILE_ROWS))

    def ended() -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise InterruptedError

    with stoppable(ended), pytest.raises(InterruptedError):
        one.sums(a, a, np.ones((3 * TILE_ROWS, 1)))
    assert calls[0] == 2
