"""A thread aside that brings a campaign to what Label Studio says, and Label Studio to what the campaign asks.

Whatever is heard is on disk before this thread knows of it; it may be taken now, or after a restart.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from coremargin.active.external_answers import Followed
from coremargin.errors import Busy, CoremarginError, DataError, LabelError
from coremargin.label_studio.annotation_log import AnnotationLog
from coremargin.label_studio.client import Away
from coremargin.label_studio.events import news_of
from coremargin.label_studio.export_file import take_export
from coremargin.label_studio.tasks import Tasks
from coremargin.page.row_view import Shown
from coremargin.serve.background import BackgroundThread

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.queried_rows import Question
    from coremargin.label_studio.annotations import ReceivedAnnotation
    from coremargin.label_studio.client import Client

log = logging.getLogger(__name__)

IDLE_S = 5.0  #: between two looks at what other processes have done
AGAIN_S = 300.0  #: between two exports: webhooks are sent once, and may be lost
LISTED = 100  #: rows of what was not taken


class Synchronizer(BackgroundThread):
    """Of a campaign that is open. ahead: questions that are to lie ready. client: where they are put as tasks.

    shown: what people see of a row there; None: its features.
    """

    def __init__(
        self, campaign: Campaign, *, ahead: int, client: Client | None = None, shown: Shown | None = None
    ) -> None:
        super().__init__("label-studio")
        self._campaign, self._ahead, self._client = campaign, ahead, client
        self._shown = shown or Shown(campaign.store)
        self._hearsay, self._tasks = AnnotationLog(campaign.path), Tasks(campaign.key, self._shown)
        self._hearing = threading.RLock()
        self._there: set[int] | None = None  # rows that have a task, as far as that is known
        self._export_due, self._exported, self._wait_s = client is not None, 0.0, IDLE_S
        self.key = self.version = campaign.key
        self.order = dict[int, int]()
        self.found, self.trouble, self.classes = Followed(), "", campaign.classes

    def hear(self, event: Mapping[str, Any]) -> str:
        """Take an event: what it says is on disk when this returns. Raises DataError, OutputError.

        Returns what became of it in a word or two.
        """
        with self._hearing:
            news = news_of(event, self._campaign.key, self._hearsay)
            if news is None:
                return "nothing about annotations"
            self._refuse_rows_beyond(news.heard)
            if news.heard:
                self._hearsay.put(news.heard)
        if news.unclear:
            self._export_due = True
            if self._client is None:
                log.warning("an event does not name what it is about: an export tells it, with --url and --project")
        self._wake.set()
        return "unclear" if news.unclear else "ok"

    def _refuse_rows_beyond(self, heard: Iterable[ReceivedAnnotation]) -> None:
        """Raises DataError for a row that the store has not, at its newest commit neither."""
        last = max((one.row for one in heard), default=-1)
        if last >= self._campaign.store.rows and last >= (rows := self._campaign.newest_rows):
            raise DataError(f"row {last:,}: expected one of the {rows:,} rows of the store; make the tasks again")

    # the thread

    def _work(self) -> float:
        trouble = self._tried()
        if trouble and trouble != self.trouble:
            log.warning("%s", trouble)
        self.trouble = trouble
        return self._wait_s

    def _tried(self) -> str:
        """Do what there is to do; what kept it from that, for people."""
        try:
            self._do()
        except Busy:
            return "another program works on this campaign; what is heard is kept, and taken when it has ended"
        except (Away, CoremarginError, MemoryError, OSError) as error:
            self._wait_s = min(60.0, 2 * self._wait_s) if isinstance(error, Away) else IDLE_S
            return str(error) or type(error).__name__
        self._wait_s = IDLE_S
        return ""

    def _do(self) -> None:
        """Follow first: whatever is heard is taken, whether Label Studio can be asked or not.

        Raises what keeps questions from lying ready last, such as answers that are all the same.
        """
        away = same = None
        with self._campaign.held():
            self._follow()
            try:
                self._look()
            except Away as error:
                away = error
            try:
                self._top_up()
            except LabelError as error:  # people have to know
                same = error
        if away is not None:
            raise away
        self._push()
        if same is not None:
            raise same

    def _follow(self) -> None:
        with self._hearing:
            self._hearsay.refresh()
            reports = self._hearsay.reports()
        self.found = self._campaign.follow(reports)
        self._publish()

    def _look(self) -> None:
        """All that Label Studio has, where an event was unclear, and now and then."""
        if self._client is None or not (self._export_due or time.monotonic() - self._exported > AGAIN_S):
            return
        with TemporaryDirectory(prefix="coremargin-") as folder:
            file = Path(folder) / "export.json"
            self._export_due, began = False, time.time()
            try:
                self._client.export(file)
                with self._hearing:
                    export, self.found = take_export(
                        self._campaign, self._hearsay, file, whole=True, strict=False, began=began
                    )
            except BaseException:
                self._export_due = True
                raise
        self._there, self._exported = export.rows, time.monotonic()

    def _top_up(self) -> None:
        """Ask, so that as many questions lie ready."""
        waiting = self._asked()
        try:
            if 2 * len(waiting) <= self._ahead:
                self._campaign.ask(self._ahead - len(waiting), who="Label Studio")
        finally:
            self._publish()

    def _push(self) -> None:
        """Make tasks of questions that have none."""
        if self._client is None or self._there is None:
            return
        new = [one for one in self._asked() if one.row not in self._there]
        if new:
            self._client.add([self._tasks.task(one) for one in new])
            self._there |= {one.row for one in new}

    def _asked(self) -> list[Question]:
        return self._campaign.ask(1, again=True)

    def _publish(self) -> None:
        status, self._shown.store = self._campaign.status, self._campaign.store
        self.order = {one.row: place for place, one in enumerate(self._asked())}
        self.classes, self.version = status["classes"], f"{self._campaign.key}-{status['labels_asked']}"
