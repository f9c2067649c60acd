"""The text that starts workers elsewhere: batch scripts and ssh commands, pure functions of a spec.

What is printed by ``coremargin plan`` is what is submitted; only the scheduler's address is filled in later.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from coremargin.engine.clusters.specs import Batch, Sge, Slurm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.engine.clusters.specs import Remote, Ssh

#: Stands for the scheduler's address until that is known.
PLACEHOLDER = "SCHEDULER"

#: For every worker process, set before it starts; Dask's own defaults would win otherwise. Its low
#: MALLOC_TRIM_THRESHOLD_ maps, faults and unmaps every buffer of a read; BLAS threads oversubscribe the cores.
ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_MMAP_THRESHOLD_": "268435456",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def worker_command(remote: Remote, scheduler: str = PLACEHOLDER) -> str:
    """The shell command that runs the workers of one job or host."""
    command = [
        remote.python or sys.executable,
        *("-m", "distributed.cli.dask_worker", scheduler),
        *("--nworkers", str(remote.workers), "--nthreads", str(remote.threads // remote.workers)),
        # no memory limit of Dask: it would count mapped pages of the store; the batch system limits the job
        *("--memory-limit", "0", "--no-dashboard", "--death-timeout", "60"),
    ]
    if remote.tls is not None:
        tls = remote.tls
        command += ["--tls-ca-file", str(tls.ca), "--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
    return shlex.join(command)


def exports(remote: Remote) -> list[str]:
    """Shell lines that set the environment."""
    return [f"export {name}={shlex.quote(value)}" for name, value in (ENVIRONMENT | remote.environment).items()]


def preparation(remote: Remote) -> list[str]:
    """Shell lines before the worker: environment and setup."""
    return [*exports(remote), *remote.setup]


def body(remote: Remote, scheduler: str = PLACEHOLDER) -> list[str]:
    """Shell lines: environment, setup, worker."""
    return [*preparation(remote), f"exec {worker_command(remote, scheduler)}"]


def batch_script(batch: Batch, scheduler: str = PLACEHOLDER) -> str:
    """The text that ``sbatch`` or the ``qsub`` of Grid Engine reads from its standard input."""
    prefix, lines = _HEADS[type(batch)](batch)
    head = [f"{prefix} {line}" for line in (*lines, *batch.directives)]
    return "\n".join(["#!/bin/sh", *head, "", *body(batch, scheduler), ""])


def ssh_commands(ssh: Ssh, scheduler: str = PLACEHOLDER) -> list[list[str]]:
    """One ssh command, as words, per host."""
    line = "; ".join(body(ssh, scheduler))
    return [["ssh", "-o", "BatchMode=yes", *ssh.options, host, line] for host in ssh.hosts]


def ssh_script(ssh: Ssh) -> str:
    """The ssh commands for people to read."""
    return "".join(shlex.join(command) + "\n" for command in ssh_commands(ssh))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, as batch systems read them."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"


def mebibytes(size: int) -> int:
    """Size in MiB, rounded up."""
    return -(-size // 2**20)


def given(*pairs: tuple[str, object]) -> list[str]:
    """Options with their values, but for those that have none."""
    return [f"{option}{value}" for option, value in pairs if value is not None]


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
        *given(("--partition=", batch.queue), ("--account=", batch.account), ("--output=", logs)),
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
        *given(("-q ", batch.queue), ("-P ", batch.account), ("-o ", batch.logs)),
    ]


_HEADS = {Slurm: _slurm, Sge: _sge}
