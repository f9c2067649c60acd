"""What a finished job leaves: the model, how the run went, and its rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coremargin.engine.allowance import Allowance
    from coremargin.models.fleet import AnyModel


@dataclass(frozen=True)
class Outcome:
    """A model, and how it came to be: ``run`` and ``rounds`` as in the model's folder."""

    model: AnyModel
    run: dict[str, Any]
    rounds: list[dict[str, Any]]
    resumable: bool = False  #: stopped at a limit: more scans would help
    found: bool = False  #: was there before, whole: what it claims was not looked at again
    kept: Callable[[Allowance], Mapping[str, Any]] | None = None  #: what lies beside the model for later commits
    elapsed: Callable[[], float] = lambda: 0.0  #: seconds since the run began, those before it was resumed included
