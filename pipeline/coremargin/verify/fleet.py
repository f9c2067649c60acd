"""A fleet, models trained together: every member as a model of its own, and ``fleet.json``, in one scan.

The scan counts the confusion matrices again: a row's class is that of the largest decision value among the members that
decide together, for one fold, C and gamma. Decision values here and in the trainer differ by rounding: rows whose two
largest are closer than that may count for either class, as long as they are few; all others have to match.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from coremargin.formats.fleet_record import FILE, MEMBERS, FleetRecord, check_members
from coremargin.formats.model_files import read_content, read_model_files, read_own_columns
from coremargin.formats.registry import typed_fleet
from coremargin.verify.checks import Check, are_classes, same_columns, same_shape, typed, unchecked_content
from coremargin.verify.examination import ModelExamination
from coremargin.verify.feature_map import alike
from coremargin.verify.folds import folds_of
from coremargin.verify.kernel import KernelClaim
from coremargin.verify.kernel_functions import NotAKernel, expand
from coremargin.verify.kind import UNCHECKED
from coremargin.verify.outcome import FleetVerification
from coremargin.verify.registry import claim_of
from coremargin.verify.risk import risk_check
from coremargin.verify.sums import UNIT, gamma, length, row_lengths, slabs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coremargin.formats.fleet_record import Setting
    from coremargin.formats.storage import ReadableStorage
    from coremargin.verify.claim import AnyClaim, Claim
    from coremargin.verify.rows import Chunk, Rows

_CLOSE = 1e-12  # of means and deviations of a few numbers up to 1
_FEW = 1000  # rounding may decide about one row in this many, and one more
_VALUES = 1 << 18  # decision values at a time


@dataclass(frozen=True)
class FleetClaims:
    """The claims of a fleet: the content of ``fleet.json``, and its members' claims, in its order."""

    path: str
    record: FleetRecord
    members: tuple[AnyClaim, ...]
    columns: str = ""  #: the columns' names and meaning, "" if the fleet has none


def read_fleet(model: ReadableStorage, kernel: Callable[..., Any] | None = None) -> FleetClaims:
    """Read a fleet from its objects; kernel: as for ``claim_of``.

    Raises DataError: another format or version, incomplete, altered.
    """
    place = f"{model.name}/{FILE}"
    record = typed_fleet(read_content(model, FILE), place)
    members = [read_model_files(model, f"{MEMBERS}/{entry.name}") for entry in record.members]
    check_members(record, [files.record for files in members], place)
    columns = read_own_columns(model, features=record.features)
    claims = tuple(claim_of(files, kernel) for files in members)
    return FleetClaims(model.name, record, claims, "" if columns is None else columns.claim)


