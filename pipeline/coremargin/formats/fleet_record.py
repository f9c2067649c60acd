"""The record of a fleet (``fleet.json``): its keys, their kinds, and who decides which class a row is given.

::

    format, version     "coremargin-fleet", 1
    status              "certified" when all members are, "stopped" when one is, else "not_separable"
    problem, parameters as in a member's model.json; C is a list with a loss, gamma where several were asked for;
                        classes, folds, fold_seed
    classes             the labels, in order: rows and columns of confusion matrices
    features, rows, dtype, store_digest, store_sha256 (unset: the store has none)
    members             a list: name (folder members/NAME), class (null: all of the store's), C (null: hard margin),
                        gamma (of kernels that have one, and of maps where several were asked for: what was asked
                        for, "scale" or a number), fold (the one held out; null: trained on all rows), status, lower,
                        upper, ratio, coreset_rows
    evaluations         a list, empty when the run stopped before, and for kernels where rounding decides which classes
                        more than a few rows are given: C, gamma as above, fold, rows, accuracy, confusion[i][j]: rows
                        of class i that were given class j. fold null: the rows that the members were trained on; else
                        the rows of the fold, which the members have not seen. null: nothing is claimed, rows were read
                        once, before the models were known (run.json has what was counted then)
    validation          with folds, a list by setting: C, gamma, mean and std (of the folds, divided by their number)
                        of the accuracy, accuracies; else null
    risk                with parameters.choose "risk", a list by setting: C, gamma, risk: a bound on the error
                        on new rows, not cut at 1 (formula: verify/risk.py); empty if there are no evaluations
    chosen              C, gamma, and by: "validation" (best mean, of equal ones the smallest C, then the first gamma),
                        "risk" (the least, ties as before) or "only" (there is one setting); null when there is nothing
                        to choose by
    software

The members that decide together, of one setting (C and gamma) and one fold, differ by the class that each
stands for: the class of a row is that of the largest decision value. A machine with a kernel has all classes by itself.
Members of one gamma map rows alike, where rows are mapped.
The list has members by fold (null first), then by class, by gamma ("scale" first, then from small to large), and by C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from coremargin.errors import DataError
from coremargin.formats.limits import MOST_CLASSES
from coremargin.formats.model_record import (
    AboveZero,
    Count,
    Digest,
    Dtype,
    Features,
    Fold,
    Label,
    ModelRecord,
    Number,
    Ratio,
    Rows,
    Status,
    StoreHash,
    Strict,
    Word,
    different_labels,
)
from coremargin.formats.strict_json import cut

FORMAT = "coremargin-fleet"
VERSION = 1
FILE = "fleet.json"
MEMBERS = "members"  #: the folder of the members' folders
MOST_NAME = 255  #: bytes of a folder's name

Gamma = Literal["scale"] | AboveZero  #: as it was asked for
Gammas = Annotated[list[Gamma], Meta(min_length=1)]
#: C (None: hard margins), and the gamma that was asked for of a kernel (None: there is none).
Setting: TypeAlias = tuple[float | None, str | float | None]
#: Which members decide together: the fold held out (None: none is), C, and gamma.
Ensemble: TypeAlias = tuple[int | None, float | None, str | float | None]


class OfSetting(Strict, frozen=True, kw_only=True):
    """A line about one setting."""

    C: AboveZero | None
    gamma: Gamma | UnsetType = UNSET

    @property
    def setting(self) -> Setting:
        """C and gamma."""
        return self.C, (None if self.gamma is UNSET else self.gamma)


class Member(OfSetting, frozen=True, kw_only=True, rename={"label": "class"}):
    """One line of ``members``."""

    name: Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
    label: Label | None
    fold: Fold | None
    status: Status
    lower: Number | None
    upper: Number | None
    ratio: Ratio | None
    coreset_rows: Count

    def __post_init__(self) -> None:
        """Raises ValueError for a name that leads elsewhere, or that no folder can have."""
        if self.name in (".", "..") or set(self.name) & set("/\\\0") or len(self.name.encode()) > MOST_NAME:
            raise ValueError(f"expected the name of a folder, found {cut(repr(self.name))}")

    @property
    def ensemble(self) -> Ensemble:
        """Those that it decides with."""
        return self.fold, *self.setting


class Evaluation(OfSetting, frozen=True, kw_only=True):
    """One line of ``evaluations``."""

    fold: Fold | None
    rows: Count
    accuracy: Ratio
    confusion: list[list[Count]]

    @property
    def ensemble(self) -> Ensemble:
        """Who decided."""
        return self.fold, *self.setting


class Validation(OfSetting, frozen=True, kw_only=True):
    """One line of ``validation``."""

    mean: Ratio
    std: Ratio
    accuracies: list[Ratio]


class Risk(OfSetting, frozen=True, kw_only=True):
    """One line of ``risk``; not cut at 1."""

    risk: Annotated[float, Meta(ge=0, le=1.7976931348623157e308)]


class Chosen(OfSetting, frozen=True, kw_only=True):
    """The setting to use, and why."""

    by: Literal["validation", "risk", "only"]


#: Parameters that say which members there are; the others are what every member was asked for.
_OF_THE_FLEET = {"C", "classes", "folds", "fold_seed", "choose"}


class FleetRecord(Strict, frozen=True, kw_only=True, tag_field="problem"):
    """Fields of the records of all fleets; each kind has its type in the module of its members' record (``FLEET``).

    parameters: of a kind that has what members are asked for, classes, folds, fold_seed, and costs: the values of C, or
    [None] where there is no C.
    """

    format: Literal["coremargin-fleet"]
    version: Literal[1]
    status: Status
    parameters: Any
    classes: Annotated[list[Label], Meta(min_length=2, max_length=MOST_CLASSES)]
    features: Features
    rows: Rows
    dtype: Dtype
    store_digest: Digest
    store_sha256: StoreHash | UnsetType = UNSET
    members: Annotated[list[Member], Meta(min_length=1)]
    evaluations: list[Evaluation] | None
    validation: list[Validation] | None
    risk: list[Risk] | UnsetType = UNSET
    chosen: Chosen | None
    software: Annotated[dict[Word, Word], Meta(max_length=64)]

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        different_labels(self.classes)
        k = len(self.classes)
        names = {member.name for member in self.members}
        if len(names) < len(self.members):
            raise ValueError("expected members of different names, found one twice")
        status = fleet_status([member.status for member in self.members])
        if self.status != status:
            raise ValueError(f"expected the status that follows from the members', {status!r}, found {self.status!r}")
        if self.evaluations is None and self.parameters.folds:
            raise ValueError("expected a list of evaluations of folds, found none")
        for entry in self.evaluations or ():
            if len(entry.confusion) != k or any(len(line) != k for line in entry.confusion):
                raise ValueError(f"expected confusion matrices of {k} x {k}, found another")
        if len(set(self.settings)) < len(self.settings):
            raise ValueError("expected different values of C, and of gamma, found one twice")
        ensembles = self.ensembles()
        known = [entry.ensemble for entry in self.evaluations or ()]
        if known and known != list(ensembles):
            raise ValueError(
                f"expected no evaluations, or one for each of {len(ensembles)} by C and fold, found others"
            )
        if self.validation is not None:
            folds = self.parameters.folds or 0
            fits = [entry.setting for entry in self.validation] == self.settings and bool(known)
            if not fits or any(len(entry.accuracies) != folds for entry in self.validation):
                raise ValueError(
                    "expected no validation, or a line for each C and gamma with an accuracy for each fold"
                )
        if (self.risk is not UNSET) != self.by_risk:
            raise ValueError("expected a list of risks where, and only where, parameters.choose is 'risk'")
        if self.risk and [entry.setting for entry in self.risk] != self.settings:
            raise ValueError("expected no risks, or one for each C and gamma, found others")
        if self.chosen is not None and self.chosen.setting not in self.settings:
            raise ValueError(f"expected to choose one of the members' C and gamma, found {self.chosen.setting!r}")

    @property
    def problem(self) -> str:
        """Its name."""
        return str(self.__struct_config__.tag)

    @property
    def by_risk(self) -> bool:
        """Whether the guaranteed risk chooses C and gamma."""
        return getattr(self.parameters, "choose", UNSET) == "risk"

    @property
    def costs(self) -> list[float | None]:
        """The values of C that were asked for; (None,) for hard margins."""
        found: list[float | None] = self.parameters.costs
        return found

    @property
    def gammas(self) -> list[str | float | None]:
        """The values of gamma that were asked for; (None,) for what has none, or the same of all members."""
        found = self.parameters.gamma
        return list(found) if isinstance(found, list) else [None]

    @property
    def settings(self) -> list[Setting]:
        """C and gamma, in order."""
        return [(cost, gamma) for gamma in self.gammas for cost in self.costs]

    @property
    def sides(self) -> list[Any]:
        """The classes that a member each stands for; of two classes one member decides, which stands for none."""
        return list(self.classes) if len(self.classes) > 2 else [None]

    def ensembles(self) -> dict[Ensemble, list[int]]:
        """Who decides: for each fold and setting that was asked for the places of its members, in order of the classes.

        Of two classes one member: a positive decision value means the second. Raises ValueError unless there is one
        member for each fold, setting and class, and no other.
        """
        settings, sides, folds = self.settings, self.sides, [None, *range(self.parameters.folds or 0)]
        wanted = len(settings) * len(sides) * len(folds)
        by = "C" if self.gammas == [None] else "C and gamma"
        text = f"{len(sides):,} by class, {len(settings):,} by {by}, {len(folds):,} by fold and on all rows"
        if self.parameters.folds is None and self.parameters.fold_seed:
            raise ValueError(f"expected fold_seed 0 without folds, found {self.parameters.fold_seed}")
        if len(self.classes) > 2 and self.parameters.classes != "ovr":
            raise ValueError(f"expected parameters.classes 'ovr' for {len(self.classes)} classes")
        found = [(member.ensemble, _typed(member.label)) for member in self.members]
        if len(found) != wanted:
            raise ValueError(f"expected {wanted:,} members ({text}), found {len(found):,}")
        if found != [((fold, *one), _typed(side)) for fold in folds for side in sides for one in settings]:
            raise ValueError(f"expected a member for each of {text}, in this order, found others")
        places = {key: place for place, key in enumerate(found)}
        ensembles = [(fold, *one) for fold in folds for one in settings]
        return {ensemble: [places[ensemble, _typed(side)] for side in sides] for ensemble in ensembles}


def fleet_status(statuses: Sequence[str]) -> str:
    """The status of a fleet whose members have these."""
    return next((status for status in ("stopped", "not_separable") if status in statuses), "certified")


def check_members(fleet: FleetRecord, members: Sequence[ModelRecord], place: str) -> None:
    """Raises DataError unless the members' records agree with the fleet's and have the same parameters."""
    for entry, record in zip(fleet.members, members, strict=True):
        wrong = _differing(fleet, entry, record)
        if wrong:
            raise DataError(
                f"{place}: members/{entry.name}: differs from the fleet's record: {', '.join(wrong)}; "
                f"get an unaltered copy"
            )


def _differing(fleet: FleetRecord, entry: Member, record: Any) -> list[str]:
    """What a member does not say as the fleet does."""
    if record.problem != fleet.problem:
        return ["problem"]
    view, claims, parameters, own = record.view, record.certificate, fleet.parameters, record.parameters
    two = [False, True] if entry.label is not None else fleet.classes
    pairs = {
        "class": (view.label, entry.label),
        "fold": (view.fold, entry.fold),
        "classes": (record.classes, two),
        "folds": (view.folds, None if entry.fold is None else parameters.folds),
        "fold_seed": (view.fold_seed, None if entry.fold is None else parameters.fold_seed),
        "C": (_unset(getattr(own, "C", None)), entry.C),
        "status": (record.status, entry.status),
        "coreset_rows": (claims.coreset_rows, entry.coreset_rows),
        "store_digest": (claims.store_digest, fleet.store_digest),
        "store_sha256": (_unset(claims.store_sha256), _unset(fleet.store_sha256)),
    }
    pairs |= {name: (getattr(claims, name), getattr(entry, name)) for name in ("lower", "upper", "ratio")}
    pairs |= {name: (getattr(record, name), getattr(fleet, name)) for name in ("features", "rows", "dtype")}
    several = {"gamma"} if fleet.gammas != [None] else set()  # else all members have the same
    pairs |= {name: (_unset(getattr(own, name)), entry.setting[1]) for name in several}
    shared = [name for name in parameters.__struct_fields__ if name not in _OF_THE_FLEET | several]
    pairs |= {name: (getattr(own, name), getattr(parameters, name)) for name in shared}
    return [name for name, (found, expected) in pairs.items() if _typed(found) != _typed(expected)]


def _unset(value: Any) -> Any:
    """None for what is not given."""
    return None if value is UNSET else value


def _typed(value: Any) -> Any:
    """A value with its kind: 1, 1.0 and True are different."""
    return [_typed(entry) for entry in value] if isinstance(value, list) else (type(value), value)
