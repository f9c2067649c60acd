"""The kernels of the tree search: visit nodes, find certificates, combine them, branch. explore.py explains the idea.

Plain functions on arrays, which numba compiles (compiled.py). Bottom up: solves, which find certificates; what
certificates say about a node, a small hitting-set problem without geometry; nodes, one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coremargin.maths.nearest import SHORT, ZERO, Face, walk

if TYPE_CHECKING:
    from coremargin.maths.nearest import Array, Limits, Numbers

#: What a row is at a node.
FREE, EXCLUDED, KEPT = range(3)

#: Weight of a suspicious row in a residual: certificates with few of them are packed first.
SUSPECT = 4

#: A combination is made of the LEAST certificates with the smallest residuals and has no row more than MOST times; each
#: time a row gets HEAVIER; a packing may lack at most NEAR certificates for a combination to be worth trying.
LEAST, MOST, HEAVIER, NEAR = 256, 8, 5.0, 2

#: With more kept rows, suspects are no longer tried one by one: it would cost more than it saves.
FEW = 8

#: Positions in ``Node.counts``.
LENGTH, LEFT, ACTIVE, PACKED, CHOSEN = range(5)

#: Positions in ``Output.counts``: entries of the lists, and the work done.
OPEN, LEAVES, CANDIDATES, NODES, WORK = range(5)

#: What comes next for a node.
END, AGAIN, SPLIT, PAUSE = range(4)


class TieredRows(NamedTuple):
    """The rows of a search as solves use them: z (n, d), tier by tier, each group side by side.

    groups (n,); tiers (t, groups + 1) in the form of ``walk``; squares (n,): ||z||^2; margins (n,) under the incumbent;
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
    """A new certificate: its rows and weights are the first ``size[0]`` of these (m,)."""

    rows: Numbers
    weights: Array
    size: Numbers


