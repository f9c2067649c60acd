"""The record and the arrays of a margin with outliers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from coremargin.formats.model_arrays import Numbers, Schema, demand, rising
from coremargin.formats.model_record import Count, HyperplaneParameters, TwoClasses, Word

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


def check_ends(values: np.ndarray, ends: np.ndarray, name: str, place: str) -> None:
    """Raises DataError unless these are the ends of lists in one array."""
    last = ends[-1] if len(ends) else 0
    demand(rising(ends, len(values)) and last == len(values), place, name, f"ends of parts of {len(values)} values")


RECORD = Outliers
