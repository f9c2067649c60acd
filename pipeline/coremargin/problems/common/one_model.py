"""Kinds with one model: messages about the claims of its certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from coremargin.problems.common import messages
from coremargin.problems.kind import Kind, describe_paths, suggest_loss

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coremargin.engine.problem import AnyProblem
    from coremargin.models.model import Model
    from coremargin.models.single import SingleModel
    from coremargin.problems.common.result import OneProblem
    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import Outcome

J = TypeVar("J", bound="TrainJob")
P = TypeVar("P", bound="AnyProblem")
M = TypeVar("M", bound="SingleModel")
H = TypeVar("H", bound="OneProblem[Any, Any]")


class OneModel(Kind[J, P, M]):
    """A kind whose model has one certificate."""

    thing: ClassVar[str] = "hyperplane"  #: a noun for the model, for messages
    losses: ClassVar[tuple[str, ...]] = ()  #: losses to suggest if nothing separates the classes

    def claims(self, model: M) -> messages.Claims:
        """The kind of claims: a margin, unless a kind overrides this."""
        return messages.MARGIN

    def summary(self, model: M, run: Mapping[str, Any]) -> dict[str, Any]:
        """Both bounds."""
        return messages.claimed_bounds(model)

    def verdict(self, outcome: Outcome, job: J) -> list[str]:
        """The margin or the value; if nothing separates the classes, the rows that prove it."""
        model = cast("M", outcome.model)
        if model.status == "not_separable":
            return self.contradiction(model)
        return self.claims(model).verdict(outcome, model, job.epsilon, self.thing)

    def contradiction(self, model: M) -> list[str]:
        """The message that nothing separates the classes, with the rows that prove it."""
        ids = messages.list_rows(model.coreset_ids)
        rows = f"{model.certificate.coreset_rows:,} rows contradict each other (rows {ids})"
        return [
            f"not separable: {rows},",
            f"so that no {self.thing} gives all rows their own class, to within float64. The proof is in the model.",
        ]

    def inseparable(self, model: M) -> str:
        """The same for one line, with losses to choose."""
        choose = " or ".join(f"loss={loss!r}" for loss in self.losses)
        return f"{self.met(model.coreset_ids[:8].tolist())}{f'; choose {choose}' if choose else ''}"

    def met(self, rows: list[int]) -> str:
        """The reason why these rows prove it, in a line."""
        return f"no {self.thing} gives all rows their own class: rows {rows} contradict each other"

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The working set, or the rows near the margin."""
        model = cast("M", outcome.model)
        return self.claims(model).driver_memory(outcome, model)

    def next_steps(self, outcome: Outcome, job: J) -> list[str]:
        """Adds a loss to try if nothing separates the classes."""
        if not self.losses or outcome.model.status != "not_separable":
            return super().next_steps(outcome, job)
        return [*describe_paths(job), suggest_loss(self.losses[0]), "look    at the rows above: labels may be wrong"]

    def rows_meant(self, model: M) -> str:
        """The rows that the certificate is about, for people."""
        return messages.describe_rows(model)

    def describe(self, path: str | Path, model: M, made: Sequence[tuple[str, str]]) -> list[str]:
        """Classes, and the margin or the value."""
        return messages.describe_model(path, model, made, self.claims(model).describe(model, self.rows_meant(model)))


class TwoClassKind(OneModel[J, H, "Model"]):
    """A kind whose model is a hyperplane between two classes."""

    def model(self, job: J, problem: H, state: Any) -> Model:
        """The model of a state."""
        from coremargin.problems.common.model import model_of

        return model_of(problem.source, problem.codes, problem.result(state), self.name, job.parameters())

    def facts(self, problem: H, state: Any) -> dict[str, Any]:
        """Why the run ended, and the histogram of margins of the last scan."""
        import numpy as np

        found = problem.result(state)
        return ({"word": found.word} if found.word else {}) | {
            "reason": found.reason,
            "histogram": {
                "edges": np.linspace(state.low, state.high, state.histogram.shape[1] + 1).tolist(),
                "positive": state.histogram[0].tolist(),
                "negative": state.histogram[1].tolist(),
                "hypothesis": "final" if found.final else "stages" if found.staged else "last scan",
            },
            "margins": {"rows_below_upper": problem.round_of(state).rows_below},
        }
