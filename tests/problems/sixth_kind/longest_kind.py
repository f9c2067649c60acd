"""The longest row of a store as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from longest_model import LongestModel
from longest_problem import LongestRow, LongestState
from msgspec import Meta

from coremargin.problems.common import messages
from coremargin.problems.common.one_model import OneModel
from coremargin.problems.common.result import STOPPED
from coremargin.problems.job import TrainJob

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.single import SingleModel
    from coremargin.problems.common.messages import Pairs
    from coremargin.problems.kind import Outcome


class LongestJob(TrainJob, frozen=True, kw_only=True):
    """The longest row."""

    HYPERPLANES: ClassVar[bool] = False

    extreme: Annotated[Literal["longest"], Meta(description="Find a row, whatever the labels.")]
    epsilon: Annotated[float, Meta(description="Share of the length that may be missed.")] = 0.01

    def parameters(self) -> dict[str, Any]:
        """Adds the row that is meant."""
        return {**super().parameters(), "extreme": self.extreme}


class LengthClaims(messages.Claims):
    """A length, which is maximised."""

    def verdict(self, outcome: Outcome, model: SingleModel, epsilon: float, thing: str) -> list[str]:
        """What is proven of the length."""
        if model.status == "certified":
            return [f"certified: no row of {model.rows:,} is longer than {model.certificate.upper!r}."]
        return [f"stopped before the proof was complete: {outcome.run['reason']}."]

    def driver_memory(self, outcome: Outcome, model: SingleModel) -> tuple[str, str]:
        """One row."""
        return "rows", f"{outcome.run['working_set_rows']:,} rows in memory"

    def describe(self, model: SingleModel, rows: str) -> Pairs:
        """Both bounds."""
        claims = model.certificate
        return [("length", f"at least {claims.lower!r}, at most {claims.upper!r} for {rows}")]


@dataclass(frozen=True)
class _Bounds:
    """Bounds of a length, as records have them."""

    status: str
    lower: float | None
    upper: float | None
    kind: str = "length"


class LongestKind(OneModel[LongestJob, LongestRow, LongestModel]):
    """A row, proven by a scan."""

    name = "longest"
    job = LongestJob
    title = "the longest row"
    selected_by = 'give extreme "longest"'
    thing = "row"
    labelled = False

    def matches(self, options: Mapping[str, Any]) -> bool:
        """By the option that only this kind has."""
        return "extreme" in options

    def problem(self, job: LongestJob, source: Source) -> LongestRow:
        """The problem on these rows."""
        return LongestRow(source, job.epsilon)

    def model(self, job: LongestJob, problem: LongestRow, state: LongestState) -> LongestModel:
        """The model of a state."""
        from coremargin.problems.common.model import record_of, transform_arrays

        source, known = problem.source, len(state.ids)
        found = _Bounds(
            "stopped" if state.status in STOPPED else state.status, state.lower if known else None, state.upper
        )
        return LongestModel(
            record_of(source, None, found, self.name, job.parameters(), known),
            {"coreset_ids": state.ids, **transform_arrays(source)},
            source.rows_at(state.ids)[0],
        )

    def claims(self, model: LongestModel) -> LengthClaims:
        """A length."""
        return LengthClaims()

    def facts(self, problem: LongestRow, state: LongestState) -> dict[str, Any]:
        """Why the run ended."""
        return {"reason": STOPPED.get(state.status, state.status)}

    def report(self, folder: Path, name: str) -> str:
        """A page with the length."""
        from coremargin.models.registry import load

        return f"<!doctype html><title>{name}</title><p>No row is longer than {load(folder).certificate.upper}."


KIND = LongestKind()
