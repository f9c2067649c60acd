"""What ``verify`` asks of every row of a store whose labels were asked for: its margin, or its distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.active.claim import Signed
from coremargin.verify.active.draws import evidence_of, honest_draws
from coremargin.verify.active.ground import commits_of
from coremargin.verify.active.log import history_checks
from coremargin.verify.checks import Check
from coremargin.verify.hard.scan import Answer, Scan
from coremargin.verify.store import listed
from coremargin.verify.sums import dot_products

if TYPE_CHECKING:
    from coremargin.verify.active.claim import ActiveClaim
    from coremargin.verify.rows import Chunk, Rows


@dataclass(frozen=True)
class Heard:
    """What one chunk says."""

    margins: Answer
    fresh: int  #: rows that count and are not answered, draws among them
    wrong: tuple[int, ...]  #: rows drawn or answered late whose answers are not what the hypothesis says
    differing: int  #: rows answered otherwise than the store labels them
    labelled: int  #: rows answered that the store has a label of


class ActiveScan(Scan):
    """The margin of rows answered, the distance of all others, and what the answers to draws say.

    Draws are rows like any other here: they say something of the hypothesis, which knew nothing of them.
    """

    claim: ActiveClaim

    def __init__(self, claim: ActiveClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        late = claim.late or Signed(np.zeros(0, np.int64), np.zeros(0, np.int64))
        draws = claim.draws
        self.tried = Signed.of(np.concatenate([draws.ids, late.ids]), np.concatenate([draws.signs, late.signs]))
        if claim.history is not None:
            rows.watch({one.digest for one in commits_of(claim.history, len(claim.history.answers.entries))})
        self.population = self.differing = self.labelled = 0
        self.wrong: list[int] = []

    @property
    def aside(self) -> str:
        """Words about the rows that count for nothing."""
        return f", {self.unlabelled:,} of weight 0 apart" if self.unlabelled else ""

    def sides(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """The sides of the rows answered, 0 for others; and rows of a weight above 0."""
        counted = np.ones(len(chunk.codes), bool) if chunk.weights is None else chunk.weights > 0
        signs, mine = np.zeros(len(counted), np.int64), self._part(self.claim.answered, chunk)
        signs[mine.ids] = mine.signs
        return np.where(counted, signs, 0), counted

    def _part(self, rows: Signed, chunk: Chunk) -> Signed:
        return rows.within(chunk.start, chunk.start + len(chunk.codes))

    def ask(self, chunk: Chunk) -> Heard:  # type: ignore[override]
        """One chunk."""
        margins = super().ask(chunk)
        signs, counted = self.sides(chunk)
        tried = self._part(self.tried, chunk)
        values = dot_products(chunk.x[tried.ids].astype(np.float64), self.claim.w, self.claim.b)
        right = np.where(tried.signs > 0, values >= 0, values < 0)  # as predictions are made of decision values
        wrong = tried.ids[~right] + chunk.start
        given = signs.copy()
        given[tried.ids] = tried.signs
        stored = np.where(given == 0, 0, self.signs(chunk))
        return Heard(
            margins, int((counted & (signs == 0)).sum()), tuple(wrong.tolist()),
            int(((stored != given) & (stored != 0)).sum()), int((stored != 0).sum()),
        )  # fmt: skip

    def add(self, answer: Heard) -> None:  # type: ignore[override]
        """Take one chunk's answer."""
        super().add(answer.margins)
        self.population += answer.fresh
        self.wrong += answer.wrong
        self.differing += answer.differing
        self.labelled += answer.labelled

    def checks(self) -> list[Check]:
        """What the scan says about the claims."""
        claim = self.claim
        drawn = set(claim.draws_ids.tolist())
        wrong = [row for row in self.wrong if row in drawn]
        evidence = evidence_of(claim, self.population, wrong)
        told = [*history_checks(claim, self.rows), *super().checks(), *honest_draws(claim, self.rows), evidence]
        return [*told, *self._late(drawn), *self._own_labels()]

    def coreset(self) -> Check:
        """Whether the coreset rows are rows of the store that are answered, and no draws."""
        drawn = sorted(set(self.claim.ids.tolist()) & set(self.claim.draws_ids.tolist()))
        problems = self.membership()
        if drawn:
            problems.append(f"{listed(drawn)} drawn to try the hypothesis that the coreset is for")
        text = f"all {self.matched:,} rows are the store's, bit for bit, with the labels that were answered"
        return Check("coreset", not problems, "; ".join(problems) or text)

    def mislabelled(self) -> list[str]:
        """What is wrong with the labels of the coreset rows."""
        problems = []
        if self.other_class:
            problems.append(f"{listed(self.other_class)} answered otherwise")
        if self.without_label:
            weighed = " or of weight 0" * self.rows.weighted
            problems.append(f"{listed(self.without_label)} without answer{weighed}")
        return problems

    def whose(self, sign: int) -> str:
        """Of a row on the side that it is to lie on."""
        return f"answered {self.label(sign)!r}" if sign else "without answer"

    def _late(self, drawn: set[int]) -> list[Check]:
        """Whether answers that came after the model agree with it."""
        late = self.claim.late
        if late is None or not len(late.ids):
            return []
        wrong = [row for row in self.wrong if row not in drawn]
        text = f"{len(late.ids):,} answers came after the model, and are what it says"
        if wrong and not self.claim.of_others:
            many = f"{len(late.ids):,} answer{'s' * (len(late.ids) > 1)}"
            text = f"the model is out of date by {many}; {listed(wrong)} answered otherwise"
            return [Check("late answers", ok=True, text=f"{text} than it says, which claims nothing of such rows")]
        if wrong:
            text = f"{listed(wrong)} answered otherwise than the model says, after it was made: go on with the campaign"
        return [Check("late answers", not wrong, text)]

    def _own_labels(self) -> list[Check]:
        """What the store's own labels say: no claim is about them."""
        if not self.labelled:
            return []
        text = f"of {self.labelled:,} rows with an answer and a label in the store {self.differing:,} differ"
        return [Check("store's labels", ok=True, text=f"{text}; only answers count")]
