"""Small stores of sequences, and judges that write everything out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coremargin.data.writer import StoreWriter


def sequences(seed: int, examples: int = 40, classes: int = 3, d: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows X, labels y and group ids of sequences whose labels follow each other in a pattern, with noise."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, examples)
    y = np.concatenate([(np.arange(n) + rng.integers(classes)) % classes for n in counts])
    X = rng.normal(size=(len(y), d)).astype(np.float32)
    X[np.arange(len(y)), y % d] += 1.5
    wrong = rng.random(len(y)) < 0.1
    return X, np.where(wrong, rng.integers(0, classes, len(y)), y), np.repeat(np.arange(examples), counts)


def write_sequences(
    path: Path, X: np.ndarray, y: Any, groups: Any, weights: Any = None, *, chunk_rows: int = 16, sparse: bool = False
) -> Path:
    """A store of sequences in small chunks, which they cross."""
    with StoreWriter.create(
        path, features=X.shape[1], grouped=groups is not None, chunk_rows=chunk_rows, weighted=weights is not None,
        sparse=sparse,
    ) as writer:  # fmt: skip
        given = {} if groups is None else {"groups": groups}
        writer.write(csr_array(X) if sparse else X, y, weights, **given)
    return path


def exact_bounds(
    record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], X: np.ndarray, y: list[Any], groups: np.ndarray,
    weights: np.ndarray,
) -> tuple[float, float]:  # fmt: skip
    """(value, dual value) of a model by enumeration of all labellings; -inf for a point that is not feasible.

    Of a hard margin: the least margin, and the bound of the labellings; inf for such a point.

    X: scaled rows; y: labels, None for rows without; groups: a number for each row.
    """
    classes, chained = list(record["classes"]), "transitions" in arrays
    place = [classes.index(label) if label is not None else -1 for label in y]
    s, v, costs, C = record["constant"], arrays["hypothesis"], arrays["costs"], record["parameters"].get("C")
    moves = arrays["transitions"] if chained else np.zeros((len(classes), len(classes)))
    Z = np.column_stack([X.astype(float), np.full(len(X), s)])

    def features(rows: np.ndarray, labels: Any) -> tuple[np.ndarray, np.ndarray]:
        table, into = np.zeros_like(v), np.zeros_like(moves)
        for t, (row, label) in enumerate(zip(rows, labels, strict=True)):
            table[label] += Z[row]
            if t and chained:
                into[labels[t - 1], label] += 1
        return table, into

    value, dual_loss = 0.5 * float((v * v).sum() + (moves * moves).sum()), 0.0
    total = np.zeros_like(v), np.zeros_like(moves)
    known = {}
    start = 0
    for k, end in enumerate(arrays["duals_ends"].tolist()):
        row = int(arrays["duals_row"][k])
        labels = arrays["duals_labels"][start:end].tolist()
        known.setdefault(row, []).append((labels, float(arrays["duals_weight"][k])))
        start = end
    feasible, excess, least = True, 1.0, np.inf
    for group in dict.fromkeys(groups.tolist()):
        rows = np.flatnonzero(groups == group)
        true = [place[row] for row in rows]
        mine = known.pop(int(rows[0]), [])
        c = (1.0 if C is None else C) * float(weights[rows[0]])
        if min(true) < 0 or c == 0:
            feasible = feasible and not mine
            continue
        own = features(rows, true)
        best = -np.inf
        for labels in product(range(len(classes)), repeat=len(rows)):
            here = features(rows, labels)
            loss = sum(costs[a, b] for a, b in zip(true, labels, strict=True))
            more = (here[0] - own[0]) * v, (here[1] - own[1]) * moves
            if C is None and list(labels) == true:
                continue
            best = max(best, loss * (C is not None) + float(more[0].sum() + more[1].sum()))
        least = min(least, -best)
        value += c * best
        if C is not None:
            excess = max(excess, sum(weight for _, weight in mine) / c)
        for labels, weight in mine:
            feasible = feasible and weight >= 0 and len(labels) == len(rows) and (C is not None or labels != true)
            if not feasible:
                break
            here = features(rows, labels)
            dual_loss += weight * sum(costs[a, b] for a, b in zip(true, labels, strict=True))
            for sums, one, other in zip(total, own, here, strict=True):
                sums += weight * (one - other)
    if C is None:
        size = np.sqrt(float((v * v).sum() + (moves * moves).sum()))
        length = np.sqrt(float(sum((one * one).sum() for one in total)))
        weight = float(arrays["duals_weight"].sum())
        return least / size, np.inf if known or not feasible or not weight > 0 else length / weight
    if known or not feasible:
        return value, -np.inf
    # weights that are too large by a factor are a dual point when they are divided by it
    return value, dual_loss / excess - 0.5 * float(sum((one * one).sum() for one in total)) / excess**2
