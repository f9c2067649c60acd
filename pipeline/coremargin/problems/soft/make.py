"""Soft margins from what a job says."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from coremargin.problems.soft.base import SoftBase
from coremargin.problems.soft.block_minimisation import BlockMinimisation
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.staged import StagedSoftMargin

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.problems.soft.problem import SoftMargin
    from coremargin.problems.soft.spec import SoftMarginJob


def problem_of(job: SoftMarginJob, source: Source) -> SoftMargin | BlockMinimisation:
    """The problem on these rows, by the method that fits them."""
    problem = StagedSoftMargin(
        source,
        job.epsilon,
        LOSSES[job.loss],
        job.cost,
        job.class_weight,
        job.intercept,
        job.memory_bytes,
        1,
        sample_share=job.sample,
    )
    return problem if problem.fits_stages else soft_margin(in_scans(problem))


def in_scans(problem: StagedSoftMargin) -> StagedSoftMargin:
    """The same problem, begun by a sample and scans of all rows."""
    return replace(problem, in_stages=False)


def soft_margin(problem: SoftMargin) -> SoftMargin | BlockMinimisation:
    """The problem by the method that fits it: where rows fit into no form, that of segments."""
    if not problem.in_segments:
        return problem
    return BlockMinimisation(base_of(problem))


def base_of(problem: SoftMargin) -> SoftBase:
    """What it minimises, with no method."""
    return SoftBase(**_fields(problem))


def _fields(problem: SoftBase) -> dict[str, Any]:
    """What a soft margin is made of, by whatever method."""
    return {field.name: getattr(problem, field.name) for field in fields(SoftBase)}
