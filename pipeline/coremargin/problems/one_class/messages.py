"""What kinds of one class report: which rows are enclosed, the bounds, how a run ended, the rows near the surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coremargin.report.numbers import NO_BREAK, percent_up

if TYPE_CHECKING:
    from coremargin.models.single import SingleModel
    from coremargin.problems.kind import Outcome
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


def describe_run(rows: EnclosedRows, state: Any, *, in_stages: bool = False, **reasons: str) -> dict[str, Any]:
    """For ``run.json``: why the run ended, how many rows are enclosed, and the histogram of their distances.

    in_stages: each row was measured from the centre of the stage that read it. reasons: by status, besides the usual.
    """
    from coremargin.problems.common.result import STOPPED

    centre = "stages" if in_stages else "final"
    distances = {"high": state.high, "rows": state.histogram.tolist(), "centre": centre}
    reason = (STOPPED | reasons).get(state.status, state.status)
    return {"reason": reason, "enclosed_rows": rows.count, "distances": distances}


def describe_soft_run(rows: EnclosedRows, state: Any, *, in_stages: bool = False, **reasons: str) -> dict[str, Any]:
    """The same of a soft kind, with the share of the weight of the rows that lies outside."""
    weighted = bool(rows.source.chunks) and rows.source.weights(0) is not None
    shares = {"share_outside": state.share_outside, "weighted": weighted}
    return describe_run(rows, state, in_stages=in_stages, **reasons) | shares


# Claims of soft kinds; place: "radius" or "surface"


def describe_band(outcome: Outcome, model: SingleModel, place: str) -> tuple[str, str]:
    """The rows that were sent, for people."""
    rows = f"{outcome.run['working_set_rows']:,} rows near the {place} were sent one by one, those outside as sums"
    return "rows", f"{rows}; the proof names {model.certificate.coreset_rows:,} of them"


def describe_outside(outcome: Outcome, model: SingleModel) -> str:
    """How many rows lie outside at most, as the beginning of a sentence."""
    rows, outside = describe_enclosed(model, outcome.run), format_share(outcome.run["share_outside"])
    return f"at most {outside} of {f'the weight of {rows} lies' if outcome.run['weighted'] else f'{rows} lie'} outside"


def describe_named(model: SingleModel, place: str) -> tuple[str, str]:
    """The rows that the proof names, for people."""
    return "coreset", f"{model.certificate.coreset_rows:,} rows near the {place}, with dual weights of their own"


def describe_full_memory(place: str) -> str:
    """Why a run ended that had to send more rows than it may."""
    return (
        f"the rows near the {place} do not fit into memory, or float64 cannot distinguish them; give more memory or "
        "take a larger epsilon"
    )


def format_share(share: float | None) -> str:
    """A share in percent, rounded up; None: not known."""
    return percent_up(share).replace(NO_BREAK, " ")
