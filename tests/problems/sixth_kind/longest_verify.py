"""The claims about the longest row, checked with sums of the verifier's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import Check, certified, same_epsilon, same_ratio, shown
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.store import StoreFindings
from coremargin.verify.sums import gamma, slabs, true_lengths

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows


class LengthScan(StoreFindings):
    """How long every row is."""

    longest = 0.0

    def probe(self, chunk: Chunk) -> Any:
        """The longest row of a chunk."""
        counted = np.ones(len(chunk.codes), np.int64) if chunk.weights is None else (chunk.weights > 0).astype(np.int64)
        longest = radius = 0.0
        for part, x in slabs(chunk.x):
            found = self.lengths(x, chunk.start + part.start)
            longest, radius = max(longest, float((found * counted[part]).max())), max(radius, float(found.max()))
        return longest, int((counted == 0).sum()), radius, self.members(chunk, counted)

    def add(self, summary: Any) -> None:
        """Take one chunk's summary."""
        longest, *count = summary
        self.longest = max(self.longest, longest)
        self.count(*count)

    def bounds(self) -> tuple[float | None, float | None]:
        """The length of the coreset's row, and that of the longest."""
        room, own = gamma(self.claim.features + 8), float(true_lengths(self.claim.x).max(initial=0.0))
        return own * (1 - room), self.longest * (1 + room)

    def checks(self) -> list[Check]:
        """The coreset, and both bounds."""
        problems, (lower, upper), claim = self.membership(), self.bounds(), self.claim
        return [
            self.content(),
            Check("coreset", not problems, "; ".join(problems) or f"{self.matched:,} row is the store's"),
            Check("upper bound", claim.upper is None or upper <= claim.upper, f"the longest row has {shown(upper)}"),
            Check("lower bound", claim.lower is None or lower >= claim.lower, f"the coreset's row has {shown(lower)}"),
        ]


class LongestKind(Kind[AnyClaim]):
    """No row is longer than is claimed, and one is as long."""

    def claim(self, files: ModelFiles) -> AnyClaim:
        """Both bounds, and the row."""
        return AnyClaim(**any_claim(files, WHOLE, soft=False), y=np.ones(len(files.arrays["coreset_ids"]), np.int64))

    def consistency(self, claim: AnyClaim) -> list[Check]:
        """Epsilon, ratio, status."""
        proven = certified(claim.lower, claim.upper, claim.proven_epsilon)
        ok = claim.status == "stopped" or (claim.status == "certified" and proven)
        return [*same_epsilon(claim), *same_ratio(claim), Check("status", ok, claim.status)]

    def scan(self, claim: AnyClaim, rows: Rows) -> LengthScan:
        """The length of each row."""
        return LengthScan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the length."""
        return f"no row is longer than this one by more than {epsilon} of its length"


KIND = LongestKind()
