"""Rows written as a model maps them: training on them is training on rows that are mapped as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.store import Store
from coremargin.errors import DataError, UsageError
from coremargin.models.materialise import materialise

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cli


@pytest.mark.parametrize("sparse", [False, True])
def test_the_problem_is_the_same(tmp_path: Path, sparse: bool, rng: np.random.Generator) -> None:
    """Labels, weights and mapped rows are those of the view; bounds on them hold of each other."""
    X = rng.standard_normal((200, 4)).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = 0
    y, weights = np.where((X**2).sum(axis=1) > 3, "out", "in"), rng.integers(0, 3, 200).astype(float)
    rows: Any = csr_array(X) if sparse else X
    coremargin.ingest(rows, tmp_path / "s.zarr", labels=y, weights=weights)
    asked: dict[str, Any] = {"loss": "hinge", "cluster": "threads"}
    how = "maxabs" if sparse else "standard"
    model = coremargin.train(tmp_path / "s.zarr", map="nystroem", components=15, scaling=how, **asked)
    made = materialise(model, tmp_path / "s.zarr", tmp_path / "m.zarr")
    assert (made.rows, made.features, made.classes) == (200, 15, ("in", "out"))
    again = coremargin.train(tmp_path / "m.zarr", **asked)
    for one, other in ((model, again), (again, model)):
        assert one.certificate.lower <= other.certificate.upper * (1 + 1e-9)
    np.testing.assert_allclose(again.decision_function(made.read(0)[0]), model.decision_function(rows), atol=0.05)


def test_bad_words_are_refused(tmp_path: Path, run_cli: Cli, rng: np.random.Generator) -> None:
    """A model without a map, rows of other features, a place that is taken; and the command says what it wrote."""
    X = rng.standard_normal((60, 3))
    y = (X[:, 0] > 0).astype(int)
    coremargin.ingest(X, tmp_path / "s.zarr", labels=y)
    coremargin.ingest(X[:, :2], tmp_path / "narrow.zarr", labels=y)
    plain = coremargin.train(X, y, loss="hinge")
    with pytest.raises(UsageError, match="expected a model that maps rows"):
        materialise(plain, tmp_path / "s.zarr", tmp_path / "m.zarr")
    asked = ("--map", "fourier", "--components", 8, "--loss", "hinge", "--cluster", "threads")
    run_cli("train", tmp_path / "s.zarr", "--out", tmp_path / "model", *asked)
    with pytest.raises(DataError, match="expected rows of 3 features"):
        materialise(tmp_path / "model", tmp_path / "narrow.zarr", tmp_path / "m.zarr")
    words = ("materialise", tmp_path / "model", tmp_path / "s.zarr", "--out", tmp_path / "m.zarr")
    assert "wrote 60 rows of 8 features" in run_cli(*words, "--dtype", "float32").stdout
    assert Store.open(tmp_path / "m.zarr").dtype == np.float32
    assert "something is there already" in run_cli(*words, exit_code=2).stderr
    (tmp_path / "link").symlink_to(tmp_path / "s.zarr")
    for store, out in (("s.zarr", "s.zarr"), ("link", "s.zarr"), ("s.zarr", "link")):
        with pytest.raises(UsageError, match="another place than that of the rows"):
            materialise(tmp_path / "model", tmp_path / store, tmp_path / out, overwrite=True)
    assert Store.open(tmp_path / "s.zarr").features == 3
