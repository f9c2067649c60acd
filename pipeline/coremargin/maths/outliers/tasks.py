"""How tasks are run. The caller chooses the runner, and no answer depends on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Takes a function and the arguments of each task; returns the results in task order.
TaskRunner = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Sequence[Any]]


def run_serially(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Run tasks in a loop."""
    return [function(*task) for task in tasks]
