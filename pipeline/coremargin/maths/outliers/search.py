"""The exact search: is there a set of k outliers with a margin above T?

The question is answered node by node (explore.py). At the *target*, T is what the incumbent and epsilon require, and
the answer no is the proof. *Levels* above the target, each nearer than the last, are answered first as long as their
root is enough; the answer of a level is an upper bound, so that one exists from the first moments on. Then comes the
target. When that takes long, levels continue alongside with a share of the work, and the bound falls as long as the
search runs.

A search is a frozen state, and a round its only step: open nodes are dealt to a fixed number of tasks, and results are
merged in task order. The answer does not depend on the number of workers, the executor, or the order of completion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import EXACT, Array, is_certified, safe_projections
from coremargin.maths.named import below, under
from coremargin.maths.outliers.certificates import Certificates, SearchRows, Solution
from coremargin.maths.outliers.explore import Candidate, Leaves, Query, TaskResult, explore
from coremargin.maths.outliers.heuristic import Hyperplane, find_hyperplane, soft_directions
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.tasks import TaskRunner, run_serially
from coremargin.maths.outliers.trimmed import trimmed_margin

#: Work, lower and upper bound.
TraceEntry = tuple[int, float, float]

#: The target lies above the incumbent by SHARE of it and FLOOR of the radius: what solves can resolve.
SHARE, FLOOR = 1e-9, 1e-13
#: The share of the first level, and the factor to the next.
FIRST, STEP = 0.25, 4.0
#: Candidates that one scan measures at most, and work that is still done before the scan once there is one.
CANDIDATES, EAGER = 32, 600
#: Work that is done by interpreted kernels; longer searches are worth loading the compiled ones.
INTERPRETED = 60

#: Work that the target gets before levels continue: PATIENCE, and PATIENCE_EACH more for each outlier. Wrong labels
#: whose removal leaves a margin take 15 to 40 each.
PATIENCE, PATIENCE_EACH = 1000, 20
#: Work of levels that continue, as a share of the target's: what an early bound may cost when the target is reached.
LEVELS = 0.5
#: Levels end when they come as close to the target as this share of it.
CLOSE = 0.02
#: The smallest factor to the next level while roots are enough, and the factor when nodes must be split.
SMALLEST_STEP, LADDER = 1.3, 1.5
#: A search with more certificates ends unfinished.
MOST_CERTIFICATES = 1_000_000

#: Work that is done in one task before nodes are dealt out, and in each round of that time.
ALONE, ALONE_BUDGET = 600, 200
#: Tasks of a round (part of the answer: not the number of workers); work of a task, at least (about 50 nodes), and as a
#: share of all so far: the more there is to do, the less the start and end of a round matter.
TASKS, BUDGET, GROWTH = 16, 150, 1 / 64
#: Multiplications of a task, about 50 ms, so that a job can stop quickly; for many rows and features, this multiple of
#: their product: a task must get somewhere.
EFFORT, EFFORT_EACH = 15_000_000, 16
#: Certificates of a round at most, and more for each outlier: every node looks through all of them.
KNOWN, KNOWN_EACH = 3_000, 20
#: A proof of more leaves, or of leaves with more numbers, is not kept.
MOST_LEAVES, MOST_NUMBERS = 200_000, 40_000_000

#: Initial values: the root alone, and nothing found yet.
ROOT, NO_LEAVES, NO_CERTIFICATES = Ragged.from_lists([()]), Leaves.empty(), Certificates.empty()

_COUNTS = ("k", "batch", "waited", "nodes", "work")
_FLOATS = ("epsilon", "radius", "upper", "step")
_STATUSES = ("open", "done", "bounded", "full")


@dataclass(frozen=True)
class Level:
    """A question at a threshold: share of the way from the target (0) to the radius, open nodes, leaves so far.

    worst: the largest value of a certificate that a leaf rests on; leaves: None when there were too many to keep.
    """

    share: float
    open: Ragged = ROOT
    worst: float = -np.inf
    leaves: Leaves | None = NO_LEAVES
    work: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        arrays = {"numbers": np.array([self.share, self.worst, self.work]), **self.open.to_arrays("open")}
        return arrays if self.leaves is None else arrays | self.leaves.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Level:
        """Inverse of ``to_arrays``."""
        share, worst, work = arrays["numbers"].tolist()
        leaves = Leaves.from_arrays(arrays) if "paths" in arrays else None
        return cls(share, Ragged.from_arrays("open", arrays), worst, leaves, int(work))


@dataclass(frozen=True)
class Search:
    """The state of a search: ``best``, proven on all rows; ``upper``, a bound on all others; ``proof`` of that bound.

    proof: None when it was too large to keep, or when the bound is that of a search for more outliers. batch:
    candidates that one scan can measure. level: the current question; paused: the other one, of target and level.
    trace: work and bounds after each round that changed them. status: "open", "done" (all levels answered, or bounds
    close enough), "bounded" (by packing.py, however far apart), "full" (too many certificates).
    """

    k: int
    epsilon: float
    radius: float
    best: Hyperplane
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
    trace: tuple[TraceEntry, ...] = ()
    status: str = "open"

    @property
    def lower(self) -> float:
        """The margin of the incumbent, 0 without one."""
        return max(self.best.margin, 0.0)

    @property
    def target(self) -> float:
        """A margin above this would improve the incumbent by more than epsilon."""
        return self.lower / (1.0 - self.epsilon) * (1.0 + SHARE) + FLOOR * self.radius

    @property
    def threshold(self) -> float:
        """The margin that the current level asks about."""
        return self.target + self.level.share * max(0.0, self.radius - self.target)

    @property
    def root_only(self) -> bool:
        """Whether levels are still answered by their root alone."""
        return self.level.share > 0 and self.paused is None

    @property
    def wants_scan(self) -> bool:
        """Whether candidates wait and measuring them is the best thing to do."""
        many = len(self.candidates) >= self.batch or self.waited >= EAGER
        return bool(self.candidates) and (many or not len(self.level.open))

    @property
    def compiled(self) -> bool:
        """Whether the next round runs compiled kernels."""
        return self.work >= INTERPRETED

    def to_arrays(self, *, own: bool = True) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact; own: False leaves out certificates that another search stores."""
        arrays: dict[str, NDArray[Any]] = {name: np.array(getattr(self, name), np.int64) for name in _COUNTS}
        arrays |= {name: np.array(getattr(self, name), np.float64) for name in _FLOATS}
        arrays |= {
            "trace": np.array(self.trace, np.float64).reshape(-1, 3),
            "status": np.array(_STATUSES.index(self.status)),
            "best_w": self.best.w,
            "best_b": np.array(self.best.b),
            "best_margin": np.array(self.best.margin),
        }
        arrays |= under("certificates", self.certificates.to_arrays()) if own else {}
        solutions = [candidate.solution for candidate in self.candidates]
        arrays |= under(
            "candidates",
            {
                **Ragged.from_lists(c.path for c in self.candidates).to_arrays("paths"),
                **Ragged.from_lists(one.rows for one in solutions).to_arrays("rows"),
                **Ragged.from_lists((one.weights for one in solutions), np.float64).to_arrays("weights"),
                "points": np.array([one.point for one in solutions]).reshape(-1, len(self.best.w)),
            },
        )
        for name, level in (("level", self.level), ("paused", self.paused)):
            arrays |= under(name, {} if level is None else level.to_arrays())
        if self.proof is not None:
            arrays |= under("proof", self.proof.to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], shared: Certificates | None = None) -> Search:
        """Inverse of ``to_arrays``; shared: the certificates of a search that has stored none of its own."""
        numbers: dict[str, Any] = {name: int(arrays[name]) for name in _COUNTS}
        numbers |= {name: float(arrays[name]) for name in _FLOATS}
        paused, proof, own = (below(name, arrays) for name in ("paused", "proof", "certificates"))
        stored = below("candidates", arrays)
        lists = (Ragged.from_arrays(name, stored) for name in ("paths", "rows", "weights"))
        return cls(
            **numbers,
            best=Hyperplane(arrays["best_w"], float(arrays["best_b"]), float(arrays["best_margin"])),
            status=_STATUSES[int(arrays["status"])],
            trace=tuple((int(work), lower, upper) for work, lower, upper in arrays["trace"].tolist()),
            certificates=Certificates.from_arrays(own) if own or shared is None else shared,
            candidates=tuple(
                Candidate(tuple(path.tolist()), Solution(False, rows, weights, point))
                for path, rows, weights, point in zip(*lists, stored["points"], strict=True)
            ),
            level=Level.from_arrays(below("level", arrays)),
            paused=Level.from_arrays(paused) if paused else None,
            proof=Leaves.from_arrays(proof) if proof else None,
        )


