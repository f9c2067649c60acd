"""The smallest ball around all rows of a store, whatever their labels; rows of weight 0 do not count.

For weights b >= 0 of some rows, sum b = 1, and any point q, no ball around these rows has a smaller radius than

    lower = sqrt(sum_i b_i ||x_i - q||^2 - ||sum_i b_i (x_i - q)||^2).

The driver solves a few rows exactly, which gives b and the centre q = sum b x. A scan finds the rows that are farthest
from the centre: the farthest one gives the upper bound, and those outside of the ball join the rows to solve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.engine.problem import BaseProblem, CannotWarmStart, Round
from coremargin.engine.protocols import Block
from coremargin.errors import StoreError
from coremargin.maths.margin import gamma, is_certified
from coremargin.maths.rows import dense
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.engine.allowance import Allowance

Array = NDArray[np.float64]
STATUSES = ("running", "certified", "stalled")
#: Rows that each chunk sends.
SENT = 10


def smallest_ball(rows: Array) -> Array:
    """Dual weights (m,) of the smallest ball around rows (m, d): those of its centre, which sum to 1.

    An active set: the ball through the support that is centred in its affine hull, until no row is outside. Rows that
    would get a negative weight leave the support. The farthest row joins it or, if it lies in the affine hull, takes
    the place of the first row whose weight vanishes while its own grows and the centre stays.
    """
    weights = np.zeros(len(rows))
    support = [int(np.linalg.norm(rows - rows[0], axis=1).argmax())]
    weights[support] = 1.0
    for _ in range(50 * (sum(rows.shape) + 1)):
        may_stop()
        while True:
            differences = rows[support[1:]] - rows[support[0]]
            centre = np.linalg.lstsq(differences, np.square(differences).sum(axis=1) / 2, rcond=None)[0]
            target, now = _affine(differences, centre), weights[support]
            if target.min() >= 0 or len(support) == 1:
                break
            share = np.where(target < 0, now / np.maximum(now - target, 1e-300), np.inf)
            first = int(share.argmin())
            weights[support] = np.maximum(now + min(1.0, share[first]) * (target - now), 0)
            weights[support.pop(first)] = 0.0
        weights[support] = target
        distances = np.linalg.norm(rows - weights @ rows, axis=1)
        farthest = int(distances.argmax())
        if farthest in support or distances[farthest] <= distances[support].max() * (1 + 1e-14):
            break
        shares = _affine(differences, rows[farthest] - rows[support[0]])
        if np.linalg.norm(shares @ rows[support] - rows[farthest]) > 1e-10 * distances[farthest]:
            support.append(farthest)
            continue
        steps = np.where(shares > 0, target / np.maximum(shares, 1e-300), np.inf)
        first = int(steps.argmin())
        weights[support] = np.maximum(target - steps[first] * shares, 0)
        weights[support[first]], weights[farthest], support[first] = 0.0, steps[first], farthest
    return weights / weights.sum()


def _affine(differences: Array, point: Array) -> Array:
    """Coefficients (k + 1,) that sum to 1 of a point (d,), from the first of k + 1 rows, by differences (k, d)."""
    others = np.linalg.lstsq(differences.T, point, rcond=None)[0]
    return np.array([1 - others.sum(), *others])


@dataclass(frozen=True)
class FarthestRows:
    """The farthest rows of some chunks: ids (m,), rows (m, d), distances (m,) from the centre."""

    ids: NDArray[np.int64]
    rows: Array
    distances: Array

    def merge(self, later: FarthestRows) -> FarthestRows:
        """Those of these chunks and of later ones."""
        return FarthestRows(*(np.concatenate(pair) for pair in zip(*map(_fields, (self, later)), strict=True)))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self)


def _fields(found: FarthestRows) -> tuple[NDArray[Any], ...]:
    return found.ids, found.rows, found.distances


@dataclass(frozen=True)
class BallProbe:
    """Which rows are farthest from a centre (d,)?"""

    centre: Array

    def narrow(self, block: Block) -> BallProbe:
        """The same for all blocks."""
        return self

    def __call__(self, source: Source, block: Block) -> FarthestRows:
        """The farthest rows of each chunk of a block."""
        found = self.empty()
        for chunk in block.chunks:
            rows, weights = dense(source.read(chunk)[0]), source.weights(chunk)
            counted = np.arange(len(rows)) if weights is None else np.flatnonzero(weights > 0)
            distances = np.linalg.norm(rows[counted] - self.centre, axis=1)
            far = np.argsort(-distances, kind="stable")[:SENT]
            found = found.merge(FarthestRows(source.span(chunk)[0] + counted[far], rows[counted[far]], distances[far]))
        return found

    def empty(self) -> FarthestRows:
        """No rows."""
        return FarthestRows(np.zeros(0, np.int64), np.zeros((0, len(self.centre))), np.zeros(0))

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> FarthestRows:
        """Inverse of ``FarthestRows.to_arrays``."""
        return FarthestRows(**state_from_arrays(FarthestRows, arrays, {}))


@dataclass(frozen=True)
class BallState:
    """ids (m,), rows (m, d), weights (m,): the working set; centre (d,): that of the next scan; best: of ``upper``.

    known_chunks: so many chunks need not be read by the next scan, which an earlier one has read with the same centre;
    known_upper: no row of them is farther away.
    """

    round: int
    status: str
    ids: NDArray[np.int64]
    rows: Array
    weights: Array
    centre: Array
    best: Array
    lower: float
    upper: float
    known_chunks: int = 0
    known_upper: float = 0.0
    new_rows: int = 0
    sample_bytes: int = 0

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For checkpoints."""
        return state_to_arrays(self, STATUSES)


