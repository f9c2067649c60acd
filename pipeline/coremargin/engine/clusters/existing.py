"""Clusters that others started: a Dask ``Client`` of the caller, or the scheduler at an address.

Such a cluster is left as it was: its configuration is not changed, tasks are cancelled and released, BLAS is limited
while our blocks run, and stores are closed in the end. Before the first scan it is checked that scheduler and workers
have this version of coremargin, and that the workers read the same commit of the store.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distributed.client import FutureCancelledError

from coremargin.data.opened import forget
from coremargin.data.store import Store
from coremargin.data.view import root
from coremargin.engine.cluster_workers import UNREACHABLE, WAIT_S, WorkerWait, ask_scheduler, brief, scheduler_lost
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.task import worker_name
from coremargin.errors import CoremarginError, RunError, UsageError
from coremargin.spec import format_seconds
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distributed import Client

    from coremargin.data.source import Source
    from coremargin.data.store import StoreHandle

log = logging.getLogger(__name__)

_ANSWER_S = 60.0  # for all workers to open the store, which may lie on a slow file system
_RELEASE_S = 5.0
_SHOWN = 3  # workers that a message names


def attach(
    client: Client,
    source: Source | None,
    *,
    wait_s: float = WAIT_S,
    description: str = "",
    on_close: Callable[[], object] | None = None,
) -> DaskExecutor:
    """An executor on the workers of a client, which stays open.

    source: the rows that will be scanned. wait_s: how long to wait for a worker while there is none. on_close: called
    when the executor is closed. Raises RunError if versions differ, or a worker cannot open the store of the source.
    """
    stored = None if source is None else root(source)
    handle = stored.handle() if isinstance(stored, Store) else None
    _check_versions(client)
    if not ask_scheduler(client)["workers"]:
        _request_worker(client, wait_s)
    _check_workers(client, handle)

    def close() -> None:
        if handle is not None and client.status == "running":
            with suppress(TimeoutError, *UNREACHABLE):
                _run_on_workers(client, _RELEASE_S, release_store, handle.path)
        if on_close is not None:
            on_close()

    return DaskExecutor(client, description=description, pin="block", wait=WorkerWait(wait_s), on_close=close)


def _check_versions(client: Client) -> None:
    """Raise RunError if scheduler or workers lack this coremargin or this Python; log other differences."""
    try:
        found = client.sync(_versions, client, callback_timeout=_ANSWER_S)
    except TimeoutError as error:
        raise _no_answer(client) from error
    except UNREACHABLE as error:
        raise scheduler_lost(error) from error
    others = {"the scheduler": found["scheduler"], **{f"worker {at}": one for at, one in found["workers"].items()}}
    differing: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)  # places by library and versions
    for name, ours in found["client"]["packages"].items():
        for who, other in others.items():
            theirs = other["packages"].get(name)
            if name == "python":  # major and minor: compiled code, and classes that travel by value, depend on them
                ours, theirs = (".".join(each.split(".")[:2]) for each in (ours, theirs))
            if theirs != ours:
                differing[name, str(ours), str(theirs)].append(who)
    for (name, ours, theirs), places in sorted(differing.items()):
        what = f"{name} is {'missing' if theirs == 'None' else theirs} on {_few(places)}, and {ours} in this process"
        if name in ("coremargin", "python"):
            raise RunError(f"{what}; install the same version there, or use a cluster that has it")
        log.warning("%s: results may differ in their last bits", what)


async def _versions(client: Client) -> Any:
    return await client.get_versions(packages=["coremargin", "scipy"])


def _check_workers(client: Client, handle: StoreHandle | None) -> None:
    """Raise RunError if a worker has another coremargin, or cannot open the store at the commit of the handle."""
    try:
        found = _run_on_workers(client, _ANSWER_S, inspect_worker, handle)
    except TimeoutError as error:
        raise _no_answer(client) from error
    except UNREACHABLE as error:
        raise scheduler_lost(error) from error
    errors: defaultdict[str, list[str]] = defaultdict(list)  # workers by message
    for address, answer in found.items():
        if isinstance(answer, UNREACHABLE):
            continue  # the worker has left meanwhile
        if isinstance(answer, BaseException):
            errors[brief(answer)].append(f"worker {address}")
        elif answer["version"] != version():
            errors[f"coremargin is {answer['version']} there, and {version()} in this process"].append(
                f"worker {address} on {answer['name']}"
            )
        elif answer["error"]:
            errors[answer["error"]].append(f"worker {address} on {answer['name']}")
    for message, workers in errors.items():
        what = f"cannot open {handle.path}" if handle is not None else "cannot be used"
        raise RunError(
            f"{_few(workers)} {what}: {message}; all workers need this version of coremargin and the same store at the "
            f"same path as this process, as on a shared file system"
        )


def inspect_worker(handle: StoreHandle | None) -> dict[str, str]:
    """Runs on a worker: its version of coremargin, and why it cannot open a store at a commit; "" if it can."""
    error = ""
    if handle is not None:
        try:
            Store.open(handle.path, digest=handle.digest, map_bytes=0)
        except (CoremarginError, OSError, MemoryError) as found:
            error = str(found) if isinstance(found, CoremarginError) else brief(found)
    return {"version": version(), "name": worker_name(), "error": error}


def release_store(path: str) -> None:
    """Runs on a worker: close a store, whose mapped pages would count as its memory."""
    forget(path)


def _run_on_workers(
    client: Client, timeout_s: float, function: Callable[..., Any], *arguments: Any
) -> Mapping[str, Any]:
    """What a function returns, or raises, on each worker, outside of its tasks. Raises TimeoutError, UNREACHABLE."""

    async def run() -> Any:
        return await client.run(_in_thread, function, *arguments, on_error="return")

    return client.sync(run, callback_timeout=timeout_s)  # type: ignore[no-any-return]


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs on a worker, whose event loop goes on meanwhile."""
    return await asyncio.to_thread(function, *arguments)


