"""The published outlier algorithms as a function, the reference for the search of ``coremargin.train(outliers=k)``.

They solve a maximum-margin problem for every subset of a coreset's size, for data of a few dozen rows. With
``outlier_search="published"``, ``coremargin.train`` runs them with checkpoints and a bound that ``verify`` checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.arrays import ArraySource
from coremargin.data.labels import all_labels
from coremargin.engine.calls import run_calls
from coremargin.engine.clusters.connect import executor_at
from coremargin.errors import UsageError
from coremargin.maths.outliers.certificates import SearchRows
from coremargin.maths.outliers.published import MOST_SUBSETS, Published, enumerate_subsets, max_subsets
from coremargin.maths.outliers.trimmed import lowest_rows
from coremargin.maths.rows import dense
from coremargin.problems.common.classes import two_classes
from coremargin.problems.common.sample import read_sample

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Cluster


@dataclass(frozen=True)
class Enumeration:
    """The best hyperplane found.

    Parameters
    ----------
    w : ndarray of shape (d,)
        Its normal, of length 1.
    b : float
        Its offset: the decision value of a row x is w.x + b.
    margin : float
        Its margin without the ``excluded`` rows.
    excluded : tuple of int
        Numbers of the excluded rows.
    size : int
        Rows of the last subsets.
    subsets : int
        Number of subsets solved.
    """

    w: np.ndarray
    b: float
    margin: float
    excluded: tuple[int, ...]
    size: int
    subsets: int


def outlier_svm(  # noqa: PLR0913 - all but three have a default
    X: Any,
    y: Any,
    k: int,
    *,
    algorithm: Published = "outlier-svm",
    epsilon: float = 0.1,
    intercept: bool = True,
    cluster: Cluster = "threads",
    most_subsets: int = MOST_SUBSETS,
) -> Enumeration:
    """Find the largest margin of rows X without k of them, by trying subsets of rows.

    Ranges of subsets are tasks of the ``cluster``.

    Parameters
    ----------
    X : array_like of shape (n, d)
        A few dozen rows.
    y : array_like of shape (n,)
        Their labels, of two classes.
    k : int
        Number of excluded rows; fewer than the smaller class has.
    algorithm : {"outlier-svm", "simple-outlier-svm"}, default "outlier-svm"
        The first (Figure 4a of [1]_) guesses the margin, R / 2^i, and so the size of the subsets; the second (Figure
        4b) doubles their size. Constants are sharper than the figure's, see ``coremargin.maths.outliers.published``.
    epsilon : float, default 0.1
        The margin is at least (1 - epsilon) of the best; above 0 and below 1.
    intercept : bool, default True
        False for a hyperplane through the origin.
    cluster : path-like or Dask Client, default "threads"
        A file of ``cluster/``, the address of a scheduler, a running Dask ``Client``, "embedded" or "threads"; None:
        chosen by size.
    most_subsets : int, default 5,000,000
        Raise UsageError if more subsets may be needed; so many take some minutes on a core.

    Returns
    -------
    Enumeration
        The hyperplane, its margin and the excluded rows. With a margin of 0 or less, no exclusion of k rows makes the
        others separable.

    Raises
    ------
    UsageError
        Unknown algorithm, epsilon outside (0, 1), k negative or not smaller than a class, or more than
        ``most_subsets`` subsets to try.

    References
    ----------
    .. [1] S. Har-Peled, D. Roth, D. Zimak, "Maximum Margin Coresets for Active and Noise Tolerant Learning", 2006.

    Examples
    --------
    >>> from coremargin.learn.published import outlier_svm
    >>> X = [[0.0], [1.0], [9.0], [2.0], [3.0]]  # the third row has the wrong label
    >>> found = outlier_svm(X, ["a", "a", "a", "b", "b"], k=1)
    >>> found.excluded, round(found.margin, 6)
    ((2,), 0.5)
    """
    if algorithm not in ("outlier-svm", "simple-outlier-svm"):
        raise UsageError(f"algorithm: expected 'outlier-svm' or 'simple-outlier-svm', found {algorithm!r}")
    if not 0 < epsilon < 1:
        raise UsageError(f"epsilon: expected a number above 0 and below 1, found {epsilon}")
    source = ArraySource(X, all_labels(y, "y"))
    sample = read_sample(source, list(range(source.chunks)), two_classes(source))
    smaller = int(min(np.sum(sample.signs > 0), np.sum(sample.signs < 0)))
    if not 0 <= k < smaller:
        raise UsageError(
            f"k: expected a number from 0 to {smaller - 1}, below the rows of the smaller class, found {k}"
        )
    rows = dense(sample.rows)
    n, d = rows.shape
    subsets = max_subsets(n, d, k, epsilon, algorithm)
    if subsets > most_subsets:
        raise UsageError(
            f"most_subsets: {n:,} rows of {d:,} features may have {subsets:,} subsets to try, expected at most "
            f"{most_subsets:,}; coremargin.train(X, y, outliers={k}) searches instead"
        )
    search_rows = SearchRows(rows, sample.signs, np.asarray(rows.mean(axis=0)), intercept=intercept)
    with executor_at(cluster, source) as executor:
        done = enumerate_subsets(search_rows, k, epsilon, partial(run_calls, executor), algorithm)
    found = done.best
    below = lowest_rows(search_rows.signs * (search_rows.x @ found.w + found.b), k)
    return Enumeration(found.w, found.b, found.margin, tuple(sample.ids[below].tolist()), done.size, done.subsets)
