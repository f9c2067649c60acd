"""Solves that nobody waits for any more end between their steps, in this thread and in those that work for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.interior import HingeModel, minimise_hinge
from coremargin.maths.kesler import solve_kesler
from coremargin.maths.newton import Quadratic, Rows, minimise_squared_hinge
from coremargin.maths.row_model import RowModel
from coremargin.maths.smooth import minimise_hinge as minimise_rows
from coremargin.maths.stopping import Ended, Together, may_stop, stoppable


class Enough(Exception):
    """What ends a solve in these tests."""


def data() -> tuple[Any, Any]:
    """Some rows that are apart, and their signs."""
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((400, 6)), np.where(np.arange(400) % 2, 1, -1).astype(np.int8)
    return x + 2.0 * y[:, None] * np.eye(6)[0], y


def pool() -> Any:
    """A hard margin."""
    return solve_hard_margin(*data(), intercept=True).w


def classes() -> Any:
    """A hard margin of several classes."""
    x, y = data()
    return solve_kesler(np.column_stack([x, np.ones(len(x))]), (y > 0).astype(np.int64), 2).at


def by_newton() -> Any:
    """Squared hinge by sums."""
    x, y = data()
    rows = Rows(x * y[:, None], np.ones(len(x)), np.zeros(len(x)))
    return minimise_squared_hinge(np.zeros(6), np.ones(6), Quadratic.zero(6), rows)[0]


def by_interior() -> Any:
    """Hinge by sums."""
    x, y = data()
    ones = np.ones(len(x))
    return minimise_hinge(HingeModel(np.ones(6), np.zeros(6), x * y[:, None], ones, np.zeros(len(x))))[0]


def by_rows() -> Any:
    """Hinge on all rows."""
    x, y = data()
    ones = np.ones(len(x))
    model = RowModel(
        linear=np.zeros(7), rows=x, signs=y, intercept=True, target=ones, curvatures=ones, limit=ones
    )  # fmt: skip
    return minimise_rows(model, np.zeros(7), None, 1e-8)[0]


@pytest.mark.parametrize("solve", [pool, classes, by_newton, by_interior, by_rows])
def test_solves_ask_between_their_steps(solve: Callable[[], Any]) -> None:
    """Each asks several times; ends when told to, whenever that is; and has the same bits when it only asks."""
    asked = 0
    last = 1 << 60

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked >= last:
            raise Enough

    alone = solve()
    with stoppable(check):
        np.testing.assert_array_equal(solve(), alone)
    every = asked
    assert every > 2
    for last in {1, every // 2, every}:
        asked = 0
        with stoppable(check), pytest.raises(Enough):
            solve()
        assert asked == last
    np.testing.assert_array_equal(solve(), alone)  # nobody asks any more


def until_stopped(begun: threading.Barrier) -> str:
    """Work without end."""
    begun.wait()
    for _ in range(1000):
        time.sleep(0.01)
        may_stop()
    return "never"


def test_threads_end_with_the_one_that_they_work_for() -> None:
    """They call its function, and end, too, when it ends in another way; in other threads nothing changes."""
    begun = threading.Barrier(3)

    def check() -> None:
        if threading.current_thread() is not threading.main_thread() and over.is_set():
            raise Enough

    over = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        with stoppable(check):
            together = Together()
        futures = [threads.submit(together.run, until_stopped, begun) for _ in range(2)]
        begun.wait()
        over.set()
        assert all(isinstance(future.exception(5), Enough) for future in futures)
        over.clear()
        futures = [threads.submit(together.run, until_stopped, begun) for _ in range(2)]
        begun.wait()
        together.end()
        assert all(isinstance(future.exception(5), Ended) for future in futures)
        assert threads.submit(may_stop).result(5) is None
