"""Random honest jobs of all kinds on hostile little stores: what is drawn, and what has to be true of the outcome.

A job ends in a model or in an error of our own. What is saved verifies, whatever its status, and no bound lies on the
wrong side of what other solvers reach (exact_judge.py). A number names a job for ever: ``drawn(number)`` says which.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import coremargin
from coremargin.errors import CoremarginError
from exact_judge import Content, lies

#: How often each kind of job comes.
KINDS = {
    "hard": 5, "hinge": 5, "squared_hinge": 4, "auto": 2, "several C": 2, "folds": 2, "ovr": 2, "ovr soft": 2,
    "crammer-singer": 3, "crammer-singer soft": 3, "kernel": 3, "kernel soft": 5, "kernel folds": 2, "outliers": 3,
    "map": 1,
}  # fmt: skip
#: Numbers from this one on are of jobs with the logistic loss.
LOGISTIC = 1_000_000
#: And from this one on with a relative margin.
RELATIVE = 2_000_000
#: And from this one on with a relative margin and a kernel.
KERNEL_RELATIVE = 3_000_000
#: Of three or four classes.
SEVERAL = ("ovr", "ovr soft", "crammer-singer", "crammer-singer soft")
STEPS = 8


@dataclass
class Job:
    """What is trained on what; ``steps`` times the store changes and the model is made again."""

    number: int
    kind: str
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    store: dict[str, Any]
    asked: dict[str, Any]
    sparse: bool = False
    steps: int = 0
    words: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"job {self.number}: {self.kind}, {self.X.shape[0]} x {self.X.shape[1]} rows, {', '.join(self.words)}"
        return f"{told}; {self.store} {'sparse ' * self.sparse}{'weighted ' * (self.weights is not None)}{self.asked}"


def drawn(number: int) -> Job:
    """The job of a number."""
    rng = np.random.default_rng([39, number])
    kind = str(rng.choice(list(KINDS), p=np.array(list(KINDS.values())) / sum(KINDS.values())))
    for first, later in ((LOGISTIC, "logistic"), (RELATIVE, "relative margin"), (KERNEL_RELATIVE, "kernel relative")):
        kind = later if number >= first else kind
    several = kind in SEVERAL or (kind in ("kernel soft", "kernel relative") and rng.random() < 0.3)
    classes = int(rng.integers(3, 5)) if several else 2
    n = classes if rng.random() < 0.08 else int(rng.integers(max(classes, 3), 9 if kind == "outliers" else 21))
    if kind in ("folds", "kernel folds"):
        n = max(n, 10)
    d = int(rng.choice([1, 1, 2, 3, 4, 6]))
    words: list[str] = []
    X, y = _rows(rng, n, d, classes, words)
    if kind in ("folds", "kernel folds"):
        y = rng.permutation(np.arange(n) % classes)
    dtype = str(rng.choice(["float64", "float64", "float32"]))
    with np.errstate(over="ignore", under="ignore"):
        X = _alike(rng, X.astype(dtype), words).astype(np.float64)
    store: dict[str, Any] = {"dtype": dtype}
    if rng.random() < 0.4:
        store["chunk_bytes"] = int(rng.choice([1, 3])) * d * np.dtype(dtype).itemsize
    job = Job(number, kind, X, y, _weights(rng, n, words), store, _asked(rng, kind, classes), words=words)
    job.sparse = bool(rng.random() < 0.2) and kind != "outliers" and "map" not in job.asked
    if rng.random() < 0.1:
        job.steps = STEPS
    return job


def _rows(rng: np.random.Generator, n: int, d: int, classes: int, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) and classes (n,), each with a row; words: what is strange about them."""
    planes = rng.standard_normal((classes, d))
    X = rng.standard_normal((n, d))
    y = (X @ planes.T).argmax(axis=1) if classes > 2 else (X @ planes[0] > 0).astype(np.int64)
    y[:classes] = np.arange(classes)
    apart = float(rng.choice([0.0, 1e-9, 1e-3, 1.0, 30.0]))
    X = X + apart * (planes[y] if classes > 2 else np.outer(2 * y - 1, planes[0]))
    words.append(f"{apart:g} apart")
    match rng.integers(0, 8):
        case 0:
            X, size = X * 10.0 ** rng.integers(-6, 7, d), "columns of many sizes"
        case 1:
            X, size = X * 10.0 ** rng.integers(-8, 9, (n, 1)), "rows of many sizes"
        case 2:
            power = float(rng.uniform(-320, 150))
            X, size = X * 10.0 ** (power / 2) * 10.0 ** (power / 2), f"of size 1e{power:.0f}"
        case 3:
            X[:, int(rng.integers(0, d))] = 10.0 ** rng.uniform(-10, 14)
            size = "a constant column"
        case 4:
            X[int(rng.integers(0, n))] *= 10.0 ** rng.uniform(3, 120)
            size = "a huge row"
        case _:
            size = "plain"
    offset = float(rng.choice([0.0, 0.0, 0.0, 1.0, 1e4, 1e7, 1e10, 1e14])) * float(np.abs(X).max())
    X = X + (offset if np.isfinite(offset) else 0.0)
    words += [size, f"offset {offset:.0e}"]
    if rng.random() < 0.2:
        step = 0.25 * float(np.abs(X).max()) or 1.0
        X = np.round(X / step) * step
        words.append("on a grid")
    if rng.random() < 0.2:
        y[rng.integers(0, n)] = rng.integers(0, classes)
        words.append("one label changed")
    if len(np.unique(y)) < classes:
        y[:classes] = np.arange(classes)
    return X, y


