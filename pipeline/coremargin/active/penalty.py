"""Choose the parameters of a loss before the first query: the size of trials, and C by cross-validation of examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from coremargin.active.answers import codes_of
from coremargin.data.folds import fold_of
from coremargin.errors import DataError, SpecError
from coremargin.maths.evidence import least_trial, trial_size
from coremargin.maths.rows import lengths
from coremargin.problems.active.describe import FOLDS
from coremargin.problems.active.fit import least_values
from coremargin.problems.active.hypothesis import Hypothesis
from coremargin.problems.active.spec import AUTO
from coremargin.problems.active.state import Answered
from coremargin.problems.soft.spec import COSTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.source import Source
    from coremargin.formats.choices import Loss
    from coremargin.formats.current_answers import CurrentAnswers
    from coremargin.problems.active.spec import ActiveJob

    Ids = NDArray[np.int64]
    Codes = NDArray[np.int64]

#: Exponents of ten that are tried, relative to the one that suits the rows' lengths.
TRIED = range(-3, 5)
_ORDERS = 1 << 31  #: range of the random numbers that order the rows


def with_penalty(job: ActiveJob, source: Source, current: CurrentAnswers, place: str) -> ActiveJob:
    """The job with numbers for C and the size of a trial; source: rows as the job scales them; current: known labels.

    Raises DataError if a class has too few labels to choose C, SpecError for a trial that is too small to prove
    anything.
    """
    if job.loss is None:
        return job
    strata = max(2, len(job.classes or current.classes)) if job.by_class else 1
    trial = job.trial or trial_size(job.error, job.confidence, strata=strata, rows=source.rows)
    least, cost = least_trial(job.error, job.confidence, strata=strata, rows=source.rows), job.C
    if trial < least:
        raise SpecError(
            f"{place}: trial: expected at least {least:,} rows, found {trial:,}: fewer cannot show that at most "
            f"{job.error} of {source.rows:,} rows{' by class' if job.by_class else ''} are wrong, with confidence "
            f"{job.confidence}; leave it out, or ask for less"
        )
    if cost == AUTO:
        cost = choose_cost(
            source,
            codes_of(current.labels, current.classes),
            current.classes,
            loss=job.loss,
            intercept=job.intercept,
            seed=job.seed,
            place=place,
        )
    return replace(job, trial=trial, C=cost)


def choose_cost(
    source: Source, codes: dict[int, int], classes: Sequence[Any], *, loss: Loss, intercept: bool, seed: int, place: str
) -> float:
    """The C with the fewest errors on held-out rows; of equally good ones the middle one.

    Few examples leave many equally good values: with the smallest, every row lies within |w.x + b| < 1 and would be
    queried; with the largest, hardly any row does, and no contradiction is tolerated. codes: class codes of the known
    rows. Raises DataError if a class has too few of them.
    """
    ids = np.array(sorted(codes), np.int64)
    known = np.array([codes[int(row)] for row in ids], np.int64)
    _check_counts(known, classes, place)
    planes = 1 if len(classes) == 2 else len(classes)
    rows = Answered(ids, source.rows_at(ids)[0], known.astype(np.int32), np.zeros((len(ids), planes)))
    fold, costs = assign_folds(ids, known, seed), candidate_costs(rows.rows)
    wrong = [
        sum(_count_errors(rows, fold == k, loss, cost, intercept=intercept) for k in range(FOLDS)) for cost in costs
    ]
    equal = np.flatnonzero(np.array(wrong) == min(wrong))
    return costs[int(equal[len(equal) // 2])]


def _check_counts(codes: Codes, classes: Sequence[Any], place: str) -> None:
    counts = np.bincount(codes, minlength=max(2, len(classes)))
    for label, count in zip(classes, counts.tolist(), strict=False):
        if count < FOLDS:
            raise DataError(
                f'{place}: C "auto": expected examples of each class, {FOLDS} rows at least, found {count:,} of '
                f"{label!r}; give more with examples, or C as a number"
            )
    if len(classes) < 2:
        raise DataError(
            f'{place}: C "auto": expected examples of two classes, {FOLDS} rows of each at least, found {len(codes):,} '
            "examples; give more with examples, or C as a number"
        )


def assign_folds(ids: Ids, codes: Codes, seed: int) -> NDArray[np.int64]:
    """The fold (n,) of each row: the rows of a class are dealt to folds in an order given by their ids and a seed."""
    fold, order = np.empty(len(ids), np.int64), np.lexsort((ids, fold_of(ids, _ORDERS, seed)))
    for code in np.unique(codes):
        mine = order[codes[order] == code]
        fold[mine] = np.arange(len(mine)) % FOLDS
    return fold


def candidate_costs(rows: Any) -> list[float]:
    """Values of C to try for such rows (n, d), ascending: powers of ten.

    Rows that are t times longer have the same models with a C that is t^2 times smaller.
    """
    typical = float(np.median(lengths(rows)))
    middle = -2 * round(np.log10(typical)) if typical > 0 else 0
    return [float(f"1e{k}") for k in (middle + step for step in TRIED) if COSTS[0] <= float(f"1e{k}") <= COSTS[1]]


def _count_errors(known: Answered, out: NDArray[np.bool_], loss: Loss, cost: float, *, intercept: bool) -> int:
    """The number of held-out rows that the model of the others labels wrongly."""
    inside, held_out = known.take(np.flatnonzero(~out)), known.take(np.flatnonzero(out))
    nothing = Hypothesis.empty(known.rows.shape[1], known.planes, soft=True)
    found = least_values(inside, nothing, loss, cost, intercept=intercept).hypothesis
    return int((found.sides(found.decisions(held_out.rows)) != held_out.codes).sum())
