"""Clients of schedulers beyond this machine, and their TLS files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed import Client
from distributed.security import Security

from coremargin.engine.event_loop_logs import hide_cluster_messages
from coremargin.errors import RunError, UsageError

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Network


def check_files(network: Network) -> None:
    """Raise UsageError if a file is missing."""
    if network.tls is None:
        return
    for file in (network.tls.ca, network.tls.cert, network.tls.key):
        if not file.is_file():
            raise UsageError(f"[tls] of the cluster file: {file} is not a file on this host; give one that is")


def security(network: Network) -> Security:
    """The TLS settings for ``distributed``; no file is read."""
    if network.tls is None:
        return Security()
    names = {"tls_ca_file": str(network.tls.ca)}
    for role in ("client", "scheduler", "worker"):
        names |= {f"tls_{role}_cert": str(network.tls.cert), f"tls_{role}_key": str(network.tls.key)}
    return Security(require_encryption=True, **names)


def connect_client(address: str, network: Network) -> Client:
    """A client of the scheduler at an address. Raises RunError if none answers."""
    hide_cluster_messages()
    timeout_s = min(30.0, network.start_timeout)
    try:
        return Client(address, security=security(network), set_as_default=False, timeout=timeout_s)
    except (OSError, TimeoutError) as error:
        raise RunError(
            f"no Dask scheduler answers at {address} ({error}); see whether it runs and [tls] fits"
        ) from error
