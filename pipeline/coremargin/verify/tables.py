"""Confusion matrices, accuracies and the choice of C of a fleet, counted anew."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.verify.checks import Check, typed
from coremargin.verify.sums import gamma, length, row_lengths, slabs
from coremargin.verify.view import folds_of

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim
    from coremargin.verify.rows import Chunk, Rows

_CLOSE = 1e-9
_VALUES = 1 << 18  # decision values at a time


class Tables:
    """Counts for each group of members that decide together, by fold and C."""

    def __init__(self, record: dict[str, Any], claims: tuple[Claim, ...], rows: Rows) -> None:
        self._record, self._claims = record, claims
        self._k = len(record["classes"])
        places = {typed(label): place for place, label in enumerate(record["classes"])}
        self._places = np.array([*(places.get(typed(label), -1) for label in rows.classes), -1])
        self._w = np.stack([claim.w for claim in claims], axis=1)
        self._b = np.array([claim.b for claim in claims])
        self._sizes = np.array([length(claim.w) for claim in claims])
        self._groups: dict[tuple[int | None, float | None], list[int]] = {}
        for number, claim in enumerate(claims):
            key = (claim.view.fold, claim.cost if claim.loss else None)
            self._groups.setdefault(key, []).append(number)
        self._order = {key: self._in_order(numbers) for key, numbers in self._groups.items()}
        self._counts = np.zeros((len(self._groups), self._k, self._k), dtype=np.int64)
        self._open = np.zeros(len(self._groups), dtype=np.int64)

    def _in_order(self, numbers: list[int]) -> list[int] | None:
        """The group's members in the order of the classes; None when some are missing."""
        if self._k == 2 and len(numbers) == 1:
            return numbers
        whose = {typed(self._claims[number].view.label): number for number in numbers}
        order = [whose.get(typed(label)) for label in self._record["classes"]]
        return None if None in order else [number for number in order if number is not None]

    def ask(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """Counts (groups, k, k) of one chunk, and rows (groups,) that rounding leaves open."""
        counts, undecided = np.zeros_like(self._counts), np.zeros_like(self._open)
        truth = self._places[chunk.codes]
        if chunk.weights is not None:
            truth = np.where(chunk.weights > 0, truth, -1)  # rows of weight 0 are left out everywhere
        views = [claim.view for claim in self._claims if claim.view.fold is not None]
        fold = folds_of(chunk.start, len(truth), views[0].folds, views[0].seed) if views else np.full(len(truth), -1)
        for part, x in slabs(chunk.x, max(1, _VALUES // len(self._claims))):
            values = x @ self._w + self._b
            reach = row_lengths(x)[:, None] * self._sizes + np.abs(self._b)
            error = 2 * gamma(len(self._w) + 4) * reach
            for group, ((held, _), order) in enumerate(self._order.items()):
                mine = np.flatnonzero((truth[part] >= 0) & ((fold[part] == held) if held is not None else True))
                if order is None or not len(mine):
                    continue
                chosen, close = _decided(values[mine][:, order], error[mine][:, order])
                pairs = truth[part][mine] * self._k + chosen
                counts[group] += np.bincount(pairs, minlength=self._k**2).reshape(self._k, self._k)
                undecided[group] += int(close.sum())
        return counts, undecided

    def add(self, answer: tuple[np.ndarray, np.ndarray]) -> None:
        """Take one chunk's answer."""
        self._counts += answer[0]
        self._open += answer[1]

    def checks(self) -> list[Check]:
        """Whether the fleet's tables are what was counted."""
        evaluations = self._record["evaluations"]
        if not evaluations:
            none = self._record["validation"] is None
            text = "the run stopped before: nothing is claimed about how the members do together"
            return [Check("evaluations", none, text), self._choice([])]
        problems = self._miscounted(evaluations)
        rows = sum(int(entry["rows"]) for entry in evaluations)
        text = f"{len(evaluations):,} confusion matrices over {rows:,} rows in all are as claimed"
        checks = [Check("evaluations", not problems, "; ".join(problems[:5]) or text)]
        return [*checks, self._validated(evaluations), self._choice(evaluations)]

    def _miscounted(self, evaluations: list[Any]) -> list[str]:
        problems = []
        told = {(entry["fold"], entry["C"]): entry for entry in evaluations}
        for group, key in enumerate(self._groups):
            entry, counts = told.get(key), self._counts[group]
            place = f"C {key[1]}, fold {key[0]}"
            if entry is None:
                problems.append(f"{place}: no evaluation")
                continue
            claimed = np.array(entry["confusion"])
            if claimed.shape != counts.shape or (claimed.sum(axis=1) != counts.sum(axis=1)).any():
                problems.append(f"{place}: model claims {int(claimed.sum()):,} rows, found {int(counts.sum()):,}")
            elif int(np.abs(claimed - counts).sum()) > 2 * int(self._open[group]):
                moved = int(np.abs(claimed - counts).sum()) // 2
                problems.append(f"{place}: {moved:,} rows are given another class than the model claims")
            elif int(entry["rows"]) != int(claimed.sum()) or not _same(entry["accuracy"], _accuracy(claimed)):
                problems.append(f"{place}: rows and accuracy do not follow from the matrix")
        return problems + ["evaluations of others"] * (len(told) != len(self._groups) or len(told) != len(evaluations))

    def _validated(self, evaluations: list[Any]) -> Check:
        table = self._record["validation"]
        folded = [entry for entry in evaluations if entry["fold"] is not None]
        if not folded:
            return Check("validation", table is None, "no folds, nothing is claimed")
        problems = []
        costs = list(dict.fromkeys(entry["C"] for entry in evaluations))
        if table is None or [entry["C"] for entry in table] != costs:
            return Check("validation", ok=False, text="expected a line for each C")
        for entry in table:
            mine = sorted((e for e in folded if e["C"] == entry["C"]), key=lambda e: int(e["fold"]))
            values = [e["accuracy"] for e in mine]
            mean = math.fsum(values) / len(values)
            std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
            if entry["accuracies"] != values or not _same(entry["mean"], mean) or not _same(entry["std"], std):
                problems.append(f"C {entry['C']}: found mean {mean:.9g} and deviation {std:.9g}")
        text = f"means and deviations over folds, for {len(table):,} values of C"
        return Check("validation", not problems, "; ".join(problems) or text)

    def _choice(self, evaluations: list[Any]) -> Check:
        costs = list(dict.fromkeys(entry["C"] for entry in self._record["members"]))
        table, chosen = self._record["validation"], self._record["chosen"]
        expected: dict[str, Any] | None = None
        if len(costs) == 1:
            expected = {"C": costs[0], "by": "only"}
        elif table and evaluations:
            best = max(entry["mean"] for entry in table)
            expected = {"C": min(e["C"] for e in table if e["mean"] == best), "by": "validation"}
        text = "nothing to choose C by" if expected is None else f"C {expected['C']}, by: {expected['by']}"
        ok = chosen == expected
        return Check("choice", ok, text if ok else f"model claims {chosen}, expected {text}")


def _decided(values: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The class (n,) by decision values (n, m), and where (n,) rounding leaves another open."""
    if values.shape[1] == 1:
        return (values[:, 0] > 0).astype(np.int64), np.abs(values[:, 0]) <= error[:, 0]
    chosen = values.argmax(axis=1)
    rows = np.arange(len(values))
    near = values + error >= (values[rows, chosen] - error[rows, chosen])[:, None]
    return chosen, near.sum(axis=1) > 1


def _accuracy(confusion: np.ndarray) -> float:
    rows = int(confusion.sum())
    return float(np.trace(confusion)) / rows if rows else 0.0


def _same(claimed: Any, found: float) -> bool:
    return isinstance(claimed, int | float) and not isinstance(claimed, bool) and abs(claimed - found) <= _CLOSE
