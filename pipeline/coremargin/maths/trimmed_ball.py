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

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
#: Certificates are made of the farthest rows, so many for each dimension and two for each that is removed, if these
#: are enough: the others hardly ever touch the ball.
FIRST_EACH = 4
#: Nodes after which a search gives up, and between two of the balls that it yields.
MOST_NODES, STEP = 50_000, 250
#: A search of so many nodes or more is made for these shares of the first gap before it is made for epsilon, where they
#: are so many times wider.
QUICK, GAPS, WIDER = 500, (0.3, 0.1, 0.03), 3.0
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
    epsilon. nodes: of the search so far.
    """

    centre: Array
    upper: float
    lower: float
    proof: Proof | None
    complete: bool
    nodes: int

    @property
    def gap(self) -> float:
        """The share of the radius that is not proven."""
        return 1.0 - self.lower / self.upper


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


@dataclass(frozen=True)
class _Certificate:
    """Places (m,) of rows and their dual weights; value: the radius that they prove; mask: the places as bits."""

    rows: Places
    weights: Array
    value: float
    mask: int


def search_trimmed(
    rows: Array, k: int, epsilon: float, centre: Array, most_nodes: int = MOST_NODES
) -> Iterator[TrimmedBall]:
    """The smallest ball around all rows (n, d) but k, n > k >= 1, to a share 1 - epsilon; centre: a good one.

    Yields the best ball so far, with the best bound, every ``STEP`` nodes and whenever the bound rises; the last one is
    the result. After ``QUICK`` nodes it is made for wider gaps first, so that a bound is proven long before the last.
    """
    centre, _ = concentrate(rows, k, centre)
    upper = reached(rows, centre, k)
    if upper == 0:
        yield TrimmedBall(centre, 0.0, 0.0, None, complete=True, nodes=0)
        return
    distances = upper_bounds(rows, centre)
    active = _farthest(distances, NEAR + k)
    first = _farthest(distances, FIRST_EACH * (rows.shape[1] + 1) + 2 * k) & active
    best, known, nodes = _packed(rows, k, centre, upper), list[_Certificate](), 0
    yield best
    wider = [share * best.gap for share in GAPS if share * best.gap > WIDER * epsilon]
    for gap, most in [(epsilon, min(QUICK, most_nodes)), *((share, most_nodes) for share in [*wider, epsilon])]:
        if best.complete:
            return
        leaves, open_nodes = list[tuple[tuple[int, ...], list[int]]](), [tuple[int, ...]()]
        while open_nodes:
            may_stop()
            if nodes >= most:
                break
            nodes += 1
            if nodes % STEP == 0:
                yield replace(best, centre=centre, upper=upper, nodes=nodes)
            path = open_nodes.pop()
            removed, kept = (_mask(step for step in path if step >= 0), _mask(~step for step in path if step < 0))
            left = k - removed.bit_count()
            target = upper * (1.0 - gap) * (1.0 + SHARE)
            packed, used, ended = _pack(known, target, removed, kept, left)
            candidate = None
            while not ended:
                found = _certificate(rows, removed | used, (first, active), target)
                if found is None:
                    break
                certificate, at = found
                if certificate.value < target:
                    candidate = at if not packed else None
                    break
                known.append(certificate)
                residual = certificate.mask & ~kept
                packed, used = [*packed, len(known) - 1] if residual else [len(known) - 1], used | residual
                ended = not residual or len(packed) > left
            if ended:
                leaves.append((path, packed))
            elif candidate is not None:  # a better ball, if rows that were not looked at allow it
                open_nodes.append(path)
                better, _ = concentrate(rows, k, candidate)
                new = reached(rows, better, k)
                outside = (upper_bounds(rows, candidate) > target) & ~active
                if new < upper * (1 - SHARE):
                    centre, upper = better, new
                elif outside.any():
                    active |= outside
                else:
                    yield replace(best, centre=centre, upper=upper, nodes=nodes)
                    return
            elif packed:
                fewest = min(
                    (known[number].mask & ~kept for number in packed), key=lambda mask: (mask.bit_count(), mask)
                )
                row = max(_places(fewest), key=lambda place: (float(distances[place]), place))
                open_nodes += [(*path, ~row), (*path, row)]
            else:
                yield replace(best, centre=centre, upper=upper, nodes=nodes)
                return
        best = replace(best, centre=centre, upper=upper, nodes=nodes)
        if not open_nodes:
            best = _with_proof(known, leaves, replace(best, complete=gap == epsilon))
        yield best


def _farthest(distances: Array, count: int) -> NDArray[np.bool_]:
    """Mask (n,) of the rows with the largest distances."""
    found = np.zeros(len(distances), bool)
    found[np.argsort(-distances, kind="stable")[:count]] = True
    return found


def _mask(places: Iterable[int]) -> int:
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _places(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _certificate(
    rows: Array, without: int, tiers: Sequence[NDArray[np.bool_]], target: float
) -> tuple[_Certificate, Array] | None:
    """Weights of rows but those of a mask, of the first tier that proves the target, or of the last; and their centre.

    None: no row is left.
    """
    found = None
    for tier in tiers:
        free = tier.copy()
        free[list(_places(without))] = False
        places = np.flatnonzero(free)
        if not len(places):
            continue
        weights = smallest_ball(rows[places], enough=target * (1.0 + 2 * SHARE))
        some, at = np.flatnonzero(weights), weights @ rows[places]
        value = lower_bound(rows[places[some]], weights[some], at)
        found = _Certificate(places[some], weights[some], value, _mask(places[some].tolist())), at
        if value >= target:
            break
    return found


def _pack(
    known: Sequence[_Certificate], target: float, removed: int, kept: int, left: int
) -> tuple[list[int], int, bool]:
    """Numbers of known certificates that share no row that is not kept, shortest first, and the rows that they use.

    True: they end a node, as one of kept rows alone does, or more than ``left``.
    """
    valid = [
        ((one.mask & ~kept).bit_count(), number)
        for number, one in enumerate(known)
        if not one.mask & removed and one.value >= target
    ]
    valid.sort()
    used, packed = 0, list[int]()
    for size, number in valid:
        if not size:
            return [number], 0, True
        rows = known[number].mask & ~kept
        if not rows & used:
            used |= rows
            packed.append(number)
            if len(packed) > left:
                return packed, used, True
    return packed, used, False


def _packed(rows: Array, k: int, centre: Array, upper: float) -> TrimmedBall:
    """A weaker bound without a search: of k + 1 certificates without a common row, the one that proves least."""
    known, used = list[_Certificate](), 0
    every = np.ones(len(rows), bool)
    while len(known) <= k:
        may_stop()
        found = _certificate(rows, used, [every], np.inf)
        if found is None:
            return TrimmedBall(centre, upper, 0.0, None, complete=False, nodes=0)
        known.append(found[0])
        used |= found[0].mask
    ball = TrimmedBall(centre, upper, 0.0, None, complete=False, nodes=0)
    return _with_proof(known, [((), list(range(k + 1)))], ball)


def _with_proof(
    known: Sequence[_Certificate], leaves: Sequence[tuple[tuple[int, ...], list[int]]], ball: TrimmedBall
) -> TrimmedBall:
    """The ball with the certificates that leaves rest on, and the bound that they prove."""
    used = sorted({number for _, numbers in leaves for number in numbers})
    place = {number: new for new, number in enumerate(used)}
    proof = Proof(
        rows=Ragged.from_lists(known[number].rows for number in used),
        weights=Ragged.from_lists((known[number].weights for number in used), np.float64),
        paths=Ragged.from_lists(path for path, _ in leaves),
        numbers=Ragged.from_lists([place[number] for number in numbers] for _, numbers in leaves),
    )
    return replace(ball, proof=proof, lower=min(known[number].value for number in used))
