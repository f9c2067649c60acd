from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy.sparse import csr_array

from coremargin.maths import rows as maths_rows
from coremargin.maths.compact import compact, in_smaller_form
from coremargin.maths.rows import (
    as_float64,
    concatenate,
    curvature,
    from_arrays,
    gathered,
    is_sparse,
    lengths,
    nothing,
    products,
    signed,
    signed_points,
    take,
    terms,
    to_arrays,
    weighted_sum,
    weighted_sums,
)


def pair(rng: np.random.Generator, n: int, d: int, dtype: str = "float64") -> tuple[np.ndarray, csr_array]:
    """The same rows dense and sparse; whole rows and columns are zero."""
    dense = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3)
    dense[::5] = 0.0
    dense[:, ::7] = 0.0
    dense = dense.astype(dtype)
    return dense, csr_array(dense)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tile", [1, 300, 1 << 20])
def test_both_kinds_agree(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dtype: str, tile: int) -> None:
    """Products, sums, lengths and signs of sparse rows are those of the same rows dense, in tiles of any size."""
    monkeypatch.setattr(maths_rows, "TILE_BYTES", tile)
    dense, sparse = pair(rng, 43, 31, dtype)
    columns, weights = rng.standard_normal((31, 3)), rng.standard_normal((43, 2))
    signs = np.where(np.arange(43) % 2, 1, -1)
    exact = dense.astype(np.float64)
    for rows in (dense, sparse):
        assert products(rows, columns) == pytest.approx((exact @ columns).T, abs=1e-13)
        assert products(rows, columns).dtype == np.float64
        assert products(rows, columns, "float32") == pytest.approx((exact @ columns).T, abs=1e-4)
        assert products(rows, columns, "float32").dtype == np.float32
        assert weighted_sums(rows, weights) == pytest.approx(weights.T @ exact, abs=1e-13)
        assert weighted_sum(rows, weights[:, 0]) == pytest.approx(weights[:, 0] @ exact, abs=1e-13)
        assert lengths(rows) == pytest.approx(np.sqrt((exact**2).sum(axis=1)), rel=1e-14)
    assert (signed(sparse, signs).toarray() == signed(dense, signs)).all()
    assert (as_float64(sparse).toarray() == as_float64(dense)).all()
    points = signs[:, None] * np.column_stack([exact, np.full(43, 0.5)])
    assert (signed_points(sparse, signs, 0.5).toarray() == points).all()
    assert (signed_points(dense, signs, 0.5) == points).all()


@pytest.mark.parametrize("filled", [0.3, 0.01])
def test_curvature_is_that_of_dense_rows(rng: np.random.Generator, filled: float) -> None:
    """X' diag(c) X, symmetric to the bit, of rows that stay sparse and of those that do not."""
    dense, weights = rng.standard_normal((200, 40)) * (rng.random((200, 40)) < filled), rng.random(200)
    sparse = csr_array(dense.astype(np.float32))
    exact = (dense.astype(np.float32).astype(np.float64).T * weights) @ dense.astype(np.float32)
    assert (sparse.nnz > maths_rows.DENSE_GRAM * dense.size) == (filled == 0.3)
    found = curvature(sparse, weights)
    assert found == pytest.approx(exact, abs=1e-13)
    assert (found == found.T).all()
    assert curvature(dense, weights) == pytest.approx((dense.T * weights) @ dense, abs=1e-13)
    assert not curvature(sparse[:0], weights[:0]).any()


def test_dense_products_are_those_of_one_tile_after_the_other(rng: np.random.Generator) -> None:
    """The bits are those of one matrix-vector product per tile of 1 MiB and column."""
    dense = rng.standard_normal((5000, 100)).astype(np.float32)
    columns, step = rng.standard_normal((100, 2)), (1 << 20) // 800
    parts = [slice(first, first + step) for first in range(0, 5000, step)]
    found = products(dense, columns)
    for k in range(2):
        tiles = [dense[part].astype(np.float64) @ np.ascontiguousarray(columns[:, k]) for part in parts]
        assert (found[k] == np.concatenate(tiles)).all()


def test_a_sparse_product_depends_on_its_row_only(rng: np.random.Generator) -> None:
    """A row has the same product, to the bit, whatever rows are around it."""
    _, sparse = pair(rng, 60, 40)
    column = rng.standard_normal((40, 1))
    whole = products(sparse, column)[0]
    for k in range(60):
        assert products(take(sparse, [k]), column)[0, 0] == whole[k]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_rows_are_taken_and_joined(rng: np.random.Generator, kind: str) -> None:
    """Rows by position, by mask, and joined again are the same rows; no rows are rows, too."""
    dense, sparse = pair(rng, 30, 12, "float32")
    rows = dense if kind == "dense" else sparse
    order = rng.permutation(30)
    mask = rng.random(30) < 0.5
    none = nothing(12, "float32", sparse=kind == "sparse")
    plain = [part if kind == "dense" else part.toarray() for part in (take(rows, order), take(rows, mask))]
    assert (plain[0] == dense[order]).all()
    assert (plain[1] == dense[mask]).all()
    joined = concatenate([none, take(rows, order[:10]), none, take(rows, order[10:])])
    assert joined.dtype == np.float32
    assert joined.shape == (30, 12)
    assert is_sparse(joined) == (kind == "sparse")
    assert ((joined.toarray() if is_sparse(joined) else joined) == dense[order]).all()
    assert take(rows, np.zeros(0, np.int64)).shape == (0, 12)


