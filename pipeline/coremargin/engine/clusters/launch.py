"""Clusters beyond this machine: an existing scheduler, workers as batch jobs, over ssh, or as pods.

For batch systems and ssh the scheduler runs in the driver, so that the driver's end is the workers' end: they leave a
minute after they lost it, whatever killed it. The text that is submitted is that of scripts.py and manifest.py.

SLURM and Grid Engine are not left to dask-jobqueue, which has PBS, LSF and HTCondor (jobs.py). Of its SLURMCluster
and SGECluster (0.9.0) a job that was cancelled stayed lost on the real thing, with ``scale`` and with ``adapt``, until
somebody asked for as many once more; an array here is submitted again when none of its workers is left. Nor is ssh left
to distributed's SSHCluster, which ran through asyncssh: of the command ``ssh`` the end and the last words are known at
once, and it is started again. All three of ours run on the real thing in tests/faults: test_batch.py and test_ssh.py.
PBS, LSF and HTCondor ran with stand-ins for their commands only.
"""

from __future__ import annotations

import logging
import shutil
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import dask
from distributed import Client

from coremargin.engine.absence import Absence
from coremargin.engine.clusters import manifest
from coremargin.engine.clusters.batch import Array, check_commands
from coremargin.engine.clusters.hosts import Hosts
from coremargin.engine.clusters.local_cluster import DRIVER_BYTES, FILES, Start, settings
from coremargin.engine.clusters.specs import Address, Batch, JobQueue, Kubernetes, Network, Remote, Ssh
from coremargin.engine.clusters.started import Started, answer_of, undisturbed
from coremargin.engine.clusters.tls import check_files, security
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.quiet import quiet
from coremargin.engine.resources import need_files, need_memory
from coremargin.errors import RunError, UsageError
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.engine.absence import Recruit
    from coremargin.engine.clusters.jobs import Jobs
    from coremargin.engine.clusters.specs import ClusterSpec

log = logging.getLogger(__name__)

_PAUSE_S = 2.0  # before the next attempt to reach a pod
_GLANCE_S = 0.5  # between two looks at what was started

# Files of the driver, measured, with some room to spare: for an ssh or a job, and for each of its workers.
_PLACE_FILES, _WORKER_FILES = 2, 7
_SCHEDULER = "the scheduler in this process"


def start(cluster: ClusterSpec) -> DaskExecutor:
    """An executor with at least one worker; RunError when none came in time, UsageError when a command is missing."""
    if isinstance(cluster, Network):
        check_files(cluster)
    with ExitStack() as stack:
        started: list[Started] = []
        recruit: Recruit | None = None
        if isinstance(cluster, Address):
            client, what = _existing(cluster, stack), f"Dask at {cluster.address}"
        elif isinstance(cluster, JobQueue):
            client, jobs = _job_queue(cluster, stack)
            what, recruit = f"Dask, {jobs.description}", jobs.again
        elif isinstance(cluster, Batch):
            client, array = _batch(cluster, stack)
            what, recruit = f"Dask, {array.description}", array.again
        elif isinstance(cluster, Ssh):
            client, hosts = _ssh(cluster, stack)
            what, started, recruit = f"Dask over ssh on {len(cluster.hosts)} hosts", hosts.processes, hosts.again
        elif isinstance(cluster, Kubernetes):
            client, started = _kubernetes(cluster, stack)
            what = f"Dask on Kubernetes, {cluster.namespace}/{cluster.name}"
        else:
            raise UsageError(f"not a remote cluster: {cluster!r}")
        _wait(client, cluster, what, started)
        absence = Absence(cluster.start_timeout, recruit)
        return DaskExecutor(client, description=what, absence=absence, on_close=stack.pop_all().close)


def _client(stack: ExitStack, address: str, network: Network) -> Client:
    patience_s = min(30.0, network.start_timeout)
    quiet()
    try:
        client = Client(address, security=security(network), set_as_default=False, timeout=patience_s)
    except (OSError, TimeoutError) as error:
        raise RunError(
            f"no Dask scheduler answers at {address} ({error}); see whether it runs and [tls] fits"
        ) from error
    stack.callback(client.close)
    return client


def _existing(cluster: Address, stack: ExitStack) -> Client:
    return _client(stack, cluster.address, cluster)


def _host(cluster: Remote, places: int) -> str:
    """The address on which workers on so many hosts, or in so many jobs, find a scheduler in this process."""
    need_files(FILES + places * (_PLACE_FILES + cluster.workers * _WORKER_FILES), _SCHEDULER)
    need_memory(DRIVER_BYTES, _SCHEDULER)
    host = cluster.host or socket.gethostbyname(socket.gethostname())
    if cluster.host is None and host.startswith("127."):
        log.warning("this host's name means %s, which other hosts cannot reach; give host = ADDRESS", host)
    return host


