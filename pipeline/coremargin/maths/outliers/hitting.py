"""What certificates say about a node without any geometry: it is a small hitting-set problem.

Plain code on arrays, which numba compiles (compiled.py). A certificate that no row left out belongs to must lose one of
its rows that are not bound to stay: its *residual*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coremargin.maths.outliers.solves import FREE, KEPT, OUT, Arena

if TYPE_CHECKING:
    from coremargin.maths.nearest import Array, Numbers

#: How much a suspicious row weighs in a residual: those with few of them are packed first.
SUSPECT = 4

#: A combination is of the so many certificates with the least residuals, and has no row more often than MOST; how much
#: heavier a row gets each time; and by how many a packing may be too small for a combination to be worth a try.
LEAST, MOST, HEAVIER, NEAR = 256, 8, 5.0, 2

#: Places in ``Node.counts``.
LENGTH, LEFT, ACTIVE, PACKED, CHOSEN = range(5)


class Book(NamedTuple):
    """Certificates one behind the other: the rows and weights of number i lie in ends[i] : ends[i + 1].

    size (1,): how many there are; there is room for more.
    """

    rows: Numbers
    weights: Array
    ends: Numbers
    size: Numbers


class Node(NamedTuple):
    """A node at work. path: its first LENGTH decisions; status (n,): what each row is; taken (n,): is it packed.

    active: its first ACTIVE certificates no row left out belongs to, residual: sizes by certificate; packed: the first
    PACKED have disjoint residuals; chosen: the first CHOSEN are a combination, in which each row is times (n,), and as
    heavy as weights (n,) for that. counts: these numbers, and LEFT, how many rows may still be left out.
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


def enter(node: Node, path: Numbers, k: int) -> None:
    """The node of this path: decisions ``row`` (left out) and ``~row`` (bound to stay)."""
    node.status[:] = FREE
    left = k
    for place in range(len(path)):
        step = path[place]
        node.path[place] = step
        if step >= 0:
            node.status[step] = OUT
            left -= 1
        else:
            node.status[~step] = KEPT
    node.counts[LENGTH], node.counts[LEFT] = len(path), left


def leave_out(node: Node, row: int) -> None:
    """One row less."""
    node.path[node.counts[LENGTH]] = row
    node.counts[LENGTH] += 1
    node.counts[LEFT] -= 1
    node.status[row] = OUT


def residual_of(book: Book, node: Node, number: int) -> int:
    """How many rows of a certificate may be left out; -1 when one is already."""
    size = 0
    for place in range(book.ends[number], book.ends[number + 1]):
        status = node.status[book.rows[place]]
        if status == OUT:
            return -1
        size += status == FREE
    return size


def look_through(book: Book, node: Node, again: bool) -> int:
    """Find the active certificates, among those that were active where ``again``; the first with the least residual.

    -1: there is none.
    """
    least, active = -1, 0
    for place in range(node.counts[ACTIVE] if again else book.size[0]):
        number = node.active[place] if again else place
        size = residual_of(book, node, number)
        if size >= 0:
            node.active[active], node.residual[number] = number, size
            active += 1
            if least < 0 or size < node.residual[least]:
                least = number
    node.counts[ACTIVE] = active
    return least


def free_row(book: Book, node: Node, number: int) -> int:
    """The first row of a certificate that may be left out."""
    for place in range(book.ends[number], book.ends[number + 1]):
        if node.status[book.rows[place]] == FREE:
            return int(book.rows[place])
    return -1


def pack_one(book: Book, node: Node, number: int) -> None:
    """One certificate more; its rows are taken."""
    node.packed[node.counts[PACKED]] = number
    node.counts[PACKED] += 1
    for place in range(book.ends[number], book.ends[number + 1]):
        node.taken[book.rows[place]] = node.status[book.rows[place]] == FREE


def is_apart(book: Book, node: Node, number: int) -> bool:
    """Whether none of a certificate's rows that may be left out is taken."""
    for place in range(book.ends[number], book.ends[number + 1]):
        row = book.rows[place]
        if node.taken[row] and node.status[row] == FREE:
            return False
    return True


