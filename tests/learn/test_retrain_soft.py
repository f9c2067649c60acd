"""Retraining soft margins from disk: what is read is what is new, and ``verify`` confirms what comes of it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.data.relabel import write_labels
from coremargin.data.reweigh import remove_rows
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.problems.fleet import make as fleet_make
from coremargin.problems.soft import make
from coremargin.problems.soft.staged import StagedSoftMargin
from coremargin.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

PLANE = np.array([0.6, 0.8, 0.0, 0.0, 0.0])


def made(rows: int, seed: int, wrong: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows pushed apart along a plane, a share of them on the wrong side."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, len(PLANE)))
    y = np.where(X @ PLANE >= 0, 1, -1)
    X += 0.5 * y[:, None] * PLANE
    return X.astype(np.float32), np.where(rng.random(rows) < wrong, -y, y)


@pytest.fixture
def little_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all rows of a small store are its sample."""
    small = partial(StagedSoftMargin, sample_bytes=40_000)
    monkeypatch.setattr(make, "StagedSoftMargin", small)
    monkeypatch.setattr(fleet_make, "StagedSoftMargin", small)
    monkeypatch.setattr("coremargin.problems.soft.staged.NEAR_BYTES_LEAST", 60_000)


def run_of(out: Path) -> dict[str, Any]:
    """What a run has written down."""
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    return found


@pytest.mark.usefixtures("little_sample")
@pytest.mark.parametrize("cost", [0.1, [0.1, 1.0]], ids=["one", "fleet"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_nights_read_what_is_new(loss: str, cost: Any, tmp_path: Path) -> None:
    """Rows are appended, labels corrected: a tenth is read at most, each model is confirmed, and comes again."""
    path, out = tmp_path / "rows.zarr", tmp_path / "0"
    with StoreWriter.create(path, features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(*made(20_030, 1), origin="test")
    coremargin.train(path, out=out, loss=loss, C=cost, epsilon=5e-3, cluster="threads")
    for night in (1, 2):
        before = Store.open(path).rows
        with StoreWriter.append(path) as writer:
            writer.write(*made(1000, 1 + night), origin="test")
        ids = np.random.default_rng(night).choice(before, 20, replace=False)
        write_labels(path, ids, [1, -1] * 10)
        model, out = out, tmp_path / str(night)
        coremargin.retrain(model, path, out=out, cluster="threads")
        run, store = run_of(out), Store.open(path)
        assert "from_nothing" not in run["retrained"]
        assert 1000 / store.rows <= run["bytes_read"] / store.nbytes <= 0.1
        assert verify(out, path).status == "certified"
    again = tmp_path / "again"
    coremargin.retrain(model, path, out=again, cluster="threads")
    records = sorted(out.rglob("model.json"))
    assert len(records) == np.size(cost)
    for record in records:
        assert (again / record.relative_to(out)).read_bytes() == record.read_bytes()
    assert run_of(again)["bytes_read"] == run["bytes_read"]


def test_a_model_of_rows_in_memory_is_trained_from_nothing(tmp_path: Path) -> None:
    """Where no sums were made of far rows there is nothing to go on from, and the run says so."""
    path = tmp_path / "rows.zarr"
    with StoreWriter.create(path, features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(*made(2000, 1), origin="test")
    coremargin.train(path, out=tmp_path / "0", loss="hinge", C=0.1, cluster="threads")
    with StoreWriter.append(path) as writer:
        writer.write(*made(100, 2), origin="test")
    coremargin.retrain(tmp_path / "0", path, out=tmp_path / "1", cluster="threads")
    assert run_of(tmp_path / "1")["retrained"]["from_nothing"]
    assert verify(tmp_path / "1", path).status == "certified"


@pytest.mark.usefixtures("little_sample")
def test_what_is_decided_by_the_rows_goes_on(tmp_path: Path) -> None:
    """With loss "auto" the proof that nothing separates the classes stands while its rows do; else it is made anew."""
    path = tmp_path / "rows.zarr"
    with StoreWriter.create(path, features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(*made(20_030, 1), origin="test")
    coremargin.train(path, out=tmp_path / "0", loss="auto", C=0.1, epsilon=5e-3, cluster="threads")
    with StoreWriter.append(path) as writer:
        writer.write(*made(1000, 2), origin="test")
    found = coremargin.retrain(tmp_path / "0", path, out=tmp_path / "1", cluster="threads")
    run = run_of(tmp_path / "1")
    assert "from_nothing" not in run["retrained"]
    assert run["bytes_read"] <= 0.1 * Store.open(path).nbytes
    assert verify(tmp_path / "1", path).status == "certified"
    remove_rows(path, found.extra["tried_ids"][:1])
    coremargin.retrain(tmp_path / "1", path, out=tmp_path / "2", cluster="threads")
    assert "have other labels or are out" in run_of(tmp_path / "2")["retrained"]["from_nothing"]
    assert verify(tmp_path / "2", path).status == "certified"


@pytest.mark.usefixtures("little_sample")
def test_a_margin_that_new_rows_take_away_becomes_a_soft_one(tmp_path: Path) -> None:
    """With loss "auto": as long as there is a margin only new rows are read; a night without one reads all rows."""
    path = tmp_path / "rows.zarr"
    with StoreWriter.create(path, features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(*made(20_030, 1, wrong=0.0), origin="test")
    out = tmp_path / "0"
    assert coremargin.train(path, out=out, loss="auto", C=0.1, epsilon=5e-3, cluster="threads").certificate.is_margin
    for night, wrong in ((1, 0.0), (2, 0.1)):
        with StoreWriter.append(path) as writer:
            writer.write(*made(500, 1 + night, wrong=wrong), origin="test")
        model, out = out, tmp_path / str(night)
        found = coremargin.retrain(model, path, out=out, cluster="threads")
        assert found.certificate.is_margin == (wrong == 0)
        assert "from_nothing" not in run_of(out)["retrained"]
        assert (run_of(out)["bytes_read"] <= 0.1 * Store.open(path).nbytes) == (wrong == 0)
        assert verify(out, path).status == "certified"
