"""Check a model's certificate against the store, with code of its own.

``verify`` believes nothing that it can check and shares no code with what trains: it reads the model through the
strict readers of formats/ (claim.py), the store with plain zarr-python (rows.py) and does its own sums (sums.py).

- Lower bound: one scan over all labelled rows in float64. A fast product says y (w.x + b) with an error of at most
  gamma_(d+4) (||x|| ||w|| + |b|); every row for which that leaves open whether its margin reaches the claim, and the
  lowest row of each chunk, is evaluated again with sums that are rounded once. No tolerance is added.
- Upper bound: the norm of the combination of coreset rows by the normalised dual weights, each feature rounded once.
  By duality no hypothesis has a larger margin on any data that holds these rows; that they are rows of the store is
  checked bit for bit. No tolerance is added.

- Scaled rows: the model's numbers scale each row anew as scaling.py says, all of the above is about rows so
  scaled, and the same scan tells whether these numbers are the means, deviations or ranges that they are said to be.
- Fleets: all of this for every member, on the rows and labels that its view shows (view.py), and the tables of
  the fleet, in one scan (fleet.py).
- Outliers: the rows below the margin are counted by the same scan, and the proof that no others do better is walked
  through, certificate by certificate (outliers.py).
- Several classes at once: both bounds of a hard or soft margin over pairs of row and rival (classes.py,
  classes_scan.py).
- Soft margins: the value of the hypothesis and the bound of the dual point, both sums over all rows, in the same scan
  (soft.py, gap.py). Their rounding is bounded, and a claim holds only if it holds with it.

Trainers round their claims outward by more than the rounding that remains here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from coremargin.errors import ClaimRefuted, UsageError
from coremargin.formats.crammer_singer import SeveralClasses
from coremargin.formats.fleet_record import FILE
from coremargin.formats.model_files import read_model_files
from coremargin.formats.open_folder import read_folder
from coremargin.verify.claim import claim_of
from coremargin.verify.classes_claim import classes_claim_of
from coremargin.verify.fleet import FleetInquiry, FleetVerification, read_fleet
from coremargin.verify.one import Inquiry, Verification
from coremargin.verify.rows import Chunk, Rows
from coremargin.verify.sums import quiet

OnProgress = Callable[[int, int], object]


def refutation(result: Verification | FleetVerification) -> ClaimRefuted:
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
) -> Verification | FleetVerification:
    """As ``coremargin.verify``, but false claims are in the result instead of raised."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected at least 1, got {threads}")
    path = Path(os.path.abspath(model_path))
    question = read_folder(path, lambda folder: _question(folder, path))
    rows = Rows(store_path)
    with quiet():
        inquiry = question(rows)
        if inquiry.comparable:
            _read_all(inquiry, rows, threads, on_progress)
        return inquiry.result()


def _question(folder: int, path: Path) -> Callable[[Rows], Inquiry | FleetInquiry]:
    """What is to be asked of a store about the model, or the fleet, in an open folder; read before the store is."""
    if FILE in os.listdir(folder):
        return partial(FleetInquiry, read_fleet(folder, path))
    files = read_model_files(folder, path)
    claim = classes_claim_of(files) if isinstance(files.record, SeveralClasses) else claim_of(files)
    return partial(Inquiry, claim)


def _read_all(inquiry: Inquiry | FleetInquiry, rows: Rows, threads: int | None, on_progress: OnProgress | None) -> None:
    def ask(chunk: Chunk) -> tuple[Any, Any]:
        return inquiry.columns(chunk), inquiry.ask(inquiry.scaled(chunk))

    with closing(rows.scan(ask, threads=threads)) as answers:
        for chunk, (columns, answer) in answers:
            inquiry.add_columns(columns)
            inquiry.add(answer)
            if on_progress is not None:
                on_progress(chunk.start + len(chunk.codes), rows.rows)
