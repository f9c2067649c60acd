"""Servers of objects for the tests: one of our own over a folder, with latency and faults, and moto's S3.

``python cloud_kit.py FOLDER --delay 0.03 --megabytes 90`` serves a folder in a process of its own; it prints the
endpoint.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Block

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTONLY",
    "AWS_SECRET_ACCESS_KEY": "planted/secret+0123456789",
    "AWS_REGION": "us-east-1",
}
_STATUS = {"PermanentRedirect": 301, "AuthorizationHeaderMalformed": 400, "ExpiredToken": 400}
LARGE = 1 << 14  #: bytes from which on answers may be flipped


@dataclass
class Faults:
    """What goes wrong: shares of answers; seconds to the first byte; megabytes a second of each connection."""

    busy: float = 0.0
    reset: float = 0.0
    flip: float = 0.0
    delay: float = 0.0
    megabytes: float = 0.0
    happened: dict[str, int] = field(default_factory=lambda: {"busy": 0, "reset": 0, "flip": 0})
    random: random.Random = field(default_factory=lambda: random.Random(5))  # noqa: S311

    def happens(self, name: str) -> bool:
        """Whether this one does now."""
        found = self.random.random() < getattr(self, name)
        self.happened[name] += found
        return found


class LoopbackServer:
    """A server in threads of this process, whose handler finds it as ``server.served``."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.served = self
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    served: Any


class BucketServer(LoopbackServer):
    """The folders of a folder as buckets, by the requests of S3 that readers send.

    allow: called with the authorization header of a request, returns "" or the code of a refusal. requests: method and
    key of each; busiest: of how many at a time. hidden: whether listing is refused; ranges: whether parts are sent;
    alter: what is sent of an object in the place of its bytes.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.faults = root, Faults()
        self.allow: Callable[[str], str] = lambda header: ""
        self.requests: list[tuple[str, str]] = []
        self.hidden, self.ranges = False, True
        self.alter: Callable[[str, bytes], bytes] | None = None
        self.running = self.busiest = 0
        self.counting = threading.Lock()
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        """An object, part of one, or a listing."""
        served, address = self.server.served, urlsplit(self.path)
        faults, key = served.faults, unquote(address.path).lstrip("/")
        served.requests.append((self.command, key))
        with served.counting:
            served.running += 1
            served.busiest = max(served.busiest, served.running)
        time.sleep(faults.delay)
        with served.counting:
            served.running -= 1
        if faults.happens("busy"):
            return self.refuse(503, "SlowDown")
        code = served.allow(self.headers.get("Authorization", ""))
        if code:
            return self.refuse(_STATUS.get(code, 403), code)
        if not (served.root / key.split("/")[0]).is_dir():
            return self.refuse(404, "NoSuchBucket")
        if "list-type" in (query := parse_qs(address.query)):
            return self.refuse(403, "AccessDenied") if served.hidden else self.list(key, query)
        path = served.root / key
        if not path.is_file():
            return self.refuse(403, "AccessDenied") if served.hidden else self.refuse(404, "NoSuchKey")
        status_of = path.stat()
        tag, size = f"{status_of.st_ino:x}-{status_of.st_mtime_ns:x}", status_of.st_size
        start, stop, status, extra = 0, size, 200, {}
        given = self.headers.get("Range", "") if served.ranges else ""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", given)
        if wanted:
            start, stop = int(wanted[1]), min(size, int(wanted[2]) + 1 if wanted[2] else size)
            if start >= size:
                return self.refuse(416, "InvalidRange")
            status, extra = 206, {"Content-Range": f"bytes {start}-{stop - 1}/{size}"}
        if served.alter is not None:
            data = served.alter(key, path.read_bytes())[start:stop]
        else:
            with path.open("rb") as file:
                file.seek(start)
                data = file.read(stop - start)
        self.answer(status, data, {"ETag": f'"{tag}"', **extra})
        return None

    def list(self, key: str, query: dict[str, list[str]]) -> None:
        """ListObjectsV2 of a whole bucket."""
        bucket = self.server.served.root / key.strip("/")
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        folders, parts = set[str](), list[str]()
        for path in sorted(file for file in bucket.rglob("*") if file.is_file()):
            name = str(path.relative_to(bucket))
            below = name[len(prefix) :]
            if not name.startswith(prefix):
                continue
            if delimiter and delimiter in below:
                folders.add(prefix + below.split(delimiter)[0] + delimiter)
            else:
                parts.append(
                    f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    f"<ETag>&quot;0&quot;</ETag><Size>{path.stat().st_size}</Size></Contents>"
                )
        parts += [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)]
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(parts)}</ListBucketResult>"
        self.answer(200, body.encode(), {"Content-Type": "application/xml"})

    def refuse(self, status: int, code: str) -> None:
        """An error of S3."""
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode(), {}, fail=False)

    def answer(self, status: int, data: bytes, headers: dict[str, str], *, fail: bool = True) -> None:
        """Send it, or what a fault makes of it."""
        faults = self.server.served.faults
        self.send_response(status)
        for name, value in ({"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"} | headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fail and len(data) >= LARGE and faults.happens("flip"):
            at = faults.random.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with suppress(ConnectionError):
            if fail and faults.happens("reset"):
                self.wfile.write(data[: len(data) // 2])
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            step, started = 1 << 20 if faults.megabytes else len(data) or 1, time.monotonic()
            for at in range(0, len(data), step):
                self.wfile.write(data[at : at + step])
                if faults.megabytes:
                    due = started + (at + step) / (faults.megabytes * 1e6)
                    time.sleep(max(0.0, due - time.monotonic()))


@dataclass(frozen=True)
class WaitProbe:
    """The seconds that the first chunk of a block takes to come, before some work; importable on worker processes."""

    work_s: float

    def narrow(self, block: Block) -> WaitProbe:
        return self

    def __call__(self, source: Source, block: Block) -> float:
        started = time.perf_counter()
        source.read(block.chunks[0])
        waited = time.perf_counter() - started
        time.sleep(self.work_s)
        for chunk in block.chunks[1:]:
            source.read(chunk)
        return waited


@contextmanager
def served_bucket(root: Path) -> Iterator[BucketServer]:
    """Our server over a folder, in this process."""
    with closing(BucketServer(root)) as server:
        yield server


@contextmanager
def moto_server() -> Iterator[str]:
    """The endpoint of moto's S3, in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with suppress(OSError):
                urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=5).close()  # noqa: S310 - on loopback
                break
            assert process.poll() is None, "moto's server has ended"
            time.sleep(0.1)
        yield endpoint
    finally:
        process.terminate()
        process.wait()