def solve_in_memory(
    x: NDArray[np.floating],
    signs: NDArray[np.integer],
    k: int,
    *,
    intercept: bool = True,
    epsilon: float = 0.0,
    most_nodes: int | None = None,
) -> Search:
    """Search rows in memory to the end: x (n, d) with signs (n,) in {-1, +1}, at most k outliers.

    With an intercept every class must have more than k rows (else the margin is unbounded). epsilon: the share of the
    best margin that may be missed; 0: as far as float64 resolves. most_nodes: stop after about this many.
    """
    exact = np.asarray(x, np.float64)
    search_rows = SearchRows(exact, signs.astype(np.int8), exact.mean(axis=0), intercept=intercept)
    start = find_hyperplane(search_rows, k, soft_directions(search_rows))
    radius = float(np.sqrt(np.einsum("ij,ij->i", search_rows.z, search_rows.z).max()))
    search = Search(k, epsilon, radius, measure_exactly(search_rows, start.w, k), np.inf)
    while search.status == "open" and (most_nodes is None or search.nodes < most_nodes):
        if search.wants_scan:
            measured = (measure_exactly(search_rows, c.solution.point, k) for c in search.candidates)
            found = max(measured, key=lambda found: found.margin)
            better = found.margin > search.best.margin
            search = after_scan(search, found) if better else accept_candidates(search, search_rows)
        else:
            search = run_round(search, search_rows, run_serially)
    return search


