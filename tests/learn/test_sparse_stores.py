"""From a sparse store to a model, its verification, predictions and metrics: all as from the same rows kept dense."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy.sparse import load_npz

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.data.synth import Recipe, synth
from coremargin.data.writer import StoreWriter
from coremargin.errors import ClaimRefuted, UsageError
from coremargin.models.evaluate import evaluate
from coremargin.models.model import Model
from coremargin.models.predict import predict
from coremargin.verify import verify

RECIPE = Recipe(rows=1200, features=300, density=0.04, margin=0.05, chunk_bytes=16_000, seed=3)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A separable sparse store of eight chunks."""
    return synth(tmp_path_factory.mktemp("sparse") / "s.zarr", RECIPE)


@pytest.fixture(scope="module")
def dense(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The same rows kept dense."""
    path = tmp_path_factory.mktemp("dense") / "d.zarr"
    rows, codes = store.rows_at(np.arange(store.rows))
    with StoreWriter.create(path, features=store.features, chunk_bytes=400_000) as writer:
        writer.write(rows, np.array(store.classes)[codes])
    return Store.open(path)


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    "parameters", [{}, {"intercept": False}, {"loss": "squared_hinge", "C": 0.5}, {"loss": "hinge"}], ids=str
)
def test_models_agree(store: Store, dense: Store, tmp_path: Path, parameters: dict[str, object]) -> None:
    """Both models are certified and verified, and their bounds hold for each other."""
    found = {}
    for source in (store, dense):
        path = tmp_path / source.path.stem
        model = coremargin.train(source.path, out=path, **parameters)
        assert isinstance(model, Model)
        assert model.status == "certified"
        assert verify(path, source.path).ok
        found[source.sparse] = model.certificate
    for one, other in ((found[True], found[False]), (found[False], found[True])):
        assert one.lower <= other.upper * (1 + 1e-9)


def test_predictions_agree(store: Store, dense: Store, tmp_path: Path) -> None:
    """Labels, decision values and metrics of a model are the same for sparse and for dense rows."""
    model = coremargin.train(store)
    assert isinstance(model, Model)
    values = {}
    for source in (store, dense):
        predict(model, source, tmp_path / source.path.name)
        group = zarr.open_group(tmp_path / source.path.name, mode="r")
        values[source.sparse] = np.asarray(group["decision"]), np.asarray(group["label"])
    np.testing.assert_allclose(values[True][0], values[False][0], rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(values[True][1], values[False][1])
    one, two = evaluate(model, store).to_dict(), evaluate(model, dense).to_dict()
    assert (one.pop("source"), two.pop("source")) == (store.name, dense.name)
    assert one.pop("lowest_margin") == pytest.approx(two.pop("lowest_margin"), rel=1e-9)
    assert one == two
    assert one["accuracy"] == 1.0


def test_verify_refutes_another_store(store: Store, dense: Store, tmp_path: Path) -> None:
    """The same rows kept dense are other content: a certificate is about the store it names."""
    coremargin.train(store, out=tmp_path / "m")
    with pytest.raises(ClaimRefuted, match="not what was trained on"):
        verify(tmp_path / "m", dense.path)


def test_appended_rows_are_scanned(tmp_path: Path, store: Store) -> None:
    """A model of a store that grew is certified for all of it, and an older one is refuted by it."""
    rows, codes = store.rows_at(np.arange(store.rows))
    labels = np.array(store.classes)[codes]
    ingest(rows[:500], tmp_path / "s.zarr", labels=labels[:500])
    coremargin.train(tmp_path / "s.zarr", out=tmp_path / "old")
    ingest(rows[500:], tmp_path / "s.zarr", labels=labels[500:], append=True)
    model = coremargin.train(tmp_path / "s.zarr", out=tmp_path / "new")
    assert model.rows == 1200
    assert verify(tmp_path / "new", tmp_path / "s.zarr").ok
    with pytest.raises(ClaimRefuted, match="rows were appended after training"):
        verify(tmp_path / "old", tmp_path / "s.zarr")


def test_the_same_bits_from_store_and_memory(store: Store) -> None:
    """In the same chunks, rows on disk and rows in memory give the same hypothesis to the bit."""
    rows, codes = store.rows_at(np.arange(store.rows))
    labels = np.array(store.classes)[codes]
    memory = ArraySource(rows.astype(np.float32), labels, classes=store.classes, chunk_rows=store.chunk_rows)
    assert memory.digest == store.digest
    one, two = coremargin.train(store), coremargin.train(memory)
    assert isinstance(one, Model)
    assert isinstance(two, Model)
    np.testing.assert_array_equal(one.w, two.w)
    assert one.b == two.b


@pytest.mark.slow
def test_the_same_bits_on_a_cluster(store: Store) -> None:
    """Workers in processes of their own open the sparse store and give the same hypothesis to the bit."""
    one, two = (coremargin.train(store, cluster=where, block="64 KiB") for where in ("threads", "embedded"))
    assert isinstance(one, Model)
    assert isinstance(two, Model)
    np.testing.assert_array_equal(one.w, two.w)


def test_weights_through_the_python_door(rng: np.random.Generator) -> None:
    """Rows in memory take weights: a row of weight 0 is as good as absent; a store has its own."""
    X = rng.normal(size=(60, 4))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0, 1, -1)
    weights = np.ones(60)
    weights[40:] = 0.0
    one = coremargin.train(X, y, weights=weights, loss="squared_hinge", epsilon=1e-8)
    two = coremargin.train(X[:40], y[:40], loss="squared_hinge", epsilon=1e-8)
    assert one.certificate.upper == pytest.approx(two.certificate.upper, rel=1e-7)
    with pytest.raises(UsageError, match="weights: a store has its own"):
        coremargin.train("rows.zarr", weights=weights)


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{}, {"loss": "hinge"}, {"loss": "squared_hinge"}], ids=str)
def test_newsgroups(real_data: Path, tmp_path: Path, parameters: dict[str, object]) -> None:
    """Baseball against hockey, 33,843 words: certified and verified from the sparse store, hard and soft."""
    X = load_npz(real_data / "20newsgroups" / "bydate_tf.npz")
    with np.load(real_data / "20newsgroups" / "bydate_meta.npz", allow_pickle=False) as meta:
        names, label, train = meta["label_names"], meta["label"], meta["is_train"]
    pair = [list(names).index(name) for name in ("rec.sport.baseball", "rec.sport.hockey")]
    kept = np.flatnonzero(train & np.isin(label, pair))
    ingest(X[kept], tmp_path / "s.zarr", labels=names[label[kept]])
    model = coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m", **parameters)
    assert isinstance(model, Model)
    assert model.status == "certified"
    assert verify(tmp_path / "m", tmp_path / "s.zarr").ok
    others = np.flatnonzero(~train & np.isin(label, pair))
    accuracy = evaluate(model, ArraySource(X[others], names[label[others]])).accuracy
    assert accuracy > 0.9
