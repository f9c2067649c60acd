"""The state of a soft-margin job between two scans, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.problems.common.state_arrays import part_from_arrays, state_from_arrays, state_to_arrays
from coremargin.problems.common.zone import Zone
from coremargin.problems.soft.rows_with_c import RowsWithC
from coremargin.problems.soft.summary import BINS

if TYPE_CHECKING:
    from coremargin.problems.soft.summary import StageSummary

Array = NDArray[np.float64]
Status = Literal["running", "certified", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "stalled")


@dataclass(frozen=True)
class Bounds:
    """The proven bounds: primal, the value of the best hypothesis, from above; dual, from below.

    reference (d + 1,): the hypothesis that the dual point belongs to. near_ids, near_signs, near_duals (m,): with the
    hinge, the duals of the rows near the margin; every other row has dual c if it has slack at ``reference``, else 0.
    After a read in stages, reference is (s, d + 1), and reference_of (c,) is the row of it that belongs to each chunk.
    ramp: of the corrected dual point of the squared hinge (losses/squared_hinge.py), 0 for one without correction.
    """

    primal: float
    dual: float
    reference: Array
    near_ids: NDArray[np.int64]
    near_signs: NDArray[np.int8]
    near_duals: Array
    reference_of: NDArray[np.int64]
    ramp: float = 0.0

    @classmethod
    def unknown(cls, reference: Array) -> Bounds:
        """Bounds before the first scan."""
        return cls.of_hypothesis(reference, np.inf, 0.0)

    @classmethod
    def of_hypothesis(cls, reference: Array, primal: float, dual: float) -> Bounds:
        """Bounds whose dual point follows from the slacks at a hypothesis, for every row."""
        none = np.zeros(0, np.int64)
        return cls(primal, dual, reference, none, none.astype(np.int8), np.zeros(0), none)


@dataclass(frozen=True)
class RowCache:
    """Rows in the memory of the driver.

    sample: rows that stand for those far from the margin. cached: rows that no scan needs to send. cached_duals (m,):
    their duals if all rows are cached, else none (with row partitions, ``SoftState.block_pass`` has the duals).
    """

    sample: RowsWithC
    cached: RowsWithC
    cached_duals: Array


@dataclass(frozen=True)
class LastScan:
    """Counts of the last scan: rows that were sent, and rows with a margin below 1 (None: no scan yet).

    histogram (2, bins): of the margins of both classes over [low, high].
    """

    near_rows: int
    histogram: NDArray[np.int64]
    low: float
    high: float
    rows_below: int | None

    @classmethod
    def none(cls, low: float, high: float) -> LastScan:
        """Counts before the first scan."""
        return cls(0, np.zeros((2, BINS), np.int64), low, high, None)


# The first read, in stages


@dataclass(frozen=True)
class Terms:
    """What the sums of far rows depend on besides the rows.

    codes (2,): label codes of the positive and the negative class; class_c (2,): c of a row of weight 1; scaling: a
    digest (32,) of how rows are scaled and mapped.
    """

    codes: NDArray[np.int64]
    class_c: Array
    scaling: NDArray[np.uint8]

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Terms:
        """Inverse of ``to_arrays``."""
        return cls(**{f.name: arrays[f"{name}_{f.name}"] for f in fields(cls)})


#: Fields of ``FarRows`` that no summary has.
_OWN = ("hypotheses", "edges", "removed")


@dataclass(frozen=True)
class FarRows:
    """Sums over the far rows of each stage: hypotheses (s, d + 1), edges (s, k + 1) of the rings, and the fields of
    ``StageSummary``, stacked.

    removed (s, 2): losses and duals of rows that were subtracted from the sums later, whose rounding is still in them.
    Such rows also stay in the fields that are upper bounds: total_c, ring_weight, ring_spread, the rings of rows that
    may cross, and least (a lower bound).
    """

    hypotheses: Array
    edges: Array
    value: Array
    duals: Array
    dual_sum: Array
    rings: Array
    ring_weight: Array
    ring_spread: Array
    least: Array
    below: NDArray[np.int64]
    histogram: NDArray[np.int64]
    total_c: Array
    removed: Array

    @classmethod
    def empty(cls, stages: int, features: int, edges: int, rings: int, bins: int) -> FarRows:
        """Sums before the first stage."""
        p = features + 1
        return cls(
            hypotheses=np.zeros((stages, p)),
            edges=np.zeros((stages, edges)),
            value=np.zeros(stages),
            duals=np.zeros((stages, 2)),
            dual_sum=np.zeros((stages, 2, p)),
            rings=np.zeros((stages, rings, p, p)),
            ring_weight=np.zeros((stages, rings)),
            ring_spread=np.zeros((stages, rings)),
            least=np.full(stages, np.inf),
            below=np.zeros(stages, np.int64),
            histogram=np.zeros((stages, 2, bins), np.int64),
            total_c=np.zeros((stages, 2)),
            removed=np.zeros((stages, 2)),
        )

    def record(self, stage: int, hypothesis: Array, edges: Array, found: StageSummary) -> FarRows:
        """The sums with the summary of a stage in place of what was known of it."""
        sums = {f.name: getattr(found, f.name) for f in fields(self) if f.name not in _OWN}
        changed = {}
        for name, value in {"hypotheses": hypothesis, "edges": edges, "removed": np.zeros(2), **sums}.items():
            changed[name] = getattr(self, name).copy()
            changed[name][stage] = value if changed[name].ndim > 1 else value[0]
        return replace(self, **changed)

    def cleared(self, stages: NDArray[np.bool_]) -> FarRows:
        """Without the sums of some stages (s,)."""
        changed = {}
        for f in fields(self):
            changed[f.name] = getattr(self, f.name).copy()
            changed[f.name][stages] = np.inf if f.name == "least" else 0
        return replace(self, **changed)

    def subtract(self, stage: int, some: StageSummary, *, rings: bool) -> FarRows:
        """Without some rows of a stage, summed up at its hypothesis.

        rings: also subtract the matrices of rows with slack, which is right only if each row is in the ring that it
        was in.
        """
        changed = {name: getattr(self, name).copy() for name in ("value", "duals", "dual_sum", "below", "histogram")}
        for name, value in changed.items():
            found = getattr(some, name)
            value[stage] -= found if value.ndim > 1 else found[0]
        for name in ("below", "histogram"):  # rounding may have put a row in another bin
            changed[name] = np.maximum(changed[name], 0)
        changed["removed"] = self.removed.copy()
        changed["removed"][stage] += [some.value[0], some.duals.sum()]
        if rings:
            changed |= {name: getattr(self, name).copy() for name in ("rings", "ring_weight", "ring_spread")}
            losing = slice(0, self.edges.shape[1])
            changed["rings"][stage, losing] -= some.rings[losing]
            changed["ring_weight"][stage, losing] += some.ring_weight[losing]
            changed["ring_spread"][stage, losing] += some.ring_spread[losing]
        return replace(self, **changed)

    def add(self, stage: int, some: StageSummary) -> FarRows:
        """The sums with more rows of a stage, summed up at its hypothesis."""
        changed = {f.name: getattr(self, f.name).copy() for f in fields(self) if f.name not in _OWN}
        for name, value in changed.items():
            found = getattr(some, name)
            found = found if value.ndim > 1 else found[0]
            value[stage] = min(value[stage], found) if name == "least" else value[stage] + found
        return replace(self, **changed)

    def resized(self, stages: int) -> FarRows:
        """The same sums with room for more stages."""
        more = stages - len(self.hypotheses)
        grown = {}
        for f in fields(self):
            have = getattr(self, f.name)
            empty = np.inf if f.name == "least" else 0
            grown[f.name] = np.concatenate([have, np.full((more, *have.shape[1:]), empty, have.dtype)])
        return replace(self, **grown)

    def scaled(self, ratio: Array) -> FarRows:
        """The same sums with c multiplied by ``ratio`` (2,), for rows of the positive and of the negative class.

        Sums over both classes are exact if the two factors are equal, and upper bounds otherwise.
        """
        most = float(ratio.max())
        both = ("value", "rings", "ring_weight", "ring_spread", "removed")
        changed = {name: most * getattr(self, name) for name in both}
        changed |= {"duals": ratio * self.duals, "dual_sum": ratio[:, None] * self.dual_sum}
        return replace(self, **changed, total_c=ratio * self.total_c)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return {f"{name}_{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> FarRows:
        """Inverse of ``to_arrays``."""
        return cls(**{f.name: arrays[f"{name}_{f.name}"] for f in fields(cls)})


@dataclass(frozen=True)
class Reading:
    """The first read, in stages: sums of the far rows; near: the rows near the margin, in the driver.

    stage: number of completed stages; stage_of (c,): the stage of each chunk; reread (s,): stages to be read again.
    move (d + 1,): the expected move of the hypothesis; spread: root mean square of the expected moves of margins; seen:
    share of the chunks behind the hypothesis before the last move. terms: what the sums depend on.
    """

    far: FarRows
    near: RowsWithC
    stage: int
    stage_of: NDArray[np.int64]
    reread: NDArray[np.bool_]
    move: Array
    spread: float
    seen: float
    terms: Terms

    @property
    def count(self) -> int:
        """Number of stages."""
        return len(self.reread)

    @property
    def complete(self) -> bool:
        """Whether every stage has been read."""
        return self.stage == self.count

    @property
    def next_chunks(self) -> NDArray[np.intp]:
        """The chunks of the next stage or, once all stages were read, of those to be read again."""
        return np.flatnonzero(self.reread[self.stage_of] if self.complete else self.stage_of == self.stage)

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        plain = {
            f"{name}_{part}": np.asarray(getattr(self, part))
            for part in ("stage", "stage_of", "reread", "move", "spread", "seen")
        }
        parts = self.far.to_arrays(f"{name}_far") | self.near.to_arrays(f"{name}_near")
        return parts | self.terms.to_arrays(f"{name}_terms") | plain

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Reading | None:
        """Inverse of ``to_arrays``; None if there is none."""
        if f"{name}_stage" not in arrays:
            return None
        return cls(
            far=FarRows.from_arrays(f"{name}_far", arrays),
            near=RowsWithC.from_arrays(f"{name}_near", arrays),
            stage=int(arrays[f"{name}_stage"]),
            stage_of=arrays[f"{name}_stage_of"],
            reread=arrays[f"{name}_reread"],
            move=arrays[f"{name}_move"],
            spread=float(arrays[f"{name}_spread"]),
            seen=float(arrays[f"{name}_seen"]),
            terms=Terms.from_arrays(f"{name}_terms", arrays),
        )


# Block minimisation


@dataclass(frozen=True)
class BlockPass:
    """A dual point of all rows, and the progress of a pass over them (block_minimisation.py).

    duals (n,): a_i y_i of every row; dual_sum (d + 1,): sum a_i y_i (x_i, 1); dual_total: what the duals add to the
    dual value (``Loss.dual_total``). point (d + 1,): the minimiser after the last row partition. total (d + 1,): sum of
    these minimisers over the pass, each weighted by the rows of its partition; seen: sum of these weights. segment: the
    next partition; equal to their number if a proof is next. values (k,): dual values after each pass; gain: relative
    gain of the last partition. wait: passes between the last proof and the next one, 0: decided by the gains; waited:
    passes since the last proof. scans: number of completed passes and proofs.
    """

    duals: Array
    dual_sum: Array
    dual_total: float
    point: Array
    total: Array
    seen: int
    segment: int
    values: Array
    gain: float
    wait: int
    waited: int
    scans: int

    @classmethod
    def zero(cls, rows: int, features: int) -> BlockPass:
        """The state before the first pass: all duals are zero."""
        zero = np.zeros(features + 1)
        return cls(
            duals=np.zeros(rows),
            dual_sum=zero,
            dual_total=0.0,
            point=zero,
            total=zero,
            seen=0,
            segment=0,
            values=np.zeros(0),
            gain=1.0,
            wait=0,
            waited=0,
            scans=0,
        )

    @property
    def value(self) -> float:
        """The dual value, up to the rounding of its sums."""
        return self.dual_total - 0.5 * float(self.dual_sum[:-1] @ self.dual_sum[:-1])

    @property
    def mean(self) -> Array:
        """The mean minimiser (d + 1,) of the pass, better than any single one, which leans towards its partition."""
        return self.total / max(1, self.seen)

    def restarted(self) -> BlockPass:
        """The same point at the beginning of a pass."""
        return replace(self, segment=0, total=np.zeros(len(self.total)), seen=0)

    def times(self, factor: float) -> BlockPass:
        """The same point if every C is multiplied by ``factor``, as its duals and their sums are."""
        return replace(
            self, duals=factor * self.duals, dual_sum=factor * self.dual_sum, dual_total=factor * self.dual_total
        )

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays ``NAME_duals`` and so on; exact."""
        return {f"{name}_{field}": value for field, value in state_to_arrays(self).items()}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> BlockPass | None:
        """Inverse of ``to_arrays``; None if there is none."""
        start = f"{name}_"
        mine = {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
        return cls(**state_from_arrays(cls, mine, {})) if mine else None


# All of it


@dataclass(frozen=True)
class SoftState:
    """The state between two scans.

    newest (d + 1,): the (w, b) of the next scan; best: the one behind the upper bound, None before the first scan.
    total_rows: of both classes. sample_bytes: bytes read before the first scan, or between two scans. block_pass: of
    block minimisation only. reading: while the first read is made in stages, and as long as its sums are all that is
    known; stages: their number, 0 if the job did not begin with them.
    """

    round: int
    status: Status
    newest: Array
    best: Array | None
    bounds: Bounds
    rows: RowCache
    zone: Zone
    last_scan: LastScan
    total_rows: int
    sample_bytes: int
    block_pass: BlockPass | None = None
    reading: Reading | None = None
    stages: int = 0

    @property
    def lower(self) -> float:
        """The dual bound."""
        return self.bounds.dual

    @property
    def upper(self) -> float:
        """The primal bound."""
        return self.bounds.primal

    @property
    def histogram(self) -> NDArray[np.int64]:
        """Margins in the last scan (2, bins)."""
        return self.last_scan.histogram

    @property
    def low(self) -> float:
        """Lower end of the histogram."""
        return self.last_scan.low

    @property
    def high(self) -> float:
        """Upper end of the histogram."""
        return self.last_scan.high

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` returns the same bits."""
        return state_to_arrays(self, STATUSES)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SoftState:
        """Inverse of ``to_arrays``."""
        makers = {
            "bounds": part_from_arrays(Bounds),
            "zone": part_from_arrays(Zone),
            "last_scan": part_from_arrays(LastScan, may_lack=("rows_below",)),
            "block_pass": BlockPass.from_arrays,
            "reading": Reading.from_arrays,
            "rows": part_from_arrays(RowCache, {"sample": RowsWithC.from_arrays, "cached": RowsWithC.from_arrays}),
        }
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES, may_lack=("best",)))