class Workspace(NamedTuple):
    """Arrays of the solves: the face of all rows, with weights and blocked (n,), and a small one with its own.

    start (n,): weights that a solve begins with, where rows are not blocked; last (n,): those of the last solve that
    found nothing. effort (1,): multiplications so far. draft: the certificate found last.
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


class CertificateTable(NamedTuple):
    """Certificates: the rows and weights of number i lie in ends[i] : ends[i + 1]; size (1,): their number.

    There is room for more.
    """

    rows: Numbers
    weights: Array
    ends: Numbers
    size: Numbers


class Node(NamedTuple):
    """The current node. path: its first LENGTH decisions; status (n,): of rows; taken (n,): whether a row is packed.

    active: the first ACTIVE are the certificates without excluded rows; residual: sizes, by certificate; packed: the
    first PACKED have disjoint residuals; chosen: the first CHOSEN are a combination, in which each row occurs ``times``
    (n,) and weighs ``weights`` (n,). counts: these numbers, and LEFT, how many rows may still be excluded.
    """

    path: Numbers
    status: np.ndarray
    taken: np.ndarray
    active: Numbers
    residual: Numbers
    packed: Numbers
    chosen: Numbers
    counts: Numbers
    times: Numbers
    weights: Array


class Lists(NamedTuple):
    """Lists of numbers: number i lies in ends[i] : ends[i + 1]. There is room for more."""

    values: Numbers
    ends: Numbers


class Output(NamedTuple):
    """Paths of open nodes, the last one next; of leaves, with the certificates that end them; of candidates."""

    open: Lists
    leaves: Lists
    proofs: Lists
    candidates: Lists
    counts: Numbers


class TaskLimits(NamedTuple):
    """The limits of a task: see ``explore.Query``."""

    k: int
    budget: int
    effort: int
    most_candidates: int
    root_only: bool


class Task(NamedTuple):
    """All arrays and limits of a task."""

    node: Node
    certificates: CertificateTable
    out: Output
    tiered: TieredRows
    workspace: Workspace
    task_limits: TaskLimits
    solver_limits: Limits


# Solves. A solve stops as soon as its side of the threshold is clear. Its support may hold rows that it does not need:
# each is removed in turn, the lightest first, and stays out when the others alone are still below the threshold.


def start_weights(tiered: TieredRows, workspace: Workspace) -> bool:
    """Set the initial weights: ``start`` on unblocked rows, and on the shortest row of a group without any.

    False when a group has no rows, so that its margin is unbounded.
    """
    weights, there, count = workspace.weights, workspace.blocked == 0.0, tiered.tiers.shape[1] - 1
    weights[:] = np.where(there, workspace.start, 0.0)
    total = np.bincount(tiered.groups, weights, count)
    for group in range(count):
        if total[group] <= 0:
            squares = np.where(there & (tiered.groups == group), tiered.squares, np.inf)
            row = squares.argmin()
            if squares[row] == np.inf:
                return False
            weights[row] = total[group] = 1.0
    weights /= total[tiered.groups]
    return True


def solve(tiered: TieredRows, workspace: Workspace, limits: Limits) -> bool:
    """Whether the unblocked rows allow no margin above the threshold; the weights prove it, or the contrary.

    False also when rounding stops the solve too early, or a group is empty: nothing rests on that answer.
    """
    if not start_weights(tiered, workspace):
        return False
    status, _, steps = walk(workspace.face, workspace.weights, workspace.blocked, tiered.tiers, limits)
    n, d = tiered.rows.shape
    workspace.effort[0] += steps * d * (min(n, tiered.tiers[0, -1]) + 4 * len(workspace.face.head)) + n * d
    return status in (SHORT, ZERO)


def take_support(tiered: TieredRows, workspace: Workspace) -> None:
    """Copy the support of the last solve to the draft, each group side by side."""
    draft, size = workspace.draft, 0
    for group in range(tiered.tiers.shape[1] - 1):
        for row in workspace.face.members[: workspace.face.counts[0]]:
            if tiered.groups[row] == group and workspace.weights[row] > 0:
                draft.rows[size], draft.weights[size] = row, workspace.weights[row]
                size += 1
    draft.size[0] = size


def shrink(tiered: TieredRows, workspace: Workspace, status: np.ndarray, limits: Limits, most: int) -> None:
    """Remove rows that the draft does not need, up to an effort of ``most``; kept rows (by status (n,)) may stay."""
    draft, m = workspace.draft, workspace.draft.size[0]
    face, weights, blocked = workspace.few, workspace.few_weights[:m], workspace.few_blocked[:m]
    tiers = np.zeros((1, tiered.tiers.shape[1]), np.int64)
    for i in range(m):
        face.rows[i], face.groups[i] = tiered.rows[draft.rows[i]], tiered.groups[draft.rows[i]]
        tiers[0, face.groups[i] + 1 :] = i + 1
    weights[:], blocked[:] = draft.weights[:m], 0.0
    few = Face(
        face.rows[:m],
        face.groups[:m],
        face.q,
        face.r,
        face.head,
        face.members,
        face.reference,
        face.counts,
        face.origin,
        face.point,
    )
    for i in np.argsort(draft.weights[:m], kind="mergesort"):
        if workspace.effort[0] >= most:
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
        workspace.effort[0] += (5 * steps + m) * m * tiered.rows.shape[1]
        if ended not in (SHORT, ZERO):
            weights[:], blocked[i] = before, 0.0
    size = 0
    for i in range(m):
        if weights[i] > 0:
            draft.rows[size], draft.weights[size] = draft.rows[i], weights[i]
            size += 1
    draft.size[0] = size


# What certificates say about a node: each active one must lose a row of its residual, its rows that are not kept.


def enter_node(node: Node, path: Numbers, k: int) -> None:
    """Set the node to a path of decisions ``row`` (excluded) and ``~row`` (kept)."""
    node.status[:] = FREE
    left = k
    for place in range(len(path)):
        step = path[place]
        node.path[place] = step
        if step >= 0:
            node.status[step] = EXCLUDED
            left -= 1
        else:
            node.status[~step] = KEPT
    node.counts[LENGTH], node.counts[LEFT] = len(path), left


def exclude(node: Node, row: int) -> None:
    """Exclude one more row."""
    node.path[node.counts[LENGTH]] = row
    node.counts[LENGTH] += 1
    node.counts[LEFT] -= 1
    node.status[row] = EXCLUDED


def residual_size(certificates: CertificateTable, node: Node, number: int) -> int:
    """The number of free rows of a certificate; -1 when a row is excluded."""
    size = 0
    for place in range(certificates.ends[number], certificates.ends[number + 1]):
        status = node.status[certificates.rows[place]]
        if status == EXCLUDED:
            return -1
        size += status == FREE
    return size


def find_active(certificates: CertificateTable, node: Node, again: bool) -> int:
    """Find the active certificates, ``again`` or at first; return the first with the smallest residual, or -1."""
    least, active = -1, 0
    for place in range(node.counts[ACTIVE] if again else certificates.size[0]):
        number = node.active[place] if again else place
        size = residual_size(certificates, node, number)
        if size >= 0:
            node.active[active], node.residual[number] = number, size
            active += 1
            if least < 0 or size < node.residual[least]:
                least = number
    node.counts[ACTIVE] = active
    return least


def first_free_row(certificates: CertificateTable, node: Node, number: int) -> int:
    """The first free row of a certificate, or -1."""
    for place in range(certificates.ends[number], certificates.ends[number + 1]):
        if node.status[certificates.rows[place]] == FREE:
            return int(certificates.rows[place])
    return -1


def pack_one(certificates: CertificateTable, node: Node, number: int) -> None:
    """Pack a certificate; its free rows are taken."""
    node.packed[node.counts[PACKED]] = number
    node.counts[PACKED] += 1
    for place in range(certificates.ends[number], certificates.ends[number + 1]):
        node.taken[certificates.rows[place]] = node.status[certificates.rows[place]] == FREE


def is_disjoint(certificates: CertificateTable, node: Node, number: int) -> bool:
    """Whether no free row of a certificate is taken."""
    for place in range(certificates.ends[number], certificates.ends[number + 1]):
        row = certificates.rows[place]
        if node.taken[row] and node.status[row] == FREE:
            return False
    return True


def pack(certificates: CertificateTable, node: Node, suspect: np.ndarray) -> bool:
    """Pack active certificates with disjoint residuals, small and unsuspicious ones first; True: they end the node."""
    node.taken[:] = False
    node.counts[PACKED] = 0
    active = node.active[: node.counts[ACTIVE]]
    keys = np.zeros(len(active))  # not integers, for which a sort would be compiled as well
    for place in range(len(active)):
        number = active[place]
        key = node.residual[number]
        for at in range(certificates.ends[number], certificates.ends[number + 1]):
            key += SUSPECT * (suspect[certificates.rows[at]] and node.status[certificates.rows[at]] == FREE)
        keys[place] = key
    for place in np.argsort(keys, kind="mergesort"):
        if is_disjoint(certificates, node, active[place]):
            pack_one(certificates, node, active[place])
            if node.counts[PACKED] > node.counts[LEFT]:
                return True
    return False


def combine(certificates: CertificateTable, node: Node) -> bool:
    """Choose active certificates, with repetitions, such that each free row is in few of them; True: they end the node.

    A fractional packing: with no row in more than m of them, counted with repetitions, LEFT rows meet at most m LEFT;
    one more ends the node. The certificate with the lightest rows is chosen each time, and its rows grow heavier: the
    multiplicative weights of Plotkin, Shmoys and Tardos (Fast approximation algorithms for fractional packing and
    covering problems, 1995), which come close to the linear program's value.
    """
    active, left, most, chosen = node.active[: node.counts[ACTIVE]], node.counts[LEFT], 0, 0
    node.times[:] = 0
    costs = node.residual[active].astype(np.float64)
    heap, whole = np.argsort(costs, kind="mergesort")[:LEAST], rows_met(certificates, node)
    while len(heap) > 0 and most <= MOST and chosen < len(node.chosen):
        number, cost = active[heap[0]], weight_of(certificates, node, active[heap[0]])
        if cost > costs[heap[0]]:  # it has grown since it was computed
            costs[heap[0]] = cost
            sift_down(heap, costs)
            continue
        if (
            whole <= left * cost
        ):  # excluding rows by these weights would meet all: the linear program gives no better bound
            return False
        node.chosen[chosen] = number
        chosen += 1
        for at in range(certificates.ends[number], certificates.ends[number + 1]):
            row = certificates.rows[at]
            if node.status[row] == FREE:
                node.times[row] += 1
                whole += (HEAVIER - 1) * node.weights[row]
                node.weights[row] *= HEAVIER
                most = max(most, node.times[row])
        if chosen > most * left:
            node.counts[CHOSEN] = chosen
            return True
    return False


def rows_met(certificates: CertificateTable, node: Node) -> float:
    """The number of free rows of the active certificates; every weight becomes 1."""
    node.weights[:] = 0.0
    for number in node.active[: node.counts[ACTIVE]]:
        for at in range(certificates.ends[number], certificates.ends[number + 1]):
            node.weights[certificates.rows[at]] = node.status[certificates.rows[at]] == FREE
    whole = float(node.weights.sum())
    node.weights[:] = 1.0
    return whole


def sift_down(heap: Numbers, costs: Array) -> None:
    """Restore a heap whose first cost has grown."""
    place, moved = 0, heap[0]
    while 2 * place + 1 < len(heap):
        child = 2 * place + 1
        if child + 1 < len(heap) and costs[heap[child + 1]] < costs[heap[child]]:
            child += 1
        if costs[heap[child]] >= costs[moved]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved


def weight_of(certificates: CertificateTable, node: Node, number: int) -> float:
    """The weight of a certificate's free rows together."""
    weight = 0.0
    for place in range(certificates.ends[number], certificates.ends[number + 1]):
        row = certificates.rows[place]
        if node.status[row] == FREE:
            weight += node.weights[row]
    return weight


