"""Scaled rows as ``verify`` makes them, and whether the numbers that scale them are those of the store.

The definition is that of the format, repeated here with code of its own. In the precision of the store, each operation
rounded once: columns (x - shift) * factor; rownorm x / r in float64 and then rounded, r the root of the squares of the
row added in float64 from the first column to the last. Sparse rows are not shifted, and zeros stay zeros.

A claim about scaled rows holds whatever shift and factor are: it is checked on rows scaled with those of the model.
That they are what the kind of scaling says is a claim of its own: ranges are compared to the bit; deviations, which are
sums of many terms, to a few units of the store's precision and the rounding of such sums; means to what plain sums of a
chunk's values in float64 may be off, and then rounded to the store's precision. Where that is more than a millionth of
the deviation, the deviation may be off by as much.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.checks import Check
from coremargin.verify.sums import SLAB_ROWS, SLAB_VALUES, gamma, length

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.rows import Chunk, Rows

#: What trainers may lose when they combine chunks: of means and of deviations, in units of the deviation.
_MEAN, _DEVIATION = 1e-9, 1e-6
_RUN = 1 << 15  # numbers that they add to each other before they are added to the sum of a chunk: of whole rows


@dataclass(frozen=True)
class Columns:
    """Of one chunk of ``rows`` rows, per column (d,): extremes, mean, and sum of squares about the mean, in float64."""

    rows: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    spread: np.ndarray


class Scaler:
    """Scales the rows of a store as a claim says, and keeps account of their columns; chunks are added in order."""

    def __init__(self, claim: AnyClaim, rows: Rows) -> None:
        self.claim, self.rows = claim, rows
        self.dtype = np.dtype(rows.dtype)
        self.shift, self.factor = (values.astype(self.dtype) for values in (claim.shift, claim.factor))
        self._by_column = len(claim.factor) > 0
        self._low, self._high = np.full(claim.stored_features, np.inf), np.full(claim.stored_features, -np.inf)
        self._count, self._spread = 0, np.zeros(claim.stored_features)
        self._origin = self._moved = np.zeros(
            claim.stored_features
        )  # the first chunk's mean, and how far that of all is off

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
        step = max(1, SLAB_VALUES // x.shape[1])
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
        low, high = chunk.x.min(axis=0).astype(np.float64), chunk.x.max(axis=0).astype(np.float64)
        if self.claim.scaling != "standard":
            return Columns(len(chunk.x), low, high, np.zeros(0), np.zeros(0))
        centre = 0.5 * low + 0.5 * high
        off, squares = np.zeros_like(low), np.zeros_like(low)
        step = max(1, min(SLAB_ROWS, SLAB_VALUES // self.claim.stored_features))
        with np.errstate(over="ignore"):
            for start in range(0, len(chunk.x), step):
                part = chunk.x[start : start + step].astype(np.float64) - centre
                off += part.sum(axis=0)
                squares += (part * part).sum(axis=0)
            off /= len(chunk.x)
            return Columns(len(chunk.x), low, high, centre + off, np.maximum(squares - len(chunk.x) * off * off, 0.0))

    def add(self, columns: Columns | None) -> None:
        """Take what one chunk says; spreads are joined as Chan, Golub and LeVeque (1979) have it."""
        if columns is None:
            return
        self._low, self._high = np.minimum(self._low, columns.low), np.maximum(self._high, columns.high)
        if self.claim.scaling == "standard":
            before, self._count = self._count, self._count + columns.rows
            with np.errstate(over="ignore", invalid="ignore"):
                if before == 0:
                    self._origin = columns.mean
                apart = (columns.mean - self._origin) - self._moved
                self._moved = self._moved + apart * (columns.rows / self._count)
                self._spread += columns.spread + apart * apart * (before * (columns.rows / self._count))

    def box(self) -> float:
        """A length that no scaled row exceeds: that of the farthest corner of the columns' ranges; 0 unscaled."""
        if self.claim.scaling == "rownorm":
            return 1.0
        if not self._by_column:
            return 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            ends = [(end.astype(self.dtype) - self.shift) * self.factor for end in (self._low, self._high)]
            return length(np.maximum(*np.abs(ends)).astype(np.float64))

    def checks(self) -> list[Check]:
        """Whether shift and factor are what they are said to be; nothing for rows as they are stored."""
        kind = self.claim.scaling
        if not kind:
            return []
        if kind == "rownorm":
            return [Check("scaling", ok=True, text="rownorm: the proof is about rows divided by their lengths")]
        equal = (self.shift == self.claim.shift) & (self.factor == self.claim.factor)
        if not (equal & (self.factor > 0)).all():
            column = int(np.argmin(equal & (self.factor > 0)))
            text = f"column {column}: shift and factor are no numbers of {self.dtype}, or the factor is not above 0"
            return [Check("scaling", ok=False, text=f"model claims {kind}, {text}")]
        if self.rows.sparse and self.shift.any():  # whoever decides shifts its zeros too, the proof does not
            column = int(np.argmax(self.shift != 0))
            text = f"column {column}: shift {self.shift[column]:.9g}, expected 0: sparse rows are not shifted"
            return [Check("scaling", ok=False, text=f"model claims {kind}, {text}")]
        problem = self._deviating() if kind == "standard" else self._out_of_range()
        if problem:
            return [Check("scaling", ok=False, text=f"model claims {kind}, {problem}")]
        text = f"{kind}: the proof is about rows scaled by the model's shift and factor, which are the store's columns'"
        return [Check("scaling", ok=True, text=text)]

    def _deviating(self) -> str:
        """The first column that is not scaled by its mean and standard deviation, or nothing."""
        unit = float(np.finfo(self.dtype).eps)
        shift, factor = self.claim.shift, self.claim.factor
        mean, deviation = self._origin + self._moved, np.sqrt(self._spread / self._count)
        slack = self._slack(mean, deviation)
        if self.rows.sparse:  # not centred
            near, still = shift == 0, shift == 0
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                near = (shift >= (mean - slack).astype(self.dtype)) & (shift <= (mean + slack).astype(self.dtype))
            still = shift == self._low
        # a chunk's mean that is off counts in the squares about it, and in its distance from the others
        with np.errstate(over="ignore", invalid="ignore"):
            wide = np.abs(1.0 / factor - deviation) <= (unit + _DEVIATION) * deviation + 1.5 * slack
        wide &= np.isfinite(deviation)  # all is near to what overflows
        ok = np.where(self._low == self._high, still & (factor == 1), near & wide)
        if ok.all():
            return ""
        j = int(np.argmin(ok))
        found = f"mean {mean[j]:.17g} and standard deviation {deviation[j]:.9g}"
        return f"column {j}: scaled as if of mean {shift[j]:.17g} and deviation {1 / factor[j]:.9g}, it has {found}"

    def _slack(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """By how much (d,) a trainer's mean of the columns and this one may differ before they are rounded.

        A trainer divides the plain sum of a chunk by its rows: that is off by a unit of the values' size for each
        addition on the way. Here the middle of the range is taken away first, in each chunk, of dense rows; of sparse
        ones the values of a chunk are summed as they are, here and there.
        """
        chunk = min(self.rows.rows, self.rows.chunk_rows)
        if self.rows.sparse:
            return np.asarray(2 * gamma(chunk + 16) * (np.abs(mean) + deviation))
        additions = min(chunk, SLAB_ROWS) + -(-chunk * len(mean) // _RUN) + 16
        own = gamma(SLAB_ROWS + 16) * (0.5 * self._high - 0.5 * self._low)
        return np.asarray(gamma(additions) * (np.abs(mean) + deviation) + own + _MEAN * deviation)

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
    """Of sparse rows; what is not stored is 0."""
    (n, d), exact = x.shape, x.data.astype(np.float64)
    low, high = (getattr(x, name)(axis=0).toarray().reshape(-1).astype(np.float64) for name in ("min", "max"))
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.bincount(x.indices, weights=exact, minlength=d) / n
        zeros = n - np.bincount(x.indices, minlength=d)
        spread = np.bincount(x.indices, weights=np.square(exact - mean[x.indices]), minlength=d) + zeros * mean * mean
    return Columns(n, low, high, mean, spread)
