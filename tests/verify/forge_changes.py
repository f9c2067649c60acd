"""Changes of campaigns that were played (forge_active.py), and what the verifier finds false then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from forge_active import Change, Played


def failures(path: Path, store: Path) -> list[str]:
    """The names of what is false."""
    return [check.name for check in examine(path, store, threads=1).failures]


def record(**values: Any) -> Change:
    """Other values in the record: of parameters, certificate or evidence, else at the top; all that are there."""

    def change(played: Played) -> None:
        parts = [played.record["parameters"], played.record["certificate"], played.record["evidence"] or {}]
        for key, value in values.items():
            places = [part for part in parts if key in part] or [played.record]
            for place in places:
                place[key] = value(place[key]) if callable(value) else value

    return change


def array(name: str, change: Callable[[np.ndarray], Any]) -> Change:
    """Another array."""
    return lambda played: played.arrays.update({name: change(played.arrays[name].copy())})


def put(place: Any, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A change of one element."""

    def change(values: np.ndarray) -> np.ndarray:
        values[place] = value(values[place]) if callable(value) else value
        return values

    return change


def about(**values: Any) -> Change:
    """Another campaign file."""
    return lambda played: played.about.update(values)


def line(number: int, **values: Any) -> Change:
    """Another line of the log; numbers from 0, or from the end."""
    return lambda played: played.lines[number].update(values)
