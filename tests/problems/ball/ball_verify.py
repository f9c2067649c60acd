"""The claims of a ball, checked with sums of the verifier's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import CLOSE, Check, same_epsilon, same_ratio, shown
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.store import StoreFindings
from coremargin.verify.sums import gamma, slabs

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Chunk, Rows


@dataclass(frozen=True, kw_only=True)
class BallClaim(AnyClaim):
    """A ball, and the weights of the rows that allow no smaller one."""

    centre: np.ndarray
    alpha: np.ndarray


class BallScan(StoreFindings):
    """How far every row is from the centre."""

    farthest, row = 0.0, -1

    def probe(self, chunk: Chunk) -> Any:
        """The farthest row of a chunk."""
        counted = np.ones(len(chunk.codes), np.int64) if chunk.weights is None else (chunk.weights > 0).astype(np.int64)
        farthest, row, radius = 0.0, -1, 0.0
        for part, x in slabs(chunk.x):
            radius = max(radius, float(self.lengths(x, chunk.start + part.start).max()))
            off = (x if isinstance(x, np.ndarray) else x.toarray()) - self.claim.centre
            distances = np.where(counted[part], np.sqrt(np.square(off).sum(axis=1)), 0.0)
            if not float(distances.max()) <= farthest:
                farthest, row = float(distances.max()), chunk.start + part.start + int(distances.argmax())
        return farthest, row, int((counted == 0).sum()), radius, self.members(chunk, counted)

    def add(self, answer: Any) -> None:
        """Take one chunk's answer."""
        farthest, row, *count = answer
        if not farthest <= self.farthest:
            self.farthest, self.row = farthest, row
        self.count(*count)

    @property
    def found(self) -> float:
        """The upper bound, rounded up."""
        return self.farthest * (1 + gamma(self.claim.features + 4))

    def bounds(self) -> tuple[float | None, float | None]:
        """The upper one; the lower one needs no scan."""
        return lower_bound(self.claim)[0], None if self.claim.upper is None else self.found

    def checks(self) -> list[Check]:
        """The coreset, and the upper bound."""
        problems, claimed = self.membership(), self.claim.upper
        text = f"row {self.row} is the farthest of {self.counted}, at a distance of {shown(self.found)}"
        ok = claimed is None or self.found <= claimed
        return [
            self.content(),
            Check("coreset", not problems, "; ".join(problems) or f"all {self.matched:,} rows are the store's"),
            Check("upper bound", ok, text if ok else f"model claims {shown(claimed)}; {text}"),
        ]


def lower_bound(claim: BallClaim) -> tuple[float | None, list[Check]]:
    """The radius below which no ball holds the coreset, rounded down, and whether it is that claimed."""
    a, total = claim.alpha, float(claim.alpha.sum())
    if not ((a >= 0).all() and abs(total - 1) <= CLOSE):
        return None, [Check("dual weights", ok=False, text=f"expected weights >= 0 that sum to 1, found {total!r}")]
    x = claim.x if isinstance(claim.x, np.ndarray) else claim.x.toarray()
    off = x - a @ x / total
    square = float(a @ np.square(off).sum(axis=1)) / total - float(np.square(a @ off).sum()) / total**2
    size = gamma(len(x) + claim.features + 8) * float(a @ np.square(off).sum(axis=1))
    found, claimed = float(np.sqrt(max(0.0, square - size))), claim.lower
    ok = claimed is None or claimed <= found
    text = f"{len(x):,} rows allow no radius below {shown(found)}"
    return found, [Check("lower bound", ok, text if ok else f"model claims {shown(claimed)}; {text}")]


class BallKind(Kind[BallClaim]):
    """Every row is within the radius, and the coreset allows no smaller one."""

    def claim(self, files: ModelFiles) -> BallClaim:
        """The ball, and its dual weights."""
        arrays = files.arrays
        shared = any_claim(files, WHOLE, soft=False) | {"y": np.ones(len(arrays["alpha"]), np.int64)}
        return BallClaim(**shared, centre=arrays["centre"], alpha=arrays["alpha"])

    def consistency(self, claim: BallClaim) -> list[Check]:
        """Epsilon, ratio, lower bound."""
        return [*same_epsilon(claim), *same_ratio(claim), *lower_bound(claim)[1]]

    def scan(self, claim: BallClaim, rows: Rows) -> BallScan:
        """The distance of each row."""
        return BallScan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the radius."""
        return f"no ball around all rows has a radius below (1 - {epsilon}) of this one"


KIND = BallKind()
