"""The jobs of one cluster of dask-jobqueue: how they come into the queue, and how they leave it.

A submission that is refused is an error of the run, with the words of the command; theirs is logged, and the driver
waits. No job stays in the queue without a word: all are cancelled by one command, and one that gets its number later,
by another, without the lock of Dask's cluster, which is held until the last submission has ended.
"""

from __future__ import annotations

import logging
import shlex
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from coremargin.engine.clusters.jobqueue import cluster_class, options
from coremargin.engine.clusters.started import ANSWER_S, answer_of, need_commands, take_out, undisturbed
from coremargin.errors import RunError

if TYPE_CHECKING:
    from coremargin.engine.clusters.jobqueue import Job
    from coremargin.engine.clusters.specs import JobQueue

log = logging.getLogger(__name__)

_SHOWN = 3  # numbers of jobs in a description
_LATE_S = 5.0  # for a command that cancels: whoever ends this process before it answers has to know the numbers


class Jobs:
    """The jobs of one cluster: submitted, taken out of the queue, submitted again when they have ended."""

    def __init__(self, batch: JobQueue) -> None:
        self._batch = batch
        self._cluster: Any = None
        self._shown: list[str] = []
        self._changed = threading.Condition()  # guards all below
        self._asked: frozenset[str] = frozenset()  # the jobs that are wanted, by the names of Dask's cluster
        self._answers: dict[str, str | RunError] = {}  # of these: the number, or why there is none
        self._under_way = 0  # submissions that have begun, and have not ended
        self._numbers: list[str] = []  # of all jobs that may be in the queue
        self._cancel: list[str] = []  # the command, as words

    def start_options(self, **scheduler: Any) -> dict[str, Any]:
        """What the cluster's class needs, with a scheduler of these options."""
        kind = cluster_class(self._batch)
        need_commands(kind.job_cls.submit_command, kind.job_cls.cancel_command)
        return {
            "kind": kind,
            "name": self._batch.name,
            "put": self.put,
            "scheduler_options": scheduler,
            **options(self._batch),
        }

    @property
    def description(self) -> str:
        """What runs, for people."""
        batch = self._batch
        shown = ", ".join(self._shown[:_SHOWN]) + (", ..." if len(self._shown) > _SHOWN else "")
        return f"{type(batch).__name__} job {shown}; {batch.jobs} x {batch.threads} threads"

    def submit(self, cluster: Any) -> str:
        """Put the jobs into the queue, those of a cluster that has none; what was done. Raises RunError when one is
        refused.

        At a Ctrl-C meanwhile those that have not begun are not submitted; ``cancel`` waits for the others.
        """
        self._cluster = cluster
        if refused := self._submit():
            raise refused[0]
        log.info("submitted %s", self.description)
        return f"submitted {self.description}"

    def again(self) -> str:
        """Submit them anew, for none of their workers is left: their walltime is over, or somebody cancelled them.

        What the queue accepts of them is enough. Raises RunError when it accepts none.
        """
        try:
            self.cancel()  # what is left of them in the queue
        except RunError as error:
            log.warning("%s", error)  # it is tried once more in the end
        self._cluster.scale(0)
        refused = self._submit()
        if refused and not self._shown:
            raise refused[0]
        if refused:
            log.warning("%d of %d jobs were refused: %s", len(refused), self._batch.jobs, refused[0])
        log.info("submitted %s", self.description)
        return f"submitted {self.description}"

    def _submit(self) -> list[RunError]:
        """Put the jobs into the queue; those that were refused."""
        try:
            with self._changed:
                self._cluster.scale(jobs=self._batch.jobs)  # a thread of its own does it
                self._asked, self._answers = frozenset(self._cluster.worker_spec), {}
                while len(self._answers) < len(self._asked):
                    if not self._changed.wait(2 * ANSWER_S):
                        raise RunError("dask-jobqueue says nothing of a job that it was to submit; see its log")
                answers = list(self._answers.values())
        except BaseException:
            self._ask_no_more()
            raise
        self._shown = [answer for answer in answers if isinstance(answer, str)]
        return [answer for answer in answers if isinstance(answer, RunError)]

    def _ask_no_more(self) -> None:
        with self._changed:
            self._asked = frozenset()

    def put(self, job: Job) -> None:
        """Submit a job, if it is wanted still; called by Dask's cluster, in a few threads at a time."""
        with self._changed:
            if job.name not in self._asked:
                return
            self._cancel = shlex.split(job.cancel_command)
            self._under_way += 1
        answer: str | RunError = RunError("a job could not be submitted; see the log")
        try:
            answer = job.submit()
        except RunError as error:
            answer = error
        finally:
            with self._changed:
                self._under_way -= 1
                if isinstance(answer, str):
                    self._numbers.append(answer)
                if job.name in self._asked:  # else it comes too late, and is no answer to what was asked since
                    self._answers[job.name] = answer
                self._changed.notify_all()

    def cancel(self) -> None:
        """Take them out of the queue, and those that are just being submitted as soon as they have a number.

        Raises RunError, with the numbers, for those that may be there still.
        """
        undisturbed(self._take_out)

    def _take_out(self) -> None:
        self._ask_no_more()
        failed, left = [], list[str]()
        while numbers := self._next():
            try:
                take_out(partial(self._command, numbers), numbers)
            except RunError as error:
                failed.append(str(error))
                left += numbers
        with self._changed:
            self._numbers += left
        if failed:
            raise RunError("; ".join(failed))

    def _next(self) -> list[str]:
        """The numbers that there are, once there is one; none when no job is without."""
        with self._changed:
            self._changed.wait_for(lambda: self._numbers or not self._under_way, 2 * ANSWER_S)
            numbers, self._numbers = self._numbers, []
            return numbers

    def _command(self, numbers: list[str]) -> None:
        words = ("%s has not answered yet; until it does, these may be in the queue: %s", self._cancel[0])
        late = threading.Timer(_LATE_S, log.warning, (*words, ", ".join(numbers)))
        late.daemon = True
        late.start()
        try:
            answer_of([*self._cancel, *numbers], "")
        finally:
            late.cancel()