@dataclass(frozen=True)
class EnclosingBall(BaseProblem[BallState, FarthestRows]):
    """The smallest ball, to a share 1 - epsilon of its radius."""

    epsilon: float

    @property
    def sample_chunks(self) -> list[int]:
        """The first one."""
        return [0]

    def check(self) -> None:
        """Refuse a store without rows, and rows whose squares overflow. Raises StoreError, BadRow."""
        if self.source.rows == 0:
            raise StoreError(f"{self.source.name}: expected rows, found an empty store; ingest some first")
        check_scale(self.source)

    def unsolved(self) -> BallState:
        """No row is known; the first scan is around the origin."""
        nothing = BallProbe(np.zeros(self.source.features)).empty()
        origin = np.zeros(self.source.features)
        return BallState(0, "running", nothing.ids, nothing.rows, nothing.distances, origin, origin, 0.0, np.inf)

    def start(self) -> BallState:
        """The ball around the outermost rows of the first chunk."""
        state, first = self.unsolved(), Block(0, (0,))
        read = self.source.nbytes // self.source.chunks
        return replace(self._solve(state, BallProbe(state.centre)(self.source, first)), sample_bytes=read)

    def probe(self, state: BallState) -> BallProbe:
        """Rows far from the newest centre."""
        return BallProbe(state.centre)

    def skip(self, state: BallState) -> NDArray[np.bool_]:
        """Chunks whose rows are known to be near enough."""
        return np.arange(self.source.chunks) < state.known_chunks

    def update(self, state: BallState, summary: FarthestRows) -> BallState:
        """The upper bound, and the ball around the rows of before and those outside."""
        room = 1 + 4 * gamma(self.source.features + 16)
        upper = max(float(summary.distances.max(initial=0.0)) * room, state.known_upper)
        state = replace(state, round=state.round + 1, known_chunks=0, known_upper=0.0)
        if upper < state.upper:
            state = replace(state, upper=upper, best=state.centre)
        state = self._certified(state)
        return self._solve(state, summary) if state.status == "running" else state

    def _certified(self, state: BallState) -> BallState:
        certified = is_certified(state.lower, state.upper, self.epsilon)
        return replace(state, status="certified") if certified else state

    def _solve(self, state: BallState, sent: FarthestRows) -> BallState:
        """The ball around the support and the rows sent, and the lower bound that its weights prove."""
        new = ~np.isin(sent.ids, state.ids)
        if not new.any():
            return replace(state, status="stalled")
        support = state.weights > 0
        ids, rows = (
            np.concatenate(pair)
            for pair in ((state.ids[support], sent.ids[new]), (state.rows[support], sent.rows[new]))
        )
        weights = smallest_ball(rows)
        centre = weights @ rows
        off = rows - centre
        square = float(weights @ np.square(off).sum(axis=1) - np.square(weights @ off).sum())
        lower = np.sqrt(max(0.0, square)) * (1 - 4 * gamma(len(rows) + self.source.features + 16))
        state = replace(state, ids=ids, rows=rows, weights=weights, centre=centre, new_rows=int(new.sum()))
        return self._certified(replace(state, lower=max(state.lower, float(lower))))

    def round_of(self, state: BallState) -> Round:
        """The report of a round."""
        return Round(
            number=state.round,
            status=state.status,
            lower=state.lower,
            lower_now=state.lower,
            upper=state.upper,
            pool_rows=len(state.ids),
            coreset_rows=int(np.count_nonzero(state.weights)),
            new_rows=state.new_rows,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> BallState:
        """A state from a checkpoint."""
        return BallState(**state_from_arrays(BallState, arrays, {}, STATUSES))

    def warm_start_state(self, state: BallState, allowance: Allowance) -> Mapping[str, Any]:
        """All of the state."""
        return state.to_arrays()

    def warm_start(self, arrays: Mapping[str, Any], difference: Difference) -> BallState:
        """With appended rows, the proven centre is scanned on their chunks only."""
        old = self.restore(arrays)
        if not np.array_equal(difference.weights_before > 0, difference.weights_after > 0):
            raise CannotWarmStart("rows were removed or returned")
        known = difference.before // self.source.chunk_rows
        state = replace(old, round=0, status="running", centre=old.best, new_rows=0, sample_bytes=difference.nbytes)
        return replace(state, upper=np.inf, known_chunks=known, known_upper=old.upper)
