"""Several numbers of outliers in one job: bounds of every k at every moment, against all sets of outliers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coremargin.data.arrays import ArraySource
from coremargin.engine.plan import plan_blocks
from coremargin.maths.outliers import search as search_module
from coremargin.maths.outliers.certificates import Certificates
from coremargin.maths.outliers.explore import Leaves
from coremargin.maths.outliers.heuristic import Hyperplane
from coremargin.maths.outliers.ragged import Ragged
from coremargin.maths.outliers.search import NO_LEAVES, Search
from coremargin.maths.outliers.tasks import run_serially
from coremargin.problems.outliers.outlier_margin import OutlierMargin, final_status, share_bounds
from coremargin.problems.outliers.state import ExcludedRows, OutlierState, OutlierWorkingSet
from outlier_judges import KINDS, best_by_all_sets, instance


def states(problem: OutlierMargin) -> list[OutlierState]:
    """Every state of a job on rows in memory, the last one too."""
    found = [problem.start()]
    while not problem.done(found[-1]):
        found += problem.work(found[-1], run_serially)
        if not problem.done(found[-1]):
            probe = problem.probe(found[-1])
            answer = probe.empty()
            for block in plan_blocks(problem.source, skip=problem.skip(found[-1])):
                answer = answer.merge(probe.narrow(block)(problem.source, block))
            found.append(problem.update(found[-1], answer))
    return found


def check_every_moment(problem: OutlierMargin, x: np.ndarray, y: np.ndarray) -> None:
    """Neither bound falls as k grows, and all sets of k outliers have their best between the two, at every state."""
    best = np.array([best_by_all_sets(x, y, k, intercept=problem.intercept) for k in problem.ks])
    found = states(problem)
    assert problem.done(found[-1])
    for state in found:
        lower = np.array([one.lower for one in state.searches])
        upper = np.array([one.upper for one in state.searches])
        assert (np.diff(lower) >= 0).all()
        assert (upper[:-1] <= upper[1:]).all()
        assert (lower <= best + 1e-9).all()
        assert (upper >= best - 1e-9).all()
        assert all(len(out.ids) <= k for out, k in zip(state.excluded, problem.ks, strict=True))


@pytest.fixture
def many_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of few nodes."""
    monkeypatch.setattr(search_module, "ALONE_BUDGET", 3)


@pytest.mark.specimens(4)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_every_k_are_true_and_do_not_fall(kind: str, exact: bool, many_moments: None) -> None:
    """Tiny rows of all kinds, judged at every moment of the search."""
    rng = np.random.default_rng(11)
    for intercept in (True, False) * 4:
        x, y, most = instance(kind, rng)
        ks, source = tuple(range(most + 1)), ArraySource(x, y, chunk_rows=4)
        check_every_moment(OutlierMargin(source, ks, 1e-3, intercept=intercept, exact=exact), x, y)


@pytest.mark.parametrize("seed", range(3))
def test_a_k_that_is_behind_has_the_bound_of_larger_ones(seed: int, many_moments: None) -> None:
    """Noise, whose searches are at different levels most of the time: a larger k often has the lower bound."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(14, 4)), np.where(np.arange(14) % 2, 1, -1)
    check_every_moment(OutlierMargin(ArraySource(x, y, chunk_rows=4), (0, 1, 2, 3), 1e-3), x, y)


def hand_made(lower: list[float], upper: list[float], **options: float) -> OutlierState:
    """A state in the search, of which nothing but its bounds is known."""
    source = ArraySource(np.array([[1.0], [2.0], [-1.0], [-2.0]]), np.array([1, 1, -1, -1]))
    state = OutlierMargin(source, (0,), 1e-3).start()
    searches = [
        Search(k, options.get("epsilon", 1e-3), 2.0, Hyperplane(np.array([1.0]), float(k), low), high, proof=NO_LEAVES)
        for k, (low, high) in enumerate(zip(lower, upper, strict=True))
    ]
    outs = [ExcludedRows(np.arange(k), np.zeros(k), np.ones(k, np.int8)) for k in range(len(lower))]
    return replace(state, searches=tuple(searches), excluded=tuple(outs))


def test_what_one_k_proves_ends_others() -> None:
    """The hyperplane of a smaller k and the bound of a larger one close a k that has neither; its search is over."""
    state = share_bounds(hand_made([1.0, -np.inf, 0.5, 2.0], [np.inf, 3.0, 1.0005, 2.5]), 2.0, intercept=True)
    assert [one.lower for one in state.searches] == [1.0, 1.0, 1.0, 2.0]
    assert [one.best.b for one in state.searches] == [0.0, 0.0, 0.0, 3.0]
    assert [one.upper for one in state.searches] == [1.0005, 1.0005, 1.0005, 2.5]
    assert [one.status for one in state.searches] == ["done", "done", "done", "open"]
    assert [one.proof is None for one in state.searches] == [True, True, False, False]
    assert [len(out.ids) for out in state.excluded] == [0, 0, 0, 3]


def test_what_many_outliers_cannot_separate_fewer_cannot() -> None:
    """One proof that nothing separates is one for each smaller k, however little is known of these; without any, or
    with rows that do not cancel, a bound of zero is no proof.
    """
    first = hand_made([-np.inf] * 3, [np.inf, 1.0, 0.0], epsilon=0.0)
    rows_of_proof = OutlierWorkingSet(np.arange(3), np.array([[1.0], [1.0], [2.0]]), np.array([1, -1, -1], np.int8))
    for rows, ended in (((0, 1), "certified"), ((0, 2), "stalled"), ((), "stalled")):
        weights = Ragged.from_lists([np.ones(len(rows))], np.float64)
        found = Certificates(Ragged.from_lists([rows]), weights, np.zeros(1), np.zeros(1), np.zeros(1, np.int64))
        proof = Leaves(Ragged.from_lists([()]), Ragged.from_lists([[0]])) if rows else None
        *others, last = first.searches
        searches = (*others, replace(last, proof=proof, certificates=found))
        state = share_bounds(replace(first, working_set=rows_of_proof, searches=searches), 2.0, intercept=True)
        assert [one.upper for one in state.searches] == [0.0] * 3
        assert final_status(state, 2.0, intercept=True) == ended
