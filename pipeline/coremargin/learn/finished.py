"""Whether a job has been done already: what the model says that is at its place."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.folder import recover
from coremargin.errors import DataError
from coremargin.formats.run_record import ROUNDS, RUN, read_run
from coremargin.models.files import MODEL
from coremargin.models.registry import load
from coremargin.problems.kind import Outcome
from coremargin.problems.registry import kind_of, kind_of_model

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.checkpoint import Checkpoint
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob


def ended(out: Path) -> bool | None:
    """False for the model of a run that stopped at a limit: resuming may replace it. None: no model can be read."""
    with suppress(DataError):
        return load(out).ended
    return None


def stopped(job: TrainJob, source: Source, checkpoint: Checkpoint) -> bool:
    """Whether the model that is there is what a run of this job left at a limit, if only before its first solve."""
    return ended(job.out) is False and (checkpoint.exists() or answers(job, source, load(job.out)))


def answers(job: TrainJob, source: Source, model: AnyModel) -> bool:
    """Whether a model is about the question of a job."""
    return kind_of(job).is_model_of(job, model) and model.store_digest == source.digest


def finished(job: TrainJob, source: Source) -> Outcome | None:
    """What is at ``job.out``, when it is a whole answer to this very question; None otherwise.

    A job may be killed after its model is in place and before its checkpoint is gone. Raises DataError when it is, but
    does not say how its run went.
    """
    try:
        recover(Path(os.path.realpath(job.out)), MODEL)
        model = load(job.out)
    except (DataError, OSError):
        return None
    if not (answers(job, source, model) and all((job.out / name).is_file() for name in (RUN, ROUNDS))):
        return None
    try:
        run, lines = read_run(job.out, kind_of_model(model).run)
    except DataError:
        if model.ended:
            raise
        return None
    # a run may be over without a proof: a heuristic's answer, or float64 at its end
    over = model.ended or run.get("resumable") is False
    return Outcome(model, run, lines, found=True) if over else None
