"""A soft margin with the hinge or the squared hinge: the value of the hypothesis, and the bound of its dual point.

    f(w, b) = 1/2 ||w||^2 + sum_i c_i loss(1 - y_i (w.x_i + b)),    c_i = C times the weights of the row and its class

For a >= 0 (hinge: a_i <= c_i too), with a free intercept sum_i a_i y_i = 0, and v = sum_i a_i y_i x_i, no hypothesis
has a value below

    hinge          sum_i a_i - 1/2 ||v||^2
    squared hinge  sum_i a_i - sum_i a_i^2 / (4 c_i) - 1/2 ||v||^2

(Lagrange). All are sums over the rows, made by one scan.

Value. A row's margin in float64 is off by at most e = gamma_(d+3) (|x|.|w| + |b| + 1), |x|.|w| <= ||x|| ||w||, so its
loss is at most loss(1 - margin + e): these are summed. For mapped rows e includes ||w|| times the error of the map
(feature_map.py). Duals are those of the mapped rows as computed here, a dual point whatever the exact ones are; how far
the sum v of the exact ones may be from that of these counts against the claim.

Dual. The dual weight of a row that is not near the margin follows from the reference of its chunk: with the hinge c if
its margin there is below 1, else 0; with the squared hinge c xi in proportion, xi = max(0, 1 - margin), or what
corrected_dual.py makes of it. For the hinge the side matters: if the error above leaves it open, the margin is
evaluated again, rounded once. For the squared hinge any xi >= 0 gives a dual point, so those of float64 do.

The dual weights of the other rows are given. Being floats they sum to zero, and keep to their box, up to rounding only.
Moving them into place takes a total of M (``_hinge_dual``), and there is always room: it costs M in the sum and R M in
||v||, R being the longest row. So the claim is compared with a bound that holds whatever was given.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import UNSET
from scipy import sparse

from coremargin.formats.limits import C_LIMITS
from coremargin.verify.checks import Check, same_epsilon, same_ratio, same_two_classes
from coremargin.verify.claim import Claim, two_classes
from coremargin.verify.corrected_dual import Slopes
from coremargin.verify.feature_map import SPREAD
from coremargin.verify.hard_margin import dual as hard_margin_dual
from coremargin.verify.kind import Kind
from coremargin.verify.store import Members, StoreScan, listed
from coremargin.verify.sums import (
    SLAB_ROWS,
    TINY,
    UNIT,
    Total,
    dot_products,
    exact_products,
    gamma,
    length,
    nearest,
    rounded_sum,
    slabs,
)
from coremargin.verify.values import errors_check, guaranteed_risk, percent_up, status, value_bounded, value_reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.soft_margin import SoftMargin
    from coremargin.verify.rows import Chunk, Rows

VACUOUS = 0.5  #: a bound on the error of as much says no more than guessing
_FEW = 16 * UNIT  # error of a handful of operations
_LONG = 1024.0  # if sum |x_j w_j| may be larger, it is summed: a few huge values make a row long


class Loss(ABC):
    """A function of a row's slack max(0, 1 - margin). A further loss is a class here, and its dual bound below."""

    #: True: the model stores the duals of the rows near the margin, and all others have that of their side. False: all
    #: duals follow from the slacks at the reference.
    names_duals: bool

    @abstractmethod
    def value(self, slack: np.ndarray) -> np.ndarray:
        """The losses (n,) of slacks (n,) >= 0."""

    @abstractmethod
    def shares(self, margins: np.ndarray) -> np.ndarray:
        """Duals (n,) from the margins at a hypothesis, in units of c or up to a common factor."""

    @abstractmethod
    def limit(self, cost: float) -> float:
        """Upper limit of the dual of a row of C ``cost``."""

    @abstractmethod
    def conjugate(self, squares: float, cost: float) -> float:
        """What is subtracted from the dual value besides 1/2 ||v||^2; squares: sum of a^2 over rows of C ``cost``."""


