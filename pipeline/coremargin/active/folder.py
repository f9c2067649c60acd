"""A campaign: few labels for many rows, in a folder that can be killed at any moment.

::

    campaign.toml     the store, its commit, and what is to be proven; written once
    map.npz           where rows are mapped, the arrays that they are mapped by; written once
    answers.jsonl     the log: a line an answer, on disk before the next question, and one whenever the campaign goes
                      on with rows that were appended to the store; only ever appended to
    votes.jsonl       where several people are asked about a row: what each of them says, chained as the log is
    telling           answers that are in the log together or not at all; there only while they are written
    inbox.jsonl       answers that came while somebody else was at work, for the log
    label-studio.jsonl  what was heard from Label Studio, where people answer there; only ever appended to
    asked.json        rows that were asked about, put in place before anybody sees them
    state/            a checkpoint: what the log would give again, without its scans and solves; may be lost
    model/            the model, when the campaign is certified or stopped

The state is a function of the first three and of the store, to the bit where the same coremargin computes it on the
same kind of processor: answers are taken one at a time in the order of the log, but for the examples that it begins
with, which are taken together; and each line says how many scans there were before it, and for which attempt its row
was drawn, to try which hypothesis. Elsewhere attempts that were begun stay spent, and so are those that tried another.

A store may grow meanwhile: where a scan is due, a campaign that goes on looks for rows that were appended, and goes on
with all of them. Nothing else that was done to the store is taken for growth.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from threadpoolctl import ThreadpoolController

from coremargin.active.facts import job_of, read_facts
from coremargin.active.forecast import Outlook, distance_of, outlook
from coremargin.active.inbox import Inbox, Refused
from coremargin.active.lock import campaign_lock
from coremargin.active.player import Player
from coremargin.active.queried_rows import name_of
from coremargin.active.questions import Questions
from coremargin.active.recording import settle, take_received
from coremargin.active.report import write_report
from coremargin.active.summary import figures, model_now, save, settle_model
from coremargin.active.votes import Votes
from coremargin.engine.loop import Callbacks
from coremargin.errors import Busy
from coremargin.formats.current_answers import taken_back
from coremargin.formats.local_path import local_path

if TYPE_CHECKING:
    from coremargin.data.store import Store
    from coremargin.models.active import ActiveModel
    from coremargin.models.active_classes import ActiveClassesModel


class CampaignFolder:
    """A campaign on disk, open: what it is about, where it stands, and the right to work on it.

    Parameters and errors are those of ``Campaign``, which asks and is told.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cluster: str | os.PathLike[str] | None = None,
        watch: Callbacks | None = None,
    ) -> None:
        self.path = Path(os.path.realpath(local_path(path)))
        self.facts, self._first = read_facts(self.path)
        job = job_of(self.facts, self.path)
        self._player = Player(self.path, self.facts, self._first, job, watch or Callbacks(), cluster)
        self._votes = Votes(self.path, self.facts, self._first)
        self._questions = Questions(self.path, self._player, self.facts.expires, self._votes)
        self._inbox, self.refused = Inbox(self.path), list[Refused]()
        self._settled: tuple[str, str] | None = None
        self._depth, self._thread = 0, threading.RLock()
        self._blas = ThreadpoolController()  # one thread: the same bits on any number of cores; it takes long to make
        with self.held():  # reads the log, and brings the state up to it; who was killed may not have come to the model
            self._settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save what would have to be computed again, and stop what scans were run by."""
        with suppress(Busy), self.held():  # nothing but time is lost where somebody else is at work
            self._player.save()
        self._player.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """The right to work on the campaign, with all that others have written known.

        Threads wait for each other. Every method takes it for itself; whoever holds it does several things with nobody
        in between.

        Yields
        ------
        None
            While this is so.

        Raises
        ------
        Busy
            Another process works on it.
        """
        with self._thread:
            if self._depth:
                yield
            else:
                with self._locked():
                    yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (
            campaign_lock(self.path),
            self._blas.limit(limits=1, user_api="blas"),
        ):
            self._player.refresh()
            self._questions.refresh()
            self._votes.check(self._player.log.lines)
            started = time.perf_counter()
            self._depth = 1
            try:
                self._receive()
                yield
            finally:
                self._depth = 0
                self._player.meters.seconds += time.perf_counter() - started

    def _receive(self) -> None:
        """Take the answers that came while somebody was at work."""
        if self._inbox.read()[1]:
            self.refused += take_received(self._player, self._questions, self._inbox)
            self._settle()
        elif self._votes.asked_for:
            settle(self._player, self._questions)
            self._settle()

    @property
    def store(self) -> Store:
        """The rows, at the commit that the campaign is about now."""
        return self._player.ground.store

    @property
    def key(self) -> str:
        """Which campaign this is, in 16 hexadecimal digits: tasks that are kept elsewhere say whose they are."""
        return self._first[:16]

    @property
    def newest_rows(self) -> int:
        """Rows that the store has by now: more than ``store`` where some were appended. Raises StoreError."""
        newest = self._player.ground.newest()
        return self.store.rows if newest is None else newest.rows

    @property
    def classes(self) -> list[Any]:
        """The labels as far as they are known, of two (negative, positive)."""
        with self.held():
            return self._player.classes

    @property
    def status(self) -> dict[str, Any]:
        """Where the campaign stands: answers, draws, scans, bounds."""
        with self.held():
            conflicts = [{"row": row, "said": said} for row, said in self._votes.conflicts().items()]
            conflicts = [one for one in conflicts if one["row"] not in self._player.log.held.labels]
            more = {"people": self._votes.people, "settle": self._votes.judge, "conflicts": conflicts}
            return figures(self._player, awaited=len(self._questions.open())) | more

    @property
    def model(self) -> ActiveModel | ActiveClassesModel:
        """The model of the answers so far."""
        with self.held():
            return model_now(self._player)

    @property
    def outlook(self) -> Outlook:
        """What is left to do, as far as anybody can know."""
        with self.held():
            return outlook(self._player.problem, self._player.state)

    @property
    def named(self) -> bool:
        """Whether the campaign names its classes; else they are those that its answers hold."""
        return self.facts.classes is not None

    @property
    def taken_back(self) -> list[int]:
        """Rows whose answer was taken back, and that have none since, the last one first."""
        with self.held():
            return taken_back(self._player.log.lines)

    @property
    def answer_ids(self) -> frozenset[str]:
        """Of all answers in the log that came with one."""
        with self.held():
            return frozenset(self._player.log.ids)

    @property
    def answered_rows(self) -> frozenset[int]:
        """Rows with an answer that holds."""
        with self.held():
            return frozenset(self._player.log.held.labels)

    def distance_of(self, row: int) -> tuple[float, float] | None:
        """How far a row lies from the nearest hyperplane.

        Parameters
        ----------
        row : int
            Its number.

        Returns
        -------
        (float, float) or None
            The distance, and how far the slab reaches that rows are asked about in; None before two classes are known.
        """
        with self.held():
            return distance_of(self._player.problem, self._player.state, row)

    def answer_of(self, row: int) -> Any:
        """The answer about a row that holds.

        Parameters
        ----------
        row : int
            Its number.

        Returns
        -------
        object or None
            Its label; None where there is none.
        """
        with self.held():
            return self._player.log.held.labels.get(row)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The answers that hold, by row: its label, who gave it and when, and why the row was asked about."""
        with self.held():
            held = self._player.log.held.labels
            last = {line.row: line for line in self._player.log.lines if line.row in held and line.label is not None}
        names = ("row", "label", "who", "when", "why", "attempt")
        return [{name: getattr(last[row], name) for name in names} for row in sorted(last)]

    def last_answer(self, who: str | None = None) -> tuple[int, Any] | None:
        """The answer that somebody gave last, of those that hold.

        Parameters
        ----------
        who : str, optional
            Who gave it; None: the user of this process.

        Returns
        -------
        (int, object) or None
            Its row and label; None where there is none.
        """
        with self.held():
            mine = self.answers_of(who)
            return mine[-1] if mine else None

    def answers_of(self, who: str | None = None) -> list[tuple[int, Any]]:
        """The answers that somebody gave, of those that hold, in their order.

        Parameters
        ----------
        who : str, optional
            Who gave them; None: the user of this process.

        Returns
        -------
        list of (int, object)
            Rows and labels.
        """
        with self.held():
            name, held = name_of(who), self._player.log.held.labels
            if self._votes.asked_for and name != self._votes.judge:
                return self._votes.of(name)
            last = {line.row: line for line in self._player.log.lines if line.row in held}
            mine = sorted((line.number, line.row) for line in last.values() if line.who == name)
            return [(row, held[row]) for _, row in mine]

    def rows(self, ids: Sequence[int]) -> Any:
        """Rows of the store as they are.

        Parameters
        ----------
        ids : sequence of int
            Row numbers.

        Returns
        -------
        ndarray or csr_array of shape (m, d)
            Float64.
        """
        import numpy as np

        return self.store.rows_at(np.array(ids, np.int64))[0]

    def stop(self) -> bool:
        """Write the model of the answers so far; the campaign can be gone on with.

        Returns
        -------
        bool
            False where answers are of one class only: there is no model.
        """
        with self.held():
            self._player.save()
            return save(self._player, self.path)

    def report(self) -> Path:
        """Write the report of the campaign, ``report.html`` in its folder.

        Returns
        -------
        Path
            Where it is.

        Raises
        ------
        UsageError
            The answers are of one class only.
        """
        with self.held():
            return write_report(self._player, self._votes, self.path)

    def _settle(self) -> None:
        """Bring the model up to what the answers say, where that is something new."""
        now = self._player.state.status, self._player.mark.about
        if now != self._settled:
            settle_model(self._player, self.path)
            self._settled = now
