"""What a search knows: its bound pair, the level it is at, its certificates. A frozen state, and what is asked of it.

The question "is there a set of k outliers with a margin above T" is answered node by node (explore.py). At the
*target* T is what the incumbent and epsilon ask for: its end is the proof. levels.py says which thresholds above it are
asked for a bound on the way, rounds.py does the work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.margin import EXACT, is_certified
from coremargin.maths.outliers.certificates import Certificates
from coremargin.maths.outliers.explore import Leaves
from coremargin.maths.outliers.ragged import Ragged

if TYPE_CHECKING:
    from coremargin.maths.outliers.explore import Candidate
    from coremargin.maths.outliers.heuristic import Found

#: Work, lower and upper bound.
Step = tuple[int, float, float]

#: The target lies above the incumbent by this share of it, and by this share of the radius: what solves can tell.
SHARE, FLOOR = 1e-9, 1e-13
#: The share of the first level, and how much nearer the next one is.
FIRST, STEP = 0.25, 4.0
#: Candidates that one scan verifies at most, and work that is still done before it, once there is one.
CANDIDATES, EAGER = 32, 600
#: Work that is done by kernels as they stand; what goes on longer is worth the start of the compiled ones.
INTERPRETED = 60

#: The root alone, and nothing found yet.
ROOT, NO_LEAVES, NO_CERTIFICATES = Ragged.of([()]), Leaves.nothing(), Certificates.nothing()


@dataclass(frozen=True)
class Level:
    """A question on its way: share (0: the target; else how far towards the radius), open nodes, ends so far.

    worst: the largest value of a certificate that an end rests on; leaves: None once there were too many to keep.
    """

    share: float
    open: Ragged = ROOT
    worst: float = -np.inf
    leaves: Leaves | None = NO_LEAVES
    work: int = 0


@dataclass(frozen=True)
class Search:
    """What is known: ``best``, proven on all rows; ``upper``: none does better; ``proof``: why (None: not kept, or that
    of a search for more outliers).

    batch: candidates that one scan can measure. trace: work and bounds after each round that changed these. status:
    "open", "done" (every level was answered, or the bounds are close enough), "bounded" (packing.py gave a bound,
    whatever its distance), "full" (too many certificates).
    """

    k: int
    epsilon: float
    radius: float
    best: Found
    upper: float
    batch: int = CANDIDATES
    proof: Leaves | None = None
    certificates: Certificates = NO_CERTIFICATES
    level: Level = Level(FIRST)
    paused: Level | None = None
    step: float = STEP
    candidates: tuple[Candidate, ...] = ()
    waited: int = 0
    nodes: int = 0
    work: int = 0
    trace: tuple[Step, ...] = ()
    status: str = "open"

    @property
    def lower(self) -> float:
        """The margin that is reached."""
        return max(self.best.margin, 0.0)

    @property
    def target(self) -> float:
        """A margin above this would be an improvement by more than epsilon."""
        return self.lower / (1.0 - self.epsilon) * (1.0 + SHARE) + FLOOR * self.radius

    @property
    def threshold(self) -> float:
        """The margin that the present level is about."""
        return self.target + self.level.share * max(0.0, self.radius - self.target)

    @property
    def probing(self) -> bool:
        """Whether levels are still passed by their root alone."""
        return self.level.share > 0 and self.paused is None

    @property
    def wants_scan(self) -> bool:
        """Candidates wait, and there is nothing better to do than to verify them."""
        many = len(self.candidates) >= self.batch or self.waited >= EAGER
        return bool(self.candidates) and (many or not len(self.level.open))

    @property
    def compiled(self) -> bool:
        """Whether the next round is worth compiled kernels."""
        return self.work >= INTERPRETED


def improved(search: Search, found: Found) -> Search:
    """The better of the incumbent and ``found``, which a scan has measured."""
    return replace(search, best=found) if found.margin > search.best.margin else search


def noted(search: Search) -> Search:
    """With its bounds in the trace, if they are others than the last ones there."""
    if search.trace and search.trace[-1][1:] == (search.lower, search.upper):
        return search
    return replace(search, trace=(*search.trace, (search.work, search.lower, search.upper)))


def ended(search: Search) -> Search:
    """The same at its end: its bounds are close enough, wherever they come from."""
    level = replace(search.level, open=Ragged.nothing())
    return (
        replace(search, status="done", level=level, paused=None, candidates=()) if search.status == "open" else search
    )


def is_near(search: Search) -> bool:
    """Whether the incumbent separates rows, and is within epsilon of the best that can be."""
    return search.best.margin > 0 and is_certified(search.best.margin, search.upper, max(search.epsilon, EXACT))
