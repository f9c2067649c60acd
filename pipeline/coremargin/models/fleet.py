"""Many models that were trained by the same scans: one for each class, value of C and fold.

On disk a fleet is a folder with ``fleet.json`` (formats/fleet_record.py says what is in it), ``members/NAME/``,
each the folder of an ordinary model of two classes, ``run.json`` and ``rounds.jsonl``. It appears whole or not at all,
as models do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from coremargin.errors import DataError, UsageError
from coremargin.formats import fleet_record
from coremargin.formats.feature_map import PREFIX
from coremargin.formats.fleet_record import MEMBERS, FleetRecord, check_members, fleet_status
from coremargin.formats.model_files import read_content, read_own_columns
from coremargin.formats.registry import typed_fleet
from coremargin.models.decision import PlaneScorer
from coremargin.models.files import write_columns, write_record
from coremargin.models.model import Model
from coremargin.models.record import plain
from coremargin.models.trained import Trained

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.maths.mapping import FeatureMap


@dataclass(frozen=True, eq=False, repr=False)
class FleetModel(Trained):
    """Models of one store, trained by the same scans: one for each class, value of C and fold.

    Parameters
    ----------
    record : mapping
        The content of ``fleet.json``.
    members : mapping of str to Model
        The models by name.
    C : float, optional
        The value whose members decide, None when there are several and none was chosen: ``at`` takes one.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        Record and members do not fit together.
    """

    FILE: ClassVar[str] = fleet_record.FILE

    record: Mapping[str, Any]
    members: Mapping[str, Model]
    C: float | None = None
    columns: ColumnsRecord | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", plain(dict(self.record)))
        facts = self.facts
        names = [entry.name for entry in facts.members]
        if names != list(self.members):
            raise DataError(f"members: expected {', '.join(names[:8])}, found others; get an unaltered copy")
        check_members(facts, [member.facts for member in self.members.values()], "record")
        if self.C is None and facts.chosen is not None:
            object.__setattr__(self, "C", facts.chosen.C)

    @cached_property
    def facts(self) -> FleetRecord:
        """The record, typed, as it is when first asked for. Raises DataError."""
        return typed_fleet(self.record, "record")

    @property
    def kind(self) -> str:
        """Many models."""
        return "fleet"

    @property
    def ended(self) -> bool:
        """False when training stopped at a limit: more scans prove more, or say how the members do together."""
        return super().ended and self.record["evaluations"] != []

    @property
    def store_digest(self) -> str:
        """Identity of the rows that the certificates are about."""
        return str(self.record["store_digest"])

    @property
    def costs(self) -> tuple[float | None, ...]:
        """The values of C, from small to large; (None,) for hard margins."""
        return tuple(self.facts.costs)

    @property
    def choice(self) -> str:
        """What to do before the fleet can decide, in words; empty where it can.

        Returns
        -------
        str
            That there are several values of C, none of which is chosen, and how one is.
        """
        return choice_of(self.costs, self.C, self.parameters.get("folds"))

    @property
    def proof(self) -> dict[str, Any]:
        """The C whose members decide; each has a certificate of its own."""
        return {"C": self.C}

    def at(self, C: float) -> FleetModel:
        """The same fleet, with the members for this C deciding.

        Parameters
        ----------
        C : float
            One of ``costs``.

        Returns
        -------
        FleetModel
            It has the same members.

        Raises
        ------
        UsageError
            The fleet does not have this C.
        """
        if C not in self.costs:
            known = ", ".join(f"{cost:g}" for cost in self.costs if cost is not None) or "none: hard margins"
            raise UsageError(f"C: expected one of those that were trained ({known}), got {C!r}")
        return replace(self, C=C)

    def deciders(self) -> list[Model]:
        """The members that decide: trained on all rows with the C in use, one a class, or the one of two classes.

        Returns
        -------
        list of Model
            In the order of the classes.

        Raises
        ------
        UsageError
            There are several values of C and none was chosen.
        """
        if self.choice:
            raise UsageError(f"this fleet cannot decide yet: {self.choice}")
        facts = self.facts
        return [self.members[facts.members[place].name] for place in facts.ensembles()[None, self.C]]

    def with_deciders(self, models: Sequence[Model]) -> FleetModel:
        """The same with other members, all about the same rows: those of one C without folds, all of which decide.

        How they do together on these rows is not known.

        Parameters
        ----------
        models : sequence of Model
            The other members, in order.

        Returns
        -------
        FleetModel
            The fleet of them.
        """
        entries = []
        for entry, member in zip(self.record["members"], models, strict=True):
            claims = member.certificate
            entries.append({
                **entry, "status": member.status, "lower": claims.lower, "upper": claims.upper, "ratio": claims.ratio,
                "coreset_rows": claims.coreset_rows,
            })  # fmt: skip
        record = {
            **self.record, "status": fleet_status([member.status for member in models]), "members": entries,
            "rows": models[0].rows, "store_digest": models[0].store_digest, "evaluations": [], "validation": None,
        }  # fmt: skip
        members = {entry["name"]: member for entry, member in zip(entries, models, strict=True)}
        return FleetModel(record, members, columns=self.columns)

    @property
    def row_map(self) -> FeatureMap | None:
        """What maps rows as training did, after they are scaled: of all members the same; None without a map."""
        return next(iter(self.members.values())).row_map

    def scorer(self) -> PlaneScorer:
        """A hyperplane a class, or the one of two classes, for scaled and mapped rows.

        Returns
        -------
        PlaneScorer
            What gives rows as they are their decision values.

        Raises
        ------
        UsageError
            No C is chosen.
        DataError
            The members that decide do not all scale or map rows alike.
        """
        members = self.deciders()
        for name in ("scaling", "shift", "factor"):
            first, *others = (getattr(member, name) for member in members)
            if not all(np.array_equal(first, other) for other in others):
                raise DataError(f"members: {name}: the members do not all scale rows alike; get an unaltered copy")
        maps = [{name: values for name, values in m.extra.items() if name.startswith(PREFIX)} for m in members]
        if not all(_same_arrays(maps[0], other) for other in maps[1:]):
            raise DataError("members: map: the members do not all map rows alike; get an unaltered copy")
        weights, offsets = tuple(m.w for m in members), tuple(m.b for m in members)
        return PlaneScorer(weights, offsets, members[0].row_scaling, members[0].row_map)

    def __repr__(self) -> str:
        statuses = [entry["status"] for entry in self.record["members"]]
        costs = "" if self.costs == (None,) else f", C {', '.join(f'{cost:g}' for cost in self.costs)}"
        return (
            f"FleetModel({self.status}: {len(self.classes)} classes{costs}, {statuses.count('certified')} of "
            f"{len(statuses)} members certified, {self.rows:,} rows x {self.features:,} features)"
        )

    @classmethod
    def read(cls, folder: int, path: Path) -> FleetModel:
        """From an open folder.

        Parameters
        ----------
        folder : int
            Its descriptor.
        path : Path
            Its path, for messages.

        Returns
        -------
        FleetModel
            What is there.

        Raises
        ------
        DataError
            It is none, or record and members do not fit together.
        """
        content = read_content(folder, path, cls.FILE)
        entries = typed_fleet(content, f"{path}/{cls.FILE}").members
        members = {entry.name: Model.read(folder, path, f"{MEMBERS}/{entry.name}") for entry in entries}
        try:
            return cls(content, members, columns=read_own_columns(folder, path))
        except DataError as error:
            raise DataError(f"{path}/{cls.FILE}: {error}") from None

    def write(self, folder: Path) -> None:
        """Write ``fleet.json`` and the folders of the members.

        Parameters
        ----------
        folder : Path
            An empty folder.
        """
        write_record(folder / self.FILE, self.record)
        write_columns(folder, self.columns)
        (folder / MEMBERS).mkdir()
        for name, member in self.members.items():
            (folder / MEMBERS / name).mkdir()
            member.write(folder / MEMBERS / name)


def _same_arrays(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether arrays by name are the same."""
    return one.keys() == other.keys() and all(np.array_equal(values, other[name]) for name, values in one.items())


def choice_of(costs: Sequence[float | None], chosen: float | None, folds: int | None) -> str:
    """What ``FleetModel.choice`` says of these values of C."""
    known = [cost for cost in costs if cost is not None]
    if chosen is not None or not known:
        return ""
    one = f"say one when you predict, evaluate or export: --C {known[0]:g}, from Python C={known[0]:g}"
    how = "go on with the training, whose folds choose one" if folds else "train with --folds 5 to have one chosen"
    return f"no C is chosen of {', '.join(f'{cost:g}' for cost in known)}: {one}; or {how}"


AnyModel: TypeAlias = Trained  #: of whatever problem: what all of them answer
MODEL_CLASS = FleetModel
