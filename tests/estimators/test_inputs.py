"""What the estimator takes: arrays, Dask arrays, Zarr arrays, stores; all give the same answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from coremargin.data.external_arrays import LazySource
from coremargin.errors import BadRow, DamagedChunk, LabelError, UsageError
from coremargin.estimators import MarginCoresetClassifier

if TYPE_CHECKING:
    from coremargin.data.store import Store

da = pytest.importorskip("dask.array")

ROWS, FEATURES = 600, 6


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping clouds in float32, with words as labels."""
    X = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = np.where(X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=ROWS) > 0, "yes", "no")
    return X, y


def _dask(path: Path, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    return da.from_array(X, chunks=(150, FEATURES)), da.from_array(y, chunks=150)


def _uneven_dask(path: Path, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    return da.from_array(X, chunks=((7, 293, 300), (2, 4))), y.tolist()


def _zarr(path: Path, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    return zarr.create_array(path / "X", data=X, chunks=(128, 4)), zarr.create_array(path / "y", data=y == "yes")


def _sharded_zarr(path: Path, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    return zarr.create_array(path / "X", data=X, chunks=(50, FEATURES), shards=(200, FEATURES)), y


MAKERS = pytest.mark.parametrize("make", [_dask, _uneven_dask, _zarr, _sharded_zarr], ids=lambda f: f.__name__)


@MAKERS
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_arrays_elsewhere_give_what_arrays_in_memory_give(
    make: Callable[..., tuple[Any, Any]], loss: str, rows: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    """The same rows in blocks give a certificate about the same content, and decision values as near as it says."""
    X, y = make(tmp_path, *rows)
    lazy = MarginCoresetClassifier(loss=loss, epsilon=1e-6).fit(X, y)
    known = rows[1] if lazy.classes_.dtype.kind == "U" else rows[1] == "yes"
    ours = MarginCoresetClassifier(loss=loss, epsilon=1e-6).fit(rows[0], known)
    assert lazy.certificate_.store_digest == ours.certificate_.store_digest
    assert lazy.certificate_.ratio >= 1 - 1e-6
    np.testing.assert_allclose(lazy.coef_, ours.coef_, atol=5e-3)
    np.testing.assert_allclose(np.asarray(lazy.decision_function(X)), lazy.decision_function(rows[0]), rtol=1e-12)
    assert np.asarray(lazy.predict(X)).tolist() == lazy.predict(rows[0]).tolist()


@MAKERS
def test_weights_go_with_arrays_elsewhere(
    make: Callable[..., tuple[Any, Any]], rows: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    """Weights may lie where the rows lie; they make the same content and the same certificate."""
    X, _ = make(tmp_path, *rows)
    weights = 1.0 + np.arange(ROWS) % 3
    stored = zarr.create_array(tmp_path / "weights", data=weights)
    lazy = MarginCoresetClassifier(epsilon=1e-6).fit(X, rows[1], stored)
    ours = MarginCoresetClassifier(epsilon=1e-6).fit(*rows, weights)
    assert lazy.certificate_.store_digest == ours.certificate_.store_digest
    np.testing.assert_allclose(lazy.coef_, ours.coef_, atol=5e-3)


def test_dask_predictions_wait_to_be_computed(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """Decision values and labels of a Dask array are Dask arrays with its blocks of rows, computed on demand."""
    X, y = _dask(tmp_path, *rows)
    machine = MarginCoresetClassifier().fit(X, y)
    for answer in (machine.decision_function(X), machine.predict(X)):
        assert answer.chunks == (X.chunks[0],)
        assert type(answer).__module__.startswith("dask.")
    assert machine.score(X, rows[1]) == machine.score(*rows)


def test_no_more_than_a_few_blocks_are_in_memory(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """Blocks are computed one by one: never is the whole array asked for, and every pass asks for every row once."""
    asked: list[int] = []

    def counted(block: np.ndarray) -> np.ndarray:
        asked.append(len(block))
        return block

    X = da.from_array(rows[0], chunks=(100, FEATURES)).map_blocks(counted, dtype=np.float32, meta=rows[0][:0])
    source = LazySource(X, rows[1], chunk_rows=100)
    assert asked == [100] * 6
    for chunk in range(source.chunks):
        source.read(chunk)
    assert asked == [100] * 12


def test_blocks_are_grouped_to_the_size_of_a_stores_chunks(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """Small blocks make chunks of up to 8 MiB, whole blocks each."""
    X = da.zeros((1 << 20, 8), chunks=(1000, 8), dtype=np.float32)
    source = LazySource(X, np.arange(1 << 20) % 2)
    assert source.chunk_rows % 1000 == 0
    assert 7 << 20 < source.chunk_rows * 32 <= 8 << 20


def test_an_array_that_changes_between_scans_is_refused(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """A row that has other values when it is read again ends the job: no certificate about two data sets."""
    X = zarr.create_array(tmp_path / "X", data=rows[0], chunks=(100, FEATURES))
    source = LazySource(X, rows[1], chunk_rows=100)
    X[250, 3] = 9.0
    source.read(1)
    with pytest.raises(DamagedChunk, match="zarr array, rows 200 to 299: expected the values of the first reading"):
        source.read(2)


def test_blocks_of_unknown_length_are_refused(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """A Dask array that does not know its length is refused with the call that helps, before anything is computed."""
    X = da.from_array(rows[0], chunks=(150, FEATURES))
    X = X[X[:, 0] > 0]
    with pytest.raises(UsageError, match=r"blocks of known length; call X.compute_chunk_sizes\(\) first"):
        MarginCoresetClassifier().fit(X, rows[1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda X, y: (X[:, 0], y), UsageError, "expected rows and features, got an array of shape"),
        (lambda X, y: (X[:50], y), LabelError, "expected as many labels as rows, 50, got 600"),
        (lambda X, y: (X, None), UsageError, "expected labels of the rows, got none"),
        (lambda X, y: (X.astype("complex64"), y), UsageError, "expected real numbers, got values of type complex64"),
        (lambda X, y: (X, y[:1].repeat(ROWS)), LabelError, "expected two classes, found 1 class, '"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(
    change: Callable[..., tuple[Any, Any]], error: type, message: str, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    """Wrong shapes, lengths and kinds are named."""
    X, y = change(da.from_array(rows[0], chunks=(150, FEATURES)), rows[1])
    with pytest.raises(error, match=message):
        MarginCoresetClassifier().fit(X, y)


def test_a_row_that_is_not_finite_is_named(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """A NaN in a block is found in the first pass, with its row in the whole array."""
    X = rows[0].copy()
    X[407, 3] = np.nan
    with pytest.raises(ValueError, match="dask array: row 407, column 3"):
        MarginCoresetClassifier().fit(da.from_array(X, chunks=(100, FEATURES)), rows[1])


def test_what_dask_has_besides_is_sent_back(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """What looks like Dask but is neither array nor data frame is refused, not computed as a whole."""

    class Bag:
        def __dask_graph__(self) -> dict[str, Any]:
            return {}

    with pytest.raises(UsageError, match="Bag: expected a Dask array or DataFrame; convert it"):
        MarginCoresetClassifier().fit(Bag(), rows[1])


def test_rows_of_other_width_are_refused_at_prediction(
    rows: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store]
) -> None:
    """Every kind of rows must have the features of the training rows."""
    machine = MarginCoresetClassifier().fit(*rows)
    narrow = rows[0][:, :4].copy()
    for X in (narrow, da.from_array(narrow, chunks=100), make_store(narrow, rows[1])):
        with pytest.raises(ValueError, match="has 4 features, but MarginCoresetClassifier is expecting 6 features"):
            machine.predict(X)


def test_a_store_is_trained_and_predicted_by_its_path(
    rows: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store]
) -> None:
    """``fit`` and ``predict`` take the path of a store or the store itself; its labels are its own."""
    store = make_store(*rows)
    by_path = MarginCoresetClassifier(C=0.1).fit(store.path)
    by_store = MarginCoresetClassifier(C=0.1).fit(store)
    np.testing.assert_array_equal(by_path.coef_, by_store.coef_)
    np.testing.assert_array_equal(by_path.predict(store), by_path.predict(rows[0]))
    with pytest.raises(UsageError, match="a store has its own labels"):
        MarginCoresetClassifier().fit(store.path, rows[1])


def test_what_an_earlier_fit_knew_is_forgotten(
    rows: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store]
) -> None:
    """Support rows and column names of an earlier fit do not outlive a fit that does not know its own."""
    pandas = pytest.importorskip("pandas")
    machine = MarginCoresetClassifier().fit(pandas.DataFrame(rows[0]).add_prefix("c"), rows[1])
    assert len(machine.support_) == len(machine.coreset_)
    machine.fit(make_store(*rows))
    assert not {"support_", "coreset_", "feature_names_in_"} & set(vars(machine))


def test_rows_without_a_decision_are_named_by_their_number(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store]
) -> None:
    """Rows that are read chunk by chunk are counted from the first one, not from that of their chunk."""
    X, y = rows[0] * np.float32(1e-10), (rows[1] == "yes").astype(int)
    machine = MarginCoresetClassifier(scaling="maxabs").fit(X, y)
    X[321] = 3e38
    with pytest.raises(BadRow, match="X, row 321: expected finite"):
        machine.predict(zarr.create_array(tmp_path / "X", data=X, chunks=(100, FEATURES)))
    store = make_store(X, y, chunk_rows=64)
    with pytest.raises(BadRow, match=f"{store.name}, row 321: expected finite"):
        machine.predict(store)