def measure_exactly(search_rows: SearchRows, w: Array, k: int) -> Hyperplane:
    """The direction w (d,) with its best offset and the margin that it is proven to have with k outliers."""
    length = float(np.linalg.norm(w))
    w = w / length if length > 0 else w
    values = safe_projections(search_rows.x, search_rows.signs, w[:, None])[:, 0]
    margin, b = trimmed_margin(search_rows.lowest(values, k), w, k, search_rows.intercept)
    return Hyperplane(w, b, margin)


# A round.


def run_round(search: Search, search_rows: SearchRows, run: TaskRunner) -> Search:
    """Deal out, explore and merge; only for an open search that wants no scan."""
    alone, compiled = search.work < ALONE, search.compiled
    hands = _deal_nodes(search.level.open, 1 if alone else TASKS)
    budget = ALONE_BUDGET if alone else max(BUDGET, int(GROWTH * search.work))
    query = Query(
        search.k,
        search.threshold,
        search.best.w,
        search.best.b,
        budget if compiled else INTERPRETED,
        max(EFFORT, EFFORT_EACH * search_rows.x.size),
        search.batch - len(search.candidates),
        root_only=search.root_only,
        compiled=compiled,
    )
    usable = search.certificates.valid_at(search.threshold, KNOWN + KNOWN_EACH * search.k)
    known = search.certificates.rows.take(usable)
    tasks = [(search_rows, known, hand, query) for hand in hands]
    results = run(explore, tasks) if len(tasks) > 1 else [explore(*tasks[0])]  # a single task is not worth sending
    search = next_level(merge_results(search, usable, results))
    if search.trace and search.trace[-1][1:] == (search.lower, search.upper):
        return search
    return replace(search, trace=(*search.trace, (search.work, search.lower, search.upper)))


def _deal_nodes(nodes: Ragged, tasks: int) -> list[Ragged]:
    """Deal the open nodes to tasks: those with most rows excluded first, and of these the short paths."""
    if tasks == 1:
        return [nodes]
    number = np.repeat(np.arange(len(nodes)), nodes.lengths)
    outs = np.bincount(number, nodes.values >= 0, len(nodes))
    order = np.lexsort((nodes.lengths, -outs))
    return [nodes.take(order[task::tasks]) for task in range(min(tasks, len(nodes)))]


def merge_results(search: Search, usable: NDArray[np.intp], results: Sequence[TaskResult]) -> Search:
    """Merge in task order: each set of rows becomes one certificate, and leaves and candidates get final numbers.

    usable: the numbers of the certificates that the tasks knew.
    """
    known, number = len(search.certificates), dict[bytes, int]()
    found, leaves = [search.certificates], [NO_LEAVES]
    for result in results:
        new = [row.tobytes() for row in result.certificates.rows]
        fresh: list[int] = []
        for place, key in enumerate(new):
            if key not in number:
                number[key] = known + len(number)
                fresh.append(place)
        found.append(result.certificates.take(np.array(fresh, np.intp)))
        numbers = np.concatenate([usable, np.array([number[key] for key in new], np.int64)])
        proofs = result.leaves.proofs
        leaves.append(Leaves(result.leaves.paths, Ragged(numbers[proofs.values], proofs.ends)))
    certificates, ends = Certificates.concatenate(found), Leaves.concatenate(leaves)
    uses = np.bincount(ends.proofs.values, minlength=len(certificates))
    certificates = replace(certificates, uses=certificates.uses + uses)
    worst = max(search.level.worst, float(certificates.values[ends.proofs.values].max(initial=-np.inf)))
    nodes, work = sum(result.nodes for result in results), sum(result.work for result in results)
    candidates = search.candidates + tuple(c for result in results for c in result.candidates)
    candidates, later = candidates[: search.batch], candidates[search.batch :]
    still_open = Ragged.concatenate([*(result.open for result in results), Ragged.from_lists(c.path for c in later)])
    level = replace(
        search.level,
        open=still_open,
        worst=worst,
        leaves=_join_leaves(search.level.leaves, ends),
        work=search.level.work + work,
    )
    return replace(
        search,
        certificates=certificates,
        level=level,
        candidates=candidates,
        nodes=search.nodes + nodes,
        work=search.work + work,
        waited=search.waited + work if candidates else 0,
    )


