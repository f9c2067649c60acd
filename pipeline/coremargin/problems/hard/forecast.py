"""Forecast how far a hypothesis will still move during the first read, which decides which rows workers send.

The hypothesis of n of N rows is about 1 / n away from the final one. So the distance still to come is about the last
move times the last stage's share of the rows read so far. A forecast that is too small costs time only: chunks whose
bounds then prove too little are read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.margin import NEGATIVE, POSITIVE, Array
from coremargin.maths.screening import reach
from coremargin.problems.common.balls import balls_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.problems.hard.state import Hypothesis

#: A forecast is SAFETY times the expected move, and at least LEAST of the forecast before: a hypothesis may rest for a
#: stage and then move. The share is less than a third, which stages that grow threefold leave of a forecast: at a half,
#: forecasts of a store of many stages stay too large.
SAFETY, LEAST = 3.0, 0.25
#: Few changed rows follow no such law: a warm start expects another move as large as the last.
WARM_START_PACE = 1 / SAFETY


def forecast(before: Hypothesis, after: Hypothesis, pace: float, last: Array) -> Array:
    """The expected move (d + 1,) of (w, b), from that of one stage.

    pace: the share of the rows seen that this stage read. last (d + 1,): the forecast before it.
    """
    found: Array = SAFETY * pace * np.append(after.w - before.w, after.b - before.b)
    return found if np.linalg.norm(found) >= LEAST * np.linalg.norm(last) else LEAST * last


def cuts(
    source: Source, chunks: NDArray[np.int64], move: Array, level: float, offset: float, least: float = 0.0
) -> Array:
    """Values of y w.x (m, 2) above which rows of each class in ``chunks`` (m,) stay above ``level`` after a move.

    move (d + 1,): of the hypothesis whose b is ``offset``. level: margins below it matter. least: margins are taken to
    change by at least this much.
    """
    found = np.full((len(chunks), 2), level)
    for part, balls in balls_of(source, chunks):
        found[part] += np.maximum(reach(balls, move), least)[:, None]
    found[:, POSITIVE] -= offset
    found[:, NEGATIVE] += offset
    return found
