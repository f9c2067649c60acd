"""What a model claims whose labels were asked for: the margin of few rows, the distance of others, what draws say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from coremargin.formats.model_record import WHOLE
from coremargin.verify.claim import Claim, two_classes

if TYPE_CHECKING:
    from coremargin.formats.active import Active
    from coremargin.formats.answers import Answers
    from coremargin.formats.asked import Evidence
    from coremargin.formats.campaign import Campaign
    from coremargin.formats.model_files import ModelFiles


@dataclass(frozen=True)
class Signed:
    """Rows and the sides, -1 or 1, that they are said to lie on: ids (n,) ascending, signs (n,)."""

    ids: np.ndarray
    signs: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, signs: np.ndarray) -> Signed:
        """Rows in any order."""
        order = np.argsort(ids, kind="stable")
        return cls(ids[order], signs[order].astype(np.int64))

    def within(self, start: int, stop: int) -> Signed:
        """Those of the rows [start, stop), counted from ``start``."""
        a, b = np.searchsorted(self.ids, (start, stop))
        return Signed(self.ids[a:b] - start, self.signs[a:b])


@dataclass(frozen=True)
class History:
    """A campaign's folder: what it is about, and its log."""

    campaign: Campaign
    answers: Answers


@dataclass(frozen=True, kw_only=True)
class ActiveClaim(Claim):
    """``method`` and so on as in the parameters; signs are those of the answers."""

    method: str
    error: float
    confidence: float
    seed: int
    evidence: Evidence | None
    log: str | None
    answered: Signed  #: all rows with an answer, but for the draws
    draws_ids: np.ndarray  #: in the order drawn
    draws_signs: np.ndarray
    history: History | None = None  #: of the campaign whose model this is, where its folder was given
    late: Signed | None = None  #: rows answered after the line of the log that the model is about

    @property
    def of_others(self) -> bool:
        """Whether something is claimed of the labels of rows without an answer."""
        return self.status == "certified" or self.evidence is not None

    @property
    def draws(self) -> Signed:
        """The rows drawn, by number."""
        return Signed.of(self.draws_ids, self.draws_signs)


def active_claim(files: ModelFiles) -> ActiveClaim:
    """What the model in these files claims."""
    record, arrays = cast("Active", files.record), files.arrays
    asked = record.parameters
    return ActiveClaim(
        **two_classes(files, WHOLE, soft=False),
        method=asked.method, error=asked.error, confidence=asked.confidence, seed=asked.seed,
        evidence=record.evidence, log=record.log,
        answered=Signed.of(arrays["answered_ids"], arrays["answered_signs"]),
        draws_ids=arrays["draws_ids"], draws_signs=arrays["draws_signs"].astype(np.int64),
    )  # fmt: skip
