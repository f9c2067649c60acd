"""The nodes of the search, one after the other: bounds by certificates, branching; explore.py has the idea.

Plain code on arrays, which numba compiles (compiled.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coremargin.maths.outliers.hitting import (
    ACTIVE,
    CHOSEN,
    LEFT,
    LENGTH,
    MOST,
    NEAR,
    PACKED,
    Book,
    Node,
    combine,
    enter,
    free_row,
    leave_out,
    look_through,
    pack,
    pack_one,
    residual_of,
    suspicious_row,
)  # fmt: skip
from coremargin.maths.outliers.solves import FREE, KEPT, Arena, Bench, Draft, shrink, solve, take

if TYPE_CHECKING:
    from coremargin.maths.nearest import Limits, Numbers

#: With more rows that are bound to stay, suspects are no longer looked at one by one: it would cost more than it saves.
FEW = 8

#: What comes next for a node.
END, AGAIN, SPLIT, PAUSE = range(4)

#: Places in ``Out.counts``: entries of the lists, and what was done.
OPEN, LEAVES, CANDIDATES, NODES, WORK = range(5)


class Lists(NamedTuple):
    """Lists of numbers one behind the other: number i lies in ends[i] : ends[i + 1]; there is room for more."""

    values: Numbers
    ends: Numbers


class Out(NamedTuple):
    """Paths of open nodes, the last one next; of leaves, and the certificates that end these; of candidates."""

    open: Lists
    leaves: Lists
    proofs: Lists
    candidates: Lists
    counts: Numbers


class Ask(NamedTuple):
    """What is asked: see ``explore.Question``."""

    k: int
    budget: int
    effort: int
    most_candidates: int
    root_only: bool


class Task(NamedTuple):
    """All that a task works with."""

    node: Node
    book: Book
    out: Out
    arena: Arena
    bench: Bench
    ask: Ask
    limits: Limits


def put(lists: Lists, number: int, values: Numbers) -> None:
    """Values as entry ``number``, the last one."""
    first = lists.ends[number]
    lists.values[first : first + len(values)] = values
    lists.ends[number + 1] = first + len(values)


def has_room(lists: Lists, number: int, entries: int, values: int) -> bool:
    """Whether so many further entries, of so many values in all, fit behind entry ``number``."""
    return number + entries < len(lists.ends) and lists.ends[number] + values <= len(lists.values)


def leaf(node: Node, out: Out, proof: Numbers) -> None:
    """The node ends, by these certificates."""
    put(out.leaves, out.counts[LEAVES], node.path[: node.counts[LENGTH]])
    put(out.proofs, out.counts[LEAVES], proof)
    out.counts[LEAVES] += 1


def propagate(node: Node, book: Book, out: Out) -> bool:
    """Leave out what must be left out: the only free row of a certificate. False when that ends the node."""
    least = look_through(book, node, False)
    while least >= 0 and (node.residual[least] <= 1 or node.counts[LEFT] == 0):
        proof = np.array([least])
        if node.residual[least] == 0 or node.counts[LEFT] == 0:
            leaf(node, out, proof)
            return False
        row, length = free_row(book, node, least), node.counts[LENGTH]
        node.path[length] = ~row  # to keep it is a branch that ends at once
        node.counts[LENGTH] += 1
        leaf(node, out, proof)
        node.counts[LENGTH] = length
        leave_out(node, row)
        least = look_through(book, node, True)
    return True


def prepare(node: Node, bench: Bench, arena: Arena, suspect: int, only_kept: bool) -> None:
    """Which rows the next solve has: none that is left out or packed, of suspects this one alone, if any is named.

    only_kept: the rows that are bound to stay, alone.
    """
    there = node.status == KEPT
    if not only_kept:
        there |= (node.status == FREE) & ~node.taken
    bench.blocked[:] = np.where(there, 0.0, np.inf)
    if suspect >= 0:
        for row in arena.suspects:
            if row != suspect and node.status[row] == FREE:
                bench.blocked[row] = np.inf


def record(node: Node, book: Book, draft: Draft) -> int:
    """The certificate found, as the last one of the book, packed; its number."""
    number = int(book.size[0])
    first, size = book.ends[number], draft.size[0]
    book.rows[first : first + size] = draft.rows[:size]
    book.weights[first : first + size] = draft.weights[:size]
    book.ends[number + 1] = first + size
    book.size[0] += 1
    node.active[node.counts[ACTIVE]] = number
    node.counts[ACTIVE] += 1
    node.residual[number] = residual_of(book, node, number)
    pack_one(book, node, number)
    return number


def after_found(node: Node, out: Out, number: int) -> int:
    """What a new certificate means for the node; -1: look on."""
    if node.residual[number] == 0:
        leaf(node, out, np.array([number]))
        return END
    if node.counts[PACKED] > node.counts[LEFT]:
        leaf(node, out, node.packed[: node.counts[PACKED]])
        return END
    return AGAIN if node.residual[number] == 1 else -1


def next_suspect(node: Node, arena: Arena, place: int) -> int:
    """Place of the next suspect that may be left out and is not packed; the number of suspects when there is none."""
    while place < len(arena.suspects):
        row = arena.suspects[place]
        if node.status[row] == FREE and not node.taken[row]:
            break
        place += 1
    return place


def extend(task: Task) -> int:
    """Look for certificates among the rows outside the packing, and say what comes next for the node.

    Among the rows that are bound to stay first: a certificate of these is worth most, and other solves begin with what
    theirs ends with, or where there are none, with the last that found nothing. Where little is kept yet, then with one
    suspect at a time: a certificate that used two of them would waste one.
    """
    node, out, arena, bench = task.node, task.out, task.arena, task.bench
    bound = (node.status == KEPT).sum()
    kept, place = bound > 0, 0 if bound <= FEW else len(arena.suspects)
    bench.start[:] = bench.last
    while True:
        out.counts[WORK] += 1
        spent = out.counts[WORK] >= task.ask.budget or bench.effort[0] >= task.ask.effort
        place = len(arena.suspects) if spent else place
        place = next_suspect(node, arena, place)
        suspect = arena.suspects[place] if place < len(arena.suspects) else -1
        prepare(node, bench, arena, suspect, kept)
        short = solve(arena, bench, task.limits)
        if kept:
            bench.start[:] = bench.weights
        elif not short:
            bench.last[:] = bench.weights
        if short:
            take(arena, bench)
            shrink(arena, bench, node.status, task.limits, task.ask.effort)
            then = after_found(node, out, record(node, task.book, bench.draft))
            if then >= 0 and then != AGAIN:
                return then
            if out.counts[WORK] >= task.ask.budget or bench.effort[0] >= task.ask.effort:
                return PAUSE  # what was found is kept; a solve that found nothing would be made again, for ever
            if then == AGAIN:
                return AGAIN
        elif suspect >= 0:
            place += 1
        elif not kept:
            return no_more(node, out)
        kept = False


def no_more(node: Node, out: Out) -> int:
    """What comes next where no certificate is left: the node is split, or, with nothing packed, it is a candidate."""
    if node.counts[PACKED]:
        return SPLIT
    put(out.candidates, out.counts[CANDIDATES], node.path[: node.counts[LENGTH]])
    out.counts[CANDIDATES] += 1
    return END


def branch(task: Task) -> None:
    """The two children of the node, to leave a row out first."""
    node, out = task.node, task.out
    row, length = suspicious_row(task.book, node, task.arena), node.counts[LENGTH]
    for step in (~row, row):
        node.path[length] = step
        put(out.open, out.counts[OPEN], node.path[: length + 1])
        out.counts[OPEN] += 1


def combined(task: Task) -> bool:
    """Whether the certificates that are known end the node in combination, where packing them was nearly enough."""
    node, effort = task.node, task.bench.effort
    if node.counts[PACKED] + NEAR < node.counts[LEFT]:
        return False
    effort[0] += MOST * (node.counts[LEFT] + 1) * node.counts[ACTIVE]
    if combine(task.book, node):
        leaf(node, task.out, node.chosen[: node.counts[CHOSEN]])
        return True
    return False


def visit(task: Task) -> None:
    """One node, to its end, its two children, or where the budget ends."""
    node, book, out = task.node, task.book, task.out
    out.counts[NODES] += 1
    out.counts[WORK] += 1
    while propagate(node, book, out):
        if pack(book, node, task.arena.suspect):
            leaf(node, out, node.packed[: node.counts[PACKED]])
            return
        if combined(task):
            return
        known = book.size[0]
        then = extend(task)
        if then == SPLIT and book.size[0] > known and combined(task):
            return
        if then == SPLIT:
            branch(task)
        elif then == PAUSE:
            put(out.open, out.counts[OPEN], node.path[: node.counts[LENGTH]])
            out.counts[OPEN] += 1
        if then != AGAIN:
            return


def explore_nodes(task: Task) -> bool:
    """Depth first, until the budget is spent, candidates are enough, or nothing is open. False: it ran out of room."""
    out, ask, book, effort = task.out, task.ask, task.book, task.bench.effort
    while out.counts[OPEN] > 0 and out.counts[WORK] < ask.budget and effort[0] < ask.effort:
        if out.counts[CANDIDATES] >= ask.most_candidates:
            break
        last = out.counts[OPEN] - 1
        path = out.open.values[out.open.ends[last] : out.open.ends[last + 1]]
        if ask.root_only and len(path) > 0:
            break
        longest, most = len(path) + ask.k + 2, ask.k + 2
        if not (
            has_room(out.open, last, 2, 2 * longest)
            and has_room(out.leaves, out.counts[LEAVES], most, most * longest)
            and has_room(out.proofs, out.counts[LEAVES], most, (MOST + 1) * most)
            and has_room(out.candidates, out.counts[CANDIDATES], 1, longest)
        ):
            return False
        enter(task.node, path, ask.k)
        out.counts[OPEN] = last
        effort[0] += book.ends[book.size[0]] + 4 * len(task.node.status)
        visit(task)
    return True
