"""The first read of a soft ball, in stages: what is known of the rows of each, and what it proves about a later ball.

Each stage scans its chunks at the sphere that the stages before it gave. It sends the rows near to the sphere, the
*band*, and sums up those outside. When all stages are read, the sphere hardly moves any more.

**Far rows** are those that were not sent. They keep to the side of the sphere of their own stage: rows outside have the
dual weight C, rows inside 0. With the best weights of the band this is a dual point of all rows.

**What far rows can lose.** For a ball of centre c and square r let m(x) = ||x - c||^2 - r, so that the loss of a row is
C max(0, m). From the sphere of a stage to another one, with e = c' - c and k = e.e - (r' - r), it moves by

    s(x) = -2 y.e + k,    y = x - c,

which is linear in y: rings.py says what rows that crossed the sphere lose more than along their lines. A row that
crosses has ||y|| <= Y = ||e|| + sqrt(||e||^2 + r + |k|), however long others are, and so |s| <= M = 2 ||e|| Y + |k|.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.soft_ball import Outside, squares_to
from coremargin.problems.common.rings import crossing_loss
from coremargin.problems.common.sent import SentRows
from coremargin.problems.common.stages import share_of_move

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.common.stages import Stages
    from coremargin.problems.soft_ball.probe import SphereSummary

#: Edges of the rings, as multiples of the largest move that is expected of a row near to the sphere; rows nearer than
#: ZONE such moves are sent, if there is room.
RINGS, ZONE = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0]), 2.0
#: The expected move is multiplied by this (more with few features), and is at least this share of the one before.
SAFETY, LEAST = 1.5, 0.25
#: Rounding errors of bounds on moves.
ROUNDED = 1.0 + 1e-12


def largest_move(length: float, change: float, square: float) -> float:
    """M for a centre that moves by ``length`` and k = change, of a ball with this square; units of squares."""
    farthest = length + math.sqrt(length * length + square + abs(change))
    return (2.0 * length * farthest + abs(change)) * ROUNDED


@dataclass(frozen=True)
class Reading:
    """The stages that were read.

    stage: how many; stage_of (c,): that of each chunk. Of each stage: its sphere, centres (s, d) and squares (s,);
    edges (s, k + 1) of its rings; of its far rows mass (s,), pull (s, d), sums (s,), nearest (s,), rings
    (s, k, d + 1, d + 1) and inside (s, k), which are the fields of a ``SphereSummary`` (sums: its squares); total (s,):
    sum C of all its rows.
    Of all stages: band, the rows near to the spheres, boxes (m,) their C, by_side (m,) their weights if they were far,
    and clear (m,): whether rounding cannot decide on which side of the sphere of its stage a row is.
    length, change: expected move of the centre and of the square; seen: share of the mass behind the last sphere.
    """

    stage: int
    stage_of: NDArray[np.int64]
    centres: Array
    squares: Array
    edges: Array
    mass: Array
    pull: Array
    sums: Array
    nearest: Array
    rings: Array
    inside: Array
    total: Array
    band: SentRows
    boxes: Array
    by_side: Array
    clear: NDArray[np.bool_]
    length: float = 0.0
    change: float = 0.0
    seen: float = 0.0

    @classmethod
    def empty(cls, stages: Stages, features: int, dtype: np.dtype[Any]) -> Self:
        """No stage was read."""
        s, k, p = stages.count, len(RINGS) - 1, features + 1
        return cls(
            stage=0,
            stage_of=stages.stage_of_chunk,
            centres=np.zeros((s, features)),
            squares=np.zeros(s),
            edges=np.zeros((s, k + 1)),
            mass=np.zeros(s),
            pull=np.zeros((s, features)),
            sums=np.zeros(s),
            nearest=np.full(s, np.inf),
            rings=np.zeros((s, k, p, p)),
            inside=np.zeros((s, k)),
            total=np.zeros(s),
            band=SentRows.nothing(features, dtype, sparse=False),
            boxes=np.zeros(0),
            by_side=np.zeros(0),
            clear=np.zeros(0, bool),
        )

    @property
    def complete(self) -> bool:
        """Whether all stages were read."""
        return self.stage == len(self.squares)

    def expected_move(self, square: float) -> float:
        """M for the sphere of the next stage."""
        return largest_move(self.length, self.length * self.length + self.change, square)

    def recorded(self, centre: Array, square: float, edges: Array, found: SphereSummary, clear: float) -> Reading:
        """With the next stage, read at a sphere. clear: distance from it beyond which rounding does not decide."""
        values = {
            "centres": centre,
            "squares": square,
            "edges": edges,
            "mass": found.mass[0],
            "pull": found.pull,
            "sums": found.squares[0],
            "nearest": found.nearest[0],
            "rings": found.rings,
            "inside": found.inside,
            "total": found.total[0],
        }
        changed = {name: getattr(self, name).copy() for name in values}
        for name, value in values.items():
            changed[name][self.stage] = value
        squares = squares_to(found.sent.rows, centre)
        sides = np.where(squares > square, found.boxes, 0.0)
        return replace(
            self,
            **changed,
            stage=self.stage + 1,
            band=self.band.merge(found.sent),
            boxes=np.concatenate([self.boxes, found.boxes]),
            by_side=np.concatenate([self.by_side, sides]),
            clear=np.concatenate([self.clear, np.abs(squares - square) > clear]),
        )

    def with_forecast(self, before: tuple[Array, float], after: tuple[Array, float], seen: float) -> Reading:
        """With the move that is expected from ``after``, a ball of a share ``seen`` of the mass.

        before: that of ``self.seen``. Each is a centre and a square.
        """
        features = len(after[0])
        factor = SAFETY * (1.0 + math.sqrt(2.0 / features)) * math.sqrt(share_of_move(self.seen, seen))
        length = max(factor * float(np.linalg.norm(after[0] - before[0])), LEAST * self.length)
        change = max(factor * abs(after[1] - before[1]), LEAST * self.change)
        return replace(self, length=length, change=change, seen=seen)

    def outside(self, point: Array, factor: float) -> Outside:
        """The sums over the far rows outside of their spheres about a point (d,), with C multiplied by a factor."""
        mass, pull, squares = 0.0, np.zeros(len(point)), 0.0
        for stage in range(self.stage):
            e, own = point - self.centres[stage], float(self.mass[stage])
            mass += own
            pull += self.pull[stage] - own * e
            squares += float(self.sums[stage] - 2.0 * (e @ self.pull[stage]) + own * (e @ e))
        return Outside(factor * mass, factor * pull, factor * squares)

    def crossed(self, centre: Array, square: float, error: float, clear: float) -> tuple[float, float]:
        """Upper bounds on what far rows lose more than along their lines, and on the mass of those that come outside.

        error: of sums over rows, relative to their terms; clear: as in ``recorded``.
        """
        loss = mass = 0.0
        for stage in range(self.stage):
            e, change = centre - self.centres[stage], square - float(self.squares[stage])
            length, k = float(np.linalg.norm(e)), float(e @ e) - change
            most, edges = largest_move(length, k, float(self.squares[stage])), self.edges[stage]
            if not self.nearest[stage] < most + clear:
                continue
            total = float(self.total[stage])
            square_of = partial(_square, self.rings[stage], np.append(-2.0 * e, k), error)
            loss += crossing_loss(edges, float(self.nearest[stage]), most, total, square_of, clear)
            mass += total if most + clear > edges[-1] else float(self.inside[stage, edges[:-1] < most + clear].sum())
        return loss, mass

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        plain = {f"{name}_{f.name}": np.asarray(getattr(self, f.name)) for f in fields(self) if f.name != "band"}
        return plain | self.band.to_arrays(f"{name}_band")

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Self | None:
        """Inverse of ``to_arrays``; None if there is none."""
        if f"{name}_stage" not in arrays:
            return None
        plain: dict[str, Any] = {f.name: arrays[f"{name}_{f.name}"] for f in fields(cls) if f.name != "band"}
        plain = {part: value.item() if value.ndim == 0 else value for part, value in plain.items()}
        return cls(**plain, band=SentRows.from_arrays(f"{name}_band", arrays))


def _square(rings: Array, move: Array, error: float, ring: int) -> float:
    """Upper bound on sum C / t s^2 of a ring of a stage, s being (y, 1).move."""
    matrix = rings[ring]
    sizes = float(np.trace(matrix[:-1, :-1])) * float(move[:-1] @ move[:-1]) + float(matrix[-1, -1] * move[-1] ** 2)
    return max(0.0, float(move @ matrix @ move)) + 4.0 * error * sizes
