"""The tree search: nodes, bounds by certificates, branching. What one task does.

A node is a path of decisions about rows: ``row`` (>= 0) was left out, ``~row`` (< 0) is to stay. With r rows still to
leave out, a certificate that no row left out belongs to must lose one of its rows that are not bound to stay: its
*residual*. So more than r certificates with disjoint residuals, or m r + 1 with no row in more than m residuals, or one
with none at all, end the node: a better set of outliers does not lie below it. The two children of a node, "p is left
out" and "p stays", share nothing and miss nothing. All of it needs no geometry; geometry only finds further
certificates.

The work itself is that of tree.py, hitting.py and solves.py, as it stands or compiled. There rows lie tier by tier:
those that are lowest under the incumbent come first, and others are looked at where these say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.nearest import MOST_STEPS, Limits, face_of
from coremargin.maths.outliers import tree
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.compiled import kernel
from coremargin.maths.outliers.hitting import MOST, Book, Node
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.solves import Arena, Bench, Draft
from coremargin.maths.outliers.trimmed import outliers_of

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import Certificates, Verdict

Path = tuple[int, ...]

#: Rows of a group in the first tier, at least; and so many for each feature and outlier.
NEAR, NEAR_EACH = 64, 2


@dataclass(frozen=True)
class Leaf:
    """A node that holds no better set of outliers, and the certificates (by number) that prove it."""

    path: Path
    proof: tuple[int, ...]


@dataclass(frozen=True)
class Leaves:
    """Leaves, one behind the other."""

    paths: Ragged
    proofs: Ragged

    @classmethod
    def nothing(cls) -> Leaves:
        """None."""
        return cls(Ragged.nothing(), Ragged.nothing())

    @classmethod
    def joined(cls, parts: Sequence[Leaves]) -> Leaves:
        """Those of all parts, in order."""
        return cls(Ragged.joined([part.paths for part in parts]), Ragged.joined([part.proofs for part in parts]))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> Leaf:
        return Leaf(tuple(self.paths[place].tolist()), tuple(self.proofs[place].tolist()))


@dataclass(frozen=True)
class Candidate:
    """A node whose remaining rows of the pool allow a margin above the threshold; a scan has to tell about all rows."""

    path: Path
    verdict: Verdict


@dataclass(frozen=True)
class Explored:
    """What came of some nodes: those still open, new certificates, ends of branches, candidates; what it took.

    nodes: how many were looked at; work: these and the solves.
    """

    open: Ragged
    certificates: Certificates
    leaves: Leaves
    candidates: list[Candidate]
    nodes: int
    work: int


@dataclass(frozen=True)
class Question:
    """What a task is to do with nodes: end them or split them at this threshold, k rows being left out in all.

    w (d,) and b: the incumbent, which says what is suspicious. budget: nodes and solves, effort: products of numbers;
    counts and no times, so that the answer is the same anywhere. most_candidates: end early with so many. root_only:
    leave its children alone. compiled: whether the kernels are.
    """

    k: int
    threshold: float
    w: Array
    b: float
    budget: int
    effort: int
    most_candidates: int
    root_only: bool = False
    compiled: bool = False


def explore(search_rows: SearchRows, known: Ragged, nodes: Ragged, question: Question) -> Explored:
    """Depth first from ``nodes`` (the last one first), leaving rows out before keeping them.

    A pure function: the same answer wherever it runs. known: the rows of certificates that stand at the threshold.
    Leaves refer to these by their place, and to new ones by numbers from ``len(known)`` on.
    """
    return _Explorer(search_rows, known, question).run(nodes)


def compile_kernels() -> None:
    """Have numba compile what a task runs, or load it from its cache: a first search, of two rows."""
    x, signs = np.array([[1.0], [-1.0]]), np.array([1, -1], np.int8)
    search_rows = SearchRows(x, signs, np.zeros(1), intercept=True)
    question = Question(0, 2.0, np.ones(1), 0.0, 10, 10_000, 1, compiled=True)
    explore(search_rows, Ragged.nothing(), Ragged.of([()]), question)


class _Explorer:
    """The rows and certificates as the kernels know them, and back."""

    def __init__(self, search_rows: SearchRows, known: Ragged, question: Question) -> None:
        self.search_rows, self.known, self.question = search_rows, known, question
        margins = search_rows.signs * (search_rows.x @ question.w + question.b)
        self.order, tiers = _tiers(search_rows, margins, question.k)
        self.place = np.empty(len(self.order), np.int64)
        self.place[self.order] = np.arange(len(self.order))
        z, margins = search_rows.z[self.order], margins[self.order]
        suspects = outliers_of(margins, question.k)[::-1].astype(np.int64)
        suspect = np.zeros(len(z), np.bool_)
        suspect[suspects] = True
        groups = search_rows.groups[self.order]
        self.arena = Arena(z, groups, tiers, np.einsum("ij,ij->i", z, z), margins, suspects.copy(), suspect)

    def run(self, nodes: Ragged) -> Explored:
        question, room = self.question, 1 << 12
        ask = tree.Ask(question.k, question.budget, question.effort, question.most_candidates, question.root_only)
        limits = Limits(1e-12, 0.0, self.search_rows.length(question.threshold), MOST_STEPS)
        book = self._book()
        node = _node(self.arena, len(book.ends), question.k)
        out = _out(self._steps(nodes, self.place), room)
        task = tree.Task(node, book, out, self.arena, _bench(self.arena), ask, limits)
        while not kernel("explore_nodes", compiled=question.compiled)(task):
            room *= 2
            task = task._replace(out=_roomier(task.out, room))
        return self._answer(book, task.out)

    def _book(self) -> Book:
        known, question = self.known, self.question
        n, d = self.arena.rows.shape
        new = min(question.budget, question.effort // (n * d) + 1) + 3  # each takes a solve, which looks at all rows
        rows = np.zeros(len(known.values) + new * (min(n, d) + 2), np.int64)
        rows[: len(known.values)] = self.place[known.values]
        ends = np.zeros(len(known) + new + 1, np.int64)
        ends[1 : len(known) + 1] = known.ends
        return Book(rows, np.zeros(len(rows)), ends, np.array([len(known)]))

    def _answer(self, book: Book, out: tree.Out) -> Explored:
        """What the kernels left, in terms of the pool."""
        first, count = len(self.known), int(book.size[0])
        span = slice(int(book.ends[first]), int(book.ends[count]))
        ends = book.ends[first + 1 : count + 1] - book.ends[first]
        rows, weights = Ragged(self.order[book.rows[span]], ends), Ragged(book.weights[span].copy(), ends)
        leaves = int(out.counts[tree.LEAVES])
        candidates = _taken(out.candidates, int(out.counts[tree.CANDIDATES]))
        return Explored(
            self._steps(_taken(out.open, int(out.counts[tree.OPEN])), self.order),
            self.search_rows.certificates(rows, weights, self.question.threshold),
            Leaves(self._steps(_taken(out.leaves, leaves), self.order), _taken(out.proofs, leaves)),
            [self._candidate(path) for path in self._steps(candidates, self.order)],
            int(out.counts[tree.NODES]), int(out.counts[tree.WORK]),
        )  # fmt: skip

    def _candidate(self, path: NDArray[np.int64]) -> Candidate:
        free = np.ones(len(self.search_rows), bool)
        free[path[path >= 0]] = False
        return Candidate(tuple(path.tolist()), self.search_rows.best(free))

    @staticmethod
    def _steps(paths: Ragged, names: NDArray[np.int64]) -> Ragged:
        """Paths whose rows have other names."""
        steps = paths.values
        return Ragged(np.where(steps >= 0, names[np.maximum(steps, 0)], ~names[np.maximum(~steps, 0)]), paths.ends)


def _tiers(search_rows: SearchRows, margins: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows tier by tier, group by group, and where each group begins: those with the lowest margins come first."""
    _n, d = search_rows.x.shape
    near, groups = NEAR + NEAR_EACH * (d + k), int(search_rows.groups.max(initial=0)) + 1
    parts: list[list[NDArray[np.int64]]] = [[], []]
    for group in range(groups):
        mine = np.flatnonzero(search_rows.groups == group)
        mine = mine[np.argsort(margins[mine], kind="stable")]
        parts[0].append(mine[:near])
        parts[1].append(mine[near:])
    lengths = np.array([len(part) for tier in parts for part in tier])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    tiers = np.stack([ends[: groups + 1], ends[groups:]]).astype(np.int64)
    return np.concatenate([part for tier in parts for part in tier]).astype(np.int64), tiers


