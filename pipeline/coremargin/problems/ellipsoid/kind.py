"""The ellipsoid of least volume as a kind of problem: its job, from a job to a problem, and what is reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from coremargin.problems.common import messages
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.job import TrainJob
from coremargin.problems.one_class.messages import Bounds, describe_distances, describe_enclosed
from coremargin.report.numbers import NO_BREAK, percent_up, plain_bounds

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.ellipsoid import EllipsoidModel
    from coremargin.models.single import SingleModel
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.ellipsoid.enclosing_ellipsoid import EllipsoidState, EnclosingEllipsoid
    from coremargin.problems.kind import Outcome


class EllipsoidJob(TrainJob, frozen=True, kw_only=True):
    """The ellipsoid of least volume around all rows, labelled or not, or around the rows of one class.

    epsilon: the least volume is at least (1 - epsilon) of this one's.
    """

    HYPERPLANES: ClassVar[bool] = False

    one_class: Annotated[
        Literal["ellipsoid"],
        Meta(description="ellipsoid: the ellipsoid of least volume that contains all rows."),
    ]
    only: Annotated[
        str | int | float | bool | None,
        Meta(description="With --one-class: enclose the rows with this label only.", extra={"metavar": "LABEL"}),
    ] = None

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
        only = {} if self.only is None else {"only": str(self.only)}  # as text, which a resumed command line has
        return {**super().parameters(), "one_class": self.one_class, **only}


class VolumeClaims(messages.Claims):
    """A volume, which is minimised, by its volume radius."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """What is proven of the volume."""
        claims, rows = model.certificate, describe_enclosed(model, outcome.run)
        lower, upper = plain_bounds(claims.lower, claims.upper)
        if model.status == "certified":
            gap = percent_up(1.0 - (claims.ratio or 0.0)).replace(NO_BREAK, " ")
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


class EllipsoidKind(OneModel["EllipsoidJob", "EnclosingEllipsoid", "EllipsoidModel"]):
    """An ellipsoid, proven by its outermost row and by the weights of a few rows."""

    name = "ellipsoid"
    job = EllipsoidJob
    title = "the least ellipsoid"
    selected_by = 'give one_class "ellipsoid"'
    thing = "ellipsoid"
    labelled = False
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
        from coremargin.maths.margin import ratio
        from coremargin.models.ellipsoid import EllipsoidModel
        from coremargin.problems.common.model import record_of, transform_arrays
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
        about: dict[str, Any] = {"rank": frame.rank or d}
        if problem.only is not None:
            about["only"] = problem.enclosed.label
        record = record_of(source, None, found, self.name, job.parameters(), len(support), **about)
        certificate = record["certificate"]
        if certificate["ratio"] is not None:
            certificate["ratio"] = ratio(state.lower, state.upper) ** frame.rank
        best = unit_ball(d)  # of a run that ended before anything was solved, which claims nothing
        if frame.rank:
            best = state.best.of_frame(frame)
        numbers = {"centre": best.centre, "axes": best.factor, "alpha": support.weights, "coreset_ids": support.ids}
        if 0 < frame.rank < frame.features:
            numbers |= {
                "span_columns": frame.columns,
                "span_slopes": frame.slopes,
                "span_offsets": frame.offsets,
                "span_residuals": state.residual,
            }
        rows = as_kept(source, support.ids, support.rows)
        return EllipsoidModel(record, numbers | transform_arrays(source), rows)

    def claims(self, model: EllipsoidModel) -> VolumeClaims:
        """A volume."""
        return VolumeClaims()

    def facts(self, problem: EnclosingEllipsoid, state: EllipsoidState) -> dict[str, Any]:
        """Why the run ended, and the histogram of levels."""
        from coremargin.problems.common.result import STOPPED

        centre = "stages" if state.in_stages else "final"
        reason = {"reason": STOPPED.get(state.status, state.status)}
        return reason | describe_distances(problem.enclosed, state, centre)

    def rows_meant(self, model: EllipsoidModel) -> str:
        """All rows, or those of a class."""
        return describe_enclosed(model)

    def report(self, folder: Path, name: str) -> str:
        """The HTML page of a model."""
        from coremargin.problems.ellipsoid import report

        return report.page_of(folder, name)


def describe_span(model: Any) -> str:
    """That the rows lie in a flat, if they do; else ""."""
    if model.record["rank"] == model.features:
        return ""
    return f", in {model.record['rank']} of {model.features} columns, of which the others are linear functions"


KIND = EllipsoidKind()
