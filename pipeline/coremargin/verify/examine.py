"""Check a model's certificate against the store.

The verifier shares no code with the trainer: it reads the model with the strict readers of formats/, the store with
zarr-python (rows.py), and has arithmetic of its own (sums.py). A kind of claim is a module next to this one, listed in
registry.py, and reads from top to bottom: the claim, the scan, the bounds, the verdict.

- hard_margin.py: lower bound: one scan over all labelled rows in float64. A fast product gives y (w.x + b) with an
  error of at most gamma_(d+4) (||x|| ||w|| + |b|); rows for which that error leaves open whether they reach the claim,
  and the lowest row of each chunk, are evaluated again with sums that are rounded once. Upper bound: the norm of the
  combination of coreset rows by the normalised dual weights, each feature rounded once; by duality no hypothesis has a
  larger margin on data with these rows, and the scan compares them with the store's bit for bit. No tolerance is added.
- outliers.py: the scan counts the rows below the margin; a tree of certificates proves that no other rows do better.
- soft_margin.py, logistic.py: the value of the hypothesis and the bound of the dual point, both sums over all rows in
  one scan. Their rounding is bounded, and counts against the claim.
- relative_margin.py: the same of a hinge, and the largest decision value of all rows.
- ball.py: the distance of the farthest row; the spread of the coreset by its dual weights, which no smaller ball has.
- ellipsoid.py: the level of the outermost row; the determinant of the coreset's covariance, which bounds all volumes.
- soft_ball.py: the squared distances of all rows; the spread of all rows by their dual weights.
- soft_ellipsoid.py: the squared levels of all rows; the determinant of their covariance by their dual weights.
- kernel_ball.py: the distances of all rows in a kernel's feature space; the spread of the coreset there.
- crammer_singer.py: both bounds of a hard or soft margin of several classes, over pairs of row and rival.
- kernel.py: bounds of functions of a kernel.
- active/: the margin, or the value, of rows whose labels were queried, the distance of all others, and random draws
  among these: of a model, or of a campaign with its log of answers.
- fleet.py: all of this for each of several models trained together, and the tables of all, in one scan.

If rows are scaled, claims are about the scaled rows, and the scan checks the scaling's numbers (scaling.py). If they
are mapped, claims are about the exact map, and bounds are widened by the error of the computed one (feature_map.py).
Trainers round their claims outward by more than the rounding that remains here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from coremargin.errors import ClaimRefuted, UsageError
from coremargin.formats import campaign
from coremargin.formats.fleet_record import FILE
from coremargin.formats.model_files import read_model_files
from coremargin.verify.examination import ModelExamination
from coremargin.verify.fleet import FleetExamination, read_fleet
from coremargin.verify.opener import read_model
from coremargin.verify.registry import claim_of, kind_named
from coremargin.verify.rows import Rows
from coremargin.verify.sums import quiet

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage
    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.outcome import Outcome

OnProgress = Callable[[int, int], object]


def refutation(result: Outcome) -> ClaimRefuted:
    """The error that lists the false claims."""
    lines = "".join(f"\n- {check.name}: {check.text}" for check in result.failures)
    count = len(result.failures)
    return ClaimRefuted(
        f"{result.model}: {count} {'claim is' if count == 1 else 'claims are'} false of {result.store}:{lines}\n"
        f"do not use this model with this store; train it again"
    )


def examine(
    model_path: str | os.PathLike[str] | ReadableStorage,
    store_path: str | os.PathLike[str] | ReadableStorage,
    *,
    kernel: Callable[..., Any] | None = None,
    structure: Any = None,
    threads: int | None = None,
    sha256: bool = False,
    on_progress: OnProgress | None = None,
) -> Outcome:
    """As ``coremargin.verify``, but false claims are in the result instead of raised."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected at least 1, got {threads}")
    examination_of, claim, grown = read_model(model_path, lambda model: _read_claims(model, kernel, structure))
    rows = Rows(store_path, claim.store_digest, grown=grown, claimed=claim.store_sha256, compute_sha256=sha256)
    if sha256 and claim.store_sha256 is None and not rows.sha256:
        raise UsageError(
            f"{rows.path}: neither the store nor {claim.path} has SHA-256 to compare with, only CRC-32C; "
            f"`coremargin compact` adds those of the store, and models that are trained then have them"
        )
    with quiet():
        examination = examination_of(rows)
        if examination.comparable:
            with closing(rows.scan(examination.probe, threads=threads)) as summaries:
                for chunk, summary in summaries:
                    examination.add(summary)
                    if on_progress is not None:
                        on_progress(chunk.start + len(chunk.codes), rows.rows)
        return examination.result()


def _read_claims(
    model: ReadableStorage, kernel: Callable[..., Any] | None, structure: Any
) -> tuple[Callable[[Rows], ModelExamination | FleetExamination], AnyClaim, bool]:
    """Read the claims of a folder with a model, a fleet or a campaign.

    Also one of its claims, all of which are about the same commit, and whether rows may have been appended since.
    """
    if model.exists(FILE):
        fleet = read_fleet(model, kernel)
        return partial(FleetExamination, fleet), fleet.members[0], False
    claim: AnyClaim
    if model.exists(campaign.FILE):
        from coremargin.verify.active.folder import read_campaign_claim

        claim = read_campaign_claim(model)
    else:
        claim = claim_of(read_model_files(model), kernel, structure)
    return partial(ModelExamination, claim), claim, kind_named(claim.problem).frozen
