"""Figure 3 of Har-Peled, Roth, Zimak (2006): rows of which any one may be the only one of its class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def circle(rows: int) -> NDArray[np.float64]:
    """Rows (n, 2) at equal distances on the unit circle: a line cuts any one of them off from all others."""
    angles = 2 * np.pi * np.arange(rows) / rows
    return np.column_stack([np.cos(angles), np.sin(angles)])


class Adversary:
    """Answers + to all questions but the last: the only - there is, wherever it was looked for last."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.asked: list[int] = []

    def __call__(self, row: int) -> int:
        """The sign of a row; the same when it is asked about again."""
        if row not in self.asked:
            self.asked.append(row)
        return -1 if len(self.asked) == self.rows and row == self.asked[-1] else 1

    def answers(self, questions: Sequence[int]) -> dict[int, int]:
        """One question's answer, as the loop wants it."""
        return {row: self(row) for row in questions[:1]}
