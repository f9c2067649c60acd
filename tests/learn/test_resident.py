"""Stores that fit into a job's memory: read once, whatever is trained, and with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.errors import Interrupted
from coremargin.learn import train as train_module
from coremargin.learn.train import Progress, train_job
from coremargin.problems.registry import new_job
from coremargin.verify import verify

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

KINDS: dict[str, dict[str, Any]] = {
    "hard": {},
    "paper": {"strategy": "paper", "epsilon": 0.5},
    "hinge": {"loss": "hinge"},
    "squared hinge": {"loss": "squared_hinge"},
    "outliers": {"outliers": 2},
    "fleet": {"classes": "ovr", "loss": "hinge", "C": [0.1, 1.0]},
    "classes": {"classes": "crammer-singer"},
    "classes with a loss": {"classes": "crammer-singer", "loss": "hinge"},
}
SEPARABLE = ("hard", "paper", "classes")
#: Read once even where nothing is kept.
ONE_READ = ("hard", "hinge", "squared hinge", "outliers", "classes with a loss")


def stored(path: Path, *, sparse: bool = False, wrong: int = 3, classes: int = 2) -> Store:
    """600 rows in 12 chunks."""
    rng = np.random.default_rng(8)
    V, X = rng.standard_normal((classes, 5)), rng.standard_normal((600, 5)).astype(np.float32)
    y = (X @ V.T).argmax(axis=1)
    X += (0.2 * (V[y] - V.mean(axis=0))).astype(np.float32)
    y[:wrong] = (y[:wrong] + 1) % classes
    options: dict[str, Any] = {"sparse": True} if sparse else {"dtype": "float32"}
    with StoreWriter.create(path, features=5, chunk_rows=50, **options) as writer:
        writer.write(csr_array(X) if sparse else X, y.tolist())
    return Store.open(path)


def of_kind(path: Path, name: str, *, sparse: bool = False) -> Store:
    """Rows that this kind of problem can take."""
    several = "classes" in KINDS[name]
    return stored(path, sparse=sparse, wrong=0 if name in SEPARABLE else 2, classes=3 if several else 2)


def exact(folder: Path) -> dict[str, bytes]:
    """What must be equal to the bit."""
    return {path.name: path.read_bytes() for name in ("model.json", "arrays.npz") for path in folder.rglob(name)}


@pytest.mark.specimens(2)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_what_fits_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, sparse: bool) -> None:
    """Each chunk once, although scans go on; the same bits as from a store that is read again and again."""
    store = of_kind(tmp_path / "s.zarr", name, sparse=sparse)
    job = new_job(store=store.path, out=tmp_path / "once", sample=0.1, **KINDS[name])
    once = train_job(job, store, InProcess(2))
    assert once.run["bytes_read"] == pytest.approx(store.nbytes, abs=20 * store.chunks)  # whole bytes a block
    assert verify(job.out, store.path).ok
    monkeypatch.setattr(train_module, "fits", lambda *_, **__: False)
    again = train_job(new_job(store=store.path, out=tmp_path / "again", sample=0.1, **KINDS[name]), store, InProcess(1))
    assert again.run["bytes_read"] >= once.run["bytes_read"]
    if name not in ONE_READ:
        assert again.run["bytes_read"] > 1.5 * store.nbytes
    assert exact(Path(job.out)) == exact(tmp_path / "again")


def test_what_does_not_fit_is_read_again(tmp_path: Path, embedded: Executor) -> None:
    """Nothing is kept beyond half of the memory, and nothing where worker processes read."""
    store = of_kind(tmp_path / "s.zarr", "classes")
    options: dict[str, Any] = {"store": store.path, "sample": 0.1, **KINDS["classes"]}
    there = train_job(new_job(out=tmp_path / "there", **options), store, embedded)
    assert there.run["bytes_read"] > 1.5 * store.nbytes
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr("coremargin.data.resident.PART", 1 << 20)
        less = train_job(new_job(out=tmp_path / "less", **options), store, InProcess(1))
    assert less.run["bytes_read"] == there.run["bytes_read"]


def test_what_was_in_memory_is_read_again_after_a_break(tmp_path: Path) -> None:
    """The bits are the same, and so are the figures: those of a run without a break."""
    store = of_kind(tmp_path / "s.zarr", "hinge")
    alone = train_job(new_job(store=store.path, out=tmp_path / "alone", sample=0.1, loss="hinge"), store, InProcess(1))
    left = iter([None] * 6)  # in the first scan, after the sample

    def count(_: object) -> None:
        if next(left, 0) == 0:
            raise KeyboardInterrupt

    job = new_job(store=store.path, out=tmp_path / "broken", sample=0.1, loss="hinge")
    with pytest.raises(Interrupted):
        train_job(job, store, InProcess(1), progress=Progress(on_block=count))
    done = train_job(job, store, InProcess(1), begin="resume")
    assert done.run["bytes_read"] == alone.run["bytes_read"]
    assert exact(Path(job.out)) == exact(tmp_path / "alone")
