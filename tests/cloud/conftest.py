"""Buckets for the tests of object storage, and the credentials that they need."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cloud_kit import KEYS, moto_server, proxied, served_bucket
from coremargin.data.synth import Recipe, synth
from coremargin.formats.location import Location, location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result

    from cloud_kit import BucketServer, Proxy
    from coremargin.data.store import Store


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Those of the environment, and no others of this machine."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    nothing = str(tmp_path_factory.getbasetemp() / "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", nothing)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)


@pytest.fixture
def run(run_cli: Callable[..., Result]) -> Callable[..., Result]:
    """``run("info", address)``: a command, whatever its exit code."""
    return partial(run_cli, exit_code=None)


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The endpoint of moto."""
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(moto: str) -> Callable[..., Location]:
    """``bucket("rows.zarr")``: an address in an empty bucket of moto; with other options, as those of a proxy."""
    import boto3

    name = f"bucket-{secrets.token_hex(8)}"
    boto3.client("s3", endpoint_url=moto).create_bucket(Bucket=name)

    def find(key: str, **options: Any) -> Location:
        return location(f"s3://{name}/{key}", {"endpoint": moto, **options})

    return find


@pytest.fixture
def proxy(moto: str) -> Iterator[Proxy]:
    """In front of moto."""
    with proxied(moto) as found:
        yield found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BucketServer]:
    """Our server, with a folder ``buck``."""
    (tmp_path / "served" / "buck").mkdir(parents=True)
    with served_bucket(tmp_path / "served") as found:
        yield found


@pytest.fixture
def rows(server: BucketServer) -> Store:
    """A store of 40 chunks in the bucket, opened as files."""
    return synth(server.root / "buck" / "rows.zarr", Recipe(10_000, 20, chunk_bytes=20_000))


@pytest.fixture
def place(server: BucketServer, rows: Store) -> Location:
    """The same as an address."""
    return location("s3://buck/rows.zarr", {"endpoint": server.endpoint})


@pytest.fixture
def at(server: BucketServer) -> Callable[..., Location]:
    """``at("name")``: an address in the bucket."""

    def find(name: str, **options: Any) -> Location:
        return location(f"s3://buck/{name}", {"endpoint": server.endpoint, **options})

    return find
