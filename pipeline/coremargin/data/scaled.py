"""Rows scaled as they are read: the view behind ``--scaling``. No data is rewritten, no extra scan is made.

Shift and factor of each column come from the statistics that ingest kept, of all rows, labelled or not:

    kind        shift    factor                 constant column
    standard    mean     1 / standard deviation (of the population)    factor 1: 0 throughout
    minmax      low      1 / (high - low)                              factor 1: 0 throughout
    maxabs      0        1 / max(|low|, |high|)                        a column of zeros: factor 1
    rownorm     each row is divided by its Euclidean length
    ellipsoid   z = F (x - c) of the ellipsoid of least volume around the rows, which takes a read: a training
                finds it first (learn/ellipsoid_scaling.py)

Sparse rows keep their zeros: ``standard`` does not shift them (as with_mean=False), ``minmax`` would and is refused.

As scikit-learn's StandardScaler, MinMaxScaler, MaxAbsScaler and Normalizer do; maths/scaling.py says what the scaled
rows are to the bit. Both are rounded to the store's precision first, so that anyone can repeat the operations.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.moments import Moments, moments
from coremargin.data.reused import Reused
from coremargin.data.sparse import as_sparse_rows, csr_rows
from coremargin.data.view import View
from coremargin.errors import BadRow, UsageError
from coremargin.formats.ellipsoid_scaling import PREFIX
from coremargin.maths.rows import is_sparse
from coremargin.maths.scaling import NO_LENGTH, Kind, Metric, Scaling, beyond_lengths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scipy.sparse import csr_array

    from coremargin.data.source import Source
    from coremargin.data.statistics import ChunkScalars, ChunkStatistics

_SLICE = 1 << 21  # numbers of each statistic that are held at a time
_UNIT = float(np.finfo(np.float64).eps)


class Scaled(View):
    """Scaled rows of a source. ``statistics`` stay those of the rows as they are stored."""

    kind = "scaled"

    def __init__(
        self,
        base: Source,
        how: Kind,
        shift: np.ndarray | None,
        factor: np.ndarray | None,
        ellipsoid: tuple[tuple[str, np.ndarray], ...] | None = None,
    ) -> None:
        """Use ``scaled``; shift and factor (d,) of the base's dtype, None for rownorm and ellipsoid.

        ellipsoid: arrays of a model by name, for that kind alone.
        """
        super().__init__(base, how, shift, factor, *(() if ellipsoid is None else (ellipsoid,)))
        self.ellipsoid = None if ellipsoid is None else dict(ellipsoid)
        metric = None if self.ellipsoid is None else Metric.of(self.features, self.ellipsoid)
        self.scaling = Scaling(how, self.dtype, shift, factor, metric)
        self._buffers = Reused()

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Scaled rows (n, d) and codes (n,) of a chunk, read-only."""
        rows, codes = self.base.read(chunk)
        first = self.span(chunk)[0]
        if is_sparse(rows):
            return self._sparse(rows, first + np.arange(rows.shape[0])), codes
        out = self._buffers.take("rows", rows.size, self.dtype).reshape(rows.shape)
        self._check(self.scaling.into(rows, out), rows, first + np.arange(len(rows)))
        out.flags.writeable = False
        return out, codes

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Scaled rows (m, d), as float64, and codes (m,) of the given row ids, in the order given."""
        rows, codes = self.base.rows_at(ids)
        rows = rows.astype(self.dtype)
        if is_sparse(rows):
            return self._sparse(rows, ids).astype(np.float64), codes
        out = np.empty(rows.shape, self.dtype)
        self._check(self.scaling.into(rows, out), rows, ids)
        return out.astype(np.float64), codes

    def _sparse(self, rows: csr_array, ids: np.ndarray) -> csr_array:
        """Scaled sparse rows without explicit zeros."""
        values, found = self.scaling.values(rows)
        self._check(found, rows, ids)
        if values.all():
            values.flags.writeable = False
            return csr_rows(values, rows.indices, rows.indptr, self.features)
        return as_sparse_rows(
            csr_rows(values, rows.indices, rows.indptr, self.features), dtype=self.dtype, place=self.name
        )

    def _check(self, found: np.ndarray | None, rows: np.ndarray | csr_array, ids: np.ndarray) -> None:
        """Raise BadRow for rows (n, d) whose lengths ``found`` (n,) say nothing about them."""
        bad = beyond_lengths(found, rows)
        if len(bad):
            raise BadRow(f"{self.name}: row {ids[bad[0]]}: {NO_LENGTH}")

    def scalars(self) -> ChunkScalars:
        """Counts of the base; radius and largest norm of the scaled rows, rounded up."""
        return self._scalars

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Points (stop - start, d) from which no scaled row of the chunk is farther than the radius."""
        centres = self.base.centres(start, stop)
        return np.zeros_like(centres) if self.scaling.kind == "rownorm" else self._point(centres)

    def _point(self, centres: np.ndarray) -> np.ndarray:
        if self.scaling.metric is not None:
            found = np.empty_like(centres)
            self.scaling.metric.into(centres, found)
            return found
        shift, factor = self.scaling.shift, self.scaling.factor
        return np.asarray((centres - shift.astype(np.float64)) * factor.astype(np.float64))  # type: ignore[union-attr]

    @cached_property
    def _scalars(self) -> ChunkScalars:
        """Lengths are bounded in two ways, and the smaller bound holds.

        Let x be a row, z the scaled row, c the chunk's centre and p = ``_point(c)``. Any p would do; this one is near.

        1. Scaling a value is monotone (factor > 0, and so is rounding): with l, h the scaled ``low`` and ``high`` of
           the chunk, l_j <= z_j <= h_j. So |z_j| <= max(|l_j|, |h_j|) and |z_j - p_j| <= max(h_j - p_j, p_j - l_j).
        2. Without rounding z - p = factor (x - c), no longer than max(factor) radius. Two operations in the store's
           precision move z by at most 3 u |z_j| + tiny in each column (u the rounding unit, tiny the smallest normal
           number), two of float64 move p by less than that of |p_j|. ||z|| is at most its bound from 1.
        3. Without rounding z = factor x - factor shift, no longer than max(factor) ||x|| + ||factor shift||.

        ``ellipsoid``: the same with F for factor. ``_lengths_in_metric`` has what differs.

        ``rownorm``: r is the length of x to (d + 2) / 2 units of float64, division and rounding add one unit each of
        both precisions: ||z|| <= 1 + (d + 8) units of float64 + 2 of the store's. All lies that near to 0.
        """
        base, d = self.base.scalars(), self.features
        unit = float(np.finfo(self.dtype).eps)
        if self.scaling.kind == "rownorm":
            longest = np.full(self.chunks, 1.0 + (d + 8) * _UNIT + 2 * unit)
            return replace(base, radius=longest, max_norm=longest)
        step = max(1, _SLICE // d)
        lengths = self._lengths if self.scaling.metric is None else self._lengths_in_metric
        parts = [
            lengths(self.base.statistics(start, min(start + step, self.chunks)), unit)
            for start in range(0, self.chunks, step)
        ]
        radius, longest = (np.concatenate(part) for part in zip(*parts, strict=True))
        return replace(base, radius=radius, max_norm=longest)

    def _lengths(self, part: ChunkStatistics, unit: float) -> tuple[np.ndarray, np.ndarray]:
        """Radius and largest norm (c,) of some chunks."""
        low, high = (self.scaled_values(_dense(values)) for values in (part.low, part.high))
        point, origin = self._point(_dense(part.centre)), self._point(np.zeros((1, self.features)))
        most = float(self.scaling.factor.max()) * (1 + 4 * _UNIT)  # type: ignore[union-attr]
        tiny = float(np.finfo(self.dtype).tiny) * float(np.sqrt(self.features))
        plain = (most * part.max_norm + _length(origin)) * (1 + 4 * unit) + tiny
        longest = np.minimum(_length(np.maximum(np.abs(low), np.abs(high))), plain)
        wide = _length(np.maximum(high - point, point - low))
        near = part.radius * most
        near = (near + 3 * unit * (longest + _length(point)) + tiny) * (1 + 4 * _UNIT)
        radius = np.minimum(wide, near)
        return radius, np.minimum(longest, (_length(point) + radius) * (1 + 4 * _UNIT))

    def _lengths_in_metric(self, part: ChunkStatistics, unit: float) -> tuple[np.ndarray, np.ndarray]:
        """Radius and largest norm (c,) of some chunks, by three bounds.

        1. |z_j| <= sum_k |F_jk| max(|low_k - c_k|, |high_k - c_k|), and |z_j - p_j| likewise about the chunk's centre.
        2. ||z - p|| <= ||F|| radius.
        3. All rows that count lie in the ellipsoid: ||z|| is at most its radius. Of weighted rows, some may not count.

        A sum of r products is off by at most gamma_(r+2) of the sum of their sizes, which are those of bound 1.
        """
        metric: Any = self.scaling.metric
        columns, size = metric.columns, np.abs(metric.axes)
        low, high, centre = (_dense(values)[:, columns] for values in (part.low, part.high, part.centre))
        reach = _length(np.maximum(np.abs(low - metric.centre), np.abs(high - metric.centre)) @ size.T)
        error = 2 * (len(columns) + 8) * _UNIT * reach
        spread = _length(np.maximum(high - centre, centre - low) @ size.T)
        tiny = float(np.finfo(self.dtype).tiny) * float(np.sqrt(self.features))
        point = _length(self._point(_dense(part.centre)))
        widest = float(np.linalg.norm(metric.axes, 2)) * (1 + 1e-9)
        longest = reach
        if self.base.weights(0) is None:
            volume = float(np.exp(-np.log(np.diag(metric.axes)).mean()))
            longest = np.minimum(reach, float(self.ellipsoid["scaling_bounds"][1]) / volume * (1 + 1e-9))  # type: ignore[index]
        longest = (longest + error) * (1 + 2 * unit) + tiny
        radius = (np.minimum(spread, widest * part.radius) + 2 * error + 2 * unit * longest + tiny) * (1 + 4 * _UNIT)
        return radius, np.minimum(longest, (point + radius) * (1 + 4 * _UNIT))

    def scaled_values(self, values: np.ndarray) -> np.ndarray:
        """Scaled rows, as float64, of rows (c, d) float64 that are numbers of the store's precision."""
        out = np.empty(values.shape, self.dtype)
        self.scaling.into(np.ascontiguousarray(values, dtype=self.dtype), out)
        return out.astype(np.float64)


def _dense(values: np.ndarray | csr_array) -> np.ndarray:
    return np.asarray(values.toarray() if is_sparse(values) else values)


def _length(values: np.ndarray) -> np.ndarray:
    """Lengths (c,) of rows (c, d), rounded up; 0 for rows of zeros, to which constant columns are scaled."""
    size = np.sqrt(np.add.reduce(values * values, axis=1))
    rounded = size * (1 + (values.shape[1] + 8) * _UNIT) + 1e-150 * np.sqrt(values.shape[1])
    return np.where(values.any(axis=1), rounded, 0.0)


def scaled(source: Source, how: Kind | None, ellipsoid: Mapping[str, np.ndarray] | None = None) -> Source:
    """The source with its rows scaled, or itself for None. Raises BadRow for a column that cannot be scaled.

    ellipsoid: the arrays of that kind of scaling, which statistics do not give.
    """
    if how is None:
        return source
    if scaling_of(source) is not None:
        raise UsageError(f"{source.name}: the rows are scaled already; give the source under them")
    if how == "rownorm":
        return Scaled(source, how, None, None)
    if how == "ellipsoid":
        if ellipsoid is None:
            raise UsageError(
                f"{source.name}: scaling 'ellipsoid' takes a read of all rows before the rows are scaled, which only "
                f"training jobs make; choose another scaling, such as 'standard'"
            )
        return Scaled(source, how, None, None, tuple(sorted(ellipsoid.items())))
    if source.sparse and how == "minmax":
        raise UsageError(
            f"{source.name}: scaling 'minmax' would turn the zeros of sparse rows into other values; use 'maxabs', "
            f"which scales every column to within 1 of 0 and keeps zeros"
        )
    found = moments(source)
    shift, size, what = _shift_and_size(found, how)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        factor = (1.0 / size).astype(source.dtype)
        far = (found.high - found.low) * (how != "maxabs" and not source.sparse)
    _refuse_columns(source, {what: size, "range": far}, factor)
    return Scaled(source, how, (shift * (not source.sparse)).astype(source.dtype), factor)


def scaled_as(source: Source, scaling: Scaling, arrays: Mapping[str, np.ndarray] | None = None) -> Source:
    """The source with its rows scaled as those of a model.

    arrays: of the model, for the rows that it was trained on; None: other rows, which may lie outside its ellipsoid.
    """
    metric = scaling.metric
    if metric is None:
        return Scaled(source, scaling.kind, scaling.shift, scaling.factor)
    if arrays is not None:
        return scaled(source, scaling.kind, {name: some for name, some in arrays.items() if name.startswith(PREFIX)})
    numbers = {
        "centre": metric.centre,
        "axes": metric.axes,
        "span_columns": metric.columns,
        "bounds": np.full(2, np.inf),
    }
    return scaled(source, scaling.kind, {PREFIX + name: values for name, values in numbers.items()})


def ellipsoid_of(source: Source) -> Mapping[str, np.ndarray]:
    """The arrays of the ellipsoid that scales the rows of a source; none for other scalings."""
    while isinstance(source, View):
        if isinstance(source, Scaled):
            return source.ellipsoid or {}
        source = source.base
    return {}


def scaling_of(source: Source) -> Scaling | None:
    """How the rows of a source are scaled, None for rows as they are stored."""
    while isinstance(source, View):
        if isinstance(source, Scaled):
            return source.scaling
        source = source.base
    return None


def unscaled(source: Source) -> Source:
    """The source whose rows a scaled view scales; any other source itself."""
    return source.base if isinstance(source, Scaled) else source


def _shift_and_size(found: Moments, how: Kind) -> tuple[np.ndarray, np.ndarray, str]:
    """Shift and 1 / factor of each column (d,) float64, and what the latter is."""
    nothing = np.zeros_like(found.low)
    if how == "maxabs":
        size = np.maximum(np.abs(found.low), np.abs(found.high))
        return nothing, np.where(size > 0, size, 1.0), "largest size"
    with np.errstate(over="ignore"):
        size = np.sqrt(found.variance) if how == "standard" else found.high - found.low
    what = "standard deviation" if how == "standard" else "range"
    shift = found.mean if how == "standard" else found.low
    return shift + 0.0, np.where(found.constant, 1.0, size), what  # -0.0 would turn the sign of zeros


def _refuse_columns(source: Source, sizes: dict[str, np.ndarray], factor: np.ndarray) -> None:
    facts = np.finfo(source.dtype)
    wider = "ingest with --dtype float64" if source.dtype == np.float32 else "rescale it first"
    for what, size in sizes.items():
        bad = np.flatnonzero(~((size <= float(facts.max)) & np.isfinite(factor) & (factor >= facts.tiny)))
        if len(bad):
            raise BadRow(
                f"{source.name}: column {bad[0]} (counted from 0): its {what}, {size[bad[0]]:g}, is beyond what "
                f"{source.dtype} can scale; {wider}, or drop the column"
            )