def _request_worker(client: Client, wait_s: float) -> None:
    """Wait for the first worker with a task: an adaptive cluster starts workers only if there are tasks."""
    log.info("waiting for a worker")
    future = client.submit(socket.gethostname, key=f"coremargin-check-0-{uuid.uuid4().hex}", pure=False)
    try:
        future.result(timeout=wait_s)
    except TimeoutError as error:
        raise RunError(
            f"no worker came within {format_seconds(wait_s)}; see whether the cluster runs and can grow, or scale it"
        ) from error
    except (FutureCancelledError, *UNREACHABLE) as error:
        raise scheduler_lost(error) from error
    finally:
        if client.status == "running":
            with suppress(*UNREACHABLE):
                future.cancel()


def _no_answer(client: Client) -> RunError:
    count = len(ask_scheduler(client)["workers"])
    return RunError(
        f"scheduler and {count} workers did not all answer within {format_seconds(_ANSWER_S)}; see whether a worker "
        f"hangs, or its event loop is blocked by a task, then run again"
    )


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def connect_gateway(address: str) -> tuple[Client, Callable[[], None]]:
    """A client of a running cluster of Dask Gateway, and a function that closes it; the cluster itself runs on.

    address: ``gateway://HOST:PORT/NAME``, as ``GatewayCluster.scheduler_address`` is. The gateway's own address and
    the credentials are those of the configuration of Dask (``gateway.address``, ``gateway.auth``). Raises UsageError if
    dask-gateway is not installed or configured, RunError if there is no such cluster.
    """
    try:
        from dask_gateway import Gateway  # only here: it is an extra
        from dask_gateway.client import GatewayClusterError, GatewayServerError
    except ImportError as error:
        raise UsageError(f"{address} needs the package dask-gateway: pip install 'coremargin[gateway]'") from error
    name = address.rpartition("/")[2]
    try:
        gateway = Gateway()
    except ValueError as error:
        raise UsageError(
            f"{address}: the address of the gateway is not known ({error}); set gateway.address in Dask's "
            f"configuration, for instance by DASK_GATEWAY__ADDRESS=https://..."
        ) from error
    try:
        cluster = gateway.connect(name, shutdown_on_close=False)
        client = cluster.get_client(set_as_default=False)
    except (GatewayClusterError, GatewayServerError, ValueError, OSError, TimeoutError) as error:
        gateway.close()
        raise RunError(f"{address}: the gateway has no running cluster {name} ({brief(error)})") from error

    def close() -> None:
        client.close()
        cluster.close(shutdown=False)
        gateway.close()

    return client, close
