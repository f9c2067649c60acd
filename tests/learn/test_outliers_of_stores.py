"""Outliers of sparse stores and of scaled columns: found, proven and verified as those of plain rows are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.problems.outliers.outlier_table import outlier_table
from coremargin.verify import verify

WRONG = (3, 57, 120, 199)


def stored(path: Path, X: Any, y: np.ndarray) -> Path:
    """A store of 20 rows a chunk."""
    options: dict[str, Any] = {"sparse": True} if isinstance(X, csr_array) else {}
    with StoreWriter.create(path, features=X.shape[1], dtype="float32", chunk_rows=20, **options) as writer:
        writer.write(X, y, origin="test")
        writer.commit()
    return path


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """200 rows of 6 features, some of them zero, with a margin but for four wrong labels."""
    x = rng.normal(size=(200, 6)) * (rng.random((200, 6)) < 0.5)
    y = np.where(rng.random(200) < 0.5, 1, -1)
    x[:, 0] = y * (1 + np.abs(x[:, 0]))
    y[list(WRONG)] *= -1
    return x.astype(np.float32), y


@pytest.mark.parametrize("search", ["exact", "heuristic"])
def test_sparse_rows_have_the_outliers_of_dense_ones(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], search: str
) -> None:
    """The same rows are left out, for the same margin, and both are verified on all rows."""
    x, y = rows
    models = {}
    for name, X in (("dense", x), ("sparse", csr_array(x))):
        store = stored(tmp_path / name, X, y)
        models[name] = coremargin.train(
            store, out=tmp_path / f"m_{name}", outliers=4, outlier_search=search, cluster="threads"
        )
        assert Store.open(store).sparse == (name == "sparse")
        assert verify(tmp_path / f"m_{name}", store).ok
        assert {row.id for row in outlier_table(models[name]).rows} == set(WRONG)
    dense, sparse = (models[name].certificate for name in ("dense", "sparse"))
    assert sparse.lower == pytest.approx(dense.lower, rel=1e-3)
    assert sparse.lower <= dense.upper
    assert dense.lower <= sparse.upper


@pytest.mark.parametrize("scaling", ["standard", "rownorm"])
def test_outliers_of_scaled_columns(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], scaling: str) -> None:
    """Columns of very different size: the wrong labels are found on what scaling makes of them, and verify says so."""
    x, y = rows
    store = stored(tmp_path / "s", x * np.float32(10) ** np.arange(-1, 5, dtype=np.float32), y)
    job: dict[str, Any] = {"outliers": 4, "scaling": scaling, "epsilon": 0.01, "cluster": "threads"}
    found = coremargin.train(store, out=tmp_path / "m", **job)
    assert found.status == "certified"
    assert verify(tmp_path / "m", store).ok
    if scaling == "standard":
        assert {row.id for row in outlier_table(found).rows} == set(WRONG)
        plain = (x - x.mean(axis=0)) / x.std(axis=0)
        direct = coremargin.train(plain, y, outliers=4, epsilon=0.01)
        assert found.certificate.lower <= direct.certificate.upper * (1 + 1e-5)
        assert direct.certificate.lower <= found.certificate.upper * (1 + 1e-5)
