"""Cluster specs (``cluster/*.toml``), which define where scans run, and the default without one.

::

    kind = "auto"         this process for small stores, the embedded cluster for the rest (the default)
    kind = "threads"      threads of this process
    kind = "embedded"     worker processes of this machine
    kind = "address"      an existing Dask scheduler, or a cluster of Dask Gateway
    kind = "slurm", "pbs", "lsf", "sge", "htcondor"     a scheduler here, workers as batch jobs
    kind = "ssh"          a scheduler here, workers on other hosts
    kind = "kubernetes"   scheduler and workers as pods, through the Dask operator
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, cast

from msgspec import Meta, field

from coremargin import spec as specs
from coremargin.errors import SpecError, UsageError
from coremargin.formats.local_path import local_path
from coremargin.spec import Seconds, SizeWithUnit, Spec

if TYPE_CHECKING:
    from distributed import Client

#: Below this the embedded cluster cannot repay its start and its 3 to 4 ms per block (measured, see cluster/README.md).
SMALL_BYTES = 2 * 2**30
#: One worker process serves this many threads: one set of maps for all, and at most so many blocks lost by one crash.
THREADS_PER_WORKER = 8

GATEWAY = "gateway://"
ADDRESSES = ("tcp://", "tls://", GATEWAY)  #: prefixes of scheduler addresses, which are not files
NAMES = ("auto", "threads", "embedded")  #: clusters that need neither a file nor an address
_OTHER_ADDRESS = re.compile(r"(?!file:)[a-z][a-z0-9+-]+:/", re.IGNORECASE)  # pathlib leaves one slash of two

Count = Annotated[int, Meta(ge=1)]
#: Text that becomes part of one line of a script.
Line = Annotated[str, Meta(pattern=r"\A[^\r\n\0]*\Z", description="text of one line")]
Word = Annotated[str, Meta(pattern=r"\A[^\s\0'\"]+\Z", description="text without spaces and quotes")]
#: Names of objects, and keys and values of labels, as Kubernetes accepts them.
ObjectName = Annotated[
    str,
    Meta(
        pattern=r"\A[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z",
        description="the name of an object of Kubernetes: lower-case letters, digits, - and .",
    ),
]
_PREFIX = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?"
LabelKey = Annotated[
    str,
    Meta(
        pattern=rf"\A{_PREFIX}[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?\Z",
        description="a key of Kubernetes: at most 63 letters, digits, -, _ and ., after a domain and / if it has one",
    ),
]
LabelValue = Annotated[
    str,
    Meta(
        pattern=r"\A([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z",
        description="a value of Kubernetes: at most 63 letters, digits, -, _ and .",
    ),
]

#: Keys under which a credential may be written by mistake.
_PRIVATE = ("environment", "env_from", "image_pull_secrets", "tls_secret", "service_account")
#: Names of environment variables that hold credentials.
_CREDENTIAL = re.compile(
    r"(?i)(?:\A|_)(?:secret|password|passwd|passphrase|token|connection_string|access_key_id"
    r"|(?:access|secret|api|account|private|storage|sas)_key|(?<!GOOGLE_APPLICATION_)credentials?)\Z"
)


class Tls(Spec, frozen=True, kw_only=True):
    """PEM files; the key should be readable by its owner only."""

    ca: Path
    cert: Path
    key: Path


class Auto(Spec, tag_field="kind", tag="auto", frozen=True, kw_only=True):
    """This process for small stores, the embedded cluster for the rest."""


class Threads(Spec, tag_field="kind", tag="threads", frozen=True, kw_only=True):
    """Threads of this process. threads: default, one per core."""

    threads: Count | None = None


class Embedded(Spec, tag_field="kind", tag="embedded", frozen=True, kw_only=True):
    """Worker processes of this machine on 127.0.0.1. Defaults: all cores, THREADS_PER_WORKER threads per worker."""

    workers: Count | None = None
    threads: Count | None = None  #: per worker
    processes: bool = True  #: false: one worker in this process, for debugging
    dashboard: bool = False
    worker_ttl: Seconds = Seconds(60)  #: a worker that does not answer this long is started again
    start_timeout: Seconds = Seconds(120)  #: for all workers


class Network(Spec, frozen=True, kw_only=True):
    """Keys of every cluster beyond this machine: without ``tls``, ``insecure = true`` is required."""

    tls: Tls | None = None
    insecure: bool = False
    start_timeout: Seconds = Seconds(600)  #: for the first worker, and for a new one when none is left


class Address(Network, tag_field="kind", tag="address", frozen=True, kw_only=True):
    """An existing scheduler: ``tcp://host:port`` or ``tls://host:port``; ``gateway://host:port/name``: a running
    cluster of Dask Gateway, which brings its own TLS.
    """

    address: Annotated[
        str,
        Meta(
            pattern=r"\A((tcp|tls)://[^\s/]+:[0-9]+|gateway://[^\s/]+/[^\s/]+)\Z",
            description="tcp://HOST:PORT, tls://HOST:PORT or gateway://HOST:PORT/NAME",
        ),
    ]


class Remote(Network, frozen=True, kw_only=True):
    """The scheduler runs in the driver and listens on ``host``; workers are started elsewhere by a command."""

    host: Word | None = None  #: address on which workers reach the driver; default: that of this host's name
    port: Annotated[int, Meta(ge=0, le=65535)] = 0  #: 0: any free port
    python: Line | None = None  #: on the workers; default: the driver's
    workers: Count = 1  #: processes per job or host
    threads: Count = 1  #: per job or host, shared by its workers
    setup: tuple[Line, ...] = ()  #: shell lines before the worker starts: modules, environments
    environment: dict[Word, Line] = field(default_factory=dict)


class Batch(Remote, frozen=True, kw_only=True):
    """Workers as jobs of a batch system. memory is per job."""

    jobs: Count = 1
    name: Word = "coremargin"
    memory: SizeWithUnit = SizeWithUnit(4 * 2**30)
    walltime: Seconds = Seconds(3600)
    queue: Word | None = None
    account: Word | None = None
    logs: Path | None = None  #: folder for the output of the jobs
    directives: tuple[Line, ...] = ()  #: more lines for the head of the script, without its prefix


class Slurm(Batch, tag_field="kind", tag="slurm", frozen=True, kw_only=True):
    """SLURM: one job array."""


class Sge(Batch, tag_field="kind", tag="sge", frozen=True, kw_only=True):
    """Grid Engine: one array job."""

    parallel_environment: Word = "smp"


class JobQueue(Batch, frozen=True, kw_only=True):
    """Jobs that dask-jobqueue submits, each by itself; it comes with the extra ``batch``."""


class Pbs(JobQueue, tag_field="kind", tag="pbs", frozen=True, kw_only=True):
    """PBS Professional and OpenPBS."""


class Lsf(JobQueue, tag_field="kind", tag="lsf", frozen=True, kw_only=True):
    """IBM Spectrum LSF."""


class HtCondor(JobQueue, tag_field="kind", tag="htcondor", frozen=True, kw_only=True):
    """HTCondor. Its directives are ``name = value``; queue is the job's requirements, account its accounting_group."""


