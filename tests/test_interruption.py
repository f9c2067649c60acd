"""Signals that come where an exception is lost still end the job, with a checkpoint to go on from."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coremargin.engine.executors import InProcess
from coremargin.errors import Interrupted
from coremargin.interruption import (
    NUMBERS,
    command_was_interrupted,
    deferred_interrupts,
    raise_if_interrupted,
    terminable,
)
from coremargin.learn.train import Progress, train_job
from coremargin.problems.registry import new_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.data.store import Store

EACH = pytest.mark.parametrize("number", NUMBERS)


class Swallowed(Progress):
    """A signal at one moment of a job, in a place that swallows every exception."""

    def __init__(self, number: int, at_block: int | None, at_round: str = "") -> None:
        super().__init__(on_block=self.block, on_round=self.round)
        self.number, self.at_block, self.at_round, self.blocks = number, at_block, at_round, 0

    def block(self, _: Any) -> None:
        """Called after each block."""
        self.blocks += 1
        if self.blocks == self.at_block:
            self.send()

    def round(self, record: dict[str, Any]) -> None:
        """Called after each round."""
        if record["status"] == self.at_round:
            self.send()

    def send(self) -> None:
        """The signal, and nothing of it."""
        with suppress(KeyboardInterrupt):
            signal.raise_signal(self.number)


@pytest.fixture
def store(make_separable: Callable[..., Any], make_store: Callable[..., Store]) -> Store:
    """600 separable rows in ten chunks."""
    return make_store(*make_separable(600, 4))


@pytest.mark.specimens(2)
@EACH
@pytest.mark.parametrize(("at_block", "at_round"), [(1, ""), (3, ""), (None, "certified")])
def test_a_swallowed_signal_ends_the_job(
    store: Store, tmp_path: Path, number: int, at_block: int | None, at_round: str
) -> None:
    """After that block, or at the very end, the job is interrupted; resumed, it has the bits of one that was not."""
    whole = new_job(store=store.path, out=tmp_path / "whole", strategy="paper", block=1)  # type: ignore[arg-type]
    train_job(whole, store, InProcess(1))
    job = new_job(store=store.path, out=tmp_path / "m", strategy="paper", block=1)  # type: ignore[arg-type]
    progress = Swallowed(number, at_block, at_round)
    with pytest.raises(Interrupted, match="--resume"):
        train_job(job, store, InProcess(1), progress=progress)
    assert at_block is None or progress.blocks == at_block
    assert not Path(job.out).exists()
    train_job(job, store, InProcess(1), begin="resume")
    for name in ("model.json", "arrays.npz"):
        assert Path(job.out, name).read_bytes() == Path(whole.out, name).read_bytes()


@EACH
def test_marks_and_handlers_go_with_the_outermost(number: int) -> None:
    """Inside, the mark stays until all are closed; outside, handlers are what they were and nothing is marked."""
    before = signal.getsignal(number)
    with terminable():
        with terminable(), suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            raise_if_interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    raise_if_interrupted()
    assert signal.getsignal(number) is before


def not_interrupted(number: int, handler: Any) -> None:
    """A signal that the caller handles comes while a job runs, and the job goes on."""
    before = signal.signal(number, handler)
    try:
        with terminable():
            signal.raise_signal(number)
            raise_if_interrupted()
    finally:
        signal.signal(number, before)


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """A job that was started with SIGINT ignored, as nohup does in the background, is not ended by it."""
    not_interrupted(signal.SIGINT, signal.SIG_IGN)


def test_a_handler_of_the_caller_stays() -> None:
    """A program that has its own idea of a closed terminal keeps it."""
    came: list[int] = []
    not_interrupted(signal.SIGHUP, lambda number, _: came.append(number))
    assert came == [signal.SIGHUP]


def test_no_command_is_running_here() -> None:
    """Signals to a program that uses the package are no concern of a command line that it may call later."""
    with terminable(), suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert not command_was_interrupted()


def test_other_threads_are_left_alone() -> None:
    """A job in another thread installs nothing and is not ended by a signal to the main one."""
    found: list[Any] = []

    def job() -> None:
        with terminable():
            raise_if_interrupted()
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    with terminable():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        inside = signal.getsignal(signal.SIGTERM)
        thread = threading.Thread(target=job)
        thread.start()
        thread.join()
    assert found == [inside]
    assert signal.getsignal(signal.SIGTERM) is before


@EACH
def test_a_signal_comes_behind_what_holds_it_back(number: signal.Signals) -> None:
    """What runs in between is done, and then the exception comes."""
    done = []

    def work() -> None:
        with terminable(), deferred_interrupts():
            signal.raise_signal(number)
            done.append(number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [number]


@pytest.mark.parametrize("context", [terminable, deferred_interrupts])
def test_a_signal_while_handlers_are_changed_leaves_them_as_they_were(
    context: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the first handler and the second leaves no handler of ours in somebody else's program."""
    before, change, changed = [signal.getsignal(number) for number in NUMBERS], signal.signal, []

    def interrupted(number: int, handler: Any) -> Any:
        found = change(number, handler)
        changed.append(number)
        if len(changed) == 1:
            raise KeyboardInterrupt
        return found

    try:
        monkeypatch.setattr(signal, "signal", interrupted)
        with pytest.raises(KeyboardInterrupt), context():
            pass
        monkeypatch.undo()
        assert changed
        assert [signal.getsignal(number) for number in NUMBERS] == before
    finally:
        for number, handler in zip(NUMBERS, before, strict=True):
            signal.signal(number, handler)
