"""The claims of a margin with outliers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from coremargin.formats.model_record import WHOLE
from coremargin.formats.outliers import OUTLIERS
from coremargin.verify import margins
from coremargin.verify.checks import Check, same_epsilon, same_ratio
from coremargin.verify.claim import two_classes
from coremargin.verify.kind import UNCHECKED, Kind
from coremargin.verify.outliers.claim import OutlierClaim
from coremargin.verify.outliers.proof import same_answer, upper_bounds
from coremargin.verify.outliers.scan import OutlierScan
from coremargin.verify.two_classes import same_classes

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.outliers import Outliers
    from coremargin.verify.rows import Rows

EXACT = 1e-8  #: what a certificate says where epsilon 0 was asked for


class OutlierKind(Kind[OutlierClaim]):
    """All rows but k have the margin, and no k rows left out allow a larger one."""

    unchecked = (
        "how much margin each row left out buys, and the model's dual weights (no claim rests on them)",
        "which search ran, and how many nodes it looked at",
        *UNCHECKED,
    )

    def claim(self, files: ModelFiles) -> OutlierClaim:
        """A hyperplane for each k, the rows left out, and the proof."""
        arrays, requested = files.arrays, cast("Outliers", files.record).parameters.outliers
        own = {name.removeprefix(OUTLIERS): arrays[name] for name in arrays if name.startswith(OUTLIERS)}
        return OutlierClaim(**two_classes(files, WHOLE, soft=False), outliers=own, requested=requested)

    def same_classes(self, claim: OutlierClaim, rows: Rows) -> Check:
        """The two."""
        return same_classes(claim, rows)

    def consistency(self, claim: OutlierClaim) -> list[Check]:
        """Length of the hyperplane, epsilon, ratio, status; and what is claimed for each k."""
        exact = claim.epsilon == 0 and claim.proven_epsilon == EXACT
        checks = [*margins.unit_length(claim), *([] if exact else same_epsilon(claim)), *same_ratio(claim)]
        return [*checks, margins.status(claim), *same_answer(claim)]

    def bound(self, claim: OutlierClaim) -> tuple[float | None, list[Check]]:
        """From the tree of contradictions."""
        return upper_bounds(claim)

    def scan(self, claim: OutlierClaim, rows: Rows) -> OutlierScan:
        """Whether each row has each margin, and is one that is left out."""
        return OutlierScan(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the margin."""
        return margins.proven(epsilon)


KIND = OutlierKind()
