"""The commits of its store that a campaign has come through, as its log names them: each the one before, and more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.checks import Check

if TYPE_CHECKING:
    from coremargin.verify.active.claim import History
    from coremargin.verify.rows import Rows


_TOLD = 3  #: problems that people are told


@dataclass(frozen=True)
class Ground:
    """A commit; line: of the log that names it, 0 for that of the campaign's file; attempt: the first drawn from it."""

    line: int
    rows: int
    digest: str
    attempt: int

    @property
    def place(self) -> str:
        """Where it is named."""
        return f"line {self.line} (grow)" if self.line else "the campaign"


def commits_of(history: History, last: int) -> list[Ground]:
    """Those that are named up to a line of the log."""
    first = Ground(0, history.campaign.rows, history.campaign.digest, 1)
    growths = (line for line in history.answers.growths if line.number <= last)
    return [first, *(Ground(line.number, line.rows, line.digest, line.attempt) for line in growths)]


def extended(rows: Rows, ground: Sequence[Ground]) -> list[Check]:
    """Whether each commit but the last, which is the model's own, is the beginning of the rows; after a scan of them.

    Nothing is said where there is one only.
    """
    problems, known = list[str](), {(commit.rows, commit.digest) for commit in rows.commits}
    for one in ground[:-1]:
        if len(problems) == _TOLD:
            break
        if (one.rows, one.digest) not in known:
            problems.append(f"{one.place} names {one.rows:,} rows, {one.digest}: the store has no such commit")
        elif (found := rows.beginning(one.digest)) != one.digest:
            text = f"the store's first {one.rows:,} rows are {found}: more was done than to append rows"
            problems.append(f"{one.place} names {one.digest}, {text}")
    if len(ground) < 2:
        return []
    steps = f"from {ground[0].rows:,} rows to {ground[-1].rows:,}, those from before unchanged"
    return [Check("growth", not problems, "; ".join(problems) or steps)]


@dataclass(frozen=True)
class Then:
    """The rows of a store as they were at a commit of it."""

    now: Rows
    rows: int
    digest: str

    @classmethod
    def at(cls, rows: Rows, ground: Sequence[Ground], attempt: int) -> Then:
        """Those that an attempt was drawn from."""
        of = ground[bisect_right(ground, attempt, key=lambda one: one.attempt) - 1]
        return cls(rows, of.rows, of.digest)

    def weigh(self, rows: np.ndarray) -> np.ndarray:
        """Which of these rows (n,), by number, have a weight above 0."""
        return self.now.weigh(rows)
