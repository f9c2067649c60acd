"""The losses that there are, by the names that jobs and records have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.soft.losses.hinge import Hinge
from coremargin.problems.soft.losses.squared_hinge import SquaredHinge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.choices import Loss as Word
    from coremargin.problems.soft.losses.loss import Loss

LOSSES: Mapping[Word, Loss] = {loss.word: loss for loss in (Hinge(), SquaredHinge())}