def _join_leaves(before: Leaves | None, new: Leaves) -> Leaves | None:
    """All leaves; None when they are too many to keep."""
    if before is None or len(before) + len(new) > MOST_LEAVES:
        return None
    numbers = sum(len(part.values) for leaves in (before, new) for part in (leaves.paths, leaves.proofs))
    return Leaves.concatenate([before, new]) if numbers <= MOST_NUMBERS else None


# Levels.


def next_level(search: Search) -> Search:
    """Choose what follows a round: the same level, another one, or the end."""
    level = search.level
    if not len(level.open) and not search.candidates:
        return _answer_level(search)
    if search.candidates:
        return end_if_close(search)
    if len(level.open.values) and search.root_only:
        # The root of a level was not enough. Try between it and the last one; then the target, which may be as easy.
        before, step = level.share * search.step, math.sqrt(search.step)
        if step >= SMALLEST_STEP:
            return replace(search, level=Level(before / step), step=step)
        return replace(search, level=Level(0.0), paused=Level(before / LADDER), step=LADDER)
    if search.paused is not None and (level.share == 0) == _levels_are_due(search):
        return replace(search, level=search.paused, paused=level)
    return end_if_close(search)


def _levels_are_due(search: Search) -> bool:
    """Whether levels may continue: the target had its time, and they had less than their share of it."""
    target = search.level if search.level.share == 0 or search.paused is None else search.paused
    patient = target.work < PATIENCE + PATIENCE_EACH * search.k
    return not patient and search.work - target.work < LEVELS * target.work


def _answer_level(search: Search) -> Search:
    """Take the bound of a level without open nodes; continue with the next level, or with the target."""
    level = search.level
    if level.worst < search.upper:
        search = replace(search, upper=level.worst, proof=level.leaves)
    if level.share == 0:
        return replace(search, status="done")
    share = level.share / search.step
    if share * search.radius <= CLOSE * max(search.target, 1e-3 * search.radius):
        return end_if_close(replace(search, level=search.paused or Level(0.0), paused=None))
    return end_if_close(replace(search, level=Level(share)))


def end_if_close(search: Search) -> Search:
    """End the search when its bounds are close enough or it has too many certificates."""
    if search.epsilon > 0 and is_certified(search.best.margin, search.upper, search.epsilon):
        return replace(search, status="done")
    return replace(search, status="full") if len(search.certificates) > MOST_CERTIFICATES else search


# What measurements and other searches say.


def after_scan(search: Search, found: Hyperplane) -> Search:
    """Take the better of the incumbent and ``found``; the candidates' nodes become open again."""
    search = with_incumbent(search, found)
    back = Ragged.from_lists(c.path for c in search.candidates)
    level = replace(search.level, open=Ragged.concatenate([search.level.open, back]))
    return end_if_close(replace(search, level=level, candidates=(), waited=0))


def accept_candidates(search: Search, search_rows: SearchRows) -> Search:
    """Continue after a scan that neither improved nor sent rows: float64 cannot decide these candidates.

    Their margin over the working set becomes part of the upper bound, which holds whatever the rounding.
    """
    rows, weights = (
        Ragged.from_lists((getattr(c.solution, name) for c in search.candidates), dtype)
        for name, dtype in (("rows", np.int64), ("weights", np.float64))
    )
    new = search_rows.certificates(rows, weights, 0.0)
    certificates = Certificates.concatenate([search.certificates, new])
    return after_scan(replace(search, certificates=certificates), search.best)


def with_incumbent(search: Search, found: Hyperplane) -> Search:
    """The better of the incumbent and ``found``, a hyperplane measured on all rows, as incumbent."""
    return replace(search, best=found) if found.margin > search.best.margin else search


def with_upper_bound(search: Search, upper: float) -> Search:
    """Take an upper bound from elsewhere; levels that are not below it are replaced, as they would say nothing new."""
    search = replace(search, upper=upper, proof=None)
    if search.radius <= search.target:
        return search
    share = (upper - search.target) / (search.radius - search.target)
    if search.paused is not None and search.paused.share >= share > 0:
        search = replace(search, paused=Level(share / search.step))
    if search.level.share >= share > 0:
        search = replace(search, level=Level(share / search.step), candidates=(), waited=0)
    return search


def finished(search: Search) -> Search:
    """End an open search: its bounds are close enough, wherever they come from."""
    if search.status != "open":
        return search
    level = replace(search.level, open=Ragged.empty())
    return replace(search, status="done", level=level, paused=None, candidates=())


def is_close(search: Search) -> bool:
    """Whether the incumbent separates rows and is within epsilon of the best."""
    return search.best.margin > 0 and is_certified(search.best.margin, search.upper, max(search.epsilon, EXACT))
