"""What models with one certificate say to people, whatever is claimed: claims.py has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.report import words
from coremargin.report.numbers import SCALINGS
from coremargin.report.text import facts, listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from coremargin.maths.mapping import FeatureMap
    from coremargin.models.single import Single

Pairs = list[tuple[str, str]]


def bounds_of(model: Single) -> dict[str, Any]:
    """What is claimed, flat, for machines."""
    certificate = model.record["certificate"]
    return {key: certificate[key] for key in ("epsilon", "lower", "upper", "ratio", "coreset_rows")}


def first_rows(ids: NDArray[np.int64]) -> str:
    """Some of the rows that carry a proof, by number."""
    return ", ".join(str(row) for row in ids[:8].tolist()) + (", ..." if len(ids) > 8 else "")


def map_told(maps: Sequence[FeatureMap]) -> Pairs:
    """Which rows the claims of a model, or of a fleet's members, are about: nothing where rows are not mapped."""
    if not maps:
        return []
    each = f", of each of {len(maps):,} gammas" if len(maps) > 1 else ""
    return [("map", f"{maps[0].KIND}, to {maps[0].width:,} features{each}; what is claimed is about mapped rows")]


def described(path: Path, model: Single, made: Sequence[tuple[str, str]], claims: Pairs) -> list[str]:
    """What a model is; claims: what it says of its proof."""
    intercept = "" if model.parameters.get("intercept", True) else ", through the origin"
    scaling: Pairs = []
    if model.scaling is not None:
        scaling = [("scaling", f"{model.scaling}: {SCALINGS[model.scaling]}; what is claimed is about rows so scaled")]
    scaling += map_told(model.row_maps)
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
    return listed([f"{label!r}{sign}" for label, sign in zip(model.classes, signs, strict=True)])


def rows_of(model: Single) -> str:
    """The rows that a certificate is about, those that a fold holds out left out."""
    view = model.record.get("view") or {}
    if view.get("fold") is not None:
        return f"the rows outside of fold {view['fold']} of {view['folds']}"
    return "all rows"


def ratio(model: Single) -> tuple[str, str]:
    """The proven share of the best possible, and what was asked for."""
    ratio = model.certificate.ratio
    return "ratio", f"{'not known' if ratio is None else repr(ratio)}, epsilon {model.certificate.epsilon}"


def coreset(model: Single) -> tuple[str, str]:
    """How many rows carry the proof, and what they are."""
    claims = model.certificate
    return "coreset", f"{claims.coreset_rows:,} {words.coreset(value=claims.is_value)}"


def bound(word: str, value: float | None) -> str:
    """A bound behind "at most" or "at least", with every digit; where there is none, that it is not known."""
    return "not known" if value is None else f"{word} {value!r}"


def exactly(value: float | None) -> str:
    """A bound with every digit: a rounded one may claim too much."""
    return "nothing" if value is None else repr(value)