def pack(book: Book, node: Node, suspect: np.ndarray) -> bool:
    """Active certificates with disjoint residuals, small and unsuspicious ones first; True: they end the node."""
    node.taken[:] = False
    node.counts[PACKED] = 0
    active = node.active[: node.counts[ACTIVE]]
    keys = np.zeros(len(active), np.int64)
    for place in range(len(active)):
        number = active[place]
        key = node.residual[number]
        for at in range(book.ends[number], book.ends[number + 1]):
            key += SUSPECT * (suspect[book.rows[at]] and node.status[book.rows[at]] == FREE)
        keys[place] = key
    for place in np.argsort(keys, kind="mergesort"):
        if is_apart(book, node, active[place]):
            pack_one(book, node, active[place])
            if node.counts[PACKED] > node.counts[LEFT]:
                return True
    return False


def combine(book: Book, node: Node) -> bool:
    """Active certificates, each as often as it serves, of which a row that may be left out meets few; True: too many.

    A fractional packing: with no row in more than m of them, counted with repetitions, LEFT rows meet at most m LEFT;
    one more ends the node. Each time the certificate whose rows are lightest is taken, and they grow heavier: the
    multiplicative weights of Plotkin, Shmoys and Tardos (Fast approximation algorithms for fractional packing and
    covering problems, 1995), which come close to the linear program's value.
    """
    active, left, most, chosen = node.active[: node.counts[ACTIVE]], node.counts[LEFT], 0, 0
    node.times[:] = 0
    costs = node.residual[active].astype(np.float64)
    heap, whole = np.argsort(costs, kind="mergesort")[:LEAST], rows_met(book, node)
    while len(heap) > 0 and most <= MOST and chosen < len(node.chosen):
        number, cost = active[heap[0]], weight_of(book, node, active[heap[0]])
        if cost > costs[heap[0]]:  # it was that light before others were taken
            costs[heap[0]] = cost
            sink(heap, costs)
            continue
        if whole <= left * cost:  # rows left out by these weights would meet all: the linear program says no more
            return False
        node.chosen[chosen] = number
        chosen += 1
        for at in range(book.ends[number], book.ends[number + 1]):
            row = book.rows[at]
            if node.status[row] == FREE:
                node.times[row] += 1
                whole += (HEAVIER - 1) * node.weights[row]
                node.weights[row] *= HEAVIER
                most = max(most, node.times[row])
        if chosen > most * left:
            node.counts[CHOSEN] = chosen
            return True
    return False


def rows_met(book: Book, node: Node) -> float:
    """How many rows that may be left out the active certificates have, and with that their weight in all."""
    node.weights[:] = 0.0
    for number in node.active[: node.counts[ACTIVE]]:
        for at in range(book.ends[number], book.ends[number + 1]):
            node.weights[book.rows[at]] = node.status[book.rows[at]] == FREE
    whole = float(node.weights.sum())
    node.weights[:] = 1.0
    return whole


def sink(heap: Numbers, costs: Array) -> None:
    """Put the first of a heap, whose cost has grown, where it belongs."""
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


def weight_of(book: Book, node: Node, number: int) -> float:
    """How heavy a certificate's rows that may be left out are together."""
    weight = 0.0
    for place in range(book.ends[number], book.ends[number + 1]):
        row = book.rows[place]
        if node.status[row] == FREE:
            weight += node.weights[row]
    return weight


def suspicious_row(book: Book, node: Node, arena: Arena) -> int:
    """The row to decide about: of the smallest residual the one with the lowest margin under the incumbent."""
    smallest = node.active[0]
    for place in range(1, node.counts[ACTIVE]):
        if node.residual[node.active[place]] < node.residual[smallest]:
            smallest = node.active[place]
    chosen = -1
    for place in range(book.ends[smallest], book.ends[smallest + 1]):
        row = book.rows[place]
        if node.status[row] == FREE and (chosen < 0 or arena.margins[row] < arena.margins[chosen]):
            chosen = row
    return chosen
