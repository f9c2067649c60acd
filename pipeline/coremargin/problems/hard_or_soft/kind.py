"""A hard margin or, where none is possible, a soft one as a kind of problem: its models are those of other kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.problems.fleet.kind import KIND as FLEET
from coremargin.problems.hard.kind import KIND as HARD
from coremargin.problems.hard_or_soft.spec import HardOrSoftJob
from coremargin.problems.kind import Kind, with_loss
from coremargin.problems.soft.kind import KIND as SOFT
from coremargin.problems.soft.spec import describe_loss

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.want import Want
    from coremargin.models.fleet import AnyModel
    from coremargin.models.model import Model
    from coremargin.problems.fleet.fleet import Fleet
    from coremargin.problems.hard_or_soft.problem import HardOrSoft
    from coremargin.problems.job import TrainJob
    from coremargin.problems.outcome import Outcome

#: The kinds that its models are of.
_KINDS: dict[str, Kind[Any, Any, Any]] = {HARD.name: HARD, SOFT.name: SOFT, FLEET.name: FLEET}


class HardOrSoftKind(Kind[HardOrSoftJob, "HardOrSoft | Fleet", "AnyModel"]):
    """A hard margin is tried; what is proven impossible is not asked for any longer."""

    name = "hard_or_soft"
    job = HardOrSoftJob
    title = "loss 'auto'"
    selected_by = 'give loss "auto"'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """The word for it."""
        return options.get("loss") == "auto"

    def problem(self, job: HardOrSoftJob, source: Source) -> HardOrSoft | Fleet:
        """Both problems on these rows; of more than two classes the fleet, whose time begins now."""
        from coremargin.problems.hard_or_soft.make import problem_of

        return problem_of(job, source)

    def members(self, problem: HardOrSoft | Fleet) -> int:
        """One, or one for each class."""
        return _answer(problem)[0].members(problem)

    def wanted(self, problem: HardOrSoft | Fleet, state: Any) -> Want | None:
        """What the one would have liked that it came to."""
        kind, its, at = _answer(problem, state)
        return kind.wanted(its, at)

    def answered_by(self, job: HardOrSoftJob, model: AnyModel) -> bool:
        """A margin, unless it is proven that there is none; a soft margin that says so; a fleet."""
        found = _KINDS.get(model.kind)
        if found is None or not found.answered_by(_asked(job, found), model):
            return False
        return found is FLEET or (model.status != "not_separable" if found is HARD else "tried" in model.record)

    def model(self, job: HardOrSoftJob, problem: HardOrSoft | Fleet, state: Any) -> AnyModel:
        """The margin, or the soft margin with the proof that there is none."""
        from coremargin.problems.hard_or_soft.outcome import with_tried

        kind, its, at = _answer(problem, state)
        found: AnyModel = kind.model(_asked(job, kind), its, at)
        if kind is not SOFT:
            return found
        tried = cast("HardOrSoft", problem).hard
        return with_tried(cast("Model", found), tried.result(state.hard))

    def facts(self, problem: HardOrSoft | Fleet, state: Any) -> dict[str, Any]:
        """Those of the one that it came to."""
        kind, its, at = _answer(problem, state)
        return kind.facts(its, at)

    def summary(self, model: AnyModel, run: Mapping[str, Any]) -> dict[str, Any]:
        """That of the model's kind."""
        return _KINDS[model.kind].summary(model, run)

    def verdict(self, outcome: Outcome, job: HardOrSoftJob) -> list[str]:
        """That of the model's kind, which knows what was tried; of a fleet, that nothing was."""
        kind, loss = _whose(outcome), describe_loss(LOSS_TAKEN, job.cost)
        several = f"{len(outcome.model.classes):,} classes: each is trained against the rest, with {loss};"
        return [*([several] if kind is FLEET else []), *kind.verdict(outcome, job)]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """That of the model's kind."""
        return _whose(outcome).driver_memory(outcome)

    def next_steps(self, outcome: Outcome, job: HardOrSoftJob) -> list[str]:
        """Those of the model's kind; where float64 tells neither a margin nor that there is none, the loss alone."""
        kind, model = _whose(outcome), cast("Model", outcome.model)
        undecided = kind is HARD and not outcome.resumable and (model.certificate.lower or 0.0) <= 0
        return [*kind.next_steps(outcome, job), *([with_loss(LOSS_TAKEN)] if undecided else [])]

    def news(self, record: Mapping[str, Any]) -> str:
        """That there is no hard margin, when that is proven."""
        if "overlap" not in record:
            return ""
        return (
            f"the classes overlap: proven by {record['overlap']:,} rows; going on with {LOSS_TAKEN.replace('_', ' ')}"
        )

    def bounds_told(self, bounds: str, record: Mapping[str, Any]) -> str:
        """Those of a fleet are told by its kind."""
        return FLEET.bounds_told(bounds, record) if "members" in record else bounds

    def described(self, path: Path, model: AnyModel, made: Sequence[tuple[str, str]]) -> list[str]:
        """As the model's kind does."""
        return _KINDS[model.kind].described(path, model, made)

    def report(self, folder: Path, name: str) -> str:
        """As the model's kind does."""
        from coremargin.models.registry import load

        return _KINDS[load(folder).kind].report(folder, name)


def _answer(problem: Any, state: Any = None) -> tuple[Kind[Any, Any, Any], Any, Any]:
    """The kind that a state answers, or the first one that is tried, with its own problem and state."""
    from coremargin.problems.fleet.fleet import Fleet

    if isinstance(problem, Fleet):
        return FLEET, problem, state
    if state is None or state.soft is None:
        return HARD, problem.hard, None if state is None else state.hard
    return SOFT, problem.soft, state.soft


def _asked(job: HardOrSoftJob, kind: Kind[Any, Any, Any]) -> TrainJob:
    """The job as one of this kind."""
    if kind is FLEET:
        return job.against_the_rest()
    return job.hard() if kind is HARD else job.soft()


def _whose(outcome: Outcome) -> Kind[Any, Any, Any]:
    return _KINDS[outcome.model.kind]


KIND = HardOrSoftKind()
