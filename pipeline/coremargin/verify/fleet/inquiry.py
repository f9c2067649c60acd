"""A fleet under examination: every member as a model of its own, and what ``fleet.json`` says of all, in one scan.

Confusion matrices are counted anew: each row's class is that of the largest decision value among the members that were
trained alike. Decision values here and there differ by rounding: rows whose two largest are as near as that may count
for either, all others are counted to the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.fleet_record import FILE, MEMBERS, FleetRecord, check_members
from coremargin.formats.model_files import read_content, read_model_files, read_own_columns
from coremargin.formats.registry import typed_fleet
from coremargin.verify.checks import Check, are_classes, same_columns, same_shape
from coremargin.verify.feature_map import alike
from coremargin.verify.fleet.outcome import FleetVerification
from coremargin.verify.fleet.tables import Tables
from coremargin.verify.inquiry import Inquiry
from coremargin.verify.one import OneModel
from coremargin.verify.registry import claim_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.formats.storage import ReadableStorage
    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.scaling import Columns


@dataclass(frozen=True)
class FleetClaims:
    """What a fleet claims: the content of ``fleet.json``, and its members' claims, in its order."""

    path: Path
    record: FleetRecord
    members: tuple[AnyClaim, ...]
    columns: str = ""  #: what the columns are, "" where the fleet does not say


def read_fleet(model: ReadableStorage, kernel: Callable[..., Any] | None = None) -> FleetClaims:
    """Read a fleet from its objects; kernel: as of ``claim_of``.

    Raises DataError: another format or version, incomplete, altered.
    """
    place = f"{model.name}/{FILE}"
    record = typed_fleet(read_content(model, FILE), place)
    members = [read_model_files(model, f"{MEMBERS}/{entry.name}") for entry in record.members]
    check_members(record, [files.record for files in members], place)
    columns = read_own_columns(model, features=record.features)
    claims = tuple(claim_of(files, kernel) for files in members)
    return FleetClaims(Path(model.name), record, claims, "" if columns is None else columns.claim)


class FleetInquiry(Inquiry):
    """All members' claims and the fleet's tables; rows are mapped once for all members of one gamma."""

    def __init__(self, claims: FleetClaims, rows: Rows) -> None:
        self.claims, self.rows = claims, rows
        first = OneModel(claims.members[0], rows)
        groups = _by_map(claims)
        same = _scaled_alike(claims.members) and all(
            alike(claims.members[group[0]].map, claims.members[k].map) for group in groups for k in group
        )
        shared = first.scaler if same else None
        self._members = [first, *(OneModel(claim, rows, shared) for claim in claims.members[1:])]
        self._alike, self._classes, self._groups = same, _same_classes(claims.record, rows), groups
        self._tables = Tables(claims.record, claims.members, groups, rows) if self.comparable else None

    @property
    def comparable(self) -> bool:
        """False when the store's rows say nothing about the claims."""
        return self._alike and self._classes.ok and all(member.comparable for member in self._members)

    def columns(self, chunk: Chunk) -> Columns | None:
        """What a chunk as it is stored says about the scaling."""
        return self._members[0].columns(chunk)

    def scaled(self, chunk: Chunk) -> Chunk:
        """A chunk as the claims are about it, but for the maps, of which each group of members has its own."""
        return self._members[0].scaled(chunk)

    def ask(self, scaled: Chunk) -> Any:
        """What a scaled chunk says about the claims; a part of one group's mapped rows is in memory at a time."""
        answers: list[list[Any]] = [[] for _ in self._members]
        counts = list[Any]()
        for number, group in enumerate(self._groups):
            made = self.claims.members[group[0]].map
            for part in [scaled] if made is None else made.parts(scaled):
                for k in group:
                    answers[k].append(self._members[k].ask_part(part))
                if self._tables:
                    counts.append(self._tables.ask(part, number))
        return answers, counts

    def add_columns(self, columns: Columns | None) -> None:
        """Take what ``columns`` said."""
        self._members[0].add_columns(columns)

    def add(self, answer: Any) -> None:
        """Take what ``ask`` said."""
        for member, own in zip(self._members, answer[0], strict=True):
            member.add(own)
        if self._tables:
            self._tables.add(answer[1])

    def result(self) -> FleetVerification:
        """The outcome, after all chunks."""
        record, claims = self.claims.record, self.claims.members
        names = [entry.name for entry in record.members]
        results = tuple((name, member.result()) for name, member in zip(names, self._members, strict=True))
        statuses = [entry.status for entry in record.members]
        tables = [
            Check("members", ok=True, text=f"all {len(claims):,} are what the table says, and were asked for the same"),
            Check("status", ok=True, text=f"{record.status}: {statuses.count('certified'):,} of them are certified"),
        ]
        tables.insert(0, self._classes)
        tables[1:1] = same_columns(self.claims.columns, self.rows)
        if self.rows.amended:  # else the members' own lines say what there is to say
            tables.insert(0, same_shape(claims[0], self.rows))
        if not self._alike:
            tables.append(Check("scaling", ok=False, text="the members do not scale and map rows alike"))
        if self._tables is not None:
            tables += self._tables.checks()
        return FleetVerification(
            model=str(self.claims.path),
            store=str(self.rows.path),
            status=record.status,
            epsilon=claims[0].proven_epsilon,
            rows=self.rows.rows,
            features=self.rows.features,
            members=results,
            tables=tuple(tables),
            problem=claims[0].problem,
        )


def _same_classes(record: FleetRecord, rows: Rows) -> Check:
    """Whether the fleet decides among all classes of the store, and no others."""
    text, store = ", ".join(map(repr, record.classes)), ", ".join(map(repr, rows.classes))
    ok = are_classes(record.classes, rows)
    return Check("classes", ok, text if ok else f"fleet decides among {text}, the store has {store or 'none'}")


def _by_map(claims: FleetClaims) -> list[list[int]]:
    """The places of the members that map rows alike, or are to: those of one gamma, or all where there is no map."""
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
        for claim in claims
    )
