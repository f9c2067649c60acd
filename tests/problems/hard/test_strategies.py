"""Strategies as objects: which rows they take, and that one more is a line in the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data.arrays import ArraySource
from coremargin.formats import model_record
from coremargin.problems.common.sent import SentRows
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.hard.probe import MarginSummary
from coremargin.problems.hard.state import Hypothesis
from coremargin.problems.hard.strategies.paper import Paper
from coremargin.problems.hard.strategies.table import STRATEGIES
from plain_loop import assert_certificate, solve

Maker = Callable[..., tuple[np.ndarray, np.ndarray]]


def found(rng: np.random.Generator, count: int, *, sparse: bool) -> MarginSummary:
    """What a scan may send: rows of both classes in no order, some of them twice under other ids."""
    rows = rng.integers(-3, 4, (count, 4)).astype(np.float32)
    signs = rng.choice(np.array([1, -1], np.int8), count)
    rows[count // 2 :], signs[count // 2 :] = rows[: count - count // 2], signs[: count - count // 2]
    ids = rng.permutation(10 * count)[:count]
    nothing = MarginSummary.nothing(1, 4, np.dtype(np.float32), 10, sparse=sparse)
    return replace(nothing, sent=SentRows.one_part(ids, csr_array(rows) if sparse else rows, signs))


def dense(rows: Any) -> np.ndarray:
    """Rows of either kind as an array."""
    return rows.toarray() if isinstance(rows, csr_array) else rows


def test_the_table_knows_every_name_that_a_job_may_give() -> None:
    """The strategies that there are, are those that a record may name."""
    assert set(STRATEGIES) == set(get_args(model_record.Strategy))


@pytest.mark.parametrize("sparse", [False, True])
def test_which_rows_join_the_working_set(rng: np.random.Generator, *, sparse: bool) -> None:
    """Paper the one of the least margin, of equal ones the first, any-violator the first, others all of so few."""
    for count in (1, 2, 40):
        summary = found(rng, count, sparse=sparse)
        w = rng.integers(-2, 3, 4).astype(np.float64)
        ids, rows, signs = summary.sent.ids, dense(summary.sent.rows), summary.sent.signs
        worst = min(range(count), key=lambda k: (signs[k] * (rows[k] @ w + 0.5), ids[k]))
        expected = {name: list(range(count)) for name in STRATEGIES}
        expected |= {"paper": [worst], "any-violator": [int(ids.argmin())]}
        for name, strategy in STRATEGIES.items():
            taken = strategy.joining(summary, Hypothesis(w, 0.5))
            assert taken.ids.tolist() == ids[expected[name]].tolist(), name
            assert (dense(taken.rows) == rows[expected[name]]).all()
            assert (taken.signs == signs[expected[name]]).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_no_rows_are_no_rows(rng: np.random.Generator, *, sparse: bool) -> None:
    """A scan that sends nothing adds nothing, whatever the strategy."""
    summary = found(rng, 2, sparse=sparse)
    summary = replace(summary, sent=summary.sent.where(np.zeros(2, bool)))
    for strategy in STRATEGIES.values():
        taken = strategy.joining(summary, Hypothesis(np.ones(4), 0.0))
        assert (len(taken), taken.rows.shape, len(taken.signs)) == (0, (0, 4), 0)
        assert not strategy.enough(summary)


class LowestTwo(Paper):
    """Two rows a scan, those with the least margins: for this test only."""

    def joining(self, summary: MarginSummary, newest: Hypothesis) -> SentRows:
        sent = summary.sent
        margins = sent.signs * (sent.rows @ newest.w + newest.b)
        two = np.lexsort([sent.ids, margins])[:2]
        return SentRows.one_part(sent.ids[two], sent.rows[two], sent.signs[two])


def test_one_more_strategy_is_one_line_in_the_table(make_separable: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy that only chooses the rows to add certifies; with two rows a scan it takes fewer scans."""
    monkeypatch.setitem(STRATEGIES, "lowest-two", LowestTwo())  # type: ignore[misc]
    X, y = make_separable(400, 4, margin=0.2)
    run = solve(X, y, 0.01, strategy="lowest-two")
    assert_certificate(run)
    assert [len(state.working_set) for state in run.states[:3]] == [1, 3, 5]
    assert run.last.round < solve(X, y, 0.01, strategy="paper").last.round


def test_what_is_not_counted_yet_is_not_a_number(make_separable: Maker) -> None:
    """Before the first scan nobody has counted the rows below the bound; a checkpoint gives that back, and a count."""
    X, y = make_separable(200, 3)
    problem = HardMargin(ArraySource(X, y, chunk_rows=50), 1e-3, sample_bytes=1000, sample_share=0.02)
    run = solve(X, y, 1e-3, strategy="paper")
    for state in (problem.start(), run.last):
        told = problem.round_of(problem.restore(state.to_arrays()))
        assert told == problem.round_of(state)
    assert problem.round_of(problem.start()).rows_below is None
    before, after = run.states[:2]
    margins = np.where(y == max(y), 1, -1) * (X.astype(np.float64) @ before.newest.w + before.newest.b)
    surely, perhaps = ((margins < before.upper * (1 + slack)).sum() for slack in (-1e-5, 1e-5))
    assert 0 < surely <= after.rows_below <= perhaps  # type: ignore[operator]
