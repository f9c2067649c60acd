"""What models with one certificate say to people: the end of a run, and what a model is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.report.numbers import NO_BREAK, SCALINGS, percent_up, plain_bounds, plain_share, relative_gap
from coremargin.report.text import facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coremargin.models.single import Single
    from coremargin.problems.outcome import Outcome

Pairs = list[tuple[str, str]]


def has_loss(model: Single) -> bool:
    """Whether it is about the value of an objective, not a margin."""
    return model.parameters.get("loss") is not None


def bounds_of(model: Single) -> dict[str, Any]:
    """What is claimed, flat, for machines."""
    certificate = model.record["certificate"]
    return {key: certificate[key] for key in ("epsilon", "lower", "upper", "ratio", "coreset_rows")}


def margin_verdict(outcome: Outcome, model: Single, epsilon: float, thing: str) -> list[str]:
    """The margin, and what no other hypothesis reaches; where there is none, kinds have words of their own."""
    claims, rows = model.certificate, model.rows
    lower, upper = plain_bounds(claims.lower, claims.upper)
    if model.status == "certified":
        return [
            f"certified: the margin {lower} is proven on all {rows:,} rows;",
            f"no {thing} reaches more than {upper}: at least {plain_share(claims.ratio)} of the best possible.",
        ]
    possible = f"at most {upper}" if upper else "not known"
    return [
        f"stopped before the proof was complete: {outcome.run['reason']};",
        f"margin proven so far {lower or 'none'}, best possible {possible}, epsilon asked for {epsilon}.",
    ]


def value_verdict(outcome: Outcome, model: Single, epsilon: float, thing: str) -> list[str]:
    """The value of a soft margin, and what none is below."""
    claims = model.certificate
    lower, upper = plain_bounds(claims.lower, claims.upper)
    if model.status == "certified":
        gap = percent_up(relative_gap(bounds_of(model))).replace(NO_BREAK, " ")
        return [
            f"certified: the value {upper} of the objective, over all {model.rows:,} rows, is proven to be",
            f"within {gap} of the best possible: no {thing} has less than {lower}.",
        ]
    known = "no scan over all rows was finished"
    if claims.lower is not None and claims.upper is not None:
        known = f"value over all rows {upper}, best possible at least {lower}"
    return [
        f"stopped before the proof was complete: {outcome.run['reason']};",
        f"{known}, epsilon asked for {epsilon}.",
    ]


def first_rows(model: Single) -> str:
    """Some of the rows that carry a proof, by number."""
    ids = ", ".join(str(row) for row in model.coreset_ids[:8].tolist())
    return ids + (", ..." if model.certificate.coreset_rows > 8 else "")


def memory_for_margin(outcome: Outcome, model: Single) -> tuple[str, str]:
    """Rows of a margin's pool."""
    carry = model.certificate.coreset_rows
    return "pool", f"{outcome.run['pool_rows']:,} rows, {carry:,} of them carry the proof"


def memory_for_value(outcome: Outcome, model: Single) -> tuple[str, str]:
    """Rows that were in memory one by one for a soft margin."""
    pool_rows = outcome.run["pool_rows"]
    if pool_rows == model.rows:
        return "rows", f"all {model.rows:,} rows were in memory one by one"
    if any("part" in record for record in outcome.rounds):
        return "rows", f"{pool_rows:,} rows at a time; others were sent a segment at a time, as needed"
    return "rows", f"{pool_rows:,} rows near the margin were sent one by one, the others as sums"


def described(path: Path, model: Single, made: Sequence[tuple[str, str]], claims: Pairs) -> list[str]:
    """What a model is; claims: what it says of its proof."""
    intercept = "" if model.parameters.get("intercept", True) else ", through the origin"
    scaling: Pairs = []
    if model.scaling is not None:
        scaling = [("scaling", f"{model.scaling}: {SCALINGS[model.scaling]}; what is claimed is about rows so scaled")]
    pairs = [
        ("model", f"{path}, {model.problem}{intercept}"),
        ("status", model.status),
        ("classes", sides(model)),
        ("rows", f"{model.rows:,} of {model.features:,} features, {model.record['dtype']}"),
        *scaling,
        *claims,
        ("store", model.certificate.store_digest),
        ("software", ", ".join(f"{name} {version}" for name, version in model.record["software"].items())),
    ]
    return facts([*pairs, *made])


def sides(model: Single) -> str:
    """The labels; of two classes with their signs."""
    signs = (" (negative)", " (positive)") if len(model.classes) == 2 else ("",) * len(model.classes)
    return ", ".join(f"{label!r}{sign}" for label, sign in zip(model.classes, signs, strict=True))


def rows_of(model: Single) -> str:
    """The rows that a certificate is about, those that a fold holds out left out."""
    view = model.record.get("view") or {}
    if view.get("fold") is not None:
        return f"the rows outside of fold {view['fold']} of {view['folds']}"
    return "all rows"


def margin_claims(model: Single, rows: str) -> Pairs:
    """What is claimed of a margin."""
    claims = model.certificate
    return [
        ("margin", f"{exactly(claims.lower)} proven for {rows}"),
        ("best possible", f"at most {exactly(claims.upper)}"),
        _ratio(model),
        ("coreset", f"{claims.coreset_rows:,} rows carry the proof"),
    ]


def value_claims(model: Single, rows: str) -> Pairs:
    """What is claimed of a soft margin."""
    claims, parameters = model.certificate, model.parameters
    weight = parameters["class_weight"]
    shown = "" if weight is None else f", class weight {weight if weight == 'balanced' else tuple(weight)}"
    value = f"at most {exactly(claims.upper)} over {rows}"
    if claims.upper is None:
        value = "not known: no scan of all rows was finished"
    return [
        ("loss", f"{parameters['loss']}, C {parameters['C']:g}{shown}"),
        ("value", value),
        ("best possible", f"at least {exactly(claims.lower)}"),
        _ratio(model),
    ]


def _ratio(model: Single) -> tuple[str, str]:
    return "ratio", f"{exactly(model.certificate.ratio)}, epsilon {model.certificate.epsilon}"


def exactly(value: float | None) -> str:
    """A bound with every digit: a rounded one may claim too much."""
    return "nothing" if value is None else repr(value)
