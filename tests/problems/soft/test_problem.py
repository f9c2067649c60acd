"""The soft-margin problem in a plain loop: against other solvers, on unkind data, and never certified in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.svm import SVC, LinearSVC
from soft_kit import NAMES, assert_same_bits, step, to_the_end

from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.errors import BadRow, LabelError, UsageError
from coremargin.maths import soft_margin as soft
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.near_margin import SoftMargin

if TYPE_CHECKING:
    from coremargin.problems.soft.state import SoftState


def start(X: np.ndarray, y: np.ndarray, *, chunk_rows: int = 50, **options: Any) -> tuple[SoftMargin, SoftState]:
    """A problem on arrays and its first state."""
    given = {"epsilon": 1e-3, "loss": "hinge", "cost": 1.0} | options
    given["loss"] = LOSSES[given["loss"]]
    problem = SoftMargin(ArraySource(X, y, chunk_rows=chunk_rows), **given)
    return problem, problem.start()


def solve(X: np.ndarray, y: np.ndarray, *, limit: int = 40, **options: Any) -> tuple[SoftMargin, SoftState]:
    """A whole job; fails when it does not end."""
    problem, state = start(X, y, **options)
    return problem, to_the_end(problem, state, limit)


def value(problem: SoftMargin, w: np.ndarray, b: float) -> float:
    """The objective by its definition, over all rows."""
    rows, codes = problem.source.rows_at(np.arange(problem.source.rows))
    sign = np.where(codes == problem.codes[0], 1, np.where(codes == problem.codes[1], -1, 0))
    xi = np.maximum(0, 1 - sign * (rows @ w + b)) * (sign != 0)
    row_c = np.where(sign > 0, problem.class_c[0], problem.class_c[1])
    return float(0.5 * w @ w + row_c @ (xi if problem.loss.word == "hinge" else xi**2))


def dual(problem: SoftMargin, state: SoftState) -> float:
    """The dual bound from scratch: the explicit vector that the state names, made feasible, over all rows."""
    rows, codes = problem.source.rows_at(np.arange(problem.source.rows))
    sign = np.where(codes == problem.codes[0], 1, np.where(codes == problem.codes[1], -1, 0))
    row_c = np.where(sign > 0, problem.class_c[0], problem.class_c[1])
    margins = sign * (rows @ state.bounds.reference[:-1] + state.bounds.reference[-1])
    if problem.loss.word == "hinge":
        a = np.where((margins < 1) & (sign != 0), row_c, 0.0)
        a[state.bounds.near_ids] = state.bounds.near_duals
        assert (a >= 0).all()
        assert (a <= row_c * (1 + 1e-12)).all()
        spread = 0.0
    else:
        a = row_c * np.maximum(0, 1 - margins) * (sign != 0)
        if problem.intercept:
            a = np.where(sign > 0, a / max(a[sign > 0].sum(), 1e-300), a / max(a[sign < 0].sum(), 1e-300))
        v = (a * sign) @ rows
        a *= a.sum() / (v @ v + (a**2 / (2 * row_c)).sum())
        spread = float((a**2 / (4 * row_c)).sum())
    assert not problem.intercept or abs(a @ sign) <= 1e-9 * a.sum()
    v = (a * sign) @ rows
    return float(a.sum() - spread - 0.5 * v @ v)


def assert_true(problem: SoftMargin, state: SoftState) -> None:
    """Both bounds hold by plain float64, and a certificate says no more than they do."""
    assert state.best is not None
    assert problem.intercept or state.best[-1] == 0
    found = value(problem, state.best[:-1], float(state.best[-1]))
    assert found <= state.upper * (1 + 1e-12)
    rounding = 1e-13 * problem.cost * problem.source.rows
    assert state.upper == pytest.approx(found, rel=1e-6, abs=rounding)
    assert state.lower <= found * (1 + 1e-12)
    if state.lower > 0:
        assert state.lower <= dual(problem, state) * (1 + 1e-9)
    if state.status == "certified":
        assert state.upper - state.lower <= problem.epsilon * state.upper


def noisy(seed: int, n: int, d: int, flip: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows apart by half a unit on either side of a random plane, a share of the labels turned around."""
    rng = np.random.default_rng(seed)
    plane = rng.standard_normal(d)
    plane /= np.linalg.norm(plane)
    X = rng.standard_normal((n, d))
    y = np.where(X @ plane > 0, 1, -1)
    X += 0.5 * y[:, None] * plane
    return X.astype(np.float32), np.where(rng.random(n) < flip, -y, y)


