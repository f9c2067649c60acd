"""The ellipsoid of least volume as a kind of problem: its job, from a job to a problem, and what is reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from coremargin.problems.common import messages
from coremargin.problems.job import TrainJob
from coremargin.problems.one_class.kind import (
    OneClassKind,
    Only,
    shape_parameters,
)
from coremargin.problems.one_class.messages import Bounds, describe_enclosed, describe_run, format_share
from coremargin.report.numbers import plain_bounds

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.enclosing_ellipsoid import Frame
    from coremargin.maths.margin import Array
    from coremargin.models.ellipsoid import EllipsoidModel
    from coremargin.models.single import SingleModel
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.ellipsoid.enclosing_ellipsoid import EllipsoidState, EnclosingEllipsoid
    from coremargin.problems.kind import Outcome
    from coremargin.problems.soft_ellipsoid.soft_ellipsoid import SoftEllipsoid


class EllipsoidJob(TrainJob, frozen=True, kw_only=True):
    """The ellipsoid of least volume around all rows, labelled or not, or around the rows of one class.

    epsilon: the least volume is at least (1 - epsilon) of this one's.
    """

    HYPERPLANES: ClassVar[bool] = False

    one_class: Annotated[
        Literal["ellipsoid"],
        Meta(description="ellipsoid: the ellipsoid of least volume that contains all rows."),
    ]
    only: Only = None

    def __post_init__(self) -> None:
        """Refuse maps, and the ellipsoid as a scaling of itself. Raises ValueError."""
        super().__post_init__()
        if self.scaling == "ellipsoid":
            raise ValueError(
                "scaling: the rows of an ellipsoid are not scaled by one, found 'ellipsoid'; leave it out: the least "
                "ellipsoid does not depend on how columns are scaled"
            )
        if self.map is not None:
            raise ValueError(
                f"map: an ellipsoid is about columns as they are, found {self.map!r}; leave it out, or choose "
                f"one_class ball"
            )

    def parameters(self) -> dict[str, Any]:
        """Adds the shape and the class."""
        return super().parameters() | shape_parameters(self)


class VolumeClaims(messages.Claims):
    """A volume, which is minimised, by its volume radius."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """What is proven of the volume."""
        claims, rows = model.certificate, describe_enclosed(model, outcome.run)
        lower, upper = plain_bounds(claims.lower, claims.upper)
        if model.status == "certified":
            gap = format_share(1.0 - (claims.ratio or 0.0))
            return [
                f"certified: {rows} lie in an ellipsoid with the volume of a ball of radius {upper};",
                f"no ellipsoid that contains them has that of a radius below {lower}: its volume is within",
                f"{gap} of the least{describe_span(model)}.",
            ]
        known = "nothing is known of their volume"
        if upper:
            known = f"{rows} lie in an ellipsoid with the volume of a ball of radius {upper}"
        known += f", no ellipsoid has that of a radius below {lower or 0}"
        return messages.describe_stop(outcome, known, epsilon)

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The working set."""
        return messages.describe_working_set(outcome, model)

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """Both bounds, with every digit."""
        claims = model.certificate
        return [
            ("volume radius", f"at most {messages.format_exact(claims.upper)} for {rows}"),
            ("best possible", messages.describe_bound("at least", claims.lower)),
            messages.describe_ratio(model),
            ("rank", f"{model.record['rank']}{describe_span(model)}"),
            messages.describe_coreset(model),
        ]


class EllipsoidKind(OneClassKind["EllipsoidJob", "EnclosingEllipsoid", "EllipsoidModel"]):
    """An ellipsoid, proven by its outermost row and by the weights of a few rows."""

    name = "ellipsoid"
    job = EllipsoidJob
    title = "the least ellipsoid"
    selected_by = 'give one_class "ellipsoid"'
    thing = "ellipsoid"
    ratio_name = "ratio of volume radii"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """By the shape."""
        return options.get("one_class") == "ellipsoid"

    def problem(self, job: EllipsoidJob, source: Source) -> EnclosingEllipsoid:
        """The problem on these rows."""
        from coremargin.problems.ellipsoid.enclosing_ellipsoid import EnclosingEllipsoid

        return EnclosingEllipsoid(source, job.epsilon, job.only, job.memory_bytes, job.sample)

    def model(self, job: EllipsoidJob, problem: EnclosingEllipsoid, state: EllipsoidState) -> EllipsoidModel:
        """The model of a state."""
        from coremargin.data.mapped import as_kept
        from coremargin.models.ellipsoid import EllipsoidModel
        from coremargin.problems.common.model import transform_arrays
        from coremargin.problems.common.result import STOPPED
        from coremargin.problems.ellipsoid.block_bounds import unit_ball

        source, support, frame, d = problem.source, state.support, state.frame, problem.source.features
        found = Bounds(
            status="stopped" if state.status in STOPPED else state.status,
            reason="",
            lower=state.lower if len(support) else None,
            upper=state.upper,
            kind="volume_radius",
        )
        record = record_of_ellipsoid(self.name, job, problem, frame, found, len(support))
        best = unit_ball(d)  # of a run that ended before anything was solved, which claims nothing
        if frame.rank:
            best = state.best.of_frame(frame)
        numbers = {"centre": best.centre, "axes": best.factor, "alpha": support.weights, "coreset_ids": support.ids}
        numbers |= span_arrays(frame, state.residual)
        rows = as_kept(source, support.ids, support.rows)
        return EllipsoidModel(record, numbers | transform_arrays(source), rows)

    def claims(self, model: EllipsoidModel) -> VolumeClaims:
        """A volume."""
        return VolumeClaims()

    def facts(self, problem: EnclosingEllipsoid, state: EllipsoidState) -> dict[str, Any]:
        """Why the run ended, and the histogram of levels."""
        return describe_run(problem.enclosed, state, in_stages=state.in_stages)

    def report(self, folder: Path, name: str) -> str:
        """The HTML page of a model."""
        from coremargin.problems.ellipsoid import report

        return report.page_of(folder, name)


def describe_span(model: Any) -> str:
    """That the rows lie in a flat, if they do; else ""."""
    if model.record["rank"] == model.features:
        return ""
    return f", in {model.record['rank']} of {model.features} columns, of which the others are linear functions"


def record_of_ellipsoid(
    name: str,
    job: EllipsoidJob,
    problem: EnclosingEllipsoid | SoftEllipsoid,
    frame: Frame,
    found: Bounds,
    coreset_rows: int,
) -> dict[str, Any]:
    """The record of a model, with the rank of its span and the ratio of the two volumes."""
    from coremargin.maths.margin import ratio
    from coremargin.problems.common.model import record_of

    about: dict[str, Any] = {"rank": frame.rank or frame.features}
    if problem.only is not None:
        about["only"] = problem.enclosed.label
    record = record_of(problem.source, None, found, name, job.parameters(), coreset_rows, **about)
    if found.lower is not None and record["certificate"]["ratio"] is not None:
        record["certificate"]["ratio"] = ratio(found.lower, found.upper) ** frame.rank
    return record


def span_arrays(frame: Frame, residual: Array) -> dict[str, Any]:
    """The arrays of a model that describe the flat that its rows lie in; none if they lie in none.

    residual (d - r,): how far rows are from it at most, by column.
    """
    if not 0 < frame.rank < frame.features:
        return {}
    return {
        "span_columns": frame.columns,
        "span_slopes": frame.slopes,
        "span_offsets": frame.offsets,
        "span_residuals": residual,
    }


KIND = EllipsoidKind()
