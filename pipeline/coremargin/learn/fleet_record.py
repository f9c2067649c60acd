"""The record of a fleet (``fleet.json``): its keys, their kinds, and what follows from what.

::

    format, version     "coremargin-fleet", 1
    status              "certified" when all members are, "stopped" when one is, else "not_separable"
    problem, parameters as in a member's model.json; C is a list with a loss; classes, folds, fold_seed
    classes             the labels, in order: rows and columns of confusion matrices
    features, rows, dtype, store_digest
    members             a list: name (folder members/NAME), class (null: the store's two classes), C (null: hard
                        margin), fold (the one held out; null: trained on all rows), status, lower, upper, ratio,
                        coreset_rows
    evaluations         a list, empty when the run stopped before: C, fold, rows, accuracy, confusion[i][j]: rows of
                        class i that were given class j. fold null: the rows that the members were trained on; else the
                        rows of the fold, which the members have not seen
    validation          with folds, a list by C: C, mean and std (of the folds, divided by their number) of the
                        accuracy, accuracies; else null
    chosen              C and by: "validation" (best mean, of equal ones the smallest C) or "only" (there is one C);
                        null when there is nothing to choose by
    software
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coremargin.errors import DataError
from coremargin.learn.record import STATUSES, check_version

FORMAT = "coremargin-fleet"
VERSION = 1
FILE = "fleet.json"
_KEYS = {
    "format": str, "version": int, "status": str, "problem": str, "parameters": dict, "classes": list, "features": int,
    "rows": int, "dtype": str, "store_digest": str, "members": list, "evaluations": list, "validation": list | None,
    "chosen": dict | None, "software": dict,
}  # fmt: skip
_MEMBER = {"name", "class", "C", "fold", "status", "lower", "upper", "ratio", "coreset_rows"}
_EVALUATION = {"C", "fold", "rows", "accuracy", "confusion"}


def fleet_status(words: Sequence[str]) -> str:
    """The status of a fleet whose members have these."""
    return next((word for word in ("stopped", "not_separable") if word in words), "certified")


def evaluation(cost: float | None, fold: int | None, confusion: np.ndarray) -> dict[str, Any]:
    """An entry of ``evaluations`` for a confusion matrix (k, k)."""
    rows = int(confusion.sum())
    accuracy = float(np.trace(confusion)) / rows if rows else 0.0
    return {"C": cost, "fold": fold, "rows": rows, "accuracy": accuracy, "confusion": confusion.tolist()}


def validation(evaluations: Sequence[Mapping[str, Any]], costs: Sequence[float | None]) -> list[dict[str, Any]] | None:
    """Accuracy on rows that were held out, for each C; None without folds."""
    table = []
    for cost in costs:
        found = [entry for entry in evaluations if entry["C"] == cost and entry["fold"] is not None]
        if not found:
            return None
        accuracies = [entry["accuracy"] for entry in sorted(found, key=lambda entry: int(entry["fold"]))]
        mean, std = float(np.mean(accuracies)), float(np.std(accuracies))
        table.append({"C": cost, "mean": mean, "std": std, "accuracies": accuracies})
    return table


def chosen(table: Sequence[Mapping[str, Any]] | None, costs: Sequence[float | None]) -> dict[str, Any] | None:
    """The C to use, and why; costs from small to large."""
    if len(costs) == 1:
        return {"C": costs[0], "by": "only"}
    if table is None:
        return None
    best = max(table, key=lambda entry: (entry["mean"], -entry["C"]))
    return {"C": best["C"], "by": "validation"}


def check_fleet_record(record: Any) -> None:
    """Raises DataError unless this is the whole record of a fleet that this version can use."""
    check_version(record, FORMAT, VERSION, "a fleet's folder")
    _same_keys("record", record, set(_KEYS))
    for key, kind in _KEYS.items():
        if not isinstance(record[key], kind):
            raise DataError(f"record.{key}: found {record[key]!r}, which it cannot be; get an unaltered copy")
    for place, keys in (("members", _MEMBER), ("evaluations", _EVALUATION)):
        for entry in record[place]:
            _same_keys(place, entry if isinstance(entry, dict) else {}, keys)
    names = [entry["name"] for entry in record["members"]]
    if not names or len(set(names)) < len(names) or not all(map(_is_plain, names)):
        raise DataError("members: expected different names of folders; get an unaltered copy")
    words = [entry["status"] for entry in record["members"]]
    if not set(words) <= set(STATUSES) or record["status"] != fleet_status(words):
        raise DataError(
            f"status: {record['status']!r} is not what the members' {sorted(set(words))} say; get an unaltered copy"
        )
    if len(record["classes"]) < 2 or record["features"] < 1 or record["rows"] < 1:
        raise DataError("expected two classes or more, rows and features; get an unaltered copy")


def _is_plain(name: Any) -> bool:
    """Whether a name leads nowhere else."""
    return isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0")


def _same_keys(place: str, values: Mapping[str, Any], known: set[str]) -> None:
    if set(values) != known:
        wrong = ", ".join(sorted(set(values) ^ known))
        raise DataError(f"{place}: keys missing or unknown: {wrong}; get an unaltered copy")
