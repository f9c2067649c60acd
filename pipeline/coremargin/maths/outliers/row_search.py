"""Which k rows to remove, exactly, for anything that can be fitted to rows: a tree search, and its proof.

A *fit* gives each row a score under a hypothesis, larger for rows that fit worse: the distance from the centre of a
ball, or minus a margin. Whatever the hypothesis, the (k + 1)-th largest score can be reached by removing k rows. To
prove that no choice of k rows allows less than a target, *certificates* are collected: a few rows, of which by their
dual weights one has a score of the target or more under every hypothesis. A choice of k rows that allows less has to
remove a row of each.

A node of the search is a path of decisions: ``row`` (>= 0) is removed, ``~row`` (< 0) is kept. With r more rows to
remove, more than r certificates without removed rows, of which no two share a row that is not kept, end the node; so
does one all of whose rows are kept. Else one row of a certificate is removed, or kept. This is the search of
explore.py, for few rows and any fit: it has neither levels nor compiled kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Places = NDArray[np.intp]
H = TypeVar("H")

#: Rows that a search looks at: those with the largest scores, and k more.
NEAR = 2000
#: Certificates are made of the rows with the largest scores, so many for each dimension and two for each that is
#: removed, if these are enough: the others hardly ever carry one.
FIRST_EACH = 4
#: Nodes after which a search gives up, and between two of the results that it yields.
MOST_NODES, STEP = 50_000, 250
#: A search of so many nodes or more is made for these shares of the first gap before it is made for epsilon, where they
#: are so many times wider.
QUICK, GAPS, WIDER = 500, (0.3, 0.1, 0.03), 3.0
#: The least share of a score by which an improvement counts.
SHARE = 1e-12


@dataclass(frozen=True)
class Carried(Generic[H]):
    """Places (m,) of rows and their dual weights (m, ...), the score that they prove, and the hypothesis fitted."""

    rows: Places
    weights: Array
    value: float
    hypothesis: H


class Fit(Protocol[H]):
    """What is fitted to n rows."""

    @property
    def dimension(self) -> int:
        """About how many rows carry a fit."""

    def scores(self, hypothesis: H) -> Array:
        """The scores (n,) of all rows, rounded up."""

    def concentrate(self, k: int, hypothesis: H) -> H:
        """A hypothesis that is at least as good for all rows but k."""

    def carried(self, places: Places, enough: float) -> Carried[H] | None:
        """The fit to the rows at some places, or any that proves a score of ``enough``; None if these have none."""

    def target(self, reached: float, gap: float) -> float:
        """The score that proves a reached one to be the least but for a gap."""

    def gap(self, reached: float, bound: float) -> float:
        """The share of a reached score that a bound leaves unproven."""


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

    def renumbered(self, places: Places) -> Proof:
        """The same with its rows, of which row i is at ``places[i]`` (m,), as numbers of another set of rows."""
        steps = self.paths.values
        paths = np.where(steps < 0, ~places[np.maximum(~steps, 0)], places[np.maximum(steps, 0)])
        return replace(
            self, rows=replace(self.rows, values=places[self.rows.values]), paths=replace(self.paths, values=paths)
        )

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
class Trimmed(Generic[H]):
    """The best hypothesis found, its (k + 1)-th largest score, and the score below which there is none, by the proof.

    proof: its places are those of the rows that were searched; None for a bound of -inf. complete: the bound is within
    epsilon. nodes: of the search so far.
    """

    hypothesis: H
    reached: float
    bound: float
    proof: Proof | None
    complete: bool
    nodes: int


def reached_score(scores: Array, k: int) -> float:
    """The (k + 1)-th largest of scores (n,), n > k."""
    return float(-np.partition(-scores, k)[k])


def margin_target(reached: float, gap: float, nothing: float) -> float:
    """The target of a fit whose scores are minus margins; nothing: a margin that is none."""
    return -max(-reached / (1.0 - gap) * (1.0 - SHARE), nothing)


def margin_gap(reached: float, bound: float) -> float:
    """The share of a bound on a margin that is not reached, from minus the two."""
    return 1.0 - max(reached / bound, 0.0) if -np.inf < bound < 0.0 else 1.0


@dataclass(frozen=True)
class _Certificate:
    """What carries a score of ``value``; mask: the places of its rows as bits."""

    rows: Places
    weights: Array
    value: float
    mask: int


def search_rows(fit: Fit[H], k: int, epsilon: float, start: H, most_nodes: int = MOST_NODES) -> Iterator[Trimmed[H]]:
    """The best fit to all rows but k, n > k >= 1, to a gap of epsilon; start: a good hypothesis.

    Yields the best one so far, with the best bound, every ``STEP`` nodes and whenever the bound rises; the last one is
    the result. After ``QUICK`` nodes it is made for wider gaps first, so that a bound is proven long before the last.
    """
    hypothesis = fit.concentrate(k, start)
    scores = fit.scores(hypothesis)
    reached = reached_score(scores, k)
    active = _largest(scores, NEAR + k)
    first = _largest(scores, FIRST_EACH * fit.dimension + 2 * k) & active
    best, known, nodes = _packed(fit, len(scores), k, hypothesis, reached), list[_Certificate](), 0
    yield best
    wide = fit.gap(reached, best.bound)
    wider = [share * wide for share in GAPS if share * wide > WIDER * epsilon]
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
                yield replace(best, hypothesis=hypothesis, reached=reached, nodes=nodes)
            path = open_nodes.pop()
            removed, kept = (_mask(step for step in path if step >= 0), _mask(~step for step in path if step < 0))
            left = k - removed.bit_count()
            target = fit.target(reached, gap)
            packed, used, ended = _pack(known, target, removed, kept, left)
            candidate = None
            while not ended:
                found = _certificate(fit, removed | used, (first, active), target)
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
            elif candidate is not None:  # a better one, if rows that were not looked at allow it
                open_nodes.append(path)
                better = fit.concentrate(k, candidate)
                new = reached_score(fit.scores(better), k)
                outside = (fit.scores(candidate) > target) & ~active
                if new < reached - SHARE * abs(reached):
                    hypothesis, reached = better, new
                elif outside.any():
                    active |= outside
                else:
                    yield replace(best, hypothesis=hypothesis, reached=reached, nodes=nodes)
                    return
            elif packed:
                fewest = min(
                    (known[number].mask & ~kept for number in packed), key=lambda mask: (mask.bit_count(), mask)
                )
                row = max(_places(fewest), key=lambda place: (float(scores[place]), place))
                open_nodes += [(*path, ~row), (*path, row)]
            else:
                yield replace(best, hypothesis=hypothesis, reached=reached, nodes=nodes)
                return
        best = replace(best, hypothesis=hypothesis, reached=reached, nodes=nodes)
        if not open_nodes:
            best = _with_proof(known, leaves, replace(best, complete=gap == epsilon))
        yield best


def _largest(scores: Array, count: int) -> NDArray[np.bool_]:
    """Mask (n,) of the rows with the largest scores."""
    found = np.zeros(len(scores), bool)
    found[np.argsort(-scores, kind="stable")[:count]] = True
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
    fit: Fit[H], without: int, tiers: Sequence[NDArray[np.bool_]], target: float
) -> tuple[_Certificate, H] | None:
    """What carries the fit to rows but those of a mask, of the first tier that proves the target, or of the last.

    None: no row is left, or too few.
    """
    found = None
    for tier in tiers:
        free = tier.copy()
        free[list(_places(without))] = False
        places = np.flatnonzero(free)
        if not len(places):
            continue
        one = fit.carried(places, target)
        if one is None:
            continue
        found = _Certificate(one.rows, one.weights, one.value, _mask(one.rows.tolist())), one.hypothesis
        if one.value >= target:
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


def _packed(fit: Fit[H], rows: int, k: int, hypothesis: H, reached: float) -> Trimmed[H]:
    """A weaker bound without a search: of k + 1 certificates without a common row, the one that proves least."""
    known, used = list[_Certificate](), 0
    every = np.ones(rows, bool)
    best = Trimmed(hypothesis, reached, -np.inf, None, complete=False, nodes=0)
    while len(known) <= k:
        may_stop()
        found = _certificate(fit, used, [every], np.inf)
        if found is None:
            return best
        known.append(found[0])
        used |= found[0].mask
    return _with_proof(known, [((), list(range(k + 1)))], best)


def _with_proof(
    known: Sequence[_Certificate], leaves: Sequence[tuple[tuple[int, ...], list[int]]], best: Trimmed[H]
) -> Trimmed[H]:
    """The result with the certificates that leaves rest on, and the bound that they prove."""
    used = sorted({number for _, numbers in leaves for number in numbers})
    place = {number: new for new, number in enumerate(used)}
    proof = Proof(
        rows=Ragged.from_lists(known[number].rows for number in used),
        weights=Ragged.from_lists((known[number].weights for number in used), np.float64),
        paths=Ragged.from_lists(path for path, _ in leaves),
        numbers=Ragged.from_lists([place[number] for number in numbers] for _, numbers in leaves),
    )
    return replace(best, proof=proof, bound=min(known[number].value for number in used))
