"""Features that occur in no row: leaving them out changes no answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from coremargin.maths.occurring import on_occurring
from coremargin.maths.row_model import RowModel
from coremargin.maths.smooth import minimise_hinge, minimise_squared_hinge


def spread_out(rng: np.random.Generator) -> tuple[csr_array, csr_array]:
    """60 sparse rows of 40 features, and the same ones with two features that never occur after each of them."""
    narrow = csr_array(random_array((60, 40), density=0.3, rng=rng))
    wide = csr_array((narrow.data, 3 * narrow.indices, narrow.indptr), shape=(60, 120))
    return narrow, wide


def model_of(rows: csr_array, linear: np.ndarray, loss: str) -> RowModel:
    """Two classes, C = 1."""
    limit = np.ones(60) if loss == "hinge" else np.full(60, np.inf)
    signs = np.where(np.arange(60) % 3, 1, -1).astype(np.int8)
    return RowModel(
        linear=linear, rows=rows, signs=signs, intercept=True, target=np.ones(60), curvatures=np.full(60, 2.0),
        limit=limit, constant=7.0,
    )  # fmt: skip


def test_rows_keep_their_values_on_the_features_that_occur(rng: np.random.Generator) -> None:
    """The rows are those that were spread out; dense rows, full ones and empty ones are left as they are."""
    narrow, wide = spread_out(rng)
    found = on_occurring(wide)
    assert found is not None
    rows, used = found
    np.testing.assert_array_equal(rows.toarray(), narrow.toarray())
    np.testing.assert_array_equal(used, 3 * np.arange(40))
    assert np.shares_memory(rows.data, wide.data)
    for as_it_is in (narrow, wide.toarray(), csr_array((3, 9)), wide[:0]):
        assert on_occurring(as_it_is) is None


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_minimisers_are_those_of_all_features(loss: str, rng: np.random.Generator) -> None:
    """Weights of features that no row has are those of the linear term; all others are as without such features.

    The tolerance is a share of the value, to which these weights and the constant belong.
    """
    narrow, wide = spread_out(rng)
    linear = np.append(rng.normal(size=120), 0.0)
    own = model_of(narrow, linear[[*range(0, 120, 3), 120]], loss)
    others = linear[:-1].reshape(-1, 3)[:, 1:]
    own = replace(own, constant=7.0 - 0.5 * float((others**2).sum()))
    every = model_of(wide, linear, loss)
    start = np.zeros(121)
    if loss == "hinge":
        found, duals = minimise_hinge(every, start, None, 1e-9)
        expected, their_duals = minimise_hinge(own, start[:41], None, 1e-9)
        np.testing.assert_allclose(duals, their_duals, atol=1e-12)
    else:
        found, expected = (minimise_squared_hinge(one, start[: len(one.linear)], 1e-12) for one in (every, own))
    np.testing.assert_allclose(found[[*range(0, 120, 3), 120]], expected, atol=1e-12)
    np.testing.assert_array_equal(found[:-1].reshape(-1, 3)[:, 1:], others)
    whole = RowModel(**{**vars(every), "rows": wide.toarray()})
    dense = (
        minimise_hinge(whole, start, None, 1e-9)[0] if loss == "hinge" else minimise_squared_hinge(whole, start, 1e-12)
    )
    np.testing.assert_allclose(found, dense, atol=1e-4)
