"""Which threshold a search asks about next.

Levels above the target, each nearer than the last, are answered first as long as their root is enough; the answer of a
level is an upper bound, so that there is one from the first moments on. Then comes the target; where it does not end
soon, the levels go on beside it, with a share of the work, and the bound falls as long as the search runs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from coremargin.maths.margin import is_certified
from coremargin.maths.outliers.search import Level, Search

#: Work (nodes and solves) that the target gets before levels above it go on, and so much more for each outlier: wrong
#: labels that the others have a margin without take 15 to 40 each.
PATIENCE, PATIENCE_EACH = 1000, 20
#: Work of levels that go on, as a share of the target's: what a bound on the way may cost where the target is reached.
LEVELS = 0.5
#: Levels end where they come as close to the target as this share of it.
CLOSE = 0.02
#: How much nearer the next level is, at least, as long as roots are enough; and when nodes have to be split.
SMALLEST_STEP, LADDER = 1.3, 1.5
#: With more certificates the search ends as it is.
MOST_CERTIFICATES = 1_000_000


def turn(search: Search) -> Search:
    """What comes after a round: the same level, another one, or the end."""
    level = search.level
    if not len(level.open) and not search.candidates:
        return _answered(search)
    if search.candidates:
        return closed(search)
    if len(level.open.values) and search.probing:
        return _no_longer_cheap(search)
    if search.paused is not None and (level.share == 0) == _levels_are_due(search):
        return replace(search, level=search.paused, paused=level)
    return closed(search)


def _levels_are_due(search: Search) -> bool:
    """Whether levels may go on: the target had its time, and they had less than their share of it."""
    target = search.level if search.level.share == 0 or search.paused is None else search.paused
    patient = target.work < PATIENCE + PATIENCE_EACH * search.k
    return not patient and search.work - target.work < LEVELS * target.work


def _no_longer_cheap(search: Search) -> Search:
    """The root of a level was not enough: try between it and the last one; then the target, which may be as easy."""
    before, step = search.level.share * search.step, math.sqrt(search.step)
    if step >= SMALLEST_STEP:
        return replace(search, level=Level(before / step), step=step)
    return replace(search, level=Level(0.0), paused=Level(before / LADDER), step=LADDER)


def _answered(search: Search) -> Search:
    """A level is at its end: its bound holds. On to the next level, or to the target."""
    level = search.level
    if level.worst < search.upper:
        search = replace(search, upper=level.worst, proof=level.leaves)
    if level.share == 0:
        return replace(search, status="done")
    share = level.share / search.step
    if share * search.radius <= CLOSE * max(search.target, 1e-3 * search.radius):
        return closed(replace(search, level=search.paused or Level(0.0), paused=None))
    return closed(replace(search, level=Level(share)))


def closed(search: Search) -> Search:
    """Ended, where the bounds are close enough or memory is at its end."""
    if search.epsilon > 0 and is_certified(search.best.margin, search.upper, search.epsilon):
        return replace(search, status="done")
    return replace(search, status="full") if len(search.certificates) > MOST_CERTIFICATES else search


def lowered(search: Search, upper: float) -> Search:
    """With an upper bound that comes from elsewhere: a level that is not below it would say nothing new."""
    search = replace(search, upper=upper, proof=None)
    if search.radius <= search.target:
        return search
    share = (upper - search.target) / (search.radius - search.target)
    if search.paused is not None and search.paused.share >= share > 0:
        search = replace(search, paused=Level(share / search.step))
    if search.level.share >= share > 0:
        search = replace(search, level=Level(share / search.step), candidates=(), waited=0)
    return search
