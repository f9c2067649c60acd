"""What answers do to a state: the rows that have one, the hyperplanes that they give, and draws that count no more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import BREAKDOWNS, quiet
from coremargin.maths.margin import is_certified
from coremargin.problems.active.answered import Answered
from coremargin.problems.active.fit import Fitted, largest_margins, least_values
from coremargin.problems.active.hypothesis import NONE, Hypothesis
from coremargin.problems.active.resident import rows_of
from coremargin.problems.active.state import ActiveState, Draws, Scanned
from coremargin.problems.common.map_rounding import margin_rounding, requested_epsilon, value_rounding
from coremargin.problems.soft.losses.table import LOSSES

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.choices import Loss, Method
    from coremargin.problems.common.driver_rows import DriverRows


@dataclass(frozen=True)
class Learning:
    """From answers about rows of a source to hyperplanes: those of a method, or with a loss of the least values."""

    source: Source
    classes: int
    method: Method
    epsilon: float
    intercept: bool
    loss: Loss | None
    cost: float

    @property
    def planes(self) -> int:
        """How many hyperplanes there are."""
        return 1 if self.classes == 2 else self.classes

    def begun(self, resident: DriverRows, unsure: NDArray[np.int64], sample_bytes: int) -> ActiveState:
        """No row is answered."""
        source, planes = self.source, self.planes
        return ActiveState(
            round=0,
            status="running",
            answered=Answered.nothing(source.features, planes, sparse=source.sparse),
            unsure=unsure,
            resident=resident,
            hypothesis=Hypothesis.nothing(source.features, planes, soft=self.loss is not None),
            lower=np.zeros(planes),
            upper=np.full(planes, np.inf),
            failed=NONE,
            scanned=Scanned.nothing(planes),
            attempt=1,
            draws=Draws.none(),
            reach=0,
            tried=0,
            wanted=np.zeros(0, np.int64),
            new_rows=0,
            sample_bytes=sample_bytes,
        )

    def voided(self, state: ActiveState) -> ActiveState:
        """Without the attempt on the way: its draws are rows like any other, or may be drawn again, none answered.

        Its number is spent as soon as there are draws: somebody may have seen them, and told what they show.
        """
        draws, spent = state.draws, bool(len(state.draws))
        empty = replace(state, draws=Draws.none(), attempt=state.attempt + spent, reach=0)
        state = self.joined(empty, draws.ids[draws.seen], draws.codes[draws.seen])
        return replace(state, tried=len(state.answered)) if draws.finished else state

    def untried(self, state: ActiveState) -> ActiveState:
        """As if its draws were rows like any other: with a loss they change the hypothesis, right or wrong."""
        state = self.voided(state)
        return state if self.loss is None else self.solved(state)

    def unsolved(self, state: ActiveState, answered: Answered) -> ActiveState:
        """As if nothing were known of these rows but their answers."""
        return replace(
            state,
            status="running",
            answered=answered.weighted(np.zeros_like(answered.weights)),
            hypothesis=Hypothesis.nothing(self.source.features, self.planes, soft=self.loss is not None),
            lower=np.zeros(self.planes),
            upper=np.full(self.planes, np.inf),
            failed=NONE,
            scanned=Scanned.nothing(self.planes),
            wanted=np.zeros(0, np.int64),
        )

    def joined(self, state: ActiveState, ids: NDArray[np.int64], codes: NDArray[np.int32]) -> ActiveState:
        """With these rows among those answered."""
        answered = state.answered.add(ids, rows_of(self.source, state, ids), codes)
        return replace(state, answered=answered, unsure=np.setdiff1d(state.unsure, ids))

    def solved(self, state: ActiveState) -> ActiveState:
        """What the rows answered give; nothing is known of others by it, nor by what ended it before."""
        answered = state.answered
        try:
            with quiet():
                fitted = self._fitted(answered, state.hypothesis)
        except BREAKDOWNS:  # the last hypothesis stays, of which nothing is known any more
            last = self.unsolved(state, answered)
            return replace(last, status="stalled", hypothesis=state.hypothesis, failed=0)
        failed = NONE if fitted.failed is None else fitted.failed
        state = replace(
            state,
            status=fitted.status,
            scanned=Scanned.nothing(self.planes),
            hypothesis=fitted.hypothesis,
            answered=answered.weighted(fitted.weights),
            upper=fitted.upper,
            failed=failed,
        )
        if fitted.failed is not None:
            return replace(state, wanted=np.zeros(0, np.int64))
        return replace(state, lower=fitted.lower)

    def _fitted(self, answered: Answered, last: Hypothesis) -> Fitted:
        """The hyperplanes of the rows answered. Raises what arithmetic does where float64 comes to its end."""
        if self.loss is None:
            return largest_margins(answered, last, self.method, intercept=self.intercept, epsilon=self.epsilon)
        return least_values(answered, last, self.loss, self.cost, intercept=self.intercept)

    def claimed(self, state: ActiveState, plane: int, lower: float) -> tuple[float, float]:
        """The bounds of a hyperplane as they are claimed, lower being proven of the rows here: of mapped ones less."""
        upper = float(state.upper[plane])
        if self.loss is None:
            moves = margin_rounding(self.source)
            return lower - moves, upper + moves
        loss, total = LOSSES[self.loss], self.cost * len(state.answered)
        below, above = value_rounding(self.source, upper, lambda margin, value: loss.value_error(margin, value, total))
        return max(0.0, lower - below), upper + above  # no value is below 0

    def proves(self, state: ActiveState, lower: NDArray[np.float64]) -> bool:
        """Whether bounds lower (k,), as they are claimed, prove what was asked for, where two classes have answers."""
        if not state.answered.both_classes:
            return True
        asked, pairs = requested_epsilon(self.source, self.epsilon), enumerate(lower.tolist())
        return all(is_certified(*self.claimed(state, plane, low), asked) for plane, low in pairs)

    def falls_short(self, state: ActiveState) -> bool:
        """Whether there is a hyperplane, with a loss, whose value float64 does not prove: no draw can mend that.

        Of a class that has all answers, or none, there is no value to prove.
        """
        known = zip(state.lower[found := np.isfinite(state.upper)], state.upper[found], strict=True)
        return self.loss is not None and not all(
            is_certified(float(low), float(high), self.epsilon) for low, high in known
        )
