"""Addresses of object storage as people give them, and their options: read, or refused without repeating secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coremargin.errors import UsageError
from coremargin.formats.local_path import local_path
from coremargin.formats.location import is_remote, location, parse_storage_options, storage_options, storage_words


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("s3://bucket/rows.zarr", "s3://bucket/rows.zarr"), ("s3://bucket", "s3://bucket"), ("s3://b/x//", "s3://b/x"),
        (Path("s3://bucket/rows.zarr"), "s3://bucket/rows.zarr"), ("S3://Bucket/Rows", "s3://Bucket/Rows"),
        ("HTTPS://host/rows.zarr", "https://host/rows.zarr"), ("s3://b/a b%20é#?.zarr", "s3://b/a b%20é#?.zarr"),
        ("abfss://box@account.dfs.core.windows.net/x", "abfss://box@account.dfs.core.windows.net/x"),
        ("s3://b/you@home", "s3://b/you@home"), ("http://127.0.0.1:9000/b", "http://127.0.0.1:9000/b"),
    ],
)  # fmt: skip
def test_addresses(given: str | Path, found: str) -> None:
    """With a bucket alone, without slashes at the end, in the letters of names; schemes have small ones."""
    assert is_remote(given)
    assert location(given) == found
    assert location(location(given)) == found


@pytest.mark.parametrize(
    "address",
    [
        "s3://KEY:PLANTED@bucket/rows.zarr", "S3://KEY:PLANTED@bucket/rows.zarr", "s3:///KEY:PLANTED@bucket/rows.zarr",
        "s3a://KEY:PLANTED@bucket/rows.zarr", "hdfs:///you:PLANTED@host/x", "zip::gcs://KEY:PLANTED@bucket",
        "https://host/x?X-Amz-Signature=PLANTED", "HTTPS://host/x?token=PLANTED", "az://box/x?sp=r&sig=PLANTED",
        "ftp://host/x?password=PLANTED", "s3://b/x?AWSAccessKeyId=A&Signature=PLANTED", "https://you:PLANTED@host/x",
        "abfss://a:PLANTED@account/x",
    ],
)  # fmt: skip
def test_secrets_in_addresses_are_refused_and_not_repeated(address: str) -> None:
    """Whatever the scheme is: messages are logged and recorded."""
    for given in (address, Path(address)):
        for options in ({}, {"region": "a"}):
            with pytest.raises(UsageError) as caught:
                location(given, options)
            assert "PLANTED" not in str(caught.value)
        with pytest.raises(UsageError) as caught:
            local_path(given)
        assert "PLANTED" not in str(caught.value)


@pytest.mark.parametrize("address", ["s3://", "s3:///x", "s3://b//x", "s3://b/../x", "s3://b/\udc80", "s3://b/\0"])
def test_addresses_without_a_name_are_refused(address: str) -> None:
    """By what is expected instead, in text that can be printed."""
    with pytest.raises(UsageError, match="expected s3://BUCKET/NAME") as caught:
        location(address)
    assert str(caught.value).encode()


@pytest.mark.parametrize(
    "given",
    [
        {"endpoint": "http://["}, {"endpoint": "http://h:99999"}, {"endpoint": "h:9"}, {"endpoint": "http://u:p@h"},
        {"endpoint": "http://h?x=1"}, {"endpoint": ""}, {"region": None}, {"anon": None}, {"anon": "maybe"},
        {"anon": True, "skip_signature": False}, {"aws_region": "a", "region": "b"}, {"unknown": "x"},
        {"aws_secret_access_key": "PLANTED"}, {"AWS_SESSION_TOKEN": "PLANTED"},
    ],
)  # fmt: skip
def test_options_are_refused(given: dict[str, Any]) -> None:
    """What is no address, no value, or two values under two names; secrets are not repeated."""
    with pytest.raises(UsageError, match="storage option") as caught:
        storage_options(given)
    assert "PLANTED" not in str(caught.value)


def test_options_by_the_names_of_others() -> None:
    """Twice the same value is no contradiction."""
    given = {"AWS_REGION": "a", "region": "a", "anon": 1, "endpoint_url": "http://[::1]:9000"}
    assert storage_options(given) == {"region": "a", "skip_signature": "true", "endpoint": "http://[::1]:9000"}


def test_a_command_names_the_options_that_all_addresses_share() -> None:
    """Those of one address only would be wrong for the other one, and two values of one option are refused."""
    store = location("s3://a/rows.zarr", {"region": "x", "endpoint": "http://e"})
    same, other = location("s3://b/m", store.options), location("s3://b/m", {"region": "y", "endpoint": "http://e"})
    words = ["--storage-option", "region=x", "--storage-option", "endpoint=http://e"]
    assert storage_words(store) == storage_words(store, same) == storage_words(store, location("m"), None) == words
    assert storage_words(store, other) == words[2:]
    assert storage_words(location("s3://a/public", {"skip_signature": "true"}), other) == []
    assert storage_words(location("m"), "m") == []
    assert parse_storage_options(storage_words(store, same)[1::2]) == store.options
