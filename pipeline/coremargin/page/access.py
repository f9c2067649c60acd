"""Who may talk to the page: whoever knows its address, from this machine, by a browser that was sent there.

The address holds a token that nobody can guess. A site that lets its own name point here (DNS rebinding) sends a Host
header that is not ours, and a page of another site an Origin that is not.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, json, to_builtins

from coremargin.data.files import write_json
from coremargin.errors import DataError
from coremargin.formats.model_record import Strict
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST, read_object, typed

FILE = "page.json"
HOSTS = ("127.0.0.1", "localhost")

#: What every answer says: nothing but our own files is loaded, nothing is kept, nobody frames the page or hears of it.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Address(Strict, frozen=True, kw_only=True):
    """Where a campaign's page is served: kept, so that a tab which is open goes on after a restart."""

    format: Literal["coremargin-page"] = "coremargin-page"
    version: Literal[1] = 1
    port: Annotated[int, Meta(ge=1, le=65535)]
    token: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{43}$")]

    @property
    def url(self) -> str:
        """What people open."""
        return f"http://{HOSTS[0]}:{self.port}/{self.token}/"


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def kept_address(folder: Path) -> Address | None:
    """That of the last time; None where there was none, or where others could have read it."""
    path = folder / FILE
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            return None
        found: Address = typed(Address, read_object(read_plain(path, LARGEST), str(path)), str(path))
    except (FileNotFoundError, DataError):
        return None
    return found


def keep_address(folder: Path, address: Address) -> None:
    """Write it down for this user alone. Raises OutputError."""
    before = os.umask(0o077)
    try:
        write_json(folder / FILE, to_builtins(address))
    finally:
        os.umask(before)


def refusal(address: Address, method: str, token: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """The status and the reason for which a request is refused; None for one of ours."""
    hosts = [f"{name}:{address.port}" for name in HOSTS]
    host, origin = headers.get("Host", ""), headers.get("Origin")
    if host not in hosts:
        return 421, f"expected the host {hosts[0]}, found another one: open the address that the terminal shows"
    if not hmac.compare_digest(token.encode(), address.token.encode()):
        return 403, "expected the address that the terminal shows, found another one: it changes with each campaign"
    if method == "POST":
        if origin not in [f"http://{one}" for one in hosts]:
            return 403, "expected an answer from this page, found one from another site"
        if headers.get("Content-Type", "").partition(";")[0] != "application/json":
            return 415, "expected an answer as JSON"
    return None


def as_json(value: object) -> bytes:
    """For a browser: nothing in it can end a script or begin a tag."""
    return json.encode(value).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
