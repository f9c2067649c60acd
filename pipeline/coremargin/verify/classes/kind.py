"""The claims of a margin of several classes at once, hard or soft."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec import UNSET

from coremargin.formats.model_record import WHOLE
from coremargin.verify import margins, values
from coremargin.verify.claim import any_claim
from coremargin.verify.classes.claim import ClassesClaim
from coremargin.verify.classes.dual import dual
from coremargin.verify.classes.proof import ClassesProof, consistency, same_classes
from coremargin.verify.kind import Kind

if TYPE_CHECKING:
    from coremargin.formats.crammer_singer import SeveralClasses
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.checks import Check
    from coremargin.verify.rows import Rows


class ClassesKind(Kind[ClassesClaim]):
    """The margin or the value, over pairs of a row and a rival of its class."""

    def claim(self, files: ModelFiles) -> ClassesClaim:
        """A hyperplane for each class, and dual weights."""
        record, arrays = cast("SeveralClasses", files.record), files.arrays
        parameters, v = record.parameters, arrays["hypothesis"]
        return ClassesClaim(
            **any_claim(files, WHOLE, soft=record.soft),
            y=arrays["coreset_classes"].astype(np.int64) + 1,
            labels=tuple(record.classes),
            constant=record.constant,
            v=v,
            duals=arrays["duals"],
            cost=0.0 if parameters.C is UNSET else float(parameters.C),
            balanced=parameters.class_weight == "balanced",
            reference=arrays.get("reference", np.zeros_like(v)),
        )

    def same_classes(self, claim: ClassesClaim, rows: Rows) -> Check:
        """All of them."""
        return same_classes(claim, rows)

    def consistency(self, claim: ClassesClaim) -> list[Check]:
        """Length of the hypothesis, its last entries, epsilon, ratio, status."""
        return consistency(claim)

    def bound(self, claim: ClassesClaim) -> tuple[float | None, list[Check]]:
        """Of a margin from the dual weights; a value is bounded by a scan."""
        return (None, []) if claim.soft else dual(claim)

    def scan(self, claim: ClassesClaim, rows: Rows) -> ClassesProof:
        """The margin of each row against all rivals; or its loss, and its share of the dual point."""
        return ClassesProof(claim, rows)

    def proven(self, epsilon: float, *, soft: bool) -> str:
        """Of the margin or of the value."""
        return values.proven(epsilon) if soft else margins.proven(epsilon)


KIND = ClassesKind()
