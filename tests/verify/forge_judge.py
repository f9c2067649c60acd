"""A judge of what models claim: numpy on the rows that a store was made from, nothing of coremargin.

``lies(record, arrays)`` says what is false, in words with numbers; no words: nothing false was found. What is called
false is false beyond rounding: claims that are off by some units in the last place are left to others. Whatever makes
no sense to the judge (a missing key, a shape that does not fit) is raised as it comes, and counts as unreadable.

Upper bounds of margins and lower bounds of values are held against the best hypotheses that other solvers find.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

import forge_solve

if TYPE_CHECKING:
    from forge_specimens import Arrays, Record, Rows

_SLACK = 1e-9  # of what is compared: less than that is rounding
_NOTHING = 1e-12  # of the longest row: margins below that are not told from 0


def fold(row: int, folds: int, seed: int) -> int:
    """The fold of a row: SplitMix64's number at its place, of a seed that was mixed first; in Python's integers."""

    def mixed(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    return mixed((mixed(seed) + (row + 1) * 0x9E3779B97F4A7C15) % 2**64) % folds


def same(one: Any, other: Any) -> bool:
    """Whether two labels are one: 1, 1.0 and True are three."""
    return type(one) is type(other) and bool(one == other)


def scaled(rows: Rows, record: Record, arrays: Arrays) -> np.ndarray:
    """The rows (n, d) as a model with this scaling is about them."""
    kind, kept = record["parameters"].get("scaling"), np.dtype(rows.dtype)
    if kind is None:
        return rows.X
    if kind == "rownorm":
        length = np.sqrt(np.add.accumulate(rows.X**2, axis=1)[:, -1:])
        return (rows.X / np.where(length > 0, length, 1.0)).astype(kept).astype(np.float64)
    if kind == "ellipsoid":
        columns, axes = metric_columns(record, arrays), arrays["scaling_axes"]
        found = np.zeros(rows.X.shape, kept)
        products = axes * (rows.X[:, columns] - arrays["scaling_centre"])[:, None, :]
        found[:, columns] = np.add.accumulate(products, axis=2)[:, :, -1] + 0.0
        return found.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (rows.X.astype(kept) - arrays["shift"].astype(kept)) * arrays["factor"].astype(kept)
    return np.asarray(moved.astype(np.float64))


def scaling_lies(rows: Rows, record: Record, arrays: Arrays) -> Iterator[str]:
    """Whether shift and factor are those of the store's columns."""
    kind = record["parameters"].get("scaling")
    if kind in (None, "rownorm"):
        return
    if kind == "ellipsoid":
        yield from _metric_lies(rows, record, arrays)
        return
    X, eps = rows.X, 4 * float(np.finfo(rows.dtype).eps)
    low, high, mean, deviation = X.min(axis=0), X.max(axis=0), X.mean(axis=0), X.std(axis=0)
    shift = {"standard": mean, "minmax": low, "maxabs": 0 * mean}[kind] * (not rows.sparse)
    size = {"standard": deviation, "minmax": high - low, "maxabs": np.abs(X).max(axis=0)}[kind]
    factor = np.where(size > 0, 1 / np.where(size > 0, size, 1.0), 1.0)
    if not (np.abs(arrays["shift"] - shift) <= eps * np.abs(shift) + 1e-8 * deviation).all():
        yield f"shift {arrays['shift']}, of the columns {shift}"
    if not (np.abs(arrays["factor"] / factor - 1) <= 1e-5).all():
        yield f"factor {arrays['factor']}, of the columns {factor}"


def metric_columns(record: Record, arrays: Arrays) -> np.ndarray:
    """The columns of an ellipsoid that scales rows."""
    found: np.ndarray = arrays.get("scaling_span_columns", np.arange(record["features"]))
    return found