class Hinge(Loss):
    """max(0, 1 - margin)."""

    names_duals = True

    def value(self, slack: np.ndarray) -> np.ndarray:
        """The slacks themselves."""
        return slack

    def shares(self, margins: np.ndarray) -> np.ndarray:
        """1 for a margin below 1, else 0."""
        return np.asarray((margins < 1.0).astype(np.float64))

    def limit(self, cost: float) -> float:
        """C."""
        return cost

    def conjugate(self, squares: float, cost: float) -> float:
        """Nothing."""
        return 0.0


class SquaredHinge(Loss):
    """max(0, 1 - margin)^2."""

    names_duals = False

    def value(self, slack: np.ndarray) -> np.ndarray:
        """The squares."""
        return np.asarray(slack * slack)

    def shares(self, margins: np.ndarray) -> np.ndarray:
        """The slacks."""
        return np.asarray(np.maximum(1.0 - margins, 0.0))

    def limit(self, cost: float) -> float:
        """None."""
        return math.inf

    def conjugate(self, squares: float, cost: float) -> float:
        """Sum of a^2 / (4 C)."""
        return squares / (4 * cost)


LOSSES: Mapping[str, Loss] = {"hinge": Hinge(), "squared_hinge": SquaredHinge()}


@dataclass(frozen=True, kw_only=True)
class SoftClaim(Claim):
    """The claim of a model of two classes with a loss."""

    loss: str  #: a name in LOSSES
    cost: float  #: C
    class_weight: str | tuple[float, float] | None  #: "balanced", or factors of C of the negative and positive class
    reference: np.ndarray  #: (r, d + 1) the hypotheses that the dual point follows from
    reference_of: np.ndarray  #: (chunks,) int64: the reference of each chunk; (0,): all chunks have the same one
    ramp: float  #: of the squared hinge's corrected dual point (corrected_dual.py), 0: slacks in proportion
    tried: Claim | None  #: that there is no hard margin, if one was tried before; without its rows


def class_costs(claim: Any, counts: np.ndarray) -> np.ndarray:
    """c (2,) of a row of weight 1 of the positive class and of the negative one, the float64 nearest to its definition.

    C times the weights of the classes; "balanced": n / (2 n_class). counts (2,): sums of sample weights.
    """
    if claim.class_weight == "balanced":
        sums = [Fraction(float(count)) for count in counts]
        return np.array([nearest(Fraction(claim.cost) * sum(sums) / (2 * k)) if k else 0.0 for k in sums])
    negative, positive = claim.class_weight if isinstance(claim.class_weight, tuple) else (1.0, 1.0)
    return np.array([claim.cost * positive, claim.cost * negative])


def class_costs_check(claim: Any, loss: str, c: np.ndarray, rows: np.ndarray, counts: np.ndarray, of: str) -> Check:
    """Whether there are rows of both classes, and sums of such c are within what float64 can bound.

    c, rows, counts (2,): of the positive and the negative class c, the number of rows, and the sum of their weights;
    of: text if rows are weighted.
    """
    positive, negative = (int(count) for count in rows)
    text = (
        f"{loss}, C = {claim.cost:g}: a row costs{of} {c[1]:.6g} ({negative:,} of class {claim.negative!r}) or "
        f"{c[0]:.6g} ({positive:,} of class {claim.positive!r})"
    )
    low, high = C_LIMITS
    if not all(low <= value * count <= high for value, count in zip(c, counts, strict=True) if count):
        return Check(
            "per-sample C", ok=False, text=f"{text}: expected from {low:g} to {high:g} for the rows of a class"
        )
    if positive and negative:
        return Check("per-sample C", ok=True, text=text)
    return Check("per-sample C", ok=False, text=f"{text}: expected rows of both classes")


