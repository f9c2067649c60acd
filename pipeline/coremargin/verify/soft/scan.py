"""What ``verify`` asks of every row of the store about a soft margin: its loss, and its share of the dual point.

Value. A row's margin in float64 is off by at most e = gamma_(d+3) (|x|.|w| + |b| + 1), |x|.|w| <= ||x|| ||w||, so
that its loss is at most loss(1 - margin + e): these are summed. Of mapped rows ||w|| times what rounding may move them
by (feature_map.py) is part of e. Duals are made of the rows as they are mapped here, and are a dual point whatever the
exact ones are; how far the sum of those may be from that of these is seen to in gap.py.

Dual. A row that is not near the margin has, at the reference of its chunk, with hinge c where its margin is below 1,
else 0; with squared hinge c xi in proportion, xi = max(0, 1 - margin), or what correction.py makes of it. c is C of
the row's class times its own weight, where the store has weights. For hinge the side matters: where the error above
leaves it open, the margin is evaluated again, rounded once. For squared hinge any xi >= 0 gives a dual point, so those
of float64 do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from coremargin.verify.soft.losses import LOSSES
from coremargin.verify.soft.tried import TriedScan
from coremargin.verify.store import Members, StoreScan
from coremargin.verify.sums import SLAB_ROWS, TINY, Total, dot_products, gamma, length, rounded_sum, slabs

if TYPE_CHECKING:
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.soft.claim import SoftClaim
    from coremargin.verify.soft.tried import Part

_LONG = 1024.0  # where sum |x_j w_j| may be larger, it is summed: a few huge values make a row long


class Sums:
    """Sums over rows; of pairs, index 0 is the positive class, 1 the negative.

    Each row counts with its weight s, 1 where the store has none; rows: how many there are. count: sum s; loss: of an
    upper bound of the loss; h, the dual weights of rows not near the margin in units of the c of a row:
    slack sum s h, squares sum s h^2, dual_sum (2, d) sum s h x, reach sum s h ||x||, or spread (2, d) sum s h |x| for
    rows that may be long. Of rows near the margin, with a the dual weights as given: near_dual_sum (d,) sum a y x,
    near_reach, near_spread as before. With a ramp, r = min(1, h / ramp) and z = (x, 1): turn (2, d + 1) sum s r (h - 1)
    z, curve (2, d + 1, d + 1) sum s r z z^T.
    """

    NAMES = (
        "rows",
        "count",
        "loss",
        "slack",
        "squares",
        "dual_sum",
        "reach",
        "spread",
        "near_dual_sum",
        "near_reach",
        "near_spread",
    )

    def __init__(self, features: int, *, ramp: bool = False) -> None:
        shapes: dict[str, tuple[int, ...]] = {"near_reach": ()}
        shapes |= {
            "dual_sum": (2, features),
            "spread": (2, features),
            "near_dual_sum": (features,),
            "near_spread": (features,),
        }
        curved: dict[str, tuple[int, ...]] = {"turn": (2, features + 1), "curve": (2, features + 1, features + 1)}
        shapes |= curved
        names = (*self.NAMES, *curved) if ramp else self.NAMES
        self._totals = {name: Total(shapes.get(name, (2,))) for name in names}

    def add(self, parts: dict[str, np.ndarray]) -> None:
        """Add to some of the sums."""
        for name, values in parts.items():
            self._totals[name].add(values)

    def parts(self) -> dict[str, np.ndarray]:
        """All sums by name."""
        return {name: total.value for name, total in self._totals.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._totals[name].value


@dataclass(frozen=True)
class Answer:
    """What one chunk says."""

    sums: dict[str, np.ndarray]
    unlabelled: int
    radius: float
    members: Members
    weights: np.ndarray  #: of the coreset rows, in the order of ``members``
    low: np.ndarray  #: (d,) the least value of each feature; ``high``: the largest; none (0,) without a ramp
    high: np.ndarray
    tried: Part | None  #: rows of the proof that there is no hard margin


class SoftScan(StoreScan):
    """One scan for the value of a hypothesis and of a dual point."""

    claim: SoftClaim

    def __init__(self, claim: SoftClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.ramp = claim.ramp
        self.sums = Sums(claim.features, ramp=self.ramp > 0)
        wide = claim.features if self.ramp else 0
        self.low, self.high = np.full(wide, np.inf), np.full(wide, -np.inf)
        self.loss = LOSSES[claim.loss]
        self._size = length(claim.w) * (1 + gamma(8))
        self.duals = claim.alpha
        # Signs in the store; 0: no such row, no label, or named before.
        self.found = np.zeros(len(claim.ids), dtype=np.int64)
        self.weights = np.ones(len(claim.ids))
        self.tried = None if claim.tried is None else TriedScan(claim.tried)

    def ask(self, chunk: Chunk) -> Answer:
        """One chunk, in slabs of float64."""
        signs = self.signs(chunk)
        members = self.members(chunk, signs)
        local, first = np.unique(self.claim.ids[members.places] - chunk.start, return_index=True)
        near_margin = np.zeros(len(signs))
        near_margin[local] = self.duals[members.places[first]]
        inside = np.zeros(len(signs), dtype=bool)
        inside[local] = True
        sums, radius, reference = Sums(self.claim.features), 0.0, self._reference(chunk)
        bend = Bend(self.claim.features, self.ramp) if self.ramp else None
        weights = np.ones(len(signs)) if chunk.weights is None else chunk.weights
        for part, x in slabs(chunk.x, SLAB_ROWS):
            lengths = self.lengths(x, chunk.start + part.start)
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows proves nothing, see ``checks``
                s = np.where([signs[part] > 0, signs[part] < 0], weights[part], 0.0)
                sums.add(self._losses(x, signs[part], s, lengths))
                h = self._shares(x, signs[part], lengths, ~inside[part], reference)
                sums.add(self._weights(x, s, h, lengths))
                if bend is not None:
                    bend.add(x, s, h)
                if inside[part].any():
                    sums.add(_near_margin(x, signs[part], self._sized(lengths), near_margin[part]))
            radius = max(radius, float(lengths.max()))
        chosen = weights[self.claim.ids[members.places] - chunk.start]
        found, low, high = (sums.parts(), *(np.zeros(0),) * 2) if bend is None else bend.beside(sums.parts())
        tried = None if self.tried is None else self.tried.ask(chunk, signs)
        return Answer(found, int((signs == 0).sum()), radius, members, chosen, low, high, tried)

    def _reference(self, chunk: Chunk) -> np.ndarray:
        """The hypothesis (d + 1,) of a chunk; any gives a dual point, and ``checks`` names chunks that have none."""
        place, of = chunk.start // self.rows.chunk_rows, self.claim.reference_of
        return np.asarray(self.claim.reference[of[place] if place < len(of) else 0])

    def _losses(self, x: Any, signs: np.ndarray, s: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        """s (2, n): the weights of the rows of each class, 0 for those of the other."""
        margins, error = margins_within(x, signs, lengths, self.claim.w, self.claim.b)
        error = error + self.claim.moved * self._size  # of mapped rows
        slack = np.maximum(1.0 - margins + error, 0.0)
        return {
            "rows": np.array([(signs > 0).sum(), (signs < 0).sum()], dtype=np.float64),
            "count": self._total(s),
            "loss": s @ self.loss.value(slack),
        }

    def _shares(
        self, x: Any, signs: np.ndarray, lengths: np.ndarray, far: np.ndarray, reference: np.ndarray
    ) -> np.ndarray:
        """h (n,)."""
        w, b = reference[:-1], float(reference[-1])
        margins, error = margins_within(x, signs, lengths, w, b)
        if self.loss.names_duals:  # the side decides
            unclear = np.flatnonzero(far & (signs != 0) & (np.abs(margins - 1.0) <= error))
            margins[unclear] = signs[unclear] * dot_products(x[unclear], w, b)
        h = self.loss.shares(margins)
        h[~far] = 0.0
        return h

    def _weights(self, x: Any, s: np.ndarray, h: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        sh = s * h
        return {
            "slack": self._total(sh),
            "squares": sh @ h,
            "dual_sum": sh @ x,
            **_sizes(sh, x, self._sized(lengths), ""),
        }

    def _sized(self, lengths: np.ndarray) -> np.ndarray | None:
        """Lengths of rows that are short, as the claim has it of all rows, else None: both bounds hold for any row."""
        return lengths if max(float(lengths.max()), self.claim.radius) <= _LONG else None

    def add(self, answer: Answer) -> None:
        """Take one chunk's answer; chunks come in order."""
        self.count(answer.unlabelled, answer.radius, answer.members)
        self.sums.add(answer.sums)
        if self.tried is not None and answer.tried is not None:
            self.tried.add(answer.tried)
        if self.ramp:
            self.low, self.high = np.minimum(self.low, answer.low), np.maximum(self.high, answer.high)
        places, first = answer.members.places, np.unique(self.claim.ids[answer.members.places], return_index=True)[1]
        self.found[places[first]] = answer.members.signs[first]
        self.weights[places[first]] = answer.weights[first]

    def _total(self, terms: np.ndarray) -> np.ndarray:
        """Sums (2,) of terms (2, n), rounded once where they are not whole: balance is a difference of such sums."""
        return np.array([rounded_sum(row) for row in terms]) if self.rows.weighted else terms.sum(axis=1)


