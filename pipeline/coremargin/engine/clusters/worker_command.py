"""The shell lines that start workers on other hosts: pure functions of a spec.

``coremargin plan`` prints what will be submitted; only the scheduler's address is filled in later.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Remote

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


def clock(seconds: float) -> str:
    """HH:MM:SS, for batch systems."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"


def mebibytes(size: int) -> int:
    """Size in MiB, rounded up."""
    return -(-size // 2**20)


def options_with_values(*pairs: tuple[str, object]) -> list[str]:
    """Options with their values, without those that have none."""
    return [f"{option}{value}" for option, value in pairs if value is not None]
