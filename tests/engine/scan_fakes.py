"""A source made from a seed, and probes that behave or misbehave; importable on worker processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_info

from coremargin.errors import DamagedChunk

if TYPE_CHECKING:
    from coremargin.engine.protocols import Block


@dataclass(frozen=True)
class FakeHandle:
    """What travels: from it every process makes the same rows."""

    rows: int = 1000
    features: int = 3
    chunk_rows: int = 10
    name: str = "fake.zarr"

    def open_source(self) -> FakeSource:
        return _open(self)


class FakeSource:
    """Normal rows (n, d) float32 and codes 0 and 1 in turn."""

    def __init__(self, handle: FakeHandle) -> None:
        self._handle = handle
        self.X = np.random.default_rng(5).standard_normal((handle.rows, handle.features), dtype=np.float32)
        self.y = (np.arange(handle.rows) % 2).astype(np.int32)
        self.name = handle.name
        self.rows, self.features, self.chunk_rows = handle.rows, handle.features, handle.chunk_rows
        self.dtype = self.X.dtype
        self.classes = (-1, 1)
        self.chunks = -(-handle.rows // handle.chunk_rows)
        self.digest = "sha256:fake"

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.y.nbytes

    def span(self, chunk: int) -> tuple[int, int]:
        return chunk * self.chunk_rows, min(self.rows, (chunk + 1) * self.chunk_rows)

    def read(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        start, stop = self.span(chunk)
        return self.X[start:stop], self.y[start:stop]

    def labels(self, chunk: int) -> np.ndarray:
        """Codes alone."""
        return self.read(chunk)[1]

    def rows_at(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.X[ids].astype(np.float64), self.y[ids]

    def statistics(self) -> None:
        return None

    def handle(self) -> FakeHandle:
        return self._handle


@lru_cache(maxsize=8)
def _open(handle: FakeHandle) -> FakeSource:
    return FakeSource(handle)


def slow_element(values: np.ndarray, place: int) -> float:
    """One element; the first ones take longest."""
    time.sleep(0.02 if place < 3 else 0.0)
    return float(values[place])


@dataclass(frozen=True)
class Named:
    """A question whose answer is the block's chunks; the first of each four takes longest. Leaves a file per block."""

    folder: Path

    def __call__(self, source: FakeSource, block: Block) -> tuple[int, ...]:
        time.sleep(0.03 if block.index % 4 == 0 else 0.0)
        (self.folder / str(block.index)).touch()
        return block.chunks


@dataclass(frozen=True)
class Sums:
    """Summary: sums whose last bits depend on the order of merging, a minimum, the chunks in the order merged."""

    total: np.ndarray
    low: float
    chunks: tuple[int, ...]

    def merge(self, later: Sums) -> Sums:
        return Sums(self.total + later.total, min(self.low, later.low), self.chunks + later.chunks)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"total": self.total, "low": np.array(self.low), "chunks": np.array(self.chunks)}

    def bits(self) -> tuple[bytes, float, tuple[int, ...]]:
        return self.total.tobytes(), self.low, self.chunks


@dataclass(frozen=True)
class SumProbe:
    """Adds up rows; the base of the probes below, which do something else first."""

    weight: np.ndarray = field(default_factory=lambda: np.ones(3))

    def narrow(self, block: Block) -> SumProbe:
        return self

    def __call__(self, source: FakeSource, block: Block) -> Sums:
        self.before(block)
        total, low = np.zeros(source.features), np.inf
        for chunk in block.chunks:
            X, _ = source.read(chunk)
            total += (X.astype(np.float64) * self.weight[: source.features]).sum(axis=0)
            low = min(low, float(X.min()))
        return Sums(total, low, block.chunks)

    def before(self, block: Block) -> None:
        """What happens before the rows are read."""

    def empty(self) -> Sums:
        return Sums(np.zeros(3), float("inf"), ())

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Sums:
        return Sums(arrays["total"], float(arrays["low"]), tuple(int(chunk) for chunk in arrays["chunks"]))


