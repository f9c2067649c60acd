"""Confusion matrices, accuracies and the choice of C and gamma of a fleet, counted anew."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from coremargin.verify.checks import Check, typed
from coremargin.verify.fleet.functions import functions_of
from coremargin.verify.sums import slabs
from coremargin.verify.view import folds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.formats.fleet_record import FleetRecord, Setting
    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.rows import Chunk, Rows

_CLOSE = 1e-12  # of means and deviations of a few numbers up to 1
_FEW = 1000  # one row of so many may lie where rounding decides, and one more
_VALUES = 1 << 18  # decision values at a time


class Tables:
    """Counts for each ensemble: members that decide together, of a fold, C and gamma, in the order of the classes."""

    def __init__(
        self, record: FleetRecord, claims: tuple[AnyClaim, ...], groups: Sequence[Sequence[int]], rows: Rows
    ) -> None:
        """groups: the places of members that are asked of the same rows, those that decide together in one of them."""
        self._record, self._k = record, len(record.classes)
        places = {typed(label): place for place, label in enumerate(record.classes)}
        self._places = np.array([*(places.get(typed(label), -1) for label in rows.classes), -1])
        self._functions = [functions_of([claims[k] for k in group]) for group in groups]
        self._ensembles = list(record.ensembles())
        self._columns: list[dict[int, list[int]]] = [{} for _ in groups]
        for number, members in enumerate(record.ensembles().values()):
            place = next(place for place, group in enumerate(groups) if members[0] in group)
            mine = [groups[place].index(member) for member in members]
            self._columns[place][number] = self._functions[place].of(mine)
        self._counts = np.zeros((len(self._ensembles), self._k, self._k), dtype=np.int64)
        self._open = np.zeros(len(self._ensembles), dtype=np.int64)

    def ask(self, chunk: Chunk, group: int) -> tuple[np.ndarray, np.ndarray]:
        """Counts (ensembles, k, k) of one chunk, and rows (ensembles,) that rounding leaves open; 0 of other groups."""
        counts, undecided = np.zeros_like(self._counts), np.zeros_like(self._open)
        truth = self._places[chunk.codes]
        if chunk.weights is not None:
            truth = np.where(chunk.weights > 0, truth, -1)  # rows of weight 0 are left out everywhere
        parameters = self._record.parameters
        fold = (
            folds_of(chunk.start, len(truth), parameters.folds, parameters.fold_seed)
            if parameters.folds
            else np.zeros(len(truth))
        )
        functions = self._functions[group]
        for part, x in slabs(chunk.x, max(1, _VALUES // functions.count)):
            values, error = functions.values(x)
            for number, ensemble in self._columns[group].items():
                held_out = self._ensembles[number][0]
                mine = np.flatnonzero((truth[part] >= 0) & ((fold[part] == held_out) if held_out is not None else True))
                chosen, close = _decided(values[mine][:, ensemble], error[mine][:, ensemble])
                pairs = truth[part][mine] * self._k + chosen
                counts[number] += np.bincount(pairs, minlength=self._k**2).reshape(self._k, self._k)
                undecided[number] += int(close.sum())
        return counts, undecided

    def add(self, answers: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Take the answers of all groups about one chunk."""
        for counts, undecided in answers:
            self._counts += counts
            self._open += undecided

    def checks(self) -> list[Check]:
        """Whether the fleet's tables are what was counted."""
        evaluations, problems = self._record.evaluations, self._lacking()
        if not evaluations:
            text = "nothing is claimed about how the members do together: the run stopped before, or rounding decides"
            if evaluations is None:
                text = f"nothing is claimed; found on the training rows: {self._found()}"
            return [Check("evaluations", not problems, "; ".join(problems[:5]) or text), self._choice()]
        problems += self._miscounted()
        rows = sum(entry.rows for entry in evaluations)
        text = f"{len(evaluations):,} confusion matrices over {rows:,} rows in all are as claimed"
        checks = [Check("evaluations", not problems, "; ".join(problems[:5]) or text)]
        return [*checks, self._validated(), self._choice()]

    def _lacking(self) -> list[str]:
        """Folds without rows of a class that the store has: no trainer makes them, they say nothing and count as much.

        With one setting as with another: it is the rows that are in folds.
        """
        first, classes = self._record.settings[0], self._record.classes
        groups = enumerate(self._ensembles)
        found = {fold: self._counts[group].sum(axis=1) for group, (fold, *one) in groups if tuple(one) == first}
        return [
            f"fold {fold} has no row of class {classes[place]!r}"
            for fold in range(self._record.parameters.folds or 0)
            for place in np.flatnonzero((found[None] > 0) & (found[fold] == 0))[:1]
        ]

    def _found(self) -> str:
        every = {(cost, gamma): group for group, (fold, cost, gamma) in enumerate(self._ensembles) if fold is None}
        return ", ".join(
            f"accuracy {_accuracy(self._counts[group]):.6f}" + (f" with {_told(one)}" if one != (None, None) else "")
            for one, group in every.items()
        )

    def _miscounted(self) -> list[str]:
        problems, evaluations = [], self._record.evaluations or []
        recorded = {entry.ensemble: entry for entry in evaluations}
        moved: dict[tuple[Setting, bool], int] = {}
        for group, key in enumerate(self._ensembles):
            entry, counts = recorded[key], self._counts[group]
            place = f"{_told(key[1:])}, fold {key[0]}"
            claimed = np.array(entry.confusion)
            others = int(np.abs(claimed - counts).sum()) // 2
            if (claimed.sum(axis=1) != counts.sum(axis=1)).any():
                problems.append(f"{place}: model claims {int(claimed.sum()):,} rows, found {int(counts.sum()):,}")
            elif others > self._open[group]:
                problems.append(f"{place}: {others:,} rows are given another class than the model claims")
            elif entry.rows != int(claimed.sum()) or entry.accuracy != _accuracy(claimed):
                problems.append(f"{place}: rows and accuracy do not follow from the matrix")
            table = key[1:], key[0] is None
            moved[table] = moved.get(table, 0) + others
        return problems + self._too_many(moved)

    def _too_many(self, moved: dict[tuple[Setting, bool], int]) -> list[str]:
        """What is wrong with the numbers of rows that are given another class than is claimed, of all folds together.

        Those that rounding leaves open may be, as long as these are a few: members that decide nothing, being nearly
        alike, would leave every row open, and many folds of a few rows would add up to any table.
        """
        few = 1 + int(self._counts[0].sum()) // _FEW  # of all rows, which are those of all folds
        return [
            f"{_told(one)}, {'all rows' if whole else 'all folds'}: {rows:,} rows are given another class than the "
            f"model claims, where rounding may decide about {few:,}"
            for (one, whole), rows in moved.items()
            if rows > few
        ]

    def _validated(self) -> Check:
        table, evaluations = self._record.validation, self._record.evaluations or []
        folded = [entry for entry in evaluations if entry.fold is not None]
        if not folded or table is None:
            return Check("validation", not folded and table is None, "means over folds: nothing is claimed")
        problems = []
        for entry in table:
            values, mean = self._accuracies(entry.setting), self._mean(entry.setting)
            std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
            if entry.accuracies != values or abs(entry.mean - mean) > _CLOSE or abs(entry.std - std) > _CLOSE:
                problems.append(f"{_told(entry.setting)}: found mean {mean:.9g} and deviation {std:.9g}")
        text = f"means and deviations over folds, for {len(table):,} settings"
        return Check("validation", not problems, "; ".join(problems) or text)

    def _accuracies(self, one: Setting) -> list[float]:
        """Those of the folds, in order, with one setting."""
        mine = (entry for entry in self._record.evaluations or () if entry.fold is not None and one == entry.setting)
        return [entry.accuracy for entry in sorted(mine, key=lambda entry: int(entry.fold or 0))]

    def _mean(self, one: Setting) -> float:
        values = self._accuracies(one)
        return math.fsum(values) / len(values)

    def _choice(self) -> Check:
        settings, table, chosen = self._record.settings, self._record.validation, self._record.chosen
        expected: tuple[Setting, str] | None = None
        if len(settings) == 1:
            expected = settings[0], "only"
        elif table and self._record.evaluations:
            best = max(self._mean(one) for one in settings)
            good = [one for one in settings if best - self._mean(one) <= _CLOSE]
            expected = min(good, key=lambda one: one[0] or 0.0), "validation"  # of equal C the first
        text = "nothing to choose by" if expected is None else f"{_told(expected[0])}, by: {expected[1]}"
        found = None if chosen is None else (chosen.setting, chosen.by)
        claimed = None if chosen is None else f"{_told(chosen.setting)}, by: {chosen.by}"
        return Check(
            "choice", found == expected, text if found == expected else f"model claims {claimed}, expected {text}"
        )


def _decided(values: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The class (n,) by decision values (n, m), and where (n,) rounding leaves another open.

    Values without error are decided as predictions are: of equal ones the first, and 0 is not positive.
    """
    if values.shape[1] == 1:
        return (values[:, 0] > 0).astype(np.int64), (np.abs(values[:, 0]) <= error[:, 0]) & (error[:, 0] > 0)
    chosen = values.argmax(axis=1)
    rows = np.arange(len(values))
    best, slack = values[rows, chosen][:, None], error[rows, chosen][:, None]
    near = ~(values + error < best - slack) & ~(error + slack == 0)
    near[rows, chosen] = False
    return chosen, near.any(axis=1)


def _told(setting: Setting) -> str:
    """C, and gamma where there is one."""
    cost, gamma = setting
    return f"C {cost}" if gamma is None else f"C {cost}, gamma {gamma}"


def _accuracy(confusion: np.ndarray) -> float:
    rows = int(confusion.sum())
    return float(np.trace(confusion)) / rows if rows else 0.0
