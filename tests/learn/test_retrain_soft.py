"""Retraining soft margins from disk: what is read is what is new, and ``verify`` confirms what comes of it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.loop import Engine, OutOfTime
from coremargin.problems.fleet import make as fleet_make
from coremargin.problems.soft import make
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.problems.soft.summary import StageSummary
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
    small = partial(SoftMargin, sample_bytes=40_000)
    monkeypatch.setattr(make, "SoftMargin", small)
    monkeypatch.setattr(fleet_make, "SoftMargin", small)
    monkeypatch.setattr("coremargin.problems.soft.near_margin.NEAR_BYTES_LEAST", 60_000)


def run_of(out: Path) -> dict[str, Any]:
    """What a run has written down."""
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    return found


@pytest.mark.specimens(1)
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
        assert "from_scratch" not in run["retrained"]
        assert 1000 / store.rows <= run["bytes_read"] / store.nbytes <= 0.1
        assert verify(out, path).status == "certified"
    again = tmp_path / "again"
    coremargin.retrain(model, path, out=again, cluster="threads")
    records = sorted(out.rglob("model.json"))
    assert len(records) == np.size(cost)
    for record in records:
        assert (again / record.relative_to(out)).read_bytes() == record.read_bytes()
    assert run_of(again)["bytes_read"] == run["bytes_read"]


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("loss", "cost"), [("hinge", [0.05, 0.2]), ("squared_hinge", 0.1)])
def test_rows_that_do_not_fit_are_asked_once_more(tmp_path: Path, loss: Any, cost: Any) -> None:
    """A model of scans has nothing to go on from: the first retraining reads all, and once more for those to come."""
    path, out = tmp_path / "rows.zarr", tmp_path / "0"
    with StoreWriter.create(path, features=5, chunk_bytes=1 << 14) as writer:
        writer.write(*made(20_000, 1), origin="test")
    given: dict[str, Any] = {"memory": "900 KiB"}
    coremargin.train(path, out=out, loss=loss, C=cost, epsilon=5e-3, **given)
    assert run_of(out)["bytes_read"] <= 2.1 * Store.open(path).nbytes
    for night in (1, 2):
        append(path, 500, 1 + night)
        model, out = out, tmp_path / str(night)
        coremargin.retrain(model, path, out=out, **given)
        run = run_of(out)
        assert ("from_scratch" in run["retrained"]) == (night == 1)
        assert run["bytes_read"] <= (3.1 if night == 1 else 0.1) * Store.open(path).nbytes
    assert verify(out, path).status == "certified"


@pytest.mark.slow
@pytest.mark.parametrize("cost", [[0.05, 0.2], 0.1], ids=["fleet", "one"])
def test_time_that_is_over_before_rows_are_asked_once_more(
    tmp_path: Path, cost: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is as it was proven before, and the next retraining begins from scratch, too."""
    path, out = tmp_path / "rows.zarr", tmp_path / "0"
    with StoreWriter.create(path, features=5, chunk_bytes=1 << 14) as writer:
        writer.write(*made(20_000, 1), origin="test")
    given: dict[str, Any] = {"memory": "900 KiB"}
    coremargin.train(path, out=out, loss="hinge", C=cost, epsilon=5e-3, **given)
    real, late = SoftMargin.update, list[object]()

    def update(problem: SoftMargin, state: Any, summary: Any) -> Any:
        if isinstance(summary, StageSummary):
            late.append(summary)
            raise OutOfTime
        return real(problem, state, summary)

    def check_time(engine: Engine) -> None:
        if late:
            raise OutOfTime

    append(path, 500, 2)
    monkeypatch.setattr(SoftMargin, "update", update)
    monkeypatch.setattr(Engine, "check_time", check_time)
    coremargin.retrain(out, path, out=tmp_path / "1", **given)
    assert late
    assert not run_of(tmp_path / "1")["resumable"]
    assert verify(tmp_path / "1", path).status == "certified"
    monkeypatch.undo()
    coremargin.retrain(tmp_path / "1", path, out=tmp_path / "2", **given)
    assert "from_scratch" in run_of(tmp_path / "2")["retrained"]


def correct(path: Path, rng: np.random.Generator, model: Path) -> None:
    """Labels of the last day were wrong, rows are out, some are worth more: of those near the margin, too."""
    store = Store.open(path)
    with np.load(model / "retraining.npz") as kept:
        known = kept["reading_near_ids" if "reading_near_ids" in kept else "shared_ids"]
    ids = rng.permutation(np.union1d(rng.choice(store.rows, 20, replace=False), rng.choice(known, 10, replace=False)))
    write_labels(path, ids[:10], [store.classes[1 - code] for code in store.rows_at(ids[:10])[1]])
    remove_rows(path, ids[10:20])
    set_weights(path, ids[20:], np.full(len(ids) - 20, 3.0))


NIGHTS: dict[str, Any] = {
    "appended": lambda path, rng, model: append(path, 200, int(rng.integers(99))),
    "nothing": lambda path, rng, model: None,
    "corrected": correct,
    "a few appended": lambda path, rng, model: append(path, 7, int(rng.integers(99))),
}


