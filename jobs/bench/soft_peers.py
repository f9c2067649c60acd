"""Other tools on a store with a loss, each in a process of its own: one JSON line per setting, from cheap to dear.

::

    python jobs/bench/soft_peers.py METHOD STORE LOSS C WORK

What is told is the value 1/2 ||w||^2 + C sum loss(y (w.x + b)) over all rows in float64, with the best offset b for w,
which every method gets for nothing. ``seconds`` is fitting; for tools that read from disk, reading is part of it;
``load_seconds`` is reading before it. Tools that penalise the offset or know another parameter than C are given what
corresponds: alpha = lambda = regParam = 1 / (C n).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy import sparse
from scipy.optimize import minimize_scalar
from soft_formats import converted, signs_of

from coremargin.data.store import Store
from coremargin.engine.task import high_water_bytes

Hypothesis = tuple[np.ndarray, float]
_SLAB_BYTES = 32 << 20
_LIBLINEAR = {"hinge": (3,), "squared_hinge": (2, 1)}  #: -s: dual hinge; primal and dual squared hinge


@dataclass(frozen=True)
class Task:
    """One problem: rows, loss, C, and a folder for files."""

    store: Store
    loss: str
    cost: float
    work: Path

    @property
    def alpha(self) -> float:
        """What those who minimise a mean call C."""
        return 1.0 / (self.cost * self.store.rows)


def value_of(task: Task, hypothesis: Hypothesis) -> float:
    """The value of a hypothesis over all rows, float64, with its best offset."""
    w, b = hypothesis
    margins, signs = np.empty(task.store.rows), np.empty(task.store.rows)
    for chunk in range(task.store.chunks):
        start, stop = task.store.span(chunk)
        rows, codes = task.store.read(chunk)
        signs[start:stop] = signs_of(task.store, codes)
        step = max(1, _SLAB_BYTES // (8 * task.store.features))
        for first in range(0, len(codes), step):
            part = slice(start + first, min(stop, start + first + step))
            margins[part] = rows[first : first + step].astype(np.float64) @ w

    return best_value(margins, signs, b, float(0.5 * w @ w), task.loss, task.cost)


def best_value(margins: np.ndarray, signs: np.ndarray, b: float, penalty: float, loss: str, cost: float) -> float:
    """The value with products w.x (n,), signs (n,) and 1/2 ||w||^2, and the best offset, which is looked for near b."""

    def value(offset: float) -> float:
        slack = np.maximum(1.0 - signs * (margins + offset), 0.0)
        return float(penalty + cost * (slack.sum() if loss == "hinge" else slack @ slack))

    reach = 1.0 + abs(b)
    best = minimize_scalar(value, bounds=(b - reach, b + reach), method="bounded", options={"xatol": 1e-9 * reach})
    return min(float(best.fun), value(b))


def load(store: Store) -> tuple[Any, np.ndarray]:
    """All rows (n, d), dense or sparse as they are stored, and labels (n,) in {-1, 1}."""
    parts, labels = [], []
    for chunk in range(store.chunks):
        rows, codes = store.read(chunk)
        parts.append(rows.copy())
        labels.append(signs_of(store, codes))
    stacked = np.concatenate(parts) if isinstance(parts[0], np.ndarray) else sparse.vstack(parts, format="csr")
    return stacked, np.concatenate(labels)


def linear_svc(task: Task) -> Iterator[dict[str, Any]]:
    """scikit-learn's LinearSVC (LIBLINEAR) in memory."""
    from sklearn.svm import LinearSVC

    started = time.perf_counter()
    X, y = load(task.store)
    loading = time.perf_counter() - started
    for tolerance, iterations in ((1e-2, 100), (1e-4, 1000), (1e-6, 10_000)):
        model = LinearSVC(loss=task.loss, C=task.cost, tol=tolerance, max_iter=iterations, random_state=0)
        model.set_params(dual=True if task.loss == "hinge" else "auto")
        started = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - started
        yield _answer(task, _of(model), f"tol {tolerance:g}", seconds, loading)


