"""Results of problems of two classes as models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.scaled import scaling_of, unscaled
from coremargin.formats.model_record import FORMAT, VERSION
from coremargin.maths.margin import EXACT, ratio
from coremargin.models.model import Model
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.source import Source
    from coremargin.engine.result import Result


def model_of(
    source: Source,
    codes: tuple[int, int],
    found: Result,
    problem: str,
    parameters: Mapping[str, Any],
    *,
    view: Mapping[str, Any] | None = None,
    store: Source | None = None,
) -> Model:
    """A result on a source as a model.

    view: of a member of a fleet, what it is about of the ``store``, which may be scaled.
    """
    positive, negative = codes
    store = source if store is None else store
    scaling = scaling_of(store)
    lower = found.lower if found.lower is not None and np.isfinite(found.lower) else None
    upper = found.upper if found.upper is not None and np.isfinite(found.upper) else None
    record = {
        "format": FORMAT, "version": VERSION, "problem": problem, "status": found.status,
        "parameters": parameters, "classes": [source.classes[negative], source.classes[positive]],
        "features": source.features, "rows": source.rows, "dtype": source.dtype.name,
        "certificate": {
            "kind": found.kind, "lower": lower, "upper": upper,
            "ratio": None if found.kind == "not_separable" or lower is None or upper is None else ratio(lower, upper),
            "epsilon": parameters["epsilon"] or EXACT, "coreset_rows": len(found.ids),
            "store_digest": unscaled(store).digest,
            "radius": float(source.scalars().max_norm.max()),
        },
        "software": {"coremargin": version()},
    }  # fmt: skip
    return Model(
        record=record if view is None else record | {"view": view}, w=found.w, b=found.b, alpha=found.weights,
        coreset_ids=found.ids, coreset_x=found.rows, coreset_y=found.signs,
        ledger={name.removeprefix("ledger_"): values for name, values in found.extra.items()},
        shift=None if scaling is None else scaling.shift, factor=None if scaling is None else scaling.factor,
    )  # fmt: skip
