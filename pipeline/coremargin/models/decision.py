"""Decision values of rows as people hand them over: dense or sparse, of any kind of number, finite or not.

And what follows from them: which class is given, and by how much it is ahead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.rows import refuse_rounded
from coremargin.data.sources.base import plain_array
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.functions import KernelFault
from coremargin.maths.rows import dense, is_sparse, of_dense
from coremargin.maths.scaling import NO_LENGTH, Scaling, beyond_lengths, folded

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coremargin.maths.kernel.expansion import Expansion
    from coremargin.maths.mapping import FeatureMap

_SLAB_ELEMENTS = 1 << 20  # of rows that are converted or scaled: scratch of 8 MiB in float64, twice at most


class Scorer(ABC):
    """All of a model that rows need for their decision values: k functions of scaled rows.

    scaling: what makes z of a row x, None: z = x. In float32 where the store and the rows are of that precision or
    less, else in float64: rows of the store are scaled to the bit as training and ``verify`` do. The functions are
    always evaluated in float64.
    """

    scaling: Scaling | None
    map: FeatureMap | None = None  #: applied to scaled rows before that

    @property
    def grouped(self) -> bool:
        """Whether it labels the rows of a group together."""
        return False

    @property
    @abstractmethod
    def features(self) -> int:
        """Of a row."""

    @property
    def widest(self) -> int:
        """Numbers of a row when most is made of it."""
        return self.features

    @abstractmethod
    def of_scaled(self, rows: Any) -> np.ndarray:
        """The functions (k, n) at scaled rows (n, d) in float64."""

    @abstractmethod
    def rearranged(self, order: np.ndarray) -> Scorer:
        """The same for rows of which feature j is the one that is now at ``order[j]`` (d,)."""

    @abstractmethod
    def planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (k, d) and intercepts (k,) of the decision values of scaled rows. Raises UsageError for none."""

    def values(self, X: Any, place: Callable[[int], str] = "X, row {}".format) -> np.ndarray:
        """Decision values (n,) of rows X (n, d), or (n, k) of k > 1 functions, in float64.

        X: an array or a SciPy sparse matrix; place: the place of a row, for messages. Raises UsageError when X has
        another shape or kind, or values that are masked, BadRow when a row is not finite, or has no length to be
        divided by.
        """
        X = X if is_sparse(X) else plain_array(X, "X")
        if X.ndim != 2 or X.shape[1] != self.features:
            raise UsageError(f"X: expected rows of {self.features} features, got an array of shape {X.shape}")
        if X.dtype.kind not in "fiub":
            raise UsageError(f"X: expected numbers, got {X.dtype}; convert the columns first")
        refuse_rounded(X, "X")
        with np.errstate(invalid="ignore", over="ignore"):  # rows that are not finite are named afterwards
            parts: list[np.ndarray] = []
            for first, rows in self._slabs(X, place):
                try:
                    parts.append(self.of_scaled(rows))
                except KernelFault as fault:
                    at = place(first + (fault.row or 0))
                    raise BadRow(f"{at}: the kernel's function: {fault.text}") from fault.__cause__
        values = np.concatenate(parts, axis=1) if parts else self.of_scaled(np.zeros((0, self.features)))
        _refuse_rows(values, place)
        return values[0] if len(values) == 1 else np.ascontiguousarray(values.T)

    def _slabs(self, X: Any, place: Callable[[int], str]) -> Iterator[tuple[int, Any]]:
        """Rows X (n, d) as they are multiplied, scaled and in float64, a few at a time, and where these begin."""
        dense = not is_sparse(X)
        dtype = self._precision(X.dtype)
        rows = X if dense else _canonical(X, dtype)
        shifted = self.scaling is not None and self.scaling.fills_zeros
        width = X.shape[1] if dense or shifted else -(-rows.nnz // max(1, X.shape[0]))
        step = max(1, _SLAB_ELEMENTS // max(1, width, self.widest))
        for start in range(0, X.shape[0], step):
            part = slice(start, start + step)
            some = rows[part].astype(dtype, copy=False)
            if self.scaling is not None:
                scaled, found = self.scaling.of_rows(some)
                _refuse_lengths(found, some, start, place)
                some = scaled
            yield start, some.astype(np.float64, copy=False)

    def _precision(self, given: np.dtype[Any]) -> type[np.floating[Any]]:
        """In which rows are scaled: a store's in its own, none in less than that of the scaling or of the rows."""
        if self.scaling is None:
            return np.float64
        return np.float32 if np.result_type(given, self.scaling.dtype) == np.float32 else np.float64

    def _scaling_of(self, order: np.ndarray) -> Scaling | None:
        """The scaling of rows whose features come in another order."""
        return None if self.scaling is None else self.scaling.rearranged(order)


@dataclass(frozen=True)
class PlaneScorer(Scorer):
    """Of k hyperplanes coef.z + intercept, coefs (d,) each; difference: of two, the second less the first is the one
    value.

    map: applied to scaled rows before that. columns: of rows whose features come in another order, the place of
    each (d,); None: they do not, or the coefficients are those of that order.
    """

    coefs: tuple[np.ndarray, ...]
    intercepts: tuple[float, ...]
    scaling: Scaling | None = None
    map: FeatureMap | None = None
    columns: np.ndarray | None = None
    difference: bool = False

    def __post_init__(self) -> None:
        """Raises DataError for planes that are none: finite numbers of a model may overflow when they are combined."""
        with np.errstate(over="ignore", invalid="ignore"):
            _refuse_overflow(*self.planes())
        if self.scaling is not None and self.scaling.shift is not None and self.scaling.factor is not None:
            _refuse_overflow(self.scaling.shift, self.scaling.factor)

    @property
    def features(self) -> int:
        """Of a row."""
        return len(self.coefs[0]) if self.map is None else self.map.features

    @property
    def widest(self) -> int:
        """As it is mapped; else nothing is made of it."""
        return 0 if self.map is None else max(self.features, len(self.coefs[0]))

    def of_scaled(self, rows: Any) -> np.ndarray:
        """The hyperplanes (k, n) at scaled rows, or their difference (1, n)."""
        if self.map is not None:
            rows = self.map.of_rows(rows if self.columns is None else rows[:, self.columns])
        values = np.stack([rows @ coef for coef in self.coefs]) + np.array(self.intercepts)[:, None]
        return np.asarray(values[1:] - values[:1] if self.difference else values)

    def rearranged(self, order: np.ndarray) -> PlaneScorer:
        """The same for rows whose features come in another order."""
        if self.map is not None:
            return replace(self, columns=np.argsort(order), scaling=self._scaling_of(order))
        return replace(self, coefs=tuple(coef[order] for coef in self.coefs), scaling=self._scaling_of(order))

    def planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (k, d) and intercepts (k,) of the decision values of scaled rows; k = 1 of two classes."""
        coef, intercept = np.stack(self.coefs), np.array(self.intercepts)
        if self.difference:
            return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        return coef, intercept


@dataclass(frozen=True)
class KernelScorer(Scorer):
    """Of functions of a kernel; columns: as of planes, where the kernel is a function, to which their order counts."""

    scaling: Scaling | None
    functions: Expansion
    columns: np.ndarray | None = None

    @property
    def features(self) -> int:
        """Of a row."""
        return int(self.functions.rows.shape[1])

    def of_scaled(self, rows: Any) -> np.ndarray:
        """The functions (k, n) at scaled rows, which people hand over of either kind."""
        own = self.functions
        rows = rows if self.columns is None else rows[:, self.columns]
        if is_sparse(rows) != is_sparse(own.rows):
            rows = of_dense(dense(rows), sparse=is_sparse(own.rows))
        return np.ascontiguousarray(own.values(own.kernel.points(rows)).T)

    def rearranged(self, order: np.ndarray) -> KernelScorer:
        """The same for rows whose features come in another order."""
        own, kernel = self.functions, self.functions.kernel
        if isinstance(kernel, CallableKernel):
            return replace(self, columns=np.argsort(order), scaling=self._scaling_of(order))
        if kernel.centre is not None:
            kernel = replace(kernel, centre=kernel.centre[order])
        moved: Any = own.rows[:, order]
        return replace(self, functions=replace(own, kernel=kernel, rows=moved), scaling=self._scaling_of(order))

    def planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Refused: there are none. Raises UsageError."""
        name = self.functions.kernel.name
        raise UsageError(f"a function of the kernel {name!r} is no hyperplane: features have no weights")


def folded_planes(coef: np.ndarray, intercept: np.ndarray, scaling: Scaling | None) -> tuple[np.ndarray, np.ndarray]:
    """Weights (k, d) and intercepts (k,) of scaled rows made those of rows as they are, the scaling in them.

    The same up to rounding: see ``folded``. Of "rownorm", for rows divided by their lengths. Raises DataError for what
    overflows.
    """
    if scaling is None or scaling.kind == "rownorm":
        return coef, intercept
    pairs = [folded(w, float(b), scaling) for w, b in zip(coef, intercept, strict=True)]
    weights, offsets = np.stack([w for w, _ in pairs]), np.array([b for _, b in pairs])
    _refuse_overflow(weights, offsets)
    return weights, offsets


def _canonical(X: Any, dtype: type[np.floating[Any]]) -> csr_array:
    """Sparse rows in any format as a csr_array, duplicates added in ``dtype``; the caller's matrix stays as it is."""
    from scipy.sparse import csr_array  # only here: dense rows do without

    rows = csr_array(X)
    if not rows.has_canonical_format:
        rows = rows.astype(dtype)
        rows.sum_duplicates()
    return rows


def _refuse_overflow(*numbers: np.ndarray) -> None:
    if not all(np.isfinite(values).all() for values in numbers):
        raise DataError("the model's numbers overflow: no decision follows from them; get an unaltered copy")


def _refuse_lengths(found: np.ndarray | None, rows: Any, start: int, place: Callable[[int], str]) -> None:
    """Raise BadRow for one of the rows (n, d) from ``start`` on whose length ``found`` (n,) says nothing about it.

    Rows that are not finite have no length either; they are refused afterwards.
    """
    for row in beyond_lengths(found, rows).tolist():
        values = rows[row : row + 1].data if is_sparse(rows) else rows[row]
        if np.isfinite(values).all():
            raise BadRow(f"{place(start + row)}: {NO_LENGTH}")


def _refuse_rows(values: np.ndarray, place: Callable[[int], str]) -> None:
    """Raise BadRow for a row that has no decision value: values (k, n)."""
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=0))[0])
        value = values[bad[:, row], row][0]
        raise BadRow(f"{place(row)}: expected finite numbers, the decision value is {value}; clean or drop the row")


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

    That is labels whose kinds differ, texts that end in a zero character, and whole numbers of which some are negative
    and some beyond int64: these would become floats.
    """
    labels = list(classes)
    large = all(type(label) is int and label >= 0 for label in labels) and max(labels) > np.iinfo(np.int64).max
    array = np.array(labels, dtype=np.uint64 if large else None)  # by itself, NumPy takes floats for some of them
    same = [(type(label), label) for label in array.tolist()] == [(type(label), label) for label in labels]
    return array if same else np.array(labels, dtype=object)
