from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.svm import SVC

from coremargin.data.arrays import ArraySource
from coremargin.problems.hard import forecast
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.hard.state import HardMarginState
from margin_judges import hulls_meet, margin_by_daqp, smallest_margin
from plain_loop import Run, assert_bounds_hold, assert_certificate, assert_upper, proceed, sides, solve

Maker = Callable[..., tuple[np.ndarray, np.ndarray]]
STRATEGIES = ("fast", "paper", "any-violator")
#: A sample of few rows, so that small data need scans.
SMALL_SAMPLE: dict[str, Any] = {"sample_bytes": 1000, "sample_share": 0.02}


def digits(a: int, b: int) -> tuple[np.ndarray, np.ndarray]:
    """Two of the handwritten digits."""
    X, y = load_digits(return_X_y=True)
    pair = (y == a) | (y == b)
    return X[pair].astype(np.float32), y[pair]


def iris() -> tuple[np.ndarray, np.ndarray]:
    """Iris setosa and versicolor, with labels in words."""
    X, y = load_iris(return_X_y=True)
    return X[y < 2].astype(np.float32), np.array(["setosa", "versicolor"], object)[y[y < 2]]


def signs_of(y: np.ndarray) -> np.ndarray:
    """-1 for the smaller label, 1 for the larger."""
    return np.where(y == max(y), 1, -1)


def same_state(one: HardMarginState, other: HardMarginState) -> bool:
    """Equal bits in everything that a checkpoint holds."""
    a, b = one.to_arrays(), other.to_arrays()
    return a.keys() == b.keys() and all(a[k].tobytes() == b[k].tobytes() and a[k].dtype == b[k].dtype for k in a)


@pytest.mark.specimens(11)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", ["iris", "digits", "synthetic"])
def test_all_strategies_certify_the_same_margin(
    name: str, strategy: str, make_separable: Maker, *, intercept: bool
) -> None:
    """Fast, paper and any-violator all certify, and their bounds enclose the margin that daqp finds."""
    X, y = {"iris": iris, "digits": lambda: digits(0, 1), "synthetic": lambda: make_separable(500, 8)}[name]()
    run = solve(X, y, 0.01, intercept=intercept, strategy=strategy, **SMALL_SAMPLE)
    assert_certificate(run)
    best = margin_by_daqp(X, signs_of(y), intercept=intercept)
    assert run.last.lower <= best * (1 + 1e-6)
    assert run.last.upper >= best * (1 - 1e-6)
    assert 0.99 * best * (1 - 1e-6) <= run.last.lower


def test_the_margin_is_that_of_libsvm() -> None:
    """At epsilon 1e-6 margin and direction are those of SVC at C = 1e10, which proves no more than our upper bound."""
    X, y = digits(3, 8)
    run = solve(X, y, 1e-6)
    assert_certificate(run)
    assert run.last.best is not None
    peer = SVC(kernel="linear", C=1e10, tol=1e-8).fit(X.astype(np.float64), y)
    w = peer.coef_[0] / np.linalg.norm(peer.coef_)
    assert run.last.best.w == pytest.approx(w, abs=1e-3)
    reached = smallest_margin(X, signs_of(y), peer.coef_[0], float(peer.intercept_[0]))
    assert run.last.lower * (1 - 1e-3) <= reached <= run.last.upper


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("epsilon", [0.5, 1e-3, 1e-8])
def test_every_epsilon_is_reached(make_separable: Maker, strategy: str, epsilon: float) -> None:
    """From one half to 1e-8, every epsilon ends with a certificate that holds."""
    X, y = make_separable(800, 5, margin=0.3)
    for intercept in (True, False):
        assert_certificate(solve(X, y, epsilon, intercept=intercept, strategy=strategy, **SMALL_SAMPLE))


