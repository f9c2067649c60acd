"""Workers as jobs that dask-jobqueue submits: those of PBS, LSF and HTCondor, each by itself.

Its classes write the script and keep the list of jobs; what is said here is what they have to be told. Of 0.9.0 these
things are done otherwise:

- A submission that is refused is an error of the run, with the words of the command; theirs is logged, and the driver
  waits. So is a job that cannot be cancelled told; theirs says nothing.
- Commands are run by ``answer_of``, with its limits, in a session that no Ctrl-C reaches. LSF's script goes to the
  standard input of ``bsub`` without a shell that throws its errors away.
- No name of a worker comes twice: ``SpecCluster`` ends the job whose worker left 15 seconds ago by its name, which
  could be the next one's.
- Ctrl-C means what it meant before the import, which sets a handler.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import shlex
import signal
import sys
import time
from queue import Empty, SimpleQueue
from typing import Any

from distributed.core import Status

from coremargin.engine.clusters.scripts import PLACEHOLDER, clock, given, preparation
from coremargin.engine.clusters.specs import HtCondor, JobQueue, Lsf, Pbs
from coremargin.engine.clusters.started import ANSWER_S, answer_of, need_commands
from coremargin.engine.interruption import deferred_interrupts
from coremargin.errors import RunError, UsageError
from coremargin.spec import format_seconds

log = logging.getLogger(__name__)

_GLANCE_S = 0.05  # between two looks at the list of jobs
_SHOWN = 3  # numbers of jobs in a description


def text(batch: JobQueue) -> str:
    """What is submitted for the first job; the others' has another ``--name``."""
    job = _CLASSES[type(batch)].job_cls
    return str(job(PLACEHOLDER, name=f"{batch.name}-0", **options(batch)).job_script())


def options(batch: JobQueue) -> dict[str, Any]:
    """Keywords of dask-jobqueue for the jobs of a cluster file."""
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
        **_PARTICULAR[type(batch)](batch),
    }


def _pbs(batch: JobQueue) -> dict[str, Any]:
    return {
        "shebang": "#!/bin/sh",
        "queue": batch.queue,
        "account": batch.account,
        "walltime": clock(batch.walltime),
        "job_extra_directives": ["-r y", "-j oe", *given(("-o ", batch.logs)), *batch.directives],
    }


def _lsf(batch: JobQueue) -> dict[str, Any]:
    return {
        "shebang": "#!/bin/sh",
        "queue": batch.queue,
        "project": batch.account,
        "walltime": clock(batch.walltime + 59).rpartition(":")[0],  # in minutes, and no fewer
        "use_stdin": True,  # else the text would have to lie where the job runs
        "job_extra_directives": ["-r", *given(("-o ", batch.logs and batch.logs / "%J.out")), *batch.directives],
    }


