"""Sparse rows in memory: what is made of them, what is refused, and that every statistic is that of the dense rows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from coremargin.data.arrays import ArraySource
from coremargin.data.moments import moments
from coremargin.data.source import Source
from coremargin.data.sparse import as_sparse_rows, csr_slice
from coremargin.data.statistics import measure
from coremargin.errors import BadRow, StoreError, UsageError

VECTORS = ("centre", "low", "high", "total", "spread")


def sparse_rows(rng: np.random.Generator, n: int, d: int, density: float, dtype: str = "float32") -> sp.csr_array:
    """Random rows; the first is empty, and so is the last feature."""
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    X[0], X[:, -1] = 0.0, 0.0
    return sp.csr_array(X.astype(dtype))


def is_canonical(X: Any) -> bool:
    """Looked up by hand, not by SciPy's own flags: ascending, none twice, no zeros."""
    if X.format != "csr" or not X.data.all():
        return False
    rows = [X.indices[a:b] for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    return all((np.diff(row) > 0).all() for row in rows)


class TestSource:
    """A source of sparse rows says the same as one of the same rows made dense."""

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize(("n", "d", "density"), [(100, 40, 0.1), (333, 7, 0.6), (50, 300, 0.02), (9, 5, 1.0)])
    def test_as_dense(self, rng: np.random.Generator, n: int, d: int, density: float, dtype: str) -> None:
        """Rows, codes, statistics: all equal, the sums to the last bits."""
        X = sparse_rows(rng, n, d, density, dtype)
        y = rng.integers(0, 2, n)
        sparse, dense = ArraySource(X, y, chunk_rows=32), ArraySource(X.toarray(), y, chunk_rows=32)
        assert isinstance(sparse, Source)
        assert (sparse.sparse, dense.sparse) == (True, False)
        assert sparse.dtype == dtype
        for chunk in range(dense.chunks):
            rows, codes = sparse.read(chunk)
            assert rows.dtype == dtype
            np.testing.assert_array_equal(rows.toarray(), dense.read(chunk)[0])
            np.testing.assert_array_equal(codes, dense.read(chunk)[1])
        ids = np.array([n - 1, 0, 3, 3])
        picked = sparse.rows_at(ids)[0]
        assert (picked.format, picked.dtype) == ("csr", np.float64)
        np.testing.assert_array_equal(picked.toarray(), dense.rows_at(ids)[0])
        assert sparse.rows_at(np.array([], dtype=int))[0].shape == (0, d)
        ours, theirs = sparse.statistics(), dense.statistics()
        for name in VECTORS:
            np.testing.assert_allclose(
                getattr(ours, name).toarray(), getattr(theirs, name), rtol=1e-12, atol=1e-12, err_msg=name
            )
        for name in ("rows", "counts", "unlabelled"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        for name in ("radius", "max_norm"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12)
        np.testing.assert_array_equal(ours.low.toarray(), theirs.low)
        np.testing.assert_allclose(sparse.centres(1, 2), dense.centres(1, 2), rtol=1e-12, atol=1e-12)
        assert isinstance(sparse.centres(), np.ndarray)
        assert sparse.scalars().nonzeros.sum() == X.nnz
        for field, values in vars(moments(sparse)).items():
            np.testing.assert_allclose(values, getattr(moments(dense), field), rtol=1e-11, atol=1e-12)

    def test_bytes(self, rng: np.random.Generator) -> None:
        """Values, indices, row starts, labels and weights are counted."""
        X = sparse_rows(rng, 50, 10, 0.3)
        assert ArraySource(X, np.ones(50)).nbytes == X.nnz * 8 + 50 * 12
        assert ArraySource(X, np.ones(50), weights=np.ones(50)).nbytes == X.nnz * 8 + 50 * 20
        assert ArraySource(X.toarray(), np.ones(50), weights=np.ones(50)).nbytes == 50 * (10 * 4 + 4 + 8)

    def test_digest(self, rng: np.random.Generator) -> None:
        """The digest tells content, not chunks or formats: values, places, features and weights count."""
        X, y = sparse_rows(rng, 60, 10, 0.3), rng.integers(0, 2, 60)
        digest = ArraySource(X, y, chunk_rows=16).digest
        assert digest == ArraySource(X.tocsc(), y, chunk_rows=7).digest == ArraySource(sp.coo_matrix(X), y).digest
        value, place, row = X.copy(), X.copy(), X.copy()
        value.data[5] = np.nextafter(value.data[5], np.float32(9))
        place.indices[place.indptr[9] - 1] = 9
        row = sp.csr_array((X.data, X.indices, np.concatenate([X.indptr[1:2], X.indptr[2:], X.indptr[-1:]])), X.shape)
        wider = sp.csr_array((X.data, X.indices, X.indptr), shape=(60, 11))
        for other in (value, place, row, wider, X.toarray()):
            assert ArraySource(other, y).digest != digest
        weighted = ArraySource(X, y, weights=np.ones(60)).digest
        assert weighted != digest
        assert weighted != ArraySource(X, y, weights=np.arange(60.0)).digest

    def test_nothing_is_copied_where_it_fits(self, rng: np.random.Generator) -> None:
        """Canonical rows are used as they are, read-only; the caller's stay writable."""
        X = sparse_rows(rng, 50, 10, 0.3)
        rows, _ = ArraySource(X, np.ones(50)).read(0)
        assert np.shares_memory(rows.data, X.data)
        assert np.shares_memory(rows.indices, X.indices)
        assert not rows.data.flags.writeable
        X.data[0] = 1.0

    def test_empty(self) -> None:
        """Rows without any value are rows; no rows, and no features, are refused."""
        source = ArraySource(sp.csr_array((5, 3), dtype=np.float32), np.ones(5))
        assert source.scalars().max_norm.tolist() == [0.0]
        assert source.scalars().radius.tolist() == [0.0]
        assert source.read(0)[0].toarray().tolist() == np.zeros((5, 3)).tolist()
        for shape in ((0, 3), (3, 0)):
            with pytest.raises(StoreError, match="at least one row and one feature"):
                ArraySource(sp.csr_array(shape))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1.0, -2.5, 3e-160, 1e200, 0.1, 7.0])), max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_radius_and_norm_are_upper_bounds(rows: list[list[tuple[int, float]]]) -> None:
    """No row lies outside the radius or beyond the largest norm, in exact arithmetic, whatever their scale."""
    X = np.zeros((len(rows), 5))
    for k, row in enumerate(rows):
        for place, value in row:
            X[k, place] = value
    found = measure(
        as_sparse_rows(sp.csr_array(X), dtype=np.dtype("float64"), place="X"), np.zeros(len(X), np.int32), 1
    )
    centre = [Fraction(float(value)) for value in found.centre.toarray()[0]]
    for bound, origin in ((found.radius[0], centre), (found.max_norm[0], [Fraction(0)] * 5)):
        for row in X.tolist():
            square = sum((Fraction(value) - c) ** 2 for value, c in zip(row, origin, strict=True))
            assert Fraction(float(bound)) ** 2 >= square
    tight = measure(X, np.zeros(len(X), np.int32), 1)
    np.testing.assert_allclose(found.max_norm, tight.max_norm, rtol=1e-9, atol=1e-150)


