"""Bounds of mapped rows made true of the exact ones: moved outward by what rounding may move a mapped row by.

Solvers bound a problem about rows as float64 maps them; a claim is about the exact rows of the map. Where each row is
within m of that (``FeatureMap.moves``), a margin differs by at most 1.5 m, of two classes or of several. With U the
value of a hypothesis w, and a duals of a point whose value is at most U: the value is strongly convex, so that
||w - v||^2 is at most 2 U for the v of that point, ||w|| and ||v|| at most 2 sqrt(2 U), and sum a at most 9 U. A row's
margin changes by e = 4 sqrt(2 U) m at most, of two classes by half of it, and the dual by e sum a + (m sum a)^2.

m is for who trains and for who checks. A problem is solved to a little less than what is asked for (``stricter``), so
that bounds moved outward still prove that; where they do not, the model says that it was stopped.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from coremargin.data.mapped import moves_of
from coremargin.maths.margin import EXACT, is_certified

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.data.source import Source
    from coremargin.problems.job import TrainJob

R = TypeVar("R", bound=Any)
J = TypeVar("J", bound="TrainJob")

#: Share of epsilon that is kept for the rounding of a map.
KEPT = 0.02
_SPREAD = 1.5
_REASON = "rounding of the map leaves open what was asked for; take fewer components or a larger epsilon"


def stricter(job: J) -> J:
    """The job as it is solved: of mapped rows to a little less than epsilon."""
    return job if job.asked_map is None else msgspec.structs.replace(job, epsilon=job.epsilon * (1.0 - KEPT))


def margin_moves(source: Source) -> float:
    """What a margin of a source's rows may be off by, 0 of rows that are not mapped."""
    return _SPREAD * moves_of(source)


def asked_of(source: Source, epsilon: float) -> float:
    """The epsilon that was asked for of a source's rows, where a problem about them is solved to this one."""
    return epsilon / (1.0 - KEPT) * (1.0 - 1e-9) or EXACT if moves_of(source) else epsilon


def margin_outward(found: R, source: Source, epsilon: float) -> R:
    """A result about margins of a source's rows, as it is claimed; epsilon: that of the problem."""
    moves = margin_moves(source)
    return _moved(found, source, moves, moves, epsilon) if moves else found


def value_outward(found: R, source: Source, epsilon: float, lost: Callable[[float, float], float]) -> R:
    """The same about a value; lost(margin, value): what a value loses by an error of each margin."""
    value = found.upper
    if value is None or not any(moves := value_moves(source, value, lost)):
        return found
    moved = _moved(found, source, *moves, epsilon)
    return moved if moved.lower is None else replace(moved, lower=max(0.0, moved.lower))  # no value is below 0


def value_moves(source: Source, value: float, lost: Callable[[float, float], float]) -> tuple[float, float]:
    """What the lower and the upper bound of a value may be off by; both 0 of rows that are not mapped."""
    moves = moves_of(source)
    if not moves or not math.isfinite(value):
        return 0.0, 0.0
    margin, duals = 4.0 * math.sqrt(2.0 * value) * moves, 9.0 * value
    far = moves * duals
    return margin * duals + far * far, 2.0 * lost(margin, value)  # a power would not overflow to infinity


def _moved(found: R, source: Source, below: float, above: float, epsilon: float) -> R:
    lower = None if found.lower is None else found.lower - below
    upper = None if found.upper is None else found.upper + above
    bounds = -math.inf if lower is None else lower, math.inf if upper is None else upper
    if found.status == "certified" and not is_certified(*bounds, asked_of(source, epsilon)):
        return replace(found, lower=lower, upper=upper, status="stopped", reason=_REASON)
    return replace(found, lower=lower, upper=upper)
