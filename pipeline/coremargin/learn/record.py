"""The record of a model (``model.json``): its keys, their kinds, and the certificate in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from coremargin.errors import DataError
from coremargin.maths.scaling import KINDS

FORMAT = "coremargin-model"
VERSION = 1
LOSSES = ("hinge", "squared_hinge")
STATUSES = ("certified", "not_separable", "stopped")
_KEYS = {
    "format": str,
    "version": int,
    "problem": str,
    "status": str,
    "parameters": dict,
    "classes": list,
    "features": int,
    "rows": int,
    "dtype": str,
    "certificate": dict,
    "software": dict,
}
#: view: which rows and labels of the store a member of a fleet is about. class: the label that stands against the rest
#: (classes are then false and true; null: the store's two); fold: the one of ``folds`` that is held out (null: none).
#: constant: of several classes at once, the last entry of every row.
_OPTIONAL = {"view", "constant"}
_VIEW = {"class", "fold", "folds", "fold_seed"}


@dataclass(frozen=True)
class Certificate:
    """What is claimed about the store; ``lower`` and ``upper`` bound what is best possible, None: nothing is claimed.

    A margin is to be large, and the hypothesis has ``lower``; the value of a soft margin is to be small, and the
    hypothesis has ``upper``.
    """

    kind: str  #: "margin", "not_separable" or "duality_gap"
    lower: float | None  #: margin of the hypothesis over all rows, or bound of the dual point, rounded down
    upper: float | None  #: from the dual weights of the coreset, or value of the hypothesis over all rows, rounded up
    ratio: float | None  #: lower / upper
    epsilon: float  #: what was asked for: lower >= (1 - epsilon) upper
    coreset_rows: int
    store_digest: str  #: identity of the rows that the claim is about
    radius: float  #: largest row norm, rounded up

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> Certificate:
        """From the record. Raises DataError that names the key."""
        kinds = {"kind": str, "coreset_rows": int, "store_digest": str}
        _refuse_keys("certificate", values, {entry.name for entry in fields(cls)})
        for key, value in values.items():
            expected = kinds.get(key, float)
            if expected is not float:
                _expect("certificate", values, key, expected)
            elif not _is_number(value) and not (value is None and key in ("lower", "upper", "ratio")):
                raise DataError(f"certificate.{key}: expected a finite number, found {value!r}; get an unaltered copy")
        exact: dict[str, Any] = {
            name: float(value) if isinstance(value, int) and name not in kinds else value
            for name, value in values.items()
        }
        return cls(**exact)


def plain(value: Any) -> Any:
    """The value as JSON has it: NumPy scalars and arrays become plain, what is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_text(value: Mapping[str, Any]) -> str:
    """Deterministic text: sorted keys, shortest floats that read back to the bit, newline at the end."""
    return json.dumps(plain(value), indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def check_version(record: Any, form: str, known: int, what: str) -> None:
    """Raises DataError unless a record says to be of this format and version; what: where such records lie."""
    if not isinstance(record, dict) or record.get("format") != form:
        raise DataError(f"expected a record of format {form!r}, found something else; is this {what}?")
    version = record.get("version")
    if version != known or isinstance(version, bool):
        newer = isinstance(version, int) and version > known
        hint = "it was made by a newer coremargin: upgrade" if newer else "get an unaltered copy"
        raise DataError(f"expected version {known}, found {version!r}; {hint}")


def check_record(record: Any) -> None:
    """Raises DataError unless this is the whole record of a model that this version can use."""
    check_version(record, FORMAT, VERSION, "a model's folder")
    _refuse_keys("record", record, set(_KEYS) | (_OPTIONAL & set(record)))
    for key, kind in _KEYS.items():
        _expect("record", record, key, kind)
    if "view" in record:
        _check_view(record["view"])
    if record["status"] not in STATUSES:
        raise DataError(
            f"status: expected one of {', '.join(STATUSES)}, found {record['status']!r}; get an unaltered copy"
        )
    several = _check_classes(record)
    if record["features"] < 1 or record["rows"] < 1:
        raise DataError(
            f"expected rows and features, found {record['rows']} x {record['features']}; get an unaltered copy"
        )
    scaling = record["parameters"].get("scaling")
    if scaling is not None and scaling not in KINDS:
        raise DataError(
            f"parameters.scaling: expected one of {', '.join(KINDS)}, found {scaling!r}; get an unaltered copy"
        )
    soft = record["problem"] == "soft_margin" or (several and "loss" in record["parameters"])
    if soft:
        _check_soft(record["parameters"])
    certificate = Certificate.from_record(record["certificate"])
    if soft != (certificate.kind == "duality_gap"):
        raise DataError(
            f"certificate.kind: {certificate.kind!r} does not go with problem {record['problem']!r}; "
            f"get an unaltered copy"
        )


def _check_classes(record: Mapping[str, Any]) -> bool:
    """Whether the model is about several classes at once. Raises DataError where the labels are not of such a kind."""
    labels = record["classes"]
    several = bool(record["problem"] == "crammer_singer")
    known = all(isinstance(label, str | int | float) for label in labels) and len(set(labels)) == len(labels)
    if not known or not (len(labels) == 2 or (several and len(labels) > 2)):
        raise DataError(f"classes: expected two different labels, found {labels!r}; get an unaltered copy")
    if several != ("constant" in record) or (several and not _is_number(record["constant"])):
        raise DataError("constant: expected a number for several classes, and else none; get an unaltered copy")
    return several


def _check_view(view: Any) -> None:
    """Raises DataError unless this says which rows and labels a model is about."""
    _refuse_keys("view", view if isinstance(view, dict) else {}, _VIEW)
    whole = [view[key] for key in ("fold", "folds", "fold_seed")]
    if view["fold"] is None:
        ok = whole == [None] * 3
    else:
        ok = all(isinstance(value, int) and not isinstance(value, bool) for value in whole) and 0 <= whole[0] < whole[1]
    if not ok or not isinstance(view["class"], str | int | float | None):
        raise DataError(f"view: {view!r} says no class and no fold; get an unaltered copy")


def _check_soft(parameters: Mapping[str, Any]) -> None:
    """Raises DataError unless these are the parameters of a soft margin."""
    missing = {"epsilon", "intercept", "loss", "C", "class_weight"} - set(parameters)
    if missing:
        raise DataError(f"parameters: {', '.join(sorted(missing))} missing; get an unaltered copy")
    loss, cost, weight = parameters["loss"], parameters["C"], parameters["class_weight"]
    if loss not in LOSSES:
        raise DataError(f"parameters.loss: expected one of {', '.join(LOSSES)}, found {loss!r}; get an unaltered copy")
    if not _is_price(cost):
        raise DataError(f"parameters.C: expected a number above 0, found {cost!r}; get an unaltered copy")
    pair = isinstance(weight, list) and len(weight) == 2 and all(map(_is_price, weight))
    if weight is not None and weight != "balanced" and not pair:
        raise DataError(
            f"parameters.class_weight: expected null, 'balanced' or two numbers above 0, found {weight!r}; "
            f"get an unaltered copy"
        )


def _is_price(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _refuse_keys(place: str, values: Mapping[str, Any], known: set[str]) -> None:
    if set(values) != known:
        wrong = ", ".join(sorted(set(values) ^ known))
        raise DataError(f"{place}: keys missing or unknown: {wrong}; get an unaltered copy")


def _expect(place: str, values: Mapping[str, Any], key: str, kind: type) -> None:
    if not isinstance(values[key], kind) or isinstance(values[key], bool):
        raise DataError(f"{place}.{key}: expected {kind.__name__}, found {values[key]!r}; get an unaltered copy")
