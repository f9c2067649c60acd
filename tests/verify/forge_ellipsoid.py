"""The judge of ellipsoids of least volume: what is true of centre, axes, weights and rows, by NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from forge_ball import BallJudge
from forge_judge import coreset_x, facts, scaled, scaling_lies

if TYPE_CHECKING:
    from forge_specimens import Arrays, Record

_SLACK, _STEPS = 1e-9, 3000


class EllipsoidJudge(BallJudge):
    """``least``: a volume radius that can be reached, about the least one; which rows count is as of a ball."""

    least = np.inf

    def learn(self, record: Record, arrays: Arrays) -> None:
        """Khachiyan's steps with those away from rows, and the ellipsoid of an honest model."""
        X = scaled(self.rows, record, arrays)[self.counted(record)][:, columns(record, arrays)]
        n, d = X.shape
        lifted, u = np.hstack([X, np.ones((n, 1))]), np.full(n, 1.0 / n)
        for _ in range(_STEPS):
            w = np.einsum("ij,jk,ik->i", lifted, np.linalg.pinv((lifted * u[:, None]).T @ lifted), lifted)
            k = int(w.argmax())
            step = (w[k] - (d + 1)) / ((d + 1) * (w[k] - 1))
            u = u * (1 - step)
            u[k] += step
        off = X - u @ X
        covariance = (off * u[:, None]).T @ off
        level = np.sqrt(np.einsum("ij,jk,ik->i", off, np.linalg.inv(covariance), off).max())
        honest = radius(arrays["axes"]) * float(np.linalg.norm((X - arrays["centre"]) @ arrays["axes"].T, axis=1).max())
        self.least = min(honest, float(level * np.exp(np.linalg.slogdet(covariance)[1] / (2 * d))))

    def lies(self, record: Record, arrays: Arrays) -> list[str]:
        """What is false of an ellipsoid."""
        X = scaled(self.rows, record, arrays)
        found = [*facts(self.rows, record, arrays["coreset_ids"], X), *scaling_lies(self.rows, record, arrays)]
        return [*found, *self._volumes(record, arrays, X), *self._weights(record, arrays, X)]

    def _volumes(self, record: Record, arrays: Arrays, X: np.ndarray) -> Iterator[str]:
        claims, status, mine = record["certificate"], record["status"], self.counted(record)
        lower, upper, rank = claims["lower"], claims["upper"], record["rank"]
        if not mine.any():
            yield "no row counts"
            return
        chosen = columns(record, arrays)
        with np.errstate(over="ignore", invalid="ignore"):
            levels = np.linalg.norm((X[mine][:, chosen] - arrays["centre"]) @ arrays["axes"].T, axis=1)
            reached = float(levels.max()) * radius(arrays["axes"])
        if upper is not None and not upper >= reached * (1 - _SLACK):
            yield f"upper {upper}, a row is at {reached}"
        if lower is not None and not lower <= self.least * (1 + _SLACK):
            yield f"lower {lower}, {self.least} can be reached"
        if rank < record["features"]:
            others = np.delete(X[mine], chosen, axis=1)
            away = np.abs(others - (X[mine][:, chosen] @ arrays["span_slopes"].T + arrays["span_offsets"]))
            if not (away <= arrays["span_residuals"] * (1 + _SLACK) + 1e-12).all():
                yield f"rows are off the flat by {away.max(axis=0)}"
        if status not in ("certified", "stopped") or claims["kind"] != "volume_radius":
            yield f"status {status!r} of kind {claims['kind']!r}"
        elif status == "certified" and (
            lower is None or upper is None or not (lower / upper) ** rank >= (1 - claims["epsilon"]) * (1 - 1e-12)
        ):
            yield f"certified: {lower} to {upper}, epsilon {claims['epsilon']}"

    def _weights(self, record: Record, arrays: Arrays, X: np.ndarray) -> Iterator[str]:
        ids, alpha, lower = arrays["coreset_ids"], arrays["alpha"], record["certificate"]["lower"]
        if len(set(ids.tolist())) < len(ids) or not ((ids >= 0) & (ids < len(X))).all():
            yield f"coreset rows {ids}"
            return
        if not self.counted(record)[ids].all() or not np.array_equal(coreset_x(arrays), X[ids]):
            yield "the coreset's rows are not those of the store that count"
        if lower is None:
            return
        if not (alpha >= 0).all() or not abs(alpha.sum() - 1) <= 1e-8:
            yield f"weights that sum to {alpha.sum()}, the least is {alpha.min(initial=0.0)}"
            return
        some = X[ids][:, columns(record, arrays)]
        off = some - alpha @ some
        sign, log_det = np.linalg.slogdet((off * alpha[:, None]).T @ off)
        proven = float(np.sqrt(off.shape[1]) * np.exp(log_det / (2 * off.shape[1]))) if sign > 0 else 0.0
        if not lower <= proven * (1 + 1e-7):
            yield f"lower {lower}, the weights prove {proven}"


