"""What the model of a soft margin says of the hard one that was tried before, where one was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.common import messages
from coremargin.problems.soft.spec import loss_told

if TYPE_CHECKING:
    from coremargin.models.model import Model


def verdict_on(model: Model) -> list[str]:
    """Why there is a loss, for people."""
    if "tried" not in model.record:
        return []
    ids, parameters = model.extra["tried_ids"], model.parameters
    rows = f"{len(ids):,} rows meet (rows {messages.list_rows(ids)})"
    return [
        f"the classes overlap: no hyperplane separates them, as the hulls of {rows};",
        f"trained with {loss_told(parameters['loss'], parameters['C'])}, instead of a hard margin:",
    ]


def described(model: Model) -> messages.Pairs:
    """The same in a line."""
    if "tried" not in model.record:
        return []
    ids = model.extra["tried_ids"]
    proven = f"the classes overlap, proven by {len(ids):,} rows (rows {messages.list_rows(ids)})"
    return [("tried", f"a hard margin: {proven}; so it was trained with a loss")]
