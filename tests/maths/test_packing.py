"""The bound by certificates without a common row: true, the same in any order of tasks, and near for wrong labels."""

from __future__ import annotations

import numpy as np
import pytest

from coremargin.maths.outliers import packing
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import find_hyperplane, soft_directions
from coremargin.maths.outliers.packing import bound_by_packing
from coremargin.maths.outliers.search import Search, measure_exactly, solve_in_memory
from coremargin.maths.outliers.tasks import run_serially
from outlier_judges import best_by_all_sets


def rows_with_wrong_labels(n: int, d: int, wrong: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a margin of 0.5 but for the wrong labels."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d)), np.where(rng.random(n) < 0.5, 1, -1)
    x[:, 0] = y * (0.5 + np.abs(x[:, 0]))
    y[rng.choice(n, wrong, replace=False)] *= -1
    return x, y


def begun(x: np.ndarray, y: np.ndarray, k: int, *, intercept: bool = True) -> tuple[Search, SearchRows]:
    """A search with the heuristic's incumbent and no bound."""
    search_rows = SearchRows(x, y.astype(np.int8), x.mean(axis=0), intercept=intercept)
    best = measure_exactly(search_rows, find_hyperplane(search_rows, k, soft_directions(search_rows)).w, k)
    return Search(k, 1e-3, float(np.linalg.norm(search_rows.z, axis=1).max()), best, np.inf), search_rows


@pytest.mark.parametrize("seed", range(12))
def test_no_set_of_outliers_passes_the_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against all sets of outliers of tiny rows, in one part or two, with and without an intercept."""
    monkeypatch.setattr(packing, "EACH", 1 if seed % 2 else 50)
    intercept = seed % 4 < 2
    x, y = rows_with_wrong_labels(12, 2, seed % 3, seed)
    y[:3], y[3:6] = 1, -1
    search, search_rows = begun(x, y, 2, intercept=intercept)
    found = bound_by_packing(search, search_rows, run_serially)
    assert found.status == "bounded"
    assert found.upper >= best_by_all_sets(x, y, 2, intercept=intercept) - 1e-12


@pytest.mark.parametrize("k", [30, 36])
def test_the_certificates_share_no_row_and_the_bound_is_near(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """k + 1 sets of rows with values up to the bound; near the best where k is the number of wrong labels."""
    monkeypatch.setattr(packing, "EACH", 7)
    x, y = rows_with_wrong_labels(600, 3, 30, seed=4)
    search, search_rows = begun(x, y, k)
    found = bound_by_packing(search, search_rows, run_serially)
    (leaf,) = found.proof or ()
    rows = np.concatenate([found.certificates[i].rows for i in leaf.proof])
    assert leaf.path == ()
    assert len(leaf.proof) == k + 1
    assert len(np.unique(rows)) == len(rows)
    assert found.upper == max(certificate.value for certificate in found.certificates)
    assert found.upper <= (1.02 if k == 30 else 1.5) * search.best.margin
    assert found.upper >= solve_in_memory(x, y, k, most_nodes=50).best.margin


def test_the_order_of_tasks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that end in another order give the same bound and the same proof."""
    monkeypatch.setattr(packing, "EACH", 5)
    search, search_rows = begun(*rows_with_wrong_labels(400, 3, 18, seed=6), 20)
    there = bound_by_packing(search, search_rows, run_serially)
    back = bound_by_packing(search, search_rows, lambda function, tasks: run_serially(function, tasks[::-1])[::-1])
    assert back.upper == there.upper
    assert [c.rows.tolist() for c in back.certificates] == [c.rows.tolist() for c in there.certificates]


def test_contradictions_are_packed_where_too_few_rows_may_be_left_out() -> None:
    """With fewer outliers than wrong labels: more sets without a margin than rows to leave out."""
    search, search_rows = begun(*rows_with_wrong_labels(500, 2, 20, seed=8), 12)
    found = bound_by_packing(search, search_rows, run_serially)
    assert search.lower == 0
    assert found.upper < 1e-12
