"""What kinds with one model share: what its certificate says to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from coremargin.problems.common import messages
from coremargin.problems.common.claims import MARGIN
from coremargin.problems.kind import Kind, places, with_loss

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coremargin.engine.problem import AnyProblem
    from coremargin.models.single import Single
    from coremargin.problems.common.claims import Claims
    from coremargin.problems.job import TrainJob
    from coremargin.problems.outcome import Outcome

J = TypeVar("J", bound="TrainJob")
P = TypeVar("P", bound="AnyProblem")
M = TypeVar("M", bound="Single")


class OneModel(Kind[J, P, M]):
    """A kind whose model has one certificate."""

    thing: ClassVar[str] = "hyperplane"  #: what its model is, for messages
    losses: ClassVar[tuple[str, ...]] = ()  #: one of these can be tried where nothing separates the classes

    def claims(self, model: M) -> Claims:
        """What the certificate of a model claims: a margin, if a kind does not say otherwise."""
        return MARGIN

    def summary(self, model: M, run: Mapping[str, Any]) -> dict[str, Any]:
        """Both bounds."""
        return messages.bounds_of(model)

    def verdict(self, outcome: Outcome, job: J) -> list[str]:
        """The margin or the value; or the rows that contradict each other."""
        model = cast("M", outcome.model)
        if model.status == "not_separable":
            return self.contradiction(model)
        return self.claims(model).verdict(outcome, model, job.epsilon, self.thing)

    def contradiction(self, model: M) -> list[str]:
        """Which rows show that nothing separates the classes."""
        ids = messages.first_rows(model.coreset_ids)
        rows = f"{model.certificate.coreset_rows:,} rows contradict each other (rows {ids})"
        return [
            f"not separable: {rows},",
            f"so that no {self.thing} gives all rows their own class, to within float64. The proof is in the model.",
        ]

    def inseparable(self, model: M) -> str:
        """Some of those rows, and losses that are for such rows."""
        choose = " or ".join(f"loss={loss!r}" for loss in self.losses)
        return f"{self.met(model.coreset_ids[:8].tolist())}{f'; choose {choose}' if choose else ''}"

    def met(self, rows: list[int]) -> str:
        """That these rows are the proof, in a line."""
        return f"no {self.thing} gives all rows their own class: rows {rows} contradict each other"

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The pool, or rows near the margin."""
        model = cast("M", outcome.model)
        return self.claims(model).driver_memory(outcome, model)

    def next_steps(self, outcome: Outcome, job: J) -> list[str]:
        """Where nothing separates the classes, what to try."""
        if not self.losses or outcome.model.status != "not_separable":
            return super().next_steps(outcome, job)
        return [*places(job), with_loss(self.losses[0]), "look    at the rows above: labels may be wrong"]

    def rows_meant(self, model: M) -> str:
        """The rows that the certificate is about, for people."""
        return messages.rows_of(model)

    def described(self, path: Path, model: M, made: Sequence[tuple[str, str]]) -> list[str]:
        """Classes, and the margin or the value."""
        return messages.described(path, model, made, self.claims(model).described(model, self.rows_meant(model)))
