"""A soft ball: the value of its centre and radius, and the bound of its dual point, both sums over all rows.

    P(c, r) = r + sum_i C_i (||x_i - c||^2 - r)_+,    C_i = s_i / (nu sum_j s_j),    s_i the weight of a row

For 0 <= a_i <= C_i with sum_i a_i = 1, and any point p (here the centre), no c and r have a value below

    D = sum_i a_i ||x_i - p||^2 - ||v||^2,    v = sum_i a_i (x_i - p)

(Lagrange; D is the same number for all p). Both are sums over the rows that count, made by one scan.

Squares. Differences x - c have a relative error of one rounding, so that their squared length q is off by at most
gamma_(d+4) q. Of sparse rows q is ||x||^2 - 2 x.c + ||c||^2, off by at most 2 gamma_(d+8) (||x|| + ||c||)^2. What a
square may be off by counts against the claim, row by row, and so does what underflows.

Dual. A row that the model does not name has the weight C_i if, in float64, it is outside of the sphere of its chunk,
which has the square of its radius, the threshold, around a reference; else 0. Others have the weight that the model
names, cut to [0, C_i]. Whatever numbers result are weights in their boxes, but for their sum t. If t > 1 they are
divided by it. If t < 1, other weights are raised to make up for
m = 1 - t, for which there is room as sum_i C_i = 1 / nu > 1. With w = sum of the raises times x - p, those raise the
first sum by at least ||w||^2 / m (Jensen) and change the second to -||v + w||^2: for the worst w, D is

    sum_i a_i ||x_i - p||^2 - ||v||^2 / (1 - m).

Maps. Roots of P's minimum over r and of D are root mean squares of distances from points, largest or at given weights:
rows that move by at most e change them by at most e.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.sparse import issparse

from coremargin.verify.ball import BallClaim, ball_fields
from coremargin.verify.checks import CLOSE, Check, same_epsilon, same_ratio, shown
from coremargin.verify.kind import Kind
from coremargin.verify.one_class import ScanOfOneClass, describe_class, same_class
from coremargin.verify.sums import LOST, SLAB_ROWS, TINY, UNIT, Total, gamma, length, rounded_sum, slabs
from coremargin.verify.values import status, value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.soft_ball import SoftBallParameters
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.store import Members

_FEW = 16 * UNIT  # error of a handful of operations
_SMALL = 1e-270  # of larger squares of numbers, what underflows is no share


@dataclass(frozen=True, kw_only=True)
class SoftBallClaim(BallClaim):
    """A ball, and what gives all rows their dual weights: alpha (m,) those of ``ids``, others follow from a sphere."""

    nu: float
    square: float  #: r
    reference: np.ndarray  #: (s, d) the centres of spheres
    threshold: np.ndarray  #: (s,) the squares of their radii
    reference_of: np.ndarray  #: (chunks,) int64: the sphere of each chunk; (0,): all have the first


class Sums:
    """Sums over the rows that count; s is a row's weight, a its dual weight.

    weight: sum s; outside: of rows beyond the radius by more than rounding; beyond: sum s (q - r)_+, q rounded up. Of
    rows that the model does not name, with h = s for those outside of the sphere of their chunk and 0 inside: mass: sum
    h; squares: sum h q, q rounded down; pull (d,): sum h (x - c); spread: sum h ||x - c||, or the lengths that the
    difference is made of. named_mass and so on: the same with a, of the others.
    """

    NAMES = (
        "weight",
        "outside",
        "beyond",
        *(of + name for of in ("", "named_") for name in ("mass", "squares", "spread", "pull")),
    )

    def __init__(self, features: int) -> None:
        shapes = {"pull": (features,), "named_pull": (features,)}
        self._totals = {name: Total(shapes.get(name, ())) for name in self.NAMES}

    def add(self, values: dict[str, Any]) -> None:
        """Add to some of the sums, by name."""
        for name, value in values.items():
            self._totals[name].add(np.asarray(value))

    def values(self) -> dict[str, np.ndarray]:
        """All sums by name."""
        return {name: total.value for name, total in self._totals.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._totals[name].value


@dataclass(frozen=True)
class SoftBallSummary:
    """The summary of one chunk."""

    sums: dict[str, np.ndarray]
    weights: np.ndarray  #: of the coreset's rows, in the order of ``members``
    outside: int  #: rows farther from the centre than the radius, by more than rounding
    others: int  #: rows that do not count
    radius: float
    members: Members


class SoftBallScan(ScanOfOneClass):
    """The scan for the value of a ball and of a dual point, and what it proves."""

    claim: SoftBallClaim

    def __init__(self, claim: SoftBallClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.sums, self.outside = Sums(claim.features), 0
        self.weights = np.ones(len(claim.ids))
        #: Error of every sum over rows, relative to the sizes of its terms.
        self.error = gamma(min(SLAB_ROWS, rows.chunk_rows) + 16)

    def probe(self, chunk: Chunk) -> SoftBallSummary:
        """The summary of a chunk, in slabs of float64."""
        claim, signs = self.claim, self.signs(chunk)
        members = self.members(chunk, signs)
        local = claim.ids[members.places] - chunk.start
        named, alpha = np.zeros(len(signs), bool), np.zeros(len(signs))
        named[local], alpha[local] = True, claim.alpha[members.places]
        weights = np.ones(len(signs)) if chunk.weights is None else chunk.weights
        sums, outside, radius = Sums(claim.features), 0, 0.0
        place, spheres = chunk.start // self.rows.chunk_rows, claim.reference_of
        # Any sphere gives a dual point; ``checks`` rejects a wrong number of them.
        sphere = int(spheres[place]) if place < len(spheres) else 0
        reference, threshold = claim.reference[sphere], float(claim.threshold[sphere])
        same = np.array_equal(reference, claim.centre)
        for part, x in slabs(chunk.x, SLAB_ROWS):
            lengths = self.lengths(x, chunk.start + part.start)
            radius = max(radius, float(lengths.max()))
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows proves nothing
                s = np.where(signs[part] > 0, weights[part], 0.0)
                off, squares, error = squares_within(x, lengths, claim.centre)
                most = squares + error
                if claim.moved:
                    most = most + claim.moved * (2.0 * np.sqrt(most) + claim.moved)
                sums.add({"weight": rounded_sum(s), "beyond": s @ np.maximum(most - claim.square, 0.0)})
                far = (squares - error > claim.square) & (s > 0)
                outside += int(np.count_nonzero(far))
                sums.add({"outside": rounded_sum(s[far])})
                side = squares if same else squares_within(x, lengths, reference)[1]
                h = np.where(named[part] | ~(side > threshold), 0.0, s)
                least = np.maximum(squares - error, 0.0)
                spread = np.sqrt(squares + error) + issparse(x) * (lengths + length(claim.centre))
                for prefix, a in (("", h), ("named_", np.where(s > 0, alpha[part], 0.0))):
                    if prefix and not named[part].any():
                        continue
                    pull = a @ off - issparse(x) * float(a.sum()) * claim.centre
                    values = {"mass": rounded_sum(a), "squares": a @ least, "spread": a @ spread, "pull": pull}
                    sums.add({prefix + name: value for name, value in values.items()})
        others = int((signs <= 0).sum())
        return SoftBallSummary(sums.values(), weights[local], outside, others, radius, members)

    def add(self, summary: SoftBallSummary) -> None:
        """Add a summary, in the order of chunks."""
        self.count(summary.others, summary.radius, summary.members)
        self.weights[summary.members.places] = summary.weights
        self.outside += summary.outside
        self.sums.add(summary.sums)

    def box(self) -> float:
        """C of a row of weight 1; known after the scan. Infinite if no row counts."""
        total = self.claim.nu * float(self.sums["weight"])
        return 1.0 / total if total > 0 else math.inf

    def bounds(self) -> tuple[float, float]:
        """The dual bound, rounded down, and the value of the ball, rounded up."""
        error, box = self.error + _FEW, self.box()
        value = (self.claim.square + box * (float(self.sums["beyond"]) + self._underflow)) * (1 + error)
        dual = self._dual(box, error)
        return (dual if dual > 0 else 0.0), (value if math.isfinite(value) else math.inf)

    @property
    def _underflow(self) -> float:
        """What products of a weight and a square, one for each row, may lose by underflow."""
        return self.rows.rows * LOST

    def _over(self, box: float) -> float:
        """By which share a named weight exceeds its box, at most; infinite if a row without one has a weight.

        A box that underflows is none: what it is divided by decides about all other rows.
        """
        alpha, boxes = self.claim.alpha, box * self.weights
        shares = np.divide(alpha, boxes, where=boxes >= TINY, out=np.where(alpha > 0, np.inf, 0.0))
        return max(0.0, float(shares.max(initial=0.0)) - 1.0) + _FEW

    def _dual(self, box: float, error: float) -> float:
        over = self._over(box)
        if not over <= CLOSE or not math.isfinite(box):
            return 0.0
        total, squares, spread = (
            box * float(self.sums[name]) + float(self.sums[f"named_{name}"]) for name in ("mass", "squares", "spread")
        )
        lost = (1.0 + box) * self._underflow
        pull = length(box * self.sums["pull"] + self.sums["named_pull"]) * (1 + _FEW)
        pull += 4.0 * error * spread + math.sqrt(self.claim.features) * lost
        share = 1.0 / ((1 + over) * max(1.0, total))
        missing = max(0.0, 1.0 - total * share) + error * _FEW + _FEW
        if not missing < 0.5:
            return 0.0
        found = share * (squares * (1 - 2.0 * error) - lost) - (share * pull) ** 2 / (1 - missing) * (1 + _FEW)
        moved = self.claim.moved
        if moved and found > 0:
            found = max(0.0, math.sqrt(found) * (1 - _FEW) - moved) ** 2 * (1 - _FEW)
        return found

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        problems, claim, (dual, value) = self.membership(), self.claim, self.bounds()
        text = "; ".join(problems) or f"all {self.matched:,} rows that are named count in the store"
        found = [
            self.content(),
            Check("coreset", not problems, text),
            value_reached(claim, value, self.counted, "ball"),
        ]
        rows = self.rows.rows - self.unlabelled
        enough = rows > 0 and claim.nu >= 1 / rows
        if not enough:
            found.append(Check("nu", ok=False, text=f"model claims nu {claim.nu!r}, less than one of {rows:,} rows"))
        else:
            share = float(self.sums["outside"]) / float(self.sums["weight"])
            text = f"{self.outside:,} of {self.counted}, {share:.6g} of their weight; nu {claim.nu!r}"
            found.append(Check("outside", ok=True, text=f"beyond the radius by more than rounding: {text}"))
        chunks = len(claim.reference_of)
        if chunks not in (0, self.rows.chunks):
            text = f"spheres for {chunks:,} chunks, the store has {self.rows.chunks:,}: expected one for each"
            found.append(Check("dual weights", ok=False, text=text))
        elif claim.lower is not None:
            over = self._over(self.box())
            text = "named weights are from 0 to C times the weight of their row"
            if not over <= CLOSE:
                text = f"a named weight exceeds C times the weight of its row by {shown(over)} of it"
            found.append(Check("dual weights", over <= CLOSE, text))
        return [*found, value_bounded(claim, dual, "ball")]


def squares_within(x: Any, lengths: np.ndarray, point: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """Of rows x (n, d) with these lengths (n,): x - point, of sparse ones x; ||x - point||^2 (n,) and its error.

    Rows that equal the point have no error; of others near it squares may underflow.
    """
    d = len(point)
    if issparse(x):
        square = float(point @ point)
        found = np.maximum(np.asarray(x.multiply(x).sum(axis=1)).ravel() - 2.0 * (x @ point) + square, 0.0)
        return x, found, 2.0 * gamma(d + 8) * np.square(lengths + math.sqrt(square)) + d * TINY
    off = x - point
    found = np.einsum("ij,ij->i", off, off)
    error, small = gamma(d + 8) * found, np.flatnonzero(found < d * _SMALL)
    error[small] += d * TINY * off[small].any(axis=1)
    return off, found, error


class SoftBallKind(Kind[SoftBallClaim]):
    """The value of a ball outside of which a share nu of the rows may lie, and the dual weights of all rows."""

    def claim(self, files: ModelFiles) -> SoftBallClaim:
        """The ball, nu, and what gives all rows their dual weights."""
        arrays, parameters = files.arrays, cast("SoftBallParameters", files.record.parameters)
        return SoftBallClaim(
            **ball_fields(files, soft=True),
            nu=float(parameters.nu),
            square=float(arrays["square"][0]),
            reference=arrays["reference"],
            threshold=arrays["threshold"],
            reference_of=arrays.get("reference_of", np.zeros(0, np.int64)),
        )

    def same_classes(self, claim: SoftBallClaim, rows: Rows) -> Check:
        """Whether the store has the class whose rows count."""
        return same_class(claim, rows)

    def consistency(self, claim: SoftBallClaim) -> list[Check]:
        """Epsilon, ratio, status."""
        return [*same_epsilon(claim), *same_ratio(claim), status(claim)]

    def scan(self, claim: SoftBallClaim, rows: Rows) -> SoftBallScan:
        """The distances of each row."""
        return SoftBallScan(claim, rows)

    def terms(self, claim: SoftBallClaim) -> str:
        """Which rows count, and nu."""
        return f"{describe_class(claim)}, with nu {claim.nu:g}"

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the value."""
        return f"no ball has a value below (1 - {epsilon}) of this one's"


KIND = SoftBallKind()
