"""A store that grows while a campaign goes on: its commits, and what a state makes of the next one.

A campaign begins with one commit of its store. Where rows were appended since, a line of the log names the commit that
all that follows is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from coremargin.active import transitions
from coremargin.active.facts import changed, problem_at
from coremargin.active.map_file import read_kept_map
from coremargin.data.scaled import scaling_of
from coremargin.data.store import Store

if TYPE_CHECKING:
    from coremargin.formats.answers import Growth
    from coremargin.formats.campaign import Campaign
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.spec import ActiveJob
    from coremargin.problems.active.state import ActiveState


class At(NamedTuple):
    """A commit of a store."""

    rows: int
    digest: str


class Grown(NamedTuple):
    """A later commit of a store, opened, and the state that knows that there are more rows."""

    at: At
    store: Store
    problem: ActiveMargin
    state: ActiveState


class Ground:
    """The store as a campaign knows it, and the problem on its rows; both are of one commit, ``at``.

    Raises StoreError for a store that lost or changed rows, whenever it looks, and DataError for a map that is lost or
    another one.
    """

    def __init__(self, facts: Campaign, job: ActiveJob) -> None:
        self._facts, self._job, self._map = facts, job, read_kept_map(job.out, facts)
        self._go_to(At(facts.rows, facts.digest))

    def _go_to(self, at: At) -> None:
        self.store: Store
        self.problem: ActiveMargin
        self.store, self.problem = problem_at(self._job, *at, self._map)
        self.at = at

    def after(self, growths: Iterable[Growth]) -> None:
        """Open the commit that a campaign is about after these lines of its log."""
        found = At(self._facts.rows, self._facts.digest)
        for line in growths:
            found = At(line.rows, line.digest)
        if found != self.at:
            self._go_to(found)

    def grown(self, state: ActiveState, codes: Mapping[int, int], at: At, attempt: int) -> Grown:
        """Open a later commit, with the state that knows that there are more rows; nothing here changes.

        What it knew of rows without an answer was of those before: no scan has seen all of them now, and draws were
        drawn from fewer. codes: all answers that hold; attempt: the first one with those rows.
        """
        store, problem = problem_at(self._job, *at, self._map)
        problem.source.scalars()  # statistics of all chunks, and where labels lie: else they are read when first wanted
        store.readers()
        after = transitions.recompute(problem, _read_anew(problem, state), codes, spent=attempt - 1)
        return Grown(at, store, problem, after)

    def come(self, grown: Grown) -> None:
        """Go on with a commit that was opened."""
        self.at, self.store, self.problem = grown.at, grown.store, grown.problem

    def newest(self) -> At | None:
        """The last commit of the store, where it has more rows than this one; each has all rows of those before."""
        newest = Store.open(self.store.path, map_bytes=0)
        last = At(newest.rows, newest.digest)
        if self.at != last and self.at not in [At(entry.commit.rows, entry.commit.digest) for entry in newest.log]:
            raise changed(self._job, self.at.digest, f"{newest.commits:,} commits without it")
        return last if last.rows > self.at.rows else None


def _read_anew(problem: ActiveMargin, state: ActiveState) -> ActiveState:
    """With the rows in memory as they are now: the means and ranges that they are scaled by are those of all rows."""
    source = problem.source
    if scaling_of(source) is None:
        return state
    answered, resident = state.answered, state.resident
    return replace(
        state,
        answered=replace(answered, rows=source.rows_at(answered.ids)[0]),
        resident=replace(resident, rows=source.rows_at(resident.ids)[0].astype(source.dtype)),
    )
