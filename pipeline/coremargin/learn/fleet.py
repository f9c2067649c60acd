"""Many models that were trained by the same scans: one for each class, value of C and fold.

On disk a fleet is a folder with ``fleet.json`` (fleet_record.py says what is in it), ``members/NAME/``, each the folder
of an ordinary model of two classes, ``run.json`` and ``rounds.jsonl``. It appears whole or not at all, as models do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from coremargin.errors import DataError, UsageError
from coremargin.learn.decision import Scorer
from coremargin.learn.fleet_record import FILE, check_fleet_record
from coremargin.learn.folder import opened, read_folder
from coremargin.learn.model import Model
from coremargin.learn.model_files import read_json
from coremargin.learn.multiclass import PROBLEM, MulticlassModel
from coremargin.learn.record import json_text, plain
from coremargin.learn.trained import Trained

MEMBERS = "members"


@dataclass(frozen=True, eq=False, repr=False)
class FleetModel(Trained):
    """Models of one store; ``record`` is the content of ``fleet.json``, ``members`` are the models by name.

    C: the value whose members decide, None when there are several and none was chosen: ``at`` takes one.
    Raises DataError when record and members do not fit together.
    """

    record: Mapping[str, Any]
    members: Mapping[str, Model]
    C: float | None = None

    def __post_init__(self) -> None:
        record = plain(dict(self.record))
        check_fleet_record(record)
        names = [entry["name"] for entry in record["members"]]
        if names != list(self.members):
            raise DataError(f"members: expected {', '.join(names[:8])}, found others; get an unaltered copy")
        for entry in record["members"]:
            _check_member(entry, self.members[entry["name"]], record)
        object.__setattr__(self, "record", record)
        if self.C is None and record["chosen"] is not None:
            object.__setattr__(self, "C", record["chosen"]["C"])

    @property
    def ended(self) -> bool:
        """False when training stopped at a limit: more scans prove more, or say how the members do together."""
        return super().ended and bool(self.record["evaluations"])

    @property
    def store_digest(self) -> str:
        """Identity of the rows that the certificates are about."""
        return str(self.record["store_digest"])

    @property
    def costs(self) -> tuple[float | None, ...]:
        """The values of C, from small to large; (None,) for hard margins."""
        return tuple(dict.fromkeys(entry["C"] for entry in self.record["members"]))

    def at(self, C: float) -> FleetModel:
        """The same fleet, with the members for this C deciding. Raises UsageError for a C that it does not have."""
        if C not in self.costs:
            known = ", ".join(f"{cost:g}" for cost in self.costs if cost is not None) or "none: hard margins"
            raise UsageError(f"C: expected one of those that were trained ({known}), got {C!r}")
        return replace(self, C=C)

    def deciders(self) -> list[Model]:
        """The members that decide: trained on all rows with the C in use, one a class, or the one of two classes."""
        if self.C is None and self.costs != (None,):
            known = ", ".join(f"{cost:g}" for cost in self.costs)
            raise UsageError(f"this fleet has several values of C ({known}) and none was chosen; say which: C=..., --C")
        found = [entry for entry in self.record["members"] if entry["fold"] is None and entry["C"] == self.C]
        return [self.members[entry["name"]] for entry in found]

    def scorer(self) -> Scorer:
        """A hyperplane a class, or the one of two classes. Raises UsageError when no C is chosen."""
        members = self.deciders()
        unit = members[0].scaling == "rownorm"
        return Scorer(tuple(m.coef for m in members), tuple(m.intercept for m in members), unit=unit)

    def __repr__(self) -> str:
        words = [entry["status"] for entry in self.record["members"]]
        costs = "" if self.costs == (None,) else f", C {', '.join(f'{cost:g}' for cost in self.costs)}"
        return (
            f"FleetModel({self.status}: {len(self.classes)} classes{costs}, {words.count('certified')} of {len(words)} "
            f"members certified, {self.rows:,} rows x {self.features:,} features)"
        )

    @classmethod
    def read(cls, folder: int, path: Path) -> FleetModel:
        """From an open folder; path: for messages."""
        with opened(folder, FILE) as file:
            record = read_json(file, f"{path}/{FILE}")
        try:
            check_fleet_record(record)
        except DataError as error:
            raise DataError(f"{path}/{FILE}: {error}") from None
        names = [entry["name"] for entry in record["members"]]
        members = {name: Model.read(folder, path, f"{MEMBERS}/{name}") for name in names}
        try:
            return cls(record, members)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    def write(self, folder: Path) -> None:
        """Write ``fleet.json`` and the folders of the members into an empty folder."""
        (folder / FILE).write_text(json_text(self.record), encoding="utf-8")
        (folder / MEMBERS).mkdir()
        for name, member in self.members.items():
            (folder / MEMBERS / name).mkdir()
            member.write(folder / MEMBERS / name)


def _check_member(entry: Mapping[str, Any], member: Model, record: Mapping[str, Any]) -> None:
    """Raises DataError unless a member is what the fleet says it is."""
    claims, view = member.certificate, member.record.get("view", {})
    found = {
        "class": view.get("class"), "C": member.parameters.get("C"), "fold": view.get("fold"), "status": member.status,
        "lower": claims.lower, "upper": claims.upper, "ratio": claims.ratio, "coreset_rows": claims.coreset_rows,
    }  # fmt: skip
    wrong = [key for key, value in found.items() if entry[key] != value or type(entry[key]) is not type(value)]
    if (member.features, member.rows, member.store_digest) != (
        record["features"], record["rows"], record["store_digest"],
    ):  # fmt: skip
        wrong.append("store")
    if wrong:
        raise DataError(
            f"members/{entry['name']}: {', '.join(wrong)}: not what the fleet's record says; get an unaltered copy"
        )


AnyModel: TypeAlias = Model | FleetModel | MulticlassModel


def read_model(path: str | os.PathLike[str]) -> AnyModel:
    """The model, of two or of several classes, or the fleet in a folder. Raises DataError."""
    place = Path(os.path.abspath(path))

    def read(folder: int) -> AnyModel:
        if FILE in os.listdir(folder):
            return FleetModel.read(folder, place)
        with opened(folder, "model.json") as file:
            several = read_json(file, f"{place}/model.json").get("problem") == PROBLEM
        return MulticlassModel.read(folder, place) if several else Model.read(folder, place)

    return read_folder(place, read)
