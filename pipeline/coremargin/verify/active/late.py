"""Answers that came after a model: whether they agree with it, and what it means where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.active.evidence import parts_of, where
from coremargin.verify.checks import Check
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.formats.queried import Evidence
    from coremargin.verify.active.claim import ActiveClaim, Coded


def late_checks(claim: ActiveClaim, late: Coded, sides: np.ndarray) -> list[Check]:
    """late: rows that count, answered after the model and no draws of its; sides: the classes that it gives them.

    With a loss some rows may be wrong, of each stratum: only more of them than it claims there are at most, or more
    right ones than it leaves, refute it.
    """
    if claim.late is None or not len(claim.late.ids):
        return []
    count, wrong = f"{len(claim.late.ids):,} answers came after the model", late.ids[sides != late.codes].tolist()
    otherwise = f"{listed(wrong)} answered otherwise"
    if claim.of_others and claim.loss and claim.evidence is not None:
        problems = _of_strata(claim, claim.evidence, late, sides)
        known, most = len(wrong) + claim.evidence.wrong, claim.evidence.error_bound
        text = f"{count}; {otherwise if wrong else 'none of them otherwise'} than it says, with its draws {known:,}"
        text += f", and it claims at most {most:,}"
        return [Check("late answers", not problems, "; ".join([text, *problems]))]
    if not wrong:
        return [Check("late answers", ok=True, text=f"{count}, and are what it says")]
    if not claim.of_others:
        many = f"{len(late.ids):,} answer{'s' * (len(late.ids) > 1)}"
        text = f"the model is out of date by {many}; {otherwise} than it says, which claims nothing of such rows"
        return [Check("late answers", ok=True, text=text)]
    text = f"{otherwise} than the model says, after it was made: go on with the campaign"
    return [Check("late answers", ok=False, text=text)]


def _of_strata(claim: ActiveClaim, evidence: Evidence, late: Coded, sides: np.ndarray) -> list[str]:
    """What is known by now of each stratum, or of all rows, where that is not what is claimed of it."""
    problems = []
    for k, said in enumerate(parts_of(evidence)):
        mine = sides == k if claim.by_class else np.ones(len(sides), bool)
        wrong = said.wrong + int((mine & (sides != late.codes)).sum())
        right = said.draws - said.wrong + int((mine & (sides == late.codes)).sum())
        if wrong > said.error_bound:
            problems.append(f"{where(said)}{wrong:,} are known to be wrong, model claims at most {said.error_bound:,}")
        if right > said.population - said.error_least:
            problems.append(
                f"{where(said)}{right:,} are known to be right, model claims at least {said.error_least:,} wrong"
            )
    return problems