def training_errors_check(claim: Claim, wrong: np.ndarray, rows: np.ndarray, *, weighted: bool) -> Check:
    """The training error, which no model claims: the scan counts it, and bounds the error on new rows by it.

    wrong, rows (2,): rows of the positive and the negative class that may be on the wrong side, or on the hyperplane,
    to within rounding, and all of them. There is no bound for weighted rows, nor for mapped ones: a map may depend on
    the rows.
    """
    errors, count = int(wrong.sum()), int(rows.sum())
    found = errors_check(errors, count)
    if claim.map is not None or claim.moved or weighted or not count:
        return found
    dimension = max(1, claim.features + claim.intercept)
    risk = guaranteed_risk(count, dimension, errors / count)
    if risk < VACUOUS:
        new = f"at most {percent_up(risk)} of new ones, if all are drawn independently (Vapnik, confidence 95 %)"
    elif guaranteed_risk(count, dimension, 0.0) < VACUOUS:
        new = "too many for a bound on new rows"
    else:
        new = "too few rows for a bound on new rows"
    return Check("errors", ok=True, text=f"{found.text}; {new}")


def tried_claim(record: SoftMargin, files: ModelFiles, shared: Mapping[str, Any]) -> Claim | None:
    """The claim that no hard margin exists, if one was tried before the loss: the hulls of these rows meet.

    shared: the fields of the model's own claim. The scan collects the rows.
    """
    if record.tried is UNSET:
        return None
    arrays = files.arrays
    own = {
        "status": "not_separable",
        "kind": "not_separable",
        "lower": None,
        "upper": record.tried.upper,
        "ratio": None,
        "soft": False,
        "ids": arrays["tried_ids"],
        "y": arrays["tried_y"].astype(np.int64),
        "alpha": arrays["tried_alpha"],
        "x": np.zeros((record.tried.coreset_rows, 0)),
    }
    claim = Claim(**{**shared, **own})
    return claim.tightened(SPREAD * claim.moved)


@dataclass(frozen=True)
class TriedRows:
    """Rows of that proof in a chunk: places (m,) in the claim, x (m, d), and their signs (m,) in the store."""

    places: np.ndarray
    x: Any
    signs: np.ndarray