def branching_row(certificates: CertificateTable, node: Node, tiered: TieredRows) -> int:
    """The row to branch on: of the smallest residual the one with the lowest margin under the incumbent."""
    smallest = node.active[0]
    for place in range(1, node.counts[ACTIVE]):
        if node.residual[node.active[place]] < node.residual[smallest]:
            smallest = node.active[place]
    chosen = -1
    for place in range(certificates.ends[smallest], certificates.ends[smallest + 1]):
        row = certificates.rows[place]
        if node.status[row] == FREE and (chosen < 0 or tiered.margins[row] < tiered.margins[chosen]):
            chosen = row
    return chosen


# Nodes.


def append(lists: Lists, number: int, values: Numbers) -> None:
    """Store values as entry ``number``, the last one."""
    first = lists.ends[number]
    lists.values[first : first + len(values)] = values
    lists.ends[number + 1] = first + len(values)


def has_room(lists: Lists, number: int, entries: int, values: int) -> bool:
    """Whether ``entries`` more entries, of ``values`` values in all, fit behind entry ``number``."""
    return number + entries < len(lists.ends) and lists.ends[number] + values <= len(lists.values)


def add_leaf(node: Node, out: Output, proof: Numbers) -> None:
    """End the node with these certificates as proof."""
    append(out.leaves, out.counts[LEAVES], node.path[: node.counts[LENGTH]])
    append(out.proofs, out.counts[LEAVES], proof)
    out.counts[LEAVES] += 1