@pytest.mark.parametrize("intercept", [True, False])
def test_the_paper_strategy_takes_one_row_a_scan(make_separable: Maker, *, intercept: bool) -> None:
    """Figure 1 starts from one example and adds the example with the least margin of all, one after each scan."""
    X, y = make_separable(400, 4, margin=0.2)
    run = solve(X, y, 0.01, intercept=intercept, strategy="paper")
    assert [len(state.working_set) for state in run.states[:-1]] == list(range(1, len(run.states)))
    assert run.states[0].working_set.ids.tolist() == [0]
    assert all(len(read) == run.problem.source.chunks for read in run.chunks)
    _, rows, signs = sides(run.problem.source, run.problem.codes)
    for before, after in zip(run.states, run.states[1:-1], strict=False):
        margins = signs * (rows @ before.newest.w + before.newest.b)
        new = np.setdiff1d(after.working_set.ids, before.working_set.ids)
        assert margins[new] == pytest.approx(margins.min(), abs=1e-12)
    assert_certificate(run)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_any_violator_strategy_takes_the_first_row_that_breaks_the_bound(
    make_separable: Maker, *, intercept: bool
) -> None:
    """Corollary 3.2: any example below (1 - epsilon) of the upper bound will do, and a scan ends at the first block
    that has one.
    """  # fmt: skip
    X, y = make_separable(400, 4, margin=0.2)
    run = solve(X, y, 0.01, intercept=intercept, strategy="any-violator")
    _, rows, signs = sides(run.problem.source, run.problem.codes)
    for before, after, read in zip(run.states, run.states[1:-1], run.chunks, strict=False):
        margins = signs * (rows @ before.newest.w + before.newest.b)
        (new,) = np.setdiff1d(after.working_set.ids, before.working_set.ids)
        assert margins[new] < (0.99 * before.upper if np.isfinite(before.upper) else np.inf)
        assert new // 50 in read[-3:]
    assert any(len(read) < run.problem.source.chunks for read in run.chunks)
    assert_certificate(run)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.03])
@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_scans_of_the_paper_strategy_are_bounded(make_separable: Maker, margin: float, epsilon: float) -> None:
    """Without an intercept the paper's strategy needs at most 27 (R / rho)^2 / epsilon + 2 scans.

    It is fully corrective Frank-Wolfe on f(v) = ||v||^2 / 2 over the hull of the z_i = y_i x_i: the row with the least
    margin is the linear minimiser, and each solve minimises over all rows seen. Jaggi (Revisiting Frank-Wolfe,
    2013), Theorem 2: among the first K iterates one has a duality gap of at most 27 C_f / (4 (K + 2)), with the
    curvature C_f <= diameter^2 <= (2 R)^2. The gap at v is ||v||^2 - min_i z_i.v; at most epsilon rho^2, which is
    at most epsilon ||v||^2, certifies. So K + 2 = 27 (R / rho)^2 / epsilon suffices; one scan looks at each iterate,
    the first one included.
    """
    X, y = make_separable(600, 10, margin=margin)
    run = solve(X, y, epsilon, intercept=False, strategy="paper")
    radius = float(np.linalg.norm(X.astype(np.float64), axis=1).max())
    assert run.last.status == "certified"
    assert run.last.round <= 27 * (radius / run.last.lower) ** 2 / epsilon + 2
    assert len(run.last.coreset) <= min(run.last.round, X.shape[1] + 1)


@pytest.mark.slow
def test_the_coreset_is_small(make_separable: Maker) -> None:
    """No strategy leaves more rows with weight than affine independence allows: d + 1, with an intercept d + 2."""
    X, y = make_separable(3000, 6, margin=0.1)
    for strategy in STRATEGIES:
        for intercept in (True, False):
            run = solve(X, y, 1e-3, strategy=strategy, intercept=intercept, **SMALL_SAMPLE)
            assert 2 - (not intercept) <= len(run.last.coreset) <= 6 + 1 + intercept


def test_the_fast_strategy_needs_few_scans(make_separable: Maker) -> None:
    """From a sample of 4 % the fast strategy certifies 1e-3 in at most three scans, and the paper's needs more."""
    X, y = make_separable(20_000, 20)
    fast = solve(X, y, 1e-3, chunk_rows=500, sample_bytes=100_000)
    paper = solve(X, y, 1e-3, chunk_rows=500, strategy="paper")
    assert_certificate(fast)
    assert fast.last.round <= 3 < paper.last.round
    assert fast.last.lower >= (1 - 1e-3) * paper.last.lower


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("intercept", [True, False])
def test_classes_that_overlap_are_proven_to(rng: np.random.Generator, strategy: str, *, intercept: bool) -> None:
    """Data that no plane separates end with d + 2 rows or fewer whose hulls meet, as a linear program confirms."""
    X, y = rng.standard_normal((300, 4)), np.where(np.arange(300) % 2, 1, -1)
    X[:, 0] += 0.5 * y
    run = solve(X, y, 1e-3, intercept=intercept, strategy=strategy, **SMALL_SAMPLE)
    assert run.last.status == "not_separable"
    core = run.last.coreset
    assert len(core) <= X.shape[1] + 1 + intercept
    assert run.last.upper < 1e-12
    assert_upper(run)
    assert hulls_meet(core.rows, core.signs, intercept=intercept) < 1e-9


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_contradiction_is_found(make_separable: Maker, strategy: str) -> None:
    """Two equal rows with different labels among many separable ones end the job, and they are the proof."""
    X, y = make_separable(500, 5)
    X[411], y[411] = X[17], -y[17]
    run = solve(X, y, 1e-3, strategy=strategy, **SMALL_SAMPLE)
    assert run.last.status == "not_separable"
    assert len(run.last.coreset) <= 7
    assert hulls_meet(run.last.coreset.rows, run.last.coreset.signs, intercept=True) < 1e-9
    assert run.last.upper < 1e-12


