"""The compiled kernels, judged by a solver of others; what becomes of a search that changes over to them."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.maths import nearest
from coremargin.maths.nearest import Limits, face_of, nearest_point
from coremargin.maths.outliers import compiled, search, tree
from coremargin.maths.outliers.certificates import Certificates, SearchRows
from coremargin.maths.outliers.compiled import kernel
from coremargin.maths.outliers.explore import Leaves, Query, TaskResult, explore
from coremargin.maths.outliers.forecast import forecast_gap
from coremargin.maths.outliers.heuristic import fewest_misclassified
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.search import solve_in_memory
from margin_judges import exact_margins, is_above_exact, widest_by_daqp
from outlier_judges import best_by_all_sets, instance


def made(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows and signs of both classes: some separable, some not."""
    n, d = int(rng.integers(4, 40)), int(rng.integers(1, 7))
    x, y = rng.normal(size=(n, d)), np.where(np.arange(n) % 2, 1, -1)
    if kind == "grid":
        x = rng.integers(-2, 3, size=(n, d)).astype(float)
    x[:, 0] += rng.choice([0.0, 1.5, 4.0]) * y
    if kind == "repeated":
        x, y = np.repeat(x, 3, axis=0), np.repeat(y, 3)
    if kind == "scaled":
        x *= 10.0 ** rng.integers(-4, 5, d)
    return x, y


def exact_margin(x: np.ndarray, y: np.ndarray, w: np.ndarray, *, intercept: bool) -> float:
    """The margin of a direction at its best offset, 0 where it has none, without rounding but for the last step."""
    if not w.any():
        return 0.0
    signed = y * (x @ w)
    b = float(signed[y < 0].min() - signed[y > 0].min()) / 2 if intercept else 0.0
    return max(0.0, float(min(exact_margins(x, y, w, b))) / float(np.linalg.norm(w)))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", ["normal", "grid", "repeated", "scaled"])
@pytest.mark.parametrize("fast", [False, True])
def test_a_walk_finds_the_margin_of_a_solver_of_others(kind: str, intercept: bool, fast: bool) -> None:
    """The shortest vector has the length that the margin of daqp stands for, and next to none where there is none.

    The tolerances of daqp go by the largest number: where it finds no margin, exact ones say what the vector has.
    """
    rng, separable = np.random.default_rng(21), 0
    for _ in range(40):
        x, y = made(kind, rng)
        groups = (y < 0).astype(int) if intercept else np.zeros(len(y), int)
        z = (x - x.mean(axis=0) if intercept else x) * y[:, None]
        found = nearest_point(z, groups, walk=kernel("walk", compiled=fast))
        best = widest_by_daqp(x, y, intercept=intercept) or exact_margin(x, y, found.point, intercept=intercept)
        length = float(np.linalg.norm(found.weights @ z)) / (2 if intercept else 1)
        size = float(np.linalg.norm(z, axis=1).max())
        separable += best > 0
        assert length == pytest.approx(best, rel=1e-6, abs=1e-8 * size)
    assert 5 < separable < 40


@pytest.mark.parametrize("fast", [False, True])
def test_blocked_rows_in_two_tiers_are_judged_too(fast: bool) -> None:
    """Whatever lies in the second tier, the margin is that of daqp for the rows that are there."""
    rng = np.random.default_rng(22)
    for _ in range(30):
        near, far, d = int(rng.integers(2, 6)), int(rng.integers(0, 9)), int(rng.integers(1, 5))
        groups = np.repeat([0, 1, 0, 1], [near, near, far, far])
        y, tiers = 1 - 2 * groups, np.cumsum([[0, near, near], [2 * near, far, far]], axis=1)
        x = rng.normal(size=(len(y), d)) + 3.0 * y[:, None] * np.eye(d)[0]
        there = rng.random(len(y)) < 0.7
        there[[0, near]] = True
        weights, z = np.zeros(len(y)), x * y[:, None]
        weights[[0, near]] = 1.0
        face, blocked = face_of(z, groups, 2), np.where(there, 0.0, np.inf)
        kernel("walk", compiled=fast)(face, weights, blocked, tiers, Limits(1e-12, 1e-13, -1.0, 10_000))
        best = widest_by_daqp(x[there], y[there], intercept=True) or 0.0
        assert not weights[~there].any()
        assert float(np.linalg.norm(weights @ z)) / 2 == pytest.approx(best, abs=1e-7)


