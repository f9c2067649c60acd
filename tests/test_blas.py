"""BLAS has one thread while anybody asks for it, and afterwards as many as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import coremargin
from coremargin.blas import one_blas_thread


def blas_threads() -> set[int]:
    """The numbers of threads of all BLAS libraries."""
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """BLAS has two threads, also on a machine with one core."""
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        yield
    before = blas_threads()
    with threadpool_limits(1, user_api="blas"):
        assert blas_threads() == {1}  # other limits work as before
    assert blas_threads() == before


def test_contexts_may_be_nested() -> None:
    """Only the outermost restores what was before, also after an error."""
    with one_blas_thread():
        with suppress(ZeroDivisionError), one_blas_thread():
            assert blas_threads() == {1}
            raise ZeroDivisionError
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_the_last_one_out_restores_blas() -> None:
    """Whoever enters first may leave first; the others keep one thread."""
    entered, leave = threading.Event(), threading.Event()

    def block() -> set[int]:
        with one_blas_thread():
            entered.set()
            leave.wait(30)
            return blas_threads()

    with ThreadPoolExecutor(1) as pool:
        with one_blas_thread():
            other = pool.submit(block)
            entered.wait(30)
        assert blas_threads() == {1}
        leave.set()
        assert other.result() == {1}
    assert blas_threads() == {2}


def test_a_generator_that_another_thread_closes() -> None:
    """The limit of the process is restored all the same."""

    def results() -> Iterator[int]:
        with one_blas_thread():
            yield 1

    found = results()
    next(found)
    assert blas_threads() == {1}
    with ThreadPoolExecutor(1) as pool:
        pool.submit(found.close).result()  # type: ignore[attr-defined]
    assert blas_threads() == {2}


def test_trainings_at_once() -> None:
    """The first to end leaves one thread to the others, the last leaves what was before; all have the same bits."""
    generator = np.random.default_rng(5)
    y = np.where(np.arange(400) % 2, 1, -1)
    x = generator.normal(size=(400, 12)) + 3.0 * y[:, None]
    alone = coremargin.train(x, y).w
    start = threading.Barrier(4)

    def train(_: int) -> np.ndarray:
        start.wait(30)
        return coremargin.train(x, y).w

    with ThreadPoolExecutor(4) as pool:
        assert all((w == alone).all() for w in pool.map(train, range(4)))
    assert blas_threads() == {2}
