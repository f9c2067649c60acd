"""A trained soft ellipsoid: its centre, axes and radius, and what gives all rows their dual weights.

On disk it is a folder as ``EllipsoidModel`` has it, with problem "soft_ellipsoid" in ``model.json``, without the
coreset's rows and, in ``arrays.npz``,

    square              (1,) the square of the radius
    reference_centre    (r,) and reference_axes (r, r): the ellipsoid that separates rows with dual weight C from rows
                        without any
    threshold           (1,) the squared level of its surface
    alpha               (m,) dual weights of the rows coreset_ids (m,), for which that surface says nothing
"""

from __future__ import annotations

from coremargin.models.ellipsoid import EllipsoidModel
from coremargin.models.enclosure import SoftRadius


class SoftEllipsoidModel(SoftRadius, EllipsoidModel):
    """The ellipsoid of least volume for the mean square of the levels of the farthest share nu of the rows.

    Its radius is the Mahalanobis distance beyond which about that share lies; ``predict`` gives 1 for rows inside of it
    and -1 for others.
    """

    WHAT = "a soft ellipsoid"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: nu {self.nu!r}, {self.rows:,} rows x {self.features:,} features, "
            f"rank {self.rank}, {self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )


MODEL_CLASS = SoftEllipsoidModel
