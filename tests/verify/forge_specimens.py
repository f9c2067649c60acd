"""Small stores and trained models of every kind, for those who attack the verifier: what is true of each is known.

A specimen is a model that `coremargin.train` made of a few dozen rows, and the rows themselves as numbers that no code
of coremargin has touched since. One verification of a specimen takes some milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import coremargin
from coremargin.data.amend import set_weights, write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import CoremarginError
from coremargin.problems.fleet import make as fleet_make
from coremargin.problems.soft import make, near_margin
from coremargin.problems.soft_ball import soft_ball
from coremargin.problems.soft_ellipsoid import soft_ellipsoid
from coremargin.verify.examine import examine

Record = dict[str, Any]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Rows:
    """What a store was made from: X (n, d) float64, exactly what it holds; None: a row without label.

    dtype: the precision in which rows are read, which is wider than that of narrow types.
    """

    path: Path
    X: np.ndarray
    labels: list[Any]
    weights: np.ndarray | None
    dtype: str
    sparse: bool
    digest: str

    @cached_property
    def weighed(self) -> np.ndarray:
        """The weight (n,) of each row, 0 for those that count for nothing."""
        known = np.array([label is not None for label in self.labels], dtype=float)
        return known if self.weights is None else known * self.weights

    @cached_property
    def classes(self) -> list[Any]:
        """The labels in order of appearance."""
        return list(dict.fromkeys(label for label in self.labels if label is not None))


@dataclass(frozen=True, eq=False)
class Specimen:
    """A model and its store. ``files``: what it consists of, by path below ``model``, as bytes."""

    name: str
    model: Path
    rows: Rows
    files: dict[str, bytes] = field(default_factory=dict)
    held: dict[str, Arrays] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        """Where the store is."""
        return self.rows.path

    @property
    def fleet(self) -> bool:
        """Whether it is many models."""
        return "fleet.json" in self.files

    @cached_property
    def record(self) -> Record:
        """The content of ``model.json``, or of ``fleet.json``."""
        return dict(json.loads(self.files["fleet.json" if self.fleet else "model.json"]))

    def arrays(self, below: str = "") -> Arrays:
        """The content of an ``arrays.npz``; whoever changes an array changes a copy."""
        if below not in self.held:
            with np.load(self.model / below / "arrays.npz") as found:
                self.held[below] = dict(found)
        return dict(self.held[below])


def write_store(path: Path, X: np.ndarray, labels: list[Any], **options: Any) -> Rows:
    """A store of these rows; options: weights, dtype, sparse, chunk_rows, compression."""
    weights, dtype = options.get("weights"), options.get("dtype", "float32")
    sparse = bool(options.get("sparse"))
    held, read = _held(X, dtype)
    with StoreWriter.create(
        path, features=X.shape[1], dtype=dtype, sparse=sparse, weighted=weights is not None,
        chunk_rows=options.get("chunk_rows", 64), chunk_bytes=4096, overwrite=True,
        compression=options.get("compression", "none"),
    ) as writer:  # fmt: skip
        writer.write(sp.csr_array(held) if sparse else held, list(labels), weights)
    return Rows(path, held.astype(np.float64), list(labels), weights, read, sparse, Store.open(path).digest)


def _held(X: np.ndarray, dtype: str) -> tuple[np.ndarray, str]:
    """Rows as a store of this type holds them, those of bfloat16 in float32, and the precision in which they are read.

    Integers hold ten times the rows, rounded.
    """
    if dtype == "bfloat16":
        return (np.ascontiguousarray(X, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32), "float32"
    if dtype in ("int8", "uint8", "int16"):
        return np.rint(10 * X).astype(dtype), "float32"
    return np.ascontiguousarray(X, dtype=dtype), "float32" if dtype == "float16" else dtype


def _two(seed: int, n: int, d: int, *, margin: float = 0.4, noise: float = 0.0) -> tuple[np.ndarray, list[Any]]:
    """Rows of classes "no" and "yes": ``margin`` apart, or with ``noise`` in the side that they are given."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    side = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    side[:2] = (-1, 1)
    X[:, 0] = side * (margin + np.abs(X[:, 0])) + noise * rng.standard_normal(n)
    X[:, 1:] += 0.5
    return X, ["yes" if one > 0 else "no" for one in side]


