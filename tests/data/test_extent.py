"""How far rows reach as views show them: rows themselves are the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.data.arrays import ArraySource
from coremargin.data.extent import extent
from coremargin.data.folds import Masked
from coremargin.data.mapped import mapped
from coremargin.data.scaled import scaled
from coremargin.data.transformed import fitted
from coremargin.formats.map_asked import MapAsked

DENSE = [(how, False) for how in (None, "standard", "minmax", "maxabs", "rownorm")]
SPARSE = [(how, True) for how in (None, "maxabs", "rownorm")]  # the others would fill sparse rows, and are refused


@pytest.mark.parametrize(("how", "sparse"), DENSE + SPARSE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("asked", [None, "fourier", "polynomial"])
def test_no_row_reaches_further(
    how: Any, sparse: bool, dtype: str, asked: str | None, rng: np.random.Generator
) -> None:
    """Values of all rows, and the means of their squares, however rows are scaled, mapped and masked."""
    X = (rng.standard_normal((300, 4)) * [1e-6, 1.0, 1e5, 3.0] + [0.0, 5.0, 0.0, -9.0]).astype(dtype)
    X[rng.random(X.shape) < 0.2] = 0.0
    X[:, 3][X[:, 3] == 0] = 1.0
    source = scaled(ArraySource(csr_array(X) if sparse else X, np.arange(300) % 2), how)
    if asked is not None:
        made = MapAsked(map=asked, components=6 if asked == "fourier" else None, gamma=1e-12, degree=2, coef0=1.0)
        source = mapped(source, fitted(source, made))
    source = Masked(source, 0, 3, 0)
    found: Any = np.concatenate([np.asarray(_dense(source.read(chunk)[0]), float) for chunk in range(source.chunks)])
    reached = extent(source)
    assert (reached.low <= found.min(axis=0)).all()
    assert (found.max(axis=0) <= reached.high).all()
    assert ((found**2).mean(axis=0) <= reached.square * (1 + 1e-9)).all()
    assert (np.abs(found).max(axis=0) <= reached.widest).all()
    if asked is None and how in (None, "standard", "minmax", "maxabs"):
        np.testing.assert_array_equal(reached.high, found.max(axis=0))


def _dense(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
