"""A training job as a command line: the names of its options, and the command that resumes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import fields, replace

from coremargin.engine.clusters.specs import ADDRESSES, ClusterChoice, as_client
from coremargin.formats.location import storage_words
from coremargin.spec import Size, Spec
from coremargin.units import exact_size

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.problems.job import TrainJob

J = TypeVar("J", bound=Spec)  #: a job with a ``cluster``

#: Fields that are no options, or come first; and limits, which a resumed run is to exceed.
_APART = {"model", "store", "out", "max_scans", "time_limit"}


def option_name(name: str, *, turned: bool = False) -> str:
    """``--class-weight`` of ``class_weight``; turned: the flag that turns off what is on by default."""
    return f"--{'no-' if turned else ''}{name.replace('_', '-')}"


def resume_words(job: TrainJob) -> list[str]:
    """The command that resumes a job until it is proven: all its options except limits."""
    words = ["coremargin", "train", str(job.store), "--out", str(job.out), *storage_words(job.store, job.out)]
    return [*words, *option_words(job), "--resume"]


def option_words(job: Spec) -> list[str]:
    """The command-line options of a job, without its files and limits."""
    words = list[str]()
    for field in fields(job):
        value = getattr(job, field.name)
        if field.name in _APART or value is None or value == field.default:
            continue
        if isinstance(value, bool):
            words.append(option_name(field.name, turned=not value))
        else:
            words += [option_name(field.name), _text(value)]
    return words


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(exact_size(value) if isinstance(value, Size) else value)


def with_cluster(job: J, cluster: Cluster) -> J:
    """The job with the ``cluster`` that was given apart from it, for ``resume_words``.

    A client and the address of a scheduler are omitted: they may be gone when the job is resumed. Raises UsageError for
    a client that cannot be used.
    """
    if cluster is None or as_client(cluster) is not None or str(cluster).startswith(ADDRESSES):
        return job
    return replace(job, cluster=ClusterChoice.from_text(os.fspath(cast("str | os.PathLike[str]", cluster)), Path.cwd()))
