"""Each process finds its own credentials: environment, profiles, programs; they are renewed, and refusals are named."""

from __future__ import annotations

import re
import stat
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cloud_kit import KEYS
from coremargin.data.storages import open_storage
from coremargin.data.store import Store
from coremargin.errors import RunError
from coremargin.formats import object_storage
from coremargin.formats.location import location

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloud_kit import BucketServer
    from coremargin.formats.location import Location

_PROGRAM = """#!{python}
import json, time
from datetime import datetime, timedelta, timezone
until = datetime.now(timezone.utc) + timedelta(seconds={seconds})
keys = dict(Version=1, AccessKeyId=f"AK{{time.time_ns()}}", SecretAccessKey="s", SessionToken="t")
print(json.dumps(keys | dict(Expiration=until.isoformat())))
"""


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """None in the environment."""
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def key_of(header: str) -> str:
    """The access key that signed a request; "" of one without a signature."""
    found = re.search(r"Credential=([^/]+)/", header)
    return found[1] if found else ""


def test_a_profile(
    place: Location, server: BucketServer, no_keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the shared file, with its region."""
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKPROFILE\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    server.allow = lambda header: "" if key_of(header) == "AKPROFILE" else "InvalidAccessKeyId"
    assert Store.open(place).rows == 10_000
    server.allow = lambda header: "InvalidAccessKeyId"
    with pytest.raises(RunError, match=r"InvalidAccessKeyId\), with .* \(shared-credentials-file\)"):
        Store.open(place)


def test_credentials_that_expire_are_renewed(
    place: Location, server: BucketServer, no_keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the program of a profile, each time for a few seconds, which are over before the last request."""
    program = tmp_path / "program"
    program.write_text(_PROGRAM.format(python=sys.executable, seconds=2))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    # obstore asks again five minutes before credentials expire: here after half a second, not after half a minute
    monkeypatch.setattr(object_storage, "_CREDENTIALS_LAST", timedelta(minutes=5, seconds=0.5))
    seen = set[str]()

    def allow(header: str) -> str:
        seen.add(key_of(header))
        made_s = int(key_of(header)[2:]) / 1e9
        return "ExpiredToken" if time.time() - made_s > 60 else ""

    server.allow = allow
    store = Store.open(place)
    for chunk in range(3):
        time.sleep(1.1)
        store.read(chunk)
    assert len(seen) > 1


def test_no_credentials_are_reported_at_once(place: Location, no_keys: None) -> None:
    """Without asking a service for minutes."""
    started = time.monotonic()
    with pytest.raises(RunError, match="no credentials found"):
        Store.open(place)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("how", ["profile", "program", "half"])
def test_credentials_that_cannot_be_used_are_reported(
    place: Location, no_keys: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A missing profile, a program that fails, a key without its secret: by name, without the text of libraries."""
    if how == "profile":
        monkeypatch.setenv("AWS_PROFILE", "missing")
    elif how == "half":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAHALF")
    else:
        program = tmp_path / "program"
        program.write_text("#!/bin/sh\necho PLANTED >&2\nexit 3\n")
        program.chmod(0o755)
        (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    expected = {"profile": "ProfileNotFound", "half": "PartialCredentials", "program": "CredentialRetrieval"}[how]
    with pytest.raises(RunError, match=rf"cannot get credentials \({expected}") as caught:
        Store.open(place)
    assert caught.value.__context__ is None  # which is pickled with an error, and would repeat what the program wrote


def test_errors_do_not_carry_the_text_of_libraries(place: Location, server: BucketServer) -> None:
    """Neither in their cause nor in their context: both travel from workers."""
    store = Store.open(place)
    server.allow = lambda header: "AccessDenied"
    for request in (lambda: store.read(0), lambda: open_storage(place).open("a"), lambda: Store.open(place)):
        with pytest.raises(RunError) as caught:
            request()
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_a_public_bucket(place: Location, server: BucketServer, no_keys: None, at: Callable[..., Location]) -> None:
    """Is read without a signature."""
    server.allow = lambda header: "AccessDenied" if header else ""
    assert Store.open(at("rows.zarr", anonymous="true")).rows == 10_000
    assert Store.open(str(place), storage_options={"endpoint": server.endpoint, "anon": "true"}).rows == 10_000


def test_a_service_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is reported by its address, after some tries."""
    monkeypatch.setattr(object_storage, "_RETRIES", object_storage._RETRIES | {"max_retries": 1})
    with pytest.raises(RunError, match="no answer from the storage service"):
        Store.open(location("s3://buck/rows.zarr", {"endpoint": "http://127.0.0.1:9"}))


@pytest.mark.parametrize("code", ["PermanentRedirect", "AuthorizationHeaderMalformed"])
def test_a_wrong_region(place: Location, server: BucketServer, code: str) -> None:
    """Is named, with the option that helps."""
    server.allow = lambda header: code
    with pytest.raises(RunError, match="region=NAME"):
        Store.open(place)
