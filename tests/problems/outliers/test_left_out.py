"""What a model says of each number of outliers."""

from __future__ import annotations

import numpy as np

from coremargin.problems.outliers.outlier_table import Step, margin_steps


def test_what_no_bound_is_known_of_is_not_impossible() -> None:
    """Without a bound, as in a run that ended before it had a row, nothing is said to be not separable."""
    arrays = {
        "k": np.array([0, 2, 3]), "lower": np.array([-np.inf, -0.5, 0.25]), "upper": np.array([np.inf, 0.0, 0.5]),
        "nodes": np.array([0, 7, 1]), "w": np.zeros((3, 4)),
    }  # fmt: skip
    assert margin_steps(arrays, np.inf)[0] == Step(0, None, None, 0, impossible=False)
    assert all(step.impossible for step in margin_steps(arrays, np.inf, inseparable=True))
    assert margin_steps(arrays, 1.0) == (
        Step(0, None, None, 0, impossible=False),
        Step(2, None, 0.0, 7, impossible=True),
        Step(3, 0.25, 0.5, 1, impossible=False),
    )
