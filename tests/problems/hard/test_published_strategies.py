"""Published strategies: each against a direct transcription and its bound; the same bits wherever and however run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import daqp
import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array
from sklearn.svm import SVC

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, Interrupted, SpecError
from coremargin.learn.compare import compare
from coremargin.learn.train import Progress, train_job
from coremargin.maths.active.cutting_planes import (
    cutting_planes,
    largest_error,
    perceptron_cutting_planes,
    smallest_error,
)
from coremargin.maths.active.slabs import slab_of_labelled
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.problems.common.driver_rows import WorkingSet
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies import smo
from coremargin.problems.hard.strategies.iterative import RowBlock
from coremargin.problems.hard.strategies.linear_program import ENOUGH, FIRST, ROWS
from coremargin.problems.hard.strategies.perceptron import Perceptron
from coremargin.problems.hard.strategies.quadratic_program import QuadraticProgram
from coremargin.problems.hard.strategies.table import STRATEGIES as STRATEGY_OBJECTS
from coremargin.problems.registry import new_job

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

Maker = Callable[..., tuple[np.ndarray, np.ndarray]]
STRATEGIES = (
    "perceptron",
    "lp",
    "raw-perceptron",
    "averaged-perceptron",
    "romma",
    "aggressive-romma",
    "uneven-perceptron",
    "passive-aggressive",
    "alma",
    "alma-p",
    "kowalczyk",
    "slab",
    "cutting-planes",
    "primal-qp",
    "dual-qp",
    "chunking",
    "osuna",
    "smo",
    "cvm",
)
PROGRAMS = ("primal-qp", "dual-qp")
CHUNK_ROWS = 40


def stored(folder: Path, X: Any, y: Any, weights: Any = None) -> Path:
    """A store in chunks of 40 rows."""
    sparse = isinstance(X, csr_array)
    options: dict[str, Any] = {"sparse": True} if sparse else {"dtype": X.dtype.name}
    options |= {"chunk_rows": CHUNK_ROWS, "features": X.shape[1], "weighted": weights is not None}
    with StoreWriter.create(folder / "s.zarr", **options) as writer:
        writer.write(X, list(y), weights)
    return folder / "s.zarr"


def perceptron(X: np.ndarray, y: np.ndarray, constant: float) -> tuple[np.ndarray, float, int, int, set[int]]:
    """Awasthi's Algorithm 1 word by word: w, the weight of the constant, mistakes, passes, rows added."""
    Z = np.column_stack([X, np.full(len(X), constant)])
    w, mistakes, passes, added = np.zeros(Z.shape[1]), 0, 0, set[int]()
    while True:
        passes, before = passes + 1, mistakes
        for i, z in enumerate(Z):
            if y[i] * (w @ z) <= 0:
                w = w + y[i] * z / np.linalg.norm(z)
                mistakes += 1
                added.add(i)
        if mistakes == before:
            return w[:-1], float(w[-1]), mistakes, passes, added


