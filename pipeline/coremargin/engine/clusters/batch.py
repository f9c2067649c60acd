"""The array of jobs in which SLURM or Grid Engine runs workers: submitted, cancelled, submitted again when it ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coremargin.engine.clusters.scripts import batch_script
from coremargin.engine.clusters.specs import Batch, Sge, Slurm
from coremargin.engine.clusters.started import answer_of, need_commands, number_in, undisturbed
from coremargin.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

#: Per batch system: the command that reads a script from standard input, the job's id in its answer, how to cancel.
_COMMANDS: Mapping[type[Batch], tuple[list[str], str, list[str]]] = {
    Slurm: (["sbatch", "--parsable"], r"^(?P<job>\d+)(?:;(?P<cluster>\S+))?\s*$", ["scancel"]),
    Sge: (["qsub", "-terse"], r"^(?P<job>\d+)(?:\.\d+-\d+:\d+)?\s*$", ["qdel"]),
}


class Array:
    """One job array at a time, of workers for the scheduler at ``address``."""

    def __init__(self, batch: Batch, address: str) -> None:
        self._batch, self._script = batch, batch_script(batch, address)
        self._job: str | None = None
        self._cluster: str | None = None  # of a SLURM that has several: the one that the job is on

    @property
    def description(self) -> str:
        """What runs, for people."""
        batch = self._batch
        return f"{type(batch).__name__} job {self._job}, {batch.jobs} x {batch.threads} threads"

    def submit(self) -> str:
        """Put the array into the queue; what was done. Raises RunError when it is refused.

        A Ctrl-C meanwhile waits until the job's id is known: a job without one could not be cancelled.
        """
        undisturbed(self._submit)
        log.info("submitted %s", self.description)
        return f"submitted {self.description}"

    def _submit(self) -> None:
        submit, pattern, _ = _COMMANDS[type(self._batch)]
        found = number_in(answer_of(submit, self._script), pattern, submit[0]).groupdict()
        self._job, self._cluster = found["job"], found.get("cluster")

    def cancel(self) -> None:
        """Take the array out of the queue, if there is one. Raises RunError when that is refused."""
        if self._job is not None:
            job, self._job = self._job, None
            where = ["-M", self._cluster] if self._cluster else []
            undisturbed(lambda: answer_of([*_COMMANDS[type(self._batch)][2], *where, job], ""))

    def again(self) -> str:
        """Submit it anew, for none of its workers is left: their walltime is over, or somebody cancelled them."""
        try:
            self.cancel()  # what is left of it in the queue
        except RunError as error:
            log.info("%s", error)  # most batch systems refuse to cancel what has ended
        return self.submit()


def check_commands(batch: Batch) -> None:
    """Raise UsageError where the commands of the batch system are not at hand."""
    submit, _, cancel = _COMMANDS[type(batch)]
    need_commands(submit[0], cancel[0])
