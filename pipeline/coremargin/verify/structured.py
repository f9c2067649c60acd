"""Structured output: the value of a hypothesis over all examples, and the dual point of weighted labellings.

An example is a row or, in a chain, a group of rows. A labelling's score is the sum of v_k.(x, s) over its rows, k being
the label of the row, and in a chain of the transitions between labels of successive rows; its loss is the sum of the
costs of its labels in the place of the true ones. The value of v is

    1/2 ||v||^2 + sum_i c_i H_i,    H_i = max_y (loss(y_i, y) + score(y)) - score(y_i)

and for weights a >= 0 of labellings no v has a value below

    D = sum a loss / r - 1/2 ||sum a psi||^2 / r^2,    psi = Phi(x_i, y_i) - Phi(x_i, y)

where r >= 1 is so large that the weights of each example, divided by r, sum to c_i at most (Lagrange). An example
without labellings has all of its weight on the true one, which adds nothing to either sum.

For a hard margin, of which no v has one above ||sum a psi|| / sum a, the margin of an example is score(y_i) less the
largest score of the other labellings; prefixes that have left the true labelling are kept apart from it.

H_i. Maxima over prefixes (Viterbi) from the first row to the last, in float64, of all examples of a chunk together;
an example that goes on in the next chunk waits with its scores. The scores of a row are off by at most e_t =
gamma_(d+4) (||x_t|| max ||w_k|| + max |b_k|), and H_i by 2 sum e_t + 2 gamma_(3T+8) times the sum of the largest terms'
sizes. That is added to it.

D. For each row the weights of the labellings make a vector of K shares, whose products with the row are summed up in
plain float64 within a slab; the error is at most gamma(SLAB_ROWS + 16) times the terms' sizes, and counts against D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET
from scipy.sparse import csr_array, issparse

from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import CLOSE, Check, same_classes, same_epsilon, same_ratio, shown, typed
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.margins import status as margin_status
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import SLAB_ROWS, TINY, UNIT, Total, gamma, length, rounded_sum, slabs
from coremargin.verify.values import status as value_status
from coremargin.verify.values import value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.structured import Structured
    from coremargin.verify.rows import Chunk, Rows

_FEW = 16 * UNIT  # error of a handful of operations
_TABLE = 1 << 20  # sums of prefix and transition at a time


@dataclass(frozen=True, kw_only=True)
class StructuredClaim(AnyClaim):
    """The claim of a model of structured output; ``y`` is not used."""

    labels: tuple[Any, ...]
    constant: float  #: last entry of every row
    v: np.ndarray  #: (K, d + 1)
    transitions: np.ndarray | None  #: (K, K), None if examples are rows
    costs: np.ndarray  #: (K, K), not used for a hard margin
    plain: bool  #: all wrong labels cost 1
    cost: float  #: C, 1 for a hard margin
    begins: np.ndarray  #: (m,) first row of the example of each labelling, increasing
    weight: np.ndarray  #: (m,)
    ends: np.ndarray  #: (m,) in ``labelled``
    labelled: np.ndarray  #: classes of the rows of all labellings

    @property
    def counts(self) -> np.ndarray:
        """How many rows each labelling has (m,)."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class _Rows:
    """Rows from number ``start`` on: scores (n, K), their errors (n,), and their c (n,).

    place (n,): of their classes, -1 for rows that do not count.
    """

    start: int
    scores: np.ndarray
    errors: np.ndarray
    place: np.ndarray
    c: np.ndarray
    groups: np.ndarray  #: those at which groups begin, or all if each row is an example

    def joined(self, later: _Rows) -> _Rows:
        """These rows and those that follow."""
        both = {name: np.concatenate([getattr(self, name), getattr(later, name)]) for name in _FIELDS}
        return _Rows(self.start, **both)

    def since(self, row: int) -> _Rows:
        """The rows from a number on."""
        some = {name: getattr(self, name)[row - self.start :] for name in _FIELDS[:-1]}
        return _Rows(row, **some, groups=self.groups[self.groups >= row])


_FIELDS = ("scores", "errors", "place", "c", "groups")


