"""What dask-jobqueue is told of a cluster file, and what its jobs of PBS, LSF and HTCondor do otherwise here.

Its classes write the script. Of 0.9.0 these things are done otherwise; what a job does is called by jobs.py:

- A command is run by ``answer_of``, with its limits, in a session that no Ctrl-C reaches. The script goes to
  its standard input: in a file of /tmp all could read the environment that it sets, which may hold secrets.
- The number of a job is what its batch system says it is, once; theirs are the first digits of the answer, whatever
  they are.
- Workers have no names: a job that the batch system starts again would be sent away while the scheduler still knows the
  worker of its first start by the same one.
- The job of a worker that left is not cancelled: where jobs have one worker theirs is, 15 seconds later, though the
  batch system, or the nanny, may just start it again.
- Ctrl-C means what it meant before the import, which sets a handler.
"""

from __future__ import annotations

import asyncio
import itertools
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from distributed.core import Status

from coremargin.engine.clusters.scripts import PLACEHOLDER, clock, exports, given, mebibytes, preparation
from coremargin.engine.clusters.specs import HtCondor, JobQueue, Lsf, Pbs
from coremargin.engine.clusters.started import answer_of, number_in
from coremargin.engine.clusters.tls import security
from coremargin.errors import RunError, UsageError
from coremargin.interruption import deferred_interrupts


def text(batch: JobQueue) -> str:
    """What is submitted for each job."""
    job = cluster_class(batch).job_cls
    return str(job(PLACEHOLDER, name=batch.name, **options(batch)).job_script())


def cluster_class(batch: JobQueue) -> Any:
    """The class of dask-jobqueue for the jobs of a cluster file, with what it does otherwise here."""
    return _CLASSES[type(batch)]


def options(batch: JobQueue) -> dict[str, Any]:
    """Keywords for that class, and for its jobs."""
    return {
        "job_name": batch.name,
        "cores": batch.threads,
        "processes": batch.workers,
        "memory": batch.memory,
        # the shell becomes the worker: signals of the batch system reach it
        "python": f"exec {shlex.quote(batch.python or sys.executable)}",
        "job_script_prologue": preparation(batch),
        "death_timeout": 60,
        # the last limit counts; none of Dask's: it would count mapped pages of the store
        "worker_extra_args": ["--memory-limit", "0", "--no-dashboard"],
        **({"security": security(batch), "protocol": "tls://"} if batch.tls else {}),
        **_PARTICULAR[type(batch)](batch),
    }


def _pbs(batch: JobQueue) -> dict[str, Any]:
    return {
        "shebang": "#!/bin/sh",
        "queue": batch.queue,
        "account": batch.account,
        "resource_spec": f"select=1:ncpus={batch.threads}:mem={mebibytes(batch.memory)}mb",
        "walltime": clock(batch.walltime),
        "job_directives_skip": ["\n"],  # in no line; an empty list means those of a jobqueue.yaml, header-skip too
        "job_extra_directives": ["-r y", "-j oe", *given(("-o ", batch.logs)), *batch.directives],
    }


def _lsf(batch: JobQueue) -> dict[str, Any]:
    return {
        "shebang": "#!/bin/sh",
        "queue": batch.queue,
        "project": batch.account,
        "ncpus": batch.threads,
        "walltime": clock(batch.walltime + 59).rpartition(":")[0],  # in minutes, and no fewer
        "mem": batch.memory,
        "lsf_units": "kb",  # else it looks for an lsf.conf
        "job_directives_skip": ["#BSUB -M "],  # without a unit it means what the lsf.conf of the cluster says
        "job_extra_directives": [
            f"-M {mebibytes(batch.memory)}MB",
            "-r",
            *given(("-o ", batch.logs and batch.logs / "%J.out")),
            *batch.directives,
        ],
    }


