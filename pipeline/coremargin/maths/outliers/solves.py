"""Certificates found: few of the rows that are there whose own best margin is at most the threshold.

Plain code on arrays, which numba compiles (compiled.py).

A solve stops as soon as its side of the threshold is clear. What it stops with may hold rows that it does not need:
each is taken out in turn, the lightest first, and stays out where the others alone are still below the threshold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coremargin.maths.nearest import SHORT, ZERO, Array, Face, Limits, Numbers, walk

#: What a row is at a node: free, left out, or bound to stay.
FREE, OUT, KEPT = range(3)


class Arena(NamedTuple):
    """The rows of a search as its solves see them: z (n, d), tier by tier, each group side by side.

    groups (n,); tiers (t, groups + 1) as ``walk`` takes them; squares (n,): ||z||^2; margins (n,) under the incumbent;
    suspects (k,): the lowest of these, the highest first; suspect (n,): whether a row is one of them.
    """

    rows: Array
    groups: Numbers
    tiers: Numbers
    squares: Array
    margins: Array
    suspects: Numbers
    suspect: np.ndarray


class Draft(NamedTuple):
    """A certificate in the making: its rows and weights are the first ``size[0]`` of these (m,)."""

    rows: Numbers
    weights: Array
    size: Numbers


class Bench(NamedTuple):
    """What solves work with: the face of all rows, weights and blocked (n,); one for few rows, and theirs.

    start (n,): weights that a solve begins with, as far as these rows are there; last (n,): those of the last that
    found nothing. effort (1,): products so far. draft: what was found last.
    """

    face: Face
    weights: Array
    blocked: Array
    few: Face
    few_weights: Array
    few_blocked: Array
    start: Array
    last: Array
    effort: Numbers
    draft: Draft


def start_from(arena: Arena, bench: Bench) -> bool:
    """Weights to begin with: those of ``start`` on rows that are there, each group's shortest row where none has any.

    False where a group has no rows: its margin has no bound.
    """
    weights, there, count = bench.weights, bench.blocked == 0.0, arena.tiers.shape[1] - 1
    weights[:] = np.where(there, bench.start, 0.0)
    total = np.bincount(arena.groups, weights, count)
    for group in range(count):
        if total[group] <= 0:
            squares = np.where(there & (arena.groups == group), arena.squares, np.inf)
            row = squares.argmin()
            if squares[row] == np.inf:
                return False
            weights[row] = total[group] = 1.0
    weights /= total[arena.groups]
    return True


def solve(arena: Arena, bench: Bench, limits: Limits) -> bool:
    """Whether the rows that are there allow no margin above the threshold; the weights say why, or why not.

    Where rounding stops the solve too early to tell, or a group is empty, the answer is no: nothing rests on that.
    """
    if not start_from(arena, bench):
        return False
    status, _, steps = walk(bench.face, bench.weights, bench.blocked, arena.tiers, limits)
    n, d = arena.rows.shape
    bench.effort[0] += steps * d * (min(n, arena.tiers[0, -1]) + 4 * len(bench.face.head)) + n * d
    return status in (SHORT, ZERO)


def take(arena: Arena, bench: Bench) -> None:
    """The support of the last solve as a certificate, each group side by side."""
    draft, size = bench.draft, 0
    for group in range(arena.tiers.shape[1] - 1):
        for row in bench.face.members[: bench.face.counts[0]]:
            if arena.groups[row] == group and bench.weights[row] > 0:
                draft.rows[size], draft.weights[size] = row, bench.weights[row]
                size += 1
    draft.size[0] = size


def shrink(arena: Arena, bench: Bench, status: np.ndarray, limits: Limits, most: int) -> None:
    """The certificate without rows that it does not need, as far as an effort of ``most`` goes.

    status (n,): what each row is; those that are bound to stay need not go.
    """
    draft, m = bench.draft, bench.draft.size[0]
    face, weights, blocked = bench.few, bench.few_weights[:m], bench.few_blocked[:m]
    tiers = np.zeros((1, arena.tiers.shape[1]), np.int64)
    for i in range(m):
        face.rows[i], face.groups[i] = arena.rows[draft.rows[i]], arena.groups[draft.rows[i]]
        tiers[0, face.groups[i] + 1 :] = i + 1
    weights[:], blocked[:] = draft.weights[:m], 0.0
    few = Face(
        face.rows[:m], face.groups[:m], face.q, face.r, face.head, face.members, face.reference, face.counts,
        face.origin, face.point,
    )  # fmt: skip
    for i in np.argsort(draft.weights[:m], kind="mergesort"):
        if bench.effort[0] >= most:
            break
        if status[draft.rows[i]] == KEPT or weights[i] == 0:
            continue
        others = (weights * (few.groups == few.groups[i])).sum() - weights[i]
        if others <= 0:
            continue
        before = weights.copy()
        weights[few.groups == few.groups[i]] /= others
        weights[i], blocked[i] = 0.0, np.inf
        ended, _, steps = walk(few, weights, blocked, tiers, limits)
        bench.effort[0] += (5 * steps + m) * m * arena.rows.shape[1]
        if ended not in (SHORT, ZERO):
            weights[:], blocked[i] = before, 0.0
    size = 0
    for i in range(m):
        if weights[i] > 0:
            draft.rows[size], draft.weights[size] = draft.rows[i], weights[i]
            size += 1
    draft.size[0] = size
