"""The page of a campaign over HTTP, with Tornado: on the loopback address, for browsers that know its token."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import json
from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler

from coremargin.active import Campaign
from coremargin.data.locked import Locked
from coremargin.engine.loop import Callbacks
from coremargin.errors import Busy, DataError
from coremargin.formats.strict_json import read_object, typed
from coremargin.page.queue import Declined, Post
from coremargin.page.row_view import RowView
from coremargin.page.worker import CampaignWorker, ScanProgress
from coremargin.report.page import template
from coremargin.serve.access import TOKEN, check_request, load_address, log_failure, open_listener

if TYPE_CHECKING:
    import socket

    from coremargin.serve.access import Address


FILE = "page.json"  #: the file with the page's address, in the campaign's folder

#: Headers of all responses: load own files only, cache nothing, allow no frame of another page.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def request_refusal(address: Address, method: str, token: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """The status and the reason with which a request is rejected; None for a valid one."""
    refused = check_request(address, headers.get("Host", ""), token)
    if refused is None and method == "POST":
        if headers.get("Origin") not in [f"http://{one}" for one in address.hosts]:
            return 403, "expected an answer from this page, found one from another site"
        if headers.get("Content-Type", "").partition(";")[0] != "application/json":
            return 415, "expected an answer as JSON"
    return refused


def as_json(value: object) -> bytes:
    """JSON that is safe in HTML: it contains no characters that could end a script or begin a tag."""
    return json.encode(value).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


LONGEST = 1 << 16  #: bytes of a request
POLL_S = 20.0  #: a long poll returns after this time, even without a change
FILES = {
    "style.css": ("text/css", ("report/style.css", "page/style.css")),
    "script.js": ("text/javascript", ("page/script.js",)),
}


class News:
    """Wakes waiting requests after a change, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._event = loop, asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting requests."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for the next change, at most this long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)


class PageRequestHandler(RequestHandler):
    """The base of all request handlers: checks requests, and sets security headers."""

    def initialize(self, worker: CampaignWorker, view: RowView, address: Address, news: News, title: str) -> None:
        """Called by Tornado with the arguments from ``application``."""
        self.worker, self.view, self.address, self.news, self.heading = worker, view, address, news, title

    def set_default_headers(self) -> None:
        """Set the headers of all responses, errors included."""
        for name, value in HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self) -> None:
        """Reject requests without the token or from other sites."""
        refused = request_refusal(self.address, self.request.method or "", self.path_args[0], self.request.headers)
        if refused is not None:
            raise HTTPError(refused[0], reason=None, log_message=refused[1])

    def write_error(self, status_code: int, **more: Any) -> None:
        """Send a line of text, which repeats nothing of the request."""
        error = more.get("exc_info", (None, None, None))[1]
        known = isinstance(error, HTTPError) and error.log_message
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{error.log_message if known else self._reason}\n")

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """Log failures only, not rejected requests."""
        if not isinstance(error, HTTPError):
            log_failure(self.address, error)

    def send(self, value: dict[str, Any], code: int = 200) -> None:
        """Respond with JSON."""
        self.set_status(code)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(as_json(value))


class PageHandler(PageRequestHandler):
    """The page; without a name, a form that asks for one."""

    def get(self, _: str) -> None:
        """Serve it."""
        who = self.get_query_argument("who", "").strip()
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(template("page/page.html.j2").render(who=who, title=self.heading))


class FileHandler(PageRequestHandler):
    """Style and script."""

    def get(self, _: str, name: str) -> None:
        """Serve it."""
        kind, parts = FILES[name]
        root = resources.files("coremargin")
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish("\n".join(root.joinpath(*part.split("/")).read_text(encoding="utf-8") for part in parts))


class StateHandler(PageRequestHandler):
    """The view of an annotator; with ``version``, waits for a change after it."""

    async def get(self, _: str) -> None:
        """Serve it."""
        who = self.get_query_argument("who").strip()
        if not who:
            raise HTTPError(400, log_message="expected a name, found none")
        try:
            who = self.worker.arrive(who)
        except Declined as error:
            raise HTTPError(error.code, log_message=str(error)) from None
        version, run = self.get_query_argument("version", ""), self.get_query_argument("run", "")
        until = time.monotonic() + POLL_S
        queue = self.worker.queue
        while run == queue.run and version == str(queue.version) and time.monotonic() < until:
            await self.news.wait(until - time.monotonic())
        self.send(queue.view(who))


