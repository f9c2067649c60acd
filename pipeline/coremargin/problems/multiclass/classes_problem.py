"""Common parts of the hard and the soft margin of several classes: state, sample, line search, warm start, result."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.problem import BaseProblem, CannotWarmStart, Round
from coremargin.errors import UsageError
from coremargin.maths.margin import is_certified
from coremargin.maths.multiclass import constant
from coremargin.maths.rows import gathered
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import class_codes, class_index
from coremargin.problems.common.driver_rows import ClassRows, read_labelled_rows
from coremargin.problems.common.map_rounding import widen_margin_bounds
from coremargin.problems.common.result import STOPPED
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE, sample_chunks
from coremargin.problems.common.sizes import row_bytes
from coremargin.problems.common.state_arrays import part_from_arrays, state_from_arrays, state_to_arrays
from coremargin.problems.common.warm_start import AppendedRows, RowFetcher, appended_to_last_chunk
from coremargin.problems.common.zone import REASONS, Zone, has_moved
from coremargin.problems.multiclass.probe import ClassesProbe, ClassesSummary
from coremargin.problems.outliers.removal import Removal
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.engine.allowance import Allowance
    from coremargin.formats.model_record import Known
    from coremargin.maths.outliers.row_search import Proof
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Status = Literal["running", "certified", "not_separable", "stalled", "unfinished"]
STATUSES: tuple[Status, ...] = ("running", "certified", "not_separable", "stalled", "unfinished")

#: Points on the segment from the best hypothesis (0) to the newest (1) that a scan evaluates besides the newest.
LINE_POINTS = (0.25, 0.5, 0.75, 0.9)
#: Hypotheses of K x (d + 1) that the driver holds at a time, its own and those in summaries.
HYPOTHESES = 16
#: When more than this share of the rows has changed, training starts from scratch: sums of which nearly everything is
#: subtracted keep the rounding errors of their former size.
MOST_CHANGED = 0.1

_PARTIAL = "partial_"
_CODES, _CONSTANT, _CLASS_C = "terms_codes", "terms_constant", "terms_class_c"


@dataclass(frozen=True)
class ClassesState:
    """The state between two scans. Hypotheses are (K, d + 1), duals (m, K) with zeros at a row's own class.

    newest: the hypothesis of the next scan; best: the one proven by scans, None before the first. confusion (K, K),
    rows_below (None: none yet) and lower_now come from the last scan. mu: of the last proximal step of the last solve.

    Hard margin: ||V||_F = 1, and lower is the margin of ``best``; working_set: the rows in the driver; proof, duals:
    rows and weights behind ``upper``. zone.idle counts scans that moved neither bound. Soft margin: upper is the value
    of ``best``; working_set: rows of the sample that represent the far rows; proof, duals: the near rows behind
    ``lower``, without their features; all other rows are on their side at ``reference``. Before the first scan, proof
    and duals are where its solve may start. zone: of the near rows.

    partial: the summary of the chunks ``partial_chunks`` (m,) for the probe of the next scan: of the sample before the
    first one, of the earlier commit after a warm start; in a certified state, of all rows for the last scan.

    removal: with outliers; then ``upper`` is a bound for the rows that are removed only.
    """

    round: int
    status: Status
    newest: Array
    best: Array | None
    lower: float
    upper: float
    working_set: ClassRows
    proof: ClassRows
    duals: Array
    reference: Array
    confusion: NDArray[np.int64]
    rows_below: int | None
    new_rows: int
    sample_bytes: int
    lower_now: float
    upper_at_eviction: float
    rows_held: int
    zone: Zone
    mu: float = 1.0
    partial: ClassesSummary | None = None
    partial_chunks: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    removal: Removal | None = None

    @property
    def removed(self) -> Removal:
        """The rows that are removed, of a job with outliers."""
        return cast("Removal", self.removal)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` returns the same bits."""
        partial = {} if self.partial is None else self.partial.to_arrays()
        stored = {f"{_PARTIAL}summary_{name}": value for name, value in partial.items()}
        return state_to_arrays(replace(self, partial=None), STATUSES) | stored

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ClassesState:
        """Inverse of ``to_arrays``."""

        def partial(_: str, arrays: Mapping[str, NDArray[Any]]) -> ClassesSummary | None:
            prefix = f"{_PARTIAL}summary_"
            found = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
            return ClassesSummary.from_arrays(found) if found else None

        makers = {
            "working_set": ClassRows.from_arrays,
            "proof": ClassRows.from_arrays,
            "zone": part_from_arrays(Zone),
            "partial": partial,
            "removal": Removal.from_arrays,
        }
        return cls(**state_from_arrays(cls, arrays, makers, STATUSES, may_lack=("best", "rows_below")))


