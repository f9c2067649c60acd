"""The protocol of Label Studio's ML backends over HTTP, by Tornado.

``GET /health``, ``POST /setup``, ``POST /predict``, ``POST /webhook``, below an address that holds a token: Label
Studio sends its webhooks there as well, without the user and password that it may be told for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.parsers.expat import ExpatError, ParserCreate

from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler

from coremargin.errors import CoremarginError, DataError
from coremargin.formats.strict_json import cut, read_object
from coremargin.label_studio.annotations import CONTROL, task_of
from coremargin.label_studio.sync import LISTED
from coremargin.serve.access import TOKEN, Address, check_request, log_failure

if TYPE_CHECKING:
    import socket

    from coremargin.label_studio.sync import Synchronizer

LONGEST = 64 << 20  #: bytes of a request: a batch of tasks with their texts
LAST = 1.0  #: the score of a row that nobody is asked about now
LONGEST_CONFIGURATION = 1 << 20  #: characters; 4,096 classes take up a quarter of it, as a rule


class Base(RequestHandler):
    """What all requests have in common."""

    def initialize(self, desk: Synchronizer, address: Address) -> None:
        """Tornado hands over what ``application`` has put together."""
        self.desk, self.address = desk, address

    def set_default_headers(self) -> None:
        """Of every answer, errors too."""
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def prepare(self) -> None:
        """Refuse whoever has no business here."""
        token = self.path_args[0] if self.path_args else ""
        refused = check_request(self.address, self.request.headers.get("Host", ""), token)
        if refused is not None:
            raise HTTPError(refused[0], log_message=refused[1])

    def write_error(self, status_code: int, **more: Any) -> None:
        """What was wrong, as JSON: Label Studio shows it."""
        error = more.get("exc_info", (None, None, None))[1]
        known = error.log_message if isinstance(error, HTTPError) else None
        self.finish({"error": known or self._reason})

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """Log failures only: refusals are no news for the terminal."""
        if not isinstance(error, HTTPError):
            log_failure(self.address, error)

    def body(self, name: str) -> dict[str, Any]:
        """The object that was sent."""
        try:
            return read_object(self.request.body, name, largest=LONGEST)
        except DataError as error:
            raise HTTPError(400, log_message=_escaped(str(error))) from None


class Health(Base):
    """Whether we are here; and how the campaign stands, for people who look."""

    def get(self, *_: str) -> None:
        """Serve it."""
        found = self.desk.found
        conflicts = [{"row": one.row, "said": dict(one.said)} for one in found.conflicts[:LISTED]]
        told = {"conflicts": conflicts, "unasked": found.unasked[:LISTED]}
        told["refused"] = [one._asdict() for one in found.refused[:LISTED]]
        ours = {"model_class": "coremargin", "model_version": self.desk.version, "trouble": self.desk.trouble}
        self.finish({"status": "UP", **ours, "waiting": len(self.desk.order), **told})


class Setup(Base):
    """A project is connected: its labels must be those of the campaign."""

    def post(self, *_: str) -> None:
        """Serve it."""
        schema = self.body("setup").get("schema")
        problem = _unfit(schema, [str(label) for label in self.desk.classes]) if isinstance(schema, str) else None
        if problem is not None:
            raise HTTPError(400, log_message=_escaped(problem))
        self.finish({"model_version": self.desk.version})


class Predict(Base):
    """How soon a task should be answered: its score, the lowest first, as uncertainty sampling takes them.

    No answer is suggested: whoever is shown one agrees with it too often.
    """

    def post(self, *_: str) -> None:
        """Serve it."""
        tasks = self.body("predict").get("tasks")
        tasks = [tasks] if isinstance(tasks, dict) else tasks
        if not isinstance(tasks, list):
            raise HTTPError(400, log_message="predict: expected tasks, found none")
        version, order = self.desk.version, self.desk.order
        results = [{"result": [], "score": self._score(task, order), "model_version": version} for task in tasks]
        self.finish({"results": results, "model_version": version})

    def _score(self, task: Any, order: dict[int, int]) -> float:
        """Below one half of rows that are asked about, in their order."""
        try:
            row = task_of(task if isinstance(task, dict) else {}, self.desk.key, "task", 0).row
        except DataError:  # of a project that has other tasks as well
            return LAST
        return LAST if row not in order else order[row] / (2.0 * len(order))


class Webhook(Base):
    """Somebody has answered, changed an answer or taken one back."""

    async def post(self, *_: str) -> None:
        """Take it: it is on disk when Label Studio hears that it is."""
        event = self.body("webhook")
        try:
            became = await asyncio.get_running_loop().run_in_executor(None, self.desk.hear, event)
        except DataError as error:
            raise HTTPError(400, log_message=_escaped(str(error))) from None
        except CoremarginError as error:
            raise HTTPError(507, log_message=_escaped(str(error))) from None
        self.set_status(200 if became == "nothing about annotations" else 201)
        self.finish({"status": became})


class Nothing(Base):
    """Whatever is nowhere; who knows no token learns nothing."""

    def prepare(self) -> None:
        """Nothing is there."""
        raise HTTPError(404)


def application(desk: Synchronizer, address: Address) -> Application:
    """What answers requests."""
    parts = {"desk": desk, "address": address}
    places = {"(?:health)?": Health, "setup": Setup, "predict": Predict, "webhook": Webhook}
    routes: list[Any] = [(f"/{TOKEN}/{name}/?", handler, parts) for name, handler in places.items()]
    routes.append((f"/{TOKEN}", Health, parts))
    return Application(routes, default_handler_class=Nothing, default_handler_args=parts, log_function=lambda _: None)


async def serve(desk: Synchronizer, address: Address, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until this is cancelled. ready: called when requests are answered."""
    server = HTTPServer(application(desk, address), max_body_size=LONGEST, idle_connection_timeout=120)
    server.add_socket(listener)
    desk.start()
    try:
        ready()
        await asyncio.Event().wait()
    finally:
        server.stop()


def _unfit(schema: str, labels: list[str]) -> str | None:
    """Why a labelling configuration does not go with a campaign; None: it does, or nobody can know yet."""
    if len(schema) > LONGEST_CONFIGURATION:
        return f"expected a configuration of at most {LONGEST_CONFIGURATION:,} characters, found {len(schema):,}"
    try:
        found = _choices(schema)
    except (ExpatError, ValueError) as error:
        return f"expected a labelling configuration in XML, cannot be read: {error}"
    if len(labels) < 2 or set(labels) <= set(found):
        return None
    return (
        f"expected choices for {cut(', '.join(labels))} in a control named {CONTROL!r}, found {cut(', '.join(found))}; "
        "`coremargin active label-studio CAMPAIGN --configuration` prints one that has them"
    )


def _choices(schema: str) -> list[str]:
    """The values of all choices in a labelling configuration; raises ExpatError, and ValueError for entities."""
    found, within = list[str](), 0

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal within
        within += tag == "Choices"
        if within and tag == "Choice" and "value" in attributes:
            found.append(attributes["value"])

    def end(tag: str) -> None:
        nonlocal within
        within -= tag == "Choices"

    def refuse(*_: object) -> None:
        raise ValueError("it defines a document type")

    parser = ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = begin, end, refuse
    parser.Parse(schema, True)
    return found


def _escaped(text: str) -> str:
    """Tornado takes a percent sign in a message for a place to fill in."""
    return text.replace("%", "%%")