class FleetExamination:
    """The claims of all members, and the fleet's tables; rows are mapped once for all members of one gamma.

    ``probe``, ``add`` and ``result`` as in ``ModelExamination``.
    """

    def __init__(self, claims: FleetClaims, rows: Rows) -> None:
        self.claims, self.rows = claims, rows
        first = ModelExamination(claims.members[0], rows)
        self._groups = _by_map(claims)
        self._alike = _scaled_alike(claims.members) and all(
            alike(claims.members[group[0]].map, claims.members[k].map) for group in self._groups for k in group
        )
        scaler = first.scaler if self._alike else None
        self._members = [first, *(ModelExamination(claim, rows, scaler) for claim in claims.members[1:])]
        self._classes = _same_classes(claims.record, rows)
        self.comparable = self._alike and self._classes.ok and all(member.comparable for member in self._members)
        self._tables = Tables(claims.record, claims.members, self._groups, rows) if self.comparable else None

    def probe(self, chunk: Chunk) -> Any:
        """The summary of a chunk; a part of one group's mapped rows is in memory at a time."""
        scaler = self._members[0].scaler
        scaled = scaler.scaled(chunk)
        members: list[list[Any]] = [[] for _ in self._members]
        tables = list[Any]()
        for number, group in enumerate(self._groups):
            row_map = self.claims.members[group[0]].map
            for part in [scaled] if row_map is None else row_map.parts(scaled):
                for k in group:
                    members[k].append(self._members[k].probe_part(part))
                if self._tables:
                    tables.append(self._tables.probe(part, number))
        return scaler.columns(chunk), members, tables

    def add(self, summary: Any) -> None:
        """Add what ``probe`` returned."""
        columns, members, tables = summary
        self._members[0].scaler.add(columns)
        for member, parts in zip(self._members, members, strict=True):
            member.add_parts(parts)
        if self._tables:
            self._tables.add(tables)

    def result(self) -> FleetVerification:
        """The result, after all chunks."""
        record, claims = self.claims.record, self.claims.members
        names = [entry.name for entry in record.members]
        results = tuple((name, member.result()) for name, member in zip(names, self._members, strict=True))
        statuses = [entry.status for entry in record.members]
        # members' own checks report appended rows
        checks = [same_shape(claims[0], self.rows)] if self.rows.amended else []
        checks += [
            self._classes,
            *same_columns(self.claims.columns, self.rows),
            Check("members", ok=True, text=f"all {len(claims):,} are as the table says, with the same parameters"),
            Check("status", ok=True, text=f"{record.status}: {statuses.count('certified'):,} of them are certified"),
        ]
        if not self._alike:
            checks.append(Check("scaling", ok=False, text="the members do not scale and map rows alike"))
        if self._tables is not None:
            checks += self._tables.checks()
            if record.by_risk:
                checks.append(risk_check(record, self._members, weighted=self.rows.weighted))
        return FleetVerification(
            model=str(self.claims.path),
            store=str(self.rows.path),
            status=record.status,
            epsilon=claims[0].proven_epsilon,
            rows=self.rows.rows,
            features=self.rows.features,
            members=results,
            tables=tuple(checks),
            problem=claims[0].problem,
            unchecked=(*UNCHECKED, *unchecked_content(claims[0], self.rows)),
        )


def _same_classes(record: FleetRecord, rows: Rows) -> Check:
    """Whether the fleet decides among all classes of the store, and no others."""
    text, store = ", ".join(map(repr, record.classes)), ", ".join(map(repr, rows.classes))
    ok = are_classes(record.classes, rows)
    return Check("classes", ok, text if ok else f"fleet decides among {text}, the store has {store or 'none'}")


def _by_map(claims: FleetClaims) -> list[list[int]]:
    """Positions of the members that should have the same map: those of one gamma, or all without a map."""
    groups: dict[Any, list[int]] = {}
    for place, (entry, claim) in enumerate(zip(claims.record.members, claims.members, strict=True)):
        groups.setdefault(None if claim.map is None else entry.setting[1], []).append(place)
    return list(groups.values())


def _scaled_alike(claims: tuple[AnyClaim, ...]) -> bool:
    first = claims[0]
    return all(
        claim.scaling == first.scaling
        and np.array_equal(claim.shift, first.shift)
        and np.array_equal(claim.factor, first.factor)
        and claim.ellipsoid.keys() == first.ellipsoid.keys()
        and all(np.array_equal(values, first.ellipsoid[name]) for name, values in claim.ellipsoid.items())
        for claim in claims
    )


