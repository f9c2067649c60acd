"""Few labels for many rows: a campaign asks people, or a file, about rows of a store until its margin is proven.

``Campaign`` is a folder, from which a killed process resumes; ``ActiveLearner`` is for arrays in memory, and
``StreamLearner`` for a stream of rows that are not stored.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coremargin.active.answers import Annotation
    from coremargin.active.array_learner import ActiveLearner
    from coremargin.active.campaign import Campaign
    from coremargin.active.stream_learner import StreamLearner

_PLACES = {
    "ActiveLearner": "array_learner",
    "Campaign": "campaign",
    "Annotation": "answers",
    "StreamLearner": "stream_learner",
}

__all__ = ["ActiveLearner", "Annotation", "Campaign", "StreamLearner"]


def __getattr__(name: str) -> Any:
    """Load public names when they are first used."""
    if name in _PLACES:
        return getattr(import_module(f"coremargin.active.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'coremargin.active' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