def _three(seed: int, n: int, noise: float) -> tuple[np.ndarray, list[Any]]:
    """Rows of three classes (1, 2 and 3) around three corners."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    return 3.0 * np.eye(3)[y] + noise * rng.standard_normal((n, 3)), (y + 1).tolist()


def _changed(path: Path, X: np.ndarray, labels: list[Any]) -> Rows:
    """A store whose labels were wrong or missing: of chunks 0 and 2, then of 2 and 3, one of them appended between.

    Then rows of chunks 0 and 3 are taken out, and one gets another weight.
    """
    other, first = {"no": "yes", "yes": "no"}, list(labels)
    for row in (3, 40, 59):
        first[row] = other[first[row]]
    first[5] = first[41] = None
    write_store(path, X[:48], first[:48], chunk_rows=16)
    write_labels(path, [3, 5, 41], [labels[row] for row in (3, 5, 41)])
    with StoreWriter.append(path) as writer:
        writer.write(X[48:].astype(np.float32), first[48:])
    write_labels(path, [40, 59], [labels[row] for row in (40, 59)])
    weights = np.ones(60)
    weights[[7, 9, 50]] = 0.0, 2.5, 0.0
    set_weights(path, [7, 9, 50], weights[[7, 9, 50]])
    held = X.astype(np.float32).astype(np.float64)
    return Rows(path, held, labels, weights, "float32", False, Store.open(path).digest)


def _store(folder: Path, kind: str) -> Rows:
    """The stores by name."""
    path = folder / f"{kind}.zarr"
    if kind == "apart":
        return write_store(path, *_two(1, 40, 3))
    if kind == "apart64":
        return write_store(path, *_two(2, 36, 3), dtype="float64", chunk_rows=16)
    if kind == "zstd":
        return write_store(path, *_two(11, 40, 3), chunk_rows=16, compression="zstd")
    if kind == "changed":
        return _changed(path, *_two(12, 60, 3))
    if kind in ("half", "bits"):
        return write_store(path, *_two(16, 40, 3), dtype="float16" if kind == "half" else "bfloat16", chunk_rows=16)
    if kind == "bytes":
        return write_store(path, *_two(17, 60, 3, noise=1.0), dtype="int8", compression="zstd")
    if kind == "mixed":
        return write_store(path, *_two(3, 40, 3, noise=1.5))
    if kind == "noisy":
        X, labels = _two(4, 60, 3, noise=1.0)
        labels[7] = None
        weights = np.random.default_rng(4).choice([0.0, 0.5, 1.0, 1 / 3, 2.0], 60)
        return write_store(path, X, labels, weights=weights)
    if kind in ("noisy64", "stages"):
        seed, rows, form = (5, 50, {"dtype": "float64"}) if kind == "noisy64" else (13, 400, {"chunk_rows": 20})
        return write_store(path, *_two(seed, rows, 3, noise=1.0), **form)
    if kind == "holes":
        X, labels = _two(6, 40, 4)
        X[np.random.default_rng(6).random(X.shape) < 0.4] = 0.0
        X[:, 0] = np.where(X[:, 0] == 0, [0.5 if label == "yes" else -0.5 for label in labels], X[:, 0])
        return write_store(path, X, labels, sparse=True, dtype="float64")
    if kind in ("heavy", "lz4"):
        X, labels = _two(7, 60, 4, noise=1.0)
        X[np.random.default_rng(7).random(X.shape) < 0.4] = 0.0
        weights = np.random.default_rng(7).choice([0.0, 0.5, 1.0, 2.0], 60)
        packed = {"compression": "lz4", "chunk_rows": 16} if kind == "lz4" else {}
        return write_store(path, X, labels, sparse=True, weights=weights, **packed)
    if kind == "wrong":
        X, labels = _two(8, 20, 2)
        for row in (4, 11, 15):
            labels[row] = "yes" if labels[row] == "no" else "no"
        return write_store(path, X, labels)
    if kind == "wrong-corners":
        X, labels = _three(16, 30, 0.3)
        for row in (4, 11, 21):
            labels[row] = labels[row] % 3 + 1
        labels[7] = None
        return write_store(
            path, X, labels, weights=np.random.default_rng(16).choice([0.0, 1.0, 2.0], 30, p=[0.1, 0.6, 0.3])
        )
    three = {"corners": (9, 30, 0.3), "heap": (10, 45, 1.2), "three-stages": (15, 400, 1.2)}[kind]
    return write_store(path, *_three(*three), **({"chunk_rows": 20} if kind == "three-stages" else {}))


#: Specimens by name: (store, what to ask of `coremargin.train`).
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "hard": ("apart", {}),
    "hard-origin": ("apart64", {"intercept": False}),
    "hard-overlap": ("mixed", {}),
    "hard-stopped": ("apart64", {}),
    "hinge": ("noisy", {"loss": "hinge", "C": 0.5, "class_weight": [1.0, 2.0]}),
    "hinge-origin": ("noisy64", {"loss": "hinge", "C": 0.7, "intercept": False}),
    "hinge-stages": ("stages", {"loss": "hinge", "C": 0.5, "epsilon": 0.1}),
    "squared": ("noisy64", {"loss": "squared_hinge", "C": 0.5, "class_weight": "balanced"}),
    "squared-stages": ("stages", {"loss": "squared_hinge", "C": 0.5, "epsilon": 0.1}),
    "squared-origin": ("noisy", {"loss": "squared_hinge", "C": 2.0, "intercept": False}),
    "tried": ("noisy", {"loss": "auto", "C": 0.5}),
    "tried-origin": ("noisy64", {"loss": "auto", "intercept": False}),
    "logistic": ("noisy", {"loss": "logistic", "C": 0.5, "class_weight": [1.0, 2.0]}),
    "logistic-origin": ("noisy64", {"loss": "logistic", "C": 0.7, "intercept": False, "scaling": "standard"}),
    "logistic-sparse": ("heavy", {"loss": "logistic", "class_weight": "balanced", "epsilon": 1e-6}),
    "relative": ("noisy", {"loss": "hinge", "C": 0.5, "class_weight": [1.0, 2.0], "relative_margin": 1.5}),
    "relative-origin": (
        "noisy64", {"loss": "hinge", "C": 0.7, "relative_margin": 2.0, "intercept": False, "scaling": "standard"},
    ),
    "relative-sparse": (
        "heavy", {"loss": "hinge", "relative_margin": 1.2, "class_weight": "balanced", "epsilon": 1e-6},
    ),
    "standard": ("noisy", {"loss": "hinge", "scaling": "standard"}),
    "minmax": ("noisy64", {"loss": "squared_hinge", "scaling": "minmax"}),
    "maxabs": ("apart64", {"scaling": "maxabs"}),
    "rownorm": ("apart", {"scaling": "rownorm"}),
    "metric": ("apart", {"scaling": "ellipsoid"}),
    "metric-hinge": ("noisy", {"loss": "hinge", "scaling": "ellipsoid"}),
    "sparse-hard": ("holes", {}),
    "sparse-hinge": ("heavy", {"loss": "hinge", "C": 0.5}),
    "sparse-standard": ("holes", {"loss": "squared_hinge", "scaling": "standard"}),
    "sparse-classes": ("holes", {"classes": "crammer-singer"}),
    "outliers": ("wrong", {"outliers": "0..3", "epsilon": 1e-6}),
    "outliers-one": ("wrong", {"outliers": 3}),
    "outliers-none": ("wrong", {"outliers": 1}),
    "classes": ("corners", {"classes": "crammer-singer"}),
    "classes-origin": ("corners", {"classes": "crammer-singer", "intercept": False}),
    "classes-overlap": ("heap", {"classes": "crammer-singer"}),
    "classes-hinge": ("heap", {"classes": "crammer-singer", "loss": "hinge", "class_weight": "balanced"}),
    "classes-outliers": ("wrong-corners", {"classes": "crammer-singer", "outliers": 3, "epsilon": 1e-6}),
    "classes-outliers-none": ("wrong-corners", {"classes": "crammer-singer", "outliers": 1}),
    "classes-outliers-origin": (
        "wrong-corners", {"classes": "crammer-singer", "outliers": 4, "intercept": False, "epsilon": 0.01},
    ),
    "fleet": ("heap", {"classes": "ovr", "loss": "hinge", "C": [0.1, 1.0]}),
    "fleet-folds": ("heap", {"classes": "ovr", "loss": "squared_hinge", "C": [0.5], "folds": 2}),
    "fleet-hard": ("corners", {"classes": "ovr"}),
    "fleet-stages": ("three-stages", {"classes": "ovr", "loss": "hinge", "C": [0.5, 2.0], "epsilon": 0.2}),
    "ball": ("apart", {"one_class": "ball"}),
    "ball-class": ("noisy64", {"one_class": "ball", "only": "yes", "scaling": "standard", "epsilon": 1e-9}),
    "ball-sparse": ("heavy", {"one_class": "ball", "epsilon": 0.1}),
    "ball-outliers": ("apart64", {"one_class": "ball", "outliers": 2, "epsilon": 1e-6}),
    "ball-outliers-class": ("noisy", {"one_class": "ball", "outliers": 3, "only": "yes", "epsilon": 0.01}),
    "ellipsoid": ("apart", {"one_class": "ellipsoid"}),
    "ellipsoid-class": ("noisy64", {"one_class": "ellipsoid", "only": "yes", "scaling": "standard", "epsilon": 1e-6}),
    "ellipsoid-sparse": ("heavy", {"one_class": "ellipsoid", "epsilon": 0.1}),
    "soft-ellipsoid": ("apart", {"one_class": "ellipsoid", "nu": 0.1, "epsilon": 1e-6}),
    "soft-ellipsoid-class": ("noisy64", {
        "one_class": "ellipsoid", "nu": 0.3, "only": "yes", "scaling": "standard", "epsilon": 1e-6,
    }),
    "soft-ellipsoid-sparse": ("heavy", {"one_class": "ellipsoid", "nu": 0.2, "epsilon": 0.1}),
    "soft-ball": ("apart", {"one_class": "ball", "nu": 0.1, "epsilon": 1e-6}),
    "soft-ball-class": ("noisy64", {"one_class": "ball", "nu": 0.3, "only": "yes", "scaling": "standard"}),
    "soft-ball-sparse": ("heavy", {"one_class": "ball", "nu": 0.2}),
    "kernel-ball": ("apart", {"one_class": "ball", "kernel": "rbf", "gamma": 0.3, "epsilon": 1e-6}),
    "kernel-ball-poly": ("noisy64", {
        "one_class": "ball", "kernel": "poly", "degree": 2, "coef0": 1.0, "only": "yes", "scaling": "standard",
    }),
    "kernel-ball-soft": ("noisy", {"one_class": "ball", "kernel": "rbf", "gamma": 0.5, "nu": 0.2, "epsilon": 1e-6}),
    "kernel-ball-sparse": ("heavy", {"one_class": "ball", "kernel": "rbf", "nu": 0.3}),
    "soft-ball-stages": ("stages", {"one_class": "ball", "nu": 0.1, "epsilon": 0.02}),
    "half": ("half", {}),
    "half-hinge": ("half", {"loss": "hinge", "scaling": "standard"}),
    "bits": ("bits", {"one_class": "ball"}),
    "bytes": ("bytes", {"loss": "squared_hinge", "C": 0.5}),
    "packed": ("zstd", {}),
    "changed": ("changed", {}),
    "packed-sparse": ("lz4", {"loss": "hinge", "C": 0.5}),
    "pair": ("noisy", {"loss": "hinge", "C": [0.1, 1.0]}),
    "pair-folds": ("noisy64", {"loss": "squared_hinge", "C": [0.5, 5.0], "folds": 2}),
}  # fmt: skip

#: The same with kernels, for attacks of their own.
KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "kernel-hinge": ("noisy", {"kernel": "rbf", "gamma": 0.5, "loss": "hinge", "C": 0.5, "class_weight": [1.0, 2.0]}),
    "kernel-squared": ("noisy64", {"kernel": "rbf", "gamma": 0.3, "loss": "squared_hinge", "C": 0.7}),
    "kernel-hard": ("apart", {"kernel": "rbf", "gamma": 0.5}),
    "kernel-outliers": ("wrong", {"kernel": "rbf", "gamma": 0.5, "outliers": 2, "epsilon": 1e-4}),
    "kernel-outliers-origin": (
        "wrong", {"kernel": "poly", "gamma": 1.0, "coef0": 1.0, "outliers": 3, "intercept": False, "epsilon": 1e-4},
    ),
    "kernel-poly": ("noisy64", {"kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 1.0, "loss": "hinge"}),
    "kernel-classes": ("heap", {"kernel": "rbf", "gamma": 0.2, "loss": "hinge", "classes": "ovr"}),
    "kernel-sparse": ("heavy", {"kernel": "rbf", "gamma": 0.5, "loss": "hinge"}),
    "kernel-scaled": ("noisy", {"kernel": "rbf", "loss": "squared_hinge", "scaling": "standard"}),
    "kernel-relative": ("noisy", {
        "kernel": "rbf", "gamma": 0.2, "loss": "hinge", "C": 5.0, "class_weight": [1.0, 2.0], "relative_margin": 1.3,
    }),
    "kernel-relative-classes": (
        "heap", {"kernel": "poly", "gamma": 0.5, "loss": "hinge", "classes": "ovr", "relative_margin": 2.0},
    ),
}  # fmt: skip

#: And many of them together.
KERNEL_FLEETS: dict[str, tuple[str, dict[str, Any]]] = {
    "kernel-grid": ("noisy64", {"kernel": "rbf", "gamma": [0.3, 1.0], "loss": "hinge", "C": [0.5, 5.0], "folds": 2}),
    "kernel-classes-grid": (
        "heap", {"kernel": "rbf", "gamma": ["scale", 0.5], "loss": "squared_hinge", "classes": "ovr", "folds": 2},
    ),
}  # fmt: skip

#: What is attacked with 10,000 mutations each: by name, the specimens that take turns.
KINDS: dict[str, tuple[str, ...]] = {
    "hard": ("hard", "hard-origin", "hard-overlap", "hard-stopped"),
    "soft": ("hinge", "hinge-origin", "hinge-stages", "squared", "squared-origin", "squared-stages"),
    "logistic": ("logistic", "logistic-origin", "logistic-sparse"),
    "relative": ("relative", "relative-origin", "relative-sparse"),
    "tried": ("tried", "tried-origin"),
    "scaled": ("standard", "minmax", "maxabs", "rownorm"),
    "metric": ("metric", "metric-hinge"),
    "narrow": ("half", "half-hinge", "bits", "bytes"),
    "sparse": ("sparse-hard", "sparse-hinge", "sparse-standard", "sparse-classes"),
    "outliers": ("outliers", "outliers-one", "outliers-none"),
    "several": ("classes", "classes-origin", "classes-overlap", "classes-hinge"),
    "several-outliers": ("classes-outliers", "classes-outliers-none", "classes-outliers-origin"),
    "fleet": ("fleet", "fleet-folds", "fleet-hard", "fleet-stages"),
    "pair": ("pair", "pair-folds"),
    "ball": ("ball", "ball-class", "ball-sparse"),
    "ball-outliers": ("ball-outliers", "ball-outliers-class"),
    "ellipsoid": ("ellipsoid", "ellipsoid-class", "ellipsoid-sparse"),
    "soft-ellipsoid": ("soft-ellipsoid", "soft-ellipsoid-class", "soft-ellipsoid-sparse"),
    "soft-ball": ("soft-ball", "soft-ball-class", "soft-ball-sparse", "soft-ball-stages"),
    "kernel-ball": ("kernel-ball", "kernel-ball-poly", "kernel-ball-soft", "kernel-ball-sparse"),
}

#: The same with mutated stores: of dense rows, some compressed, some with weights; of narrow types; of sparse rows with
#: weights; with labels that were changed.
STORES: dict[str, tuple[str, ...]] = {
    "store": ("hard", "hard-origin", "packed", "hinge"),
    "store-narrow": ("half", "half-hinge", "bytes"),
    "store-sparse": ("sparse-hinge", "packed-sparse"),
    "store-with-changes": ("changed",),
}


def _stopped(model: Path) -> None:
    """Make an honest claim of a run that was stopped from that of one that was not: half of the margin."""
    record = json.loads((model / "model.json").read_text())
    record["status"], claims = "stopped", record["certificate"]
    claims["lower"] /= 2
    claims["ratio"] = claims["lower"] / claims["upper"]
    (model / "model.json").write_text(json.dumps(record))


class Specimens:
    """All of them, each trained when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[str, Rows] = {}
        self._made: dict[str, Specimen] = {}

    def rows(self, kind: str) -> Rows:
        """A store by name."""
        if kind not in self._rows:
            self._rows[kind] = _store(self.folder, kind)
        return self._rows[kind]

    def __getitem__(self, name: str) -> Specimen:
        if name not in self._made:
            kind, asked = {**ASKED, **KERNELS, **KERNEL_FLEETS}[name]
            rows, model = self.rows(kind), self.folder / name
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(near_margin, "NEAR_BYTES_LEAST", 1)  # some rows are far from the band
                if name.startswith("soft-ellipsoid"):  # not all rows are sent
                    patch.setattr(soft_ellipsoid, "BAND_LEAST", 40)
                    least = soft_ellipsoid.SoftEllipsoid
                    patch.setattr(least, "__init__", partialmethod(least.__init__, sample_bytes=1920))
                if name.endswith("-stages"):
                    patch.setattr(near_margin, "NEAR_BYTES_LEAST", 200 * 32)
                    small = partial(near_margin.SoftMargin, sample_bytes=960, memory_bytes=60_000, in_stages=True)
                    for module in (make, fleet_make):
                        patch.setattr(module, "SoftMargin", lambda *given, **_: small(*given[:6]))
                    patch.setattr(soft_ball, "SMALL_BYTES", 0)
                    patch.setattr(soft_ball, "BAND_LEAST", 100)
                    ball = soft_ball.SoftBall
                    patch.setattr(ball, "__init__", partialmethod(ball.__init__, sample_bytes=960))
                coremargin.train(rows.path, out=model, overwrite=True, cluster="threads", **asked)
            if name == "hard-stopped":
                _stopped(model)
            self._made[name] = Specimen(name, model, rows, files_of(model))
        return self._made[name]


