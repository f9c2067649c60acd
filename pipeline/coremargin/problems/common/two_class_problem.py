"""What problems about the rows of two classes share: which classes these are."""

from __future__ import annotations

from dataclasses import dataclass

from coremargin.engine.problem import A_contra, BaseProblem, S
from coremargin.problems.common.start import two_classes


@dataclass(frozen=True)
class TwoClassProblem(BaseProblem[S, A_contra]):
    """A problem about labelled rows, of two classes."""

    @property
    def codes(self) -> tuple[int, int]:
        """Codes of the positive and the negative class."""
        return two_classes(self.source)

    def check(self) -> None:
        """Refuse what cannot be trained, before a row is read. Raises LabelError, StoreError."""
        two_classes(self.source)
