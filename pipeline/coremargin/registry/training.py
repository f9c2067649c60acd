"""A version is trained: from the newest one where that can be, and added when it is whole."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coremargin.data.store import Store
from coremargin.engine.allowance import KEPT_BYTES
from coremargin.engine.checkpoint import identity_then
from coremargin.errors import CheckpointError, StoreError
from coremargin.formats.versions import WORK
from coremargin.learn.retrain import prepared, retrain_job_of
from coremargin.learn.train import train_job
from coremargin.models.executor import executor_of
from coremargin.models.files import MODEL
from coremargin.problems.report import write_report
from coremargin.registry.adding import add
from coremargin.spec import Size

if TYPE_CHECKING:
    from coremargin.learn.retrain import Retraining
    from coremargin.learn.train import Begin
    from coremargin.problems.job import TrainJob
    from coremargin.registry.nightly import NightlyJob
    from coremargin.registry.registry import Registry

#: Parameters of a training that a retraining may have others of.
_FREE = ("epsilon", "memory", "keep_for_retraining", "block", "max_scans", "time_limit")


def train_version(job: NightlyJob, registry: Registry, newest: int | None) -> tuple[int, dict[str, Any]]:
    """Train on what the store holds now; the number of the version that came of it, and how it went.

    A run that was killed is gone on with, unless rows have come since, or the job is another. Raises StoreError (the
    store was rewritten), and as ``train_job``.
    """
    out = registry.path / WORK / "model"
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
    number = add(registry, out, job.store)
    MODEL.remove(out)
    return number, done.run


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
