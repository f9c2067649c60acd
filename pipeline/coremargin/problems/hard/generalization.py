"""Bounds on the error of a hard margin on new rows: compression, VC dimension; and the published size of coresets.

All of them are about rows that are drawn independently from one distribution, as those of the store were. They follow
from numbers that are proven (rows, margin, longest row) and are no part of the certificate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import comb
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from coremargin.data.mapped import map_of
from coremargin.data.scaled import scaling_of
from coremargin.maths import published_bounds as bounds
from coremargin.maths.margin import gamma
from coremargin.maths.rows import lengths, products
from coremargin.problems.common.balls import enclosing_radius
from coremargin.problems.common.classes import count_weighted_rows
from coremargin.report.numbers import NO_BREAK, percent_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.source import Source
    from coremargin.problems.common.result import Result

CONFIDENCE = 0.95
VACUOUS = 0.5  #: a bound at or above it says no more than guessing one of two classes does
_SAME = 1e-9  # relative distance of normals, or of margins, that are equal but for rounding
_MAPPED = "the feature map may depend on the rows, by its landmarks or gamma"


@dataclass(frozen=True)
class Generalization:
    """Bounds on the share of new rows that are misclassified, at ``CONFIDENCE``.

    rows: those with a label and a weight above 0. radius, margin: R rounded up and rho rounded down. deciding_rows: k,
    the rows with a dual weight and, where these do not determine the offset, the nearest one of each class.
    compression: Louche and Ralaivola 2015, (8); None where the hyperplane is not a function of k rows alone, for the
    reason in ``no_compression``. dimension: min(ceil(R^2 / rho^2), d) + 1; guaranteed_risk: Vapnik's with it;
    all_hyperplanes: the VC dimension of all of them, which does not depend on R and rho; guaranteed_risk_all and simple
    (Awasthi's Theorem 1): with that. These three are None where the features depend on the rows, by a map.
    coreset_bound: rows that Lemma 3.1 allows the coreset of ``coreset_rows`` rows.
    """

    confidence: float
    rows: int
    features: int
    radius: float
    margin: float
    deciding_rows: int
    compression: float | None
    no_compression: str
    dimension: int
    guaranteed_risk: float | None
    all_hyperplanes: int
    guaranteed_risk_all: float | None
    simple: float | None
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
    rows, features, delta = int(count_weighted_rows(source).sum()), source.features, 1 - CONFIDENCE
    scaling, mapped = scaling_of(source), map_of(source) is not None
    support = found.proof.take(found.proof.support)
    reason, deciding, choices = _MAPPED if mapped else "", len(support), 1
    if not mapped and scaling is not None and scaling.kind != "rownorm":
        reason = f"scaling {scaling.kind!r} depends on all rows"
    elif not mapped:
        normal = (support.weights * support.signs) @ support.rows
        size = float(np.linalg.norm(normal)) * float(np.linalg.norm(found.w))
        margins = support.signs * products(support.rows, found.w[:, None])[0]
        same = _SAME * found.lower + 8 * gamma(features + 8) * float(lengths(support.rows).max())
        sides = [margins[support.signs > 0], margins[support.signs < 0]] if intercept else [margins]
        if size <= 0 or np.linalg.norm(normal / np.linalg.norm(normal) - found.w / np.linalg.norm(found.w)) > _SAME:
            reason = "the hyperplane is that of another working set than the proof's"
        elif any(np.ptp(side) > same for side in sides):
            reason = "the dual weights are not the best ones of their rows"
        elif intercept and abs(sides[0].mean() - sides[1].mean() + 2 * found.b) > same:
            # The scan has set the offset by the nearest rows: two more, which are any two of those that are kept.
            deciding, choices = deciding + 2, comb(deciding + 2, 2)
    dimension = bounds.vc_dimension(radius, found.lower, features)
    moved = scaling is not None and scaling.fills_zeros
    every = features + (intercept or moved)  # a shift that is made of the rows is an intercept
    return asdict(
        Generalization(
            confidence=CONFIDENCE,
            rows=rows,
            features=features,
            radius=radius,
            margin=found.lower,
            deciding_rows=deciding,
            compression=None if reason else bounds.compression(rows, deciding, delta, choices=choices),
            no_compression=reason,
            dimension=dimension,
            guaranteed_risk=None if mapped else bounds.guaranteed_risk(rows, dimension, delta),
            all_hyperplanes=every,
            guaranteed_risk_all=None if mapped else bounds.guaranteed_risk(rows, every, delta),
            simple=None if mapped else bounds.simple_vc_bound(rows, every, delta),
            coreset_rows=len(found.proof),
            coreset_bound=bounds.coreset_rows(radius, found.lower, epsilon),
        )
    )


def read_generalization(run: Mapping[str, Any]) -> Generalization | None:
    """The bounds in the record of a run; None where there are none, or the record is damaged."""
    try:
        return msgspec.convert(run.get("generalization"), Generalization)
    except msgspec.ValidationError:
        return None


def describe(found: Generalization) -> list[tuple[str, str]]:
    """The bounds as lines of ``coremargin show``: names and texts, sharpest first."""
    compression = f"no compression bound: {found.no_compression}"
    if found.compression is not None:
        compression = (
            f"{_error(found.compression)}, as {found.deciding_rows:,} of {found.rows:,} rows determine the hyperplane"
        )
    lines = [f"bounds on the error with confidence {found.confidence:.0%}, if all rows are drawn independently:"]
    lines.append(compression)
    if found.guaranteed_risk is not None and found.guaranteed_risk_all is not None and found.simple is not None:
        dimension = f"{found.dimension:,} = min(ceil(R^2 / margin^2), features) + 1, R {found.radius:.3g}"
        within = f"{_error(found.guaranteed_risk)} by Vapnik's bound, VC dimension at most {dimension}"
        simple = f"{_error(found.simple)} as Awasthi prints it, without a factor log(rows)"
        lines += [
            f"{within}; it counts no rows within the margin or beyond R",
            f"{_error(found.guaranteed_risk_all)} by the same for all hyperplanes; {simple}",
        ]
    lines.append(f"coreset of {found.coreset_rows:,} rows; Lemma 3.1 allows {found.coreset_bound:,.3g}")
    return [("" if line else "new rows", text) for line, text in enumerate(lines)]


def _error(share: float) -> str:
    """An upper bound of an error, rounded up; a vacuous one is called so."""
    text = f"at most {percent_up(share)}".replace(NO_BREAK, " ")
    return text if share < VACUOUS else f"vacuous: {text}"
