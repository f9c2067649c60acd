"""Train a version: from the newest version if possible, else from scratch; then add it to the registry."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coremargin.data.files import aside_of, output_errors
from coremargin.data.owned import make_writable, move_aside
from coremargin.data.store import Store
from coremargin.engine.allowance import KEPT_BYTES
from coremargin.engine.checkpoint import CHECKPOINT, folder_of, identity_then
from coremargin.errors import CheckpointError, CoremarginError, StoreError
from coremargin.formats.location import last_name
from coremargin.formats.open_folder import previous_of
from coremargin.learn.retrain import CHANGEABLE, prepare_retraining, retrain_job_of
from coremargin.learn.train import train_job
from coremargin.models.executor import executor_of
from coremargin.models.files import MODEL
from coremargin.problems.registry import write_report
from coremargin.registry.add_version import add
from coremargin.spec import Size

if TYPE_CHECKING:
    from coremargin.engine.checkpoint import Begin
    from coremargin.learn.retrain import Retraining
    from coremargin.problems.job import TrainJob
    from coremargin.registry.nightly import NightlyJob
    from coremargin.registry.registry import Registry

log = logging.getLogger(__name__)


def train_version(job: NightlyJob, registry: Registry, newest: int | None) -> tuple[int, dict[str, Any]]:
    """Train on the newest commit; returns the number of the version and its ``run.json``.

    Resumes a killed run, unless the rows or the job have changed; a checkpoint that cannot be used is discarded. Raises
    StoreError (the store was rewritten), and as ``train_job``.
    """
    out = prepare_work_folder(job.work_folder) / "model"
    source = Store.open(job.store)
    begin: Begin = "resume" if identity_then(out).get("store") in (None, source.digest) else "restart"
    new_job = job.train_job(out)
    if new_job.keep_for_retraining is None:  # the next run retrains from it
        new_job = replace(new_job, keep_for_retraining=Size(KEPT_BYTES))
    retraining = None if newest is None else _prepare_retraining(job, registry, newest, new_job, begin)
    with executor_of(source, job.cluster) as executor:
        report = partial(write_report, name=f"{last_name(registry.path)}@{(newest or 0) + 1}")
        spec = new_job if retraining is None else retraining.job
        train = partial(train_job, spec, source, executor, overwrite=True, report=report, retraining=retraining)
        try:
            done = train(begin=begin)
        except CheckpointError:  # of another job, or of another version of coremargin
            done = train(begin="restart")
        except CoremarginError:
            raise
        except Exception:
            if begin != "resume" or not identity_then(out):
                raise
            log.warning("%s: cannot be resumed; training restarts", folder_of(out), exc_info=True)
            done = train(begin="restart")
    number = add(registry, out, job.store)
    with suppress(OSError):  # the version is complete; the next run replaces what is left
        MODEL.remove(out)
    return number, done.run


def prepare_work_folder(work: Path) -> Path:
    """Prepare the folder in which versions are trained.

    A complete model and a checkpoint stay. What a killed run has left half removed is removed; anything else in the
    way, such as a file in place of the folder, is renamed. Raises OutputError.
    """
    with output_errors(work):
        if os.path.lexists(work) and not work.is_dir():
            move_aside(work)
        work.mkdir(parents=True, exist_ok=True)
        try:
            make_writable(work)
            _clear(work / "model")
        except OSError:
            move_aside(work)
            work.mkdir()
    return work


def _clear(model: Path) -> None:
    """Make way for a model, its checkpoint and its lock. Raises OSError."""
    checkpoint = model.with_name(f".{model.name}.checkpoint")  # not ``folder_of``, which follows links
    for path, kind, complete in (
        (model, MODEL, True),
        (previous_of(model), MODEL, True),
        (aside_of(model), MODEL, False),
        (checkpoint, CHECKPOINT, False),
    ):
        if os.path.lexists(path):
            if stat.S_ISDIR(path.lstat().st_mode):
                make_writable(path)
                if not kind.foreign_files(path, whole=complete):
                    continue
            kind.make_way(path)
    lock = model.with_name(f".{model.name}.lock")
    if os.path.lexists(lock) and not (stat.S_ISREG(lock.lstat().st_mode) and lock.lstat().st_size == 0):
        move_aside(lock)


def _prepare_retraining(
    job: NightlyJob, registry: Registry, newest: int, new_job: TrainJob, begin: Begin
) -> Retraining | None:
    """Retraining of the newest version; None if the job has other parameters, or the store was rewritten."""
    if not job.has_parameters_of(registry.record(newest), epsilon=False):
        return None
    changes = {name: job.train[name] for name in CHANGEABLE if name in job.train}
    spec = retrain_job_of(
        {"model": registry.folder(newest), "store": job.store, "out": new_job.out, "cluster": job.cluster, **changes},
        where="nightly job",
    )
    try:
        return prepare_retraining(spec, begin)
    except StoreError:
        if job.rewritten == "train":
            return None
        raise
