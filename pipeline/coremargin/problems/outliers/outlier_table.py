"""The outliers of a model: the excluded rows, and the margin as a function of k."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.margin import is_nothing
from coremargin.maths.rows import lengths
from coremargin.report.numbers import plain_bounds, plain_share
from coremargin.report.text import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.models.fleet import AnyModel
    from coremargin.models.model import Model


@dataclass(frozen=True)
class Outlier:
    """An excluded row.

    gain: a lower bound on how much smaller the margin of the others would be if it had to stay; None when unknown
    because it would have taken long to compute.
    """

    id: int
    label: Any
    margin: float
    gain: float | None


@dataclass(frozen=True)
class Step:
    """The margin with k outliers: proven on all rows (None: nothing is), and at most possible (None: no bound yet).

    impossible: no k rows to exclude make the others separable (proven).
    """

    k: int
    lower: float | None
    upper: float | None
    nodes: int
    impossible: bool


@dataclass(frozen=True)
class OutlierTable:
    """rows: lowest margin first; steps: by k, the last one for the model's own k.

    contradictions: when nothing separates and a single packing proves it, its sets of rows: disjoint, none of them
    separable, and more of them than rows that may be excluded.
    """

    rows: tuple[Outlier, ...]
    steps: tuple[Step, ...]
    contradictions: tuple[tuple[int, ...], ...] = ()

    @property
    def least(self) -> int:
        """How many rows must be excluded, when it is proven that excluding k is not enough."""
        return max(len(self.contradictions), self.steps[-1].k + 1)


def outlier_table(model: AnyModel) -> OutlierTable:
    """The outliers of a model. Raises UsageError when it was trained without outliers."""
    if "outliers" in model.parameters and model.problem != "outliers":
        raise UsageError(
            f"this model is of problem {model.problem!r}, whose outliers have no gains: `coremargin show MODEL` names "
            f"them; in Python, `outlier_ids`"
        )
    if model.problem != "outliers":
        raise UsageError(f"this model is of problem {model.problem!r}: no rows were excluded; train with --outliers")
    model = cast("Model", model)  # models of other kinds are of other problems
    prefix = "outliers_"
    arrays = {name.removeprefix(prefix): values for name, values in model.numbers.items() if name.startswith(prefix)}
    negative, positive = model.classes
    inseparable = model.status == "not_separable"
    rows = zip(*(arrays[name].tolist() for name in ("ids", "signs", "margins", "gains")), strict=True)
    labels = {1: positive, -1: negative}
    with np.errstate(over="ignore"):  # of rows that no verifier accepts
        shortest = float(lengths(model.proof_rows).min(initial=np.inf))  # no certificate weighs less
    return OutlierTable(
        tuple(Outlier(i, labels[sign], m, None if math.isnan(gain) else gain) for i, sign, m, gain in rows),
        margin_steps(arrays, shortest, inseparable=inseparable),
        _contradictions(model, arrays) if inseparable else (),
    )


def margin_steps(arrays: Mapping[str, np.ndarray], shortest: float, *, inseparable: bool = False) -> tuple[Step, ...]:
    """The margin as a function of k; arrays: those about outliers, by name; shortest: norm of a row of the coreset.

    inseparable: excluding k rows is proven not to be enough, for every k. Otherwise an upper bound that is zero even
    for the shortest row proves it for its own k. A margin that is not above 0 is None.
    """
    features = arrays["w"].shape[1]
    steps = zip(*(arrays[name].tolist() for name in ("k", "lower", "upper", "nodes")), strict=True)
    return tuple(
        Step(
            k,
            lower if lower > 0 else None,
            upper if math.isfinite(upper) else None,
            nodes,
            inseparable or (lower <= 0 and math.isfinite(upper) and is_nothing(upper, shortest, features)),
        )
        for k, lower, upper, nodes in steps
    )


def _contradictions(model: Model, arrays: Mapping[str, np.ndarray]) -> tuple[tuple[int, ...], ...]:
    """The certificates of the last proof, if it has one leaf without kept rows and they are disjoint."""
    if "proof_leaves" not in arrays or arrays["proof_leaves"][-1] != 1:
        return ()
    rows = np.split(arrays["proof_rows"], arrays["proof_rows_ends"])
    ends = arrays["proof_proofs_ends"]
    numbers = arrays["proof_proofs"][ends[-2] if len(ends) > 1 else 0 :]
    sets = tuple(tuple(model.coreset_ids[rows[i]].tolist()) for i in numbers)
    return sets if len({row for ids in sets for row in ids}) == sum(map(len, sets)) else ()


def describe_outliers(found: OutlierTable) -> list[str]:
    """The tables as text: rows, margin as a function of k, and contradictions, if any."""
    rows = [("row", "label", "margin", "gain")]
    rows += [
        (f"{row.id:,}", repr(row.label), f"{row.margin:.6g}", "?" if row.gain is None else f"{row.gain:.4g}")
        for row in found.rows
    ]
    steps = [("outliers", "margin", "at most", "proven"), *(_describe_step(step) for step in found.steps)]
    none = "no row is below the margin: no row needs to be excluded" if found.steps[-1].lower else "no row is excluded"
    lines = [*(table(rows, indent="", left=0) if found.rows else [none]), "", *table(steps, indent="", left=0)]
    if found.contradictions:
        lines += ["", "no hyperplane separates any of these disjoint sets of rows:"]
        lines += [f"  rows {', '.join(map(str, ids))}" for ids in found.contradictions]
    return lines


def _describe_step(step: Step) -> tuple[str, str, str, str]:
    lower, upper = plain_bounds(step.lower, step.upper)
    if step.impossible:
        return f"{step.k:,}", lower or "none", "0", "not separable"
    share = plain_share(min(1.0, step.lower / step.upper)) if step.lower is not None and step.upper else ""
    return f"{step.k:,}", lower or "none", upper or "?", share
