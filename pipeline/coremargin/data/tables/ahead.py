"""Work on items in a few threads, its answers in the order of the items: parsing waits for nothing but its own core."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_AHEAD = 2  # items a thread that may be done before they are asked for: memory stays that small


def in_order(work: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """``work(item)`` for each item, in order; what work or items raise is raised where its answer would have come."""
    threads = len(os.sched_getaffinity(0))
    pending: deque[Future[Answer]] = deque()
    iterator, problem = iter(items), None
    with ThreadPoolExecutor(threads, thread_name_prefix="coremargin-read") as pool:
        try:
            while problem is None:
                try:
                    item = next(iterator)
                except Exception as error:  # noqa: BLE001 - raised below, the end of the items among them
                    problem = error
                else:
                    pending.append(pool.submit(work, item))
                while pending and (problem is not None or len(pending) > _AHEAD * threads):
                    yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
    if not isinstance(problem, StopIteration):
        raise problem
