"""Checksums and per-chunk statistics against their definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.data.checksum import crc32c, joined
from coremargin.data.statistics import chunk_digest, concatenate, measure


@given(st.lists(st.binary(min_size=0, max_size=300), max_size=8))
def test_joined_checksum(parts: list[bytes]) -> None:
    """The joined checksum of parts is the checksum of their bytes one after the other."""
    assert joined((crc32c(part), len(part)) for part in parts) == crc32c(b"".join(parts))


def test_checksum_known_value() -> None:
    """The checksum is crc32c: "123456789" gives e3069283."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 3), (1000, 2), (300, 31), (300, 32), (50, 2000)])
def test_statistics_are_numpys(rng: np.random.Generator, n: int, d: int, dtype: str) -> None:
    """Every statistic of a chunk equals what NumPy computes in float64, up to the last bits."""
    X = (rng.normal(size=(n, d)) * np.exp(rng.normal(size=d)) + rng.normal(size=d)).astype(dtype)
    codes = rng.integers(-1, 3, n).astype(np.int32)
    found = measure(X, codes, 3)
    wide = X.astype(np.float64)
    assert found.rows.tolist() == [n]
    assert found.counts.tolist() == [[int((codes == k).sum()) for k in range(3)]]
    assert found.unlabelled.tolist() == [int((codes == -1).sum())]
    np.testing.assert_array_equal(found.low[0], wide.min(axis=0))
    np.testing.assert_array_equal(found.high[0], wide.max(axis=0))
    np.testing.assert_allclose(found.total[0], wide.sum(axis=0), rtol=1e-12, atol=1e-12 * n)
    spread = ((wide - wide.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(found.spread[0], spread, rtol=1e-12, atol=1e-20 * n)
    np.testing.assert_allclose(found.centre[0], wide.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.max_norm, np.linalg.norm(wide, axis=1).max(), rtol=1e-12)
    radius = np.linalg.norm(wide - found.centre[0], axis=1).max()
    np.testing.assert_allclose(found.radius, radius, rtol=1e-12)
    assert int(found.digest[0]) == crc32c(X.tobytes()) << 32 | crc32c(codes.tobytes())


_values = st.one_of(
    st.floats(-1e3, 1e3, width=32),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1e-200, -1e-320, 1e200, 1e308]),
)


@given(st.lists(st.tuples(_values, _values, _values), min_size=1, max_size=5))
def test_radius_and_norm_are_upper_bounds(rows: list[tuple[float, float, float]]) -> None:
    """No row lies outside the radius or beyond the largest norm, in exact arithmetic, whatever their scale."""
    found = measure(np.array(rows), np.zeros(len(rows), dtype=np.int32), 1)
    centre = [Fraction(float(value)) for value in found.centre[0]]
    for bound, origin in ((float(found.radius[0]), centre), (float(found.max_norm[0]), [Fraction(0)] * 3)):
        assert bound >= 0
        if math.isinf(bound):
            continue
        for row in rows:
            square = sum((Fraction(value) - c) ** 2 for value, c in zip(row, origin, strict=True))
            assert Fraction(bound) ** 2 >= square


def test_equal_rows_have_radius_zero() -> None:
    """A chunk of equal rows has radius exactly zero, rows of zeros have norm exactly zero."""
    found = measure(np.ones((4, 3), dtype=np.float32), np.zeros(4, dtype=np.int32), 1)
    assert found.radius.tolist() == [0.0]
    assert measure(np.zeros((4, 3)), np.zeros(4, dtype=np.int32), 1).max_norm.tolist() == [0.0]


def test_concatenate_widens_counts(rng: np.random.Generator) -> None:
    """Chunks measured before a class was first seen count zero rows of it."""
    X = rng.normal(size=(5, 2))
    parts = [measure(X, np.zeros(5, dtype=np.int32), 1), measure(X, np.full(5, 1, dtype=np.int32), 2)]
    assert concatenate(parts, 2).counts.tolist() == [[5, 0], [0, 5]]


def test_digest_does_not_depend_on_layout(rng: np.random.Generator) -> None:
    """Byte order and memory order of the arrays do not change a digest."""
    X, codes = rng.normal(size=(6, 4)), np.arange(6, dtype=np.int32)
    other = np.asfortranarray(X.astype(">f8"))
    assert chunk_digest(other, codes.astype(">i4")) == chunk_digest(X, codes)