class TriedScan:
    """Collects the rows of the proof that there is no hard margin, and checks this proof."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self._parts: list[TriedRows] = []

    def probe(self, chunk: Chunk, signs: np.ndarray) -> TriedRows:
        """The rows of a chunk whose rows have these signs."""
        local = self.claim.ids - chunk.start
        places = np.flatnonzero((local >= 0) & (local < len(signs)))
        return TriedRows(places, chunk.x[local[places]].astype(np.float64), signs[local[places]])

    def add(self, part: TriedRows) -> None:
        """Add the rows of a chunk."""
        if len(part.places):
            self._parts.append(part)

    def checks(self) -> list[Check]:
        """Whether they are rows of the store, and their hulls meet."""
        claim, parts = self.claim, self._parts
        places = np.concatenate([np.zeros(0, np.intp), *(part.places for part in parts)])
        signs = np.concatenate([np.zeros(0, np.int64), *(part.signs for part in parts)])
        missing = np.setdiff1d(np.arange(len(claim.ids)), places)
        other, none = places[signs == -claim.y[places]], places[signs == 0]
        kinds = ((missing, "not in the store"), (other, "of another class"), (none, "without label or weight"))
        problems = [f"{listed(claim.ids[rows].tolist())} {what}" for rows, what in kinds if len(rows)]
        text = "; ".join(problems) or f"all {len(places):,} rows of its proof are the store's, with its labels"
        found = [Check("hard margin", not problems, text)]
        if problems:
            return found
        x = [part.x for part in parts]
        rows = sparse.csr_array(sparse.vstack(x)) if sparse.issparse(x[0]) else np.concatenate(x)
        _, proven = hard_margin_dual(
            replace(claim, x=rows, y=claim.y[places], alpha=claim.alpha[places], ids=claim.ids[places])
        )
        return found + [replace(check, text=f"of the hard margin that was tried: {check.text}") for check in proven]


class Sums:
    """Sums over rows; of pairs, index 0 is the positive class, 1 the negative.

    s is a row's weight, 1 if the store has none; h the dual weight of a row that is not near the margin, in units of
    its c; a the given dual weight of a row near the margin; r = min(1, h / ramp); z = (x, 1).

    rows: their number; wrong: of those that may be on the wrong side, or on the hyperplane, to within rounding; count:
    sum s; loss: of upper bounds of the losses; slack: sum s h; squares: sum s h^2; dual_sum
    (2, d): sum s h x; reach: sum s h ||x||, or spread (2, d): sum s h |x| if rows may be long. near_dual_sum (d,): sum
    a y x; near_reach, near_spread: as before. With a ramp, turn (2, d + 1): sum s r (h - 1) z; curve (2, d + 1, d + 1):
    sum s r z z^T.
    """

    NAMES = (
        "rows",
        "wrong",
        "count",
        "loss",
        "slack",
        "squares",
        "dual_sum",
        "reach",
        "spread",
        "near_dual_sum",
        "near_reach",
        "near_spread",
    )

    def __init__(self, features: int, *, ramp: bool = False) -> None:
        shapes: dict[str, tuple[int, ...]] = {"near_reach": ()}
        shapes |= {
            "dual_sum": (2, features),
            "spread": (2, features),
            "near_dual_sum": (features,),
            "near_spread": (features,),
        }
        curved: dict[str, tuple[int, ...]] = {"turn": (2, features + 1), "curve": (2, features + 1, features + 1)}
        shapes |= curved
        names = (*self.NAMES, *curved) if ramp else self.NAMES
        self._totals = {name: Total(shapes.get(name, (2,))) for name in names}

    def add(self, parts: dict[str, np.ndarray]) -> None:
        """Add to some of the sums, by name."""
        for name, values in parts.items():
            self._totals[name].add(values)

    def parts(self) -> dict[str, np.ndarray]:
        """All sums by name."""
        return {name: total.value for name, total in self._totals.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._totals[name].value


@dataclass(frozen=True)
class SoftSummary:
    """The summary of one chunk."""

    sums: dict[str, np.ndarray]
    unlabelled: int
    radius: float
    members: Members
    weights: np.ndarray  #: of the coreset's rows, in the order of ``members``
    low: np.ndarray  #: (d,) the least value of each feature; ``high``: the largest; (0,) without a ramp
    high: np.ndarray
    tried: TriedRows | None


class SoftScan(StoreScan):
    """The scan for the value of a hypothesis and of a dual point, and what it proves."""

    claim: SoftClaim

    def __init__(self, claim: SoftClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        self.ramp = claim.ramp
        self.sums = Sums(claim.features, ramp=self.ramp > 0)
        wide = claim.features if self.ramp else 0
        self.low, self.high = np.full(wide, np.inf), np.full(wide, -np.inf)
        self.loss = LOSSES[claim.loss]
        self._size = length(claim.w) * (1 + gamma(8))
        self.duals = claim.alpha
        # Signs in the store; 0: no such row, no label, or a repeated id.
        self.found = np.zeros(len(claim.ids), dtype=np.int64)
        self.weights = np.ones(len(claim.ids))
        self.tried = None if claim.tried is None else TriedScan(claim.tried)
        self._bounds: tuple[float, float] | None = None
        #: Error of every sum over rows, relative to the sizes of its terms.
        self.error = gamma(min(SLAB_ROWS, rows.chunk_rows) + 16)

    def probe(self, chunk: Chunk) -> SoftSummary:
        """The summary of a chunk, in slabs of float64."""
        signs = self.signs(chunk)
        members = self.members(chunk, signs)
        local, first = np.unique(self.claim.ids[members.places] - chunk.start, return_index=True)
        near_margin = np.zeros(len(signs))
        near_margin[local] = self.duals[members.places[first]]
        inside = np.zeros(len(signs), dtype=bool)
        inside[local] = True
        sums, radius, reference = Sums(self.claim.features), 0.0, self._reference(chunk)
        curvature = CurvatureSums(self.claim.features, self.ramp) if self.ramp else None
        weights = np.ones(len(signs)) if chunk.weights is None else chunk.weights
        for part, x in slabs(chunk.x, SLAB_ROWS):
            lengths = self.lengths(x, chunk.start + part.start)
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows proves nothing, see ``checks``
                s = np.where([signs[part] > 0, signs[part] < 0], weights[part], 0.0)
                sums.add(self._losses(x, signs[part], s, lengths))
                h = self._shares(x, signs[part], lengths, ~inside[part], reference)
                sums.add(self._weights(x, s, h, lengths))
                if curvature is not None:
                    curvature.add(x, s, h)
                if inside[part].any():
                    sums.add(_near_margin_sums(x, signs[part], self._sized(lengths), near_margin[part]))
            radius = max(radius, float(lengths.max()))
        chosen = weights[self.claim.ids[members.places] - chunk.start]
        found, low, high = sums.parts(), np.zeros(0), np.zeros(0)
        if curvature is not None:
            found, low, high = found | curvature.sums, curvature.low, curvature.high
        tried = None if self.tried is None else self.tried.probe(chunk, signs)
        return SoftSummary(found, int((signs == 0).sum()), radius, members, chosen, low, high, tried)

    def _reference(self, chunk: Chunk) -> np.ndarray:
        """The hypothesis (d + 1,) of a chunk. Any gives a dual point; ``checks`` rejects a wrong number of them."""
        place, of = chunk.start // self.rows.chunk_rows, self.claim.reference_of
        return np.asarray(self.claim.reference[of[place] if place < len(of) else 0])

    def _losses(self, x: Any, signs: np.ndarray, s: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        """s (2, n): the weights of the rows of each class, 0 for those of the other."""
        margins, error = margins_within(x, signs, lengths, self.claim.w, self.claim.b)
        error = error + self.claim.moved * self._size  # of mapped rows
        slack = np.maximum(1.0 - margins + error, 0.0)
        return {
            "rows": np.array([(signs > 0).sum(), (signs < 0).sum()], dtype=np.float64),
            "wrong": ((s > 0) & ~(slack < 1.0)).sum(axis=1, dtype=np.float64),
            "count": self._total(s),
            "loss": s @ self.loss.value(slack),
        }

    def _shares(
        self, x: Any, signs: np.ndarray, lengths: np.ndarray, far: np.ndarray, reference: np.ndarray
    ) -> np.ndarray:
        """h (n,), 0 for rows that are not far."""
        w, b = reference[:-1], float(reference[-1])
        margins, error = margins_within(x, signs, lengths, w, b)
        if self.loss.names_duals:  # the side decides
            unclear = np.flatnonzero(far & (signs != 0) & (np.abs(margins - 1.0) <= error))
            margins[unclear] = signs[unclear] * dot_products(x[unclear], w, b)
        h = self.loss.shares(margins)
        h[~far] = 0.0
        return h

    def _weights(self, x: Any, s: np.ndarray, h: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        sh = s * h
        return {
            "slack": self._total(sh),
            "squares": sh @ h,
            "dual_sum": sh @ x,
            **_sizes(sh, x, self._sized(lengths), ""),
        }

    def _sized(self, lengths: np.ndarray) -> np.ndarray | None:
        """The lengths, if rows are short by them and by the claim, else None: both error bounds hold for any row."""
        return lengths if max(float(lengths.max()), self.claim.radius) <= _LONG else None

    def add(self, summary: SoftSummary) -> None:
        """Add a summary, in the order of chunks."""
        self.count(summary.unlabelled, summary.radius, summary.members)
        self.sums.add(summary.sums)
        if self.tried is not None and summary.tried is not None:
            self.tried.add(summary.tried)
        if self.ramp:
            self.low, self.high = np.minimum(self.low, summary.low), np.maximum(self.high, summary.high)
        places, first = summary.members.places, np.unique(self.claim.ids[summary.members.places], return_index=True)[1]
        self.found[places[first]] = summary.members.signs[first]
        self.weights[places[first]] = summary.weights[first]

    def _total(self, terms: np.ndarray) -> np.ndarray:
        """Sums (2,) of terms (2, n), rounded once if they may not be whole: the balance is a difference of them."""
        return np.array([rounded_sum(row) for row in terms]) if self.rows.weighted else terms.sum(axis=1)

    def class_c(self) -> np.ndarray:
        """c (2,); known after the scan, as it depends on how many rows each class has."""
        return class_costs(self.claim, self.sums["count"])

    def bounds(self) -> tuple[float, float]:
        """The dual bound, rounded down, and the value of the hypothesis, rounded up."""
        if self._bounds is None:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                named = self.loss.names_duals
                dual = self._hinge_dual() if named else max(self._squared_dual(), self._corrected())
                self._bounds = (dual if dual > 0 else 0.0), self._value()  # no weights at all prove 0
        return self._bounds

    def _value(self) -> float:
        losses = float(self.class_c() @ self.sums["loss"])
        size = length(self.claim.w)
        value = (0.5 * size * size + losses) * (1 + self.error)
        return value if math.isfinite(value) else math.inf

    def _hinge_dual(self) -> float:
        """sum a - 1/2 ||v||^2 of the given duals, minus what moving them into place may cost; rounded down."""
        c, sums, given = self.class_c(), self.sums, np.where(self.found != 0, self.duals, 0.0)
        total = (float(c @ sums["slack"]) + rounded_sum(given)) * (1 - _FEW) - _FEW * rounded_sum(np.abs(given))
        outside = rounded_sum(np.maximum(given - self._limits(), 0.0)) + rounded_sum(np.maximum(-given, 0.0))
        move = (2 * outside + (abs(self.imbalance()) if self.claim.intercept else 0.0)) * (1 + _FEW)
        v = c[0] * sums["dual_sum"][0] - c[1] * sums["dual_sum"][1] + sums["near_dual_sum"]
        spread = self.error * (float(c @ sums["reach"]) + float(sums["near_reach"]))
        radius = self.radius * (1 + gamma(self.claim.features + 4))
        each = self.error * (c @ sums["spread"] + sums["near_spread"])
        moved = self.claim.moved * (float(c @ sums["slack"]) + rounded_sum(np.abs(given)) + move) * (1 + 4 * self.error)
        longest = length(np.abs(v) + each) * (1 + _FEW) + spread + radius * move + moved
        return total - move - 0.5 * longest * longest * (1 + _FEW)

    def _limits(self) -> np.ndarray:
        """c (m,) of the near-margin rows."""
        positive, negative = self.class_c()
        return np.asarray(self.weights * np.where(self.found > 0, positive, negative))

    def imbalance(self) -> float:
        """sum a y over all rows, rounded once."""
        products, errors = exact_products(self.class_c() * np.array([1.0, -1.0]), self.sums["slack"])
        return rounded_sum([*products.tolist(), *errors.tolist(), *(self.duals * self.found).tolist()])

    def _squared_dual(self) -> float:
        """The dual of the best multiple of c xi, of each class with an intercept, in closed form; rounded down."""
        c, sums = self.class_c(), self.sums
        slack = c * sums["slack"]
        if not (slack > 0).all() if self.claim.intercept else not slack.sum() > 0:
            return 0.0
        unit = slack if self.claim.intercept else np.full(2, slack.sum())
        dual_sum = c[:, None] * sums["dual_sum"] / unit[:, None]
        error = 2 * self.error * float((c * sums["reach"] / unit).sum()) + 2 * self.claim.moved * (1 + 4 * self.error)
        each = 2 * self.error * (c / unit) @ sums["spread"]
        longest = length(np.abs(dual_sum[0] - dual_sum[1]) + each) * (1 + _FEW) + error
        spread = float((c / unit * sums["squares"] / unit).sum()) * (1 + 4 * self.error)
        square = longest * longest  # overflows to infinity
        curve = 0.5 * square + 0.25 * spread if self.claim.intercept else 2.0 * square + spread
        return (1 - _FEW) / curve if 0 < curve < math.inf else 0.0

    def _corrected(self) -> float:
        """The dual of the corrected point, rounded down; 0 without a ramp."""
        if not self.ramp:
            return 0.0
        c, sums, claim = self.class_c(), self.sums, self.claim
        slack, side = c * sums["slack"], c * np.array([1.0, -1.0])
        slopes = Slopes(
            losses=float(slack.sum()),
            squares=float(c @ sums["squares"]),
            least=float(slack.min()),
            q=np.append(side @ sums["dual_sum"], side @ sums["slack"]),
            t=side @ sums["turn"],
            curve=np.tensordot(c, sums["curve"], axes=1),
            low=self.low,
            high=self.high,
            radius=self.radius,
            reach=float(c @ sums["reach"]),
            spread=c @ sums["spread"],
            error=self.error,
            moved=claim.moved,
            curve_error=gamma(self.rows.chunk_rows + 16),
        )
        return slopes.dual(claim.reference[0], self.ramp, intercept=claim.intercept)

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        claim, (dual, value) = self.claim, self.bounds()
        c, rows, count = self.class_c(), self.sums["rows"], self.sums["count"]
        return [
            self.content(),
            class_costs_check(claim, claim.loss, c, rows, count, " its weight times" * self.rows.weighted),
            self._coreset_check(),
            self._dual_weights_check(),
            value_reached(claim, value, self.counted),
            value_bounded(claim, dual),
            training_errors_check(claim, self.sums["wrong"], rows, weighted=self.rows.weighted),
            *([] if self.tried is None else self.tried.checks()),
        ]

    def _coreset_check(self) -> Check:
        problems = self.membership()
        if not self.loss.names_duals and len(self.ids):
            problems.append(
                f"{self.claim.loss.replace('_', ' ')} has no rows with weights of their own, found {len(self.ids):,}"
            )
        text = f"all {self.matched:,} rows near the margin are the store's, with its labels"
        return Check(
            "coreset", not problems, "; ".join(problems) or (text if self.loss.names_duals else "none is needed")
        )

    def _dual_weights_check(self) -> Check:
        chunks = len(self.claim.reference_of)
        if chunks not in (0, self.rows.chunks):
            text = f"references for {chunks:,} chunks, the store has {self.rows.chunks:,}: expected one for each"
            return Check("dual weights", ok=False, text=text)
        if not self.loss.names_duals:
            how = "c xi at the reference, corrected" if self.ramp else "in proportion to c xi at the reference"
            return Check("dual weights", ok=True, text=f"{how}: >= 0 and in balance")
        if self.claim.lower is None or self.claim.lower <= 0:
            return Check("dual weights", ok=True, text="none are needed: no value is below 0")
        alpha, limits, problems = self.claim.alpha, self._limits() * (1 + _FEW), []
        bad = np.flatnonzero(~((alpha >= 0) & ((self.found == 0) | (alpha <= limits))))
        if len(bad):
            k = int(bad[0])
            known = f" and at most {self._limits()[k]:.12g}" if self.found[k] else ""
            problems.append(f"the weight of row {self.claim.ids[k]} is {alpha[k]:.12g}, expected at least 0{known}")
        total = float(self.class_c() @ self.sums["slack"]) + rounded_sum(self.duals)
        if self.claim.intercept and not abs(self.imbalance()) <= 1e-9 * total:
            problems.append(f"the classes' weights differ by {self.imbalance():.6g} of {total:.6g}, expected 0")
        others = int(self.sums["slack"].sum())
        text = f"{len(alpha):,} weights from 0 to c, {others:,} other rows at c, {'in balance' * self.claim.intercept}"
        return Check("dual weights", not problems, "; ".join(problems) or text.removesuffix(", "))


class CurvatureSums:
    """``turn`` and ``curve`` of a chunk, see ``Sums``, in plain float64, and the extremes of its features."""

    def __init__(self, features: int, ramp: float) -> None:
        self._ramp = ramp
        self._turn, self._curve = np.zeros((2, features + 1)), np.zeros((2, features + 1, features + 1))
        self.low, self.high = np.full(features, np.inf), np.full(features, -np.inf)

    def add(self, x: Any, s: np.ndarray, h: np.ndarray) -> None:
        """Rows (n, d), dense or sparse, their weights by class (2, n) and h (n,)."""
        self.low, self.high = np.minimum(self.low, _column(x, "min")), np.maximum(self.high, _column(x, "max"))
        for k in range(2):
            some = np.flatnonzero((s[k] > 0) & (h > 0))
            rows, share = x[some], s[k][some] * np.minimum(1.0, h[some] / self._ramp)
            away, edge = share * (h[some] - 1.0), share @ rows
            weighed = rows.T.multiply(share) if sparse.issparse(rows) else rows.T * share
            product = weighed @ rows
            self._curve[k, :-1, :-1] += product.toarray() if sparse.issparse(product) else product
            self._curve[k, -1, :-1] += edge
            self._curve[k, :-1, -1] += edge
            self._curve[k, -1, -1] += share.sum()
            self._turn[k] += np.append(away @ rows, away.sum())

    @property
    def sums(self) -> dict[str, np.ndarray]:
        """By name."""
        return {"turn": self._turn, "curve": self._curve}


def _column(x: Any, name: str) -> np.ndarray:
    """The least or the largest value of each column (d,)."""
    found = getattr(x, name)(axis=0)
    return np.asarray(found.toarray() if sparse.issparse(found) else found).ravel()


def _near_margin_sums(
    x: Any, signs: np.ndarray, lengths: np.ndarray | None, near_margin: np.ndarray
) -> dict[str, np.ndarray]:
    """The part of rows near the margin in the dual vector; rows without a label have none."""
    weights = np.where(signs != 0, near_margin, 0.0)
    return {"near_dual_sum": (weights * signs) @ x, **_sizes(np.abs(weights), x, lengths, "near_")}


def _sizes(weights: np.ndarray, x: Any, lengths: np.ndarray | None, kind: str) -> dict[str, np.ndarray]:
    """The sizes that errors of the sums are relative to: by feature, or by the rows' lengths if these are given."""
    if lengths is None:
        return {f"{kind}spread": np.asarray(weights @ abs(x))}
    return {f"{kind}reach": np.asarray(weights @ lengths)}


