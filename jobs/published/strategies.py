"""What each published strategy proves on sets that a hyperplane separates: `python jobs/published/strategies.py DATA`.

DATA: the folder that holds ``uci/``, ``libsvm/``, ``mnist/``, ``asu_fs/`` and ``20newsgroups/``. A cell has reads of
the store, the best margin of the strategy's own hyperplanes and the best that was proven, both as shares of the least
upper bound of all strategies. With ``--limit none`` the numbers are the same on any machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file

from coremargin.data.arrays import ArraySource
from coremargin.engine.executors import InProcess
from coremargin.learn.compare import compare, names_of
from coremargin.problems.hard.comparison import Run, share
from coremargin.units import parse_seconds

Rows = tuple[Any, np.ndarray]


def gaussian(_: Path, margin: float, rows: int, features: int) -> Rows:
    """Normal rows, moved away from a hyperplane by the margin on their side."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=features)
    w /= np.linalg.norm(w)
    X = rng.normal(size=(rows, features))
    y = np.where(X @ w > 0, 1, -1)
    return (X + np.outer(y * margin, w)).astype(np.float32), y


def pmlb(data: Path, name: str, positive: float) -> Rows:
    """A table with a header and a column ``target``; the class of this number against the rest."""
    with gzip.open(data / "uci" / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
        names = file.readline().split()
        table = np.loadtxt(file)
    at = names.index("target")
    return np.delete(table, at, axis=1), np.where(table[:, at] == positive, 1, -1)


def svmlight(data: Path, name: str) -> Rows:
    """A file of sparse rows; the larger label against the other."""
    with gzip.open(data / "libsvm" / f"{name}.gz") as file:
        X, y = load_svmlight_file(file)
    return csr_array(X), np.where(y == y.max(), 1, -1)


def matlab(data: Path, place: str) -> Rows:
    """Arrays X and Y of a file of scikit-feature."""
    found = loadmat(data / place)
    y = found["Y"].ravel()
    X = found["X"]
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X, np.float64), np.where(y == y.max(), 1, -1)


def zeros_and_ones(data: Path) -> Rows:
    """The digits 0 and 1 of MNIST, pixels from 0 to 1."""
    with gzip.open(data / "mnist" / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(data / "mnist" / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    mine = labels < 2
    return pixels[mine] / np.float32(255), np.where(labels[mine] == 1, 1, -1)


SETS: dict[str, Callable[[Path], Rows]] = {
    "1e5 x 50, margin 0.5": partial(gaussian, margin=0.5, rows=100_000, features=50),
    "1e5 x 50, margin 0.1": partial(gaussian, margin=0.1, rows=100_000, features=50),
    "1e5 x 50, margin 0.02": partial(gaussian, margin=0.02, rows=100_000, features=50),
    "iris, setosa": partial(pmlb, name="iris", positive=0),
    "mushrooms": partial(svmlight, name="mushrooms.train"),
    "MNIST, 0 and 1": zeros_and_ones,
    "sonar": partial(pmlb, name="sonar", positive=1),
    "leukemia": partial(matlab, place="asu_fs/leukemia.mat"),
    "colon": partial(matlab, place="asu_fs/colon.mat"),
    "arcene": partial(matlab, place="asu_fs/arcene.mat"),
    "BASEHOCK": partial(matlab, place="20newsgroups/BASEHOCK.mat"),
    "PCMAC": partial(matlab, place="20newsgroups/PCMAC.mat"),
    "rcv1": partial(svmlight, name="rcv1_small.train"),
    "1e6 x 100, margin 0.5": partial(gaussian, margin=0.5, rows=1_000_000, features=100),
    "1e6 x 100, margin 0.1": partial(gaussian, margin=0.1, rows=1_000_000, features=100),
    "1e6 x 100, margin 0.02": partial(gaussian, margin=0.02, rows=1_000_000, features=100),
}
#: Rows of a chunk, which a walk reads at a time.
CHUNK_ROWS = 10_000


def line(run: Run, found: Any) -> str:
    """A row of the table."""
    if run.refused:
        return f"| `{run.strategy}` | refused: {run.refused} |"
    shares = ["" if share(found, one) is None else f"{share(found, one):.4f}" for one in (run.own, run.lower)]
    counts = ["" if one is None else f"{one:,.0f}" for one in (run.updates, run.updates_at_most)]
    return f"| `{run.strategy}` | {run.reads:.2f} | {' | '.join([*shares, *counts])} | {run.rows:,} | {run.ended} |"


def main() -> None:
    """Print a table for each set; the JSON file has all figures, and grows by a set at a time."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", choices=list(SETS), action="append", help="some of the sets")
    parser.add_argument("--strategies", default="all")
    parser.add_argument("--epsilon", type=float, default=1e-2)
    parser.add_argument("--reads", type=float, default=40.0)
    parser.add_argument("--limit", default="20s", help='seconds of each strategy, or "none"')
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked, figures = parser.parse_args(), dict[str, Any]()
    for name in asked.only or SETS:
        X, y = SETS[name](asked.data)
        source = ArraySource(X, y.tolist(), chunk_rows=CHUNK_ROWS)
        started = time.perf_counter()
        found = compare(
            source,
            InProcess(1),
            names_of(asked.strategies),
            epsilon=asked.epsilon,
            reads=asked.reads,
            limit=None if asked.limit == "none" else parse_seconds(asked.limit),
        )
        fast = [run.bytes_read for run in found.runs if run.strategy == "fast"]
        less = [run.strategy for run in found.runs if (run.lower or 0.0) > 0 and fast and run.bytes_read < fast[0]]
        bounds = f"margin {found.lower} to {found.upper}"
        print(f"\n{name}: {source.rows:,} x {source.features}, {bounds}, {time.perf_counter() - started:.0f} s")
        print(f"proved a margin with fewer bytes than fast: {', '.join(less) or 'none'}" if fast else "")
        print("| strategy | reads | own | proven | updates | theorem | rows | ended by |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        print("\n".join(line(run, found) for run in found.runs))
        sys.stdout.flush()
        figures[name] = found.to_json()
        if asked.json is not None:
            asked.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