def _alike(rng: np.random.Generator, X: np.ndarray, words: list[str]) -> np.ndarray:
    """Some rows made equal to others, or but for the last bit, or zero."""
    copies = rng.integers(0, len(X), len(X) // 2)
    match rng.integers(0, 8):
        case 0:
            X[: len(copies)] = X[copies]
            words.append("duplicates")
        case 1:
            X[: len(copies)] = np.nextafter(X[copies], X.dtype.type(rng.choice([-np.inf, np.inf])))
            words.append("neighbours in the last bit")
        case 2:
            X[:] = np.where(rng.random(X.shape) < 0.5, X[0], np.nextafter(X[0], X.dtype.type(np.inf)))
            words.append("all alike but for the last bit")
        case 3:
            X[rng.random(X.shape) < 0.5] = 0.0
            words.append("zeros")
    return X


def _weights(rng: np.random.Generator, n: int, words: list[str]) -> np.ndarray | None:
    match rng.integers(0, 6):
        case 0:
            return np.asarray(rng.choice([0.0, 0.5, 1.0, 2.0], n))
        case 1:
            power = float(rng.uniform(-100, 100))
            words.append(f"weights of 1e{power:.0f}")
            return np.asarray(10.0**power * rng.random(n))
        case 2:
            words.append("weights of many sizes")
            return np.asarray(10.0 ** rng.uniform(-8, 8, n))
    return None


def _asked(rng: np.random.Generator, kind: str, classes: int) -> dict[str, Any]:
    """The parameters of a job of this kind."""
    asked: dict[str, Any] = {
        "epsilon": float(rng.choice([0.5, 0.1, 1e-3, 1e-3, 1e-6])), "intercept": bool(rng.random() < 0.7),
    }  # fmt: skip
    cost = float(10.0 ** (rng.uniform(-12, 13) if rng.random() < 0.3 else rng.uniform(-2, 3)))
    loss = str(rng.choice(["hinge", "squared_hinge"]))
    match kind:
        case "hinge" | "squared_hinge" | "auto" | "logistic":
            asked |= {"loss": kind, "C": cost}
        case "relative margin" | "kernel relative":
            bound = 1.0 + float(10.0 ** (rng.uniform(-15, 5.9) if rng.random() < 0.3 else rng.uniform(-1, 1)))
            asked |= {"loss": "hinge", "C": cost, "relative_margin": bound}
        case "several C" | "folds":
            asked |= {"loss": loss, "C": [cost, 10 * cost]} | ({"folds": 3} if kind == "folds" else {})
        case "ovr":
            asked |= {"classes": "ovr"}
        case "ovr soft":
            asked |= {"classes": "ovr", "loss": loss, "C": cost}
        case "crammer-singer":
            asked |= {"classes": "crammer-singer"}
        case "crammer-singer soft":
            asked |= {"classes": "crammer-singer", "loss": "hinge", "C": cost}
        case "outliers":
            asked |= {"outliers": [1, "0..2", 2][int(rng.integers(0, 3))]}
        case "map":
            asked |= {"map": str(rng.choice(["nystroem", "fourier", "polynomial"])), "gamma": 0.5}
            asked |= {"degree": 2} if asked["map"] == "polynomial" else {"components": 3}
    if kind.startswith("kernel"):
        asked |= {"kernel": str(rng.choice(["rbf", "rbf", "poly", "linear"]))}
        if asked["kernel"] != "linear":
            power = float(rng.uniform(-30, 100) if rng.random() < 0.4 else rng.uniform(-3, 2))
            asked["gamma"] = "scale" if rng.random() < 0.3 else 10.0**power
        if asked["kernel"] == "poly":
            asked |= {"degree": int(rng.integers(1, 5)), "coef0": float(rng.choice([0.0, 1.0, 1e6]))}
        if kind == "kernel relative":
            asked |= {"classes": "ovr"} if classes > 2 else {}
        elif kind != "kernel":
            asked |= {"loss": loss, "C": [cost, 10 * cost] if kind == "kernel folds" else cost}
            asked |= {"folds": 3} if kind == "kernel folds" else {}
            asked |= {"classes": "ovr"} if classes > 2 else {}
    if "loss" in asked and classes == 2 and rng.random() < 0.2:
        asked["class_weight"] = "balanced" if rng.random() < 0.5 else [0.25, 4.0]
    if rng.random() < 0.25:
        asked["scaling"] = str(rng.choice(["standard", "minmax", "maxabs", "rownorm"]))
    return asked


def done(number: int, folder: Path) -> str:
    """What became of a job: "refused", or the status of its last model. Raises AssertionError for what is wrong."""
    job, place = drawn(number), folder / str(number)
    try:
        return _done(job, np.random.default_rng([40, number]), place)
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{job}: {type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _done(job: Job, rng: np.random.Generator, place: Path) -> str:
    store, model = place / "store", place / "m0"
    limits = {"max_scans": 8, "time_limit": 5.0}
    try:
        rows = csr_array(job.X) if job.sparse else job.X
        coremargin.ingest(rows, store, labels=job.y, weights=job.weights, **job.store)
        if job.steps:
            found = coremargin.train(store, out=model, cluster="threads", **limits, **job.asked)
        else:
            found = coremargin.train(store, cluster="threads", **limits, **job.asked)
            found.save(model)
    except CoremarginError:
        return "refused"
    _hold(job, model, store)
    for step in range(job.steps):
        change = _change(rng, job, store)
        before, model = model, place / f"m{step + 1}"
        try:
            found = coremargin.retrain(before, store, out=model, cluster="threads", **limits)
        except CoremarginError:
            return "refused after a change"
        _hold(job, model, store, f"after step {step + 1}, {change}")
    return str(found.status)


def _hold(job: Job, model: Path, store: Path, when: str = "") -> None:
    """The model verifies, and nothing that it claims is false."""
    try:
        coremargin.verify(model, store, threads=1)
    except CoremarginError as error:
        raise AssertionError(f"{job} {when}: refused: {error}") from error
    false = lies(model, Content.of(store))
    assert not false, f"{job} {when}: accepted, and false: {'; '.join(false)}"


def _change(rng: np.random.Generator, job: Job, store: Path) -> str:
    """Another content of the store: rows appended, labelled otherwise, taken out, weighed otherwise."""
    count = coremargin.Store.open(store).rows
    some = rng.permutation(count)[: int(rng.integers(1, 4))]
    what = str(rng.choice(["append", "append", "relabel", "remove", "reweigh"]))
    try:
        match what:
            case "append":
                mine = rng.integers(0, len(job.X), int(rng.integers(1, 4)))
                X = job.X[mine] * (1.0 + 0.1 * rng.standard_normal((len(mine), 1)))
                rows = csr_array(X) if job.sparse else X
                weights = None if job.weights is None else job.weights[mine]
                coremargin.ingest(rows, store, labels=job.y[mine], weights=weights, append=True)
            case "relabel":
                coremargin.write_labels(store, some, rng.choice(job.y, len(some)).tolist())
            case "remove":
                coremargin.remove_rows(store, some)
            case _:
                coremargin.set_weights(store, some, rng.choice([0.5, 1.0, 2.0], len(some)))
    except CoremarginError as error:
        return f"{what}, which was refused ({error})"
    return f"{what} {some.tolist()}"


def all_done(numbers: Iterable[int], folder: Path) -> tuple[Counter[str], list[str]]:
    """How many jobs ended in what, and what is wrong with the others."""
    counts, wrong = Counter[str](), []
    for number in numbers:
        try:
            counts[done(number, folder)] += 1
        except AssertionError as error:
            counts["wrong"] += 1
            wrong.append(str(error))
    return counts, wrong