def append(path: Path, rows: int, seed: int) -> None:
    """More rows."""
    with StoreWriter.append(path) as writer:
        writer.write(*made(rows, seed), origin="test")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "cost"),
    [
        ("hinge", 0.1),
        ("squared_hinge", [0.1, 1.0]),
        pytest.param("squared_hinge", 0.1, marks=pytest.mark.slow),
        pytest.param("hinge", [0.1, 1.0], marks=pytest.mark.slow),
    ],
)
def test_a_model_of_rows_in_memory_goes_on(loss: str, cost: Any, tmp_path: Path) -> None:
    """Where all rows fit into memory sums of far rows are made at the end: nights read what is new, and are as true."""
    path, out, rng = tmp_path / "rows.zarr", tmp_path / "0", np.random.default_rng(1)
    with StoreWriter.create(path, features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(*made(5030, 1), origin="test")
    first: Any = coremargin.train(path, out=out, loss=loss, C=cost, epsilon=5e-3, cluster="threads")
    options = {"loss": loss, "C": cost, "epsilon": 5e-3, "cluster": "threads"}
    assert run_of(out)["stages"] == 0
    assert first.status == "certified"
    for night, what in enumerate(NIGHTS, 1):
        NIGHTS[what](path, rng, out)
        model, out = out, tmp_path / str(night)
        found: Any = coremargin.retrain(model, path, out=out, cluster="threads")
        assert "from_scratch" not in run_of(out)["retrained"]
        assert run_of(out)["bytes_read"] <= 0.1 * Store.open(path).nbytes
        assert found.status == verify(out, path).status == "certified"
    anew: Any = coremargin.train(path, out=tmp_path / "anew", **options)
    for one, other in zip(members(found), members(anew), strict=True):
        assert one.certificate.lower <= other.certificate.upper
        assert other.certificate.lower <= one.certificate.upper


def members(model: Any) -> list[Any]:
    """A model, or those of a fleet."""
    return list(model.members.values()) if hasattr(model, "members") else [model]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", pytest.param("squared_hinge", marks=pytest.mark.slow)])
def test_sparse_rows_that_are_solved_as_they_are_go_on(loss: str, tmp_path: Path) -> None:
    """Sums are made of rows that were all in the model; where sums prove too little, all rows are in it again."""
    path, rng = tmp_path / "rows.zarr", np.random.default_rng(3)

    def rows(n: int, sign: int) -> tuple[Any, np.ndarray]:
        X = csr_array(rng.standard_normal((n, 12)) * (rng.random((n, 12)) < 0.3), dtype=np.float32)
        return X, np.where(sign * (X @ np.ones(12)) + rng.standard_normal(n) >= 0, 1, -1)

    with StoreWriter.create(path, features=12, dtype="float32", sparse=True, chunk_rows=100) as writer:
        writer.write(*rows(6000, 1), origin="test")
    coremargin.train(path, out=tmp_path / "0", loss=loss, C=0.1, epsilon=5e-3, cluster="threads")
    for night, (n, sign) in enumerate(((300, 1), (4000, -1)), 1):
        with StoreWriter.append(path) as writer:
            writer.write(*rows(n, sign), origin="test")
        coremargin.retrain(tmp_path / str(night - 1), path, out=tmp_path / str(night), cluster="threads")
        assert "from_scratch" not in run_of(tmp_path / str(night))["retrained"]
        assert (run_of(tmp_path / str(night))["bytes_read"] <= 0.1 * Store.open(path).nbytes) == (sign > 0)
        assert verify(tmp_path / str(night), path).status == "certified"


def test_sums_that_are_larger_than_their_rows_are_not_kept(tmp_path: Path) -> None:
    """Few rows of many features are trained from scratch, and the run says so."""
    path, rng = tmp_path / "rows.zarr", np.random.default_rng(1)
    with StoreWriter.create(path, features=60, dtype="float32", chunk_rows=50) as writer:
        for _ in range(2):
            X = rng.standard_normal((150, 60), dtype=np.float32)
            writer.write(X, np.where(X[:, 0] + rng.standard_normal(150) > 0, 1, -1), origin="test")
            writer.commit()
    coremargin.train(path, out=tmp_path / "0", loss="hinge", C=0.1, cluster="threads")
    coremargin.retrain(tmp_path / "0", path, out=tmp_path / "1", cluster="threads")
    assert run_of(tmp_path / "1")["retrained"]["from_scratch"]
    assert verify(tmp_path / "1", path).status == "certified"


@pytest.mark.slow
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
    assert "from_scratch" not in run["retrained"]
    assert run["bytes_read"] <= 0.1 * Store.open(path).nbytes
    assert verify(tmp_path / "1", path).status == "certified"
    remove_rows(path, found.numbers["tried_ids"][:1])
    coremargin.retrain(tmp_path / "1", path, out=tmp_path / "2", cluster="threads")
    assert "were relabelled or removed" in run_of(tmp_path / "2")["retrained"]["from_scratch"]
    assert verify(tmp_path / "2", path).status == "certified"


@pytest.mark.slow
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
        assert "from_scratch" not in run_of(out)["retrained"]
        assert (run_of(out)["bytes_read"] <= 0.1 * Store.open(path).nbytes) == (wrong == 0)
        assert verify(out, path).status == "certified"
