"""A hard margin or, if none is possible, a soft one: its job, its problem, and reports by the kind of its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.problems.fleet.kind import KIND as FLEET
from coremargin.problems.fleet.spec import FleetJob
from coremargin.problems.hard.kind import KIND as HARD
from coremargin.problems.hard.kind import HardMarginJob
from coremargin.problems.job import TrainJob
from coremargin.problems.kind import Kind, suggest_loss
from coremargin.problems.soft.kind import KIND as SOFT
from coremargin.problems.soft.spec import LossJob, SoftMarginJob, describe_loss

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.models.fleet import AnyModel
    from coremargin.models.model import Model
    from coremargin.problems.common.result import Result
    from coremargin.problems.fleet.fleet import Fleet
    from coremargin.problems.hard_or_soft.hard_or_soft import HardOrSoft
    from coremargin.problems.kind import Outcome

#: The kinds of its models.
_KINDS: dict[str, Kind[Any, Any, Any]] = {HARD.name: HARD, SOFT.name: SOFT, FLEET.name: FLEET}


class HardOrSoftJob(LossJob, frozen=True, kw_only=True):
    """A hard margin between two classes or, once it is proven that there is none, a soft one.

    With more than two classes each is trained against the rest, all with the loss: decision values of a class with a
    hard margin and of one without would have different units. C, class_weight: of the loss, the squared hinge.
    """

    loss: Literal["auto"]
    classes: Literal["ovr"] | None = None

    def parameters(self) -> dict[str, Any]:
        """The parameters that the model's record keeps."""
        return super().parameters() | {"classes": self.classes}

    def hard(self) -> HardMarginJob:
        """The job of a hard margin, which is tried first."""
        return HardMarginJob(**self._shared())

    def soft(self) -> SoftMarginJob:
        """The job of a soft margin."""
        return SoftMarginJob(**self._shared(), loss=LOSS_TAKEN, C=self.cost, class_weight=self.class_weight)

    def against_the_rest(self) -> FleetJob:
        """The job of more than two classes."""
        return FleetJob(**self._shared(), classes="ovr", loss=LOSS_TAKEN, C=self.cost, class_weight=self.class_weight)

    def _shared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in TrainJob.__struct_fields__}


