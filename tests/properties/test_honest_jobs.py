"""Random honest jobs of all kinds: none crashes, what is saved verifies, and no bound is on the wrong side.

``honest_jobs.py`` draws and runs them. To run others than these: ``HONEST_JOBS=20000:21000`` beside ``-m slow``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from honest_jobs import KERNEL_RELATIVE, KINDS, LOGISTIC, RELATIVE, all_done, drawn

#: Slow ones: how many in all, and how many a test runs.
JOBS, SHARD = 3000, 100
QUICK = 40
FIRST, LAST = (int(part) for part in os.environ.get("HONEST_JOBS", f"{QUICK}:{JOBS}").split(":"))


def assert_honest(numbers: range, folder: Path) -> None:
    """All of these jobs end as they should, and not nearly all of them in an error."""
    counts, wrong = all_done(numbers, folder)
    assert not wrong, f"{len(wrong)} of {len(numbers)} jobs:\n" + "\n".join(wrong[:10])
    assert counts["certified"] >= len(numbers) // 5, counts


@pytest.mark.slow
@pytest.mark.parametrize("first", [*range(0, QUICK, 10), LOGISTIC, RELATIVE, KERNEL_RELATIVE])
def test_honest_jobs_verify(first: int, tmp_path: Path) -> None:
    """A few random jobs of all kinds end in models that verify and whose bounds are true, or in errors of our own."""
    assert_honest(range(first, first + 10), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "first",
    [
        *range(FIRST, LAST, SHARD),
        *(kind + first for kind in (LOGISTIC, RELATIVE, KERNEL_RELATIVE) for first in (100, 200)),
    ],
)
def test_many_honest_jobs_verify(first: int, tmp_path: Path) -> None:
    """The same of thousands of jobs."""
    assert_honest(range(first, first + SHARD if first >= LOGISTIC else min(first + SHARD, LAST)), tmp_path)


def test_jobs_of_all_kinds_are_drawn() -> None:
    """A few hundred numbers name jobs of every kind, weighted and not, sparse and dense, with histories of changes."""
    jobs = [drawn(number) for number in range(400)]
    assert {job.kind for job in jobs} == set(KINDS)
    assert {(job.sparse, job.weights is None, job.steps > 0) for job in jobs} >= {
        (True, True, False), (True, False, False), (False, True, True), (False, False, True),
    }  # fmt: skip