def _metric_lies(rows: Rows, record: Record, arrays: Arrays) -> Iterator[str]:
    """Whether the ellipsoid that scales rows contains them, and its weights allow none of much less volume."""
    mine = np.ones(len(rows.X), bool) if rows.weights is None else np.asarray(rows.weights) > 0
    columns, (lower, upper) = metric_columns(record, arrays), arrays["scaling_bounds"]
    rank, axes, ids, alpha = len(columns), *(arrays[f"scaling_{name}"] for name in ("axes", "coreset_ids", "alpha"))
    volume = float(np.exp(-np.log(np.diag(axes)).mean()))
    reached = float(np.linalg.norm((rows.X[mine][:, columns] - arrays["scaling_centre"]) @ axes.T, axis=1).max())
    if not reached * volume <= upper * (1 + _SLACK):
        yield f"scaling: upper {upper}, a row is at {reached * volume}"
    if not abs(upper / volume / math.sqrt(rank) - 1) <= 2e-6:
        yield f"scaling: radius {upper / volume}"
    if not 0 < lower <= upper * (1 + _SLACK) or not (lower / upper) ** rank >= (1 - 1e-3) * (1 - 1e-12):
        yield f"scaling: certified by {lower} and {upper}"
    if len(set(ids.tolist())) < len(ids) or not ((ids >= 0) & (ids < len(rows.X))).all():
        yield f"scaling: coreset rows {ids}"
        return
    if not mine[ids].all() or not np.array_equal(arrays["scaling_coreset_x"], rows.X[ids]):
        yield "scaling: the coreset's rows are not those of the store that count"
    if not (alpha >= 0).all() or not abs(alpha.sum() - 1) <= 1e-8:
        yield f"scaling: weights that sum to {alpha.sum()}"
        return
    off = rows.X[ids][:, columns] - alpha @ rows.X[ids][:, columns]
    sign, log_det = np.linalg.slogdet((off * alpha[:, None]).T @ off)
    proven = math.sqrt(rank) * math.exp(log_det / (2 * rank)) if sign > 0 else 0.0
    if not lower <= proven * (1 + 1e-7):
        yield f"scaling: lower {lower}, the weights prove {proven}"
    if rank < record["features"]:
        names = ("slopes", "offsets", "residuals")
        slopes, offsets, residuals = (arrays[f"scaling_span_{name}"] for name in names)
        away = np.abs(np.delete(rows.X[mine], columns, axis=1) - (rows.X[mine][:, columns] @ slopes.T + offsets))
        if not (away <= residuals * (1 + _SLACK) + 1e-12).all():
            yield f"scaling: rows are off the flat by {away.max(axis=0)}"


def facts(rows: Rows, record: Record, ids: np.ndarray, X: np.ndarray) -> Iterator[str]:
    """What any model says about its store and itself."""
    claims = record["certificate"]
    told = {
        "rows": (record["rows"], len(rows.X)), "features": (record["features"], rows.X.shape[1]),
        "dtype": (record["dtype"], rows.dtype), "digest": (claims["store_digest"], rows.digest),
        "coreset_rows": (claims["coreset_rows"], len(ids)),
    }  # fmt: skip
    yield from (
        f"{key}: {claimed!r}, it is {true!r}" for key, (claimed, true) in told.items() if not same(claimed, true)
    )
    radius = float(np.linalg.norm(X, axis=1).max())
    if not radius * (1 - _SLACK) <= claims["radius"] < math.inf:  # a larger one is a weaker claim
        yield f"radius {claims['radius']}, the longest row has {radius}"
    lower, upper, ratio = claims["lower"], claims["upper"], claims["ratio"]
    if ratio is not None and not 0 <= ratio <= 1:
        yield f"ratio {ratio}"
    dimensions = record.get("rank", 1)  # an ellipsoid's ratio is one of volumes
    if ratio and not (lower and upper and abs(min(1.0, lower / upper) ** dimensions - ratio) <= 1e-8):
        yield f"ratio {ratio} of {lower} and {upper}"
    epsilons = (record["parameters"]["epsilon"], claims["epsilon"])
    if epsilons not in ((epsilons[1],) * 2, (0, 1e-8)) or not 0 < epsilons[1] < 1:
        yield f"epsilon {epsilons}"


