"""What has come out of the examination of a fleet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from coremargin.verify.checks import Check
from coremargin.verify.kind import UNCHECKED
from coremargin.verify.outcome import in_words

if TYPE_CHECKING:
    from coremargin.verify.outcome import Shown, Verification


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
    unchecked: tuple[str, ...] = UNCHECKED

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

    @property
    def listed(self) -> tuple[Check, ...]:
        """Those of the fleet; those of the members where they fail."""
        return (*self.tables, *(check for check in self.checks[len(self.tables) :] if not check.ok))

    @property
    def tally(self) -> tuple[str, ...]:
        """How many members there is nothing to list of."""
        good, every = sum(member.ok for _, member in self.members), len(self.members)
        return (f"all claims hold of {good:,} of {every:,} member{'' if every == 1 else 's'}",)

    @property
    def singles(self) -> tuple[Verification, ...]:
        """The members."""
        return tuple(member for _, member in self.members)

    def verdict(self, shown: Shown) -> str:
        """What has been found, in a sentence; all members were asked for the same."""
        terms = self.singles[0].terms
        return in_words(
            self,
            self.status,
            {
                "certified": f"{self.singles[0].proven}, for each member{terms}",
                "not_separable": "no hyperplane separates the classes of some members, to within float64",
                "stopped": f"the bounds hold, for each member{terms}; they do not prove epsilon {self.epsilon}",
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok} | asdict(self)
