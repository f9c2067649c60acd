"""What the record of a fleet says of its members together: counted, averaged, chosen (formats/fleet_record.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


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
