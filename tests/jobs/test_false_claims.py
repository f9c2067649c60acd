"""Claims of campaigns are false as seldom as they say, whoever answers; and this would be seen if they were not."""

from __future__ import annotations

import pytest

CAMPAIGNS = 120


def false_ones(confidence: float | None = None) -> int:
    """How many of the campaigns against the adversary claim what is not so."""
    from false_claims import CONFIDENCE, is_false

    return sum(is_false(seed, confidence=confidence or CONFIDENCE) for seed in range(CAMPAIGNS))


@pytest.mark.slow
def test_claims_are_false_as_seldom_as_they_say() -> None:
    """An adversary that makes one row more wrong than may be, whenever draws come, is believed in at most a share
    delta of the campaigns, up to three standard errors; and in some, or it would be no adversary.
    """
    from false_claims import CONFIDENCE, most_false

    assert 0.3 * (1 - CONFIDENCE) * CAMPAIGNS <= false_ones() <= most_false(CAMPAIGNS)


@pytest.mark.slow
def test_half_the_draws_would_be_seen() -> None:
    """With half the draws more claims are false than the test above lets pass."""
    from false_claims import HALF, most_false

    assert false_ones(HALF) > most_false(CAMPAIGNS)


@pytest.mark.parametrize("classes", [2, 3])
def test_far_rows_may_be_of_any_class(classes: int) -> None:
    """Whatever labels the adversary gives to far rows, a hyperplane for each class separates it from the others, and
    nearly as widely as without them: NumPy's least squares find one.
    """
    import numpy as np
    from false_claims import FAR, ROWS, world

    rng, X = np.random.default_rng(3), world(0, classes)
    labels = np.concatenate([np.arange(ROWS - FAR) % classes, rng.integers(0, classes, FAR)])
    for k in range(classes):
        side = np.where(labels == k, 1.0, -1.0)
        w = np.linalg.lstsq(X[ROWS - FAR :], side[ROWS - FAR :], rcond=None)[0]  # the far rows, by the last features
        w[:classes] = np.where(np.arange(classes) == k, 1.0, -1.0)
        margins = side * (X @ w) / np.linalg.norm(w)
        assert margins.min() > 0.9 / np.linalg.norm(w)
