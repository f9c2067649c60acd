"""What an earlier scan proves about a chunk at a new hypothesis: the bound behind the ledger.

A scan at direction w0 leaves, per chunk and class y, a *floor*: every row of that class outside the pool has
y w0.x >= floor. For a new direction w the same rows have

    y w.x = y w0.x + y (w - w0).c + y (w - w0).(x - c)
         >= floor + y (w - w0).c - ||w - w0|| radius,

c the chunk's centre and radius the largest distance from it (both from ingest). No row is longer than |c| + radius:
every term, and what a float64 evaluation of w.x rounds away later, is at most a few gamma_d of that.
"""

from __future__ import annotations

import numpy as np

from coremargin.maths.margin import NEGATIVE, POSITIVE, Array, gamma


def screened_floor(floor: Array, centre: Array, radius: Array, old: Array, new: Array) -> Array:
    """Lower bounds (c, 2) on y w.x at direction ``new`` (d,), from floors (c, 2) at direction ``old`` (d,).

    centre (c, d), radius (c,). The two columns are the positive and the negative class. Rounded down.
    """
    move = new - old
    shift = centre @ move
    reach = np.linalg.norm(move) * radius
    longest = np.linalg.norm(centre, axis=1) + radius
    slack = 4 * gamma(len(new) + 8) * (np.linalg.norm(new) + np.linalg.norm(old)) * longest
    bound = np.empty_like(floor)
    bound[:, POSITIVE] = floor[:, POSITIVE] + shift - reach - slack
    bound[:, NEGATIVE] = floor[:, NEGATIVE] - shift - reach - slack
    return bound