def exclude_forced(node: Node, certificates: CertificateTable, out: Output) -> bool:
    """Exclude rows that must be excluded: the only free row of a certificate. False when that ends the node."""
    least = find_active(certificates, node, False)
    while least >= 0 and (node.residual[least] <= 1 or node.counts[LEFT] == 0):
        proof = np.array([least])
        if node.residual[least] == 0 or node.counts[LEFT] == 0:
            add_leaf(node, out, proof)
            return False
        row, length = first_free_row(certificates, node, least), node.counts[LENGTH]
        node.path[length] = ~row  # the branch that keeps it ends at once
        node.counts[LENGTH] += 1
        add_leaf(node, out, proof)
        node.counts[LENGTH] = length
        exclude(node, row)
        least = find_active(certificates, node, True)
    return True


def block_rows(node: Node, workspace: Workspace, tiered: TieredRows, suspect: int, only_kept: bool) -> None:
    """Block rows for the next solve: excluded and packed ones and, when a suspect is given (>= 0), all others.

    only_kept: block all but the kept rows.
    """
    there = node.status == KEPT
    if not only_kept:
        there |= (node.status == FREE) & ~node.taken
    workspace.blocked[:] = np.where(there, 0.0, np.inf)
    if suspect >= 0:
        for row in tiered.suspects:
            if row != suspect and node.status[row] == FREE:
                workspace.blocked[row] = np.inf