def test_a_search_that_changes_over_on_the_way_gives_a_true_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun as it stands and ended compiled: the best over all sets, by certificates that hold in exact numbers."""
    used: list[bool] = []

    def noted(search_rows: SearchRows, known: Ragged, nodes: Ragged, query: Query) -> TaskResult:
        used.append(query.compiled)
        return explore(search_rows, known, nodes, query)

    monkeypatch.setattr(search, "explore", noted)
    monkeypatch.setattr(search, "INTERPRETED", 6)
    rng, both = np.random.default_rng(23), 0
    for intercept in (True, False) * 10:
        x, y, k = instance("noise", rng)
        used.clear()
        found = solve_in_memory(x, y, k, intercept=intercept)
        both += {True, False} == set(used)
        assert used == sorted(used)
        best = best_by_all_sets(x, y, k, intercept=intercept)
        assert (found.lower, found.upper) == pytest.approx((best, best), abs=1e-8)
        assert found.proof is not None
        for number in np.unique(found.proof.proofs.values):
            one = found.certificates[number]
            assert one.value <= found.upper
            assert is_above_exact(one.value, x[one.rows], y[one.rows], one.weights, intercept=intercept)
    assert both > 5


@pytest.mark.parametrize(
    ("module", "name"),
    [(nearest, "PROGRESS"), (tree, "KEPT"), (tree, "HEAVIER"), (tree, "FEW")],
)
def test_the_name_of_what_is_cached_goes_by_each_constant(
    module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number in any of the modules whose functions are compiled is another name."""
    before = compiled.digest()
    monkeypatch.setattr(module, name, getattr(module, name, 0) + 1)
    assert compiled.digest.__wrapped__() != before