class AnswerHandler(PageRequestHandler):
    """An answer, a skip, an undo."""

    async def post(self, _: str) -> None:
        """Accept it, and send the next view."""
        try:
            post: Post = typed(Post, read_object(self.request.body, "the answer", largest=LONGEST), "the answer")
        except DataError as error:
            raise HTTPError(400, log_message=str(error)) from None
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.worker.take, post)
        except Declined as error:
            return self.send({"kind": error.kind, "message": str(error), "run": self.worker.queue.run}, error.code)
        return self.send(self.worker.queue.view(self.worker.arrive(post.who)))


class ImageHandler(PageRequestHandler):
    """The image of a row."""

    async def get(self, _: str, row: str) -> None:
        """Serve it."""
        try:
            kind, data = await asyncio.get_running_loop().run_in_executor(None, self.view.picture, int(row))
        except DataError as error:
            raise HTTPError(404, log_message=str(error)) from None
        self.set_header("Content-Type", kind)
        self.set_header("Content-Security-Policy", "default-src 'none'; sandbox")
        self.finish(data)


def application(**parts: Any) -> Application:
    """The Tornado application; parts: the arguments of ``PageRequestHandler.initialize``."""
    token = f"/{TOKEN}"
    routes = [
        (f"{token}/", PageHandler, parts),
        (f"{token}/({'|'.join(FILES)})", FileHandler, parts),
        (f"{token}/state", StateHandler, parts),
        (f"{token}/answer", AnswerHandler, parts),
        (f"{token}/image/([0-9]{{1,18}})", ImageHandler, parts),
    ]
    return Application(routes, default_handler_class=NotFound, default_handler_args=parts, log_function=lambda _: None)


class NotFound(PageRequestHandler):
    """All other paths; reveals nothing without the token."""

    write_error = RequestHandler.write_error

    def prepare(self) -> None:
        """Refuse every request."""
        raise HTTPError(404)


async def serve(
    make: Callable[[Callable[[], None]], tuple[CampaignWorker, RowView]],
    address: Address,
    listener: socket.socket,
    title: str,
    ready: Callable[[CampaignWorker], None],
) -> None:
    """Serve until this is cancelled. make: returns the worker and the view of rows, given a callback for changes."""
    news = News(asyncio.get_running_loop())
    worker, view = make(news.notify)
    app = application(worker=worker, view=view, address=address, news=news, title=title)
    server = HTTPServer(app, max_body_size=LONGEST, max_header_size=LONGEST, idle_connection_timeout=120)
    server.add_socket(listener)
    worker.start()
    try:
        ready(worker)
        await asyncio.Event().wait()
    finally:
        server.stop()


WAIT_S = 3.0  #: for the background thread when the page is closed


def run_page(
    path: Path,
    *,
    text: str | None,
    image: str | None,
    pixels: str | None,
    port: int | None,
    cluster: str | None,
    ready: Callable[[Address], None],
) -> None:
    """Serve the page of a campaign until KeyboardInterrupt. ready: called with its address when it can be opened.

    Raises Busy if a page of this campaign is already served, and what ``Campaign`` and ``RowView`` raise.
    """
    progress = ScanProgress()
    watch = Callbacks(on_scan=progress.scan, on_block=progress.block)
    campaign = Campaign(path, cluster=cluster, watch=watch)
    with _PageLock(campaign.path):
        view = RowView(campaign.store, text=text, image=image, pixels=pixels)
        address, listener = open_listener(campaign.path / FILE, port)
        workers = list[CampaignWorker]()

        def make(changed: Callable[[], None]) -> tuple[CampaignWorker, RowView]:
            workers.append(CampaignWorker(campaign, view, progress, changed))
            return workers[0], view

        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(serve(make, address, listener, campaign.path.name, lambda _: ready(address)))
        if not workers or workers[0].stop(WAIT_S):
            campaign.close()


class _PageLock(Locked):
    """The lock that allows one page per campaign; the error names the address of the first."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE, "")
        self._folder = folder

    def __enter__(self) -> Self:
        try:
            super().__enter__()
        except Busy:
            address = load_address(self._folder / FILE)
            where = "" if address is None else f" at {address.url}"
            raise Busy(
                f"{self._folder}: its page is open already{where}; open that address, by as many people as you like, "
                "or end the other program first"
            ) from None
        return self
