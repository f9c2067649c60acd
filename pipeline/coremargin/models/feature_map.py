"""The map of a model, from its record and its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from coremargin.formats.feature_map import PREFIX
from coremargin.maths.feature_map import feature_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from coremargin.formats.model_record import ModelRecord
    from coremargin.maths.mapping import FeatureMap


def feature_map_of(facts: ModelRecord, arrays: Mapping[str, np.ndarray]) -> FeatureMap | None:
    """The map that a record and its arrays, which fit each other, speak of; None where there is none."""
    if not facts.map:
        return None
    asked = facts.parameters
    degree, coef0 = (0 if value is UNSET else value for value in (asked.degree, asked.coef0))
    numbers = {name.removeprefix(PREFIX): values for name, values in arrays.items() if name.startswith(PREFIX)}
    return feature_map(facts.map, numbers, (facts.features, facts.width, int(degree), float(coef0)))
