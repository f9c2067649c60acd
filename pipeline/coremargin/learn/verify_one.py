"""One model under examination: what is checked before, in and after a scan of the store."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from coremargin.learn.verify_checks import Check, consistency, dual, same_classes, same_shape
from coremargin.learn.verify_gap import GapScan
from coremargin.learn.verify_gap import consistency as gap_consistency
from coremargin.learn.verify_scaling import Columns, Scaler
from coremargin.learn.verify_scan import Scan

if TYPE_CHECKING:
    from coremargin.learn.verify_claim import Claim
    from coremargin.learn.verify_rows import Chunk, Rows

UNCHECKED = (
    "that the labels are right, and how the model does on rows that are not in the store",
    "the ledger (what the scans proved about each chunk; no claim rests on it)",
    "run.json, rounds.jsonl and report.html (how this run went)",
    "who made store and model: the checksums find damage, not a forger who rewrites both",
)
UNCHECKED_GAP = (UNCHECKED[0], *UNCHECKED[2:])  # the ledger is part of the proof


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


class Inquiry:
    """A claim, and what is known about it so far; ``ask`` may run in many threads, ``add`` takes chunks in order."""

    def __init__(self, claim: Claim, rows: Rows, scaler: Scaler | None = None) -> None:
        """scaler: of another inquiry about rows scaled alike, which then scales for both."""
        self.claim, self.rows = claim, rows
        self.soft = claim.problem == "soft_margin"
        self._checks = [same_shape(claim, rows), same_classes(claim, rows)]
        comparable = claim.features == rows.features and self._checks[1].ok
        self._checks += gap_consistency(claim) if self.soft else consistency(claim)
        self._upper, dual_checks = (None, []) if self.soft else dual(claim)
        self._checks += dual_checks
        self.scan: GapScan | Scan | None = None
        if comparable:
            self.scan = GapScan(claim, rows) if self.soft else Scan(claim, rows)
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

    def result(self) -> Verification:
        """The outcome, after all chunks."""
        claim, scan, checks = self.claim, self.scan, list(self._checks)
        lower, upper = None, self._upper
        if scan and self.scaler:
            lower, value = scan.bounds()
            upper = value if self.soft else upper
            checks += [*scan.checks(), *self.scaler.checks()]
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
            unchecked=UNCHECKED_GAP if self.soft else UNCHECKED,
            problem=claim.problem,
        )
