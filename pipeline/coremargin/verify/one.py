"""One model under examination: what is checked before, in and after a scan of the store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from coremargin.verify.checks import Check, certified, same_columns, same_shape, shown
from coremargin.verify.feature_map import SPREAD
from coremargin.verify.inquiry import Inquiry
from coremargin.verify.outcome import Verification
from coremargin.verify.registry import kind_named
from coremargin.verify.scaling import Columns, Scaler
from coremargin.verify.spread import Spread

if TYPE_CHECKING:
    import numpy as np

    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.feature_map import RowMap
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.store import StoreFindings

# What is said of a model's map of rows: that the proof is about mapped rows, what rounding may do, and its gamma.


#: An honest draw is refuted once in exp(this).
_SELDOM = 40.0


def told(made: RowMap, moved: float, needs: float) -> Check:
    """What is said of a map: that the proof is about mapped rows, and what rounding may do; whether it does no more."""
    text = f"{made.kind}: the proof is about rows mapped by the model's arrays to {made.width:,} features"
    if not (needs <= moved < math.inf):
        return Check("map", ok=False, text=f"{text}; rounding may move one by {needs:.3g}, {moved:.3g} can be granted")
    drawn = "; which numbers these were drawn by is not looked at" if made.kind == "fourier" or made.sketch else ""
    return Check("map", ok=True, text=f"{text}; rounding moves none by more than {moved:.3g}{drawn}")


def gamma_checks(made: RowMap, spread: Spread, moved: np.ndarray) -> list[Check]:
    """Whether gamma is the one of "scale", where it is said to be, and random frequencies have lengths that it gives.

    moved (d,), or none: what scaling takes from the columns. The gamma of other maps is an array, which readers have
    compared with the number that is said.
    """
    checks = []
    if made.scale and made.kind != "fourier":
        gamma_of, features = float(made.numbers["gamma"][0]), made.features
        text = f"1 / (d var) of all rows is {spread.scale(features):.6g}"
        ok = spread.is_scale(gamma_of, features, moved)
        checks.append(Check("gamma", ok, text if ok else f"model claims scale, {gamma_of:.6g}; {text}"))
    if made.kind == "fourier":
        checks.append(_drawn(made.numbers["weights"], spread.scale(made.features) if made.scale else float(made.asked)))
    return checks


def _drawn(weights: np.ndarray, gamma: float) -> Check:
    """Whether normal numbers of variance 2 gamma may have such a sum of squares: all but one of 10^17 draws do.

    Of k numbers it is 2 gamma times one of chi-squared with k degrees of freedom, which is above k + 2 sqrt(k t) + 2 t
    or below k - 2 sqrt(k t) with a probability of exp(-t) at most (Laurent, Massart 2000).
    """
    k, found = weights.size, float((weights * (weights / (2.0 * gamma))).sum())
    wide = 2.0 * math.sqrt(k * _SELDOM)
    text = f"frequencies have {found / k:.4g} times the mean square that gamma {gamma:.6g} gives"
    ok = k - wide <= found <= k + wide + 2.0 * _SELDOM
    return Check("gamma", ok, text if ok else f"{text}: they were drawn for another one")


_APART = 1e-12  # what rounding may put a lower bound above an upper one by: the weights' of many rows, at the most


class OneModel(Inquiry):
    """The claims of one model."""

    def __init__(self, claim: AnyClaim, rows: Rows, scaler: Scaler | None = None) -> None:
        """scaler: of another inquiry about rows scaled alike, which then scales for both."""
        self.claim, self.rows, self.kind = claim, rows, kind_named(claim.problem)
        classes = self.kind.same_classes(claim, rows)
        comparable = claim.stored_features == rows.features and classes.ok
        self._moved = 0.0 if claim.soft else SPREAD * claim.moved  # the losses of a value are moved row by row
        examined = claim.tightened(self._moved) if self._moved else claim
        self._upper, proof = self.kind.bound(examined)
        self._checks = [
            same_shape(claim, rows),
            *same_columns(claim.columns, rows),
            classes,
            *self.kind.consistency(claim),
            *proof,
        ]
        self._strangers, self._needs, self._spread = 0, 0.0, Spread.nothing()
        self.scan: StoreFindings | None = self.kind.scan(examined, rows) if comparable else None
        self.scaler = scaler or (Scaler(claim, rows) if comparable else None)

    @property
    def comparable(self) -> bool:
        """False when the store's rows say nothing about the claim: other features, other classes."""
        return self.scan is not None

    def columns(self, chunk: Chunk) -> Columns | None:
        """What a chunk as it is stored says about the scaling."""
        return self.scaler.columns(chunk) if self.scaler else None

    def scaled(self, chunk: Chunk) -> Chunk:
        """A chunk as the claim is about it, but for the map."""
        return self.scaler.scaled(chunk) if self.scaler else chunk

    def ask(self, scaled: Chunk) -> Any:
        """What a scaled chunk says about the claim, of mapped rows part by part."""
        made = self.claim.map
        return [self.ask_part(part) for part in ([scaled] if made is None else made.parts(scaled))]

    def ask_part(self, part: Chunk) -> Any:
        """What rows that are scaled and mapped say about the claim."""
        if not self.scan:
            return None
        made = self.claim.map
        spread = Spread.of(part.given) if made is not None and made.scale else None
        return self.scan.ask(part), self.scan.strangers(part), part.needs, spread

    def add_columns(self, columns: Columns | None) -> None:
        """Take what ``columns`` said."""
        if self.scaler:
            self.scaler.add(columns)

    def add(self, answer: Any) -> None:
        """Take what ``ask`` said."""
        for own in answer if self.scan else ():
            self.scan.add(own[0])  # type: ignore[union-attr]
            self._strangers += own[1]
            self._needs = max(self._needs, own[2])
            self._spread = self._spread if own[3] is None else self._spread.joined(own[3])

    def _proven(self, lower: float | None, upper: float | None) -> list[Check]:
        """A failed check where all claims hold, and yet the bounds that were found do not prove what is certified."""
        if lower is not None and upper is not None and lower > upper * (1 + _APART):
            text = f"the bounds contradict each other: found lower {shown(lower)}, upper {shown(upper)}"
            return [Check("certificate", ok=False, text=text)]
        epsilon = self.claim.proven_epsilon
        if self.claim.status != "certified" or certified(lower, upper, epsilon):
            return []
        text = f"model claims to be certified; lower {shown(lower)} and upper {shown(upper)} do not prove {epsilon}"
        return [Check("certificate", ok=False, text=text)]

    def _map(self) -> list[Check]:
        """What is said of the map of rows, where they are mapped."""
        made = self.claim.map
        if made is None:
            return []
        return [
            told(made, self.claim.moved, self._needs),
            *gamma_checks(made, self._spread, self.claim.shift * self.claim.factor),
        ]

    def result(self) -> Verification:
        """The outcome, after all chunks."""
        claim, scan, checks = self.claim, self.scan, list(self._checks)
        lower, upper = None, self._upper
        if scan and self.scaler:
            lower, value = scan.bounds()
            upper = upper if value is None else value
            lower = None if lower is None else lower - self._moved
            upper = None if upper is None else upper + self._moved
            if self._strangers:
                text = f"{self._strangers:,} rows of other classes count in the store, of which nothing is claimed"
                checks.append(Check("classes", ok=False, text=text))
            checks += [
                *scan.checks(),
                scan.norms(self.scaler.box()),
                *self.scaler.checks(),
                *self._map(),
            ]
        if all(check.ok for check in checks):
            checks += self._proven(lower, upper)
        return Verification(
            model=str(claim.path),
            store=str(self.rows.path),
            status=claim.status,
            epsilon=claim.proven_epsilon,
            claimed_lower=claim.lower,
            claimed_upper=claim.upper,
            lower=lower,
            upper=upper,
            rows=self.rows.rows,
            unlabelled=scan.unlabelled if scan else 0,
            features=self.rows.features,
            checks=tuple(checks),
            unchecked=self.kind.not_checked(claim),
            problem=claim.problem,
            soft=claim.soft,
            terms=self.kind.terms(claim),
            part="" if claim.view.fold is None else f"the rows outside of fold {claim.view.fold} of {claim.view.folds}",
        )
