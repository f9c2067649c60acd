"""Train again and again, killed at the first, second, ... thing that happens; resume, and compare to the bit.

Usage: kill_train.py FOLDER EVERY_S FIRST STRIDE KIND, as in ``small_job``. Prints how many things happen in one
unbroken run, and how many blocks were read more than once at worst.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.store import Store
from coremargin.learn import checkpoint as checkpoint_module
from coremargin.learn import train as train_module
from coremargin.scan.executors import InProcess
from train_kit import exact, made_store, sample_little, small_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.learn.train import Begin

STEPS = ("replace", "rename", "fsync", "mkdir", "unlink", "rmdir")


class Fate:
    """Counts what happens; the process dies by SIGKILL before the ``step``-th thing."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with this before it."""

        def call(*args: Any, **options: Any) -> Any:
            self()
            return real(*args, **options)

        return call


def train(folder: Path, out: Path, begin: Begin, step: int, log: int) -> None:
    """One run, which dies at ``step``; a byte per block goes to the pipe ``log``."""
    fate = Fate(step)
    for name in STEPS:
        setattr(os, name, fate.before(getattr(os, name)))
    for name in ("write_arrays", "write_whole"):
        setattr(checkpoint_module, name, fate.before(getattr(checkpoint_module, name)))
    Store.read = fate.before(Store.read)  # type: ignore[method-assign]  # the sample, and each chunk of a scan
    store = Store.open(folder / "s.zarr")
    progress = train_module.Progress(on_block=lambda _: os.write(log, b"."), on_round=fate)
    job = small_job(sys.argv[5], folder / "s.zarr", out)
    train_module.train_job(job, store, InProcess(1), begin=begin, progress=progress)


def attempt(folder: Path, out: Path, begin: Begin, step: int) -> tuple[bool, int]:
    """Train in a child that dies at ``step``; whether it came to its end, and how many blocks it did."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            train(folder, out, begin, step, write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        blocks = len(pipe.read())
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL), f"step {step}, {begin}: exit {ended}"
    return ended == 0, blocks


def main() -> None:
    """Kill, resume, kill again, resume to the end, compare; for every step."""
    folder, first, stride = Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
    train_module.EVERY_S = float(sys.argv[2])
    sample_little()
    made_store(sys.argv[5], folder / "s.zarr")
    _, alone = attempt(folder, folder / "alone", "new", -1)
    worst = 0
    for step in range(first, 100_000, stride):
        out = folder / "m"
        shutil.rmtree(out, ignore_errors=True)
        unbroken, blocks = attempt(folder, out, "new", step)
        kills = 0 if unbroken else 1
        while not unbroken and kills < 3:
            ended, more = attempt(folder, out, "resume", step)
            blocks, kills = blocks + more, kills + (not ended)
            if ended:
                break
        else:
            if not unbroken:
                ended, more = attempt(folder, out, "resume", -1)
                blocks += more
                assert ended
        worst = max(worst, -(-(blocks - alone) // max(1, kills)))
        assert exact(out) == exact(folder / "alone"), f"step {step}: other bits"
        left = {entry.name for entry in folder.iterdir()} - {"s.zarr", "alone", "m"}
        assert left <= {".m.lock"}, f"step {step}: {left}"
        if unbroken:
            sys.stdout.write(f"{step} {worst}\n")
            return


if __name__ == "__main__":
    main()
