"""Train again and again, killed at the first, second, ... thing that happens; resume, and compare to the bit.

Usage: kill_train.py FOLDER EVERY_S FIRST STRIDE KIND, as in ``small_job``. Prints how many things happen in one
unbroken run, how many runs were killed, and how many blocks were done more than once at worst. A run that lives longer
than it should is an error: what happens is counted, and does not depend on how fast it happens.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.store import Store
from coremargin.engine import checkpoint as checkpoint_module
from coremargin.engine.executors import InProcess
from coremargin.learn import train as train_module
from train_kit import exact, made_store, sample_little, small_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.engine.checkpoint import Begin

BLOCK, THING = b".", b"t"
STEPS = ("replace", "rename", "fsync", "mkdir", "unlink", "rmdir")


class Fate:
    """Tells ``log`` what happens; the process dies by SIGKILL before the ``step``-th thing."""

    def __init__(self, step: int, log: int) -> None:
        self.left, self.log = step, log

    def __call__(self, *_: object) -> None:
        os.write(self.log, THING)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with this before it."""

        def call(*args: Any, **options: Any) -> Any:
            if "__pycache__" not in str(args[0]):  # what is compiled is kept there by the first run alone
                self()
            return real(*args, **options)

        return call


def train(folder: Path, out: Path, begin: Begin, step: int, log: int) -> None:
    """One run, which dies at ``step``; a byte per block and per thing goes to the pipe ``log``."""
    fate = Fate(step, log)
    for name in STEPS:
        setattr(os, name, fate.before(getattr(os, name)))
    for name in ("write_arrays", "write_whole"):
        setattr(checkpoint_module, name, fate.before(getattr(checkpoint_module, name)))
    Store.read = fate.before(Store.read)  # type: ignore[method-assign]  # the sample, and each chunk of a scan
    store = Store.open(folder / "s.zarr")
    progress = train_module.Progress(on_block=lambda _: os.write(log, BLOCK), on_round=fate, on_work=fate)
    job = small_job(sys.argv[5], folder / "s.zarr", out)
    train_module.train_job(job, store, InProcess(1), begin=begin, progress=progress)


def attempt(folder: Path, out: Path, begin: Begin, step: int = -1) -> tuple[bool, int, int]:
    """Train in a child that dies at ``step``; whether it did, how many blocks it did and how many things happened."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            train(folder, out, begin, step, write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        log = pipe.read()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL), f"step {step}, {begin}: exit {ended}"
    return ended != 0, log.count(BLOCK), log.count(THING)


def killed_and_resumed(folder: Path, out: Path, step: int) -> tuple[int, int]:
    """A run that is killed at ``step`` up to three times, and then comes to its end: the kills, and the blocks done."""
    shutil.rmtree(out, ignore_errors=True)
    killed, blocks, _ = attempt(folder, out, "new", step)
    assert killed, f"it outlived step {step}"
    kills = 1
    while killed:
        killed, more, _ = attempt(folder, out, "resume", step if kills < 3 else -1)
        blocks, kills = blocks + more, kills + killed
    return kills, blocks


def main() -> None:
    """Kill, resume, kill again, resume to the end, compare; for every step."""
    folder, first, stride = Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
    train_module.EVERY_S = float(sys.argv[2])
    sample_little()
    made_store(sys.argv[5], folder / "s.zarr")
    _, alone, things = attempt(folder, folder / "alone", "new")
    worst = runs = 0
    for step in range(first, things + 1, stride):
        kills, blocks = killed_and_resumed(folder, folder / "m", step)
        runs += 1
        worst = max(worst, -(-(blocks - alone) // kills))
        assert exact(folder / "m") == exact(folder / "alone"), f"step {step}: other bits"
        left = {entry.name for entry in folder.iterdir()} - {"s.zarr", "alone", "m"}
        assert left <= {".m.lock"}, f"step {step}: {left}"
    sys.stdout.write(f"{things} {runs} {worst}\n")


if __name__ == "__main__":
    main()