class Judge:
    """Of all models of two classes about one store. ``planes``: hypotheses that are about the best there are."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.planes: list[forge_solve.Plane] = []

    def learn(self, record: Record, arrays: Arrays) -> None:
        """Look for the best hypotheses of the problem that an honest model solves, with an intercept and without."""
        X, side = scaled(self.rows, record, arrays), self.sides(record)
        asked, kept = record["parameters"], np.flatnonzero(side)
        for intercept in (True, False):
            if record["problem"] == "soft_margin":
                price, squared = self.prices(record, side), asked["loss"] == "squared_hinge"
                self.planes += forge_solve.cheapest(X, side, price, intercept=intercept, squared=squared)
            elif record["problem"] == "relative_margin":
                price = self.prices(record, side)
                for bound in asked["relative_margin"] * np.array([1.0, 2.0, 1e3]):
                    self.planes += forge_solve.within(X, side, price, bound, intercept=intercept)
            elif record["problem"] == "logistic":
                self.planes += forge_solve.likeliest(X, side, self.prices(record, side), intercept=intercept)
            elif record["problem"] == "outliers":
                most = int(arrays["outliers_k"][-1])
                self.planes += forge_solve.trimmed(X[kept], side[kept], most, intercept=intercept)
            else:
                self.planes.append(forge_solve.widest(X[kept], side[kept], intercept=intercept))
        self.planes.append((np.array(arrays["w"]), float(arrays["b"][0])))

    def sides(self, record: Record) -> np.ndarray:
        """-1 and 1 (n,) for the rows of the negative and the positive class, 0 for those that do not count."""
        negative, positive = record["classes"]
        view = record.get("view") or {"class": None, "fold": None}
        if view["class"] is not None:
            if not (same(negative, False) and same(positive, True)):
                raise ValueError("a class against the rest has the labels false and true")
            named = [None if one is None else same(one, view["class"]) for one in self.rows.labels]
        else:
            named = [
                True if same(one, positive) else False if same(one, negative) else None for one in self.rows.labels
            ]
        side = np.array([0 if one is None else 1 if one else -1 for one in named])
        if view["fold"] is not None:
            held = [fold(row, view["folds"], view["fold_seed"]) == view["fold"] for row in range(len(side))]
            side[held] = 0
        return np.where(self.rows.weighed > 0, side, 0)

    def prices(self, record: Record, side: np.ndarray) -> np.ndarray:
        """What a unit of loss of each row (n,) costs."""
        asked, weighed = record["parameters"], np.where(side != 0, self.rows.weighed, 0.0)
        weight = asked["class_weight"]
        if weight == "balanced":
            total = weighed.sum()
            weight = [total / (2 * weighed[side < 0].sum()), total / (2 * weighed[side > 0].sum())]
        negative, positive = (1.0, 1.0) if weight is None else weight
        return np.asarray(asked["C"] * weighed * np.where(side > 0, positive, negative))

    def lies(self, record: Record, arrays: Arrays) -> list[str]:
        """What is false of a model of two classes."""
        X, side = scaled(self.rows, record, arrays), self.sides(record)
        found = [*facts(self.rows, record, arrays["coreset_ids"], X), *scaling_lies(self.rows, record, arrays)]
        if record["problem"] in ("soft_margin", "logistic", "relative_margin"):
            found += [*self._soft(record, arrays, X, side), *_tried(record, arrays, X, side)]
        elif record["problem"] == "outliers":
            found += self._outliers(record, arrays, X, side)
        else:
            found += self._hard(record, arrays, X, side)
        return [*found, *self._coreset(record, arrays, X, side)]

    def margins(self, w: np.ndarray, b: float, X: np.ndarray, side: np.ndarray) -> np.ndarray:
        """Of the rows that count, in increasing order, for |w| = 1."""
        exact = side * (X.astype(np.longdouble) @ w.astype(np.longdouble) + b) / (np.linalg.norm(w) or 1.0)
        return np.sort(np.asarray(exact[side != 0], dtype=np.float64))

    def best(self, k: int, X: np.ndarray, side: np.ndarray, *, intercept: bool) -> float:
        """A margin that can be reached when k rows are left out."""
        margins = [self.margins(w, b, X, side)[k] for w, b in self.planes if np.any(w) and (intercept or b == 0)]
        return float(max(margins, default=-np.inf))

    def _hard(self, record: Record, arrays: Arrays, X: np.ndarray, side: np.ndarray) -> Iterator[str]:
        claims, intercept = record["certificate"], record["parameters"]["intercept"]
        w, b = arrays["w"], float(arrays["b"][0])
        tiny = _NOTHING * float(np.linalg.norm(X, axis=1).max())
        if claims["lower"] is not None:
            yield from _unit(w, b, intercept=intercept)
            lowest = float(self.margins(w, b, X, side)[0])
            if claims["lower"] > lowest + _SLACK * abs(lowest) + tiny:
                yield f"lower {claims['lower']}, a row has margin {lowest}"
        yield from margin_status(record, self.best(0, X, side, intercept=intercept), tiny)

    def _outliers(self, record: Record, arrays: Arrays, X: np.ndarray, side: np.ndarray) -> Iterator[str]:
        claims, intercept = record["certificate"], record["parameters"]["intercept"]
        about = {name.removeprefix("outliers_"): v for name, v in arrays.items() if "outliers_" in name}
        tiny, ks = _NOTHING * float(np.linalg.norm(X, axis=1).max()), about["k"].tolist()
        if ks != counts_asked(record["parameters"]["outliers"]):
            yield f"k {ks}, asked for {record['parameters']['outliers']!r}"
        for k, lower, upper, w, b in zip(ks, *(about[name] for name in ("lower", "upper", "w", "b")), strict=True):
            best = self.best(k, X, side, intercept=intercept)
            if upper < best * (1 - _SLACK) - tiny:
                yield f"upper {upper} with {k} outliers, {best} can be reached"
            if math.isfinite(lower):
                yield from _unit(w, float(b), intercept=intercept)
                reached = float(self.margins(w, float(b), X, side)[k])
                if lower > reached + _SLACK * abs(reached) + tiny:
                    yield f"lower {lower} with {k} outliers, it is {reached}"
        if claims["upper"] != (about["upper"][-1] if np.isfinite(about["upper"][-1]) else None):
            yield f"upper {claims['upper']}, of the last number of outliers {about['upper'][-1]}"
        known = float(about["lower"][-1]) if math.isfinite(about["lower"][-1]) else None
        if record["status"] != "not_separable":
            same = (arrays["w"].tolist(), arrays["b"].tolist()) == (about["w"][-1].tolist(), [about["b"][-1]])
            if claims["lower"] != known or (known is not None and not same):  # else nothing is said of a hypothesis
                yield "hypothesis and lower bound are not those of the last number of outliers"
        yield from margin_status(record, self.best(ks[-1], X, side, intercept=intercept), tiny)
        yield from self._left_out(about, X, side)

    def _left_out(self, about: Arrays, X: np.ndarray, side: np.ndarray) -> Iterator[str]:
        ids, w, b, lower = about["ids"], about["w"][-1], float(about["b"][-1]), float(about["lower"][-1])
        if len(ids) > about["k"][-1] or len(set(ids.tolist())) < len(ids):
            yield f"{len(ids)} rows left out of {about['k'][-1]}"
        margins = side * (X @ w + b) / (np.linalg.norm(w) or 1.0)
        if not (about["signs"] == side[ids]).all() or not (np.abs(about["margins"] - margins[ids]) <= 1e-8).all():
            yield f"rows left out {ids} with margins {about['margins']}, they are {margins[ids]}"
        below = np.flatnonzero((side != 0) & (margins < lower * (1 - 1e-9)))
        if lower > 0 and set(below.tolist()) - set(ids.tolist()):
            yield f"rows {below} are below {lower}, named are {ids}"

    def _soft(self, record: Record, arrays: Arrays, X: np.ndarray, side: np.ndarray) -> Iterator[str]:
        asked, price = record["parameters"], self.prices(record, side)

        def value(w: np.ndarray, b: float) -> float:
            margins = side * (X @ w + b)
            if asked["loss"] == "logistic":
                return 0.5 * float(w @ w) + float(price @ np.logaddexp(0.0, -margins))
            slack = np.maximum(0.0, 1 - margins)
            return 0.5 * float(w @ w) + float(price @ (slack**2 if asked["loss"] == "squared_hinge" else slack))

        w, b = arrays["w"], float(arrays["b"][0])
        if not asked["intercept"] and b != 0:
            yield f"b {b} without intercept"
        planes = [(w, b) for w, b in self.planes if asked["intercept"] or b == 0]
        if record["problem"] == "relative_margin":
            bound = asked["relative_margin"]

            def widest(w: np.ndarray, b: float) -> float:
                return float(np.abs(X[side != 0] @ w + b).max(initial=0.0))

            if record["certificate"]["upper"] is not None and not widest(w, b) <= bound * (1 + _SLACK):
                yield f"relative margin {bound}, a decision value is {widest(w, b)}"
            planes = [(s * w, s * b) for w, b in planes for s in [min(1.0, bound / max(widest(w, b), bound))]]
        best = min(value(w, b) for w, b in planes)
        yield from value_status(record, value(w, b), best)

    def _coreset(self, record: Record, arrays: Arrays, X: np.ndarray, side: np.ndarray) -> Iterator[str]:
        """Whether the rows that carry the proof are what they say, and prove it (that of outliers is not redone)."""
        ids, y, alpha, claims = arrays["coreset_ids"], arrays["coreset_y"], arrays["alpha"], record["certificate"]
        if len(set(ids.tolist())) < len(ids) or not ((ids >= 0) & (ids < len(X))).all():
            yield f"coreset rows {ids}"
        elif not (side[ids] == y).all():
            yield f"signs {y} of rows {ids}, they are {side[ids]}"
        elif record["problem"] not in ("soft_margin", "logistic", "relative_margin"):
            if not np.array_equal(coreset_x(arrays), X[ids]):
                yield "the coreset's rows are not the store's"
            if claims["upper"] is not None and record["problem"] == "hard_margin":
                yield from _combined(alpha, y, X[ids], claims["upper"], intercept=record["parameters"]["intercept"])


def _combined(alpha: np.ndarray, y: np.ndarray, X: np.ndarray, upper: float, *, intercept: bool) -> Iterator[str]:
    sums = [alpha[y == sign].sum() for sign in (-1, 1)] if intercept else [alpha.sum()]
    if not (alpha >= 0).all() or not all(abs(total - 1) <= 1e-8 for total in sums):
        yield f"weights that sum to {sums}, the least is {alpha.min()}"
    proven = float(np.linalg.norm((alpha * y) @ X)) / (2 if intercept else 1)
    if proven > upper + 1e-8 * abs(upper) + 1e-9:
        yield f"upper {upper}, the weights prove {proven}"


def _tried(record: Record, arrays: Arrays, X: np.ndarray, side: np.ndarray) -> Iterator[str]:
    """Whether rows that are said to leave no hard margin do so."""
    if "tried" not in record:
        return
    ids, y, alpha = (arrays[f"tried_{name}"] for name in ("ids", "y", "alpha"))
    if (
        not len(set(ids.tolist())) == len(ids) == record["tried"]["coreset_rows"]
        or not ((ids >= 0) & (ids < len(X))).all()
    ):
        yield f"tried: rows {ids}"
    elif not (side[ids] == y).all():
        yield f"tried: signs {y} of rows {ids}, they are {side[ids]}"
    else:
        intercept, upper = record["parameters"]["intercept"], record["tried"]["upper"]
        yield from (f"tried: {lie}" for lie in _combined(alpha, y, X[ids], upper, intercept=intercept))
        left, longest = float(np.linalg.norm((alpha * y) @ X[ids])), float(np.linalg.norm(X[ids], axis=1).max())
        if left > 1e-9 * longest:
            yield f"tried: the hulls are {left} apart"


def _unit(w: np.ndarray, b: float, *, intercept: bool) -> Iterator[str]:
    if not abs(np.linalg.norm(w) - 1) <= 1e-8 or not math.isfinite(b) or not (intercept or b == 0):
        yield f"|w| = {np.linalg.norm(w)}, b = {b}, intercept {intercept}"


def coreset_x(arrays: Arrays) -> np.ndarray:
    """The coreset's rows (m, d), whether they are kept as they are or as a sparse matrix."""
    if "coreset_x" in arrays:
        return arrays["coreset_x"]
    dense = np.zeros(arrays["coreset_x_shape"].tolist())
    ends = arrays["coreset_x_indptr"].tolist()
    for row, (start, stop) in enumerate(itertools.pairwise(ends)):
        dense[row, arrays["coreset_x_indices"][start:stop]] = arrays["coreset_x_data"][start:stop]
    return dense


