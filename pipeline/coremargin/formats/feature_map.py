"""What records say of a feature map: which one it is, how wide its rows are, and the arrays that it is made of.

Arrays of a model, M its width, d the features of a row (as it is scaled, where it is), k = d, or d + 1 with a coef0:

    nystroem     map_landmarks (M, d), map_normalization (M, M), map_gamma (1,)
    fourier      map_weights (d, M), map_offsets (M,)
    polynomial   map_gamma (1,); of a sketch too: map_index (degree, k) int64, map_sign (degree, k) int8

A polynomial map is exact where its products are no more than ``components``, or where these are not given; else it is a
sketch of so many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import comb
from typing import Any

import numpy as np
from msgspec import UNSET

from coremargin.formats.limits import GAMMAS
from coremargin.formats.map_asked import KEYS
from coremargin.formats.model_arrays import Numbers, Schema, demand

PREFIX = "map_"
#: Sizes of numbers of arrays, whose powers up to the fourth keep their digits; gamma is no such number.
LARGEST = 1e70


def check_map(asked: Any) -> None:
    """Raises ValueError unless a record's parameters say all of a map, or nothing."""
    if hasattr(asked, "kernel"):  # these numbers are then the kernel's
        if asked.map is not UNSET:
            raise ValueError("expected a kernel or a map, found both")
        return
    names = {"components", "gamma", "degree", "coef0", "map_seed"}
    found = {name for name in names if getattr(asked, name, UNSET) is not UNSET}
    kind = getattr(asked, "map", UNSET)
    wanted = set() if kind is UNSET else KEYS[kind]
    if found != wanted:
        raise ValueError(f"expected {', '.join(sorted(wanted)) or 'no map'} of a map, found {', '.join(sorted(found))}")
    if kind is UNSET:
        return
    if kind != "polynomial" and asked.components is None:
        raise ValueError(f"expected components of map {kind!r}")
    if isinstance(asked.gamma, str) and asked.gamma != "scale":
        raise ValueError(f"expected gamma 'scale' or a number, found {asked.gamma[:40]!r}")


def monomials(features: int, degree: int, coef0: float) -> int:
    """How many products of ``degree`` factors there are, of so many features, and 1 where there is a coef0."""
    return comb(features + (coef0 > 0) + degree - 1, degree)


def sketched(asked: Any, features: int) -> bool:
    """Whether a polynomial is a sketch of its products."""
    return (
        asked.map == "polynomial"
        and asked.components is not None
        and monomials(features, asked.degree, asked.coef0) > asked.components
    )


def map_width(asked: Any, features: int) -> int:
    """How wide mapped rows are: of parameters that have a map."""
    if asked.map == "polynomial" and not sketched(asked, features):
        return monomials(features, asked.degree, asked.coef0)
    return int(asked.components)


def map_schema(asked: Any, features: int) -> Schema:
    """The arrays of a map; none where there is none."""
    kind = getattr(asked, "map", UNSET)
    if kind is UNSET:
        return {}
    d, m = features, map_width(asked, features)
    if kind == "fourier":
        return {"map_weights": Numbers("f8", (d, m)), "map_offsets": Numbers("f8", (m,))}
    gamma: Schema = {"map_gamma": Numbers("f8", (1,))}
    if kind == "nystroem":
        return gamma | {"map_landmarks": Numbers("f8", (m, d)), "map_normalization": Numbers("f8", (m, m))}
    if not sketched(asked, features):
        return gamma
    shape = asked.degree, d + (asked.coef0 > 0)
    return gamma | {"map_index": Numbers("i8", shape), "map_sign": Numbers("i1", shape)}


def map_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the arrays of a map: of each, by name, its name, kind and shape, and its numbers, least byte first."""
    state = hashlib.sha256()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<"))
        state.update(f"{name} {values.dtype.str} {values.shape} ".encode("ascii"))
        state.update(values.tobytes())
    return f"sha256:{state.hexdigest()}"


def check_map_values(asked: Any, features: int, arrays: Mapping[str, np.ndarray], place: str) -> None:
    """Raises DataError for numbers that are none of a map: too large, or of no place."""
    for name in map_schema(asked, features):
        values = arrays[name]
        if values.dtype.kind == "f":
            most = GAMMAS[1] if name == "map_gamma" else LARGEST
            inside = bool((np.abs(values) <= most).all())
            demand(inside, place, name, f"numbers within {most:g} of 0")
    if "map_gamma" in arrays:
        demand(arrays["map_gamma"][0] >= GAMMAS[0], place, "map_gamma", f"a number from {GAMMAS[0]:g} on")
        if isinstance(asked.gamma, float | int):
            demand(arrays["map_gamma"][0] == asked.gamma, place, "map_gamma", f"the gamma of the record, {asked.gamma}")
    if "map_index" in arrays:
        places, signs = arrays["map_index"], arrays["map_sign"]
        demand(((places >= 0) & (places < asked.components)).all(), place, "map_index", "places of components")
        demand(np.isin(signs, (-1, 1)).all(), place, "map_sign", "signs -1 and 1")
