"""Many models that were trained by the same scans: one for each class, value of C, gamma and fold.

On disk a fleet is a folder with ``fleet.json`` (formats/fleet_record.py describes it), ``members/NAME/``,
each the folder of an ordinary model of two classes or with a kernel, ``run.json`` and ``rounds.jsonl``. It appears
whole or not at all, as models do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np

from coremargin.errors import DataError, UsageError
from coremargin.formats import fleet_record
from coremargin.formats.feature_map import PREFIX
from coremargin.formats.fleet_record import MEMBERS, FleetRecord, check_members, fleet_status
from coremargin.formats.model_files import read_content, read_own_columns
from coremargin.formats.registry import typed_fleet
from coremargin.models.base import BaseModel
from coremargin.models.decision import PlaneScorer
from coremargin.models.files import write_columns, write_record
from coremargin.models.fleet_record import named
from coremargin.models.kernel import KernelModel
from coremargin.models.model import Model
from coremargin.models.record import plain

if TYPE_CHECKING:
    from coremargin.data.storage import Storage
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.fleet_record import Setting
    from coremargin.formats.storage import ReadableStorage
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.maths.mapping import FeatureMap
    from coremargin.models.decision import Scorer


@dataclass(frozen=True, eq=False, repr=False)
class FleetModel(BaseModel):
    """Models of one store, trained by the same scans: one for each class, value of C, gamma and fold.

    There are several values of gamma of kernels, and of maps. Machines with kernels have all classes by themselves.

    Parameters
    ----------
    record : mapping
        The content of ``fleet.json``.
    members : mapping of str to Model or KernelModel
        The models by name.
    C : float, optional
        The value whose members decide, None when there are several and none was chosen: ``at`` takes one.
    gamma : float or "scale", optional
        The same of gamma, as it was asked for.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        Record and members do not fit together.
    """

    FILE: ClassVar[str] = fleet_record.FILE

    record: Mapping[str, Any]
    members: Mapping[str, Any]  #: Model; or KernelModel
    C: float | None = None
    gamma: str | float | None = None
    columns: ColumnsRecord | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", plain(dict(self.record)))
        facts = self.facts
        names = [entry.name for entry in facts.members]
        if names != list(self.members):
            raise DataError(f"members: expected {', '.join(names[:8])}, found others; get an unaltered copy")
        check_members(facts, [member.facts for member in self.members.values()], "record")
        if self._setting == (None, None) and facts.chosen is not None:
            for name, value in zip(("C", "gamma"), facts.chosen.setting, strict=True):
                object.__setattr__(self, name, value)

    @cached_property
    def facts(self) -> FleetRecord:
        """The record, typed, as it is when first asked for. Raises DataError."""
        return typed_fleet(self.record, "record")

    @property
    def kind(self) -> str:
        """Many models."""
        return "kernel_fleet" if self._whole else "fleet"

    @property
    def _whole(self) -> bool:
        """Each member has all classes by itself, as machines with kernels have."""
        return self.problem == "kernel"

    @property
    def ended(self) -> bool:
        """False when training stopped at a limit: more scans prove more, or say how the members do together.

        Machines with kernels are counted by the scans that prove them: of proven ones nothing more will be known.
        """
        return super().ended and (self.record["evaluations"] != [] or self.problem == "kernel")

    @property
    def store_digest(self) -> str:
        """Identity of the rows that the certificates are about."""
        return str(self.record["store_digest"])

    @property
    def costs(self) -> tuple[float | None, ...]:
        """The values of C, from small to large; (None,) for hard margins."""
        return tuple(self.facts.costs)

    @property
    def gammas(self) -> tuple[str | float | None, ...]:
        """The values of gamma as they were asked for; (None,) for what has none."""
        return tuple(self.facts.gammas)

    @property
    def _setting(self) -> Setting:
        return self.C, self.gamma

    @property
    def choice(self) -> str:
        """What to do before the fleet can decide, in words; empty where it can.

        Returns
        -------
        str
            That there are several values of C, none of which is chosen, and how one is.
        """
        chooses = bool(self.parameters.get("folds")) or self.facts.by_risk
        return choice_of(self.facts.settings, self._setting, ended=self.ended, chooses=chooses)

    @property
    def proof(self) -> dict[str, Any]:
        """The C (and gamma) whose members decide; each has a certificate of its own."""
        return named(self._setting)

    def at(self, C: float | None = None, gamma: str | float | None = None) -> FleetModel:
        """The same fleet, with the members for this C deciding.

        Parameters
        ----------
        C : float, optional
            One of ``costs``; optional if there is only one.
        gamma : float or "scale", optional
            One of ``gammas``; optional if there is only one.

        Returns
        -------
        FleetModel
            It has the same members.

        Raises
        ------
        UsageError
            The fleet does not have them, or more than one of them.
        """
        for name, found, known in (("C", C, self.costs), ("gamma", gamma, self.gammas)):
            words = ", ".join(str(shown(value)) for value in known if value is not None) or "there are none"
            if found is not None and found not in known:
                raise UsageError(f"{name}: expected one of those that were trained ({words}), got {found!r}")
            if found is None and len(known) > 1:
                raise UsageError(f"{name}: there are several ({words}); say which one, too")
        return replace(self, C=self.costs[0] if C is None else C, gamma=self.gammas[0] if gamma is None else gamma)

    def deciders(self) -> list[Any]:
        """The members that decide: trained on all rows with the C in use, one a class, or the one of two classes.

        Returns
        -------
        list of Model or of one KernelModel
            In the order of the classes.

        Raises
        ------
        UsageError
            There are several values of C and none was chosen.
        """
        if self.choice:
            raise UsageError(f"this fleet cannot decide yet: {self.choice}")
        facts = self.facts
        return [self.members[facts.members[place].name] for place in facts.ensembles()[None, *self._setting]]

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
            entries.append(
                {
                    **entry,
                    "status": member.status,
                    "lower": claims.lower,
                    "upper": claims.upper,
                    "ratio": claims.ratio,
                    "coreset_rows": claims.coreset_rows,
                }
            )
        record = {
            **{name: value for name, value in self.record.items() if name != "store_sha256"},
            "status": fleet_status([member.status for member in models]),
            "members": entries,
            "rows": models[0].rows,
            "store_digest": models[0].store_digest,
            **{name: value for name, value in models[0].record["certificate"].items() if name == "store_sha256"},
            "evaluations": [],
            "validation": None,
        }
        members = {entry["name"]: member for entry, member in zip(entries, models, strict=True)}
        return FleetModel(record, members, columns=self.columns)

    def with_kernel(self, kernel: KernelFunction) -> FleetModel:
        """The same with the function that is the kernel of its members.

        Parameters
        ----------
        kernel : callable
            Function k(X, Z) of rows (n, d) and (m, d), as they were trained with.

        Returns
        -------
        FleetModel
            One that decides.

        Raises
        ------
        UsageError
            The members have no kernel that is a function, or this is another function.
        """
        return replace(self, members={name: member.with_kernel(kernel) for name, member in self.members.items()})

    @property
    def row_map(self) -> FeatureMap | None:
        """What maps rows as training did, after they are scaled, for the gamma that decides, or else for the first one.

        Returns
        -------
        FeatureMap or None
            None without a map.
        """
        chosen = self.gammas.index(self.gamma) if self.gamma in self.gammas else 0
        return self.row_maps[chosen] if self.row_maps else None

    @property
    def row_maps(self) -> tuple[FeatureMap, ...]:
        """The maps of all gammas, in their order; one where all members have the same, none without a map.

        Returns
        -------
        tuple of FeatureMap
            What maps rows as training did, after they are scaled.
        """
        first = {entry.setting[1]: entry.name for entry in reversed(self.facts.members)}
        found = (self.members[first[gamma]].row_map for gamma in self.gammas)
        return tuple(made for made in found if made is not None)

    def scorer(self) -> Scorer:
        """A hyperplane a class, or the one of two classes, for scaled and mapped rows; or functions of a kernel.

        Returns
        -------
        Scorer
            What gives rows as they are their decision values.

        Raises
        ------
        UsageError
            No C is chosen.
        DataError
            The members that decide do not all scale or map rows alike.
        """
        members = self.deciders()
        if self._whole:
            (member,) = members
            return cast("Scorer", member.scorer())
        for name in ("scaling", "shift", "factor"):
            first, *others = (getattr(member, name) for member in members)
            if not all(np.array_equal(first, other) for other in others):
                raise DataError(f"members: {name}: the members do not all scale rows alike; get an unaltered copy")
        scalings = [member.row_scaling for member in members]
        if scalings[0] is not None and not all(scalings[0].same(other) for other in scalings[1:]):
            raise DataError("members: scaling: the members do not all scale rows alike; get an unaltered copy")
        maps = [{name: values for name, values in m.numbers.items() if name.startswith(PREFIX)} for m in members]
        if not all(_same_arrays(maps[0], other) for other in maps[1:]):
            raise DataError("members: map: the members do not all map rows alike; get an unaltered copy")
        weights, offsets = tuple(m.w for m in members), tuple(m.b for m in members)
        return PlaneScorer(weights, offsets, members[0].row_scaling, members[0].row_map)

    def __repr__(self) -> str:
        statuses = [entry["status"] for entry in self.record["members"]]
        every = zip(("C", "gamma"), (self.costs, self.gammas), strict=True)
        costs = "".join(f", {name} {', '.join(map(str, map(shown, own)))}" for name, own in every if own != (None,))
        return (
            f"FleetModel({self.status}: {len(self.classes)} classes{costs}, {statuses.count('certified')} of "
            f"{len(statuses)} members certified, {self.rows:,} rows x {self.features:,} features)"
        )

    @classmethod
    def read(cls, model: ReadableStorage) -> FleetModel:
        """From its objects.

        Parameters
        ----------
        model : ReadableStorage
            Where these are read from.

        Returns
        -------
        FleetModel
            What is there.

        Raises
        ------
        DataError
            It is none, or record and members do not fit together.
        """
        content = read_content(model, cls.FILE)
        record = typed_fleet(content, f"{model.name}/{cls.FILE}")
        member: Any = Model if record.problem != "kernel" else KernelModel
        members = {entry.name: member.read(model, f"{MEMBERS}/{entry.name}") for entry in record.members}
        try:
            return cls(content, members, columns=read_own_columns(model))
        except DataError as error:
            raise DataError(f"{model.name}/{cls.FILE}: {error}") from None

    def write(self, model: Storage) -> None:
        """Write ``fleet.json`` and the members.

        Parameters
        ----------
        model : Storage
            An empty one.
        """
        write_record(model, self.FILE, self.record)
        write_columns(model, self.columns)
        for name, member in self.members.items():
            member.write(model, f"{MEMBERS}/{name}")


def _same_arrays(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether arrays by name are the same."""
    return one.keys() == other.keys() and all(np.array_equal(values, other[name]) for name, values in one.items())


