"""The kernels of the outlier search, compiled and as they stand: one source, the same answers, true ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from coremargin.maths import factors, loops
from coremargin.maths.jit import jit
from coremargin.maths.nearest import CLEAR, OPTIMAL, SHORT, Limits, face_of, nearest_point
from coremargin.maths.outliers import search
from coremargin.maths.outliers.compiled import ENTRIES, kernel, kernels
from coremargin.maths.outliers.search import solve_in_memory
from outlier_judges import KINDS, best_by_all_sets, instance

BOTH = (factors, loops)
NEVER = 10**9


def compile_from(work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels after so much work."""
    monkeypatch.setattr(search, "INTERPRETED", work)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("spread", [0, 5])
def test_a_compiled_walk_ends_where_the_other_does(groups: int, spread: int) -> None:
    """Random, repeated and badly scaled rows: the same length and status, and weights that give the point."""
    rng = np.random.default_rng(3)
    for n, d in ((4, 2), (40, 3), (30, 60), (300, 8)):
        rows = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-spread, spread + 1, d)
        rows[:, 0] += 3.0 * np.abs(rows[:, 0]).max()
        rows[n // 2] = rows[0]
        of = np.arange(n) * groups // n
        plain = nearest_point(rows, of)
        fast = nearest_point(rows, of, walk=kernel("walk", compiled=True))
        size = float(np.abs(rows).max())
        assert np.linalg.norm(fast.point) == pytest.approx(np.linalg.norm(plain.point), rel=1e-9, abs=1e-12 * size)
        assert fast.weights @ rows == pytest.approx(fast.point, abs=1e-11 * size)
        assert fast.status == plain.status


@pytest.mark.parametrize("fast", [False, True])
def test_rows_that_are_blocked_take_no_part(fast: bool) -> None:
    """Rows in two tiers, some blocked: the point is that of the others alone; and the sides of a length are told."""
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((60, 4)) + np.array([4.0, 0.0, 0.0, 0.0])
    groups = np.concatenate([np.arange(20) // 10, np.arange(40) // 20])
    tiers = np.array([[0, 10, 20], [20, 40, 60]])
    there = rng.random(60) < 0.6
    there[[0, 10]] = True
    expected = float(np.linalg.norm(nearest_point(rows[there], groups[there]).point))
    for side, wanted in ((-1.0, OPTIMAL), (1.01 * expected, SHORT), (0.5 * expected, CLEAR)):
        weights, face = np.zeros(60), face_of(rows, groups, 2)
        weights[[0, 10]] = 1.0
        blocked = np.where(there, 0.0, np.inf)
        status, _, _ = kernel("walk", compiled=fast)(face, weights, blocked, tiers, Limits(1e-12, 0.0, side, 1000))
        assert status == wanted
        assert not weights[~there].any()
        if wanted == OPTIMAL:
            assert float(np.linalg.norm(face.point)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_searches_equal_all_sets_of_outliers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first node on: the bounds meet at the best over all sets, as those of the interpreted search do."""
    rng = np.random.default_rng(17)
    for intercept in (True, False) * 8:
        x, y, k = instance(kind, rng)
        found = []
        for work in (0, 1, NEVER):
            compile_from(work, monkeypatch)
            found.append(solve_in_memory(x, y, k, intercept=intercept))
        best = best_by_all_sets(x, y, k, intercept=intercept)
        assert [one.status for one in found] == ["done"] * 3
        assert [one.lower for one in found] == pytest.approx([best] * 3, abs=1e-8)
        assert [one.upper for one in found] == pytest.approx([best] * 3, abs=1e-8)


@pytest.mark.parametrize("module", BOTH)
def test_factors_are_factors(module: ModuleType) -> None:
    """Columns added, one deleted, one solved for: q stays orthonormal, its product with r stays the columns."""
    rng = np.random.default_rng(5)
    d, m = 9, 6
    columns = rng.standard_normal((m, d))
    q, r = np.zeros((m + 1, d)), np.zeros((m + 1, m + 1)).T
    for place, column in enumerate(columns):
        head, rest = module.split(q, place, column)
        r[:place, place], r[place, place] = head, np.linalg.norm(rest)
        q[place] = rest / np.linalg.norm(rest)
    assert q[:m] @ q[:m].T == pytest.approx(np.eye(m), abs=1e-13)
    assert pytest.approx(columns, abs=1e-12) == (q[:m].T @ r[:m, :m]).T
    right = rng.standard_normal(m)
    assert module.solve_upper(r, m, right) == pytest.approx(np.linalg.solve(r[:m, :m], right), abs=1e-10)
    vector = rng.standard_normal(d)
    left = vector - q[:m].T @ (q[:m] @ vector)
    module.clear(q, m, vector)
    assert vector == pytest.approx(left, abs=1e-13)
    for k in (0, 2, m - 3):
        columns, m = np.delete(columns, k, 0), m - 1
        module.delete_column(q, r, m + 1, k)
        assert q[:m] @ q[:m].T == pytest.approx(np.eye(m), abs=1e-13)
        assert pytest.approx(columns, abs=1e-12) == (q[:m].T @ r[:m, :m]).T
        assert np.abs(np.tril(r[:m, :m], -1)).max() < 1e-13


def test_levels_are_the_same_in_loops() -> None:
    """The lowest row of a span, blocked ones apart, and what a support carries."""
    rng = np.random.default_rng(6)
    rows, point, weights = rng.standard_normal((50, 4)), rng.standard_normal(4), rng.random(50)
    blocked, groups = np.where(rng.random(50) < 0.5, 0.0, np.inf), np.arange(50) % 2
    support = np.array([3, 8, 40, 11])
    levels = rows @ point
    free = 10 + np.flatnonzero(blocked[10:45] == 0)
    for module in BOTH:
        value, place = module.lowest(rows, blocked, 10, 45, point)
        assert place == free[np.argmin(levels[free])]
        assert value == pytest.approx(levels[place])
        found = module.carried(rows, groups, support, weights, point, 2)
        assert found == pytest.approx([(weights * levels)[[8, 40]].sum(), (weights * levels)[[3, 11]].sum()])


def test_without_a_folder_for_its_cache_numba_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing may be written a function is compiled for this process."""

    def njit(function: object, *, cache: bool = False, **_: object) -> object:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr("numba.njit", njit)
    assert jit(loops.clear) is loops.clear


def test_kernels_with_one_caller_are_compiled_as_part_of_it() -> None:
    """Others, and what the interpreter calls, are compiled by themselves."""
    inline = {name for name, each in vars(kernels()).items() if each.targetoptions["inline"] == "always"}
    assert {"visit", "find_certificates", "descend", "shrink"} <= inline
    assert not inline & {*ENTRIES, "rebuild", "add", "split", "add_leaf", "find_active"}


@pytest.mark.slow
def test_no_index_is_out_of_bounds(tmp_path: Path, repository: Path) -> None:
    """Compiled with a check of every index, searches on tiny rows of all kinds end as ever."""
    code = (
        "import numpy as np\n"
        "from coremargin.maths.outliers import search\n"
        "from coremargin.maths.outliers.search import solve_in_memory\n"
        "from outlier_judges import KINDS, instance\n"
        "search.INTERPRETED = 0\n"
        "rng = np.random.default_rng(7)\n"
        "for kind in KINDS:\n"
        "    for _ in range(20):\n"
        "        x, y, k = instance(kind, rng)\n"
        "        for intercept in (True, False):\n"
        "            assert solve_in_memory(x, y, k, intercept=intercept).status == 'done'\n"
    )
    paths = os.pathsep.join(str(repository / part) for part in ("pipeline", "tests/maths"))
    more = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=170, env=os.environ | more)
