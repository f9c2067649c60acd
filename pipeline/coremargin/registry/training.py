"""A version is trained: from the newest one where that can be, and added when it is whole."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from coremargin import spec as specs
from coremargin.data.store import Store
from coremargin.engine.checkpoint import identity_then
from coremargin.errors import SpecError, StoreError
from coremargin.formats.versions import WORK
from coremargin.learn.retrain import prepared, retrain_job_of
from coremargin.learn.train import train_job
from coremargin.models.executor import executor_of
from coremargin.models.files import MODEL
from coremargin.problems.registry import job_of
from coremargin.problems.report import write_report
from coremargin.registry.adding import add

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.learn.retrain import Retraining
    from coremargin.learn.train import Begin
    from coremargin.problems.job import TrainJob
    from coremargin.registry.nightly import NightlyJob
    from coremargin.registry.registry import Registry

#: Parameters of a training that a retraining may have others of.
_FREE = ("epsilon", "memory", "block", "max_scans", "time_limit")


def train_version(job: NightlyJob, registry: Registry, newest: int | None) -> tuple[int, dict[str, Any]]:
    """Train on what the store holds now; the number of the version that came of it, and how it went.

    A run that was killed is gone on with, unless rows have come since. Raises StoreError (the store was rewritten),
    and as ``train_job``.
    """
    out = registry.path / WORK / "model"
    source = Store.open(job.store)
    begin: Begin = "resume" if identity_then(out).get("store") in (None, source.digest) else "restart"
    wanted = job.training(out)
    begun = None if newest is None else _onward(job, registry, newest, wanted, begin)
    with executor_of(source, job.cluster) as executor:
        done = train_job(
            wanted if begun is None else begun.job, source, executor, begin=begin, overwrite=True,
            report=partial(write_report, name=f"{registry.path.name}@{(newest or 0) + 1}"), beginning=begun,
        )  # fmt: skip
    number = add(registry, out, job.store)
    MODEL.remove(out)
    return number, done.run


def _onward(job: NightlyJob, registry: Registry, newest: int, wanted: TrainJob, begin: Begin) -> Retraining | None:
    """How to go on from the newest version; None where the parameters are others, or the store is and may be."""
    if job.train and not _same(wanted, registry.record(newest).job, registry.path):
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


def _same(wanted: TrainJob, then: str, place: Path) -> bool:
    """Whether a training asks for what an earlier one did, its precision and its limits aside."""
    try:
        before = job_of(specs.parse_toml(then, where=str(place)), where=str(place))
    except SpecError:
        return False
    parameters = [{k: v for k, v in one.parameters().items() if k not in _FREE} for one in (wanted, before)]
    return type(wanted) is type(before) and parameters[0] == parameters[1]