def counts_asked(asked: Any) -> list[int]:
    """The numbers of outliers that a parameter asks for: 3, "3", "0..3", "1,3" or [1, 3]."""
    if not isinstance(asked, str):
        return asked if isinstance(asked, list) else [asked]
    if ".." not in asked:
        return [int(part) for part in asked.split(",")]
    first, last = asked.split("..")
    return list(range(int(first), int(last) + 1))


def margin_status(record: Record, best: float, tiny: float) -> Iterator[str]:
    """Whether the status of a margin follows from true bounds; best: a margin that can be reached."""
    claims, status = record["certificate"], record["status"]
    lower, upper = claims["lower"], claims["upper"]
    if upper is not None and upper < best * (1 - _SLACK) - tiny:
        yield f"upper {upper}, {best} can be reached"
    if status == "not_separable":
        if best > tiny or claims["kind"] != "not_separable" or lower is not None:
            yield f"not separable, {best} can be reached; kind {claims['kind']}, lower {lower}"
    elif status == "certified":
        if lower is None or upper is None or lower <= 0 or lower < (1 - claims["epsilon"]) * upper * (1 - 1e-12):
            yield f"certified: {lower} of {upper}, epsilon {claims['epsilon']}"
    elif status != "stopped":
        yield f"status {status!r}"
    if (claims["kind"] == "not_separable") != (status == "not_separable"):
        yield f"status {status!r} of kind {claims['kind']!r}"


def value_status(record: Record, value: float, best: float) -> Iterator[str]:
    """The same of the value of a soft margin: that of the hypothesis, and one that can be reached."""
    claims, status = record["certificate"], record["status"]
    lower, upper = claims["lower"], claims["upper"]
    if upper is not None and not upper >= value * (1 - _SLACK):
        yield f"upper {upper}, the value is {value}"
    if lower is not None and not lower <= best * (1 + _SLACK):
        yield f"lower {lower}, {best} can be reached"
    if status not in ("certified", "stopped") or claims["kind"] != "duality_gap":
        yield f"status {status!r} of kind {claims['kind']!r}"
    elif status == "certified" and not (upper - lower) <= claims["epsilon"] * upper * (1 + 1e-12):
        yield f"certified: {lower} to {upper}, epsilon {claims['epsilon']}"