@dataclass(frozen=True)
class StructuredSummary:
    """The summary of one chunk: its rows and, of the dual point, their sums.

    parts: columns (m,) of v, and sums (K, m) of the rows' shares there, of each slab.
    """

    rows: _Rows
    parts: tuple[tuple[np.ndarray, np.ndarray], ...]
    sums: dict[str, np.ndarray]
    radius: float
    members: Members


class StructuredScan(StoreFindings):
    """The scan for value or margin, and dual point.

    Sums: value (): c_i H_i, rounded up; dual_sum (K, d + 1): sum a psi without transitions; moves (K, K): of these;
    reach (): the sizes of all terms; dual_loss (): sum a loss.
    """

    def __init__(self, claim: StructuredClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        classes = len(claim.labels)
        place = {typed(label): k for k, label in enumerate(claim.labels)}
        self._places = np.array([*(place[typed(label)] for label in rows.classes), -1])
        shapes = {"value": (), "dual_sum": claim.v.shape, "moves": (classes, classes), "reach": (), "dual_loss": ()}
        self._totals = {name: Total(shape) for name, shape in shapes.items()}
        # For each row of each labelling: the row, its label, that of the row before (-1 for the first), the weight.
        within = np.arange(len(claim.labelled)) - np.repeat(claim.ends - claim.counts, claim.counts)
        label = claim.labelled.astype(np.int64)
        row = np.repeat(claim.begins, claim.counts) + within
        order = np.argsort(row, kind="stable")
        self._row, self._label = row[order], label[order]
        self._before = np.where(within > 0, np.roll(label, 1), -1)[order]
        self._weight = np.repeat(claim.weight, claim.counts)[order]
        self._which = np.repeat(np.arange(len(claim.begins)), claim.counts)[order]
        self._differs = np.zeros(len(claim.begins), bool)  # labellings from the true one
        self._longest = max(map(length, claim.v[:, :-1]))
        self._limits = np.zeros(len(claim.begins))  # c of the example of each labelling
        self._matched = 0  # labellings of examples that there are
        self._waiting: _Rows | None = None  # of an example that may go on
        self.margin, self.lowest = math.inf, -1  # the smallest margin, times the length of all weights, and its row
        self.mixed: int | None = None  # a row whose label or weight does not fit its group
        self.examples = 0

    def probe(self, chunk: Chunk) -> StructuredSummary:
        """Scores of the rows, and their shares of the dual point."""
        claim, classes = self.claim, len(self.claim.labels)
        place = self._places[chunk.codes]
        weights = np.ones(len(place)) if chunk.weights is None else chunk.weights
        place = np.where(weights > 0, place, -1)
        first, stop = np.searchsorted(self._row, [chunk.start, chunk.start + len(place)])
        at, label, weight = self._row[first:stop] - chunk.start, self._label[first:stop], self._weight[first:stop]
        labelled = place[at] >= 0  # others are infeasible, which another check finds
        at, label, weight = at[labelled], label[labelled], weight[labelled]
        shares = np.zeros((len(place), classes))
        np.add.at(shares, (at, place[at]), weight)
        np.subtract.at(shares, (at, label), weight)
        sizes = np.bincount(at[place[at] != label], weights=weight[place[at] != label], minlength=len(place)) * 2.0
        sums = {name: Total(self._totals[name].high.shape) for name in ("reach", "dual_loss")}
        sums_of_slabs = []
        sums["dual_loss"].add(np.asarray(rounded_sum((weight * claim.costs[place[at], label]).tolist())))
        scores, errors, radius = np.empty((len(place), classes)), np.empty(len(place)), 0.0
        for part, x in slabs(chunk.x, SLAB_ROWS):
            lengths = self.lengths(x, chunk.start + part.start)
            radius = max(radius, float(lengths.max()))
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows proves nothing
                scores[part], errors[part] = self._scores(x, lengths)
                sums_of_slabs.append(self._dual_sums(x, shares[part]))
                sums["reach"].add(np.asarray(sizes[part] @ (lengths + claim.constant)))
        members = self.members(chunk, np.where(place >= 0, 1, 0))
        values = {name: total.value for name, total in sums.items()}
        every = np.arange(chunk.start, chunk.start + len(place))
        groups = every if claim.transitions is None or chunk.groups is None else chunk.groups
        rows = _Rows(chunk.start, scores, errors, place, claim.cost * weights, groups)
        return StructuredSummary(rows, tuple(sums_of_slabs), values, radius, members)

    def _dual_sums(self, x: Any, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Columns (m,) of v, and the sums (K, m) of rows (n, d) by their shares (n, K) there."""
        shown = np.flatnonzero(shares.any(axis=1))
        x, shares = x[shown], shares[shown]
        columns = np.arange(x.shape[1])
        if issparse(x):
            columns, places = np.unique(x.indices, return_inverse=True)
            x = csr_array((x.data, places.reshape(-1), x.indptr), shape=(x.shape[0], len(columns)))
        sums = np.column_stack([np.asarray(shares.T @ x), self.claim.constant * shares.sum(axis=0)])
        return np.append(columns, self.claim.v.shape[1] - 1), sums

    def _scores(self, x: Any, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores (n, K), and bounds (n,) on their errors."""
        v, d = self.claim.v, self.claim.v.shape[1] - 1
        b = self.claim.constant * v[:, -1]
        size = lengths * self._longest + float(np.abs(b).max())
        return np.asarray(x @ v[:, :-1].T) + b, gamma(d + 4) * size + (d + 4) * TINY

    def add(self, summary: StructuredSummary) -> None:
        """Add a summary; in the order of chunks, as examples go on from one to the next."""
        for name, values in summary.sums.items():
            self._totals[name].add(values)
        for columns, values in summary.parts:
            self._totals["dual_sum"].add_columns(columns, values)
        rows = summary.rows
        self.count(int((rows.place < 0).sum()), summary.radius, summary.members)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = rows if self._waiting is None else self._waiting.joined(rows)
            stop = rows.start + len(rows.place)
            edges = np.append(rows.groups, stop)
            if stop < self.rows.rows:  # the last group may go on
                self._waiting, edges = rows.since(int(rows.groups[-1])), edges[:-1]
            self._add_examples(rows, edges)

    def _add_examples(self, rows: _Rows, edges: np.ndarray) -> None:
        """Losses and dual weights of the examples that lie between successive edges, numbers of rows."""
        claim, begins, lengths = self.claim, edges[:-1] - rows.start, np.diff(edges)
        if not len(begins):
            return
        # c of each example, 0 for one that does not count; in a group all rows have a label and one weight, or none has
        c = np.where(rows.place[begins] >= 0, rows.c[begins], 0.0)
        first, stop = int(begins[0]), int(begins[-1] + lengths[-1])
        fits = np.where(rows.place >= 0, rows.c, 0.0)[first:stop] == np.repeat(c, lengths)
        if self.mixed is None and not fits.all():
            self.mixed = rows.start + first + int(np.argmin(fits))
        a, b = np.searchsorted(claim.begins, [edges[0], edges[-1]])
        place = np.searchsorted(edges, claim.begins[a:b], side="right") - 1
        own = (edges[place] == claim.begins[a:b]) & (lengths[place] == claim.counts[a:b])
        self._matched += int(own.sum())
        self._limits[a:b] = c[place]
        counted = np.flatnonzero(c > 0)
        self.examples += len(counted)
        losses = _losses(claim, rows, begins[counted], lengths[counted])
        if claim.soft:
            losses = np.maximum(losses, 0.0) * c[counted]
            self._totals["value"].add(np.asarray(math.fsum(losses) if np.isfinite(losses).all() else np.inf))
        elif len(losses):
            margins = np.where(np.isfinite(losses), -losses, -np.inf)
            k = int(np.argmin(margins))
            if margins[k] < self.margin:
                self.margin, self.lowest = float(margins[k]), int(edges[counted[k]])
        a, b = np.searchsorted(self._row, [edges[0], edges[-1]])
        row, label, before = self._row[a:b] - rows.start, self._label[a:b], self._before[a:b]
        self._differs[self._which[a:b][rows.place[row] != label]] = True
        if claim.transitions is None:
            return
        now = np.flatnonzero((before >= 0) & (rows.place[row] >= 0))
        row, weight = row[now], self._weight[a:b][now]
        moves = np.zeros_like(self._totals["moves"].high)
        np.add.at(moves, (rows.place[row - 1], rows.place[row]), weight)
        np.subtract.at(moves, (before[now], label[now]), weight)
        self._totals["moves"].add(moves)
        # of as many terms as there are rows, instead of those of a slab
        self._totals["reach"].add(np.asarray(2.0 * weight.sum() * (2.0 + len(weight) / SLAB_ROWS)))

    def bounds(self) -> tuple[float | None, float | None]:
        """The bounds found: of a value, or of a margin."""
        if self.claim.soft:
            return self._values()
        longest, total = self._longest_sum(), rounded_sum(self.claim.weight.tolist()) * (1 - _FEW)
        proves = total > 0 and self._matched == len(self.claim.begins) and math.isfinite(self._excess())
        proves = proves and bool(self._differs.all())  # the true one weighs, and adds nothing to the sum
        size = self._size * (1 + _FEW if self.margin > 0 else 1 - _FEW)
        margin = self.margin / size if size > 0 and self.lowest >= 0 else None
        return margin, longest / total * (1 + _FEW) if proves else None

    @property
    def _size(self) -> float:
        moves = self.claim.transitions
        parts = [self.claim.v.ravel()] + ([] if moves is None else [moves.ravel()])
        return length(np.concatenate(parts))

    def _longest_sum(self) -> float:
        """||sum a psi||, rounded up."""
        error = gamma(SLAB_ROWS + 16 + len(self.claim.labels))
        sums = np.concatenate([self._totals[name].value.ravel() for name in ("dual_sum", "moves")])
        return length(sums) * (1 + _FEW) + error * float(self._totals["reach"].value)

    def _values(self) -> tuple[float, float]:
        """The dual bound, rounded down, and the value of the hypothesis, rounded up."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            size, longest, r = self._size, self._longest_sum(), self._excess()
            value = (0.5 * size * size + float(self._totals["value"].value)) * (1 + _FEW)
            dual = float(self._totals["dual_loss"].value) * (1 - _FEW) / r - 0.5 * (longest / r) ** 2 * (1 + _FEW)
        proves = dual > 0 and self._matched == len(self.claim.begins) and math.isfinite(dual)  # none at all prove 0
        return (dual if proves else 0.0), (value if math.isfinite(value) else math.inf)

    def _excess(self) -> float:
        """r: by what the weights of an example may exceed its c, at least 1, rounded up; infinite for a c of 0."""
        claim = self.claim
        if not len(claim.weight):
            return 1.0
        first = np.flatnonzero(np.diff(claim.begins, prepend=-1))
        sums = np.add.reduceat(claim.weight, first) * (1 + gamma(int(np.diff(first, append=len(claim.weight)).max())))
        return max(1.0, float((sums / self._limits[first]).max()) * (1 + 4 * UNIT))

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        shared = [self.content(), *self._mixed_check(), self._labellings_check()]
        if not self.claim.soft:
            return [*shared, *self._margin_checks()]
        dual, value = self._values()
        return [*shared, value_reached(self.claim, value, self._about), value_bounded(self.claim, dual)]

    def _margin_checks(self) -> list[Check]:
        """Whether the margin is at least, and the best one at most, what is claimed."""
        claim, (lower, upper) = self.claim, self.bounds()
        least = f"the smallest margin of all {self._about} is {shown(lower)}, of that from row {self.lowest}"
        low = claim.lower is None or (lower is not None and claim.lower <= lower)
        most = f"{len(claim.weight):,} labellings prove at most {shown(upper)}"
        high = claim.upper is None or (upper is not None and upper <= claim.upper)
        return [
            Check("lower bound", low, f"{least} (claimed: {shown(claim.lower)})"),
            Check("upper bound", high, f"{most} (claimed: {shown(claim.upper)})"),
        ]

    @property
    def _about(self) -> str:
        what = "rows" if self.claim.transitions is None else "sequences"
        return f"{self.examples:,} {what}{self.aside}"

    def _mixed_check(self) -> list[Check]:
        if self.mixed is None:
            return []
        text = f"row {self.mixed}: its label is missing, or its weight is not that of the first row of its group"
        return [Check("groups", ok=False, text=text)]

    def _labellings_check(self) -> Check:
        claim = self.claim
        missing = len(claim.begins) - self._matched
        if missing:
            what = "rows" if claim.transitions is None else "groups"
            return Check(
                "labellings", ok=False, text=f"{missing:,} are not of {what} of the store, from first to last row"
            )
        excess = self._excess()
        if not math.isfinite(excess):
            return Check("labellings", ok=False, text="some have weight of examples that do not count")
        text = f"{len(claim.weight):,} with weights above 0"
        if not claim.soft:
            ok = bool(self._differs.all())
            return Check("labellings", ok, f"{text}, none of them the true one" if ok else "one is the true one")
        if excess > 1.0 + 1e-9:
            return Check("labellings", ok=False, text=f"{text}: those of an example sum to {excess:.12g} of its C")
        return Check("labellings", ok=True, text=f"{text}; those of an example sum to its C at most")


def _losses(claim: StructuredClaim, rows: _Rows, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """H_i (n,), rounded up, of examples that begin at these places of the rows; or margins, with a minus sign."""
    if not len(begins):
        return np.zeros(0)
    scores, place, moves = rows.scores, np.maximum(rows.place, 0), claim.transitions
    largest = np.abs(scores).max(axis=1) + float(claim.costs.max()) * claim.soft
    if moves is None:
        y = place[begins]
        own, others = scores[begins, y], scores[begins] + claim.costs[y] * claim.soft
        if not claim.soft:
            others[np.arange(len(y)), y] = -np.inf
        return np.asarray(others.max(axis=1) - own + 2.0 * rows.errors[begins] + 8.0 * UNIT * largest[begins])
    largest = largest + float(np.abs(moves).max())
    terms = scores[np.arange(len(place)), place]
    terms[1:] += moves[place[:-1], place[1:]]
    terms[begins] = scores[begins, place[begins]]
    # sums over each example; rows of others may lie in between
    spans = np.column_stack([begins, begins + lengths]).ravel()

    def summed(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduceat(np.append(values, 0.0), spans)[::2])

    own, errors = summed(terms), summed(rows.errors)
    error = 2.0 * errors + 2.0 * gamma(3 * int(lengths.max()) + 8) * summed(largest)
    highest = _highest(claim, rows, begins, lengths) if claim.soft else _runner_up(claim, rows, begins, lengths)
    return np.asarray(highest - own + error)


def _runner_up(claim: StructuredClaim, rows: _Rows, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The largest score (n,) of the labellings of each example but the true one."""
    moves, classes = cast("np.ndarray", claim.transitions), len(claim.labels)
    order = np.argsort(-lengths, kind="stable")
    step, found = max(1, _TABLE // (classes * classes)), np.empty(len(begins))
    for first in range(0, len(order), step):
        mine = order[first : first + step]
        start, count, every = begins[mine], lengths[mine], np.arange(len(mine))
        y = rows.place[start]
        true = rows.scores[start, y]  # of the true prefix
        apart = rows.scores[start].copy()  # of the others, by their last label
        apart[every, y] = -np.inf
        for t in range(1, int(count[0])):
            going = int(np.searchsorted(-count, -t, side="left"))  # longer than t
            here, some, before = start[:going] + t, every[:going], y[:going]
            ahead = (apart[:going, :, None] + moves[None]).max(axis=1)
            leaving = true[:going, None] + moves[before]
            y[:going] = rows.place[here]
            true[:going] = leaving[some, y[:going]] + rows.scores[here, y[:going]]
            leaving[some, y[:going]] = -np.inf
            apart[:going] = np.maximum(ahead, leaving) + rows.scores[here]
        found[mine] = apart.max(axis=1)
    return found


def _highest(claim: StructuredClaim, rows: _Rows, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The largest sum (n,) of score and loss over all labellings of each example."""
    moves, classes = cast("np.ndarray", claim.transitions), len(claim.labels)
    order = np.argsort(-lengths, kind="stable")
    step, found = max(1, _TABLE // (classes * classes)), np.empty(len(begins))
    for first in range(0, len(order), step):
        mine = order[first : first + step]
        start, count = begins[mine], lengths[mine]
        best = rows.scores[start] + claim.costs[rows.place[start]]
        for t in range(1, int(count[0])):
            going = int(np.searchsorted(-count, -t, side="left"))  # longer than t
            here = start[:going] + t
            ahead = (best[:going, :, None] + moves[None]).max(axis=1)
            best[:going] = ahead + rows.scores[here] + claim.costs[rows.place[here]]
        found[mine] = best.max(axis=1)
    return found


def consistency(claim: StructuredClaim) -> list[Check]:
    """Costs, the last entry of rows, epsilon, ratio, status."""
    classes = len(claim.labels)
    constant = 0.0
    if claim.intercept:
        constant = 1.0 if claim.transitions is not None else _constant(claim.radius)
    ok = claim.constant == constant
    text = f"{classes} classes, every row ends in {claim.constant:g}"
    checks = [Check("hypothesis", ok, text if ok else f"{text}: expected {constant:g}")]
    expected = np.ones((classes, classes)) - np.eye(classes)
    if claim.plain:
        same = bool((claim.costs == expected).all())
        text = "every wrong label costs 1" if same else "model claims that every wrong label costs 1, its costs differ"
        checks.append(Check("costs", same, text))
    if not claim.soft and claim.lower is not None:
        moves = np.zeros(0) if claim.transitions is None else claim.transitions.ravel()
        size = length(np.concatenate([claim.v.ravel(), moves]))
        checks.append(Check("length", abs(size - 1) <= CLOSE, f"of all weights: {size:.12g}, expected 1"))
    judged = value_status(claim) if claim.soft else margin_status(claim)
    return [*checks, *same_epsilon(claim), *same_ratio(claim), judged]


def _constant(longest: float) -> float:
    """The least power of two that is not below the length of the longest row."""
    if longest >= 2.0**1023:
        return math.inf
    return 2.0 ** math.ceil(math.log2(longest)) if longest > 0 else 1.0


class StructuredKind(Kind[StructuredClaim]):
    """The claims of structured output."""

    def claim(self, files: ModelFiles) -> StructuredClaim:
        """Weights, costs and labellings."""
        record, arrays = cast("Structured", files.record), files.arrays
        return StructuredClaim(
            **any_claim(files, WHOLE, soft=record.soft),
            y=np.zeros(0, np.int64),
            labels=tuple(record.classes),
            constant=record.constant,
            v=arrays["hypothesis"],
            transitions=arrays.get("transitions"),
            costs=arrays["costs"],
            plain=record.parameters.costs is UNSET,
            cost=1.0 if record.parameters.C is UNSET else float(record.parameters.C),
            begins=arrays["duals_row"],
            weight=arrays["duals_weight"],
            ends=arrays["duals_ends"],
            labelled=arrays["duals_labels"],
        )

    def same_classes(self, claim: StructuredClaim, rows: Rows) -> Check:
        """All of them."""
        return same_classes(claim.labels, rows)

    def consistency(self, claim: StructuredClaim) -> list[Check]:
        """Costs, the last entry of rows, epsilon, ratio, status."""
        return consistency(claim)

    def scan(self, claim: StructuredClaim, rows: Rows) -> StructuredScan:
        """The loss of each example, and the shares of its rows in the dual point."""
        return StructuredScan(claim, rows)

    def not_checked(self, claim: StructuredClaim) -> tuple[str, ...]:
        """Adds costs that were given."""
        return self.unchecked if claim.plain else (*self.unchecked, "whether the costs are those that you mean")


KIND = StructuredKind()
