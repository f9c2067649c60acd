"""The smallest ball around all rows but k, exactly: a tree search, and the certificates that prove it.

For any centre the (k + 1)-th largest distance is a radius that can be reached. To prove that no choice of k rows allows
a radius below T = (1 - epsilon) of the best one found, *certificates* are collected: a few rows whose smallest ball has
a radius of T or more, by their dual weights. A choice of k rows that allows less has to remove a row of each.

A node of the search is a path of decisions: ``row`` (>= 0) is removed, ``~row`` (< 0) is kept. With r more rows to
remove, more than r certificates without removed rows, of which no two share a row that is not kept, end the node; so
does one all of whose rows are kept. Else one row of a certificate is removed, or kept. This is the search of
outliers/explore.py with another certificate; balls of few rows need neither its levels nor its compiled kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.enclosing_ball import lower_bound, smallest_ball, upper_bounds
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Places = NDArray[np.intp]

#: Rows that a search looks at: those farthest from the centre, and k more.
NEAR = 2000
#: Nodes after which a search gives up.
MOST_NODES = 20_000
#: The target lies above what epsilon requires by this share: bounds are rounded.
SHARE = 1e-12
#: Steps of an incumbent, each of which solves the rows that the last one leaves.
STEPS = 50


@dataclass(frozen=True)
class Proof:
    """Certificates by the places of their rows, with weights; leaves with the numbers of certificates that end each."""

    rows: Ragged
    weights: Ragged
    paths: Ragged
    numbers: Ragged

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays ``NAME_rows``, ``NAME_rows_ends`` and so on, exact."""
        found: dict[str, NDArray[Any]] = {}
        for field, lists in vars(self).items():
            found |= {f"{name}_{field}": lists.values, f"{name}_{field}_ends": lists.ends}
        return found

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Proof:
        """Inverse of ``to_arrays``."""
        fields = ("rows", "weights", "paths", "numbers")
        return cls(*(Ragged(arrays[f"{name}_{one}"], arrays[f"{name}_{one}_ends"]) for one in fields))

    def about(self, places: Places) -> tuple[Places, Proof]:
        """The rows that it names, of those at ``places`` (m,), increasing, and the proof in terms of these."""
        steps = np.where(self.paths.values < 0, ~self.paths.values, self.paths.values)
        named = np.unique(np.concatenate([self.rows.values, steps]))
        rows, steps = np.searchsorted(named, self.rows.values), np.searchsorted(named, steps)
        paths = np.where(self.paths.values < 0, ~steps, steps)
        return places[named], replace(
            self, rows=replace(self.rows, values=rows), paths=replace(self.paths, values=paths)
        )


@dataclass(frozen=True)
class TrimmedBall:
    """The best centre found, its (k + 1)-th largest distance, and the radius below which there is none, by the proof.

    proof: its places are those of the rows that were searched; None for a bound of 0. complete: the bound is within
    epsilon. nodes: of the search.
    """

    centre: Array
    upper: float
    lower: float
    proof: Proof | None
    complete: bool
    nodes: int


def reached(rows: Array, centre: Array, k: int) -> float:
    """The (k + 1)-th largest distance of rows (n, d), n > k, from a centre, rounded up."""
    return float(-np.partition(-upper_bounds(rows, centre), k)[k])


def concentrate(rows: Array, k: int, centre: Array) -> tuple[Array, Array]:
    """A centre that is at least as good for all rows (n, d) but k, and the dual weights (n,) of the rows it encloses.

    Each step solves the n - k nearest rows.
    """
    best, weights = np.inf, np.zeros(len(rows))
    for _ in range(STEPS):
        may_stop()
        off = rows - centre
        near = np.sort(np.argpartition(np.einsum("ij,ij->i", off, off), len(rows) - k - 1)[: len(rows) - k])
        start = weights[near] if weights[near].any() else None
        found = smallest_ball(rows[near], None if start is None else start / start.sum())
        at = found @ rows[near]
        radius = reached(rows, at, k)
        if radius >= best * (1 - 1e-12):
            break
        best, centre, weights = radius, at, np.zeros(len(rows))
        weights[near] = found
    return centre, weights


@dataclass
class _Certificates:
    """sets: places of rows; weights and values: dual weights, and the radius that they prove."""

    sets: list[frozenset[int]]
    rows: list[Places]
    weights: list[Array]
    values: list[float]


