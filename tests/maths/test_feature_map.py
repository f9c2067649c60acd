"""How far mapped rows are from the exact ones, as trainers and ``verify`` make them: a judge in long doubles says."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data.arrays import ArraySource
from coremargin.data.transformed import fitted
from coremargin.formats.map_asked import MapAsked
from coremargin.verify.feature_map import RowMap

if TYPE_CHECKING:
    from coremargin.maths.mapping import FeatureMap

Wide = np.longdouble
MAPS: list[dict[str, Any]] = [
    {"map": "nystroem", "components": 12}, {"map": "fourier", "components": 12},
    {"map": "polynomial", "components": None, "degree": 3, "coef0": 0.5},
    {"map": "polynomial", "components": 7, "degree": 3, "coef0": 0.5},
]  # fmt: skip


def _exact(made: Any, X: np.ndarray) -> np.ndarray:
    """Rows (n, M) as the arrays of a map define them, in long doubles."""
    x, numbers = X.astype(Wide), {name: values.astype(Wide) for name, values in made.numbers().items()}
    if made.KIND == "nystroem":
        away = x[:, None, :] - numbers["landmarks"][None, :, :]
        return np.exp(-numbers["gamma"] * (away * away).sum(axis=2)) @ numbers["normalization"].T
    if made.KIND == "fourier":
        return np.sqrt(Wide(2) / made.width) * np.cos(x @ numbers["weights"] + numbers["offsets"])
    last = np.full((len(x), 1), np.sqrt(Wide(made.coef0)))
    u, out = np.hstack([np.sqrt(numbers["gamma"]) * x, last]), np.zeros((len(x), made.width), Wide)
    if made.index is None:
        places, often = made.monomials
        return np.prod([u[:, place] for place in places], axis=0) * np.sqrt(np.round(often**2).astype(Wide))
    for chosen in product(range(u.shape[1]), repeat=made.degree):
        sign = np.prod([made.sign[k, j] for k, j in enumerate(chosen)])
        place = sum(int(made.index[k, j]) for k, j in enumerate(chosen)) % made.width
        out[:, place] += sign * np.prod([u[:, j] for j in chosen], axis=0)
    return out


def _judged(made: FeatureMap, found: np.ndarray, X: np.ndarray) -> float:
    return float(np.sqrt(((found - _exact(made, X)) ** 2).sum(axis=1)).max())


@pytest.mark.parametrize("asked", MAPS, ids=["nystroem", "fourier", "products", "sketch"])
@pytest.mark.parametrize("offset", [0.0, 30.0, 1e4])
@pytest.mark.parametrize("gamma", [1e-3, 0.5])
def test_no_mapped_row_is_farther_from_the_exact_one_than_is_said(
    asked: dict[str, Any], offset: float, gamma: float
) -> None:
    """Of dense and of sparse rows, however far these lie from the origin, and by either code."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[::7] *= 3.0
    X[:, 1] += offset
    made = fitted(ArraySource(X, np.arange(60) % 2), MapAsked(gamma=gamma, **asked))
    longest = float(np.sqrt((X * X).sum(axis=1)).max())
    shape = getattr(made, "degree", 0), getattr(made, "coef0", 0.0), "index" in made.numbers()
    other = RowMap(made.KIND, made.features, made.width, made.numbers(), *shape)
    granted = other.moved(float(made.longest(np.array([longest]))[0]))
    assert _judged(made, other.rows(X), X) <= granted
    for rows in (X, csr_array(X)):
        assert _judged(made, made.of_rows(rows), X) <= made.moves(longest) - granted


@pytest.mark.parametrize("asked", MAPS[2:], ids=["products", "sketch"])
@pytest.mark.parametrize("size", [1e-221, 1e-160, 1e-100])
def test_products_that_underflow_move_rows_by_more_than_a_checker_grants(asked: dict[str, Any], size: float) -> None:
    """Bounds that are widened by the one hold where a checker narrows them by the other, though all products are 0."""
    X = size * np.random.default_rng(0).normal(size=(20, 3))
    made = fitted(ArraySource(X, np.arange(20) % 2), MapAsked(gamma=0.5, **asked | {"coef0": 0.0}))
    longest = float(np.sqrt((X * X).sum(axis=1)).max())
    other = RowMap(made.KIND, made.features, made.width, made.numbers(), made.degree, 0.0, "index" in made.numbers())
    assert made.moves(longest) >= 2.0 * other.moved(float(made.longest(np.array([longest]))[0])) > 0


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_sparse_rows_are_mapped_alike_wherever_they_stand(offset: float) -> None:
    """To the bit: what the last rows of many are is what they are by themselves."""
    X = np.random.default_rng(1).normal(size=(300, 3)) * (np.random.default_rng(2).random((300, 3)) < 0.6)
    X[:, 1] += offset
    rows = csr_array(X)
    made = fitted(ArraySource(rows, np.arange(300) % 2), MapAsked(map="nystroem", components=33, gamma=0.5))
    every = made.of_rows(rows)
    for start, stop in ((0, 1), (3, 20), (299, 300)):
        assert np.array_equal(made.of_rows(rows[start:stop]), every[start:stop])
