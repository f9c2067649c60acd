"""Whether draws are honest: the rows that the generator draws, all of them, in their order.

Without strata these are the first rows without an answer. By class, a stratum is what a model gives one class, and its
draws are the first of its rows in that order, as many as it has draws: rows of strata that have enough are passed over.
So the classes of all rows up to the last draw are needed, which the scan finds. Of a stratum that is drawn whole the
order says nothing, so that not all rows of a store are visited for the last row of a rare class: as soon as the
others have theirs, what is left has to be the rest of such strata.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Protocol

import numpy as np

from coremargin.verify.checks import Check
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.formats.active import Evidence
    from coremargin.verify.active.claim import ActiveClaim
    from coremargin.verify.active.evidence import DrawnStratum
    from coremargin.verify.rows import Rows


WALKED = 4_400_000  #: rows of the order that are visited; no attempt draws from more than 4,000,000
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
    """The weights of the rows of a store at a commit."""

    @property
    def rows(self) -> int: ...  # noqa: D102
    def weigh(self, rows: np.ndarray, /) -> np.ndarray: ...  # noqa: D102


def draw_order(
    claim: ActiveClaim, rows: Weighed, attempt: int, known: Container[int], spend: Callable[[int], object] | None = None
) -> Iterator[int]:
    """Rows in the order in which an attempt draws them: of a weight above 0, and none of those that are known.

    spend: called with how many are drawn; those without a weight, which are skipped at once, count a little.
    """
    order, size = drawn(claim.store_digest, claim.seed, attempt, rows.rows), 64
    while some := list(islice(order, size)):
        new = np.array([row for row in some if row not in known], np.int64)
        weighed = rows.weigh(new)
        if spend is not None:
            spend(int(weighed.sum()) + len(some) // _LIGHT)
        yield from new[weighed].tolist()
        size = min(2 * size, _AT_ONCE)


def undrawable(claim: ActiveClaim) -> set[int]:
    """Rows that no attempt draws now: answered ones, and ones that no annotator could label."""
    return {*claim.answered.ids.tolist(), *claim.unsure.tolist()}


def honest_draws(claim: ActiveClaim, rows: Rows) -> list[Check]:
    """Whether the draws are the first rows that the seed, the store and the attempt draw: none left out, none added."""
    evidence = claim.evidence
    if evidence is None:
        return []
    order = draw_order(claim, rows, evidence.attempt, undrawable(claim))
    generator = source_of(claim, evidence)
    for place, row in enumerate(claim.draws_ids.tolist(), 1):
        wanted = next(order, None)
        if row != wanted:
            found = "no row is left to draw" if wanted is None else f"{generator} and the store draw row {wanted} there"
            return [Check("draws", ok=False, text=f"model claims that row {row} was draw {place}; {found}")]
    text = f"the first {evidence.draws:,} rows without an answer that {generator} and the store draw"
    return [Check("draws", ok=True, text=text)]


def source_of(claim: ActiveClaim, evidence: Evidence) -> str:
    """Name the generator that draws rows."""
    return f"seed {claim.seed}, attempt {evidence.attempt}"


class _EnoughError(Exception):
    """Raised when too many rows were visited."""


def walk_order(claim: ActiveClaim, rows: Rows) -> np.ndarray:
    """The rows in drawing order up to the last draw, or up to the limit of visited rows; none without strata."""
    evidence, found = claim.evidence, list[int]()
    if evidence is None or not claim.by_class:
        return np.zeros(0, np.int64)
    left, waiting = WALKED, set(claim.draws_ids.tolist())

    def spend(draws: int) -> None:
        nonlocal left
        left -= draws
        if left < 0:
            raise _EnoughError

    order = draw_order(claim, rows, evidence.attempt, undrawable(claim), spend)
    try:
        while waiting and (row := next(order, None)) is not None:
            found.append(row)
            waiting.discard(row)
    except _EnoughError:
        pass
    return np.array(found, np.int64)


def honest_by_class(
    claim: ActiveClaim, rows: Rows, order: np.ndarray, sides: np.ndarray, found: Sequence[DrawnStratum]
) -> Check:
    """order (n,): what was walked; sides (n,): the places of the strata of these rows."""
    draws, counts = claim.draws_ids.tolist(), [0] * len(found)
    whole = [part.draws == part.population for part in found]
    missing, place = sum(part.draws for part, all_ in zip(found, whole, strict=True) if not all_), 0
    for row, side in zip(order.tolist(), sides.tolist(), strict=True):
        if not missing:
            break
        if side < 0 or counts[side] == found[side].draws:
            continue
        if place == len(draws) or draws[place] != row:
            return _other(claim, draws, place, f"draw row {row} there, of those called {claim.labels[side]!r}")
        place, counts[side], missing = place + 1, counts[side] + 1, missing - (not whole[side])
    if missing:
        return _other(claim, draws, place, f"draw no such rows among the first {len(order):,}")
    rest = np.array(draws[place:], np.int64)
    light = rest[~rows.weigh(rest)] if len(rest) and rest.max() < rows.rows else rest
    if len(light):
        return _other(claim, draws, place, "draw others there, of a weight above 0")
    return Check("draws", ok=True, text=f"the first rows of each class that {_class_source(claim)} and the store draw")


def _class_source(claim: ActiveClaim) -> str:
    return "" if claim.evidence is None else source_of(claim, claim.evidence)


def _other(claim: ActiveClaim, draws: Sequence[int], place: int, found: str) -> Check:
    said = f"row {draws[place]} was draw {place + 1}" if place < len(draws) else f"there are {len(draws):,} draws"
    return Check("draws", ok=False, text=f"model claims that {said}; {_class_source(claim)} and the store {found}")


def unsure_draws(claim: ActiveClaim) -> np.ndarray:
    """Rows that, by the log, the attempt used as evidence drew and no annotator could label."""
    evidence = claim.evidence
    lines = () if evidence is None else [line for line in claim.known_lines if line.attempt == evidence.attempt]
    said = {line.row for line in lines if line.action == "unsure"} & set(claim.unsure.tolist())
    return np.array(sorted(said), np.int64)


def unsure_draws_checks(
    claim: ActiveClaim,
    rows: Rows,
    unsure: np.ndarray,
    sides: tuple[np.ndarray, np.ndarray],
    found: Sequence[DrawnStratum],
) -> list[Check]:
    """Check that rows recorded as draws without a label were drawn.

    A row that is excluded leaves the population. Excluding a draw biases nothing: it was drawn before it was shown.
    Excluding any other row, once draws are known, could: without the undrawn rows that the model gets right, the draws
    would count as evidence about a population that is worse than the one they came from. So the log must record each
    such row as a draw, and it must precede the last draw of its stratum in the order of all rows; a stratum that is
    drawn whole leaves no choice.

    sides: the strata (t,) of the draws, ascending, and (n,) of the unsure rows; found: of each stratum.
    """
    evidence = claim.evidence
    if evidence is None or not len(unsure):
        return []
    places = _places(claim, rows, evidence.attempt, {*claim.draws_ids.tolist(), *unsure.tolist()})
    last = np.full(len(found), -1)
    for row, stratum in zip(claim.draws.ids.tolist(), sides[0].tolist(), strict=True):
        last[stratum] = max(last[stratum], places.get(row, -1))
    not_drawn = [
        row
        for row, stratum in zip(unsure.tolist(), sides[1].tolist(), strict=True)
        if stratum >= 0
        and found[stratum].draws < found[stratum].population
        and not 0 <= places.get(row, -1) < last[stratum]
    ]
    text = f"{len(unsure):,} draws that no annotator could label were the attempt's, others took their places"
    wrong = f"{listed(not_drawn)} set aside as a draw of attempt {evidence.attempt}, and not drawn" if not_drawn else ""
    return [Check("draws set aside", not not_drawn, wrong or text)]


def _places(claim: ActiveClaim, rows: Rows, attempt: int, wanted: set[int]) -> dict[int, int]:
    """Where rows stand in the order of the attempt, of those that could be drawn; as far as it is gone over."""
    known, found = undrawable(claim) - wanted, dict[int, int]()
    for place, row in enumerate(draw_order(claim, rows, attempt, known)):
        if row in wanted:
            found[row] = place
        if len(found) == len(wanted) or place == WALKED:
            break
    return found
