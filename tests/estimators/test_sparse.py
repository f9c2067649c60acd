"""Sparse rows: the answers of the same rows made dense, without ever making them dense."""

from __future__ import annotations

import pickle  # noqa: TID251  what users do with estimators
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.external_arrays import LazySource
from coremargin.errors import UsageError
from coremargin.estimators import MarginCoresetClassifier

KINDS = pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_matrix])


@pytest.fixture(scope="module")
def counts() -> tuple[sparse.csr_array, np.ndarray]:
    """500 rows of 60 columns, a tenth of them filled, some rows empty; the label follows a few columns."""
    rng = np.random.default_rng(8)
    X = sparse.random_array((500, 60), density=0.1, format="csr", rng=rng, data_sampler=rng.standard_exponential)
    plane = rng.normal(size=60)
    return X, np.where(X @ plane + 0.2 * rng.normal(size=500) > 0, "pro", "contra")


@KINDS
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_sparse_rows_give_what_dense_ones_give(
    kind: Callable[..., Any], loss: str, counts: tuple[sparse.csr_array, np.ndarray]
) -> None:
    """Coefficients, support rows and decision values agree for every kind of sparse matrix."""
    X, y = kind(counts[0]), counts[1]
    ours = MarginCoresetClassifier(loss=loss, epsilon=1e-7).fit(X, y)
    dense = MarginCoresetClassifier(loss=loss, epsilon=1e-7).fit(counts[0].toarray(), y)
    np.testing.assert_allclose(ours.coef_, dense.coef_, atol=5e-3)
    assert ours.certificate_.lower <= dense.certificate_.upper
    assert dense.certificate_.lower <= ours.certificate_.upper
    assert sparse.issparse(ours.coreset_)
    np.testing.assert_array_equal(ours.coreset_.toarray(), counts[0].toarray()[ours.support_])
    np.testing.assert_allclose(ours.decision_function(X), ours.decision_function(counts[0].toarray()), rtol=1e-9)
    np.testing.assert_array_equal(ours.predict(X), ours.model_.predict(X))


def test_hinge_agrees_with_svc(counts: tuple[sparse.csr_array, np.ndarray]) -> None:
    """SVC on the same sparse rows has the same support vectors, where ours is solved sharply."""
    X, y = counts
    ours = MarginCoresetClassifier(loss="hinge", C=0.5, epsilon=1e-6).fit(X, y)
    theirs = SVC(kernel="linear", C=0.5, tol=1e-10).fit(X, y)
    np.testing.assert_array_equal(ours.support_, np.sort(theirs.support_))


