"""The protocol of Label Studio's ML backends over HTTP, with Tornado.

``GET /health``, ``POST /setup``, ``POST /predict``, ``POST /webhook``, below an address that holds a token: Label
Studio also sends its webhooks there, without the user and password that a backend may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers.expat import ExpatError, ParserCreate

from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler

from coremargin.active import Campaign
from coremargin.active.answers import check_number
from coremargin.active.external_answers import refuse_several
from coremargin.data.locked import Locked
from coremargin.errors import CoremarginError, DataError
from coremargin.formats.strict_json import cut, read_object
from coremargin.label_studio.annotations import CONTROL, task_of
from coremargin.label_studio.sync import LISTED, Synchronizer
from coremargin.page.row_view import RowView
from coremargin.serve.access import LOOPBACK, TOKEN, Address, check_request, log_failure, open_listener

if TYPE_CHECKING:
    import socket

    from coremargin.label_studio.client import Client


LONGEST = 64 << 20  #: bytes of a request: a batch of tasks with their texts
LAST = 1.0  #: the score of a row that is not queried now
LONGEST_CONFIGURATION = 1 << 20  #: characters; 4,096 classes usually take a quarter of it


class BackendHandler(RequestHandler):
    """The base of all request handlers."""

    def initialize(self, worker: Synchronizer, address: Address) -> None:
        """Called by Tornado with the arguments from ``application``."""
        self.worker, self.address = worker, address

    def set_default_headers(self) -> None:
        """Set the headers of all responses, errors included."""
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def prepare(self) -> None:
        """Reject requests without the token or from other sites."""
        token = self.path_args[0] if self.path_args else ""
        refused = check_request(self.address, self.request.headers.get("Host", ""), token)
        if refused is not None:
            raise HTTPError(refused[0], log_message=refused[1])

    def write_error(self, status_code: int, **more: Any) -> None:
        """Send the error as JSON, which Label Studio shows."""
        error = more.get("exc_info", (None, None, None))[1]
        known = error.log_message if isinstance(error, HTTPError) else None
        self.finish({"error": known or self._reason})

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """Log failures only, not rejected requests."""
        if not isinstance(error, HTTPError):
            log_failure(self.address, error)

    def body(self, name: str) -> dict[str, Any]:
        """The JSON object of the request."""
        try:
            return read_object(self.request.body, name, largest=LONGEST)
        except DataError as error:
            raise HTTPError(400, log_message=_escaped(str(error))) from None


class HealthHandler(BackendHandler):
    """A health check, with the status of the campaign for people."""

    def get(self, *_: str) -> None:
        """Serve it."""
        found = self.worker.found
        conflicts = [{"row": one.row, "said": dict(one.said)} for one in found.conflicts[:LISTED]]
        listed = {"conflicts": conflicts, "unasked": found.unasked[:LISTED]}
        listed["refused"] = [one._asdict() for one in found.refused[:LISTED]]
        ours = {
            "model_class": "coremargin",
            "model_version": self.worker.version,
            "trouble": self.worker.trouble,
        }
        self.finish({"status": "UP", **ours, "waiting": len(self.worker.order), **listed})


class SetupHandler(BackendHandler):
    """Called when a project is connected: checks that its labels are those of the campaign."""

    def post(self, *_: str) -> None:
        """Serve it."""
        schema = self.body("setup").get("schema")
        problem = (
            _configuration_problem(schema, [str(label) for label in self.worker.classes])
            if isinstance(schema, str)
            else None
        )
        if problem is not None:
            raise HTTPError(400, log_message=_escaped(problem))
        self.finish({"model_version": self.worker.version})


class PredictHandler(BackendHandler):
    """The score of a task, by which uncertainty sampling orders tasks, the lowest first.

    No label is suggested: annotators agree too often with a suggestion.
    """

    def post(self, *_: str) -> None:
        """Serve it."""
        tasks = self.body("predict").get("tasks")
        tasks = [tasks] if isinstance(tasks, dict) else tasks
        if not isinstance(tasks, list):
            raise HTTPError(400, log_message="predict: expected tasks, found none")
        version, order = self.worker.version, self.worker.order
        results = [{"result": [], "score": self._score(task, order), "model_version": version} for task in tasks]
        self.finish({"results": results, "model_version": version})

    def _score(self, task: Any, order: dict[int, int]) -> float:
        """Below one half for queried rows, in their order."""
        try:
            row = task_of(task if isinstance(task, dict) else {}, self.worker.key, "task", 0).row
        except DataError:  # a task of another campaign in the same project
            return LAST
        return LAST if row not in order else order[row] / (2.0 * len(order))


class WebhookHandler(BackendHandler):
    """Receives new, changed and deleted annotations."""

    async def post(self, *_: str) -> None:
        """Write the event to disk, then respond."""
        event = self.body("webhook")
        try:
            outcome = await asyncio.get_running_loop().run_in_executor(None, self.worker.receive, event)
        except DataError as error:
            raise HTTPError(400, log_message=_escaped(str(error))) from None
        except CoremarginError as error:
            raise HTTPError(507, log_message=_escaped(str(error))) from None
        self.set_status(200 if outcome == "nothing about annotations" else 201)
        self.finish({"status": outcome})


class NotFoundHandler(BackendHandler):
    """All other paths; reveals nothing without the token."""

    def prepare(self) -> None:
        """Respond with 404."""
        raise HTTPError(404)


def application(worker: Synchronizer, address: Address) -> Application:
    """The Tornado application."""
    parts = {"worker": worker, "address": address}
    places = {"(?:health)?": HealthHandler, "setup": SetupHandler, "predict": PredictHandler, "webhook": WebhookHandler}
    routes: list[Any] = [(f"/{TOKEN}/{name}/?", handler, parts) for name, handler in places.items()]
    routes.append((f"/{TOKEN}", HealthHandler, parts))
    return Application(
        routes, default_handler_class=NotFoundHandler, default_handler_args=parts, log_function=lambda _: None
    )


async def serve(worker: Synchronizer, address: Address, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until this is cancelled. ready: called when requests are answered."""
    server = HTTPServer(application(worker, address), max_body_size=LONGEST, idle_connection_timeout=120)
    server.add_socket(listener)
    worker.start()
    try:
        ready()
        await asyncio.Event().wait()
    finally:
        server.stop()


