"""Structures of the user: a labelling's score is w.joint(X, y), and argmax finds the highest.

A structure has four methods. X (T, d) float64 are the rows of an example, y (T,) int64 its labels as numbers from 0 to
K - 1, in the order of the model's classes; all labellings in {0 ... K - 1}^T are allowed.

    size(features) -> D              the number of weights
    joint(X, y) -> (indices, values) Phi(x, y), sparse: places below D and numbers; places that come again are added
    argmax(w, X, y=None) -> y'       the largest w.Phi(x, y') + loss(y, y') or, without y, the largest w.Phi(x, y')
    loss(y, y') -> number            0 for y' = y only, else above

Objective, dual and ascent are those of chain.py, on weighted labellings. H_i is computed from the labelling of argmax:
that no other is better by more than the rounding of scores is an assumption, which can be refuted, not proven. Every
value is checked as it is used. Before training, argmax is compared with random labellings and single flips, and called
twice; in the ascent with all labellings that it has found before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.breakdown import exact_sum
from coremargin.maths.margin import gamma
from coremargin.maths.rows import dense
from coremargin.maths.stopping import may_stop
from coremargin.maths.structures.labellings import Labellings, label_dtype

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

#: Losses beyond this leave no digits for scores.
LARGEST_LOSS = 1e100
#: Examples on which a structure is checked before training, and labellings that argmax is compared with for each.
CHECKED, TRIED = 32, 40
LEAST_GAIN = 1e-13
#: Rounding errors of sums over rows are bounded as those of so many rows at least.
LEAST_ROWS = 1024


class Structure(Protocol):
    """What the user defines."""

    def size(self, features: int) -> int:
        """The number of weights."""

    def joint(self, X: Array, y: Labels) -> tuple[Any, Any]:
        """Places and values of Phi(x, y)."""

    def argmax(self, w: Array, X: Array, y: Labels | None = None) -> Any:
        """The labelling of the highest score, with the loss added where y is passed."""

    def loss(self, y: Labels, other: Labels) -> float:
        """Of a labelling in the place of the true one."""


class StructureFault(Exception):
    """A structure returned what none returns; example: its number, None before it is known."""

    def __init__(self, text: str, example: int | None = None) -> None:
        super().__init__(text, example)
        self.text, self.example = text, example


class Vector(NamedTuple):
    """Phi of a labelling: different places, and their values.

    sizes: the sums of the sizes of the numbers that were added to a value, which bound its rounding error. repeats: how
    many numbers were added to others.
    """

    places: Labels
    values: Array
    sizes: Array
    repeats: int = 0

    def score(self, w: Array) -> float:
        """w.Phi."""
        return float(w[self.places] @ self.values)

    def error(self, w: Array) -> float:
        """A bound on the rounding error of the score; four times as large, so that other float64 code finds no more."""
        terms = len(self.places) + self.repeats
        return float(8.0 * gamma(terms + 16) * (np.abs(w[self.places]) @ self.sizes))

    @property
    def length(self) -> float:
        """The length of the sizes, at least ||Phi||."""
        return float(np.linalg.norm(self.sizes))

    def less(self, other: Vector) -> Vector:
        """The difference."""
        return _sum_places(np.concatenate([self.places, other.places]), np.concatenate([self.values, -other.values]))


def _sum_places(places: Labels, values: Array) -> Vector:
    different, inverse = np.unique(places, return_inverse=True)
    if len(different) == len(places):
        order = np.argsort(places, kind="stable")
        return Vector(places[order], values[order], np.abs(values[order]))
    sums, sizes = (
        np.bincount(inverse, weights=one, minlength=len(different)).astype(np.float64, copy=False)
        for one in (values, np.abs(values))
    )
    return Vector(different, sums, sizes, len(places) - len(different))


@dataclass(frozen=True)
class CheckedStructure:
    """A structure whose answers are checked; it gets copies of all arrays. name: for messages."""

    structure: Structure
    name: str
    classes: int
    size: int = 0  #: the number of weights D

    def sized(self, features: int) -> CheckedStructure:
        """The same with its number of weights. Raises StructureFault."""
        found = self._call("size", features)
        if isinstance(found, bool) or not isinstance(found, int | np.integer) or not 0 < found < 2**40:
            raise StructureFault(f"size: expected a whole number above 0, found {found!r}")
        return replace(self, size=int(found))

    def joint(self, X: Array, y: Labels) -> Vector:
        """Phi (D,) of a labelling. Raises StructureFault."""
        found = self._call("joint", X.copy(), y.copy())
        try:
            places, values = map(np.asarray, found)
        except (TypeError, ValueError):
            raise StructureFault(f"joint: expected indices and values, found {type(found).__name__}") from None
        fits = places.ndim == 1 and places.shape == values.shape and (places.dtype.kind in "iu" or not len(places))
        if not fits or values.dtype.kind not in "fiub":
            raise StructureFault(
                f"joint: expected whole numbers and as many numbers, found shapes {places.shape} of {places.dtype} and "
                f"{values.shape} of {values.dtype}"
            )
        places, values = places.astype(np.int64), values.astype(np.float64)
        if len(places) and not (places.min() >= 0 and places.max() < self.size):
            raise StructureFault(
                f"joint: expected indices from 0 to {self.size - 1}, found {places.min()} to {places.max()}"
            )
        if not np.isfinite(values).all():
            raise StructureFault("joint: expected finite values, found one that is not")
        return _sum_places(places, values)

    def loss(self, y: Labels, other: Labels) -> float:
        """The loss of ``other`` in the place of the true labels y. Raises StructureFault."""
        found = self._call("loss", y.copy(), other.copy())
        try:
            value = float(found)
        except (TypeError, ValueError):
            raise StructureFault(f"loss: expected a number, found {type(found).__name__}") from None
        if not 0 <= value <= LARGEST_LOSS or (value == 0) != np.array_equal(y, other):
            raise StructureFault(
                f"loss: expected 0 for the true labels and up to {LARGEST_LOSS:g} for others, found {value:g} for "
                f"{other.tolist()} in the place of {y.tolist()}"
            )
        return value

    def argmax(self, w: Array, X: Array, y: Labels | None = None) -> Labels:
        """The labelling that the structure finds. Raises StructureFault."""
        found = np.asarray(self._call("argmax", w.copy(), X.copy(), *(() if y is None else (y.copy(),))))
        fits = found.shape == (len(X),) and found.dtype.kind in "iu"
        if not fits or found.min() < 0 or found.max() >= self.classes:
            raise StructureFault(
                f"argmax: expected {len(X)} whole numbers from 0 to {self.classes - 1}, found {_shortened(found)}"
            )
        return found.astype(np.int64)

    def _call(self, method: str, *arguments: Any) -> Any:
        may_stop()
        try:
            return getattr(self.structure, method)(*arguments)
        except (MemoryError, StructureFault):
            raise
        except Exception as error:
            raise StructureFault(f"{method} raised {type(error).__name__}: {error}") from error

    def check(self, X: Array, y: Labels, w: Array, rng: np.random.Generator) -> None:
        """Raise StructureFault where answers about an example differ when asked again, or argmax is beaten."""
        if not _equal(self.joint(X, y), self.joint(X, y)):
            raise StructureFault("joint returns other values when it is called again with the same arguments")
        self.loss(y, y)
        for true in (y, None):
            found = self.argmax(w, X, true)
            if not np.array_equal(found, self.argmax(w, X, true)):
                raise StructureFault("argmax returns other labels when it is called again with the same arguments")
            level, error = self.level(w, X, true, found)
            for other in self.others(found, rng):
                higher, own = self.level(w, X, true, other)
                if higher - own > level + error:
                    raise StructureFault(
                        f"argmax: the labels {_shortened(found)} have {level:.12g}, and {_shortened(other)} have "
                        f"{higher:.12g}, which is more{'' if true is None else ', the loss included'}: it is no maximum"
                    )

    def level(self, w: Array, X: Array, y: Labels | None, other: Labels) -> tuple[float, float]:
        """Score and, where y is passed, loss of a labelling, and a bound on the error."""
        phi, loss = self.joint(X, other), 0.0 if y is None else self.loss(y, other)
        return phi.score(w) + loss, phi.error(w) + 8 * gamma(16) * loss

    def others(self, labels: Labels, rng: np.random.Generator) -> Iterator[Labels]:
        """Labellings that differ in one row, and random ones, TRIED of each at most."""
        every = len(labels) * self.classes
        for place in rng.permutation(every)[:TRIED].tolist():
            row, label = divmod(place, self.classes)
            flipped = labels.copy()
            flipped[row] = label
            yield flipped
        for _ in range(min(TRIED, every)):
            yield rng.integers(0, self.classes, len(labels))


def _shortened(labels: NDArray[Any]) -> str:
    text = str(labels.tolist())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _equal(one: Vector, other: Vector) -> bool:
    return np.array_equal(one.places, other.places) and np.array_equal(one.values, other.values)


class Examples(Protocol):
    """Examples in memory, as ``Sequences`` has them; their structure is not None."""

    @property
    def ids(self) -> Labels:
        """Their numbers (n,)."""

    @property
    def rows(self) -> Any:
        """Sparse rows (N, d), one example after the other."""

    @property
    def labels(self) -> NDArray[np.integer[Any]]:
        """Labels (N,)."""

    @property
    def offsets(self) -> Labels:
        """Where examples begin (n + 1,)."""

    @property
    def c(self) -> Array:
        """Limits of the weights (n,)."""

    @property
    def structure(self) -> CheckedStructure | None:
        """The user's."""

    def __len__(self) -> int:
        """How many."""

    def take(self, places: NDArray[np.intp]) -> Examples:
        """Those at these places."""


