"""A training job as a command line says it: the names of options, and the command that goes on with a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import fields, replace

from coremargin.engine.clusters.specs import ADDRESSES
from coremargin.formats.local_path import local_path
from coremargin.spec import Size, Spec
from coremargin.units import exact_size

if TYPE_CHECKING:
    import os

    from coremargin.problems.job import TrainJob

J = TypeVar("J", bound=Spec)  #: a job that may say where to run

#: What is no option, or said apart; and limits, which a run that goes on is to exceed.
_APART = {"model", "store", "out", "max_scans", "time_limit"}


def option_name(name: str, *, turned: bool = False) -> str:
    """``--class-weight`` of ``class_weight``; turned: of a flag that says no to what holds when nothing is said."""
    return f"--{'no-' if turned else ''}{name.replace('_', '-')}"


def resume_words(job: TrainJob) -> list[str]:
    """The command that goes on with a job until it is proven: all that the job says, but the limits that it has met."""
    return ["coremargin", "train", str(job.store), "--out", str(job.out), *option_words(job), "--resume"]


def option_words(job: Spec) -> list[str]:
    """The options of a command line that say what a job does, but where its files lie and the limits of its run."""
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


def placed(job: J, cluster: str | os.PathLike[str] | None) -> J:
    """The job with what was said beside it of where to run, for ``resume_words``.

    An address is not taken up: it is no path, and leads to a scheduler that may be gone by then.
    """
    if cluster is None or str(cluster).startswith(ADDRESSES):
        return job
    path = local_path(cluster)
    return replace(job, cluster=path.absolute() if path.is_file() else path)