def real(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Real rows that come with scikit-learn."""
    if name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32), y
    X, y = load_digits(return_X_y=True)
    pair = np.isin(y, [int(word) for word in name.split()])
    return X[pair].astype(np.float32), y[pair]


@pytest.mark.parametrize("weight", [None, "balanced", (1.0, 3.0)])
@pytest.mark.parametrize("C", [0.01, 10.0])
@pytest.mark.parametrize("name", ["breast cancer", "3 8", "1 8"])
def test_hinge_with_an_intercept_agrees_with_libsvm(name: str, C: float, weight: Any) -> None:
    """SVC(kernel="linear") finds no value below the dual bound, and none better than ours by more than epsilon."""
    X, y = real(name)
    problem, state = solve(X, y, cost=C, class_weight=weight, epsilon=1e-5)
    classes = {np.unique(y)[k]: weight[k] for k in (0, 1)} if isinstance(weight, tuple) else weight
    other = SVC(kernel="linear", C=C, class_weight=classes, tol=1e-7).fit(X.astype(np.float64), y)
    theirs = value(problem, other.coef_[0], float(other.intercept_[0]))
    assert state.status == "certified"
    assert_true(problem, state)
    assert state.lower <= theirs * (1 + 1e-12)
    assert state.upper <= theirs * (1 + 1.1e-5)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("name", ["breast cancer", "3 8"])
def test_without_an_intercept_it_agrees_with_liblinear(name: str, C: float, loss: Any) -> None:
    """LinearSVC(fit_intercept=False) has the same objective, for both losses."""
    X, y = real(name)
    problem, state = solve(X, y, cost=C, loss=loss, intercept=False, epsilon=1e-6)
    other = LinearSVC(C=C, loss=loss, fit_intercept=False, dual=True, tol=1e-6, max_iter=1_000_000, random_state=0)
    theirs = value(problem, other.fit(X.astype(np.float64), y).coef_[0], 0.0)
    assert state.status == "certified"
    assert_true(problem, state)
    assert state.lower <= theirs * (1 + 1e-12)
    assert state.upper <= theirs * (1 + 1.1e-6)


@pytest.mark.specimens(14)
@pytest.mark.parametrize("weight", [None, "balanced", (0.2, 5.0)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("order", ["mixed", "sorted by label"])
def test_noisy_rows_are_certified_in_few_scans(order: str, loss: str, intercept: bool, weight: Any) -> None:
    """A tenth of the labels turned around, a sample of some chunks: at most four scans, whatever the order of rows."""
    X, y = noisy(0, 12_000, 20)
    if order != "mixed":
        X, y = X[np.argsort(y, kind="stable")], np.sort(y)
    options = {"loss": loss, "intercept": intercept, "class_weight": weight, "cost": 0.1}
    problem, state = solve(X, y, chunk_rows=300, sample_bytes=200_000, sample_share=0.2, **options)
    assert state.status == "certified"
    assert state.round <= 4
    assert_true(problem, state)


UNKIND = {
    "zero and one": lambda X, y: ((X > 0).astype(np.float32), y),
    "rows repeated": lambda X, y: (np.repeat(X[:30], 20, axis=0), np.repeat(y[:30], 20)),
    "columns thrice": lambda X, y: (np.column_stack([X, X, X]), y),
    "constant columns": lambda X, y: (np.column_stack([X, np.full((len(X), 2), 3, np.float32)]), y),
    "zero rows": lambda X, y: (0 * X, y),
    "one column": lambda X, y: (X[:, :1], y),
    "one row of a class": lambda X, y: (X, np.where(np.arange(len(X)) == 70, 1, -1)),
    "separable": lambda X, y: (X + np.float32(5) * y[:, None].astype(np.float32), y),
    "an outlier": lambda X, y: (X * np.where(np.arange(len(X)) == 9, 1e4, 1).astype(np.float32)[:, None], y),
    "far from the origin": lambda X, y: (X + np.float32(1e3), y),
    "short": lambda X, y: (X * np.float32(1e-6), y),
    "long": lambda X, y: (X * np.float32(1e3), y),
    "float64": lambda X, y: (X.astype(np.float64), y),
    "two rows": lambda X, y: (X[:2], np.array([1, -1])),
    "equal rows of both classes": lambda X, y: (np.ones((3, 2), np.float32), np.array([1, -1, 1])),
}


@pytest.mark.specimens(80)
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e6])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("name", UNKIND)
def test_unkind_rows_are_certified(name: str, loss: str, intercept: bool, C: float) -> None:
    """Whatever rows and C are, a job ends, and ends certified, and the certificate is true."""
    X, y = UNKIND[name](*noisy(1, 600, 4))
    problem, state = solve(X, y, loss=loss, intercept=intercept, cost=C)
    assert_true(problem, state)
    assert state.status == "certified"


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("memory", [1 << 12, 1 << 16, 1 << 20])
@pytest.mark.parametrize("kind", ["noisy", "zero and one"])
def test_little_memory_never_proves_too_much(kind: str, memory: int, loss: str) -> None:
    """With a band of a few rows a job may stop without a proof, but it stops, and what it says is true."""
    X, y = noisy(2, 6000, 8)
    if kind != "noisy":
        X = (X > 0).astype(np.float32)
    problem, state = solve(X, y, loss=loss, memory_bytes=memory, chunk_rows=200, sample_bytes=50_000)
    assert state.status in ("certified", "stalled")
    assert_true(problem, state)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("seed", range(3))
def test_a_narrow_band_is_led_back_to_the_best_point(seed: int) -> None:
    """Where memory holds one row in sixty the hinge still is certified: a step too far is not gone on from."""
    X, y = noisy(seed, 30_000, 20)
    options = {"memory_bytes": 4 * 500 * 8 * 21, "sample_bytes": 400_000}
    problem, state = solve(X, y, chunk_rows=1000, **options)
    assert state.last_scan.near_rows <= 500
    assert state.status == "certified"
    assert state.round <= 15
    assert_true(problem, state)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("away", [0.0, 30.0])
def test_a_hypothesis_that_no_scan_has_seen_proves_the_last_one(away: float, intercept: bool, dtype: str) -> None:
    """Squared hinge: the second scan's model is the objective on the way to its minimiser, whose dual bound holds."""
    X, y = noisy(1, 40_000, 12)
    rows = (X + away / np.sqrt(12)).astype(dtype)
    options: dict[str, Any] = {"loss": "squared_hinge", "cost": 3.0, "intercept": intercept, "epsilon": 1e-4}
    problem, state = solve(rows, y, chunk_rows=1000, sample_bytes=rows.nbytes // 20, **options)
    assert state.status == "certified"
    assert state.round <= 2
    assert not np.array_equal(state.bounds.reference, state.newest)
    assert_true(problem, state)
    exact, best = solve(rows, y, chunk_rows=1000, sample_bytes=1 << 30, **(options | {"epsilon": 1e-8}))
    assert state.lower <= best.upper
    assert exact.loss.word == "squared_hinge"


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("scale", [1e6, 1e20])
def test_what_float64_cannot_prove_is_not_claimed(scale: float, loss: str) -> None:
    """Rows of 1e20 with C = 1e6 are beyond float64: no NaN, no endless loop, no certificate that is not true."""
    X, y = noisy(3, 400, 3)
    problem, state = solve((X * np.float32(scale)).astype(np.float32), y, loss=loss, cost=1e6)
    assert np.isfinite([state.upper, state.lower]).all()
    assert np.isfinite(state.newest).all()
    assert_true(problem, state)


def test_a_price_whose_sums_overflow_is_refused() -> None:
    """An objective beyond float64 is refused before a scan."""
    X, y = noisy(3, 400, 3)
    with pytest.raises(UsageError, match="C times the weights"):
        start(X, y, loss="squared_hinge", cost=1e160)


def test_an_epsilon_that_is_out_of_reach_ends_the_job() -> None:
    """If rounding exceeds the requested gap, the job stops and says so."""
    for loss in ("hinge", "squared_hinge"):
        problem, state = solve(*noisy(4, 3000, 5), loss=loss, epsilon=1e-15, sample_bytes=30_000, chunk_rows=100)
        assert state.status == "stalled"
        assert problem.result(state).status == "stopped"
        assert "memory" in problem.result(state).reason
        assert soft.relative_gap(state.upper, state.lower) < 1e-9


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_state_goes_on_from_its_arrays_with_the_same_bits(loss: str) -> None:
    """Written to arrays and read back after each scan, a job ends in the same state, bit for bit."""
    X, y = noisy(5, 4000, 6)
    options = {"loss": loss, "sample_bytes": 20_000, "chunk_rows": 100, "epsilon": 1e-6}
    problem, state = start(X, y, **options)
    other = problem.restore(state.to_arrays())
    while not problem.done(state):
        state, other = step(problem, state), step(problem, problem.restore(other.to_arrays()))
        assert_same_bits(state, other)
    assert state.to_arrays().keys() >= NAMES


def test_unlabelled_rows_do_not_count() -> None:
    """Rows without a label change nothing: not the value, not the bound, not the counts."""
    X, y = noisy(6, 500, 3)
    gaps = np.where(np.arange(500) % 5 == 0, None, y)
    problem, state = solve(X, gaps)
    _, without = solve(X[gaps != None], y[gaps != None])  # noqa: E711  elementwise
    assert_true(problem, state)
    assert state.upper == pytest.approx(without.upper, rel=1e-3)
    assert state.histogram.sum() == 400


def test_weights_are_those_of_the_classes() -> None:
    """C is (positive, negative); balanced gives both classes the same total."""
    X, y = noisy(7, 300, 3)
    y = np.where(np.arange(300) < 30, 1, -1)
    class_c = {w: start(X, y, cost=2.0, class_weight=w)[0].class_c.tolist() for w in (None, "balanced", (0.5, 3.0))}
    assert class_c[None] == [2.0, 2.0]
    assert class_c[0.5, 3.0] == [6.0, 1.0]
    assert class_c["balanced"][0] * 30 == pytest.approx(class_c["balanced"][1] * 270)


def test_the_histogram_tells_errors_apart() -> None:
    """Zero and one are edges of the histogram, and what lies below them is what lies below them."""
    problem, state = solve(*noisy(8, 2000, 4))
    edges = np.linspace(state.low, state.high, state.histogram.shape[1] + 1)
    assert np.abs(edges).min() < 1e-9
    assert np.abs(edges - 1).min() < 1e-9
    rows, codes = problem.source.rows_at(np.arange(2000))
    margins = np.where(codes == problem.codes[0], 1, -1) * (rows @ state.newest[:-1] + state.newest[-1])
    counted = state.histogram[:, edges[1:] < 1e-9].sum()
    assert abs(counted - (margins < 0).sum()) <= 1


def test_rounds_are_described_before_anything_is_known() -> None:
    """Before the first scan there are no bounds; the result claims none."""
    problem, state = start(*noisy(9, 200, 3))
    found = problem.round_of(state)
    assert (found.number, found.lower, found.upper, found.rows_below) == (0, -np.inf, np.inf, None)
    found = problem.result(state)
    assert (found.status, found.lower, found.kind) == ("stopped", None, "duality_gap")
    assert soft.relative_gap(state.upper, state.lower) == np.inf


def test_rows_that_cannot_be_trained_on_are_refused() -> None:
    """One class only, and lengths whose squares overflow, are named before anything is solved."""
    X, y = noisy(10, 100, 3)
    with pytest.raises(LabelError):
        start(X, np.ones(100, int))
    with pytest.raises(BadRow):
        start(X.astype(np.float64) * 1e200, y)


def test_wide_summaries_come_in_fewer_blocks(rng: np.random.Generator) -> None:
    """The d x d sums of one scan's blocks fit into the job's memory, however large the store is."""
    source = ArraySource(rng.standard_normal((3200, 60)).astype(np.float32), np.arange(3200) % 2, chunk_rows=16)
    problem = SoftMargin(source, 1e-3, LOSSES["squared_hinge"], 1.0, memory_bytes=1 << 20)
    blocks = plan_blocks(source, problem.least_block_bytes)
    assert len(blocks) * 8 * 61**2 <= (1 << 20) * 1.1


def equal_rows(seed: int, kinds: int = 60, copies: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """A few kinds of rows, each many times, next to rows of their own: a narrow band is full of a few kinds."""
    rng = np.random.default_rng(seed)
    X, y = noisy(seed, kinds, 6, flip=0.2)
    alone, labels = noisy(seed + 1, 400, 6, flip=0.2)
    order = rng.permutation(kinds * copies + 400)
    return np.vstack([np.repeat(X, copies, axis=0), alone])[order], np.concatenate([np.repeat(y, copies), labels])[
        order
    ]


def test_a_band_full_of_equal_rows_is_given_up_for_all_rows() -> None:
    """Where the hinge's band proves nothing and all rows fit into the memory, they are read, and are the proof."""
    X, y = equal_rows(0)
    options: dict[str, Any] = {"memory_bytes": 2 * X.nbytes, "sample_bytes": 4000, "chunk_rows": 200}
    problem, state = start(X, y, near_bytes=2000, **options)
    read = state.sample_bytes
    while not problem.done(state):
        assert state.round < 20
        again = problem.restore(state.to_arrays())
        state, other = step(problem, state), step(problem, again)
        assert all(other.to_arrays()[name].tobytes() == values.tobytes() for name, values in state.to_arrays().items())
    assert not problem.by_rows
    assert len(state.rows.cached) == len(y)
    assert state.sample_bytes == read + problem.source.nbytes
    assert state.status == "certified"
    assert_true(problem, state)
    exact, best = solve(X, y, epsilon=1e-7)
    assert state.lower <= best.upper
    assert best.lower <= state.upper
    little, end = solve(X, y, near_bytes=2000, **(options | {"memory_bytes": X.nbytes // 2}))
    assert not len(end.rows.cached)
    assert_true(little, end)
    assert exact.all_cached == exact.by_rows