def sgd(task: Task) -> Iterator[dict[str, Any]]:
    """SGDClassifier.partial_fit over the chunks of the store; reading is part of each epoch."""
    from sklearn.linear_model import SGDClassifier

    for average in (False, True):
        model = SGDClassifier(loss=task.loss, alpha=task.alpha, average=average, random_state=0)
        seconds, epochs = 0.0, 0
        for wanted in (1, 3, 10, 30):
            started = time.perf_counter()
            while epochs < wanted:
                for chunk in range(task.store.chunks):
                    rows, codes = task.store.read(chunk)
                    model.partial_fit(rows, signs_of(task.store, codes), classes=[-1, 1])
                epochs += 1
            seconds += time.perf_counter() - started
            setting = f"{epochs} epochs{', averaged' if average else ''}"
            yield _answer(task, _of(model), setting, seconds) | {"scans": epochs}


def liblinear(task: Task) -> Iterator[dict[str, Any]]:
    """LIBLINEAR's own command: reads SVMlight text."""
    rows, out = converted(task.store, "svmlight"), task.work / "liblinear.model"
    for tolerance in (1e-1, 1e-2, 1e-4):
        for solver in _LIBLINEAR[task.loss]:
            words = ["liblinear-train", "-s", solver, "-c", task.cost, "-B", 1, "-e", tolerance, "-q", rows, out]
            seconds = _run(words)
            yield _answer(task, _liblinear_model(out, task.store.features), f"-s {solver} -e {tolerance:g}", seconds)


def _liblinear_model(path: Path, features: int) -> Hypothesis:
    head, _, tail = path.read_text(encoding="ascii").partition("\nw\n")
    first = next(line for line in head.splitlines() if line.startswith("label")).split()[1]
    weights = np.array(tail.split(), float) * (1.0 if float(first) > 0 else -1.0)
    w = np.zeros(features)  # columns that are empty at the end are not written
    w[: len(weights) - 1] = weights[:-1]
    return w, float(weights[-1])


def vowpal_wabbit(task: Task) -> Iterator[dict[str, Any]]:
    """Vowpal Wabbit: online passes over its own text and the cache that it makes of it."""
    rows, readable = converted(task.store, "vw"), task.work / "vw.readable"
    for passes in (1, 3, 10, 30):
        cache = task.work / "vw.cache"
        cache.unlink(missing_ok=True)
        words = [
            sys.executable, "-m", "vowpalwabbit", "-d", rows, "--loss_function", "hinge", "--l2", task.alpha,
            "--passes", passes, "--cache_file", cache, "--holdout_off", "-b", 18, "--quiet",
            "--readable_model", readable,
        ]  # fmt: skip
        seconds = _run(words)
        yield _answer(task, _vw_model(readable, task.store.features), f"{passes} passes", seconds)


def _vw_model(path: Path, features: int) -> Hypothesis:
    """Features are named by their column, which is their place in the table; the constant has a place of its own.

    Weights are kept without the shrinking that the penalty asks for; its product is told beside them.
    """
    w, b, shrunk = np.zeros(features), 0.0, 1.0
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("l2_state "):
            shrunk = float(line.split()[1])
        place, _, weight = line.partition(":")
        if place.isdigit() and weight:
            if int(place) < features:
                w[int(place)] = float(weight.split()[0])
            elif int(place) == 116060:  # the constant's hash
                b = float(weight.split()[0])
    return shrunk * w, shrunk * b