class Proxy(LoopbackServer):
    """Between a client and a service: it notes requests, refuses some, loses answers, or drops their conditions.

    refuse: called with method and path, returns "" or the code of a refusal. lose: whether the answer is lost, though
    the request was done. ignores: headers that the service never sees. requests: method and path of each.
    """

    def __init__(self, endpoint: str) -> None:
        self.target = urlsplit(endpoint)
        self.refuse: Callable[[str, str], str] = lambda method, path: ""
        self.lose: Callable[[str, str], bool] = lambda method, path: False
        self.ignores: tuple[str, ...] = ()
        self.requests: list[tuple[str, str]] = []
        super().__init__(_ProxyHandler)


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """Pass it on."""
        proxy: Proxy = self.server.served
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(self.path)
        proxy.requests.append((self.command, path))
        if code := proxy.refuse(self.command, path):
            return self.answer(403, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())
        headers = {k: v for k, v in self.headers.items() if k.lower() not in proxy.ignores}
        target = http.client.HTTPConnection(str(proxy.target.hostname), proxy.target.port, timeout=60)
        target.request(self.command, self.path, body, headers)
        found = target.getresponse()
        data = found.read()
        target.close()
        if proxy.lose(self.command, path):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        dropped = ("connection", "transfer-encoding", "content-length", "date", "server")
        kept = {k: v for k, v in found.getheaders() if k.lower() not in dropped}
        size = found.getheader("Content-Length") if self.command == "HEAD" else None
        return self.answer(found.status, kept, data, size)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def answer(self, status: int, headers: dict[str, str], data: bytes, size: str | None = None) -> None:
        """Send it."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", size or str(len(data)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(b"" if self.command == "HEAD" else data)


@contextmanager
def proxied(endpoint: str) -> Iterator[Proxy]:
    """A proxy in front of a service, in this process."""
    with closing(Proxy(endpoint)) as proxy:
        yield proxy


def upload(folder: Path, store: Any, prefix: str) -> None:
    """Put the files of a folder below a prefix of obstore's ``store``."""
    import obstore

    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        obstore.put(store, f"{prefix}/{path.relative_to(folder)}", path.read_bytes())


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    for name in ("busy", "reset", "flip", "delay", "megabytes"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    found = vars(parser.parse_args())
    server = BucketServer(found.pop("root"))
    for name, value in found.items():
        setattr(server.faults, name, value)
    os.write(1, f"{server.endpoint}\n".encode())
    threading.Event().wait()


if __name__ == "__main__":
    _main()
