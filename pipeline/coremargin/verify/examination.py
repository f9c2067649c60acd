"""The examination of one model: what is checked before, in and after the scan of the store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from coremargin.verify.checks import Check, same_columns, same_shape, shown, unchecked_content
from coremargin.verify.feature_map import SPREAD
from coremargin.verify.gamma import Variance, frequencies_check
from coremargin.verify.outcome import Verification
from coremargin.verify.registry import kind_named
from coremargin.verify.scaling import Scaler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.feature_map import RowMap
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.store import StoreFindings

_CROSSED = 1e-12  # relative: by rounding of sums over many rows, a lower bound may exceed an upper one by this


class ModelExamination:
    """The claims of one model. ``probe`` may run in many threads; ``add`` takes its summaries in the order of chunks.

    comparable: False if the store has other features or classes than the model claims; then there is no scan.
    """

    def __init__(self, claim: AnyClaim, rows: Rows, scaler: Scaler | None = None) -> None:
        """scaler: of another examination with the same scaling, which then updates it."""
        self.claim, self.rows, self.kind = claim, rows, kind_named(claim.problem)
        classes = self.kind.same_classes(claim, rows)
        self.comparable = claim.stored_features == rows.features and classes.ok
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
        self._other_classes, self._map_error, self._variance = 0, 0.0, Variance()
        # None, and unused, without a scan
        self.scan: StoreFindings = self.kind.scan(examined, rows) if self.comparable else None  # type: ignore[assignment]
        self.scaler: Scaler = scaler or (Scaler(claim, rows) if self.comparable else None)  # type: ignore[assignment]

    def probe(self, chunk: Chunk) -> Any:
        """The summary of a chunk: of its columns as stored, and of its rows, scaled and mapped part by part."""
        scaled, row_map = self.scaler.scaled(chunk), self.claim.map
        parts = [scaled] if row_map is None else row_map.parts(scaled)
        return self.scaler.columns(chunk), [self.probe_part(part) for part in parts]

    def probe_part(self, part: Chunk) -> Any:
        """The summary of rows that are scaled and mapped."""
        row_map = self.claim.map
        variance = Variance.of(part.given) if row_map is not None and row_map.scale else None
        return self.scan.probe(part), self.scan.count_other_classes(part), part.needs, variance

    def add(self, summary: Any) -> None:
        """Add what ``probe`` returned."""
        columns, parts = summary
        self.scaler.add(columns)
        self.add_parts(parts)

    def add_parts(self, parts: list[Any]) -> None:
        """Add what ``probe_part`` returned for each part of a chunk."""
        for found, other_classes, map_error, variance in parts:
            self.scan.add(found)
            self._other_classes += other_classes
            self._map_error = max(self._map_error, map_error)
            self._variance = self._variance if variance is None else self._variance.merge(variance)

    def result(self) -> Verification:
        """The result, after all chunks."""
        claim, checks = self.claim, list(self._checks)
        lower, upper = None, self._upper
        if self.comparable:
            lower, value = self.scan.bounds()
            upper = upper if value is None else value
            lower = None if lower is None else lower - self._moved
            upper = None if upper is None else upper + self._moved
            if self._other_classes:
                text = f"{self._other_classes:,} rows of other classes count in the store, of which nothing is claimed"
                checks.append(Check("classes", ok=False, text=text))
            checks += [*self.scan.checks(), self.scan.norms(self.scaler.box()), *self.scaler.checks()]
            if claim.map is not None:
                checks += self._map_checks(claim.map)
        if all(check.ok for check in checks):
            checks += self._unproven(lower, upper)
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
            unlabelled=self.scan.unlabelled if self.comparable else 0,
            features=self.rows.features,
            checks=tuple(checks),
            unchecked=(*self.kind.not_checked(claim), *unchecked_content(claim, self.rows)),
            problem=claim.problem,
            soft=claim.soft,
            terms=self.kind.terms(claim),
            part="" if claim.view.fold is None else f"the rows outside of fold {claim.view.fold} of {claim.view.folds}",
        )

    def _map_checks(self, row_map: RowMap) -> Iterator[Check]:
        """Whether rounding moves mapped rows by no more than is assumed, and gamma is what it is claimed to be.

        Readers compare a gamma that is a number with the parameters.
        """
        claim, assumed, found = self.claim, self.claim.moved, self._map_error
        text = f"{row_map.kind}: the proof is about rows mapped by the model's arrays to {row_map.width:,} features"
        if found <= assumed < math.inf:
            drawn = "; their random numbers' seed is not checked" if row_map.kind == "fourier" or row_map.sketch else ""
            yield Check("map", ok=True, text=f"{text}; rounding moves none by more than {assumed:.3g}{drawn}")
        else:
            yield Check("map", ok=False, text=f"{text}; rounding may move one by {found:.3g}, allowed is {assumed:.3g}")
        if row_map.kind == "fourier":
            gamma = self._variance.scale(row_map.features) if row_map.scale else float(row_map.gamma)
            yield frequencies_check(row_map.numbers["weights"], gamma)
        elif row_map.scale:
            gamma = float(row_map.numbers["gamma"][0])
            yield self._variance.scale_check(gamma, row_map.features, claim.shift * claim.factor)

    def _unproven(self, lower: float | None, upper: float | None) -> list[Check]:
        """A failed check if all claims hold, but the bounds found do not prove what is certified."""
        if lower is not None and upper is not None and lower > upper * (1 + _CROSSED):
            text = f"the bounds contradict each other: found lower {shown(lower)}, upper {shown(upper)}"
            return [Check("certificate", ok=False, text=text)]
        epsilon = self.claim.proven_epsilon
        if self.claim.status != "certified" or self.kind.certifies(self.claim, lower, upper):
            return []
        text = f"model claims to be certified; lower {shown(lower)} and upper {shown(upper)} do not prove {epsilon}"
        return [Check("certificate", ok=False, text=text)]
