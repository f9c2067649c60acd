"""The verifier of a throw-away kind: it reads the claim and the rows with code of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import Check, shown
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.store import StoreFindings
from coremargin.verify.sums import slabs

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows


class FarthestScan(StoreFindings):
    """Whether any row is longer."""

    longest = 0.0

    def probe(self, chunk: Chunk) -> Any:
        there = np.ones(len(chunk.codes), np.int64)
        return max(float(self.lengths(x, chunk.start).max()) for _, x in slabs(chunk.x)), self.members(chunk, there)

    def add(self, answer: Any) -> None:
        self.longest = max(self.longest, answer[0])
        self.count(0, *answer)

    def bounds(self) -> tuple[float | None, float | None]:
        return self.claim.lower, self.longest

    def checks(self) -> list[Check]:
        problems = self.membership()
        claimed, found = shown(self.claim.upper), shown(self.longest)
        return [
            self.content(),
            Check("coreset", not problems, "; ".join(problems) or "the row is the store's"),
            Check("longest", self.longest <= self.claim.upper * (1 + 1e-12), f"found {found} (claimed: {claimed})"),
        ]


class FarthestKind(Kind[AnyClaim]):
    """A length that no row exceeds, and a row that has it."""

    def claim(self, files: ModelFiles) -> AnyClaim:
        return AnyClaim(**any_claim(files, WHOLE, soft=False), y=np.ones(1, np.int64))

    def same_classes(self, claim: AnyClaim, rows: Rows) -> Check:
        return Check("classes", ok=True, text="labels do not matter")

    def consistency(self, claim: AnyClaim) -> list[Check]:
        length = float(np.linalg.norm(claim.x))
        return [Check("row", abs(length - (claim.upper or 0)) <= 1e-12 * length, f"it is {shown(length)} long")]

    def scan(self, claim: AnyClaim, rows: Rows) -> FarthestScan:
        return FarthestScan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        return "no row is longer"


KIND = FarthestKind()
