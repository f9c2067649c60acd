"""How the bench measures: interleaved repetitions, paired ratios, whole processes, files out of the page cache."""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import coremargin

HERE = Path(__file__).resolve().parent
_SAMPLE_EVERY_S = 0.1


@dataclass(frozen=True)
class Sample:
    """One measured run: wall seconds, what it said, peak memory of its process tree in bytes (0: not watched)."""

    seconds: float
    answer: dict[str, Any] = field(default_factory=dict)
    tree_bytes: int = 0


Task = Callable[[], Sample]


def interleaved(
    tasks: Mapping[str, Task], repetitions: int, *, warm_up: bool = True, before: Callable[[], object] | None = None
) -> dict[str, list[Sample]]:
    """Every task once per repetition, in turn, so that a slower minute of the machine meets all of them.

    before is called ahead of each task (to empty caches); with warm_up each task runs once before, not counted.
    """
    found: dict[str, list[Sample]] = {name: [] for name in tasks}
    for repetition in range(-1 if warm_up else 0, repetitions):
        for name, task in tasks.items():
            if before is not None:
                before()
            sample = task()
            if repetition >= 0:
                found[name].append(sample)
    return found


def interleaved_within(tasks: Mapping[str, Task], repetitions: int, seconds: float) -> dict[str, list[Sample]]:
    """As ``interleaved``; where the warm-up already took longer than ``seconds``, it is what counts."""
    first = interleaved(tasks, 1, warm_up=False)
    if sum(samples[0].seconds for samples in first.values()) > seconds:
        return first
    return interleaved(tasks, repetitions, warm_up=False)


def median(samples: Sequence[Sample]) -> float:
    """Median of the wall seconds."""
    return statistics.median(sample.seconds for sample in samples)


def spread(samples: Sequence[Sample]) -> tuple[float, float]:
    """Smallest and largest of the wall seconds."""
    seconds = [sample.seconds for sample in samples]
    return min(seconds), max(seconds)


def paired_ratio(samples: Sequence[Sample], reference: Sequence[Sample]) -> float:
    """Median of the ratios of runs of the same repetition: what slows both cancels."""
    return statistics.median(a.seconds / b.seconds for a, b in zip(samples, reference, strict=True))


def timed(work: Callable[[], dict[str, Any]]) -> Sample:
    """Run in this process; garbage of earlier work goes first."""
    gc.collect()
    started = time.perf_counter()
    answer = work()
    return Sample(time.perf_counter() - started, answer)


def coremargin_command(*words: object) -> list[str]:
    """``coremargin WORDS`` with this interpreter and this checkout."""
    return [sys.executable, "-m", "coremargin", *map(str, words)]


def script_command(name: str, *words: object) -> list[str]:
    """A script of this folder with this interpreter."""
    return [sys.executable, str(HERE / name), *map(str, words)]


def child_environment() -> dict[str, str]:
    """Ours, with the package that runs here on the path."""
    root = str(Path(coremargin.__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([root, known] if known else [root])}


def run_process(words: Sequence[str], *, watch: bool = False, allowed: Sequence[int] = (0,)) -> Sample:
    """A whole process, start-up included; the last line of its output is JSON. watch: sample the memory of its tree.

    Raises RuntimeError with what it said on stderr when it ends with a code that is not allowed.
    """
    started = time.perf_counter()
    with subprocess.Popen(
        list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment()
    ) as process:
        watcher = _TreeWatcher(process.pid) if watch else None
        out, err = process.communicate()
        seconds = time.perf_counter() - started
    peak = watcher.stop() if watcher else 0
    if process.returncode not in allowed:
        raise RuntimeError(f"{' '.join(words)}: ended with code {process.returncode}: {err.strip()[-300:]}")
    lines = out.strip().splitlines()
    return Sample(seconds, json.loads(lines[-1]) if lines else {}, peak)


class _TreeWatcher:
    """The largest sum of resident memory of a process and its descendants, looked at ten times a second."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_EVERY_S):
            try:
                family = [self._root, *self._root.children(recursive=True)]
            except psutil.Error:
                return
            self._peak = max(self._peak, sum(map(_resident, family)))

    def stop(self) -> int:
        """Stop looking; the peak in bytes."""
        self._done.set()
        self._thread.join()
        return self._peak


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


# the page cache


def files_of(folder: Path) -> Iterator[Path]:
    """All files below a folder."""
    return (path for path in folder.rglob("*") if path.is_file())


def evict(folder: Path) -> float:
    """Drop the pages of all files of a store from the page cache; the share of bytes that stayed.

    Maps of this process are given back first; pages that another process has mapped stay.
    """
    gc.collect()
    for path in files_of(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages not yet written cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return resident_share(folder)


def resident_share(folder: Path) -> float:
    """Share of a store's pages that are in the page cache, as ``mincore`` tells."""
    libc = ctypes.CDLL(None, use_errno=True)
    page, resident, pages = mmap.PAGESIZE, 0, 0
    for path in files_of(folder):
        size = path.stat().st_size
        if not size:
            continue
        count = -(-size // page)
        with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            view = np.frombuffer(mapped, dtype=np.uint8)
            flags = np.zeros(count, np.uint8)
            if libc.mincore(
                ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(flags.ctypes.data)
            ):
                raise OSError(ctypes.get_errno(), f"mincore: {path}")
            del view
        resident, pages = resident + int((flags & 1).sum()), pages + count
    return resident / pages if pages else 0.0


# where the time goes


@contextmanager
def stopwatch(names: Mapping[str, tuple[Any, str]]) -> Iterator[dict[str, list[float]]]:
    """Seconds of every call of some functions while the context lasts: name -> (module or class, attribute)."""
    calls: dict[str, list[float]] = {name: [] for name in names}
    originals = {name: getattr(owner, attribute) for name, (owner, attribute) in names.items()}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return originals[name](*args, **options)
            finally:
                calls[name].append(time.perf_counter() - started)

        return call

    try:
        for name, (owner, attribute) in names.items():
            setattr(owner, attribute, wrapped(name))
        yield calls
    finally:
        for name, (owner, attribute) in names.items():
            setattr(owner, attribute, originals[name])
