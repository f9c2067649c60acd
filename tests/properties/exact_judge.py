"""What the claims of a saved model are worth, by decimal arithmetic of 400 digits and solvers by others.

A hypothesis that reaches more than a bound allows refutes it: hypotheses of the model and of other solvers are
evaluated exactly, so that nothing hangs on how well those solvers do. Upper bounds of margins and lower bounds of
values are held against these, the bounds of the other side against the model's own hypothesis.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC

import forge_judge
from coremargin.data.store import Store

#: Enough for products of the longest and the shortest rows that a store may hold.
PRECISION = Context(prec=400, Emin=-(10**9), Emax=10**9, traps=[])
#: Roundings of one operation on the way to what a row costs, or to a scaled row.
FEW = Decimal(2) ** -49
#: Up to so many choices of outliers each has a hyperplane by another solver.
CHOICES = 60

Vector = list[Decimal]
Plane = tuple[np.ndarray, float]


@dataclass(frozen=True)
class Content:
    """The rows of a store: X (n, d) float64, labels (n,) or None where there is none, weights (n,)."""

    X: np.ndarray
    labels: list[Any]
    weights: np.ndarray
    dtype: str
    sparse: bool

    @property
    def weighed(self) -> np.ndarray:
        """The weights, as ``forge_judge`` calls them."""
        return self.weights

    @classmethod
    def of(cls, path: Path) -> Content:
        """What a store holds now."""
        store = Store.open(path)
        rows, labels, weights = [], list[Any](), []
        for chunk in range(store.chunks):
            x, codes = store.read(chunk)
            rows.append(np.array(x.toarray() if store.sparse else x, np.float64))
            labels += [None if code < 0 else store.classes[code] for code in codes.tolist()]
            own = store.weights(chunk)
            weights.append(np.ones(len(codes)) if own is None else np.array(own, np.float64))
        return cls(np.concatenate(rows), labels, np.concatenate(weights), store.dtype.name, store.sparse)


def lies(folder: Path, content: Content) -> list[str]:
    """What is false of a saved model or fleet, in words; nothing of mapped rows, whose arithmetic is the map's."""
    with localcontext(PRECISION):
        if (folder / "fleet.json").exists():
            members = sorted((folder / "members").iterdir())
            return [f"{one.name}: {lie}" for one in members for lie in _lies(one, content)]
        return list(_lies(folder, content))


def _lies(folder: Path, content: Content) -> Iterator[str]:
    record, arrays = json.loads((folder / "model.json").read_text()), dict(np.load(folder / "arrays.npz"))
    asked = record["parameters"]
    if asked.get("map"):
        return
    scaled = replace(content, X=forge_judge.scaled(content, record, arrays))  # type: ignore[arg-type]
    match record["problem"]:
        case "crammer_singer":
            yield from _several(record, arrays, scaled)
        case "kernel":
            yield from _kernel(record, arrays, scaled)
        case problem:
            sides = forge_judge.Judge(scaled).sides(record)  # type: ignore[arg-type]
            kept = np.flatnonzero(sides)
            two = Two(scaled.X[kept], sides[kept], intercept=asked["intercept"])
            w, b = arrays["w"], float(arrays["b"][0])
            if problem in ("soft_margin", "logistic", "relative_margin"):
                costs = _costs(asked, scaled.weights[kept], [sides[kept] > 0])[:, 0]
                yield from two.soft(record, w, b, costs)
            elif problem == "outliers":
                yield from two.outliers(record, arrays)
            else:
                yield from two.hard(record, w, b)


def decimals(values: Any) -> Vector:
    """The exact numbers that floats stand for."""
    return [Decimal(float(value)) for value in np.asarray(values, np.float64).ravel()]


