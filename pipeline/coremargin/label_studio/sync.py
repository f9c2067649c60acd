"""A background thread that records Label Studio's annotations in a campaign, and creates tasks for its questions.

Received annotations are on disk before this thread sees them, so a restart records those that are left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from coremargin.active.external_answers import FollowResult
from coremargin.errors import Busy, CoremarginError, DataError, LabelError
from coremargin.label_studio.annotations import AnnotationLog, news_of
from coremargin.label_studio.client import Unreachable
from coremargin.label_studio.export_file import take_export
from coremargin.label_studio.tasks import Tasks
from coremargin.page.row_view import RowView
from coremargin.serve.background import BackgroundThread

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.queried_rows import Question
    from coremargin.label_studio.annotations import ReceivedAnnotation
    from coremargin.label_studio.client import Client

log = logging.getLogger(__name__)

IDLE_S = 5.0  #: between two checks for changes by other processes
AGAIN_S = 300.0  #: between two exports: webhooks are sent once, and may be lost
LISTED = 100  #: most rejected rows in the status


class Synchronizer(BackgroundThread):
    """Works on a campaign. ahead: questions to keep ready. client: for creating tasks.

    view: what a task shows of a row; None: its features.
    """

    def __init__(
        self, campaign: Campaign, *, ahead: int, client: Client | None = None, view: RowView | None = None
    ) -> None:
        super().__init__("label-studio")
        self._campaign, self._ahead, self._client = campaign, ahead, client
        self._view = view or RowView(campaign.store)
        self._annotations, self._tasks = AnnotationLog(campaign.path), Tasks(campaign.key, self._view)
        self._annotations_lock = threading.RLock()
        self._rows_with_task: set[int] | None = None  # rows with a task; None until an export was read
        self._export_due, self._exported, self._wait_s = client is not None, 0.0, IDLE_S
        self.key = self.version = campaign.key
        self.order = dict[int, int]()
        self.found, self.trouble, self.classes = FollowResult(), "", campaign.classes

    def receive(self, event: Mapping[str, Any]) -> str:
        """Write the content of an event to disk. Raises DataError, OutputError.

        Returns the outcome in a word or two.
        """
        with self._annotations_lock:
            news = news_of(event, self._campaign.key, self._annotations)
            if news is None:
                return "nothing about annotations"
            self._refuse_rows_beyond(news.annotations)
            if news.annotations:
                self._annotations.put(news.annotations)
        if news.unclear:
            self._export_due = True
            if self._client is None:
                log.warning("an event does not name what it is about: an export tells it, with --url and --project")
        self._wake.set()
        return "unclear" if news.unclear else "ok"

    def _refuse_rows_beyond(self, annotations: Iterable[ReceivedAnnotation]) -> None:
        """Raises DataError for a row beyond the newest commit of the store."""
        last = max((one.row for one in annotations), default=-1)
        if last >= self._campaign.store.rows and last >= (rows := self._campaign.newest_rows):
            raise DataError(f"row {last:,}: expected one of the {rows:,} rows of the store; make the tasks again")

    # the thread

    def _turn(self) -> float:
        trouble = self._work()
        if trouble and trouble != self.trouble:
            log.warning("%s", trouble)
        self.trouble = trouble
        return self._wait_s

    def _work(self) -> str:
        """Do all pending work; returns a message if something prevented it."""
        try:
            self._synchronize()
        except Busy:
            return "another program works on this campaign; annotations are stored, and recorded when it has ended"
        except (Unreachable, CoremarginError, MemoryError, OSError) as error:
            self._wait_s = min(60.0, 2 * self._wait_s) if isinstance(error, Unreachable) else IDLE_S
            return str(error) or type(error).__name__
        self._wait_s = IDLE_S
        return ""

    def _synchronize(self) -> None:
        """Record annotations first, even if Label Studio cannot be reached.

        Errors that prevent further questions, such as answers that are all the same, are raised last.
        """
        unreachable = one_class = None
        with self._campaign.locked():
            self._follow()
            try:
                self._fetch_export()
            except Unreachable as error:
                unreachable = error
            try:
                self._ask_ahead()
            except LabelError as error:  # shown to people
                one_class = error
        if unreachable is not None:
            raise unreachable
        self._add_tasks()
        if one_class is not None:
            raise one_class

    def _follow(self) -> None:
        with self._annotations_lock:
            self._annotations.refresh()
            reports = self._annotations.reports()
        self.found = self._campaign.follow(reports)
        self._publish()

    def _fetch_export(self) -> None:
        """Fetch all annotations of the project if an event was incomplete, and from time to time."""
        if self._client is None or not (self._export_due or time.monotonic() - self._exported > AGAIN_S):
            return
        with TemporaryDirectory(prefix="coremargin-") as folder:
            file = Path(folder) / "export.json"
            self._export_due, began = False, time.time()
            try:
                self._client.export(file)
                with self._annotations_lock:
                    export, self.found = take_export(
                        self._campaign, self._annotations, file, whole=True, strict=False, began=began
                    )
            except BaseException:
                self._export_due = True
                raise
        self._rows_with_task, self._exported = export.rows, time.monotonic()

    def _ask_ahead(self) -> None:
        """Ask until ``ahead`` questions are open."""
        waiting = self._open_questions()
        try:
            if 2 * len(waiting) <= self._ahead:
                self._campaign.ask(self._ahead - len(waiting), who="Label Studio")
        finally:
            self._publish()

    def _add_tasks(self) -> None:
        """Add tasks for questions that have none."""
        if self._client is None or self._rows_with_task is None:
            return
        new = [one for one in self._open_questions() if one.row not in self._rows_with_task]
        if new:
            self._client.add([self._tasks.task(one) for one in new])
            self._rows_with_task |= {one.row for one in new}

    def _open_questions(self) -> list[Question]:
        return self._campaign.ask(1, again=True)

    def _publish(self) -> None:
        status, self._view.store = self._campaign.status, self._campaign.store
        self.order = {one.row: place for place, one in enumerate(self._open_questions())}
        self.classes, self.version = status["classes"], f"{self._campaign.key}-{status['labels_asked']}"
