"""Access control of local servers: a secret token in the address, and a check of the Host header.

The token is the only secret that browsers, webhooks and clients of ML backends all send. The Host header reveals sites
whose name resolves to this machine (DNS rebinding).
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import stat
import traceback
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, to_builtins

from coremargin.data.files import write_json
from coremargin.errors import DataError, OutputError
from coremargin.formats.model_record import Strict
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST, read_object, typed

log = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "localhost")
TOKEN = "([A-Za-z0-9_-]{1,64})"  # noqa: S105 - a pattern


class Address(Strict, frozen=True, kw_only=True):
    """Address of a server; saved, so that it stays valid after a restart."""

    format: Literal["coremargin-address"] = "coremargin-address"
    version: Literal[1] = 1
    host: str = LOOPBACK[0]
    port: Annotated[int, Meta(ge=1, le=65535)]
    token: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{43}$")]

    @property
    def url(self) -> str:
        """For browsers and other programs."""
        return f"http://{self.host}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Valid Host headers."""
        return tuple(f"{name}:{self.port}" for name in dict.fromkeys((self.host, *LOOPBACK)))


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def load_address(path: Path) -> Address | None:
    """The saved address; None if there is none, or if other users may have read it."""
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            return None
        found: Address = typed(Address, read_object(read_plain(path, LARGEST), str(path)), str(path))
    except (FileNotFoundError, DataError):
        return None
    return found


def save_address(path: Path, address: Address) -> None:
    """Save the address, readable for this user only. Raises OutputError."""
    before = os.umask(0o077)
    try:
        write_json(path, to_builtins(address))
    finally:
        os.umask(before)


def open_listener(path: Path, port: int | None, host: str = LOOPBACK[0]) -> tuple[Address, socket.socket]:
    """Open a socket, and save its address at ``path``; reuses the saved address if its port is free.

    Raises OutputError if the given port is in use, or the host is not one of this machine.
    """
    before = load_address(path)
    token = new_token() if before is None else before.token
    ports = [port] if port is not None else [before.port, 0] if before is not None else [0]
    for one in ports:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port of a server that has just stopped
            listener.bind((host, one))
            listener.listen()
        except OSError as error:
            listener.close()
            if one != ports[-1]:
                continue
            where = f"port {one}" if host in LOOPBACK else f"{host}, port {one}"
            raise OutputError(f"{where}: cannot listen: {error.strerror}; choose another --port") from error
        listener.setblocking(False)
        address = Address(host=host, port=listener.getsockname()[1], token=token)
        save_address(path, address)
        return address, listener
    raise OutputError("no port is free")


def check_request(address: Address, host: str, token: str) -> tuple[int, str] | None:
    """HTTP status and reason if a request is refused, else None; host: the header."""
    if host not in address.hosts:
        return 421, f"expected the host {address.hosts[0]}: use the address that the terminal shows"
    if not hmac.compare_digest(token.encode(), address.token.encode()):
        return 403, "wrong token: use the address that the terminal shows, which differs between campaigns"
    return None


def log_failure(address: Address, error: BaseException) -> None:
    """Log the traceback of a failed request, without its path, which contains the token."""
    log.error("a request failed\n%s", "".join(traceback.format_exception(error)).replace(address.token, "TOKEN"))
