"""Independent solves on a few threads: models trained together, columns of a kernel machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from coremargin.maths.stopping import Together

A = TypeVar("A")
B = TypeVar("B")

#: Most solves at a time: each has a copy of its rows.
MOST_THREADS = 8


def map_in_threads(work: Callable[[A], B], entries: Iterable[A], most: int = MOST_THREADS) -> list[B]:
    """``work`` of each entry, in order, on a few threads; an exception stops all of them."""
    threads = max(1, min(os.cpu_count() or 1, most))
    pool, together = ThreadPoolExecutor(threads, thread_name_prefix="coremargin-solve"), Together()
    try:
        return list(pool.map(partial(together.run, work), entries))
    finally:
        together.end()
        pool.shutdown(wait=True, cancel_futures=True)
