"""(h) Outliers: nodes, seconds and scans of the search; enumeration and a MILP on tiny rows; wrong labels; workers."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from outlier_peers import by_milp, suspicious_by_cleanlab
from outlier_rows import KINDS, Data, rows_with_outliers
from outlier_workers import search_by_workers
from stores import REAL, mnist
from table import Group, Row

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.published import enumerate_subsets
from coremargin.maths.outliers.search import run_serially, solve_in_memory
from coremargin.problems.outliers.outlier_table import outlier_table

if TYPE_CHECKING:
    from stores import Settings


def outlier_search(settings: Settings) -> Iterator[Group]:
    """All groups of part (h)."""
    quick = settings.rows < 1_000_000
    yield _grid(((300, 3),) if quick else ((2_000, 5), (2_000, 20), (100_000, 10)), (1, 5) if quick else (1, 10, 50),
                5.0 if quick else 30.0)  # fmt: skip
    yield _against_enumeration(5.0 if quick else 60.0)
    yield _wrong_labels(settings, 5 if quick else 20)
    yield search_by_workers(settings, 5.0 if quick else 120.0, quick=quick)


def _grid(sizes: tuple[tuple[int, int], ...], ks: tuple[int, ...], limit_s: float) -> Group:
    group = Group("h", f"exact search (epsilon 1e-3), arrays in memory, at most {limit_s:g} s each")
    for n, d in sizes:
        for kind in KINDS:
            for k in ks:
                source = ArraySource(*rows_with_outliers(n, d, k if kind != "clean" else 0, kind))
                group.rows.append(_searched(f"n {n:,}, d {d}, k {k}, {kind}", source, k, limit_s))
    group.notes.append("margin/bound: margin reached over the proven upper bound; bytes and scans include the sample")
    return group


def _searched(what: str, source: ArraySource, k: int, limit_s: float) -> Row:
    rounds: list[dict[str, Any]] = []
    started = time.perf_counter()
    model = coremargin.train(source, outliers=k, time_limit=limit_s, on_round=rounds.append)
    seconds = time.perf_counter() - started
    step = outlier_table(model).steps[-1]
    scans = rounds[-1]["round"]
    read = sum(record["bytes_read"] for record in rounds) / source.nbytes
    ratio = None if not step.lower or not step.upper else step.lower / step.upper
    return Row(what, seconds, read=read, scans=scans, margin=ratio, note=f"{model.status}, {step.nodes:,} nodes")


def _against_enumeration(limit_s: float) -> Group:
    group = Group("h", "tiny rows: this search, all subsets of a coreset's size (Figure 4), and a MILP (HiGHS)")
    for n, d, k in ((14, 2, 2), (18, 3, 2), (30, 2, 3)):
        x, y = rows_with_outliers(n, d, k, "flipped", seed=3)
        started = time.perf_counter()
        found = solve_in_memory(x, y, k)
        name = f"n {n}, d {d}, k {k}"
        note = f"{found.nodes} nodes, margin {found.lower:.6f}"
        group.rows.append(Row(f"{name}: this search", time.perf_counter() - started, margin=1.0, note=note))
        search_rows = SearchRows(
            x.astype(np.float64), y.astype(np.int8), x.mean(axis=0, dtype=np.float64), intercept=True
        )
        started = time.perf_counter()
        all_subsets = enumerate_subsets(search_rows, k, 0.1, run_serially, "simple-outlier-svm")
        note = f"{all_subsets.subsets:,} subsets of up to {all_subsets.size} rows"
        reached = all_subsets.best.margin / found.lower if found.lower else None
        group.rows.append(
            Row(f"{name}: simple outlier SVM, epsilon 0.1", time.perf_counter() - started, margin=reached, note=note)
        )
        started = time.perf_counter()
        margin, bound = by_milp(x, y, k, limit_s)
        reached = margin / found.lower if found.lower else None
        group.rows.append(
            Row(f"{name}: MILP", time.perf_counter() - started, margin=reached, note=f"its bound {bound:.6f}")
        )
    group.notes.append("margin/bound: margin reached over that of this search, which is proven to 1e-9")
    return group


def _wrong_labels(settings: Settings, flips: int) -> Group:
    group = Group("h", f"{flips} wrong labels planted: precision and recall of the rows that are named")
    for name, data in (("mushrooms", _mushrooms(settings)), ("MNIST 0 against 1, 49 pixels", _mnist(settings))):
        if data is None:
            group.notes.append(f"{name}: the files are not there")
            continue
        x, y = data
        wrong = np.random.default_rng(5).choice(len(y), flips, replace=False)
        y = y.copy()
        y[wrong] *= -1
        started = time.perf_counter()
        model = coremargin.train(x, y, outliers=flips, time_limit=60.0)
        found = {row.id for row in outlier_table(model).rows}
        note = f"{_hits(found, wrong)}, {model.status}"
        group.rows.append(Row(f"{name}, {len(y):,} rows: outliers", time.perf_counter() - started, note=note))
        started = time.perf_counter()
        suspicious = suspicious_by_cleanlab(x, y)
        if suspicious is None:
            group.notes.append("cleanlab is not installed")
            continue
        group.rows.append(
            Row(f"{name}: cleanlab, logistic regression", time.perf_counter() - started, note=_hits(suspicious, wrong))
        )
    return group


def _hits(found: set[int], wrong: np.ndarray) -> str:
    right = len(found & set(wrong.tolist()))
    precision = right / len(found) if found else 0.0
    return f"precision {precision:.3f}, recall {right / len(wrong):.3f}, {len(found):,} rows named"


def _mushrooms(settings: Settings) -> Data | None:
    path = settings.data / "uci" / "mushroom.tsv.gz"
    if not path.is_file():
        return None
    with gzip.open(path, "rt") as file:
        values = np.loadtxt(file, delimiter="\t", skiprows=1, dtype=np.int64)
    columns = [(values[:, [j]] == np.unique(values[:, j])[1:]).astype(np.float32) for j in range(values.shape[1] - 1)]
    return np.hstack(columns), np.where(values[:, -1] == values[:, -1].max(), 1, -1)


def _mnist(settings: Settings) -> Data | None:
    path = settings.data / REAL["mnist"][0]
    if not path.is_file():
        return None
    X, y = mnist(path)
    pooled = X.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4), dtype=np.float64).reshape(len(X), 49)
    return pooled.astype(np.float32), np.where(y == 1, 1, -1)
