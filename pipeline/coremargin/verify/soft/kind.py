"""The claims of a soft margin."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from coremargin.verify import values
from coremargin.verify.claim import two_classes
from coremargin.verify.kind import Kind
from coremargin.verify.soft.claim import SoftClaim
from coremargin.verify.soft.gap import GapScan, consistency
from coremargin.verify.soft.tried import tried_claim
from coremargin.verify.two_classes import same_classes

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.soft_margin import SoftMargin
    from coremargin.verify.checks import Check
    from coremargin.verify.rows import Rows


class SoftKind(Kind[SoftClaim]):
    """The hypothesis has the value, and a dual point shows that none has a lower one."""

    def claim(self, files: ModelFiles) -> SoftClaim:
        """A hyperplane, C for each class, and a dual point."""
        record = cast("SoftMargin", files.record)
        parameters = record.parameters
        shared = two_classes(files, record.view, soft=True)
        return SoftClaim(
            **shared,
            tried=tried_claim(record, files, shared),
            loss=parameters.loss,
            cost=float(parameters.C),
            class_weight=parameters.class_weight,
            reference=np.atleast_2d(files.arrays["reference"]),
            reference_of=files.arrays.get("reference_of", np.zeros(0, np.int64)),
            ramp=float(files.arrays["ramp"][0]) if "ramp" in files.arrays else 0.0,
        )

    def same_classes(self, claim: SoftClaim, rows: Rows) -> Check:
        """The two, or one against the rest."""
        return same_classes(claim, rows)

    def consistency(self, claim: SoftClaim) -> list[Check]:
        """Intercept, epsilon, ratio, status."""
        return consistency(claim)

    def scan(self, claim: SoftClaim, rows: Rows) -> GapScan:
        """The loss of each row, and its share of the dual point."""
        return GapScan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the value."""
        return values.proven(epsilon)


KIND = SoftKind()
