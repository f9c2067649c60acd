"""Retraining a margin with outliers from disk: what is read is new, and ``verify`` confirms what comes."""

from __future__ import annotations

import json
from functools import partialmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.data.amend import remove_rows, write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from coremargin.problems.outliers.outlier_table import outlier_table
from coremargin.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

PLANE = np.array([0.6, 0.8, 0.0, 0.0, 0.0])


def made(rows: int, seed: int, *, wrong: int = 0, margin: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows pushed apart along a plane; of the first ones so many are on the wrong side."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, len(PLANE)))
    y = np.where(X @ PLANE >= 0, 1, -1)
    X += margin * y[:, None] * PLANE
    y[:wrong] *= -1
    return X.astype(np.float32), y


def append(path: Path, rows: int, seed: int, **options: Any) -> None:
    """More of them."""
    with StoreWriter.append(path) as writer:
        writer.write(*made(rows, seed, **options), origin="test")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """10,030 rows, three of them outliers, in chunks of 100; its sample is a small part of it."""
    monkeypatch.setattr(OutlierMargin, "__init__", partialmethod(OutlierMargin.__init__, sample_bytes=20_000))
    with StoreWriter.create(tmp_path / "rows.zarr", features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(*made(10_030, 1, wrong=3), origin="test")
    return tmp_path / "rows.zarr"


def run_of(out: Path) -> dict[str, Any]:
    """What a run has written down."""
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    return found


NIGHTS: dict[str, Any] = {
    "the same": lambda path, out: None,
    "beyond": lambda path, out: append(path, 430, 2, margin=0.4),
    "one more outlier": lambda path, out: append(path, 430, 2, wrong=1, margin=0.4),
    "closer": lambda path, out: append(path, 430, 2, margin=0.25),
    "an outlier out": lambda path, out: remove_rows(path, out[:1]),
    "an outlier corrected": lambda path, out: write_labels(path, out[:1], [int(np.sign(made(3, 1)[1][out[0]]))]),
    "one gone wrong": lambda path, out: write_labels(path, [5000], [int(-made(10_030, 1)[1][5000])]),
}


@pytest.mark.specimens(1)
@pytest.mark.parametrize("search", ["exact", pytest.param("heuristic", marks=pytest.mark.slow)])
@pytest.mark.parametrize("night", NIGHTS)
def test_a_night(night: str, search: str, store: Path, tmp_path: Path) -> None:
    """The model is that of a training from scratch, for a small part of its reading."""
    job: dict[str, Any] = {"outliers": 5, "outlier_search": search, "epsilon": 1e-2, "cluster": "threads"}
    before = coremargin.train(store, out=tmp_path / "0", **job)
    NIGHTS[night](store, np.array([row.id for row in outlier_table(before).rows if row.id < 3]))
    found = coremargin.retrain(tmp_path / "0", store, out=tmp_path / "1", cluster="threads")
    run, rows = run_of(tmp_path / "1"), Store.open(store)
    assert "from_scratch" not in run["retrained"]
    assert verify(tmp_path / "1", store).ok
    assert run["bytes_read"] <= 0.1 * rows.nbytes
    anew = coremargin.train(store, out=tmp_path / "anew", **job)
    assert found.status == anew.status
    assert found.certificate.upper >= anew.certificate.lower
    assert anew.certificate.upper >= found.certificate.lower
    wrong = {"one more outlier": 4, "one gone wrong": 4, "an outlier out": 2, "an outlier corrected": 2}.get(night, 3)
    planted = {row.id for row in outlier_table(found).rows} & {0, 1, 2, 5000, rows.rows - 430}
    assert len(planted) == wrong