def dot(x: Sequence[Decimal], z: Sequence[Decimal]) -> Decimal:
    """x.z."""
    return sum((a * b for a, b in zip(x, z, strict=True)), Decimal(0))


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _costs(asked: dict[str, Any], weights: np.ndarray, positive: Sequence[np.ndarray]) -> np.ndarray:
    """c (n, k), as decimals, of rows with these weights (n,), on the positive side (n,) or not in each of k columns."""
    columns = []
    for own in positive:
        factors = asked.get("class_weight")
        if factors == "balanced":
            sums = [sum(map(Fraction, weights[side].tolist()), Fraction(0)) for side in (~own, own)]
            pair = [_nearest(Fraction(asked["C"]) * sum(sums) / (2 * k)) if k else 0.0 for k in sums]
        else:
            pair = [asked["C"] * float(one) for one in factors or (1.0, 1.0)]
        columns.append(
            [Decimal(pair[int(p)]) * Decimal(w) for p, w in zip(own.tolist(), weights.tolist(), strict=True)]
        )
    return np.array(columns, dtype=object).T


def _losses(name: str, costs: Sequence[Decimal], margins: Sequence[Decimal]) -> Decimal:
    if name == "logistic":
        softplus = [max(Decimal(0), -m) + (1 + (-abs(m)).exp()).ln() for m in margins]
        return sum((c * loss for c, loss in zip(costs, softplus, strict=True)), Decimal(0))
    slack = [max(Decimal(0), 1 - m) for m in margins]
    return sum((c * (s * s if name == "squared_hinge" else s) for c, s in zip(costs, slack, strict=True)), Decimal(0))


def _margin_lies(record: dict[str, Any], own: Decimal | None, others: Sequence[Decimal]) -> Iterator[str]:
    """Bounds of a margin against that of the model's hypothesis, and those of others."""
    claims = record["certificate"]
    if claims["lower"] is not None and own is not None and Decimal(claims["lower"]) > own:
        yield f"lower bound {claims['lower']!r}, the margin is {float(own)!r}"
    best = max(others, default=Decimal("-inf"))
    if claims["upper"] is not None and Decimal(claims["upper"]) < best:
        yield f"upper bound {claims['upper']!r}, a hyperplane has {float(best)!r}"


def _value_lies(lower: float | None, upper: float | None, own: Decimal, others: Sequence[Decimal]) -> Iterator[str]:
    """Bounds of a value against that of the model's hypothesis, and those of others."""
    if upper is not None and Decimal(upper) < own * (1 - FEW):
        yield f"upper bound {upper!r}, the value is {float(own)!r}"
    best = min([own, *others])
    if lower is not None and Decimal(lower) > best * (1 + FEW):
        yield f"lower bound {lower!r}, a hypothesis has {float(best)!r}"


