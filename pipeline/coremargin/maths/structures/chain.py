"""Chains: a labelling has a score for each row and its label, and for each two labels that follow one another.

An example is a sequence of rows x_1 ... x_T with labels y_1 ... y_T. With a vector of weights w

    w.Phi(x, y) = sum_t W[x_t, y_t] + sum_(t > 1) R[y_(t-1), y_t],      h(x) = argmax_y w.Phi(x, y)

where W (d + 1, K) has a column for each class, its last row for the constant s that every row ends in, and R (K, K) has
the transitions. Examples of one row are classes with costs: R is not used.

With psi_i(y) = Phi(x_i, y_i) - Phi(x_i, y) and loss(y_i, y) = sum_t costs[y_i,t, y_t], the hinge (Taskar, Guestrin,
Koller 2003; Tsochantaridis, Joachims, Hofmann, Altun 2005, with margins rescaled by the loss) is

    P(w) = 1/2 ||w||^2 + sum_i c_i H_i(w),                   H_i(w) = max_y [loss(y_i, y) - w.psi_i(y)]
    D(a) = sum_iy a_i(y) loss(y_i, y) - 1/2 ||sum_iy a_i(y) psi_i(y)||^2,      a >= 0, sum_y a_i(y) <= c_i

and D(a) <= P(w) for all a, w. The true labelling has loss 0 and psi 0; its weight is what the others leave of c_i.
Dual points are kept as labellings with weights, never as vectors.

A hard margin is the largest rho such that w.psi_i(y) >= rho ||w|| for all examples and all labellings but the true one
(Har-Peled, Roth, Zimak 2006, section 6). With a loss of 1 for each of these and c_i without limit, the same dual ascent
finds it: for weights a >= 0 no margin is above ||sum a psi|| / sum a.

Ascent. For one example after the other, the labelling of the maximum joins those that the example has. Pairwise steps
then move weight from the labelling of the lowest value that has some to that of the highest, as far as it raises D
(Lacoste-Julien, Jaggi 2015), and w = sum a psi with it.

Of labellings with equal scores the first in lexicographic order is taken. Nothing depends on the order in which
examples are in memory, but on that in which they are visited. Numbers are float64; compiled without fast-math.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.jit import jit_together
from coremargin.maths.margin import gamma
from coremargin.maths.rows import concatenate, from_arrays, lengths, nothing, to_arrays
from coremargin.maths.stopping import may_stop
from coremargin.maths.structures import user
from coremargin.maths.structures.labellings import Labellings, label_dtype, ragged

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

#: Labellings of an example for which there is room at first; more are added when all of them have weight.
SLOTS = 8
#: Pairwise steps of an example at a visit.
STEPS = 3
#: A step has to raise an example's value by more than this share of the largest cost: rounding looks like a gain, too.
LEAST_GAIN = 1e-13
#: Examples visited between two looks at the clock.
VISITS = 4096


@dataclass(frozen=True)
class Sequences:
    """Examples in memory: ids (n,) increasing; sparse rows (N, d), one example after the other; labels (N,); offsets
    (n + 1,).

    c (n,): of the examples; costs (K, K): of a label in the place of a true one, 0 on the diagonal; constant: the last
    entry of every row; chained: whether labels that follow one another have scores.
    """

    ids: Ids
    rows: csr_array
    labels: NDArray[np.integer[Any]]
    offsets: Ids
    c: Array
    costs: Array
    constant: float
    chained: bool
    structure: user.CheckedStructure | None = None  #: of the user, in the place of the last three

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> int:
        """Of w: (d + 1) K, and K^2 for the transitions."""
        if self.structure is not None:
            return self.structure.size
        classes = len(self.costs)
        return int((self.rows.shape[1] + 1) * classes + classes * classes * self.chained)

    @classmethod
    def nothing(cls, features: int, dtype: Any, costs: Array, constant: float, *, chained: bool) -> Self:
        """No examples of sparse rows."""
        none, rows = np.zeros(0, np.int64), nothing(features, dtype, sparse=True)
        labels = np.zeros(0, label_dtype(len(costs)))
        return cls(none, rows, labels, np.zeros(1, np.int64), np.zeros(0), costs, constant, chained)

    @classmethod
    def concatenate(cls, several: Sequence[Self]) -> Self:
        """All of them, one after the other."""
        first, sizes = several[0], np.concatenate([np.diff(each.offsets) for each in several])
        return cls(
            np.concatenate([each.ids for each in several]),
            concatenate([each.rows for each in several]),
            np.concatenate([each.labels for each in several]),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
            np.concatenate([each.c for each in several]),
            first.costs,
            first.constant,
            first.chained,
            first.structure,
        )

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        plain = {field: getattr(self, field) for field in ("ids", "labels", "offsets", "c", "costs")}
        rows = to_arrays(f"{name}_rows", self.rows)
        return (
            {f"{name}_{field}": values for field, values in plain.items()}
            | rows
            | {f"{name}_form": np.array([self.constant, float(self.chained)])}
        )

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of ``to_arrays``."""
        ids, labels, offsets, c, costs = (
            arrays[f"{name}_{part}"] for part in ("ids", "labels", "offsets", "c", "costs")
        )
        constant, chained = arrays[f"{name}_form"].tolist()
        rows = from_arrays(f"{name}_rows", arrays)
        return cls(ids, rows, labels, offsets, c, costs, constant, bool(chained))

    def take(self, places: NDArray[np.intp]) -> Sequences:
        """The examples at these places, which increase."""
        starts, counts = self.offsets[places], np.diff(self.offsets)[places]
        rows, offsets = ragged(starts, counts), np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        found: Any = self.rows[rows]
        labels, c = self.labels[rows], self.c[places]
        return replace(self, ids=self.ids[places], rows=found, labels=labels, offsets=offsets, c=c)


