"""Real datasets pass through ingest with the rows and classes that their documentation counts."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, load_npz

from coremargin.data.check import check_store
from coremargin.data.ingest import ingest
from coremargin.data.store import Store

DATASETS: dict[str, tuple[str, dict[str, Any], int, dict[Any, int]]] = {
    "iris": ("uci/iris.tsv.gz", {}, 4, {0: 50, 1: 50, 2: 50}),
    "banknote, no header": ("uci/banknote.csv", {}, 4, {0: 762, 1: 610}),
    "HTRU2, label 'l'": ("uci/htru2.csv.gz", {}, 8, {0: 16_259, 1: 1_639}),
    "a9a, name without suffix": ("libsvm/a9a.gz", {}, 123, {-1: 24_720, 1: 7_841}),
    "a9a test part": ("libsvm/a9a.t.gz", {"features": 123}, 123, {-1: 12_435, 1: 3_846}),
    "w8a, rows of zeros": ("libsvm/w8a.gz", {}, 300, {-1: 48_270, 1: 1_479}),
    "mushrooms, two files": ("libsvm/mushrooms.*.gz", {"features": 126}, 126, {0: 4_208, 1: 3_916}),
    "skin, tab-separated": ("libsvm/Skin_NonSkin.txt.gz", {}, 3, {1: 50_859, 2: 194_198}),
    "rcv1, wide": ("libsvm/rcv1_small.test.gz", {"features": 47_237}, 47_237, {-1: 255, 1: 245}),
    "KDD normal and neptune": ("uci/kddcup.tsv.gz", {"only": ("11", "9")}, 41, {11: 97_277, 9: 107_201}),
    "covertype without Id": (
        "covtype/covtype_kaggle_train.csv.gz",
        {"drop": ("Id",), "only": (5, 7)},
        54,
        {5: 2_160, 7: 2_160},
    ),
}


@pytest.mark.specimens(3)
@pytest.mark.parametrize(("name", "options", "features", "classes"), DATASETS.values(), ids=DATASETS)
def test_a_real_dataset_is_counted_right(
    real_data: Path, tmp_path: Path, name: str, options: dict[str, Any], features: int, classes: dict[Any, int]
) -> None:
    """Features and rows of each class are those of the dataset's description."""
    report = ingest(str(real_data / name), tmp_path / "rows.zarr", **options)
    assert (report.features, report.classes) == (features, classes)
    store = Store.open(tmp_path / "rows.zarr")
    counts = store.scalars().counts.sum(axis=0).tolist()
    assert dict(zip(store.classes, counts, strict=True)) == classes


def test_svmlight_agrees_with_scikit_learn(real_data: Path, tmp_path: Path) -> None:
    """Values and labels of a real SVMlight file are those that scikit-learn reads."""
    from sklearn.datasets import load_svmlight_file

    for name in ("phishing", "german.numer", "heart_scale", "svmguide1", "fourclass"):
        with gzip.open(real_data / "libsvm" / f"{name}.gz") as file:
            X, y = load_svmlight_file(file)
        report = ingest(real_data / "libsvm" / f"{name}.gz", tmp_path / name, dtype="float64")
        store = Store.open(tmp_path / name)
        rows, codes = store.rows_at(np.arange(report.rows))
        assert np.array_equal(rows.toarray() if store.sparse else rows, X.toarray())
        assert np.array_equal(np.array(store.classes)[codes], y)


def test_mnist_arrives_from_arrays(real_data: Path, tmp_path: Path) -> None:
    """MNIST's zeros and ones pass from IDX bytes through NumPy arrays: 5,923 and 6,742."""
    images = np.frombuffer(gzip.decompress((real_data / "mnist/train-images-idx3-ubyte.gz").read_bytes()), "u1", -1, 16)
    labels = np.frombuffer(gzip.decompress((real_data / "mnist/train-labels-idx1-ubyte.gz").read_bytes()), "u1", -1, 8)
    report = ingest(images.reshape(-1, 784), tmp_path / "mnist.zarr", labels=labels, only=[0, 1])
    assert report.classes == {0: 5_923, 1: 6_742}
    assert report.dtype == "uint8"
    row = Store.open(tmp_path / "mnist.zarr").rows_at(np.array([0]))[0]
    assert np.array_equal(row[0], images.reshape(-1, 784)[np.flatnonzero(labels <= 1)[0]])


@pytest.mark.slow
def test_term_counts_arrive_from_sparse_matrices(real_data: Path, tmp_path: Path) -> None:
    """Two newsgroups, a sparse matrix of counts, become a dense store with the same sums."""
    sparse = pytest.importorskip("scipy.sparse")
    counts = sparse.load_npz(real_data / "20newsgroups/bydate_tf.npz")
    with np.load(real_data / "20newsgroups/bydate_meta.npz", allow_pickle=False) as meta:
        labels = meta["label_names"][meta["label"]]
    picked = np.flatnonzero(np.isin(labels, ["sci.crypt", "sci.space"]))[::7]
    report = ingest(counts[picked], tmp_path / "news.zarr", labels=labels[picked])
    store = Store.open(tmp_path / "news.zarr")
    assert set(report.classes) == {"sci.crypt", "sci.space"}
    assert store.statistics().total.sum() == counts[picked].sum()


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("name", "features", "share"), [("rcv1_small.train", 47_237, 0.002), ("w8a", 300, 0.04), ("a9a", 123, 0.12)]
)
def test_sparse_stores_agree_with_scikit_learn(
    real_data: Path, tmp_path: Path, name: str, features: int, share: float
) -> None:
    """Sparse where less than a tenth of the values is there; rows are those that scikit-learn reads, bit for bit."""
    from sklearn.datasets import load_svmlight_file

    path = real_data / "libsvm" / f"{name}.gz"
    with gzip.open(path) as file:
        X, y = load_svmlight_file(file, n_features=features)
    report = ingest(path, tmp_path / "s.zarr", features=features)
    assert (report.sparse, report.nonzeros) == (share < 0.1, X.nnz if share < 0.1 else X.shape[0] * features)
    store = Store.open(tmp_path / "s.zarr")
    rows, codes = store.rows_at(np.arange(store.rows))
    found = rows if store.sparse else csr_array(rows)
    expected = X.astype(np.float32)
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(found, part), getattr(expected, part))
    assert np.array_equal(np.array(store.classes)[codes], y)
    assert check_store(store.path).whole


@pytest.mark.parametrize("name", ["20newsgroups/bydate", "reuters21578/modapte"])
def test_matrices_of_scipy(real_data: Path, tmp_path: Path, name: str) -> None:
    """Term counts in files of scipy.sparse.save_npz become sparse stores of the same numbers."""
    X = load_npz(real_data / f"{name}_tf.npz")
    report = ingest(real_data / f"{name}_tf.npz", tmp_path / "s.zarr", unlabelled=True)
    assert (report.sparse, report.rows, report.nonzeros) == (True, X.shape[0], X.nnz)
    store = Store.open(tmp_path / "s.zarr")
    ids = np.random.default_rng(0).integers(0, store.rows, 300)
    assert (store.rows_at(ids)[0] != X[ids]).nnz == 0
