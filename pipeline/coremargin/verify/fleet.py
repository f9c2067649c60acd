"""A fleet under examination: every member as a model of its own, and what ``fleet.json`` says of all, in one scan.

Confusion matrices are counted anew: each row's class is that of the largest decision value among the members that were
trained alike. Decision values here and there differ by rounding: rows whose two largest are as near as that may count
for either, all others are counted to the row.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import DataError
from coremargin.verify.checks import Check, typed
from coremargin.verify.claim import Claim, read_claim
from coremargin.verify.one import UNCHECKED_GAP, Inquiry, Verification
from coremargin.verify.tables import Tables

if TYPE_CHECKING:
    from coremargin.verify.rows import Chunk, Rows
    from coremargin.verify.scaling import Columns

FILE = "fleet.json"
_LARGEST_JSON = 16 << 20
_KEYS = {
    "format", "version", "status", "problem", "parameters", "classes", "features", "rows", "dtype", "store_digest",
    "members", "evaluations", "validation", "chosen", "software",
}  # fmt: skip
_SHARED = ("problem", "epsilon", "intercept", "loss", "class_weight", "scaling", "features", "rows", "dtype")


@dataclass(frozen=True)
class FleetClaims:
    """What a fleet claims: the content of ``fleet.json``, and its members' claims, in its order."""

    path: Path
    record: dict[str, Any]
    members: tuple[Claim, ...]


@dataclass(frozen=True)
class FleetVerification:
    """The outcome: of all members by name, and of what the fleet says about them. epsilon: what all were asked for."""

    model: str
    store: str
    status: str
    epsilon: float
    rows: int
    features: int
    members: tuple[tuple[str, Verification], ...]
    tables: tuple[Check, ...]
    problem: str
    unchecked: tuple[str, ...] = UNCHECKED_GAP

    @property
    def soft(self) -> bool:
        """The bounds are about values, not margins."""
        return self.problem == "soft_margin"

    @property
    def checks(self) -> tuple[Check, ...]:
        """Those of the fleet, then those of the members, each with the member's name."""
        every = [(name, check) for name, member in self.members for check in member.checks]
        named = [Check(f"{name}: {check.name}", check.ok, check.text) for name, check in every]
        return (*self.tables, *named)

    @property
    def ok(self) -> bool:
        """True when every claim holds."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The claims that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok} | asdict(self)


def read_fleet(path: str | os.PathLike[str]) -> FleetClaims:
    """Read a fleet's folder. Raises DataError: another format or version, unreadable, incomplete."""
    folder = Path(os.path.abspath(path))
    place = folder / FILE
    try:
        if place.stat().st_size > _LARGEST_JSON:
            raise DataError(f"{place}: expected at most {_LARGEST_JSON:,} bytes; this is not a fleet")
        record = json.loads(place.read_bytes())
    except (OSError, RecursionError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{place}: expected JSON, cannot be read ({error}); get a whole copy of the fleet") from error
    if not isinstance(record, dict) or record.get("format") != "coremargin-fleet" or record.get("version") != 1:
        raise DataError(
            f"{place}: expected a fleet's record of version 1, found another; "
            f"made by a newer coremargin: verify with that"
        )
    try:
        if set(record) != _KEYS:
            raise ValueError(", ".join(sorted(set(record) ^ _KEYS)))
        _check_shape(record)
        names = [str(entry["name"]) for entry in record["members"]]
        if not names or any(name in ("", ".", "..") or set(name) & set("/\\\0") for name in names):
            raise ValueError("members")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{place}: incomplete or altered ({error!r}); get a whole copy of the fleet") from error
    return FleetClaims(folder, record, tuple(read_claim(folder / "members" / name) for name in names))


def _check_shape(record: dict[str, Any]) -> None:
    """Raises KeyError, TypeError or ValueError unless the tables have their columns, and these are of their kinds."""
    k = len(record["classes"])
    if k < 2 or record["parameters"].get("classes") not in (None, "ovr"):
        raise ValueError("classes, parameters")
    for entry in record["evaluations"]:
        if np.array(entry["confusion"], dtype=np.int64).shape != (k, k) or int(entry["rows"]) < 0:
            raise ValueError(f"evaluations: {entry!r}"[:200])
        hash((entry["C"], entry["fold"]))
        _check_numbers(entry["accuracy"], entry["fold"] or 0)
    for entry in record["validation"] or ():
        hash(entry["C"])
        _check_numbers(entry["mean"], entry["std"], *entry["accuracies"])
    for entry in record["members"]:
        hash((entry["class"], entry["C"], entry["fold"], entry["status"]))


def _check_numbers(*values: Any) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"expected a finite number, got {value!r}")