@dataclass(frozen=True)
class Losses:
    """H_i (n,) at some w, and bounds (n,) on their rounding errors; argmax (N,): the labels that attain them."""

    values: Array
    errors: Array
    argmax: NDArray[np.integer[Any]]


class _Rows(NamedTuple):
    """A CSR matrix, for compiled code, and the last entry of every row."""

    indptr: Ids
    indices: NDArray[np.integer[Any]]
    data: NDArray[np.floating[Any]]
    constant: float


class _Truth(NamedTuple):
    """The true labels (N,), where examples begin (n + 1,), the costs (K, K), and whether there are transitions.

    hard: the loss is 1 for all labellings but the true one.
    """

    labels: NDArray[np.unsignedinteger[Any]]
    offsets: Ids
    costs: Array
    chained: bool
    hard: bool


class _Known(NamedTuple):
    """The labellings of all examples: slots (m, N), weights (n, m) and losses (n, m), and how many are taken (n,).

    The true one is the first; the others have lost all weight, or not.
    """

    slots: NDArray[np.unsignedinteger[Any]]
    weights: Array
    losses: Array
    taken: Ids


class _Scratch(NamedTuple):
    """Tables (3, T, K), zeros (D,), and places and values of the entries of a difference."""

    tables: Array
    zeros: Array
    places: Ids
    values: Array


def _compiled_arguments(examples: Sequences, *, hard: bool) -> tuple[_Rows, _Truth, Array]:
    """Rows and true labels as compiled code takes them, and tables for the longest example."""
    rows, costs = examples.rows, examples.costs
    labels = np.ascontiguousarray(examples.labels, label_dtype(len(costs)))
    longest = int(np.diff(examples.offsets).max(initial=1))
    return (
        _Rows(rows.indptr.astype(np.int64), rows.indices, rows.data, float(examples.constant)),
        _Truth(labels, examples.offsets.astype(np.int64), costs, examples.chained, hard),
        np.empty((3, longest, len(costs))),
    )


