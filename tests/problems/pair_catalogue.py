"""The catalogue of real two-class problems beside the clone, and whether a hyperplane separates them.

What is said here about separability is what the data's own README says, where it was decided by other solvers, with one
exception: that README calls segmentation 0-rest inseparable because a linear program on a part of the rows ended below
1e-7; on all rows there is a margin of 9.9e-8, proven in float64 and found again by ``verify``.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse
from sklearn.datasets import load_svmlight_file

#: Features of the sets in the format of LIBSVM that have no more to them than their file.
LIBSVM = {"w1a": 300, "heart_scale": 13, "german.numer": 24, "fourclass": 2, "svmguide1": 4, "svmguide3": 21}
REST = None  #: the other side of a one-vs-rest problem


@dataclass(frozen=True)
class Pair:
    """Rows of class ``a`` against rows of class ``b`` (all others where ``b`` is REST)."""

    data: str
    a: Any
    b: Any
    separable: bool

    @property
    def name(self) -> str:
        """Such as ``usps 0-1``."""
        return f"{self.data} {self.a}-{'rest' if self.b is REST else self.b}"


def _pairs(data: str, classes: range | list[Any], *, inseparable: str = "") -> list[Pair]:
    """All pairs of classes; those named in ``inseparable`` ("0-5 1-2") are not separable."""
    no = set(inseparable.split())
    return [Pair(data, a, b, f"{a}-{b}" not in no) for a, b in combinations(classes, 2)]


def _rest(data: str, yes: list[Any], no: list[Any]) -> list[Pair]:
    return [Pair(data, a, REST, a in yes) for a in sorted([*yes, *no])]


SMALL = [
    *_pairs("iris", range(3), inseparable="1-2"),
    *_rest("iris", [0], [1, 2]),
    Pair("sonar", 0, 1, separable=True),
    *_pairs("segmentation", range(7), inseparable="1-6 2-6"),
    *_rest("segmentation", [0, 3, 4, 5], [1, 2, 6]),
    Pair("shuttle", 4, 5, separable=True),
    *_pairs("colon", [-1, 1]),
    *_pairs("leukemia", [-1, 1]),
    *[Pair(name, 0, 1, separable=False) for name in ("heart_statlog", "ionosphere")],
]

LARGE = [
    *_pairs("usps", range(10)),
    *_rest("usps", [0, 1, 5, 6, 7], [2, 3, 4, 8, 9]),
    *_pairs("optdigits", range(10)),
    *_rest("optdigits", [0, 2, 4, 6, 7], [1, 3, 5, 8, 9]),
    *_pairs("pendigits", range(10), inseparable="0-5 0-8 1-2 1-3 1-9 3-7 3-9 5-7 5-8 5-9 7-9"),
    *_rest("pendigits", [], list(range(10))),
    *_pairs("letter", range(1, 7), inseparable="1-3 2-4 2-5 2-6 3-5 3-6 4-6 5-6"),
    *[Pair("shuttle", a, b, yes) for a, b, yes in ((1, 5, True), (1, 4, False), (1, REST, False))],
    *[Pair("covtype", a, b, separable=True) for a, b in ((1, 4), (3, 7), (4, 5), (4, 7), (5, 7), (6, 7))],
    *[Pair("covtype", a, b, separable=False) for a, b in ((1, 2), (2, 3), (2, REST))],
    Pair("mushrooms", 0, 1, separable=True),
    *_pairs("splice one-hot", range(3), inseparable="1-2"),
    *_pairs("arcene", [-1, 1]),
    Pair("madelon", -1, 1, separable=False),
    *[Pair(name, 1, 2, separable=True) for name in ("PCMAC", "RELATHE", "BASEHOCK")],
    Pair("rcv1_small", -1, 1, separable=True),
    *_pairs("mnist", range(10), inseparable="2-3 2-8 3-5 3-8 4-9 5-8 7-9"),
    *[Pair("kddcup", 11, b, yes) for b, yes in ((18, True), (9, True), (REST, False))],
    *[
        Pair("20 newsgroups", a, b, separable=True)
        for a, b in (
            ("alt.atheism", "soc.religion.christian"),
            ("comp.graphics", "sci.med"),
            ("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
            ("rec.sport.baseball", "rec.sport.hockey"),
            ("talk.politics.guns", "talk.politics.misc"),
            ("sci.crypt", "sci.space"),
        )
    ],
    *[
        Pair("reuters", a, b, separable=True)
        for a, b in (
            ("earn", "acq"), ("earn", "crude"), ("acq", "crude"), ("crude", "trade"), ("ship", "crude"),
            ("trade", "interest"),
        )
    ],
    Pair("reuters", "money-fx", "interest", separable=False),
    *[Pair(name, a, b, separable=False) for name, a, b in (
        ("banana", -1, 1), ("twonorm", 0, 1), ("ringnorm", 0, 1), ("heart_c", 0, 1), ("pima", 0, 1), ("bupa", 1, 2),
        ("spambase", 0, 1), ("magic", 0, 1), ("adult", 0, 1), ("german", 0, 1), ("australian", 0, 1),
        ("mushroom", 0, 1),
    )],
]  # fmt: skip

#: Two-class sets of few rows that no hyperplane separates, beside those.
BESIDE = [
    *[Pair(name, -1, 1, separable=False) for name in ("w1a", "heart_scale", "german.numer", "fourclass", "svmguide3")],
    *[Pair(name, 0, 1, separable=False) for name in ("svmguide1", "banknote")],
    *_pairs("waveform_40", range(3), inseparable="0-1 0-2 1-2"),
]


def named(name: str) -> Pair:
    """The pair of this name, such as ``usps 0-1``."""
    return next(pair for pair in (*SMALL, *LARGE, *BESIDE) if pair.name == name)


def rows_of(pair: Pair, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d), float32 where that is exact, and labels -1 (class b) and 1 (class a)."""
    X, y = _data(pair.data, folder)
    mine = y == pair.a
    chosen = np.ones(len(y), bool) if pair.b is REST else mine | (y == pair.b)
    assert mine.any(), f"{pair.name}: no class {pair.a!r} among {np.unique(y)}"
    assert (chosen & ~mine).any(), f"{pair.name}: no class {pair.b!r} among {np.unique(y)}"
    X = X[np.flatnonzero(chosen)]
    if scipy.sparse.issparse(X):
        X = X.astype(np.float32).toarray()
    narrow = X.astype(np.float32)
    return narrow if np.array_equal(narrow, X) else X.astype(np.float64), np.where(mine[chosen], 1, -1)


