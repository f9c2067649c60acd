"""The result of a verification, of one model or of several, and its description for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from coremargin.verify.checks import Check
from coremargin.verify.kind import UNCHECKED
from coremargin.verify.registry import kind_named

#: Formats an upper bound.
FormatBound = Callable[[float], str]


@dataclass(frozen=True)
class Verification:
    """The result for one model. ``lower`` and ``upper`` are the bounds found, None where nothing is claimed."""

    model: str
    store: str
    status: str
    epsilon: float
    claimed_lower: float | None
    claimed_upper: float | None
    lower: float | None
    upper: float | None
    rows: int
    unlabelled: int
    features: int
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]
    problem: str
    soft: bool = False  #: the bounds are about a value, not a margin
    part: str = ""  #: the rows that count, if not all labelled ones do
    terms: str = ""  #: further conditions of the claim

    @property
    def ok(self) -> bool:
        """True if every claim holds."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The claims that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    @property
    def listed(self) -> tuple[Check, ...]:
        """The checks to show: all."""
        return self.checks

    @property
    def tally(self) -> tuple[str, ...]:
        """A summary of checks that are not listed: empty, as all are."""
        return ()

    @property
    def singles(self) -> tuple[Verification, ...]:
        """The results for the single models."""
        return (self,)

    @property
    def proven(self) -> str:
        """The statement that is true if the model is certified."""
        return kind_named(self.problem).proven(self.epsilon, soft=self.soft)

    def verdict(self, shown: FormatBound) -> str:
        """The result in a sentence."""
        about, kind = f", on {self.part}" * bool(self.part) + self.terms, kind_named(self.problem)
        unproven = kind.unproven(self.epsilon, self.lower, self.upper, soft=self.soft)
        none = kind.nothing
        if self.upper is not None:
            none += f": none has a margin above {shown(self.upper)}, which is zero for such rows, to within float64"
        return _verdict(
            self,
            {
                "certified": f"{self.proven}{about}",
                "not_separable": f"{none}{about}",
                "stopped": f"the bounds hold{about}; {unproven}",
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok} | asdict(self)


@dataclass(frozen=True)
class FleetVerification:
    """The result for models trained together: by member, and for what the fleet's record claims of all of them."""

    model: str
    store: str
    status: str
    epsilon: float  #: requested of every member
    rows: int
    features: int
    members: tuple[tuple[str, Verification], ...]
    tables: tuple[Check, ...]
    problem: str
    unchecked: tuple[str, ...] = UNCHECKED

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks of the fleet, then those of the members, with their names."""
        every = [(name, check) for name, member in self.members for check in member.checks]
        named = [Check(f"{name}: {check.name}", check.ok, check.text) for name, check in every]
        return (*self.tables, *named)

    @property
    def ok(self) -> bool:
        """True if every claim holds."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The claims that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    @property
    def listed(self) -> tuple[Check, ...]:
        """The checks to show: those of the fleet, and those of members that fail."""
        return (*self.tables, *(check for check in self.checks[len(self.tables) :] if not check.ok))

    @property
    def tally(self) -> tuple[str, ...]:
        """A summary of checks that are not listed."""
        good, every = sum(member.ok for _, member in self.members), len(self.members)
        return (f"all claims hold of {good:,} of {every:,} member{'' if every == 1 else 's'}",)

    @property
    def singles(self) -> tuple[Verification, ...]:
        """The results for the single models."""
        return tuple(member for _, member in self.members)

    def verdict(self, shown: FormatBound) -> str:
        """The result in a sentence."""
        terms = self.singles[0].terms
        return _verdict(
            self,
            {
                "certified": f"{self.singles[0].proven}, for each member{terms}",
                "not_separable": "no hyperplane separates the classes of some members, to within float64",
                "stopped": f"the bounds hold, for each member{terms}; they do not prove epsilon {self.epsilon}",
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok} | asdict(self)


Outcome: TypeAlias = Verification | FleetVerification


def _verdict(found: Outcome, true: dict[str, str]) -> str:
    """true: the statement that is true if all claims hold, by status."""
    if found.ok:
        return f"verified: {true[found.status]}"
    return f"refuted: {len(found.failures)} of {len(found.checks)} checks failed"
