"""Bounds on the error of a hard margin on new rows: compression, VC dimension; and the published size of coresets.

All of them are about rows that are drawn independently from one distribution, as those of the store were. They follow
from numbers that are proven (rows, margin, longest row) and are no part of the certificate.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from math import comb
from typing import TYPE_CHECKING, Any, TypeVar

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
    from collections.abc import Mapping, Sequence

    from coremargin.data.source import Source
    from coremargin.problems.common.result import Result

T = TypeVar("T")

CONFIDENCE = 0.95
TWICE = "the margin M of Jebara's lecture, between the classes, is twice the margin here"
_MODELS_SHOWN = 10  # models of which ``show`` lists the bounds
#: What the hyperplane of the kept rows may be off, as a share; `verify` allows ten times as much.
SAME_HYPERPLANE = 1e-5
_SAME = 1e-9  # relative distance of normals, or of margins, that are equal but for rounding
_MAPPED = "the feature map may depend on the rows, by its landmarks or gamma"


@dataclass(frozen=True)
class Generalization:
    """Bounds on the share of new rows that are misclassified, each at ``confidence``.

    rows: those with a label and a weight above 0. radius, margin: R rounded up and rho rounded down. deciding_rows: k,
    the rows with a dual weight and, where these do not determine the offset, the nearest one of each class.
    compression: Louche and Ralaivola 2015, (8); None where the hyperplane is not a function of k rows alone, for the
    reason in ``no_compression``. dimension: min(ceil(R^2 / rho^2), d) + 1; guaranteed_risk: Vapnik's with it;
    all_hyperplanes: the VC dimension of all of them, which does not depend on R and rho; guaranteed_risk_all and simple
    (Awasthi's Theorem 1): with that. These three are None where the features depend on the rows, by a map.
    coreset_bound: rows that Lemma 3.1 allows the coreset of ``coreset_rows`` rows; coreset_sharp: by its proof.
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
    coreset_sharp: float


@dataclass(frozen=True)
class Evidence:
    """What bounds of several models rest on: the rows that count, the radius R of a ball around all rows."""

    rows: int
    radius: float
    confidence: float


@dataclass(frozen=True)
class ModelBounds:
    """The bounds of one of several models; gamma: of its map, if there are several."""

    name: str
    gamma: str | float | None
    bounds: Generalization


@dataclass(frozen=True)
class JointBounds:
    """Bounds on the share of new rows whose class is predicted wrong, by the models of one gamma together.

    The sums of the models' bounds: where each model is right, the true class alone has a positive decision value.
    classes: their number. None: a model has no such bound.
    """

    gamma: str | float | None
    classes: int
    compression: float | None
    guaranteed_risk_all: float | None


@dataclass(frozen=True)
class FleetGeneralization:
    """Bounds of hard margins that were trained together on all rows, no fold held out.

    With m models the bounds of each are at confidence 1 - (1 - ``confidence``) / m, so that those of one sort hold for
    all models at once with ``confidence`` (the union bound). joint: one for each gamma, of classes against the rest.
    """

    confidence: float
    models: list[ModelBounds]
    joint: list[JointBounds]


def generalization_of(source: Source, found: Result, epsilon: float, *, intercept: bool) -> dict[str, Any] | None:
    """The fields of ``Generalization``; None unless the hyperplane is proven to separate the classes.

    source: the rows as they are scaled and mapped.
    """
    bounds = _bounds_of_models(source, [found], epsilon, intercept=intercept)[0]
    return None if bounds is None else asdict(bounds)


def fleet_generalization(
    fleets: Sequence[tuple[Source, str | float | None, Sequence[tuple[str, Result]]]],
    epsilon: float,
    *,
    intercept: bool,
    against_rest: bool,
) -> dict[str, Any] | None:
    """The fields of ``FleetGeneralization``; None if no model is proven to separate its classes.

    fleets: for each gamma the rows as they are scaled and mapped, the gamma, and the models on all of them, with their
    names. against_rest: they tell a class from the rest each.
    """
    count = sum(len(models) for _, _, models in fleets)
    if not count:
        return None
    confidence = 1 - (1 - CONFIDENCE) / count
    listed, joint = list[ModelBounds](), list[JointBounds]()
    for source, of_map, models in fleets:
        results = [found for _, found in models]
        every = _bounds_of_models(source, results, epsilon, intercept=intercept, confidence=confidence)
        known = [
            ModelBounds(name, of_map, own) for (name, _), own in zip(models, every, strict=True) if own is not None
        ]
        listed += known
        if against_rest and len(known) == len(models):
            compression = _capped_sum([one.bounds.compression for one in known])
            risk = _capped_sum([one.bounds.guaranteed_risk_all for one in known])
            joint.append(JointBounds(of_map, len(models), compression, risk))
    return asdict(FleetGeneralization(CONFIDENCE, listed, joint)) if listed else None


def _capped_sum(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return min(1.0, sum(known)) if len(known) == len(shares) else None


def _bounds_of_models(
    source: Source, results: Sequence[Result], epsilon: float, *, intercept: bool, confidence: float = CONFIDENCE
) -> list[Generalization | None]:
    """The bounds of hyperplanes of the same rows, whichever of their classes each tells apart."""
    separating = [found.kind == "margin" and found.lower is not None and 0 < found.lower < np.inf for found in results]
    radius = enclosing_radius(source, origin=not intercept) if any(separating) else 0.0
    if not 0 < radius < np.inf:
        return [None] * len(results)
    known = Evidence(int(count_weighted_rows(source).sum()), radius, confidence)
    return [
        _bounds_of(source, found, epsilon, known, intercept=intercept) if separates else None
        for found, separates in zip(results, separating, strict=True)
    ]


def _bounds_of(source: Source, found: Result, epsilon: float, known: Evidence, *, intercept: bool) -> Generalization:
    """The bounds of one hyperplane, which separates the classes."""
    margin = found.lower or 0.0
    rows, radius, features, delta = known.rows, known.radius, source.features, 1 - known.confidence
    scaling, mapped = scaling_of(source), map_of(source) is not None
    support = found.proof.take(found.proof.support)
    reason, deciding, choices = _MAPPED if mapped else "", len(support), 1
    if not mapped and scaling is not None and scaling.kind != "rownorm":
        reason = f"scaling {scaling.kind!r} depends on all rows"
    elif not mapped:
        normal = (support.weights * support.signs) @ support.rows
        size = float(np.linalg.norm(normal)) * float(np.linalg.norm(found.w))
        margins = support.signs * products(support.rows, found.w[:, None])[0]
        same = _SAME * margin + 8 * gamma(features + 8) * float(lengths(support.rows).max())
        sides = [margins[support.signs > 0], margins[support.signs < 0]] if intercept else [margins]
        if size <= 0 or np.linalg.norm(normal / np.linalg.norm(normal) - found.w / np.linalg.norm(found.w)) > _SAME:
            reason = "the hyperplane is that of another working set than the proof's"
        elif any(np.ptp(side) > same for side in sides):
            reason = "the dual weights are not the best ones of their rows"
        elif intercept and abs(sides[0].mean() - sides[1].mean() + 2 * found.b) > same:
            # The scan has set the offset by the nearest rows: two more, which are any two of those that are kept.
            deciding, choices = deciding + 2, comb(deciding + 2, 2)
    dimension = bounds.vc_dimension(radius, margin, features)
    moved = scaling is not None and scaling.fills_zeros
    every = features + (intercept or moved)  # a shift that is made of the rows is an intercept
    return Generalization(
        confidence=known.confidence,
        rows=rows,
        features=features,
        radius=radius,
        margin=margin,
        deciding_rows=deciding,
        compression=None if reason else bounds.compression(rows, deciding, delta, choices=choices),
        no_compression=reason,
        dimension=dimension,
        guaranteed_risk=None if mapped else bounds.guaranteed_risk(rows, dimension, delta),
        all_hyperplanes=every,
        guaranteed_risk_all=None if mapped else bounds.guaranteed_risk(rows, every, delta),
        simple=None if mapped else bounds.simple_vc_bound(rows, every, delta),
        coreset_rows=len(found.proof),
        coreset_bound=bounds.coreset_rows(radius, margin, epsilon),
        coreset_sharp=bounds.sharp_coreset_rows(radius, margin, epsilon),
    )


def compression_claim(source: Source, found: Result, epsilon: float, *, intercept: bool) -> dict[str, Any] | None:
    """The record's claim that the rows with a dual weight alone have the model's hyperplane; None where it fails.

    `verify` has the bound on how far their own hyperplane of the largest margin may be.
    """
    bounds = _bounds_of_models(source, [found], epsilon, intercept=intercept)[0]
    support = found.proof.take(found.proof.support)
    if bounds is None or bounds.compression is None or bounds.deciding_rows != len(support) or found.upper is None:
        return None
    margins = support.signs * (products(support.rows, found.w[:, None])[0] + found.b)
    least = float(margins.min())
    if not least > 0:
        return None
    apart = math.sqrt(max(0.0, (found.upper / least - 1.0) * (found.upper / least + 1.0)))
    moved = 2.0 * apart * float(source.scalars().max_norm.max()) + float(np.ptp(margins))
    if apart > SAME_HYPERPLANE or not moved < 0.99 * (found.lower or 0.0):  # rounding is not what decides
        return None
    return {
        "kept": len(support),
        "rows": bounds.rows,
        "confidence": bounds.confidence,
        "error": bounds.compression,
    }


def vacuous_from(classes: int) -> float:
    """The share of errors that guessing one of so many classes reaches: a bound of as much says nothing."""
    return 1 - 1 / classes


def read_generalization(run: Mapping[str, Any]) -> Generalization | None:
    """The bounds in the record of a run; None where there are none, or the record is damaged."""
    return _read(run, Generalization)


def read_fleet_generalization(run: Mapping[str, Any]) -> FleetGeneralization | None:
    """The same, of models trained together."""
    return _read(run, FleetGeneralization)


def _read(run: Mapping[str, Any], kind: type[T]) -> T | None:
    try:
        return msgspec.convert(run.get("generalization"), kind)
    except msgspec.ValidationError:
        return None


def describe(found: Generalization) -> list[tuple[str, str]]:
    """The bounds as lines of ``coremargin show``: names and texts, sharpest first."""
    lines = [
        f"bounds on the error with confidence {found.confidence:.0%}, if all rows are drawn independently:",
        _describe_compression(found),
    ]
    if found.guaranteed_risk is not None and found.guaranteed_risk_all is not None and found.simple is not None:
        simple = f"{_error(found.simple)} as Awasthi prints it, without a factor log(rows)"
        lines += [
            f"{_describe_risk(found)}; it counts no rows within the margin or beyond R",
            f"{_error(found.guaranteed_risk_all)} by the same for all hyperplanes; {simple}",
        ]
    lines += [_describe_coreset(found), TWICE]
    return _paired(lines)


def describe_briefly(found: Generalization) -> list[tuple[str, str]]:
    """For ``coremargin train``: the sharpest bound, if it says more than guessing, and the published coreset size."""
    lines = []
    if found.compression is not None and found.compression < vacuous_from(2):
        why = f"{found.deciding_rows:,} of {found.rows:,} rows determine the hyperplane"
        error = f"{_error(found.compression)} of new rows with confidence {found.confidence:.0%}, as {why}"
        lines.append(("error", f"{error}, if all are drawn independently"))
    return [*lines, ("bound", _describe_coreset(found))]


def coreset_bounds_before(source: Source, epsilon: float, *, intercept: bool) -> dict[str, float] | None:
    """What Lemma 3.1 allows before the margin is known: R, and its bounds on the coreset times the margin squared.

    None if epsilon is 0, or the rows have no finite radius above 0.
    """
    radius = enclosing_radius(source, origin=not intercept)
    if not (epsilon > 0 and 0 < radius < np.inf):
        return None
    return {
        "radius": radius,
        "coreset_bound": bounds.coreset_rows(radius, 1.0, epsilon),
        "coreset_sharp": bounds.sharp_coreset_rows(radius, 1.0, epsilon),
    }


def describe_before(found: Mapping[str, float]) -> tuple[str, str]:
    """The same as a line of ``coremargin plan``."""
    sharp, printed = f"{found['coreset_sharp']:,.3g} / margin^2", f"{found['coreset_bound']:,.3g} / margin^2"
    return "coreset", f"at most {sharp} rows by the proof of Lemma 3.1, which allows {printed}; R {found['radius']:.3g}"


def describe_fleet(found: FleetGeneralization) -> list[tuple[str, str]]:
    """The bounds of models trained together as lines of ``coremargin show``: of all at once, then of each."""
    models = len(found.models)
    which = f"for all {models:,} models at once" if models > 1 else "of the model"
    lines = [f"bounds on the error with confidence {found.confidence:.0%}, {which}, if rows are drawn independently:"]
    for joint in found.joint:
        of_gamma = "" if joint.gamma is None else f", gamma {joint.gamma}"
        sorts = {"compression": joint.compression, "Vapnik's bound for all hyperplanes": joint.guaranteed_risk_all}
        lines += [
            f"predicted classes{of_gamma}: {_error(share, joint.classes)} wrong, the sum over the models by {sort}"
            for sort, share in sorts.items()
            if share is not None
        ]
    for model in found.models[:_MODELS_SHOWN]:
        own = model.bounds
        risk = [] if own.guaranteed_risk is None else [_describe_risk(own)]
        lines.append(f"{model.name}: " + "; ".join([_describe_compression(own), *risk, _describe_coreset(own)]))
    if models > _MODELS_SHOWN:
        lines.append(f"{models - _MODELS_SHOWN:,} more models: see the report")
    return _paired([*lines, TWICE])


def _paired(lines: Sequence[str]) -> list[tuple[str, str]]:
    return [("" if line else "new rows", text) for line, text in enumerate(lines)]


def _describe_compression(found: Generalization) -> str:
    if found.compression is None:
        return f"no compression bound: {found.no_compression}"
    return f"{_error(found.compression)}, as {found.deciding_rows:,} of {found.rows:,} rows determine the hyperplane"


def _describe_risk(found: Generalization) -> str:
    dimension = f"{found.dimension:,} = min(ceil(R^2 / margin^2), features) + 1, R {found.radius:.3g}"
    return f"{_error(found.guaranteed_risk or 0.0)} by Vapnik's bound, VC dimension at most {dimension}"


def _describe_coreset(found: Generalization) -> str:
    sharp = f"{found.coreset_sharp:,.3g} by the recursion of its proof"
    return f"coreset of {found.coreset_rows:,} rows; Lemma 3.1 allows {found.coreset_bound:,.3g}, {sharp}"


def _error(share: float, classes: int = 2) -> str:
    """An upper bound of an error, rounded up; one that guessing reaches too is called vacuous."""
    text = f"at most {percent_up(share)}".replace(NO_BREAK, " ")
    return text if share < vacuous_from(classes) else f"vacuous: {text}"
