"""Widen bounds about mapped rows by the rounding error of the map.

Solvers bound a problem about rows as float64 maps them; a claim is about the exact rows of the map. If each row is
within m of its exact one (``FeatureMap.moves``), a margin differs by at most 1.5 m, of two classes or of several. Let U
be the value of a hypothesis w, and a the duals of a point whose value is at most U. The value is strongly convex, so
that ||w - v||^2 is at most 2 U for the v of that point, ||w|| and ||v|| at most 2 sqrt(2 U), and sum a at most 9 U. A
row's margin changes by e = 4 sqrt(2 U) m at most, of two classes by half of it, and the dual by e sum a + (m sum a)^2.

m holds for training and for verifying. A problem is solved to a little less than the requested epsilon
(``reserve_for_rounding``), so that widened bounds still prove what was requested. If they do not, the model's status is
"stopped".
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

#: Share of epsilon that is reserved for the rounding error of a map.
RESERVED = 0.02
_SPREAD = 1.5
_REASON = "rounding of the map leaves open what was asked for; take fewer components or a larger epsilon"


def reserve_for_rounding(job: J) -> J:
    """The job to solve: for mapped rows, with a slightly smaller epsilon."""
    return job if job.asked_map is None else msgspec.structs.replace(job, epsilon=job.epsilon * (1.0 - RESERVED))


def requested_epsilon(source: Source, epsilon: float) -> float:
    """The epsilon that the user requested, from the one that a problem about a source's rows is solved to."""
    return epsilon / (1.0 - RESERVED) * (1.0 - 1e-9) or EXACT if moves_of(source) else epsilon


def margin_rounding(source: Source) -> float:
    """Bound on the error of a margin by rounding of the map; 0 without a map."""
    return _SPREAD * moves_of(source)


def value_rounding(source: Source, value: float, lost: Callable[[float, float], float]) -> tuple[float, float]:
    """Bounds on the errors of the lower and the upper bound of a value by rounding of the map; both 0 without a map.

    lost(margin, value): the change of a value by an error of each margin.
    """
    moves = moves_of(source)
    if not moves or not math.isfinite(value):
        return 0.0, 0.0
    margin, duals = 4.0 * math.sqrt(2.0 * value) * moves, 9.0 * value
    far = moves * duals
    return margin * duals + far * far, 2.0 * lost(margin, value)  # a power would not overflow to infinity


def widen_margin_bounds(found: R, source: Source, epsilon: float) -> R:
    """The claimed result about margins of a source's rows; epsilon: that of the problem."""
    moves = margin_rounding(source)
    return widen_bounds(found, source, moves, moves, epsilon) if moves else found


def widen_value_bounds(found: R, source: Source, epsilon: float, lost: Callable[[float, float], float]) -> R:
    """The claimed result about a value of a source's rows; lost: as in ``value_rounding``."""
    value = found.upper
    if value is None or not any(moves := value_rounding(source, value, lost)):
        return found
    widened = widen_bounds(found, source, *moves, epsilon)
    return widened if widened.lower is None else replace(widened, lower=max(0.0, widened.lower))  # no value is below 0


def widen_bounds(found: R, source: Source, below: float, above: float, epsilon: float) -> R:
    """A result with its lower bound lowered by ``below`` and its upper one raised by ``above``, as it is claimed."""
    lower = None if found.lower is None else found.lower - below
    upper = None if found.upper is None else found.upper + above
    bounds = -math.inf if lower is None else lower, math.inf if upper is None else upper
    if found.status == "certified" and not is_certified(*bounds, requested_epsilon(source, epsilon)):
        return replace(found, lower=lower, upper=upper, status="stopped", reason=_REASON)
    return replace(found, lower=lower, upper=upper)
