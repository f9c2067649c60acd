"""What a finished job says to a person."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from coremargin.cli.fleet_words import cost_of, fleet_text
from coremargin.cli.printing import facts
from coremargin.models.fleet import FleetModel
from coremargin.models.left_out import left_out
from coremargin.models.multiclass import MulticlassModel
from coremargin.report.numbers import NO_BREAK, percent_up, plain_bounds, plain_share, relative_gap

if TYPE_CHECKING:
    from coremargin.learn.job import TrainJob
    from coremargin.learn.outcome import Outcome
    from coremargin.models.model import Model


def outcome_text(outcome: Outcome, job: TrainJob) -> list[str]:
    """The result, what it cost, and what to do next."""
    if outcome.found:
        head = [
            f"nothing to do: {job.out} is a finished model of this job. This is what it says of itself and its run;",
            "nothing was computed or checked now: `coremargin verify` does that.",
        ]
        return [*head, "", *outcome_text(replace(outcome, found=False), job)]
    if isinstance(outcome.model, FleetModel):
        return fleet_text(outcome, outcome.model, job)
    done: dict[str, Any] = outcome.summary()
    cost = cost_of(done, job, _held(outcome))
    return [*_verdict(outcome, job), "", *facts(cost), "", *_next(outcome, job)]


def _model(outcome: Outcome) -> Model:
    """The one model of a job that is not about a fleet."""
    return cast("Model", outcome.model)


def _thing(outcome: Outcome) -> str:
    """What a model of two classes, or of several, has in its place."""
    return "hypothesis" if isinstance(outcome.model, MulticlassModel) else "hyperplane"


def _held(outcome: Outcome) -> tuple[str, str]:
    done = outcome.summary()
    if _model(outcome).certificate.kind == "duality_gap":
        if done["pool_rows"] == done["rows"]:
            return "band", f"all {done['rows']:,} rows were in memory one by one"
        if any("part" in record for record in outcome.rounds):
            return "held", f"{done['pool_rows']:,} rows at a time; others came home a segment at a time, as needed"
        return "band", f"{done['pool_rows']:,} rows near the margin came home one by one, the others as sums"
    return "pool", f"{done['pool_rows']:,} rows, {done['coreset_rows']:,} of them carry the proof"


def _verdict(outcome: Outcome, job: TrainJob) -> list[str]:
    if _model(outcome).certificate.kind == "duality_gap":
        return _verdict_on_value(outcome, job)
    done = outcome.summary()
    if job.outliers is not None:
        return _verdict_on_outliers(outcome, job)
    lower, upper = plain_bounds(done["lower"], done["upper"])
    if done["status"] == "certified":
        share = plain_share(done["ratio"])
        return [
            f"certified: the margin {lower} is proven on all {done['rows']:,} rows;",
            f"no {_thing(outcome)} reaches more than {upper}: at least {share} of the best possible.",
        ]
    if done["status"] == "not_separable":
        ids = ", ".join(str(row) for row in _model(outcome).coreset_ids[:8].tolist())
        more = ", ..." if done["coreset_rows"] > 8 else ""
        if isinstance(outcome.model, MulticlassModel):
            return [
                f"not separable: {done['coreset_rows']:,} rows contradict each other (rows {ids}{more}),",
                "so that no hypothesis gives all rows their own class. The proof is in the model.",
            ]
        return [
            f"not separable: the hulls of {done['coreset_rows']:,} rows meet (rows {ids}{more}),",
            "so that no hyperplane has all rows of one class on one side. The proof is in the model.",
        ]
    possible = f"at most {upper}" if upper else "not known"
    return [
        f"stopped before the proof was complete: {outcome.run['reason']};",
        f"margin proven so far {lower or 'none'}, best possible {possible}, epsilon asked for {job.epsilon}.",
    ]


def _verdict_on_outliers(outcome: Outcome, job: TrainJob) -> list[str]:
    """The margin once rows are left out, and what no others allow."""
    done, found = outcome.summary(), left_out(_model(outcome))
    step, count = found.steps[-1], f"{len(found.rows):,} of {done['rows']:,} rows"
    lower, upper = plain_bounds(step.lower, step.upper)
    if done["status"] == "certified":
        share = plain_share(done["ratio"])
        return [
            f"certified: without {count} the margin is {lower};",
            f"no {step.k:,} left out allow more than {upper}: at least {share} of the best possible.",
        ]
    if done["status"] == "not_separable":
        return [
            f"not separable: more than {step.k:,} rows stand in the way, whichever are left out.",
            f"The proof, contradictions among {done['coreset_rows']:,} rows, is in the model.",
        ]
    proven = f"{lower} without {count}" if lower else "none"
    possible = f"at most {upper}" if upper else "not known"
    return [
        f"{'heuristic' if 'heuristic' in outcome.run['reason'] else 'stopped'}: {outcome.run['reason']};",
        f"margin proven {proven}, best possible {possible}, epsilon asked for {job.epsilon}.",
    ]


def _verdict_on_value(outcome: Outcome, job: TrainJob) -> list[str]:
    """The value of a soft margin, and what none is below."""
    done = outcome.summary()
    lower, upper = plain_bounds(done["lower"], done["upper"])
    if done["status"] == "certified":
        gap = percent_up(relative_gap(done)).replace(NO_BREAK, " ")
        return [
            f"certified: the value {upper} of the objective, over all {done['rows']:,} rows, is proven to be",
            f"within {gap} of the best possible: no {_thing(outcome)} has less than {lower}.",
        ]
    known = "no scan over all rows was finished"
    if done["lower"] is not None and done["upper"] is not None:
        known = f"value over all rows {upper}, best possible at least {lower}"
    return [
        f"stopped before the proof was complete: {outcome.run['reason']};",
        f"{known}, epsilon asked for {job.epsilon}.",
    ]


def _next(outcome: Outcome, job: TrainJob) -> list[str]:
    lines = [f"model   {job.out}", f"report  {job.out / 'report.html'}"]
    if job.outliers is not None:
        resume = ["go on   the same command with --resume and a larger limit"] if outcome.resumable else []
        check = f"check   coremargin verify {job.out} {job.store}"
        return [*lines, f"rows    coremargin outliers {job.out}", *resume, check]
    if outcome.model.status == "not_separable":
        return [
            *lines,
            "try     --loss hinge, if rows are noisy; a look at the rows above: labels may be wrong",
        ]
    if outcome.resumable:
        lines.append("go on   the same command with --resume and a larger limit")
    return [*lines, f"check   coremargin verify {job.out} {job.store}"]
