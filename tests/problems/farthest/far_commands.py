"""A command of a throw-away kind: which row it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coremargin.problems.kind import Command

if TYPE_CHECKING:
    from coremargin.models.fleet import AnyModel


@dataclass(frozen=True)
class Found:
    """The row."""

    row: int


class Farthest(Command[Found]):
    """Its number."""

    name = "farthest"
    help = "Say which row is the longest."

    def answer(self, model: AnyModel) -> Found:
        """As the model has it."""
        return Found(int(model.coreset_ids[0]))  # type: ignore[attr-defined]

    def describe(self, answer: Found) -> list[str]:
        """In words."""
        return [f"row {answer.row}"]


COMMANDS = (Farthest(),)