def _configuration_problem(schema: str, labels: list[str]) -> str | None:
    """Why a labelling configuration does not fit a campaign; None if it does, or while the classes are unknown."""
    if len(schema) > LONGEST_CONFIGURATION:
        return f"expected a configuration of at most {LONGEST_CONFIGURATION:,} characters, found {len(schema):,}"
    try:
        found = _choice_values(schema)
    except (ExpatError, ValueError) as error:
        return f"expected a labelling configuration in XML, cannot be read: {error}"
    if len(labels) < 2 or set(labels) <= set(found):
        return None
    return (
        f"expected choices for {cut(', '.join(labels))} in a control named {CONTROL!r}, found {cut(', '.join(found))}; "
        "`coremargin active label-studio CAMPAIGN --configuration` prints one that has them"
    )


def _choice_values(schema: str) -> list[str]:
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
    """The text with percent signs escaped, as Tornado formats messages with %."""
    return text.replace("%", "%%")


ADDRESS = "label-studio.json"  #: the file with the server's address, in the campaign's folder
WAIT_S = 3.0  #: for the background thread when the server is stopped


def run_backend(  # noqa: PLR0913 - what the options of the command say
    path: Path,
    *,
    ahead: int,
    client: Client | None,
    port: int | None = None,
    host: str | None = None,
    cluster: str | None = None,
    show: Mapping[str, str | None],
    ready: Callable[[Address], None],
) -> None:
    """Serve until KeyboardInterrupt. ready: called with the address when requests are answered.

    show: the arguments of ``RowView``. Raises Busy if another server runs for this campaign, OutputError if the port
    cannot be opened, UsageError if several people are asked about each row or ``ahead`` is 0, and what ``Campaign`` and
    ``RowView`` raise.
    """
    check_number(ahead)
    campaign = Campaign(path, cluster=cluster)
    refuse_several(campaign.settings.people)
    with Locked(campaign.path / ADDRESS, "answers of Label Studio", advice="end the other program first"):
        view = RowView(campaign.store, **show)
        address, listener = open_listener(campaign.path / ADDRESS, port, host or LOOPBACK[0])
        worker = Synchronizer(campaign, ahead=ahead, client=client, view=view)
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(serve(worker, address, listener, lambda: ready(address)))
        if worker.stop(WAIT_S):
            campaign.close()
