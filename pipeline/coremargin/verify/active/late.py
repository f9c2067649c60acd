"""Answers that came after a model: whether they agree with it, and what it means where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.verify.checks import Check
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.verify.active.claim import ActiveClaim


def late_checks(claim: ActiveClaim, wrong: list[int]) -> list[Check]:
    """wrong: rows answered late, and otherwise than the model says.

    With a loss some rows may be: only more of them than it claims there are at most refute it.
    """
    late, evidence = claim.late, claim.evidence
    if late is None or not len(late.ids):
        return []
    count = f"{len(late.ids):,} answers came after the model"
    if not wrong:
        return [Check("late answers", ok=True, text=f"{count}, and are what it says")]
    otherwise = f"{listed(wrong)} answered otherwise"
    if not claim.of_others:
        many = f"{len(late.ids):,} answer{'s' * (len(late.ids) > 1)}"
        text = f"the model is out of date by {many}; {otherwise} than it says, which claims nothing of such rows"
        return [Check("late answers", ok=True, text=text)]
    if claim.loss and evidence is not None:
        known = len(wrong) + evidence.wrong
        text = f"{count}; {otherwise} than it says, with its draws {known:,}, and"
        if known <= evidence.error_bound:
            return [Check("late answers", ok=True, text=f"{text} it claims at most {evidence.error_bound:,}")]
        return [Check("late answers", ok=False, text=f"{text} model claims at most {evidence.error_bound:,}")]
    text = f"{otherwise} than the model says, after it was made: go on with the campaign"
    return [Check("late answers", ok=False, text=text)]
