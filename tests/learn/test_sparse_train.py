"""Jobs on sparse stores: the same bits on every executor, after interruptions, and the same bounds as dense."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.errors import ClaimRefuted, Interrupted
from coremargin.learn.train import Progress, train_job
from coremargin.models.model import Model
from coremargin.models.predict import predict
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.registry import new_job
from coremargin.verify import verify

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor


def stored(path: Path, X: Any, y: np.ndarray, **options: Any) -> Store:
    """A store of 20 rows a chunk."""
    with StoreWriter.create(path, features=X.shape[1], dtype="float32", chunk_rows=20, **options) as writer:
        writer.write(X, y, origin="test")
        writer.commit()
    return Store.open(path)


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[csr_array, np.ndarray]:
    """200 rows of 1,100 features, ten of them each, on two sides of a plane."""
    places = rng.choice(1100, (200, 10))
    X = csr_array((rng.random(2000).astype(np.float32) + 0.1, places.ravel(), np.arange(0, 2001, 10)), (200, 1100))
    X.sum_duplicates()
    return X, np.where(X @ rng.standard_normal(1100) >= 0, "in", "out")


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample and a pool of few rows, so that there is something to scan for."""
    options: dict[str, Any] = {"sample_bytes": 1, "working_set_bytes": 1, "sample_share": 0.01}
    begin = HardMargin.__init__
    monkeypatch.setattr(HardMargin, "__init__", lambda *given, **named: begin(*given, **(named | options)))


def exact(model: Path) -> dict[str, bytes]:
    """What must be equal to the bit."""
    return {name: (model / name).read_bytes() for name in ("model.json", "arrays.npz")}


@pytest.mark.slow
@pytest.mark.usefixtures("_small")
def test_sparse_jobs_give_the_same_bits_everywhere(
    tmp_path: Path, rows: tuple[csr_array, np.ndarray], embedded: Executor
) -> None:
    """In this process, in two threads, in worker processes, and interrupted twice on the way: one model."""
    store = stored(tmp_path / "s.zarr", *rows, sparse=True)
    job = partial(new_job, store=store.path)
    alone = train_job(job(out=tmp_path / "alone"), store, InProcess(1))
    assert alone.model.status == "certified"
    assert len(alone.rounds) >= 2
    train_job(job(out=tmp_path / "two"), store, InProcess(2))
    train_job(job(out=tmp_path / "processes"), store, embedded)
    killed = job(out=tmp_path / "killed")
    for begin, blocks in (("new", 5), ("resume", 2)):
        left = iter([None] * blocks)

        def count(_: object, left: Any = left) -> None:
            if next(left, 0) == 0:
                raise KeyboardInterrupt

        with pytest.raises(Interrupted):
            train_job(killed, store, InProcess(1), begin=begin, progress=Progress(on_block=count))  # type: ignore[arg-type]
    ended = train_job(killed, store, InProcess(1), begin="resume")
    assert ended.run["resumed"] == 2
    for name in ("two", "processes", "killed"):
        assert exact(tmp_path / name) == exact(tmp_path / "alone")
    assert verify(tmp_path / "alone", store.path).ok


def test_a_sparse_store_and_a_dense_one_give_the_same_bounds(
    tmp_path: Path, rows: tuple[csr_array, np.ndarray]
) -> None:
    """The same rows stored either way have equal bounds, and their models give every row the same label."""
    sparse = stored(tmp_path / "s.zarr", *rows, sparse=True)
    dense = stored(tmp_path / "d.zarr", *rows)
    assert sparse.sparse
    assert not dense.sparse
    assert sparse.nbytes < dense.nbytes / 10
    models = []
    for store in (sparse, dense):
        out = tmp_path / f"{store.path.stem}.model"
        train_job(new_job(store=store.path, out=out, epsilon=1e-6), store, InProcess(1))
        models.append(Model.load(out))
        assert verify(out, store.path).ok
        with pytest.raises(ClaimRefuted, match="content"):
            verify(out, (sparse if store is dense else dense).path)
    for name in ("lower", "upper"):
        found = [getattr(model.certificate, name) for model in models]
        assert found[0] == pytest.approx(found[1], rel=1e-6)
    made = [
        predict(model, store, tmp_path / f"{k}-{store.path.stem}.zarr")
        for k, model in enumerate(models)
        for store in (sparse, dense)
    ]
    assert all(one.counts == made[0].counts for one in made)
