"""A small job of several scans and many blocks, and what an end of any kind must leave behind.

As a script the command line with other habits, ``train_kit.py EVERY_S BYTES BLOCKS:FILE train STORE --out MODEL ...``:
a checkpoint after every so many seconds instead of 15; a sample of so many bytes, where that is not 0; and it is held
after so many blocks, with a file that says so, until that is removed (``-``: never).
"""

from __future__ import annotations

import sys
import time
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.__main__ import main as command
from coremargin.data.store import Store
from coremargin.data.synth import Recipe, synth
from coremargin.data.writer import StoreWriter
from coremargin.engine.checkpoint import Checkpoint
from coremargin.learn import train as train_module
from coremargin.maths.outliers import published
from coremargin.problems.ball import enclosing_ball as ball
from coremargin.problems.ellipsoid import enclosing_ellipsoid as ellipsoid
from coremargin.problems.hard import hard_margin as hard
from coremargin.problems.kernel import kernel_margin
from coremargin.problems.kernel_ball import kernel_ball
from coremargin.problems.multiclass import crammer_singer, kesler
from coremargin.problems.outliers import outlier_margin
from coremargin.problems.registry import new_job
from coremargin.problems.relative_margin import relative_margin
from coremargin.problems.soft import make as soft
from coremargin.problems.soft import near_margin
from coremargin.problems.soft_ball import soft_ball

if TYPE_CHECKING:
    from coremargin.engine.protocols import BlockResult
    from coremargin.problems.job import TrainJob

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


def noisy_store(path: Path, *, wrong: float) -> Store:
    """Rows with a margin, of which a share has the other label."""
    return synth(path, Recipe(3000, 5, margin=0.3, noise=wrong, seed=3, chunk_bytes=75 * 5 * 4), workers=1)


def sparse_store(path: Path) -> Store:
    """Noisy rows of many features, few of them at a time."""
    return synth(path, Recipe(600, 200, margin=0.1, noise=0.05, density=0.04, seed=3, chunk_bytes=4096), workers=1)


def made_store(kind: str, path: Path) -> Store:
    """The store of a kind of job."""
    if kind in ("kesler", "crammer-singer"):
        return store_of_classes(path, wrong=0.1 * (kind == "crammer-singer"))
    if kind in ("segments", "fleet-segments"):
        return sparse_store(path)
    if kind in (
        "hinge",
        "squared_hinge",
        "auto",
        "fleet-stages",
        "fold-stages",
        "outliers",
        *KERNELS,
        *MAPPED,
        "relative",
    ):
        return noisy_store(path, wrong=0.002 if kind == "outliers" else 0.05)
    if kind == "published":
        return synth(path, Recipe(26, 3, margin=0.3, noise=0.1, seed=3, chunk_bytes=4 * 3 * 4), workers=1)
    return small_store(path)