def files_of(model: Path) -> dict[str, bytes]:
    """What a model's folder consists of, but for how its run went."""
    names = ("model.json", "arrays.npz", "fleet.json")
    return {str(path.relative_to(model)): path.read_bytes() for path in sorted(model.rglob("*")) if path.name in names}


Edit = Callable[[Any], Any]


def edited(
    specimen: Specimen, place: Path, record: Edit | None = None, arrays: Edit | None = None, below: str = ""
) -> Path:
    """A copy of a model with another record or other arrays; each function changes what it is given."""
    for name, content in specimen.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    inside = place / below
    if record is not None:
        path = inside / ("fleet.json" if specimen.fleet and not below else "model.json")
        values = json.loads(path.read_text())
        record(values)
        path.write_text(json.dumps(values))
    if arrays is not None:
        with np.load(inside / "arrays.npz") as found:
            content = dict(found)
        arrays(content)
        np.savez(inside / "arrays.npz", **content)
    return place


def refused(
    specimen: Specimen, place: Path, record: Edit | None = None, arrays: Edit | None = None, below: str = "",
    kernel: Callable[..., Any] | None = None,
) -> set[str]:  # fmt: skip
    """The checks that a changed model fails, or the error that it makes, none where it is taken; kernel: a function."""
    edited(specimen, place, record, arrays, below)
    try:
        return {check.name for check in examine(place, specimen.store, kernel=kernel).failures}
    except CoremarginError as error:
        return {type(error).__name__}


def entry(path: str, value: Any) -> Callable[[Record], None]:
    """A change of one entry of a record, such as "certificate.lower": to a value, or by a function of what it is."""

    def change(record: Record) -> None:
        *way, last = path.split(".")
        for key in way:
            record = record[key]
        record[last] = value(record[last]) if callable(value) else value

    return change
