"""A task of the tree search: explore nodes, with bounds by certificates and branching.

A node is a path of decisions about rows: ``row`` (>= 0) is excluded, ``~row`` (< 0) is kept. With r more rows to
exclude, a certificate without excluded rows must lose one of its rows that are not kept: its *residual*. So more than r
certificates with disjoint residuals, or m r + 1 with no row in more than m residuals, or one with an empty residual,
end the node: no better set of outliers lies below it. The two children of a node, "row excluded" and "row kept", share
nothing and miss nothing. None of this needs geometry; geometry only finds further certificates.

The work is done by the kernels of tree.py, interpreted or compiled. There rows are ordered in tiers: the lowest rows
under the incumbent come first, and others are used only when these are not enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.nearest import MOST_STEPS, Limits, face_of
from coremargin.maths.outliers import tree
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.compiled import kernel
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.trimmed import lowest_rows

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.maths.outliers.certificates import Certificates, Solution

Path = tuple[int, ...]

#: Rows of a group in the first tier: at least NEAR, and NEAR_EACH more for each feature and outlier.
NEAR, NEAR_EACH = 64, 2


@dataclass(frozen=True)
class Leaf:
    """A node without a better set of outliers, and the numbers of the certificates that prove it."""

    path: Path
    proof: tuple[int, ...]


@dataclass(frozen=True)
class Leaves:
    """Paths of leaves, and the numbers of the certificates that prove each."""

    paths: Ragged
    proofs: Ragged

    @classmethod
    def empty(cls) -> Leaves:
        """No leaves."""
        return cls(Ragged.empty(), Ragged.empty())

    @classmethod
    def concatenate(cls, parts: Sequence[Leaves]) -> Leaves:
        """Those of all parts, in order."""
        return cls(
            Ragged.concatenate([part.paths for part in parts]), Ragged.concatenate([part.proofs for part in parts])
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> Leaf:
        return Leaf(tuple(self.paths[place].tolist()), tuple(self.proofs[place].tolist()))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays."""
        return {**self.paths.to_arrays("paths"), **self.proofs.to_arrays("proofs")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Leaves:
        """Inverse of ``to_arrays``."""
        return cls(Ragged.from_arrays("paths", arrays), Ragged.from_arrays("proofs", arrays))


@dataclass(frozen=True)
class Candidate:
    """A node whose remaining rows in the working set allow more than the threshold; a scan decides for all rows."""

    path: Path
    solution: Solution


@dataclass(frozen=True)
class TaskResult:
    """The result of a task: open nodes, certificates, leaves, candidates; nodes visited; work: nodes and solves."""

    open: Ragged
    certificates: Certificates
    leaves: Leaves
    candidates: list[Candidate]
    nodes: int
    work: int


@dataclass(frozen=True)
class Query:
    """What a task does: end or split nodes at a threshold, with k rows excluded in all.

    w (d,) and b: the incumbent, which defines suspicious rows. budget: nodes and solves; effort: multiplications; both
    are counts, not times, so that the result is the same everywhere. most_candidates: stop with this many. root_only:
    do not visit the root's children. compiled: run compiled kernels.
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


def explore(search_rows: SearchRows, known: Ragged, nodes: Ragged, query: Query) -> TaskResult:
    """Explore depth first from ``nodes`` (the last one first), excluding rows before keeping them.

    A pure function: the result is the same wherever it runs. known: the rows of certificates that are valid at the
    threshold. Leaves refer to these by position, and to new ones by numbers from ``len(known)`` on.
    """
    return _Explorer(search_rows, known, query).run(nodes)


def compile_kernels() -> None:
    """Compile the kernels of a task, or load them from numba's cache, by a search of two rows."""
    x, signs = np.array([[1.0], [-1.0]]), np.array([1, -1], np.int8)
    search_rows = SearchRows(x, signs, np.zeros(1), intercept=True)
    query = Query(0, 2.0, np.ones(1), 0.0, 10, 10_000, 1, compiled=True)
    explore(search_rows, Ragged.empty(), Ragged.from_lists([()]), query)


class _Explorer:
    """Translates between the working set and the arrays of the kernels."""

    def __init__(self, search_rows: SearchRows, known: Ragged, query: Query) -> None:
        self.search_rows, self.known, self.query = search_rows, known, query
        margins = search_rows.signs * (search_rows.x @ query.w + query.b)
        self.order, tiers = _tiers(search_rows, margins, query.k)
        self.place = np.empty(len(self.order), np.int64)
        self.place[self.order] = np.arange(len(self.order))
        z, margins = search_rows.z[self.order], margins[self.order]
        suspects = lowest_rows(margins, query.k)[::-1].astype(np.int64)
        suspect = np.zeros(len(z), np.bool_)
        suspect[suspects] = True
        groups = search_rows.groups[self.order]
        squares = np.einsum("ij,ij->i", z, z)
        self.tiered = tree.TieredRows(z, groups, tiers, squares, margins, suspects.copy(), suspect)

    def run(self, nodes: Ragged) -> TaskResult:
        query, room = self.query, 1 << 12
        task_limits = tree.TaskLimits(query.k, query.budget, query.effort, query.most_candidates, query.root_only)
        limits = Limits(1e-12, 0.0, self.search_rows.hull_distance(query.threshold), MOST_STEPS)
        table = self._certificate_table()
        node = _new_node(self.tiered, len(table.ends), query.k)
        out = _new_output(self._rename_rows(nodes, self.place), room)
        task = tree.Task(node, table, out, self.tiered, _new_workspace(self.tiered), task_limits, limits)
        while not kernel("explore_nodes", compiled=query.compiled)(task):
            room *= 2
            task = task._replace(out=_with_room(task.out, room))
        return self._result(table, task.out)

    def _certificate_table(self) -> tree.CertificateTable:
        known, query = self.known, self.query
        n, d = self.tiered.rows.shape
        new = min(query.budget, query.effort // (n * d) + 1) + 3  # each takes a solve, which uses all rows
        rows = np.zeros(len(known.values) + new * (min(n, d) + 2), np.int64)
        rows[: len(known.values)] = self.place[known.values]
        ends = np.zeros(len(known) + new + 1, np.int64)
        ends[1 : len(known) + 1] = known.ends
        return tree.CertificateTable(rows, np.zeros(len(rows)), ends, np.array([len(known)]))

    def _result(self, table: tree.CertificateTable, out: tree.Output) -> TaskResult:
        """The kernels' output in terms of the working set."""
        first, count = len(self.known), int(table.size[0])
        span = slice(int(table.ends[first]), int(table.ends[count]))
        ends = table.ends[first + 1 : count + 1] - table.ends[first]
        rows, weights = Ragged(self.order[table.rows[span]], ends), Ragged(table.weights[span].copy(), ends)
        leaves = int(out.counts[tree.LEAVES])
        candidates = _first_entries(out.candidates, int(out.counts[tree.CANDIDATES]))
        return TaskResult(
            self._rename_rows(_first_entries(out.open, int(out.counts[tree.OPEN])), self.order),
            self.search_rows.certificates(rows, weights, self.query.threshold),
            Leaves(
                self._rename_rows(_first_entries(out.leaves, leaves), self.order), _first_entries(out.proofs, leaves)
            ),
            [self._candidate(path) for path in self._rename_rows(candidates, self.order)],
            int(out.counts[tree.NODES]),
            int(out.counts[tree.WORK]),
        )

    def _candidate(self, path: NDArray[np.int64]) -> Candidate:
        free = np.ones(len(self.search_rows), bool)
        free[path[path >= 0]] = False
        return Candidate(tuple(path.tolist()), self.search_rows.best(free))

    @staticmethod
    def _rename_rows(paths: Ragged, names: NDArray[np.int64]) -> Ragged:
        steps = paths.values
        return Ragged(np.where(steps >= 0, names[np.maximum(steps, 0)], ~names[np.maximum(~steps, 0)]), paths.ends)


def _tiers(search_rows: SearchRows, margins: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of rows by tier and group, and where each group begins; the lowest margins come first."""
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


def _new_workspace(tiered: tree.TieredRows) -> tree.Workspace:
    n, d = tiered.rows.shape
    groups = tiered.tiers.shape[1] - 1
    few = min(n, d) + 1 + groups
    return tree.Workspace(
        face=face_of(tiered.rows, tiered.groups, groups),
        weights=np.zeros(n),
        blocked=np.zeros(n),
        few=face_of(np.zeros((few, d)), np.zeros(few, np.int64), groups),
        few_weights=np.zeros(few),
        few_blocked=np.zeros(few),
        start=np.zeros(n),
        last=np.zeros(n),
        effort=np.zeros(1, np.int64),
        draft=tree.Draft(np.zeros(few + 1, np.int64), np.zeros(few + 1), np.zeros(1, np.int64)),
    )


def _new_node(tiered: tree.TieredRows, certificates: int, k: int) -> tree.Node:
    n = len(tiered.rows)
    return tree.Node(
        path=np.zeros(n + 2, np.int64),
        status=np.zeros(n, np.int8),
        taken=np.zeros(n, np.bool_),
        active=np.zeros(certificates, np.int64),
        residual=np.zeros(certificates, np.int64),
        packed=np.zeros(k + 2, np.int64),
        chosen=np.zeros(tree.MOST * (k + 1), np.int64),
        counts=np.zeros(5, np.int64),
        times=np.zeros(n, np.int64),
        weights=np.zeros(n),
    )


def _new_output(nodes: Ragged, room: int) -> tree.Output:
    """Empty lists with room, and the open nodes."""
    empty = tree.Lists(np.zeros(0, np.int64), np.zeros(1, np.int64))
    out = _with_room(tree.Output(empty, empty, empty, empty, np.zeros(5, np.int64)), room)
    values, ends = np.zeros(len(nodes.values) + room, np.int64), np.zeros(len(nodes) + room + 1, np.int64)
    values[: len(nodes.values)], ends[1 : len(nodes) + 1] = nodes.values, nodes.ends
    out.counts[tree.OPEN] = len(nodes)
    return out._replace(open=tree.Lists(values, ends))


def _with_room(out: tree.Output, room: int) -> tree.Output:
    """The same lists, each with ``room`` more entries."""

    def wider(lists: tree.Lists) -> tree.Lists:
        more = np.zeros(room, np.int64)
        return tree.Lists(np.concatenate([lists.values, more]), np.concatenate([lists.ends, more]))

    return tree.Output(wider(out.open), wider(out.leaves), wider(out.proofs), wider(out.candidates), out.counts)


def _first_entries(lists: tree.Lists, count: int) -> Ragged:
    return Ragged(lists.values[: int(lists.ends[count])].copy(), lists.ends[1 : count + 1].copy())