def run_of(model: Path) -> dict[str, Any]:
    """How a run went."""
    return dict(json.loads((model / "run.json").read_text()))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_perceptron_is_the_algorithm_of_the_lecture(
    tmp_path: Path, make_separable: Maker, *, intercept: bool, sparse: bool
) -> None:
    """Mistakes, passes, rows touched and hyperplane; its bound holds, for the best margin and for the proven one."""
    X, labels = make_separable(300, 4, margin=0.1)
    X = X + np.float32(0.3 * intercept)
    y = np.where(labels == max(labels), 1, -1)
    longest = float(np.linalg.norm(X.astype(np.float64), axis=1).max())
    constant = longest if intercept else 0.0
    w, last, mistakes, passes, added = perceptron(X.astype(np.float64), y, constant)
    store = stored(tmp_path, csr_array(X) if sparse else X, labels)
    words: dict[str, Any] = {"strategy": "perceptron", "intercept": intercept, "epsilon": 1e-12}
    model = coremargin.train(store, out=tmp_path / "m", **words)
    run, margins = run_of(tmp_path / "m"), y * (X @ w + constant * last)
    walk = run["own"]
    assert (walk["updates"], walk["passes"], run["working_set_rows"]) == (mistakes, passes, len(added))
    low, high = margins[y > 0].min(), margins[y < 0].min()
    own = ((low + high) / 2 if intercept else min(low, high)) / np.linalg.norm(w)
    assert walk["lower"] == pytest.approx(own, rel=1e-5)
    best = solve_hard_margin(X, y, intercept=intercept)
    square = 2 * (longest**2 + best.b**2) if intercept else longest**2
    assert mistakes <= square / best.upper**2 * (1 + 1e-6) <= walk["updates_at_most"] * (1 + 2e-6)
    touched = solve_hard_margin(X[sorted(added)], y[sorted(added)], intercept=intercept)
    assert model.certificate.upper == pytest.approx(touched.upper)
    assert model.certificate.lower >= walk["lower"] > 0
    assert coremargin.verify(tmp_path / "m", store).ok


def test_a_walk_is_the_same_in_blocks_of_any_size(make_separable: Maker) -> None:
    """The numbers after two blocks are those after one; rows touched are positions in their block."""
    X, labels = make_separable(700, 3, margin=0.05)
    rule, y = Perceptron(), np.where(labels == max(labels), 1, -1).astype(np.int8)
    numbers = {"last": 0.0, "late_last": 0.0, "constant": 2.0, "updates": 0, "seen": 0}
    begun = {"w": np.zeros(3), "late": np.zeros(3)} | {name: np.array(value) for name, value in numbers.items()}

    def walked(*ends: int) -> tuple[Any, list[int]]:
        carried: Any = begun
        touched = list[int]()
        for first, end in zip((0, *ends), (*ends, 700), strict=True):
            part = slice(first, end)
            block = RowBlock(X[part].astype(np.float64), y[part], np.arange(first, end), "rows")
            carried, here = rule.walk(block, carried)
            touched += (here + first).tolist()
        return carried, touched

    (one, rows), (several, same) = walked(), walked(0, 1, 250, 256, 257)
    assert rows == same
    assert one["updates"] == several["updates"] == len(rows)
    assert np.allclose(one["w"], several["w"], rtol=1e-12)


def test_linear_programs_are_those_of_the_lecture(tmp_path: Path, make_separable: Maker) -> None:
    """The last program over the rows of the working set, solved at once, has the proven margin; all rows have half."""
    X, labels = make_separable(400, 3, margin=0.05)
    y = np.where(labels == max(labels), 1, -1)
    store = stored(tmp_path, X, labels)
    model = coremargin.train(store, strategy="lp", epsilon=1e-9, out=tmp_path / "m")
    run = run_of(tmp_path / "m")
    last = json.loads((tmp_path / "m" / "rounds.jsonl").read_text().splitlines()[-1])
    assert run["working_set_rows"] <= FIRST + ROWS * run["scans"]
    margins = y * (X.astype(np.float64) @ model.w + model.b)
    assert margins.min() >= model.certificate.lower > 0
    whole = linprog(
        [0.0] * 4 + [-1.0],
        A_ub=np.column_stack([-y[:, None] * np.column_stack([X, np.ones(400)]), np.ones(400)]),
        b_ub=np.zeros(400),
        bounds=[(-1, 1)] * 3 + [(None, None)] * 2,
    )
    t = -whole.fun / np.linalg.norm(whole.x[:3])
    assert ENOUGH * t <= last["lower_now"] <= model.certificate.upper
    assert t <= model.certificate.upper * (1 + 1e-9)
    assert coremargin.verify(tmp_path / "m", store).ok


