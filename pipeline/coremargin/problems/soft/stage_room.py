"""What there is room for in a soft margin's first read: which stages it has, what they keep, how many rows at home."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coremargin.formats.limits import CURVE_FEATURES
from coremargin.problems.common.sizes import row_bytes
from coremargin.problems.common.stages import Stages, plan_stages, stage_growth
from coremargin.problems.soft.base import KNOWN, NEAR_PART
from coremargin.problems.soft.first_read import CROSSING, FirstRead
from coremargin.problems.soft.hinge_read import HingeRead
from coremargin.problems.soft.onward import STAGES
from coremargin.problems.soft.problem import NEAR_BYTES_LEAST, SoftMargin
from coremargin.problems.soft.squared_read import SquaredRead
from coremargin.problems.soft.stage_probe import rings_of

Array = NDArray[np.float64]

#: Shares of the memory for the matrices of all stages, and for rows at home.
STAGES_PART, HOME_PART = 0.25, 0.5
#: The squared hinge's dual takes hypotheses that are near the last one: so many of its stages grow slowly.
SLOWLY = 4
#: Values of rows at home, of all problems that share a read, for each row of the store, up to which one read less saves
#: more than solving them costs: jobs/bench/README.md has what was measured. Hinges that differ in C and folds have
#: nearly the same rows at home, and each begins with the solution before.
PAYS, PAYS_ALIKE = 8, 64
#: Rows of a sample for each number of a hypothesis, times epsilon, and room for rows near the margin, as a share of
#: all, with which the scan behind the sample proved hinges on noisy rows.
ENOUGH, ROOM = 1.5, 0.1
#: Sums that a model keeps take no more than this share of the bytes of all rows.
MOST_OF_ROWS = 0.6


@dataclass(frozen=True)
class RoomForStages(SoftMargin):
    """``SoftMargin`` whose first read may be made in stages.

    in_stages: whether a job from nothing begins so; else it begins as ``SoftMargin`` does, and only goes on in stages.
    first_chunks: of the first stage, where several problems are read together.
    """

    in_stages: bool = True
    first_chunks: tuple[int, ...] | None = None

    @cached_property
    def fits_stages(self) -> bool:
        """Whether that can be done: by sums, where there are stages, and room for their matrices."""
        by_sums = not self.all_cached and not self.in_segments
        checked = self.loss.names_duals or self.source.features <= CURVE_FEATURES
        return by_sums and checked and 1 < self.stages.count <= STAGES_PART * self.memory_bytes / self._matrices

    def pays_together(self, *, alike: bool) -> bool:
        """Whether problems that share a read gain by stages: each has its rows at home to solve, the read is shared.

        alike: they differ in C and folds only.
        """
        most = PAYS_ALIKE if alike and self.loss.names_duals else PAYS
        at_home = self.sharing * self._first_read.at_home
        return self.sharing == 1 or at_home * self.source.features <= most * self.source.rows

    @property
    def sample_is_enough(self) -> bool:
        """Whether one scan is likely to prove what a sample says, so that stages would save no read of all rows."""
        shown = self.source.scalars().counts[np.ix_(self.sample_chunks, self.codes)].sum()
        wanted = ENOUGH * (self.source.features + 1) / self.epsilon
        room = self.memory_bytes * HOME_PART / row_bytes(self.source)
        return bool(self.loss.names_duals and min(shown, self._solvable) >= wanted and room >= ROOM * self.source.rows)

    @property
    def _matrices(self) -> int:
        """Bytes of the matrices of a stage, those of all problems that share the memory."""
        return 8 * (self.source.features + 1) ** 2 * self._rings * self.sharing

    @property
    def _reads(self) -> type[FirstRead]:
        return HingeRead if self.loss.names_duals else SquaredRead

    @property
    def _rings(self) -> int:
        return rings_of(self.edges, CROSSING, curves=self.loss.curves)

    @property
    def edges(self) -> int:
        """Of the rings of a stage."""
        return CROSSING + 1 + len(self._reads.BEYOND)

    @property
    def sample_chunks(self) -> list[int]:
        """Those of the first stage, or as of ``SoftMargin``."""
        return super().sample_chunks if self.first_chunks is None else list(self.first_chunks)

    @cached_property
    def stages(self) -> Stages:
        """Which chunks the stages of the first read are about."""
        growth = stage_growth(self.source.rows, self.source.features)
        return plan_stages(self.source.chunks, self.sample_chunks, growth, slowly=SLOWLY if self.loss.curves else 0)

    @property
    def stage_chunks(self) -> tuple[int, ...]:
        """Of the first read."""
        return self.stages.sizes if self.in_stages else ()

    @property
    def reads_again(self) -> bool:
        """Where stages leave too much open."""
        return True

    @property
    def least_block_bytes(self) -> int:
        """A stage's summaries hold a matrix for each ring: no more of them than fit into the memory."""
        source = self.source
        if not (self.in_stages or self.keeps_sums):
            return super().least_block_bytes
        return source.nbytes * self._matrices // self.memory_bytes + source.nbytes // source.chunks + 1

    @property
    def most_at_home(self) -> int:
        """Rows at home that there is room for."""
        return int(self.memory_bytes * HOME_PART / (row_bytes(self.source) + KNOWN))

    @property
    def _most_stages(self) -> int:
        """Stages whose matrices there is room for, where the store has changed since they were read."""
        return max(2, min(STAGES, int(STAGES_PART * self.memory_bytes / self._matrices)))

    @property
    def _few_stages(self) -> int:
        """Stages whose matrices take little beside their rows: where there are more, no stage is made of new rows."""
        return int(MOST_OF_ROWS * self.source.nbytes / self._matrices)

    @cached_property
    def _first_read(self) -> FirstRead:
        size, total_c = 8 * (self.source.features + 1), self.class_c * self.totals
        least, room = NEAR_BYTES_LEAST // size, self.most_at_home
        live = min(self._solvable, int(self.memory_bytes * NEAR_PART[False] / size))
        return self._reads(self.objective, total_c, self.stages, least, room, live, self.sharing)

    @property
    def keeps_sums(self) -> bool:
        """Whether sums of far rows may be kept: there is room for them, and they take less than their rows."""
        checked = self.loss.names_duals or self.source.features <= CURVE_FEATURES
        return checked and self._few_stages > 0 and 2 * self._matrices <= STAGES_PART * self.memory_bytes
