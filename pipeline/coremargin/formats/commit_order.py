"""Which of a store's commits are read for the last one: later ones repeat what earlier ones say, and supersede it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from coremargin.formats.limits import MOST_ROWS


class Covering(Protocol):
    """A commit, as far as ``spans`` and ``changes`` go."""

    @property
    def first(self) -> int: ...  # noqa: D102
    @property
    def last(self) -> int: ...  # noqa: D102
    @property
    def changed(self) -> int: ...  # noqa: D102
    @property
    def since(self) -> int: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102


C = TypeVar("C", bound=Covering)


def group_of(number: int) -> str:
    """The group of a commit, by its place among all."""
    return f"{number:06d}"


def spans(commits: Sequence[C]) -> list[tuple[int, int, C]]:
    """Which chunks [first, stop) which commit's group describes, of a record's first commits, in order, none twice.

    Groups repeat what earlier ones say and supersede it, so that few are read.
    """
    found, stop = [], commits[-1].last
    for commit in reversed(commits):
        if commit.first < stop:
            found.append((commit.first, stop, commit))
            stop = commit.first
    return found[::-1]


def changes(commits: Sequence[C]) -> list[tuple[int, int, C]]:
    """Which groups of changed labels are read of a record's first commits, in order: (number, stop, commit).

    Of their entries those of chunks below ``stop`` count: a later commit of rows describes the others again.
    """
    found, stop, since = list[tuple[int, int, C]](), commits[-1].last, MOST_ROWS
    for commit in reversed(commits):
        if not commit.changed:
            stop = min(stop, commit.first)
        elif commit.number < since:
            found.append((commit.number, stop, commit))
            since = commit.since
    return found[::-1]


def effective_commits(commits: Sequence[C]) -> list[C]:
    """Those that are read for the last one: later ones repeat everything that the others still contribute."""
    read = {id(commit) for _, _, commit in (*spans(commits), *changes(commits))} | {id(commits[-1])}
    return [commit for commit in commits if id(commit) in read]
