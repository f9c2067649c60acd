"""The scan of a store for models of queried labels: margin, distance and loss of each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.active.claim import Coded
from coremargin.verify.active.draws import honest_by_class, honest_draws, unsure_draws, unsure_draws_checks, walk_order
from coremargin.verify.active.evidence import DrawnStratum, evidence_of, later_answers_checks
from coremargin.verify.active.log import commits_of, history_checks
from coremargin.verify.active.soft import dual_bound, losses, value, weights_check
from coremargin.verify.checks import Check, typed
from coremargin.verify.crammer_singer import lowest_of_classes
from coremargin.verify.hard_margin import NO_ROW, Lowest, has_margin, lowest_of, rounding
from coremargin.verify.store import Members, StoreFindings, listed
from coremargin.verify.sums import SLAB_ROWS, SLAB_VALUES, Total, dot_products, length, slabs
from coremargin.verify.values import value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.verify.active.claim import ActiveClaim
    from coremargin.verify.crammer_singer import ClassesClaim
    from coremargin.verify.rows import Chunk, Rows


NONE = -1  #: no class, or more than one


def predicted_classes(claim: ActiveClaim, x: Any, lengths: np.ndarray) -> np.ndarray:
    """The index (n,) of the class that the model predicts for rows x (n, d) of these lengths, or NONE."""
    values = np.column_stack([x @ plane.w + plane.b for plane in claim.planes])
    errors = np.column_stack([rounding(plane, lengths, length(plane.w)) for plane in claim.planes])
    open_ones = np.flatnonzero(_open(claim, values, errors))
    if len(open_ones):
        exact = [dot_products(x[open_ones], plane.w, plane.b) for plane in claim.planes]
        values[open_ones] = np.column_stack(exact)
    return np.where(np.isnan(values).any(axis=1), NONE, _sides(claim, values))  # what overflows proves nothing


def undecided(claim: ActiveClaim, x: Any, lengths: np.ndarray) -> np.ndarray:
    """Of which rows x (n, d), as they are mapped here, the exact ones may be given another class: (n,) bool."""
    values, errors = [], []
    for plane in claim.planes:
        size = length(plane.w) * (1.0 + 1e-9)
        values.append(x @ plane.w + plane.b)
        errors.append(rounding(plane, lengths, size) + claim.moved * size)
    return _open(claim, np.column_stack(values), np.column_stack(errors))


def _open(claim: ActiveClaim, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Whether errors (n, K) of decision values (n, K) leave the class of each row (n,) undecided."""
    if claim.by_largest:
        largest = np.partition(values, -2, axis=1)[:, -2:]
        return np.asarray(~(largest[:, 1] - largest[:, 0] > 2 * errors.max(axis=1)))
    return np.asarray(~(np.abs(values) > errors).all(axis=1))


def _sides(claim: ActiveClaim, values: np.ndarray) -> np.ndarray:
    if not claim.several:
        return (values[:, 0] >= 0).astype(np.int64)
    if claim.by_largest:
        return np.asarray(values.argmax(axis=1), np.int64)
    above = values > 0
    return np.where(above.sum(axis=1) == 1, above.argmax(axis=1), NONE)


@dataclass
class ChunkFindings:
    """The findings in one chunk."""

    lowest: list[Lowest]  #: of each hyperplane, or of all at once; without a loss
    below: list[int]
    losses: Total  #: of each hyperplane, with a loss
    strata: np.ndarray  #: (K + 1,) rows that count and are not answered, by the class given; the last: none
    sides: np.ndarray  #: of the rows that were asked for
    unclear: list[int]  #: rows of these that exact mapped ones may give another class
    members: Members
    light: int  #: rows of weight 0
    unsure: int  #: other rows that no annotator could label
    unanswered: int  #: rows that count and are not answered
    stored: tuple[int, int]  #: rows answered that the store has a label of; and those with another one there
    radius: float = 0.0


@dataclass
class _Asked:
    """The rows of a chunk: codes (n,) of answers or -1, and those (n,) that count."""

    codes: np.ndarray
    counted: np.ndarray
    wanted: np.ndarray  #: rows, counted from the chunk's first, whose sides are asked for
    sides: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.sides = np.full(len(self.codes), NONE, np.int64)

    @property
    def free(self) -> np.ndarray:
        """Rows (n,) that count and have no answer."""
        return self.counted & (self.codes < 0)


