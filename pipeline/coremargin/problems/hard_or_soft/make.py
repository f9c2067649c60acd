"""From a job that tries a hard margin first, and rows, to a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.fleet.make import fleet_of
from coremargin.problems.hard.make import problem_of as hard_of
from coremargin.problems.hard_or_soft.problem import HardOrSoft
from coremargin.problems.soft.make import problem_of as soft_of

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.fleet.fleet import Fleet
    from coremargin.problems.hard_or_soft.spec import HardOrSoftJob


def problem_of(job: HardOrSoftJob, source: Source) -> HardOrSoft | Fleet:
    """Both problems on these rows; of more than two classes a fleet. Raises LabelError for fewer than two."""
    if np.count_nonzero(source.scalars().counts.sum(axis=0)) > 2:
        return fleet_of(job.against_the_rest(), source)
    return HardOrSoft(source, hard_of(job.hard(), source), soft_of(job.soft(), source))
