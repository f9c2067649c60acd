"""Nights: an inbox, files with rows that tell where they are from, and what must have come of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from coremargin.data.store import Store
from coremargin.registry.nightly import NightlyJob, load_nightly_job

PLANE = np.array([0.6, 0.8])
JOB = """
job = "nightly"
store = "rows.zarr"
registry = "models"

[ingest]
inbox = "inbox"
label = "paid"
settle = "5 s"

[train]
epsilon = 1e-2

[gates]
verify = false
class_shares = { yes = [0.2, 0.8] }

[predict]
rows = "new.csv"
out = "labels.csv"
"""


def job_in(folder: Path, text: str = JOB) -> NightlyJob:
    """The job, in a folder with an inbox and rows to be labelled."""
    (folder / "inbox").mkdir(parents=True, exist_ok=True)
    (folder / "nightly.toml").write_text(text)
    if not (folder / "new.csv").exists():
        put(folder, "new.csv", 10, -1, inbox=False)
    job = load_nightly_job(folder / "nightly.toml")
    assert job is not None
    return job


def table(rows: int, seed: int, share: float = 0.5) -> str:
    """A table of rows on both sides of a plane, in which the last number says of which file and which row it is."""
    chance = np.random.default_rng(seed + 100)
    X = chance.standard_normal((rows, 2))
    side = np.where(chance.random(rows) < share, 1, -1)
    X += (side * (0.5 + np.abs(X @ PLANE)) - X @ PLANE)[:, None] * PLANE
    lines = [
        f"{a:.6f},{b:.6f},{1000 * seed + k},{'yes' if s > 0 else 'no'}"
        for k, ((a, b), s) in enumerate(zip(X, side, strict=True))
    ]
    return "\n".join(["x,z,from,paid", *lines]) + "\n"


def put(folder: Path, name: str, rows: int, seed: int, *, share: float = 0.5, inbox: bool = True) -> Path:
    """A file that was written a while ago."""
    path = folder / "inbox" / name if inbox else folder / name
    path.write_text(table(rows, seed, share))
    os.utime(path, (1e9, 1e9))
    return path


def taken(folder: Path) -> list[int]:
    """Of each row in the store, where it is from, in order."""
    store = Store.open(folder / "rows.zarr", map_bytes=0)
    return sorted(int(value) for chunk in range(store.chunks) for value in store.read(chunk)[0][:, 2])


def expected(*files: tuple[int, int]) -> list[int]:
    """The same of files (rows, seed), each once."""
    return sorted(1000 * seed + k for rows, seed in files for k in range(rows))
