"""Rows of the golden set: those that scikit-learn bundles, and rows made from seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import sklearn.datasets

#: Of rows as they come: so many in the first commit, in the second, and appended later.
SHARES = (0.2, 0.7, 0.1)


@dataclass
class Rows:
    """Rows (n, d), labels (n,), and weights (n,) where there are some; chunk: bytes of one in the store."""

    X: Any
    y: np.ndarray
    weights: np.ndarray | None = None
    chunk: int = 1024

    def write(self, folder: Path, name: str, part: int) -> list[str]:
        """The files of one part, as words of ``ingest``: the source, its labels and its weights."""
        ends = np.round(np.cumsum((0.0, *SHARES)) * len(self.y)).astype(int)
        of = slice(ends[part], ends[part + 1])
        X, y, weights = (folder / f"{name}-{part}.{end}" for end in ("X.npy", "y.npy", "weights.npy"))
        if scipy.sparse.issparse(self.X):
            X = X.with_suffix(".npz")
            scipy.sparse.save_npz(X, self.X[of])
        else:
            np.save(X, self.X[of])
        np.save(y, self.y[of])
        if self.weights is None:
            return [str(X), "--labels", str(y)]
        np.save(weights, self.weights[of])
        return [str(X), "--labels", str(y), "--weights", str(weights)]


def linear(rows: int, features: int, *, margin: float, wrong: float = 0.0, classes: int = 2, **more: Any) -> Rows:
    """Normal rows, labelled by the nearest of some directions and pushed apart; a share has the next label."""
    rng = np.random.default_rng(20061)
    planes = np.linalg.qr(rng.standard_normal((features, classes)))[0].T
    X = rng.standard_normal((rows, features))
    y = (X @ planes.T).argmax(axis=1)
    X = (X + margin * planes[y]).astype(np.float32)
    return Rows(X, np.where(rng.random(rows) < wrong, (y + 1) % classes, y), **more)


def weighted(rows: Rows) -> Rows:
    """The same rows with weights, of which some among the first are 0."""
    rows.weights = np.random.default_rng(2).choice([0.5, 1.0, 3.0], len(rows.y))
    rows.weights[:60:7] = 0.0
    return rows


def mislabelled(rows: Rows, count: int) -> Rows:
    """The same rows, so many of which have the other label."""
    rows.y[50 : 50 + 40 * count : 40] ^= 1
    return rows


def sparse(rows: int, features: int, *, margin: float, wrong: float = 0.0, classes: int = 2) -> Rows:
    """Rows with a twentieth of their values."""
    made = linear(rows, features, margin=margin, classes=classes)
    made.X[np.random.default_rng(3).random(made.X.shape) > 0.05] = 0
    planes = np.random.default_rng(4).standard_normal((features, classes))
    scores = made.X @ planes
    made.y = scores.argmax(axis=1)
    made.X = scipy.sparse.csr_array(made.X)
    made.y = np.where(np.random.default_rng(5).random(rows) < wrong, (made.y + 1) % classes, made.y)
    return made


def rings(rows: int, noise: float = 0.15) -> Rows:
    """A disc in a ring, some of whose rows lie in the other."""
    X, y = sklearn.datasets.make_circles(rows, noise=noise, factor=0.5, random_state=0)
    return Rows(X.astype(np.float32), np.array(["out", "in"])[y], chunk=512)


def bundled(load: Callable[..., Any], *classes: int) -> Rows:
    """A data set of scikit-learn, shuffled; some of its classes."""
    X, y = load(return_X_y=True)
    mine = np.random.default_rng(6).permutation(np.flatnonzero(np.isin(y, classes) if classes else y >= 0))
    return Rows(X[mine].astype(np.float32), y[mine])


def table(rows: int) -> str:
    """A table with words, dates, numbers, gaps and keys, as CSV."""
    rng = np.random.default_rng(7)
    age, city, day, noise = (
        rng.integers(18, 80, rows),
        rng.integers(0, 4, rows),
        rng.integers(1, 29, rows),
        rng.random(rows),
    )
    lines = [
        f"{1000 + k},{'' if noise[k] < 0.05 else age[k]},{('Rome', 'Oslo', 'Bonn', '')[city[k]]},2026-01-{day[k]:02d},"
        f"{'yes' if age[k] + 10 * city[k] > 60 + 10 * (noise[k] - 0.5) else 'no'}"
        for k in range(rows)
    ]
    return "\n".join(["id,age,city,since,paid", *lines]) + "\n"


#: Stores of more than 64 MiB are read in stages, and in several scans where little memory is given.
BIG = (188_000, 100)
DATA: dict[str, Callable[[], Rows]] = {
    "apart": lambda: linear(400, 6, margin=0.1),
    "noisy": lambda: linear(500, 5, margin=0.3, wrong=0.08),
    "weighted": lambda: weighted(linear(500, 5, margin=0.3, wrong=0.08)),
    "weighted-apart": lambda: weighted(linear(400, 6, margin=0.1)),
    "wild": lambda: mislabelled(linear(300, 4, margin=0.3), 3),
    "tiny": lambda: linear(26, 3, margin=0.5, wrong=0.08, chunk=48),
    "wide": lambda: linear(60, 150, margin=0.1, wrong=0.1),
    "three": lambda: linear(450, 5, margin=0.2, classes=3),
    "three-noisy": lambda: linear(450, 5, margin=0.3, wrong=0.08, classes=3),
    "sparse-apart": lambda: sparse(300, 120, margin=0.0),
    "sparse": lambda: sparse(400, 150, margin=0.0, wrong=0.08),
    "sparse-three": lambda: sparse(300, 120, margin=0.0, wrong=0.05, classes=3),
    "rings": lambda: rings(240),
    "rings-apart": lambda: rings(240, noise=0.05),
    "digits": lambda: bundled(sklearn.datasets.load_digits, 1, 8),
    "ten-digits": lambda: bundled(sklearn.datasets.load_digits),
    "cancer": lambda: bundled(sklearn.datasets.load_breast_cancer),
    "wine": lambda: bundled(sklearn.datasets.load_wine),
    "big-apart": lambda: linear(*BIG, margin=0.1, chunk=1 << 19),
    "big-noisy": lambda: linear(*BIG, margin=0.3, wrong=0.05, chunk=1 << 19),
    "big-three": lambda: linear(*BIG, margin=0.5, wrong=0.05, classes=3, chunk=1 << 19),
}
