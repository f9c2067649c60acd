"""What a job asks of a candidate; gates.py holds one against it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from coremargin.spec import Spec

Share = Annotated[float, Meta(ge=0, le=1)]
SCORES = ("accuracy", "f1", "balanced_accuracy")


class Gates(Spec, frozen=True, kw_only=True):
    """What is asked of a candidate; None: nothing.

    certified: the proof that was asked for is there. verify: ``coremargin verify`` passes, which reads all rows.
    ratio: of the bounds, at least. held_out: a store that no model is trained on; accuracy, f1, balanced_accuracy: on
    it at least the champion's less so much. worse: the exact paired test (McNemar) must not say, at this level, that
    the candidate is worse. shrink: the share of the champion's rows that may be gone, those that were taken out or
    have expired too; 1: any. drift: how far the mean of a feature of the new rows may lie from that of the old ones,
    in standard deviations of these. class_shift: how much the share of a class may change; class_shares: from which
    share to which each label may have.
    """

    certified: bool = True
    verify: bool = True
    ratio: Share | None = None
    held_out: Path | None = None
    accuracy: Share | None = None
    f1: Share | None = None
    balanced_accuracy: Share | None = None
    worse: Share | None = None
    shrink: Share | None = 0.2
    drift: Annotated[float, Meta(gt=0)] | None = None
    class_shift: Share | None = None
    class_shares: dict[str, tuple[Share, Share]] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a gate without its held-out store."""
        asked = [name for name in (*SCORES, "worse") if getattr(self, name) is not None]
        if asked and self.held_out is None:
            raise ValueError(f"{asked[0]}: needs held_out, a store that no model is trained on")
