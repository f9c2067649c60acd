"""The margin with k outliers of a given direction: definitions and rounding."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.maths.margin import safe_projections
from coremargin.maths.outliers.trimmed import best_removal, lowest_rows, trimmed_margin
from margin_judges import exact_margins
from outlier_judges import KINDS, instance, trimmed_by_hand


def lowest(values: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of each class in order."""
    return np.sort(values[y > 0]), np.sort(values[y < 0])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_best_trim_is_the_best_over_all_offsets(kind: str, intercept: bool) -> None:
    """The value in closed form is the (k + 1)-th smallest margin at the best of all offsets that matter."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        x, y, k = instance(kind, rng)
        w = rng.normal(size=x.shape[1])
        w /= np.linalg.norm(w)
        value, b = best_removal(lowest(y * (x @ w), y), k, intercept)
        assert value == pytest.approx(trimmed_by_hand(x, y, w, k, intercept=intercept), abs=1e-12)
        assert value == pytest.approx(np.sort(y * (x @ w + b))[k], abs=1e-12)


def test_a_proven_margin_is_at_most_the_exact_one() -> None:
    """Rounded down: k rows at most lie below the claim, in rational arithmetic, for rows far from the origin too."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        x, y, k = instance("separable", rng)
        x = x + 1e6
        w = rng.normal(size=x.shape[1])
        claim, b = trimmed_margin(lowest(safe_projections(x, y, w[:, None])[:, 0], y), w, k, True)
        length = np.linalg.norm(w) * (1 - 1e-15)
        below = [m for m in exact_margins(x, y, w, b) if float(m) < claim * length - 1e-9 * abs(claim * length)]
        assert len(below) <= k


def test_a_class_of_k_rows_leaves_the_margin_unbounded() -> None:
    """With an intercept all rows of a small class may be excluded; without one the rest still bounds the margin."""
    p, q = np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    assert best_removal((p, q), 2, True)[0] == np.inf
    assert best_removal((p, q), 2, False)[0] == 2.0
    assert trimmed_margin((p, q), np.ones(1), 2, True)[0] == np.inf


def test_a_direction_of_no_length_proves_nothing() -> None:
    """No margin is claimed for w = 0."""
    nothing = np.zeros(3)
    assert trimmed_margin((nothing, nothing), np.zeros(2), 1, True)[0] == -np.inf


def test_outliers_are_the_lowest_rows_and_the_first_of_equals() -> None:
    """Ties are decided by position."""
    assert lowest_rows(np.array([3.0, 1.0, 1.0, 0.5, 1.0]), 3).tolist() == [3, 1, 2]
