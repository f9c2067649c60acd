"""The Python door to the published outlier algorithms: ``coremargin.learn.published.outlier_svm``.

They are the reference that the search is measured against, for data of a few dozen rows: every subset of a coreset's
size is a maximum-margin problem of its own. ``coremargin.train(..., outliers=k)`` answers the same question.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from math import comb
from typing import Any

import numpy as np

from coremargin.data.arrays import ArraySource
from coremargin.engine.calls import run_calls
from coremargin.engine.clusters.connect import connect
from coremargin.engine.clusters.specs import load_cluster
from coremargin.errors import UsageError
from coremargin.maths.outliers.certificates import Arena
from coremargin.maths.outliers.published import Published, by_enumeration
from coremargin.maths.outliers.trimmed import outliers_of
from coremargin.problems.common.start import read_sample, two_classes
from coremargin.problems.outliers.probe import dense

#: Subsets that are tried at most unless more are asked for: some minutes on a core.
MOST_SUBSETS = 5_000_000


@dataclass(frozen=True)
class Enumeration:
    """The best hyperplane found: w (d,) of length 1, b, its margin once ``left_out`` (rows by number) are left out.

    size: rows of a subset at the end; subsets: how many were solved in all.
    """

    w: np.ndarray
    b: float
    margin: float
    left_out: tuple[int, ...]
    size: int
    subsets: int


def outlier_svm(  # noqa: PLR0913 - rows, the question, how and where; all but three with a default
    X: Any,
    y: Any,
    k: int,
    *,
    algorithm: Published = "outlier-svm",
    epsilon: float = 0.1,
    intercept: bool = True,
    cluster: str | os.PathLike[str] | None = "threads",
    most_subsets: int = MOST_SUBSETS,
) -> Enumeration:
    """The best margin of rows X (n, d) with labels y (n,) once k rows are left out, by trying subsets of rows.

    algorithm: "outlier-svm" (Har-Peled, Roth, Zimak, Figure 4a) guesses the margin, R / 2^i, and so the size of the
    subsets; "simple-outlier-svm" (Figure 4b) doubles their size. Ranges of subsets are tasks of the ``cluster``: a file
    of ``cluster/``, a scheduler's address, "embedded" or "threads". The margin is at least (1 - epsilon) of the best;
    0 or less: nothing separates the others, whichever k rows are left out.

    Raises UsageError for an unknown algorithm, epsilon outside (0, 1), k negative or as large as a class, or when more
    than ``most_subsets`` subsets may have to be tried.
    """
    if algorithm not in ("outlier-svm", "simple-outlier-svm"):
        raise UsageError(f"algorithm: expected 'outlier-svm' or 'simple-outlier-svm', found {algorithm!r}")
    if not 0 < epsilon < 1:
        raise UsageError(f"epsilon: expected a number above 0 and below 1, found {epsilon}")
    source = ArraySource(X, y)
    sample = read_sample(source, list(range(source.chunks)), two_classes(source))
    smaller = int(min(np.sum(sample.signs > 0), np.sum(sample.signs < 0)))
    if not 0 <= k < smaller:
        raise UsageError(
            f"k: expected a number from 0 to {smaller - 1}, below the rows of the smaller class, found {k}"
        )
    rows = dense(sample.rows)
    n, d = rows.shape
    subsets = max(comb(n, size) for size in range(1, min(n - k, d + 1) + 1))
    if subsets > most_subsets:
        raise UsageError(
            f"most_subsets: {n:,} rows of {d:,} features may have {subsets:,} subsets to try, expected at most "
            f"{most_subsets:,}; coremargin.train(X, y, outliers={k}) searches instead"
        )
    arena = Arena(rows, sample.signs, np.asarray(rows.mean(axis=0)), intercept=intercept)
    with connect(load_cluster(cluster), source) as executor:
        done = by_enumeration(arena, k, epsilon, partial(run_calls, executor), algorithm)
    found = done.found
    below = outliers_of(arena.signs * (arena.x @ found.w + found.b), k)
    return Enumeration(found.w, found.b, found.margin, tuple(sample.ids[below].tolist()), done.size, done.subsets)