class _Example(NamedTuple):
    """An example: its number, rows (T, d), labels (T,), and the limit of its weights."""

    id: int
    X: Array
    y: Labels
    c: float


def _examples(examples: Examples) -> Iterator[_Example]:
    for place in range(len(examples)):
        yield _example(examples, place)


def _example(examples: Examples, place: int) -> _Example:
    part = slice(int(examples.offsets[place]), int(examples.offsets[place + 1]))
    rows: Any = examples.rows[part]
    y = examples.labels[part].astype(np.int64)
    return _Example(int(examples.ids[place]), np.array(dense(rows), np.float64), y, float(examples.c[place]))


def _structure(examples: Examples) -> CheckedStructure:
    assert examples.structure is not None  # noqa: S101 - for the type checker
    return examples.structure


def each(examples: Examples, do: Callable[[_Example], Any]) -> list[Any]:
    """What a function returns for each example. Raises StructureFault with the example's number."""
    found = []
    for example in _examples(examples):
        try:
            found.append(do(example))
        except StructureFault as fault:
            raise StructureFault(fault.text, example.id) from fault.__cause__
    return found


def check_structure(examples: Examples) -> None:
    """Raise StructureFault for a structure that fails on some of these examples."""
    structure, rng = _structure(examples), np.random.default_rng(0)
    some = examples.take(np.arange(min(CHECKED, len(examples))))
    for w in (np.zeros(structure.size), rng.normal(size=structure.size)):
        each(some, lambda example, w=w: structure.check(example.X, example.y, w, rng))  # type: ignore[misc]


