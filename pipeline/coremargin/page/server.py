"""The page over HTTP, by Tornado: on the loopback address only, for who knows the address, by our own page only."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler

from coremargin.errors import DataError
from coremargin.formats.strict_json import read_object, typed
from coremargin.page.access import HEADERS, as_json, refusal
from coremargin.page.messages import Declined, Post
from coremargin.report.page import template
from coremargin.serve.access import TOKEN, log_failure

if TYPE_CHECKING:
    import socket

    from coremargin.page.row_view import Shown
    from coremargin.page.worker import CampaignWorker
    from coremargin.serve.access import Address

LONGEST = 1 << 16  #: bytes of a request
POLL_S = 20.0  #: a browser that asks what is new hears of nothing after so long
FILES = {
    "style.css": ("text/css", ("report/style.css", "page/style.css")),
    "script.js": ("text/javascript", ("page/script.js",)),
}


class News:
    """Wakes those who wait for something new, from whatever thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._event = loop, asyncio.Event()

    def tell(self) -> None:
        """There is something new."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, seconds: float) -> None:
        """Until there is, or for so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)


class Base(RequestHandler):
    """What all requests have in common: who may ask, and what a browser may do with the answer."""

    def initialize(self, desk: CampaignWorker, shown: Shown, address: Address, news: News, title: str) -> None:
        """Tornado hands over what ``served`` has put together."""
        self.desk, self.shown, self.address, self.news, self.heading = desk, shown, address, news, title

    def set_default_headers(self) -> None:
        """Of every answer, errors too."""
        for name, value in HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self) -> None:
        """Refuse whoever has no business here."""
        refused = refusal(self.address, self.request.method or "", self.path_args[0], self.request.headers)
        if refused is not None:
            raise HTTPError(refused[0], reason=None, log_message=refused[1])

    def write_error(self, status_code: int, **more: Any) -> None:
        """A line of text: nothing of the request is repeated."""
        error = more.get("exc_info", (None, None, None))[1]
        known = isinstance(error, HTTPError) and error.log_message
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{error.log_message if known else self._reason}\n")

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """Log failures only: refusals are no news for the terminal."""
        if not isinstance(error, HTTPError):
            log_failure(self.address, error)

    def send(self, value: dict[str, Any], code: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(code)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(as_json(value))


class Page(Base):
    """The page itself; without a name the question who is there."""

    def get(self, _: str) -> None:
        """Serve it."""
        who = self.get_query_argument("who", "").strip()
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(template("page/page.html.j2").render(who=who, title=self.heading))


class File(Base):
    """Style and script."""

    def get(self, _: str, name: str) -> None:
        """Serve it."""
        kind, parts = FILES[name]
        root = resources.files("coremargin")
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish("\n".join(root.joinpath(*part.split("/")).read_text(encoding="utf-8") for part in parts))


class State(Base):
    """What there is to see for somebody; after ``version`` as soon as there is something new."""

    async def get(self, _: str) -> None:
        """Serve it."""
        who = self.get_query_argument("who").strip()
        if not who:
            raise HTTPError(400, log_message="expected a name, found none")
        try:
            who = self.desk.arrive(who)
        except Declined as error:
            raise HTTPError(error.code, log_message=str(error)) from None
        version, run = self.get_query_argument("version", ""), self.get_query_argument("run", "")
        until = time.monotonic() + POLL_S
        board = self.desk.board
        while run == board.run and version == str(board.version) and time.monotonic() < until:
            await self.news.wait(until - time.monotonic())
        self.send(board.view(who))


class Answer(Base):
    """An answer, a skip, an undo."""

    async def post(self, _: str) -> None:
        """Take it, and serve what is next."""
        try:
            post: Post = typed(Post, read_object(self.request.body, "the answer", largest=LONGEST), "the answer")
        except DataError as error:
            raise HTTPError(400, log_message=str(error)) from None
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.desk.take, post)
        except Declined as error:
            return self.send({"kind": error.kind, "message": str(error), "run": self.desk.board.run}, error.code)
        return self.send(self.desk.board.view(self.desk.arrive(post.who)))


class Image(Base):
    """The image of a row."""

    async def get(self, _: str, row: str) -> None:
        """Serve it."""
        try:
            kind, data = await asyncio.get_running_loop().run_in_executor(None, self.shown.picture, int(row))
        except DataError as error:
            raise HTTPError(404, log_message=str(error)) from None
        self.set_header("Content-Type", kind)
        self.set_header("Content-Security-Policy", "default-src 'none'; sandbox")
        self.finish(data)


def application(**parts: Any) -> Application:
    """What answers requests; parts: as ``Base.initialize`` has them."""
    token = f"/{TOKEN}"
    routes = [
        (f"{token}/", Page, parts),
        (f"{token}/({'|'.join(FILES)})", File, parts),
        (f"{token}/state", State, parts),
        (f"{token}/answer", Answer, parts),
        (f"{token}/image/([0-9]{{1,18}})", Image, parts),
    ]
    return Application(routes, default_handler_class=Nothing, log_function=lambda _: None)


class Nothing(RequestHandler):
    """Whatever is nowhere; who knows no token learns nothing."""

    def set_default_headers(self) -> None:
        """As of all others."""
        for name, value in HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    def prepare(self) -> None:
        """Nothing is there."""
        raise HTTPError(404)

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """No news for the terminal."""


async def serve(
    make: Callable[[Callable[[], None]], tuple[CampaignWorker, Shown]],
    address: Address,
    listener: socket.socket,
    title: str,
    ready: Callable[[CampaignWorker], None],
) -> None:
    """Serve until this is cancelled. make: the desk and what it shows, of what is to be called when there is news."""
    news = News(asyncio.get_running_loop())
    desk, shown = make(news.tell)
    app = application(desk=desk, shown=shown, address=address, news=news, title=title)
    server = HTTPServer(app, max_body_size=LONGEST, max_header_size=LONGEST, idle_connection_timeout=120)
    server.add_socket(listener)
    desk.start()
    try:
        ready(desk)
        await asyncio.Event().wait()
    finally:
        server.stop()
