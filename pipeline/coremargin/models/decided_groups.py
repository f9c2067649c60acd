"""What a model decides about the rows of groups: of a group together, or each row for itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from coremargin.data.group_parts import group_parts
from coremargin.models.decision import decided
from coremargin.models.sequence_scorer import SequenceScorer
from coremargin.models.user_scorer import UserScorer

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.group_parts import GroupPart
    from coremargin.data.source import Source
    from coremargin.models.decision import Scorer


class DecidedGroups(NamedTuple):
    """Some groups, places (n,) of the labels of their rows among the model's, and decision values (n,) or (n, k)."""

    part: GroupPart
    places: np.ndarray
    values: np.ndarray


def decide_groups(scorer: Scorer, source: Source, chunks: Sequence[int]) -> Iterator[DecidedGroups]:
    """What is decided about the groups that begin in these chunks, in order.

    Raises UsageError (rows without groups), BadRow, DamagedChunk.
    """
    for part in group_parts(source, chunks):
        yield DecidedGroups(part, *decide(scorer, part, source.name))


def decide(scorer: Scorer, part: GroupPart, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Places (n,) of the labels of the rows of some groups, and decision values; name: of the source."""

    def place(row: int) -> str:
        return f"{name}, row {part.start + row}"

    if isinstance(scorer, SequenceScorer | UserScorer) and scorer.grouped:
        return scorer.label(part.rows, part.offsets, place)
    values = scorer.values(part.rows, place)
    return decided(values), values
