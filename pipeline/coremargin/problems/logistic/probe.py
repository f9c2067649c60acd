"""The worker's part of a scan for the logistic loss: plain functions on the arrays of a block.

With m = y (w.x + b) and c the weight of a row, the loss is c log(1 + exp(-m)). Its slope gives the row the dual weight
a = c q, q = 1 / (1 + exp(m)), and its curvature is h = c q (1 - q). All sums are made in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.maths.rows import Rows, curvature, products, take, weighted_sums
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LogisticSummary:
    """Sums over the rows of some blocks; of pairs, index 0 is the positive class, 1 the negative; z = (x, 1).

    losses (k,): the loss at k points of the segment from the best hypothesis to the newest, the newest first.
    At the newest: duals (2,) sum a, entropy (2,) sum c H(q) with H(q) = -q log q - (1 - q) log(1 - q), vectors (2, d)
    sum a x, curve (d + 1, d + 1) sum h z z^T, wrong (1,) the rows with a margin of 0 or less.
    Of the dual point that belongs to the base and the move from it: moved_duals, moved_entropy (2,),
    moved_vectors (2, d). spread (d,): sum (a + moved a) |x|, which errors of these sums are shares of.
    """

    losses: Array
    duals: Array
    entropy: Array
    vectors: Array
    curve: Array
    wrong: NDArray[np.int64]
    moved_duals: Array
    moved_entropy: Array
    moved_vectors: Array
    spread: Array

    @classmethod
    def nothing(cls, points: int, features: int) -> LogisticSummary:
        """The identity of ``merge``."""
        pair, pairs = np.zeros(2), np.zeros((2, features))
        return cls(
            losses=np.zeros(points),
            duals=pair,
            entropy=pair,
            vectors=pairs,
            curve=np.zeros((features + 1, features + 1)),
            wrong=np.zeros(1, np.int64),
            moved_duals=pair,
            moved_entropy=pair,
            moved_vectors=pairs,
            spread=np.zeros(features),
        )

    def merge(self, later: LogisticSummary) -> LogisticSummary:
        """The sums over these blocks and later ones."""
        return LogisticSummary(**{f.name: getattr(self, f.name) + getattr(later, f.name) for f in fields(self)})

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)


@dataclass(frozen=True)
class LogisticProbe:
    """The probe of a scan.

    newest, best (d + 1,): hypotheses (w, b); points (k,): points of the segment from the best (0) to the newest (1) at
    which the loss is summed up, 1 first. base, move (d + 1,): a dual point, see ``moved_shares``; a move of zeros:
    none. codes: label codes of the positive and the negative class; class_c (2,): c of their rows of weight 1.
    """

    newest: Array
    best: Array
    base: Array
    move: Array
    points: Array
    codes: tuple[int, int]
    class_c: Array

    def narrow(self, block: Block) -> LogisticProbe:
        """The same probe."""
        return self

    def empty(self) -> LogisticSummary:
        """The summary of no rows."""
        return LogisticSummary.nothing(len(self.points), len(self.newest) - 1)

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> LogisticSummary:
        """A summary from a checkpoint."""
        return LogisticSummary(**state_from_arrays(LogisticSummary, arrays, {}))

    def __call__(self, source: Source, block: Block) -> LogisticSummary:
        """The summary of one block, chunk by chunk."""
        answer = self.empty()
        for chunk in block.chunks:
            for part in parts_of(source, chunk):
                signs = (part.codes == self.codes[0]).astype(np.int8) - (part.codes == self.codes[1])
                row_c = np.where(signs > 0, self.class_c[0], self.class_c[1])
                if part.weights is not None:
                    row_c = row_c * part.weights
                counted = np.flatnonzero((signs != 0) & (row_c > 0))
                rows = part.rows if len(counted) == len(signs) else take(part.rows, counted)
                answer = answer.merge(self._sums(rows, signs[counted], row_c[counted]))
        return answer

    def _sums(self, rows: Rows, signs: NDArray[np.int8], row_c: Array) -> LogisticSummary:
        asked = [self.newest, self.best, self.base, self.move][: 4 if self.move.any() else 2]
        newest, best, *dual_point = margins_of(rows, signs, np.column_stack(asked))
        q, other = shares(newest)
        duals = row_c * q
        entropy = row_c * (q * loss(-newest) + other * loss(newest))
        losses = [row_c @ loss(newest if t == 1 else t * newest + (1.0 - t) * best) for t in self.points]
        moved, moved_entropy = np.zeros((2, len(q)))
        if dual_point:
            p = moved_shares(*dual_point)
            moved, moved_entropy = row_c * p, row_c * entropy_of(p)
        pair = np.stack([signs > 0, signs < 0]).astype(np.float64)
        columns = np.concatenate([pair * duals, pair * moved])
        vectors = weighted_sums(rows, columns.T)
        return LogisticSummary(
            losses=np.array(losses),
            duals=pair @ duals,
            entropy=pair @ entropy,
            vectors=vectors[:2],
            curve=curve_of(rows, duals * other),
            wrong=np.array([np.count_nonzero(newest <= 0)]),
            moved_duals=pair @ moved,
            moved_entropy=pair @ moved_entropy,
            moved_vectors=vectors[2:],
            spread=weighted_sums(abs(rows), (duals + moved)[:, None])[0],
        )


def margins_of(rows: Rows, signs: NDArray[np.int8], hypotheses: Array) -> Array:
    """y (w.x + b) (k, n) of rows (n, d) for hypotheses (d + 1, k)."""
    return np.asarray((products(rows, hypotheses[:-1]) + hypotheses[-1][:, None]) * signs)


def loss(margins: Array) -> Array:
    """log(1 + exp(-m)), for margins of any size."""
    return np.asarray(np.maximum(-margins, 0.0) + np.log1p(np.exp(-np.abs(margins))))


def shares(margins: Array) -> tuple[Array, Array]:
    """q = 1 / (1 + exp(m)) and 1 - q, both to a few units in the last place."""
    small = np.exp(-np.abs(margins))
    less, more = small / (1.0 + small), 1.0 / (1.0 + small)
    return np.where(margins >= 0, less, more), np.where(margins >= 0, more, less)


def moved_shares(margins: Array, move: Array) -> Array:
    """Dual weights as shares of c: q - q (1 - q) t, within 0 and 1, with t = y (dw.x + db) for the move (dw, db).

    To first order these are the shares at the hypothesis after the move; unlike those, their sums are known before.
    """
    q, other = shares(margins)
    return np.clip(np.nan_to_num(q * (1.0 - other * move), nan=0.0), 0.0, 1.0)


def entropy_of(p: Array) -> Array:
    """-p log p - (1 - p) log(1 - p) of shares from 0 to 1."""
    first = -p * np.log(np.maximum(p, np.finfo(np.float64).tiny))
    return np.asarray(first - (1.0 - p) * np.log1p(-np.minimum(p, 1.0 - 2.0**-53)))


def curve_of(rows: Rows, weights: Array) -> Array:
    """sum_i weight_i z_i z_i^T (d + 1, d + 1) of rows (n, d), z = (x, 1)."""
    d = rows.shape[1]
    curve = np.empty((d + 1, d + 1))
    curve[:d, :d] = curvature(rows, weights)
    curve[:d, d] = curve[d, :d] = weighted_sums(rows, weights[:, None])[0]
    curve[d, d] = weights.sum()
    return curve
