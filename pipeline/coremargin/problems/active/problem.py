"""Few labels for many rows: the coreset method of Har-Peled, Roth and Zimak (2006, section 4.2, Figure 2) out of core.

Any row within (1 - epsilon) of the margin of the answered rows improves the hypothesis, whatever its label is: so rows
in memory are asked about first, without reading the store. When none of them is that near, a scan finds out whether
any row of the store is, and workers send the nearest ones. When none is, rows are drawn uniformly from all rows without
an answer: their labels test the hypothesis (VERIFY). A draw that it gets wrong joins the answered rows, and the search
goes on; if it gets none wrong, few rows can be wrong.

With several classes each has a hyperplane against the rest, with a margin and a slab of its own; or all have one margin
at once, and one slab (section 6; Crammer and Singer): the row asked about is that whose largest two scores are closest.
With a loss answers
may contradict each other: rows within |w.x + b| < 1 are asked about until none is left, or until there are as many new
answers as a trial has draws, and as there were after the last trial; then wrong draws are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.extent import extent
from coremargin.data.parts import parts_of
from coremargin.data.view import bytes_read
from coremargin.engine.plan import plan_blocks
from coremargin.engine.problem import BaseProblem, Round
from coremargin.errors import UsageError
from coremargin.maths.breakdown import BREAKDOWNS, quiet
from coremargin.maths.margin import is_certified
from coremargin.maths.multiclass import constant
from coremargin.maths.rows import as_float64, concatenate, lengths, products, take
from coremargin.problems.active.draws import REACH, Drawing, Trial, has_weight
from coremargin.problems.active.fit import Fitted, largest_margins, least_values, margin_at_once
from coremargin.problems.active.hypothesis import NONE, Hypothesis
from coremargin.problems.active.probe import NO_ROW, SlabProbe, SlabSummary
from coremargin.problems.active.state import ActiveState, Answered, Draws, Scanned
from coremargin.problems.active.strategies import METHODS, Asking
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.driver_rows import DriverRows
from coremargin.problems.common.map_rounding import (
    margin_rounding,
    requested_epsilon,
    reserve_for_rounding,
    value_rounding,
)
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.sizes import float64_row_bytes, working_set_row_bytes
from coremargin.problems.soft.losses.table import LOSSES

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.choices import Loss, Method
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.problems.active.spec import ActiveJob


def sample_rows(source: Source, chunks: Sequence[int], most: int) -> DriverRows:
    """About ``most`` rows of positive weight, spread over these chunks."""
    each, ids, rows = -(-most // len(chunks)), [], []
    for chunk in chunks:
        start, stop = source.span(chunk)
        some = np.linspace(0, stop - start - 1, min(each, stop - start)).astype(np.int64)
        some = some[has_weight(source, some + start)]
        ids.append(some + start)
        for part in parts_of(source, chunk):
            first, last = np.searchsorted(some, [part.start - start, part.stop - start])
            rows.append(take(part.rows, some[first:last] + start - part.start))
    return DriverRows(np.concatenate(ids), concatenate(rows))


def open_rows(state: ActiveState) -> DriverRows:
    """Rows in memory that can be asked about."""
    return state.resident.take(np.flatnonzero(np.isin(state.resident.ids, state.known, invert=True)))


def nearest_rows(state: ActiveState, summary: SlabSummary, most: int) -> tuple[DriverRows, int]:
    """The nearest rows to a hyperplane of those in memory and those that workers sent, by id; and how many are new."""
    fresh, hypothesis = np.isin(summary.row_id, state.resident.ids, invert=True), state.hypothesis
    both = DriverRows.concatenate([open_rows(state), DriverRows(summary.row_id, summary.row_x).take(fresh)])
    values = hypothesis.decisions(both.rows)
    near = hypothesis.nearness(hypothesis.sizes(values), hypothesis.sides(values))
    return both.take(np.argsort(near, kind="stable")[:most]).in_order(), int(fresh.sum())


def with_drawn(state: ActiveState, draws: Draws, summary: SlabSummary) -> DriverRows:
    """Rows in memory, with those draws that workers sent."""
    sent = np.isin(summary.sent_id, draws.ids) & np.isin(summary.sent_id, state.resident.ids, invert=True)
    more = DriverRows(summary.sent_id, summary.sent_x).take(np.flatnonzero(sent))
    return DriverRows.concatenate([state.resident, more]).in_order()


def rows_of(source: Source, state: ActiveState, ids: NDArray[np.int64]) -> Rows:
    """Rows by number, float64; read if they are not in memory: asked about long ago, or drawn and too wide."""
    order = np.argsort(state.resident.ids, kind="stable")
    known = np.isin(ids, state.resident.ids)
    places = order[np.searchsorted(state.resident.ids[order], ids[known])]
    parts = [as_float64(take(state.resident.rows, places))]
    if not known.all():
        parts.append(source.rows_at(ids[~known])[0])
    at = np.argsort(np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)]), kind="stable")
    return take(concatenate(parts), at)


def nearest_row(state: ActiveState, summary: SlabSummary) -> NDArray[np.int64]:
    """The row nearest to a hyperplane, for when none in memory is worth a question."""
    if summary.unclaimed_id[0] != NO_ROW:
        return summary.unclaimed_id
    return summary.nearest_id[[int(state.hypothesis.in_slabs(summary.nearest[None, :])[0].argmin())]]


# Before two classes are known, rows far from each other are asked about.


def farthest_row(rows: Rows, before: Rows) -> int:
    """The place of the row of (n, d) that is the furthest from all rows ``before``; the longest where there is none."""
    exact, squares = as_float64(rows), lengths(rows) ** 2
    nearest = np.full(len(squares), np.inf)
    for row in before if before.shape[0] else ():
        nearest = np.minimum(nearest, _squares(exact, squares, row))
    return int((nearest if before.shape[0] else squares).argmax())


def _squares(rows: Any, squares: Array, row: Any) -> Array:
    """Squared distances (n,) of rows (n, d) from one row (1, d)."""
    row = row if getattr(row, "ndim", 2) == 2 else row[None, :]
    dense = np.asarray(row.toarray() if hasattr(row, "toarray") else row, np.float64)
    return np.asarray(np.maximum(squares - 2.0 * products(rows, dense.T)[0] + float(dense[0] @ dense[0]), 0.0))


#: Rows in memory from which questions are chosen, and so many that are sent from a scan.
RESIDENT_ROWS = 20_000
#: Questions before two classes are seen that go to rows far from each other; after them rows are drawn.
SPREAD = 20
#: Bytes of rows drawn that come along with their scan: needed when their attempt is void, they need not be read again.
SENT_BYTES = 64 << 20


@dataclass(frozen=True)
class ActiveMargin(BaseProblem[ActiveState, SlabSummary]):
    """The largest margins between classes whose labels are queried, or with a loss the least values.

    method: which rows are asked about, and what stands for the largest margin of them (``strategies.py``); centre: its
    centre does, as far as epsilon allows.
    epsilon: what may be missing of the margin, as a share. error, confidence: at most so many rows are labelled
    wrongly, as a share, and how sure that is to be; by_class: of the rows that are given each class, which says more
    where one is rare. seed: of the draws. classes: how many there are; answers are their places; at_once: of three or
    more, they have one margin (Crammer and Singer), and not each against the rest. loss, cost: for answers that
    contradict each other, with the number of draws of a trial. like: rows that are asked about first, in this order,
    as they may be of a rare class.
    """

    method: Method = "coreset"
    centre: bool = False
    epsilon: float = 0.1
    error: float = 0.01
    confidence: float = 0.99
    by_class: bool = False
    seed: int = 0
    intercept: bool = True
    classes: int = 2
    at_once: bool = False
    loss: Loss | None = None
    cost: float = 1.0
    trial: int | None = None
    like: tuple[int, ...] = ()
    resident_rows: int = RESIDENT_ROWS
    blocks: int = 1
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def __post_init__(self) -> None:
        if (self.loss is None) != (self.trial is None):
            raise ValueError(f"expected a trial with a loss, and none without; found {self.loss} and {self.trial}")
        if self.at_once and self.classes == 2:
            raise UsageError(
                "multi_class: 'crammer-singer' is for three classes or more, and this campaign has two; name all "
                "classes, or leave multi_class out"
            )

    @property
    def planes(self) -> int:
        """How many hyperplanes there are."""
        return 1 if self.classes == 2 else self.classes

    @property
    def slabs(self) -> int:
        """How many margins there are, each with a slab."""
        return 1 if self.at_once else self.planes

    @property
    def constant(self) -> float:
        """The last entry of every row, of classes at once: intercepts are as in training."""
        return constant(float(self.source.scalars().max_norm.max()), intercept=self.intercept)

    @cached_property
    def trials(self) -> Trial:
        """How many draws a trial has, and what they show."""
        return Trial(self.error, self.confidence, self.classes, self.by_class, self.trial)

    @cached_property
    def coordinates(self) -> int:
        """How many features vary, by the statistics of the store: no answer decides about the others."""
        reach = extent(self.source)
        return max(1, int(np.count_nonzero(reach.low < reach.high)))

    @cached_property
    def drawing(self) -> Drawing:
        """Which rows are drawn."""
        return Drawing(self.source, self.seed, self.trials)

    # start

    @property
    def sample_chunks(self) -> list[int]:
        """Chunks spread evenly over the store."""
        source = self.source
        each = max(1, source.nbytes // source.chunks)
        wanted = max(1, min(round(self.sample_share * source.chunks), self.sample_bytes // each))
        if source.nbytes <= self.sample_bytes:
            wanted = source.chunks
        spread = (np.arange(wanted) + 0.5) * source.chunks / wanted
        return sorted(set(spread.astype(int).tolist()))

    def check(self) -> None:
        """Refuse what would under- or overflow. Raises BadRow."""
        check_scale(self.source)

    def start(self, unsure: NDArray[np.int64] | None = None) -> ActiveState:
        """No row is answered; some rows of the sample are in memory. unsure: rows that no annotator can label."""
        self.check()
        source, chunks = self.source, self.sample_chunks
        resident = self._with_similar(sample_rows(source, chunks, self.resident_rows))
        read = bytes_read(source, sum(source.span(c)[1] - source.span(c)[0] for c in chunks))
        state = self.empty_state(resident, np.zeros(0, np.int64) if unsure is None else unsure, read)
        return self._choose_question(state)

    unsolved = start  # which solves nothing

    def _with_similar(self, rows: DriverRows) -> DriverRows:
        """With the rows that are asked about first in memory, too."""
        ids = np.setdiff1d(np.array(self.like, np.int64), rows.ids)
        if not len(ids):
            return rows
        more = DriverRows(ids, self.source.rows_at(ids)[0].astype(self.source.dtype))
        return DriverRows.concatenate([rows, more]).in_order()

    def empty_state(self, resident: DriverRows, unsure: NDArray[np.int64], sample_bytes: int) -> ActiveState:
        """The state before any answer."""
        source, slabs = self.source, self.slabs
        return ActiveState(
            round=0,
            status="running",
            answered=Answered.empty(source.features, self.planes, sparse=source.sparse),
            unsure=unsure,
            resident=resident,
            hypothesis=self._nothing,
            lower=np.zeros(slabs),
            upper=np.full(slabs, np.inf),
            failed=NONE,
            scanned=self._unscanned,
            attempt=1,
            draws=Draws.empty(),
            reach=0,
            tried=0,
            wanted=np.zeros(0, np.int64),
            new_rows=0,
            sample_bytes=sample_bytes,
        )

    @property
    def _nothing(self) -> Hypothesis:
        return Hypothesis.empty(self.source.features, self.planes, soft=self.loss is not None, at_once=self.at_once)

    @property
    def _unscanned(self) -> Scanned:
        return Scanned.empty(self.slabs, self.classes)

    def reset(self, state: ActiveState, answered: Answered) -> ActiveState:
        """The state before a solve, with these answers only."""
        return replace(
            state,
            status="running",
            answered=answered.weighted(np.zeros_like(answered.weights)),
            hypothesis=self._nothing,
            lower=np.zeros(self.slabs),
            upper=np.full(self.slabs, np.inf),
            failed=NONE,
            scanned=self._unscanned,
            wanted=np.zeros(0, np.int64),
        )

    # questions

    def questions(self, state: ActiveState) -> Sequence[int]:
        """The row to label next; none: a scan is next."""
        return [int(row) for row in state.wanted[:1]]

    def answered(self, state: ActiveState, labels: Mapping[int, Any]) -> ActiveState:
        """The state after these answers, as places of classes, about any rows."""
        codes = {row: int(code) for row, code in labels.items() if row not in state.answered.ids}
        if not set(codes.values()) <= set(range(self.classes)):
            raise ValueError(f"expected places of {self.classes} classes, found {sorted(set(codes.values()))}")
        others = np.array([row for row in codes if row not in state.draws.ids], np.int64)
        state = replace(state, draws=state.draws.with_answers(codes))
        if not len(others):
            return self._check_draws(state)
        state = self.add_answers(
            self.end_attempt(state), others, np.array([codes[int(row)] for row in others], np.int32)
        )
        return self._choose_question(self.solve(state))

    # what answers give

    def add_answers(self, state: ActiveState, ids: NDArray[np.int64], codes: NDArray[np.int32]) -> ActiveState:
        """The state with more rows answered, not yet solved."""
        answered = state.answered.add(ids, rows_of(self.source, state, ids), codes)
        return replace(state, answered=answered, unsure=np.setdiff1d(state.unsure, ids))

    def solve(self, state: ActiveState) -> ActiveState:
        """The hyperplanes of the rows answered; the scan of an earlier hypothesis says nothing of them."""
        answered = state.answered
        try:
            with quiet():
                fitted = self._fit(answered, state.hypothesis)
        except BREAKDOWNS:  # keep the last hypothesis; nothing is proven of it
            last = self.reset(state, answered)
            return replace(last, status="stalled", hypothesis=state.hypothesis, failed=0)
        failed = NONE if fitted.failed is None else fitted.failed
        state = replace(
            state,
            status=fitted.status,
            scanned=self._unscanned,
            hypothesis=fitted.hypothesis,
            answered=answered.weighted(fitted.weights),
            upper=fitted.upper,
            failed=failed,
        )
        if fitted.failed is not None:
            return replace(state, wanted=np.zeros(0, np.int64))
        return replace(state, lower=fitted.lower)

    def _fit(self, answered: Answered, last: Hypothesis) -> Fitted:
        """The hyperplanes of the answered rows. Raises one of BREAKDOWNS where float64 does not suffice."""
        if self.at_once:
            return margin_at_once(answered, last, self.constant, intercept=self.intercept, epsilon=self.epsilon)
        if self.loss is None:
            return largest_margins(
                answered, last, self.method, intercept=self.intercept, epsilon=self.epsilon, centre=self.centre
            )
        return least_values(answered, last, self.loss, self.cost, intercept=self.intercept)

    # draws

    def end_attempt(self, state: ActiveState) -> ActiveState:
        """The state without the current attempt: answered draws become ordinary answers, others may be drawn again.

        Its number is spent as soon as there are draws: an annotator may have seen them.
        """
        draws, spent = state.draws, bool(len(state.draws))
        empty = replace(state, draws=Draws.empty(), attempt=state.attempt + spent, reach=0)
        state = self.add_answers(empty, draws.ids[draws.is_answered], draws.codes[draws.is_answered])
        return replace(state, tried=len(state.answered)) if draws.all_answered else state

    def absorb_draws(self, state: ActiveState) -> ActiveState:
        """The state with its draws as ordinary answers: with a loss they change the hypothesis, right or wrong."""
        state = self.end_attempt(state)
        return state if self.loss is None else self.solve(state)

    def _check_draws(self, state: ActiveState) -> ActiveState:
        """Act on the draws so far: one is wrong, some are not answered yet, or they show what was asked for."""
        draws, seen, state = state.draws, state.draws.is_answered, replace(state, status="running")
        if self.loss is None and (draws.codes[seen] != draws.sides[seen]).any():
            return self._choose_question(self.solve(self.end_attempt(state)))
        if not seen.all():
            return replace(state, wanted=draws.ids[~seen])
        state = replace(state, wanted=np.zeros(0, np.int64))
        if self.loss is not None:
            parts = self.trials.parts(state.scanned.sides, draws, state.attempt)
            known = np.isin(
                draws.codes, state.answered.seen_classes
            ).all()  # a class that only draws have is not learnt yet
            if not (known and self.trials.certifies(parts)):
                return state  # its evidence stays until the next answer
        return replace(state, status="certified")

    def finish_trial(self, state: ActiveState) -> ActiveState:
        """End a trial that has not shown what was asked for: its draws become ordinary answers."""
        if state.status != "running" or not state.draws.all_answered:
            return state
        return self._choose_question(self.solve(self.end_attempt(state)))

    def exclude(self, state: ActiveState, row: int) -> ActiveState:
        """Exclude a row that no annotator can label: it is not asked about, drawn or counted any more."""
        if row in state.known or row in state.draws.ids[state.draws.is_answered]:
            return state
        side, counts = self.sides_of(state, [row])[0], has_weight(self.source, np.array([row]))[0]
        state = replace(state, unsure=np.union1d(state.unsure, np.array([row], np.int64)))
        if not counts:  # of weight 0: it did not count before
            return state
        if not len(state.draws):
            return self._choose_question(replace(state, scanned=self._unscanned))
        sides = state.scanned.sides.copy()
        sides[side] -= 1
        state = replace(state, scanned=replace(state.scanned, sides=sides))
        state = replace(state, draws=state.draws.take(np.flatnonzero(state.draws.ids != row)))
        found = self.drawing.redraw(state, lambda rows: self.sides_of(state, rows))
        if found is None:
            return self._choose_question(self.solve(self.end_attempt(state)))
        return self._check_draws(replace(state, draws=found[0], reach=found[1]))

    def sides_of(self, state: ActiveState, rows: Iterable[int]) -> NDArray[np.int32]:
        """The predicted classes of rows of the store; those of draws are as the scan has found them."""
        ids = np.array(list(rows), np.int64)
        found = state.hypothesis.sides(self.decisions(state, ids))
        for place, row in enumerate(ids):
            drawn = state.draws.sides[state.draws.ids == row]
            found[place] = drawn[0] if len(drawn) else found[place]
        return found

    def decisions(self, state: ActiveState, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """w.x + b (n, k) of rows of the store."""
        return state.hypothesis.decisions(rows_of(self.source, state, ids))

    # what is next

    def _choose_question(self, state: ActiveState) -> ActiveState:
        """Choose the rows to ask about; none: a scan is next."""
        if state.status != "running":
            return state
        if first := [row for row in self.like if row not in state.known]:
            return replace(state, wanted=np.array(first[:1], np.int64))
        if state.answered.both_classes:
            due = self._trial_is_due(state)
            return replace(state, wanted=np.zeros(0, np.int64) if due else self._nearest_within_slab(state))
        rows = open_rows(state)
        if len(state.answered) < min(SPREAD, len(state.resident)) and len(rows):
            return replace(state, wanted=rows.ids[[farthest_row(rows.rows, state.answered.rows)]])
        return replace(state, wanted=np.zeros(0, np.int64))

    def _trial_is_due(self, state: ActiveState) -> bool:
        """With a loss: whether there are as many new answers as a trial has draws, and as at the last one."""
        return self.trial is not None and len(state.answered) - state.tried >= max(self.trial, state.tried)

    def with_resident(self, state: ActiveState, rows: DriverRows) -> ActiveState:
        """With other rows in memory, and a question chosen from them."""
        return self._choose_question(replace(state, resident=rows))

    def _nearest_within_slab(self, state: ActiveState) -> NDArray[np.int64]:
        """The row in memory to ask about, if one lies within a slab."""
        rows, hypothesis = open_rows(state), state.hypothesis
        if not len(rows):
            return np.zeros(0, np.int64)
        each = hypothesis.distances(rows.rows)
        sides = hypothesis.sides(hypothesis.decisions(rows.rows)) if self.slabs > 1 else np.zeros(len(rows), np.int32)
        sizes = hypothesis.nearness(each, sides)
        within = sizes < hypothesis.limit
        if not within.any():
            return np.zeros(0, np.int64)
        plane = int(hypothesis.in_slabs(each)[int(sizes.argmin())].argmin())
        asking = Asking(rows, sizes, within, state.answered.against(plane), self.intercept, self.seed)
        return rows.ids[[METHODS[self.method].pick(asking)]]

    # scan

    def probe(self, state: ActiveState) -> SlabProbe:
        """The probe of the next scan; workers also send rows to draw in case the slabs are empty."""
        order = self.drawing.order(state)
        return SlabProbe(
            hypothesis=state.hypothesis,
            known=state.known,
            drawn=np.sort(order),
            sent=np.sort(order[: SENT_BYTES // working_set_row_bytes(self.source)]),
            keep=max(1, self.resident_rows // (2 * self.blocks)),
            dtype=self.source.dtype.name,
            chunk_rows=self.source.chunk_rows,
            sparse=self.source.sparse,
        )

    # update

    def update(self, state: ActiveState, summary: SlabSummary) -> ActiveState:
        """More questions about rows near the hyperplanes or, if there is none, draws to test them."""
        resident, new = nearest_rows(state, summary, self.resident_rows)
        scanned = Scanned(summary.nearest, summary.sides)
        state = replace(state, round=state.round + 1, resident=resident, scanned=scanned, new_rows=new)
        near = state.answered.both_classes and state.hypothesis.within(scanned.nearest, scanned.sides)
        if near and not self._trial_is_due(state):
            state = self._choose_question(state)
            return state if len(state.wanted) else replace(state, wanted=nearest_row(state, summary))
        if self.lacks_proof(state):
            return replace(state, status="stalled")
        return self._begin_trial(state, summary)

    def _begin_trial(self, state: ActiveState, summary: SlabSummary) -> ActiveState:
        """Draw rows that test the hypothesis; if too few of a stratum were sent, the next scan asks for more."""
        order = self.drawing.order(state)
        places = np.argsort(summary.drawn_id)[np.searchsorted(np.sort(summary.drawn_id), order)]
        draws = self.drawing.drawn(state, order, summary.drawn_side[places])
        if draws is None:
            return replace(state, reach=REACH * len(order), wanted=np.zeros(0, np.int64))
        resident = with_drawn(state, draws, summary)
        return self._check_draws(replace(state, draws=draws, resident=resident, reach=len(order)))

    def round_of(self, state: ActiveState) -> Round:
        """The line of ``rounds.jsonl``; with several classes, the bounds of the worst one."""
        lower, upper = self.bounds_of(state)
        draws = int(state.draws.is_answered.sum())
        return Round(
            number=state.round,
            status=state.status,
            lower=lower,
            lower_now=lower,
            upper=upper,
            working_set_rows=len(state.resident),
            coreset_rows=len(state.answered.support),
            new_rows=state.new_rows,
            more={"labels": len(state.answered) + draws, "attempt": state.attempt, "draws": draws},
        )

    def bounds_of(self, state: ActiveState) -> tuple[float, float]:
        """(lower, upper) of the slab whose ratio of both is the smallest."""
        lower = self.proven(state) if state.answered.both_classes else np.zeros(self.slabs)
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = int(np.argmin(np.where(state.upper > 0, lower / state.upper, 0.0)))
        return float(lower[worst]), float(state.upper[worst])

    def proven(self, state: ActiveState) -> NDArray[np.float64]:
        """The proven bound of each slab (s,): its margin on all rows, or with a loss its value."""
        return state.lower if self.loss is not None else np.minimum(state.lower, state.scanned.nearest)

    def claimed_bounds(self, state: ActiveState, plane: int, lower: float) -> tuple[float, float]:
        """The bounds of a hyperplane as a model claims them: for mapped rows wider by the rounding of the map."""
        upper = float(state.upper[plane])
        if self.loss is None:
            moves = margin_rounding(self.source)
            return lower - moves, upper + moves
        loss, total = LOSSES[self.loss], self.cost * len(state.answered)
        below, above = value_rounding(self.source, upper, lambda margin, value: loss.value_error(margin, value, total))
        return max(0.0, lower - below), upper + above  # no value is below 0

    def proves_epsilon(self, state: ActiveState, lower: NDArray[np.float64]) -> bool:
        """Whether lower bounds (s,), as they are claimed, prove epsilon; true before two classes have answers.

        Of classes at once they prove it of all classes only where each has an answer.
        """
        if not state.answered.both_classes:
            return True
        if self.at_once and len(state.answered.seen_classes) < self.classes:
            return False
        asked, pairs = requested_epsilon(self.source, self.epsilon), enumerate(lower.tolist())
        return all(is_certified(*self.claimed_bounds(state, plane, low), asked) for plane, low in pairs)

    def lacks_proof(self, state: ActiveState) -> bool:
        """Whether, with a loss, float64 does not prove the value of a hyperplane: no draw can change that.

        A class that has all answers, or none, has no value to prove.
        """
        known = zip(state.lower[found := np.isfinite(state.upper)], state.upper[found], strict=True)
        return self.loss is not None and not all(
            is_certified(float(low), float(high), self.epsilon) for low, high in known
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> ActiveState:
        """A state from a checkpoint."""
        return ActiveState.from_arrays(arrays)


def problem_with_reserve(job: ActiveJob, source: Source) -> ActiveMargin:
    """The problem that a job describes, on rows scaled and mapped as it says: of mapped rows a little stricter."""
    return problem_of(reserve_for_rounding(job), source)


def problem_of(job: ActiveJob, source: Source) -> ActiveMargin:
    """The problem on these rows, of two classes unless the job names more.

    The rows in memory are as many as fit, up to what serves.
    """
    room = max(2, job.memory_bytes // (4 * max(1, float64_row_bytes(source))))
    return ActiveMargin(
        source,
        method=job.method,
        centre=job.hypothesis == "centre",
        epsilon=job.epsilon,
        error=job.error,
        confidence=job.confidence,
        seed=job.seed,
        by_class=job.by_class,
        intercept=job.intercept,
        classes=max(2, len(job.classes or ())),
        at_once=job.multi_class == "crammer-singer",
        loss=job.loss,
        cost=1.0 if job.cost is None else job.cost,
        trial=job.trial,
        like=tuple(job.like or ()),
        resident_rows=min(RESIDENT_ROWS, room),
        blocks=len(plan_blocks(source, job.block)),
        sample_share=job.sample,
    )
