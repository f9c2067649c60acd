"""Paths as people give them: addresses are refused, file addresses and home folders resolved, all else is a name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.errors import UsageError
from coremargin.formats.local_path import local_path

SCHEMES = (
    "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "wasb", "http", "https", "ftp", "sftp", "ssh", "hf", "hdfs",
    "webhdfs", "memory", "dbfs", "oss", "github", "zip", "simplecache::s3", "zip://a.zip::gs", "S3", "git+https", "r2",
)  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES)
def test_addresses_are_refused(scheme: str) -> None:
    """As text, as bytes, and as a Path, which has lost a slash."""
    address = f"{scheme}://bucket/rows.zarr"
    for one in (address, address.encode(), Path(address), f"{scheme}:///x", f"{scheme}://"):
        with pytest.raises(UsageError, match="is not supported yet, expected a path on this machine"):
            local_path(one)


@pytest.mark.parametrize(
    "name",
    [
        "rows.zarr", "a/b", "/a/b", "C:\\rows", "C:/rows", "a:b", "a:b/c", "rows.csv:column", "rows.csv:/column", ":/x",
        "://x", "1:/x", "é://x", "a b", "x~", "a/~", "%20", "file.txt", "file:x", ".", "..", "-", "s3:", "s3:x", "a/s3://b",
        "rows@champion", "./x", "http", "sub dir/#1?.csv", "*.csv", "[ab].csv",
    ],
)  # fmt: skip
def test_names_are_names(name: str) -> None:
    """Colons, backslashes, letters of drives, percent signs and tildes elsewhere mean nothing."""
    assert local_path(name) == Path(name)
    assert local_path(Path(name)) == Path(name)
    assert local_path(os.fsencode(name)) == Path(name)


def test_bytes_that_are_no_text_are_a_name() -> None:
    """A name is bytes, and need not be UTF-8."""
    assert os.fsencode(local_path(b"\xff/a")) == b"\xff/a"


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///a/b", "/a/b"), ("file://localhost/a", "/a"), ("FILE://LocalHost/a", "/a"), ("file:///a%20b", "/a b"),
        ("file:///a b", "/a b"), ("file:///%C3%A9", "/é"), ("file:///é", "/é"), ("file:///a%25b", "/a%b"),
        ("file:///a%3Fb%23c", "/a?b#c"), ("file:///s3:/x", "/s3:/x"), ("file:///~/a", "/~/a"),
        ("file:///a%zz", "/a%zz"),
    ],
)  # fmt: skip
def test_file_addresses_are_paths(address: str, path: str) -> None:
    """Of this machine, with percent signs decoded once."""
    assert local_path(address) == Path(path)
    assert local_path(local_path(address)) == Path(path)


def test_bytes_in_file_addresses() -> None:
    """Percent signs may say bytes that are no text."""
    assert os.fsencode(local_path("file:///%FF")) == b"/\xff"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("file://otherhost/a", "found one of 'otherhost'"), ("file://127.0.0.1/a", "found one of '127.0.0.1'"),
        ("file://localhost:80/a", "found one of"), ("file://user@localhost/a", "found one of"),
        ("file://a", "found one of"),
        ("file://~/a", "found one of '~'"), ("file:/a", "found one slash"), (Path("file:///a"), "found one slash"),
        (Path("file://otherhost/a"), "found one slash"), ("file:///a?b", "as %3F and %23"),
        ("file:///a#b", "as %3F and %23"),
        ("file:///a%00b", "without NUL"), ("", "without NUL"), ("a\0b", "without NUL"), ("a\ud800", "without NUL"),
        ("~nobody-of-this-name/x", "no user of that name"), ("~nobody-of-this-name", "no user of that name"),
    ],
)  # fmt: skip
def test_what_can_be_no_path_here(address: str | Path, message: str) -> None:
    """Other hosts, queries, NULs, nothing, users that there are not."""
    with pytest.raises(UsageError, match=message):
        local_path(address)


def test_home_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A leading tilde is a home folder, whoever passes it; a name that begins so is written with ./ in front."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path("~") == local_path(Path("~")) == tmp_path
    assert local_path("~/rows.zarr") == local_path(b"~/rows.zarr") == tmp_path / "rows.zarr"
    assert local_path("~root/x") == Path("~root/x").expanduser()
    for name in ("~", "~x", "s3:/b", "s3://b"):
        found = local_path(f"./{name}")
        assert found == Path.cwd() / name
        assert local_path(found) == found


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_what_comes_out_may_go_in_again(text: str) -> None:
    """A path that was taken is taken as itself."""
    try:
        found = local_path(text)
    except UsageError:
        return
    assert local_path(found) == found
