"""The guaranteed risk of each C and gamma, a bound on the error on new rows that can choose among them.

J = R_emp + capacity, as in Jebara's lecture: the share of errors on the training rows and what the hypotheses can fit.
Two such bounds are computed, and the smaller one counts:

- Vapnik's, with the training errors and the VC dimension of all hyperplanes; kernel machines have none;
- that of margins (``published_bounds.margin_risk``), with the mean loss, ||f|| and the longest row.

All hold at once with confidence 95 % over rows that are drawn independently, so the chosen model's does too: each gamma
is a space of functions of its own and has an equal part of 5 %, of which the two bounds have halves. Both hold for all
functions of a space at once, however many values of C are tried. The spaces must be fixed before the rows are seen:
``check_choice`` refuses scalings, maps and kernels that depend on the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from coremargin.errors import UsageError
from coremargin.maths import published_bounds as bounds
from coremargin.report.numbers import NO_BREAK, percent_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.data.source import Source
    from coremargin.formats.choices import Loss
    from coremargin.formats.fleet_record import Setting

DELTA = 0.05


@dataclass(frozen=True)
class TrainedFunction:
    """What J needs to know of the function of a C and gamma.

    value: its certified value, an upper bound; squares: bounds on ||f||^2; offset: b, None without an intercept;
    radius: of all rows in its space, rounded up; dimension: the VC dimension of the hyperplanes, None of kernels.
    """

    setting: Setting
    value: float
    squares: tuple[float, float]
    offset: float | None
    radius: float
    dimension: int | None


def check_choice(job: Any, *, uses_gamma: bool) -> None:
    """Raises ValueError for a choice without folds, and for the risk of functions that depend on the rows."""
    if job.choose == "validation" and job.folds is None:
        raise ValueError("choose: 'validation' compares accuracies on held-out rows; give folds too")
    if job.choose != "risk":
        return
    depends = "so that the bound would not hold"
    if job.loss is None:
        raise ValueError("choose: 'risk' compares models with a loss, by their training errors; give loss too")
    if job.class_weight is not None:
        raise ValueError(
            f"choose: 'risk' counts all errors alike, found class_weight {job.class_weight!r}; leave it out"
        )
    if job.scaling not in (None, "rownorm"):
        raise ValueError(
            f"choose: scaling {job.scaling!r} depends on the rows, {depends}; take 'rownorm', none, or choose by folds"
        )
    if uses_gamma and "scale" in job.gammas:
        raise ValueError(f"choose: gamma 'scale' depends on the rows, {depends}; give numbers, or choose by folds")


def check_rows(source: Source, classes: int) -> None:
    """Raises UsageError for stores on which the guaranteed risk bounds nothing."""
    if classes != 2:
        raise UsageError(
            f"{source.name}: choose 'risk' is for two classes, found {classes}; choose by folds, or ingest a pair"
        )
    if source.weights(0) is not None:
        raise UsageError(f"{source.name}: choose 'risk' is for rows without weights; choose by folds")


def guaranteed_risks(
    functions: Sequence[TrainedFunction], evaluations: Sequence[Mapping[str, Any]], loss: str
) -> list[dict[str, Any]]:
    """The entries of ``risk`` in the record; none if training errors, or a bound on a value, are not known.

    evaluations: of the final functions, on all rows and perhaps on folds.
    """
    from coremargin.models.fleet_record import named, setting_of  # not where `train --help` needs the options

    counted = {setting_of(entry): entry for entry in evaluations if entry["fold"] is None}
    if not counted or not all(math.isfinite(one.value) for one in functions):
        return []
    spaces = len({one.setting[1] for one in functions})
    return [
        {**named(one.setting), "risk": _risk_of(one, counted[one.setting], loss, DELTA / spaces)} for one in functions
    ]


def _risk_of(one: TrainedFunction, entry: Mapping[str, Any], loss: str, delta: float) -> float:
    from coremargin.problems.soft.losses.table import LOSSES

    rows, cost = int(entry["rows"]), one.setting[0] or 1.0
    part = delta if one.dimension is None else delta / 2.0
    losses = max(0.0, one.value - 0.5 * one.squares[0]) / cost
    found = bounds.margin_risk(
        rows,
        losses / rows,
        math.sqrt(one.squares[1]),
        one.radius,
        part,
        offset=one.offset,
        slope=LOSSES[cast("Loss", loss)].clipped_slope,
    )
    if one.dimension is None:
        return found
    wrong = rows - sum(line[place] for place, line in enumerate(entry["confusion"]))
    return min(found, bounds.guaranteed_risk(rows, one.dimension, part, wrong / rows))


def explain_risk(least: float) -> str:
    """Why the chosen C and gamma are chosen."""
    bound = "it bounds nothing here"
    if least < 0.5:
        bound = f"at most {percent_up(least).replace(NO_BREAK, ' ')} of new rows are misclassified"
    return f"the least guaranteed risk; {bound} (confidence 95 %, all models at once, rows drawn independently)"
