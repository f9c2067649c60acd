"""The smallest enclosing ball as a kind of problem: its job, from a job to a problem, and what is reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from coremargin.problems.common import messages
from coremargin.problems.job import TrainJob
from coremargin.problems.one_class.kind import (
    OneClass,
    OneClassKind,
    Only,
    shape_parameters,
)
from coremargin.problems.one_class.messages import Bounds, describe_enclosed, describe_run
from coremargin.problems.outliers.kind import parse_outliers
from coremargin.report.numbers import NO_BREAK, percent_up, plain_bounds, relative_gap

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.ball import BallModel
    from coremargin.models.single import SingleModel
    from coremargin.problems.ball.enclosing_ball import BallState, EnclosingBall
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.kind import Outcome


_UNFINISHED = (
    "the search for the best rows to exclude took too many nodes; a larger epsilon, or fewer outliers, needs fewer"
)


class BallJob(TrainJob, frozen=True, kw_only=True):
    """The smallest ball around all rows, labelled or not, or around the rows of one class.

    epsilon: the share of the radius by which the ball may be larger than the smallest one. outliers: how many rows may
    lie outside: a number, or a share of the rows that count. A search proves that no other rows are better to exclude.
    """

    HYPERPLANES: ClassVar[bool] = False

    one_class: OneClass
    only: Only = None
    outliers: Annotated[
        int | str | None,
        Meta(description="Rows to exclude as outliers: 10, or 1%.", extra={"metavar": "K", "text": parse_outliers}),
    ] = None

    def __post_init__(self) -> None:
        """Refuse several numbers of outliers. Raises ValueError."""
        super().__post_init__()
        from coremargin.formats.outliers import outlier_counts

        if self.outliers is not None and len(outlier_counts(self.outliers)) > 1:
            raise ValueError(
                f"outliers: expected one number, found {self.outliers!r}: a ball leaves out one number of rows"
            )

    def parameters(self) -> dict[str, Any]:
        """Adds the shape and the class."""
        outliers = {} if self.outliers is None else {"outliers": self.outliers}
        return super().parameters() | shape_parameters(self) | outliers


class RadiusClaims(messages.Claims):
    """A radius, which is minimised."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """What is proven of the radius."""
        claims, rows = model.certificate, describe_rows(model, outcome.run)
        lower, upper = plain_bounds(claims.lower, claims.upper)
        if model.status == "certified" and claims.upper == 0:
            return [f"certified: {rows} are equal; the smallest ball around them has radius 0."]
        if model.status == "certified":
            gap = percent_up(relative_gap(messages.claimed_bounds(model))).replace(NO_BREAK, " ")
            return [
                f"certified: {rows} lie within {upper} of the centre;",
                f"no ball that contains them has a radius below {lower}: this one is within {gap} of the smallest.",
            ]
        known = f"{rows} lie within {upper} of the centre, no ball has a radius below {lower or 0}"
        return messages.describe_stop(outcome, known, epsilon)

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The working set."""
        return messages.describe_working_set(outcome, model)

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """Both bounds, with every digit."""
        claims = model.certificate
        return [
            ("radius", f"at most {messages.format_exact(claims.upper)} for {rows}"),
            ("best possible", messages.describe_bound("at least", claims.lower)),
            messages.describe_ratio(model),
            messages.describe_coreset(model),
        ]


class BallKind(OneClassKind[BallJob, "EnclosingBall", "BallModel"]):
    """A ball, proven by its farthest row and by the dual weights of a few rows."""

    name = "ball"
    job = BallJob
    title = "the smallest ball"
    selected_by = 'give one_class "ball"'
    thing = "ball"
    ratio_name = "ratio of radii"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """By the option; a kind of another shape comes before this one, and matches its own word."""
        return "one_class" in options

    def problem(self, job: BallJob, source: Source) -> EnclosingBall:
        """The problem on these rows."""
        from coremargin.problems.ball.enclosing_ball import BallWithOutliers, EnclosingBall

        if job.outliers in (None, 0):
            return EnclosingBall(source, job.epsilon, job.only, job.memory_bytes, job.sample)
        return BallWithOutliers(source, job.epsilon, job.only, job.memory_bytes, job.sample, outliers=job.outliers)

    def model(self, job: BallJob, problem: EnclosingBall, state: BallState) -> BallModel:
        """The model of a state."""
        from coremargin.data.mapped import as_kept
        from coremargin.models.ball import BallModel
        from coremargin.problems.ball.enclosing_ball import BallWithOutliers
        from coremargin.problems.common.map_rounding import widen_margin_bounds
        from coremargin.problems.common.model import record_of, transform_arrays

        source, support = problem.source, state.support
        found = widen_margin_bounds(
            Bounds(
                status="stopped" if state.status != "certified" else state.status,
                reason="",
                lower=state.lower if len(support) or state.status == "certified" else None,
                upper=state.upper,
                kind="radius",
            ),
            source,
            problem.epsilon,
        )
        only = {} if problem.only is None else {"only": problem.enclosed.label}
        record = record_of(source, None, found, self.name, job.parameters(), len(support), **only)
        if found.lower == found.upper:  # a ratio of zeros, too, if all rows are equal
            record["certificate"]["ratio"] = 1.0
        numbers = {"centre": state.best, "alpha": support.weights, "coreset_ids": support.ids}
        if job.outliers is not None:
            outside = problem.outlier_ids(state) if isinstance(problem, BallWithOutliers) else state.support.ids[:0]
            numbers["outliers_ids"] = outside
        proof = {} if state.proof is None else state.proof.to_arrays("proof")
        rows = as_kept(source, support.ids, support.rows)
        return BallModel(record, {**numbers, **proof, **transform_arrays(source)}, rows)

    def claims(self, model: BallModel) -> RadiusClaims:
        """A radius."""
        return RadiusClaims()

    def facts(self, problem: EnclosingBall, state: BallState) -> dict[str, Any]:
        """Why the run ended, and the histogram of distances."""
        return describe_run(problem.enclosed, state, in_stages=state.in_stages, unfinished=_UNFINISHED)

    def describe_work(self, bounds: str, figures: Mapping[str, Any]) -> str:
        """The progress of the search for outliers, in one line."""
        from coremargin.problems.outliers.messages import describe_search

        return describe_search(bounds, figures)

    def rows_meant(self, model: BallModel) -> str:
        """All rows, or those of a class."""
        return describe_rows(model)

    def report(self, folder: Path, name: str) -> str:
        """The HTML page of a model."""
        from coremargin.problems.ball import report

        return report.page_of(folder, name)


def describe_rows(model: Any, run: Mapping[str, Any] | None = None) -> str:
    """Which rows a ball is about, for people; run: as in ``describe_enclosed``."""
    whose = describe_enclosed(model, run)
    return whose if model.outlier_ids is None else f"{whose} but {len(model.outlier_ids):,}"


KIND = BallKind()
