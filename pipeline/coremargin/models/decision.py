"""Decision values of rows as people hand them over: dense or sparse, of any kind of number, finite or not.

And what follows from them: which class is given, and by how much it is ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from coremargin.errors import BadRow, DataError, UsageError
from coremargin.maths.rows import products
from coremargin.maths.scaling import Scaling, unit_rows

_SLAB_ELEMENTS = 1 << 20  # float64 scratch of 8 MiB when rows are converted


@dataclass(frozen=True)
class Scorer:
    """All of a model that rows need for their decision values: k hyperplanes coef.x + intercept, coefs (d,) each.

    unit: rows are divided by their lengths first. difference: of two, the second less the first is the one value.
    """

    coefs: tuple[np.ndarray, ...]
    intercepts: tuple[float, ...]
    unit: bool = False
    difference: bool = False

    def __post_init__(self) -> None:
        """Raises DataError for planes that are none: finite numbers of a model may overflow when they are folded."""
        with np.errstate(over="ignore", invalid="ignore"):
            coef, intercept = self.planes()
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise DataError("the model's numbers overflow: no decision follows from them; get an unaltered copy")

    def values(self, X: Any) -> np.ndarray:
        """Decision values (n,) of rows X (n, d), or (n, k) of k > 1 hyperplanes. Raises as ``decision_values``."""
        pairs = zip(self.coefs, self.intercepts, strict=True)
        values = [decision_values(X, coef, intercept, unit=self.unit) for coef, intercept in pairs]
        if self.difference:
            return np.asarray(values[1] - values[0])
        return values[0] if len(values) == 1 else np.stack(values, axis=1)

    def planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (k, d) and intercepts (k,) of the decision values; k = 1 of two classes."""
        coef, intercept = np.stack(self.coefs), np.array(self.intercepts)
        if self.difference:
            return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        return coef, intercept


def decision_values(X: Any, coef: np.ndarray, intercept: float, *, unit: bool = False) -> np.ndarray:
    """coef.x + intercept (n,) in float64 of rows X (n, d), an array or a SciPy sparse matrix.

    unit: rows are divided by their lengths first. Raises UsageError when X has another shape or kind, BadRow when a row
    is not finite.
    """
    X = X if issparse(X) else np.asarray(X)
    if X.ndim != 2 or X.shape[1] != len(coef):
        raise UsageError(f"X: expected rows of {len(coef)} features, got an array of shape {X.shape}")
    if X.dtype.kind not in "fiub":
        raise UsageError(f"X: expected numbers, got {X.dtype}; convert the columns first")
    values = _of_sparse(X, coef, unit=unit) if issparse(X) else _of_dense(X, coef, unit=unit)
    with np.errstate(invalid="ignore", over="ignore"):
        values += intercept
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise BadRow(
            f"X, row {row}: expected finite numbers, the decision value is {values[row]}; clean or drop the row"
        )
    return values


def _of_dense(X: np.ndarray, coef: np.ndarray, *, unit: bool) -> np.ndarray:
    values = np.empty(len(X))
    step = max(1, _SLAB_ELEMENTS // X.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):  # rows that are not finite are named afterwards
        for start in range(0, len(X), step):
            rows = np.asarray(X[start : start + step], dtype=np.float64)
            values[start : start + step] = (unit_rows(rows) if unit else rows) @ coef
    return values


def _of_sparse(X: Any, coef: np.ndarray, *, unit: bool) -> np.ndarray:
    rows = csr_array(X, dtype=np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the caller's matrix stays as it is
        rows.sum_duplicates()
    with np.errstate(invalid="ignore", over="ignore"):
        if unit:
            scaled, _ = Scaling("rownorm").values(rows)
            rows = csr_array((scaled, rows.indices, rows.indptr), shape=rows.shape)
        return np.asarray(products(rows, coef[:, None])[0])


def decided(decisions: np.ndarray) -> np.ndarray:
    """Places (n,) of the classes that decision values name: (n,) positive or not, (n, k) the largest, ties first."""
    return np.asarray(decisions > 0 if decisions.ndim == 1 else decisions.argmax(axis=1), np.intp)


def leads(decisions: np.ndarray, given: np.ndarray) -> np.ndarray:
    """How far (n,) the given classes (n,) are ahead by decision values (n,) or (n, k): negative when another is.

    Of two classes: y (w.x + b); of more: the value of the given class less the largest of the others.
    """
    if decisions.ndim == 1:
        return np.asarray(decisions * (2 * given - 1))
    rows, others = np.arange(len(given)), decisions.copy()
    others[rows, given] = -np.inf
    return np.asarray(decisions[rows, given] - others.max(axis=1))


def label_array(classes: Sequence[Any]) -> np.ndarray:
    """The labels as an array that keeps their kind; what NumPy does not keep as it is, in an array of objects.

    That is labels whose kinds differ, and texts that end in a zero character.
    """
    same = len({type(label) for label in classes}) == 1
    kept = same and not any(isinstance(label, str) and label.endswith("\0") for label in classes)
    return np.array(list(classes), dtype=None if kept else object)
