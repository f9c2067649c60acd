"""What is said of the rows that a model leaves out, two tables; and of how far a published algorithm came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coremargin.formats.choices import LOSS_TAKEN
from coremargin.maths.outliers.forecast import AHEAD
from coremargin.report.numbers import plain_bounds, plain_share
from coremargin.report.text import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.problems.outliers.left_out import LeftOut, Step


def listed(found: LeftOut) -> list[str]:
    """The rows, and the margin against their number; where nothing separates, sets of rows that contradict it."""
    rows = [("row", "label", "margin", "gain")]
    rows += [
        (f"{row.id:,}", repr(row.label), f"{row.margin:.6g}", "?" if row.gain is None else f"{row.gain:.4g}")
        for row in found.rows
    ]
    steps = [("outliers", "margin", "at most", "proven"), *(_step(step) for step in found.steps)]
    none = "no row is below the margin: none needs to be left out" if found.steps[-1].lower else "no rows are left out"
    lines = [*(table(rows, indent="", left=0) if found.rows else [none]), "", *table(steps, indent="", left=0)]
    if found.contradictions:
        lines += ["", "no hyperplane separates any of these sets of rows, no two of which have a row in common:"]
        lines += [f"  rows {', '.join(map(str, ids))}" for ids in found.contradictions]
    return lines


def _step(step: Step) -> tuple[str, str, str, str]:
    lower, upper = plain_bounds(step.lower, step.upper)
    if step.impossible:
        return f"{step.k:,}", lower or "none", "0", "not separable"
    share = plain_share(min(1.0, step.lower / step.upper)) if step.lower is not None and step.upper else ""
    return f"{step.k:,}", lower or "none", upper or "?", share


def hopeless(k: int, least: int) -> str:
    """That so many rows left out are too few."""
    return f"k = {k:,} cannot make the classes separable: at least {least:,} rows must be left out (proven)"


def overlap_told(figures: Mapping[str, Any]) -> str:
    """The same once it is known, or likely, and what can help; figures: of a round; "" where all may be well."""
    k, wrong, least = (figures.get(name) or 0 for name in ("outliers", "wrong", "least"))
    if least > k:
        return f"{hopeless(k, least)}; --loss {LOSS_TAKEN} handles overlap"
    if wrong <= k:
        return ""
    proven = f" and at least {least:,} rows must be left out (proven)" if least else ""
    return (
        f"k = {k:,} may be too few to make the classes separable: {wrong:,} labels look wrong{proven}; "
        f"--loss {LOSS_TAKEN} handles overlap"
    )


def expectations(figures: Mapping[str, Any]) -> list[str]:
    """What is to be expected of a search that is not at its end; figures: of a round, or ``run.json``."""
    told, k, wrong, later = [], figures.get("outliers"), figures.get("wrong"), figures.get("gap_later")
    if k is not None and wrong is not None and wrong < k:
        told.append(
            f"the heuristic sees {wrong:,} wrong labels where {k:,} rows may be left out: the other {k - wrong:,} fit, "
            f"and which of these to take is slow to prove"
        )
    elif k is not None and wrong is not None and wrong > k:
        told.append(
            f"the heuristic sees {wrong:,} wrong labels where {k:,} rows may be left out: nothing may separate the "
            f"rest; --loss {LOSS_TAKEN} handles overlap"
        )
    if later is not None:
        told.append(f"the gap may be some {later:.2g} after {AHEAD} times as long")
    return told


def expectations_in_brief(figures: Mapping[str, Any]) -> list[str]:
    """The same for a line that is written again and again."""
    told, k, wrong, later = [], figures.get("outliers"), figures.get("wrong"), figures.get("gap_later")
    if k is not None and wrong is not None and wrong != k:
        told.append(f"{wrong:,} labels look wrong, {k:,} may go")
    if later is not None:
        told.append(f"gap after {AHEAD} times as long some {later:.2g}")
    return told


def tried_told(found: Sequence[Mapping[str, Any]]) -> str:
    """How far a published algorithm came; found: its part of ``run.json``; "" where another one ran."""
    if not found:
        return ""
    subsets, most = (sum(one[key] for one in found) for key in ("subsets", "subsets_at_most"))
    rows = f"{found[-1]['subset_rows']:,} row{'s' if found[-1]['subset_rows'] != 1 else ''}"
    if all(one["ended"] for one in found):
        return f"the published algorithm has ended after {subsets:,} subsets, the last of {rows}"
    return f"the published algorithm has tried {subsets:,} of at most {most:,} subsets"


def theorem_told(k: int, separated: bool, epsilon: float) -> str:
    """What follows when it has ended."""
    if not separated:
        return f"by its theorem, which verify cannot check, nothing separates the others, whichever {k:,} are left out"
    return f"by its theorem, which verify cannot check, the margin is at least 1 - {epsilon:g} of the best possible"
