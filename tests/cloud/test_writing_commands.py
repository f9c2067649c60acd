"""Commands that write stores to buckets: as to paths; what cannot be written is said before rows are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin
from cloud_kit import KEYS
from coremargin.data import conditional_puts
from coremargin.data.sources import opening
from coremargin.data.store import Store
from coremargin.errors import OutputError
from coremargin.formats.location import location
from writing_kit import append, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from cloud_kit import Proxy
    from coremargin.formats.location import Location


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A CSV with keys and labels."""
    X, y = rows(200)
    path = tmp_path / "rows.csv"
    lines = [f"{k},{','.join(map(str, row))},{label}" for k, (row, label) in enumerate(zip(X.tolist(), y, strict=True))]
    path.write_text("\n".join(["id,a,b,c,d,e,f,label", *lines]) + "\n")
    return path


def test_a_store_from_its_first_row_to_its_last_change(
    bucket: Callable[..., Location], run: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    """Each command as on disk; the same digest; a model of it is certified and verified."""
    address, local = bucket("my rows/100%.zarr"), tmp_path / "local.zarr"
    options = ["--storage-option", f"endpoint={address.options['endpoint']}"]
    corrected = tmp_path / "corrected.csv"
    corrected.write_text("id,label\n3,a\n4,b\n")
    weights = tmp_path / "weights.csv"
    weights.write_text("row,weight\n8,2\n")
    model = str(tmp_path / "m")
    for words in (
        ["ingest", str(table), "STORE", "--label", "label", "--key", "id", "--chunk-size", "2000"],
        ["remove", "STORE", "--key", "17"],
        ["remove", "STORE", "20-22"],
        ["relabel", "STORE", str(corrected)],
        ["reweigh", "STORE", str(weights)],
        ["compact", "STORE", "-q"],
        ["check", "STORE", "-q"],
        ["expire", "STORE", "--older-than", "90 days"],
        ["train", "STORE", "--loss", "hinge", "--out", model, "-q"],
        ["verify", model, "STORE"],
    ):
        for store, more in ((str(local), []), (str(address), options)):
            if "train" in words or "verify" in words:
                words = [word.replace(model, model + str(bool(more))) for word in words]
            result = run(*[store if word == "STORE" else word for word in words], *more)
            assert result.exit_code == 0, result.output
    assert Store.open(address).digest == Store.open(local).digest
    assert Store.open(address).rows == 196
    found = json.loads(run("vacuum", str(address), "--older-than", "0 s", "--dry-run", "--json", *options).stdout)
    (left,) = found["removed"]
    assert left["what"].startswith("generations/")
    assert run("vacuum", str(address), "--older-than", "1 day", *options).exit_code == 0
    removed = run("vacuum", str(address), "--older-than", "0 s", *options)
    assert f"{left['objects']} objects" in removed.output
    assert run("check", str(address), "-q", *options).exit_code == 0
    assert "0 objects" in run("vacuum", str(address), "--older-than", "0 s", *options).output
    assert "0 objects" in run("vacuum", str(local), "--older-than", "0 s").output


def test_synth(bucket: Callable[..., Location], run: Callable[..., Result], tmp_path: Path) -> None:
    """The same store as on disk."""
    address = bucket("s.zarr")
    options = ["--storage-option", f"endpoint={address.options['endpoint']}"]
    for store, more in ((str(tmp_path / "s"), []), (str(address), options)):
        assert run("synth", store, "--rows", "500", "--features", "5", "--chunk-size", "4000", *more).exit_code == 0
    assert Store.open(address).digest == Store.open(tmp_path / "s").digest


def test_ingest_from_python(bucket: Callable[..., Location], tmp_path: Path) -> None:
    """Arrays and batches, appended too; options by name."""
    address = bucket("s.zarr")
    options = {"endpoint_url": address.options["endpoint"]}
    X, y = rows(90)
    report = coremargin.ingest(((X[k : k + 30], y[k : k + 30]) for k in (0, 30)), str(address), storage_options=options)
    assert (report.store, report.rows) == (str(address), 60)
    coremargin.ingest(X[60:], address, labels=y[60:], append=True)
    local = tmp_path / "s"
    coremargin.ingest(X, local, labels=y)
    found, expected = (
        np.concatenate([s.read(k)[0] for k in range(s.chunks)]) for s in map(Store.open, (address, local))
    )
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(coremargin.CoremarginError, match="overwrite=True"):
        coremargin.ingest(X, address, labels=y)


def test_what_cannot_be_written_is_said_first(
    bucket: Callable[..., Location], proxy: Proxy, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a row is read: a read-only bucket, none at all, a service without conditions."""
    conditional_puts._tested.clear()

    def read(*_: object) -> None:
        raise AssertionError("rows are read")

    monkeypatch.setattr(opening, "open_rows", read)
    monkeypatch.setattr("coremargin.data.ingest.open_rows", read)
    through = bucket("s.zarr", endpoint=proxy.endpoint)
    proxy.refuse = lambda method, path: "AccessDenied" if method == "PUT" else ""
    with pytest.raises(OutputError, match="access denied"):
        coremargin.ingest(table, through)
    proxy.refuse = lambda method, path: ""
    proxy.ignores = ("if-match",)
    with pytest.raises(OutputError, match="this service ignores If-Match"):
        coremargin.ingest(table, through)
    missing = location("s3://no-such-bucket/s.zarr", through.options)
    with pytest.raises(coremargin.CoremarginError, match="no such bucket"):
        coremargin.ingest(table, missing)


def test_a_bucket_that_becomes_read_only(bucket: Callable[..., Location], proxy: Proxy) -> None:
    """A store there is read as before, and says so when it is to be changed."""
    coremargin.ingest(rows(50)[0], bucket("s.zarr"), labels=rows(50)[1])
    proxy.refuse = lambda method, path: "AccessDenied" if method not in ("GET", "HEAD") else ""
    through = bucket("s.zarr", endpoint=proxy.endpoint)
    with pytest.raises(OutputError, match="access denied .* writing needs the rights to read, list, write and delete"):
        append(through)
    assert Store.open(through).rows == 50


def test_no_secret_is_written(bucket: Callable[..., Location], moto: str, table: Path) -> None:
    """Neither key is in any byte of any object."""
    import boto3

    address = bucket("s.zarr")
    coremargin.ingest(table, address, label="label", overwrite=True)
    append_one = rows(5)
    coremargin.ingest(np.column_stack([np.arange(5), append_one[0]]), address, labels=append_one[1], append=True)
    client = boto3.client("s3", endpoint_url=moto)
    name = address.removeprefix("s3://").split("/")[0]
    found = client.list_objects_v2(Bucket=name)["Contents"]
    assert len(found) > 50
    for one in found:
        data = client.get_object(Bucket=name, Key=one["Key"])["Body"].read() + one["Key"].encode()
        for secret in (KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"]):
            assert secret.encode() not in data, one["Key"]


def test_a_versioned_bucket(bucket: Callable[..., Location], moto: str) -> None:
    """What is replaced there stays in the bucket, and is not seen."""
    import boto3

    address = bucket("s.zarr")
    name = address.removeprefix("s3://").split("/")[0]
    client = boto3.client("s3", endpoint_url=moto)
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    coremargin.ingest(rows(50)[0], address, labels=rows(50)[1])
    append(address)
    coremargin.remove_rows(address, [3])
    assert coremargin.compact(address).rows == 79
    assert Store.open(address).rows == 79
