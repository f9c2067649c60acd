"""scikit-learn on a store, in a process of its own: one JSON line per setting, so that a limit keeps what is there.

::

    python jobs/bench/peers.py squared_hinge|hinge|sgd STORE

The margin of a direction w is min y (w.x + b) / ||w|| over all rows in float64, with the best offset b for w, which
is given to every method for nothing. Fitting alone is timed; loading is told apart.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC

from coremargin.data.store import Store
from coremargin.engine.task import high_water_bytes

#: From cheap to dear. The margin is hard where C is large; liblinear then needs many iterations.
SVC_SETTINGS = ((1.0, 100), (100.0, 1000), (1e4, 10_000), (1e6, 100_000))
SGD_SETTINGS = ((1e-4, False), (1e-6, False), (1e-6, True))  #: alpha, averaging
SGD_EPOCHS = (1, 3, 10)
_SLAB_BYTES = 32 << 20


def load(store: Store) -> tuple[np.ndarray, np.ndarray]:
    """All rows (n, d) in the store's dtype, and labels (n,) in {-1, 1}."""
    X = np.empty((store.rows, store.features), store.dtype)
    y = np.empty(store.rows, np.int8)
    for chunk in range(store.chunks):
        start, stop = store.span(chunk)
        X[start:stop], codes = store.read(chunk)
        y[start:stop] = 2 * codes - 1
    return X, y


def margin_of(w: np.ndarray, store: Store) -> float:
    """Geometric margin of the direction w (d,) over all rows, float64, with its best offset; negative: no separator."""
    lowest, highest = np.inf, -np.inf
    for chunk in range(store.chunks):
        rows, codes = store.read(chunk)
        step = max(1, _SLAB_BYTES // (8 * store.features))
        for first in range(0, len(rows), step):
            values = rows[first : first + step].astype(np.float64) @ w
            positive = codes[first : first + step] == 1
            lowest = min(lowest, values[positive].min(initial=np.inf))
            highest = max(highest, values[~positive].max(initial=-np.inf))
    length = float(np.linalg.norm(w))
    return float(lowest - highest) / 2 / length if length else -np.inf


def linear_svc(store: Store, loss: str) -> Iterator[dict[str, Any]]:
    """LinearSVC on all rows in memory, C from soft to hard."""
    started = time.perf_counter()
    X, y = load(store)
    load_seconds = time.perf_counter() - started
    for C, iterations in SVC_SETTINGS:
        model = LinearSVC(loss=loss, C=C, max_iter=iterations, tol=1e-6, random_state=0)
        model.set_params(dual=True if loss == "hinge" else "auto")
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        seconds = time.perf_counter() - started
        ended = "converged" if int(np.max(model.n_iter_)) < iterations else "at its iteration limit"
        yield _answer(model, store, f"C {C:g}, {ended}", seconds, load_seconds)


def sgd(store: Store) -> Iterator[dict[str, Any]]:
    """SGDClassifier streaming over the chunks of the store; reading is part of each epoch."""
    for alpha, average in SGD_SETTINGS:
        model = SGDClassifier(loss="hinge", alpha=alpha, average=average, random_state=0)
        seconds, epochs = 0.0, 0
        for wanted in SGD_EPOCHS:
            started = time.perf_counter()
            while epochs < wanted:
                for chunk in range(store.chunks):
                    rows, codes = store.read(chunk)
                    model.partial_fit(rows, codes, classes=[0, 1])
                epochs += 1
            seconds += time.perf_counter() - started
            averaged = ", averaged" if average else ""
            yield _answer(model, store, f"alpha {alpha:g}{averaged}, {epochs} epochs", seconds, 0.0) | {"scans": epochs}


def _answer(model: Any, store: Store, setting: str, seconds: float, load_seconds: float) -> dict[str, Any]:
    peak = high_water_bytes(os.getpid())  # ru_maxrss would begin with what the bench had when it started this process
    margin = margin_of(np.asarray(model.coef_[0], np.float64), store)
    return {
        "setting": setting, "seconds": seconds, "load_seconds": load_seconds, "margin": margin, "peak_rss_bytes": peak
    }  # fmt: skip


def main(argv: Sequence[str]) -> None:
    """Print one JSON line per setting."""
    kind, path = argv
    store = Store.open(path)
    answers = sgd(store) if kind == "sgd" else linear_svc(store, kind)
    for answer in answers:
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
