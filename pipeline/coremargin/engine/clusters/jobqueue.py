"""PBS, LSF and HTCondor: workers as jobs that dask-jobqueue writes, each by itself.

Its classes write the script. These things of 0.9.0 are done differently here:

- A command runs with a time limit, in a session that no Ctrl-C reaches. The script goes to its standard input: in a
  file of /tmp everybody could read the environment that it sets, which may hold secrets.
- The id of a job is parsed from the batch system's output, exactly once; theirs is the first digits of any text.
- Workers have no names: a job that the batch system starts again would be rejected while the scheduler still knows the
  worker of its first start by the same name.
- The job of a worker that left is not cancelled: dask-jobqueue cancels a job with one worker 15 seconds later, though
  the batch system, or the nanny, may just be starting it again.
- Ctrl-C means what it meant before the import, which sets a handler.
- A submission that is refused is an error of the run, with the command's message; dask-jobqueue logs it, and the driver
  waits. No job stays in the queue unnoticed: all are cancelled by one command, and one that gets its id later by
  another, without the lock of Dask's cluster, which is held until the last submission has ended.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from distributed.core import Status

from coremargin.engine.clusters.connection import security
from coremargin.engine.clusters.processes import (
    ANSWER_S,
    cancel_jobs,
    parse_job_id,
    require_commands,
    run_command,
    uninterrupted,
)
from coremargin.engine.clusters.specs import HtCondor, JobQueue, Lsf, Pbs
from coremargin.engine.clusters.worker_command import (
    PLACEHOLDER,
    clock,
    exports,
    mebibytes,
    options_with_values,
    preparation,
)
from coremargin.errors import RunError, UsageError
from coremargin.interruption import deferred_interrupts

log = logging.getLogger(__name__)

_SHOWN = 3  # ids of jobs in a description
_LATE_S = 5.0  # for a cancel command: then the ids are logged, in case this process is ended before it answers


def job_script(batch: JobQueue) -> str:
    """The text that is submitted for each job."""
    job = cluster_class(batch).job_cls
    return str(job(PLACEHOLDER, name=batch.name, **options(batch)).job_script())


def cluster_class(batch: JobQueue) -> Any:
    """The class of dask-jobqueue for the jobs of a cluster file, changed as above."""
    return _CLASSES[type(batch)]


def options(batch: JobQueue) -> dict[str, Any]:
    """Keyword arguments for that class, and for its jobs."""
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
        "job_extra_directives": ["-r y", "-j oe", *options_with_values(("-o ", batch.logs)), *batch.directives],
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
            *options_with_values(("-o ", batch.logs and batch.logs / "%J.out")),
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
        "disk": 1,  # required by dask-jobqueue, and skipped below
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
    """Changes of a job of dask-jobqueue: ``Jobs`` submits and cancels it."""

    name: str
    submit_command: str
    cancel_command: str
    job_id_regexp: str
    standard_input: tuple[str, ...] = ()  #: arguments that let the submit command read standard input
    status: Any
    _command_template: str

    def __init__(self, *arguments: Any, on_start: Callable[[Job], None] | None = None, **options: Any) -> None:
        """on_start: submits it; called in a thread of its own."""
        self._on_start = on_start
        super().__init__(*arguments, **options)
        self._command_template = self._command_template.replace(f" --name {self.name} ", " ", 1)

    async def start(self) -> None:
        """Submit it."""
        if self._on_start is not None:
            await asyncio.to_thread(self._on_start, self)
        self.status = Status.running  # also if it was not submitted: it is closed like the others

    async def close(self) -> None:
        """Do nothing: one command cancels all jobs, and the end of a worker cancels none."""
        self.status = Status.closed

    def submit(self) -> str:
        """Submit it; returns its id. Raises RunError, with the batch system's message, if it is refused."""
        job: Any = self
        command = shlex.split(self.submit_command)
        try:
            script = job.job_script()
        except (OSError, ValueError) as error:  # from dask-jobqueue, and the files it reads
            raise RunError(f"a job could not be submitted: {' '.join(str(error).split())}") from error
        output = run_command([*command, *self.standard_input], script, job.job_name)
        return parse_job_id(output, self.job_id_regexp, command[0], str(job.job_name))["job_id"]


class _Cluster:
    """Changes of a cluster of dask-jobqueue."""

    def _new_worker_name(self, worker_number: int) -> str:
        """A name that no earlier job had, so that ``Jobs`` can tell them apart."""
        return f"{self._name}-{next(_NUMBERS)}"  # type: ignore[attr-defined]


def _import_clusters() -> tuple[Any, Any, Any]:
    """PBS, LSF, HTCondor. Importing them (0.9.0) replaces the handler of Ctrl-C by one that exits with status 0."""
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


def _derived(kind: Any, **attributes: Any) -> Any:
    job = type(f"Our{kind.job_cls.__name__}", (Job, kind.job_cls), attributes)
    return type(f"Our{kind.__name__}", (_Cluster, kind), {"job_cls": job})


def _derived_all() -> dict[type[JobQueue], Any]:
    pbs, lsf, condor = _import_clusters()
    return {
        # one word on its own line, with the server's name: else qdel would ask the default server
        Pbs: _derived(pbs, job_id_regexp=r"^(?P<job_id>\d+(?:\.\S+)?)\s*$"),
        Lsf: _derived(lsf, job_id_regexp=r"Job <(?P<job_id>\d+)> is submitted"),
        HtCondor: _derived(condor, job_id_regexp=r"submitted to cluster (?P<job_id>\d+)", standard_input=("-",)),
    }


