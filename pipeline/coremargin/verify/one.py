"""One model under examination: what is checked before, in and after a scan of the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from coremargin.verify.checks import Check, certified, consistency, dual, same_classes, same_shape, shown
from coremargin.verify.classes import ClassesProof, hull
from coremargin.verify.classes import consistency as classes_consistency
from coremargin.verify.classes import same_classes as several_classes
from coremargin.verify.classes_claim import ClassesClaim
from coremargin.verify.gap import GapScan
from coremargin.verify.gap import consistency as gap_consistency
from coremargin.verify.outliers import same_answer, trimmed_claims, upper_bounds
from coremargin.verify.outliers_scan import TrimScan
from coremargin.verify.scaling import Columns, Scaler
from coremargin.verify.scan import Scan

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim
    from coremargin.verify.rows import Chunk, Rows

_APART = 1e-12  # what rounding may put a lower bound above an upper one by: the weights' of many rows, at the most

UNCHECKED = (
    "that the labels are right, and how the model does on rows that are not in the store",
    "the ledger (what the scans proved about each chunk; no claim rests on it)",
    "how this run went: run.json, rounds.jsonl, report.html, software, strategy, nodes",
    "who made store and model: the checksums find damage, not a forger who rewrites both",
)
UNCHECKED_GAP = (UNCHECKED[0], *UNCHECKED[2:])  # the ledger is part of the proof
UNCHECKED_OUTLIERS = (
    "how much margin each row left out buys, and the model's dual weights (no claim rests on them)",
    *UNCHECKED_GAP,
)


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
    unchecked: tuple[str, ...] = field(default=UNCHECKED)
    problem: str = "hard_margin"
    soft: bool = False  #: the bounds are about a value, not a margin
    part: str = ""  #: which rows count, where these are not all that have a label

    @property
    def ok(self) -> bool:
        """True when every claim holds."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The claims that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok} | asdict(self)


@dataclass(frozen=True)
class _Own:
    """What is particular to a problem: checks before the scan, the upper bound if they give it, the scan."""

    classes: Callable[[Rows], Check]
    checks: list[Check]
    upper: float | None
    scan: Callable[[Rows], GapScan | Scan | TrimScan | ClassesProof]
    unchecked: tuple[str, ...]


def _of_several(claim: ClassesClaim) -> _Own:
    upper, checks = (None, []) if claim.soft else hull(claim)
    checks = [*classes_consistency(claim), *checks]
    return _Own(partial(several_classes, claim), checks, upper, partial(ClassesProof, claim), UNCHECKED_GAP)


def _of_two(claim: Claim) -> _Own:
    classes = partial(same_classes, claim)
    if claim.problem == "soft_margin":
        return _Own(classes, gap_consistency(claim), None, partial(GapScan, claim), UNCHECKED_GAP)
    if claim.problem == "outliers":
        trimmed = trimmed_claims(claim)
        upper, checks = upper_bounds(claim, trimmed)
        checks = [*consistency(claim), *same_answer(claim, trimmed), *checks]
        return _Own(classes, checks, upper, lambda rows: TrimScan(claim, rows, trimmed), UNCHECKED_OUTLIERS)
    upper, checks = dual(claim)
    return _Own(classes, [*consistency(claim), *checks], upper, partial(Scan, claim), UNCHECKED)


class Inquiry:
    """A claim, and what is known about it so far; ``ask`` may run in many threads, ``add`` takes chunks in order."""

    def __init__(self, claim: Claim | ClassesClaim, rows: Rows, scaler: Scaler | None = None) -> None:
        """scaler: of another inquiry about rows scaled alike, which then scales for both."""
        self.claim, self.rows = claim, rows
        own = _of_several(claim) if isinstance(claim, ClassesClaim) else _of_two(claim)
        classes = own.classes(rows)
        comparable = claim.features == rows.features and classes.ok
        self._checks = [same_shape(claim, rows), classes, *own.checks]
        self._upper, self._unchecked = own.upper, own.unchecked
        self.scan = own.scan(rows) if comparable else None
        self.scaler = scaler or (Scaler(claim, rows) if comparable else None)

    @property
    def comparable(self) -> bool:
        """False when the store's rows say nothing about the claim: other features, other classes."""
        return self.scan is not None

    def columns(self, chunk: Chunk) -> Columns | None:
        """What a chunk as it is stored says about the scaling."""
        return self.scaler.columns(chunk) if self.scaler else None

    def scaled(self, chunk: Chunk) -> Chunk:
        """A chunk as the claim is about it."""
        return self.scaler.scaled(chunk) if self.scaler else chunk

    def ask(self, scaled: Chunk) -> Any:
        """What a scaled chunk says about the claim."""
        return self.scan.ask(scaled) if self.scan else None

    def add_columns(self, columns: Columns | None) -> None:
        """Take what ``columns`` said."""
        if self.scaler:
            self.scaler.add(columns)

    def add(self, answer: Any) -> None:
        """Take what ``ask`` said."""
        if self.scan:
            self.scan.add(answer)

    def _proven(self, lower: float | None, upper: float | None) -> list[Check]:
        """A failed check where all claims hold, and yet the bounds that were found do not prove what is certified."""
        if lower is not None and upper is not None and lower > upper * (1 + _APART):
            text = f"the bounds contradict each other: found lower {shown(lower)}, upper {shown(upper)}"
            return [Check("certificate", ok=False, text=text)]
        epsilon = self.claim.proven_epsilon
        if self.claim.status != "certified" or certified(lower, upper, epsilon):
            return []
        text = f"model claims to be certified; lower {shown(lower)} and upper {shown(upper)} do not prove {epsilon}"
        return [Check("certificate", ok=False, text=text)]

    def result(self) -> Verification:
        """The outcome, after all chunks."""
        claim, scan, checks = self.claim, self.scan, list(self._checks)
        lower, upper = None, self._upper
        if scan and self.scaler:
            lower, value = scan.bounds()
            upper = upper if value is None else value
            checks += [*scan.checks(), scan.norms(self.scaler.box()), *self.scaler.checks()]
        if all(check.ok for check in checks):
            checks += self._proven(lower, upper)
        return Verification(
            model=str(claim.path),
            store=str(self.rows.path),
            status=claim.status,
            epsilon=claim.proven_epsilon,
            claimed_lower=claim.lower,
            claimed_upper=claim.upper,
            lower=lower,
            upper=upper,
            rows=self.rows.rows,
            unlabelled=scan.unlabelled if scan else 0,
            features=self.rows.features,
            checks=tuple(checks),
            unchecked=self._unchecked,
            problem=claim.problem,
            soft=claim.soft,
            part="" if claim.view.fold is None else f"the rows outside of fold {claim.view.fold} of {claim.view.folds}",
        )