#: Every kind of job that has checkpoints: its parameters, such that it takes several scans of many blocks where the
#: sample is small. kesler and crammer-singer are several classes at once, hard and soft; folds, fold-stages
#: and fleet-segments are fleets of three; published reads once, and then tries subsets of few rows. Those of MAPPED map
#: rows: by landmarks, which are chosen among rows that are read first, and by random frequencies. Balls and ellipsoids
#: are about rows without labels.
KINDS: dict[str, dict[str, Any]] = {
    "hard": {"epsilon": 1e-6, "memory": 20_000},
    "hinge": {"loss": "hinge", "C": 0.1, "epsilon": 1e-6, "memory": 40_000},
    "squared_hinge": {"loss": "squared_hinge", "C": 0.1, "epsilon": 1e-6, "memory": 40_000},
    "auto": {"loss": "auto", "C": 0.1, "epsilon": 1e-6, "memory": 40_000},
    "folds": {"epsilon": 1e-6, "memory": 20_000, "folds": 2},
    "kesler": {"epsilon": 1e-6, "memory": 40_000, "classes": "crammer-singer"},
    "crammer-singer": {"epsilon": 1e-4, "memory": 200_000, "classes": "crammer-singer", "loss": "hinge", "C": 0.1},
    "outliers": {"epsilon": 1e-6, "memory": 100_000, "outliers": 8},
    "published": {"outliers": (1, 2), "outlier_search": "published-simple"},
    "segments": {"loss": "hinge", "C": 0.1, "epsilon": 1e-2, "memory": 40_000, "block": 1 << 12},
    "fleet-stages": {"loss": "squared_hinge", "C": [0.1, 1.0], "epsilon": 1e-6, "memory": 200_000},
    "fold-stages": {"loss": "hinge", "C": 0.1, "epsilon": 1e-5, "memory": 70_000, "folds": 2},
    "kernel-fleet": {"kernel": "rbf", "gamma": [0.1, 1.0], "loss": "hinge", "C": 1.0, "epsilon": 1e-5, "folds": 2},
    "relative": {"loss": "hinge", "C": 0.1, "epsilon": 1e-6, "memory": 40_000, "relative_margin": 2.0},
    "kernel-relative": {"kernel": "rbf", "gamma": 0.1, "loss": "hinge", "C": [0.1, 1.0], "relative_margin": 1.2},
    "fleet-segments": {"loss": "hinge", "C": 0.1, "epsilon": 1e-2, "memory": 70_000, "block": 1 << 12, "folds": 2},
    "nystroem": {"map": "nystroem", "components": 10, "loss": "hinge", "C": 0.1, "epsilon": 1e-4, "memory": 200_000},
    "fourier": {
        "map": "fourier",
        "components": 8,
        "scaling": "standard",
        "loss": "squared_hinge",
        "C": 0.1,
        "epsilon": 1e-5,
        "memory": 60_000,
    },
}
MAPPED = ("nystroem", "fourier")
KINDS |= {
    "ball": {"one_class": "ball", "epsilon": 1e-9, "memory": 20_000},
    "ball-outliers": {"one_class": "ball", "outliers": 3, "epsilon": 1e-9, "memory": 20_000},
    "soft-ball": {"one_class": "ball", "nu": 0.05, "epsilon": 1e-9, "memory": 30_000},
    "ellipsoid": {"one_class": "ellipsoid", "epsilon": 1e-6, "memory": 1_500_000},
    "kernel-ball": {"one_class": "ball", "kernel": "rbf", "epsilon": 1e-6, "memory": 200_000},
    "kernel-soft-ball": {"one_class": "ball", "kernel": "rbf", "nu": 0.02, "epsilon": 1e-4, "memory": 200_000},
}
KERNELS = ("kernel-fleet", "kernel-relative")
NOISY = (*KERNELS, *MAPPED, "hinge", "squared_hinge", "auto", "fleet-stages", "fold-stages", "outliers", "relative")


def small_job(kind: str, store: Path, out: Path) -> TrainJob:
    """A job of several scans of some 14 blocks: the sample is small and the pool tight."""
    return new_job(**{"store": store, "out": out, "block": 1 << 16, **KINDS[kind]})


def sample_little(bytes_: int = 10_000) -> None:
    """Let the sample of this process's jobs be small, so that small stores need more than one scan."""
    for module, name in (
        (hard, "HardMargin"),
        (soft, "SoftMargin"),
        (outlier_margin, "OutlierMargin"),
        (kesler, "KeslerMargin"),
        (crammer_singer, "CrammerSinger"),
        (kernel_margin, "KernelMargin"),
        (ball, "EnclosingBall"),
        (soft_ball, "SoftBall"),
        (ellipsoid, "EnclosingEllipsoid"),
        (kernel_ball, "KernelBall"),
        (relative_margin, "RelativeMargin"),
    ):
        problem = getattr(module, name)
        problem.__init__ = partialmethod(problem.__init__, sample_bytes=bytes_)
    soft_ball.SMALL_BYTES = bytes_  # larger stores are read in stages
    published.RANGE = 60  # an enumeration has many waves
    near_margin.PAYS = near_margin.PAYS_ALIKE = 1_000  # small fleets are read in stages, too


def exact(model: Path) -> dict[str, bytes]:
    """The bytes that must be equal, of a model or of all members of a fleet."""
    found = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.name in EXACT}
    assert "arrays.npz" in found or "fleet.json" in found
    return found


def hold_after(blocks: int, file: Path) -> None:
    """Let this process wait once so many blocks are done and a checkpoint is there, as long as a file is there."""
    real = Checkpoint.block_done
    done = 0

    def block_done(self: Checkpoint, result: BlockResult) -> None:
        nonlocal done
        real(self, result)
        done += 1
        if done == blocks:
            self.save()
            file.touch()
            while file.exists():  # a signal ends this, too
                time.sleep(0.02)

    Checkpoint.block_done = block_done  # type: ignore[method-assign]


def main() -> None:
    """The command line with the habits that the first arguments describe."""
    every_s, bytes_, hold = sys.argv[1:4]
    train_module.EVERY_S = float(every_s)
    if int(bytes_):
        sample_little(int(bytes_))
    blocks, _, file = hold.partition(":")
    if file:
        hold_after(int(blocks), Path(file))
    del sys.argv[1:4]
    command()


if __name__ == "__main__":
    main()