_NUMBERS = itertools.count()
_CLASSES = _derived_all()


class Jobs:
    """The jobs of one cluster: submitted, cancelled, and submitted again when they have ended."""

    def __init__(self, batch: JobQueue) -> None:
        self._batch = batch
        self._cluster: Any = None
        self._shown: list[str] = []
        self._changed = threading.Condition()  # guards all below
        self._wanted: frozenset[str] = frozenset()  # jobs to submit, by the names of Dask's cluster
        self._results: dict[str, str | RunError] = {}  # of these: the id, or why there is none
        self._submitting = 0  # submissions that have begun, and have not ended
        self._ids: list[str] = []  # of all jobs that may be in the queue
        self._cancel_command: list[str] = []

    def start_options(self, **scheduler: Any) -> dict[str, Any]:
        """Arguments of the cluster's class; scheduler: options of its scheduler."""
        kind = cluster_class(self._batch)
        require_commands(kind.job_cls.submit_command, kind.job_cls.cancel_command)
        return {
            "kind": kind,
            "name": self._batch.name,
            "on_start": self.submit_job,
            "scheduler_options": scheduler,
            **options(self._batch),
        }

    @property
    def description(self) -> str:
        """Jobs and size, for messages."""
        batch = self._batch
        shown = ", ".join(self._shown[:_SHOWN]) + (", ..." if len(self._shown) > _SHOWN else "")
        return f"{type(batch).__name__} job {shown}; {batch.jobs} x {batch.threads} threads"

    def submit(self, cluster: Any) -> str:
        """Submit the jobs of a cluster that has none; returns a message. Raises RunError if one is refused.

        After a Ctrl-C the submissions that have not begun are skipped; ``cancel`` waits for the others.
        """
        self._cluster = cluster
        if refused := self._submit():
            raise refused[0]
        log.info("submitted %s", self.description)
        return f"submitted {self.description}"

    def resubmit(self) -> str:
        """Submit the jobs again when no worker is left: their walltime is over, or they were cancelled.

        Raises RunError if the queue accepts none of them.
        """
        try:
            self.cancel()  # those that are still in the queue
        except RunError as error:
            log.warning("%s", error)  # tried once more on closing
        self._cluster.scale(0)
        refused = self._submit()
        if refused and not self._shown:
            raise refused[0]
        if refused:
            log.warning("%d of %d jobs were refused: %s", len(refused), self._batch.jobs, refused[0])
        log.info("submitted %s", self.description)
        return f"submitted {self.description}"

    def _submit(self) -> list[RunError]:
        """Submit the jobs; returns the errors of those that were refused."""
        try:
            with self._changed:
                self._cluster.scale(jobs=self._batch.jobs)  # a thread of its own does it
                self._wanted, self._results = frozenset(self._cluster.worker_spec), {}
                while len(self._results) < len(self._wanted):
                    if not self._changed.wait(2 * ANSWER_S):
                        raise RunError("dask-jobqueue did not report on a job that it had to submit; see its log")
                results = list(self._results.values())
        except BaseException:
            self._submit_no_more()
            raise
        self._shown = [result for result in results if isinstance(result, str)]
        return [result for result in results if isinstance(result, RunError)]

    def _submit_no_more(self) -> None:
        with self._changed:
            self._wanted = frozenset()

    def submit_job(self, job: Job) -> None:
        """Submit a job, if it is still wanted; called by Dask's cluster, in a few threads at a time."""
        with self._changed:
            if job.name not in self._wanted:
                return
            self._cancel_command = shlex.split(job.cancel_command)
            self._submitting += 1
        result: str | RunError = RunError("a job could not be submitted; see the log")
        try:
            result = job.submit()
        except RunError as error:
            result = error
        finally:
            with self._changed:
                self._submitting -= 1
                if isinstance(result, str):
                    self._ids.append(result)
                if job.name in self._wanted:  # else it comes too late, for an earlier submission
                    self._results[job.name] = result
                self._changed.notify_all()

    def cancel(self) -> None:
        """Cancel the jobs, and those that are just being submitted as soon as they have an id.

        Raises RunError, with the ids, for those that may still be in the queue.
        """
        uninterrupted(self._cancel)

    def _cancel(self) -> None:
        self._submit_no_more()
        failed, left = [], list[str]()
        while ids := self._next_ids():
            try:
                cancel_jobs(partial(self._run_cancel, ids), ids)
            except RunError as error:
                failed.append(str(error))
                left += ids
        with self._changed:
            self._ids += left
        if failed:
            raise RunError("; ".join(failed))

    def _next_ids(self) -> list[str]:
        """The ids that are known, once there is one; none if no submission is running."""
        with self._changed:
            self._changed.wait_for(lambda: self._ids or not self._submitting, 2 * ANSWER_S)
            ids, self._ids = self._ids, []
            return ids

    def _run_cancel(self, ids: list[str]) -> None:
        message = ("%s has not answered yet; until it does, these may be in the queue: %s", self._cancel_command[0])
        late = threading.Timer(_LATE_S, log.warning, (*message, ", ".join(ids)))
        late.daemon = True
        late.start()
        try:
            run_command([*self._cancel_command, *ids], "")
        finally:
            late.cancel()
