"""A small job of several scans and many blocks, and what an end of any kind must leave behind.

As a script: the command line, with a checkpoint after every so many seconds instead of 15, and held after so many
blocks, with a file that says so: ``train_kit.py EVERY_S BLOCKS:FILE train STORE --out MODEL ...``, or ``-`` for FILE.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.store import Store
from coremargin.data.synth import Recipe, synth
from coremargin.data.writer import StoreWriter
from coremargin.learn import classes_job, posed
from coremargin.learn import train as train_module
from coremargin.learn.checkpoint import Checkpoint
from coremargin.learn.job import TrainJob
from coremargin.problems.crammer_singer import CrammerSinger
from coremargin.problems.hard_margin import HardMargin
from coremargin.problems.kesler_margin import KeslerMargin

if TYPE_CHECKING:
    from coremargin.scan.protocols import BlockResult

#: What has to be equal to the bit; the other files of a model tell how this run went.
EXACT = ("fleet.json", "model.json", "arrays.npz")


def small_store(path: Path, *, rows: int = 6000, features: int = 8, chunks: int = 40) -> Store:
    """Separable rows with a small margin."""
    recipe = Recipe(rows, features, margin=0.01, seed=3, chunk_bytes=rows // chunks * features * 4)
    return synth(path, recipe, workers=1)


def store_of_classes(path: Path, *, rows: int = 6000, features: int = 6, chunks: int = 40, wrong: float = 0.0) -> Store:
    """Rows of four classes with a margin of 0.05 and more; a share of them has labels drawn by lot."""
    rng = np.random.default_rng(4)
    X, V = rng.standard_normal((3 * rows, features)).astype(np.float32), rng.standard_normal((4, features))
    scores = np.sort(X @ V.T, axis=1)
    X = X[scores[:, -1] - scores[:, -2] > 0.05 * float(np.linalg.norm(V))][:rows]
    y = (X @ V.T).argmax(axis=1)
    y = np.where(rng.random(len(y)) < wrong, rng.integers(0, 4, len(y)), y)
    with StoreWriter.create(path, features=features, chunk_bytes=rows // chunks * features * 4) as writer:
        writer.write(X, y.tolist())
    return Store.open(path)


def made_store(kind: str, path: Path) -> Store:
    """The store of a kind of job."""
    return store_of_classes(path, wrong=0.1 * (kind == "hinge")) if kind in ("kesler", "hinge") else small_store(path)


def small_job(kind: str, store: Path, out: Path) -> TrainJob:
    """A job of several scans of some 14 blocks: the sample is small and the pool tight.

    kind: "hard"; "kesler" and "hinge" for several classes at once; a number of folds for a fleet.
    """
    shared: dict[str, Any] = {"store": store, "out": out, "block": 1 << 16}
    if kind == "kesler":
        return TrainJob(**shared, epsilon=1e-6, memory=40_000, classes="crammer-singer")
    if kind == "hinge":
        return TrainJob(**shared, epsilon=1e-4, memory=200_000, classes="crammer-singer", loss="hinge", C=0.1)
    return TrainJob(**shared, epsilon=1e-6, memory=20_000, folds=int(kind) if kind.isdecimal() else None)


def sparse_store(path: Path) -> Store:
    """Noisy rows of many features, few of them at a time."""
    recipe = Recipe(600, 200, margin=0.1, noise=0.05, density=0.04, seed=3, chunk_bytes=4096)
    return synth(path, recipe, workers=1)


def swept_job(store: Path, out: Path) -> TrainJob:
    """A job of several passes in segments of a few blocks, and a proof."""
    return TrainJob(store=store, out=out, loss="hinge", C=0.1, epsilon=1e-2, memory=40_000, block=1 << 12)


def sample_little(bytes_: int = 10_000) -> None:
    """Let the sample of this process's jobs be small, so that small stores need more than one scan."""
    posed.HardMargin = partial(HardMargin, sample_bytes=bytes_)  # type: ignore[misc,assignment]
    classes_job.KeslerMargin = partial(KeslerMargin, sample_bytes=bytes_)  # type: ignore[misc,assignment]
    classes_job.CrammerSinger = partial(CrammerSinger, sample_bytes=bytes_)  # type: ignore[misc,assignment]


def exact(model: Path) -> dict[str, bytes]:
    """The bytes that must be equal, of a model or of all members of a fleet."""
    found = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.name in EXACT}
    assert "arrays.npz" in found or "fleet.json" in found
    return found


def hold_after(blocks: int, file: Path) -> None:
    """Let this process stop for ever once so many blocks are done and a checkpoint is there, which a file then says."""
    real = Checkpoint.block_done
    done = 0

    def block_done(self: Checkpoint, result: BlockResult) -> None:
        nonlocal done
        real(self, result)
        done += 1
        if done >= blocks and self.exists():
            file.touch()
            while True:  # a signal ends this
                time.sleep(0.05)

    Checkpoint.block_done = block_done  # type: ignore[method-assign]


def main() -> None:
    """The command line with checkpoints as often, and held, as the first arguments say."""
    from coremargin.cli import main as command

    train_module.EVERY_S = float(sys.argv[1])
    blocks, _, file = sys.argv[2].partition(":")
    if file:
        hold_after(int(blocks), Path(file))
    command(sys.argv[3:])


if __name__ == "__main__":
    main()
