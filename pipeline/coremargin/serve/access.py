"""Who may talk to a server of ours: whoever knows its address, by a name that is ours.

The address holds a token that nobody can guess: it is the only secret that a browser, a webhook and an ML backend's
client all send along. A site that lets its own name point here (DNS rebinding) sends a Host header that is not ours.
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
    """Where something is served: kept, so that who has the address goes on after a restart."""

    format: Literal["coremargin-address"] = "coremargin-address"
    version: Literal[1] = 1
    host: str = LOOPBACK[0]
    port: Annotated[int, Meta(ge=1, le=65535)]
    token: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{43}$")]

    @property
    def url(self) -> str:
        """What people open, or give to another program."""
        return f"http://{self.host}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host headers that are ours."""
        return tuple(f"{name}:{self.port}" for name in dict.fromkeys((self.host, *LOOPBACK)))


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def read_address(path: Path) -> Address | None:
    """That of the last time; None where there was none, or where others could have read it. path: of its file."""
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            return None
        found: Address = typed(Address, read_object(read_plain(path, LARGEST), str(path)), str(path))
    except (FileNotFoundError, DataError):
        return None
    return found


def write_address(path: Path, address: Address) -> None:
    """Write it down for this user alone. Raises OutputError."""
    before = os.umask(0o077)
    try:
        write_json(path, to_builtins(address))
    finally:
        os.umask(before)


def bind(path: Path, port: int | None, host: str = LOOPBACK[0]) -> tuple[Address, socket.socket]:
    """An address, kept at ``path``, and the socket that listens there: that of the last time, if it is free.

    Raises OutputError where the port that was asked for is taken, or the host is none of this machine's.
    """
    before = read_address(path)
    token = new_token() if before is None else before.token
    ports = [port] if port is not None else [before.port, 0] if before is not None else [0]
    for one in ports:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port of a server that has just ended
            listener.bind((host, one))
            listener.listen()
        except OSError as error:
            listener.close()
            if one != ports[-1]:
                continue
            where = f"port {one}" if host in LOOPBACK else f"{host}, port {one}"
            raise OutputError(f"{where}: cannot be listened at: {error.strerror}; choose another --port") from error
        listener.setblocking(False)
        address = Address(host=host, port=listener.getsockname()[1], token=token)
        write_address(path, address)
        return address, listener
    raise OutputError("no port is free")


def refusal(address: Address, host: str, token: str) -> tuple[int, str] | None:
    """The status and the reason for which a request is refused; None for one of ours. host: as the header has it."""
    if host not in address.hosts:
        return 421, f"expected the host {address.hosts[0]}, found another one: use the address that the terminal shows"
    if not hmac.compare_digest(token.encode(), address.token.encode()):
        return 403, "expected the address that the terminal shows, found another one: it changes with each campaign"
    return None


def log_failure(address: Address, error: BaseException) -> None:
    """Log the traceback of a request that failed, without the request: its path holds the token."""
    log.error("a request failed\n%s", "".join(traceback.format_exception(error)).replace(address.token, "TOKEN"))