class ChainAscent:
    """The dual ascent on some examples in memory, from the labellings that they have; hard: for a hard margin."""

    def __init__(self, examples: Sequences, duals: Labellings, *, hard: bool = False) -> None:
        self.examples, n = examples, len(examples)
        self._rows, self._truth, tables = _compiled_arguments(examples, hard=hard)
        place = np.searchsorted(examples.ids, duals.example)
        count = np.bincount(place, minlength=n).astype(np.int64)
        slot = np.arange(len(duals)) - (np.cumsum(count) - count)[place] + 1
        room = max(SLOTS, int(count.max(initial=0)) + 1)
        slots, weights, losses = (
            np.zeros((room, len(self._truth.labels)), self._truth.labels.dtype),
            *np.zeros((2, n, room)),
        )
        counts = duals.ends - duals.starts
        at, every = ragged(examples.offsets[place], counts), np.repeat(np.arange(len(duals)), counts)
        slots[0], slots[slot[every], at] = self._truth.labels, duals.labels
        costs = examples.costs[self._truth.labels[at].astype(np.intp), duals.labels.astype(np.intp)]
        losses[place, slot] = 1.0 if hard else np.bincount(every, weights=costs, minlength=len(duals))
        weights[place, slot] = duals.weight
        weights[:, 0] = np.inf if hard else np.maximum(0.0, examples.c - weights[:, 1:].sum(axis=1))
        self._known = _Known(slots, weights, losses, count + 1)
        longest = (np.diff(self._rows.indptr[examples.offsets]) + 2 * np.diff(examples.offsets)).max(initial=1)
        most = 2 * int(longest) + 4
        self._scratch = _Scratch(tables, np.zeros(examples.size), np.empty(most, np.int64), np.empty(most))

    def several(self) -> NDArray[np.intp]:
        """The places of the examples that have a labelling besides the true one."""
        return np.flatnonzero(self._known.taken > 1)

    def visit(self, order: NDArray[np.intp], w: Array, *, search: bool, steps: int = STEPS) -> float:
        """Visit examples in this order and change w (D,) in place.

        search: look for the labelling of the maximum first. Returns the sum of sum_y a_i(y) [h_i - h_i(y)], with h_i(y)
        = loss(y_i, y) - w.psi_i(y) and the largest one, as the examples are visited: an estimate of the gap.
        """
        examples, total = self.examples, 0.0
        least = LEAST_GAIN * float(examples.costs.max())
        for first in range(0, len(order), VISITS):
            part, begin = order[first : first + VISITS], 0
            may_stop()
            while begin < len(part):
                begin, found = compiled().visit(
                    self._rows, self._truth, self._known, self._scratch, part, begin, w, search, steps, least
                )
                total += found
                if begin < len(part):  # an example whose labellings all have weight
                    self._grow()
        return total

    def _grow(self) -> None:
        slots, weights, losses, count = self._known
        self._known = _Known(
            np.concatenate([slots, np.zeros_like(slots)]),
            np.concatenate([weights, np.zeros_like(weights)], axis=1),
            np.concatenate([losses, np.zeros_like(losses)], axis=1),
            count,
        )

    @property
    def weights(self) -> Array:
        """Weights (n, m) of the labellings, those of the true ones in the first column."""
        return self._known.weights

    @property
    def dual_loss(self) -> float:
        """sum a_i(y) loss(y_i, y)."""
        return exact_sum((self._known.weights[:, 1:] * self._known.losses[:, 1:]).ravel())

    def duals(self) -> Labellings:
        """The labellings that have weight."""
        examples = self.examples
        place, slot = np.nonzero(self._known.weights[:, 1:] > 0)
        counts = np.diff(examples.offsets)[place]
        at = ragged(examples.offsets[place], counts)
        labels = self._known.slots[np.repeat(slot + 1, counts), at]
        return Labellings(examples.ids[place], self._known.weights[place, slot + 1], labels, np.cumsum(counts))


def losses_at(examples: Sequences, w: Array, *, augmented: bool = True, hard: bool = False) -> Losses:
    """H_i of all examples at w (D,); not augmented: the highest scores less the true ones.

    hard: of the labellings but the true one, without losses: margins with a minus sign.
    """
    if examples.structure is not None:
        return Losses(*user.losses_at(examples, w, augmented=augmented))
    rows, truth, tables = _compiled_arguments(examples, hard=hard)
    values, argmax = np.zeros(len(examples)), np.empty_like(truth.labels)
    compiled().losses(rows, truth, w, augmented, tables, values, argmax)
    return Losses(values, score_errors(examples, w), argmax)


