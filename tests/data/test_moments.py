"""Moments of all rows from the chunks' statistics, against NumPy and scikit-learn on the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from coremargin.data.arrays import ArraySource
from coremargin.data.moments import moments


def _rows(rng: np.random.Generator, n: int = 1000) -> np.ndarray:
    """Features of many scales, far from the origin and near it, one constant, one without any value."""
    X = rng.normal(size=(n, 6)) * [1e-30, 1.0, 1e5, 3.0, 0.0, 0.0] + [0.0, 0.0, -2e5, 1.7e9, 0.1, 0.0]
    X[: n // 2, 1] += 1e4  # chunks with means of their own
    return X


@pytest.mark.parametrize("chunk_rows", [1, 7, 64, 1000])
def test_moments_are_those_of_the_rows(rng: np.random.Generator, chunk_rows: int) -> None:
    """However the rows are cut, mean and variance are scikit-learn's: a mean of 1.7e9 costs a spread of 3 nothing."""
    X = _rows(rng)
    found = moments(ArraySource(X, np.arange(len(X)) % 2, chunk_rows=chunk_rows))
    judge = StandardScaler().fit(X)
    np.testing.assert_allclose(found.mean, judge.mean_, rtol=1e-12, atol=1e-30)
    np.testing.assert_allclose(found.variance[:4], judge.var_[:4], rtol=1e-8)  # centres are float64, too
    np.testing.assert_array_equal(found.low, X.min(axis=0))
    np.testing.assert_array_equal(found.high, X.max(axis=0))
    assert found.constant.tolist() == [False] * 4 + [True] * 2
    assert found.variance[4:].tolist() == [0.0, 0.0]
    assert found.mean[4:].tolist() == [0.1, 0.0]


def test_moments_of_huge_values() -> None:
    """Where squares overflow the variance is infinite, never NaN; the mean stays what it is."""
    X = np.array([[1e200, 1e308], [-1e200, 1e308], [3e200, -1e308]])
    found = moments(ArraySource(X, [0, 1, 1], chunk_rows=1))
    assert found.variance.tolist() == [np.inf, np.inf]
    np.testing.assert_allclose(found.mean[0], 1e200)