def add_certificate(node: Node, certificates: CertificateTable, draft: Draft) -> int:
    """Add the draft to the table and pack it; return its number."""
    number = int(certificates.size[0])
    first, size = certificates.ends[number], draft.size[0]
    certificates.rows[first : first + size] = draft.rows[:size]
    certificates.weights[first : first + size] = draft.weights[:size]
    certificates.ends[number + 1] = first + size
    certificates.size[0] += 1
    node.active[node.counts[ACTIVE]] = number
    node.counts[ACTIVE] += 1
    node.residual[number] = residual_size(certificates, node, number)
    pack_one(certificates, node, number)
    return number


def after_certificate(node: Node, out: Output, number: int) -> int:
    """What a new certificate means for the node; -1: look for another."""
    if node.residual[number] == 0:
        add_leaf(node, out, np.array([number]))
        return END
    if node.counts[PACKED] > node.counts[LEFT]:
        add_leaf(node, out, node.packed[: node.counts[PACKED]])
        return END
    return AGAIN if node.residual[number] == 1 else -1


def next_suspect(node: Node, tiered: TieredRows, place: int) -> int:
    """The position of the first free, unpacked suspect from ``place`` on; their number when there is none."""
    while place < len(tiered.suspects):
        row = tiered.suspects[place]
        if node.status[row] == FREE and not node.taken[row]:
            break
        place += 1
    return place


def find_certificates(task: Task) -> int:
    """Look for certificates among the rows outside the packing; return what comes next for the node.

    Kept rows come first: a certificate of these is worth most, and other solves begin with the weights that their solve
    ends with, or, when no row is kept, with those of the last solve that found nothing. When few rows are kept,
    suspects follow one at a time: a certificate that used two of them would waste one.
    """
    node, out, tiered, workspace = task.node, task.out, task.tiered, task.workspace
    bound = (node.status == KEPT).sum()
    kept, place = bound > 0, 0 if bound <= FEW else len(tiered.suspects)
    workspace.start[:] = workspace.last
    while True:
        out.counts[WORK] += 1
        spent = out.counts[WORK] >= task.task_limits.budget or workspace.effort[0] >= task.task_limits.effort
        place = len(tiered.suspects) if spent else place
        place = next_suspect(node, tiered, place)
        suspect = tiered.suspects[place] if place < len(tiered.suspects) else -1
        block_rows(node, workspace, tiered, suspect, kept)
        short = solve(tiered, workspace, task.solver_limits)
        if kept:
            workspace.start[:] = workspace.weights
        elif not short:
            workspace.last[:] = workspace.weights
        if short:
            take_support(tiered, workspace)
            shrink(tiered, workspace, node.status, task.solver_limits, task.task_limits.effort)
            then = after_certificate(node, out, add_certificate(node, task.certificates, workspace.draft))
            if then >= 0 and then != AGAIN:
                return then
            if out.counts[WORK] >= task.task_limits.budget or workspace.effort[0] >= task.task_limits.effort:
                return PAUSE  # certificates are stored; a solve that finds nothing would be repeated for ever
            if then == AGAIN:
                return AGAIN
        elif suspect >= 0:
            place += 1
        elif not kept:
            return split_or_report(node, out)
        kept = False