def values_of(examples: Sequences, duals: Labellings, w: Array) -> Array:
    """sum_y a_i(y) [loss(y_i, y) - w.psi_i(y)] / c_i (n,) of labellings of these examples.

    It is at most H_i, and equal where a is best for w.
    """
    if examples.structure is not None:
        return user.values_of(examples, duals, w)
    classes = len(examples.costs)
    split = (examples.rows.shape[1] + 1) * classes
    table, moves = w[:split].reshape(-1, classes), w[split:].reshape(-1, classes)
    place, counts = np.searchsorted(examples.ids, duals.example), duals.ends - duals.starts
    at, every = ragged(examples.offsets[place], counts), np.repeat(np.arange(len(duals)), counts)
    true, other = examples.labels[at].astype(np.int64), duals.labels.astype(np.int64)
    shown, where = np.unique(at, return_inverse=True)
    some: Any = examples.rows[shown]
    scores = np.asarray(some @ table[:-1]) + examples.constant * table[-1]
    terms = examples.costs[true, other] + scores[where, other] - scores[where, true]
    if examples.chained:
        inner = np.flatnonzero(at > examples.offsets[place][every])
        terms[inner] += moves[other[inner], other[inner - 1]] - moves[true[inner], true[inner - 1]]
    value = np.bincount(every, weights=terms, minlength=len(duals)) * duals.weight
    return np.asarray(np.bincount(place, weights=value, minlength=len(examples)) / examples.c)


def score_errors(examples: Sequences, w: Array) -> Array:
    """Bounds (n,) on the rounding errors of H_i at w; four times as large, so that other float64 code finds no more."""
    classes, counts = len(examples.costs), np.diff(examples.offsets)
    split = (examples.rows.shape[1] + 1) * classes
    table = w[:split].reshape(-1, classes)
    longest = float(np.sqrt((table[:-1] ** 2).sum(axis=0)).max()) if len(table) > 1 else 0.0
    sizes = lengths(examples.rows) * longest + abs(examples.constant) * float(np.abs(table[-1]).max())
    each = float(np.abs(w[split:]).max(initial=0.0)) + float(examples.costs.max())
    size = np.add.reduceat(sizes, examples.offsets[:-1]) + counts * each if len(counts) else np.zeros(0)
    return np.asarray(8.0 * size * gamma(examples.rows.shape[1] + 3 * int(counts.max(initial=1)) + 16))


def psi_sum(examples: Sequences, duals: Labellings) -> tuple[Array, float, float]:
    """sum a_i(y) psi_i(y) (D,) over labellings of these examples, sum a_i(y) loss(y_i, y), and sum a_i(y) ||.||.

    The last one bounds, times gamma, the rounding error of the first: it adds up the lengths of all terms.
    """
    if examples.structure is not None:
        return user.psi_sum(examples, duals)
    classes, rows = len(examples.costs), examples.rows
    table, moves = np.zeros((rows.shape[1] + 1, classes)), np.zeros((classes, classes))
    place = np.searchsorted(examples.ids, duals.example)
    counts = duals.ends - duals.starts
    at, weight = ragged(examples.offsets[place], counts), np.repeat(duals.weight, counts)
    true, other = examples.labels[at].astype(np.int64), duals.labels.astype(np.int64)
    shares = np.zeros((len(examples.labels), classes))
    np.add.at(shares, (at, true), weight)
    np.subtract.at(shares, (at, other), weight)
    shown = np.flatnonzero(shares.any(axis=1))
    some: Any = rows[shown]
    table[:-1] = np.asarray((some.T @ shares[shown]).astype(np.float64))
    table[-1] = examples.constant * shares.sum(axis=0)
    wrong = true != other
    reach = float(weight[wrong] @ (lengths(rows)[at[wrong]] + examples.constant)) * 2.0
    loss = exact_sum(weight * examples.costs[true, other])
    if not examples.chained:
        return table.ravel(), loss, reach
    inner = np.ones(len(at), bool)
    inner[duals.starts] = False
    now = np.flatnonzero(inner)
    np.add.at(moves, (true[now], true[now - 1]), weight[now])
    np.subtract.at(moves, (other[now], other[now - 1]), weight[now])
    return np.concatenate([table.ravel(), moves.ravel()]), loss, reach + 2.0 * float(weight.sum())


# Compiled. w is W (d + 1, K), then ``into`` (K, K): into[k, j] is the score of label k after label j. A row for each
# next label lets the compiler use vector instructions.


@cache
def compiled() -> Any:
    """The functions below, compiled."""
    return jit_together(emissions, decode, decode_other, score, difference, losses, visit)