def _start(cluster: Remote, **options: Any) -> tuple[Start, Any, Client]:
    """A cluster without workers, whose scheduler is in this process, its client, and what takes both down."""
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
    from coremargin.engine.clusters.jobs import Jobs

    jobs = Jobs(cluster)
    scheduler = {"host": _host(cluster, cluster.jobs), "port": cluster.port, "dashboard": False}
    start, its, client = _start(cluster, **jobs.start_options(dashboard_address="127.0.0.1:0", **scheduler))
    stack.callback(start.close)
    stack.callback(_forgive(jobs.cancel))
    jobs.submit(its)
    return client, jobs


def _batch(cluster: Batch, stack: ExitStack) -> tuple[Client, Array]:
    check_commands(cluster)
    client, address = _own_scheduler(cluster, cluster.jobs, stack)
    array = Array(cluster, address)
    stack.callback(_forgive(array.cancel))
    array.submit()
    return client, array


def _forgive(action: Callable[[], object]) -> Callable[[], None]:
    """Run while closing: a failure is logged and does not hide what ended the run."""

    def forgiving() -> None:
        try:
            action()
        except (RunError, OSError) as error:
            log.warning("while closing: %s", error)

    return forgiving


def _ssh(cluster: Ssh, stack: ExitStack) -> tuple[Client, Hosts]:
    if shutil.which("ssh") is None:
        raise UsageError("the command 'ssh' is not on this host")
    client, address = _own_scheduler(cluster, len(cluster.hosts), stack)
    hosts = Hosts(cluster, address)
    stack.callback(hosts.stop)
    hosts.start()
    # asks the remote workers to leave, before their ssh is stopped
    stack.callback(_forgive(lambda: client.retire_workers(close_workers=True)))
    return client, hosts


def _kubernetes(cluster: Kubernetes, stack: ExitStack) -> tuple[Client, list[Started]]:
    if shutil.which("kubectl") is None:
        raise UsageError("the command 'kubectl' is not on this host; it applies the manifest and reaches the scheduler")
    text = manifest.text(cluster)

    def delete() -> None:
        undisturbed(lambda: answer_of(["kubectl", "delete", "--wait=false", "-f", "-"], text))

    def apply() -> None:
        answer_of(["kubectl", "apply", "-f", "-"], text)
        stack.callback(_forgive(delete))

    undisturbed(apply)  # else what a Ctrl-C meets would be applied, and nobody would delete it
    port, process = _forward(cluster, stack)
    try:
        return _client(stack, f"{'tls' if cluster.tls else 'tcp'}://127.0.0.1:{port}", cluster), [process]
    except RunError as error:
        if (end := process.ended()) is not None:
            error.add_note(end)
        raise


def _forward(cluster: Kubernetes, stack: ExitStack) -> tuple[int, Started]:
    """A local port that leads to the scheduler's pod, and what keeps it open; tried until the pod is there."""
    command = ["kubectl", "-n", cluster.namespace, "port-forward", f"service/{cluster.name}-scheduler", ":8786"]
    deadline = time.monotonic() + cluster.start_timeout
    while True:
        process = Started(command, "kubectl port-forward", r"Forwarding from 127\.0\.0\.1:(\d+)")
        with ExitStack() as failed:
            failed.callback(process.stop, 0.0)
            match = process.ready(deadline - time.monotonic())
            if match is not None:
                stack.push(failed.pop_all())
                return int(match[1]), process
        if time.monotonic() + _PAUSE_S > deadline:
            waited = format_seconds(cluster.start_timeout)
            raise RunError(f"the scheduler's pod is not there after {waited}: {process.last_line()}")
        time.sleep(_PAUSE_S)


def _wait(client: Client, network: Network, what: str, started: list[Started]) -> None:
    """Until there is a worker. What was started and has ended is said at once; none comes when nothing is left."""
    deadline, gone = time.monotonic() + network.start_timeout, dict[int, str]()
    while True:
        try:
            client.wait_for_workers(1, timeout=min(_GLANCE_S, max(0.01, deadline - time.monotonic())))
            return
        except TimeoutError:
            pass
        for k, process in enumerate(started):
            if k not in gone and (end := process.ended()) is not None:
                gone[k] = end
                log.warning("%s", end)
        if started and len(gone) == len(started):
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