def test_a_plane_through_the_origin_may_fail_where_an_offset_helps(make_separable: Maker) -> None:
    """Rows moved away from the origin are separable with an intercept and, here, not without."""
    X, y = make_separable(300, 2)
    X = X + 100 * y.max() * np.ones(2, np.float32)
    assert_certificate(solve(X, y, 1e-3))
    run = solve(X, y, 1e-3, intercept=False)
    assert run.last.status in ("not_separable", "certified")
    if run.last.status == "not_separable":
        assert hulls_meet(run.last.coreset.rows, run.last.coreset.signs, intercept=False) < 1e-7


@pytest.mark.parametrize("intercept", [True, False])
def test_a_small_working_set_still_certifies(
    rng: np.random.Generator, make_separable: Maker, *, intercept: bool
) -> None:
    """With room for a few rows only, rows leave the working set, come back when needed, and block bounds stay true."""
    X, y = make_separable(6000, 5, margin=0.02)
    run = solve(X, y, 1e-4, intercept=intercept, working_set_bytes=1, chunk_rows=100, block_chunks=4, **SMALL_SAMPLE)
    pools = [set(state.working_set.ids.tolist()) for state in run.states]
    assert any(before - after for before, after in itertools.pairwise(pools))
    assert_certificate(run)
    assert_bounds_hold(run, rng)
    uppers = [state.upper for state in run.states]
    assert uppers == sorted(uppers, reverse=True)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_block_bounds_hold_to_the_end(rng: np.random.Generator, make_separable: Maker, strategy: str) -> None:
    """What a job leaves behind holds for every row outside its final working set, whichever strategy found it."""
    X, y = make_separable(1500, 6, margin=0.1)
    for intercept in (True, False):
        run = solve(X, y, 1e-3, strategy=strategy, intercept=intercept, **SMALL_SAMPLE)
        assert_bounds_hold(run, rng)


