"""Rows as coordinates in their span: products, lengths and hypotheses come through."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.maths.multiclass import scores_of
from coremargin.maths.span import span_of


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(40, 5), (6, 50), (1, 3)])
def test_the_geometry_is_the_same(shape: tuple[int, int], sparse: bool) -> None:
    """Products between rows (x, 2) are those of the coordinates; scores are the same up in space."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape) * (rng.random(shape) < 0.5)
    span = span_of(csr_array(X) if sparse else X, 2.0)
    whole = np.column_stack([X, np.full(len(X), 2.0)])
    np.testing.assert_allclose(span.flat @ span.flat.T, whole @ whole.T, atol=1e-10)
    at = rng.standard_normal((3, span.flat.shape[1]))
    up = span.up(at)
    assert up.shape == (3, shape[1] + 1)
    np.testing.assert_allclose(whole @ up.T, span.flat @ at.T, atol=1e-8)
    np.testing.assert_allclose(scores_of(X, up, 2.0), whole @ up.T, atol=1e-12)


@pytest.mark.parametrize("shape", [(40, 5), (6, 50)])
def test_down_gives_the_scores_of_any_hypothesis(shape: tuple[int, int]) -> None:
    """The part in the span is what the rows see."""
    rng = np.random.default_rng(1)
    X, V = rng.standard_normal(shape), rng.standard_normal((4, shape[1] + 1))
    span = span_of(X, 0.5)
    np.testing.assert_allclose(span.flat @ span.down(V).T, scores_of(X, V, 0.5), atol=1e-9)


def test_equal_rows_and_zeros_have_a_span() -> None:
    """Rows that depend on each other need fewer coordinates; nothing but zeros needs one."""
    X = np.ones((4, 30))
    assert span_of(X, 0.0).flat.shape == (4, 1)
    nothing = span_of(csr_array((4, 30)), 0.0)
    assert not nothing.flat.any()
    assert not nothing.up(np.ones((2, 1))).any()
