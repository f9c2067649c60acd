"""How the rows of a stream are mapped: by a map that is fitted to its first batch, and stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coremargin.active.map_file import with_gamma
from coremargin.data.arrays import ArraySource
from coremargin.data.map_fit import fitted
from coremargin.data.mapped import mapped
from coremargin.maths.rows import take
from coremargin.problems.active.make import asked_problem
from coremargin.problems.common.driver_rows import DriverRows

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.mapping import FeatureMap
    from coremargin.maths.rows import Rows
    from coremargin.problems.active.answered import Answered
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.spec import ActiveJob


class StreamMap:
    """The map of a stream, none before its first batch; rows that are answered are kept as they came, too."""

    def __init__(self) -> None:
        self._map: FeatureMap | None = None
        self._answered = list[DriverRows]()

    def begun(self, job: ActiveJob, batch: ArraySource) -> tuple[ActiveJob, ActiveMargin]:
        """The job with a number for gamma, and its problem on one row of the first batch, which stays as long.

        Raises UsageError for a map that does not fit these rows, such as one of more landmarks than there are.
        """
        job = with_gamma(job, batch)
        self._map = None if job.asked_map is None else fitted(batch, job.asked_map)
        one = ArraySource(batch.rows_at(np.arange(1))[0].astype(batch.dtype))
        return job, asked_problem(job, self.shown(one))

    def shown(self, source: Source) -> Source:
        """A source with its rows mapped, where rows are. Raises UsageError for rows whose mapping rounding decides."""
        return mapped(source, self._map)

    def of(self, rows: DriverRows) -> DriverRows:
        """Rows as a hypothesis is about them."""
        if self._map is None or not len(rows):
            return rows
        return replace(rows, rows=self.shown(ArraySource(rows.rows)).rows_at(np.arange(len(rows)))[0])

    def keep(self, rows: DriverRows) -> None:
        """Keep rows with answers as they came."""
        if self._map is not None:
            self._answered.append(rows)

    def as_they_came(self, answered: Answered) -> Rows:
        """The rows (m, d) with answers, in their order."""
        if self._map is None:
            return answered.rows
        rows = DriverRows.concatenate(self._answered).in_order()
        return take(rows.rows, np.searchsorted(rows.ids, answered.ids))
