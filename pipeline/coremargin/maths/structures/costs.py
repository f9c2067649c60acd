"""Costs of a label in the place of a true one: (K, K), 0 on the diagonal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def zero_one(classes: int) -> Array:
    """1 for every wrong label."""
    return np.ones((classes, classes)) - np.eye(classes)


def distances(numbers: Sequence[float]) -> Array:
    """How far labels that are numbers (K,) are apart: the costs of ordinal regression."""
    values = np.asarray(numbers, np.float64)
    return np.abs(values[:, None] - values[None, :])


def tree_costs(labels: Sequence[str], parents: Mapping[str, str]) -> Array:
    """Half of the edges between two labels in a tree: 1 for labels below the same node.

    labels: the nodes that are classes; parents: of every node but the root. Raises ValueError for a label that is not
    in the tree, nodes in a circle, and labels without a common root.
    """
    ways = []
    for label in labels:
        if label not in parents and label not in parents.values():
            raise ValueError(f"no line has {label!r}")
        way = [label]
        while way[-1] in parents:
            if parents[way[-1]] in way:
                raise ValueError(f"{way[-1]!r} is above itself")
            way.append(parents[way[-1]])
        ways.append(way[::-1])
    if len({way[0] for way in ways}) > 1:
        raise ValueError(f"{labels[0]!r} and others have no common root")
    costs = np.zeros((len(ways), len(ways)))
    for i, one in enumerate(ways):
        for j, other in enumerate(ways):
            shared = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
            common = min(len(one), len(other)) if shared is None else shared
            costs[i, j] = (len(one) + len(other) - 2 * common) / 2
    return costs
