"""The losses that the verifier knows: what it needs of each to check a value and a dual bound.

This code is independent of ``problems/soft/losses``. A further loss is an object here, and its dual bound in ``gap.py``
if its duals follow from a hypothesis in another way.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping


class Loss(ABC):
    """A loss of the slack max(0, 1 - margin) of a row."""

    #: Rows near the margin have duals of their own, and all others the dual of their side; else all duals follow from
    #: slacks at a hypothesis.
    names_duals: bool

    @abstractmethod
    def value(self, slack: np.ndarray) -> np.ndarray:
        """The losses (n,) of slacks (n,) >= 0."""

    @abstractmethod
    def shares(self, margins: np.ndarray) -> np.ndarray:
        """Duals (n,) by the margins at a hypothesis, in units of c or up to a common factor."""

    @abstractmethod
    def limit(self, cost: float) -> float:
        """Upper limit of a dual whose row has C ``cost``."""

    @abstractmethod
    def conjugate(self, squares: float, cost: float) -> float:
        """What the dual value loses besides 1/2 ||v||^2; squares: sum of a^2 over rows of C ``cost``."""


class Hinge(Loss):
    """max(0, 1 - margin)."""

    names_duals = True

    def value(self, slack: np.ndarray) -> np.ndarray:
        """The slacks themselves."""
        return slack

    def shares(self, margins: np.ndarray) -> np.ndarray:
        """1 on the side that costs something, else 0."""
        return np.asarray((margins < 1.0).astype(np.float64))

    def limit(self, cost: float) -> float:
        """C."""
        return cost

    def conjugate(self, squares: float, cost: float) -> float:
        """Nothing."""
        return 0.0


class SquaredHinge(Loss):
    """max(0, 1 - margin)^2."""

    names_duals = False

    def value(self, slack: np.ndarray) -> np.ndarray:
        """The squares."""
        return np.asarray(slack * slack)

    def shares(self, margins: np.ndarray) -> np.ndarray:
        """The slacks."""
        return np.asarray(np.maximum(1.0 - margins, 0.0))

    def limit(self, cost: float) -> float:
        """None."""
        return math.inf

    def conjugate(self, squares: float, cost: float) -> float:
        """Sum of a^2 / (4 C)."""
        return squares / (4 * cost)


LOSSES: Mapping[str, Loss] = {"hinge": Hinge(), "squared_hinge": SquaredHinge()}
