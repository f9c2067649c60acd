"""The search as a whole: levels, rounds of tasks, the bound pair. Pure steps on a frozen state.

The question "is there a set of k outliers with a margin above T" is answered node by node (explore.py). At the
*target* T is what the incumbent and epsilon ask for: its end is the proof. Levels above it, each nearer than the last,
are answered first as long as their root is enough; the answer of a level is an upper bound, so that there is one from
the first moments on. Then comes the target; where it does not end soon, the levels go on beside it, with a share of the
work, and the bound falls as long as the search runs.

Rounds are bulk-synchronous: open nodes are dealt to a fixed number of tasks, certificates are merged in task order.
The answer depends on none of: number of workers, executor, order of completion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import EXACT, is_certified, is_nothing
from coremargin.maths.outliers.certificates import Certificates, SearchRows
from coremargin.maths.outliers.explore import Candidate, Explored, Leaves, Question, explore
from coremargin.maths.outliers.ragged import Ragged

if TYPE_CHECKING:
    from coremargin.maths.outliers.heuristic import Found

Map = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Sequence[Any]]

#: The target lies above the incumbent by this share of it, and by this share of the radius: what solves can tell.
SHARE, FLOOR = 1e-9, 1e-13
#: Work (nodes and solves) that the target gets before levels above it go on, and so much more for each outlier: wrong
#: labels that the others have a margin without take 15 to 40 each.
PATIENCE, PATIENCE_EACH = 1000, 20
#: Work of levels that go on, as a share of the target's: what a bound on the way may cost where the target is reached.
LEVELS = 0.5
#: Work that is done in one task before nodes are dealt out, and in each round of that time.
ALONE, ALONE_BUDGET = 600, 200
#: Tasks of a round (part of the answer: not the number of workers); work of a task at least (some 50 nodes), and as a
#: share of all so far: the more there is to do, the less may a round's beginning and end matter.
TASKS, BUDGET, GROWTH = 16, 150, 1 / 64
#: Products of numbers that a task may take: some 50 ms, so that whoever asks for an end need not wait.
EFFORT = 15_000_000
#: Work that is done by kernels as they stand; what goes on longer is worth the start of the compiled ones.
INTERPRETED = 60
#: Candidates that one scan verifies at most, and work that is still done before it, once there is one.
CANDIDATES, EAGER = 32, 600
#: The share of the first level; levels end where they come as close to the target as this share of it.
FIRST, CLOSE = 0.25, 0.02
#: How much nearer the next level is: first, at least as long as roots are enough, and when nodes have to be split.
STEP, SMALLEST_STEP, LADDER = 4.0, 1.3, 1.5
#: Beyond these the search ends as it is: certificates are looked through at every node, leaves are the stored proof.
MOST_CERTIFICATES, MOST_LEAVES = 100_000, 200_000

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

    batch: candidates that one scan can measure. status: "open", "done" (every level was answered, or the bounds are
    close enough), "bounded" (packing.py gave a bound, whatever its distance), "full" (too many certificates).
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


def advance(search: Search, search_rows: SearchRows, run: Map) -> Search:
    """One round: nodes dealt out, looked at, merged. Only for an open search that wants no scan."""
    alone, compiled = search.work < ALONE, is_long(search)
    hands = _dealt(search.level.open, 1 if alone else TASKS)
    budget = ALONE_BUDGET if alone else max(BUDGET, int(GROWTH * search.work))
    question = Question(
        search.k, search.threshold, search.best.w, search.best.b, budget if compiled else INTERPRETED, EFFORT,
        search.batch - len(search.candidates), root_only=search.probing, compiled=compiled,
    )  # fmt: skip
    usable = np.flatnonzero(search.certificates.since <= search.threshold)
    known = search.certificates.rows.take(usable)
    tasks = [(search_rows, known, hand, question) for hand in hands]
    answers = run(explore, tasks) if len(tasks) > 1 else [explore(*tasks[0])]  # one alone is not worth the way
    return _turn(_merged(search, usable, answers))


def is_long(search: Search) -> bool:
    """Whether the next round is worth compiled kernels."""
    return search.work >= INTERPRETED


def improved(search: Search, found: Found) -> Search:
    """The better of the incumbent and ``found``, which a scan has measured."""
    return replace(search, best=found) if found.margin > search.best.margin else search


def verified(search: Search, found: Found) -> Search:
    """After a scan: the better of the incumbent and ``found``; the candidates' nodes are looked at again."""
    search = improved(search, found)
    back = Ragged.of(c.path for c in search.candidates)
    level = replace(search.level, open=Ragged.joined([search.level.open, back]))
    return _closed(replace(search, level=level, candidates=(), waited=0))


