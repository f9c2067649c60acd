"""The TLS files of a cluster file, as ``distributed`` wants to be told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed.security import Security

from coremargin.errors import UsageError

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Network


def check_files(network: Network) -> None:
    """Raise UsageError where a file is missing."""
    if network.tls is None:
        return
    for file in (network.tls.ca, network.tls.cert, network.tls.key):
        if not file.is_file():
            raise UsageError(f"[tls] of the cluster file: {file} is not a file on this host; give one that is")


def security(network: Network) -> Security:
    """What is to be told; nothing is read for it."""
    if network.tls is None:
        return Security()
    names = {"tls_ca_file": str(network.tls.ca)}
    for role in ("client", "scheduler", "worker"):
        names |= {f"tls_{role}_cert": str(network.tls.cert), f"tls_{role}_key": str(network.tls.key)}
    return Security(require_encryption=True, **names)