def margins_within(
    x: Any, signs: np.ndarray, lengths: np.ndarray, w: np.ndarray, b: float
) -> tuple[np.ndarray, np.ndarray]:
    """y (w.x + b) (n,) and a bound on the error of 1 - y (w.x + b)."""
    d, sizes = len(w), lengths * length(w)
    if float(sizes.max()) > _LONG:
        sizes = np.minimum(sizes, abs(x) @ np.abs(w) * (1 + gamma(d + 3)))
    error = gamma(d + 3) * (sizes + abs(b) + 1.0) + (d + 4) * TINY
    return signs * (x @ w + b), error


def value_consistency(claim: Claim) -> list[Check]:
    """Intercept, epsilon, ratio, status: whether a claim about a value agrees with itself; also of other losses."""
    size = length(claim.w)
    text = f"||w|| = {size:.12g}, b = {claim.b:.6g}"
    ok = claim.intercept or claim.b == 0
    checks = [Check("hypothesis", ok, text if ok else f"{text}: expected b = 0 (no intercept)")]
    checks += same_epsilon(claim)
    return [*checks, *same_ratio(claim), status(claim)]


class SoftKind(Kind[SoftClaim]):
    """The claims of a soft margin."""

    def claim(self, files: ModelFiles) -> SoftClaim:
        """A hyperplane, C for each class, and a dual point."""
        record = cast("SoftMargin", files.record)
        parameters = record.parameters
        shared = two_classes(files, record.view, soft=True)
        return SoftClaim(
            **shared,
            tried=tried_claim(record, files, shared),
            loss=parameters.loss,
            cost=float(parameters.C),
            class_weight=parameters.class_weight,
            reference=np.atleast_2d(files.arrays["reference"]),
            reference_of=files.arrays.get("reference_of", np.zeros(0, np.int64)),
            ramp=float(files.arrays["ramp"][0]) if "ramp" in files.arrays else 0.0,
        )

    def same_classes(self, claim: SoftClaim, rows: Rows) -> Check:
        """Two, or one against the rest."""
        return same_two_classes(claim, rows)

    def consistency(self, claim: SoftClaim) -> list[Check]:
        """Intercept, epsilon, ratio, status."""
        return value_consistency(claim)

    def scan(self, claim: SoftClaim, rows: Rows) -> SoftScan:
        """The loss of each row, and its share of the dual point."""
        return SoftScan(claim, rows)


KIND = SoftKind()
