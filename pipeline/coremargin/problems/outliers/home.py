"""What is known of a direction without reading: rows that the driver has, and floors of all others.

Stages of the first read sent home the rows of each chunk that are low, or may become it; the ledger has a floor under
the values of those that stayed. So the lowest values of all rows are those at home, as far as they lie below the floors
of all chunks; from there on a floor stands for them, as often as needed. A margin of that is a proof for all rows, and
no row that stayed lies below it: the rows that it leaves out are at home.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.margin import NEGATIVE, POSITIVE
from coremargin.maths.outliers.heuristic import Found
from coremargin.maths.outliers.trimmed import best_removal, trimmed_margin
from coremargin.maths.rows import products
from coremargin.problems.hard.probe import binned
from coremargin.problems.outliers.probe import OutlierProbe
from coremargin.problems.outliers.summary import NO_ROW, OutlierSummary

if TYPE_CHECKING:
    from coremargin.maths.margin import Array
    from coremargin.problems.common.driver_rows import SignedRows

#: What a floor may cost a margin before its chunk is read again, as a share of what epsilon allows.
LOSS = 0.1


def at_home(
    rows: SignedRows, directions: Array, keep: int, longest: float, known: NDArray[np.int64] | None = None
) -> OutlierSummary:
    """What a scan of rows in the order of their ids would say about directions (m, d); longest: bounds their norms.

    known: ids of rows that it need not hand out.
    """
    places = np.zeros(0, np.intp) if known is None else np.flatnonzero(np.isin(rows.ids, known))
    probe = OutlierProbe(
        directions=np.ascontiguousarray(directions.T), keep=keep, codes=(1, 0), known=places, offset=0.0, low=0.0,
        high=1.0, bins=1, chunk_rows=max(1, len(rows)),
    )  # fmt: skip
    found = probe.ask(probe.empty(), rows.rows, (rows.signs > 0).astype(np.int32), 0, longest)
    ids = np.append(rows.ids, NO_ROW)[np.minimum(found.ids, len(rows))]
    return replace(found, ids=ids, row_id=rows.ids[found.row_id])


def standing(rows: SignedRows, directions: Array, ks: Sequence[int], intercept: bool, longest: float) -> list[Found]:
    """For each k the best of directions (m, d) of length 1 on these rows, with its offset and its margin there.

    Where a class has no more than k of the rows, with as many left out as leave one.
    """
    most = fewest(rows) - 1
    if most < 0:
        return [Found(directions[0], 0.0, 0.0) for _ in ks]
    summary = at_home(rows, directions, max(ks) + 1, longest)
    found = []
    for k in ks:
        measured = [best_removal(summary.lowest(j), min(k, most), intercept) for j in range(len(directions))]
        j = int(np.argmax([margin for margin, _ in measured]))
        found.append(Found(directions[j], measured[j][1], measured[j][0]))
    return found


def margins_of(rows: SignedRows, at: Found, low: float, high: float, bins: int) -> NDArray[np.int64]:
    """A histogram (2, bins) of the margins of each class under a hyperplane."""
    margins = rows.signs * (products(rows.rows, at.w[:, None])[0] + at.b)
    return np.array([binned(margins[rows.signs == sign], low, high, bins) for sign in (1, -1)])


def fewest(rows: SignedRows) -> int:
    """How many rows the smaller class has."""
    positive = int(np.count_nonzero(rows.signs > 0))
    return min(positive, len(rows) - positive)


def cut_off(summary: OutlierSummary, floors: Array) -> OutlierSummary:
    """With the least floors (m, 2) of all rows that the summary is not about in the place of what lies above them."""
    floor = floors.T[:, :, None]
    above = summary.values > floor
    return replace(
        summary, values=np.where(above, floor, summary.values), ids=np.where(above, NO_ROW, summary.ids)
    )  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """What is expected of one search: k, the margin that is proven, and those (m,) that directions have on its pool."""

    k: int
    proven: float
    expected: Array


def unproven(
    summary: OutlierSummary, floors: Array, directions: Array, searches: Sequence[Standing], intercept: bool,
    epsilon: float,
) -> NDArray[np.bool_]:  # fmt: skip
    """Chunks (c,) whose floors (m, 2, c) leave open what the rows at home promise of directions (m, d).

    summary: of the rows at home. A direction that these keep below what is expected of it, or below what is proven,
    needs no reading: rows at home say what is wrong with it.
    """
    wanted = np.zeros(floors.shape[2], bool)
    lower = cut_off(summary, floors.min(axis=2))
    for search in searches:
        proven = [trimmed_margin(lower.lowest(j), w, search.k, intercept)[0] for j, w in enumerate(directions)]
        known = max(0.0, search.proven, *proven)
        for j, expected in enumerate(search.expected.tolist()):
            margin, offset = best_removal(summary.lowest(j), search.k, intercept)
            if not np.isfinite(margin):  # fewer rows of a class at home than may be left out
                wanted |= (floors[j] < np.inf).any(axis=0)
                continue
            loss = LOSS * max(epsilon, 1e-9) * abs(margin)
            if margin > known + loss and margin >= expected - loss:
                low = floors[j, POSITIVE] + offset < margin - loss
                wanted |= low | (floors[j, NEGATIVE] - offset < margin - loss)
    return wanted
