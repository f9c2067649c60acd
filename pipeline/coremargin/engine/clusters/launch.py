"""Clusters beyond this machine: an existing scheduler, workers as batch jobs, over ssh, or as pods.

For batch systems and ssh the scheduler runs in the driver, so that the driver's end is the workers' end: they leave a
minute after they lost it, whatever killed it. Each kind of cluster has a file: batch.py, jobqueue.py, ssh.py,
kubernetes.py.
"""

from __future__ import annotations

import logging
import shutil
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import dask

from coremargin.engine.cluster_workers import WorkerWait
from coremargin.engine.clusters.batch import JobArray, check_commands
from coremargin.engine.clusters.connection import check_files, connect_client, security
from coremargin.engine.clusters.existing import attach, connect_gateway
from coremargin.engine.clusters.kubernetes import start_pods
from coremargin.engine.clusters.local_cluster import DRIVER_BYTES, FILES, Start, settings
from coremargin.engine.clusters.processes import log_failure
from coremargin.engine.clusters.specs import GATEWAY, Address, Batch, JobQueue, Kubernetes, Network, Remote, Ssh
from coremargin.engine.clusters.ssh import SshHosts
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.resources import need_files, need_memory
from coremargin.errors import RunError, UsageError
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from distributed import Client

    from coremargin.data.source import Source
    from coremargin.engine.cluster_workers import Restart
    from coremargin.engine.clusters.jobqueue import Jobs
    from coremargin.engine.clusters.processes import BackgroundProcess
    from coremargin.engine.clusters.specs import ClusterSpec

log = logging.getLogger(__name__)

_CHECK_S = 0.5  # between two checks of the processes that were started

# Files of the driver, measured, with some room to spare: for an ssh or a job, and for each of its workers.
_PLACE_FILES, _WORKER_FILES = 2, 7
_SCHEDULER = "the scheduler in this process"


def start(cluster: ClusterSpec, source: Source | None = None) -> DaskExecutor:
    """An executor with at least one worker. RunError if none came in time, UsageError if a command is missing.

    source: the rows to scan; the workers of an existing scheduler are checked for access to them.
    """
    if isinstance(cluster, Network):
        check_files(cluster)
    if isinstance(cluster, Address):
        return _existing(cluster, source)
    with ExitStack() as stack:
        processes: list[BackgroundProcess] = []
        restart: Restart | None = None
        if isinstance(cluster, JobQueue):
            client, jobs = _job_queue(cluster, stack)
            what, restart = f"Dask, {jobs.description}", jobs.resubmit
        elif isinstance(cluster, Batch):
            client, array = _batch(cluster, stack)
            what, restart = f"Dask, {array.description}", array.resubmit
        elif isinstance(cluster, Ssh):
            client, hosts = _ssh(cluster, stack)
            what, processes, restart = f"Dask over ssh on {len(cluster.hosts)} hosts", hosts.processes, hosts.restart
        elif isinstance(cluster, Kubernetes):
            client, forward, name = start_pods(cluster, stack)
            what, processes = f"Dask on Kubernetes, {cluster.namespace}/{name}", [forward]
        else:
            raise UsageError(f"not a remote cluster: {cluster!r}")
        _wait_for_worker(client, cluster, what, processes)
        wait = WorkerWait(cluster.start_timeout, restart)
        return DaskExecutor(client, description=what, wait=wait, on_close=stack.pop_all().close)


def _existing(cluster: Address, source: Source | None) -> DaskExecutor:
    with ExitStack() as stack:
        if cluster.address.startswith(GATEWAY):
            client, close = connect_gateway(cluster.address)
        else:
            client = connect_client(cluster.address, cluster)
            close = client.close
        stack.callback(close)
        what, wait_s = f"Dask at {cluster.address}", cluster.start_timeout
        executor = attach(client, source, wait_s=wait_s, description=what, on_close=close)
        stack.pop_all()  # from now on the executor closes it
        return executor


