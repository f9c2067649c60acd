"""Bounds from draws: how many rows, of all or of each predicted class, the model may misclassify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET

from coremargin.verify.active.hypergeometric import at_least_wrong, at_most_wrong, least_bound, most_least, share_of
from coremargin.verify.checks import Check, certified, shown
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.formats.active import Evidence, Stratum
    from coremargin.verify.active.claim import ActiveClaim, Coded


@dataclass(frozen=True)
class DrawnStratum:
    """The counts of a stratum in the scan: rows, draws, and misclassified draws."""

    population: int
    draws: int
    wrong: Sequence[int]


def parts_of(evidence: Evidence) -> Sequence[Evidence | Stratum]:
    """The recorded evidence of each stratum, or of all rows together."""
    return [evidence] if evidence.strata is UNSET else evidence.strata


def evidence_of(claim: ActiveClaim, found: Sequence[DrawnStratum], unclaimed: int) -> Check:
    """Whether the draws prove what is claimed of all rows without an answer.

    found: of each stratum, or of all rows together; unclaimed: rows without an answer that are not of one class.
    """
    evidence, population = claim.evidence, sum(part.population for part in found) + unclaimed * claim.by_class
    if evidence is None:
        return _without_draws(claim, population)
    problems = _premises(claim, evidence)
    if unclaimed:
        problems.append(f"{unclaimed:,} rows without an answer are claimed by no class, or by more than one")
    named = list(zip(parts_of(evidence), found, strict=True))
    for claimed, part in named:
        problems += [prefix_of(claimed) + text for text in _counted(claim, claimed, part)]
    if not problems:
        problems = [
            prefix_of(claimed) + text for claimed, _ in named for text in _bounded(claim, evidence, claimed, len(named))
        ]
    return Check("evidence", not problems, "; ".join(problems) or _text_of(claim, evidence))


def _text_of(claim: ActiveClaim, evidence: Evidence) -> str:
    wrong = f"{evidence.wrong:,} of them wrong" if evidence.wrong else "none of them wrong"
    text = (
        f"{evidence.draws:,} draws of {evidence.population:,} rows, {wrong}: with confidence "
        f"{evidence.confidence} at most {evidence.error_bound:,} are labelled wrongly"
    )
    if evidence.error_least:
        text += f" and{', if all of them have a label,' if len(claim.unsure) else ''} at least {evidence.error_least:,}"
    if claim.by_class:
        text += f" ({', '.join(f'{part.error_bound:,} called {_label(part)!r}' for part in parts_of(evidence))})"
    if len(claim.unsure):
        text += f"; {len(claim.unsure):,} rows not counted that no annotator could label, or that were taken back"
    if claim.history is None:
        text += ", if the hypothesis was there before these were answered, as only the campaign's log says"
    return f"{text} (attempt {evidence.attempt})"


def _label(claimed: Any) -> Any:
    return claimed.label


def prefix_of(claimed: Evidence | Stratum) -> str:
    """The prefix of messages about a stratum."""
    label = getattr(claimed, "label", None)
    return "" if label is None else f"rows called {label!r}: "


def _without_draws(claim: ActiveClaim, population: int) -> Check:
    if claim.status == "certified" and population:
        text = f"model claims to be certified without draws; {population:,} rows have no answer"
        return Check("evidence", ok=False, text=text)
    if population:
        text = "no draws: nothing is claimed of how many rows are labelled wrongly"
    elif aside := len(claim.unsure):
        text = (
            f"every row is answered but {aside:,} that no annotator could label, or that were taken back: nothing is "
        )
        text += f"claimed of {'them' if aside > 1 else 'it'}"
    else:
        text = "every row is answered"
    return Check("evidence", ok=True, text=text)


def _premises(claim: ActiveClaim, evidence: Evidence) -> list[str]:
    """Errors in the premises of the bounds; empty if there are none."""
    problems = []
    if evidence.confidence != claim.confidence:
        problems.append(f"confidence {evidence.confidence}, the parameters say {claim.confidence}")
    if claim.status == "not_separable":
        return [*problems, "model claims evidence for a hypothesis that no hyperplane can be"]
    for k, plane in enumerate(claim.bounded):
        if not certified(plane.lower, plane.upper, claim.proven_epsilon):
            text = f"{claim.prefix(k)}lower {shown(plane.lower)} and upper {shown(plane.upper)}"
            problems.append(
                "model claims evidence for a hypothesis that its answers need not lead to: "
                f"{text} do not prove epsilon {claim.proven_epsilon}"
            )
    return problems


def _counted(claim: ActiveClaim, claimed: Evidence | Stratum, found: DrawnStratum) -> list[str]:
    """Errors in the counts that a bound is computed from; empty if there are none."""
    problems = []
    if claimed.population != found.population:
        text = f"{found.population:,} rows have a weight above 0 and no answer"
        problems.append(f"model claims a population of {claimed.population:,}, {text}")
    if claimed.draws != found.draws:
        problems.append(f"model claims {claimed.draws:,} draws, {found.draws:,} are")
    if claimed.wrong != len(found.wrong):
        which = f"{listed(list(found.wrong))} answered otherwise" if found.wrong else "all are answered as it says"
        wrong = f"that {claimed.wrong:,} draws are" if claimed.wrong else "that no draw is"
        problems.append(f"model claims {wrong} wrong; {which}")
    if claim.loss and claimed.draws != (wanted := min(claim.trial, found.population)):
        text = f"{wanted:,} of {found.population:,} rows were to be drawn, a number that was fixed before"
        problems.append(f"model claims {claimed.draws:,} draws, {text}")
    if claim.status == "certified" and not claimed.error_bound <= claim.error * claimed.population:
        text = f"{claimed.error_bound:,} of {claimed.population:,} rows may be wrong"
        problems.append(f"model claims to be certified to a share of {claim.error}, {text}")
    return problems


def _bounded(claim: ActiveClaim, evidence: Evidence, claimed: Evidence | Stratum, strata: int) -> list[str]:
    """Errors in the bounds, given that the counts are right; empty if there are none."""
    rows, draws, wrong, problems = claimed.population, claimed.draws, claimed.wrong, list[str]()
    delta = share_of(evidence.confidence, evidence.attempt) / (strata * (2 if claim.loss else 1))
    seen = f"{draws:,} draws, {f'{wrong:,}' if wrong else 'none'} of them wrong, prove"
    if not at_most_wrong(rows, draws, claimed.error_bound, delta, wrong):
        text = f"{seen} at most {least_bound(rows, draws, delta, wrong):,}"
        problems.append(
            f"model claims that at most {claimed.error_bound:,} of {rows:,} rows are labelled wrongly, {text}"
        )
    if not _so_many(claimed, delta):
        text = f"{seen} at least {most_least(rows, draws, delta, wrong):,}"
        problems.append(f"model claims that at least {claimed.error_least:,} rows are labelled wrongly, {text}")
    return [f"{text} (attempt {evidence.attempt})" for text in problems]


def _so_many(claimed: Evidence | Stratum, delta: Fraction) -> bool:
    return at_least_wrong(claimed.population, claimed.draws, claimed.error_least, delta, claimed.wrong)


def later_answers_checks(claim: ActiveClaim, later: Coded, sides: np.ndarray) -> list[Check]:
    """late: rows that count, answered after the model and no draws of its; sides: the classes that it gives them.

    With a loss some rows may be wrong, of each stratum: only more of them than it claims there are at most, or more
    right ones than it leaves, refute it.
    """
    if claim.later is None or not len(claim.later.ids):
        return []
    count, wrong = f"{len(claim.later.ids):,} answers came after the model", later.ids[sides != later.codes].tolist()
    otherwise = f"{listed(wrong)} answered otherwise"
    if claim.of_others and claim.loss and claim.evidence is not None:
        problems = _of_strata(claim, claim.evidence, later, sides)
        known, most = len(wrong) + claim.evidence.wrong, claim.evidence.error_bound
        text = f"{count}; {otherwise if wrong else 'none of them otherwise'} than it says, with its draws {known:,}"
        text += f", and it claims at most {most:,}"
        return [Check("late answers", not problems, "; ".join([text, *problems]))]
    if not wrong:
        return [Check("late answers", ok=True, text=f"{count}, and are what it says")]
    if not claim.of_others:
        many = f"{len(later.ids):,} answer{'s' * (len(later.ids) > 1)}"
        text = f"the model is out of date by {many}; {otherwise} than it says, which claims nothing of such rows"
        return [Check("late answers", ok=True, text=text)]
    text = f"{otherwise} than the model says, after it was made: continue the campaign"
    return [Check("late answers", ok=False, text=text)]


def _of_strata(claim: ActiveClaim, evidence: Evidence, later: Coded, sides: np.ndarray) -> list[str]:
    """The strata, or all rows, for which later answers contradict the claim."""
    problems = []
    for k, claimed in enumerate(parts_of(evidence)):
        mine = sides == k if claim.by_class else np.ones(len(sides), bool)
        wrong = claimed.wrong + int((mine & (sides != later.codes)).sum())
        right = claimed.draws - claimed.wrong + int((mine & (sides == later.codes)).sum())
        if wrong > claimed.error_bound:
            problems.append(
                f"{prefix_of(claimed)}{wrong:,} are known to be wrong, model claims at most {claimed.error_bound:,}"
            )
        if right > claimed.population - claimed.error_least:
            problems.append(
                f"{prefix_of(claimed)}{right:,} are known to be right, "
                f"model claims at least {claimed.error_least:,} wrong"
            )
    return problems
