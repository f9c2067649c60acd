"""What kinds of one class report: which rows are enclosed, the bounds, and the distances of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coremargin.problems.one_class.rows import EnclosedRows


@dataclass(frozen=True)
class Bounds:
    """Bounds as records have them; kind: what of."""

    status: str
    reason: str
    lower: float | None
    upper: float
    kind: str


def describe_enclosed(model: Any, run: Mapping[str, Any] | None = None) -> str:
    """The rows that a model is about, for people; run: the content of ``run.json``, which knows how many they are."""
    if model.only is None:
        return f"all {model.rows:,} rows"
    rows = (run or {}).get("enclosed_rows")
    return f"all {'' if rows is None else f'{rows:,} '}rows of class {model.only!r}"


def describe_distances(rows: EnclosedRows, state: Any, centre: str) -> dict[str, Any]:
    """For ``run.json``: how many rows are enclosed, and the histogram of their distances.

    centre: "final", or "stages" if each row was measured from the centre of the stage that read it.
    """
    distances = {"high": state.high, "rows": state.histogram.tolist(), "centre": centre}
    return {"enclosed_rows": rows.count, "distances": distances}