def losses_at(examples: Examples, w: Array, *, augmented: bool) -> tuple[Array, Array, NDArray[Any]]:
    """H_i (n,) at w (D,), bounds (n,) on their errors, and labels (N,) of argmax."""
    structure = _structure(examples)

    def loss(example: _Example) -> tuple[float, float, Labels]:
        true = example.y if augmented else None
        found = structure.argmax(w, example.X, true)
        (level, error), (own, more) = (structure.level(w, example.X, true, y) for y in (found, example.y))
        return level - own, error + more, found

    found = each(examples, loss)
    labels = [np.zeros(0, np.int64), *(one[2] for one in found)]
    values, errors = (np.array([one[k] for one in found], np.float64) for k in (0, 1))
    return values, errors, np.concatenate(labels).astype(label_dtype(structure.classes))


def _by_example(duals: Labellings) -> dict[int, list[tuple[float, Labels]]]:
    found: dict[int, list[tuple[float, Labels]]] = {}
    for example, weight, start, end in zip(duals.example, duals.weight, duals.starts, duals.ends, strict=True):
        found.setdefault(int(example), []).append((float(weight), duals.labels[start:end].astype(np.int64)))
    return found


def values_of(examples: Examples, duals: Labellings, w: Array) -> Array:
    """sum_y a_i(y) [loss(y_i, y) - w.psi_i(y)] / c_i (n,) of labellings of these examples."""
    structure, known = _structure(examples), _by_example(duals)

    def value(example: _Example) -> float:
        mine = known.get(example.id, [])
        own = structure.joint(example.X, example.y).score(w) if mine else 0.0
        return sum(a * (structure.level(w, example.X, example.y, y)[0] - own) for a, y in mine) / example.c

    return np.array(each(examples, value), np.float64)


def psi_sum(examples: Examples, duals: Labellings) -> tuple[Array, float, float]:
    """sum a_i(y) psi_i(y) (D,), sum a_i(y) loss(y_i, y), and the size of all terms.

    The last one bounds, times gamma(max(N, LEAST_ROWS)), the rounding error of the first.
    """
    structure, known = _structure(examples), _by_example(duals)
    w, losses, reach, repeats = np.zeros(structure.size), [], [], [0]

    def add(example: _Example) -> None:
        mine = known.get(example.id, [])
        if not mine:
            return
        true = structure.joint(example.X, example.y)
        for a, y in mine:
            phi = structure.joint(example.X, y)
            psi = true.less(phi)
            w[psi.places] += a * psi.values
            losses.append(a * structure.loss(example.y, y))
            reach.append(a * (phi.length + true.length))
            repeats.append(max(phi.repeats, true.repeats))

    each(examples, add)
    several = 2.0 + 2.0 * len(duals) / max(1, len(examples.labels)) + max(repeats) / LEAST_ROWS
    return w, exact_sum(np.array(losses)), float(sum(reach)) * several


