"""How work that is dealt to tasks is run: by whom is the caller's choice, and nothing depends on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Takes a function and the arguments of each task; gives the answers, in the order of the tasks.
Map = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Sequence[Any]]


def one_by_one(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Tasks in a plain loop."""
    return [function(*task) for task in tasks]
