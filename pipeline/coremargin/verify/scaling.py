"""Scaled rows as ``verify`` makes them, and whether the numbers that scale them are those of the store.

The definition is that of the format, repeated here with code of its own. In the precision of the store, each operation
rounded once: columns (x - shift) * factor; rownorm x / r in float64 and then rounded, r the root of the squares of the
row added in float64 from the first column to the last. Sparse rows are not shifted, and zeros stay zeros.

A claim about scaled rows holds whatever shift and factor are: it is checked on rows scaled with those of the model.
That they are what the kind of scaling says is a claim of its own: ranges are compared to the bit; means and deviations,
which are sums of many terms, to a few units of the store's precision and the rounding of such sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.checks import Check
from coremargin.verify.sums import SLAB, Total

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.rows import Chunk, Rows

#: What trainers may lose when they combine sums of chunks, of means and of deviations; relative.
_MEAN, _DEVIATION = 1e-9, 1e-6
_CANCELLED = 1e-11  # of sums of a chunk's squares


@dataclass(frozen=True)
class Columns:
    """Of one chunk, per column (d,): extremes, and sums of x - shift and of its square in float64."""

    low: np.ndarray
    high: np.ndarray
    sums: np.ndarray
    squares: np.ndarray


class Scaler:
    """Scales the rows of a store as a claim says, and keeps account of their columns; chunks are added in order."""

    def __init__(self, claim: AnyClaim, rows: Rows) -> None:
        self.claim, self.rows = claim, rows
        self.dtype = np.dtype(rows.dtype)
        self.shift, self.factor = (values.astype(self.dtype) for values in (claim.shift, claim.factor))
        self._by_column = len(claim.factor) > 0
        self._low, self._high = np.full(claim.features, np.inf), np.full(claim.features, -np.inf)
        self._sums, self._squares = Total((claim.features,)), Total((claim.features,))

    def scaled(self, chunk: Chunk) -> Chunk:
        """The chunk with its rows scaled."""
        if not self.claim.scaling:
            return chunk
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused where it is used
            if isinstance(chunk.x, np.ndarray):
                x = (chunk.x - self.shift) * self.factor if self._by_column else self._of_unit_length(chunk.x)
                return replace(chunk, x=x)
            return replace(chunk, x=self._sparse(chunk.x))

    def _sparse(self, x: csr_array) -> csr_array:
        if self._by_column:
            values = x.data * self.factor[x.indices]
        else:
            exact, squares = x.data.astype(np.float64), np.zeros(x.shape[0])
            row = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
            np.add.at(squares, row, np.square(exact))
            values = (exact / np.sqrt(squares)[row]).astype(self.dtype)
        scaled = type(x)((values, x.indices.copy(), x.indptr.copy()), shape=x.shape)
        scaled.eliminate_zeros()
        return scaled

    def _of_unit_length(self, x: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        step = max(1, SLAB // x.shape[1])
        for start in range(0, len(x), step):
            part = x[start : start + step].astype(np.float64)
            # bincount adds one weight after the other to its bin: from left to right here
            row = np.repeat(np.arange(len(part)), part.shape[1])
            length = np.sqrt(np.bincount(row, weights=np.square(part).ravel(), minlength=len(part)))
            length[length == 0] = 1
            out[start : start + step] = part / length[:, None]
        return out

    def columns(self, chunk: Chunk) -> Columns | None:
        """What the rows of a chunk, as they are stored, say about their columns; None where nothing is claimed."""
        if not self._by_column:
            return None
        if not isinstance(chunk.x, np.ndarray):
            return _sparse_columns(chunk.x)
        d = self.claim.features
        low, high = chunk.x.min(axis=0).astype(np.float64), chunk.x.max(axis=0).astype(np.float64)
        sums, squares = Total((d,)), Total((d,))
        shift = self.shift.astype(np.float64)
        step = max(1, SLAB // d)
        for start in range(0, len(chunk.x) if self.claim.scaling == "standard" else 0, step):
            part = chunk.x[start : start + step].astype(np.float64) - shift
            with np.errstate(over="ignore"):
                sums.add(part.sum(axis=0))
                squares.add((part * part).sum(axis=0))
        return Columns(low, high, sums.value, squares.value)

    def add(self, columns: Columns | None) -> None:
        """Take what one chunk says."""
        if columns is not None:
            self._low, self._high = np.minimum(self._low, columns.low), np.maximum(self._high, columns.high)
            self._sums.add(columns.sums)
            self._squares.add(columns.squares)

    def checks(self) -> list[Check]:
        """Whether shift and factor are what they are said to be; nothing for rows as they are stored."""
        kind = self.claim.scaling
        if not kind:
            return []
        if kind == "rownorm":
            return [Check("scaling", ok=True, text="rownorm: the proof is about rows divided by their lengths")]
        held = (self.shift == self.claim.shift) & (self.factor == self.claim.factor)
        if not (held & (self.factor > 0)).all():
            column = int(np.argmin(held & (self.factor > 0)))
            text = f"column {column}: shift and factor are no numbers of {self.dtype}, or the factor is not above 0"
            return [Check("scaling", ok=False, text=f"model claims {kind}, {text}")]
        problem = self._deviating() if kind == "standard" else self._out_of_range()
        if problem:
            return [Check("scaling", ok=False, text=f"model claims {kind}, {problem}")]
        text = f"{kind}: the proof is about rows scaled by the model's shift and factor, which are the store's columns'"
        return [Check("scaling", ok=True, text=text)]

    def _deviating(self) -> str:
        """The first column that is not scaled by its mean and standard deviation, or nothing."""
        n, unit = self.rows.rows, float(np.finfo(self.dtype).eps)
        shift, factor = self.claim.shift, self.claim.factor
        off, size = self._sums.value / n, self._squares.value / n
        variance = np.maximum(size - off * off, 0.0)
        lost = np.full_like(size, unit + _DEVIATION)
        if self.rows.sparse:  # not centred: of sums of squares about 0 large means leave less
            near, still = shift == 0, shift == 0
            lost = lost + _CANCELLED * size / np.maximum(variance, np.finfo(np.float64).tiny)
        else:
            near = np.abs(off) <= (unit + _MEAN) * np.abs(shift) + _MEAN * np.sqrt(size)
            still = shift == self._low
        wide = np.abs(factor * np.sqrt(variance) - 1.0) <= lost
        ok = np.where(self._low == self._high, still & (factor == 1), near & wide)
        if ok.all():
            return ""
        j = int(np.argmin(ok))
        found = f"mean {shift[j] + off[j]:.9g} and standard deviation {np.sqrt(variance[j]):.9g}"
        return f"column {j}: scaled as if of mean {shift[j]:.9g} and deviation {1 / factor[j]:.9g}, it has {found}"

    def _out_of_range(self) -> str:
        """The first column that is not scaled by its range or its largest size, or nothing."""
        minmax = self.claim.scaling == "minmax"
        shift = self._low if minmax else np.zeros_like(self._low)
        with np.errstate(over="ignore", divide="ignore"):
            size = self._high - self._low if minmax else np.maximum(np.abs(self._low), np.abs(self._high))
            factor = np.where(size > 0, 1.0 / np.where(size > 0, size, 1.0), 1.0).astype(self.dtype)
        ok = (self.shift == shift.astype(self.dtype)) & (self.factor == factor)
        if ok.all():
            return ""
        j = int(np.argmin(ok))
        found = f"it lies in [{self._low[j]:.9g}, {self._high[j]:.9g}]"
        return f"column {j}: shift {self.claim.shift[j]:.9g} and factor {self.claim.factor[j]:.9g}, but {found}"


def _sparse_columns(x: csr_array) -> Columns:
    """Of sparse rows, whose shift is 0; what is not stored is 0."""
    d, exact = x.shape[1], x.data.astype(np.float64)
    low, high = (getattr(x, name)(axis=0).toarray().reshape(-1).astype(np.float64) for name in ("min", "max"))
    with np.errstate(over="ignore"):
        sums, squares = (np.bincount(x.indices, weights=values, minlength=d) for values in (exact, exact * exact))
    return Columns(low, high, sums, squares)