def romma(Z: np.ndarray, y: np.ndarray, least: float) -> tuple[np.ndarray, int]:
    """Li and Long's update by its definition, a quadratic program in two half-spaces; updates below ``least``."""
    w, updates = np.zeros(Z.shape[1]), 0
    while True:
        before = updates
        for x, sign in zip(Z, y, strict=True):
            value = sign * (w @ x)
            if value > 0 and value >= least:
                continue
            updates += 1
            if not w.any():
                w = sign * x / (x @ x)
                continue
            normals, ends = np.stack([w, sign * x]), np.array([w @ w, 1.0])
            w, _, flag, _ = daqp.solve(np.eye(len(w)), np.zeros(len(w)), normals, np.full(2, 1e30), ends)
            assert flag == 1
        if updates == before:
            return w, updates


def passive_aggressive(Z: np.ndarray, y: np.ndarray, epsilon: float) -> tuple[np.ndarray, int]:
    """The projection onto each row's half-space, a quadratic program; losses of up to epsilon are none."""
    w, updates = np.zeros(Z.shape[1]), 0
    while True:
        before = updates
        for x, sign in zip(Z, y, strict=True):
            if sign * (w @ x) >= 1 - epsilon:
                continue
            updates += 1
            ends = np.array([1.0])
            w, _, flag, _ = daqp.solve(np.eye(len(w)), -w, (sign * x)[None, :], np.full(1, 1e30), ends)
            assert flag == 1
        if updates == before:
            return w, updates


def alma(Z: np.ndarray, y: np.ndarray, alpha: float, p: float) -> tuple[np.ndarray, int]:
    """Gentile's Figure 1, with its link functions."""
    q, k, w = p / (p - 1), 1, np.zeros(Z.shape[1])

    def link(v: np.ndarray, r: float) -> np.ndarray:
        size = np.linalg.norm(v, r)
        return v if not size else np.sign(v) * np.abs(v) ** (r - 1) / size ** (r - 2)

    while True:
        before = k
        for x, sign in zip(Z / np.linalg.norm(Z, p, axis=1)[:, None], y, strict=True):
            if sign * (w @ x) <= (1 - alpha) * np.sqrt(8) / alpha * np.sqrt((p - 1) / k):
                w = link(link(w, q) + np.sqrt(2 / (p - 1) / k) * sign * x, p)
                w = w / max(1.0, np.linalg.norm(w, q))
                k += 1
        if k == before:
            return w, k - 1


def uneven(Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, int]:
    """The perceptron of Li and others, with margins 1 and 0."""
    w, updates, before = np.zeros(Z.shape[1]), 0, -1
    while updates != before:
        before = updates
        for z, sign in zip(Z / np.linalg.norm(Z, axis=1)[:, None], y, strict=True):
            if sign * (w @ z) <= (1.0 if sign > 0 else 0.0):
                w, updates = w + sign * z, updates + 1
    return w, updates


@pytest.fixture
def with_constant(make_separable: Maker) -> tuple[np.ndarray, list[Any], np.ndarray, np.ndarray]:
    """Rows X (120, 3), their labels, signs, and the rows with the constant."""
    X, labels = make_separable(120, 3, margin=0.3)
    y = np.where(labels == max(labels), 1, -1)
    longest = np.linalg.norm(X.astype(np.float64), axis=1).max()
    return X, list(labels), y, np.column_stack([X, np.full(len(X), longest)]).astype(np.float64)


@pytest.fixture
def own_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies end by their own rules, certified or not."""
    monkeypatch.setattr("coremargin.problems.hard.hard_margin.HardMargin._is_certified", lambda *_: False)


def to_its_end(source: Any, strategy: str, epsilon: float, **options: Any) -> Any:
    """A run of ``compare``: to the strategy's own end."""
    return compare(source, InProcess(1), [strategy], epsilon=epsilon, reads=None, limit=None, **options).runs[0]


