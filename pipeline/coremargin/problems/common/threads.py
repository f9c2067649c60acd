"""Solves side by side, each on one thread: members of a fleet, columns of a machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from coremargin.maths.stopping import Together

A = TypeVar("A")
B = TypeVar("B")

#: More members than this are not solved at a time: each has a copy of its rows.
MOST_THREADS = 8


def side_by_side(work: Callable[[A], B], entries: Iterable[A], most: int = MOST_THREADS) -> list[B]:
    """``work`` of each entry, in order, on a few threads; after an exception nothing is begun or goes on."""
    threads = max(1, min(os.cpu_count() or 1, most))
    pool, together = ThreadPoolExecutor(threads, thread_name_prefix="coremargin-solve"), Together()
    try:
        return list(pool.map(partial(together.run, work), entries))
    finally:
        together.end()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Of matrix products in here: many side by side have no use for more."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
