"""Whether draws are honest, and what they show: the rows that the generator draws, and how many of all can be wrong."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Container, Iterator
from itertools import count, islice
from typing import TYPE_CHECKING, Protocol

import numpy as np

from coremargin.verify.active.odds import at_most_wrong, least_bound, share_of
from coremargin.verify.checks import Check, certified, shown
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.formats.asked import Evidence
    from coremargin.verify.active.claim import ActiveClaim
    from coremargin.verify.rows import Rows

_AT_ONCE = 1 << 16  # draws whose weights are looked up together, at most
_LIGHT = 100  # so many rows that are passed over cost as much as one that is drawn


def drawn(digest: str, seed: int, attempt: int, rows: int) -> Iterator[int]:
    """All rows in the order in which they are drawn, by the definition in formats/draws.py."""
    below, seen = 2**64 - 2**64 % max(1, rows), set[int]()
    for block in count():
        if len(seen) == rows:
            return
        text = hashlib.sha256(f"coremargin draws 1 {digest} {seed} {attempt} {block}".encode("ascii"))
        for number in struct.unpack(">4Q", text.digest()):
            if number < below and number % rows not in seen:
                seen.add(number % rows)
                yield number % rows


class Weighed(Protocol):
    """Rows of a store, as of some commit."""

    @property
    def rows(self) -> int: ...  # noqa: D102
    def weigh(self, rows: np.ndarray, /) -> np.ndarray: ...  # noqa: D102


def fresh(
    claim: ActiveClaim, rows: Weighed, attempt: int, known: Container[int], spend: Callable[[int], object] | None = None
) -> Iterator[int]:
    """Rows in the order in which an attempt draws them: of a weight above 0, and none of those that are known.

    spend: is told how many are drawn; those without a weight, which are passed over at once, count a little.
    """
    order, size = drawn(claim.store_digest, claim.seed, attempt, rows.rows), 64
    while some := list(islice(order, size)):
        new = np.array([row for row in some if row not in known], np.int64)
        weighed = rows.weigh(new)
        if spend is not None:
            spend(int(weighed.sum()) + len(some) // _LIGHT)
        yield from new[weighed].tolist()
        size = min(2 * size, _AT_ONCE)


def honest_draws(claim: ActiveClaim, rows: Rows) -> list[Check]:
    """Whether the draws are the first rows that the seed, the store and the attempt draw: none left out, none added."""
    evidence = claim.evidence
    if evidence is None:
        return []
    order = fresh(claim, rows, evidence.attempt, set(claim.answered.ids.tolist()))
    where = f"seed {claim.seed}, attempt {evidence.attempt}"
    for place, row in enumerate(claim.draws_ids.tolist(), 1):
        wanted = next(order, None)
        if row != wanted:
            found = "no row is left to draw" if wanted is None else f"{where} and the store draw row {wanted} there"
            return [Check("draws", ok=False, text=f"model claims that row {row} was draw {place}; {found}")]
    text = f"the first {evidence.draws:,} rows without an answer that {where} and the store draw"
    return [Check("draws", ok=True, text=text)]


def evidence_of(claim: ActiveClaim, population: int, wrong: list[int]) -> Check:
    """Whether the draws prove what is claimed of all rows without an answer; wrong: draws on the other side."""
    evidence = claim.evidence
    if evidence is None:
        return _nothing_drawn(claim, population)
    problems = _counted(claim, evidence, population, wrong)
    if not problems:
        problems = _bounded(evidence)
    text = (
        f"{evidence.draws:,} draws of {population:,} rows, none of them wrong: with confidence "
        f"{evidence.confidence} at most {evidence.error_bound:,} are labelled wrongly (attempt {evidence.attempt})"
    )
    return Check("evidence", not problems, "; ".join(problems) or text)


def _nothing_drawn(claim: ActiveClaim, population: int) -> Check:
    if claim.status == "certified" and population:
        text = f"model claims to be certified without draws; {population:,} rows have no answer"
        return Check("evidence", ok=False, text=text)
    text = "no draws: nothing is claimed of how many rows are labelled wrongly"
    return Check("evidence", ok=True, text=text if population else "every row is answered")


def _counted(claim: ActiveClaim, evidence: Evidence, population: int, wrong: list[int]) -> list[str]:
    """What is wrong with the numbers that the bound is made of."""
    problems = []
    if evidence.confidence != claim.confidence:
        problems.append(f"confidence {evidence.confidence}, the parameters say {claim.confidence}")
    if evidence.population != population:
        text = f"{population:,} rows have a weight above 0 and no answer"
        problems.append(f"model claims a population of {evidence.population:,}, {text}")
    if wrong:
        problems.append(f"model claims that no draw is wrong; {listed(wrong)} answered otherwise")
    if claim.status == "not_separable":
        problems.append("model claims evidence for a hypothesis that no hyperplane can be")
    elif not certified(claim.lower, claim.upper, claim.proven_epsilon):  # else the draws may have made it, or it them
        text = f"lower {shown(claim.lower)} and upper {shown(claim.upper)} do not prove epsilon {claim.proven_epsilon}"
        problems.append(f"model claims evidence for a hypothesis that its answers need not lead to: {text}")
    if claim.status == "certified" and not evidence.error_bound <= claim.error * evidence.population:
        text = f"{evidence.error_bound:,} of {evidence.population:,} rows may be wrong"
        problems.append(f"model claims to be certified to a share of {claim.error}, {text}")
    return problems


def _bounded(evidence: Evidence) -> list[str]:
    """What is wrong with the bound; all else is as it was found."""
    rows, draws, bound = evidence.population, evidence.draws, evidence.error_bound
    delta = share_of(evidence.confidence, evidence.attempt)
    if at_most_wrong(rows, draws, bound, delta):
        return []
    proven = f"{draws:,} draws, none of them wrong, prove at most {least_bound(rows, draws, delta):,}"
    text = f"model claims that at most {bound:,} of {rows:,} rows are labelled wrongly, {proven}"
    return [f"{text} (attempt {evidence.attempt})"]