class Ssh(Remote, tag_field="kind", tag="ssh", frozen=True, kw_only=True):
    """Other hosts through the ``ssh`` command, without passwords."""

    hosts: Annotated[tuple[Word, ...], Meta(min_length=1)]
    options: tuple[Line, ...] = ()  #: for ssh, such as "-p", "2222"


class Toleration(Spec, frozen=True, kw_only=True):
    """A taint of nodes on which pods may run all the same; the names are those of Kubernetes."""

    key: LabelKey | None = None  #: None, with operator = "Exists": any taint
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Meta(ge=0)] | None = None


class Kubernetes(Network, tag_field="kind", tag="kubernetes", frozen=True, kw_only=True):
    """Pods through the Dask operator; ``tls_secret``: a secret with ca.crt, tls.crt and tls.key, as in ``tls``.

    A job's cluster is called ``name``, a hyphen and 8 random digits: the operator allows 53 characters.
    """

    image: Word
    name: Annotated[
        str,
        Meta(
            pattern=r"\A[a-z]([-a-z0-9]{0,42}[a-z0-9])?\Z",
            description="at most 44 lower-case letters, digits and -, a letter first",
        ),
    ] = "coremargin"
    namespace: Annotated[
        str,
        Meta(
            pattern=r"\A[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z",
            description="the name of a namespace: at most 63 lower-case letters, digits and -",
        ),
    ] = "default"
    workers: Count = 1
    threads: Count = 1
    memory: SizeWithUnit = SizeWithUnit(4 * 2**30)
    volume_claim: Word | None = None  #: holds the store, mounted at ``mount``
    mount: Word = "/data"
    environment: dict[Word, Line] = field(default_factory=dict)
    env_from: tuple[ObjectName, ...] = ()  #: secrets, whose entries become environment variables
    service_account: ObjectName | None = None
    image_pull_secrets: tuple[ObjectName, ...] = ()
    node_selector: dict[LabelKey, LabelValue] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    annotations: dict[LabelKey, str] = field(default_factory=dict)  #: of all pods
    tls_secret: ObjectName | None = None


