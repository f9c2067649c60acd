"""Leaves whose certificates are combined, judged by an integer program: no rows left out meet all that a leaf names."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from coremargin.maths.outliers.search import solve_in_memory
from coremargin.verify.removal import check_leaf
from outlier_loop import noisy

K = 10

#: Path, and the rows of the certificates that the leaf names, as often as it does.
Leaf = tuple[tuple[int, ...], list[frozenset[int]]]


@pytest.fixture(scope="module")
def leaves() -> list[Leaf]:
    """A hundred leaves of a search among rows four of which have the wrong label."""
    x, y = noisy(800, 8, 4, seed=2)
    search = solve_in_memory(x.astype(np.float64), y, K, epsilon=1e-3)
    assert search.status == "done"
    assert search.proof is not None
    return [
        (tuple(path.tolist()), [frozenset(search.certificates[i].rows.tolist()) for i in proof])
        for path, proof in zip(search.proof.paths, search.proof.proofs, strict=True)
    ][:100]


def is_combined(leaf: Leaf) -> bool:
    """Whether some row that may be left out is in more than one of what the leaf names."""
    path, sets = leaf
    kept = {~step for step in path if step < 0}
    return all(rows - kept for rows in sets) and max(Counter(r for rows in sets for r in rows - kept).values()) > 1


def fewest(leaf: Leaf) -> float:
    """How few rows, of those that may be left out, meet all certificates of a leaf; inf: none do. By HiGHS."""
    path, sets = leaf
    kept = {~step for step in path if step < 0}
    rests = [rows - kept for rows in set(sets)]
    if not all(rests):
        return np.inf
    rows = sorted(set().union(*rests))
    of = np.array([[row in rest for row in rows] for rest in rests], float)
    found = milp(np.ones(len(rows)), constraints=LinearConstraint(of, 1), integrality=1, bounds=Bounds(0, 1))
    assert found.success
    return float(found.fun)


def accepted(leaf: Leaf) -> bool:
    """Whether verify takes a leaf as proven."""
    path, sets = leaf
    try:
        check_leaf(path, list(Counter(sets).items()), K)
    except ValueError:
        return False
    return True


def left_of(path: tuple[int, ...]) -> int:
    """Rows that may still be left out."""
    return K - sum(step >= 0 for step in path)


def test_no_rows_left_out_meet_all_that_a_leaf_names(leaves: list[Leaf]) -> None:
    """Some leaves are combined ones; all are accepted, and all are right."""
    assert sum(map(is_combined, leaves)) > 10
    for leaf in leaves:
        assert accepted(leaf)
        assert fewest(leaf) > left_of(leaf[0]) + 0.5


def test_a_leaf_that_was_altered_is_refused_or_right_all_the_same(leaves: list[Leaf]) -> None:
    """Certificates dropped, doubled, or those of another leaf; rows of the path left out, or kept: a judge agrees with
    whatever is accepted, and most is not.
    """
    rng, refused, tried = np.random.default_rng(5), 0, 0
    for path, sets in [leaf for leaf in leaves if is_combined(leaf)]:
        other = leaves[int(rng.integers(len(leaves)))]
        place, more = int(rng.integers(len(sets))), int(rng.integers(2, 50))
        changed: list[Leaf] = [
            (path, sets[:place] + sets[place + 1 :]),
            (path, sets[:place] + sets[place + 1 :] + [sets[place - 1]]),
            (path, sorted(set(sets), key=sets.index)),
            (path, [sets[place]] * more + sets),
            (path, sets[:1] * more),
            (path, sets * more),
            (path, other[1]),
            (path[:-1], sets),
            ((*path, ~min(sets[place])), sets),
        ]  # fmt: skip
        for leaf in changed:
            if not leaf[1]:
                continue
            tried += 1
            if accepted(leaf):
                assert fewest(leaf) > left_of(leaf[0]) + 0.5
            else:
                refused += 1
    assert 0.4 * tried < refused < tried
