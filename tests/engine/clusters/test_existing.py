"""Clusters that others started: a client is checked, used, and left as it was; the models have the same bits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import dask
import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster
from distributed.utils import key_split
from sklearn.base import clone
from threadpoolctl import threadpool_info

import coremargin
from cluster_kit import worker_environment  # tests/faults is on the path
from coremargin.active.campaign import Campaign
from coremargin.cli import main
from coremargin.data.maps import budget
from coremargin.data.store import Store
from coremargin.engine import cluster_scan
from coremargin.engine.clusters import existing
from coremargin.engine.clusters.connect import executor_at
from coremargin.engine.clusters.specs import load_cluster
from coremargin.engine.dask_executor import DaskExecutor
from coremargin.engine.plan import plan_blocks
from coremargin.engine.protocols import Block
from coremargin.engine.scan import run_scan
from coremargin.engine.task import task_name
from coremargin.errors import DamagedChunk, RunError, SpecError, UsageError
from coremargin.estimators import KernelCoresetClassifier, MarginCoresetClassifier
from coremargin.learn.train import train_job
from coremargin.models.evaluate import evaluate
from coremargin.models.predict import predict
from coremargin.problems.registry import new_job
from scan_fakes import BlasThreads, Counted, FakeHandle, Slow, SumProbe, expected
from train_kit import exact, small_store

QUIET = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50, "scheduler_kwargs": {"dashboard": False}}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 40 chunks."""
    return small_store(tmp_path_factory.mktemp("rows") / "rows.zarr").path


@pytest.fixture(scope="module")
def alone(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The model of a training in this process."""
    return trained(rows, tmp_path_factory.mktemp("alone") / "m", "threads")


@pytest.fixture(scope="module")
def processes() -> Iterator[Client]:
    """Two worker processes of a LocalCluster, as a notebook starts them."""
    with LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as cluster, cluster.get_client() as client:
        yield client


@pytest.fixture(scope="module")
def in_process() -> Iterator[Client]:
    """Workers that are threads of this process."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, worker_dashboard_address=None, **QUIET) as it,
        Client(it, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A scheduler and two workers as processes of their own; the client knows the address only."""
    file = tmp_path_factory.mktemp("scheduler") / "file.json"
    words = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    environment = os.environ | worker_environment()
    commands = [["dask_scheduler", "--host", "127.0.0.1", "--port", "0"]]
    commands += [["dask_worker", "--no-nanny", "--nthreads", "1", "--death-timeout", "30"]] * 2
    started = []
    try:
        for name, *options in commands:
            command = [sys.executable, "-m", f"distributed.cli.{name}", *options, *words]
            started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment))
            while not file.exists():
                time.sleep(0.05)
        with Client(scheduler_file=str(file), set_as_default=False) as found:
            address = found.scheduler.address
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            yield client
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture(params=["processes", "in_process", "separate"])
def client(request: pytest.FixtureRequest) -> Client:
    """A client of each of these."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Client)
    return found


def trained(rows: Path, out: Path, cluster: Any, **options: Any) -> dict[str, bytes]:
    """What has to be equal of a model."""
    coremargin.train(rows, out=out, cluster=cluster, **{"block": 1 << 14, "epsilon": 1e-6, "memory": 20_000, **options})
    return exact(out)


def footprint(client: Client) -> dict[str, Any]:
    """What a job could leave behind with scheduler, workers and this process; releases travel in the background."""

    def tasks() -> list[str]:
        found = client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
        for of_worker in client.run(lambda dask_worker: list(map(str, dask_worker.state.tasks))).values():
            found += of_worker
        return found

    deadline = time.monotonic() + 30
    while tasks() and time.monotonic() < deadline:
        time.sleep(0.05)
    return {
        "tasks": tasks(),
        "futures": sorted(client.futures),
        "scheduler": client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.plugins)),
        "workers": client.run(lambda dask_worker: sorted(dask_worker.plugins)),
        "configurations": client.run(lambda: deepcopy(dask.config.config)),
        "BLAS": client.run(blas_threads),
        "configuration": deepcopy(dask.config.config),
    }


def blas_threads() -> list[int]:
    """Of NumPy's BLAS, in this process."""
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"][:1]


