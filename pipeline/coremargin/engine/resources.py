"""Limits of open files and memory, checked before they are reached.

A limit that is reached later fails without a useful message: an event loop that cannot accept a connection spins, and
OpenBLAS ends the process, or tries forever, if it cannot allocate its buffers.
"""

from __future__ import annotations

import mmap
import os
import resource

from coremargin.data.machine_memory import process_limits
from coremargin.errors import MachineLimit

#: Address space of a thread that multiplies: its stack, an arena of malloc, the buffer of OpenBLAS; 8 + 64 + 32 MiB.
THREAD_BYTES = 112 << 20
_COMMAND_FILES = 6  # the event loop of zarr-python, files of a store
_LIBRARY_BYTES = 304 << 20  # NumPy, SciPy, Arrow and other libraries, with a first product and two threads


def memory_limit() -> int | None:
    """The limit of address space or of data of this process in bytes, whichever is less; None: unlimited."""
    return min(process_limits().values(), default=None)


def need_memory(size: int, what: str) -> None:
    """Raise MachineLimit if this process cannot allocate ``size`` further bytes; what: their use, for the message."""
    limit = memory_limit()
    if limit is None:
        return
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()  # no page is touched
    except OSError as error:
        raise MachineLimit(
            f"{what}: expected {size >> 20:,} MiB of address space more than is in use, but this process may use "
            f"{limit >> 20:,} MiB in all (ulimit -v, ulimit -d); raise the limit, or use fewer workers and threads"
        ) from error


def prepare_command(name: str) -> None:
    """Before a command imports its libraries: check the limits and, if memory is limited, allocate BLAS buffers."""
    need_files(_COMMAND_FILES, name)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # ours use one; more cost memory and time
    if memory_limit() is None:
        return
    need_memory(_LIBRARY_BYTES, name)
    import numpy as np
    from scipy.linalg.blas import dgemm

    square = np.ones((256, 256))
    dgemm(1.0, square, square @ square)  # each of the two libraries has allocated its buffer now


def need_limit(size: int, what: str) -> None:
    """Raise MachineLimit if child processes may not have ``size`` bytes each; what: which processes."""
    limit = memory_limit()
    if limit is not None and limit < size:
        raise MachineLimit(
            f"{what}: expected {size >> 20:,} MiB of address space for each, but a process may use {limit >> 20:,} MiB "
            f"(ulimit -v, ulimit -d); raise the limit, or use fewer threads"
        )


def need_files(count: int, what: str, instead: str = "") -> None:
    """Raise MachineLimit if this process may not open ``count`` further files.

    what: their purpose; instead: an alternative; both for the message.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    used = _open_files()
    if used + count > soft:
        allowed = hard == resource.RLIM_INFINITY or used + count <= hard
        how = "allow more with `ulimit -n`" if allowed else "ask the administrator for more"
        raise MachineLimit(
            f"{what}: expected room for {count:,} open files in addition to {used:,} that are open, but this process "
            f"may have {soft:,} (ulimit -n); {how}{instead}"
        )


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - names are enough
    except OSError:  # no such folder on this system, or not one file more
        return 16
