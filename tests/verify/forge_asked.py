"""Campaigns of several classes, with a loss, by class, with rows that no annotator can label: not made by our engine.

Hyperplanes and dual weights are SciPy's and scikit-learn's, bounds are counted with fractions, rows are asked for and
drawn one by one, and log, folder and record are those of forge_active.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.svm import SVC

from forge_active import LINE, OPEN, Played, drawing, rows_of
from forge_active_judge import chance
from forge_specimens import Rows, write_store

_HEAVY = 1e5  # how much heavier an equation weighs that must hold
_TIGHT = 1e-10  # of every claim: more than scikit-learn's numbers are rounded by


@dataclass
class Plane:
    """A hyperplane and the dual weights of all rows answered, by row."""

    w: np.ndarray
    b: float
    weights: dict[int, float]
    lower: float = 0.0
    upper: float = 0.0


def widest(X: np.ndarray, side: np.ndarray, *, intercept: bool) -> tuple[np.ndarray, float, np.ndarray]:
    """(w, b) of length 1, and dual weights that sum to 1, on each side where there is an intercept."""
    Z, total = (X * side[:, None]) / float(np.abs(X).max()), np.ones(len(X))
    lines = [Z.T, total[None, :]] if not intercept else [Z.T, _HEAVY * side[None, :], (side > 0)[None, :].astype(float)]
    top = np.vstack(lines)
    a, _ = nnls(top, np.append(np.zeros(len(top) - 1), 1.0), maxiter=100 * len(X))
    groups = [side > 0, side < 0] if intercept else [side != 0]
    for group in groups:
        a[group] /= a[group].sum()
    w = a * side @ X
    w /= float(np.linalg.norm(w))
    b = -float((X[side > 0] @ w).min() + (X[side < 0] @ w).max()) / 2 if intercept else 0.0
    return w, b, a


def cheapest(X: np.ndarray, side: np.ndarray, cost: float, loss: str) -> tuple[np.ndarray, float, np.ndarray]:
    """(w, b) and the dual weights of a soft margin with an intercept."""
    if loss == "squared_hinge":
        svc = SVC(kernel="precomputed", C=1e10, tol=1e-10).fit(X @ X.T + np.eye(len(X)) / (2 * cost), side)
    else:
        svc = SVC(kernel="linear", C=cost, tol=1e-10).fit(X, side)
    a = np.zeros(len(X))
    a[svc.support_] = np.abs(svc.dual_coef_[0])
    return a * side @ X, float(svc.intercept_[0]), a


@cache
def most_wrong(rows: int, draws: int, wrong: int, delta: Fraction) -> int:
    """The most wrong rows that the draws leave possible."""
    return max(bad for bad in range(wrong, rows - draws + wrong + 1) if chance(rows, bad, draws, wrong) > delta)


@cache
def least_wrong(rows: int, draws: int, wrong: int, delta: Fraction) -> int:
    """The fewest wrong rows that the draws leave possible."""
    some = range(wrong, rows - draws + wrong + 1)
    return min(bad for bad in some if wrong == 0 or 1 - chance(rows, bad, draws, wrong - 1) > delta)


@dataclass
class Maker:
    """Plays a campaign; truth (n,): the places of the classes of the rows; nobody: rows that no annotator can label."""

    rows: Rows
    truth: np.ndarray
    classes: list[Any]
    error: float = 0.1
    confidence: float = 0.8
    epsilon: float = 0.1
    intercept: bool = True
    by_class: bool = False
    loss: str | None = None
    C: float | None = None
    trial: int | None = None
    seed: int = 0
    nobody: frozenset[int] = frozenset()
    lines: list[dict[str, Any]] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)
    drawn: dict[int, int] = field(default_factory=dict)
    unsure: list[int] = field(default_factory=list)

    @property
    def several(self) -> bool:
        """More than two classes."""
        return len(self.classes) > 2

    @property
    def counted(self) -> np.ndarray:
        """Rows (n,) of a weight above 0 of which nobody said that they cannot be labelled."""
        weights = self.rows.weights
        found = np.ones(len(self.truth), bool) if weights is None else np.asarray(weights) > 0
        found[self.unsure] = False
        return found

    def ask(self, row: int, why: str, attempt: int | None = None) -> int | None:
        """What a person says of a row, and the line about it."""
        told, code = {"row": row, "why": why, "attempt": attempt, **LINE}, int(self.truth[row])
        if row in self.nobody:
            self.unsure.append(row)
            self.lines.append({**told, "label": None, "action": "unsure"})
            return None
        self.lines.append({**told, "label": self.classes[code], "action": "label"})
        return code

    def queried(self, rows: Iterable[int], why: str = "query") -> None:
        """Rows that are asked about, and learnt from."""
        for row in rows:
            if row not in self.known and row not in self.unsure and (code := self.ask(int(row), why)) is not None:
                self.known[int(row)] = code

    def solve(self) -> list[Plane]:
        """A hyperplane for each class, or the one, with its bounds."""
        ids = np.array(sorted(row for row in self.known if self.counted[row]))
        X, codes = self.rows.X[ids], np.array([self.known[row] for row in ids.tolist()])
        found = []
        for k in range(len(self.classes)) if self.several else [1]:
            side = np.where(codes == k, 1, -1)
            if self.loss is None:
                w, b, a = widest(X, side, intercept=self.intercept)
            else:
                w, b, a = cheapest(X, side, float(self.C or 0), self.loss)
            plane = Plane(w, b, {int(row): float(one) for row, one in zip(ids, a, strict=True) if one > 0})
            self._bounds(plane, ids, side, a)
            found.append(plane)
        return found

    def _bounds(self, plane: Plane, ids: np.ndarray, side: np.ndarray, a: np.ndarray) -> None:
        X = self.rows.X
        size, v = float(np.linalg.norm(plane.w)), a * side @ X[ids]
        if self.loss is None:
            free = np.flatnonzero(self.counted & ~np.isin(np.arange(len(X)), list(self.known)))
            nearest = np.abs(X[free] @ plane.w + plane.b).min(initial=np.inf)
            plane.lower = float(min(nearest, (side * (X[ids] @ plane.w + plane.b)).min())) / size
            plane.upper = float(np.linalg.norm(v)) / (2 if self.intercept else 1)
        else:
            slack, cost = np.maximum(0, 1 - side * (X[ids] @ plane.w + plane.b)), float(self.C or 0)
            squared = self.loss == "squared_hinge"
            plane.upper = 0.5 * size**2 + cost * float((slack**2 if squared else slack).sum())
            plane.lower = float(a.sum() - 0.5 * v @ v - (a @ a / (4 * cost) if squared else 0))
        plane.lower = float(plane.lower - _TIGHT * abs(plane.upper))
        plane.upper = float(plane.upper * (1 + _TIGHT))

    def sides(self, planes: list[Plane]) -> np.ndarray:
        """The class (n,) that each row is given, -1 for none."""
        values = np.column_stack([self.rows.X @ plane.w + plane.b for plane in planes])
        if not self.several:
            return (values[:, 0] >= 0).astype(int)
        best = values.argmax(axis=1)
        return best if self.loss else np.where((values > 0).sum(axis=1) == 1, best, -1)

    def near(self, planes: list[Plane]) -> list[int]:
        """Rows that are asked about next."""
        if self.loss:
            return []
        values = np.column_stack([np.abs(self.rows.X @ plane.w + plane.b) / plane.upper for plane in planes])
        values[self.sides(planes) < 0] = 0.0
        order = np.argsort(values.min(axis=1))
        free = [int(row) for row in order if self.counted[row] and row not in self.known]
        return [row for row in free[:1] if values[row].min() < 1 - 0.9 * self.epsilon]

    def delta(self, attempt: int) -> Fraction:
        """What a bound of a stratum may spend."""
        share = (1 - Fraction(self.confidence)) / (attempt * (attempt + 1))
        return share / ((len(self.classes) if self.by_class else 1) * (2 if self.loss else 1))

    def strata(self, sides: np.ndarray) -> list[np.ndarray]:
        """The rows of each stratum that count and are not answered before draws."""
        free = self.counted & ~np.isin(np.arange(len(sides)), list(self.known))
        return [free & (sides == k) for k in range(len(self.classes))] if self.by_class else [free]

    def wanted(self, population: int, attempt: int) -> int:
        """How many draws of a stratum an attempt makes."""
        if self.trial is not None:
            return min(self.trial, population)
        most = int(self.error * population)
        shows = (t for t in range(population) if chance(population, most + 1, t, 0) <= self.delta(attempt))
        return next(shows, population) if most < population else 0

    def draw(self, planes: list[Plane], attempt: int) -> bool:
        """Draw and ask; whether the attempt came to its end."""
        sides, taken = self.sides(planes), [0] * (len(self.classes) if self.by_class else 1)
        self.drawn = {}
        for row in drawing(self.rows.digest, self.seed, attempt, len(sides)):
            if not self.counted[row] or row in self.known:
                continue
            k, sizes = int(sides[row]) if self.by_class else 0, [int(one.sum()) for one in self.strata(sides)]
            if taken[k] >= self.wanted(sizes[k], attempt):
                continue
            if (code := self.ask(row, "draw", attempt)) is None:
                continue
            taken[k] += 1
            self.drawn[row] = code
            if not self.loss and code != sides[row]:
                return False
        return True

    def play(self, first: int = 8, attempts: int = 3, go_on: bool = False) -> Played:
        """From examples to an attempt that is evidence; go_on: past one that is."""
        order = np.random.default_rng(self.seed).permutation(len(self.truth)).tolist()
        self.queried(order[:first], "example" if self.loss else "start")
        for row in order:
            if len(set(self.known.values())) == len(self.classes):
                break
            self.queried([row], "start")
        for attempt in range(1, attempts + 1):
            planes = self.solve()
            while rows := self.near(planes):
                self.queried(rows)
                planes = self.solve()
            if self.draw(planes, attempt) and not (go_on and attempt == 1):
                return self.made(planes, attempt)
            self.known |= self.drawn
            self.drawn = {}
        return self.made(self.solve(), None)

    def evidence(self, planes: list[Plane], attempt: int) -> dict[str, Any]:
        """What the draws show."""
        sides, parts = self.sides(planes), []
        for rows in self.strata(sides):
            mine = [row for row in self.drawn if rows[row]]
            wrong, n = sum(self.drawn[row] != int(sides[row]) for row in mine), int(rows.sum())
            most = most_wrong(n, len(mine), wrong, self.delta(attempt))
            least = least_wrong(n, len(mine), wrong, self.delta(attempt)) if self.loss else 0
            parts.append({
                "population": n, "draws": len(mine), "wrong": wrong, "error_bound": most, "error_least": least,
            })  # fmt: skip
        both = {name: sum(part[name] for part in parts) for name in parts[0]}
        found = {"attempt": attempt, "confidence": self.confidence, **both}
        if self.by_class:
            found["strata"] = [{"label": name, **part} for name, part in zip(self.classes, parts, strict=True)]
        return found

    def made(self, planes: list[Plane], attempt: int | None) -> Played:
        """The campaign's folder."""
        evidence = None if attempt is None else self.evidence(planes, attempt)
        ids = sorted({row for plane in planes for row in plane.weights})
        keys = [plane.lower / plane.upper if plane.lower > 0 else 0.0 for plane in planes]
        worst = planes[int(np.argmin(keys))]
        proven = all(plane.lower >= (1 - self.epsilon) * plane.upper > 0 for plane in planes)
        parts = [] if evidence is None else evidence.get("strata", [evidence])
        sure = proven and parts and all(part["error_bound"] <= self.error * part["population"] for part in parts)
        asked = {
            "epsilon": self.epsilon, "intercept": self.intercept, "method": "coreset", "error": self.error,
            "confidence": self.confidence, "seed": self.seed, **({"by_class": True} if self.by_class else {}),
            **({"loss": self.loss, "C": self.C, "trial": self.trial} if self.loss else {}),
        }  # fmt: skip
        facts = {"features": self.rows.X.shape[1], "rows": len(self.truth)}
        record = {
            "format": "coremargin-model", "version": 1, "problem": "active_classes" if self.several else "active",
            "status": "certified" if sure else "stopped", "parameters": asked, "classes": self.classes, **facts,
            "certificate": {
                "kind": "duality_gap" if self.loss else "margin", "lower": worst.lower, "upper": worst.upper,
                "ratio": min(1.0, *keys), "epsilon": self.epsilon, "coreset_rows": len(ids),
                "store_digest": self.rows.digest,
                "radius": float(np.linalg.norm(self.rows.X, axis=1).max()) * (1 + 1e-12),
            },
            "dtype": self.rows.dtype, "software": {"coremargin": "0"}, "evidence": evidence,
            "answers": len(self.known) + len(self.drawn), "log": OPEN,
            **({"unsure": len(self.unsure)} if self.nobody else {}),
        }  # fmt: skip
        if self.several:
            bounds = [{"lower": plane.lower, "upper": plane.upper} for plane in planes]
            record["members"] = [{"label": name, **one} for name, one in zip(self.classes, bounds, strict=True)]
        about = {
            "format": "coremargin-campaign", "version": 1, "store": str(self.rows.path), "digest": self.rows.digest,
            **facts, **asked, "memory": 2**20, "block": 2**20, "classes": self.classes,
        }  # fmt: skip
        return Played(self.rows, record, self._arrays(planes, ids), self.lines, about)

    def _arrays(self, planes: list[Plane], ids: list[int]) -> dict[str, Any]:
        names, duals = sorted(self.known), np.array([[one.weights.get(row, 0.0) for one in planes] for row in ids])
        codes = {
            "answered": [self.known[row] for row in names], "draws": list(self.drawn.values()),
            "coreset": [self.known[row] for row in ids],
        }  # fmt: skip
        arrays = {
            "coreset_ids": np.array(ids, np.int64),
            **rows_of(sp.csr_array(self.rows.X[ids]) if self.rows.sparse else self.rows.X[ids]),
            "answered_ids": np.array(names, np.int64), "draws_ids": np.array(list(self.drawn), np.int64),
        }  # fmt: skip
        if self.nobody:
            arrays["unsure_ids"] = np.array(sorted(self.unsure), np.int64)
        if not self.several:
            signs = {key: (2 * np.array(values, np.int64) - 1).astype(np.int8) for key, values in codes.items()}
            return arrays | {
                "w": planes[0].w, "b": np.array([planes[0].b]), "alpha": duals[:, 0], "coreset_y": signs["coreset"],
                "answered_signs": signs["answered"], "draws_signs": signs["draws"],
            }  # fmt: skip
        hypothesis = np.stack([np.append(plane.w, plane.b) for plane in planes])
        return arrays | {
            "hypothesis": hypothesis, "duals": duals,
            **{f"{key}_classes": np.array(values, np.int32) for key, values in codes.items()},
        }  # fmt: skip


def corners(folder: Path, rows: int = 160, seed: int = 0, **options: Any) -> tuple[Rows, np.ndarray]:
    """Rows around three corners, and the places of their classes; each corner can be cut off from the others."""
    rng = np.random.default_rng([seed, 7])
    truth = rng.choice(3, rows, p=options.pop("shares", (0.4, 0.4, 0.2)))
    middles = 3.0 * np.array([[1.0, 0.0], [-0.5, 0.866], [-0.5, -0.866]])
    X = middles[truth] + np.clip(rng.standard_normal((rows, 2)), -1.2, 1.2)
    return write_store(folder / f"corners-{seed}.zarr", X, [None] * rows, **options), truth


def mixed(folder: Path, rows: int = 160, classes: int = 2, seed: int = 0, **options: Any) -> tuple[Rows, np.ndarray]:
    """Rows of which some lie among those of another class, and their classes by place."""
    rng = np.random.default_rng([seed, 9])
    truth = rng.integers(classes, size=rows)
    X = 2.5 * np.eye(max(2, classes))[truth] + rng.standard_normal((rows, max(2, classes)))
    return write_store(folder / f"mixed-{classes}-{seed}.zarr", X, [None] * rows, **options), truth
