"""Bounds on the error of a hard margin on new rows: compression, VC dimension; and the published size of coresets.

All of them are about rows that are drawn independently from one distribution, as those of the store were. They follow
from numbers that are proven (rows, margin, longest row) and are no part of the certificate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from coremargin.data.mapped import map_of
from coremargin.data.scaled import scaling_of
from coremargin.maths import published_bounds as bounds
from coremargin.problems.common.balls import enclosing_radius
from coremargin.report.numbers import NO_BREAK, percent_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.source import Source
    from coremargin.problems.common.result import Result

CONFIDENCE = 0.95
VACUOUS = 0.5  #: a bound at or above it says no more than guessing one of two classes does
_SAME = 1e-9  # distance of two unit normals that are equal but for rounding


@dataclass(frozen=True)
class Generalization:
    """Bounds on the share of new rows that are misclassified, at ``CONFIDENCE``.

    radius, margin: R rounded up and rho rounded down. support_rows: k, the rows with a dual weight. compression: Louche
    and Ralaivola 2015, (8); None where the hyperplane is not a function of these k rows alone, for the reason in
    ``no_compression``. dimension: min(ceil(R^2 / rho^2), d) + 1; guaranteed_risk: Vapnik's with it;
    guaranteed_risk_all: with d + 1, which does not depend on R and rho; simple: Awasthi's Theorem 1 with d + 1.
    coreset_bound: rows that Lemma 3.1 allows the coreset of ``coreset_rows`` rows.
    """

    confidence: float
    rows: int
    features: int
    radius: float
    margin: float
    support_rows: int
    compression: float | None
    no_compression: str
    dimension: int
    guaranteed_risk: float
    guaranteed_risk_all: float
    simple: float
    coreset_rows: int
    coreset_bound: float


def generalization_of(source: Source, found: Result, epsilon: float, *, intercept: bool) -> dict[str, Any] | None:
    """The fields of ``Generalization``; None unless the hyperplane is proven to separate the classes.

    source: the rows as they are scaled and mapped.
    """
    if found.kind != "margin" or found.lower is None or not 0 < found.lower < np.inf:
        return None
    radius = enclosing_radius(source, origin=not intercept)
    if not 0 < radius < np.inf:
        return None
    rows, features, delta = source.rows, source.features, 1 - CONFIDENCE
    dimension, support = bounds.vc_dimension(radius, found.lower, features), len(found.proof.support)
    reason = _depends_on_other_rows(source, found)
    every = features + intercept
    return asdict(
        Generalization(
            confidence=CONFIDENCE,
            rows=rows,
            features=features,
            radius=radius,
            margin=found.lower,
            support_rows=support,
            compression=None if reason else bounds.compression(rows, support, delta),
            no_compression=reason,
            dimension=dimension,
            guaranteed_risk=bounds.guaranteed_risk(rows, dimension, delta),
            guaranteed_risk_all=bounds.guaranteed_risk(rows, every, delta),
            simple=bounds.simple_vc_bound(rows, every, delta),
            coreset_rows=len(found.proof),
            coreset_bound=bounds.coreset_rows(radius, found.lower, epsilon),
        )
    )


def _depends_on_other_rows(source: Source, found: Result) -> str:
    """Why the hyperplane is not determined by the rows of the proof alone; "" where it is."""
    scaling = scaling_of(source)
    if scaling is not None and scaling.kind != "rownorm":
        return f"scaling {scaling.kind!r} depends on all rows"
    if map_of(source) is not None:
        return "the feature map may depend on other rows, by its landmarks or gamma"
    normal = (found.proof.weights * found.proof.signs) @ found.proof.rows
    lengths = float(np.linalg.norm(normal)), float(np.linalg.norm(found.w))
    if min(lengths) <= 0 or np.linalg.norm(normal / lengths[0] - found.w / lengths[1]) > _SAME:
        return "the hyperplane is that of another working set than the proof's"
    return ""


def read_generalization(run: Mapping[str, Any]) -> Generalization | None:
    """The bounds in the record of a run; None where there are none, or the record is damaged."""
    try:
        return msgspec.convert(run.get("generalization"), Generalization)
    except msgspec.ValidationError:
        return None


def describe(found: Generalization) -> list[tuple[str, str]]:
    """The bounds as lines of ``coremargin show``: names and texts, sharpest first."""
    rows, support = f"{found.rows:,}", f"{found.support_rows:,}"
    compression = f"no compression bound: {found.no_compression}"
    if found.compression is not None:
        compression = f"{_error(found.compression)}, as {support} of {rows} rows determine the hyperplane"
    dimension = f"{found.dimension:,} = min(ceil(R^2 / margin^2), features) + 1, R {found.radius:.3g}"
    simple = f"{_error(found.simple)} as Awasthi prints it, without a factor log(rows)"
    return [
        (
            "new rows",
            f"bounds on the error with confidence {found.confidence:.0%}, if all rows are drawn independently:",
        ),
        ("", compression),
        ("", f"{_error(found.guaranteed_risk)} by Vapnik's bound, VC dimension at most {dimension}"),
        ("", f"{_error(found.guaranteed_risk_all)} by the same for all hyperplanes; {simple}"),
        ("", f"coreset of {found.coreset_rows:,} rows; Lemma 3.1 allows {found.coreset_bound:,.3g}"),
    ]


def _error(share: float) -> str:
    """An upper bound of an error, rounded up; a vacuous one is called so."""
    text = f"at most {percent_up(share)}".replace(NO_BREAK, " ")
    return text if share < VACUOUS else f"vacuous: {text}"
