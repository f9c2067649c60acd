"""What claims of one class share: they are about all rows of weight above 0, or those of them with one label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET

from coremargin.verify.checks import Check, in_order, shown, typed
from coremargin.verify.claim import AnyClaim
from coremargin.verify.store import StoreFindings

if TYPE_CHECKING:
    from coremargin.verify.rows import Chunk, Rows


@dataclass(frozen=True, kw_only=True)
class OneClassClaim(AnyClaim):
    """A claim about the rows that count."""

    only: Any  #: their label; UNSET: all rows count


class ScanOfOneClass(StoreFindings):
    """A scan for a claim about all rows, or about those of one class."""

    claim: OneClassClaim

    def __init__(self, claim: OneClassClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        same = [typed(label) == typed(claim.only) for label in rows.classes]
        self._of_class = np.array([*same, False])  # code -1 is the last: unlabelled

    @property
    def aside(self) -> str:
        """Text about the rows that do not count."""
        what = "of weight 0" if self.claim.only is UNSET else "of other classes, without label or of weight 0"
        return f", {self.unlabelled:,} {what} not counted" if self.unlabelled else ""

    def signs(self, chunk: Chunk) -> np.ndarray:
        """1 (n,) for rows that count, -1 for those of another class, 0 for others."""
        signs = np.ones(len(chunk.codes), np.int64)
        if self.claim.only is not UNSET:
            signs = np.where(self._of_class[chunk.codes], 1, np.where(chunk.codes < 0, 0, -1))
        return signs if chunk.weights is None else np.where(chunk.weights > 0, signs, 0)


def same_class(claim: OneClassClaim, rows: Rows) -> Check:
    """Whether the store has the class whose rows count."""
    if claim.only is UNSET:
        return Check("classes", ok=True, text="the model has none: labels do not matter")
    ok = typed(claim.only) in {typed(label) for label in rows.classes}
    text = f"the rows of class {claim.only!r} count"
    known = ", ".join(map(repr, rows.classes)) or "none"
    return Check("classes", ok, text if ok else f"model claims {text}, the store has {known}")


def describe_class(claim: OneClassClaim) -> str:
    """Which rows count, appended to a claim; "" if all do."""
    return "" if claim.only is UNSET else f", of the rows of class {claim.only!r}"


def status(claim: OneClassClaim, ratio: str, *, proves: bool) -> Check:
    """Whether the status agrees with the bounds of a size; ratio: what is at least 1 - epsilon; proves: it is."""
    bounds = f"lower {shown(claim.lower)}, upper {shown(claim.upper)}, epsilon {claim.proven_epsilon}"
    if claim.status == "stopped" and in_order(claim):
        return Check("status", ok=True, text=f"stopped before epsilon was proven: {bounds}")
    if claim.status == "certified" and in_order(claim):
        text = f"model claims to be certified, its own numbers do not say so: {bounds}"
        if proves:
            text = f"certified: {ratio} is at least 1 - {claim.proven_epsilon}"
        return Check("status", ok=proves, text=text)
    return Check("status", ok=False, text=f"model claims status {claim.status!r}, which contradicts {bounds}")