def spark(task: Task) -> Iterator[dict[str, Any]]:
    """Spark MLlib's LinearSVC on Parquet, local[2]; starting Spark is not counted, reading is."""
    from pyspark.ml.classification import LinearSVC
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    rows = converted(task.store, "parquet")
    builder = (
        SparkSession.builder.master("local[2]").config("spark.driver.memory", "6g").config("spark.ui.enabled", False)
    )
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        for iterations in (10, 30, 100):
            started = time.perf_counter()
            table = session.read.parquet(str(rows))
            table = table.select("label", array_to_vector(col("values").cast("array<double>")).alias("features"))
            machine = LinearSVC(maxIter=iterations, regParam=task.alpha, standardization=False, tol=1e-8)
            model = machine.fit(table)
            seconds = time.perf_counter() - started
            hypothesis = np.array(model.coefficients.toArray()), float(model.intercept)
            yield _answer(task, hypothesis, f"{iterations} iterations", seconds)
    finally:
        session.stop()


def dask_ml(task: Task) -> Iterator[dict[str, Any]]:
    """dask-ml's Incremental(SGDClassifier) on a Dask array over the chunks; it has no vector machine of its own."""
    import dask
    import dask.array as da
    from dask_ml.wrappers import Incremental
    from sklearn.linear_model import SGDClassifier

    store = task.store
    spans = [store.span(chunk) for chunk in range(store.chunks)]
    X = da.concatenate([
        da.from_delayed(dask.delayed(_rows_of)(store.name, k), (stop - start, store.features), dtype=store.dtype)
        for k, (start, stop) in enumerate(spans)
    ])  # fmt: skip
    y = da.concatenate([
        da.from_delayed(dask.delayed(_signs_of)(store.name, k), (stop - start,), dtype=np.int8)
        for k, (start, stop) in enumerate(spans)
    ])  # fmt: skip
    model = Incremental(SGDClassifier(loss=task.loss, alpha=task.alpha, random_state=0), shuffle_blocks=False)
    seconds, epochs = 0.0, 0
    with dask.config.set(scheduler="threads", num_workers=2):
        for wanted in (1, 3, 10):
            started = time.perf_counter()
            while epochs < wanted:
                model.partial_fit(X, y, classes=[-1, 1])
                epochs += 1
            seconds += time.perf_counter() - started
            yield _answer(task, _of(model.estimator_), f"{epochs} epochs", seconds)


def _rows_of(name: str, chunk: int) -> np.ndarray:
    return np.array(Store.open(name).read(chunk)[0])


def _signs_of(name: str, chunk: int) -> np.ndarray:
    store = Store.open(name)
    return signs_of(store, store.read(chunk)[1])


def _run(words: Sequence[object]) -> float:
    started = time.perf_counter()
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{words[0]}: ended with code {done.returncode}: {done.stderr.strip()[-300:]}")
    return time.perf_counter() - started


def _of(model: Any) -> Hypothesis:
    return np.asarray(model.coef_[0], np.float64), float(model.intercept_[0])


def _answer(
    task: Task, hypothesis: Hypothesis, setting: str, seconds: float, load_seconds: float = 0.0
) -> dict[str, Any]:
    """One line; memory is looked at before the value is."""
    peak = _peak_bytes()
    return {
        "setting": setting, "seconds": seconds, "load_seconds": load_seconds, "value": value_of(task, hypothesis),
        "peak_rss_bytes": peak,
    }  # fmt: skip


def _peak_bytes() -> int:
    """Memory of the tool: of the largest process that was started and ended, or of this one and those at work."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    family = psutil.Process().children(recursive=True)
    return ended if ended and not family else high_water_bytes(os.getpid()) + sum(p.memory_info().rss for p in family)


METHODS: dict[str, Callable[[Task], Iterator[dict[str, Any]]]] = {
    "linear_svc": linear_svc,
    "sgd": sgd,
    "liblinear": liblinear,
    "vw": vowpal_wabbit,
    "spark": spark,
    "dask_ml": dask_ml,
}


def main(argv: Sequence[str]) -> None:
    """Print one JSON line per setting."""
    method, path, loss, cost, work = argv
    task = Task(Store.open(path), loss, float(cost), Path(work))
    warnings.simplefilter("ignore")
    for answer in METHODS[method](task):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
