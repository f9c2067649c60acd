"""SLURM and Grid Engine: workers as one job array, submitted, cancelled, and submitted again when it has ended.

They are not left to dask-jobqueue: with its SLURMCluster and SGECluster (0.9.0) a job that was cancelled stayed lost on
real systems, with ``scale`` and with ``adapt``, until as many were requested once more. The array here is submitted
again when none of its workers is left. tests/faults/test_batch.py runs it on real systems.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from coremargin.engine.clusters.processes import (
    cancel_jobs,
    parse_job_id,
    require_commands,
    run_command,
    uninterrupted,
)
from coremargin.engine.clusters.specs import Batch, Sge, Slurm
from coremargin.engine.clusters.worker_command import PLACEHOLDER, body, clock, mebibytes, options_with_values
from coremargin.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

#: By batch system: the command that reads a script from standard input, the job id in its output, the cancel command.
_COMMANDS: Mapping[type[Batch], tuple[list[str], str, list[str]]] = {
    Slurm: (["sbatch", "--parsable"], r"^(?P<job>\d+)(?:;(?P<cluster>\S+))?\s*$", ["scancel"]),
    Sge: (["qsub", "-terse"], r"^(?P<job>\d+)(?:\.\d+-\d+:\d+)?\s*$", ["qdel"]),
}


def batch_script(batch: Batch, scheduler: str = PLACEHOLDER) -> str:
    """The text that ``sbatch`` or the ``qsub`` of Grid Engine reads from its standard input."""
    prefix, lines = _HEADS[type(batch)](batch)
    head = [f"{prefix} {line}" for line in (*lines, *batch.directives)]
    return "\n".join(["#!/bin/sh", *head, "", *body(batch, scheduler), ""])


def _slurm(batch: Batch) -> tuple[str, Sequence[str]]:
    logs = batch.logs and batch.logs / "%x-%A-%a.out"
    return "#SBATCH", [
        f"--job-name={batch.name}",
        f"--array=1-{batch.jobs}",
        "--ntasks=1",
        f"--cpus-per-task={batch.threads}",
        f"--mem={mebibytes(batch.memory)}M",
        f"--time={clock(batch.walltime)}",
        "--requeue",
        *options_with_values(("--partition=", batch.queue), ("--account=", batch.account), ("--output=", logs)),
    ]


def _sge(batch: Batch) -> tuple[str, Sequence[str]]:
    environment = batch.parallel_environment if isinstance(batch, Sge) else "smp"
    slots = [f"-pe {environment} {batch.threads}"] if batch.threads > 1 else []
    return "#$", [
        f"-N {batch.name}",
        f"-t 1-{batch.jobs}",
        *slots,
        f"-l h_vmem={mebibytes(-(-batch.memory // batch.threads))}M",  # Grid Engine counts per slot
        f"-l h_rt={clock(batch.walltime)}",
        "-S /bin/sh",
        "-cwd",
        "-r y",
        "-j y",
        *options_with_values(("-q ", batch.queue), ("-P ", batch.account), ("-o ", batch.logs)),
    ]


_HEADS = {Slurm: _slurm, Sge: _sge}


class JobArray:
    """One job array at a time, of workers for the scheduler at ``address``."""

    def __init__(self, batch: Batch, address: str) -> None:
        self._batch, self._script = batch, batch_script(batch, address)
        self._job: str | None = None  # the last one
        self._queued: dict[str, list[str]] = {}  # jobs that may be in the queue, and the command that cancels each

    @property
    def description(self) -> str:
        """Job and size, for messages."""
        batch = self._batch
        return f"{type(batch).__name__} job {self._job}, {batch.jobs} x {batch.threads} threads"

    def submit(self) -> str:
        """Submit the array; returns a message. Raises RunError if it is refused.

        A Ctrl-C takes effect once the job's id is known: a job without one could not be cancelled.
        """
        uninterrupted(self._submit)
        log.info("submitted %s", self.description)
        return f"submitted {self.description}"

    def _submit(self) -> None:
        submit, pattern, cancel = _COMMANDS[type(self._batch)]
        found = parse_job_id(run_command(submit, self._script, self._batch.name), pattern, submit[0], self._batch.name)
        job, cluster = found["job"], found.groupdict().get("cluster")  # cluster: of a federated SLURM
        self._job = f"{job};{cluster}" if cluster else job  # as SLURM writes it: each cluster has its own ids
        self._queued[self._job] = [*cancel, *(["-M", cluster] if cluster else []), job]

    def cancel(self) -> None:
        """Cancel the array, and earlier ones that could not be cancelled.

        Raises RunError, with the ids, for those that may still be in the queue.
        """
        uninterrupted(self._cancel)

    def _cancel(self) -> None:
        failed = []
        for job, command in list(self._queued.items()):
            try:
                cancel_jobs(partial(run_command, command, ""), [job])
            except RunError as error:
                failed.append(str(error))
            else:
                del self._queued[job]
        if failed:
            raise RunError("; ".join(failed))

    def resubmit(self) -> str:
        """Submit the array again when no worker is left: their walltime is over, or they were cancelled."""
        try:
            self.cancel()  # parts that are still in the queue
        except RunError as error:
            log.warning("%s", error)  # tried once more on closing
        return self.submit()


def check_commands(batch: Batch) -> None:
    """Raise UsageError if the commands of the batch system are missing."""
    submit, _, cancel = _COMMANDS[type(batch)]
    require_commands(submit[0], cancel[0])