def _condor(batch: JobQueue) -> dict[str, Any]:
    lines = [line.partition("=") for line in batch.directives]
    stem = f"{batch.logs}/{batch.name}-$(ClusterId)-$(ProcId)"
    named = {"accounting_group": batch.account, "requirements": batch.queue}
    return {
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


class Jobs:
    """The jobs of one cluster: submitted, taken out of the queue, submitted again when they have ended."""

    def __init__(self, batch: JobQueue) -> None:
        self._batch = batch
        self._answers: SimpleQueue[str | RunError] = SimpleQueue()  # a number or an error for each submission
        self._numbers: list[str] = []
        self._cluster: Any = None
        self._ended = False

    def start_options(self, **scheduler: Any) -> dict[str, Any]:
        """What the cluster's class needs, with a scheduler of these options."""
        kind = _CLASSES[type(self._batch)]
        need_commands(kind.job_cls.submit_command, kind.job_cls.cancel_command)
        return {
            "kind": kind,
            "name": self._batch.name,
            "jobs": self,
            "scheduler_options": scheduler,
            **options(self._batch),
        }

    @property
    def description(self) -> str:
        """What runs, for people."""
        batch = self._batch
        shown = ", ".join(self._numbers[:_SHOWN]) + (", ..." if len(self._numbers) > _SHOWN else "")
        return f"{type(batch).__name__} job {shown}; {batch.jobs} x {batch.threads} threads"

    def submit(self, cluster: Any) -> str:
        """Put the jobs into the queue, those of a cluster that has none; what was done. Raises RunError when one is
        refused.

        At a Ctrl-C meanwhile the cluster is to be closed: that waits for the numbers of the jobs and cancels them.
        """
        self._cluster = cluster
        cluster.scale(jobs=self._batch.jobs)
        answers = [self._answer() for _ in range(self._batch.jobs)]
        self._numbers = [answer for answer in answers if isinstance(answer, str)]
        for answer in answers:
            if isinstance(answer, RunError):
                raise answer
        log.info("submitted %s", self.description)
        return f"submitted {self.description}"

    def _answer(self) -> str | RunError:
        try:
            return self._answers.get(timeout=2 * ANSWER_S)
        except Empty:
            raise RunError("dask-jobqueue says nothing of a job that it was to submit; see its log") from None

    def again(self) -> str:
        """Submit them anew, for none of their workers is left: their walltime is over, or somebody cancelled them."""
        self._ended = True
        deadline = time.monotonic() + 2 * ANSWER_S
        self._cluster.scale(0)
        while self._cluster.workers:
            if time.monotonic() > deadline:
                raise RunError(f"{self.description}: not out of the queue after {format_seconds(2 * ANSWER_S)}")
            time.sleep(_GLANCE_S)
        self._ended = False
        return self.submit(self._cluster)

    def answered(self, answer: str | RunError) -> None:
        """A job was submitted, and has a number, or was refused."""
        self._answers.put(answer)

    def not_cancelled(self, error: RunError) -> None:
        """A job that could not be cancelled: most batch systems refuse that for one that has ended."""
        log.log(logging.INFO if self._ended else logging.WARNING, "while closing: %s", error)


class _Job:
    """What a job of dask-jobqueue does otherwise here."""

    def __init__(self, *words: Any, jobs: Jobs | None = None, **its: Any) -> None:
        self._jobs = jobs
        super().__init__(*words, **its)

    async def start(self) -> None:
        """Submit it, and tell what came of it."""
        answer: str | RunError
        try:
            await super().start()  # type: ignore[misc]
            answer = str(self.job_id)  # type: ignore[attr-defined]
        except RunError as error:
            answer = error
        except (OSError, ValueError) as error:  # no file could be written for it; what came back has no number
            answer = RunError(f"a job could not be submitted: {' '.join(str(error).split())}")
        self.status = Status.running  # of a job that is not there, too: it is closed like the others
        if self._jobs is not None:
            self._jobs.answered(answer)

    async def close(self) -> None:
        """Cancel it; a refusal is told, which theirs keeps to itself."""
        if self.job_id is not None:  # type: ignore[attr-defined]
            try:
                await self._call([*shlex.split(self.cancel_command), self.job_id])  # type: ignore[attr-defined]
            except RunError as error:
                if self._jobs is not None:
                    self._jobs.not_cancelled(error)
        self.status = Status.closed

    async def _submit_job(self, script_filename: str) -> str:
        if getattr(self, "use_stdin", False):
            return await self._call(shlex.split(self.submit_command), text=self.job_script())  # type: ignore[attr-defined]
        answer: str = await super()._submit_job(script_filename)  # type: ignore[misc]
        return answer

    @staticmethod
    async def _call(cmd: list[str], *, text: str = "") -> str:
        return await asyncio.to_thread(answer_of, cmd, text)


class _Cluster:
    """What a cluster of dask-jobqueue does otherwise here."""

    def _new_worker_name(self, worker_number: int) -> str:
        return f"{self._name}-{next(_NUMBERS)}"  # type: ignore[attr-defined]


def _theirs() -> tuple[Any, Any, Any]:
    """PBS, LSF, HTCondor. Whoever imports them has another handler for Ctrl-C (0.9.0): one that ends with status 0."""
    with deferred_interrupts():
        found = signal.getsignal(signal.SIGINT)
        try:
            from dask_jobqueue import HTCondorCluster, LSFCluster, PBSCluster
        except ValueError as error:
            raise UsageError(
                "dask-jobqueue is imported in the main thread only, for it sets a signal handler; import dask_jobqueue "
                "there before this"
            ) from error
        if signal.getsignal(signal.SIGINT) is not found:
            signal.signal(signal.SIGINT, found)
    return PBSCluster, LSFCluster, HTCondorCluster


def _derived(kind: Any) -> Any:
    job = type(f"Our{kind.job_cls.__name__}", (_Job, kind.job_cls), {})
    return type(f"Our{kind.__name__}", (_Cluster, kind), {"job_cls": job})


_NUMBERS = itertools.count()
_CLASSES = dict(zip((Pbs, Lsf, HtCondor), map(_derived, _theirs()), strict=True))
