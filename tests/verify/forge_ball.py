"""The judges of smallest enclosing balls and of soft ones: what is true of centre, weights and rows, by NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from forge_judge import coreset_x, counts_asked, facts, same, scaled, scaling_lies, value_status

if TYPE_CHECKING:
    from forge_specimens import Arrays, Record, Rows

_SLACK, _STEPS = 1e-9, 20_000


class BallJudge:
    """``centres``: of balls that are about the smallest."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.centres: list[np.ndarray] = []

    def best(self, X: np.ndarray, k: int) -> float:
        """A radius that can be reached without k rows of X (n, d)."""
        return min(float(np.sort(np.linalg.norm(X - one, axis=1))[::-1][k:][:1].sum()) for one in self.centres)

    def counted(self, record: Record) -> np.ndarray:
        """Which rows (n,) count."""
        mine = np.ones(len(self.rows.X), bool)
        if "only" in record:
            mine = np.array([same(label, record["only"]) for label in self.rows.labels])
        return mine if self.rows.weights is None else mine & (self.rows.weights > 0)

    def learn(self, record: Record, arrays: Arrays) -> None:
        """Steps towards the farthest row (Badoiu and Clarkson), and the centre of an honest model."""
        X = scaled(self.rows, record, arrays)[self.counted(record)]
        centre = X[0].copy()
        for k in range(1, _STEPS):
            centre += (X[int(np.linalg.norm(X - centre, axis=1).argmax())] - centre) / (k + 1)
        self.centres = [centre, arrays["centre"].copy()]

    def lies(self, record: Record, arrays: Arrays) -> list[str]:
        """What is false of a ball."""
        X = scaled(self.rows, record, arrays)
        found = [*facts(self.rows, record, arrays["coreset_ids"], X), *scaling_lies(self.rows, record, arrays)]
        return [*found, *self._bounds(record, arrays, X), *self._coreset(record, arrays, X)]

    def _bounds(self, record: Record, arrays: Arrays, X: np.ndarray) -> Iterator[str]:
        claims, status = record["certificate"], record["status"]
        lower, upper, mine = claims["lower"], claims["upper"], self.counted(record)
        if not mine.any():
            yield "no row counts"
            return
        asked, ids = record["parameters"].get("outliers"), arrays.get("outliers_ids", np.zeros(0, np.int64))
        k = 0 if asked is None else counts_asked(asked)[0]
        if len(set(ids.tolist())) < len(ids) or len(ids) > k or not ((ids >= 0) & (ids < len(X))).all():
            yield f"rows {ids} outside, of at most {k}"
            return
        if not mine[ids].all():
            yield f"rows {ids} outside, some of which do not count"
        best = self.best(X[mine], k)
        mine[ids] = False
        farthest = float(np.linalg.norm(X[mine] - arrays["centre"], axis=1).max(initial=0.0))
        if upper is None or not upper >= farthest * (1 - _SLACK):
            yield f"upper {upper}, a row is {farthest} away"
        if lower is not None and not lower <= best * (1 + _SLACK):
            yield f"lower {lower}, {best} can be reached"
        if status not in ("certified", "stopped") or claims["kind"] != "radius":
            yield f"status {status!r} of kind {claims['kind']!r}"
        elif status == "certified" and not lower >= (1 - claims["epsilon"]) * upper * (1 - 1e-12):
            yield f"certified: {lower} to {upper}, epsilon {claims['epsilon']}"

    def _coreset(self, record: Record, arrays: Arrays, X: np.ndarray) -> Iterator[str]:
        ids, alpha, lower = arrays["coreset_ids"], arrays["alpha"], record["certificate"]["lower"]
        if len(set(ids.tolist())) < len(ids) or not ((ids >= 0) & (ids < len(X))).all():
            yield f"coreset rows {ids}"
            return
        if not self.counted(record)[ids].all() or not np.array_equal(coreset_x(arrays), X[ids]):
            yield "the coreset's rows are not those of the store that count"
        if lower is None or record["parameters"].get("outliers"):
            return
        if not (alpha >= 0).all() or not abs(alpha.sum() - 1) <= 1e-8:
            yield f"weights that sum to {alpha.sum()}, the least is {alpha.min(initial=0.0)}"
        off = X[ids] - alpha @ X[ids]
        proven = float(np.sqrt(max(0.0, alpha @ (off**2).sum(axis=1))))
        if not lower <= proven * (1 + 1e-8) + 1e-12:
            yield f"lower {lower}, the weights prove {proven}"


class SoftBallJudge(BallJudge):
    """``centre``: that of an honest model, whose value can be reached."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.centre = np.zeros(0)

    def learn(self, record: Record, arrays: Arrays) -> None:
        """The centre of an honest model."""
        self.centre = arrays["centre"]

    def lies(self, record: Record, arrays: Arrays) -> list[str]:
        """What is false of a soft ball."""
        X, mine = scaled(self.rows, record, arrays), self.counted(record)
        found = [*facts(self.rows, record, arrays["coreset_ids"], X), *scaling_lies(self.rows, record, arrays)]
        if not mine.any():
            return [*found, "no row counts"]
        s = np.where(mine, 1.0 if self.rows.weights is None else self.rows.weights, 0.0)
        boxes, square = s / (record["parameters"]["nu"] * s.sum()), float(arrays["square"][0])
        if record["parameters"]["nu"] * mine.sum() < 1:
            found.append("nu leaves no row outside")
        beyond = np.maximum(((X - arrays["centre"]) ** 2).sum(axis=1) - square, 0.0)
        found += value_status(record, square + float(boxes @ beyond), self._value(X, boxes))
        return [*found, *self._weights(record, arrays, X, boxes)]

    def _value(self, X: np.ndarray, boxes: np.ndarray) -> float:
        squares = ((X - self.centre) ** 2).sum(axis=1)
        order = np.argsort(-squares)
        shares = np.diff(np.minimum(np.cumsum(np.append(0.0, boxes[order])), 1.0))
        return float(shares @ squares[order])

    def _weights(self, record: Record, arrays: Arrays, X: np.ndarray, boxes: np.ndarray) -> Iterator[str]:
        ids, alpha, lower = arrays["coreset_ids"], arrays["alpha"], record["certificate"]["lower"]
        if len(set(ids.tolist())) < len(ids) or not ((ids >= 0) & (ids < len(X))).all():
            yield f"coreset rows {ids}"
            return
        if not (boxes[ids] > 0).all():
            yield "a row of the coreset does not count"
        if lower is None:
            return
        if not (alpha <= boxes[ids] * (1 + 1e-8)).all():
            yield "a weight is too large"
        off = X - arrays["reference"]
        squares = (off**2).sum(axis=1)
        a = np.where(squares > arrays["threshold"][0], boxes, 0.0)
        a[ids] = alpha
        total = float(a.sum())
        a /= max(1.0, total)
        missing = max(0.0, 1.0 - total)
        move = a @ off
        proven = float(a @ squares - move @ move / (1 - missing)) if missing < 1 else 0.0
        if not lower <= proven * (1 + 1e-8) + 1e-12:
            yield f"lower {lower}, the weights prove {proven}"