@lru_cache(maxsize=2)
def _data(name: str, folder: Path) -> tuple[Any, np.ndarray]:
    """All rows (dense or CSR) and labels of a dataset."""
    special = {
        "usps": _usps, "covtype": _covtype, "mushrooms": _mushrooms, "splice one-hot": _splice, "rcv1_small": _rcv1,
        "mnist": _mnist, "20 newsgroups": _newsgroups, "reuters": _reuters, "banknote": _banknote,
    }  # fmt: skip
    if name in special:
        return special[name](folder)
    if name in LIBSVM:
        X, y = _svmlight(folder / f"libsvm/{name}.gz", LIBSVM[name], zero_based=False)
        return X, y.astype(np.int64)
    for group in ("asu_fs", "20newsgroups"):
        if (folder / group / f"{name}.mat").exists():
            content = scipy.io.loadmat(folder / group / f"{name}.mat")
            return content["X"], content["Y"].ravel().astype(np.int64)
    return _pmlb(name, folder)


def _pmlb(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    path = next(folder.glob(f"*/{name}.tsv.gz"))
    with gzip.open(path, "rt") as file:
        target = file.readline().rstrip("\n").split("\t").index("target")
        values = np.loadtxt(file, delimiter="\t")
    return np.delete(values, target, axis=1), values[:, target].astype(np.int64)


def _usps(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    content = np.load(folder / "usps/usps.npz")
    return content["X_train"], content["y_train"]


def _covtype(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(folder / "covtype/covtype_kaggle_train.csv.gz", "rt") as file:
        names = file.readline().rstrip("\n").replace('"', "").split(",")
        values = np.loadtxt(file, delimiter=",")
    label = names.index("Cover_Type")
    return np.delete(values, [names.index("Id"), label], axis=1), values[:, label].astype(np.int64)


def _svmlight(path: Path, features: int, *, zero_based: bool = True) -> tuple[Any, np.ndarray]:
    with gzip.open(path) as file:
        X, y = load_svmlight_file(file, n_features=features, zero_based=zero_based)
    return X, y


def _banknote(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    values = np.loadtxt(folder / "uci/banknote.csv", delimiter=",")
    return values[:, :-1], values[:, -1].astype(np.int64)


def _mushrooms(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    X, y = _svmlight(folder / "libsvm/mushrooms.train.gz", 127)
    return X, y.astype(np.int64)


def _splice(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    X, y = _pmlb("splice", folder)
    return np.hstack([X[:, [k]] == np.unique(X[:, k]) for k in range(X.shape[1])]).astype(np.float32), y


def _rcv1(folder: Path) -> tuple[Any, np.ndarray]:
    X, y = _svmlight(folder / "libsvm/rcv1_small.train.gz", 47237)
    return X, np.where(y > 0, 1, -1)


def _mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = (
        np.frombuffer(gzip.decompress((folder / f"mnist/train-{name}-ubyte.gz").read_bytes()), np.uint8, offset=offset)
        for name, offset in (("images-idx3", 16), ("labels-idx1", 8))
    )
    return images.reshape(-1, 784), labels


def _newsgroups(folder: Path) -> tuple[Any, np.ndarray]:
    meta = np.load(folder / "20newsgroups/bydate_meta.npz")
    train = np.flatnonzero(meta["is_train"])
    return scipy.sparse.load_npz(folder / "20newsgroups/bydate_tf.npz").tocsr()[train], meta["label_names"][
        meta["label"][train]
    ]


def _reuters(folder: Path) -> tuple[Any, np.ndarray]:
    """Documents of the train part with exactly one topic; the others have the label "several"."""
    meta = np.load(folder / "reuters21578/modapte_meta.npz")
    starts = meta["topics_indptr"]
    first = np.minimum(starts[:-1], len(meta["topics_indices"]) - 1)
    names = np.where(np.diff(starts) == 1, meta["topic_names"][meta["topics_indices"][first]], "several")
    train = np.flatnonzero(meta["is_train"])
    return scipy.sparse.load_npz(folder / "reuters21578/modapte_tf.npz").tocsr()[train], names[train]