@pytest.mark.parametrize("name", ["walk", "shrink", "combine", "visit"])
def test_the_name_of_what_is_cached_goes_by_what_the_process_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each function as it is in memory, to which nothing is done by files that change while a process runs."""
    before = compiled.digest()
    assert compiled.digest.__wrapped__() == before
    source = compiled._SOURCES[name]
    other = types.FunctionType(source.__code__.replace(co_consts=(*source.__code__.co_consts, 7)), {})
    monkeypatch.setitem(compiled._SOURCES, name, other)
    assert compiled.digest.__wrapped__() != before


def test_the_name_of_what_is_cached_is_that_of_another_process() -> None:
    """Or nothing would ever be found there."""
    words = "from coremargin.maths.outliers.compiled import digest; print(digest())"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout
    assert done.strip() == compiled.digest()


def test_kernels_compile_where_nothing_may_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba refuses to cache: the functions are compiled for this process, call each other, and no folder is named."""
    real = numba.njit

    def njit(*args: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(*args, **options)

    monkeypatch.setattr(numba, "njit", njit)
    found = compiled.kernels.__wrapped__()
    monkeypatch.setattr(compiled, "kernels", lambda: found)
    assert compiled.cache_folder() is None
    r = np.array([[2.0, 1.0], [0.0, 4.0]]).T.copy().T
    assert found.solve_upper(r, 2, np.array([4.0, 8.0])).tolist() == [1.0, 2.0]
    assert found.descend.py_func.__globals__["shortest"] is found.shortest


@given(
    st.lists(st.tuples(st.integers(1, 99), st.floats(0.01, 1.0), st.floats(1.0, 9.0)), max_size=8), st.integers(0, 9)
)
def test_a_gap_is_never_expected_to_grow(falls: list[tuple[int, float, float]], idle: int) -> None:
    """Of any trace with bounds that only improve; and more work without a step makes the expectation no better."""
    works = np.cumsum([work for work, _, _ in falls])
    lower = np.maximum.accumulate([low for _, low, _ in falls]) if falls else np.zeros(0)
    upper = np.minimum.accumulate([high for _, _, high in falls]) if falls else np.zeros(0)
    steps = list(zip(works.tolist(), lower.tolist(), upper.tolist(), strict=True))
    last = int(works[-1]) if falls else 1
    now, later = forecast_gap(steps, last), forecast_gap(steps, last + idle)
    assert (now is None) == (later is None)
    if now is not None and later is not None:
        assert now.gap == later.gap
        assert 0 <= now.later <= later.later <= now.gap


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12), st.integers(1, 8))
def test_what_stands_is_chosen_as_said(facts: list[tuple[int, bool]], most: int) -> None:
    """By a plain sort: of those that stand the newest half, and of the others the most used, the older of equals."""
    uses, stands = [use for use, _ in facts], [number for number, (_, stand) in enumerate(facts) if stand]
    one_each = Ragged.from_lists([place] for place in range(len(facts)))
    since = np.array([1.0 if stand else 2.0 for _, stand in facts])
    found = Certificates(one_each, one_each, since, since, np.array(uses, np.int64)).valid_at(1.0, most)
    newest = stands[len(stands) - min(len(stands), most // 2) :]
    others = sorted(stands[: len(stands) - len(newest)], key=lambda number: (-uses[number], number))
    assert found.tolist() == sorted([*others[: most - most // 2], *newest])


def test_the_fewest_wrong_rows_of_several_directions() -> None:
    """The least over directions, a zero one apart; all rows where there is no direction."""
    x, y = np.array([[1.0, 0.0], [2.0, 1.0], [-1.0, 0.0], [-2.0, 3.0]]), np.array([1, 1, -1, -1], np.int8)
    rows = SearchRows(x, y, np.zeros(2), intercept=False)
    assert fewest_misclassified([np.zeros(2), -np.eye(2)[0]], rows) == 4
    assert fewest_misclassified([-np.eye(2)[0], np.eye(2)[0]], rows) == 0
    assert fewest_misclassified([np.eye(2)[1]], rows) == 1
    assert fewest_misclassified([np.zeros(2)], rows) == fewest_misclassified([], rows) == 4


def test_answers_of_tasks_get_their_final_numbers() -> None:
    """A set of rows that was found several times is kept once, and every proof refers to what its task meant."""
    rng = np.random.default_rng(24)
    x, y = rng.normal(size=(12, 2)), np.where(np.arange(12) % 2, 1, -1).astype(np.int8)
    rows = SearchRows(x, y, np.zeros(2), intercept=True)
    lists = [[[0, 1], [2, 3], [0, 1]], [[2, 3], [4, 5]], [[6, 7], [0, 1], [8, 9]]]
    answers = []
    for sets in lists:
        weights = Ragged.from_lists(([1.0, 1.0] for _ in sets), np.float64)
        ends = Leaves(
            Ragged.from_lists([i] for i, _ in enumerate(sets)), Ragged.from_lists([i] for i, _ in enumerate(sets))
        )
        found = rows.certificates(Ragged.from_lists(sets), weights, 9.0)
        answers.append(TaskResult(Ragged.empty(), found, ends, [], 1, 1))
    begun = solve_in_memory(x, y, 0, most_nodes=0)
    merged = search.merge_results(begun, np.zeros(0, np.intp), answers)
    kept = [one.rows.tolist() for one in merged.certificates]
    assert sorted(kept) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert merged.level.leaves is not None
    meant = [kept[proof[0]] for proof in merged.level.leaves.proofs]
    assert meant == [rows for sets in lists for rows in sets]
    assert merged.certificates.uses.tolist() == [3, 2, 1, 1, 1]


@pytest.mark.slow
def test_no_index_of_a_larger_search_is_out_of_bounds(tmp_path: Path, repository: Path) -> None:
    """With every index checked, which an index beyond the end of a list shows: noise, of more features than rows too,
    splits nodes, fills lists and deals out tasks.
    """
    code = """
import numba, numpy as np
from coremargin.maths.outliers import explore, search
from coremargin.maths.outliers.search import solve_in_memory
@numba.njit
def beyond(values, place):
    return values[place]
try:
    beyond(np.zeros(3), 7)
except IndexError:
    pass
else:
    raise SystemExit("nothing is checked")
search.INTERPRETED, search.ALONE, search.BUDGET = 0, 0, 40
widened, real = [], explore._with_room
def roomier(out, room):
    widened.append(room)
    return real(out, room)
explore._with_room = roomier
rng, work = np.random.default_rng(5), 0
for n, d, k in ((40, 3, 5), (16, 30, 3), (60, 2, 9), (30, 1, 4), (90, 6, 6), (300, 2, 70)):
    for intercept in (True, False):
        x, y = rng.normal(size=(n, d)), np.where(np.arange(n) % 2, 1, -1)
        x[:, 0] += 1.5 * y
        found = solve_in_memory(x, y, k, intercept=intercept, epsilon=1e-3, most_nodes=3000)
        assert found.lower <= found.upper
        work += found.work
assert work > 3000, work
assert max(widened) > min(widened)
"""
    more = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(repository / "pipeline")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=170, env=os.environ | more)