def striped(make_separable: Maker, rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Rows in order of their distance from the plane: most chunks are far away."""
    X, y = make_separable(rows, 5, margin=0.05)
    plane = SVC(kernel="linear", C=1e6).fit(X[:200], y[:200])
    order = np.argsort(-np.abs(plane.decision_function(X)), kind="stable")
    return X[order], y[order]


@pytest.mark.parametrize("intercept", [True, False])
def test_chunks_far_away_are_skipped_and_proven(
    rng: np.random.Generator, make_separable: Maker, monkeypatch: pytest.MonkeyPatch, *, intercept: bool
) -> None:
    """A chunk is skipped only where no row of it can break the bound, and the certificate holds for its rows.

    With forecasts of no move at all more has to be read, and what is proven is as true.
    """
    monkeypatch.setattr(forecast, "SAFETY", 0.0)
    monkeypatch.setattr(forecast, "LEAST", 0.0)
    X, y = striped(make_separable)
    run = solve(X, y, 1e-6, intercept=intercept, chunk_rows=25, sample_bytes=1000, sample_share=0.01)
    assert_certificate(run)
    assert_bounds_hold(run, rng)
    _, rows, signs = sides(run.problem.source, run.problem.codes)
    skipped = 0
    for state, read in zip(run.states, run.chunks, strict=False):
        if state.reading:  # what a stage leaves out comes in another one
            continue
        margins = signs * (rows @ state.newest.w + state.newest.b)
        away = ~np.isin(np.arange(len(rows)) // 25, read)
        skipped += int(away.sum())
        free = away & ~np.isin(np.arange(len(rows)), state.working_set.ids)
        assert (margins[free] >= (1 - run.problem.epsilon / 2) * state.upper).all()
    assert skipped > 0


@pytest.mark.specimens(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_restored_state_continues_to_the_same_bits(make_separable: Maker, strategy: str) -> None:
    """Interrupted after any scan, written as arrays and read back, a job ends with the bits of the whole job."""
    X, y = make_separable(1500, 6, margin=0.05)
    whole = solve(X, y, 1e-4, strategy=strategy, **SMALL_SAMPLE)
    assert whole.last.round >= 2
    for k in {0, 1, whole.last.round // 2, whole.last.round - 1}:
        again = HardMarginState.from_arrays(whole.states[k].to_arrays())
        assert same_state(again, whole.states[k])
        assert same_state(proceed(Run(whole.problem, [again])).last, whole.last)


def test_the_same_job_gives_the_same_bits(make_separable: Maker) -> None:
    """A job repeated gives the same final state to the bit."""
    X, y = make_separable(1500, 6, margin=0.05)
    assert same_state(solve(X, y, 1e-4, **SMALL_SAMPLE).last, solve(X, y, 1e-4, **SMALL_SAMPLE).last)


def changes() -> dict[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]:
    """What may be done to rows and labels without changing the margin."""
    order = np.random.default_rng(5).permutation(900)
    return {
        "labels exchanged": lambda X, y: (X, -y),
        "rows in another order": lambda X, y: (X[order], y[order]),
        "labels sorted": lambda X, y: (X[np.argsort(y, kind="stable")], np.sort(y)),
        "rows repeated": lambda X, y: (np.tile(X, (3, 1)), np.tile(y, 3)),
        "float64": lambda X, y: (X.astype(np.float64), y),
        "labels in words": lambda X, y: (X, np.where(y > 0, "yes", "no").astype(object)),
        "features in another order": lambda X, y: (X[:, ::-1].copy(), y),
        "features of zeros added": lambda X, y: (np.hstack([X, np.zeros_like(X)]), y),
    }


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("change", changes())
def test_what_should_not_matter_does_not(make_separable: Maker, change: str, *, intercept: bool) -> None:
    """Exchanged labels, other orders, copies, precisions and names give the same margin within epsilon."""
    X, y = make_separable(900, 7, margin=0.2)
    one = solve(X, y, 1e-5, intercept=intercept, **SMALL_SAMPLE)
    other = solve(*changes()[change](X, y), 1e-5, intercept=intercept, **SMALL_SAMPLE)
    assert_certificate(other)
    assert other.last.lower <= one.last.upper * (1 + 1e-9)
    assert one.last.lower <= other.last.upper * (1 + 1e-9)


@pytest.mark.parametrize("chunk_rows", [1, 7, 100, 10_000])
def test_chunks_and_blocks_do_not_matter(make_separable: Maker, chunk_rows: int) -> None:
    """Chunks of one row or of all, blocks of one chunk or of many: the same margin within epsilon."""
    X, y = make_separable(400, 4, margin=0.2)
    best = margin_by_daqp(X, y, intercept=True)
    for block_chunks in (1, 3, 1000):
        run = solve(X, y, 1e-5, chunk_rows=chunk_rows, block_chunks=block_chunks, **SMALL_SAMPLE)
        assert_certificate(run)
        assert run.last.lower <= best * (1 + 1e-6)
        assert run.last.upper >= best * (1 - 1e-6)


def test_unlabelled_rows_are_ignored(make_separable: Maker) -> None:
    """Rows without a label, wherever they lie, change nothing but the ids."""
    X, y = make_separable(500, 4)
    holes = np.arange(500) % 7 == 3
    labels = np.where(holes, None, y.astype(object))
    X[holes] = 0
    one, other = solve(X[~holes], y[~holes], 1e-4), solve(X, labels, 1e-4)
    assert_certificate(other)
    assert other.last.upper == pytest.approx(one.last.upper, rel=1e-4)
    assert not np.isin(other.last.coreset.ids, np.flatnonzero(holes)).any()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_rows_are_enough(strategy: str) -> None:
    """Two rows, one feature: the margin is half their distance, the offset their midpoint."""
    run = solve(np.array([[1.0], [4.0]]), [0, 1], 1e-6, strategy=strategy)
    assert_certificate(run)
    assert run.last.best is not None
    assert run.last.lower == pytest.approx(1.5)
    assert run.last.best.b == pytest.approx(-2.5)


def test_far_offsets_end_without_a_false_claim(make_separable: Maker) -> None:
    """Rows 1e9 away from the origin end certified or, where float64 cannot tell, stalled: never with a wrong bound."""
    X, y = make_separable(300, 3, dtype="float64")
    for offset in (1e3, 1e7, 1e9, 1e12, 1e15):
        run = solve(X + offset, y, 1e-3)
        rows = X + offset
        assert run.last.status in ("certified", "stalled", "not_separable")
        if run.last.best is not None:
            assert (y * (rows @ run.last.best.w + run.last.best.b)).min() >= run.last.lower
        if offset <= 1e7:
            assert_certificate(run)


def test_huge_and_tiny_float32_rows_certify(make_separable: Maker) -> None:
    """Rows scaled to the ends of float32 have the margin scaled alike."""
    X, y = make_separable(500, 4)
    base = solve(X, y, 1e-4, **SMALL_SAMPLE).last.upper
    for power in (-120, -60, 60, 120):
        run = solve((X * 2.0**power).astype(np.float32), y, 1e-4, **SMALL_SAMPLE)
        assert_certificate(run)
        assert run.last.upper == pytest.approx(base * 2.0**power, rel=1e-4)


@pytest.mark.parametrize("size", [1e9, 1e12])
def test_separable_rows_are_not_called_overlapping(rng: np.random.Generator, size: float) -> None:
    """Rows 1e15 times longer than their margin, but with a direction that proves it, end stalled with that proof."""
    y = np.where(np.arange(400) % 2, 1, -1)
    X = np.column_stack([rng.standard_normal(400) * size, y * 1e-6 * (1 + rng.random(400))])
    run = solve(X, y, 1e-3, intercept=False)
    assert run.last.status == "stalled"
    assert run.last.best is not None
    assert 0.5e-6 < run.last.lower <= smallest_margin(X, y, run.last.best.w, 0.0)
    assert run.last.upper >= 1e-6


def test_early_ends_prove_nothing(make_separable: Maker) -> None:
    """A scan that ended at a violator leaves the lower bound where it was."""
    X, y = make_separable(600, 4, margin=0.1)
    run = solve(X, y, 1e-3, strategy="any-violator")
    assert all(state.lower == -np.inf for state in run.states[:-2])


def test_a_damaged_claim_is_seen_by_the_judges(make_separable: Maker) -> None:
    """The judges of these tests are not blind: a raised lower bound, and a coreset of other rows, fail them."""
    X, y = make_separable(300, 4)
    run = solve(X, y, 1e-4)
    raised = replace(run.last, lower=run.last.lower * (1 + 1e-6))
    with pytest.raises(AssertionError):
        assert_certificate(Run(run.problem, [raised]))
    core = run.last.coreset
    with pytest.raises(AssertionError):
        assert_upper(Run(run.problem, [replace(run.last, coreset=replace(core, ids=core.ids[::-1]))]))


def test_a_problem_is_described_by_its_options() -> None:
    """The working set holds at least 4 (d + 2) rows, however small its memory; paper and any-violator never skip."""
    source = ArraySource(np.eye(6), [0, 1] * 3)
    assert HardMargin(source, 0.1, working_set_bytes=1).working_set_rows == 32
    assert HardMargin(source, 0.1, working_set_bytes=48 * 1000).working_set_rows == 1000
    for strategy in ("paper", "any-violator"):
        problem = HardMargin(source, 0.1, strategy=strategy)  # type: ignore[arg-type]
        assert not problem.skip(problem.start()).any()


@pytest.mark.parametrize("working_set_bytes", [1, 1 << 24])
def test_the_histogram_of_a_read_in_stages_counts_each_row_once(make_separable: Maker, working_set_bytes: int) -> None:
    """Each row is counted once, even with a small working set, and no row lies within the margin."""
    X, y = make_separable(3000, 4)
    run = solve(X, y, 1e-3, working_set_bytes=working_set_bytes, **SMALL_SAMPLE)
    state = run.states[run.states[0].stages]
    assert state.in_stages
    assert state.histogram.min() >= 0
    assert state.histogram.sum(axis=1).tolist() == [int((y == max(y)).sum()), int((y != max(y)).sum())]
    if state.status == "certified":
        assert state.histogram[:, : int((state.lower - state.low) / (state.high - state.low) * 200)].sum() == 0
