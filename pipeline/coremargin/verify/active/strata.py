"""Whether draws by class are honest: the first rows of each stratum, in the order in which all rows are drawn.

A stratum is what a model gives one class. Its draws are the first of its rows in that order, as many as it has draws:
rows of strata that have enough are passed over. So the sides of all rows up to the last draw are needed, which the scan
finds. Of a stratum that is drawn whole the order says nothing, so that nobody has to go over all rows of a store for
the last row of a rare class: as soon as the others have theirs, what is left has to be the rest of such strata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.active.draws import WALKED, fresh, source_of, taken
from coremargin.verify.checks import Check

if TYPE_CHECKING:
    from coremargin.verify.active.claim import ActiveClaim
    from coremargin.verify.active.evidence import Drawn
    from coremargin.verify.rows import Rows


class _EnoughError(Exception):
    """Too many rows were gone over."""


def walked(claim: ActiveClaim, rows: Rows) -> np.ndarray:
    """The rows in their order up to the last draw, or so many as may be gone over; none without strata."""
    evidence, found = claim.evidence, list[int]()
    if evidence is None or not claim.by_class:
        return np.zeros(0, np.int64)
    left, waiting = WALKED, set(claim.draws_ids.tolist())

    def spend(draws: int) -> None:
        nonlocal left
        left -= draws
        if left < 0:
            raise _EnoughError

    order = fresh(claim, rows, evidence.attempt, taken(claim), spend)
    try:
        while waiting and (row := next(order, None)) is not None:
            found.append(row)
            waiting.discard(row)
    except _EnoughError:
        pass
    return np.array(found, np.int64)


def honest_by_class(
    claim: ActiveClaim, rows: Rows, order: np.ndarray, sides: np.ndarray, found: Sequence[Drawn]
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
    return Check("draws", ok=True, text=f"the first rows of each class that {_source(claim)} and the store draw")


def _source(claim: ActiveClaim) -> str:
    return "" if claim.evidence is None else source_of(claim, claim.evidence)


def _other(claim: ActiveClaim, draws: Sequence[int], place: int, found: str) -> Check:
    said = f"row {draws[place]} was draw {place + 1}" if place < len(draws) else f"there are {len(draws):,} draws"
    return Check("draws", ok=False, text=f"model claims that {said}; {_source(claim)} and the store {found}")
