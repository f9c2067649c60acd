"""What ``verify`` says about a machine with a kernel, column by column.

For dual weights a >= 0, with the hinge at most c, and r = sum y a, the value of every (f, b) is at least
sum a - 1/2 ||sum a y k(x, .)||^2 - sum a^2 / (4 c) (squared hinge) - |r| |b| (Lagrange), and a best b is no larger than
1 + ||f|| max sqrt(k(x, x)): beyond that, all rows of one class have margins above 1, and b can come back. A hard margin
is the same without a loss: the value 1/2 ||f||^2 of a function with margins of 1 has the margin 1 / ||f||.

Where fewer rows decide than have dual weights, the value is that of what decides, and the bound that of the dual point.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.checks import Check, certified, shown
from coremargin.verify.kernel.brought import NoKernel
from coremargin.verify.kernel.scan import KernelScan
from coremargin.verify.sums import SLAB_ROWS, UNIT, rounded_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

_FEW = 64 * UNIT  # of a handful of operations
_EXCESS = 32 * UNIT  # by which weights may be above c: balanced ones are rounded sums


class KernelProof(KernelScan):
    """The scan, and what it shows."""

    def bounds(self) -> tuple[float | None, float | None]:
        """(lower, upper) of all columns: sums of values, the smallest of margins."""
        if not self.rows.rows > self.unlabelled:
            return None, None
        lower, upper = self._columns
        if self.claim.soft:
            return rounded_sum(lower.tolist()) * (1 - UNIT), rounded_sum(upper.tolist()) * (1 + UNIT)
        return float(lower.min()), float(upper.min())

    def checks(self) -> list[Check]:
        """What the store's rows say about the claims."""
        problems = self.membership()
        text = f"all {self.matched:,} rows are the store's, bit for bit, with its labels"
        return [
            self.content(),
            Check("coreset", not problems, "; ".join(problems) or text),
            *self._scale(),
            *self._function(),
            self._weighed(),
            *self._bounded(),
            *self._each(),
            *self._reduced(),
        ]

    @cached_property
    def _lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """||f||^2 (k,) of each column, and what it may be off by."""
        weights, expansion = self.expansion.weights, self.expansion
        found = np.zeros((2, weights.shape[1]))
        for first in range(0, len(weights), SLAB_ROWS):
            part = slice(first, first + SLAB_ROWS)
            try:
                values, error = expansion.values(self.claim.x[part])
            except NoKernel as wrong:  # which it did not show before
                self.fault = self.fault or f"on rows of the coreset: {wrong.text}"
                return found[0], np.full(weights.shape[1], np.inf)
            own = weights[part]
            found[0] += [rounded_sum((own[:, k] * values[:, k]).tolist()) for k in range(own.shape[1])]
            found[1] += (np.abs(own) * (error + 2 * UNIT * np.abs(values))).sum(axis=0)
        return found[0], found[1] + _FEW * np.abs(found[0])

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds (k,), (k,) of each column, rounded: about margins without a loss, else about values."""
        columns = range(len(self.claim.offsets))
        lower, upper = np.array([self._dual(k) for k in columns]), np.array([self._value(k) for k in columns])
        if self.claim.soft:
            return lower, upper
        with np.errstate(divide="ignore", invalid="ignore"):
            margins = np.sqrt(0.5 / upper) * (1 - _FEW), np.sqrt(0.5 / lower) * (1 + _FEW)
        return margins[0], np.where(lower > 0, margins[1], np.inf)

    def _value(self, k: int) -> float:
        """What the hypothesis of a column is worth at most."""
        square = float(self._lengths[0][k] + self._lengths[1][k])  # of the hypothesis, which comes first
        if self.claim.soft:
            return (0.5 * square + float(self.loss.value[k])) * (1 + _FEW)
        least = self.lowest[k][0]
        if not (least > 0 and square >= 0):
            return math.inf
        length = math.sqrt(square) / least  # squares of both might overflow
        return 0.5 * length * length * (1 + _FEW)

    def _dual(self, k: int) -> float:
        """What no hypothesis of a column is below; 0 where the weights prove nothing."""
        a, signs, claim = self.claim.duals[:, k], self.claim.signs[:, k], self.claim
        own = k - len(claim.offsets)  # the dual point comes last
        square = float(
            np.maximum(self._lengths[0][own], 0.0) + self._lengths[1][own]
        )  # of what overflows NaN, which stays
        total, curved = rounded_sum(a.tolist()), 0.0
        if claim.loss == "squared_hinge":
            with np.errstate(divide="ignore", invalid="ignore"):
                each = np.where(a > 0, a * a / (4 * self.limits[:, k]), 0.0)
            curved = rounded_sum(each.tolist())
        left = abs(rounded_sum((signs * a).tolist())) if claim.intercept else 0.0
        found = total - 0.5 * square - curved
        if left:
            found -= left * (1.0 + math.sqrt(2.0 * self._value(k)) * self.reach) * (1 + _FEW)
        found -= _FEW * (total + square + curved)
        return found if found > 0 else 0.0

    def _scale(self) -> list[Check]:
        """Whether gamma is the one of "scale", where it is said to be."""
        if not self.claim.scale:
            return []
        gamma, features = self.claim.function.scale, self.claim.features
        ok = self.spread.is_scale(gamma, features, self.claim.shift * self.claim.factor)
        text = f"1 / (d var) of all rows is {self.spread.scale(features):.6g}"
        return [Check("gamma", ok, text if ok else f"model claims scale, {gamma:.6g}; {text}")]

    def _function(self) -> list[Check]:
        """A failed check where a function gave what no kernel gives."""
        return [Check("kernel values", ok=False, text=self.fault)] if self.fault else []

    def _weighed(self) -> Check:
        """Whether the duals are feasible."""
        duals, columns = self.claim.duals, len(self.claim.offsets)
        text = f"{np.count_nonzero(duals):,} weights in {columns_told(columns)}, each at least 0"
        if self.claim.loss != "hinge":
            return Check("dual weights", ok=True, text=text)
        over = duals > self.limits * (1 + _EXCESS)
        if not over.any():
            return Check("dual weights", ok=True, text=f"{text} and at most c of its row")
        row, k = (int(place[0]) for place in np.nonzero(over))
        found = f"row {self.claim.ids[row]} has {shown(duals[row, k])}, its c is {shown(self.limits[row, k])}"
        return Check("dual weights", ok=False, text=f"expected at most c; {found}")

    def _reduced(self) -> list[Check]:
        """How far what decides is from what the whole coreset carries, where they are not the same."""
        said, found = self.claim.reduced, self.apart
        if said is None:
            return []
        near, same = found.distance <= said.distance, found.changed <= said.changed
        text = (
            f"{said.rows:,} rows decide: within {shown(found.distance)} of all {len(self.claim.ids):,} "
            f"(claimed: {shown(said.distance)}), at most {found.changed:,} rows of another class (claimed: "
            f"{said.changed:,}), of {self.counted}"
        )
        return [Check("reduced", near and same, text)]

    def _bounded(self) -> list[Check]:
        """The two bounds of the certificate."""
        claim, (lower, upper) = self.claim, self.bounds()
        if lower is None or upper is None:
            return [Check("lower bound", ok=False, text="the store has no labelled row: nothing can be claimed")]
        below, above = claim.lower is None or claim.lower <= lower, claim.upper is None or claim.upper >= upper
        what = "value" if claim.soft else "margin"
        lows = f"{what}: found at least {shown(lower)} (claimed: {shown(claim.lower)})"
        highs = f"{what}: found at most {shown(upper)} (claimed: {shown(claim.upper)})"
        return [Check("lower bound", below, lows), Check("upper bound", above, f"{highs} over {self.counted}")]

    def _each(self) -> list[Check]:
        """The bounds of each column, and that each is certified where the model is."""
        claim, (lower, upper) = self.claim, self._columns
        low, high = _wrong(claim.lowers, claim.lowers <= lower), _wrong(claim.uppers, claim.uppers >= upper)
        checks = []
        for name, wrong, claimed, found in (("lower", low, claim.lowers, lower), ("upper", high, claim.uppers, upper)):
            if len(wrong):
                k = wrong[0]
                told = (
                    f"column {k} claims {shown(claimed[k])}, found {shown(found[k])}; {columns_told(len(wrong))} wrong"
                )
                checks.append(Check(f"{name} bounds", ok=False, text=told))
        pairs = zip(lower.tolist(), upper.tolist(), strict=True)
        short = [k for k, (a, b) in enumerate(pairs) if not certified(a, b, claim.proven_epsilon)]
        if claim.status == "certified" and short:
            told = f"columns {', '.join(map(str, short[:8]))} are not proven to {claim.proven_epsilon}"
            checks.append(Check("columns", ok=False, text=told))
        elif not checks:
            checks.append(Check("columns", ok=True, text=f"the bounds of {columns_told(len(lower))} hold"))
        return checks


def columns_told(count: int) -> str:
    """So many columns, for people."""
    return "1 column" if count == 1 else f"{count:,} columns"


def _wrong(claimed: np.ndarray, holds: np.ndarray) -> Sequence[int]:
    """Columns in which something is claimed that does not hold."""
    return [int(k) for k in np.flatnonzero(~np.isnan(claimed) & ~holds)]
