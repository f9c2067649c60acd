"""The record and the arrays of a margin with outliers, and numbers of excluded rows as users write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from operator import index
from typing import TYPE_CHECKING, Annotated, Literal, SupportsIndex, cast

import numpy as np
from msgspec import Meta

from coremargin.formats.model_arrays import Numbers, Schema, demand, rising
from coremargin.formats.model_record import Count, HyperplaneParameters, TwoClasses, Word
from coremargin.formats.strict_json import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


OUTLIERS = "outliers_"  #: what the names of the arrays about outliers begin with
_PROOF = f"{OUTLIERS}proof_"


class OutlierParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """The parameters; epsilon 0 asks for as much as float64 resolves."""

    epsilon: Annotated[float, Meta(ge=0, lt=1)]
    outliers: Count | Word | list[Count]
    outlier_search: Literal["exact", "heuristic", "published", "published-simple"] | None


class Outliers(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="outliers"):
    """A hard margin of all rows but some."""

    parameters: OutlierParameters

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with a hyperplane for each number of outliers, the excluded rows, and the proof if it is stored."""
        stored = any(name.startswith(_PROOF) for name in names)
        own = _answers(self.width) | (_proof() if stored else {})
        return super().schema(names) | {OUTLIERS + name: numbers for name, numbers in own.items()}

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Numbers of outliers rise, bounds are bounds, parts of the proof have their ends. Raises DataError."""
        super().check_values(arrays, place)
        ks, lower, upper = (arrays[OUTLIERS + name] for name in ("k", "lower", "upper"))
        increasing = len(ks) > 0 and ks[0] >= 0 and all(a < b for a, b in pairwise(ks.tolist()))
        demand(increasing, place, f"{OUTLIERS}k", "numbers of outliers in increasing order")
        demand(np.isin(arrays[f"{OUTLIERS}signs"], (-1, 1)).all(), place, f"{OUTLIERS}signs", "signs -1 and 1")
        demand((lower < np.inf).all(), place, f"{OUTLIERS}lower", "margins")
        demand((upper > -np.inf).all(), place, f"{OUTLIERS}upper", "bounds")
        for name in ("rows", "weights", "paths", "proofs"):
            if f"{_PROOF}{name}" in arrays:
                check_ends(arrays[f"{_PROOF}{name}"], arrays[f"{_PROOF}{name}_ends"], f"{_PROOF}{name}_ends", place)


def _answers(d: int) -> Schema:
    return {
        "lower": Numbers("f8", ("ks",), finite=False),
        "upper": Numbers("f8", ("ks",), finite=False),
        "b": Numbers("f8", ("ks",)),
        "k": Numbers("i8", ("ks",)),
        "nodes": Numbers("i8", ("ks",)),
        "w": Numbers("f8", ("ks", d)),
        "ids": Numbers("i8", ("excluded rows",)),
        "signs": Numbers("i1", ("excluded rows",)),
        "margins": Numbers("f8", ("excluded rows",)),
        "gains": Numbers("f8", ("excluded rows",), finite=False),
    }


def _proof() -> Schema:
    of = {"rows": ("i8", "certificates"), "weights": ("f8", "certificates")}
    of |= {"paths": ("i8", "leaves"), "proofs": ("i8", "leaves")}
    schema: Schema = {}
    for name, (kind, owner) in of.items():
        schema[f"proof_{name}"] = Numbers(kind, (f"{name} in all",))
        schema[f"proof_{name}_ends"] = Numbers("i8", (owner,))
    return schema | {"proof_values": Numbers("f8", ("certificates",)), "proof_leaves": Numbers("i8", ("ks",))}


def proof_schema(*weights: int) -> Schema:
    """The arrays of a proof for all rows but k; weights: the shape of a row's weights in a certificate."""
    return {
        "proof_rows": Numbers("i8", ("rows in all",)),
        "proof_rows_ends": Numbers("i8", ("certificates",)),
        "proof_weights": Numbers("f8", ("rows in all", *weights)),
        "proof_weights_ends": Numbers("i8", ("certificates",)),
        "proof_paths": Numbers("i8", ("steps in all",)),
        "proof_paths_ends": Numbers("i8", ("leaves",)),
        "proof_numbers": Numbers("i8", ("numbers in all",)),
        "proof_numbers_ends": Numbers("i8", ("leaves",)),
    }


def removal_schema(names: frozenset[str], *weights: int) -> Schema:
    """The rows that are left out and, if it is among ``names``, the proof; weights: as in ``proof_schema``."""
    proof = proof_schema(*weights)
    return {f"{OUTLIERS}ids": Numbers("i8", ("outliers",))} | (proof if names & proof.keys() else {})


def check_proof(arrays: Mapping[str, np.ndarray], place: str) -> None:
    """A proof's parts end where they may. Raises DataError."""
    for name in ("rows", "weights", "paths", "numbers"):
        if f"proof_{name}" in arrays:
            check_ends(arrays[f"proof_{name}"], arrays[f"proof_{name}_ends"], f"proof_{name}_ends", place)


def check_ends(values: np.ndarray, ends: np.ndarray, name: str, place: str) -> None:
    """Raises DataError unless these are the ends of lists in one array."""
    last = ends[-1] if len(ends) else 0
    demand(rising(ends, len(values)) and last == len(values), place, name, f"ends of parts of {len(values)} values")


RECORD = Outliers


#: More than so many values of k in one run are a slip of the pen.
MOST_COUNTS = 1000
_MOST_DIGITS = 18


def outlier_counts(
    given: SupportsIndex | str | Iterable[SupportsIndex], rows: Callable[[], int] | None = None
) -> tuple[int, ...]:
    """The values of k in increasing order; a share is of ``rows()`` (rounded down), 0 while these are not known.

    Whole numbers may be NumPy's. Raises ValueError for anything else.
    """
    if not isinstance(given, str):
        counts = _numbers(given)
    elif given.endswith("%"):
        share = _share(given)
        return (math.floor(share * rows()) if rows is not None else 0,)
    elif ".." in given:
        first, last = (_whole(part, given) for part in given.split("..", 1))
        if last - first >= MOST_COUNTS:
            raise ValueError(f"outliers: expected at most {MOST_COUNTS:,} values, found {cut(repr(given))}")
        counts = tuple(range(first, last + 1))
    else:
        counts = tuple(_whole(part, given) for part in given.split(","))
    if not counts or min(counts) < 0 or len(set(counts)) < len(counts) or len(counts) > MOST_COUNTS:
        raise _refusal(given)
    return tuple(sorted(counts))


def _numbers(given: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    with suppress(TypeError):  # arrays have both doors, open or not
        return (index(cast("SupportsIndex", given)),)
    try:
        return tuple(map(index, cast("Iterable[SupportsIndex]", given)))
    except TypeError:
        raise _refusal(given) from None


def _share(given: str) -> Fraction:
    """A share as a fraction: exact, so that 29% of 100 rows are 29."""
    number = given[:-1].strip()
    try:
        if not number.isascii() or "_" in number:
            raise ValueError(number)  # float takes both, as whole numbers above do not
        share = Fraction(repr(float(number))) / 100
    except ValueError:
        raise _refusal(given) from None
    if not 0 <= share < Fraction(1, 2):
        raise _refusal(given)
    return share


def _whole(text: str, given: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= _MOST_DIGITS):
        raise _refusal(given)
    return int(stripped)


def _refusal(given: object) -> ValueError:
    return ValueError(
        f"outliers: expected a number of rows such as 10, a share below 50% such as 1%, a range such as 0..10, or "
        f"different numbers such as 0,1,2,5, none of them negative; found {cut(repr(given))}"
    )