def own_margin(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """The margin of a direction at its best offset."""
    values = y * (X.astype(np.float64) @ w)
    return float((values[y > 0].min() + values[y < 0].min()) / 2 / np.linalg.norm(w))


@pytest.mark.usefixtures("own_rule")
@pytest.mark.parametrize(
    "strategy", ["romma", "aggressive-romma", "alma", "alma-p", "uneven-perceptron", "passive-aggressive"]
)
def test_online_algorithms_are_those_of_their_sources(with_constant: Any, strategy: str) -> None:
    """Updates and hyperplane are those of a transcription; the theorem's bound holds for the best margin."""
    X, labels, y, Z = with_constant
    if strategy.startswith("alma"):
        w, updates = alma(Z, y, 0.5, 2.0 if strategy == "alma" else 2 * np.log(4))
    elif strategy == "uneven-perceptron":
        w, updates = uneven(Z, y)
    elif strategy == "passive-aggressive":
        w, updates = passive_aggressive(Z, y, 0.5)
    else:
        w, updates = romma(Z, y, 1 - 0.5 if strategy == "aggressive-romma" else 0.0)
    run = to_its_end(ArraySource(X, labels), strategy, 0.5)
    assert run.updates == updates
    assert run.points[-1].own == pytest.approx(own_margin(X, y, w[:-1]), rel=1e-5)
    if run.updates_at_most is not None:
        unit = Z / np.linalg.norm(Z, axis=1)[:, None]
        best = solve_hard_margin(unit * y[:, None], np.ones(len(y), np.int8), intercept=False).upper
        raw = solve_hard_margin(Z * y[:, None], np.ones(len(y), np.int8), intercept=False).upper
        bound = {
            "alma": 2 / best**2 * (2 / 0.5 - 1) ** 2 + 8 / 0.5 - 4,
            "uneven-perceptron": 3 / best**2,
            "passive-aggressive": (np.linalg.norm(Z, axis=1).max() / raw / 0.5) ** 2,
        }.get(strategy, 1 / best**2)
        assert updates <= bound <= run.updates_at_most


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("margin", [0.1, 0.3, 1.0])
def test_the_bound_of_alma_follows_from_its_proof(alpha: float, margin: float) -> None:
    """No run is longer than ||w'||^2 <= 1 + (8 / alpha - 6) / k and u.w <= 1 allow, which is below Theorem 3."""
    along, k = 0.0, 0
    while along <= 1:
        k += 1
        shortened = max(1.0, np.sqrt(max(0.0, 1 + (8 / alpha - 6) / k)))
        along = (along + np.sqrt(2 / k) * margin) / shortened
    assert k - 1 <= 2 / margin**2 * (2 / alpha - 1) ** 2 + 8 / alpha - 4


@pytest.mark.usefixtures("own_rule")
@pytest.mark.parametrize("intercept", [True, False])
def test_the_slab_is_that_of_remark_a(make_separable: Maker, *, intercept: bool) -> None:
    """Steps and width are those of ``slab_of_labelled``; with and without an intercept."""
    X, labels = make_separable(120, 3, margin=0.3)
    y = np.where(labels == max(labels), 1, -1)
    run = to_its_end(ArraySource(X, labels), "slab", 0.1, intercept=intercept)
    best = solve_hard_margin(X, y, intercept=intercept)
    assert run.points[-1].own >= 0.9 * best.upper
    assert run.updates <= run.updates_at_most
    if intercept:
        slab = slab_of_labelled(X.astype(np.float64), y, 0.1)
        assert run.updates == slab.steps
        assert run.points[-1].own == pytest.approx(own_margin(X, y, slab.black - slab.white), rel=1e-5)


@pytest.mark.usefixtures("own_rule")
@pytest.mark.parametrize("intercept", [True, False])
def test_kowalczyk_moves_a_hull_point_to_each_violating_row(make_separable: Maker, *, intercept: bool) -> None:
    """Against a transcription on rows in order."""
    X, labels = make_separable(80, 2, margin=0.4)
    y, rows = np.where(labels == max(labels), 1, -1), X.astype(np.float64)
    p, q = rows[y > 0][0], rows[y < 0][0] if intercept else np.zeros(2)
    updates, before = 0, -1
    while updates != before:
        before = updates
        for x, sign in zip(rows, y, strict=True):
            w, middle = p - q, (p + q) / 2 if intercept else np.zeros(2)
            if sign * (w @ (x - middle)) >= (1 - 0.1) * (w @ w) / (2 if intercept else 1):
                continue
            updates += 1
            at, other, end = (p, q, x if intercept else sign * x) if sign > 0 or not intercept else (q, p, x)
            along = end - at
            at = at + min(1.0, max(0.0, (other - at) @ along / (along @ along))) * along
            p, q = (at, q) if sign > 0 or not intercept else (p, at)
    run = to_its_end(ArraySource(X, labels), "kowalczyk", 0.1, intercept=intercept)
    assert run.updates == updates <= run.updates_at_most
    assert run.points[-1].own >= 0.9 * solve_hard_margin(X, y, intercept=intercept).upper


def barrier_centre(normals: np.ndarray) -> np.ndarray:
    """The least of -sum log a.v - log (1 - ||v||^2), by another solver."""

    def barrier(v: np.ndarray) -> float:
        depths = np.append(normals @ v, 1 - v @ v)
        return float(-np.log(depths).sum()) if (depths > 0).all() else np.inf

    inside = solve_hard_margin(normals, np.ones(len(normals), np.int8), intercept=False).w / 2
    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20_000, "maxfev": 20_000}
    return np.asarray(minimize(barrier, inside, method="Nelder-Mead", options=options).x)