def _host(cluster: Remote, places: int) -> str:
    """The address on which workers on so many hosts, or in so many jobs, find a scheduler in this process."""
    need_files(FILES + places * (_PLACE_FILES + cluster.workers * _WORKER_FILES), _SCHEDULER)
    need_memory(DRIVER_BYTES, _SCHEDULER)
    host = cluster.host or socket.gethostbyname(socket.gethostname())
    if cluster.host is None and host.startswith("127."):
        log.warning("this host's name means %s, which other hosts cannot reach; give host = ADDRESS", host)
    return host


def _start(cluster: Remote, **options: Any) -> tuple[Start, Any, Client]:
    """A cluster without workers, whose scheduler is in this process, its client, and the start that closes both."""
    with dask.config.set(settings(60.0)):
        instead = "see that host and port of the cluster file are free here"
        start = Start(_SCHEDULER, instead, silence_logs=logging.CRITICAL, **options)
        return start, *start.wait(cluster.start_timeout)


def _own_scheduler(cluster: Remote, places: int, stack: ExitStack) -> tuple[Client, str]:
    """A scheduler in this process, for workers on so many hosts or in so many jobs, and its address."""
    start, scheduler, client = _start(
        cluster,
        n_workers=0,
        host=_host(cluster, places),
        scheduler_port=cluster.port,
        protocol="tls" if cluster.tls else "tcp",
        security=security(cluster),
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
    )
    stack.callback(start.close)
    return client, str(scheduler.scheduler_address)


def _job_queue(cluster: JobQueue, stack: ExitStack) -> tuple[Client, Jobs]:
    # only here: it is an extra
    from coremargin.engine.clusters.jobqueue import Jobs

    jobs = Jobs(cluster)
    scheduler = {"host": _host(cluster, cluster.jobs), "port": cluster.port, "dashboard": False}
    start, dask_cluster, client = _start(cluster, **jobs.start_options(dashboard_address="127.0.0.1:0", **scheduler))
    stack.callback(start.close)
    stack.callback(log_failure(jobs.cancel))
    jobs.submit(dask_cluster)
    return client, jobs


def _batch(cluster: Batch, stack: ExitStack) -> tuple[Client, JobArray]:
    check_commands(cluster)
    client, address = _own_scheduler(cluster, cluster.jobs, stack)
    array = JobArray(cluster, address)
    stack.callback(log_failure(array.cancel))
    array.submit()
    return client, array


def _ssh(cluster: Ssh, stack: ExitStack) -> tuple[Client, SshHosts]:
    if shutil.which("ssh") is None:
        raise UsageError("the command 'ssh' is not on this host")
    client, address = _own_scheduler(cluster, len(cluster.hosts), stack)
    hosts = SshHosts(cluster, address)
    stack.callback(hosts.stop)
    hosts.start()
    # asks the remote workers to leave, before their ssh is stopped
    stack.callback(log_failure(lambda: client.retire_workers(close_workers=True)))
    return client, hosts


def _wait_for_worker(client: Client, network: Network, what: str, processes: list[BackgroundProcess]) -> None:
    """Wait for the first worker. Processes that end are logged at once; if none is left, no worker will come."""
    deadline, gone = time.monotonic() + network.start_timeout, dict[int, str]()
    while True:
        try:
            client.wait_for_workers(1, timeout=min(_CHECK_S, max(0.01, deadline - time.monotonic())))
            return
        except TimeoutError:
            pass
        for k, process in enumerate(processes):
            if k not in gone and (end := process.exit_message()) is not None:
                gone[k] = end
                log.warning("%s", end)
        if processes and len(gone) == len(processes):
            raise RunError(f"{what}: no worker: {_few(gone)}; see that the command runs by hand")
        if time.monotonic() > deadline:
            ended = f" ({_few(gone)})" if gone else ""
            raise RunError(
                f"{what}: no worker within {format_seconds(network.start_timeout)}{ended}; "
                f"look at the queue and at the output of the jobs, or raise start_timeout"
            )


def _few(gone: dict[int, str]) -> str:
    more = f"; and {len(gone) - 3} more" if len(gone) > 3 else ""
    return "; ".join(list(gone.values())[:3]) + more
