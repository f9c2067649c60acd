"""Certificates in combination: what they say is what the smallest hitting set and the linear program say."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from coremargin.maths.outliers.compiled import kernel
from coremargin.maths.outliers.tree import ACTIVE, CHOSEN, FREE, KEPT, LEFT, MOST, CertificateTable, Node

Sets = list[frozenset[int]]


def node_of(sets: Sets, rows: int, left: int, kept: frozenset[int] = frozenset()) -> tuple[CertificateTable, Node]:
    """A node where ``left`` more rows may be excluded, with these certificates, all active."""
    parts = [np.array(sorted(each)) for each in sets]
    ends = np.cumsum([0, *(len(part) for part in parts)])
    certificates = CertificateTable(np.concatenate(parts), np.zeros(int(ends[-1])), ends, np.array([len(sets)]))
    status = np.full(rows, FREE, np.int8)
    status[sorted(kept)] = KEPT
    counts = np.zeros(5, np.int64)
    counts[ACTIVE], counts[LEFT] = len(sets), left
    residual = np.array([len(each - kept) for each in sets])
    nothing = np.zeros(rows + 2, np.int64)
    node = Node(
        nothing.copy(), status, np.zeros(rows, np.bool_), np.arange(len(sets)), residual, nothing.copy(),
        np.zeros(MOST * (left + 1), np.int64), counts, np.zeros(rows, np.int64), np.zeros(rows),
    )  # fmt: skip
    return certificates, node


def program(sets: Sets, rows: int) -> float:
    """The largest sum of weights of the sets, with at most 1 in all at each row; by HiGHS."""
    of = np.array([[row in each for each in sets] for row in range(rows)], float)
    return float(-linprog(-np.ones(len(sets)), A_ub=of, b_ub=np.ones(rows)).fun)


def met(sets: Sets, rows: int, left: int) -> bool:
    """Whether so many rows meet all sets."""
    return any(all(each & set(chosen) for each in sets) for chosen in combinations(range(rows), left))


def some_sets(rng: np.random.Generator, rows: int) -> Sets:
    """Sets of two to four of the rows."""
    return [frozenset(rng.choice(rows, rng.integers(2, 5), replace=False).tolist()) for _ in range(rng.integers(3, 25))]


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_what_is_combined_cannot_be_met(compiled: bool) -> None:
    """Where the answer is yes no set of rows meets all, the program says so too, and what was chosen is the proof;
    where the program is well above, the answer is yes.
    """
    rng, combine, yes = np.random.default_rng(5), kernel("combine", compiled=compiled), 0
    for _ in range(150):
        rows, left = 9, int(rng.integers(1, 4))
        sets, kept = some_sets(rng, rows), frozenset(rng.choice(rows, 2, replace=False).tolist())
        rests = [each - kept for each in sets]
        if not all(rests):
            continue
        certificates, node = node_of(sets, rows, left, kept)
        best = program(rests, rows)
        if not combine(certificates, node):
            assert best <= left * 1.5
            continue
        yes += 1
        assert best > left
        assert not met(rests, rows, left)
        named = Counter(node.chosen[: node.counts[CHOSEN]].tolist())
        most = max(sum(often for i, often in named.items() if row in rests[i]) for row in range(rows))
        assert sum(named.values()) > most * left
        assert most <= MOST
    assert yes > 30


def test_a_triangle_is_more_than_a_packing() -> None:
    """Three pairs of three rows: no two are apart, and yet one row meets two of them only."""
    triangle = [frozenset({0, 1}), frozenset({1, 2}), frozenset({0, 2})]
    combine = kernel("combine", compiled=False)
    assert combine(*node_of(triangle, 3, 1))
    assert not combine(*node_of(triangle, 3, 2))
    assert not combine(*node_of([frozenset({0, 1, 2})] * 5, 3, 1))