class Two:
    """Rows X (n, d) of two classes with their sides (n,), exactly."""

    def __init__(self, X: np.ndarray, sides: np.ndarray, *, intercept: bool) -> None:
        self.X, self.sides, self.intercept = X, sides, intercept
        self._rows = [decimals(row) for row in X]
        self._signs = [Decimal(int(side)) for side in sides]

    def margins(self, w: np.ndarray, b: float) -> Vector:
        """y (w.x + b) (n,)."""
        direction, offset = decimals(w), Decimal(float(b))
        return [s * (dot(row, direction) + offset) for s, row in zip(self._signs, self._rows, strict=True)]

    def margin(self, w: np.ndarray, b: float, left_out: int = 0) -> Decimal:
        """The least of them but for so many rows, for ||w|| = 1; nothing below that of no hyperplane."""
        size = dot(decimals(w), decimals(w)).sqrt()
        return sorted(self.margins(w, b))[left_out] / size if size else Decimal("-inf")

    def hard(self, record: dict[str, Any], w: np.ndarray, b: float) -> Iterator[str]:
        """What is false of a hard margin."""
        others = [self.margin(*plane) for plane in self.widest(np.arange(len(self.X)))]
        yield from _margin_lies(record, self.margin(w, b) if w.any() else None, others)

    def outliers(self, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Iterator[str]:
        """What is false of margins with rows left out."""
        found = {name: arrays[f"outliers_{name}"] for name in ("k", "lower", "upper", "w", "b")}
        everything = set(range(len(self.X)))
        for k, lower, upper, w, b in zip(*found.values(), strict=True):
            choices = itertools.islice(itertools.combinations(everything, int(k)), CHOICES)
            planes = [plane for out in choices for plane in self.widest(np.array(sorted(everything - set(out))))]
            best = max((self.margin(*plane, left_out=int(k)) for plane in planes), default=Decimal("-inf"))
            if Decimal(float(upper)) < best:
                yield f"upper bound {upper!r} with {k} outliers, a hyperplane has {float(best)!r}"
            if math.isfinite(lower) and Decimal(float(lower)) > self.margin(w, float(b), left_out=int(k)):
                yield f"lower bound {lower!r} with {k} outliers, it is {float(self.margin(w, float(b), int(k)))!r}"

    def widest(self, some: np.ndarray) -> list[Plane]:
        """The hyperplane of the largest margin of some rows, as a solver by others finds it: none or one."""
        X, y = self.X[some], self.sides[some].astype(np.float64)
        if self.intercept and len(np.unique(y)) < 2:
            return []
        centre, scale = _frame(X, self.intercept)
        A = (X - centre) / scale * y[:, None]
        found = _quadratic(np.column_stack([A, y]) if self.intercept else A, X.shape[1])
        if found is None or not found[: X.shape[1]].any():
            return []
        w = found[: X.shape[1]]
        places = X @ w
        if not self.intercept:
            return [(w, 0.0)]
        first = float(places[y > 0].min()), float(places[y < 0].max())
        return [(w, -0.5 * (first[0] + first[1]))]

    def soft(self, record: dict[str, Any], w: np.ndarray, b: float, costs: np.ndarray) -> Iterator[str]:
        """What is false of a value; costs (n,): decimals."""
        loss, claims = record["parameters"]["loss"], record["certificate"]
        loss = "squared_hinge" if loss == "auto" else loss

        def value(w: np.ndarray, b: float) -> Decimal:
            v = decimals(w)
            return dot(v, v) / 2 + _losses(loss, costs.tolist(), self.margins(w, b))

        planes = list(self._cheapest(loss, costs))
        if record["problem"] == "relative_margin":
            bound = Decimal(record["parameters"]["relative_margin"])
            if claims["upper"] is not None and (most := self.largest(w, b)) > bound:
                yield f"relative margin {float(bound)!r}, a decision value is {float(most)!r}"
            planes = [self.within(bound, *plane) for plane in planes]
        others = [value(*plane) for plane in planes]
        yield from _value_lies(claims["lower"], claims["upper"], value(w, b), others)

    def largest(self, w: np.ndarray, b: float) -> Decimal:
        """The largest |w.x + b|."""
        return max((abs(margin) for margin in self.margins(w, b)), default=Decimal(0))

    def within(self, bound: Decimal, w: np.ndarray, b: float) -> Plane:
        """The hyperplane scaled so that no decision value is beyond the bound."""
        while (most := self.largest(w, b)) > bound:
            share = float(bound / most) * (1 - 1e-12)
            w, b = share * w, share * b
        return w, b

    def _cheapest(self, loss: str, costs: np.ndarray) -> Iterator[Plane]:
        """Hyperplanes of small values by scikit-learn, on rows of sizes about 1; and none at all."""
        yield np.zeros(self.X.shape[1]), 0.0
        if self.intercept:
            yield from ((np.zeros(self.X.shape[1]), side) for side in (1.0, -1.0))
        centre, scale = _frame(self.X, self.intercept)
        c = np.array([float(cost * Decimal(scale) ** 2) for cost in costs])
        kept = np.flatnonzero(c > 0)
        if len(np.unique(self.sides[kept])) < 2 or not (c[kept] < 1e100).all() or not (c[kept] > 1e-100).all():
            return
        Z, y, c = ((self.X - centre) / scale)[kept], self.sides[kept], c[kept]
        if loss == "logistic":
            unit = float(c.max())
            machine = LogisticRegression(C=unit, fit_intercept=self.intercept, tol=1e-10, max_iter=3000)
            with _quiet():
                machine.fit(Z, y, sample_weight=c / unit)
            yield _unframed(machine.coef_[0], float(machine.intercept_[0]) if self.intercept else 0.0, centre, scale)
        elif self.intercept:
            yield _unframed(*_by_gram(Z, y, c, loss), centre, scale)
        elif len(np.unique(y)) == 2:
            unit = float(c.max())
            machine = LinearSVC(C=unit, loss=loss, dual=True, fit_intercept=False, tol=1e-10, max_iter=3000)
            with _quiet():
                machine.fit(Z, y, sample_weight=c / unit)
            yield _unframed(machine.coef_[0], 0.0, centre, scale)


def _frame(X: np.ndarray, intercept: bool) -> tuple[np.ndarray, float]:
    """A centre, and a size about it: rows are near 1 then."""
    centre = X.mean(axis=0) if intercept else np.zeros(X.shape[1])
    return centre, float(np.abs(X - centre).max(initial=0.0)) or 1.0


def _unframed(w: np.ndarray, b: float, centre: np.ndarray, scale: float) -> Plane:
    w = w / scale
    return w, float(b - w @ centre)


def _quadratic(A: np.ndarray, free: int) -> np.ndarray | None:
    """The v of least length in its first ``free`` entries with A v >= 1, by daqp; None where it finds none."""
    import daqp

    H = np.diag([1.0] * free + [0.0] * (A.shape[1] - free))
    v, _, flag, _ = daqp.solve(
        H, np.zeros(len(H)), np.ascontiguousarray(A), np.full(len(A), 1e30), np.ones(len(A)),
        np.zeros(len(A), np.int32), primal_tol=1e-10, dual_tol=1e-12, iter_limit=2000,
        eps_prox=1e-3 if free < len(H) else 0.0,
    )  # fmt: skip
    return v if flag == 1 and np.isfinite(v).all() else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Solvers that do not converge say so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _by_gram(Z: np.ndarray, y: np.ndarray, c: np.ndarray, loss: str) -> tuple[np.ndarray, float]:
    """A hyperplane (w, b) by libsvm, on the rows' products."""
    duals, b = _libsvm(Z @ Z.T, y, c, loss)
    return duals @ Z, b


def _libsvm(gram: np.ndarray, y: np.ndarray, c: np.ndarray, loss: str) -> tuple[np.ndarray, float]:
    """Signed duals (n,) and intercept of a soft margin with a kernel."""
    own = gram + np.diag(0.5 / c) if loss == "squared_hinge" else gram
    most = c if loss == "hinge" else np.full(len(c), 1e12 * float(c.max()))
    unit = float(most.max())
    machine = SVC(kernel="precomputed", C=unit, tol=1e-10, max_iter=20_000, shrinking=False)
    duals = np.zeros(len(y))
    try:
        with _quiet():
            machine.fit(own, y, sample_weight=most / unit)
    except ValueError:  # it ended in numbers that are not finite
        return duals, 0.0
    duals[machine.support_] = machine.dual_coef_[0] * (1.0 if machine.classes_[1] > 0 else -1.0)
    return duals, float(machine.intercept_[0])


def _several(record: dict[str, Any], arrays: dict[str, np.ndarray], content: Content) -> Iterator[str]:
    """What is false of a model of several classes at once."""
    asked, classes = record["parameters"], record["classes"]
    kept = [i for i, one in enumerate(content.labels) if one is not None and content.weights[i] > 0]
    X, own = content.X[kept], np.array([classes.index(content.labels[i]) for i in kept])
    rows = [[*decimals(row), Decimal(record["constant"])] for row in X]

    def margins(V: np.ndarray) -> Vector:
        each = [decimals(v) for v in V]
        scores = [[dot(row, v) for v in each] for row in rows]
        return [s[k] - max(s[r] for r in range(len(s)) if r != k) for s, k in zip(scores, own.tolist(), strict=True)]

    V, claims = arrays["hypothesis"], record["certificate"]
    others = list(_several_planes(X, own, V.shape[0], record["constant"], asked, content.weights[kept]))
    flat = [decimals(v) for v in (V, *others)]
    if "loss" not in asked or asked["loss"] is None:
        pairs = zip((V, *others), flat, strict=True)
        reached = [min(margins(v)) / dot(f, f).sqrt() if any(f) else None for v, f in pairs]
        yield from _margin_lies(record, reached[0], [one for one in reached[1:] if one is not None])
        return
    weights = content.weights[kept]
    factors = np.full(len(classes), asked["C"])
    if asked["class_weight"] == "balanced":
        sums = [sum(map(Fraction, weights[own == k].tolist()), Fraction(0)) for k in range(len(classes))]
        factors = np.array([_nearest(Fraction(asked["C"]) * sum(sums) / (len(sums) * k)) if k else 0.0 for k in sums])
    costs = [Decimal(float(factors[k])) * Decimal(float(w)) for k, w in zip(own, weights, strict=True)]
    values = [dot(f, f) / 2 + _losses("hinge", costs, margins(v)) for v, f in zip((V, *others), flat, strict=True)]
    yield from _value_lies(claims["lower"], claims["upper"], values[0], values[1:])


def _several_planes(
    X: np.ndarray, own: np.ndarray, classes: int, constant: float, asked: dict[str, Any], weights: np.ndarray
) -> Iterator[np.ndarray]:
    """Hypotheses (K, d + 1) by other solvers: of the largest margin, or of a small value."""
    scale = float(np.abs(X).max(initial=0.0)) or 1.0
    Z = np.column_stack([X, np.full(len(X), constant)]) / scale
    if asked.get("loss") is None:
        A = np.zeros((len(X) * (classes - 1), classes * Z.shape[1]))
        pairs = [(i, r) for i in range(len(X)) for r in range(classes) if r != own[i]]
        for place, (i, r) in enumerate(pairs):
            A[place].reshape(classes, -1)[own[i]] = Z[i]
            A[place].reshape(classes, -1)[r] = -Z[i]
        found = _quadratic(A, A.shape[1])
        if found is not None:
            yield found.reshape(classes, -1)
        return
    yield np.zeros((classes, Z.shape[1]))
    cost = asked["C"] * scale**2
    if len(np.unique(own)) == classes > 2 and len(np.unique(weights)) == 1 and 1e-100 < cost * weights[0] < 1e100:
        machine = LinearSVC(
            C=cost * weights[0], multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=5000
        )
        with _quiet():
            machine.fit(Z, own)
        yield machine.coef_ / scale


def _kernel(record: dict[str, Any], arrays: dict[str, np.ndarray], content: Content) -> Iterator[str]:
    """What is false of a machine with a kernel, column by column."""
    asked, classes = record["parameters"], record["classes"]
    fold = record.get("view") or {"fold": None}
    held = [
        fold["fold"] is not None and forge_judge.fold(row, fold["folds"], fold["fold_seed"]) == fold["fold"]
        for row in range(len(content.X))
    ]
    kept = [i for i, one in enumerate(content.labels) if one is not None and content.weights[i] > 0 and not held[i]]
    X, own = content.X[kept], np.array([classes.index(content.labels[i]) for i in kept])
    place = {row: k for k, row in enumerate(kept)}
    carrying = [place[int(row)] for row in arrays["coreset_ids"]]
    k = _exact_kernel(record["kernel"])
    rows = [decimals(row) for row in X]
    cache: dict[tuple[int, int], Decimal] = {}

    def gram(i: int, j: int) -> Decimal:
        key = min(i, j), max(i, j)
        if key not in cache:
            cache[key] = k(rows[key[0]], rows[key[1]])
        return cache[key]

    positive = [own == 1] if len(classes) == 2 else [own == c for c in range(len(classes))]
    loss = asked.get("loss")
    costs = _costs(asked, content.weights[kept], positive) if loss else np.zeros((len(own), len(positive)), object)
    dense = np.array([[float(gram(i, j)) for j in range(len(rows))] for i in range(len(rows))])
    for column, side in enumerate(positive):
        y = np.where(side, 1, -1)
        signs = [Decimal(int(s)) for s in y]

        def largest(weights: dict[int, Decimal], b: Decimal) -> Decimal:
            """The largest |f + b|."""
            sums = (sum((a * gram(i, j) for j, a in weights.items()), b) for i in range(len(rows)))
            return max((abs(f) for f in sums), default=Decimal(0))

        def within(weights: dict[int, Decimal], b: Decimal) -> tuple[dict[int, Decimal], Decimal]:
            """The function scaled so that no decision value is beyond the bound of a relative margin."""
            share = min(Decimal(1), Decimal(asked["relative_margin"]) / max(largest(weights, b), Decimal(1)))
            return {j: a * share for j, a in weights.items()}, b * share

        def told(weights: dict[int, Decimal], b: Decimal, signs: Vector = signs, column: int = column) -> Decimal:
            """The value of a function, or its margin."""
            sums = [sum((a * gram(i, j) for j, a in weights.items()), Decimal(0)) for i in range(len(rows))]
            square = sum((a * sums[j] for j, a in weights.items()), Decimal(0))
            margins = [s * (f + b) for s, f in zip(signs, sums, strict=True)]
            if loss:
                return square / 2 + _losses(loss, costs[:, column].tolist(), margins)
            return min(margins) / square.sqrt() if square > 0 else Decimal("-inf")

        mine = {j: signs[j] * Decimal(float(a)) for j, a in zip(carrying, arrays["duals"][:, column], strict=True) if a}
        offset = Decimal(float(arrays["offsets"][column]))
        reached, others = told(mine, offset), list(_kernel_planes(dense, y, costs[:, column], loss, asked["intercept"]))
        low, high = (float(arrays[name][column]) for name in ("lowers", "uppers"))
        if "relative_margin" in asked:
            others = [within(*one) for one in others]
            if not math.isnan(high) and (most := largest(mine, offset)) > Decimal(asked["relative_margin"]):
                yield f"relative margin {asked['relative_margin']!r}, a decision value is {float(most)!r}"
        other = [told(*one) for one in others]
        claims = {"lower": None if math.isnan(low) else low, "upper": None if math.isnan(high) else high}
        if loss:
            yield from _value_lies(claims["lower"], claims["upper"], reached, other)
        else:
            yield from _margin_lies({"status": record["status"], "certificate": claims}, reached, other)


def _kernel_planes(
    gram: np.ndarray, y: np.ndarray, costs: np.ndarray, loss: str | None, intercept: bool
) -> Iterator[tuple[dict[int, Decimal], Decimal]]:
    """Functions, as weights of rows, and intercepts: nothing, and those of libsvm."""
    if loss:
        yield {}, Decimal(0)
        if intercept:
            yield from (({}, Decimal(side)) for side in (1, -1))
    unit = float(np.abs(gram).max(initial=0.0))
    c = np.array([float(cost) for cost in costs]) if loss else np.full(len(y), 1e6 / (unit or 1.0))
    kept = np.flatnonzero(c > 0)
    size = unit * c[kept]
    if not (0 < unit < 1e100) or len(np.unique(y[kept])) < 2 or not ((size > 1e-90) & (size < 1e90)).all():
        return
    duals, b = _libsvm(gram[np.ix_(kept, kept)] / unit, y[kept], c[kept] * unit, loss or "hinge")
    weights = {int(j): Decimal(float(a)) / Decimal(unit) for j, a in zip(kept, duals, strict=True) if a}
    yield weights, Decimal(b if intercept else 0.0)


def _exact_kernel(record: dict[str, Any]) -> Callable[[Vector, Vector], Decimal]:
    """A kernel of two rows of decimals."""
    gamma, degree = Decimal(float(record.get("gamma", 1.0))), int(record.get("degree", 1))
    coef0 = Decimal(float(record.get("coef0", 0.0)))
    if record["name"] == "linear":
        return dot
    if record["name"] == "poly":
        return lambda x, z: (gamma * dot(x, z) + coef0) ** degree

    def rbf(x: Vector, z: Vector) -> Decimal:
        apart = gamma * sum(((a - b) ** 2 for a, b in zip(x, z, strict=True)), Decimal(0))
        if apart > 10**6:
            return Decimal(0)
        with localcontext(PRECISION) as context:
            context.prec = 60
            return (-apart).exp()

    return rbf