def search_trimmed(rows: Array, k: int, epsilon: float, centre: Array, most_nodes: int = MOST_NODES) -> TrimmedBall:
    """The smallest ball around all rows (n, d) but k, n > k >= 1, to a share 1 - epsilon; centre: a good one."""
    centre, _ = concentrate(rows, k, centre)
    upper = reached(rows, centre, k)
    active = np.zeros(len(rows), bool)
    active[np.argsort(-upper_bounds(rows, centre), kind="stable")[: NEAR + k]] = True
    known, leaves = _Certificates([], [], [], []), list[tuple[tuple[int, ...], list[int]]]()
    open_nodes: list[tuple[int, ...]] = [()]
    nodes = 0
    while open_nodes and upper > 0:
        may_stop()
        if nodes >= most_nodes:
            return _packed(rows, k, centre, upper, nodes)
        path, nodes = open_nodes.pop(), nodes + 1
        removed, kept = {step for step in path if step >= 0}, {~step for step in path if step < 0}
        target = upper * (1.0 - epsilon) * (1.0 + SHARE)
        ended, shortest = _pack(known, removed, kept, k - len(removed))
        if ended:
            leaves.append((path, ended))
            continue
        packed = list(shortest)
        used = set().union(*(known.sets[number] - kept for number in packed))
        candidate = None
        while len(packed) <= k - len(removed):
            free = active.copy()
            free[list(removed | used)] = False
            places = np.flatnonzero(free)
            if not len(places):
                break
            found = smallest_ball(rows[places], enough=target * (1.0 + 2 * SHARE))
            some = np.flatnonzero(found)
            at = found @ rows[places]
            value = lower_bound(rows[places[some]], found[some], at)
            if value < target:
                candidate = at if not packed else None
                break
            known.sets.append(frozenset(places[some].tolist()))
            known.rows.append(places[some])
            known.weights.append(found[some])
            known.values.append(value)
            packed.append(len(known.sets) - 1)
            left = known.sets[-1] - kept
            used |= left
            if not left:
                packed = packed[-1:]
                break
        if len(packed) > k - len(removed) or (packed and not known.sets[packed[-1]] - kept):
            leaves.append((path, packed))
        elif candidate is not None:  # a better ball, if rows that were not looked at allow it
            open_nodes.append(path)
            new = reached(rows, candidate, k)
            outside = (upper_bounds(rows, candidate) > target) & ~active
            if new < upper * (1 - SHARE):
                centre, upper = candidate, new
            elif outside.any():
                active |= outside
            else:
                return _packed(rows, k, centre, upper, nodes)
        elif packed:
            fewest = min((known.sets[number] - kept for number in packed), key=lambda some: (len(some), sorted(some)))
            row = max(fewest, key=lambda place: (float(np.linalg.norm(rows[place] - centre)), place))
            open_nodes += [(*path, ~row), (*path, row)]
        else:
            return _packed(rows, k, centre, upper, nodes)
    if upper == 0:
        return TrimmedBall(centre, 0.0, 0.0, None, complete=True, nodes=nodes)
    return _with_proof(known, leaves, TrimmedBall(centre, upper, 0.0, None, complete=True, nodes=nodes))


def _pack(known: _Certificates, removed: set[int], kept: set[int], left: int) -> tuple[list[int], list[int]]:
    """Numbers of known certificates that end a node, or none; and of some that share no row that is not kept."""
    valid = [(rows - kept, number) for number, rows in enumerate(known.sets) if not rows & removed]
    valid.sort(key=lambda pair: (len(pair[0]), pair[1]))
    if valid and not valid[0][0]:
        return [valid[0][1]], []
    used, packed = set[int](), list[int]()
    for rows, number in valid:
        if not rows & used:
            used |= rows
            packed.append(number)
            if len(packed) > left:
                return packed, []
    return [], packed


def _packed(rows: Array, k: int, centre: Array, upper: float, nodes: int) -> TrimmedBall:
    """A weaker bound without a search: of k + 1 certificates without a common row, the one that proves least."""
    known, left = _Certificates([], [], [], []), np.arange(len(rows))
    while len(known.sets) <= k and len(left):
        may_stop()
        found = smallest_ball(rows[left])
        some = np.flatnonzero(found)
        known.sets.append(frozenset(left[some].tolist()))
        known.rows.append(left[some])
        known.weights.append(found[some])
        known.values.append(lower_bound(rows[left[some]], found[some], found @ rows[left]))
        left = np.delete(left, some)
    ball = TrimmedBall(centre, upper, 0.0, None, complete=False, nodes=nodes)
    if len(known.sets) <= k:
        return ball
    return _with_proof(known, [((), list(range(k + 1)))], ball)


def _with_proof(
    known: _Certificates, leaves: list[tuple[tuple[int, ...], list[int]]], ball: TrimmedBall
) -> TrimmedBall:
    """The ball with the certificates that leaves rest on, and the bound that they prove."""
    used = sorted({number for _, numbers in leaves for number in numbers})
    place = {number: new for new, number in enumerate(used)}
    proof = Proof(
        rows=Ragged.from_lists(known.rows[number] for number in used),
        weights=Ragged.from_lists((known.weights[number] for number in used), np.float64),
        paths=Ragged.from_lists(path for path, _ in leaves),
        numbers=Ragged.from_lists([place[number] for number in numbers] for _, numbers in leaves),
    )
    return replace(ball, proof=proof, lower=min(known.values[number] for number in used))