class UserAscent:
    """The dual ascent on some examples in memory, from the labellings that they have, as of ``ChainAscent``."""

    def __init__(self, examples: Examples, duals: Labellings) -> None:
        self.examples, self._structure = examples, _structure(examples)
        known = _by_example(duals)
        self._labels: list[list[Labels]] = []
        self._weights: list[list[float]] = []
        self._losses: list[list[float]] = []
        self.longest_psi = 0.0

        def begin(example: _Example) -> None:
            mine = known.get(example.id, [])
            self._labels.append([example.y, *(y for _, y in mine)])
            self._weights.append([max(0.0, example.c - sum(a for a, _ in mine)), *(a for a, _ in mine)])
            self._losses.append([0.0, *(self._structure.loss(example.y, y) for _, y in mine)])

        each(examples, begin)

    def several(self) -> NDArray[np.intp]:
        """The places of the examples that have a labelling besides the true one."""
        return np.flatnonzero([len(one) > 1 for one in self._labels])

    def visit(self, order: NDArray[np.intp], w: Array, *, search: bool, steps: int = 3) -> float:
        """Visit examples in this order and change w (D,) in place; see ``ChainAscent.visit``."""
        total = 0.0
        for place in order.tolist():
            if not search and len(self._labels[place]) < 2:
                continue
            example = _example(self.examples, place)
            try:
                total += self._visit(place, example, w, search=search, steps=steps)
            except StructureFault as fault:
                raise StructureFault(fault.text, example.id) from fault.__cause__
        return total

    def _visit(self, place: int, example: _Example, w: Array, *, search: bool, steps: int) -> float:
        structure, labels, gap, found = self._structure, self._labels[place], 0.0, -1
        weights, losses = self._weights[place], self._losses[place]
        if search:
            new = structure.argmax(w, example.X, example.y)
            found = next((k for k, y in enumerate(labels) if np.array_equal(y, new)), len(labels))
            if found == len(labels):
                losses.append(structure.loss(example.y, new))
                labels.append(new)
                weights.append(0.0)
        if len(labels) < 2:
            return 0.0
        vectors, counted = [structure.joint(example.X, y) for y in labels], np.array(losses)
        for step in range(steps):
            levels = counted + np.array([phi.score(w) for phi in vectors])
            high = int(np.argmax(levels))
            low = min((k for k, a in enumerate(weights) if a > 0), key=levels.__getitem__)
            if step == 0:
                gap = float(np.array(weights) @ (levels[high] - levels))
                self._refuse_beaten(levels, vectors, w, found, high)
            gain = float(levels[high] - levels[low])
            if gain <= LEAST_GAIN * counted.max():
                break
            psi = vectors[low].less(vectors[high])
            square, move = float(psi.values @ psi.values), weights[low]
            self.longest_psi = max(self.longest_psi, vectors[low].length + vectors[high].length)
            if square > 0 and gain < move * square:
                move = gain / square
                weights[low] -= move
            else:
                weights[low] = 0.0
            weights[high] += move
            w[psi.places] += move * psi.values
        return gap

    @staticmethod
    def _refuse_beaten(levels: Array, vectors: list[Vector], w: Array, found: int, high: int) -> None:
        if found < 0 or found == high:
            return
        error = vectors[found].error(w) + vectors[high].error(w) + 8 * gamma(16) * float(np.abs(levels).max())
        if levels[high] > levels[found] + error:
            raise StructureFault(
                f"argmax: labels with {levels[found]:.12g}, the loss included, but labels found before have "
                f"{levels[high]:.12g}: it is no maximum"
            )

    @property
    def weights(self) -> Array:
        """Weights (n, m) of the labellings, those of the true ones in the first column."""
        found = np.zeros((len(self._weights), max(map(len, self._weights), default=1)))
        for line, weights in zip(found, self._weights, strict=True):
            line[: len(weights)] = weights
        return found

    @property
    def dual_loss(self) -> float:
        """sum a_i(y) loss(y_i, y)."""
        pairs = zip(self._weights, self._losses, strict=True)
        return exact_sum(np.array([a * loss for some in pairs for a, loss in zip(*some, strict=True)]))

    def duals(self) -> Labellings:
        """The labellings that have weight."""
        triples = [
            (example, a, y)
            for example, weights, labels in zip(self.examples.ids, self._weights, self._labels, strict=True)
            for a, y in list(zip(weights, labels, strict=True))[1:]
            if a > 0
        ]
        dtype = label_dtype(self._structure.classes)
        labels = [np.zeros(0, dtype), *(y.astype(dtype) for _, _, y in triples)]
        return Labellings(
            np.array([example for example, _, _ in triples], np.int64),
            np.array([a for _, a, _ in triples], np.float64),
            np.concatenate(labels),
            np.cumsum([len(y) for _, _, y in triples], dtype=np.int64),
        )
