"""The task of a worker: one probe on one block. Few imports, as every worker process pays for them."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.blas import one_blas_thread
from coremargin.data.view import bytes_read
from coremargin.engine.protocols import Block, BlockResult
from coremargin.engine.read_ahead import begin_fetching
from coremargin.errors import BlockFailed, machine_limit
from coremargin.maths.breakdown import quiet

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import Probe

#: Pauses before a block is tried again after an OSError (a network file system that hiccups heals within seconds).
RETRY_PAUSES_S = (0.1, 0.4, 1.2)

_pinned = threading.Event()


def open_handle(handle: Any) -> Source:
    """The source of a handle: from its method ``open_source``, else a store's. Errors name this worker in a note."""
    try:
        opener = getattr(handle, "open_source", None)
        if opener is not None:
            return opener()  # type: ignore[no-any-return]
        from coremargin.data.opened import open_source  # only here: a worker without a store need not import zarr

        return open_source(handle)
    except Exception as error:
        error.add_note(f"on worker {worker_name()}")
        raise


def answer(
    source: Source, probe: Probe, block: Block, fetching: AbstractContextManager[object] | None = None
) -> BlockResult:
    """The summary of one block and what it cost.

    fetching: what fetches its chunks, if that has begun.

    After an OSError the block is tried again a few times, then BlockFailed is raised, as for MemoryError; all other
    errors pass with a note that names block, chunks, store and worker.
    """
    started = time.perf_counter()
    try:
        with fetching or begin_fetching(source, block.chunks), quiet():
            summary = _probe_with_retries(source, probe, block)
    except Exception as error:
        error.add_note(f"in {place(source, block)}, on worker {worker_name()}")
        raise
    return BlockResult(
        block=block,
        summary=summary,
        bytes_read=block_bytes(source, block),
        seconds=time.perf_counter() - started,
        worker=worker_name(),
        rss_bytes=resident_bytes(),
    )


def _probe_with_retries(source: Source, probe: Probe, block: Block) -> Any:
    for pause in (*RETRY_PAUSES_S, None):
        try:
            return probe(source, block)
        except OSError as error:
            if pause is None:
                raise BlockFailed(
                    f"{place(source, block)}: reading failed {len(RETRY_PAUSES_S) + 1} times, the last time with: "
                    f"{error}; see whether the file system answers, then run again"
                ) from error
            time.sleep(pause)
        except MemoryError as error:
            raise BlockFailed(f"{place(source, block)}: {machine_limit(error)}") from error
    raise AssertionError("unreachable")


def place(source: Source, block: Block) -> str:
    """The block's chunks and store, for messages; a block without chunks is a task that reads no rows."""
    if not block.chunks:
        return f"task {block.index}"
    first, last = block.chunks[0], block.chunks[-1]
    chunks = f"chunk {first}" if first == last else f"chunks {first} to {last}"
    return f"block {block.index} ({chunks} of {source.name})"


def task_name(value: Any, kind: str = "probe") -> str:
    """``probe-margin`` of a MarginProbe: the name of its tasks, by which Dask groups them on its dashboard."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", getattr(value, "__name__", type(value).__name__))
    if len(words) > 1 and words[-1] == "Probe":
        words.pop()
    return getattr(value, "task_name", None) or "-".join([kind, *words]).lower()


def block_bytes(source: Source, block: Block) -> int:
    """Bytes that a scan of this block reads, uncompressed."""
    if not block.chunks:
        return 0
    start, stop = source.span(block.chunks[-1])  # only the last chunk of all may be shorter
    rows = (len(block.chunks) - 1) * source.chunk_rows + stop - start
    return bytes_read(source, rows)


def pin_blas_forever() -> None:
    """Keep BLAS on one thread for the rest of this process, which runs only workers."""
    if not _pinned.is_set():
        _pinned.set()
        one_blas_thread().__enter__()


def worker_name() -> str:
    """``host:pid`` of this process."""
    return f"{_host()}:{os.getpid()}"


@cache
def _host() -> str:
    return socket.gethostname()


def resident_bytes() -> int:
    """Resident memory of this process, private and mapped."""
    return _status_bytes(os.getpid(), "VmRSS:")


def high_water_bytes(pid: int) -> int:
    """Largest resident memory that the local process ``pid`` ever had; 0 when it is gone."""
    return _status_bytes(pid, "VmHWM:")


def _status_bytes(pid: int, name: str) -> int:
    """An entry of a local process's ``/proc/PID/status`` in bytes; 0 if the process is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        return 0  # a zombie has no memory
    except (FileNotFoundError, ProcessLookupError):
        pass
    import psutil  # only here: not needed where there is a /proc

    try:
        return int(psutil.Process(pid).memory_info().rss)  # no /proc on this system: what is resident now
    except psutil.Error:
        return 0
