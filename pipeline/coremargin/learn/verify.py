"""Check a model's certificate against the store, with code of its own.

``verify`` believes nothing that it can check and shares no code with what trains: it reads the model with json and
numpy (verify_claim.py), the store with plain zarr-python (verify_rows.py) and does its own sums (verify_sums.py).

- Lower bound: one scan over all labelled rows in float64. A fast product says y (w.x + b) with an error of at most
  gamma_(d+4) (||x|| ||w|| + |b|); every row for which that leaves open whether its margin reaches the claim, and the
  lowest row of each chunk, is evaluated again with sums that are rounded once. No tolerance is added.
- Upper bound: the norm of the combination of coreset rows by the normalised dual weights, each feature rounded once.
  By duality no hypothesis has a larger margin on any data that holds these rows; that they are rows of the store is
  checked bit for bit. No tolerance is added.

- Scaled rows: the model's numbers scale each row anew as verify_scaling.py says, all of the above is about rows so
  scaled, and the same scan tells whether these numbers are the means, deviations or ranges that they are said to be.
- Soft margins: the value of the hypothesis and the bound of the dual point, both sums over all rows, in the same scan
  (verify_soft.py, verify_gap.py). Their rounding is bounded, and a claim holds only if it holds with it.

Trainers round their claims outward by more than the rounding that remains here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

from coremargin.errors import ClaimRefuted, UsageError
from coremargin.learn.verify_checks import Check, consistency, dual, same_classes, same_shape
from coremargin.learn.verify_claim import read_claim
from coremargin.learn.verify_gap import GapScan
from coremargin.learn.verify_gap import consistency as gap_consistency
from coremargin.learn.verify_rows import Chunk, Rows
from coremargin.learn.verify_scaling import Columns, Scaler
from coremargin.learn.verify_scan import Scan

OnProgress = Callable[[int, int], object]

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


def verify(
    model_path: str | os.PathLike[str],
    store_path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Verification:
    """Check every claim of a model's certificate by one scan of the store.

    on_progress(rows done, rows in all) is called after each chunk. Memory does not grow with the store.
    Raises ClaimRefuted that lists all false claims, DataError when model or store cannot be read or are damaged.
    """
    result = examine(model_path, store_path, threads=threads, on_progress=on_progress)
    if not result.ok:
        raise refutation(result)
    return result


def refutation(result: Verification) -> ClaimRefuted:
    """The error that lists what is false."""
    lines = "".join(f"\n- {check.name}: {check.text}" for check in result.failures)
    count = len(result.failures)
    return ClaimRefuted(
        f"{result.model}: {count} {'claim is' if count == 1 else 'claims are'} false of {result.store}:{lines}\n"
        f"do not use this model with this store; train it again"
    )


def examine(
    model_path: str | os.PathLike[str],
    store_path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Verification:
    """As ``verify``, but false claims are in the result instead of raised."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected at least 1, got {threads}")
    claim = read_claim(model_path)
    rows = Rows(store_path)
    soft = claim.problem == "soft_margin"
    checks = [same_shape(claim, rows), same_classes(claim, rows)]
    checks += gap_consistency(claim) if soft else consistency(claim)
    upper, dual_checks = (None, []) if soft else dual(claim)
    checks += dual_checks
    lower, unlabelled = None, 0
    if claim.features == rows.features and checks[1].ok:
        scan: GapScan | Scan = GapScan(claim, rows) if soft else Scan(claim, rows)
        scaler = Scaler(claim, rows)
        _read_all(scan, scaler, rows, threads, on_progress)
        unlabelled = scan.unlabelled
        lower, value = scan.bounds()
        upper = value if soft else upper
        checks += [*scan.checks(), *scaler.checks()]
    return Verification(
        model=str(claim.path),
        store=str(rows.path),
        status=claim.status,
        epsilon=claim.proven_epsilon,
        claimed_lower=claim.lower,
        claimed_upper=claim.upper,
        lower=lower,
        upper=upper,
        rows=rows.rows,
        unlabelled=unlabelled,
        features=rows.features,
        checks=tuple(checks),
        unchecked=UNCHECKED_GAP if soft else UNCHECKED,
        problem=claim.problem,
    )


def _read_all(scan: Any, scaler: Scaler, rows: Rows, threads: int | None, on_progress: OnProgress | None) -> None:
    def ask(chunk: Chunk) -> tuple[Columns | None, Any]:
        return scaler.columns(chunk), scan.ask(scaler.scaled(chunk))

    with closing(rows.scan(ask, threads=threads)) as answers:
        for chunk, (columns, answer) in answers:
            scaler.add(columns)
            scan.add(answer)
            if on_progress is not None:
                on_progress(chunk.start + len(chunk.codes), rows.rows)