@pytest.mark.specimens(2)
@pytest.mark.parametrize("loss", [None, "hinge", "squared_hinge"])
def test_batches_of_sparse_rows(loss: str | None, counts: tuple[sparse.csr_array, np.ndarray], tmp_path: Path) -> None:
    """Batches are a fit on all rows; after rows were let go the claims stay true of all of them."""
    X, y = counts
    if loss is None:
        sure = np.abs(SVC(kernel="linear", C=10.0).fit(X, y).decision_function(X)) >= 1.0
        X, y = X[sure], SVC(kernel="linear", C=10.0).fit(X, y).predict(X)[sure]
    whole = MarginCoresetClassifier(loss=loss).fit(X, y)
    roomy, tight = MarginCoresetClassifier(loss=loss), MarginCoresetClassifier(loss=loss, memory=40_000)
    for start in range(0, len(y), 100):
        part = slice(start, start + 100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            roomy.partial_fit(X[part], y[part])
            tight.partial_fit(X[part], y[part])
    assert roomy.certificate_.store_digest == tight.certificate_.store_digest == whole.certificate_.store_digest
    assert tight._partial_fit_state.history.dropped
    margins = np.where(y == "pro", 1, -1) * tight.decision_function(X)
    if loss is None:
        assert tight.certificate_.lower is None or tight.certificate_.lower <= margins.min()
        assert tight.certificate_.upper >= whole.certificate_.lower
    else:
        np.testing.assert_array_equal(roomy.coef_, whole.coef_)
        lost = np.maximum(0.0, 1.0 - margins) ** (2 if loss == "squared_hinge" else 1)
        assert tight.certificate_.upper >= 0.5 * (tight.coef_**2).sum() + lost.sum()
        assert tight.certificate_.lower <= whole.certificate_.upper


def test_dense_and_sparse_batches_do_not_mix(counts: tuple[sparse.csr_array, np.ndarray]) -> None:
    """A batch of the other kind is refused with both kinds named."""
    X, y = counts
    machine = MarginCoresetClassifier().partial_fit(X, y)
    with pytest.raises(UsageError, match="expected sparse rows as in the first batch, got ndarray"):
        machine.partial_fit(X.toarray(), y)


def test_a_model_of_sparse_rows_is_verified(counts: tuple[sparse.csr_array, np.ndarray], tmp_path: Path) -> None:
    """What the estimator learnt in memory is checked against a sparse store of the same rows."""
    X, y = counts
    coremargin.ingest(X, tmp_path / "rows.zarr", labels=y, sparse=True, dtype="float64")
    machine = MarginCoresetClassifier(loss="hinge").fit(X, y)
    machine.model_.save(tmp_path / "rows.model")
    assert coremargin.verify(tmp_path / "rows.model", tmp_path / "rows.zarr").ok
    np.testing.assert_array_equal(machine.predict(tmp_path / "rows.zarr"), machine.predict(X))


def test_pipelines_searches_and_pickles_take_sparse_rows(counts: tuple[sparse.csr_array, np.ndarray]) -> None:
    """A text pipeline's machine is searched over, pickled and gives the same labels."""
    X, y = counts
    pipe = make_pipeline(TfidfTransformer(), MarginCoresetClassifier())
    grid = GridSearchCV(pipe, {"margincoresetclassifier__C": [0.1, 1.0]}, cv=3).fit(X, y)
    again = pickle.loads(pickle.dumps(grid.best_estimator_))  # noqa: S301  our own bytes
    np.testing.assert_array_equal(again.predict(X), grid.predict(X))


def test_dask_arrays_of_sparse_blocks_stay_sparse(counts: tuple[sparse.csr_array, np.ndarray]) -> None:
    """Blocks of sparse rows are read as such, in chunks and by row, and train the machine of the rows in memory."""
    da = pytest.importorskip("dask.array")
    X, y = counts
    lazy = da.from_array(X, chunks=((120, 130, 250), 60), asarray=False)
    source, memory = LazySource(lazy, y, weights=np.ones(500)), ArraySource(X, y, weights=np.ones(500), chunk_rows=250)
    assert (source.sparse, source.digest, source.nbytes) == (True, memory.digest, memory.nbytes)
    for chunk in range(source.chunks):
        rows, codes = source.read(chunk)
        assert rows.format == "csr"
        assert not rows.data.flags.writeable
        np.testing.assert_array_equal(rows.toarray(), memory.read(chunk)[0].toarray())
        np.testing.assert_array_equal(codes, memory.read(chunk)[1])
    ids = np.array([499, 3, 120, 119, 3])
    np.testing.assert_array_equal(source.rows_at(ids)[0].toarray(), X.toarray()[ids])
    assert source.rows_at(np.array([], dtype=int))[0].shape == (0, 60)
    ours = MarginCoresetClassifier(loss="hinge", epsilon=1e-7).fit(lazy, y)
    dense = MarginCoresetClassifier(loss="hinge", epsilon=1e-7).fit(X, y)
    np.testing.assert_allclose(ours.coef_, dense.coef_, atol=5e-3)
    np.testing.assert_allclose(ours.decision_function(lazy).compute(), ours.decision_function(X), rtol=1e-9)
