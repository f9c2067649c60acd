"""BLAS on one thread while it is asked for, whoever else in this process asks meanwhile."""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[None]:
    """BLAS on one thread within the context, which may be nested, and used by several threads at the same time.

    Solves then give the same bits on any number of cores, and blocks that run in parallel do not oversubscribe them.
    The first one in sets the limit and the last one out restores what was before. With ``threadpool_limits`` of each,
    the first to leave would give the others all threads.
    """
    return _one_thread


class _OneThread:
    """OpenBLAS and BLIS built with OpenMP have a limit in each thread, all others one limit in the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: dict[str, tuple[Any, int]] = {}  # by file: a library and its number of threads
        self._own = threading.local()  # the same of the current thread

    def __enter__(self) -> None:
        own = self._own.__dict__
        with self._lock:
            for library in _libraries(len(sys.modules)):
                each = getattr(library, "threading_layer", None) == "openmp"
                before = own.setdefault("before", {}) if each else self._before
                before.setdefault(library.filepath, (library, library.num_threads))
                _set_threads(library, 1)
            self._inside += 1
        own["inside"] = own.get("inside", 0) + 1

    def __exit__(self, *_: object) -> None:
        own = self._own.__dict__
        own["inside"] = own.get("inside", 0) - 1  # a generator may be closed by another thread than it ran in
        if own["inside"] <= 0:
            _restore(own.get("before", {}))
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _restore(self._before)


_one_thread = _OneThread()


def _restore(before: dict[str, tuple[Any, int]]) -> None:
    for library, threads in before.values():
        _set_threads(library, threads)
    before.clear()


def _set_threads(library: Any, threads: int) -> None:
    # from 3.8 on threadpoolctl ignores all threads but the first one; it may have ended, or wait for us
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(threads)
    release(force=True)


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> list[Any]:
    """The BLAS libraries of this process, as threadpoolctl controls them; finding them takes a millisecond.

    _modules: the number of imported modules, as further libraries come with further modules.
    """
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
