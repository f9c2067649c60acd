"""Block bounds at a new hypothesis: what an earlier scan proves about a chunk.

A scan at direction w0 gives, per chunk and class y, a *lower bound*: every row of that class outside the working set
has y w0.x >= lower. For a new direction w the same rows have

    y w.x = y w0.x + y (w - w0).c + y (w - w0).(x - c)
         >= lower + y (w - w0).c - ||w - w0|| radius,

c the chunk's centre and radius the largest distance from it (both from ingest). No row is longer than |c| + radius:
every term, and what a float64 evaluation of w.x rounds away later, is at most a few gamma_d of that. If reading centres
would cost more than it saves, c is the origin and the radius the largest length of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coremargin.maths.margin import NEGATIVE, POSITIVE, Array, gamma


@dataclass(frozen=True)
class Balls:
    """Balls that contain the rows of some chunks: radius (c,), and centre (c, d), None: the origin."""

    centre: Array | None
    radius: Array

    def shift(self, move: Array) -> Array:
        """centre . move (c,)."""
        return np.zeros(len(self.radius)) if self.centre is None else np.asarray(self.centre @ move)

    @property
    def longest(self) -> Array:
        """Upper bounds (c,) on the lengths of rows."""
        return self.radius if self.centre is None else np.asarray(np.linalg.norm(self.centre, axis=1) + self.radius)


def screened_floor(lower: Array, balls: Balls, old: Array, new: Array) -> Array:
    """Lower bounds (c, 2) on y w.x at direction ``new`` (d,), from bounds ``lower`` (c, 2) at direction ``old`` (d,).

    The two columns are the positive and the negative class. Rounded down.
    """
    move = new - old
    shift = balls.shift(move)
    reach = np.linalg.norm(move) * balls.radius
    slack = 4 * gamma(len(new) + 8) * (np.linalg.norm(new) + np.linalg.norm(old)) * balls.longest
    bound = np.empty_like(lower)
    bound[:, POSITIVE] = lower[:, POSITIVE] + shift - reach - slack
    bound[:, NEGATIVE] = lower[:, NEGATIVE] - shift - reach - slack
    return bound


def reach(balls: Balls, move: Array) -> Array:
    """Upper bounds (c,) on the change of decision values in each chunk if (w, b) moves by (d + 1,)."""
    return np.asarray(np.linalg.norm(move[:-1]) * balls.radius + np.abs(balls.shift(move[:-1]) + move[-1]))