@pytest.mark.parametrize("pick", ["largest", "smallest", "random"])
@pytest.mark.parametrize("centre", ["perceptron", "chebyshev", "analytic", "ep", "permutations"])
def test_cutting_planes_are_algorithms_2_and_3(tmp_path: Path, with_constant: Any, centre: str, pick: str) -> None:
    """With the largest and the smallest error, planes and updates are those of the transcription in memory."""
    X, labels, y, Z = with_constant
    store = stored(tmp_path, X, labels)
    words: dict[str, Any] = {"strategy": "cutting-planes", "centre": centre, "pick": pick, "epsilon": 1e-12}
    model = coremargin.train(store, out=tmp_path / "m", **words)
    own = run_of(tmp_path / "m")["own"]
    assert coremargin.verify(tmp_path / "m", store).ok
    assert own["lower"] > 0
    assert model.parameters["centre"] == centre
    if pick == "random" or centre in ("ep", "permutations"):
        return
    z = Z * y[:, None] / np.linalg.norm(Z, axis=1)[:, None]
    choose = largest_error if pick == "largest" else smallest_error
    if centre == "perceptron":
        found = perceptron_cutting_planes(z, choose)
        assert own["updates"] == sum(found.updates)
        assert sum(found.updates) <= 1 / solve_hard_margin(z, np.ones(len(z), np.int8), intercept=False).upper ** 2
    else:

        def query(normals: np.ndarray) -> np.ndarray:
            if not len(normals):
                return np.zeros(4)
            if centre == "analytic":
                return barrier_centre(normals)
            return np.asarray(solve_hard_margin(normals, np.ones(len(normals), np.int8), intercept=False).w)

        found = cutting_planes(z, query, choose)
        assert own["updates"] == len(found.planes)
    assert own["lower"] == pytest.approx(own_margin(X, y, found.w[:-1]), rel=1e-5)