ClusterSpec = Auto | Threads | Embedded | Address | Slurm | Pbs | Lsf | Sge | HtCondor | Ssh | Kubernetes
_ANY = cast("type[ClusterSpec]", ClusterSpec)

#: ``cluster`` of Python functions: a file, an address, "auto", "threads", "embedded", a Dask client, or None for auto.
Cluster: TypeAlias = "str | os.PathLike[str] | Client | None"


def load_cluster(where: str | os.PathLike[str] | None) -> ClusterSpec:
    """The spec of ``--cluster``: a file, a scheduler's address, "auto", "threads", "embedded", or None for auto."""
    if where is None:
        return Auto()
    text = str(os.fspath(where))  # msgspec refuses subclasses
    if text.startswith(ADDRESSES):
        return check(specs.convert({"kind": "address", "address": text}, _ANY, where="cluster"), f"cluster {text}")
    if text in NAMES:
        return specs.convert({"kind": text}, _ANY, where="cluster")
    path = _file_path(text)
    values = specs.read_toml(path)
    environment = values.get("environment")
    if isinstance(environment, Mapping):  # first: errors about other keys and types show what they found
        _refuse_credentials(environment, str(path), kubernetes=values.get("kind") == "kubernetes")
    return check(specs.convert(values, _ANY, where=str(path), base=path.parent, private=_PRIVATE), str(path))


class ClusterChoice(str):
    """``cluster`` of a job: an address, one of NAMES, or the absolute path of a cluster file."""

    __slots__ = ()

    @classmethod
    def from_text(cls, text: str, folder: Path) -> Self:
        """folder: of relative paths. Raises UsageError."""
        if text.startswith(ADDRESSES) or text in NAMES:
            return cls(text)
        _file_path(text)
        return cls(specs.resolve_path(text, folder))


def _file_path(text: str) -> Path:
    """The path of a cluster file. Raises UsageError, as for an address that no scheduler has."""
    if _OTHER_ADDRESS.match(text):
        raise UsageError(
            f"cluster: expected a cluster file, an address with {', '.join(ADDRESSES)}, or {', '.join(NAMES)}; "
            f"found {text!r}"
        )
    return local_path(text)


def as_client(where: Any) -> Client | None:
    """``cluster`` if it is a Dask client that can be used; None for files, addresses and names.

    Raises UsageError for clusters without a client, and clients that are closed or asynchronous. Does not import Dask.
    """
    if where is None or isinstance(where, str | os.PathLike):
        return None
    what = type(where).__name__
    if hasattr(where, "get_client"):
        raise UsageError(f"cluster: expected a Dask Client, found a {what}; give cluster.get_client()")
    module = sys.modules.get("distributed")
    if module is None or not isinstance(where, module.Client):
        raise UsageError(
            f"cluster: expected a cluster file, a scheduler's address, 'threads', 'embedded' or a Dask Client, "
            f"found {where!r}"
        )
    if where.asynchronous or getattr(where, "_asynchronous", False):
        raise UsageError(
            f"cluster: an asynchronous {what} cannot be used, as training waits for its results; give a Client made "
            f"without asynchronous=True, which also works while an event loop runs, as in a notebook"
        )
    if where.status != "running":
        raise UsageError(f"cluster: expected a running {what}, found one that is {where.status}; connect a new one")
    return cast("Client", where)


def local_cluster(where: Cluster) -> Cluster:
    """``cluster`` unchanged. Raises UsageError at once for a file of another machine, or a client that is unusable."""
    if isinstance(where, str | os.PathLike) and not os.fspath(where).startswith(ADDRESSES):
        _file_path(os.fspath(where))
    as_client(where)
    return where


