"""The arrays of a model (``arrays.npz``): their names, kinds and shapes, as its record has them.

Lengths that only the arrays themselves know stand as letters, and arrays that share one agree about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from coremargin.errors import DataError
from coremargin.formats.model_record import COLUMN_SCALINGS, AnyRecord, SeveralClasses

Shape = tuple[int | str, ...]
Schema = dict[str, tuple[str, Shape]]  #: by name: kind as NumPy writes it, or several, and shape

ROWS = "coreset_x"
OUTLIERS = "ledger_outliers_"
_PROOF = "ledger_outliers_proof_"
#: A float that is no finite number says something there: nothing is known (bounds), nothing can be told (gains).
_OPEN = ("ledger_floor", f"{OUTLIERS}lower", f"{OUTLIERS}upper", f"{OUTLIERS}gains")


def check_arrays(record: AnyRecord, arrays: Mapping[str, np.ndarray], place: str) -> None:
    """Raises DataError unless these are all arrays of such a model, each of its kind and shape, and finite."""
    schema = _schema(record, frozenset(arrays))
    if set(arrays) != set(schema):
        wrong = ", ".join(sorted(set(arrays) ^ set(schema))[:8])
        raise DataError(f"{place}: expected {', '.join(sorted(schema))}; missing or unknown: {wrong}; get a whole copy")
    lengths: dict[str, int] = {}
    for name, (kind, shape) in schema.items():
        values = arrays[name]
        kinds = [np.dtype(word) for word in kind.split()]
        if values.dtype not in kinds:
            known = " or ".join(map(str, kinds))
            raise DataError(f"{place}: {name}: expected {known}, found {values.dtype}; get an unaltered copy")
        wanted = tuple(lengths.get(size, size) if isinstance(size, str) else size for size in shape)
        fits = values.ndim == len(wanted) and all(
            isinstance(size, str) or size == found for size, found in zip(wanted, values.shape, strict=True)
        )
        if not fits:
            text = f"expected shape ({', '.join(map(str, wanted))}) as the record says, found {values.shape}"
            raise DataError(f"{place}: {name}: {text}; get an unaltered copy")
        lengths |= {size: found for size, found in zip(wanted, values.shape, strict=True) if isinstance(size, str)}
        if values.dtype.kind == "f" and name not in _OPEN and not np.isfinite(values).all():
            raise DataError(f"{place}: {name}: expected finite numbers, found NaN or infinity; get an unaltered copy")
    _check_values(record, arrays, place)


def _schema(record: AnyRecord, names: frozenset[str]) -> Schema:
    d, m = record.features, record.certificate.coreset_rows
    schema: Schema = {"coreset_ids": ("i8", (m,))}
    if record.scaling in COLUMN_SCALINGS:
        schema |= {"shift": ("f8", (d,)), "factor": ("f8", (d,))}
    if ROWS in names or record.soft:
        schema[ROWS] = ("f8", (m, 0 if record.soft else d))
    else:
        schema |= {
            f"{ROWS}_data": ("f8", ("values",)), f"{ROWS}_indices": ("i4 i8", ("values",)),
            f"{ROWS}_indptr": ("i4 i8", (m + 1,)), f"{ROWS}_shape": ("i8", (2,)),
        }  # fmt: skip
    return schema | (_several(record) if isinstance(record, SeveralClasses) else _two(record, names))


def _two(record: AnyRecord, names: frozenset[str]) -> Schema:
    d, m = record.features, record.certificate.coreset_rows
    schema: Schema = {"w": ("f8", (d,)), "b": ("f8", (1,)), "alpha": ("f8", (m,)), "coreset_y": ("i1", (m,))}
    if record.soft:
        return schema | {"ledger_reference": ("f8", (d + 1,))}
    if record.problem == "outliers":
        return schema | _outliers(d, stored=any(name.startswith(_PROOF) for name in names))
    ledger: Schema = {
        "ledger_floor": ("f8", ("chunks", 2)), "ledger_which": ("i8", ("chunks",)),
        "ledger_directions": ("f8", ("directions", d)), "ledger_pool_ids": ("i8", ("pool",)),
    }  # fmt: skip
    return schema | (ledger if names & set(ledger) else {})  # a model made of batches has none


def _outliers(d: int, *, stored: bool) -> Schema:
    numbers = dict.fromkeys(("lower", "upper", "b"), ("f8", ("ks",)))
    rows = {"ids": "i8", "signs": "i1", "margins": "f8", "gains": "f8"}
    schema: dict[str, tuple[str, Shape]] = {
        **numbers, "k": ("i8", ("ks",)), "nodes": ("i8", ("ks",)), "w": ("f8", ("ks", d)),
        **{name: (kind, ("rows left out",)) for name, kind in rows.items()},
    }  # fmt: skip
    if stored:
        of = {"rows": ("i8", "certificates"), "weights": ("f8", "certificates")}
        of |= {"paths": ("i8", "leaves"), "proofs": ("i8", "leaves")}
        for name, (kind, owner) in of.items():
            schema |= {f"proof_{name}": (kind, (f"{name} in all",)), f"proof_{name}_ends": ("i8", (owner,))}
        schema |= {"proof_values": ("f8", ("certificates",)), "proof_leaves": ("i8", ("ks",))}
    return {OUTLIERS + name: entry for name, entry in schema.items()}


def _several(record: SeveralClasses) -> Schema:
    d, m, classes = record.features, record.certificate.coreset_rows, len(record.classes)
    schema: Schema = {
        "hypothesis": ("f8", (classes, d + 1)), "duals": ("f8", (m, classes)), "coreset_classes": ("i4", (m,)),
    }  # fmt: skip
    return schema | ({"reference": ("f8", (classes, d + 1))} if record.soft else {})


def _check_values(record: AnyRecord, arrays: Mapping[str, np.ndarray], place: str) -> None:
    """What the numbers themselves must be for the arrays to mean anything. Raises DataError."""
    if isinstance(record, SeveralClasses):
        classes = arrays["coreset_classes"]
        _demand(((classes >= 0) & (classes < len(record.classes))).all(), place, "coreset_classes", "places of classes")
    else:
        _demand(np.isin(arrays["coreset_y"], (-1, 1)).all(), place, "coreset_y", "signs -1 and 1")
    if f"{ROWS}_data" in arrays:
        _check_sparse(record, arrays, place)
    if record.problem == "outliers":
        ks, lower, upper = (arrays[OUTLIERS + name] for name in ("k", "lower", "upper"))
        rising = len(ks) > 0 and ks[0] >= 0 and all(a < b for a, b in pairwise(ks.tolist()))
        _demand(rising, place, f"{OUTLIERS}k", "numbers of outliers in increasing order")
        _demand(np.isin(arrays[f"{OUTLIERS}signs"], (-1, 1)).all(), place, f"{OUTLIERS}signs", "signs -1 and 1")
        _demand((lower < np.inf).all(), place, f"{OUTLIERS}lower", "margins")
        _demand((upper > -np.inf).all(), place, f"{OUTLIERS}upper", "bounds")
        for name in ("rows", "weights", "paths", "proofs"):
            if f"{_PROOF}{name}" in arrays:
                _check_ends(arrays[f"{_PROOF}{name}"], arrays[f"{_PROOF}{name}_ends"], f"{_PROOF}{name}_ends", place)


def _check_sparse(record: AnyRecord, arrays: Mapping[str, np.ndarray], place: str) -> None:
    data, indices, indptr, shape = (arrays[f"{ROWS}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    m, d = record.certificate.coreset_rows, record.features
    _demand(shape.tolist() == [m, d], place, f"{ROWS}_shape", f"({m}, {d}) as the record says")
    fits = indptr[0] == 0 and indptr[-1] == len(data) and _rising(indptr, len(data))
    _demand(fits, place, f"{ROWS}_indptr", "row starts that fit the values")
    first = np.zeros(len(indices), dtype=bool)
    first[indptr[:-1][np.diff(indptr) > 0]] = True
    ascending = (first[1:] | (np.diff(indices) > 0)).all()
    inside = len(indices) == 0 or (indices.min() >= 0 and indices.max() < d)
    _demand(ascending and inside, place, f"{ROWS}_indices", f"columns below {d} that ascend in each row")


def _check_ends(values: np.ndarray, ends: np.ndarray, name: str, place: str) -> None:
    last = ends[-1] if len(ends) else 0
    _demand(_rising(ends, len(values)) and last == len(values), place, name, f"ends of parts of {len(values)} values")


def _rising(values: np.ndarray, most: int) -> bool:
    """Whether places from 0 to ``most`` never fall; differences of others could wrap around."""
    return bool(((values >= 0) & (values <= most)).all() and (np.diff(values) >= 0).all())


def _demand(ok: Any, place: str, name: str, what: str) -> None:
    if not ok:
        raise DataError(f"{place}: {name}: expected {what}, found others; get an unaltered copy")
