"""The claims of a logistic loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from coremargin.formats.model_record import WHOLE
from coremargin.verify import values
from coremargin.verify.claim import two_classes
from coremargin.verify.kind import Kind
from coremargin.verify.logistic.scan import LogisticClaim, LogisticScan
from coremargin.verify.soft.gap import consistency
from coremargin.verify.two_classes import same_classes

if TYPE_CHECKING:
    from coremargin.formats.logistic import Logistic
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.checks import Check
    from coremargin.verify.rows import Rows


class LogisticKind(Kind[LogisticClaim]):
    """The hypothesis has the value, and a dual point shows that none has a lower one."""

    def claim(self, files: ModelFiles) -> LogisticClaim:
        """A hyperplane, C for each class, and what the dual point is made of."""
        parameters = cast("Logistic", files.record).parameters
        return LogisticClaim(
            **two_classes(files, WHOLE, soft=True),
            cost=float(parameters.C),
            class_weight=parameters.class_weight,
            reference=files.arrays["reference"],
            move=files.arrays["move"],
        )

    def same_classes(self, claim: LogisticClaim, rows: Rows) -> Check:
        """The two."""
        return same_classes(claim, rows)

    def consistency(self, claim: LogisticClaim) -> list[Check]:
        """Intercept, epsilon, ratio, status."""
        return consistency(claim)  # type: ignore[arg-type]

    def scan(self, claim: LogisticClaim, rows: Rows) -> LogisticScan:
        """The loss of each row, and its share of the dual point."""
        return LogisticScan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the value."""
        return values.proven(epsilon)


KIND = LogisticKind()
