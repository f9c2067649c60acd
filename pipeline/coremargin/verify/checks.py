"""What ``verify`` checks of claims of all kinds without the store's rows, and how a check is told."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.rows import Rows

CLOSE = 1e-9  #: for numbers that are said to be 1, or a ratio of others: not for bounds


@dataclass(frozen=True)
class Check:
    """One thing that was checked: ``text`` says what was found, with numbers, and what was claimed if that is false."""

    name: str
    ok: bool
    text: str


def same_shape(claim: AnyClaim, rows: Rows) -> Check:
    """Whether the store has the rows, features and precision that the model names."""
    claimed = (claim.rows, claim.stored_features, claim.dtype)
    found = (rows.rows, rows.features, rows.dtype)
    text = f"{rows.rows:,} rows x {rows.features:,} features of {rows.dtype}"
    if rows.appended and claimed == found:
        text += f"; {rows.appended:,} rows that were appended since are not looked at, nothing is claimed of them"
    if rows.amended and claimed == found:
        text += "; labels and weights that were changed since are not looked at: it is about those of then"
    if claimed != found:
        said = f"{claim.rows:,} rows x {claim.stored_features:,} features of {claim.dtype}"
        text = f"model claims {said}, the store has {text}"
        if any(commit.digest == claim.store_digest for commit in rows.commits[:-1]):
            text += "; rows were appended after training: `coremargin retrain` takes them in"
    return Check("rows", claimed == found, text)


def same_columns(columns: str, rows: Rows) -> list[Check]:
    """Whether the store's columns are those that a model claims; nothing where it claims nothing.

    Labels that were given apart have no name; a model of a data frame may be about a store of its array.
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
    """A label with its kind: 1, 1.0 and True are different labels."""
    return type(label).__name__, label


def are_classes(labels: Iterable[Any], rows: Rows) -> bool:
    """Whether these are the store's classes, or those of them that some row still has. Raises DamagedChunk.

    A class that all rows have lost stays in the list of a store.
    """
    claimed = sorted(map(repr, map(typed, labels)))
    if claimed == sorted(map(repr, map(typed, rows.classes))):
        return True
    there = {code for codes, _ in rows.labels() for code in set(codes.tolist())}
    return claimed == sorted(repr(typed(rows.classes[code])) for code in there if code >= 0)


def same_epsilon(claim: AnyClaim) -> list[Check]:
    """A failed check unless parameters and certificate name one epsilon."""
    if claim.epsilon == claim.proven_epsilon and 0 < claim.epsilon < 1:
        return []
    text = f"expected one number in (0, 1), parameters say {claim.epsilon}, certificate says {claim.proven_epsilon}"
    return [Check("epsilon", ok=False, text=text)]


def same_ratio(claim: AnyClaim) -> list[Check]:
    """A failed check if the model claims another ratio than that of its bounds, or one where it has no two bounds."""
    lower, upper = claim.lower, claim.upper
    ratio = None
    if lower is not None and upper is not None:
        ratio = min(1.0, lower / upper) if lower > 0 and upper > 0 else 0.0
    if claim.ratio == ratio or (claim.ratio is not None and ratio is not None and abs(claim.ratio - ratio) <= CLOSE):
        return []
    return [Check("ratio", ok=False, text=f"model claims {shown(claim.ratio)}, its own bounds give {shown(ratio)}")]


def certified(lower: float | None, upper: float | None, epsilon: float) -> bool:
    """Whether two bounds, above 0, prove epsilon: of a margin and of a value alike."""
    if lower is None or upper is None or not (0 < lower < math.inf and 0 < upper < math.inf):
        return False
    return Fraction(lower) >= (1 - Fraction(epsilon)) * Fraction(upper)


def in_order(claim: AnyClaim) -> bool:
    """Whether the lower bound that is claimed is not above the upper one."""
    return claim.lower is None or claim.upper is None or claim.lower <= claim.upper


def shown(value: float | None) -> str:
    """A number, exactly, that may not be there."""
    return "none" if value is None else repr(float(value)).removesuffix(".0")
