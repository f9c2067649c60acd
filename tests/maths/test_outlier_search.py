"""The outlier search in memory: equal to all sets of outliers, its proof, its independence of how it is run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin.maths.outliers import search as search_module
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.heuristic import find_hyperplane, soft_directions
from coremargin.maths.outliers.search import (
    ALONE_BUDGET,
    BUDGET,
    TASKS,
    Search,
    accept_candidates,
    after_scan,
    measure_exactly,
    run_round,
    solve_in_memory,
    with_upper_bound,
)
from coremargin.maths.outliers.tasks import run_serially
from margin_judges import is_above_exact, margin_by_daqp
from outlier_judges import KINDS, best_by_all_sets, instance

if TYPE_CHECKING:
    from coremargin.maths.outliers.explore import Leaf, Leaves


def noisy(n: int, d: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a margin of 0.5, k of them with the wrong label."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    w /= np.linalg.norm(w)
    x, y = rng.normal(size=(n, d)), np.where(rng.random(n) < 0.5, 1, -1)
    x += np.outer(y * (0.5 + np.abs(x @ w)) - x @ w, w)
    y[rng.choice(n, k, replace=False)] *= -1
    return x, y


def check_proof(search: Search, leaves: Leaves) -> None:
    """Every set of k outliers ends in a leaf, whose certificates it cannot all meet."""
    check_below(search, [leaves[i] for i in range(len(leaves))], ())


def check_below(search: Search, leaves: list[Leaf], path: tuple[int, ...]) -> None:
    """The same for those with this path."""
    here = [leaf for leaf in leaves if leaf.path == path]
    if here:
        assert len(leaves) == 1
        out = {step for step in path if step >= 0}
        kept = {~step for step in path if step < 0}
        sets = [set(search.certificates[i].rows.tolist()) for i in here[0].proof]
        assert all(not rows & out for rows in sets)
        residuals = [rows - kept for rows in sets]
        most = max(Counter(row for rows in residuals for row in rows).values(), default=0)
        assert any(not rows for rows in residuals) or len(residuals) > most * (search.k - len(out))
        return
    steps = {leaf.path[len(path)] for leaf in leaves}
    row = next(step for step in steps if step >= 0)
    assert steps == {row, ~row}
    for step in (row, ~row):
        check_below(search, [leaf for leaf in leaves if leaf.path[len(path)] == step], (*path, step))


@pytest.mark.specimens(1)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_all_sets_of_outliers(kind: str, intercept: bool) -> None:
    """On 60 tiny instances each the bounds meet at the best over all sets of k rows, 0 where none separates."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        x, y, k = instance(kind, rng)
        search = solve_in_memory(x, y, k, intercept=intercept)
        best = best_by_all_sets(x, y, k, intercept=intercept)
        assert search.status == "done"
        assert search.lower == pytest.approx(best, abs=1e-8)
        assert search.upper == pytest.approx(best, abs=1e-8)
        assert search.lower <= search.upper


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_a_single_solve_get_there(kind: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first solve spends a task's budget, the next task continues: no solve is repeated for ever."""
    monkeypatch.setattr(search_module, "EFFORT", 1)
    monkeypatch.setattr(search_module, "EFFORT_EACH", 0)
    for name in ("BUDGET", "ALONE_BUDGET", "INTERPRETED"):
        monkeypatch.setattr(search_module, name, 1)
    monkeypatch.setattr("coremargin.maths.outliers.search.INTERPRETED", 0 if compiled else 10**9)
    rng = np.random.default_rng(7)
    for _ in range(6):
        x, y, k = instance(kind, rng)
        search = solve_in_memory(x, y, k, most_nodes=20_000)
        best = best_by_all_sets(x, y, k, intercept=True)
        assert search.status == "done"
        assert search.lower == pytest.approx(best, abs=1e-8)
        assert search.upper == pytest.approx(best, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [True, False])
def test_epsilon_is_kept(intercept: bool) -> None:
    """With epsilon the margin found is at least (1 - epsilon) of the best, and the bound is true."""
    rng = np.random.default_rng(8)
    for _ in range(60):
        x, y, k = instance("noise", rng)
        search = solve_in_memory(x, y, k, intercept=intercept, epsilon=0.2)
        best = best_by_all_sets(x, y, k, intercept=intercept)
        assert best * (1 - 1e-9) <= search.upper <= best / 0.8 + 1e-8
        assert 0.8 * best - 1e-8 <= search.lower <= best * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_proof_covers_every_set(kind: str) -> None:
    """Leaves share the sets of outliers among them; certificates that hold in rational arithmetic end each."""
    rng = np.random.default_rng(9)
    for _ in range(20):
        x, y, k = instance(kind, rng)
        search = solve_in_memory(x, y, k)
        assert search.proof
        check_proof(search, search.proof)
        used = set(search.proof.proofs.values.tolist())
        for c in (search.certificates[i] for i in used):
            assert c.value <= search.upper
            assert is_above_exact(c.value, x[c.rows], y[c.rows], c.weights, intercept=True)


@pytest.mark.parametrize(("unit", "shift"), [(1e-8, 0.0), (1e8, 0.0), (1.0, 1e4), (1e-3, -50.0)])
def test_units_and_origin_do_not_matter(unit: float, shift: float) -> None:
    """Rows in other units, far from the origin: the same answer in these units, bounds that meet."""
    rng = np.random.default_rng(10)
    for kind in ("flipped", "noise"):
        x, y, k = instance(kind, rng)
        here, there = solve_in_memory(x, y, k), solve_in_memory(x * unit + shift, y, k)
        size = unit * float(np.abs(x).max()) + abs(shift)
        assert there.status == "done"
        assert there.lower == pytest.approx(here.lower * unit, rel=1e-6, abs=1e-9 * size)
        assert there.upper == pytest.approx(here.upper * unit, rel=1e-6, abs=1e-9 * size)


def test_flipped_labels_are_found() -> None:
    """Twelve wrong labels among 400 rows: they are excluded, and the others have an independent solver's margin."""
    x, y = noisy(400, 6, 12, seed=3)
    search = solve_in_memory(x, y, 12)
    margins = y * (x @ search.best.w + search.best.b)
    stay = np.argsort(margins)[12:]
    assert search.status == "done"
    assert search.lower == pytest.approx(margin_by_daqp(x[stay], y[stay], intercept=True), rel=1e-8)
    assert search.upper == pytest.approx(search.lower, rel=1e-7)


def test_too_few_outliers_are_proven_to_be_too_few() -> None:
    """Twenty wrong labels, ten may be excluded: more than ten disjoint contradictions."""
    x, y = noisy(300, 5, 20, seed=4)
    search = solve_in_memory(x, y, 10)
    assert search.status == "done"
    assert search.lower == 0
    assert search.upper < 1e-12


def test_a_stopped_search_has_true_bounds() -> None:
    """Whenever it stops there is a margin and a bound, which only improve, and meet at the end."""
    x, y = noisy(120, 6, 0, seed=5)
    bounds = [(s.lower, s.upper) for s in (solve_in_memory(x, y, 8, most_nodes=m) for m in (1, 400, 700, 100_000))]
    lower, upper = np.array(bounds).T
    assert (np.diff(lower) >= 0).all()
    assert (np.diff(upper) <= 0).all()
    assert upper[1] < np.inf
    assert lower[-1] == pytest.approx(upper[-1], rel=1e-7)
    assert (upper >= lower[-1]).all()


@pytest.fixture(scope="module")
def rounds() -> list[Search]:
    """A search on rows that are no outliers, round by round: the target takes several times its first time."""
    x, y = noisy(150, 6, 0, seed=6)
    search_rows = SearchRows(x, y.astype(np.int8), x.mean(axis=0), intercept=True)
    best = measure_exactly(search_rows, find_hyperplane(search_rows, 12, soft_directions(search_rows)).w, 12)
    found = [Search(12, 1e-3, float(np.linalg.norm(search_rows.z, axis=1).max()), best, np.inf)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "PATIENCE", 100)
        while found[-1].status == "open" and found[-1].work < 3000:
            last = found[-1]
            proven = [measure_exactly(search_rows, candidate.solution.point, 12) for candidate in last.candidates]
            better = [one for one in proven if one.margin > last.best.margin]
            if not last.wants_scan:
                found.append(run_round(last, search_rows, run_serially))
            else:
                found.append(after_scan(last, better[0]) if better else accept_candidates(last, search_rows))
    return found


def waiting_or_at_work(one: Search) -> tuple[Search, ...]:
    """The search at its level, and at the one that waits."""
    return (one,) if one.paused is None else (one, replace(one, level=one.paused))


def test_levels_on_the_way_cost_a_share_of_the_target(rounds: list[Search]) -> None:
    """However long the target takes, levels beside it get half of its work, but for what one round may overshoot."""
    shares = []
    for one in rounds:
        (work,) = [at.level.work for at in waiting_or_at_work(one) if at.level.share == 0] or [0]
        if work > 400:
            shares.append((one.work - work) / work)
            assert one.work - work <= 0.5 * work + max(TASKS * BUDGET, ALONE_BUDGET)
    assert max(shares) > 0.4
    assert rounds[-1].upper < rounds[len(rounds) // 2].upper


def test_a_bound_from_elsewhere_ends_levels_above_it(rounds: list[Search]) -> None:
    """What is searched next is below the bound, in levels at work and in those that wait; the target stays."""
    seen = 0
    for before in rounds[:-1]:
        highest = max(at.threshold for at in waiting_or_at_work(before))
        upper = before.target + 0.9 * (min(before.upper, highest) - before.target)
        after = with_upper_bound(before, upper)
        assert (after.upper, after.proof, after.target) == (upper, None, before.target)
        for at in waiting_or_at_work(after):
            assert at.level.share == 0 or at.threshold < upper
            seen += at.level.share > 0
    assert seen > 2
