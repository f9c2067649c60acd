"""Scaled rows: what is proven is proven of the rows that decisions are made about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

import coremargin
from coremargin.data.ingest import ingest
from coremargin.data.local_storage import LocalStorage
from coremargin.formats.store_record import read_store_record
from coremargin.models.model import Model
from coremargin.verify.examine import examine
from model_kit import altered


def test_sparse_rows_are_not_shifted(tmp_path: Path) -> None:
    """A shift, even that of the columns' ranges, moves decisions away from the sparse rows that a proof is about."""
    rng = np.random.default_rng(3)
    y = np.arange(60) % 2
    X = np.abs(rng.normal(size=(60, 3)))
    X[:, 0] = 1 + y + 0.3 * rng.random(60)  # no zeros: its range does not begin at 0
    X[::3, 1] = X[::4, 2] = 0.0
    low, factor = X.min(axis=0), 1 / (X.max(axis=0) - X.min(axis=0))
    labels = ["ab"[k] for k in y]
    for name, rows in (("s.zarr", X), ("scaled.zarr", X * factor)):
        ingest(csr_array(rows), tmp_path / name, labels=labels, dtype="float64")
    coremargin.train(tmp_path / "scaled.zarr", out=tmp_path / "m")
    digest = read_store_record(LocalStorage(tmp_path / "s.zarr")).commits[-1].digest
    claims = {"certificate.store_digest": digest, "parameters.scaling": "minmax"}
    place = altered(tmp_path / "m", tmp_path / "bad", claims, shift=low, factor=factor)
    assert (Model.load(place).predict(X) == np.array(labels)).mean() < 0.6
    assert {check.name for check in examine(place, tmp_path / "s.zarr").failures} == {"scaling"}
