"""Scaling of rows in the verifier's own code, and whether its numbers are those of the store's columns.

By the format's definition, in the precision of the store, each operation rounded once: columns (x - shift) * factor;
rownorm x / r in float64 and then rounded, r being the root of the sum of squares of the row, added in float64 from the
first column to the last. Sparse rows are not shifted, and zeros stay zeros. ellipsoid F (x - c), the products of each
line of F being added in float64 from the first column to the last, and then rounded; 0 in columns that F has none of.

A claim about scaled rows holds for any shift and factor: it is checked on rows scaled with the model's. Whether these
are what the kind of scaling defines is a separate check: ranges are compared to the bit; deviations, which are sums of
many terms, to a few units of the store's precision and the rounding of such sums; means to the error of plain sums of a
chunk's values in float64, rounded to the store's precision. If that is more than a millionth of the deviation, the
deviation may be off by as much. An ellipsoid is one whose volume is proven to be within EPSILON of the least: by the
weights of its coreset and the outermost row, as a model of ``one_class = "ellipsoid"`` is verified (ellipsoid.py). Its
radius in scaled rows is sqrt(r), to a millionth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from coremargin.formats.ellipsoid_scaling import EPSILON
from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import Check, shown
from coremargin.verify.claim import AnyClaim
from coremargin.verify.ellipsoid import KIND, EllipsoidClaim, LevelScan, LevelSummary, volume_radius
from coremargin.verify.sums import SLAB_ROWS, SLAB_VALUES, gamma, length, quiet

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coremargin.verify.rows import Chunk, Rows

#: Errors of trainers when they combine chunks, of means and of deviations, in units of the deviation.
_MEAN, _DEVIATION = 1e-9, 1e-6
_RADIUS = 1e-6  # relative error of the radius of an ellipsoid in scaled rows
_RUN = 1 << 15  # numbers of whole rows that trainers add before they add these to the sum of a chunk


@dataclass(frozen=True)
class Columns:
    """Per column (d,) of a chunk of ``rows`` rows, in float64: extremes, mean, and sum of squares about the mean."""

    rows: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    levels: LevelSummary | None = None  #: of rows in the metric of an ellipsoid


class Scaler:
    """Scales rows as a claim defines, and collects statistics of their columns, in the order of chunks."""

    def __init__(self, claim: AnyClaim, rows: Rows) -> None:
        self.claim, self.rows = claim, rows
        self.dtype = np.dtype(rows.dtype)
        self.shift, self.factor = (values.astype(self.dtype) for values in (claim.shift, claim.factor))
        self._by_column = len(claim.factor) > 0
        self._ellipsoid = EllipsoidScan(claim, rows) if claim.scaling == "ellipsoid" else None
        self._low, self._high = np.full(claim.stored_features, np.inf), np.full(claim.stored_features, -np.inf)
        self._count, self._spread = 0, np.zeros(claim.stored_features)
        # the first chunk's mean, and the difference of the mean of all from it
        self._origin = self._moved = np.zeros(claim.stored_features)

    def scaled(self, chunk: Chunk) -> Chunk:
        """The chunk with its rows scaled."""
        if not self.claim.scaling:
            return chunk
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that overflow are rejected later
            if self._ellipsoid is not None:
                return chunk if self.rows.sparse else replace(chunk, x=self._ellipsoid.scaled(chunk.x))
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
        """Statistics of the columns of a chunk as stored; None if nothing is claimed about them."""
        if self._ellipsoid is not None and not self.rows.sparse:
            low, high = chunk.x.min(axis=0).astype(np.float64), chunk.x.max(axis=0).astype(np.float64)
            levels = self._ellipsoid.scan.probe(chunk)
            return Columns(len(chunk.x), low, high, np.zeros(0), np.zeros(0), levels)
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
        """Add a chunk's statistics, by the update of Chan, Golub and LeVeque (1979)."""
        if columns is None:
            return
        self._low, self._high = np.minimum(self._low, columns.low), np.maximum(self._high, columns.high)
        if self._ellipsoid is not None and columns.levels is not None:
            self._ellipsoid.scan.add(columns.levels)
        if self.claim.scaling == "standard":
            before, self._count = self._count, self._count + columns.rows
            with np.errstate(over="ignore", invalid="ignore"):
                if before == 0:
                    self._origin = columns.mean
                apart = (columns.mean - self._origin) - self._moved
                self._moved = self._moved + apart * (columns.rows / self._count)
                self._spread += columns.spread + apart * apart * (before * (columns.rows / self._count))

    def box(self) -> float:
        """Upper bound on the length of scaled rows: the farthest corner of the columns' ranges; 0 without scaling."""
        if self.claim.scaling == "rownorm":
            return 1.0
        if self._ellipsoid is not None:
            return self._ellipsoid.box(self._low, self._high)
        if not self._by_column:
            return 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            ends = [(end.astype(self.dtype) - self.shift) * self.factor for end in (self._low, self._high)]
            return length(np.maximum(*np.abs(ends)).astype(np.float64))

    def checks(self) -> list[Check]:
        """Whether the scaling's numbers are what its kind defines; no check without scaling."""
        kind = self.claim.scaling
        if not kind:
            return []
        if self._ellipsoid is not None:
            return [self._ellipsoid.check()]
        if kind == "rownorm":
            return [Check("scaling", ok=True, text="rownorm: the proof is about rows divided by their lengths")]
        equal = (self.shift == self.claim.shift) & (self.factor == self.claim.factor)
        if not (equal & (self.factor > 0)).all():
            column = int(np.argmin(equal & (self.factor > 0)))
            text = f"column {column}: shift and factor are no numbers of {self.dtype}, or the factor is not above 0"
            return [Check("scaling", ok=False, text=f"model claims {kind}, {text}")]
        if self.rows.sparse and self.shift.any():  # predictions shift zeros too, the proof does not
            column = int(np.argmax(self.shift != 0))
            text = f"column {column}: shift {self.shift[column]:.9g}, expected 0: sparse rows are not shifted"
            return [Check("scaling", ok=False, text=f"model claims {kind}, {text}")]
        problem = self._deviating() if kind == "standard" else self._out_of_range()
        if problem:
            return [Check("scaling", ok=False, text=f"model claims {kind}, {problem}")]
        text = f"{kind}: the proof is about rows scaled by the model's shift and factor, which are the store's columns'"
        return [Check("scaling", ok=True, text=text)]

    def _deviating(self) -> str:
        """A text about the first column that is not scaled by its mean and standard deviation, or ""."""
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
        """Upper bound (d,) on the difference of a trainer's column means and these, before they are rounded.

        A trainer divides the plain sum of a chunk by its rows, with an error of a unit of the values' size for each
        addition. Here the middle of the range is subtracted first, for dense chunks; sparse values are summed as they
        are, here and in the trainer.
        """
        chunk = min(self.rows.rows, self.rows.chunk_rows)
        if self.rows.sparse:
            return np.asarray(2 * gamma(chunk + 16) * (np.abs(mean) + deviation))
        additions = min(chunk, SLAB_ROWS) + -(-chunk * len(mean) // _RUN) + 16
        own = gamma(SLAB_ROWS + 16) * (0.5 * self._high - 0.5 * self._low)
        return np.asarray(gamma(additions) * (np.abs(mean) + deviation) + own + _MEAN * deviation)

    def _out_of_range(self) -> str:
        """A text about the first column that is not scaled by its range or its largest absolute value, or ""."""
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


class EllipsoidScan:
    """Rows in the metric of an ellipsoid, and whether it has the least volume around the store's rows."""

    def __init__(self, claim: AnyClaim, rows: Rows) -> None:
        self.rows, arrays = rows, dict(claim.ellipsoid)
        rank, given = len(arrays["centre"]), arrays["coreset_x"]
        shared = {field.name: getattr(claim, field.name) for field in fields(AnyClaim)} | {
            "problem": "ellipsoid",
            "features": claim.stored_features,
            "kind": "volume_radius",
            "lower": float(arrays["bounds"][0]),
            "upper": float(arrays["bounds"][1]),
            "ratio": None,
            "epsilon": EPSILON,
            "proven_epsilon": EPSILON,
            "soft": False,
            "ids": arrays["coreset_ids"],
            "x": given,
            "given": given,
            "y": np.ones(len(given), np.int64),
            "scaling": "",
            "ellipsoid": {},
            "map": None,
            "moved": 0.0,
            "view": WHOLE,
        }
        self.claim = EllipsoidClaim(
            **shared,
            centre=arrays["centre"],
            axes=arrays["axes"],
            alpha=arrays["alpha"],
            only=UNSET,
            span_columns=arrays.get("span_columns", np.arange(rank)),
            slopes=arrays.get("span_slopes", np.zeros((0, rank))),
            offsets=arrays.get("span_offsets", np.zeros(0)),
            residuals=arrays.get("span_residuals", np.zeros(0)),
        )
        self.scan = LevelScan(self.claim, rows)

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Dense rows (n, d) in the metric, in their own precision."""
        claim, out = self.claim, np.zeros_like(x)
        step = max(1, SLAB_VALUES // x.shape[1])
        for start in range(0, len(x), step):
            off = x[start : start + step][:, claim.span_columns].astype(np.float64) - claim.centre
            for j, column in enumerate(claim.span_columns):
                products = off[:, : j + 1] * claim.axes[j, : j + 1]
                # accumulate adds from left to right; adding 0 to a sum of zeros makes it +0
                out[start : start + step, column] = np.add.accumulate(products, axis=1)[:, -1] + 0.0
        return out

    def box(self, low: np.ndarray, high: np.ndarray) -> float:
        """Upper bound on the length of rows in the metric, from the ranges of columns."""
        claim = self.claim
        with quiet():
            reach = np.maximum(*(np.abs(end[claim.span_columns] - claim.centre) for end in (low, high)))
            return length(np.abs(claim.axes) @ reach)

    def check(self) -> Check:
        """Whether the ellipsoid is proven to have the least volume around the rows."""
        if self.rows.sparse:
            text = "model claims ellipsoid, sparse rows are not scaled by ellipsoids"
            return Check("scaling", ok=False, text=text)
        problems, claim = [check.text for check in self.scan.checks() if not check.ok], self.claim
        radius = float(claim.upper or 0.0) / volume_radius(claim.axes)
        if not abs(radius - math.sqrt(claim.rank)) <= _RADIUS * radius:
            problems.append(f"its radius is {shown(radius)}, expected {shown(math.sqrt(claim.rank))}")
        if not KIND.certifies(claim, claim.lower, claim.upper):
            radii = f"{shown(claim.lower)} and {shown(claim.upper)}"
            problems.append(f"the volume radii {radii} do not prove the least volume to {EPSILON:g}")
        if problems:
            return Check("scaling", ok=False, text=f"model claims ellipsoid, {'; '.join(problems)}")
        flat = f" in {claim.rank} of {claim.features} columns" if claim.rank < claim.features else ""
        text = "ellipsoid: the proof is about rows in the metric of the model's ellipsoid, whose volume is within"
        share = 1.0 - (float(claim.lower or 0.0) / float(claim.upper or math.inf)) ** claim.rank
        return Check("scaling", ok=True, text=f"{text} {share:.2g} of the least around the store's rows{flat}")


def _sparse_columns(x: csr_array) -> Columns:
    """Statistics of the columns of sparse rows; values that are not stored are 0."""
    (n, d), exact = x.shape, x.data.astype(np.float64)
    low, high = (getattr(x, name)(axis=0).toarray().reshape(-1).astype(np.float64) for name in ("min", "max"))
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.bincount(x.indices, weights=exact, minlength=d) / n
        zeros = n - np.bincount(x.indices, minlength=d)
        spread = np.bincount(x.indices, weights=np.square(exact - mean[x.indices]), minlength=d) + zeros * mean * mean
    return Columns(n, low, high, mean, spread)
