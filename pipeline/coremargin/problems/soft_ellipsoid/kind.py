"""The soft ellipsoid as a kind of problem: its job, from a job to a problem, and what is reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.problems.common import messages
from coremargin.problems.ellipsoid.kind import (
    EllipsoidJob,
    VolumeClaims,
    describe_span,
    record_of_ellipsoid,
    span_arrays,
)
from coremargin.problems.one_class.kind import Nu, OneClassKind
from coremargin.problems.one_class.messages import (
    Bounds,
    describe_band,
    describe_full_memory,
    describe_named,
    describe_outside,
    describe_soft_run,
    format_share,
)
from coremargin.report.numbers import plain_bounds

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.single import SingleModel
    from coremargin.models.soft_ellipsoid import SoftEllipsoidModel
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.kind import Outcome
    from coremargin.problems.soft_ellipsoid.soft_ellipsoid import SoftEllipsoid, SoftEllipsoidState


class SoftEllipsoidJob(EllipsoidJob, frozen=True, kw_only=True):
    """The ellipsoid outside of which a share nu of the rows may lie.

    epsilon: the least volume is at least (1 - epsilon) of this one's, both at the root mean square of the levels of the
    farthest share nu of the rows.
    """

    nu: Nu

    def parameters(self) -> dict[str, Any]:
        """Adds nu."""
        return {**super().parameters(), "nu": self.nu}


class SoftVolumeClaims(VolumeClaims):
    """A volume at the root mean square of the levels of the farthest share of the rows."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """What is proven of the volume, and the radius."""
        claims, radius = model.certificate, getattr(model, "radius", 0.0)
        lower, upper = plain_bounds(claims.lower, claims.upper)
        share = f"{100 * model.parameters['nu']:g} %"
        if model.status == "certified":
            return [
                f"certified: {describe_outside(outcome, model)} of the Mahalanobis radius {radius:.6g};",
                f"at the root mean square distance of the farthest {share} the ellipsoid has the volume of a ball of",
                f"radius {upper}, and no ellipsoid has that of a radius below {lower}: its volume is within",
                f"{format_share(1.0 - (claims.ratio or 0.0))} of the least{describe_span(model)}.",
            ]
        known = "no scan over all rows was finished"
        if claims.lower is not None and claims.upper is not None:
            known = f"volume of a ball of radius {upper}, best possible at least that of {lower or 0}"
        return messages.describe_stop(outcome, known, epsilon)

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The band."""
        return describe_band(outcome, model, "surface")

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """The radius, and both bounds with every digit."""
        claims = model.certificate
        known = "not known: no scan of all rows was finished"
        if claims.upper is not None:
            known = f"at most {messages.format_exact(claims.upper)} at the mean square of the farthest, of {rows}"
        return [
            ("radius", f"{getattr(model, 'radius', 0.0)!r}, nu {model.parameters['nu']:g}"),
            ("volume radius", known),
            ("best possible", messages.describe_bound("at least", claims.lower)),
            messages.describe_ratio(model),
            ("rank", f"{model.record['rank']}{describe_span(model)}"),
            describe_named(model, "surface"),
        ]


class SoftEllipsoidKind(OneClassKind[SoftEllipsoidJob, "SoftEllipsoid", "SoftEllipsoidModel"]):
    """An ellipsoid, proven by the levels of all rows and by their dual weights."""

    name = "soft_ellipsoid"
    job = SoftEllipsoidJob
    title = "the soft ellipsoid"
    selected_by = 'give one_class "ellipsoid" and nu'
    thing = "ellipsoid"
    ratio_name = "ratio of volume radii"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """By the shape and nu."""
        return options.get("one_class") == "ellipsoid" and options.get("nu") is not None

    def problem(self, job: SoftEllipsoidJob, source: Source) -> SoftEllipsoid:
        """The problem on these rows."""
        from coremargin.problems.soft_ellipsoid.soft_ellipsoid import SoftEllipsoid

        return SoftEllipsoid(source, job.epsilon, job.nu, job.only, job.memory_bytes, job.sample)

    def model(self, job: SoftEllipsoidJob, problem: SoftEllipsoid, state: SoftEllipsoidState) -> SoftEllipsoidModel:
        """The model of a state."""
        import numpy as np

        from coremargin.data.mapped import as_kept
        from coremargin.models.soft_ellipsoid import SoftEllipsoidModel
        from coremargin.problems.common.model import transform_arrays
        from coremargin.problems.ellipsoid.block_bounds import unit_ball

        source, frame, known, d = problem.source, state.frame, np.isfinite(state.upper), problem.source.features
        found = Bounds(
            status="certified" if state.status == "certified" else "stopped",
            reason="",
            lower=state.lower if known else None,
            upper=state.upper,
            kind="volume_radius",
        )
        record = record_of_ellipsoid(self.name, job, problem, frame, found, len(state.named_ids))
        best = reference = unit_ball(d)  # of a run that ended before anything was solved, which claims nothing
        if frame.rank:
            best, reference = state.best.of_frame(frame), state.reference.of_frame(frame)
        numbers = {
            "centre": best.centre,
            "axes": best.factor,
            "square": np.array([state.best_square]),
            "reference_centre": reference.centre,
            "reference_axes": reference.factor,
            "threshold": np.array([state.threshold]),
            "alpha": state.named_weights,
            "coreset_ids": state.named_ids,
        }
        numbers |= span_arrays(frame, state.residual)
        none = np.zeros((len(state.named_ids), 0))  # the verifier reads these rows from the store
        return SoftEllipsoidModel(record, numbers | transform_arrays(source), as_kept(source, state.named_ids, none))

    def claims(self, model: SoftEllipsoidModel) -> SoftVolumeClaims:
        """A volume."""
        return SoftVolumeClaims()

    def facts(self, problem: SoftEllipsoid, state: SoftEllipsoidState) -> dict[str, Any]:
        """Why the run ended, and the histogram of levels of the last scan."""
        return describe_soft_run(problem.enclosed, state, stalled=describe_full_memory("surface"))

    def report(self, folder: Path, name: str) -> str:
        """The HTML page of a model."""
        from coremargin.problems.ellipsoid import report

        return report.page_of(folder, name)


KIND = SoftEllipsoidKind()
