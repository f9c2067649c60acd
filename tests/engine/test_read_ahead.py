"""What is fetched while the driver solves: what is known to come, in its order, no more than allowed, without harm."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin.data.layout import ObjectPart
from coremargin.data.local_storage import LocalStorage
from coremargin.data.view import View
from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Callbacks, Engine, rounds
from coremargin.engine.read_ahead import reading_ahead
from loop_problems import Passes, PassState
from scan_fakes import FakeHandle, FakeSource, Sums

if TYPE_CHECKING:
    from collections.abc import Iterator

NBYTES = 100
PATIENCE_S = 60.0


class InFiles(FakeSource):
    """An object for each chunk; ``wanted`` are the chunks whose objects somebody asked for."""

    sparse = False

    def __init__(self, folder: Path) -> None:
        super().__init__(FakeHandle(rows=60, chunk_rows=10))
        self.storage = LocalStorage(folder)
        self.folder, self.wanted, self.more = folder, list[int](), threading.Event()
        for chunk in range(self.chunks):
            self.file(chunk).write_bytes(bytes(NBYTES))

    def file(self, chunk: int) -> Path:
        """Where it lies."""
        return self.folder / f"{chunk}"

    def objects(self, chunk: int) -> Iterator[ObjectPart]:
        """One."""
        self.wanted.append(chunk)
        yield ObjectPart(self.storage, str(chunk), 1, NBYTES - 1)
        self.more.set()


@pytest.fixture
def source(tmp_path: Path) -> InFiles:
    """Six chunks."""
    return InFiles(tmp_path)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What the system was asked to fetch: file, start and number of bytes."""
    found: list[tuple[str, int, int]] = []

    def fadvise(descriptor: int, start: int, nbytes: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        found.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, start, nbytes))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    return found


def fetch(source: object, chunks: list[int], most_bytes: int = 10_000) -> None:
    """All that may be fetched."""
    with reading_ahead(source, chunks, most_bytes):  # type: ignore[arg-type]
        for thread in threading.enumerate():
            if thread.name == "coremargin-ahead":
                thread.join(PATIENCE_S)
                assert not thread.is_alive()


def test_chunks_are_fetched_in_their_order(source: InFiles, fetched: list[tuple[str, int, int]]) -> None:
    """Those that are named, the part of the file that is read, of the source under all views."""
    fetch(View(View(source)), [4, 0, 3])
    assert fetched == [("4", 1, 99), ("0", 1, 99), ("3", 1, 99)]


def test_no_more_than_allowed(source: InFiles, fetched: list[tuple[str, int, int]]) -> None:
    """So many bytes, whatever comes after."""
    fetch(source, [0, 1, 2, 3], most_bytes=2 * 99 + 98)
    assert [name for name, _, _ in fetched] == ["0", "1"]
    fetch(source, [5], most_bytes=0)
    assert len(fetched) == 2


def test_it_ends_when_the_driver_is_done(source: InFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is being asked for is the last one."""
    begun, solved = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        begun.set()
        assert solved.wait(PATIENCE_S)

    monkeypatch.setattr(os, "posix_fadvise", slow)
    with reading_ahead(source, [0, 1, 2], 10_000):
        assert begun.wait(PATIENCE_S)
        threading.Timer(0.05, solved.set).start()
    assert 2 not in source.wanted


def test_what_is_wrong_with_a_file_is_for_the_reader_to_say(
    source: InFiles, fetched: list[tuple[str, int, int]], capfd: pytest.CaptureFixture[str]
) -> None:
    """A missing file, or a pipe in its place, ends the fetching without a word and without waiting."""
    for chunk in (1, 3):
        source.file(chunk).unlink()
    os.mkfifo(source.file(3))
    fetch(source, [0, 1, 2])
    fetch(source, [2, 3, 4])
    assert [name for name, _, _ in fetched] == ["0", "2"]
    assert capfd.readouterr().err == ""


def test_errors_of_the_driver_pass(source: InFiles) -> None:
    """As they are."""
    with pytest.raises(KeyboardInterrupt), reading_ahead(source, [0, 1], 1000):
        raise KeyboardInterrupt


@pytest.mark.parametrize("lacks", ["objects", "threads"])
def test_where_nothing_can_be_fetched(source: InFiles, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """Rows in memory, or no thread left: the driver goes on."""
    if lacks == "threads":
        monkeypatch.setattr(threading.Thread, "start", no_threads)
    fetch(FakeHandle().open_source() if lacks == "objects" else source, [0, 1])
    assert source.wanted == []


def test_a_system_that_cannot_be_asked(source: InFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched there, and nothing fails."""
    monkeypatch.delattr(os, "posix_fadvise")
    fetch(source, [0, 1])
    assert source.wanted == [0, 1]


def no_threads(_: threading.Thread) -> None:
    """As Python says it at a machine's limit."""
    raise RuntimeError("can't start new thread")


@dataclass(frozen=True)
class InThirds(Passes):
    """One pass in three parts; after the first two it is known which chunks come next."""

    def ahead(self, state: PassState) -> np.ndarray:
        """Of the part after the next one."""
        return np.flatnonzero(np.arange(self.source.chunks) % self.parts == state.part + 1)


@dataclass(frozen=True)
class Patient(InThirds):
    """Deals with an answer until something of the next part was fetched."""

    def update(self, state: PassState, summary: Sums) -> PassState:
        """After that."""
        source = self.source
        assert isinstance(source, InFiles)
        if state.part < self.parts - 1:
            assert source.more.wait(PATIENCE_S)
        source.more.clear()
        return super().update(state, summary)


class Elsewhere(InProcess):
    """Its workers are on another machine."""

    local = False  # type: ignore[assignment]


def engine_of(source: FakeSource, executor: InProcess, held: frozenset[int] = frozenset()) -> Engine:
    """That may fetch anything."""
    return Engine(source, executor, NoCheckpoint(), Callbacks(), 1, held=lambda: held, most_ahead=10_000)


@pytest.mark.usefixtures("fetched")
def test_the_next_part_is_fetched_while_the_driver_deals_with_an_answer(source: InFiles) -> None:
    """It begins before the driver is done, and is about the part after the one that was read."""
    problem = Patient(source, parts=3, wanted=1)
    last = [step.state for step in rounds(engine_of(source, InProcess()), problem, problem.start())][-1]
    assert last.status == "certified"
    assert source.wanted[0] == 1
    assert set(source.wanted) <= {1, 4, 2, 5}
    assert not [thread for thread in threading.enumerate() if thread.name == "coremargin-ahead"]


@pytest.mark.usefixtures("fetched")
def test_chunks_in_memory_are_not_fetched(source: InFiles) -> None:
    """Of the second part chunk 4 is left, of the third one none."""
    problem = InThirds(source, parts=3, wanted=1)
    list(rounds(engine_of(source, InProcess(), held=frozenset({1, 2, 5})), problem, problem.start()))
    assert set(source.wanted) <= {4}


def test_what_other_machines_read_is_not_fetched_here(source: InFiles) -> None:
    """It would be read twice."""
    problem = InThirds(source, parts=3, wanted=1)
    list(rounds(engine_of(source, Elsewhere()), problem, problem.start()))
    assert source.wanted == []
