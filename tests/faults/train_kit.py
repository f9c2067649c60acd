"""A small job of several scans and many blocks, and what an end of any kind must leave behind.

As a script: the command line, with a checkpoint after every so many seconds instead of 15:
``train_kit.py EVERY_S train STORE --out MODEL ...``.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.synth import Recipe, synth
from coremargin.learn import posed
from coremargin.learn import train as train_module
from coremargin.learn.job import TrainJob
from coremargin.problems.hard_margin import HardMargin

if TYPE_CHECKING:
    from coremargin.data.store import Store

#: What has to be equal to the bit; the other files of a model tell how this run went.
EXACT = ("fleet.json", "model.json", "arrays.npz")


def small_store(path: Path, *, rows: int = 6000, features: int = 8, chunks: int = 40) -> Store:
    """Separable rows with a small margin."""
    recipe = Recipe(rows, features, margin=0.01, seed=3, chunk_bytes=rows // chunks * features * 4)
    return synth(path, recipe, workers=1)


def small_job(store: Path, out: Path, folds: int | None = None) -> TrainJob:
    """A job of several scans of some 14 blocks: the sample is small and the pool tight; with folds a fleet."""
    return TrainJob(store=store, out=out, epsilon=1e-6, memory=20_000, block=1 << 16, folds=folds)


def sample_little(bytes_: int = 10_000) -> None:
    """Let the sample of this process's jobs be small, so that small stores need more than one scan."""
    posed.HardMargin = partial(HardMargin, sample_bytes=bytes_)  # type: ignore[misc,assignment]


def exact(model: Path) -> dict[str, bytes]:
    """The bytes that must be equal, of a model or of all members of a fleet."""
    found = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.name in EXACT}
    assert "arrays.npz" in found or "fleet.json" in found
    return found


def main() -> None:
    """The command line with checkpoints as often as the first argument says."""
    from coremargin.cli import main as command

    train_module.EVERY_S = float(sys.argv[1])
    command(sys.argv[2:])


if __name__ == "__main__":
    main()
