"""Draws that nobody could label: whether they were draws at all.

A row that is set aside leaves the population. Of a draw that says nothing: it was drawn before anybody looked. Of any
other row, once draws are known, it would: whoever sets rows aside that a model has right, and those not drawn, makes
what is left look as if draws had said more of it than they did. So the log has to say of each such row that it was a
draw, and it has to lie before the last draw of its stratum in the order of all rows; what is drawn whole leaves no
choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.active.draws import WALKED, fresh, taken
from coremargin.verify.active.log import lines_of
from coremargin.verify.checks import Check
from coremargin.verify.store import listed

if TYPE_CHECKING:
    from coremargin.verify.active.claim import ActiveClaim
    from coremargin.verify.active.evidence import Drawn
    from coremargin.verify.rows import Rows


def set_aside(claim: ActiveClaim) -> np.ndarray:
    """Rows of which the log says that the attempt that is evidence drew them, and that nobody could label them."""
    evidence = claim.evidence
    lines = () if evidence is None else [line for line in lines_of(claim) if line.attempt == evidence.attempt]
    said = {line.row for line in lines if line.action == "unsure"} & set(claim.unsure.tolist())
    return np.array(sorted(said), np.int64)


def aside_checks(
    claim: ActiveClaim, rows: Rows, aside: np.ndarray, sides: tuple[np.ndarray, np.ndarray], found: Sequence[Drawn]
) -> list[Check]:
    """sides: the strata (t,) of the draws, ascending, and (n,) of the rows set aside; found: of each stratum."""
    evidence = claim.evidence
    if evidence is None or not len(aside):
        return []
    places = _places(claim, rows, evidence.attempt, {*claim.draws_ids.tolist(), *aside.tolist()})
    last = np.full(len(found), -1)
    for row, stratum in zip(claim.draws.ids.tolist(), sides[0].tolist(), strict=True):
        last[stratum] = max(last[stratum], places.get(row, -1))
    strange = [
        row
        for row, stratum in zip(aside.tolist(), sides[1].tolist(), strict=True)
        if stratum >= 0
        and found[stratum].draws < found[stratum].population
        and not 0 <= places.get(row, -1) < last[stratum]
    ]
    text = f"{len(aside):,} draws that nobody could label were the attempt's, others took their places"
    wrong = f"{listed(strange)} set aside as a draw of attempt {evidence.attempt}, and not drawn" if strange else ""
    return [Check("draws set aside", not strange, wrong or text)]


def _places(claim: ActiveClaim, rows: Rows, attempt: int, wanted: set[int]) -> dict[int, int]:
    """Where rows stand in the order of the attempt, of those that could be drawn; as far as it is gone over."""
    known, found = taken(claim) - wanted, dict[int, int]()
    for place, row in enumerate(fresh(claim, rows, attempt, known)):
        if row in wanted:
            found[row] = place
        if len(found) == len(wanted) or place == WALKED:
            break
    return found
