"""Rankings: the value of a hypothesis over all pairs of rows of a group, and the dual point of weighted cuts.

A pair has two rows of one group with different labels, numbers of which the higher is the better. The value of w is

    1/2 ||w||^2 + C sum_g c_g sum_pairs max(0, 1 - w.(x_better - x_worse)),          c_g: the weight of the group.

Every set of pairs gives a lower bound on the sum, count - w.sum (x_better - x_worse), both weighted by c_g. The model
names points u_k and weights a_k >= 0; set k has the pairs whose scores at u_k differ by less than 1 + 1e-9. With r >= 1
so large that sum a / r <= C, no w has a value below

    sum_k a_k count_k / r - 1/2 ||sum_k a_k sum_k||^2 / r^2,

whatever the sets are, so that rounding of the scores at u_k does no harm: the sums are those of the pairs found here.

Pairs are counted by binary searches among the ranks of all scores. A difference of scores at w is off by at most e =
2 gamma_(d+4) max ||x|| ||w||: pairs below 1 + e lose at most 1 + e less their difference, and others nothing.
Sums of rows are in plain float64 within a slab; their error is at most gamma(n + 16) times the terms' sizes, n being
the rows of a slab, and counts against the bound. A group that goes on in the next chunk waits with its rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.sparse import issparse, vstack

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import Check, same_epsilon, same_ratio
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import TINY, UNIT, Total, gamma, length, rounded_sum, slabs
from coremargin.verify.values import status, value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.ranking import Ranking
    from coremargin.verify.rows import Chunk, Rows

_FEW = 16 * UNIT  # error of a handful of operations
_THRESHOLD = 1.0 + 1e-9  # pairs whose scores differ by less are in a set
_SLAB = 4096  # rows whose sums are taken together


@dataclass(frozen=True, kw_only=True)
class RankingClaim(AnyClaim):
    """The claim of a ranking; ``y`` is not used."""

    w: np.ndarray  #: (d,)
    points: np.ndarray  #: (k, d)
    weight: np.ndarray  #: (k,)
    cost: float  #: C


@dataclass(frozen=True)
class _Part:
    """Rows x (n, d) of groups: levels (n,), -1 for rows that do not count, weights (n,), and groups by number (n,)."""

    x: Any
    level: np.ndarray
    weight: np.ndarray
    group: np.ndarray

    def rows(self, part: slice) -> _Part:
        """Some of the rows."""
        return _Part(self.x[part], self.level[part], self.weight[part], self.group[part])

    def joined(self, later: _Part) -> _Part:
        """These rows and those that follow."""
        x = vstack([self.x, later.x], format="csr") if issparse(self.x) else np.concatenate([self.x, later.x])
        both = (np.concatenate([getattr(self, n), getattr(later, n)]) for n in ("level", "weight", "group"))
        return _Part(x, *both)


@dataclass(frozen=True)
class _Sums:
    """Of pairs: the loss at w, rounded up; of the sets, by weights a, the count, the sum (d,), and the terms' sizes."""

    loss: float
    count: float
    direction: tuple[np.ndarray, ...]
    reach: float
    mixed: int  #: groups with two weights


@dataclass(frozen=True)
class _Summary:
    """One chunk: its whole groups summed up, and the rows of groups that cross its borders."""

    whole: _Sums
    head: _Part  #: rows of a group that began before
    tail: _Part  #: rows of the last group, which may go on
    starts: bool  #: whether a group begins here
    uncounted: int
    radius: float
    members: Members


