"""A logistic loss: the value of the hypothesis, and the bound of its dual point, both sums over all rows.

    f(w, b) = 1/2 ||w||^2 + sum_i c_i log(1 + exp(-m_i)),    m_i = y_i (w.x_i + b)

c_i is C times the weights of the row and its class. For shares 0 <= q_i <= 1, with a_i = c_i q_i and, with a free
intercept, sum_i a_i y_i = 0, no hypothesis has a value below

    sum_i c_i H(q_i) - 1/2 ||sum_i a_i y_i x_i||^2,    H(q) = -q log q - (1 - q) log(1 - q)

(Lagrange; Jaakkola and Haussler 1999).

Value. Margins and their error are those of soft_margin.py: the loss at m - error is summed. Its terms, max(-m, 0)
and log1p(exp(-|m|)), are not negative and overflow nowhere. glibc documents errors of exp, log and log1p of at most 1
unit in the last place, Intel's SVML, which NumPy takes on AVX-512, of at most 4; here each is trusted to 16
(ELEMENTARY). As z / (1 + z) <= log(1 + z), a relative error of the exponential is none larger of the loss. What exp
loses by underflow is below TINY.

Dual. The model stores a hypothesis v and a move p; with m = y z.v, t = y z.p and z = (x, 1), the share of a row is

    s = 1 / (1 + exp(m)),    q = s - s (1 - s) t, clipped to [0, 1]

in float64. Whatever number results, NaN counting as 0, is a share: it needs no error bound, only H of that very number
does, which consists of two terms that are not negative. Then the sums of both classes are made equal: the class with
the larger one is scaled down by r, and H(r q) >= r H(q), as H is concave and 0 at 0. Sums are off by ``error`` of their
terms' sizes, and r by twice that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import Check, same_two_classes
from coremargin.verify.claim import Claim, two_classes
from coremargin.verify.kind import Kind
from coremargin.verify.soft_margin import (
    class_costs,
    class_costs_check,
    margins_within,
    training_errors_check,
    value_consistency,
)
from coremargin.verify.store import Members, StoreScan
from coremargin.verify.sums import SLAB_ROWS, TINY, UNIT, Total, gamma, length, rounded_sum, slabs
from coremargin.verify.values import value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.formats.logistic import Logistic
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows

_FEW = 16 * UNIT  # error of a handful of operations
#: Relative error of a logarithm or an exponential: 16 units in the last place, of 2 UNIT each.
ELEMENTARY = 32 * UNIT
#: A loss below this is that of a row on its own side: log 2 is the loss at the hyperplane.
SIDE = math.log(2.0) * (1 - 4 * ELEMENTARY)


@dataclass(frozen=True, kw_only=True)
class LogisticClaim(Claim):
    """The claim of a model of two classes with the logistic loss; reference, move (d + 1,): define the dual point."""

    cost: float  #: C
    class_weight: str | tuple[float, float] | None  #: "balanced", or factors of C of the negative and positive class
    reference: np.ndarray
    move: np.ndarray


@dataclass(frozen=True)
class LogisticSummary:
    """The summary of one chunk; sums: as in ``LogisticScan``."""

    sums: dict[str, np.ndarray]
    unlabelled: int
    radius: float
    members: Members


class LogisticScan(StoreScan):
    """The scan for the value of a hypothesis and of a dual point, and what it proves.

    ``sums`` are over all rows; of pairs index 0 is the positive class and 1 the negative; s is a row's weight, 1 if the
    store has none. rows: their number; wrong: of those that may be on the wrong side; count: sum s; loss: of upper
    bounds of the losses; shares: sum s q; entropy: sum s H(q); vectors (2, d): sum s q x; spread (2, d): sum s q |x|.
    """

    claim: LogisticClaim

    def __init__(self, claim: LogisticClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        wide = {"vectors": (2, claim.features), "spread": (2, claim.features)}
        names = ("rows", "wrong", "count", "loss", "shares", "entropy", *wide)
        self.sums = {name: Total(wide.get(name, (2,))) for name in names}
        self._size = length(claim.w) * (1 + gamma(8))
        #: Error of every sum over rows, relative to the sizes of its terms.
        self.error = gamma(min(SLAB_ROWS, rows.chunk_rows) + 16) + 2 * ELEMENTARY

    def probe(self, chunk: Chunk) -> LogisticSummary:
        """The summary of a chunk, in slabs of float64."""
        signs = self.signs(chunk)
        weights = np.ones(len(signs)) if chunk.weights is None else chunk.weights
        totals = {name: Total(total.high.shape) for name, total in self.sums.items()}
        radius = 0.0
        for part, x in slabs(chunk.x, SLAB_ROWS):
            lengths = self.lengths(x, chunk.start + part.start)
            radius = max(radius, float(lengths.max()))
            y = signs[part]
            s = np.where([y > 0, y < 0], weights[part], 0.0)
            q, losses = self._shares(x, y, lengths), self._losses(x, y, lengths)
            found = {
                "rows": np.array([(y > 0).sum(), (y < 0).sum()], dtype=np.float64),
                "wrong": ((s > 0) & ~(losses < SIDE)).sum(axis=1, dtype=np.float64),
                "count": np.array([rounded_sum(row) for row in s]),
                "loss": s @ losses,
                "shares": s @ q,
                "entropy": s @ entropy(q),
                "vectors": (s * q) @ x,
                "spread": (s * q) @ abs(x),
            }
            for name, values in found.items():
                totals[name].add(values)
        sums = {name: total.value for name, total in totals.items()}
        return LogisticSummary(sums, int((signs == 0).sum()), radius, self.members(chunk, signs))

    def _losses(self, x: Any, signs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Upper bounds (n,) of the losses, up to a relative error of twice ELEMENTARY."""
        margins, error = margins_within(x, signs, lengths, self.claim.w, self.claim.b)
        least = margins - error - self.claim.moved * self._size
        return np.asarray(np.maximum(-least, 0.0) + np.log1p(np.exp(-np.abs(least))) + TINY)

    def _shares(self, x: Any, signs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """q (n,)."""
        v, p = self.claim.reference, self.claim.move
        margins, turns = (signs * (x @ at[:-1] + at[-1]) for at in (v, p))
        small = np.exp(-np.abs(margins))
        less, more = small / (1.0 + small), 1.0 / (1.0 + small)
        q, other = np.where(margins >= 0, less, more), np.where(margins >= 0, more, less)
        return np.asarray(np.clip(np.nan_to_num(q * (1.0 - other * turns), nan=0.0), 0.0, 1.0))

    def add(self, summary: LogisticSummary) -> None:
        """Add a summary, in the order of chunks."""
        self.count(summary.unlabelled, summary.radius, summary.members)
        for name, values in summary.sums.items():
            self.sums[name].add(values)

    def class_c(self) -> np.ndarray:
        """c (2,) of rows of weight 1 of the positive and the negative class; known after the scan."""
        return class_costs(self.claim, self.sums["count"].value)

    def bounds(self) -> tuple[float, float]:
        """The dual bound, rounded down, and the value of the hypothesis, rounded up."""
        c, size, error = self.class_c(), length(self.claim.w), self.error + _FEW
        value = (0.5 * size * size + float(c @ self.sums["loss"].value)) * (1 + error)
        dual = self._dual(c, error)
        return (dual if dual > 0 else 0.0), (value if math.isfinite(value) else math.inf)  # no weights at all prove 0

    def _dual(self, c: np.ndarray, error: float) -> float:
        sums, scale = c * self.sums["shares"].value, np.ones(2)
        if self.claim.intercept:
            if not (sums > 0).all():
                return 0.0
            scale = sums.min() / sums
        c = c * scale
        vector = c[0] * self.sums["vectors"].value[0] - c[1] * self.sums["vectors"].value[1]
        spread = 4.0 * error * length(c @ self.sums["spread"].value) + self.claim.moved * float(scale @ sums)
        longest = (length(vector) + spread * (1 + 4.0 * error)) * (1 + _FEW)
        return float(c @ self.sums["entropy"].value) * (1 - 4.0 * error) - 0.5 * longest * longest * (1 + _FEW)

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        claim, (dual, value) = self.claim, self.bounds()
        rows, count = self.sums["rows"].value, self.sums["count"].value
        return [
            self.content(),
            class_costs_check(claim, "logistic", self.class_c(), rows, count, " its weight times" * self.rows.weighted),
            value_reached(claim, value, self.counted),
            value_bounded(claim, dual),
            training_errors_check(claim, self.sums["wrong"].value, rows, weighted=self.rows.weighted),
        ]


def entropy(q: np.ndarray) -> np.ndarray:
    """-q log q - (1 - q) log(1 - q) of shares (n,), to twice ELEMENTARY; 0 where q or 1 - q vanishes."""
    inner = np.clip(q, np.finfo(np.float64).tiny, 1.0 - UNIT)
    return np.asarray(np.where(q == inner, -inner * np.log(inner) - (1.0 - inner) * np.log1p(-inner), 0.0))


class LogisticKind(Kind[LogisticClaim]):
    """The claims of a logistic loss."""

    def claim(self, files: ModelFiles) -> LogisticClaim:
        """A hyperplane, C for each class, and a dual point."""
        parameters = cast("Logistic", files.record).parameters
        return LogisticClaim(
            **two_classes(files, WHOLE, soft=True),
            cost=float(parameters.C),
            class_weight=parameters.class_weight,
            reference=files.arrays["reference"],
            move=files.arrays["move"],
        )

    def same_classes(self, claim: LogisticClaim, rows: Rows) -> Check:
        """Two."""
        return same_two_classes(claim, rows)

    def consistency(self, claim: LogisticClaim) -> list[Check]:
        """Intercept, epsilon, ratio, status."""
        return value_consistency(claim)

    def scan(self, claim: LogisticClaim, rows: Rows) -> LogisticScan:
        """The loss of each row, and its share of the dual point."""
        return LogisticScan(claim, rows)


KIND = LogisticKind()