class HardOrSoftKind(Kind[HardOrSoftJob, "HardOrSoft | Fleet", "AnyModel"]):
    """Tries a hard margin; takes a soft one if it is proven that there is none."""

    name = "hard_or_soft"
    job = HardOrSoftJob
    title = "loss 'auto'"
    selected_by = 'give loss "auto"'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether loss is "auto"."""
        return options.get("loss") == "auto"

    def problem(self, job: HardOrSoftJob, source: Source) -> HardOrSoft | Fleet:
        """Both problems on these rows; of more than two classes the multi-model problem."""
        import numpy as np

        from coremargin.problems.fleet.make import fleet_of
        from coremargin.problems.hard_or_soft.hard_or_soft import HardOrSoft
        from coremargin.problems.soft.make import problem_of as soft_problem

        if np.count_nonzero(source.scalars().counts.sum(axis=0)) > 2:
            return fleet_of(job.against_the_rest(), source)
        return HardOrSoft(source, HARD.problem(job.hard(), source), soft_problem(job.soft(), source))

    def members(self, problem: HardOrSoft | Fleet) -> int:
        """One, or one for each class."""
        return _current(problem)[0].members(problem)

    def wanted(self, problem: HardOrSoft | Fleet, state: Any) -> MemoryNeed | None:
        """The memory that would have served the problem that the job came to."""
        kind, its, at = _current(problem, state)
        return kind.wanted(its, at)

    def is_model_of(self, job: HardOrSoftJob, model: AnyModel) -> bool:
        """A hard margin, unless it is proven that there is none; a soft margin with such a proof; several models."""
        kind = _KINDS.get(model.kind)
        if kind is None or not kind.is_model_of(_job_of(job, kind), model):
            return False
        return kind is FLEET or (model.status != "not_separable" if kind is HARD else "tried" in model.record)

    def model(self, job: HardOrSoftJob, problem: HardOrSoft | Fleet, state: Any) -> AnyModel:
        """The hard margin, or the soft margin with the proof that there is none."""
        kind, its, at = _current(problem, state)
        found: AnyModel = kind.model(_job_of(job, kind), its, at)
        if kind is not SOFT:
            return found
        tried = cast("HardOrSoft", problem).hard
        return with_tried(cast("Model", found), tried.result(state.hard))

    def facts(self, problem: HardOrSoft | Fleet, state: Any) -> dict[str, Any]:
        """The facts of the problem that the job came to."""
        kind, its, at = _current(problem, state)
        return kind.facts(its, at)

    def summary(self, model: AnyModel, run: Mapping[str, Any]) -> dict[str, Any]:
        """As for the kind of the model."""
        return _KINDS[model.kind].summary(model, run)

    def verdict(self, outcome: Outcome, job: HardOrSoftJob) -> list[str]:
        """As for the kind of the model; of more than two classes, how they are trained."""
        kind, loss = _KINDS[outcome.model.kind], describe_loss(LOSS_TAKEN, job.cost)
        several = f"{len(outcome.model.classes):,} classes: each is trained against the rest, with {loss};"
        return [*([several] if kind is FLEET else []), *kind.verdict(outcome, job)]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """As for the kind of the model."""
        return _KINDS[outcome.model.kind].driver_memory(outcome)

    def describe_published(self, outcome: Outcome) -> list[tuple[str, str]]:
        """As for the kind of the model."""
        return _KINDS[outcome.model.kind].describe_published(outcome)

    def next_steps(self, outcome: Outcome, job: HardOrSoftJob) -> list[str]:
        """As for the kind of the model; the loss alone, if float64 decides neither for nor against a hard margin."""
        kind, model = _KINDS[outcome.model.kind], cast("Model", outcome.model)
        undecided = kind is HARD and not outcome.resumable and (model.certificate.lower or 0.0) <= 0
        return [*kind.next_steps(outcome, job), *([suggest_loss(LOSS_TAKEN)] if undecided else [])]

    def notice(self, record: Mapping[str, Any]) -> str:
        """A line when it is proven that there is no hard margin."""
        if "overlap" not in record:
            return ""
        loss = LOSS_TAKEN.replace("_", " ")
        return f"the classes overlap: proven by {record['overlap']:,} rows; continuing with {loss}"

    def describe_bounds(self, bounds: str, record: Mapping[str, Any]) -> str:
        """As for several models, if there are several."""
        return FLEET.describe_bounds(bounds, record) if "members" in record else bounds

    def describe(self, path: str | Path, model: AnyModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """As for the kind of the model."""
        return _KINDS[model.kind].describe(path, model, made)

    def report(self, folder: Path, name: str) -> str:
        """As for the kind of the model."""
        from coremargin.models.registry import load

        return _KINDS[load(folder).kind].report(folder, name)


def with_tried(model: Model, hard: Result) -> Model:
    """A soft margin with the proof that there is no hard one: rows whose hulls meet, and their weights.

    The record then contains the reason for the loss, which the verifier checks.
    """
    proof = hard.proof
    tried = {"problem": "hard_margin", "upper": hard.upper, "coreset_rows": len(proof)}
    arrays: dict[str, Any] = {"tried_ids": proof.ids, "tried_y": proof.signs, "tried_alpha": proof.weights}
    return replace(model, record={**model.record, "tried": tried}, numbers={**model.numbers, **arrays})


def _current(problem: Any, state: Any = None) -> tuple[Kind[Any, Any, Any], Any, Any]:
    """The kind that a job has come to by this state, or that it tries first, with its own problem and state."""
    from coremargin.problems.fleet.fleet import Fleet

    if isinstance(problem, Fleet):
        return FLEET, problem, state
    if state is None or state.soft is None:
        return HARD, problem.hard, None if state is None else state.hard
    return SOFT, problem.soft, state.soft


def _job_of(job: HardOrSoftJob, kind: Kind[Any, Any, Any]) -> TrainJob:
    """The job as one of this kind."""
    if kind is FLEET:
        return job.against_the_rest()
    return job.hard() if kind is HARD else job.soft()


KIND = HardOrSoftKind()
