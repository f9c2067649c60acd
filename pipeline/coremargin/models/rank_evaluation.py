"""How well scores order the rows of each group, by pairs of rows with different labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.group_parts import group_parts, groups_of
from coremargin.errors import LabelError
from coremargin.maths.structures.pairs import count_pairs
from coremargin.models.executor import probe_in_order
from coremargin.models.matching import scorer_for

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Block
    from coremargin.models.decision import Scorer
    from coremargin.models.fleet import AnyModel


@dataclass(frozen=True)
class RankEvaluation:
    """Pairs of rows of a group with different labels, whatever their weights.

    rows: with labels; groups: with pairs; ties: pairs with equal scores. in_order: share of all pairs whose row with
    the larger label has the higher score, ties counting half, None without pairs; mean_in_order: the mean of this share
    over groups. In a group with two labels the share is its area under the ROC curve.
    """

    rows: int
    unlabelled: int
    groups: int
    pairs: int
    ties: int
    in_order: float | None
    mean_in_order: float | None
    source: str = field(compare=False)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _CountOrder:
    """The probe: of the groups that begin in each chunk, rows, those with labels, and pairs, those in order and tied.

    level: of each label code, -1 for rows without a label.
    """

    scorer: Scorer
    level: np.ndarray

    def __call__(self, source: Source, block: Block) -> list[tuple[int, int, np.ndarray]]:
        return [self._of(source, chunk) for chunk in block.chunks]

    def _of(self, source: Source, chunk: int) -> tuple[int, int, np.ndarray]:
        counts, rows, labelled = np.zeros((3, 0), np.int64), 0, 0
        for part in group_parts(source, [chunk]):
            scores = self.scorer.values(part.rows, partial(_place, source.name, part.start))
            levels, k = self.level[part.codes], len(part.offsets) - 1
            mine = np.flatnonzero(levels >= 0)
            groups = np.repeat(np.arange(k), np.diff(part.offsets))[mine]
            own, levels = scores[mine], levels[mine]
            every = count_pairs(np.zeros(len(own)), levels, groups, 1.0)[0]
            wrong = count_pairs(own, levels, groups, 0.0)[0]
            right = count_pairs(-own, levels, groups, 0.0)[0]
            found = [np.zeros(k, np.int64) for _ in range(3)]
            for total, per_row in zip(found, (every, right, wrong), strict=True):
                np.add.at(total, groups, per_row)
            counts, rows, labelled = np.stack(found), len(part.codes), len(mine)
        return rows, labelled, counts


def _place(name: str, first: int, row: int) -> str:
    return f"{name}, row {first + row}"


def rank_evaluation(
    model: AnyModel, source: Source, cluster: Cluster, on_progress: Callable[[int, int], object] | None
) -> RankEvaluation:
    """The pairs that a ranking has in order. Raises LabelError for labels that are words, UsageError for no groups."""
    groups_of(source)
    words = [label for label in source.classes if isinstance(label, str)]
    if words:
        raise LabelError(f"{source.name}: expected labels that are numbers, the higher the better, found {words[0]!r}")
    order = sorted(range(len(source.classes)), key=lambda code: source.classes[code])
    level = np.full(len(order) + 1, -1, np.int32)
    level[order] = np.arange(len(order))
    done = labelled = groups = 0
    totals, shares = np.zeros(3, np.int64), 0.0
    with probe_in_order(source, _CountOrder(scorer_for(model, source), level), cluster) as found:
        for rows, known, counts in (tally for block in found for tally in block):
            done, labelled = done + rows, labelled + known
            every, right, wrong = counts[:, counts[0] > 0]
            groups += len(every)
            totals += counts.sum(axis=1)
            shares += float(((every + right - wrong) / (2 * every)).sum())
            if on_progress is not None:
                on_progress(done, source.rows)
    pairs, right, wrong = totals.tolist()
    return RankEvaluation(
        labelled,
        source.rows - labelled,
        groups,
        pairs,
        pairs - right - wrong,
        (pairs + right - wrong) / (2 * pairs) if pairs else None,
        shares / groups if groups else None,
        source.name,
    )
