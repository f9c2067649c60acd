"""Work on items in a few threads, its answers in the order of the items."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_AHEAD = 1  # items a thread that may be done before they are asked for: memory stays that small
_REUSED_BYTES = 31 * 2**20  # the largest block that glibc's malloc may keep is 32 MiB


def in_order(pool: Executor, work: Callable[[Item], Answer], items: Iterable[Item], window: int) -> Iterator[Answer]:
    """``work(item)`` for each item, in order, at most ``window`` of them under way; leaving early cancels the rest.

    What work or items raise is raised where its answer would have come.
    """
    pending: deque[Future[Answer]] = deque()
    iterator, problem = iter(items), None
    try:
        while problem is None:
            try:
                item = next(iterator)
            except Exception as error:  # noqa: BLE001 - raised below, the end of the items among them
                problem = error
            else:
                pending.append(pool.submit(work, item))
            while pending and (problem is not None or len(pending) >= window):
                yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
    if not isinstance(problem, StopIteration):
        raise problem


def _reuse_freed_memory() -> None:
    """Let malloc keep what is freed for the next item, instead of the system, which gives it back page by page.

    glibc does so with blocks up to the size of the largest that was ever freed; one that is not touched costs nothing.
    """
    with suppress(MemoryError):
        np.empty(_REUSED_BYTES, np.uint8)


def read_in_order(work: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """The same in a thread for each core, for pieces parsed while earlier ones are used."""
    threads = len(os.sched_getaffinity(0))
    _reuse_freed_memory()
    with ThreadPoolExecutor(threads, thread_name_prefix="coremargin-read") as pool:
        yield from in_order(pool, work, items, _AHEAD * threads + 1)
