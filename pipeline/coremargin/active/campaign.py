"""A campaign: few labels for many rows, in a folder that survives a kill at any moment.

::

    campaign.toml     the store, its commit, and what is to be proven; written once
    map.npz           the arrays of the feature map, if rows are mapped; written once
    answers.jsonl     the log: a line per answer, on disk before the next question, and one whenever rows that were
                      appended to the store are included; append-only
    votes.jsonl       if several people label each row: the answer of each, chained by hashes like the log
    pending           answers that enter the log all together or not at all; exists only while they are written
    inbox.jsonl       answers received while another process held the lock; they go to the log next
    label-studio.jsonl  annotations received from Label Studio; append-only
    asked.json        queried rows, written before a question is shown
    state/            a checkpoint that saves recomputing scans and solves from the log; may be lost
    model/            the model, when the campaign is certified or stopped

The state is a function of the first three files and of the store: answers are learned one at a time in the order of the
log, except for the examples at its beginning, which are learned together. The same coremargin on the same kind of
processor computes the same bits. Each line of the log has the number of scans before it and, if its row was drawn, the
attempt and the hash of the tested hypothesis. If another machine computes another hypothesis, the attempts that were
begun stay used up.

The store may grow: before each scan, a running campaign includes all appended rows. Any other change of the store is an
error.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from threadpoolctl import ThreadpoolController

from coremargin.active.answers import Annotation, check_number, name_of, named_classes, row_number
from coremargin.active.campaign_state import CampaignState
from coremargin.active.create import Rules, check_people, create_campaign, job_of, read_settings
from coremargin.active.external_answers import Follower, FollowResult, Refusal, refuse_several, sort_reports
from coremargin.active.inbox import Inbox, RefusedAnswer, received_answer
from coremargin.active.log import Log, campaign_lock
from coremargin.active.queried_rows import Question
from coremargin.active.questions import Questions
from coremargin.active.report import write_report
from coremargin.active.status import Forecast, current_model, distance_of, forecast, status_of
from coremargin.active.votes import Votes
from coremargin.data.amend import write_labels
from coremargin.data.folder import recover
from coremargin.data.format import UNLABELLED
from coremargin.data.store import Store
from coremargin.engine.loop import Callbacks
from coremargin.errors import Busy, DamagedChunk, DataError, StoreError, UsageError
from coremargin.formats.campaign import MODEL
from coremargin.formats.current_answers import same
from coremargin.formats.local_path import local_path
from coremargin.formats.location import is_remote, location
from coremargin.learn.record import run_record
from coremargin.models.files import MODEL as MODEL_FILES
from coremargin.models.registry import load
from coremargin.problems.active.model import found_of
from coremargin.problems.active.spec import ActiveJob
from coremargin.problems.registry import write_report as write_model_report
from coremargin.spec import convert
from coremargin.units import parse_seconds

if TYPE_CHECKING:
    from coremargin.active.external_answers import RowReport
    from coremargin.data.amend import LabelReport
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.formats.answers import Action, Growth
    from coremargin.formats.campaign import CampaignSettings
    from coremargin.formats.choices import Hypothesis, Loss, MapKind, Method, MultiClass, ScalingKind
    from coremargin.models.model import Model

logger = logging.getLogger(__name__)


class Campaign:
    """Query labels of few rows of a store, from people or files, until the margin is proven.

    Every method is atomic, and its records are on disk when it returns. Several processes may use one campaign, one
    after the other.

    Parameters
    ----------
    path : path-like
        The folder of a campaign; ``Campaign.create`` makes one.
    cluster : path-like or Dask Client, optional
        Where scans run: a file of ``cluster/``, a scheduler's address, a running Dask ``Client``, "embedded" or
        "threads"; None chooses by size.
    watch : Callbacks, optional
        Callbacks of scans.

    Raises
    ------
    DataError
        The folder is no campaign, its format is newer, or its log was changed.
    StoreError
        The store lost or changed rows.
    Busy
        Another process works on it.

    Examples
    --------
    >>> campaign = Campaign.create("rows.campaign", "rows.zarr")  # doctest: +SKIP
    >>> question = campaign.ask()[0]  # doctest: +SKIP
    >>> campaign.tell([question.row], ["spam"])  # doctest: +SKIP
    """

    @classmethod
    def create(  # noqa: PLR0913 - what a campaign is about; all but two with a default
        cls,
        path: str | os.PathLike[str],
        store: str | os.PathLike[str],
        *,
        method: Method = "coreset",
        epsilon: float = 0.1,
        error: float = 0.01,
        confidence: float = 0.99,
        seed: int = 0,
        intercept: bool = True,
        scaling: ScalingKind | None = None,
        map: MapKind | None = None,  # noqa: A002 - the name that job files have
        components: int | None = None,
        gamma: float | Literal["scale"] | None = None,
        degree: int | None = None,
        coef0: float | None = None,
        map_seed: int | None = None,
        by_class: bool = False,
        hypothesis: Hypothesis = "margin",
        multi_class: MultiClass = "ovr",
        loss: Loss | None = None,
        C: float | Literal["auto"] | None = None,
        trial: int | None = None,
        classes: Sequence[Any] | None = None,
        examples: Iterable[Annotation] | str | os.PathLike[str] = (),
        like: Any = None,
        memory: int | str = 256 * 2**20,
        block: int | str = 128 * 2**20,
        expires: float | str | None = None,
        people: int | None = None,
        settle: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        cluster: Cluster = None,
        watch: Callbacks | None = None,
    ) -> Campaign:
        """Start a campaign.

        Parameters
        ----------
        path : path-like
            Folder to make.
        store : path-like
            The rows, at a path or an address; labels in the store are ignored.
        method : str, default "coreset"
            How rows are chosen: one of those in ``problems/active/strategies.py``.
        epsilon : float, default 0.1
            Share of the best margin that may be missed.
        error, confidence : float
            At most this share of the rows is labelled wrongly, with this confidence.
        seed : int, default 0
            Seed of the draws that test the model.
        intercept : bool, default True
            False for a hyperplane through the origin.
        scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
            Rows are scaled as they are read.
        map : {"nystroem", "fourier", "polynomial"}, optional
            Rows are mapped, after they are scaled, to features of a kernel, as ``coremargin.train`` has it;
            the map is fitted now, and kept.
        components, gamma, degree, coef0, map_seed : optional
            Of the map.
        by_class : bool, default False
            ``error`` bounds the share of each predicted class, not of all rows.
        hypothesis : {"margin", "centre"}, default "margin"
            The hyperplane that the draws try and the model has: that of the largest margin of the answered rows, or the
            centre of ``method`` (with "ep" and other samplers a Bayes point machine), as far as ``epsilon`` allows.
        multi_class : {"ovr", "crammer-singer"}, default "ovr"
            Three classes or more: each against the rest, or all at once, without a loss, a map or a centre.
        loss : {"hinge", "squared_hinge"}, optional
            For answers that may contradict each other: a soft margin of the answered rows.
        C : float or "auto", optional
            With a loss, the weight of each row's loss; "auto": by cross-validation of the examples, at least five per
            class.
        trial : int, optional
            With a loss, the number of draws that test the model; None: by ``error`` and ``confidence``.
        classes : sequence of labels, optional
            Two, (negative, positive), or more; None: those of the store, or else the first two that are answered.
        examples : iterable of Annotation, or path-like, optional
            Known answers: a file of them, or another campaign about the same rows.
        like : sequence of int, or path-like, array or table, optional
            Examples of what is looked for, such as rows of a rare class: numbers of rows of the store, or rows as
            ``ingest`` takes them; for a store of texts, a .txt file with one text per line. One scan finds the ten rows
            with the largest mean cosine similarity to them, which are asked about first.
        memory, block : int or str
            Bytes for the rows in memory, and for what one task reads; a text such as "64 MiB".
        expires : float or str, optional
            Seconds after which a question without an answer may be asked again; a text such as "2 h".
        people : int, optional
            Number of people who are asked about each row, and whose answers settle its label.
        settle : str, optional
            The name of who decides where they disagree; None: the majority, or more people.
        storage_options : mapping, optional
            Options of an address, as for ``Store.open``; they are recorded.
        cluster : path-like or Dask Client, optional
            Where scans run.
        watch : Callbacks, optional
            Callbacks of scans.

        Returns
        -------
        Campaign
            With no answers except the examples.

        Raises
        ------
        UsageError
            Something is at that place, or a parameter is out of range.
        OutputError
            Nothing can be written there.
        DataError
            An example cannot be taken.
        """
        named = None if classes is None else named_classes(classes, "Campaign.create")
        file = os.path.abspath(local_path(examples)) if isinstance(examples, str | os.PathLike) else None
        place, rows = os.path.abspath(local_path(path)), location(store, storage_options)
        asked = {
            "job": "active",
            "store": rows if is_remote(rows) else os.path.abspath(rows),
            "out": place,
            "method": method,
            "epsilon": epsilon,
            "error": error,
            "confidence": confidence,
            "seed": seed,
            "intercept": intercept,
            "scaling": scaling,
            "map": map,
            "components": components,
            "gamma": gamma,
            "degree": degree,
            "coef0": coef0,
            "map_seed": map_seed,
            "by_class": by_class,
            "hypothesis": hypothesis,
            "multi_class": multi_class,
            "loss": loss,
            "C": C,
            "trial": trial,
            "classes": named,
            "examples": file,
            "memory": memory,
            "block": block,
        }
        after = None if expires is None else parse_seconds(expires)
        if after is not None and not after > 0:
            raise UsageError(f"expires: expected a time above 0, found {expires!r}")
        given: Iterable[Any] = () if isinstance(examples, str | os.PathLike) else examples
        rules = Rules(after, *check_people(people, settle))
        job = convert(asked, ActiveJob, where="Campaign.create")
        create_campaign(job, rules, given, name_of(None), like=like, cluster=cluster)
        return cls(place, cluster=cluster, watch=watch)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cluster: Cluster = None,
        watch: Callbacks | None = None,
    ) -> None:
        self.path = Path(os.path.realpath(local_path(path)))
        self.settings, self._first = read_settings(self.path)
        job = job_of(self.settings, self.path)
        self._state = CampaignState(self.path, self.settings, self._first, job, watch or Callbacks(), cluster)
        self._votes = Votes(self.path, self.settings, self._first)
        self._questions = Questions(self.path, self._state, self.settings.expires, self._votes)
        self._inbox, self.refused = Inbox(self.path), list[RefusedAnswer]()
        self._model_is_of: tuple[str, str] | None = None  # status and hash of a line
        self._depth, self._thread = 0, threading.RLock()
        self._blas = ThreadpoolController()  # one thread: the same bits on any number of cores; it takes long to make
        with self.locked():  # reads the log, and brings the state up to it; a killed process may have left no model
            self._update_model()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save the state, and stop the workers of scans."""
        with suppress(Busy), self.locked():  # if another process holds the lock, the state is computed again later
            self._state.save()
        self._state.close()

    # one process at a time

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the campaign, after reading what other processes have written.

        Threads wait for each other. Every method takes the lock for itself; take it to make several calls atomic.

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
                with self._process_lock():
                    yield

    @contextmanager
    def _process_lock(self) -> Iterator[None]:
        with (
            campaign_lock(self.path),
            self._blas.limit(limits=1, user_api="blas"),
        ):
            self._state.refresh()
            self._questions.refresh()
            self._votes.check(self._state.log.lines)
            started = time.perf_counter()
            self._depth = 1
            try:
                self._receive()
                yield
            finally:
                self._depth = 0
                self._state.meters.seconds += time.perf_counter() - started

    def _receive(self) -> None:
        """Record the answers that arrived while another process held the lock."""
        if self._inbox.read()[1]:
            self._record_received()
        elif self._votes.several:
            self._record_settled()
        else:
            return
        self._update_model()

    # store and status

    @property
    def store(self) -> Store:
        """The rows, at the campaign's current commit."""
        return self._state.snapshot.store

    @property
    def key(self) -> str:
        """The campaign's identifier, 16 hexadecimal digits, for tasks in other programs."""
        return self._first[:16]

    @property
    def newest_rows(self) -> int:
        """The number of rows of the store's last commit, those appended since included. Raises StoreError."""
        newest = self._state.store.newest_after(self._state.snapshot.commit)
        return self.store.rows if newest is None else newest.rows

    @property
    def classes(self) -> list[Any]:
        """The classes known so far; if there are two, (negative, positive)."""
        with self.locked():
            return self._state.classes

    @property
    def status(self) -> dict[str, Any]:
        """Answers, draws, scans, bounds."""
        with self.locked():
            conflicts = [{"row": row, "labels": labels} for row, labels in self._votes.conflicts().items()]
            conflicts = [one for one in conflicts if one["row"] not in self._state.log.current.labels]
            more = {"people": self._votes.people, "settle": self._votes.judge, "conflicts": conflicts}
            return status_of(self._state, awaited=len(self._questions.open())) | more

    @property
    def model(self) -> Model:
        """The model of the answers so far."""
        with self.locked():
            return current_model(self._state)

    @property
    def forecast(self) -> Forecast:
        """An estimate of the number of answers that are still needed."""
        with self.locked():
            return forecast(self._state.learner)

    @property
    def log(self) -> Log:
        """The log, with all answers and the current labels; read-only."""
        with self.locked():
            return self._state.log

    def distance_of(self, row: int) -> tuple[float, float] | None:
        """The distance of a row from the nearest hyperplane.

        Parameters
        ----------
        row : int
            Its number.

        Returns
        -------
        (float, float) or None
            The distance, and half the width of the slab in which rows are queried; None before two classes are known.
        """
        with self.locked():
            return distance_of(self._state.learner, row)

    def answer_of(self, row: int) -> Any:
        """The current answer about a row.

        Parameters
        ----------
        row : int
            Its number.

        Returns
        -------
        object or None
            Its label; None without an answer.
        """
        with self.locked():
            return self._state.log.current.labels.get(row)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Current answers by row: label, annotator, time, and why the row was queried."""
        with self.locked():
            current = self._state.log.current.labels
            last = {line.row: line for line in self._state.log.lines if line.row in current and line.label is not None}
        names = ("row", "label", "who", "when", "why", "attempt")
        return [{name: getattr(last[row], name) for name in names} for row in sorted(last)]

    def last_answer(self, who: str | None = None) -> tuple[int, Any] | None:
        """The last current answer of an annotator.

        Parameters
        ----------
        who : str, optional
            Who gave it; None: the user of this process.

        Returns
        -------
        (int, object) or None
            Its row and label; None without an answer.
        """
        with self.locked():
            mine = self.answers_of(who)
            return mine[-1] if mine else None

    def answers_of(self, who: str | None = None) -> list[tuple[int, Any]]:
        """Current answers of an annotator, in their order.

        Parameters
        ----------
        who : str, optional
            Who gave them; None: the user of this process.

        Returns
        -------
        list of (int, object)
            Rows and labels.
        """
        with self.locked():
            name, current = name_of(who), self._state.log.current.labels
            if self._votes.several and name != self._votes.judge:
                return self._votes.labels_of(name)
            last = {line.row: line for line in self._state.log.lines if line.row in current}
            mine = sorted((line.number, line.row) for line in last.values() if line.who == name)
            return [(row, current[row]) for _, row in mine]

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
        return self.store.rows_at(np.array(ids, np.int64))[0]

    # questions

    def ask(self, n: int = 1, *, who: str | None = None, again: bool = False) -> list[Question]:
        """Rows to label next; scans the store if no row in memory is worth a question.

        Parameters
        ----------
        n : int, default 1
            How many at most.
        who : str, optional
            Who is asked; None: the user of this process.
        again : bool, default False
            Return all open questions, and no new ones; with ``who``, those of this person.

        Returns
        -------
        list of Question
            Empty if the campaign has ended or waits for other answers: see ``status``.

        Raises
        ------
        LabelError
            All answers are the same, and draws have found no other.
        Interrupted
            The scan was interrupted; its blocks are saved.
        """
        check_number(n)
        with self.locked():
            if again:
                found = self._questions.open() if who is None else self._questions.open_for(name_of(who))
            else:
                found = self._questions.ask(n, name_of(who))
                self._update_model()
        return [Question(one.row, one.why, one.attempt, self._features) for one in found]

    def look_ahead(self) -> bool:
        """Scan the store while answers are awaited, if no other row in memory is worth a question.

        Otherwise the scan starts when all questions are answered, and annotators wait for it. The scan may turn out to
        be unnecessary.

        Returns
        -------
        bool
            Whether a scan ran.
        """
        with self.locked():
            found = self._questions.look_ahead()
            self._update_model()
        return found

    def _features(self, row: int) -> Any:
        return self.rows([row])[0]

    def grow(self, *, who: str | None = None) -> int:
        """Include the rows that were appended to the store; a running campaign does so at its next scan.

        Earlier proofs are about the earlier rows: the next scan reads all rows, and the current attempt is void.

        Parameters
        ----------
        who : str, optional
            Name for the log; None: the user of this process.

        Returns
        -------
        int
            The number of appended rows.

        Raises
        ------
        StoreError
            The store lost or changed rows.
        """
        with self.locked():
            more = self._state.grow(name_of(who))
            self._update_model()
        return more

    # answers

    def tell(self, ids: Iterable[int], labels: Iterable[Any], *, who: str | None = None, examples: bool = False) -> int:
        """Record labels of some of the queried rows, in any order.

        Parameters
        ----------
        ids : iterable of int
            Row numbers.
        labels : iterable
            Their labels.
        who : str, optional
            Who gives them; None: the user of this process.
        examples : bool, default False
            Accept rows that were not queried.

        Returns
        -------
        int
            The number of new answers; repeated ones are not errors.

        Raises
        ------
        DataError
            A row was not queried, or has another answer.
        LabelError
            A label is none of the classes.
        """
        rows, given = [row_number(row, "tell") for row in ids], list(labels)
        if len(rows) != len(given):
            raise UsageError(f"tell: expected a label for each of {len(rows)} rows, found {len(given)}")
        found = [Annotation(row, label, "label", "tell") for row, label in zip(rows, given, strict=True)]
        return self.answer(found, who=who, examples=examples)

    def correct(self, row: int, label: Any, *, who: str | None = None) -> int:
        """Change an answer; the current attempt is void.

        Parameters
        ----------
        row : int
            Its row.
        label : object
            The right label.
        who : str, optional
            Who says so.

        Returns
        -------
        int
            1, or 0 if that already was its answer.
        """
        return self.answer([Annotation(row_number(row, "correct"), label, "correct", "correct")], who=who)

    def undo(self, row: int | None = None, *, who: str | None = None) -> int:
        """Take an answer back.

        Parameters
        ----------
        row : int, optional
            Its row; None: the one that ``who`` answered last.
        who : str, optional
            Who says so; None: the user of this process.

        Returns
        -------
        int
            1, or 0 if it already was taken back.
        """
        with self.locked():
            if row is None:
                last = self.last_answer(who)
                if last is None:
                    raise UsageError(f"{self.path}: expected an answer of {name_of(who)} to take back, found none")
                row = last[0]
            return self.answer([Annotation(row_number(row, "undo"), None, "undo", "undo")], who=who)

    def skip(self, row: int, *, unsure: bool = False, who: str | None = None) -> int:
        """Skip a question; it is repeated when no other is left.

        Parameters
        ----------
        row : int
            Its row.
        unsure : bool, default False
            The label is unclear: the row is not queried again.
        who : str, optional
            Who says so.

        Returns
        -------
        int
            1, or 0 for a repetition.
        """
        action: Action = "unsure" if unsure else "skip"
        return self.answer([Annotation(row_number(row, action), None, action, action)], who=who)

    def answer(self, given: Iterable[Annotation], *, who: str | None = None, examples: bool = False) -> int:
        """Record answers of any kind: all of them, or none.

        Parameters
        ----------
        given : iterable of Annotation
            Rows, labels and actions.
        who : str, optional
            Who gives them.
        examples : bool, default False
            Accept rows that were not asked about.

        Returns
        -------
        int
            How many are new.
        """
        with self.locked():
            new = self._record(given, name_of(who), examples=examples)
            self._update_model()
        return new

    def _record(self, given: Iterable[Annotation], who: str, *, examples: bool = False) -> int:
        """Record answers, all or none of them; returns the number of new ones. With several people, votes are recorded
        first.

        Raises what ``Questions.checked`` does.
        """
        votes, questions, mine = self._votes, self._questions, list(given)
        if not votes.several or examples:
            new = questions.checked(mine, examples=examples)
            if new:
                self._state.record(new, questions.asked, who)
            return len(new)

        def by(one: Annotation) -> str:
            return who if one.who is None else name_of(one.who)

        rows, labels = votes.by_row(), self._state.log.current.labels
        withdrawn = [
            one for one in mine if one.action == "undo" and one.row not in labels and by(one) in rows.get(one.row, {})
        ]
        new = questions.checked(one for one in mine if one not in withdrawn)
        cast = [one for one in new if one.action == "label" and by(one) != votes.judge]
        for one in [*withdrawn, *cast]:
            votes.put(received_answer(one.row, one.label, one.action, by(one), one.id or secrets.token_hex(16)))
        for one in new:
            if one.action == "undo":  # everybody is asked about the row again
                for name in rows.get(one.row, {}):
                    votes.put(received_answer(one.row, None, "undo", name, secrets.token_hex(16)))
        if others := [one for one in new if one not in cast]:
            self._state.record(others, questions.asked, who)
        self._record_settled()
        return len(new) + len(withdrawn)

    def _record_settled(self) -> None:
        """Record labels that votes have settled, also those that a killed process did not record."""
        for row, votes in self._votes.by_row().items():
            settled = None if row in self._state.log.current.labels else self._votes.settle(row, votes)
            if settled is not None and settled.given.id not in self._state.log.ids:
                self._state.record(self._questions.checked([settled.given]), self._questions.asked, settled.who)

    def _record_received(self) -> None:
        """Record the answers in the inbox, and empty it.

        Rejected answers are logged and dropped, as they would be rejected each time.
        """
        done = 0
        while True:
            found, size = self._inbox.read()
            for one in found[done:]:
                if one.id in self._state.log.ids:  # recorded by a process that was killed before it emptied the inbox
                    continue
                try:
                    self._record([one.given], one.who)
                except (DamagedChunk, StoreError):  # it has nothing to do with the answer
                    raise
                except DataError as error:
                    logger.warning("an answer of %s was not taken: %s", one.who, error)
                    self.refused.append(RefusedAnswer(one, str(error)))
            done = len(found)
            if not size or self._inbox.cleared(size):
                return

    def follow(self, reports: Mapping[int, RowReport], *, examples: bool = False, strict: bool = False) -> FollowResult:
        """Record the answers that people gave in another program, such as Label Studio.

        New, changed and deleted answers there are recorded, changed and taken back here. Answers that were given here
        stay, and so does the answer about a row on which people disagree there; such rows are listed.

        Parameters
        ----------
        reports : mapping of int to Report
            All current external answers, by row.
        examples : bool, default False
            Accept rows that were not asked about.
        strict : bool, default False
            Raise an error if an answer is rejected, and record none; else record all others.

        Returns
        -------
        FollowResult
            The number of new answers, and the rejected ones.

        Raises
        ------
        DataError
            With ``strict``, a row was not queried.
        LabelError
            With ``strict``, a label is none of the classes.
        UsageError
            The campaign asks several people about each row.
        """
        refuse_several(self.settings.people)
        with self.locked():
            follower = Follower(self._state.log, self._questions.open())
            known = {line.row for line in self._state.log.lines}
            asked = None if examples else frozenset(self._questions.asked) | known
            given, found = sort_reports(follower, reports, asked, strict=strict)
            try:
                found.new = self.answer(given, examples=examples)
            except DataError:
                if strict:
                    raise
                for one in given:
                    try:
                        found.new += self.answer([one], examples=examples)
                    except DataError as error:
                        found.refused.append(Refusal(one.row, str(error)))
        return found

    def run(
        self,
        oracle: Callable[[Sequence[int]], Mapping[int, Any]],
        *,
        batch: int = 1,
        most: int | None = None,
        who: str = "oracle",
    ) -> dict[str, Any]:
        """Ask and answer until the campaign ends, or the oracle has no more answers.

        Parameters
        ----------
        oracle : callable
            Returns labels by row of some of the given rows. Rows of a batch for which it returns no label at all are
            not queried again.
        batch : int, default 1
            Number of questions per call of the oracle.
        most : int, optional
            Stop after this number of answers.
        who : str, default "oracle"
            Who gives them, for the log.

        Returns
        -------
        dict
            As ``status``, and ``unknown``: the queried rows whose labels the oracle does not know.

        Raises
        ------
        LabelError
            All answers are the same, and draws have found no other.
        UsageError
            The campaign asks several people about each row.
        """
        if self.settings.people is not None:
            raise UsageError(
                f"{self.path}: asks {self.settings.people} people about each row (--people), and one who answers all "
                "by itself is one of them; take in what each of them says with `coremargin active tell`"
            )
        unknown = set[int]()
        while self._state.learner.running and (most is None or len(self._state.labels) < most):
            waiting = [one for one in self.ask(batch, again=True) if one.row not in unknown]
            left = batch if most is None else min(batch, most - len(self._state.labels))
            rows = [one.row for one in waiting or self.ask(left, who=who)][:left]
            if not rows:
                break
            labels = oracle(rows)
            if labels:
                self.tell(labels.keys(), labels.values(), who=who)
            else:
                unknown.update(rows)
        with self.locked():
            self.stop()
            self._questions.refuse_one_class()
            return {**self.status, "unknown": sorted(unknown - set(self._state.labels))}

    # model, report, labels

    def stop(self) -> bool:
        """Write the model of the answers so far; the campaign can be continued.

        Returns
        -------
        bool
            False if all answers are of one class: there is no model.
        """
        with self.locked():
            self._state.save()
            return self._save_model()

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
        with self.locked():
            return write_report(self._state, self._votes, self.path)

    def write_labels(self) -> LabelReport:
        """Write the current answers into the store as a new commit, for training on them.

        An answer replaces the row's label. Rows without an answer keep their label, except those whose answer was taken
        back: such a row loses its label if the label came from this campaign and the row had none before. The campaign
        keeps its own commit. If the store already has exactly these answers, there is no new commit.

        Returns
        -------
        LabelReport
            The numbers of rows that got a label, whose label changed, and that lost their label.

        Raises
        ------
        StoreError
            The store lost or changed rows.
        LabelError
            The store's labels are of another kind, such as numbers where the answers are texts.
        OutputError
            The store cannot be written.
        Busy
            Another process writes to the store, or works on the campaign.
        """
        with self.locked():
            state, current = self._state, self._state.log.current
            commit, storage = state.snapshot.commit, state.snapshot.store.storage
            state.store.newest_after(commit)  # raises StoreError if rows were changed or removed
            rows = sorted(current.labels)
            # classes that are new to the store are added in the campaign's order
            rows = [row for label in current.classes for row in rows if same(current.labels[row], label)]
            labels = [current.labels[row] for row in rows]
            return write_labels(storage, rows, labels, withdrawn=self._withdrawn(), after=commit.digest)

    def _withdrawn(self) -> dict[int, list[Any]]:
        """Rows without a label before the campaign whose answers were all taken back, with these labels."""
        state, given, found, start = self._state, dict[int, list[Any]](), dict[int, list[Any]](), 0
        for line in state.log.lines:
            if line.label is not None and line.row not in state.log.current.labels:
                given.setdefault(line.row, []).append(line.label)
        commits: list[CampaignSettings | Growth] = [self.settings, *state.log.answers.growths]
        for commit in commits:
            rows = sorted(row for row in given if start <= row < commit.rows)
            if rows:
                storage = state.snapshot.store.storage
                store = Store.open(storage, rows=commit.rows, digest=commit.digest, map_bytes=0)
                codes = (store.labels(row // store.chunk_rows)[row % store.chunk_rows] for row in rows)
                found |= {row: given[row] for row, code in zip(rows, codes, strict=True) if code == UNLABELLED}
            start = commit.rows
        return found

    def _update_model(self) -> None:
        """Write the model if the campaign has ended, and replace one whose claims later answers contradict.

        If a class has no answer left, there is no model.
        """
        state, place = self._state, self.path / MODEL
        now = state.state.status, state.position.about
        if now == self._model_is_of:
            return
        if not state.learner.running or place.exists():
            recover(place, MODEL_FILES)
            known: tuple[str, str | None] | None = None
            claims = False  # of rows without an answer
            with suppress(DataError):
                model = load(place)
                known = model.status, model.record.get("log")
                claims = model.status != "stopped" or model.record.get("evidence") is not None
            ended = found_of(state.problem, state.state).status
            if state.learner.running:
                if claims and not self._save_model():
                    MODEL_FILES.remove(place)
            elif known != (ended, state.position.about) and not self._save_model() and known is not None:
                MODEL_FILES.remove(place)
        self._model_is_of = now

    def _save_model(self) -> bool:
        """Write the model of the answers; False if there is none."""
        state = self._state
        if not state.state.answered.both_classes:
            return False
        model = current_model(state)
        state.count_fetched()
        run = run_record(state.job, state.problem, state.state, state.meters, state.used_executor)
        report = partial(write_model_report, name=f"{self.path.name}/{MODEL}")
        model.save(self.path / MODEL, run, state.meters.rounds, report=report, overwrite=True)
        return True