def _bench(arena: Arena) -> Bench:
    n, d = arena.rows.shape
    groups = arena.tiers.shape[1] - 1
    few = min(n, d) + 1 + groups
    return Bench(
        face_of(arena.rows, arena.groups, groups), np.zeros(n), np.zeros(n),
        face_of(np.zeros((few, d)), np.zeros(few, np.int64), groups), np.zeros(few), np.zeros(few), np.zeros(n),
        np.zeros(n), np.zeros(1, np.int64),
        Draft(np.zeros(few + 1, np.int64), np.zeros(few + 1), np.zeros(1, np.int64)),
    )  # fmt: skip


def _node(arena: Arena, certificates: int, k: int) -> Node:
    n = len(arena.rows)
    return Node(
        np.zeros(n + 2, np.int64), np.zeros(n, np.int8), np.zeros(n, np.bool_), np.zeros(certificates, np.int64),
        np.zeros(certificates, np.int64), np.zeros(k + 2, np.int64), np.zeros(MOST * (k + 1), np.int64),
        np.zeros(5, np.int64), np.zeros(n, np.int64), np.zeros(n),
    )  # fmt: skip


def _out(nodes: Ragged, room: int) -> tree.Out:
    """Lists with room, the open nodes in the first."""
    empty = tree.Lists(np.zeros(0, np.int64), np.zeros(1, np.int64))
    out = _roomier(tree.Out(empty, empty, empty, empty, np.zeros(5, np.int64)), room)
    values, ends = np.zeros(len(nodes.values) + room, np.int64), np.zeros(len(nodes) + room + 1, np.int64)
    values[: len(nodes.values)], ends[1 : len(nodes) + 1] = nodes.values, nodes.ends
    out.counts[tree.OPEN] = len(nodes)
    return out._replace(open=tree.Lists(values, ends))


def _roomier(out: tree.Out, room: int) -> tree.Out:
    """The same lists, each with so much more room."""
    return tree.Out(
        _wider(out.open, room), _wider(out.leaves, room), _wider(out.proofs, room), _wider(out.candidates, room),
        out.counts,
    )  # fmt: skip


def _wider(lists: tree.Lists, room: int) -> tree.Lists:
    more = np.zeros(room, np.int64)
    return tree.Lists(np.concatenate([lists.values, more]), np.concatenate([lists.ends, more]))


def _taken(lists: tree.Lists, count: int) -> Ragged:
    """The first entries."""
    return Ragged(lists.values[: int(lists.ends[count])].copy(), lists.ends[1 : count + 1].copy())