def check(cluster: ClusterSpec, where: str) -> ClusterSpec:
    """Raise SpecError, with the correction, for a spec that cannot work or is not safe."""
    if isinstance(cluster, Network):
        safe = isinstance(cluster, Address) and (is_loopback(cluster.address) or cluster.address.startswith(GATEWAY))
        if not safe and cluster.tls is None and not cluster.insecure:
            raise SpecError(
                f"{where}: a scheduler beyond this machine without TLS: anyone who reaches it can run code on the "
                f"workers; give [tls] with ca, cert and key in a cluster file, or insecure = true if the network is "
                f"yours alone; `coremargin init {cluster.__struct_config__.tag}` writes such a file"
            )
        if cluster.tls is None and isinstance(cluster, Address) and cluster.address.startswith("tls://"):
            raise SpecError(f"{where}: a tls:// address needs [tls] with ca, cert and key, in a cluster file")
    if isinstance(cluster, Remote) and cluster.threads % cluster.workers:
        raise SpecError(
            f"{where}: threads = {cluster.threads} cannot be shared evenly by workers = {cluster.workers}; "
            f"threads counts all of one job or host"
        )
    if isinstance(cluster, JobQueue):
        _check_job_queue(cluster, where)
    if isinstance(cluster, Batch | Kubernetes) and cluster.memory < 2**20:
        raise SpecError(f"{where}: memory: expected at least 1 MiB, found {specs.format_size(cluster.memory)}")
    if isinstance(cluster, Remote | Kubernetes):
        _refuse_credentials(cluster.environment, where, kubernetes=isinstance(cluster, Kubernetes))
    if isinstance(cluster, Kubernetes):
        _check_kubernetes(cluster, where)
    return cluster


def _refuse_credentials(environment: Mapping[str, object], where: str, *, kubernetes: bool) -> None:
    for name in environment:
        if _CREDENTIAL.search(name):
            instead = (
                "put it into a secret, and the secret's name into env_from"
                if kubernetes
                else "let setup read it from a file that only you can read"
            )
            raise SpecError(
                f"{where}: environment: {name} looks like a credential, and this text is kept with models and "
                f"submitted as it is; {instead}"
            )


def _check_kubernetes(cluster: Kubernetes, where: str) -> None:
    if (cluster.tls is None) != (cluster.tls_secret is None):
        raise SpecError(f"{where}: [tls] (files of the driver) and tls_secret (the same for the pods) need each other")
    for number, toleration in enumerate(cluster.tolerations, 1):
        place = f"{where}: tolerations #{number}"
        if toleration.operator == "Equal" and (toleration.key is None or toleration.value is None):
            raise SpecError(f'{place}: give key and value, or operator = "Exists" for any value')
        if toleration.operator == "Exists" and toleration.value is not None:
            raise SpecError(f'{place}: operator = "Exists" accepts any value; remove value, or write "Equal"')
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            raise SpecError(f'{place}: toleration_seconds needs effect = "NoExecute"')


def _check_job_queue(cluster: JobQueue, where: str) -> None:
    if find_spec("dask_jobqueue") is None:
        raise UsageError(
            f"{where}: kind = {cluster.__struct_config__.tag!r} needs the package dask-jobqueue, here and not "
            f"on the workers: pip install 'coremargin[batch]'"
        )
    for file in (cluster.tls.ca, cluster.tls.cert, cluster.tls.key) if cluster.tls else ():
        if shlex.quote(str(file)) != str(file):
            raise SpecError(
                f"{where}: [tls]: {file}: dask-jobqueue hands paths to a shell as they are; give one "
                f"of letters, digits and any of / . _ -"
            )
    if isinstance(cluster, HtCondor) and (odd := [line for line in cluster.directives if "=" not in line]):
        raise SpecError(f"{where}: directives: {odd[0]!r} is not name = value, as all lines of HTCondor are")


def is_loopback(address: str) -> bool:
    """Whether a scheduler's address is on this machine only."""
    host = address.split("://", 1)[-1].rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resolve(cluster: ClusterSpec, store_bytes: int) -> ClusterSpec:
    """The spec with every default filled in, for a store of ``store_bytes`` (uncompressed)."""
    if isinstance(cluster, Auto):
        cluster = Threads() if store_bytes < SMALL_BYTES else Embedded()
    if isinstance(cluster, Threads):
        return Threads(threads=cluster.threads or cores())
    if isinstance(cluster, Embedded):
        if not cluster.processes:
            workers, threads = 1, cluster.threads or cores()
        elif cluster.threads is not None:
            workers, threads = cluster.workers or max(1, cores() // cluster.threads), cluster.threads
        else:
            workers = cluster.workers or -(-cores() // THREADS_PER_WORKER)
            threads = max(1, cores() // workers)
        return Embedded(
            workers=workers,
            threads=threads,
            processes=cluster.processes,
            dashboard=cluster.dashboard,
            worker_ttl=cluster.worker_ttl,
            start_timeout=cluster.start_timeout,
        )
    return cluster
