"""A trained soft ball: its centre and radius, and what gives all rows their dual weights.

On disk it is a folder as ``BallModel`` has it, with problem "soft_ball" in ``model.json``, without the coreset's rows
and, in ``arrays.npz``,

    square              (1,) the square r of the radius
    reference           (s, d) the centres of the spheres that separate rows with dual weight C from rows without any
    threshold           (s,) the squares of their radii
    reference_of        (c,) the sphere of each chunk; missing if there is one
    alpha               (m,) dual weights of the rows coreset_ids (m,), for which the spheres say nothing
"""

from __future__ import annotations

from coremargin.models.ball import BallModel
from coremargin.models.enclosure import SoftRadius


class SoftBallModel(SoftRadius, BallModel):
    """The ball with the least mean square of the distances of the farthest share nu of the rows.

    Its radius is the distance beyond which that share lies; ``predict`` gives 1 for rows inside of it and -1 for
    others.
    """

    WHAT = "a soft ball"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: radius {self.radius!r}, nu {self.nu!r}, {self.rows:,} rows x "
            f"{self.features:,} features, {self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )


MODEL_CLASS = SoftBallModel
