"""Make the executor of a cluster spec, and the text that would be submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from coremargin import spec as specs
from coremargin.engine.clusters.batch import batch_script
from coremargin.engine.clusters.kubernetes import manifest
from coremargin.engine.clusters.specs import (
    Batch,
    ClusterSpec,
    Embedded,
    JobQueue,
    Kubernetes,
    Ssh,
    Threads,
    as_client,
    check,
    load_cluster,
    resolve,
)
from coremargin.engine.clusters.ssh import ssh_script
from coremargin.engine.executors import InProcess

if TYPE_CHECKING:
    import os

    from coremargin.data.source import Source
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Executor


def render(cluster: ClusterSpec) -> str:
    """The text that would be sent to a batch system, to other hosts or to Kubernetes.

    It has ``SCHEDULER`` in place of the scheduler's address, which is known when it runs. It is a pure function of the
    spec, except for PBS, LSF and HTCondor: dask-jobqueue reads its ``jobqueue.yaml`` for options that the spec does not
    set, and ``PBS_ACCOUNT``, and makes the log folder that the file names. Clusters of this machine and existing ones
    get no text: the spec itself, as TOML.
    """
    if isinstance(cluster, JobQueue):
        # only here: it is an extra, and takes a while to import
        from coremargin.engine.clusters import jobqueue

        return jobqueue.job_script(cluster)
    if isinstance(cluster, Batch):
        return batch_script(cluster)
    if isinstance(cluster, Ssh):
        return ssh_script(cluster)
    if isinstance(cluster, Kubernetes):
        return manifest(cluster)
    return specs.dump(cluster)


def executor_at(where: Cluster, source: Source | None = None) -> Executor:
    """The executor of ``cluster`` as Python functions take it: a file, an address, a name, a client, or None.

    source: as for ``connect``. Raises UsageError for anything else, and what ``connect`` raises.
    """
    client = as_client(where)
    if client is None:
        return connect(load_cluster(cast("str | os.PathLike[str] | None", where)), source)
    # only here: distributed takes half a second to import
    from coremargin.engine.clusters.existing import attach

    return attach(client, source)


def connect(cluster: ClusterSpec, source: Source | None = None) -> Executor:
    """The executor that a spec describes, ready to run; a context manager.

    source: the rows to scan; kind "auto" depends on their size, and existing workers are checked for access to them.
    """
    cluster = resolve(check(cluster, "cluster"), source.nbytes if source is not None else 0)
    if isinstance(cluster, Threads):
        return InProcess(cluster.threads or 1)
    if isinstance(cluster, Embedded):
        # only here: distributed takes half a second to import
        from coremargin.engine.clusters.embedded import start_embedded

        return start_embedded(
            workers=cluster.workers or 1,
            threads=cluster.threads or 1,
            processes=cluster.processes,
            dashboard=cluster.dashboard,
            worker_ttl_s=cluster.worker_ttl,
            start_timeout_s=cluster.start_timeout,
        )
    from coremargin.engine.clusters import launch

    return launch.start(cluster, source)