@dataclass(frozen=True)
class ClassesResult:
    """A hypothesis about several classes, its bounds, and what is needed to check them.

    status, reason, kind, lower, upper: as in ``Result``. hypothesis (K, d + 1): the last column times ``constant``
    holds the intercepts; rows, duals (m, K): those that carry the proof, rows without features where these are not
    needed; reference (K, d + 1): the hypothesis that determines the duals of all other rows (zero for the hard margin).
    confusion (K, K): of the last scan, and of this very hypothesis if ``final``. With outliers, ``outliers`` has the
    ids of the rows that are left out, and ``proof`` is about ``rows``, whose duals are zero.
    """

    status: Literal["certified", "not_separable", "stopped"]
    reason: str
    kind: Known
    hypothesis: Array
    constant: float
    lower: float | None
    upper: float | None
    rows: ClassRows
    duals: Array
    reference: Array
    confusion: NDArray[np.int64]
    final: bool
    outliers: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    proof: Proof | None = None


@dataclass(frozen=True)
class ClassesProblem(BaseProblem[ClassesState, ClassesSummary]):
    """Several classes at once. epsilon in (0, 1); memory_bytes: for the rows in the driver."""

    epsilon: float
    intercept: bool = True
    memory_bytes: int = 256 << 20
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    soft = False  # of the class: whether bounds are about a value instead of a margin

    @property
    @abstractmethod
    def class_c(self) -> Array | None:
        """c (K,) of a row of weight 1 of each class; None for the hard margin."""

    @abstractmethod
    def probe(self, state: ClassesState) -> ClassesProbe:
        """The probe of the next scan."""

    @abstractmethod
    def update(self, state: ClassesState, summary: ClassesSummary) -> ClassesState:
        """The state after a scan."""

    @abstractmethod
    def warm_start_state(self, state: ClassesState, allowance: Allowance) -> Mapping[str, NDArray[Any]]:
        """The warm-start state."""

    @abstractmethod
    def before_changes(self, old: ClassesState, changed: Ids) -> ClassesState:
        """A final state as a running one, with the summary of all rows at its hypothesis if that is still useful.

        changed (m,): rows with new labels or weights. Raises CannotWarmStart.
        """

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Label codes of the classes, by label. Raises StoreError, LabelError."""
        return class_codes(self.source)

    def check(self) -> None:
        """Check the job before any row is read. Raises StoreError, LabelError, or UsageError: too little memory."""
        classes = len(self.codes)
        size = 8 * classes * (self.source.features + 1)
        if HYPOTHESES * size > max(self.memory_bytes, 32 << 20):
            raise UsageError(
                f"{self.source.name}: {classes:,} classes x {self.source.features:,} features make hypotheses of "
                f"{format_size(size)}, and {HYPOTHESES} of them do not fit in memory = "
                f"{format_size(self.memory_bytes)}: give more memory, or fewer features or classes"
            )

    @cached_property
    def place(self) -> NDArray[np.int32]:
        """Label code -> class."""
        return class_index(self.codes)

    @cached_property
    def constant(self) -> float:
        """The last entry of every row."""
        return constant(float(self.source.scalars().max_norm.max()), intercept=self.intercept)

    @property
    def shape(self) -> tuple[int, int]:
        """(K, d + 1), of a hypothesis."""
        return len(self.codes), self.source.features + 1

    @property
    def least_block_bytes(self) -> int:
        """Bytes of a block, at least: a summary holds a sum of K x (d + 1), and all summaries must fit in memory."""
        source, size = self.source, 8 * self.shape[0] * self.shape[1]
        return source.nbytes * size // self.memory_bytes + 1 if self.soft else 1

    @property
    def sample_chunks(self) -> list[int]:
        """The chunks that ``start`` reads."""
        wide = not self.soft and self.source.rows < self.source.features
        limit = max(self.sample_bytes, self.memory_bytes) if wide else self.sample_bytes
        return sample_chunks(self.source, self.codes, self.sample_share, limit)

    def read_sample(self) -> tuple[ClassRows, int]:
        """The rows of the sample in the store's precision, and the bytes read."""
        source, chunks = self.source, self.sample_chunks
        empty = ClassRows.nothing(source.features, source.dtype, sparse=source.sparse)
        most, bare = sum(source.span(c)[1] - source.span(c)[0] for c in chunks), [empty.bare()]

        def rows() -> Iterator[Rows]:
            for chunk in chunks:
                may_stop()
                found = read_labelled_rows(source, chunk, self.place)
                bare.append(found.bare())
                yield found.rows

        found = gathered(rows(), most, empty.rows)
        return replace(ClassRows.concatenate(bare), rows=found), bytes_read(source, most)

    def unsolved(self) -> ClassesState:
        """The state without any rows; the hypothesis is zero."""
        origin, classes = np.zeros(self.shape), self.shape[0]
        empty = ClassRows.nothing(self.source.features, sparse=self.source.sparse)
        return ClassesState(
            round=0,
            status="running",
            newest=origin,
            best=None,
            lower=0.0 if self.soft else -np.inf,
            upper=np.inf,
            working_set=empty,
            proof=empty.bare() if self.soft else empty,
            duals=np.zeros((0, classes)),
            reference=origin,
            confusion=np.zeros((classes, classes), np.int64),
            rows_below=None,
            new_rows=0,
            sample_bytes=0,
            lower_now=-np.inf,
            upper_at_eviction=np.inf,
            rows_held=0,
            zone=Zone(widen=1, idle=0),
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> ClassesState:
        """A state from a checkpoint."""
        return ClassesState.from_arrays(arrays)

    def skip(self, state: ClassesState) -> NDArray[np.bool_]:
        """Chunks (c,) that the partial summary covers."""
        skipped = np.zeros(self.source.chunks, bool)
        skipped[state.partial_chunks] = state.partial is not None
        return skipped

    def add_partial(self, state: ClassesState, summary: ClassesSummary) -> tuple[ClassesState, ClassesSummary]:
        """The summary of a scan together with the partial one, and the state without that."""
        if state.partial is None:
            return state, summary
        whole = state.partial.merge(summary)
        state = replace(state, partial=None, partial_chunks=state.partial_chunks[:0])
        return state, replace(whole, near=whole.near.in_order())

    def points(self, state: ClassesState) -> Array:
        """The points on the segment from the best hypothesis to the newest that a scan evaluates, the newest first."""
        return np.array([1.0, *LINE_POINTS]) if has_moved(state.newest, state.best) else np.ones(1)

    def at(self, state: ClassesState, t: float) -> Array:
        """The hypothesis at a point of that segment."""
        return state.newest if t == 1 or state.best is None else t * state.newest + (1 - t) * state.best

    # Rounds and results.

    def round_of(self, state: ClassesState) -> Round:
        """The report of a round; before the first scan nothing is proven."""
        return Round(
            number=state.round,
            status=state.status,
            lower=state.lower if state.round else -np.inf,
            lower_now=state.lower_now,
            upper=state.upper,
            working_set_rows=state.rows_held,
            coreset_rows=len(state.proof),
            new_rows=state.new_rows,
            rows_below=state.rows_below,
        )

    def result(self, state: ClassesState) -> ClassesResult:
        """The result of a state."""
        at = state.newest if state.best is None else state.best
        reasons, inseparable = REASONS if self.soft else STOPPED, state.status == "not_separable"
        return self.claimed(
            ClassesResult(
                status="stopped" if state.status in STOPPED else cast("Any", state.status),
                reason=reasons.get(state.status, state.status),
                kind="duality_gap" if self.soft else "not_separable" if inseparable else "margin",
                hypothesis=at,
                constant=self.constant,
                lower=state.lower if state.round and not inseparable else None,
                upper=state.upper,
                rows=state.proof,
                duals=state.duals,
                reference=state.reference,
                confusion=state.confusion,
                final=bool(np.allclose(at, state.newest, rtol=0.0, atol=1e-12 * float(np.abs(at).max()))),
            )
        )

    def claimed(self, found: ClassesResult) -> ClassesResult:
        """The result as it is claimed: with bounds moved outward for mapped rows."""
        return widen_margin_bounds(found, self.source, self.epsilon)

    # Warm start. What a scan knows of a store are sums, counts and a smallest margin at one hypothesis, and the rows
    # near a change of sides. Rows with a new label or weight are read by id; their old contribution is subtracted and
    # the new one added. New rows are probed at the same hypothesis. The bounds are then those of all rows, as after a
    # full scan. When they prove too little, all rows are scanned at another hypothesis.

    def warm_start_arrays(self, state: ClassesState) -> Mapping[str, NDArray[Any]]:
        """A state as arrays, with what its numbers depend on."""
        terms = {_CODES: np.array(self.codes), _CONSTANT: np.array(self.constant)}
        return state.to_arrays() | terms | ({} if self.class_c is None else {_CLASS_C: self.class_c})

    def warm_start(self, arrays: Mapping[str, NDArray[Any]], difference: Difference) -> ClassesState:
        """The state from which a retraining starts, at the earlier hypothesis; new chunks wait for a scan.

        Raises CannotWarmStart.
        """
        if not arrays:
            raise CannotWarmStart("the model was not proven by sums that its rows could be taken out of")
        factor, old = self._cost_factor(arrays), ClassesState.from_arrays(arrays)
        if len(difference.ids) > MOST_CHANGED * difference.before:
            raise CannotWarmStart("labels or weights of too many rows have changed")
        if not difference and is_certified(old.lower, old.upper, self.epsilon):
            return replace(old, status="certified", round=1, new_rows=0, sample_bytes=0)
        state = replace(self.before_changes(old, difference.ids), round=0, rows_below=None, new_rows=0)
        if state.partial is None or state.status != "running":
            return replace(state, sample_bytes=difference.nbytes)
        fetched = RowFetcher(self.source, self.memory_bytes // max(1, row_bytes(self.source)))
        summary = self._apply_changes(state, state.partial.scale(factor), difference, fetched)
        known = -(-difference.before // self.source.chunk_rows)
        read = difference.nbytes + bytes_read(self.source, fetched.rows)
        state = replace(state, partial=summary, partial_chunks=np.arange(known), sample_bytes=read)
        return state if known < self.source.chunks else self.update(state, self.probe(state).empty())

    def _cost_factor(self, arrays: Mapping[str, NDArray[Any]]) -> float:
        """The ratio of C now and before. Raises CannotWarmStart when hypotheses are no longer comparable."""
        if not np.array_equal(arrays[_CODES], self.codes):
            raise CannotWarmStart("the rows are of other classes than before")
        if float(arrays[_CONSTANT]) != self.constant:
            raise CannotWarmStart("rows are longer than before, which changes the constant feature")
        if self.class_c is None:
            return 1.0
        ratio = self.class_c / arrays[_CLASS_C]
        if np.ptp(ratio) > 0:
            raise CannotWarmStart("C has changed by different factors for different classes")
        return float(ratio[0])

    def _apply_changes(
        self, state: ClassesState, summary: ClassesSummary, difference: Difference, fetched: RowFetcher
    ) -> ClassesSummary:
        """The summary of all chunks that existed before, updated for rows that changed or were appended to them."""
        source, probe = self.source, self.probe(state)
        new = appended_to_last_chunk(source, difference)
        touched = np.concatenate([difference.ids, new[0]])
        for chunk in np.unique(touched // source.chunk_rows).tolist():
            may_stop()
            then, now = self._changed_rows(chunk, difference, new, fetched)
            close = np.isin(then.ids, summary.near.ids)
            for some, near in ((then.take(np.flatnonzero(close)), len(then)), (then.take(np.flatnonzero(~close)), 0)):
                summary = summary.subtract(replace(probe, keep=near).in_memory(source, [chunk], some))
            summary = summary.merge(probe.in_memory(source, [chunk], now))
        return replace(summary, near=summary.near.in_order())

    def _changed_rows(
        self, chunk: int, difference: Difference, new: AppendedRows, fetched: RowFetcher
    ) -> tuple[ClassRows, ClassRows]:
        """Changed rows of a chunk as they were; and as they are, with those appended to it."""
        size = self.source.chunk_rows
        mine, more = np.flatnonzero(difference.ids // size == chunk), np.flatnonzero(new[0] // size == chunk)
        ids = np.concatenate([difference.ids[mine], new[0][more]])
        codes = np.concatenate([difference.codes_after[mine], new[1][more]])
        weights = np.concatenate([difference.weights_after[mine], new[2][more]])
        now = ClassRows(ids, fetched(ids), self.place[codes], weights)
        old = now.take(np.arange(len(mine)))
        then = replace(old, classes=self.place[difference.codes_before[mine]], shares=difference.weights_before[mine])
        return _with_label_and_weight(then), _with_label_and_weight(now)


def _with_label_and_weight(rows: ClassRows) -> ClassRows:
    return rows.take(np.flatnonzero((rows.classes >= 0) & (rows.shares > 0)))
