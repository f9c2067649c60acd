"""Retraining several classes at once from disk: what is read is new, and ``verify`` confirms what comes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

CENTRES = np.array([[1.0, 0.0, 0.0, 0.0], [-0.5, 0.9, 0.0, 0.0], [-0.5, -0.9, 0.0, 0.0]])


def made(rows: int, seed: int, *, wrong: float, apart: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows of three classes by the nearest centre, pushed ``apart``; a share of the labels is ``wrong``."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 4))
    y = (X @ CENTRES.T).argmax(axis=1)
    X += apart * CENTRES[y]
    return X.astype(np.float32), np.where(rng.random(rows) < wrong, rng.integers(0, 3, rows), y)


def store_of(path: Path, rows: int, *, sparse: bool = False, **options: Any) -> Path:
    """A store of such rows in chunks of 100, the last of which is not full."""
    with StoreWriter.create(path, features=4, dtype="float32", chunk_rows=100, sparse=sparse) as writer:
        X, y = made(rows, 1, **options)
        writer.write(csr_array(X) if sparse else X, y, origin="test")
    return path


def append(path: Path, rows: int, seed: int, **options: Any) -> None:
    """More of them."""
    X, y = made(rows, seed, **options)
    with StoreWriter.append(path) as writer:
        writer.write(csr_array(X) if Store.open(path).sparse else X, y, origin="test")


def run_of(out: Path) -> dict[str, Any]:
    """What a run has written down."""
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    return found


def trained(path: Path, out: Path, **options: Any) -> Any:
    """A model of all classes at once."""
    return coremargin.train(path, out=out, classes="crammer-singer", cluster="threads", **options)


@pytest.fixture
def little_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else near rows of a small store are all of it."""
    monkeypatch.setattr("coremargin.problems.multiclass.crammer_singer.NEAR_BYTES_LEAST", 40_000)


@pytest.mark.slow
@pytest.mark.usefixtures("little_sample")
@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("kind", ["dense", pytest.param("sparse", marks=pytest.mark.slow)])
def test_nights_of_a_soft_margin_read_what_is_new(kind: str, weighted: bool, tmp_path: Path) -> None:
    """Rows are appended, labels corrected, weights set: each model is confirmed, as good as one of nothing."""
    path, out = store_of(tmp_path / "rows.zarr", 20_030, wrong=0.1, sparse=kind == "sparse"), tmp_path / "0"
    if weighted:
        set_weights(path, np.arange(0, 20_000, 7), np.linspace(0.1, 2.0, 2858))
    assert trained(path, out, loss="hinge", C=0.1, epsilon=1e-2).status == "certified"
    for night in (1, 2, 3):
        append(path, 530, 1 + night, wrong=0.1)
        ids = 400 * night + np.random.default_rng(night).choice(400, 90, replace=False)
        write_labels(path, ids[:30], [0, 1, 2] * 10)
        remove_rows(path, ids[30:60])
        if weighted:
            set_weights(path, ids[60:], np.linspace(0.0, 3.0, 30))
        model, out = out, tmp_path / str(night)
        found = coremargin.retrain(model, path, out=out, cluster="threads")
        run, store = run_of(out), Store.open(path)
        assert "from_scratch" not in run["retrained"]
        assert 500 / store.rows <= run["bytes_read"] / store.nbytes <= 0.08
        assert verify(out, path).status == "certified"
    anew = trained(path, tmp_path / "anew", loss="hinge", C=0.1, epsilon=1e-2)
    assert found.certificate.upper >= anew.certificate.lower
    assert anew.certificate.upper >= found.certificate.lower


@pytest.mark.usefixtures("little_sample")
def test_classes_that_cost_otherwise_are_trained_from_nothing(tmp_path: Path) -> None:
    """Sums of far rows do not tell whose they are: balanced weights that have changed take another read, and say so."""
    path = store_of(tmp_path / "rows.zarr", 6_000, wrong=0.1)
    trained(path, tmp_path / "0", loss="hinge", C=0.1, epsilon=2e-2, class_weight="balanced")
    append(path, 100, 2, wrong=0.1)
    coremargin.retrain(tmp_path / "0", path, out=tmp_path / "1", cluster="threads")
    assert "C has changed by different factors" in run_of(tmp_path / "1")["retrained"]["from_scratch"]
    assert verify(tmp_path / "1", path).status == "certified"


@pytest.mark.specimens(1)
@pytest.mark.parametrize("night", ["the same", "beyond", "closer", "out", "relabelled", "hurt", "overlap"])
def test_a_night_of_a_hard_margin(night: str, tmp_path: Path) -> None:
    """What does not break the margin costs its own rows; what does, or takes away its proof, scans of all of them."""
    path = store_of(tmp_path / "rows.zarr", 8_030, wrong=0.0, apart=0.5)
    before = trained(path, tmp_path / "0", epsilon=1e-3)
    carried, far = before.coreset_ids, np.setdiff1d(np.arange(300, 800), before.coreset_ids)
    changes: dict[str, Any] = {
        "the same": lambda: None,
        "beyond": lambda: append(path, 430, 2, wrong=0.0, apart=0.6),
        "closer": lambda: append(path, 430, 2, wrong=0.0, apart=0.4),
        "out": lambda: remove_rows(path, far[:50]),
        "relabelled": lambda: write_labels(path, far[:50], [None] * 50),
        "hurt": lambda: remove_rows(path, carried[:1]),
        "overlap": lambda: append(path, 430, 2, wrong=0.3),
    }
    changes[night]()
    found = coremargin.retrain(tmp_path / "0", path, out=tmp_path / "1", cluster="threads")
    run, store = run_of(tmp_path / "1"), Store.open(path)
    assert "from_scratch" not in run["retrained"]
    assert found.status == ("not_separable" if night == "overlap" else "certified")
    assert verify(tmp_path / "1", path).status == found.status
    cheap = night not in ("closer", "hurt")
    assert (run["bytes_read"] <= 0.1 * store.nbytes) == cheap
    anew = trained(path, tmp_path / "anew", epsilon=1e-3)
    assert anew.status == found.status
    if found.status == "certified":
        assert found.certificate.upper >= anew.certificate.lower
        assert anew.certificate.upper >= found.certificate.lower


def test_overlap_stays_proven(tmp_path: Path) -> None:
    """More rows cannot separate what some cannot: nothing is read. Where these are out, all is."""
    path = store_of(tmp_path / "rows.zarr", 2_000, wrong=0.2)
    before = trained(path, tmp_path / "0", epsilon=1e-3)
    assert before.status == "not_separable"
    append(path, 100, 2, wrong=0.2)
    assert coremargin.retrain(tmp_path / "0", path, out=tmp_path / "1", cluster="threads").status == "not_separable"
    assert run_of(tmp_path / "1")["bytes_read"] == 0
    assert verify(tmp_path / "1", path).status == "not_separable"
    remove_rows(path, before.coreset_ids[:1])
    coremargin.retrain(tmp_path / "1", path, out=tmp_path / "2", cluster="threads")
    assert run_of(tmp_path / "2")["retrained"]["from_scratch"]
    assert verify(tmp_path / "2", path).status == "not_separable"
