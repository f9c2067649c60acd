"""A real server of Dask Gateway on loopback, where ``dask-gateway-server`` is installed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import coremargin
from cluster_kit import worker_environment
from coremargin.errors import RunError, UsageError
from train_kit import small_store

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.filterwarnings("default")]

CONFIGURATION = """
import sys
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.DaskGateway.address, c.Proxy.address, c.Proxy.tcp_address = {addresses}
c.ClusterConfig.scheduler_cmd = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = [sys.executable, "-m", "distributed.cli.dask_worker"]
c.UnsafeLocalBackend.clusters_directory = {folder!r}
c.UnsafeLocalBackend.inherited_environment = ["PATH", "PYTHONPATH"]
"""


def free_ports(number: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody has now."""
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """The server's clients; it ends with the test."""
    pytest.importorskip("dask_gateway_server")
    from dask_gateway import Gateway

    private, public, tcp = free_ports(3)
    addresses = tuple(f"127.0.0.1:{port}" for port in (private, public, tcp))
    file, log = tmp_path / "config.py", tmp_path / "log"
    file.write_text(CONFIGURATION.format(addresses=addresses, folder=str(tmp_path / "clusters")))
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "dask_gateway_server", "-f", str(file)],
            env=os.environ | worker_environment(), stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while "server started" not in log.read_text():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield lambda: Gateway(f"http://127.0.0.1:{public}", proxy_address=f"gateway://127.0.0.1:{tcp}")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def test_clusters_of_a_gateway(gateway: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its address and by its client the same model as of threads; the cluster runs on until its owner ends it."""
    import dask

    rows = small_store(tmp_path / "rows.zarr").path
    alone = coremargin.train(rows, cluster="threads")
    with gateway() as server, server.new_cluster(shutdown_on_close=True) as cluster:
        cluster.scale(2)
        options = {"gateway.address": server.address, "gateway.proxy-address": server.proxy_address}
        with dask.config.set(options):
            assert coremargin.train(rows, cluster=cluster.scheduler_address).w.tobytes() == alone.w.tobytes()
            with pytest.raises(RunError, match="the gateway has no running cluster nobody"):
                coremargin.train(rows, cluster=cluster.scheduler_address.rpartition("/")[0] + "/nobody")
        with cluster.get_client(set_as_default=False) as client:
            assert coremargin.train(rows, cluster=client).w.tobytes() == alone.w.tobytes()
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        with pytest.raises(UsageError, match=r"found a GatewayCluster; give cluster.get_client\(\)"):
            coremargin.train(rows, cluster=cluster)
        assert [one.name for one in server.list_clusters()] == [cluster.name]
