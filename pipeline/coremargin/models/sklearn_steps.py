"""What comes before a fitted object of scikit-learn: what scales rows, and who knows the names of the features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.maths.scaling import Scaling


def in_pipeline(scaling: Scaling | None, features: int, names: Sequence[str] | None, *steps: Any) -> Any:
    """Fitted steps, behind what scales rows for them; one alone is no pipeline.

    What comes first knows how many features there are, and their names: the others get arrays, which have none.
    """
    from sklearn.pipeline import make_pipeline

    scale = _scaler(scaling)
    every = list(steps) if scale is None else [scale, *steps]
    every[0].n_features_in_ = features
    if names is not None:
        every[0].feature_names_in_ = np.array(names, dtype=object)
    return every[0] if len(every) == 1 else make_pipeline(*every)


def _scaler(scaling: Scaling | None) -> Any:
    """What scales rows, fitted; None for rows as they are."""
    from sklearn.preprocessing import Normalizer, StandardScaler

    if scaling is None:
        return None
    if scaling.kind == "rownorm":
        return Normalizer()
    if scaling.shift is None or scaling.factor is None:
        return None
    made = StandardScaler(with_mean=bool(scaling.shift.any()))
    made.scale_ = 1.0 / scaling.factor.astype(np.float64)
    made.mean_, made.var_ = scaling.shift.astype(np.float64), made.scale_**2
    made.n_samples_seen_ = 1
    return made
