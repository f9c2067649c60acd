"""A check and its result, and the checks of claims of every kind that need no scan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from coremargin.formats.model_record import WHOLE

if TYPE_CHECKING:
    from coremargin.verify.claim import AnyClaim, Claim
    from coremargin.verify.rows import Rows

CLOSE = 1e-9  #: tolerance for numbers that are claimed to be 1, or a ratio of others; never for bounds


@dataclass(frozen=True)
class Check:
    """The result of one check. text: what was found, with numbers, and what was claimed if that is false."""

    name: str
    ok: bool
    text: str


def same_shape(claim: AnyClaim, rows: Rows) -> Check:
    """Whether the store has the rows, features and precision that the model names."""
    claimed = (claim.rows, claim.stored_features, claim.dtype)
    found = (rows.rows, rows.features, rows.dtype)
    text = f"{rows.rows:,} rows x {rows.features:,} features of {rows.dtype}"
    if rows.appended and claimed == found:
        text += f"; {rows.appended:,} rows appended since are not checked, nothing is claimed of them"
    if rows.amended and claimed == found:
        text += "; labels and weights changed since are not checked: the claim is about the earlier ones"
    if claimed != found:
        shape = f"{claim.rows:,} rows x {claim.stored_features:,} features of {claim.dtype}"
        text = f"model claims {shape}, the store has {text}"
        if any(commit.digest == claim.store_digest for commit in rows.commits[:-1]):
            text += "; rows were appended after training: run `coremargin retrain`"
    return Check("rows", claimed == found, text)


def unchecked_content(claim: AnyClaim, rows: Rows) -> list[str]:
    """What is not checked about the identity of the rows."""
    if claim.store_sha256 is None:
        return ["whether rows or labels were replaced by others with the same CRC-32C: the model names no SHA-256"]
    return [] if rows.hashed else ["whether the chunks still have the SHA-256 that were recorded: only CRC-32C are"]


def same_columns(columns: str, rows: Rows) -> list[Check]:
    """Whether the store's columns are those that a model claims; no check if it claims none.

    Labels that were passed separately have no name; a model of a data frame may be about a store of its array.
    """
    if not columns:
        return []
    (digest, _, label), (found, _, other) = columns.partition(" "), rows.columns.partition(" ")
    ok = not found or (found == digest and (label == other or "" in (label, other)))
    text = "names, order and meaning of the columns are the store's"
    if not ok:
        text = f"model claims columns {columns}, the store has {rows.columns}"
    elif not rows.columns:
        text = "the store has no names of columns: those of the model are not checked"
    return [Check("columns", ok, text)]


def typed(label: Any) -> tuple[str, Any]:
    """A label with its type: 1, 1.0 and True are different labels."""
    return type(label).__name__, label


def are_classes(labels: Iterable[Any], rows: Rows) -> bool:
    """Whether these are the store's classes, or those that some row still has. Raises DamagedChunk.

    A class without rows stays in the store's list.
    """
    claimed = sorted(map(repr, map(typed, labels)))
    if claimed == sorted(map(repr, map(typed, rows.classes))):
        return True
    there = {code for codes, _ in rows.labels() for code in set(codes.tolist())}
    return claimed == sorted(repr(typed(rows.classes[code])) for code in there if code >= 0)


def same_classes(labels: Sequence[Any], rows: Rows) -> Check:
    """Whether the store's classes are exactly the model's."""
    text, store = ", ".join(map(repr, labels)), ", ".join(map(repr, rows.classes))
    ok = sorted(map(repr, map(typed, labels))) == sorted(map(repr, map(typed, rows.classes)))
    return Check("classes", ok, text if ok else f"model claims {text}, the store has {store or 'none'}")


def same_two_classes(claim: Claim, rows: Rows) -> Check:
    """Whether the store has the model's two classes or, for one class against the rest, that class and others."""
    labels, known = (claim.negative, claim.positive), {typed(label) for label in rows.classes}
    view = claim.view
    if view.label is None:
        ok = {typed(label) for label in labels} <= known  # rows of other classes may not count: the scan checks it
    else:
        rest = list(map(typed, labels)) == [typed(False), typed(True)]
        ok = rest and typed(view.label) in known and len(known) > 1
    text = f"{claim.negative!r} (negative) and {claim.positive!r} (positive)"
    if view != WHOLE:
        part = "the store's two classes" if view.label is None else f"class {view.label!r} against the rest"
        text += f": {part}" + ("" if view.fold is None else f", fold {view.fold} of {view.folds} held out")
    if not ok:
        text = f"model claims {text}, the store has {', '.join(map(repr, rows.classes)) or 'none'}"
    return Check("classes", ok, text)


def same_epsilon(claim: AnyClaim) -> list[Check]:
    """A failed check unless parameters and certificate name one epsilon."""
    if claim.epsilon == claim.proven_epsilon and 0 < claim.epsilon < 1:
        return []
    text = f"expected one number in (0, 1), parameters say {claim.epsilon}, certificate says {claim.proven_epsilon}"
    return [Check("epsilon", ok=False, text=text)]


def same_ratio(claim: AnyClaim) -> list[Check]:
    """A failed check unless the ratio is that of the model's bounds, or missing if one of these is."""
    lower, upper = claim.lower, claim.upper
    ratio = None
    if lower is not None and upper is not None:
        ratio = min(1.0, lower / upper) if lower > 0 and upper > 0 else 0.0
    if claim.ratio == ratio or (claim.ratio is not None and ratio is not None and abs(claim.ratio - ratio) <= CLOSE):
        return []
    return [Check("ratio", ok=False, text=f"model claims {shown(claim.ratio)}, its own bounds give {shown(ratio)}")]


def certified(lower: float | None, upper: float | None, epsilon: float) -> bool:
    """Whether two bounds above 0, of a margin or of a value, prove epsilon."""
    if lower is None or upper is None or not (0 < lower < math.inf and 0 < upper < math.inf):
        return False
    return Fraction(lower) >= (1 - Fraction(epsilon)) * Fraction(upper)


def in_order(claim: AnyClaim) -> bool:
    """Whether the lower bound that is claimed is not above the upper one."""
    return claim.lower is None or claim.upper is None or claim.lower <= claim.upper


def shown(value: float | None) -> str:
    """A number exactly, or "none"."""
    return "none" if value is None else repr(float(value)).removesuffix(".0")