@pytest.mark.usefixtures("own_rule")
def test_core_vectors_are_balls_around_unit_rows(with_constant: Any) -> None:
    """Rows, radius and end of a transcription with a QP solver; a small epsilon says little of the margin."""
    X, labels, y, Z = with_constant
    z = Z * y[:, None] / np.linalg.norm(Z, axis=1)[:, None]
    core, centre, radius = list[int](), np.zeros(4), -1.0
    while True:
        values = z @ centre
        distances = np.sqrt(1 - 2 * values + centre @ centre)
        if radius >= 0 and distances.max() <= (1 + 1e-4) * radius:
            break
        core.append(int(values.argmin()))
        v, *_ = daqp.solve(np.eye(4), np.zeros(4), z[core], np.full(len(core), 1e30), np.ones(len(core)))
        centre, radius = v / (v @ v), float(np.sqrt(max(0.0, 1 - 1 / (v @ v))))
    run = to_its_end(ArraySource(X, labels), "cvm", 1e-4)
    assert run.updates == len(core)
    assert run.points[-1].own == pytest.approx(own_margin(X, y, centre[:-1]), rel=1e-4)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("strategy", ["primal-qp", "dual-qp", "smo", "chunking", "osuna"])
def test_exact_strategies_find_the_largest_margin(make_separable: Maker, strategy: str, *, intercept: bool) -> None:
    """To within epsilon, by their own hyperplanes; SMO takes about as many steps as LIBSVM."""
    X, labels = make_separable(400, 4, margin=0.1)
    y = np.where(labels == max(labels), 1, -1)
    run = to_its_end(ArraySource(X, labels, chunk_rows=60), strategy, 1e-3, intercept=intercept)
    best = solve_hard_margin(X, y, intercept=intercept)
    assert run.status == "certified"
    assert (1 - 1e-3) * best.upper <= run.own <= best.upper * (1 + 1e-9)
    if strategy == "smo" and intercept:
        svc = SVC(C=1e10, kernel="linear", tol=1e-3).fit(X.astype(np.float64), y)
        assert 1 / np.linalg.norm(svc.coef_) == pytest.approx(run.own, rel=1e-3)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("strategy", ["primal-qp", "dual-qp", "lp"])
def test_programs_do_not_depend_on_the_unit_of_the_rows(make_separable: Maker, strategy: str, scale: float) -> None:
    """Their own hyperplanes have the margin that they have on rows of length 1 or so."""
    X, labels = make_separable(300, 3, margin=0.1)
    X = X.astype(np.float64)
    plain, scaled = (to_its_end(ArraySource(rows, labels), strategy, 1e-9).own for rows in (X, X * scale))
    assert scaled == pytest.approx(plain * scale, rel=1e-6)


@pytest.mark.parametrize("strategy", ["primal-qp", "dual-qp"])
@pytest.mark.parametrize(("margin", "shift"), [(1e-3, 0.0), (0.1, 1e4), (1e-3, 100.0)])
def test_quadratic_programs_are_exact(strategy: str, margin: float, shift: float) -> None:
    """On thin margins, and on rows far from the origin; if daqp found nothing, zeros would come back."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(600, 6)), np.ones(6) / np.sqrt(6)
    y = np.where(X @ w > 0, 1, -1)
    X = X + margin * np.outer(y, w) + shift
    best = solve_hard_margin(X, y.astype(np.int8), intercept=True)
    working_set = WorkingSet.unweighted(np.arange(600), X, y.astype(np.int8))
    own = QuadraticProgram(dual=strategy == "dual-qp").propose(working_set, Hypothesis.zero(6), intercept=True)
    assert own_margin(X, y, own.w) == pytest.approx(best.upper, rel=1e-6)
    assert (y * (X @ own.w + own.b)).min() == pytest.approx(best.upper, rel=1e-6)


def test_programs_that_are_too_large_are_refused(make_separable: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their size; not by running out of memory, or after hours."""
    X, labels = make_separable(300, 4)
    with pytest.raises(SpecError, match=r"strategy 'primal-qp': its program has 300 x 5 numbers, 11.7 KiB, and memory"):
        coremargin.train(X, labels, strategy="primal-qp", memory="4kB")
    monkeypatch.setattr("coremargin.problems.hard.strategies.quadratic_program.MOST_DUAL_ROWS", 299)
    with pytest.raises(SpecError, match="a variable for each of 300 rows, at most 299"):
        coremargin.train(X, labels, strategy="dual-qp")
    with pytest.raises(SpecError, match="centre: only strategy 'cutting-planes' has one, found strategy 'fast'"):
        coremargin.train(X, labels, centre="ep")