def _condor(batch: JobQueue) -> dict[str, Any]:
    lines = [line.partition("=") for line in batch.directives]
    stem = f"{batch.logs}/{batch.name}-$(ClusterId)-$(ProcId)"
    named = {"accounting_group": batch.account, "requirements": batch.queue}
    return {
        # they become one line: a comment, or a & at the end, is that of its own part only
        "job_script_prologue": [*exports(batch), *(f"eval {shlex.quote(line)}" for line in batch.setup)],
        "disk": 1,  # it must be said, and is left to HTCondor all the same
        "job_directives_skip": ["RequestDisk", "MY.DaskWorkerDisk"],
        "job_extra_directives": {
            "universe": "vanilla",
            "transfer_executable": "false",
            "batch_name": batch.name,
            "MY.MaxRuntime": round(batch.walltime),
            **{name: value for name, value in named.items() if value is not None},
            **({"output": f"{stem}.out", "error": f"{stem}.err"} if batch.logs else {}),
            **{name.strip(): value.strip() for name, _, value in lines},
        },
    }


_PARTICULAR = {Pbs: _pbs, Lsf: _lsf, HtCondor: _condor}


class Job:
    """What a job of dask-jobqueue does otherwise here: it is ``put`` into the queue, and cancelled, by others."""

    name: str
    submit_command: str
    cancel_command: str
    job_id_regexp: str
    standard_input: tuple[str, ...] = ()  #: what tells the command to read it
    status: Any
    _command_template: str

    def __init__(self, *words: Any, put: Callable[[Job], None] | None = None, **its: Any) -> None:
        """put: submits it, if it is still wanted, and keeps what came of it; runs in a thread of its own."""
        self._put = put
        super().__init__(*words, **its)
        self._command_template = self._command_template.replace(f" --name {self.name} ", " ", 1)

    async def start(self) -> None:
        """Have it submitted."""
        if self._put is not None:
            await asyncio.to_thread(self._put, self)
        self.status = Status.running  # of a job that is not there, too: it is closed like the others

    async def close(self) -> None:
        """Leave it where it is: all jobs are cancelled by one command, and for the end of its worker none is."""
        self.status = Status.closed

    def submit(self) -> str:
        """Put it into the queue; its number. Raises RunError, with what the batch system says, when it is refused."""
        its: Any = self
        command = shlex.split(self.submit_command)
        try:
            script = its.job_script()
        except (OSError, ValueError) as error:  # of dask-jobqueue, and what it reads
            raise RunError(f"a job could not be submitted: {' '.join(str(error).split())}") from error
        answer = answer_of([*command, *self.standard_input], script, its.job_name)
        return number_in(answer, self.job_id_regexp, command[0], str(its.job_name))["job_id"]


class _Cluster:
    """What a cluster of dask-jobqueue does otherwise here."""

    def _new_worker_name(self, worker_number: int) -> str:
        """One that no job had before, for ``put`` to know it by."""
        return f"{self._name}-{next(_NUMBERS)}"  # type: ignore[attr-defined]


def _theirs() -> tuple[Any, Any, Any]:
    """PBS, LSF, HTCondor. Whoever imports them has another handler for Ctrl-C (0.9.0): one that ends with status 0."""
    if "dask_jobqueue" not in sys.modules and threading.current_thread() is not threading.main_thread():
        raise UsageError(
            "dask-jobqueue is imported in the main thread only, for it sets a signal handler; import dask_jobqueue "
            "there before this"
        )
    with deferred_interrupts():
        found = signal.getsignal(signal.SIGINT)
        from dask_jobqueue import HTCondorCluster, LSFCluster, PBSCluster

        if signal.getsignal(signal.SIGINT) is not found:
            signal.signal(signal.SIGINT, found)
    return PBSCluster, LSFCluster, HTCondorCluster


def _derived(kind: Any, **its: Any) -> Any:
    job = type(f"Our{kind.job_cls.__name__}", (Job, kind.job_cls), its)
    return type(f"Our{kind.__name__}", (_Cluster, kind), {"job_cls": job})


def _derived_all() -> dict[type[JobQueue], Any]:
    pbs, lsf, condor = _theirs()
    return {
        # one word of its own line, with the server's name: qdel would ask the default server else
        Pbs: _derived(pbs, job_id_regexp=r"^(?P<job_id>\d+(?:\.\S+)?)\s*$"),
        Lsf: _derived(lsf, job_id_regexp=r"Job <(?P<job_id>\d+)> is submitted"),
        HtCondor: _derived(condor, job_id_regexp=r"submitted to cluster (?P<job_id>\d+)", standard_input=("-",)),
    }


_NUMBERS = itertools.count()
_CLASSES = _derived_all()
