"""Kernels: their values against scikit-learn's, and what rounding does to them against more digits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel

from coremargin.maths.kernel.functions import TILE_COLUMNS, TILE_ROWS, Kernel, Lengths
from coremargin.maths.kernel.gram import STRIP, Gram

KERNELS = [
    Kernel("linear"),
    Kernel("poly", gamma=0.3, degree=3, coef0=1.0),
    Kernel("poly", gamma=2.0, degree=1),
    Kernel("rbf", gamma=0.7),
]


def judged(kernel: Kernel, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Values (n, m) with the digits of long doubles, distances by differences."""
    x, z = x.astype(np.longdouble), z.astype(np.longdouble)
    if kernel.name == "rbf":
        return np.exp(-np.longdouble(kernel.gamma) * ((x[:, None, :] - z[None, :, :]) ** 2).sum(axis=2))
    products = x @ z.T
    if kernel.name == "linear":
        return products
    return (np.longdouble(kernel.gamma) * products + np.longdouble(kernel.coef0)) ** kernel.degree


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda one: f"{one.name}-{one.degree}")
@pytest.mark.parametrize("sparse", [False, True])
def test_values_are_those_of_scikit_learn(kernel: Kernel, sparse: bool) -> None:
    """Of dense and of sparse rows."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(30, 7)), rng.normal(size=(20, 7)) * (rng.random((20, 7)) < 0.6)
    make = csr_array if sparse else np.asarray
    wanted = {
        "linear": lambda: linear_kernel(x, z),
        "poly": lambda: polynomial_kernel(x, z, degree=kernel.degree, gamma=kernel.gamma, coef0=kernel.coef0),
        "rbf": lambda: rbf_kernel(x, z, gamma=kernel.gamma),
    }[kernel.name]()
    found = kernel.block(kernel.points(make(x)), kernel.points(make(z)))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda one: f"{one.name}-{one.degree}")
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_no_value_is_off_by_more_than_its_bound(kernel: Kernel, offset: float, size: float) -> None:
    """Whatever the lengths of rows, and however far from the origin they lie."""
    rng = np.random.default_rng(1)
    x, z = (offset + size * rng.normal(size=(40, 11)) for _ in range(2))
    centred = Kernel(kernel.name, kernel.gamma, kernel.degree, kernel.coef0, x.mean(axis=0))
    for one in (kernel, centred) if kernel.name == "rbf" else (kernel,):
        a, b = one.points(x), one.points(z)
        lost = np.abs(one.block(a, b) - judged(one, x, z)).max(axis=1)
        bound = one.value_error(a.lengths, b.longest, x.shape[1])
        assert (lost <= bound).all()
        assert (judged(one, x, z).max(axis=1) <= one.value_bound(a.lengths, b.longest)).all()
    if kernel.name == "rbf" and offset:
        assert bound.max() < 1e-9  # about a centre the digits are there


def test_a_distant_origin_costs_digits_without_a_centre() -> None:
    """The bound says so, and is not too pessimistic by far."""
    rng = np.random.default_rng(2)
    x = 1e6 + rng.normal(size=(50, 5))
    kernel = Kernel("rbf", gamma=1.0)
    points = kernel.points(x)
    lost = np.abs(kernel.block(points, points) - judged(kernel, x, x)).max()
    bound = float(kernel.value_error(points.lengths, points.longest, 5).max())
    assert 1e-6 < lost <= bound < 1e4 * lost


def test_sums_are_those_of_all_values_tile_by_tile() -> None:
    """More rows and columns than one tile has, in both directions."""
    rng = np.random.default_rng(3)
    x, z, kernel = rng.normal(size=(TILE_ROWS + 3, 4)), rng.normal(size=(TILE_COLUMNS + 5, 4)), KERNELS[3]
    weights = rng.normal(size=(len(z), 3))
    a, b = kernel.points(x), kernel.points(z)
    found = kernel.sums(a, b, weights)
    error = kernel.sums_error(a, Lengths.from_points(b, weights), np.abs(weights).sum(axis=0), len(z))
    assert (np.abs(found - judged(kernel, x, z) @ weights) <= error).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_long_row_costs_what_it_weighs(sparse: bool) -> None:
    """Sums are off by no more than the bound, at rows with more terms too, and one long row makes it little larger."""
    rng, kernel = np.random.default_rng(5), KERNELS[3]
    x, z = (rng.normal(size=(40, 60)) * (rng.random((40, 60)) < share) for share in (1.0, 0.2))
    weights = rng.random((40, 2))
    weights[0] = 1e-6
    bounds = []
    for length in (1.0, 1e3):
        far = z * np.where(np.arange(40) == 0, length, 1.0)[:, None]
        a, b = (kernel.points(csr_array(rows) if sparse else rows) for rows in (x, far))
        bounds.append(kernel.sums_error(a, Lengths.from_points(b, weights), weights.sum(axis=0), 40))
        assert (np.abs(kernel.sums(a, b, weights) - judged(kernel, x, far) @ weights) <= bounds[-1]).all()
    assert (bounds[1] < 2 * bounds[0]).all()
    assert kernel.value_error(b.longest, b.longest, 60) > 1e3 * kernel.value_error(1.0, 1.0, 60)


def test_a_pool_that_grew_has_the_bits_of_one_that_was_there_at_once() -> None:
    """Strips that are full are kept, all others made again; both halves are equal to the bit."""
    rng = np.random.default_rng(4)
    x, kernel, ids = rng.normal(size=(2 * STRIP + 70, 6)), KERNELS[3], np.arange(2 * STRIP + 70)
    whole, grown = Gram.empty(), Gram.empty()
    for count in (100, STRIP + 30, 2 * STRIP, len(x)):
        grown, unknown = grown.extended(ids[:count], np.dtype(np.float32), len(x))
        for first in unknown:
            grown.fill([kernel], kernel.points(x[:count]), first)
    assert unknown == [2 * STRIP]
    whole, unknown = whole.extended(ids, np.dtype(np.float32), len(x))
    assert unknown == [0, STRIP, 2 * STRIP]
    for first in unknown:
        whole.fill([kernel], kernel.points(x), first)
    assert np.array_equal(whole.values, grown.values)
    assert np.array_equal(whole.values[0], whole.values[0].T)
    np.testing.assert_allclose(whole.values[0], rbf_kernel(x, gamma=kernel.gamma), rtol=2e-6, atol=1e-12)


def test_other_rows_are_not_taken_for_those_that_are_known() -> None:
    """Nor values of another precision."""
    first = Gram(np.arange(STRIP), np.zeros((1, STRIP, STRIP)))
    for ids, dtype in ((np.arange(1, STRIP + 1), np.float64), (np.arange(STRIP), np.float32)):
        assert first.extended(ids, np.dtype(dtype), STRIP)[1] == [0]
    assert first.extended(np.arange(STRIP), np.dtype(np.float64), STRIP)[1] == []
