"""Results as models: the record that all models have, and the models of two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from coremargin.data.mapped import as_kept, map_arrays
from coremargin.data.scaled import ellipsoid_of, scaling_of
from coremargin.data.transformed import untransformed
from coremargin.data.view import sha256_entry
from coremargin.formats.model_record import FORMAT, VERSION
from coremargin.maths.margin import EXACT, ratio
from coremargin.models.model import Model
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.data.source import Source
    from coremargin.problems.common.result import Result


class ModelBounds(Protocol):
    """The fields of a model's record that come from a result."""

    @property
    def status(self) -> str:
        """How the run ended."""

    @property
    def kind(self) -> str:
        """The kind of bounds."""

    @property
    def lower(self) -> float | None:
        """The lower bound, if there is one."""

    @property
    def upper(self) -> float | None:
        """The upper bound, if there is one."""


def record_of(
    source: Source,
    codes: Sequence[int] | None,
    found: ModelBounds,
    problem: str,
    parameters: Mapping[str, Any],
    coreset_rows: int,
    *,
    store: Source | None = None,
    **about: Any,
) -> dict[str, Any]:
    """The record of a model; it depends on the rows and parameters only, not on clock or host.

    codes: label codes of the classes, in the model's order; None: the model has no classes. store: whose digest it is,
    if ``source`` is a view of one. about: entries of some kinds only, placed before the certificate.
    """
    stored = untransformed(source if store is None else store)
    lower, upper = (value if value is not None and np.isfinite(value) else None for value in (found.lower, found.upper))
    known = found.kind != "not_separable" and lower is not None and upper is not None
    return {
        "format": FORMAT,
        "version": VERSION,
        "problem": problem,
        "status": found.status,
        "parameters": parameters,
        **({} if codes is None else {"classes": [source.classes[code] for code in codes]}),
        "features": stored.features,
        "rows": source.rows,
        "dtype": stored.dtype.name,
        **about,
        "certificate": {
            "kind": found.kind,
            "lower": lower,
            "upper": upper,
            "ratio": ratio(lower, upper) if known else None,  # type: ignore[arg-type]
            "epsilon": parameters["epsilon"] or EXACT,
            "coreset_rows": coreset_rows,
            "store_digest": stored.digest,
            **sha256_entry(stored),
            "radius": float(source.scalars().max_norm.max()),
        },
        "software": {"coremargin": version()},
    }


def transform_arrays(source: Source) -> dict[str, Any]:
    """The numbers of a model for scaling and map."""
    scaling = scaling_of(source)
    if scaling is None or scaling.kind == "rownorm":
        return dict(map_arrays(source))
    if scaling.metric is not None:
        return {**ellipsoid_of(source), **map_arrays(source)}
    return {"shift": scaling.shift, "factor": scaling.factor, **map_arrays(source)}


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
    """The model of a result.

    view: for one of several models, its view of the ``store``, which may be scaled.
    """
    positive, negative = codes
    shown = source if store is None else store
    record = record_of(source, (negative, positive), found, problem, parameters, len(found.proof), store=store)
    numbers = {
        "w": found.w,
        "b": np.array([found.b]),
        "alpha": found.proof.weights,
        "coreset_ids": found.proof.ids,
        "coreset_y": found.proof.signs,
        **found.extra,
        **transform_arrays(shown),
    }
    rows = as_kept(shown, found.proof.ids, found.proof.rows)
    return Model(record if view is None else record | {"view": view}, numbers, rows)
