"""Costs of a label in the place of a true one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def zero_one(classes: int) -> NDArray[np.float64]:
    """1 for every wrong label (K, K)."""
    return np.ones((classes, classes)) - np.eye(classes)