def split_or_report(node: Node, out: Output) -> int:
    """What comes next when no certificate is left: split the node or, with nothing packed, report a candidate."""
    if node.counts[PACKED]:
        return SPLIT
    append(out.candidates, out.counts[CANDIDATES], node.path[: node.counts[LENGTH]])
    out.counts[CANDIDATES] += 1
    return END


def branch(task: Task) -> None:
    """Add the two children of the node; the one that excludes the row comes first."""
    node, out = task.node, task.out
    row, length = branching_row(task.certificates, node, task.tiered), node.counts[LENGTH]
    for step in (~row, row):
        node.path[length] = step
        append(out.open, out.counts[OPEN], node.path[: length + 1])
        out.counts[OPEN] += 1


def try_combining(task: Task) -> bool:
    """End the node by a combination of certificates, when packing them was nearly enough."""
    node, effort = task.node, task.workspace.effort
    if node.counts[PACKED] + NEAR < node.counts[LEFT]:
        return False
    effort[0] += MOST * (node.counts[LEFT] + 1) * node.counts[ACTIVE]
    if combine(task.certificates, node):
        add_leaf(node, task.out, node.chosen[: node.counts[CHOSEN]])
        return True
    return False


def visit(task: Task) -> None:
    """Visit a node: end it, split it, or put it back when the budget is spent."""
    node, certificates, out = task.node, task.certificates, task.out
    out.counts[NODES] += 1
    out.counts[WORK] += 1
    while exclude_forced(node, certificates, out):
        if pack(certificates, node, task.tiered.suspect):
            add_leaf(node, out, node.packed[: node.counts[PACKED]])
            return
        if try_combining(task):
            return
        known = certificates.size[0]
        then = find_certificates(task)
        if then == SPLIT and certificates.size[0] > known and try_combining(task):
            return
        if then == SPLIT:
            branch(task)
        elif then == PAUSE:
            append(out.open, out.counts[OPEN], node.path[: node.counts[LENGTH]])
            out.counts[OPEN] += 1
        if then != AGAIN:
            return


def explore_nodes(task: Task) -> bool:
    """Explore depth first until the limits are reached or no node is open. False: the output has run out of room."""
    out, limits = task.out, task.task_limits
    certificates, effort = task.certificates, task.workspace.effort
    while out.counts[OPEN] > 0 and out.counts[WORK] < limits.budget and effort[0] < limits.effort:
        if out.counts[CANDIDATES] >= limits.most_candidates:
            break
        last = out.counts[OPEN] - 1
        path = out.open.values[out.open.ends[last] : out.open.ends[last + 1]]
        if limits.root_only and len(path) > 0:
            break
        longest, most = len(path) + limits.k + 2, limits.k + 2
        if not (
            has_room(out.open, last, 2, 2 * longest)
            and has_room(out.leaves, out.counts[LEAVES], most, most * longest)
            and has_room(out.proofs, out.counts[LEAVES], most, (MOST + 1) * most)
            and has_room(out.candidates, out.counts[CANDIDATES], 1, longest)
        ):
            return False
        enter_node(task.node, path, limits.k)
        out.counts[OPEN] = last
        effort[0] += certificates.ends[certificates.size[0]] + 4 * len(task.node.status)
        visit(task)
    return True
