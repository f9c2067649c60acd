"""Confusion matrices (k, k) for people: as tables, or for many classes as lists of the most frequent confusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CLASSES_SHOWN = 40  #: beyond it the most frequent confusions are listed
CONFUSIONS_SHOWN = 20


def confusion_view(run: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """What templates show of the matrix in ``run.json``, if it has one."""
    matrix = np.array(run.get("confusion") or [])
    counted = matrix if matrix.sum() else None
    return {
        "accuracy": share(counted),
        "confusion": matrix_lines(counted, labels),
        "confusions": confusions(counted, labels),
        "by_class": by_class(counted, labels),
        "final": run.get("confusion_of") == "final",
    }


def share(matrix: np.ndarray | None) -> float | None:
    """Accuracy; None without rows."""
    return None if matrix is None or not matrix.sum() else float(np.trace(matrix) / matrix.sum())


def by_class(matrix: np.ndarray | None, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Recall, precision ("exact") and F1 of each class, None for 0 / 0; empty without a matrix."""
    if matrix is None:
        return []
    lines = []
    for i, label in enumerate(labels):
        rows, given, right = int(matrix[i].sum()), int(matrix[:, i].sum()), int(matrix[i, i])
        lines.append(
            {
                "label": label,
                "rows": rows,
                "recall": right / rows if rows else None,
                "exact": right / given if given else None,
                "f1": 2 * right / (rows + given) if rows + given else None,
            }
        )
    return lines


def matrix_lines(matrix: np.ndarray | None, labels: Sequence[str]) -> list[dict[str, Any]] | None:
    """Rows of the matrix as cells of counts and shares; None if there are too many classes."""
    if matrix is None or len(labels) > CLASSES_SHOWN:
        return None
    totals = np.maximum(matrix.sum(axis=1), 1)
    return [
        {
            "label": label,
            "cells": [
                {"rows": int(n), "share": 100.0 * float(n) / float(total), "right": i == j} for j, n in enumerate(line)
            ],
        }
        for i, (label, line, total) in enumerate(zip(labels, matrix, totals, strict=True))
    ]


def confusions(matrix: np.ndarray | None, labels: Sequence[str], most: int = CONFUSIONS_SHOWN) -> list[dict[str, Any]]:
    """The most frequent confusions; for weights the heaviest."""
    if matrix is None:
        return []
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [divmod(int(place), len(labels)) for place in order]
    return [{"of": labels[i], "given": labels[j], "rows": wrong[i, j].item()} for i, j in pairs if wrong[i, j]]
