"""The record and the arrays of a logistic loss."""

from __future__ import annotations

from typing import ClassVar, Literal

from coremargin.formats.model_arrays import Numbers, Schema
from coremargin.formats.model_record import AboveZero, HyperplaneParameters, TwoClasses


class LogisticParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for; class_weight: factors of C of the negative and of the positive class."""

    loss: Literal["logistic"]
    C: AboveZero
    class_weight: Literal["balanced"] | tuple[AboveZero, AboveZero] | None


class Logistic(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="logistic"):
    """A hyperplane that minimises the logistic loss; its proof is about all rows of the store, and names none."""

    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: LogisticParameters

    def __post_init__(self) -> None:
        """Raises ValueError for a proof that names rows."""
        super().__post_init__()
        if self.certificate.coreset_rows:
            raise ValueError(f"expected no coreset rows with the logistic loss, found {self.certificate.coreset_rows}")

    @property
    def coreset_width(self) -> int:
        """No row is stored."""
        return 0

    def schema(self, names: frozenset[str]) -> Schema:
        """The hyperplane, and the numbers from which the dual weights of all rows follow (verify/logistic.py)."""
        p = (self.width + 1,)
        return super().schema(names) | {"reference": Numbers("f8", p), "move": Numbers("f8", p)}


RECORD = Logistic