class SoftEllipsoidJudge(EllipsoidJudge):
    """``least``: the value of an honest model."""

    def learn(self, record: Record, arrays: Arrays) -> None:
        """What an honest model reaches, by the definition of its value."""
        X, boxes = scaled(self.rows, record, arrays)[:, columns(record, arrays)], self._boxes(record)
        squares = np.linalg.norm((X - arrays["centre"]) @ arrays["axes"].T, axis=1) ** 2
        order = np.argsort(-squares)
        shares = np.diff(np.minimum(np.cumsum(np.append(0.0, boxes[order])), 1.0))
        self.least = float(np.sqrt(shares @ squares[order])) * radius(arrays["axes"])

    def _boxes(self, record: Record) -> np.ndarray:
        s = np.where(self.counted(record), 1.0 if self.rows.weights is None else self.rows.weights, 0.0)
        return np.asarray(s / (record["parameters"]["nu"] * max(s.sum(), 1e-300)))

    def _volumes(self, record: Record, arrays: Arrays, X: np.ndarray) -> Iterator[str]:
        claims, mine = record["certificate"], self.counted(record)
        lower, upper, rank = claims["lower"], claims["upper"], record["rank"]
        if not mine.any():
            yield "no row counts"
            return
        if record["parameters"]["nu"] * mine.sum() < 1:
            yield "nu leaves no row outside"
        chosen, square = columns(record, arrays), float(arrays["square"][0])
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.linalg.norm((X[:, chosen] - arrays["centre"]) @ arrays["axes"].T, axis=1) ** 2
            beyond = np.where(mine, np.maximum(squares - square, 0.0), 0.0)
            reached = float(np.sqrt(square + self._boxes(record) @ beyond)) * radius(arrays["axes"])
        if upper is not None and not upper >= reached * (1 - _SLACK):
            yield f"upper {upper}, the value is {reached}"
        if lower is not None and not lower <= self.least * (1 + _SLACK):
            yield f"lower {lower}, {self.least} can be reached"
        if rank < record["features"]:
            others = np.delete(X[mine], chosen, axis=1)
            away = np.abs(others - (X[mine][:, chosen] @ arrays["span_slopes"].T + arrays["span_offsets"]))
            if not (away <= arrays["span_residuals"] * (1 + _SLACK) + 1e-12).all():
                yield f"rows are off the flat by {away.max(axis=0)}"
        status = record["status"]
        if status not in ("certified", "stopped") or claims["kind"] != "volume_radius":
            yield f"status {status!r} of kind {claims['kind']!r}"
        elif status == "certified" and (
            lower is None or upper is None or not (lower / upper) ** rank >= (1 - claims["epsilon"]) * (1 - 1e-12)
        ):
            yield f"certified: {lower} to {upper}, epsilon {claims['epsilon']}"

    def _weights(self, record: Record, arrays: Arrays, X: np.ndarray) -> Iterator[str]:
        ids, alpha, lower = arrays["coreset_ids"], arrays["alpha"], record["certificate"]["lower"]
        boxes = self._boxes(record)
        if len(set(ids.tolist())) < len(ids) or not ((ids >= 0) & (ids < len(X))).all():
            yield f"coreset rows {ids}"
            return
        if not (boxes[ids] > 0).all():
            yield "a row of the coreset does not count"
        if lower is None:
            return
        if not (alpha <= boxes[ids] * (1 + 1e-8)).all():
            yield "a weight is too large"
        some = X[:, columns(record, arrays)]
        side = np.linalg.norm((some - arrays["reference_centre"]) @ arrays["reference_axes"].T, axis=1) ** 2
        a = np.where(side > arrays["threshold"][0], boxes, 0.0)
        a[ids] = alpha
        total = max(1e-300, float(a.sum()))
        share = a / total
        off = some - share @ some
        sign, log_det = np.linalg.slogdet((off * share[:, None]).T @ off)
        r = off.shape[1]
        if total < 1:  # the others are raised: no more than det S t^(r + 1) is proven
            log_det += (r + 1) * np.log(total)
        proven = float(np.sqrt(r) * np.exp(log_det / (2 * r))) if sign > 0 else 0.0
        if not lower <= proven * (1 + 1e-7):
            yield f"lower {lower}, the weights prove {proven}"


def columns(record: Record, arrays: Arrays) -> np.ndarray:
    """The columns that an ellipsoid is about."""
    found: np.ndarray = arrays.get("span_columns", np.arange(record["features"]))
    return found


def radius(axes: np.ndarray) -> float:
    """The volume radius of level 1."""
    with np.errstate(all="ignore"):
        return float(np.exp(-np.log(np.diag(axes)).mean()))
