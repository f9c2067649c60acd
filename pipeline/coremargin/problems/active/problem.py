"""Few labels for many rows: the coreset method of Har-Peled, Roth and Zimak (2006, section 4.2, Figure 2) out of core.

Any row within (1 - epsilon) of the margin of the rows answered improves the hypothesis, whatever its label is: so rows
that lie in memory are asked for first, without reading the store. When none of them is that near, a scan says whether
any row of the store is, and brings the nearest ones along. When none is, fresh rows are drawn uniformly from all rows
without an answer: their labels try the hypothesis (VERIFY). A draw that it gets wrong joins the rows answered, and all
begins again; when it gets none wrong, few can be.

Of several classes each has a hyperplane against the rest, and a margin and a slab of its own. With a loss answers may
contradict each other: rows within |w.x + b| < 1 are asked about until none is left, or until there are as many new
answers as a trial has draws, and as there were after the last trial; wrong draws are counted then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import bytes_read
from coremargin.engine.problem import BaseProblem, Round
from coremargin.maths.rows import as_float64, lengths, products
from coremargin.problems.active.drawing import REACH, Drawing, counted
from coremargin.problems.active.learning import Learning
from coremargin.problems.active.methods.method import Asking
from coremargin.problems.active.methods.table import METHODS
from coremargin.problems.active.probe import SlabProbe
from coremargin.problems.active.resident import nearest_row, nearest_rows, open_rows, rows_of, sampled, with_drawn
from coremargin.problems.active.state import ActiveState, Scanned
from coremargin.problems.active.summary import SlabSummary
from coremargin.problems.active.trial import Trial
from coremargin.problems.common.classes import check_scale
from coremargin.problems.common.sample import SAMPLE_BYTES, SAMPLE_SHARE
from coremargin.problems.common.sizes import pool_row_bytes

if TYPE_CHECKING:
    from coremargin.formats.choices import Loss, Method
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.driver_rows import DriverRows

# Rows far from each other: what is asked about before rows of both classes are known.


def furthest(rows: Rows, before: Rows) -> int:
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
HELD_BYTES = 64 << 20


@dataclass(frozen=True)
class ActiveMargin(BaseProblem[ActiveState, SlabSummary]):
    """The largest margins between classes whose labels are asked for, or with a loss the least values.

    method: which rows are asked about, and what stands for the largest margin of them (``methods/table.py``).
    epsilon: what may be missing of the margin, as a share. error, confidence: at most so many rows are labelled
    wrongly, as a share, and how sure that is to be; by_class: of the rows that are given each class, which says more
    where one is rare. seed: of the draws. classes: how many there are; answers are their places. loss, cost: for
    answers that contradict each other, with the number of draws of a trial.
    """

    method: Method = "coreset"
    epsilon: float = 0.1
    error: float = 0.01
    confidence: float = 0.99
    by_class: bool = False
    seed: int = 0
    intercept: bool = True
    classes: int = 2
    loss: Loss | None = None
    cost: float = 1.0
    trial: int | None = None
    resident_rows: int = RESIDENT_ROWS
    blocks: int = 1
    sample_share: float = SAMPLE_SHARE
    sample_bytes: int = SAMPLE_BYTES

    def __post_init__(self) -> None:
        if (self.loss is None) != (self.trial is None):
            raise ValueError(f"expected a trial with a loss, and none without; found {self.loss} and {self.trial}")

    @cached_property
    def learning(self) -> Learning:
        """What answers give."""
        return Learning(self.source, self.classes, self.method, self.epsilon, self.intercept, self.loss, self.cost)

    @property
    def planes(self) -> int:
        """How many hyperplanes there are."""
        return self.learning.planes

    @cached_property
    def trials(self) -> Trial:
        """What is asked of draws."""
        return Trial(self.error, self.confidence, self.classes, self.by_class, self.trial)

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
        """No row is answered; some of the sample's lie in memory. unsure: rows that nobody can label."""
        self.check()
        source, chunks = self.source, self.sample_chunks
        resident = sampled(source, chunks, self.resident_rows)
        read = bytes_read(source, sum(source.span(c)[1] - source.span(c)[0] for c in chunks))
        state = self.learning.begun(resident, np.zeros(0, np.int64) if unsure is None else unsure, read)
        return self._next(state)

    unsolved = start  # which solves nothing

    # questions

    def questions(self, state: ActiveState) -> Sequence[int]:
        """The row whose label is wanted now; none: a scan is next."""
        return [int(row) for row in state.wanted[:1]]

    def answered(self, state: ActiveState, labels: Mapping[int, Any]) -> ActiveState:
        """The state that knows these labels, places of classes, of any rows that have been asked for."""
        codes = {row: int(code) for row, code in labels.items() if row not in state.answered.ids}
        if not set(codes.values()) <= set(range(self.classes)):
            raise ValueError(f"expected places of {self.classes} classes, found {sorted(set(codes.values()))}")
        others = np.array([row for row in codes if row not in state.draws.ids], np.int64)
        state = replace(state, draws=state.draws.told(codes))
        if not len(others):
            return self._tried(state)
        state = self.learning.joined(
            self.learning.voided(state), others, np.array([codes[int(row)] for row in others], np.int32)
        )
        return self._next(self.learning.solved(state))

    # draws

    def _tried(self, state: ActiveState) -> ActiveState:
        """With what the draws say so far: wrong, not yet known, or as good as was asked for."""
        draws, seen, state = state.draws, state.draws.seen, replace(state, status="running")
        if self.loss is None and (draws.codes[seen] != draws.sides[seen]).any():
            return self._next(self.learning.solved(self.learning.voided(state)))
        if not seen.all():
            return replace(state, wanted=draws.ids[~seen])
        state = replace(state, wanted=np.zeros(0, np.int64))
        if self.loss is not None:
            parts = self.trials.parts(state.scanned.sides, draws, state.attempt)
            known = np.isin(draws.codes, state.answered.seen).all()  # a class that only draws have is not learnt yet
            if not (known and self.trials.certifies(parts)):
                return state  # what it shows is there until the next answer
        return replace(state, status="certified")

    def gone_on(self, state: ActiveState) -> ActiveState:
        """What comes after a trial that has not shown what was asked for: its draws are rows like any other."""
        if state.status != "running" or not state.draws.finished:
            return state
        return self._next(self.learning.solved(self.learning.voided(state)))

    def set_aside(self, state: ActiveState, row: int) -> ActiveState:
        """The state that knows that nobody can label a row: it is not asked about, drawn nor counted any more."""
        if row in state.known or row in state.draws.ids[state.draws.seen]:
            return state
        side, counts = self.sides_of(state, [row])[0], counted(self.source, np.array([row]))[0]
        state = replace(state, unsure=np.union1d(state.unsure, np.array([row], np.int64)))
        if not counts:  # of weight 0: it was nobody's before
            return state
        if not len(state.draws):
            return self._next(replace(state, scanned=Scanned.nothing(self.planes)))
        sides = state.scanned.sides.copy()
        sides[side] -= 1
        state = replace(state, scanned=replace(state.scanned, sides=sides))
        state = replace(state, draws=state.draws.take(np.flatnonzero(state.draws.ids != row)))
        found = self.drawing.redrawn(state, lambda rows: self.sides_of(state, rows))
        if found is None:
            return self._next(self.learning.solved(self.learning.voided(state)))
        return self._tried(replace(state, draws=found[0], reach=found[1]))

    def sides_of(self, state: ActiveState, rows: Iterable[int]) -> NDArray[np.int32]:
        """The classes that the hypothesis gives rows of the store; of those drawn as the scan has found them."""
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

    def _next(self, state: ActiveState) -> ActiveState:
        """With the rows that are wanted now; none: a scan is next."""
        if state.status != "running":
            return state
        if state.answered.both_classes:
            return replace(state, wanted=np.zeros(0, np.int64) if self._due(state) else self._near(state))
        rows = open_rows(state)
        if len(state.answered) < min(SPREAD, len(state.resident)) and len(rows):
            return replace(state, wanted=rows.ids[[furthest(rows.rows, state.answered.rows)]])
        return replace(state, wanted=np.zeros(0, np.int64))

    def _due(self, state: ActiveState) -> bool:
        """Whether a trial is next, with a loss: as many new answers are there as it has draws, and as there were."""
        return self.trial is not None and len(state.answered) - state.tried >= max(self.trial, state.tried)

    def among(self, state: ActiveState, rows: DriverRows) -> ActiveState:
        """With these rows in memory instead, and what is wanted of them."""
        return self._next(replace(state, resident=rows))

    def _near(self, state: ActiveState) -> NDArray[np.int64]:
        """A row in memory, while one lies within a slab."""
        rows, hypothesis = open_rows(state), state.hypothesis
        if not len(rows):
            return np.zeros(0, np.int64)
        each = hypothesis.distances(rows.rows)
        sides = hypothesis.sides(hypothesis.decisions(rows.rows)) if self.planes > 1 else np.zeros(len(rows), np.int32)
        sizes = hypothesis.nearness(each, sides)
        within = sizes < hypothesis.limit
        if not within.any():
            return np.zeros(0, np.int64)
        plane = int(hypothesis.in_slabs(each)[int(sizes.argmin())].argmin())
        asking = Asking(rows, sizes, within, state.answered.against(plane), self.intercept, self.seed)
        return rows.ids[[METHODS[self.method].pick(asking)]]

    # scan

    def probe(self, state: ActiveState) -> SlabProbe:
        """The question of the next scan, which brings the rows along that are drawn where the slabs are empty."""
        order = self.drawing.order(state)
        return SlabProbe(
            hypothesis=state.hypothesis,
            known=state.known,
            drawn=np.sort(order),
            held=np.sort(order[: HELD_BYTES // pool_row_bytes(self.source)]),
            keep=max(1, self.resident_rows // (2 * self.blocks)),
            dtype=self.source.dtype.name,
            chunk_rows=self.source.chunk_rows,
            sparse=self.source.sparse,
        )

    # update

    def update(self, state: ActiveState, summary: SlabSummary) -> ActiveState:
        """More questions about rows near the hyperplanes or, where none is, draws to try them."""
        resident, new = nearest_rows(state, summary, self.resident_rows)
        scanned = Scanned(summary.nearest, summary.sides)
        state = replace(state, round=state.round + 1, resident=resident, scanned=scanned, new_rows=new)
        near = state.answered.both_classes and state.hypothesis.within(scanned.nearest, scanned.sides)
        if near and not self._due(state):
            state = self._next(state)
            return state if len(state.wanted) else replace(state, wanted=nearest_row(state, summary))
        if self.learning.falls_short(state):
            return replace(state, status="stalled")
        return self._drawing(state, summary)

    def _drawing(self, state: ActiveState, summary: SlabSummary) -> ActiveState:
        """With rows that try the hypothesis; where too few of a stratum came along, the next scan brings more."""
        order = self.drawing.order(state)
        places = np.argsort(summary.drawn_id)[np.searchsorted(np.sort(summary.drawn_id), order)]
        draws = self.drawing.drawn(state, order, summary.drawn_side[places])
        if draws is None:
            return replace(state, reach=REACH * len(order), wanted=np.zeros(0, np.int64))
        resident = with_drawn(state, draws, summary)
        return self._tried(replace(state, draws=draws, resident=resident, reach=len(order)))

    def round_of(self, state: ActiveState) -> Round:
        """What is told of a state; of several classes the bounds are those of the one that has least."""
        lower, upper = self.bounds_of(state)
        draws = int(state.draws.seen.sum())
        return Round(
            number=state.round,
            status=state.status,
            lower=lower,
            lower_now=lower,
            upper=upper,
            pool_rows=len(state.resident),
            coreset_rows=len(state.answered.support),
            new_rows=state.new_rows,
            more={"labels": len(state.answered) + draws, "attempt": state.attempt, "draws": draws},
        )

    def bounds_of(self, state: ActiveState) -> tuple[float, float]:
        """(lower, upper) of the hyperplane whose ratio of both is the smallest."""
        lower = self.proven(state) if state.answered.both_classes else np.zeros(self.planes)
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = int(np.argmin(np.where(state.upper > 0, lower / state.upper, 0.0)))
        return float(lower[worst]), float(state.upper[worst])

    def proven(self, state: ActiveState) -> NDArray[np.float64]:
        """What is proven of each hyperplane (k,): its margin on the rows answered and on all others, or its value."""
        return state.lower if self.loss is not None else np.minimum(state.lower, state.scanned.nearest)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> ActiveState:
        """A state from a checkpoint."""
        return ActiveState.from_arrays(arrays)
