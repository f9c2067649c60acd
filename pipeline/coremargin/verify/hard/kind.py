"""The claims of a hard margin."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from coremargin.verify import margins
from coremargin.verify.checks import Check, same_epsilon, same_ratio
from coremargin.verify.claim import Claim, two_classes
from coremargin.verify.hard.dual import dual
from coremargin.verify.hard.scan import Scan
from coremargin.verify.kind import UNCHECKED_LEDGER, Kind
from coremargin.verify.two_classes import same_classes

if TYPE_CHECKING:
    from coremargin.formats.hard_margin import HardMargin
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.rows import Rows


class HardKind(Kind[Claim]):
    """Every row has the margin, and the coreset allows no larger one."""

    unchecked = UNCHECKED_LEDGER

    def claim(self, files: ModelFiles) -> Claim:
        """A hyperplane, and the dual weights of its coreset."""
        return Claim(**two_classes(files, cast("HardMargin", files.record).view, soft=False))

    def same_classes(self, claim: Claim, rows: Rows) -> Check:
        """The two, or one against the rest."""
        return same_classes(claim, rows)

    def consistency(self, claim: Claim) -> list[Check]:
        """Length of the hyperplane, epsilon, ratio, status."""
        return [*margins.unit_length(claim), *same_epsilon(claim), *same_ratio(claim), margins.status(claim)]

    def bound(self, claim: Claim) -> tuple[float | None, list[Check]]:
        """From the dual weights."""
        return dual(claim)

    def scan(self, claim: Claim, rows: Rows) -> Scan:
        """The margin of each row."""
        return Scan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the margin."""
        return margins.proven(epsilon)


KIND = HardKind()