class FleetInquiry:
    """All members' claims and the fleet's tables; see ``Inquiry``."""

    def __init__(self, claims: FleetClaims, rows: Rows) -> None:
        self.claims, self.rows = claims, rows
        first = Inquiry(claims.members[0], rows)
        alike = _scaled_alike(claims.members)
        shared = first.scaler if alike else None
        self._members = [first, *(Inquiry(claim, rows, shared) for claim in claims.members[1:])]
        self._alike = alike
        self._tables = Tables(claims.record, claims.members, rows) if self.comparable else None

    @property
    def comparable(self) -> bool:
        """False when the store's rows say nothing about the claims."""
        return self._alike and all(member.comparable for member in self._members)

    def columns(self, chunk: Chunk) -> Columns | None:
        """What a chunk as it is stored says about the scaling."""
        return self._members[0].columns(chunk)

    def scaled(self, chunk: Chunk) -> Chunk:
        """A chunk as the claims are about it."""
        return self._members[0].scaled(chunk)

    def ask(self, scaled: Chunk) -> Any:
        """What a scaled chunk says about the claims."""
        told = self._tables.ask(scaled) if self._tables else None
        return [member.ask(scaled) for member in self._members], told

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
        names = [entry["name"] for entry in record["members"]]
        results = tuple((name, member.result()) for name, member in zip(names, self._members, strict=True))
        tables = [_members_fit(record, claims), _complete(record), _status(record)]
        if not self._alike:
            tables.append(Check("scaling", ok=False, text="the members do not all scale rows alike"))
        if self._tables is not None:
            tables += self._tables.checks()
        return FleetVerification(
            model=str(self.claims.path), store=str(self.rows.path), status=str(record["status"]),
            epsilon=claims[0].proven_epsilon, rows=self.rows.rows, features=self.rows.features, members=results,
            tables=tuple(tables), problem=claims[0].problem,
        )  # fmt: skip


def _scaled_alike(claims: tuple[Claim, ...]) -> bool:
    first = claims[0]
    return all(
        claim.scaling == first.scaling
        and np.array_equal(claim.shift, first.shift)
        and np.array_equal(claim.factor, first.factor)
        for claim in claims
    )


def _members_fit(record: dict[str, Any], claims: tuple[Claim, ...]) -> Check:
    """Whether the members are what the table says, and were asked for the same."""
    problems = [f"the fleet's {key}" for key in _disagreeing(record, claims[0])]
    for entry, claim in zip(record["members"], claims, strict=True):
        told = {
            "class": claim.view.label, "C": claim.cost if claim.loss else None, "fold": claim.view.fold,
            "status": claim.status, "lower": claim.lower, "upper": claim.upper, "ratio": claim.ratio,
            "coreset_rows": len(claim.ids),
        }  # fmt: skip
        wrong = [key for key, value in told.items() if key not in entry or typed(entry[key]) != typed(value)]
        wrong += [name for name in _SHARED if getattr(claim, name) != getattr(claims[0], name)]
        if claim.store_digest != record["store_digest"]:
            wrong.append("store_digest")
        if claim.view.fold is not None:
            asked = (record["parameters"].get("folds"), record["parameters"].get("fold_seed"))
            wrong += ["folds"] * ((claim.view.folds, claim.view.seed) != asked)
        if wrong:
            problems.append(f"{entry['name']}: {', '.join(wrong)}")
    text = f"all {len(claims):,} members are what the table says, and were asked for the same"
    return Check("members", not problems, f"not what the table says: {'; '.join(problems[:5])}" if problems else text)


def _disagreeing(record: dict[str, Any], claim: Claim) -> list[str]:
    """What the fleet says of all its members, and one of them does not say of itself."""
    asked = record["parameters"]
    weight = asked.get("class_weight")
    told = {
        **{key: record[key] for key in ("problem", "features", "rows", "dtype")},
        **{key: asked.get(key) for key in ("epsilon", "intercept")},
        "loss": asked.get("loss") or "", "class_weight": tuple(weight) if isinstance(weight, list) else weight,
        "scaling": asked.get("scaling", ""),
    }  # fmt: skip
    return [key for key, value in told.items() if typed(value) != typed(getattr(claim, key))]


def _complete(record: dict[str, Any]) -> Check:
    """Whether there is one member for each class, C and fold, and for all rows."""
    parameters, labels = record["parameters"], record["classes"]
    sides = labels if parameters.get("classes") == "ovr" and len(labels) > 2 else [None]
    asked = parameters.get("C")
    costs = asked if isinstance(asked, list) else [asked]
    folds = [None, *range(parameters.get("folds") or 0)]
    wanted = [(typed(side), cost, fold) for fold in folds for side in sides for cost in costs]
    found = [(typed(entry.get("class")), entry.get("C"), entry.get("fold")) for entry in record["members"]]
    ok = len(found) == len(wanted) and all(one in found for one in wanted)
    text = f"{len(wanted):,}: {len(sides)} by class, {len(costs)} by C, {len(folds)} by fold and on all rows"
    return Check("table", ok, text if ok else f"the parameters ask for {text}, the fleet has others: {len(found):,}")


def _status(record: dict[str, Any]) -> Check:
    words = [entry["status"] for entry in record["members"]]
    expected = next((word for word in ("stopped", "not_separable") if word in words), "certified")
    text = f"{record['status']}: {words.count('certified'):,} of {len(words):,} members are certified"
    return Check("status", record["status"] == expected, text)