class Bend:
    """The sums of a chunk that ``Sums`` has with a ramp, in plain float64, and the extremes of its features."""

    def __init__(self, features: int, ramp: float) -> None:
        self._ramp = ramp
        self._turn, self._curve = np.zeros((2, features + 1)), np.zeros((2, features + 1, features + 1))
        self._low, self._high = np.full(features, np.inf), np.full(features, -np.inf)

    def add(self, x: Any, s: np.ndarray, h: np.ndarray) -> None:
        """Rows (n, d), dense or sparse, their weights by class (2, n) and h (n,)."""
        self._low, self._high = np.minimum(self._low, _column(x, "min")), np.maximum(self._high, _column(x, "max"))
        for k in range(2):
            some = np.flatnonzero((s[k] > 0) & (h > 0))
            rows, share = x[some], s[k][some] * np.minimum(1.0, h[some] / self._ramp)
            away, edge = share * (h[some] - 1.0), share @ rows
            weighed = rows.T.multiply(share) if sparse.issparse(rows) else rows.T * share
            product = weighed @ rows
            self._curve[k, :-1, :-1] += product.toarray() if sparse.issparse(product) else product
            self._curve[k, -1, :-1] += edge
            self._curve[k, :-1, -1] += edge
            self._curve[k, -1, -1] += share.sum()
            self._turn[k] += np.append(away @ rows, away.sum())

    def beside(self, parts: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """With these sums beside others; the extremes."""
        return parts | {"turn": self._turn, "curve": self._curve}, self._low, self._high


def _column(x: Any, name: str) -> np.ndarray:
    """The least or the largest of each column (d,)."""
    found = getattr(x, name)(axis=0)
    return np.asarray(found.toarray() if sparse.issparse(found) else found).ravel()


def _near_margin(
    x: Any, signs: np.ndarray, lengths: np.ndarray | None, near_margin: np.ndarray
) -> dict[str, np.ndarray]:
    """The near-margin rows' part of the dual vector; rows without label have none."""
    weights = np.where(signs != 0, near_margin, 0.0)
    return {"near_dual_sum": (weights * signs) @ x, **_sizes(np.abs(weights), x, lengths, "near_")}


def _sizes(weights: np.ndarray, x: Any, lengths: np.ndarray | None, kind: str) -> dict[str, np.ndarray]:
    """What the sums' errors are shares of: feature by feature, or by the rows' lengths where they are given."""
    if lengths is None:
        return {f"{kind}spread": np.asarray(weights @ abs(x))}
    return {f"{kind}reach": np.asarray(weights @ lengths)}


def margins_within(
    x: Any, signs: np.ndarray, lengths: np.ndarray, w: np.ndarray, b: float
) -> tuple[np.ndarray, np.ndarray]:
    """y (w.x + b) (n,) and a bound on the error of 1 - y (w.x + b)."""
    d, sizes = len(w), lengths * length(w)
    if float(sizes.max()) > _LONG:
        sizes = np.minimum(sizes, abs(x) @ np.abs(w) * (1 + gamma(d + 3)))
    error = gamma(d + 3) * (sizes + abs(b) + 1.0) + (d + 4) * TINY
    return signs * (x @ w + b), error
