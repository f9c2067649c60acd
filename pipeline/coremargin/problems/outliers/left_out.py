"""What a model trained with outliers says about them: the rows left out, and the margin against their number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.margin import is_nothing
from coremargin.maths.rows import lengths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.models.fleet import AnyModel
    from coremargin.models.model import Model


@dataclass(frozen=True)
class Row:
    """One row left out: its id, its label, its margin, and how much smaller the others' would be if it had to stay.

    gain is at least so much, as far as the pool tells; None where it does not, or that would have taken long.
    """

    id: int
    label: Any
    margin: float
    gain: float | None


@dataclass(frozen=True)
class Step:
    """The margin with k outliers: proven on all rows (None: none is), possible at most (None: no bound yet).

    impossible: it is proven that nothing separates the others, whichever k rows are left out.
    """

    k: int
    lower: float | None
    upper: float | None
    nodes: int
    impossible: bool


@dataclass(frozen=True)
class LeftOut:
    """rows: lowest margin first; steps: in order of k, the last is what the model is.

    contradictions: where nothing separates and one packing proves it, the rows of each: no two sets share a row, and
    none can be separated, so that there are more of them than rows that may be left out.
    """

    rows: tuple[Row, ...]
    steps: tuple[Step, ...]
    contradictions: tuple[tuple[int, ...], ...] = ()

    @property
    def least(self) -> int:
        """So many rows must be left out, where it is proven that nothing separates the others."""
        return max(len(self.contradictions), self.steps[-1].k + 1)


def left_out(model: AnyModel) -> LeftOut:
    """Read them from a model. Raises UsageError when it was trained without outliers."""
    if model.problem != "outliers":
        raise UsageError(f"this model is of problem {model.problem!r}: no rows were left out; train with --outliers")
    model = cast("Model", model)  # fleets and models of several classes are of other problems
    arrays = {name.removeprefix("outliers_"): values for name, values in model.extra.items()}
    negative, positive = model.classes
    hopeless = model.status == "not_separable"
    rows = zip(*(arrays[name].tolist() for name in ("ids", "signs", "margins", "gains")), strict=True)
    labels = {1: positive, -1: negative}
    shortest = float(lengths(model.proof_rows).min(initial=np.inf))  # no certificate weighs less
    return LeftOut(
        tuple(Row(i, labels[sign], m, None if math.isnan(gain) else gain) for i, sign, m, gain in rows),
        steps_of(arrays, shortest, hopeless=hopeless),
        _contradictions(model, arrays) if hopeless else (),
    )


def steps_of(arrays: Mapping[str, np.ndarray], shortest: float, *, hopeless: bool = False) -> tuple[Step, ...]:
    """The margin against k; arrays: those about outliers, by name; shortest: length of a row of the coreset.

    hopeless: it is proven that nothing separates the others, whichever rows are left out, of any number of them. Else a
    bound that is nothing even for the shortest row says so, of its number. A margin that is not above 0 is none; where
    no bound is known yet, nothing is proven to be impossible.
    """
    features = arrays["w"].shape[1]
    steps = zip(*(arrays[name].tolist() for name in ("k", "lower", "upper", "nodes")), strict=True)
    return tuple(
        Step(
            k,
            lower if lower > 0 else None,
            upper if math.isfinite(upper) else None,
            nodes,
            hopeless or (lower <= 0 and math.isfinite(upper) and is_nothing(upper, shortest, features)),
        )
        for k, lower, upper, nodes in steps
    )


def _contradictions(model: Model, arrays: Mapping[str, np.ndarray]) -> tuple[tuple[int, ...], ...]:
    """The certificates of the last proof, where it has one leaf that kept no row, and they have no row in common."""
    if "proof_leaves" not in arrays or arrays["proof_leaves"][-1] != 1:
        return ()
    rows = np.split(arrays["proof_rows"], arrays["proof_rows_ends"])
    ends = arrays["proof_proofs_ends"]
    numbers = arrays["proof_proofs"][ends[-2] if len(ends) > 1 else 0 :]
    sets = tuple(tuple(model.coreset_ids[rows[i]].tolist()) for i in numbers)
    return sets if len({row for ids in sets for row in ids}) == sum(map(len, sets)) else ()
