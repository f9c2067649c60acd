"""A campaign: few labels for many rows, in a folder that can be killed at any moment.

::

    campaign.toml     the store, its commit, and what is to be proven; written once
    answers.jsonl     the log: a line an answer, on disk before the next question; only ever appended to
    asked.json        rows that were asked about, put in place before anybody sees them
    state/            a checkpoint: what the log would give again, without its scans and solves; may be lost
    model/            the model, when the campaign is certified or stopped

The state is a function of the first two and of the store, to the bit: answers are taken one at a time in the order of
the log, and each line says how many scans there were before it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from threadpoolctl import ThreadpoolController

from coremargin.active import course
from coremargin.active.asked import Asked, Question, name_of, read_asked, still_open, write_asked
from coremargin.active.facts import begin, job_of, problem_at, read_facts
from coremargin.active.figures import figures, save, settle
from coremargin.active.player import Player
from coremargin.active.told import Given, Known, taken
from coremargin.data.locked import Locked
from coremargin.engine.loop import Callbacks
from coremargin.errors import LabelError, UsageError
from coremargin.formats.campaign import ANSWERS
from coremargin.spec import Size

if TYPE_CHECKING:
    from coremargin.formats.choices import Method, ScalingKind
    from coremargin.models.active import ActiveModel

PATIENCE_S = 5.0  #: for another process that works on the same campaign
ASKED = "asked.json"


class Campaign:
    """Few labels for the rows of a store, from people or files, until the margin is proven.

    Every method is whole or not at all, and what it has taken is on disk when it returns. Several processes may work on
    one campaign, one after the other.

    Parameters
    ----------
    path : path-like
        The folder of a campaign; ``Campaign.create`` makes one.
    cluster : path-like, optional
        Where scans run: a file of ``cluster/``, a scheduler's address, "embedded" or "threads"; None chooses by size.
    watch : Callbacks, optional
        Who wants to know of scans.

    Raises
    ------
    DataError
        The folder holds no campaign, or one of a newer format, or its log was changed.
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

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cluster: str | os.PathLike[str] | None = None,
        watch: Callbacks | None = None,
    ) -> None:
        self.path = Path(os.path.realpath(path))
        self.facts, first = read_facts(self.path)
        job = job_of(self.facts, self.path)
        self.store, problem = problem_at(self.facts, job)
        self._player = Player(self.path, self.facts, first, job, problem, watch or Callbacks(), cluster)
        self._asked: dict[int, Asked] = {}
        self._settled: tuple[str, str] | None = None
        self._blas = ThreadpoolController()  # one thread: the same bits on any number of cores; it takes long to make
        with self._held():  # reads the log, and brings the state up to it
            pass

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
        classes: Sequence[Any] | None = None,
        memory: int = 256 * 2**20,
        block: int = 128 * 2**20,
        expires: float | None = None,
        cluster: str | os.PathLike[str] | None = None,
        watch: Callbacks | None = None,
    ) -> Campaign:
        """Begin a campaign.

        Parameters
        ----------
        path : path-like
            Folder to make.
        store : path-like
            The rows; labels that the store has are not looked at.
        method : str, default "coreset"
            How rows are chosen: one of those in ``problems/active/methods/table.py``.
        epsilon : float, default 0.1
            What may be missing of the best margin, as a share.
        error, confidence : float
            At most this share of the rows is labelled wrongly, and how sure that is to be.
        seed : int, default 0
            Of the draws that try the model.
        intercept : bool, default True
            False for a hyperplane through the origin.
        scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
            Rows are scaled as they are read.
        classes : sequence of two labels, optional
            (negative, positive); None: those of the store, if it has two, else the first two that are answered.
        memory, block : int
            Bytes for the rows in memory, and that one task reads.
        expires : float, optional
            Seconds after which a question without an answer may be asked again.
        cluster : path-like, optional
            Where scans run.
        watch : Callbacks, optional
            Who wants to know of scans.

        Returns
        -------
        Campaign
            With no answer yet.

        Raises
        ------
        OutputError
            Something is at that place.
        UsageError
            A parameter is out of range.
        """
        from coremargin.problems.active.spec import ActiveJob
        from coremargin.spec import convert

        said = {
            "job": "active", "store": os.path.abspath(store), "out": os.path.abspath(path), "method": method,
            "epsilon": epsilon, "error": error, "confidence": confidence, "seed": seed, "intercept": intercept,
            "scaling": scaling, "memory": Size(memory), "block": Size(block),
        }  # fmt: skip
        begin(convert(said, ActiveJob, where="Campaign.create"), classes, expires)
        return cls(path, cluster=cluster, watch=watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save what would have to be computed again, and stop what scans were run by."""
        with self._held():
            self._player.save()
        self._player.close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The right to work on the campaign, with all that others have written known."""
        with (
            Locked(self.path / ANSWERS, "this campaign", wait_s=PATIENCE_S),
            self._blas.limit(limits=1, user_api="blas"),
        ):
            self._player.refresh()
            self._asked = read_asked(self.path / ASKED)
            started = time.perf_counter()
            try:
                yield
            finally:
                self._player.meters.seconds += time.perf_counter() - started

    # questions

    def ask(self, n: int = 1, *, who: str | None = None, again: bool = False) -> list[Question]:
        """Rows whose labels are wanted now; scans the store where no row in memory is.

        Parameters
        ----------
        n : int, default 1
            How many at most.
        who : str, optional
            Who is asked; None: the user of this process.
        again : bool, default False
            Those that were asked about before and have no answer yet, all of them, and no others; of ``who``, where
            that is given.

        Returns
        -------
        list of Question
            None where the campaign has ended, or other answers have to come first: ``status`` tells.

        Raises
        ------
        LabelError
            All answers are the same, and draws have found no other.
        Interrupted
            The scan was interrupted; what was read is kept.
        """
        if n < 1:
            raise UsageError(f"n: expected at least one question, found {n}")
        with self._held():
            if again:
                mine = [one for one in self._open() if who is None or one.who == name_of(who)]
                return [self._question(one.row, one.why, one.attempt) for one in mine]
            rows = self._choose(n)
            questions = [self._question(row, *self._why(row)) for row in rows]
            now, lines = time.time(), len(self._player.log.lines)
            if questions:
                fresh = [
                    Asked(row=one.row, why=one.why, attempt=one.attempt, who=name_of(who), at=now, lines=lines)
                    for one in questions
                ]
                labels = self._player.labels
                known = [one for one in self._asked.values() if one.row not in labels and one.row not in rows]
                write_asked(self.path / ASKED, [*known, *fresh])
            self._settle()
        return questions

    def _question(self, row: int, why: Any, attempt: int | None) -> Question:
        return Question(row, why, attempt, lambda wanted: self.rows([wanted])[0])

    def _open(self) -> list[Asked]:
        """Questions that answers are awaited for; draws of an attempt that is over are no longer."""
        player = self._player
        found = still_open(self._asked, player.labels, player.passed(), self.facts.expires, time.time())
        return [one for one in found if one.why != "draw" or one.row in player.state.draws.ids]

    def _choose(self, n: int) -> list[int]:
        player = self._player
        while True:
            waiting, passed = [one.row for one in self._open()], player.passed()
            rows = course.chosen(player.problem, player.state, n, [*waiting, *passed])
            if rows or waiting or player.state.status != "running":
                break
            if course.seen_all(player.problem, player.state):  # what was put off is asked again
                never = [row for row in passed if player.action(row) == "unsure"]
                return course.chosen(player.problem, player.state, n, never)
            player.scan()
        self._refuse_one_class()
        return rows

    def _refuse_one_class(self) -> None:
        if course.one_class(self._player.state):
            raise LabelError(self._player.all_the_same())

    def _why(self, row: int) -> tuple[Any, int | None]:
        """Why a row is asked about now."""
        state = self._player.state
        if row in state.draws.ids:
            return "draw", state.attempt
        return ("query" if state.answered.both_classes else "start"), None

    # answers

    def tell(self, ids: Iterable[int], labels: Iterable[Any], *, who: str | None = None) -> int:
        """Take answers, of some of the rows that were asked about, in any order.

        Parameters
        ----------
        ids : iterable of int
            Row numbers.
        labels : iterable
            Their labels.
        who : str, optional
            Who gives them; None: the user of this process.

        Returns
        -------
        int
            How many are new; the same answer told twice is no error.

        Raises
        ------
        DataError
            A row was not asked about, or has another answer.
        LabelError
            A label is neither of the two.
        """
        return self.answer(self._given(ids, labels, "tell"), who=who)

    def example(self, ids: Iterable[int], labels: Iterable[Any], *, who: str | None = None) -> int:
        """Take answers of any rows, whether they were asked about or not.

        Parameters
        ----------
        ids : iterable of int
            Row numbers.
        labels : iterable
            Their labels.
        who : str, optional
            Who gives them.

        Returns
        -------
        int
            How many are new.
        """
        return self.answer(self._given(ids, labels, "example"), who=who, examples=True)

    def _given(self, ids: Iterable[int], labels: Iterable[Any], place: str) -> list[Given]:
        rows, given = [int(row) for row in ids], list(labels)
        if len(rows) != len(given):
            raise UsageError(f"{place}: expected a label for each of {len(rows)} rows, found {len(given)}")
        return [Given(row, label, "label", place) for row, label in zip(rows, given, strict=True)]

    def correct(self, row: int, label: Any, *, who: str | None = None) -> int:
        """Change an answer; an attempt that was on the way is void.

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
            1, or 0 where that was its answer.
        """
        return self.answer([Given(int(row), label, "correct", "correct")], who=who)

    def undo(self, row: int | None = None, *, who: str | None = None) -> int:
        """Take an answer back.

        Parameters
        ----------
        row : int, optional
            Its row; None: the one that was answered last.
        who : str, optional
            Who says so.

        Returns
        -------
        int
            1.
        """
        if row is None:
            lines = self._player.log.lines
            row = next((line.row for line in reversed(lines) if line.row in self._player.labels), None)
            if row is None:
                raise UsageError(f"{self.path}: expected an answer to take back, found none")
        return self.answer([Given(int(row), None, "undo", "undo")], who=who)

    def skip(self, row: int, *, who: str | None = None) -> int:
        """Put a question off: it is asked again when no other is left.

        Parameters
        ----------
        row : int
            Its row.
        who : str, optional
            Who says so.

        Returns
        -------
        int
            1.
        """
        return self.answer([Given(int(row), None, "skip", "skip")], who=who)

    def unsure(self, row: int, *, who: str | None = None) -> int:
        """Nobody can tell the label: the row is not asked about again.

        Parameters
        ----------
        row : int
            Its row.
        who : str, optional
            Who says so.

        Returns
        -------
        int
            1.
        """
        return self.answer([Given(int(row), None, "unsure", "unsure")], who=who)

    def answer(self, given: Iterable[Given], *, who: str | None = None, examples: bool = False) -> int:
        """Take what files of answers say: all of it, or nothing.

        Parameters
        ----------
        given : iterable of Given
            Rows, labels and actions.
        who : str, optional
            Who gives them.
        examples : bool, default False
            Rows that were not asked about are taken, too.

        Returns
        -------
        int
            How many are new.
        """
        with self._held():
            player = self._player
            asked = frozenset(self._asked) | frozenset(line.row for line in player.log.lines)
            given = list(given)
            if examples:
                player.refuse_weightless(one.row for one in given)
            known = Known(player.labels, asked, player.classes, self.facts.rows, examples)
            new = taken(given, known)
            if new:
                player.take(new, self._asked, name_of(who))
            self._settle()
        return len(new)

    def run(
        self,
        oracle: Callable[[Sequence[int]], Mapping[int, Any]],
        *,
        batch: int = 1,
        most: int | None = None,
        who: str = "oracle",
    ) -> dict[str, Any]:
        """Ask and answer until the campaign ends, or no answer is known.

        Parameters
        ----------
        oracle : callable
            Labels by row of some of the rows it is given.
        batch : int, default 1
            Questions at a time.
        most : int, optional
            Stop at so many answers.
        who : str, default "oracle"
            Who gives them, for the log.

        Returns
        -------
        dict
            As ``status``.

        Raises
        ------
        LabelError
            All answers are the same, and draws have found no other.
        """
        while self._player.state.status == "running" and (most is None or len(self._player.labels) < most):
            questions = self.ask(batch, again=True) or self.ask(batch, who=who)
            labels = oracle([one.row for one in questions]) if questions else {}
            if not labels:
                break
            self.tell(labels.keys(), labels.values(), who=who)
        self.stop()
        self._refuse_one_class()
        return self.status

    # what there is

    @property
    def classes(self) -> list[Any]:
        """The labels, (negative, positive), as far as they are known."""
        with self._held():
            return self._player.classes

    @property
    def status(self) -> dict[str, Any]:
        """Where the campaign stands: answers, draws, scans, bounds."""
        with self._held():
            return figures(self._player, awaited=len(self._open()))

    @property
    def model(self) -> ActiveModel:
        """The model of the answers so far."""
        with self._held():
            return self._player.model()

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
        with self._held():
            self._player.save()
            return save(self._player, self.path)

    def _settle(self) -> None:
        """Bring the model up to what the answers say, where that is something new."""
        now = self._player.state.status, self._player.mark.about
        if now != self._settled:
            settle(self._player, self.path)
            self._settled = now
