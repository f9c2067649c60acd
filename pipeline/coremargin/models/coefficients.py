"""A model's hyperplanes by the names of their features, those that have most to say first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coremargin.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.formats.columns import ColumnsRecord
    from coremargin.models.sklearn_objects import Linear


class Coefficient(NamedTuple):
    """What one feature adds to a decision value.

    Parameters
    ----------
    feature : str
        Its name: "age", "workclass=Private"; "feature 17" of rows whose features had no names.
    column : str or None
        The column of the table that it comes from; None where there was no table.
    weight : float
        What one more of the feature adds, as it is before any scaling. Of "rownorm": as it is in rows of length 1.
    effect : float
        What one more of the scaled feature adds: one standard deviation of "standard", the way from the least to the
        largest value of "minmax", the largest size of "maxabs". Without such a scaling of columns: ``weight``.
    """

    feature: str
    column: str | None
    weight: float
    effect: float


class Hyperplane(NamedTuple):
    """The decision value that speaks for a class: intercept + sum of weights times features.

    Parameters
    ----------
    label : label
        The class that positive weights speak for.
    against : label or None
        The one that negative weights speak for; None: all others.
    intercept : float
        The decision value of a row of zeros as it is.
    coefficients : tuple of Coefficient
        By the size of ``effect``, the largest first.
    """

    label: Any
    against: Any
    intercept: float
    coefficients: tuple[Coefficient, ...]


def hyperplanes(linear: Linear, columns: ColumnsRecord | None, top: int | None = None) -> list[Hyperplane]:
    """The hyperplanes, one for each class or the one of two, with their ``top`` features, None: with all.

    Raises UsageError for a ``top`` below 1 and for mapped rows, DataError for weights that overflow.
    """
    if linear.map is not None:
        raise UsageError(
            f"this model maps rows ({linear.map.KIND}): its weights are of {linear.map.width:,} mapped features, and "
            f"features of rows have none; `predict`, `evaluate` and `export` use it as it is"
        )
    if top is not None and top < 1:
        raise UsageError(f"top: expected at least 1, got {top}")
    weights, intercepts = linear.folded()
    in_metric = linear.scaling is not None and linear.scaling.metric is not None
    units = weights if in_metric else linear.coef
    labels = linear.classes.tolist()
    sides = [(labels[1], labels[0])] if len(labels) > len(weights) else [(label, None) for label in labels]
    named = _named(linear, columns)
    return [
        Hyperplane(label, against, float(intercept), _ranked(own, effects, named, top))
        for (label, against), intercept, own, effects in zip(sides, intercepts, weights, units, strict=True)
    ]


def _named(linear: Linear, columns: ColumnsRecord | None) -> list[tuple[str, str | None]]:
    """Name and column of each feature."""
    if columns is not None:
        return [(name, column.name) for column in columns.columns for name in column.features]
    names: Sequence[str] = linear.names or [f"feature {number}" for number in range(linear.coef.shape[1])]
    return [(name, None) for name in names]


def _ranked(
    weights: np.ndarray, effects: np.ndarray, named: Sequence[tuple[str, str | None]], top: int | None
) -> tuple[Coefficient, ...]:
    order = np.argsort(-np.abs(effects), kind="stable")[:top].tolist()
    found = zip([named[j] for j in order], weights[order].tolist(), effects[order].tolist(), strict=True)
    return tuple(Coefficient(name, column, weight, effect) for (name, column), weight, effect in found)