def shown(value: str | float | None) -> str | None:
    """C or gamma, for people."""
    return value if value is None or isinstance(value, str) else f"{value:g}"


def choice_of(settings: Sequence[Setting], chosen: Setting, *, ended: bool, chooses: bool) -> str:
    """``FleetModel.choice`` of these values of C and gamma; ended: training will not choose any more.

    chooses: it does, by folds or risks, once these are known.
    """
    if chosen in settings:
        return ""
    asked = zip(("C", "gamma"), zip(*settings, strict=True), strict=True)
    several = {name: list(dict.fromkeys(own)) for name, own in asked if len(set(own)) > 1}
    options = " ".join(f"--{name} {shown(own[0])}" for name, own in several.items())
    words = ", ".join(
        f"{name}={own[0]!r}" if isinstance(own[0], str) else f"{name}={shown(own[0])}" for name, own in several.items()
    )
    each = ", no ".join(f"{name} is chosen of {', '.join(map(str, map(shown, own)))}" for name, own in several.items())
    one = f"say one when you predict, evaluate or export: {options}, from Python {words}"
    if chooses and ended:
        return f"no {each}, as too many rows are of a class that rounding decides: {one}"
    how = "resume the training, which then chooses one" if chooses else "train with --folds 5 to have one chosen"
    return f"no {each}: {one}; or {how}"


AnyModel: TypeAlias = BaseModel  #: a model of any problem
MODEL_CLASS = FleetModel
