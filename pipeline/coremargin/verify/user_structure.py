"""Structures of the user: the value of weights over all examples, and the dual point of weighted labellings.

The user of ``verify`` passes the structure; the model only names one, and the name is never run. With its size, joint
and loss the bounds are those of structured.py:

    1/2 ||w||^2 + sum_i c_i H_i,    H_i = max_y (loss(y_i, y) + w.Phi(x_i, y)) - w.Phi(x_i, y_i)
    D = sum a loss / r - 1/2 ||sum a psi||^2 / r^2,    psi = Phi(x_i, y_i) - Phi(x_i, y)

D rests on joint and loss only. H_i is taken at the labelling that argmax finds: that no other is better, by more than
the rounding of scores, is assumed. It can be disproved: for each example argmax is called twice, and its labelling is
compared with those of the dual point, random ones, and some that differ from it in one row.

Let |Phi| be the sums of the sizes of what joint gives for each place, and r the most numbers that it adds to others at
their places. A score w.Phi of m numbers is off by at most gamma_(m+4) |w|.|Phi|; sum a psi, of M labellings, by
gamma_(2M+16+r) times the sum of all a (|| |Phi(x_i, y_i)| || + || |Phi(x_i, y)| ||). Both count against the claims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.sparse import issparse

from coremargin.errors import UsageError
from coremargin.formats.function import function_name
from coremargin.formats.model_record import WHOLE
from coremargin.verify.checks import Check, same_classes, same_epsilon, same_ratio, typed
from coremargin.verify.claim import AnyClaim, any_claim
from coremargin.verify.kind import Kind
from coremargin.verify.store import Members, StoreFindings
from coremargin.verify.sums import TINY, UNIT, gamma, length, rounded_sum
from coremargin.verify.values import status as value_status
from coremargin.verify.values import value_bounded, value_reached

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.user_structure import UserStructure
    from coremargin.verify.rows import Chunk, Rows

_FEW = 16 * UNIT  # error of a handful of operations
_TRIED = 12  # labellings of each sort that argmax is compared with, for each example
_LARGEST = 1e100  # of a loss


@dataclass(frozen=True, kw_only=True)
class UserStructureClaim(AnyClaim):
    """The claim about weights of a structure, None until the user of ``verify`` passes it; ``y`` is not used."""

    named: str
    structure: Any
    grouped: bool
    labels: tuple[Any, ...]
    w: np.ndarray
    cost: float
    begins: np.ndarray  #: (m,) first row of the example of each labelling, increasing
    weight: np.ndarray  #: (m,)
    ends: np.ndarray  #: (m,) in ``labelled``
    labelled: np.ndarray  #: places of the labels of all labellings


class NotAStructure(Exception):
    """A structure returned what none returns."""


@dataclass(frozen=True)
class _Phi:
    """Places and values of Phi, and its score with the bound of its error.

    sizes: |Phi|. repeats: how many numbers were added to others at their places.
    """

    places: np.ndarray
    values: np.ndarray
    score: float
    error: float
    sizes: np.ndarray
    repeats: int


@dataclass(frozen=True)
class _Rows:
    """Rows (n, d) float64 from number ``start`` on, places (n,) of their classes or -1, their c (n,); groups: those at
    which examples begin.
    """

    start: int
    x: np.ndarray
    place: np.ndarray
    c: np.ndarray
    groups: np.ndarray

    def joined(self, later: _Rows) -> _Rows:
        """These rows and those that follow."""
        parts = {name: np.concatenate([getattr(self, name), getattr(later, name)]) for name in _FIELDS}
        return _Rows(self.start, **parts)

    def since(self, row: int) -> _Rows:
        """The rows from a number on."""
        first = row - self.start
        return _Rows(row, self.x[first:], self.place[first:], self.c[first:], self.groups[self.groups >= row])


_FIELDS = ("x", "place", "c", "groups")


@dataclass(frozen=True)
class UserSummary:
    """The summary of one chunk: its rows."""

    rows: _Rows
    radius: float
    members: Members


class UserStructureScan(StoreFindings):
    """The scan for the value and the dual point; the structure is called in the order of examples."""

    def __init__(self, claim: UserStructureClaim, rows: Rows) -> None:
        super().__init__(claim, rows)
        place = {typed(label): k for k, label in enumerate(claim.labels)}
        self._places = np.array([*(place[typed(label)] for label in rows.classes), -1])
        self._waiting: _Rows | None = None
        self._value: list[float] = []
        self._loss: list[float] = []
        self._reach: list[float] = []
        self._sum, self._repeats = np.zeros(len(claim.w)), 0
        self._excess, self._matched, self.examples = 1.0, 0, 0
        self.fault = ""  #: the first thing that no structure does
        self.mixed: int | None = None
        self._random = np.random.default_rng(20260101)

    def probe(self, chunk: Chunk) -> UserSummary:
        """The rows of a chunk, dense."""
        weights = np.ones(len(chunk.codes)) if chunk.weights is None else chunk.weights
        place = np.where(weights > 0, self._places[chunk.codes], -1)
        x: Any = chunk.x
        x = np.array(x.toarray() if issparse(x) else x, dtype=np.float64, order="C")
        radius = float(self.lengths(x, chunk.start).max(initial=0.0))
        every = np.arange(chunk.start, chunk.start + len(place))
        groups = chunk.groups if self.claim.grouped and chunk.groups is not None else every
        rows = _Rows(chunk.start, x, place, self.claim.cost * weights, groups)
        return UserSummary(rows, radius, self.members(chunk, np.where(place >= 0, 1, 0)))

    def add(self, summary: UserSummary) -> None:
        """Add a summary; in the order of chunks, as examples go on from one to the next."""
        rows = summary.rows
        self.count(int((rows.place < 0).sum()), summary.radius, summary.members)
        rows = rows if self._waiting is None else self._waiting.joined(rows)
        stop = rows.start + len(rows.place)
        edges = np.append(rows.groups, stop)
        if stop < self.rows.rows:
            self._waiting, edges = rows.since(int(rows.groups[-1])), edges[:-1]
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if not self.fault:
                part = slice(first - rows.start, last - rows.start)
                try:
                    self._add_example(first, rows.x[part], rows.place[part], rows.c[part])
                except NotAStructure as wrong:
                    self.fault = f"{wrong} (example from row {first})"

    def _add_example(self, row: int, x: np.ndarray, y: np.ndarray, c: np.ndarray) -> None:
        claim = self.claim
        counts = y >= 0
        if not (counts == counts[0]).all() or not (c == c[0]).all():
            self.mixed = row if self.mixed is None else self.mixed
        a, b = np.searchsorted(claim.begins, [row, row + 1])
        if not counts.all():
            return
        self.examples += 1
        true = self._phi(x, y)
        mine = []
        for k in range(a, b):
            other = claim.labelled[(claim.ends[k - 1] if k else 0) : claim.ends[k]].astype(np.int64)
            if len(other) != len(y):
                continue
            self._matched += 1
            mine.append(other)
            phi, loss, weight = self._phi(x, other), self._cost(y, other), float(claim.weight[k])
            np.add.at(self._sum, true.places, weight * true.values)
            np.subtract.at(self._sum, phi.places, weight * phi.values)
            self._loss.append(weight * loss)
            self._reach.append(weight * (length(true.sizes) + length(phi.sizes)))
            self._repeats = max(self._repeats, true.repeats, phi.repeats)
        if mine:
            total = rounded_sum(claim.weight[a:b].tolist()) * (1 + _FEW)
            self._excess = max(self._excess, total / float(c[0]) * (1 + 4 * UNIT))
        loss_bound = float(np.maximum(0.0, self._loss_bound(x, y, true, mine)))  # NaN, of scores that overflow, stays
        self._value.append(float(c[0]) * loss_bound * (1 + _FEW))

    def _loss_bound(self, x: np.ndarray, y: np.ndarray, true: _Phi, others: list[np.ndarray]) -> float:
        """H_i, rounded up. Raises NotAStructure if argmax is beaten, or not repeated."""
        found = self._argmax(x, y)
        if not np.array_equal(found, self._argmax(x, y)):
            raise NotAStructure("argmax gives other labels when it is called again")
        level, error = self._level(x, y, found)
        flips = np.repeat(found[None, :], _TRIED, axis=0)
        classes = len(self.claim.labels)
        flips[np.arange(_TRIED), self._random.integers(0, len(y), _TRIED)] = self._random.integers(0, classes, _TRIED)
        for other in (*others, *flips, *self._random.integers(0, classes, (_TRIED, len(y)))):
            higher, more = self._level(x, y, other)
            if higher - more > level + error:
                raise NotAStructure(
                    f"argmax is refuted: score and loss of its labels are {level:.12g}, those of others {higher:.12g}"
                )
        return level - true.score + error + true.error + 8 * UNIT * (abs(level) + abs(true.score))

    def _level(self, x: np.ndarray, y: np.ndarray, other: np.ndarray) -> tuple[float, float]:
        phi, loss = self._phi(x, other), self._cost(y, other)
        return phi.score + loss, phi.error + 4 * UNIT * (abs(phi.score) + loss)

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self.claim.structure, method)(*(np.array(one) for one in arguments))
        except MemoryError:
            raise
        except Exception as error:
            raise NotAStructure(f"{method} raised {type(error).__name__}: {error}") from error

    def _phi(self, x: np.ndarray, y: np.ndarray) -> _Phi:
        found = self._call("joint", x, y)
        try:
            places, values = (np.asarray(one) for one in found)
        except (TypeError, ValueError):
            raise NotAStructure("joint gives no indices and values") from None
        w = self.claim.w
        whole = places.dtype.kind in "iu" or not places.size
        if places.ndim != 1 or places.shape != values.shape or not whole or values.dtype.kind not in "fiub":
            raise NotAStructure("joint gives no indices, or not as many values")
        values = values.astype(np.float64)
        if (places.size and not (places.min() >= 0 and places.max() < len(w))) or not np.isfinite(values).all():
            raise NotAStructure(f"joint gives indices that are not below {len(w)}, or values that are not finite")
        columns, inverse = np.unique(places.astype(np.int64), return_inverse=True)
        inverse, sizes = inverse.reshape(-1), np.abs(values)
        if len(columns):
            values, sizes = (np.bincount(inverse, weights=one, minlength=len(columns)) for one in (values, sizes))
        error = gamma(len(places) + 4) * float(np.abs(w[columns]) @ sizes) + (len(places) + 4) * TINY
        return _Phi(columns, values, float(w[columns] @ values), error, sizes, len(places) - len(columns))

    def _cost(self, y: np.ndarray, other: np.ndarray) -> float:
        found = self._call("loss", y, other)
        try:
            value = float(found)
        except (TypeError, ValueError):
            raise NotAStructure("loss gives no number") from None
        if not 0 <= value <= _LARGEST or (value == 0) != np.array_equal(y, other):
            raise NotAStructure(f"loss gives {value:g}, expected 0 for the true labels and more for all others")
        return value

    def _argmax(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = np.asarray(self._call("argmax", self.claim.w, x, y))
        fits = found.shape == y.shape and found.dtype.kind in "iu"
        if not fits or found.min() < 0 or found.max() >= len(self.claim.labels):
            raise NotAStructure(f"argmax gives no {len(y)} labels from 0 to {len(self.claim.labels) - 1}")
        return found.astype(np.int64)

    def bounds(self) -> tuple[float | None, float | None]:
        """The dual bound, rounded down, and the value of the weights, rounded up; none of a structure with a fault."""
        if self.fault:
            return None, None
        return self._values()

    def _values(self) -> tuple[float, float]:
        claim, r = self.claim, self._excess
        size = length(claim.w)
        value = (0.5 * size * size + rounded_sum(self._value)) * (1 + _FEW)
        longest = length(self._sum) * (1 + _FEW)
        longest += gamma(2 * len(claim.weight) + 16 + self._repeats) * rounded_sum(self._reach) * (1 + _FEW)
        dual = rounded_sum(self._loss) * (1 - _FEW) / r - 0.5 * (longest / r) ** 2 * (1 + _FEW)
        proves = dual > 0 and self._matched == len(claim.begins) and math.isfinite(dual)
        return (dual if proves else 0.0), (value if math.isfinite(value) else math.inf)

    def checks(self) -> list[Check]:
        """The verdict on the claims."""
        claim = self.claim
        name = function_name(claim.structure)
        other = "" if name == claim.named else f"; the model names {claim.named!r}, which was not run"
        if self.fault:
            return [self.content(), Check("structure", ok=False, text=f"{name}: {self.fault}{other}")]
        tried = f"no labelling of the dual point, random one or single flip beats argmax of {name}{other}"
        found = [self.content(), Check("structure", ok=True, text=tried)]
        if self.mixed is not None:
            text = f"row {self.mixed}: in its group labels are missing, or weights differ"
            found.append(Check("groups", ok=False, text=text))
        missing = len(claim.begins) - self._matched
        if missing:
            text = f"{missing:,} are not of examples of the store that count, from first to last row"
            found.append(Check("labellings", ok=False, text=text))
        elif self._excess > 1.0 + 1e-9:
            text = f"those of an example sum to {self._excess:.12g} of its C"
            found.append(Check("labellings", ok=False, text=text))
        else:
            text = f"{len(claim.weight):,} with weights above 0; those of an example sum to its C at most"
            found.append(Check("labellings", ok=True, text=text))
        dual, value = self._values()
        about = f"{self.examples:,} {'groups' if claim.grouped else 'rows'}{self.aside}"
        return [*found, value_reached(claim, value, about), value_bounded(claim, dual)]


class UserStructureKind(Kind[UserStructureClaim]):
    """The claims about a structure of the user."""

    def claim(self, files: ModelFiles) -> UserStructureClaim:
        """Weights and labellings."""
        record, arrays = cast("UserStructure", files.record), files.arrays
        return UserStructureClaim(
            **any_claim(files, WHOLE, soft=True),
            y=np.zeros(0, np.int64),
            named=record.function,
            structure=None,
            grouped=record.grouped,
            labels=tuple(record.classes),
            w=arrays["weights"],
            cost=float(record.parameters.C),
            begins=arrays["duals_row"],
            weight=arrays["duals_weight"],
            ends=arrays["duals_ends"],
            labelled=arrays["duals_labels"],
        )

    def with_structure(self, claim: UserStructureClaim, structure: Any) -> UserStructureClaim:
        """The claim about the passed structure."""
        if structure is None:
            raise UsageError(
                f"the structure of this model is {claim.named!r} where it was trained, and no part of the model: if "
                "you trust yours, pass --structure MODULE:NAME; from Python coremargin.verify(model, store, "
                "structure=Name)"
            )
        made = structure() if isinstance(structure, type) else structure
        if not all(callable(getattr(made, name, None)) for name in ("size", "joint", "argmax", "loss")):
            raise UsageError(f"structure: expected size, joint, argmax and loss, {made!r} has not all of these methods")
        return replace(claim, structure=made)

    def terms(self, claim: UserStructureClaim) -> str:
        """The assumption about argmax."""
        return (
            f", if argmax of {function_name(claim.structure)} finds the maximum up to the rounding of scores (this is "
            "assumed of all examples; the labellings tried do not refute it)"
        )

    def not_checked(self, claim: UserStructureClaim) -> tuple[str, ...]:
        """Adds what can only be refuted."""
        return ("that argmax finds the maximum over all labellings: only some were tried", *self.unchecked)

    def same_classes(self, claim: UserStructureClaim, rows: Rows) -> Check:
        """All of them."""
        return same_classes(claim.labels, rows)

    def consistency(self, claim: UserStructureClaim) -> list[Check]:
        """The number of weights, epsilon, ratio, status."""
        try:
            size = claim.structure.size(claim.features)
        except Exception as error:  # noqa: BLE001 - of the user's
            size = f"{type(error).__name__}: {error}"
        text = f"{len(claim.w):,} weights" + ("" if size == len(claim.w) else f", those of the structure: {size}")
        return [
            Check("weights", size == len(claim.w), text),
            *same_epsilon(claim),
            *same_ratio(claim),
            value_status(claim),
        ]

    def scan(self, claim: UserStructureClaim, rows: Rows) -> UserStructureScan:
        """The loss of each example, and the shares of its labellings in the dual point."""
        return UserStructureScan(claim, rows)


KIND = UserStructureKind()