class Tables:
    """Confusion matrices, accuracies, and the choice of C and gamma.

    An ensemble is the members that decide together, for one fold, C and gamma, in the order of the classes.
    """

    def __init__(
        self, record: FleetRecord, claims: tuple[AnyClaim, ...], groups: Sequence[Sequence[int]], rows: Rows
    ) -> None:
        """groups: positions of members with the same map; an ensemble is within one of them."""
        self._record, self._k = record, len(record.classes)
        places = {typed(label): place for place, label in enumerate(record.classes)}
        self._places = np.array([*(places.get(typed(label), -1) for label in rows.classes), -1])
        self._functions = [functions_of([claims[k] for k in group]) for group in groups]
        self._ensembles = list(record.ensembles())
        self._columns: list[dict[int, list[int]]] = [{} for _ in groups]
        for number, members in enumerate(record.ensembles().values()):
            place = next(place for place, group in enumerate(groups) if members[0] in group)
            mine = [groups[place].index(member) for member in members]
            self._columns[place][number] = self._functions[place].columns_of(mine)
        self._counts = np.zeros((len(self._ensembles), self._k, self._k), dtype=np.int64)
        self._open = np.zeros(len(self._ensembles), dtype=np.int64)

    def probe(self, chunk: Chunk, group: int) -> tuple[np.ndarray, np.ndarray]:
        """Counts (ensembles, k, k) of a chunk, and rows (ensembles,) that rounding decides; 0 for other groups."""
        counts, undecided = np.zeros_like(self._counts), np.zeros_like(self._open)
        truth = self._places[chunk.codes]
        if chunk.weights is not None:
            truth = np.where(chunk.weights > 0, truth, -1)  # rows of weight 0 never count
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

    def add(self, summaries: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Add the summaries of all groups for one chunk."""
        for counts, undecided in summaries:
            self._counts += counts
            self._open += undecided

    def checks(self) -> list[Check]:
        """Whether the fleet's tables agree with the counts."""
        evaluations, problems = self._record.evaluations, self._empty_folds()
        if not evaluations:
            text = "nothing is claimed about the members' accuracy: the run stopped before, or rounding decides"
            if evaluations is None:
                text = f"nothing is claimed; found on the training rows: {self._accuracies_text()}"
            return [Check("evaluations", not problems, "; ".join(problems[:5]) or text), self._choice()]
        problems += self._miscounted()
        rows = sum(entry.rows for entry in evaluations)
        text = f"{len(evaluations):,} confusion matrices over {rows:,} rows in all are as claimed"
        checks = [Check("evaluations", not problems, "; ".join(problems[:5]) or text)]
        return [*checks, self._validated(), self._choice()]

    def _empty_folds(self) -> list[str]:
        """Folds without rows of a class that the store has. No trainer makes them; they would count like any other.

        The folds are those of the rows, so the first setting shows them all.
        """
        first, classes = self._record.settings[0], self._record.classes
        groups = enumerate(self._ensembles)
        found = {fold: self._counts[group].sum(axis=1) for group, (fold, *one) in groups if tuple(one) == first}
        return [
            f"fold {fold} has no row of class {classes[place]!r}"
            for fold in range(self._record.parameters.folds or 0)
            for place in np.flatnonzero((found[None] > 0) & (found[fold] == 0))[:1]
        ]

    def _accuracies_text(self) -> str:
        every = {(cost, gamma): group for group, (fold, cost, gamma) in enumerate(self._ensembles) if fold is None}
        return ", ".join(
            f"accuracy {_accuracy(self._counts[group]):.6f}"
            + (f" with {_setting_text(one)}" if one != (None, None) else "")
            for one, group in every.items()
        )

    def _miscounted(self) -> list[str]:
        problems, evaluations = [], self._record.evaluations or []
        recorded = {entry.ensemble: entry for entry in evaluations}
        moved: dict[tuple[Setting, bool], int] = {}
        for group, key in enumerate(self._ensembles):
            entry, counts = recorded[key], self._counts[group]
            place = f"{_setting_text(key[1:])}, fold {key[0]}"
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
        """Problems of the numbers of rows with another class than is claimed, over all folds together.

        Rounding may leave a few rows open. Without a limit, members that are nearly equal would leave every row open,
        and many folds of a few rows would add up to any table.
        """
        few = 1 + int(self._counts[0].sum()) // _FEW  # of all rows, which are those of all folds
        return [
            f"{_setting_text(one)}, {'all rows' if whole else 'all folds'}: {rows:,} rows are given another class than "
            f"the model claims, where rounding may decide about {few:,}"
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
                problems.append(f"{_setting_text(entry.setting)}: found mean {mean:.9g} and deviation {std:.9g}")
        text = f"means and deviations over folds, for {len(table):,} settings"
        return Check("validation", not problems, "; ".join(problems) or text)

    def _accuracies(self, one: Setting) -> list[float]:
        """The accuracies of the folds, in order, for one setting."""
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
        elif self._record.by_risk:
            risks = self._record.risk or []
            least = min(risks, key=lambda entry: (entry.risk, entry.C), default=None)  # of equal C the first
            expected = None if least is None else (least.setting, "risk")
        elif table and self._record.evaluations:
            best = max(self._mean(one) for one in settings)
            good = [one for one in settings if best - self._mean(one) <= _CLOSE]
            expected = min(good, key=lambda one: one[0] or 0.0), "validation"  # of equal C the first
        text = "nothing to choose by" if expected is None else f"{_setting_text(expected[0])}, by: {expected[1]}"
        found = None if chosen is None else (chosen.setting, chosen.by)
        claimed = None if chosen is None else f"{_setting_text(chosen.setting)}, by: {chosen.by}"
        return Check(
            "choice", found == expected, text if found == expected else f"model claims {claimed}, expected {text}"
        )


def _decided(values: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The class (n,) by decision values (n, m), and whether (n,) rounding leaves another one open.

    Values without error are decided as in ``predict``: the first of equal ones, and 0 is not positive.
    """
    if values.shape[1] == 1:
        return (values[:, 0] > 0).astype(np.int64), (np.abs(values[:, 0]) <= error[:, 0]) & (error[:, 0] > 0)
    chosen = values.argmax(axis=1)
    rows = np.arange(len(values))
    best, slack = values[rows, chosen][:, None], error[rows, chosen][:, None]
    near = ~(values + error < best - slack) & ~(error + slack == 0)
    near[rows, chosen] = False
    return chosen, near.any(axis=1)


def _setting_text(setting: Setting) -> str:
    """C, and gamma if there is one."""
    cost, gamma = setting
    return f"C {cost}" if gamma is None else f"C {cost}, gamma {gamma}"


def _accuracy(confusion: np.ndarray) -> float:
    rows = int(confusion.sum())
    return float(np.trace(confusion)) / rows if rows else 0.0


class Functions(Protocol):
    """The k decision functions of all members of a group."""

    count: int  #: k

    def columns_of(self, members: Sequence[int]) -> list[int]:
        """The columns of members, by their places in the group."""

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Their values (n, k) at rows x (n, d), and bounds (n, k) on the errors, here and in the trainer."""


class Planes:
    """Members with a hyperplane each."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._w = np.stack([claim.w for claim in claims], axis=1)
        self._b = np.array([claim.b for claim in claims])
        self._sizes = np.array([length(claim.w) for claim in claims])
        # The map has this error here and in the trainer, which both round outward further.
        self._moved = 8 * max(claim.moved for claim in claims)
        self.count = len(claims)

    def columns_of(self, members: Sequence[int]) -> list[int]:
        """One column for each member."""
        return list(members)

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """w.x + b.

        An offset beyond the values that rows of this length can have counts as such a value: a forged one would leave
        every row undecided.
        """
        lengths = row_lengths(x)
        with np.errstate(over="ignore", invalid="ignore"):
            values = x @ self._w + self._b
        reach = lengths[:, None] * self._sizes + np.minimum(np.abs(self._b), lengths.max(initial=0.0) * self._sizes)
        return values, np.asarray(2 * gamma(len(self._w) + 4) * reach + self._moved * self._sizes)


class Machines:
    """Members with functions of a kernel, one a class."""

    def __init__(self, claims: Sequence[KernelClaim]) -> None:
        self._each = len(claims[0].offsets)
        self.count = self._each * len(claims)
        self._machines = [(expand(c.function, c.x, c.deciding), c.offsets) for c in claims]

    def columns_of(self, members: Sequence[int]) -> list[int]:
        """The columns of the one member that decides."""
        (member,) = members
        return list(range(member * self._each, (member + 1) * self._each))

    def values(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Sums of kernel values; an offset counts as at most the largest of them, as above."""
        found, errors = [], []
        for machine, offsets in self._machines:
            try:
                values, error = machine.values(x)
            except NotAKernel:  # a member's own check fails, and nothing is certain
                values, error = np.zeros((x.shape[0], len(offsets))), np.full((x.shape[0], len(offsets)), np.inf)
            largest = np.minimum(np.abs(offsets), np.abs(values).max(axis=0, initial=0.0))
            found.append(values + offsets)
            errors.append(2 * error + 4 * UNIT * (np.abs(values) + largest))
        return np.concatenate(found, axis=1), np.concatenate(errors, axis=1)


def functions_of(claims: Sequence[AnyClaim]) -> Functions:
    """The functions of members, which are all of one kind."""
    if isinstance(claims[0], KernelClaim):
        return Machines(cast("Sequence[KernelClaim]", claims))
    return Planes(cast("Sequence[Claim]", claims))