class ActiveScan(StoreFindings):
    """The margin of rows answered and the distance of others, or the loss; and what the answers to draws say.

    Draws are rows like any other here: they say something of the hypothesis, which knew nothing of them.
    """

    claim: ActiveClaim

    def __init__(self, claim: ActiveClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        if claim.history is not None:
            rows.watch({one.digest for one in commits_of(claim.history, len(claim.history.answers.entries))})
        later, draws = claim.later or Coded.none(), claim.draws
        self.tried = Coded.of(np.concatenate([draws.ids, later.ids]), np.concatenate([draws.codes, later.codes]))
        self.walk_order = walk_order(claim, rows)
        self.unsure_draws = unsure_draws(claim)
        self.wanted = np.unique(np.concatenate([self.tried.ids, self.walk_order, self.unsure_draws]))
        self.sides = np.full(len(self.wanted), NONE, np.int64)
        self._places = {typed(label): place for place, label in enumerate(claim.labels)}
        self.lowest, self.below = [NO_ROW] * len(claim.bounded), [0] * len(claim.bounded)
        self.loss = Total((len(claim.planes),))
        self.strata = np.zeros(len(claim.labels) + 1, np.int64)
        self.light = self.unsure = self.unanswered = self.labelled = self.differing = self._next = 0
        self.unclear = list[int]()

    @property
    def excluded_text(self) -> str:
        """Text about the rows that do not count."""
        light = f", {self.light:,} of weight 0 not counted" if self.light else ""
        return light + (f", {self.unsure:,} that no annotator could label not counted" if self.unsure else "")

    def probe(self, chunk: Chunk) -> ChunkFindings:
        """One chunk, in slabs of float64."""
        claim, start, stop = self.claim, chunk.start, chunk.start + len(chunk.codes)
        asked, heavy, unsure = self._asked(chunk)
        findings = ChunkFindings(
            [NO_ROW] * len(claim.bounded),
            [0] * len(claim.bounded),
            Total((len(claim.planes),)),
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            [],
            self.members(chunk, np.where(asked.counted, asked.codes, NONE) + 1),
            int((~heavy).sum()),
            int((heavy & unsure).sum()),
            int(asked.free.sum()),
            self._stored(chunk, asked),
        )
        most = SLAB_ROWS if claim.loss else max(64, SLAB_VALUES // len(claim.planes))  # values of all classes at a time
        for part, x in slabs(chunk.x, most):
            lengths = self.lengths(x, start + part.start)
            findings.radius = max(findings.radius, float(lengths.max()))
            self._planes(findings, asked, part, x, lengths, start)
            findings.unclear += [start + part.start + row for row in self._sides(asked, part, x, lengths)]
        free = asked.free & bool(claim.by_class or claim.several)
        findings.strata = np.bincount(asked.sides[free] % (len(claim.labels) + 1), minlength=len(claim.labels) + 1)
        a, b = np.searchsorted(self.wanted, (start, stop))
        findings.sides = asked.sides[self.wanted[a:b] - start]
        return findings

    def _asked(self, chunk: Chunk) -> tuple[_Asked, np.ndarray, np.ndarray]:
        """The rows of a chunk; those of a weight above 0, and those that no annotator could label."""
        n, start = len(chunk.codes), chunk.start
        heavy = np.ones(n, bool) if chunk.weights is None else chunk.weights > 0
        unsure, codes, mine = np.zeros(n, bool), np.full(n, NONE), self.claim.answered.within(start, start + n)
        a, b = np.searchsorted(self.claim.unsure, (start, start + n))
        unsure[self.claim.unsure[a:b] - start] = True
        codes[mine.ids] = mine.codes
        a, b = np.searchsorted(self.wanted, (start, start + n))
        return _Asked(codes, heavy & ~unsure, self.wanted[a:b] - start), heavy, unsure

    def _planes(
        self, findings: ChunkFindings, asked: _Asked, part: slice, x: Any, lengths: np.ndarray, start: int
    ) -> None:
        """Compute the margins and distances, or the losses, of a slab."""
        codes, counted, claim = asked.codes[part], asked.counted[part], self.claim
        mine = np.flatnonzero(counted & (codes >= 0))
        if claim.at_once is not None:
            self._at_once(findings, claim.at_once, codes, counted, x, lengths, start + part.start)
            return
        for k, plane in enumerate(() if claim.loss else claim.examined):
            lowest, below = lowest_of(plane, x, lengths, claim.side(k, codes), counted, start + part.start)
            findings.lowest[k] = min(findings.lowest[k], lowest)
            findings.below[k] += below
        if claim.loss and len(mine):
            signs = [claim.side(k, codes[mine]) for k in range(len(claim.planes))]
            pairs = zip(claim.planes, signs, strict=True)
            findings.losses.add(np.array([losses(claim, plane, x[mine], lengths[mine], side) for plane, side in pairs]))

    def _at_once(
        self,
        findings: ChunkFindings,
        joint: ClassesClaim,
        codes: np.ndarray,
        counted: np.ndarray,
        x: Any,
        lengths: np.ndarray,
        start: int,
    ) -> None:
        """Compute the margins of a slab's rows at once; those without an answer have the class that they are given."""
        mine = np.flatnonzero(counted)
        if not len(mine):
            return
        x, lengths = x[mine], lengths[mine]
        y = np.where(codes[mine] >= 0, codes[mine], np.maximum(predicted_classes(self.claim, x, lengths), 0))
        lowest, below = lowest_of_classes(joint, x, lengths, y, start + mine)
        margin, row, _ = lowest
        findings.lowest[0] = min(findings.lowest[0], (margin, row, int(codes[row - start])))
        findings.below[0] += below

    def _sides(self, asked: _Asked, part: slice, x: Any, lengths: np.ndarray) -> list[int]:
        """The sides of rows of a slab: of those asked for, and where they count by class of all without answer.

        Returns which of those asked for, counted from the slab's first, are on a side that a map's rounding may decide.
        """
        free = asked.free[part] if self.claim.by_class or self.claim.several else np.zeros(len(lengths), bool)
        a, b = np.searchsorted(asked.wanted, (part.start, part.stop))
        free[asked.wanted[a:b] - part.start] = True
        if free.any():
            asked.sides[part.start + np.flatnonzero(free)] = predicted_classes(self.claim, x[free], lengths[free])
        mine = asked.wanted[a:b] - part.start
        if not (self.claim.moved and len(mine)):
            return []
        return [int(row) for row in mine[undecided(self.claim, x[mine], lengths[mine])]]

    def _stored(self, chunk: Chunk, asked: _Asked) -> tuple[int, int]:
        """The numbers of answered rows that the store labels, and that it labels differently."""
        given, tried = asked.codes.copy(), self.tried.within(chunk.start, chunk.start + len(chunk.codes))
        given[tried.ids] = tried.codes
        places = np.array([*(self._places.get(typed(label), NONE) for label in self.rows.classes), NONE])
        stored = np.where(given < 0, NONE, places[chunk.codes])
        stored = stored if chunk.weights is None else np.where(chunk.weights > 0, stored, NONE)
        return int((stored >= 0).sum()), int(((stored != given) & (stored >= 0)).sum())

    def add(self, answer: ChunkFindings) -> None:
        """Add the findings of a chunk; chunks come in order, so that ties go to the lower row."""
        first = self._next
        self.sides[first : first + len(answer.sides)] = answer.sides
        self._next = first + len(answer.sides)
        self.unclear += answer.unclear
        self.lowest = [min(pair) for pair in zip(self.lowest, answer.lowest, strict=True)]
        self.below = [sum(pair) for pair in zip(self.below, answer.below, strict=True)]
        self.loss.add(answer.losses.value)
        self.strata += answer.strata
        self.unanswered += answer.unanswered
        self.light += answer.light
        self.unsure += answer.unsure
        self.labelled += answer.stored[0]
        self.differing += answer.stored[1]
        self.count(answer.light + answer.unsure, answer.radius, answer.members)

    def bounds(self) -> tuple[float | None, float | None]:
        """The bounds of the hyperplane that the certificate is about; the upper bound of a margin needs no scan."""
        worst = self.claim.worst
        if self.claim.loss:
            return dual_bound(self.claim, self.claim.planes[worst]), self._value(worst)
        margin, row, _ = self.lowest[worst]
        return (margin if self.claim.lower is not None and row >= 0 else None), None

    def _value(self, k: int) -> float:
        return value(self.claim, self.claim.planes[k], float(self.loss.value[k]))

    def checks(self) -> list[Check]:
        """The checks of the claims by the scan."""
        claim = self.claim
        found, later = self._strata(), claim.later or Coded.none()
        later = later.take(self.rows.weigh(later.ids) & ~np.isin(later.ids, claim.draws_ids))
        history = [*history_checks(claim, self.rows), self.content(), self.coreset()]
        shown = [check for k in range(len(claim.bounded)) for check in self._plane(k)]
        evidence = evidence_of(claim, found, int(self.strata[-1]) if claim.several else 0)
        afterwards = later_answers_checks(claim, later, self._side(later.ids))
        drawn = [*self._honest(found), *self._unclear(), *self._unsure_draws_checks(found), evidence]
        return [*history, *shown, *drawn, *afterwards, *self._own_labels()]

    def _side(self, rows: np.ndarray) -> np.ndarray:
        """The classes (n,) that the model gives these rows, whose sides were asked for."""
        return self.sides[np.searchsorted(self.wanted, rows)]

    def _strata(self) -> list[DrawnStratum]:
        """The counts of each stratum, or of all rows together."""
        draws, sides = self.claim.draws, self._side(self.claim.draws.ids)
        wrong = sides != draws.codes
        if not self.claim.by_class:
            return [DrawnStratum(self.unanswered, len(wrong), draws.ids[wrong].tolist())]
        counts = enumerate(self.strata[:-1].tolist())
        return [DrawnStratum(n, int((sides == k).sum()), draws.ids[wrong & (sides == k)].tolist()) for k, n in counts]

    def _honest(self, found: list[DrawnStratum]) -> list[Check]:
        if self.claim.evidence is None or not self.claim.by_class:
            return honest_draws(self.claim, self.rows)
        return [honest_by_class(self.claim, self.rows, self.walk_order, self._side(self.walk_order), found)]

    def _unclear(self) -> list[Check]:
        """A failed check where draws are evidence whose class the rounding of a map may decide."""
        rows = sorted(set(self.unclear) & set(self.claim.draws_ids.tolist()))
        text = f"{listed(rows)} drawn, and so near to a hyperplane that rounding of the map may decide its class"
        return [Check("draws", ok=False, text=text)] if rows else []

    def _unsure_draws_checks(self, found: list[DrawnStratum]) -> list[Check]:
        """Check that excluded draws were drawn; strata are the predicted classes, or all rows."""
        every = self.claim.draws.ids, self.unsure_draws
        drawn, unsure = ((self._side(ids) if self.claim.by_class else np.zeros(len(ids), np.int64)) for ids in every)
        return unsure_draws_checks(self.claim, self.rows, self.unsure_draws, (drawn, unsure), found)

    def _plane(self, k: int) -> list[Check]:
        """Whether a hyperplane has the margin, or the value, that is claimed, and its dual weights prove the rest."""
        claim, prefix = self.claim, self.claim.prefix(k)
        if claim.at_once is not None:
            answered = self.lowest[0][2]
            whose = f"answered {claim.labels[answered]!r}" if answered >= 0 else "without answer"
            counted = self.rows.rows - self.unlabelled, self.excluded_text
            return [has_margin(claim.at_once.lower, self.lowest[0], self.below[0], counted, whose)]
        plane = claim.examined[k]
        if claim.loss:
            reached = value_reached(plane, self._value(k), f"{len(claim.answered.ids):,} rows answered")
            found = [reached, value_bounded(plane, dual_bound(claim, plane))]
            return [weights_check(claim, k), *(Check(one.name, one.ok, prefix + one.text) for one in found)]
        counted = self.rows.rows - self.unlabelled, self.excluded_text
        found = [has_margin(plane.lower, self.lowest[k], self.below[k], counted, self._side_of(k, self.lowest[k][2]))]
        return [Check(one.name, one.ok, prefix + one.text) for one in found]

    def _side_of(self, k: int, sign: int) -> str:
        plane = self.claim.planes[k]
        return f"answered {plane.positive if sign > 0 else plane.negative!r}" if sign else "without answer"

    def coreset(self) -> Check:
        """Whether the coreset rows are rows of the store that are answered, and no draws."""
        drawn = sorted(set(self.claim.ids.tolist()) & set(self.claim.draws_ids.tolist()))
        problems = self.membership()
        if drawn:
            problems.append(f"{listed(drawn)} drawn to try the hypothesis that the coreset is for")
        text = f"all {self.matched:,} rows are the store's, bit for bit, with the labels that were answered"
        return Check("coreset", not problems, "; ".join(problems) or text)

    def mislabelled(self) -> list[str]:
        """Errors in the labels of the coreset rows; empty if there are none."""
        problems = []
        if self.other_class:
            problems.append(f"{listed(self.other_class)} answered otherwise")
        if self.without_label:
            weighed = " or of weight 0" * self.rows.weighted
            problems.append(f"{listed(self.without_label)} without answer{weighed}")
        return problems

    def _own_labels(self) -> list[Check]:
        """A note that compares answers with the store's labels, about which nothing is claimed."""
        if not self.labelled:
            return []
        text = f"of {self.labelled:,} rows with an answer and a label in the store {self.differing:,} differ"
        return [Check("store's labels", ok=True, text=f"{text}; only answers count")]
