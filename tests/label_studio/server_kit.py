"""Our backend on a free port of this machine, a Label Studio that it asks, and requests to both."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from coremargin.label_studio.server import ADDRESS, serve
from coremargin.label_studio.sync import Synchronizer
from coremargin.serve.access import Address, open_listener

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.label_studio.client import Client
    from studio_kit import Project


def asked(
    address: Address, method: str, path: str, body: Any = None, *, token: str | None = None, host: str | None = None
) -> tuple[int, Any]:
    """The status and the JSON of an answer; body: as JSON, or bytes as they are."""
    connection = HTTPConnection("127.0.0.1", address.port, timeout=60)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    headers = {} if host is None else {"Host": host}
    connection.request(method, f"/{token or address.token}/{path}", data, headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def sent(address: Address, event: dict[str, Any]) -> int:
    """The status of the answer to an event."""
    return asked(address, "POST", "webhook", event)[0]


class Backend:
    """A backend that runs, and what Label Studio would send it."""

    def __init__(self, address: Address, worker: Synchronizer) -> None:
        self.address, self.worker = address, worker

    def request(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        return asked(self.address, method, path, body, **more)

    def send(self, event: dict[str, Any]) -> int:
        return sent(self.address, event)


@contextmanager
def backend(campaign: Campaign, *, ahead: int = 5, client: Client | None = None) -> Iterator[Backend]:
    """It serves a campaign while the context lasts."""
    address, listener = open_listener(campaign.path / ADDRESS, None)
    worker, started = Synchronizer(campaign, ahead=ahead, client=client), threading.Event()
    loop = asyncio.new_event_loop()
    task = loop.create_task(serve(worker, address, listener, started.set))
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([task])), daemon=True)
    thread.start()
    started.wait(30)
    try:
        yield Backend(address, worker)
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(30)
        worker.stop(30)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


class Studio:
    """Serves a project as Label Studio does; status: what it answers instead, where that is set."""

    def __init__(self, project: Project, key: str = "secret") -> None:
        self.project, self.key, self.status, self.exports = project, key, 0, 0
        studio = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Not in the output of tests."""

            def do_GET(self) -> None:
                studio.exports += 1
                wanted = f"/api/projects/{project.number}/export?exportType=JSON&download_all_tasks=true"
                self.reply(studio.status or (200 if self.path == wanted else 404), project.tasks)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/api/token/refresh":
                    return self.reply(200, {"access": f"of {body['refresh']}"}, signed=False)
                if not studio.status:
                    project.add(body)
                return self.reply(studio.status or 201, {"task_count": len(body)})

            def reply(self, status: int, value: Any, *, signed: bool = True) -> None:
                good = (f"Token {studio.key}", f"Bearer of {studio.key}")
                status = 401 if signed and self.headers["Authorization"] not in good else status
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