def emissions(rows: Any, table: Any, first: Any, stop: Any, out: Any) -> Any:
    """The scores (T, K) of the rows of an example for each class."""
    indptr, indices, data, constant = rows
    classes, last = table.shape[1], table.shape[0] - 1
    for t in range(first, stop):
        for k in range(classes):
            out[t - first, k] = constant * table[last, k]
        for j in range(indptr[t], indptr[t + 1]):
            feature, value = indices[j], data[j]
            for k in range(classes):
                out[t - first, k] += value * table[feature, k]


def decode(scores: Any, into: Any, length: Any, best: Any, path: Any) -> Any:
    """The labelling of the highest score, the first in order of several, and its score (Viterbi, from the end)."""
    classes = scores.shape[1]
    for k in range(classes):
        best[length - 1, k] = scores[length - 1, k]
    for t in range(length - 2, -1, -1):
        for k in range(classes):
            best[t, k] = into[0, k] + best[t + 1, 0]
        for j in range(1, classes):
            after = best[t + 1, j]
            for k in range(classes):
                value = into[j, k] + after
                best[t, k] = max(best[t, k], value)
        for k in range(classes):
            best[t, k] += scores[t, k]
    label = 0
    for k in range(1, classes):
        if best[0, k] > best[0, label]:
            label = k
    path[0] = label
    for t in range(1, length):
        before, label = label, 0
        for j in range(1, classes):
            if into[j, before] + best[t, j] > into[label, before] + best[t, label]:
                label = j
        path[t] = label
    return best[0, path[0]]


def decode_other(scores: Any, into: Any, length: Any, true: Any, best: Any, path: Any) -> Any:
    """The labelling of the highest score that is not the true one, the first in order of several, and its score.

    apart[t] is the highest score from row t on of labellings that have the true label there and another one later.
    """
    classes = scores.shape[1]
    highest = decode(scores, into, length, best, path)
    for t in range(length):
        if path[t] != true[t]:
            return highest
    apart = np.full(length, -np.inf)
    for t in range(length - 2, -1, -1):
        for j in range(classes):
            after = apart[t + 1] if j == true[t + 1] else best[t + 1, j]
            apart[t] = max(apart[t], into[j, true[t]] + after)
        apart[t] += scores[t, true[t]]
    on, label = True, -1
    for t in range(length):
        before, label, level = label, -1, 0.0
        for j in range(classes):
            value = apart[t] if on and j == true[t] else best[t, j]
            if t > 0:
                value += into[j, before]
            if label < 0 or value > level:
                label, level = j, value
        if t == 0:
            highest = level
        path[t] = label
        on = on and label == true[t]
    return highest


def score(scores: Any, into: Any, length: Any, path: Any) -> Any:
    """The score of a labelling."""
    total = scores[0, path[0]]
    for t in range(1, length):
        total += scores[t, path[t]] + into[path[t], path[t - 1]]
    return total


def difference(rows: Any, chained: Any, classes: Any, first: Any, one: Any, other: Any, scratch: Any) -> Any:
    """Phi(one) - Phi(other): places of its entries, and their values; returns how many, and the sum of squares."""
    indptr, indices, data, constant = rows
    buffer, places, values = scratch.zeros, scratch.places, scratch.values
    count, split = 0, len(buffer) - classes * classes * chained
    last = split - classes
    for t in range(len(one)):
        a, b = one[t], other[t]
        if a != b:
            for j in range(indptr[first + t], indptr[first + t + 1]):
                place = indices[j] * classes
                places[count], places[count + 1] = place + a, place + b
                buffer[place + a] += data[j]
                buffer[place + b] -= data[j]
                count += 2
            places[count], places[count + 1] = last + a, last + b
            buffer[last + a] += constant
            buffer[last + b] -= constant
            count += 2
        if chained and t > 0 and (a != b or one[t - 1] != other[t - 1]):
            place, place_other = split + a * classes + one[t - 1], split + b * classes + other[t - 1]
            places[count], places[count + 1] = place, place_other
            buffer[place] += 1.0
            buffer[place_other] -= 1.0
            count += 2
    square = 0.0
    for k in range(count):  # an entry that comes again is then 0
        values[k] = buffer[places[k]]
        buffer[places[k]] = 0.0
        square += values[k] * values[k]
    return count, square