class TestCanonical:
    """What comes in becomes canonical, or is refused by name."""

    @pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
    @pytest.mark.parametrize("number", ["float32", "float64", "int8", "bool"])
    def test_formats(self, rng: np.random.Generator, kind: str, number: str) -> None:
        """Every SciPy format and kind of number gives the same canonical rows."""
        dense = (rng.integers(0, 4, (20, 6)) * (rng.random((20, 6)) < 0.3)).astype(number)
        X = sp.coo_array(dense).asformat(kind)
        assert is_canonical(ArraySource(X).read(0)[0])
        rows = as_sparse_rows(X, dtype=np.dtype("float32"), place="X")
        assert is_canonical(rows)
        assert rows.dtype == np.float32
        np.testing.assert_array_equal(rows.toarray(), dense.astype(np.float32))

    def test_unsorted_duplicates_and_zeros(self) -> None:
        """Indices are sorted, duplicates summed without wrapping, explicit zeros dropped; the input stays as it is."""
        parts = (np.array([100, 100, 3, 0, 5], np.int8), np.array([2, 2, 0, 1, 1]), np.array([0, 3, 3, 5]))
        X = sp.csr_array(parts, shape=(3, 4))
        rows = as_sparse_rows(X, dtype=np.dtype("float32"), place="X")
        assert is_canonical(rows)
        assert rows.toarray().tolist() == [[3, 0, 200, 0], [0, 0, 0, 0], [0, 5, 0, 0]]
        assert X.data.tolist() == [100, 100, 3, 0, 5]
        assert X.indices.tolist() == [2, 2, 0, 1, 1]

    def test_what_scipy_remembers_is_not_believed(self) -> None:
        """Indices that were changed after SciPy looked at them are sorted all the same."""
        X = sp.csr_array(np.array([[0.0, 1, 2], [3, 0, 0], [0, 0, 0], [4, 5, 0]]))
        assert X.has_canonical_format
        X.indices[:2] = 2, 0
        assert X.has_canonical_format
        rows = as_sparse_rows(X, dtype=np.dtype("float64"), place="X")
        assert is_canonical(rows)
        assert rows.toarray().tolist() == [[2, 0, 1], [3, 0, 0], [0, 0, 0], [4, 5, 0]]

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, value: float) -> None:
        """NaN and infinities are refused with row and column."""
        X = sp.csr_array(np.array([[1.0, 0, 0], [0, 0, value]]))
        with pytest.raises(BadRow, match=r"X: row 1, column 2 \(counted from 0\): expected a finite number"):
            ArraySource(X)

    def test_too_large(self) -> None:
        """Values beyond float32 are refused with row, column and the remedy."""
        X = sp.csr_array(np.array([[0.0, 1e39]]))
        with pytest.raises(BadRow, match=r"row 7, column 1 .*1e\+39 is beyond the range of float32.*--dtype float64"):
            as_sparse_rows(X, dtype=np.dtype("float32"), place="X", first=7)

    @pytest.mark.parametrize("index", [-1, 3, 100])
    def test_index_outside(self, index: int) -> None:
        """An index beyond the features is refused with its row, before SciPy touches memory by it."""
        X = sp.csr_array(np.eye(3))
        X.indices[1] = index
        with pytest.raises(BadRow, match=rf"X: row 1: found feature {index}, expected 0 to 2"):
            ArraySource(X)

    def test_broken_row_starts(self) -> None:
        """Row starts that lead out of the arrays are refused."""
        X = sp.csr_array(np.eye(3))
        X.indptr[1] = 50
        with pytest.raises(BadRow, match="fits together"):
            ArraySource(X)

    def test_other_features(self) -> None:
        """Rows of another width are refused."""
        with pytest.raises(BadRow, match="expected rows of 4 features, got 3"):
            as_sparse_rows(sp.csr_array(np.eye(3)), dtype=np.dtype("float32"), place="X", features=4)

    def test_kinds(self) -> None:
        """Complex numbers are no features."""
        with pytest.raises(BadRow, match="expected a sparse matrix of real numbers"):
            as_sparse_rows(sp.csr_array(np.eye(2) * 1j), dtype=np.dtype("float32"), place="X")

    def test_slice(self, rng: np.random.Generator) -> None:
        """A run of rows is those rows, without a copy of their values."""
        X = sparse_rows(rng, 9, 6, 0.4)
        part = csr_slice(X, 3, 5)
        np.testing.assert_array_equal(part.toarray(), X.toarray()[3:5])
        np.testing.assert_array_equal(part @ np.arange(6.0), X.toarray()[3:5] @ np.arange(6.0))
        assert np.shares_memory(part.data, X.data)