@pytest.mark.specimens(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_bits_on_threads_and_processes_and_after_interrupts(
    tmp_path: Path, make_separable: Maker, embedded: Executor, strategy: str, *, sparse: bool
) -> None:
    """The files of a model are the same, wherever it was trained and however often it was interrupted."""
    X, labels = make_separable(300, 4, margin=0.05)
    store = stored(tmp_path, csr_array(X) if sparse else X, labels)

    def trained(name: str, executor: Executor, interrupts: int = 0) -> dict[str, bytes]:
        job = new_job(store=store, out=tmp_path / name, strategy=strategy, epsilon=1e-3, memory="1MB", block=1)
        begin, left = "new", 0

        def stop(_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        for number in range(interrupts):
            left = 1 + 3 * number
            with pytest.raises(Interrupted):
                train_job(job, Store.open(store), executor, begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
            begin = "resume"
        train_job(job, Store.open(store), executor, begin=begin)  # type: ignore[arg-type]
        return {file: Path(job.out, file).read_bytes() for file in ("model.json", "arrays.npz")}

    one = trained("one", InProcess(1))
    assert one == trained("four", InProcess(4))
    assert one == trained("processes", embedded)
    # one scan of eight chunks proves a program
    assert one == trained("interrupted", InProcess(1), interrupts=2 if strategy in PROGRAMS else 3)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in PROGRAMS])
def test_a_run_that_stops_at_a_limit_is_continued(tmp_path: Path, make_separable: Maker, strategy: str) -> None:
    """After one scan little is proven, and verified; with --resume the model is that of a run in one go."""
    X, labels = make_separable(300, 4, margin=0.02)
    store = stored(tmp_path, X, labels)
    words: dict[str, Any] = {"strategy": strategy, "epsilon": 1e-9, "memory": "1MB"}
    stopped = coremargin.train(store, out=tmp_path / "a", max_scans=1, **words)
    assert stopped.status == "stopped"
    assert coremargin.verify(tmp_path / "a", store).ok
    coremargin.train(store, out=tmp_path / "a", begin="resume", **words)
    coremargin.train(store, out=tmp_path / "b", **words)
    assert (tmp_path / "a" / "arrays.npz").read_bytes() == (tmp_path / "b" / "arrays.npz").read_bytes()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_that_nothing_separates_are_proven_so(tmp_path: Path, make_separable: Maker, strategy: str) -> None:
    """By the rows that the strategy has met, not by its patience."""
    X, labels = make_separable(200, 2, margin=0.2)
    wrong = np.concatenate([X, X[:20]])
    model = coremargin.train(wrong, [*labels, *labels[:20][::-1]], strategy=strategy)
    assert model.status == "not_separable"


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_chunks_may_have_rows_of_one_class(make_separable: Maker, strategy: str, *, intercept: bool) -> None:
    """A store sorted by label; what is proven holds for all rows."""
    X, labels = make_separable(160, 3, margin=0.1)
    y = np.where(labels == max(labels), 1, -1)
    X, y = np.concatenate([X[y > 0][:60], X[y < 0][:60]]), np.repeat([1, -1], 60)
    source = ArraySource(X, list(y), chunk_rows=20)
    run = compare(source, InProcess(2), [strategy], epsilon=0.05, intercept=intercept, reads=40, limit=None).runs[0]
    best = solve_hard_margin(X, y.astype(np.int8), intercept=intercept).upper
    assert run.updates is None or run.updates > 0
    assert 0 < run.lower <= best * (1 + 1e-9) <= run.upper * (1 + 2e-9)


def test_smo_holds_no_more_rows_than_memory_has_room_for(
    make_separable: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that nothing separates many get a weight."""
    monkeypatch.setattr("coremargin.problems.hard.strategies.smo.LEAST_ROOM", 30)
    sizes, solve = list[int](), smo.minimise

    def recorded(products: np.ndarray, *words: Any, **options: Any) -> Any:
        sizes.append(len(products))
        return solve(products, *words, **options)

    monkeypatch.setattr(smo, "minimise", recorded)
    X, labels = make_separable(400, 2)
    wrong = ArraySource(np.concatenate([X, X]), [*labels, *labels[::-1]], chunk_rows=200)
    run = compare(wrong, InProcess(1), ["smo"], memory=8_000, reads=3, limit=None).runs[0]
    assert run.status == "not_separable"
    assert max(sizes) == 30


@pytest.mark.parametrize("strategy", ["lp", "chunking", "osuna"])
def test_first_rows_are_of_both_classes(strategy: Any) -> None:
    """However few rows one of them has, and if its rows in the first chunk have no weight."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y, weights = np.ones(2000), np.ones(2000)
    y[[7, 1501]] = -1
    weights[7] = 0
    for source in (ArraySource(X, list(y)), ArraySource(X, list(y), weights=weights, chunk_rows=1000)):
        found = STRATEGY_OBJECTS[strategy].first(source, (1, 0))
        assert found is not None
        assert set(found.signs) == {1, -1}
        assert len(found.ids) < 500


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_without_label_or_weight_do_not_count(tmp_path: Path, make_separable: Maker, strategy: str) -> None:
    """They may lie on the wrong side."""
    X, labels = make_separable(200, 3, margin=0.1)
    weights = np.ones(210)
    weights[200:] = 0
    rows, more = np.concatenate([X, X[:10]]), [*labels, *np.where(labels[:10] == max(labels), min(labels), max(labels))]
    store = stored(tmp_path, rows, more, weights=weights)
    model = coremargin.train(store, strategy=strategy, out=tmp_path / "m")
    assert model.certificate.lower > 0
    assert coremargin.verify(tmp_path / "m", store).ok


def test_what_a_strategy_cannot_do_is_refused_with_an_alternative(
    tmp_path: Path, make_separable: Maker, run_cli: Any
) -> None:
    """A loss, several classes, outliers; a row of zeros without an intercept; a misspelt name."""
    X, labels = make_separable(100, 2)
    for words in ({"loss": "hinge"}, {"classes": "ovr"}, {"outliers": 1}):
        with pytest.raises(SpecError, match=r"strategy: .* has none, found 'perceptron'; it belongs to a hard margin"):
            coremargin.train(X, labels, strategy="perceptron", **words)
    with pytest.raises(SpecError, match="did you mean 'perceptron'"):
        coremargin.train(X, labels, strategy="perceptrn")  # type: ignore[arg-type]
    X[7] = 0
    with pytest.raises(BadRow, match="row 7: a row of zeros has no direction"):
        coremargin.train(X, labels, strategy="perceptron", intercept=False)
    store = stored(tmp_path, X, labels)
    told = run_cli("train", store, "--out", tmp_path / "m", "--strategy", "perceptron", "--epsilon", 0.9, "--quiet")
    assert "perceptron: " in told.stdout
    assert "by its theorem at most" in told.stdout
    assert "its theorem allows at most" in (tmp_path / "m" / "report.html").read_text()
    job = tmp_path / "job.toml"
    for strategy, reading in (("perceptron", "a read for each pass"), ("lp", "a scan for each 50 rows")):
        job.write_text(f'job = "train"\nstore = "s.zarr"\nout = "n"\nstrategy = "{strategy}"\nmemory = "1kB"\n')
        assert reading in run_cli("plan", job).stdout