class RankingScan(StoreFindings):
    """The scan for value and dual point."""

    def __init__(self, claim: RankingClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        words = any(isinstance(label, str) for label in rows.classes)
        order = sorted(set() if words else set(rows.classes))
        self._levels = np.array([*(-1 if words else order.index(label) for label in rows.classes), -1])
        self._loss, self._count, self._reach = Total(), Total(), Total()
        self._direction = Total((claim.features,))
        self._waiting: _Part | None = None
        self._mixed = 0
        self.grouped = False

    def probe(self, chunk: Chunk) -> _Summary:
        """Sums of the groups that lie within a chunk."""
        n = len(chunk.codes)
        weights = np.ones(n) if chunk.weights is None else chunk.weights.astype(np.float64)
        level = np.where(weights > 0, self._levels[chunk.codes], -1)
        radius = 0.0
        for part, x in slabs(chunk.x):
            radius = max(radius, float(self.lengths(x, chunk.start + part.start).max()))
        begins = np.zeros(0, np.int64) if chunk.groups is None else chunk.groups - chunk.start
        group = np.searchsorted(begins, np.arange(n), side="right")
        first, last = (int(begins[0]), int(begins[-1])) if len(begins) else (n, n)
        every = _Part(chunk.x, level, weights, group)
        return _Summary(
            self._sums(every.rows(slice(first, last))),
            every.rows(slice(0, first)),
            every.rows(slice(last, n)),
            len(begins) > 0,
            int((level < 0).sum()),
            radius,
            self.members(chunk, np.where(level >= 0, 1, 0)),
        )

    def _sums(self, part: _Part) -> _Sums:
        claim, every = self.claim, part
        mixed = int(((np.diff(every.weight) != 0) & (np.diff(every.group) == 0)).sum())
        mine = np.flatnonzero(every.level >= 0)
        if not len(mine):
            return _Sums(0.0, 0.0, (), 0.0, mixed)
        x, level = every.x[mine].astype(np.float64), every.level[mine]
        weight, group = every.weight[mine], every.group[mine]
        lengths, d = self.lengths(x, 0), claim.features
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows proves nothing
            error = 2 * gamma(d + 4) * float(lengths.max()) * length(claim.w) * (1 + _FEW) + 4 * UNIT + (d + 4) * TINY
            scores = np.asarray(x @ claim.w)
            better, worse = _pairs(scores, level, group, 1.0 + error)
            terms = weight * (better * (1.0 + error - scores) + worse * scores)
            sizes = weight @ (better * (2.0 + error + np.abs(scores)) + worse * np.abs(scores))
            loss = rounded_sum(terms.tolist()) + 4 * UNIT * float(sizes) * (1 + gamma(len(mine)))
            share, size, counts = np.zeros(len(mine)), np.zeros(len(mine)), []
            for u, a in zip(claim.points, claim.weight.tolist(), strict=True):
                better, worse = _pairs(np.asarray(x @ u), level, group, _THRESHOLD)
                counts += (a * (weight * better)).tolist()
                share += a * (weight * (better - worse))
                size += a * (weight * (better + worse))
            sums = tuple(
                np.asarray(share[some] @ x[some]) for some in (slice(k, k + _SLAB) for k in range(0, len(mine), _SLAB))
            )
            reach = float(size @ lengths)
        return _Sums(loss, rounded_sum(counts), sums, reach, mixed)

    def add(self, summary: _Summary) -> None:
        """Add a summary; in the order of chunks, as groups go on from one to the next."""
        waiting, head = self._waiting, summary.head
        if waiting is None:
            self._mixed += len(head.level)  # rows before the first group
        else:
            waiting = waiting.joined(_Part(head.x, head.level, head.weight, np.full(len(head.level), waiting.group[0])))
        if summary.starts:
            self.grouped = True
            if waiting is not None:
                self._take(self._sums(waiting))
            waiting = summary.tail
        self._waiting = waiting
        self._take(summary.whole)
        self.count(summary.uncounted, summary.radius, summary.members)

    def _take(self, sums: _Sums) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            self._loss.add(np.asarray(sums.loss))
            self._count.add(np.asarray(sums.count))
            self._reach.add(np.asarray(sums.reach))
            for one in sums.direction:
                self._direction.add(one)
        self._mixed += sums.mixed

    def _finish(self) -> None:
        """Sum up the last group."""
        if self._waiting is not None:
            self._take(self._sums(self._waiting))
            self._waiting = None

    def bounds(self) -> tuple[float, float]:
        """The dual bound, rounded down, and the value of the hypothesis, rounded up."""
        self._finish()
        claim = self.claim
        with np.errstate(over="ignore", invalid="ignore"):
            size, r = length(claim.w), 1.0
            if len(claim.weight):
                r = max(1.0, rounded_sum(claim.weight.tolist()) / claim.cost * (1 + 4 * UNIT))
            value = (0.5 * size * size + claim.cost * float(self._loss.value)) * (1 + _FEW)
            error = gamma(_SLAB + 16) + gamma(len(claim.weight) + 8)
            longest = length(self._direction.value) * (1 + _FEW) + error * float(self._reach.value) * (1 + 1e-9)
            dual = float(self._count.value) * (1 - _FEW) / r - 0.5 * (longest / r) ** 2 * (1 + _FEW)
        return (dual if dual > 0 and math.isfinite(dual) else 0.0), (value if math.isfinite(value) else math.inf)

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        dual, value = self.bounds()
        ok = self.grouped and not self._mixed
        text = "pairs have rows of one group, whose rows have one weight"
        if not self.grouped:
            text = "expected rows in groups, the store has none"
        elif not ok:
            text = f"{self._mixed:,} rows are in no group, or have not the weight of their group"
        return [
            self.content(),
            Check("groups", ok, text),
            value_reached(self.claim, value, f"pairs of {self.counted}"),
            value_bounded(self.claim, dual),
        ]


def _pairs(scores: np.ndarray, level: np.ndarray, group: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """How many pairs with a difference below a threshold each row (n,) has, as the better and as the worse one."""
    better, worse = np.zeros((2, len(scores)), np.int64)
    lowered = scores - threshold
    _, rank = np.unique(np.concatenate([scores, lowered]), return_inverse=True)
    most = 2 * len(scores) + 1
    own, low = group * most + rank.reshape(-1)[: len(scores)], group * most + rank.reshape(-1)[len(scores) :]
    for one in set(level.tolist()):
        above, below = np.flatnonzero(level == one), np.flatnonzero(level < one)
        there, bars = np.sort(own[below]), np.sort(low[above])
        ends = np.searchsorted(there, (group[above] + 1) * most)
        better[above] += ends - np.searchsorted(there, low[above], side="right")
        worse[below] += np.searchsorted(bars, own[below]) - np.searchsorted(bars, group[below] * most)
    return better, worse


class RankingKind(Kind[RankingClaim]):
    """The claims of rankings."""

    def claim(self, files: ModelFiles) -> RankingClaim:
        """Weights and cuts."""
        record, arrays = cast("Ranking", files.record), files.arrays
        return RankingClaim(
            **any_claim(files, WHOLE, soft=True),
            y=np.zeros(0, np.int64),
            w=arrays["w"],
            points=arrays["cuts_point"],
            weight=arrays["cuts_weight"],
            cost=float(record.parameters.C),
        )

    def same_classes(self, claim: RankingClaim, rows: Rows) -> Check:
        """Labels are numbers."""
        words = [label for label in rows.classes if isinstance(label, str)]
        text = f"{len(rows.classes):,} numbers, the higher the better"
        return Check("labels", not words, text if not words else f"expected numbers, the store has {words[0]!r}")

    def consistency(self, claim: RankingClaim) -> list[Check]:
        """Epsilon, ratio, status."""
        return [*same_epsilon(claim), *same_ratio(claim), status(claim)]

    def scan(self, claim: RankingClaim, rows: Rows) -> RankingScan:
        """The loss of all pairs, and the sums of the cuts."""
        return RankingScan(claim, rows)


KIND = RankingKind()
