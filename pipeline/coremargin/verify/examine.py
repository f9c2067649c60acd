"""Check a model's certificate against the store, with code of its own.

``verify`` believes nothing that it can check and shares no code with what trains: it reads the model through the
strict readers of formats/, the store with plain zarr-python (rows.py) and does its own sums (sums.py). registry.py
knows the kinds of claims, each a folder beside this:

- hard/: a lower and an upper bound of the margin. Lower bound: one scan over all labelled rows in float64. A fast
  product says y (w.x + b) with an error of at most gamma_(d+4) (||x|| ||w|| + |b|); every row for which that leaves
  open whether its margin reaches the claim, and the lowest row of each chunk, is evaluated again with sums that are
  rounded once. Upper bound: the norm of the combination of coreset rows by the normalised dual weights, each feature
  rounded once. By duality no hypothesis has a larger margin on any data that holds these rows; that they are rows of
  the store is checked bit for bit. No tolerance is added to either.
- outliers/: the rows below the margin are counted by the same scan, and the proof that no others do better is walked
  through, certificate by certificate.
- soft/: the value of the hypothesis and the bound of the dual point, both sums over all rows, in the same scan. Their
  rounding is bounded, and a claim holds only if it holds with it.
- logistic/: the same for the logistic loss, whose dual point follows from the model.
- classes/: both bounds of a hard or soft margin of several classes at once, over pairs of row and rival.
- active/: the margin, or the value, of rows whose labels were asked for, the distance of all others, and honest draws
  among these: of a model by itself, or of a campaign with the log of its answers.
- fleet/: all of this for every member, on the rows and labels that its view shows (view.py), and the tables of the
  fleet, in one scan. A fleet is no kind of claim, but a folder of models of one kind, with a record of its own.

Where rows are scaled, the model's numbers scale each row anew as scaling.py says, all of the above is about rows so
scaled, and the same scan tells whether these numbers are the means, deviations or ranges that they are said to be.
Where rows are mapped, the model's arrays map each scaled row as feature_map.py says, which also proves how far that is
from the exact map; all of the above holds of the exact one, since every bound is made worse by it.
Trainers round their claims outward by more than the rounding that remains here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.errors import ClaimRefuted, UsageError
from coremargin.formats import campaign
from coremargin.formats.fleet_record import FILE
from coremargin.formats.local_path import local_path
from coremargin.formats.model_files import read_model_files
from coremargin.formats.open_folder import read_folder
from coremargin.formats.versions import resolve_model
from coremargin.verify.fleet.inquiry import FleetInquiry, read_fleet
from coremargin.verify.one import OneModel
from coremargin.verify.registry import claim_of, kind_named
from coremargin.verify.rows import Chunk, Rows
from coremargin.verify.sums import quiet

if TYPE_CHECKING:
    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.fleet.outcome import FleetVerification
    from coremargin.verify.inquiry import Inquiry
    from coremargin.verify.outcome import Outcome, Verification

OnProgress = Callable[[int, int], object]


def refutation(result: Outcome) -> ClaimRefuted:
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
    kernel: Callable[..., Any] | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Verification | FleetVerification:
    """As ``coremargin.verify``, but false claims are in the result instead of raised."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected at least 1, got {threads}")
    path = resolve_model(Path(os.path.abspath(local_path(model_path))))
    question, commit, grown = read_folder(path, lambda folder: _question(folder, path, kernel))
    rows = Rows(store_path, commit, grown=grown)
    with quiet():
        inquiry = question(rows)
        if inquiry.comparable:
            _read_all(inquiry, rows, threads, on_progress)
        return inquiry.result()


def _question(
    folder: int, path: Path, kernel: Callable[..., Any] | None
) -> tuple[Callable[[Rows], OneModel | FleetInquiry], str, bool]:
    """What is to be asked of a store about what is in an open folder, a model or many or a campaign's; read first.

    And the digest of the store's commit that it is to be asked of, and whether that holds where rows were appended.
    """
    names = os.listdir(folder)
    if FILE in names:
        fleet = read_fleet(folder, path, kernel)
        return partial(FleetInquiry, fleet), fleet.record.store_digest, False
    claim: AnyClaim
    if campaign.FILE in names:
        from coremargin.verify.active.folder import read_campaign_claim

        claim = read_campaign_claim(folder, path)
    else:
        claim = claim_of(read_model_files(folder, path), kernel)
    return partial(OneModel, claim), claim.store_digest, kind_named(claim.problem).frozen


def _read_all(inquiry: Inquiry, rows: Rows, threads: int | None, on_progress: OnProgress | None) -> None:
    def ask(chunk: Chunk) -> tuple[Any, Any]:
        return inquiry.columns(chunk), inquiry.ask(inquiry.scaled(chunk))

    with closing(rows.scan(ask, threads=threads)) as answers:
        for chunk, (columns, answer) in answers:
            inquiry.add_columns(columns)
            inquiry.add(answer)
            if on_progress is not None:
                on_progress(chunk.start + len(chunk.codes), rows.rows)
