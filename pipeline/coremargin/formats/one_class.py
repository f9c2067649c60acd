"""What records of one class share: the class whose rows a model is about."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET


def check_only(asked: Any, only: Any) -> None:
    """Compare the class of a model with the one that was asked for, perhaps as text. Raises ValueError."""
    if (asked is UNSET) != (only is UNSET) or str(asked) != str(only):
        raise ValueError(f"parameters ask for the class {asked!r}, the record has {only!r}")