def test_terms_are_counted(rng: np.random.Generator) -> None:
    """A dense row has d products; of sparse ones the fullest counts, and no rows have none."""
    dense, sparse = pair(rng, 40, 20)
    assert terms(dense) == 20
    assert terms(sparse) == (dense != 0).sum(axis=1).max()
    assert terms(nothing(20, sparse=True)) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_give_the_same_rows_back(rng: np.random.Generator, dtype: str) -> None:
    """Written as plain arrays and read back, rows of either kind have the same bits and precision."""
    for rows in pair(rng, 17, 9, dtype):
        arrays = to_arrays("working_set_rows", rows)
        assert all(type(values) is np.ndarray for values in arrays.values())
        again = from_arrays("working_set_rows", arrays)
        assert is_sparse(again) == is_sparse(rows)
        assert again.dtype == rows.dtype
        assert to_arrays("working_set_rows", again).keys() == arrays.keys()
        for name, values in to_arrays("working_set_rows", again).items():
            assert values.tobytes() == arrays[name].tobytes()


@pytest.mark.parametrize(
    "damage",
    [
        {"x_indices": np.array([0, 9], np.int32)},  # beyond the columns
        {"x_indices": np.array([1, 0], np.int32)},  # not sorted
        {"x_indices": np.array([1, 1], np.int32)},  # twice
        {"x_indices": np.array([0.0, 1.0])},
        {"x_indptr": np.array([0, 3, 2], np.int32)},
        {"x_indptr": np.array([0, 2], np.int32)},
        {"x_data": np.array([1.0])},
        {"x_shape": np.array([2, 3, 4])},
    ],
)
def test_parts_that_make_no_rows_are_refused(damage: dict[str, np.ndarray]) -> None:
    """Indices out of range, unsorted or repeated, and parts that do not fit together raise ValueError."""
    arrays = to_arrays("x", csr_array(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])))
    assert from_arrays("x", arrays).shape == (2, 3)
    with pytest.raises(ValueError, match=r"\w+"):
        from_arrays("x", arrays | damage)


@pytest.mark.parametrize(("filled", "dtype", "sparse"), [(0.2, "f4", True), (0.5, "f4", False), (0.5, "f8", True)])
def test_rows_take_the_least_memory(rng: np.random.Generator, filled: float, dtype: str, sparse: bool) -> None:
    """Dense parts that are mostly zeros are joined as sparse rows; values stay, and the parts are used up."""
    X = (rng.standard_normal((50, 20)) * (rng.random((50, 20)) < filled)).astype(dtype)
    parts = [in_smaller_form(part) for part in (X[:20], X[20:20], X[20:])]
    assert is_sparse(parts[0]) == is_sparse(parts[2]) == sparse
    joined = compact(parts)
    assert parts == []
    assert is_sparse(joined) == sparse
    np.testing.assert_array_equal(joined.toarray() if is_sparse(joined) else joined, X)
    size = joined.data.nbytes + joined.indices.nbytes + joined.indptr.nbytes if is_sparse(joined) else joined.nbytes
    assert size <= X.nbytes
    mixed = compact([X[:20], csr_array(X[20:])])
    assert is_sparse(mixed) == sparse
    np.testing.assert_array_equal(mixed.toarray() if is_sparse(mixed) else mixed, X)
    again = compact([csr_array(X[:20]), csr_array(X[20:])])
    assert is_sparse(again)
    np.testing.assert_array_equal(again.toarray(), X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_in_one_buffer_are_gathered(rng: np.random.Generator, dtype: str) -> None:
    """Each part is copied before the next one is asked for; there may be fewer rows than were announced."""
    dense, sparse = pair(rng, 40, 9, dtype)
    buffer = np.empty((10, 9), dtype)

    def filled() -> Iterator[np.ndarray]:
        for first in range(0, 40, 10):
            buffer[:] = dense[first : first + 10]
            yield buffer[: 10 - first // 20]

    wanted = np.delete(dense, [29, 39], axis=0)
    found = gathered(filled(), 40, nothing(9, dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, wanted)
    found = gathered((sparse[k : k + 10] for k in range(0, 40, 10)), 40, nothing(9, dtype, sparse=True))
    np.testing.assert_array_equal(found.toarray(), dense)
    assert gathered([], 0, nothing(9)).shape == (0, 9)
