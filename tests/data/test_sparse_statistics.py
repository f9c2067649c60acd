"""Statistics of sparse rows do not depend on how many values are looked at together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from coremargin.data import sparse_statistics
from coremargin.data.statistics import longest, measure


@pytest.mark.parametrize("block", [1, 10, 1000])
@pytest.mark.parametrize("density", [0.0, 0.03, 1.0])
def test_blocks_change_no_bit(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, block: int, density: float
) -> None:
    """Sums go on from block to block, value after value."""
    X = csr_array(random_array((70, 40), density=density, format="csr", rng=rng, dtype=np.float32))
    X.sort_indices()
    codes = np.zeros(70, dtype=np.int32)
    whole = measure(X, codes, 1)
    monkeypatch.setattr(sparse_statistics, "_BLOCK_ELEMENTS", block)
    for name, values in vars(measure(X, codes, 1)).items():
        expected = getattr(whole, name)
        if name in ("centre", "low", "high", "total", "spread"):
            assert values.indices.tolist() == expected.indices.tolist()
            values, expected = values.data, expected.data
        assert values.tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e160])
@pytest.mark.parametrize("density", [0.0, 0.03, 1.0])
def test_the_longest_row_alone_is_the_same_bits(rng: np.random.Generator, density: float, scale: float) -> None:
    """Of sparse and dense rows, also where squares are beyond float64."""
    X = csr_array(random_array((70, 40), density=density, format="csr", rng=rng) * scale)
    X.sort_indices()
    for rows in (X, X.toarray()):
        assert longest(rows) == measure(rows, np.zeros(70, dtype=np.int32), 1).max_norm[0]
