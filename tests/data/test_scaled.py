"""Scaled rows: scikit-learn's to rounding, one definition to the bit, and bounds that are true of every row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloudpickle
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse import csr_array, vstack
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

from coremargin.data.arrays import ArraySource
from coremargin.data.opened import open_source
from coremargin.data.scaled import scaled, scaling_of
from coremargin.data.store import Store
from coremargin.data.view import View, root
from coremargin.errors import BadRow, UsageError
from store_kit import all_rows, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.source import Source
    from coremargin.maths.scaling import Kind

KINDS: tuple[Kind, ...] = ("standard", "minmax", "maxabs", "rownorm")
JUDGES: dict[str, Any] = {
    "standard": StandardScaler, "minmax": MinMaxScaler, "maxabs": MaxAbsScaler, "rownorm": Normalizer,
}  # fmt: skip


def _rows(rng: np.random.Generator, n: int = 300, dtype: str = "float32") -> np.ndarray:
    """Columns of many scales, one constant, one of zeros, and a row of zeros elsewhere than these."""
    X = rng.normal(size=(n, 7)) * [1e-6, 1.0, 1e5, 3.0, 0.0, 0.0, 1e8] + [0.0, 5.0, -2e5, 1e3, 0.1, 0.0, 0.0]
    X[17] = 0.0
    X[:, 4] = 0.1
    return X.astype(dtype)


def _by_hand(X: np.ndarray, source: Source) -> np.ndarray:
    """The definition, one number at a time."""
    how = scaling_of(source)
    assert how is not None
    out = np.empty_like(X)
    for i, row in enumerate(X):
        if how.shift is None or how.factor is None:
            total = np.float64(0.0)
            for x in row:
                total = total + np.float64(x) * np.float64(x)
            out[i] = [X.dtype.type(np.float64(x) / np.sqrt(total)) if total > 0 else x for x in row]
        else:
            out[i] = [(x - s) * f for x, s, f in zip(row, how.shift, how.factor, strict=True)]
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_scaled_rows(rng: np.random.Generator, kind: Kind, dtype: str) -> None:
    """Rows are those of the definition to the bit, scikit-learn's to rounding, and never NaN."""
    X = _rows(rng, dtype=dtype)
    source = scaled(ArraySource(X, np.arange(len(X)) % 2, chunk_rows=64), kind)
    found = all_rows(source)[0]
    assert found.dtype == X.dtype
    np.testing.assert_array_equal(found, _by_hand(X, source))
    expected = JUDGES[kind]().fit_transform(X.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=0, atol=np.abs(expected).max() * 4 * np.finfo(dtype).eps)
    ids = np.array([299, 0, 17, 64])
    np.testing.assert_array_equal(source.rows_at(ids)[0], found[ids].astype(np.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_constant_columns(rng: np.random.Generator, kind: Kind) -> None:
    """A column that never varies is 0 once it is centred; one of zeros stays so; a row of zeros has no length."""
    X = _rows(rng)
    found = all_rows(scaled(ArraySource(X, np.arange(len(X)) % 2), kind))[0]
    assert not found[:, 5].any()
    assert np.isfinite(found).all()
    if kind in ("standard", "minmax"):
        assert not found[:, 4].any()
    if kind == "rownorm":
        assert not all_rows(scaled(ArraySource(np.zeros((2, 3)), [0, 1]), kind))[0].any()


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_store_travels(tmp_path: Path, rng: np.random.Generator, kind: Kind) -> None:
    """The handle opens the same scaled rows elsewhere; the digest is another for every kind and every store."""
    X, y = _rows(rng), np.arange(300) % 2
    store = write_store(tmp_path / "s.zarr", X, y)
    source = scaled(store, kind)
    twin = open_source(cloudpickle.loads(cloudpickle.dumps(source.handle())))
    np.testing.assert_array_equal(all_rows(twin)[0], all_rows(source)[0])
    np.testing.assert_array_equal(all_rows(source)[1], all_rows(store)[1])
    assert twin.digest == source.digest != store.digest
    assert root(twin).digest == store.digest
    assert len({scaled(store, other).digest for other in KINDS}) == len(KINDS)
    assert scaled(store, None) is store


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(
    X=arrays.arrays(
        np.float32, st.tuples(st.integers(2, 12), st.integers(1, 4)),
        elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-6),
    )
)  # fmt: skip
def test_bounds_are_true(kind: Kind, X: np.ndarray) -> None:
    """No scaled row is longer than the largest norm, or farther from the centre than the radius."""
    try:
        source = scaled(ArraySource(X, chunk_rows=5), kind)
    except BadRow:  # a column that hardly varies
        return
    scalars, centres = source.scalars(), source.centres()
    for chunk in range(source.chunks):
        rows = source.read(chunk)[0].astype(np.longdouble)
        assert np.sqrt((rows**2).sum(axis=1)).max() <= scalars.max_norm[chunk]
        assert np.sqrt(((rows - centres[chunk]) ** 2).sum(axis=1)).max() <= scalars.radius[chunk]


def test_bounds_are_tight(rng: np.random.Generator) -> None:
    """Columns whose scales differ by 14 orders of magnitude cost the bounds a small factor only."""
    source = scaled(ArraySource(_rows(rng), chunk_rows=100), "standard")
    scalars = source.scalars()
    for chunk in range(source.chunks):
        rows = source.read(chunk)[0].astype(np.float64)
        assert scalars.max_norm[chunk] <= 3 * np.linalg.norm(rows, axis=1).max()
        assert scalars.radius[chunk] <= 3 * np.linalg.norm(rows - source.centres()[chunk], axis=1).max()
    even = scaled(ArraySource(rng.normal(size=(100, 50))), "standard")
    radius = np.linalg.norm(even.read(0)[0] - even.centres()[0], axis=1).max()
    assert even.scalars().radius[0] <= 1.3 * radius


@pytest.mark.parametrize(
    ("values", "kind", "what"),
    [
        ([0.0, 3e-39, 1e-39], "standard", "standard deviation, 1.24"),
        ([-3e38, 3e38, 0.0], "standard", "standard deviation, 2.4"),
        ([-3e38, 3e38, 0.0], "minmax", "range, 6e"),
        ([2e-39, 0.0, 0.0], "maxabs", "largest size, 2e-39"),
        ([3e38, 0.0, 0.0], "maxabs", "largest size, 3e"),
    ],
)
def test_columns_beyond_the_precision(values: list[float], kind: Kind, what: str) -> None:
    """A column whose factor float32 does not hold is refused by number; float64 holds it."""
    X = np.array([[1.0, 2.0, 3.0], values], np.float32).T
    with pytest.raises(BadRow, match=rf"column 1 \(counted from 0\): its {what}.*--dtype float64"):
        scaled(ArraySource(X), kind)
    assert np.isfinite(all_rows(scaled(ArraySource(X.astype(np.float64)), kind))[0]).all()


def test_rows_beyond_the_precision() -> None:
    """A row whose squares vanish in float64 is refused by number, on reading and by id."""
    X = np.array([[1.0, 1.0], [0.0, 0.0], [1e-170, 0.0]])
    source = scaled(ArraySource(X, chunk_rows=2), "rownorm")
    with pytest.raises(BadRow, match="row 2: expected zeros or a length"):
        source.read(1)
    with pytest.raises(BadRow, match="row 2: expected zeros or a length"):
        source.rows_at(np.array([1, 2]))
    assert source.rows_at(np.array([1, 0]))[0][0].tolist() == [0.0, 0.0]


def _sparse(rng: np.random.Generator, n: int = 300, dtype: str = "float32") -> csr_array:
    """Counts of rare and frequent words, a column in every row, one in none, and an empty row."""
    X = rng.poisson([3.0, 0.5, 0.02, 0.1, 0.0, 0.3], (n, 6)) * [1.0, 1e-4, 1e5, -2.0, 1.0, 1.0]
    X[:, 1] = 7.0
    X[5] = 0.0
    return csr_array(X.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["standard", "maxabs", "rownorm"])
def test_sparse_rows(rng: np.random.Generator, kind: Kind, dtype: str) -> None:
    """Sparse rows keep their zeros, are scikit-learn's to rounding, and the bits of the definition."""
    X = _sparse(rng, dtype=dtype)
    source = scaled(ArraySource(X, np.arange(300) % 2, chunk_rows=70), kind)
    parts = [source.read(chunk)[0].copy() for chunk in range(source.chunks)]
    found = vstack(parts, format="csr")
    np.testing.assert_array_equal(found.toarray(), _by_hand(X.toarray(), source))
    assert found.dtype == X.dtype
    np.testing.assert_array_equal(found.indices, X.indices)
    judge = StandardScaler(with_mean=False) if kind == "standard" else JUDGES[kind]()
    expected = judge.fit_transform(X.astype(np.float64)).toarray()
    np.testing.assert_allclose(found.toarray(), expected, rtol=4 * np.finfo(dtype).eps, atol=0)
    ids = np.array([299, 0, 5, 64])
    np.testing.assert_array_equal(source.rows_at(ids)[0].toarray(), found.toarray()[ids].astype(np.float64))
    scalars, centres = source.scalars(), source.centres()
    for chunk, part in enumerate(parts):
        rows = part.toarray().astype(np.longdouble)
        longest, farthest = (np.sqrt((z**2).sum(axis=1)).max() for z in (rows, rows - centres[chunk]))
        assert longest <= scalars.max_norm[chunk] <= 4 * longest
        assert farthest <= scalars.radius[chunk] <= 4 * farthest


def test_sparse_rows_that_cannot_be_scaled(rng: np.random.Generator) -> None:
    """A range from 0 to 1 would fill sparse rows; values that become 0 are not kept; squares that vanish are named."""
    with pytest.raises(UsageError, match="use 'maxabs'"):
        scaled(ArraySource(_sparse(rng)), "minmax")
    X = csr_array(np.array([[1e-45, 2.0], [1e30, 0.0]], np.float32))
    found = scaled(ArraySource(X), "maxabs").read(0)[0]
    assert found.nnz == 2
    assert found.toarray().tolist() == [[0.0, 1.0], [1.0, 0.0]]
    source = scaled(ArraySource(csr_array(np.array([[0.0, 0.0], [1e-170, 0.0]]))), "rownorm")
    with pytest.raises(BadRow, match="row 1: expected zeros or a length"):
        source.read(0)


def test_scaling_of(tmp_path: Path, rng: np.random.Generator) -> None:
    """The scaling is found under other views, and nowhere else."""
    store = write_store(tmp_path / "s.zarr", _rows(rng), np.arange(300) % 2)
    view = View(scaled(Store.open(store.path), "minmax"), "above")
    found = scaling_of(view)
    assert found is not None
    assert found.kind == "minmax"
    assert scaling_of(View(store)) is None
