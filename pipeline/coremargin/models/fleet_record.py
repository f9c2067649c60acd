"""Fields of a fleet's record about all members: counts, averages, the choice (formats/fleet_record.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from coremargin.formats.fleet_record import Setting


def named(setting: Setting) -> dict[str, Any]:
    """C, and gamma where there is one, as lines have them."""
    cost, gamma = setting
    return {"C": cost} if gamma is None else {"C": cost, "gamma": gamma}


def setting_of(line: Mapping[str, Any]) -> Setting:
    """C and gamma of a line."""
    return line["C"], line.get("gamma")


def evaluation(setting: Setting, fold: int | None, confusion: np.ndarray) -> dict[str, Any]:
    """An entry of ``evaluations`` for a confusion matrix (k, k)."""
    rows = int(confusion.sum())
    accuracy = float(np.trace(confusion)) / rows if rows else 0.0
    return {**named(setting), "fold": fold, "rows": rows, "accuracy": accuracy, "confusion": confusion.tolist()}


def validation(evaluations: Sequence[Mapping[str, Any]], settings: Sequence[Setting]) -> list[dict[str, Any]] | None:
    """Accuracy on rows that were held out, for each setting; None without folds."""
    table = []
    for setting in settings:
        found = [entry for entry in evaluations if setting_of(entry) == setting and entry["fold"] is not None]
        if not found:
            return None
        accuracies = [entry["accuracy"] for entry in sorted(found, key=lambda entry: int(entry["fold"]))]
        mean, std = float(np.mean(accuracies)), float(np.std(accuracies))
        table.append({**named(setting), "mean": mean, "std": std, "accuracies": accuracies})
    return table


def chosen(
    table: Sequence[Mapping[str, Any]] | None,
    settings: Sequence[Setting],
    risks: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any] | None:
    """The setting to use, and why: of equal ones the smallest C, of these the first.

    risks: by which to choose; None: by the accuracies of ``table``.
    """
    if len(settings) == 1:
        return {**named(settings[0]), "by": "only"}
    if risks is not None:
        least = min(risks, key=lambda entry: (entry["risk"], entry["C"]), default=None)
        return None if least is None else {**named(setting_of(least)), "by": "risk"}
    if table is None:
        return None
    best = max(table, key=lambda entry: (entry["mean"], -(entry["C"] or 0.0)))
    return {**named(setting_of(best)), "by": "validation"}
