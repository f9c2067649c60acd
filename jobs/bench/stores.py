"""The data of the bench: synthetic stores made on the fly, and real ones where the files are present.

Synthetic: rows N(0, I), float32, pushed 0.5 away from a random plane (``coremargin synth``). Real data is divided by
one number (pixels: 255) or per feature by its largest absolute value; all methods see the same rows.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, issparse, load_npz

from coremargin.data.store import Store
from coremargin.data.synth import Recipe, recipe_of, synth
from coremargin.data.writer import StoreWriter

Rows = tuple[Any, np.ndarray]  #: rows, dense or CSR, and labels
GB = 10**9


@dataclass(frozen=True)
class Settings:
    """Sizes and limits of a run."""

    work: Path
    data: Path
    rows: int = 1_000_000
    features: int = 100
    epsilon: float = 1e-3
    repetitions: int = 5
    sizes: tuple[float, ...] = (1, 4, 16)  #: GB
    workers_gb: float = 4  #: store of the comparison of workers
    small_rows: int = 20_000  #: of the store on which the paper's strategy is run to its end
    small_features: int = 10
    max_scans: int = 1000  #: limits of the reference strategies
    strategy_s: float = 60
    peer_s: float = 45  #: limit of one scikit-learn method on one dataset
    train_s: float = 120  #: limit of training on one dataset, where others are compared with it
    real: tuple[str, ...] = ("mnist", "kdd", "newsgroups")
    flipped: tuple[float, ...] = (2, 10)  #: percent of the labels, where a loss is measured
    soft: tuple[str, ...] = ("a9a", "newsgroups_sparse")  #: real data, where a loss is measured

    labelled: tuple[tuple[int, int], ...] = ((1_000_000, 50),)  #: rows and features, where few labels are asked for
    #: real data, where few labels are asked for
    pairs: tuple[str, ...] = ("mnist_zero_two", "usps_zero_one", "usps_three_five", "reuters")
    campaigns: int = 1000  #: simulated ones, to count false claims
    terabytes: tuple[float, ...] = (1, 10)  #: of stores that are made while they are read
    taxi_rows: int = 10_000_000  #: of the table of mixed columns
    hashed: int = 1 << 18  #: features that texts are hashed into
    texts: int = 0  #: generated ones instead of real ones
    large_rows: int = 0  #: of the store that has few new rows per update, 0: none is made
    large_features: int = 50  #: of the same
    slots: tuple[int, int, int, float] = (200, 5, 4253, 2.35)  #: workers, threads of each, blocks, seconds of each

    def synthetic(self, rows: int, features: int, name: str, noise: float = 0.0) -> Path:
        """A store of synthetic rows; one that is there already with the same recipe is used again."""
        path, recipe = self.work / f"{name}.zarr", Recipe(rows, features, noise=noise, seed=1)
        if path.exists() and recipe_of(Store.open(path)) == recipe:
            return path
        synth(path, recipe, overwrite=path.exists())
        return path

    def million(self) -> Path:
        """The store of the main target."""
        return self.synthetic(self.rows, self.features, "million")

    def noisy(self, percent: float) -> Path:
        """The store of the main target with flipped labels."""
        return self.synthetic(self.rows, self.features, f"flipped-{percent:g}", noise=percent / 100)

    def sized(self, gigabytes: float) -> Path:
        """A store of so many GB (1e9 bytes of rows and labels)."""
        rows = max(1, round(gigabytes * GB / (4 * self.features + 4)))
        return self.synthetic(rows, self.features, f"size-{gigabytes:g}")

    def room_for(self, gigabytes: float) -> bool:
        """Whether the disk holds a store of that size, with a reserve."""
        kept = self.work / f"size-{gigabytes:g}.zarr"
        return kept.exists() or shutil.disk_usage(self.work).free > 1.1 * gigabytes * GB + GB

    def real_store(self, name: str) -> Path | None:
        """A store of real rows, or None where its file is absent."""
        source, load = {**REAL, **OTHERS}[name]
        if not (self.data / source).is_file():
            return None
        path = self.work / f"{name}.zarr"
        if not path.exists():
            X, y = load(self.data / source)
            with StoreWriter.create(path, features=X.shape[1], sparse=issparse(X)) as writer:
                writer.write(X, y, origin=name)
        return path


def _scaled(X: np.ndarray) -> np.ndarray:
    largest = np.abs(X).max(axis=0)
    return np.asarray(X / np.where(largest > 0, largest, 1), dtype=np.float32)


def mnist(images: Path, other: int = 1) -> Rows:
    """Zeros against another digit of the 60,000 training images, pixels 0 to 1."""
    pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16).reshape(-1, 784)
    labels = images.with_name("train-labels-idx1-ubyte.gz")
    y = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
    mine = np.isin(y, (0, other))
    return (pixels[mine] / np.float32(255)).astype(np.float32), y[mine].astype(np.int32)


def mnist_all(images: Path) -> Rows:
    """All 60,000 training images of ten digits, pixels 0 to 1."""
    pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16).reshape(-1, 784)
    labels = images.with_name(images.name.replace("images-idx3", "labels-idx1"))
    y = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
    return (pixels / np.float32(255)).astype(np.float32), y.astype(np.int32)


def usps(file: Path, pair: tuple[int, int]) -> Rows:
    """One digit against another of the 7,291 training images, pixels 0 to 1."""
    with np.load(file, allow_pickle=False) as content:
        X, y = content["X_train"], content["y_train"]
    mine = np.isin(y, pair)
    return X[mine].astype(np.float32), y[mine].astype(np.int32)


def kdd(table: Path) -> Rows:
    """Normal connections (label 11) against neptune (9), each feature divided by its largest value."""
    with gzip.open(table, "rt", encoding="utf-8") as file:
        file.readline()
        X = np.loadtxt(file, delimiter="\t", dtype=np.float64)
    y = X[:, -1].astype(np.int32)
    mine = (y == 9) | (y == 11)
    return _scaled(X[mine, :-1]), y[mine]


def kdd_rest(table: Path) -> Rows:
    """Normal connections (label 11) against all others, as they are."""
    with gzip.open(table, "rt", encoding="utf-8") as file:
        file.readline()
        X = np.loadtxt(file, delimiter="\t", dtype=np.float32)
    return X[:, :-1], (X[:, -1] == 11).astype(np.int32)


def newsgroups(counts: Path) -> Rows:
    """The rows of ``newsgroups_sparse`` made dense."""
    X, y = newsgroups_sparse(counts)
    return X.toarray(), y


def newsgroups_sparse(counts: Path) -> Rows:
    """PC against Mac hardware, training messages, term counts, each divided by its largest count."""
    with np.load(counts.with_name("bydate_meta.npz"), allow_pickle=False) as meta:
        names, label, train = list(meta["label_names"]), meta["label"], meta["is_train"].astype(bool)
    pair = [names.index("comp.sys.ibm.pc.hardware"), names.index("comp.sys.mac.hardware")]
    mine = np.flatnonzero(np.isin(label, pair) & train)
    return _counts(counts, mine), label[mine].astype(np.int32)


def reuters(counts: Path) -> Rows:
    """Earn against acq: training stories with exactly one of the two topics, term counts, as ``newsgroups_sparse``."""
    with np.load(counts.with_name("modapte_meta.npz"), allow_pickle=False) as meta:
        starts, topics, names = meta["topics_indptr"], meta["topics_indices"], list(meta["topic_names"])
        train = meta["is_train"].astype(bool)
    has = csr_array((np.ones(len(topics), np.int8), topics, starts), shape=(len(train), len(names)))
    earn, acq = (has[:, [names.index(name)]].toarray().ravel() > 0 for name in ("earn", "acq"))
    mine = np.flatnonzero((earn != acq) & train)
    return _counts(counts, mine), earn[mine].astype(np.int32)


def _counts(counts: Path, mine: np.ndarray) -> Any:
    """Some rows of term counts, each divided by the largest count that these rows have of the term."""
    rows = load_npz(counts).tocsr()[mine].astype(np.float64)
    largest = rows.max(axis=0).toarray().ravel()
    return csr_array(rows @ diags_array(1.0 / np.where(largest > 0, largest, 1)), dtype=np.float32)


def adult(text: Path) -> Rows:
    """a9a: one-hot features, made dense."""
    from sklearn.datasets import load_svmlight_file

    with gzip.open(text) as file:
        X, y = load_svmlight_file(file, n_features=123, dtype=np.float32)
    return np.ascontiguousarray(X.toarray()), y.astype(np.int32)


REAL: dict[str, tuple[str, Callable[[Path], Rows]]] = {
    "mnist": ("mnist/train-images-idx3-ubyte.gz", mnist),
    "mnist_zero_two": ("mnist/train-images-idx3-ubyte.gz", partial(mnist, other=2)),
    "usps_zero_one": ("usps/usps.npz", partial(usps, pair=(0, 1))),
    "usps_three_five": ("usps/usps.npz", partial(usps, pair=(3, 5))),
    "reuters": ("reuters21578/modapte_tf.npz", reuters),
    "kdd": ("uci/kddcup.tsv.gz", kdd),
    "a9a": ("libsvm/a9a.gz", adult),
    "newsgroups": ("20newsgroups/bydate_tf.npz", newsgroups),
    "newsgroups_sparse": ("20newsgroups/bydate_tf.npz", newsgroups_sparse),
}
#: What is not of two classes that a hyperplane may separate.
OTHERS: dict[str, tuple[str, Callable[[Path], Rows]]] = {
    "mnist_all": ("mnist/train-images-idx3-ubyte.gz", mnist_all),
    "mnist_test": ("mnist/t10k-images-idx3-ubyte.gz", mnist_all),
    "kdd_rest": ("uci/kddcup.tsv.gz", kdd_rest),
}
TITLES = {
    "a9a": "a9a",
    "mnist": "MNIST, 0 against 1",
    "mnist_zero_two": "MNIST, 0 against 2",
    "usps_zero_one": "USPS, 0 against 1",
    "usps_three_five": "USPS, 3 against 5",
    "reuters": "Reuters-21578, earn against acq",
    "kdd": "KDD Cup 99, normal against neptune",
    "newsgroups": "20 newsgroups, PC against Mac hardware, dense",
    "newsgroups_sparse": "20 newsgroups, PC against Mac hardware, sparse",
}
