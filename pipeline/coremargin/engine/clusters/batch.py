"""The array of jobs in which SLURM or Grid Engine runs workers: submitted, cancelled, submitted again when it ends."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from coremargin.engine.clusters.scripts import batch_script
from coremargin.engine.clusters.specs import Batch, Sge, Slurm
from coremargin.engine.clusters.started import answer_of, need_commands, number_in, take_out, undisturbed
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
        self._job: str | None = None  # the last one
        self._there: dict[str, list[str]] = {}  # jobs that may be in the queue, and what cancels each

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
        submit, pattern, cancel = _COMMANDS[type(self._batch)]
        found = number_in(answer_of(submit, self._script, self._batch.name), pattern, submit[0], self._batch.name)
        job, cluster = found["job"], found.groupdict().get("cluster")  # a cluster: of a SLURM that has several
        self._job = f"{job};{cluster}" if cluster else job  # as SLURM writes it: each cluster counts for itself
        self._there[self._job] = [*cancel, *(["-M", cluster] if cluster else []), job]

    def cancel(self) -> None:
        """Take the array out of the queue, if there is one, and any before it that could not be taken out.

        Raises RunError, with the numbers, for those that may be there still.
        """
        undisturbed(self._take_out)

    def _take_out(self) -> None:
        failed = []
        for job, command in list(self._there.items()):
            try:
                take_out(partial(answer_of, command, ""), [job])
            except RunError as error:
                failed.append(str(error))
            else:
                del self._there[job]
        if failed:
            raise RunError("; ".join(failed))

    def again(self) -> str:
        """Submit it anew, for none of its workers is left: their walltime is over, or somebody cancelled them."""
        try:
            self.cancel()  # what is left of it in the queue
        except RunError as error:
            log.warning("%s", error)  # it is tried once more in the end
        return self.submit()


def check_commands(batch: Batch) -> None:
    """Raise UsageError where the commands of the batch system are not at hand."""
    submit, _, cancel = _COMMANDS[type(batch)]
    need_commands(submit[0], cancel[0])
