"""What has come out of an examination, and how people are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from coremargin.verify.registry import kind_named

if TYPE_CHECKING:
    from coremargin.verify.checks import Check

#: How people are shown an upper bound.
Shown = Callable[[float], str]


class Outcome(Protocol):
    """Of one model, or of many that were examined together."""

    @property
    def model(self) -> str:
        """Where it is."""

    @property
    def store(self) -> str:
        """Where it is."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """All of them."""

    @property
    def listed(self) -> tuple[Check, ...]:
        """Those that people are shown."""

    @property
    def tally(self) -> tuple[str, ...]:
        """What stands for those that are not listed."""

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What nobody has looked at."""

    @property
    def ok(self) -> bool:
        """True when every claim holds."""

    @property
    def failures(self) -> tuple[Check, ...]:
        """The claims that do not hold."""

    @property
    def singles(self) -> tuple[Verification, ...]:
        """The models, each by itself."""

    def verdict(self, shown: Shown) -> str:
        """What has been found, in a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""


@dataclass(frozen=True)
class Verification:
    """The outcome. ``lower`` and ``upper`` are the bounds as found here, None where nothing is claimed."""

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
    part: str = ""  #: which rows count, where these are not all that have a label
    terms: str = ""  #: what else is a part of the claim, in words

    @property
    def ok(self) -> bool:
        """True when every claim holds."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The claims that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    @property
    def listed(self) -> tuple[Check, ...]:
        """All checks."""
        return self.checks

    @property
    def tally(self) -> tuple[str, ...]:
        """Nothing: all checks are listed."""
        return ()

    @property
    def singles(self) -> tuple[Verification, ...]:
        """The model itself."""
        return (self,)

    @property
    def proven(self) -> str:
        """What is true of it, where it is certified."""
        return kind_named(self.problem).proven(self.epsilon, soft=self.soft)

    def verdict(self, shown: Shown) -> str:
        """What has been found, in a sentence."""
        about, kind = f", on {self.part}" * bool(self.part) + self.terms, kind_named(self.problem)
        unproven = kind.unproven(self.epsilon, self.lower, self.upper, soft=self.soft)
        none = kind.nothing
        if self.upper is not None:
            none += f": none has a margin above {shown(self.upper)}, which is zero for such rows, to within float64"
        return in_words(
            self,
            self.status,
            {
                "certified": f"{self.proven}{about}",
                "not_separable": f"{none}{about}",
                "stopped": f"the bounds hold{about}; {unproven}",
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok} | asdict(self)


def in_words(found: Outcome, status: str, holds: dict[str, str]) -> str:
    """The verdict, holds being what is true where all claims hold: for each status a model may have."""
    if found.ok:
        return f"verified: {holds[status]}"
    return f"refuted: {len(found.failures)} of {len(found.checks)} checks failed"
