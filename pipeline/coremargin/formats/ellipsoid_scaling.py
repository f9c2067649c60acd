"""The arrays of a model whose rows are scaled by an ellipsoid: the ellipsoid of least volume around the store's rows.

A row x is scaled to z = F (x - c): the ellipsoid becomes the ball of radius sqrt(r), and the mean square of a column of
the coreset is 1, by its weights. Arrays, r being the dimension of the rows' span, d the features of a row and m the
rows of the coreset:

    scaling_centre (r,), scaling_axes (r, r)      c, and F, a lower triangle
    scaling_bounds (2,)                           volume radii: no ellipsoid around the rows has less than the first,
                                                  this one has the second, and (first / second)^r >= 1 - EPSILON
    scaling_alpha (m,), scaling_coreset_ids (m,), scaling_coreset_x (m, d)       the proof of the first
    scaling_span_columns (r,), scaling_span_slopes (d - r, r), scaling_span_offsets (d - r,),
    scaling_span_residuals (d - r,)               of rows in a flat: the columns of c and F, of which the others are
                                                  linear functions. In scaled rows, these are 0

They are proven as those of a model of ``one_class = "ellipsoid"`` are (ellipsoid.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coremargin.formats.model_arrays import Numbers, Schema, demand

PREFIX = "scaling_"
#: The least volume is at least (1 - EPSILON) of that of the ellipsoid; of most rows, it is nearer than 1e-6.
EPSILON = 1e-3
#: The most features of rows that are scaled so. An ellipsoid has some d^2 / 2 numbers, which each row is multiplied by.
MOST_COLUMNS = 256


def ellipsoid_schema(features: int, names: frozenset[str]) -> Schema:
    """The arrays of the ellipsoid; names: of those that are there. Shapes of a flat depend on its dimension."""
    schema: Schema = {
        "scaling_centre": Numbers("f8", ("rank",)),
        "scaling_axes": Numbers("f8", ("rank", "rank")),
        "scaling_bounds": Numbers("f8", (2,)),
        "scaling_alpha": Numbers("f8", ("ellipsoid rows",)),
        "scaling_coreset_ids": Numbers("i8", ("ellipsoid rows",)),
        "scaling_coreset_x": Numbers("f8", ("ellipsoid rows", features)),
    }
    if "scaling_span_columns" in names:
        schema |= {
            "scaling_span_columns": Numbers("i8", ("rank",)),
            "scaling_span_slopes": Numbers("f8", ("other columns", "rank")),
            "scaling_span_offsets": Numbers("f8", ("other columns",)),
            "scaling_span_residuals": Numbers("f8", ("other columns",)),
        }
    return schema


def check_ellipsoid(features: int, arrays: Mapping[str, np.ndarray], place: str) -> None:
    """Raises DataError unless the numbers are those of an ellipsoid around rows of so many features."""
    centre, axes, bounds = (arrays[PREFIX + name] for name in ("centre", "axes", "bounds"))
    rank, columns = len(centre), arrays.get(PREFIX + "span_columns")
    triangle = axes.shape == (rank, rank) and not np.triu(axes, 1).any() and (np.diag(axes) > 0).all()
    demand(rank and triangle, place, PREFIX + "axes", "a lower triangle with numbers above 0 on its diagonal")
    demand(bounds[0] > 0 and bounds[1] > 0, place, PREFIX + "bounds", "two numbers above 0")
    demand((arrays[PREFIX + "alpha"] >= 0).all(), place, PREFIX + "alpha", "weights from 0 on")
    if columns is None:
        demand(
            rank == features <= MOST_COLUMNS, place, PREFIX + "centre", f"{features} numbers, at most {MOST_COLUMNS}"
        )
        return
    fits = rank + len(arrays[PREFIX + "span_offsets"]) == features <= MOST_COLUMNS and rank < features
    demand(fits, place, PREFIX + "span_offsets", f"with the columns, {features} in all, at most {MOST_COLUMNS}")
    ascending = (columns >= 0).all() and (columns < features).all() and (np.diff(columns) > 0).all()
    demand(ascending, place, PREFIX + "span_columns", f"columns below {features} that ascend")
    demand((arrays[PREFIX + "span_residuals"] >= 0).all(), place, PREFIX + "span_residuals", "numbers from 0 on")
