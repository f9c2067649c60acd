"""The soft ball as a kind of problem: its job, from a job to a problem, and what is reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.problems.ball.kind import BallJob
from coremargin.problems.common import messages
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
from coremargin.report.numbers import plain_bounds, relative_gap

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.single import SingleModel
    from coremargin.models.soft_ball import SoftBallModel
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.kind import Outcome
    from coremargin.problems.soft_ball.soft_ball import SoftBall, SoftBallState

_TIED = "{:,} rows lie on the sphere, besides those for which there is memory; give more memory or take another nu"


class SoftBallJob(BallJob, frozen=True, kw_only=True):
    """The ball outside of which a share nu of the rows may lie.

    epsilon: the share of its value by which the least value may be smaller.
    """

    nu: Nu

    def __post_init__(self) -> None:
        """Refuse outliers. Raises ValueError."""
        super().__post_init__()
        if self.outliers is not None:
            raise ValueError(
                f"outliers: expected none with nu, found {self.outliers!r}: nu is the share of the rows that may lie "
                "outside; leave one of the two out"
            )

    def parameters(self) -> dict[str, Any]:
        """Adds nu."""
        return {**super().parameters(), "nu": self.nu}


class MeanSquareClaims(messages.Claims):
    """The mean square of the distances of the farthest share of the rows, which is minimised."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """What is proven of the value, and the radius."""
        claims, radius = model.certificate, getattr(model, "radius", 0.0)
        lower, upper = plain_bounds(claims.lower, claims.upper)
        share = f"{100 * model.parameters['nu']:g} %"
        if model.status == "certified":
            gap = format_share(relative_gap(messages.claimed_bounds(model)))
            return [
                f"certified: {describe_outside(outcome, model)} of the radius {radius:.6g};",
                f"the mean squared distance of the farthest {share} is {upper}, within {gap} of the least: {lower}.",
            ]
        known = "no scan over all rows was finished"
        if claims.lower is not None and claims.upper is not None:
            known = f"mean squared distance of the farthest {share} {upper}, best possible at least {lower}"
        return messages.describe_stop(outcome, known, epsilon)

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The band."""
        return describe_band(outcome, model, "radius")

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """The radius, the value and its bound, with every digit."""
        claims = model.certificate
        value = "not known: no scan of all rows was finished"
        if claims.upper is not None:
            value = f"at most {messages.format_exact(claims.upper)}: mean squared distance of the farthest, of {rows}"
        return [
            ("radius", f"{getattr(model, 'radius', 0.0)!r}, nu {model.parameters['nu']:g}"),
            ("value", value),
            ("best possible", messages.describe_bound("at least", claims.lower)),
            messages.describe_ratio(model),
            describe_named(model, "radius"),
        ]


class SoftBallKind(OneClassKind[SoftBallJob, "SoftBall", "SoftBallModel"]):
    """A ball, proven by the distances of all rows and by their dual weights."""

    name = "soft_ball"
    job = SoftBallJob
    title = "the soft ball"
    selected_by = 'give one_class "ball" and nu'
    thing = "ball"
    ratio_name = "ratio of values"

    def matches(self, options: Mapping[str, Any]) -> bool:
        """By the shape and nu."""
        return options.get("one_class") == "ball" and options.get("nu") is not None

    def problem(self, job: SoftBallJob, source: Source) -> SoftBall:
        """The problem on these rows."""
        from coremargin.problems.soft_ball.soft_ball import SoftBall

        return SoftBall(source, job.epsilon, job.nu, job.only, job.memory_bytes, job.sample)

    def model(self, job: SoftBallJob, problem: SoftBall, state: SoftBallState) -> SoftBallModel:
        """The model of a state."""
        import numpy as np

        from coremargin.data.mapped import as_kept
        from coremargin.models.soft_ball import SoftBallModel
        from coremargin.problems.common.map_rounding import margin_rounding, widen_bounds
        from coremargin.problems.common.model import record_of, transform_arrays

        source, known = problem.source, math.isfinite(state.primal)
        found = Bounds(
            status="certified" if state.status == "certified" else "stopped",
            reason="",
            lower=state.dual if known else None,
            upper=state.primal,
            kind="duality_gap",
        )
        if (moved := margin_rounding(source)) and known:
            # Roots of values are root mean squares of distances, which a map's rounding changes by ``moved`` at most.
            below = 2.0 * moved * math.sqrt(state.dual)
            above = moved * (2.0 * math.sqrt(state.primal) + moved)
            found = widen_bounds(found, source, min(below, state.dual), above, problem.epsilon)
        only = {} if problem.only is None else {"only": problem.enclosed.label}
        none = np.zeros((len(state.named_ids), 0))  # the verifier reads these rows from the store
        numbers = {
            "centre": state.best,
            "square": np.array([state.best_square]),
            "reference": state.reference,
            "threshold": state.threshold,
            "alpha": state.named_weights,
            "coreset_ids": state.named_ids,
        }
        if len(state.reference_of):
            numbers["reference_of"] = state.reference_of
        record = record_of(source, None, found, self.name, job.parameters(), len(state.named_ids), **only)
        return SoftBallModel(record, numbers | transform_arrays(source), as_kept(source, state.named_ids, none))

    def claims(self, model: SoftBallModel) -> MeanSquareClaims:
        """A value."""
        return MeanSquareClaims()

    def facts(self, problem: SoftBall, state: SoftBallState) -> dict[str, Any]:
        """Why the run ended, and the histogram of distances of the last scan."""
        stalled = _TIED.format(state.tied) if state.tied else describe_full_memory("radius")
        return describe_soft_run(problem.enclosed, state, in_stages=state.in_stages, stalled=stalled)

    def report(self, folder: Path, name: str) -> str:
        """The HTML page of a model."""
        from coremargin.problems.soft_ball import report

        return report.page_of(folder, name)


KIND = SoftBallKind()