def losses(rows: Any, truth: Any, w: Any, augmented: Any, tables: Any, values: Any, argmax: Any) -> Any:
    """H_i of every example, and the labels of the maximum."""
    labels, offsets, costs, chained, hard = truth
    classes = len(costs)
    split = len(w) - classes * classes * chained
    table = w[:split].reshape(split // classes, classes)
    into = w[split:].reshape(classes, classes) if chained else costs
    scores, best = tables[0], tables[1]
    for i in range(len(offsets) - 1):
        first, stop = offsets[i], offsets[i + 1]
        emissions(rows, table, first, stop, scores)
        own = score(scores, into, stop - first, labels[first:stop])
        if hard:
            values[i] = decode_other(scores, into, stop - first, labels[first:stop], best, argmax[first:stop]) - own
            continue
        if augmented:
            for t in range(first, stop):
                for k in range(classes):
                    scores[t - first, k] += costs[labels[t], k]
        values[i] = decode(scores, into, stop - first, best, argmax[first:stop]) - own


def visit(  # noqa: PLR0913 - compiled code takes no object
    rows: Any, truth: Any, known: Any, scratch: Any, order: Any, begin: Any, w: Any, search: Any, steps: Any, least: Any
) -> Any:
    """Visit examples, from place ``begin`` of their order; see ``ChainAscent.visit``.

    Returns where it has come to, before the end at an example that needs another slot, and the sum of their gaps.
    """
    labels, offsets, costs, chained, hard = truth
    slots, weights, losses, count = known
    classes, gap = len(costs), 0.0
    split = len(w) - classes * classes * chained
    table = w[:split].reshape(split // classes, classes)
    into = w[split:].reshape(classes, classes) if chained else costs
    scores, best, raised = scratch.tables[0], scratch.tables[1], scratch.tables[2]
    path = np.empty(len(scores), labels.dtype)
    level = np.empty(slots.shape[0])
    for place in range(begin, len(order)):
        i = order[place]
        first, stop = offsets[i], offsets[i + 1]
        length = stop - first
        if not search and count[i] < 2:
            continue
        emissions(rows, table, first, stop, scores)
        if search:
            if hard:
                decode_other(scores, into, length, labels[first:stop], best, path)
            else:
                for t in range(length):
                    for k in range(classes):
                        raised[t, k] = scores[t, k] + costs[labels[first + t], k]
                decode(raised, into, length, best, path)
            found_before = False
            for a in range(count[i]):
                same = True
                for t in range(length):
                    if slots[a, first + t] != path[t]:
                        same = False
                        break
                if same:
                    found_before = True
                    break
            if not found_before:
                slot = count[i]
                for a in range(1, count[i]):
                    if weights[i, a] == 0.0:
                        slot = a
                        break
                if slot == slots.shape[0]:
                    return place, gap
                count[i] = max(count[i], slot + 1)
                weights[i, slot], losses[i, slot] = 0.0, 0.0
                for t in range(length):
                    slots[slot, first + t] = path[t]
                    losses[i, slot] += costs[labels[first + t], path[t]]
                if hard:
                    losses[i, slot] = 1.0
        if count[i] < 2:
            continue
        for step in range(steps):
            high, low = 0, -1
            for a in range(count[i]):
                level[a] = losses[i, a] + score(scores, into, length, slots[a, first:stop])
                if level[a] > level[high]:
                    high = a
                if weights[i, a] > 0.0 and (low < 0 or level[a] < level[low]):
                    low = a
            if step == 0:
                for a in range(count[i]):
                    gap += min(weights[i, a], 1.0 if hard else np.inf) * (level[high] - level[a])
            if low < 0 or level[high] - level[low] <= least:
                break
            found, square = difference(
                rows, chained, classes, first, slots[low, first:stop], slots[high, first:stop], scratch
            )
            move = weights[i, low]
            if square > 0.0 and level[high] - level[low] < move * square:
                move = (level[high] - level[low]) / square
                weights[i, low] -= move
            elif move < np.inf:
                weights[i, low] = 0.0
            else:  # nothing tells this labelling from the true one
                move = 1.0
            weights[i, high] += move
            for k in range(found):
                w[scratch.places[k]] += move * scratch.values[k]
            if step + 1 < steps:
                emissions(rows, table, first, stop, scores)
    return len(order), gap