class TestWeights:
    """Weights of rows in memory."""

    def test_chunks(self, rng: np.random.Generator) -> None:
        """Each chunk has its own weights, float64, read-only; without weights there are none."""
        X, weights = rng.normal(size=(10, 2)), np.arange(10)
        source = ArraySource(X, np.ones(10), weights=weights, chunk_rows=4)
        parts = [source.weights(chunk) for chunk in range(source.chunks)]
        assert [part.tolist() for part in parts if part is not None] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert parts[0] is not None
        assert parts[0].dtype == np.float64
        assert not parts[0].flags.writeable
        assert ArraySource(X, np.ones(10)).weights(0) is None

    @pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, -1e-300])
    def test_refused(self, rng: np.random.Generator, value: float) -> None:
        """Negative and not finite weights are refused with their row."""
        weights = np.ones(10)
        weights[6] = value
        with pytest.raises(BadRow, match="weights: row 6: found weight .* expected a number from 0 to 1e.200"):
            ArraySource(rng.normal(size=(10, 2)), np.ones(10), weights=weights)

    def test_all_zero(self, rng: np.random.Generator) -> None:
        """Weights that leave nothing are refused."""
        with pytest.raises(BadRow, match="all weights are zero"):
            ArraySource(rng.normal(size=(10, 2)), np.ones(10), weights=np.zeros(10))

    def test_length_and_kind(self, rng: np.random.Generator) -> None:
        """One number per row."""
        X = rng.normal(size=(10, 2))
        with pytest.raises(UsageError, match="expected as many weights as rows, 10, got 9"):
            ArraySource(X, np.ones(10), weights=np.ones(9))
        with pytest.raises(BadRow, match="expected one number per row"):
            ArraySource(X, np.ones(10), weights=["a"] * 10)