def believed(search: Search, search_rows: SearchRows) -> Search:
    """After a scan that neither found better nor brought rows: float64 has come to its end at these candidates.

    Their margin over the pool becomes part of the upper bound, which is true whatever the rounding.
    """
    rows, weights = (
        Ragged.of((getattr(c.verdict, name) for c in search.candidates), dtype)
        for name, dtype in (("rows", np.int64), ("weights", np.float64))
    )
    new = search_rows.certificates(rows, weights, 0.0)
    return verified(replace(search, certificates=Certificates.joined([search.certificates, new])), search.best)


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


def ended(search: Search) -> Search:
    """The same at its end: its bounds are close enough, wherever they come from."""
    level = replace(search.level, open=Ragged.nothing())
    return (
        replace(search, status="done", level=level, paused=None, candidates=()) if search.status == "open" else search
    )


def is_proven(search: Search, longest: float) -> bool:
    """The incumbent is within epsilon of the best, or no k rows left out make the others separable.

    longest: the largest norm of a row as it is, not of one that was centred.
    """
    if search.best.margin > 0:
        return is_certified(search.best.margin, search.upper, max(search.epsilon, EXACT))
    return is_nothing(search.upper, longest, len(search.best.w))


def _dealt(nodes: Ragged, tasks: int) -> list[Ragged]:
    """The open nodes in hands: those with most rows still to leave out are spread first."""
    if tasks == 1:
        return [nodes]
    paths = [tuple(path.tolist()) for path in nodes]
    order = sorted(
        range(len(paths)), key=lambda i: (-sum(step >= 0 for step in paths[i]), len(paths[i]), paths[i])
    )  # fmt: skip
    return [nodes.take(np.array(order[task::tasks])) for task in range(min(tasks, len(paths)))]


def _merged(search: Search, usable: NDArray[np.intp], answers: Sequence[Explored]) -> Search:
    """Certificates in task order, each set of rows once; ends and candidates with their final numbers.

    usable: the numbers of the certificates that the tasks knew.
    """
    known, number = len(search.certificates), dict[bytes, int]()
    found, leaves = [search.certificates], [NO_LEAVES]
    for answer in answers:
        new = [row.tobytes() for row in answer.certificates.rows]
        fresh = np.flatnonzero([key not in number for key in new])
        number |= {new[i]: known + len(number) + j for j, i in enumerate(fresh)}
        found.append(answer.certificates.take(fresh))
        numbers = np.concatenate([usable, np.array([number[key] for key in new], np.int64)])
        proofs = answer.leaves.proofs
        leaves.append(Leaves(answer.leaves.paths, Ragged(numbers[proofs.values], proofs.ends)))
    certificates, ends = Certificates.joined(found), Leaves.joined(leaves)
    worst = max(search.level.worst, float(certificates.values[ends.proofs.values].max(initial=-np.inf)))
    nodes, work = sum(answer.nodes for answer in answers), sum(answer.work for answer in answers)
    candidates = search.candidates + tuple(c for answer in answers for c in answer.candidates)
    candidates, later = candidates[: search.batch], candidates[search.batch :]
    open_ = Ragged.joined([*(answer.open for answer in answers), Ragged.of(c.path for c in later)])
    level = replace(
        search.level, open=open_, worst=worst, leaves=_kept(search.level.leaves, ends), work=search.level.work + work
    )
    return replace(
        search, certificates=certificates, level=level, candidates=candidates, nodes=search.nodes + nodes,
        work=search.work + work, waited=search.waited + work if candidates else 0,
    )  # fmt: skip


def _kept(before: Leaves | None, new: Leaves) -> Leaves | None:
    return None if before is None or len(before) + len(new) > MOST_LEAVES else Leaves.joined([before, new])


def _turn(search: Search) -> Search:
    """What comes after a round: the same level, another one, or the end."""
    level = search.level
    if not len(level.open) and not search.candidates:
        return _answered(search)
    if search.candidates:
        return _closed(search)
    if len(level.open.values) and search.probing:
        return _no_longer_cheap(search)
    if search.paused is not None and (level.share == 0) == _levels_are_due(search):
        return replace(search, level=search.paused, paused=level)
    return _closed(search)


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
        return _closed(replace(search, level=search.paused or Level(0.0), paused=None))
    return _closed(replace(search, level=Level(share)))


def _closed(search: Search) -> Search:
    """Ended, where the bounds are close enough or memory is at its end."""
    if search.epsilon > 0 and is_certified(search.best.margin, search.upper, search.epsilon):
        return replace(search, status="done")
    return replace(search, status="full") if len(search.certificates) > MOST_CERTIFICATES else search