@dataclass(frozen=True)
class Slow(SumProbe):
    """Each block takes ``seconds``, the first ones longest: they complete out of order."""

    seconds: float = 0.01

    def before(self, block: Block) -> None:
        time.sleep(self.seconds * (1 + 4 * (block.index % 4 == 0)))


@dataclass(frozen=True)
class Narrowed(SumProbe):
    """Refuses to run as a whole: only what ``narrow`` made of it may answer."""

    only: int = -1

    def narrow(self, block: Block) -> Narrowed:
        return replace(self, only=block.index)

    def before(self, block: Block) -> None:
        assert self.only == block.index, "not narrowed to this block"


@dataclass(frozen=True)
class Damaged(SumProbe):
    """Finds the first chunk of one block damaged, and leaves a line for each try in a file."""

    block: int = 3
    tries: Path = Path("tries")

    def before(self, block: Block) -> None:
        if block.index == self.block:
            with self.tries.open("a") as file:
                file.write("tried\n")
            raise DamagedChunk(f"chunk {block.chunks[0]}: checksum differs")


@dataclass(frozen=True)
class Buggy(SumProbe):
    """Has a bug that shows at one block."""

    def before(self, block: Block) -> None:
        if block.index == 2:
            raise ZeroDivisionError("a bug")


@dataclass(frozen=True)
class Flaky(SumProbe):
    """The file system fails ``failures`` times at one block."""

    folder: Path = Path("failures")
    failures: int = 2

    def before(self, block: Block) -> None:
        if block.index == 1 and len(list(self.folder.iterdir())) < self.failures:
            (self.folder / str(time.monotonic_ns())).touch()
            raise OSError(5, "Input/output error")


@dataclass(frozen=True)
class Greedy(SumProbe):
    """Runs out of memory at one block."""

    def before(self, block: Block) -> None:
        if block.index == 2:
            raise MemoryError


@dataclass(frozen=True)
class Counted(SumProbe):
    """Leaves a file per block that ran."""

    folder: Path = Path("ran")

    def before(self, block: Block) -> None:
        (self.folder / str(block.index)).touch()
        time.sleep(0.02)


@dataclass(frozen=True)
class Deadly(SumProbe):
    """Kills its process at one block: always, or ``deaths`` times."""

    block: int = 5
    folder: Path | None = None
    deaths: int = 1

    def before(self, block: Block) -> None:
        time.sleep(0.01)
        if block.index != self.block:
            return
        if self.folder is not None:
            if len(list(self.folder.iterdir())) >= self.deaths:
                return
            (self.folder / str(time.monotonic_ns())).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Halted(SumProbe):
    """One block takes for ever until there is a file "over"; that it has begun is told by a file "begun"."""

    folder: Path = Path("halted")
    block: int = 5

    def before(self, block: Block) -> None:
        time.sleep(0.01)
        if block.index == self.block and not (self.folder / "over").exists():
            (self.folder / "begun").touch()
            time.sleep(3600)


@dataclass(frozen=True)
class Stopped(SumProbe):
    """Stops its process once, as a machine that hangs does; block 4 takes ``late_s``, so that others are late, too."""

    mark: Path = Path("stopped")
    late_s: float = 0.02

    def before(self, block: Block) -> None:
        time.sleep(self.late_s if block.index == 4 else 0.02)
        if block.index == 5 and not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(frozen=True)
class BlasThreads(SumProbe):
    """Answers how many threads BLAS has where it runs."""

    def __call__(self, source: FakeSource, block: Block) -> Sums:
        most = max(info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas")
        return Sums(np.full(3, float(most)), 0.0, block.chunks)


def expected(source: FakeSource, probe: SumProbe, blocks: tuple[Block, ...]) -> Sums:
    """The answer in block order: halves of the largest power of two first, each made likewise."""
    answers = [SumProbe(probe.weight)(source, block) for block in blocks]
    return _together(answers) if answers else probe.empty()


def _together(answers: list[Sums]) -> Sums:
    if len(answers) == 1:
        return answers[0]
    first = 1 << (len(answers) - 1).bit_length() - 1
    return _together(answers[:first]).merge(_together(answers[first:]))
