"""A version is trained: from the newest one where that can be, and added when it is whole."""

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
from coremargin.formats.open_folder import previous_of
from coremargin.formats.versions import WORK
from coremargin.learn.retrain import prepared, retrain_job_of
from coremargin.learn.train import train_job
from coremargin.models.executor import executor_of
from coremargin.models.files import MODEL
from coremargin.problems.registry import write_report
from coremargin.registry.add_version import add
from coremargin.spec import Size

if TYPE_CHECKING:
    from coremargin.learn.retrain import Retraining
    from coremargin.learn.train import Begin
    from coremargin.problems.job import TrainJob
    from coremargin.registry.nightly import NightlyJob
    from coremargin.registry.registry import Registry

log = logging.getLogger(__name__)

#: Parameters of a training that a retraining may have others of.
_FREE = ("epsilon", "memory", "keep_for_retraining", "block", "max_scans", "time_limit")


def train_version(job: NightlyJob, registry: Registry, newest: int | None) -> tuple[int, dict[str, Any]]:
    """Train on what the store holds now; the number of the version that came of it, and how it went.

    A run that was killed is gone on with, unless rows have come since, or the job is another. What cannot be used of
    it costs the time to train again, and nothing else. Raises StoreError (the store was rewritten), and as
    ``train_job``.
    """
    out = usable_work(registry.path / WORK) / "model"
    source = Store.open(job.store)
    begin: Begin = "resume" if identity_then(out).get("store") in (None, source.digest) else "restart"
    wanted = job.training(out)
    if wanted.keep_for_retraining is None:  # the next run retrains, so that it may take some time now
        wanted = replace(wanted, keep_for_retraining=Size(KEPT_BYTES))
    begun = None if newest is None else _onward(job, registry, newest, wanted, begin)
    with executor_of(source, job.cluster) as executor:
        report = partial(write_report, name=f"{registry.path.name}@{(newest or 0) + 1}")
        asked = wanted if begun is None else begun.job
        train = partial(train_job, asked, source, executor, overwrite=True, report=report, beginning=begun)
        try:
            done = train(begin=begin)
        except CheckpointError:  # of another job, or of another coremargin: nobody is there to say so
            done = train(begin="restart")
        except CoremarginError:
            raise
        except Exception:
            if begin != "resume" or not identity_then(out):
                raise
            log.warning("%s: cannot be gone on with; the training begins again", folder_of(out), exc_info=True)
            done = train(begin="restart")
    number = add(registry, out, job.store)
    with suppress(OSError):  # the version is there; the next run deals with what is left
        MODEL.remove(out)
    return number, done.run


def usable_work(work: Path) -> Path:
    """The folder in which versions are trained, without anything that would stop a training.

    A whole model and a checkpoint stay. What a killed run has half removed is removed; whatever else is in the way,
    such as a file where a folder belongs, is renamed to a name of its own beside the folder. Raises OutputError.
    """
    with output_errors(work):
        if os.path.lexists(work) and not work.is_dir():
            move_aside(work)
        work.mkdir(exist_ok=True)
        try:
            make_writable(work)
            _clear(work / "model")
        except OSError:
            move_aside(work)
            work.mkdir()
    return work


def _clear(model: Path) -> None:
    """Let nothing be in the way of a model and of what is written beside it. Raises OSError."""
    checkpoint = model.with_name(f".{model.name}.checkpoint")  # ``folder_of``, were the model a link
    for path, kind, whole in (
        (model, MODEL, True),
        (previous_of(model), MODEL, True),
        (aside_of(model), MODEL, False),
        (checkpoint, CHECKPOINT, False),
    ):
        if os.path.lexists(path):
            if stat.S_ISDIR(path.lstat().st_mode):
                make_writable(path)
                if not kind.foreign_files(path, whole=whole):
                    continue
            kind.make_way(path)
    lock = model.with_name(f".{model.name}.lock")
    if os.path.lexists(lock) and not (stat.S_ISREG(lock.lstat().st_mode) and lock.lstat().st_size == 0):
        move_aside(lock)


def _onward(job: NightlyJob, registry: Registry, newest: int, wanted: TrainJob, begin: Begin) -> Retraining | None:
    """How to go on from the newest version; None where the parameters are others, or the store is and may be."""
    if not job.is_asked_of(registry.record(newest), epsilon=False):
        return None
    given = {name: job.train[name] for name in _FREE if name in job.train}
    asked = retrain_job_of(
        {"model": registry.folder(newest), "store": job.store, "out": wanted.out, "cluster": job.cluster, **given},
        where="nightly job",
    )
    try:
        return prepared(asked, begin)
    except StoreError:
        if job.rewritten == "train":
            return None
        raise
