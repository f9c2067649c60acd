"""The smallest ball around all rows as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from ball_model import BallModel
from ball_problem import BallState, EnclosingBall
from msgspec import Meta

from coremargin.problems.common import messages
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.common.result import STOPPED
from coremargin.problems.job import TrainJob
from coremargin.report.numbers import plain_bounds

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.single import Single
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.kind import Outcome


class BallJob(TrainJob, frozen=True, kw_only=True):
    """The smallest ball around all rows."""

    HYPERPLANES: ClassVar[bool] = False

    one_class: Annotated[Literal["ball"], Meta(description="Enclose all rows, whatever their labels.")]
    epsilon: Annotated[float, Meta(description="Share of the radius that may be too much.")] = 0.01

    def __post_init__(self) -> None:
        """Refuse a map, whose rounding no bound here accounts for. Raises ValueError."""
        super().__post_init__()
        if self.map is not None:
            raise ValueError(f"map: a ball encloses rows as they are, or scaled; found {self.map!r}")

    def parameters(self) -> dict[str, Any]:
        """Adds the shape."""
        return {**super().parameters(), "one_class": self.one_class}


class RadiusClaims(messages.Claims):
    """A radius, which is minimised."""

    def verdict(self, outcome: Outcome, model: Single, epsilon: float, thing: str) -> list[str]:
        """What is proven of the radius."""
        lower, upper = plain_bounds(model.certificate.lower, model.certificate.upper)
        if model.status == "certified":
            return [f"certified: all {model.rows:,} rows are within {upper} of the centre; no radius is below {lower}."]
        return [f"stopped before the proof was complete: {outcome.run['reason']}; no radius is below {lower}."]

    def driver_memory(self, outcome: Outcome, model: Single) -> tuple[str, str]:
        """The working set."""
        return "pool", f"{outcome.run['pool_rows']:,} rows in memory"

    def describe(self, model: Single, rows: str) -> Pairs:
        """Both bounds."""
        claims = model.certificate
        radius = ("radius", f"at most {claims.upper!r} for {rows}, at least {claims.lower!r} for any ball")
        return [radius, messages.describe_coreset(model)]


class BallKind(OneModel[BallJob, EnclosingBall, BallModel]):
    """A ball, proven by its farthest row and by the dual weights of a few rows."""

    name = "ball"
    job = BallJob
    title = "the smallest ball"
    selected_by = 'give one_class "ball"'
    thing = "ball"
    labelled = False

    def matches(self, options: Mapping[str, Any]) -> bool:
        """By the option that only this kind has."""
        return "one_class" in options

    def problem(self, job: BallJob, source: Source) -> EnclosingBall:
        """The problem on these rows."""
        return EnclosingBall(source, job.epsilon)

    def model(self, job: BallJob, problem: EnclosingBall, state: BallState) -> BallModel:
        """The model of a state."""
        from types import SimpleNamespace

        from coremargin.problems.common.model import record_of, transform_arrays

        source, support = problem.source, np.flatnonzero(state.weights)
        status = "stopped" if state.status in STOPPED else state.status
        found = SimpleNamespace(status=status, kind="radius", lower=state.lower, upper=state.upper)
        record = record_of(source, None, found, self.name, job.parameters(), len(support))
        arrays = {"centre": state.best, "alpha": state.weights[support], "coreset_ids": state.ids[support]}
        return BallModel(record, arrays | transform_arrays(source), source.rows_at(state.ids[support])[0])

    def claims(self, model: BallModel) -> RadiusClaims:
        """A radius."""
        return RadiusClaims()

    def facts(self, problem: EnclosingBall, state: BallState) -> dict[str, Any]:
        """Why the run ended."""
        return {"reason": STOPPED.get(state.status, state.status)}

    def report(self, folder: Path, name: str) -> str:
        """A page with the radius."""
        from coremargin.models.registry import load

        lower, upper = plain_bounds(*(getattr(load(folder).certificate, bound) for bound in ("lower", "upper")))
        return f"<!doctype html><title>{name}</title><p>The radius of the smallest ball is from {lower} to {upper}."


KIND = BallKind()
