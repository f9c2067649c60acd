"""Members of a fleet are solved side by side, each on one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

#: More members than this are not solved at a time: each has a copy of its rows.
MOST_THREADS = 8


def side_by_side(work: Callable[[A], B], entries: Iterable[A], most: int = MOST_THREADS) -> list[B]:
    """``work`` of each entry, in order, on a few threads; after an exception nothing new is begun."""
    threads = max(1, min(os.cpu_count() or 1, most))
    pool = ThreadPoolExecutor(threads, thread_name_prefix="coremargin-solve")
    try:
        return list(pool.map(work, entries))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