def test_models_have_the_same_bits_and_the_client_is_as_before(
    client: Client, rows: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    """Processes, threads of this process, a scheduler at an address: the model of threads, and nothing is left."""
    before = footprint(client)
    assert trained(rows, tmp_path / "m", client) == alone
    assert coremargin.verify(tmp_path / "m", rows).ok
    assert footprint(client) == before
    assert client.submit(sum, [1, 2]).result(timeout=30) == 3


def test_names_on_the_dashboard(separate: Client, rows: Path, tmp_path: Path) -> None:
    """Tasks are grouped by what they do."""
    with executor_at(separate, Store.open(rows)) as executor:
        train_job(new_job(store=rows, out=tmp_path / "m", strategy="paper", max_scans=2), Store.open(rows), executor)
    evaluate(tmp_path / "m", rows, cluster=separate)
    found = separate.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert {"probe-margin", "probe-compare"} <= set(found)
    assert all(name.startswith(("probe-", "call-", "sum")) for name in found), found


@pytest.mark.parametrize(
    ("value", "name"),
    [(SumProbe(), "probe-sum"), (Slow(), "probe-slow"), (np.linalg.solve, "probe-solve"), (Block, "probe-block")],
)
def test_keys_begin_with_a_name_that_dask_finds(value: Any, name: str) -> None:
    """A class or function, with the number of the block after it."""
    assert task_name(value) == name
    assert key_split(f"{task_name(value)}-17-abcdefabcdef-3") == name


def test_other_doors(
    processes: Client, rows: Path, alone: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimators, retrain, evaluate, predict and campaigns take a client, and find what threads find."""
    model = coremargin.train(rows, out=tmp_path / "m", cluster=processes)
    here = evaluate(model, rows)
    assert evaluate(model, rows, cluster=processes) == here
    for name, cluster in (("a.csv", processes), ("b.csv", "threads")):
        predict(model, rows, tmp_path / name, cluster=cluster)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    again = coremargin.retrain(tmp_path / "m", rows, cluster=processes)
    assert again.w.tobytes() == model.w.tobytes()

    linear = MarginCoresetClassifier(loss=None, cluster=processes).fit(str(rows))
    threads = MarginCoresetClassifier(loss=None, cluster="threads").fit(str(rows))
    assert linear.coef_.tobytes() == threads.coef_.tobytes()
    assert clone(linear).cluster is processes
    assert linear.cluster is processes
    assert cloudpickle.loads(cloudpickle.dumps(linear)).cluster is None
    assert deepcopy(threads).cluster == "threads"
    kernel = KernelCoresetClassifier(loss=None, gamma=0.5, epsilon=0.1, cluster=processes).fit(str(rows))
    assert clone(kernel).cluster is processes
    with pytest.raises(UsageError, match="arrays are read in this process"):
        MarginCoresetClassifier(cluster=processes).fit([[0.0], [1.0]], [0, 1])

    bare = tmp_path / "bare.zarr"
    coremargin.ingest(np.random.default_rng(2).standard_normal((400, 3)), bare, unlabelled=True)
    with Campaign.create(tmp_path / "c", bare, classes=["no", "yes"], cluster=processes) as campaign:
        asked = campaign.ask(2)
        assert len(asked) == 2
    assert footprint(processes)["tasks"] == []


def test_a_running_event_loop(processes: Client, rows: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    """In a notebook an event loop runs in the thread that trains."""

    async def cell() -> dict[str, bytes]:
        return trained(rows, tmp_path / "m", processes)

    assert asyncio.run(cell()) == alone


def test_two_jobs_at_once(separate: Client, rows: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    """Two threads train with one client: neither disturbs the other."""
    before = footprint(separate)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda name: trained(rows, tmp_path / name, separate), ("one", "two")))
    assert found == [alone, alone]
    assert footprint(separate) == before


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_worker_is_killed_in_the_middle(rows: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    """Its nanny starts another one, and the model has the same bits."""
    # else a LocalCluster gives up a worker that takes 15 s to start again, as on a busy machine
    patience = dask.config.set({"distributed.deploy.lost-worker-timeout": "300 s"})
    with patience, LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as cluster, cluster.get_client() as client:
        killed: list[int] = []

        def kill(*_: Any) -> None:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[-1], signal.SIGKILL)

        assert trained(rows, tmp_path / "m", client, on_round=lambda _: killed or kill()) == alone
        source = FakeHandle().open_source()
        blocks, done = plan_blocks(source, 1), list[Any]()

        def count(result: Any) -> None:
            done.append(result)
            if len(done) == 9:
                kill()

        with executor_at(client) as executor:
            found = run_scan(executor, source, Slow(), blocks, on_block=count)
        assert found.bits() == expected(source, Slow(), blocks).bits()
        assert len(killed) == 2
        client.wait_for_workers(2, timeout=120)
        assert footprint(client)["tasks"] == []


def test_errors_leave_nothing(processes: Client, tmp_path: Path) -> None:
    """Damaged rows end the training; the client goes on."""
    store = small_store(tmp_path / "rows.zarr")
    before = footprint(processes)
    chunks = sorted(path for path in (store.path / "X").rglob("*") if path.is_file() and path.suffix != ".json")
    chunks[-3].write_bytes(bytes(chunks[-3].stat().st_size))
    with pytest.raises(DamagedChunk):
        coremargin.train(store.path, cluster=processes, block=1 << 14)
    assert footprint(processes) == before


def test_an_interrupt_leaves_nothing_and_is_resumed(
    processes: Client, rows: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    """Ctrl-C in a scan: no task is left, the client goes on, and the job resumes to the same bits."""
    before = footprint(processes)
    source = FakeHandle().open_source()

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with executor_at(processes) as executor, pytest.raises(KeyboardInterrupt):
        run_scan(executor, source, Slow(seconds=0.05), plan_blocks(source, 1), on_block=stop)
    assert footprint(processes) == before

    with pytest.raises((KeyboardInterrupt, coremargin.CoremarginError)):
        trained(rows, tmp_path / "m", processes, on_round=stop)
    assert footprint(processes) == before
    assert trained(rows, tmp_path / "m", processes, begin="resume") == alone


def test_an_adaptive_cluster_grows(rows: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    """Without any worker at first; some come because there is work."""
    options = {"processes": False, "worker_dashboard_address": None}
    with LocalCluster(n_workers=0, threads_per_worker=1, **options, **QUIET) as cluster, cluster.get_client() as client:
        cluster.adapt(minimum=0, maximum=2, interval="100 ms")
        assert trained(rows, tmp_path / "m", client) == alone
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3


def test_no_worker_comes() -> None:
    """A cluster that cannot grow is an error after a while, and no task is left on it."""
    with LocalCluster(n_workers=0, **QUIET) as cluster, cluster.get_client() as client:
        with pytest.raises(RunError, match=r"no worker came within 1.00 s; see whether the cluster runs and can grow"):
            existing.attach(client, None, wait_s=1.0)
        assert footprint(client)["tasks"] == []


def test_clients_that_cannot_be_used(rows: Path, in_process: Client) -> None:
    """Asynchronous and closed clients, clusters without a client and other objects are refused by name."""

    async def asynchronous() -> None:
        async with Client(in_process.scheduler.address, asynchronous=True, set_as_default=False) as client:
            with pytest.raises(UsageError, match="asynchronous Client cannot be used.*without asynchronous=True"):
                coremargin.train(rows, cluster=client)
            with pytest.raises(UsageError, match="asynchronous"):
                await asyncio.to_thread(coremargin.train, rows, cluster=client)

    asyncio.run(asynchronous())
    closed = Client(in_process.scheduler.address, set_as_default=False)
    closed.close()
    model = coremargin.train(rows)
    for door in (
        lambda: coremargin.train(rows, cluster=closed),
        lambda: evaluate(model, rows, cluster=closed),
        lambda: predict(model, rows, rows.with_name("p.csv"), cluster=closed),
    ):
        with pytest.raises(UsageError, match="expected a running Client, found one that is closed; connect a new one"):
            door()
    with pytest.raises(UsageError, match=r"expected a Dask Client, found a LocalCluster; give cluster.get_client\(\)"):
        coremargin.train(rows, cluster=in_process.cluster)
    with pytest.raises(UsageError, match="expected a cluster file, .* or a Dask Client, found 3"):
        coremargin.train(rows, cluster=3)  # type: ignore[arg-type]


def test_workers_without_the_store(separate: Client, rows: Path, tmp_path: Path) -> None:
    """What is not there, or is another store, is an error that names worker, host and path before anything is read."""
    store = small_store(tmp_path / "rows.zarr", rows=600, chunks=4)
    store.path.rename(tmp_path / "moved.zarr")
    before = footprint(separate)
    where = rf"worker tcp://127.0.0.1:\d+ on \S+:\d+.* cannot open {store.path}: "
    with pytest.raises(RunError, match=where + ".*the same store at the same path"):
        coremargin.train(store, cluster=separate)
    small_store(tmp_path / "rows.zarr", rows=900, chunks=4)
    with pytest.raises(RunError, match=where):
        coremargin.train(store, cluster=separate)
    assert footprint(separate) == before


def other_versions(packages: dict[str, str | None], where: str) -> Callable[[Client], Any]:
    """Versions as a client finds them, with these in one place."""

    async def versions(client: Client) -> Any:
        found = await client.get_versions(packages=["coremargin", "scipy"])
        parts = found["workers"].values() if where == "workers" else [found["scheduler"]]
        for part in parts:
            part["packages"] |= packages
        return found

    return versions


@pytest.mark.parametrize(
    ("packages", "where", "message"),
    [
        ({"coremargin": None}, "workers", r"coremargin is missing on worker tcp\S+, worker tcp\S+, and \S+ in this"),
        ({"coremargin": "9.9"}, "scheduler", r"coremargin is 9.9 on the scheduler, and .*install the same version"),
        ({"python": "3.99.0.final.0"}, "workers", r"python is 3.99 on worker .*, and 3\.\d+ in this process"),
    ],
)
def test_other_versions_are_refused(
    separate: Client, rows: Path, monkeypatch: pytest.MonkeyPatch, packages: dict[str, Any], where: str, message: str
) -> None:
    """Another coremargin or Python, on the scheduler, which unpickles tasks, or on workers."""
    monkeypatch.setattr(existing, "_versions", other_versions(packages, where))
    with pytest.raises(RunError, match=message):
        coremargin.train(rows, cluster=separate)


def test_other_libraries_are_logged(
    separate: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another NumPy may round otherwise; that is no reason to refuse."""
    monkeypatch.setattr(existing, "_versions", other_versions({"numpy": "1.0"}, "workers"))
    with existing.attach(separate, None):
        assert "numpy is 1.0 on worker" in caplog.text


def test_what_workers_say_of_themselves_counts(separate: Client, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules on the workers may be of another version than the package that is installed there."""
    monkeypatch.setattr(existing, "version", lambda: "8.8")
    with pytest.raises(RunError, match=r"worker tcp\S+ on \S+.*coremargin is \S+ there, and 8.8 in this process"):
        coremargin.train(rows, cluster=separate)


def test_addresses_are_checked_too(separate: Client, rows: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    """``cluster="tcp://..."`` is an existing cluster, which lives on."""
    assert trained(rows, tmp_path / "m", separate.scheduler.address) == alone
    store = small_store(tmp_path / "rows.zarr", rows=600, chunks=4)
    store.path.rename(tmp_path / "moved.zarr")
    with pytest.raises(RunError, match="cannot open"):
        coremargin.train(store, cluster=separate.scheduler.address)
    assert separate.submit(sum, [1, 2]).result(timeout=30) == 3


def most_mapped() -> int:
    """Bytes of all maps together that this process may keep."""
    return budget.most_bytes


@pytest.mark.slow
def test_few_pages_are_mapped_under_a_memory_limit(rows: Path) -> None:
    """Dask counts them as memory of a worker, and would pause it forever."""
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, memory_limit=10**9, **QUIET)
    with cluster, cluster.get_client() as client:
        coremargin.train(rows, cluster=client)
        assert list(client.run(most_mapped).values()) == [10**9 // 4]


def test_blas_is_limited_while_blocks_run(client: Client) -> None:
    """On one thread in each block, and as before between scans."""
    source = FakeHandle().open_source()
    before = footprint(client)
    with executor_at(client) as executor:
        results = list(executor.run(source, BlasThreads(), plan_blocks(source)))
    assert {result.summary.total[0] for result in results} == {1.0}
    assert footprint(client)["BLAS"] == before["BLAS"]


def test_blocks_travel_in_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As many blocks as fit into a graph, each in one; none is sent while a group is not full, but for the last."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=40, processes=False, worker_dashboard_address=None, **QUIET) as it,
        Client(it, set_as_default=False) as client,
    ):
        graphs: list[int] = []
        send = Client._graph_to_futures

        def counted(self: Client, graph: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
            graphs.append(len(keys))
            return send(self, graph, keys, *arguments, **options)

        monkeypatch.setattr(Client, "_graph_to_futures", counted)
        source = FakeHandle().open_source()
        blocks = [Block(index, (index % source.chunks,)) for index in range(1000)]
        executor = DaskExecutor(client, pin="driver")
        found = [result.block.index for result in executor.run(source, SumProbe(), blocks)]
        assert sorted(found) == list(range(1000))
        size = cluster_scan.PER_THREAD * 40 // 4
        assert graphs == [size] * (1000 // size)
        graphs.clear()
        with closing(executor.run(source, Counted(folder=tmp_path), blocks)) as results:
            next(results)
        assert sum(graphs) <= cluster_scan.PER_THREAD * 40 + size
        monkeypatch.setattr(cluster_scan, "GROUP", 7)
        graphs.clear()
        assert len(list(executor.run(source, SumProbe(), blocks))) == 1000
        assert graphs == [7] * 142 + [6]


def test_many_bytes_are_sent_in_several_graphs(monkeypatch: pytest.MonkeyPatch, processes: Client) -> None:
    """Questions just too small to be sent apart make a large graph, which Dask warns of: it is divided."""
    graphs: list[int] = []
    send = Client._graph_to_futures

    def counted(self: Client, graph: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
        graphs.append(len(keys))
        return send(self, graph, keys, *arguments, **options)

    monkeypatch.setattr(Client, "_graph_to_futures", counted)
    monkeypatch.setattr(cluster_scan, "GRAPH_BYTES", 100_000)
    source = FakeHandle(features=8000, rows=80).open_source()

    class Own(SumProbe):
        def narrow(self, block: Block) -> SumProbe:
            return SumProbe(self.weight)

    probe, blocks = Own(np.arange(8000.0)), plan_blocks(source, 1)
    found = run_scan(DaskExecutor(processes), source, probe, blocks)
    assert found.bits() == expected(source, probe, blocks).bits()
    assert max(graphs) == 1


def test_job_files_with_an_address(separate: Client, rows: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    """``cluster`` of a training job, and of a nightly job, may be the address of a scheduler."""
    (tmp_path / "train.toml").write_text(
        f'job = "train"\nstore = "{rows}"\nout = "m"\ncluster = "{separate.scheduler.address}"\n'
        'block = "16 KiB"\nepsilon = 1e-6\nmemory = 20000\n'
    )
    ran = CliRunner().invoke(main, ["run", str(tmp_path / "train.toml"), "--quiet"])
    assert ran.exit_code == 0, ran.output
    assert exact(tmp_path / "m") == alone
    nightly = f'job = "nightly"\nstore = "{rows}"\nregistry = "models"\n'
    (tmp_path / "nightly.toml").write_text(f'{nightly}cluster = "{separate.scheduler.address}"\n[train]\n')
    ran = CliRunner().invoke(main, ["run", str(tmp_path / "nightly.toml"), "--quiet"])
    assert ran.exit_code == 0, ran.output
    (tmp_path / "nightly.toml").write_text(f"{nightly}[train]\nepsilon = 1e-4\n")
    words = ["run", str(tmp_path / "nightly.toml"), "--quiet", "--cluster", "tcp://127.0.0.1:1"]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 5
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in ran.output


def test_gateway_addresses() -> None:
    """An address of Dask Gateway needs a name and no TLS files, and the package is named where it is missing."""
    with pytest.raises(SpecError):
        load_cluster("gateway://127.0.0.1:8000")
    spec = load_cluster("gateway://hub.example.org:8786/a.b")
    assert spec.__struct_config__.tag == "address"


def test_the_package_of_a_gateway_is_named(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lacks dask-gateway is told how to install it."""
    monkeypatch.setitem(sys.modules, "dask_gateway", None)
    with pytest.raises(UsageError, match=r"needs the package dask-gateway: pip install 'coremargin\[gateway\]'"):
        coremargin.train(rows, cluster="gateway://127.0.0.1:8000/a")


def test_a_gateway_by_its_interface(
    separate: Client, rows: Path, alone: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster is found by its name, its client is closed, and it is not shut down; a stand-in for the package."""
    calls: list[Any] = []

    class GatewayClusterError(Exception):
        """No such cluster."""

    class Gateway:
        def connect(self, name: str, shutdown_on_close: bool) -> Any:
            calls.append((name, shutdown_on_close))
            if name != "user.1":
                raise GatewayClusterError(f"no cluster {name}")
            client = Client(separate.scheduler.address, set_as_default=False)
            return SimpleNamespace(
                get_client=lambda set_as_default: client,
                close=lambda shutdown: calls.append((client.status, shutdown)),
            )

        def close(self) -> None:
            calls.append("closed")

    errors = SimpleNamespace(GatewayClusterError=GatewayClusterError, GatewayServerError=GatewayClusterError)
    monkeypatch.setitem(sys.modules, "dask_gateway", SimpleNamespace(Gateway=Gateway, client=errors))
    monkeypatch.setitem(sys.modules, "dask_gateway.client", errors)
    assert trained(rows, tmp_path / "m", "gateway://127.0.0.1:8000/user.1") == alone
    assert calls == [("user.1", False), ("closed", False), "closed"]
    with pytest.raises(RunError, match="the gateway has no running cluster user.2"):
        coremargin.train(rows, cluster="gateway://127.0.0.1:8000/user.2")
