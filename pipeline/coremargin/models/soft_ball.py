"""A trained soft ball: its centre and radius, and what gives all rows their dual weights.

On disk it is a folder as ``BallModel`` has it, with problem "soft_ball" in ``model.json``, without the coreset's rows
and, in ``arrays.npz``,

    square              (1,) the square r of the radius
    reference           (d,) the centre of the sphere that separates rows with dual weight C from rows without any
    threshold           (1,) the square of its radius
    alpha               (m,) dual weights of the rows coreset_ids (m,), for which the sphere says nothing
"""

from __future__ import annotations

import math

from coremargin.models.ball import BallModel


class SoftBallModel(BallModel):
    """The ball with the least mean square of the distances of the farthest share nu of the rows.

    Its radius is the distance beyond which that share lies; ``predict`` gives 1 for rows inside of it and -1 for
    others.
    """

    WHAT = "a soft ball"

    @property
    def nu(self) -> float:
        """The share of the rows that may lie outside."""
        return float(self.record["parameters"]["nu"])

    @property
    def radius(self) -> float:
        """The distance from the centre at which ``predict`` changes."""
        return math.sqrt(float(self.array("square")[0]))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: radius {self.radius!r}, nu {self.nu!r}, {self.rows:,} rows x "
            f"{self.features:,} features, {self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )


MODEL_CLASS = SoftBallModel
