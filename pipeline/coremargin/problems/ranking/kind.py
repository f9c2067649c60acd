"""Rankings as a kind of problem: the job's options, job to problem, state to model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from coremargin.problems.common.messages import (
    ValueClaims,
    claimed_bounds,
    describe_bound,
    describe_ratio,
    format_exact,
)
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.job import TrainJob
from coremargin.problems.soft.spec import COST, check_costs

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.ranking import RankingModel
    from coremargin.models.single import SingleModel
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.kind import Outcome
    from coremargin.problems.ranking.ranking_problem import RankingProblem, RankingState

#: Scans that most data need.
SCANS = 30


class RankingJob(TrainJob, frozen=True, kw_only=True):
    """An order of the rows of each group, with the hinge loss of all pairs of rows with different labels.

    Labels are numbers: rows with higher ones come first. Only the order of labels matters.
    """

    HYPERPLANES: ClassVar[bool] = False

    structure: Annotated[Literal["ranking"], Meta(description="The rows of each group in order (ranking).")]
    loss: Literal["hinge"] | None = None
    C: float | None = None

    def __post_init__(self) -> None:
        """Check the options. Raises ValueError."""
        super().__post_init__()
        check_costs([self.cost])
        if self.loss is None:
            raise ValueError("loss: expected 'hinge' for a ranking, found none; give it")
        if self.map is not None:
            raise ValueError(f"map: a ranking has none, found {self.map!r}; leave it out")

    @property
    def cost(self) -> float:
        """C, or its default."""
        return COST if self.C is None else self.C

    def parameters(self) -> dict[str, Any]:
        """The parameters that the model's record keeps."""
        return super().parameters() | {"structure": self.structure, "loss": self.loss, "C": self.cost}


@dataclass(frozen=True)
class RankingResult:
    """Bounds as records have them."""

    status: str
    lower: float | None
    upper: float | None
    kind: str = "duality_gap"


class RankingClaims(ValueClaims):
    """The value of the objective over all pairs."""

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """The cuts."""
        return "cuts", f"no rows were in memory; the proof rests on {len(model.array('cuts_weight')):,} cuts"

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """The loss, the value and its bound."""
        claims, parameters = model.certificate, model.parameters
        value = f"at most {format_exact(claims.upper)} over the pairs of {rows}"
        if claims.upper is None:
            value = "not known: no scan of all rows was finished"
        return [
            ("structure", "ranking"),
            ("loss", f"{parameters['loss']}, C {parameters['C']:g}"),
            ("value", value),
            ("best possible", describe_bound("at least", claims.lower)),
            describe_ratio(model),
            ("cuts", f"{len(model.array('cuts_weight')):,} with dual weights"),
        ]


class RankingKind(OneModel[RankingJob, "RankingProblem", "RankingModel"]):
    """Scores of rows that order each group."""

    name = "ranking"
    job = RankingJob
    title = "a ranking"
    thing = "hypothesis"
    selected_by = 'give structure "ranking"'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """By the structure; other structures are of another kind."""
        return options.get("structure") == "ranking"

    def problem(self, job: RankingJob, source: Source) -> RankingProblem:
        """The problem on these rows."""
        from coremargin.problems.ranking.ranking_problem import RankingProblem

        return RankingProblem(source, job.epsilon, job.cost, job.memory_bytes)

    def reads_needed(self, job: RankingJob, problem: RankingProblem, *, in_memory: bool) -> int:
        """A scan for each cut; once if all rows fit in memory."""
        return 1 if in_memory else SCANS

    def describe_reading(self, job: RankingJob) -> str:
        """How often a job reads the store."""
        return "a scan for each cut, until both bounds are close enough"

    def memory_purpose(self, problem: RankingProblem) -> str:
        """Cuts."""
        return "for cuts, two vectors each"

    def model(self, job: RankingJob, problem: RankingProblem, state: RankingState) -> RankingModel:
        """The model of a state."""
        import numpy as np

        from coremargin.maths.rows import nothing
        from coremargin.models.ranking import RankingModel
        from coremargin.problems.common.model import record_of, transform_arrays

        source, known, used = problem.source, state.best is not None, state.weights > 0
        status = "certified" if state.status == "certified" else "stopped"
        found = RankingResult(status, state.lower if known else None, state.upper if known else None)
        numbers = {
            "w": state.w if state.best is None else state.best,
            "cuts_point": state.points[used],
            "cuts_weight": state.weights[used],
            "coreset_ids": np.zeros(0, np.int64),
            **transform_arrays(source),
        }
        record = record_of(source, None, found, self.name, job.parameters(), 0)
        return RankingModel(record, numbers, nothing(0, np.float64, sparse=False))

    def claims(self, model: RankingModel) -> RankingClaims:
        """A value."""
        return RankingClaims()

    def summary(self, model: RankingModel, run: Mapping[str, Any]) -> dict[str, Any]:
        """Both bounds, and the number of cuts."""
        return claimed_bounds(model) | {"cuts": len(model.array("cuts_weight"))}

    def facts(self, problem: RankingProblem, state: RankingState) -> dict[str, Any]:
        """Why the run ended."""
        return {"reason": problem.reason(state)}

    def report(self, folder: Path, name: str) -> str:
        """The page of a model's folder."""
        from coremargin.problems.ranking import report

        return report.page_of(folder, name)


KIND = RankingKind()
