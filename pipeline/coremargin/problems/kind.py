"""The interface of a kind of problem, and what a finished job of any kind yields; README.md says how to add one."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from coremargin.errors import UsageError
from coremargin.formats.location import is_remote, storage_words
from coremargin.formats.run_record import Run

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.allowance import Allowance
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.problem import AnyProblem
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob

J = TypeVar("J", bound="TrainJob")  #: the job of this kind
P = TypeVar("P", bound="AnyProblem")  #: the problem that the loop solves
M = TypeVar("M", bound="AnyModel")  #: its model
A = TypeVar("A")  #: a dataclass whose fields JSON can represent

#: On most data, a job that does not read in stages takes so many scans after its sample.
SCANS_AFTER_SAMPLE = 2


@dataclass(frozen=True)
class Outcome:
    """The model of a finished job, with ``run`` and ``rounds`` as in the model's folder."""

    model: AnyModel
    run: dict[str, Any]
    rounds: list[dict[str, Any]]
    resumable: bool = False  #: it stopped at a limit: more scans would help
    found: bool = False  #: it was complete before this run: its claims were not checked again
    kept: Callable[[Allowance], Mapping[str, Any]] | None = None  #: the cache for warm starts
    elapsed: Callable[[], float] = lambda: 0.0  #: seconds of the run, those before it was resumed included


class Kind(ABC, Generic[J, P, M]):
    """One kind of problem: from the options of a job to the report of its model.

    Objects of this class have no state. Their modules import little at the top: commands ask every kind whether it
    matches a job, and only the one that does loads its solvers.
    """

    name: ClassVar[str]  #: of its first entry in ``formats/kinds.py``; records have the name of one of its entries
    job: ClassVar[type[TrainJob]]  #: its options
    title: ClassVar[str]  #: such as "a hard margin", for messages
    selected_by: ClassVar[str]  #: how a job asks for it, for messages
    run: ClassVar[type[Run]] = Run  #: the fields of ``run.json``
    labelled: ClassVar[bool] = True  #: False: problems without classes, of rows that need no labels

    ratio_name: ClassVar[str] = "ratio"  #: what lower / upper is, for the progress line
    scan_purpose: ClassVar[str] = "counts the held-out rows with the final models"  #: of scans after the first read
    #: What is read besides the first read and the scans that follow it.
    rereads: ClassVar[str] = "chunks that the read leaves unproven are read again, on most data none"

    @abstractmethod
    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether a job with these options is of this kind; of several the first in ``formats/kinds.py`` is taken."""

    @abstractmethod
    def problem(self, job: J, source: Source) -> P:
        """The problem on rows that are scaled as the job requests.

        Raises LabelError, StoreError, UsageError for what cannot be trained, before anything is read.
        """

    def scans_after(self, job: J) -> int:
        """Scans of all rows after the first read, whatever that proves."""
        return 0

    def reads_needed(self, job: J, problem: P, *, in_memory: bool) -> int:
        """How many times all rows of the store are read, on most data, a sample not counted.

        in_memory: rows stay in memory once they are read. Otherwise they are read in stages, once, and by the scans
        that follow; or by scans after a sample.
        """
        if in_memory:
            return 1
        return 1 + self.scans_after(job) if problem.stage_chunks else SCANS_AFTER_SAMPLE

    def describe_reading(self, job: J) -> str:
        """How often a job reads the store, if that is not known in advance; else ""."""
        return ""

    def memory_purpose(self, problem: P) -> str:
        """What the memory of a job is for."""
        return "for rows in the driver, as much again while they are solved"

    def members(self, problem: P) -> int:
        """The number of models."""
        return 1

    def wanted(self, problem: P, state: Any) -> MemoryNeed | None:
        """The memory that would have served the run that ended with this state."""
        want: MemoryNeed | None = problem.memory_need
        return want

    def is_model_of(self, job: J, model: AnyModel) -> bool:
        """Whether a model has the parameters of this job, whatever its rows."""
        return model.kind == self.name and model.parameters == job.parameters()

    def retraining_options(self, options: Mapping[str, Any], kernel: str | None) -> dict[str, Any]:
        """The options of a retraining: those of the earlier run; kernel: a function that the user names now.

        A function that a run names is never imported. Raises UsageError if the model has no function, or needs one.
        """
        if kernel is not None:
            raise UsageError(f"kernel: {self.title} has none that is a function; leave it out")
        return dict(options)

    @abstractmethod
    def model(self, job: J, problem: P, state: Any) -> M:
        """The model of a state; nothing in it depends on the run: no clock, no host."""

    def note(self, problem: P) -> str:
        """A line to show before a run begins, or ""."""
        return ""

    @abstractmethod
    def facts(self, problem: P, state: Any) -> dict[str, Any]:
        """What ``run.json`` contains besides the costs; ``reason``: why the run ended, for people."""

    @abstractmethod
    def summary(self, model: M, run: Mapping[str, Any]) -> dict[str, Any]:
        """The claims as flat keys, for ``--json``."""

    @abstractmethod
    def verdict(self, outcome: Outcome, job: J) -> list[str]:
        """What a finished job has proven, for people."""

    def inseparable(self, model: M) -> str:
        """Why nothing separates the classes, and what to choose instead: a line for Python."""
        return f"{self.title}: nothing separates the classes"

    @abstractmethod
    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """What the driver held in memory, in a word and in a sentence."""

    def describe_work(self, bounds: str, figures: Mapping[str, Any]) -> str:
        """The progress of work between scans, in a line; bounds: what is proven, or ""."""
        return f"between scans: {bounds or 'nothing is proven yet'}"

    def describe_bounds(self, bounds: str, record: Mapping[str, Any]) -> str:
        """What is proven after a round, whose record is a line of ``rounds.jsonl``."""
        return bounds

    def notice(self, record: Mapping[str, Any]) -> str:
        """A line of its own about what a round has shown, or ""."""
        return ""

    def next_steps(self, outcome: Outcome, job: J) -> list[str]:
        """What to do next: lines for people."""
        return [*describe_paths(job), *describe_resume(outcome), describe_verify(job)]

    def describe_published(self, outcome: Outcome) -> list[tuple[str, str]]:
        """Published bounds next to what the job has needed, for ``coremargin train``: names and texts."""
        return []

    def bounds_before(self, job: J, problem: P) -> dict[str, float] | None:
        """Published bounds that are known before a run, for ``coremargin plan``; None: no such bounds."""
        return None

    def describe_before(self, found: Mapping[str, float]) -> list[tuple[str, str]]:
        """The same as lines: names and texts."""
        return []

    def describe_run(self, run: Mapping[str, Any]) -> list[tuple[str, str]]:
        """What the record of a run adds to the description of its model: names and texts."""
        return []

    @abstractmethod
    def describe(self, path: str | Path, model: M, made: Sequence[tuple[str, str]]) -> list[str]:
        """What a model is and claims, for people; made: when, and what it cost."""

    @abstractmethod
    def report(self, folder: Path, name: str) -> str:
        """The HTML page of a model's folder. Raises DataError if the folder does not hold a model."""


def describe_paths(job: TrainJob) -> list[str]:
    """The paths of model and report."""
    report = f"{job.out}/report.html"
    if is_remote(job.out):
        from coremargin.formats.object_storage import ObjectReader

        report = ObjectReader(job.out).address_of("report.html")
    return [f"model   {job.out}", f"report  {report}"]


def describe_resume(outcome: Outcome) -> list[str]:
    """The command that resumes a run that stopped at a limit, without that limit."""
    words = outcome.run.get("resume")
    return [f"resume  {shlex.join(words)}"] if outcome.resumable and words else []


def suggest_loss(loss: str, *, instead_of: str = "") -> str:
    """The loss to try if classes overlap; instead_of: an option of the job that cannot be combined with a loss."""
    words = f"--loss {loss} --overwrite{f' instead of --{instead_of}' if instead_of else ''}"
    return f'try     the same command with {words} (job file: loss = "{loss}"), if classes overlap'


def describe_verify(job: TrainJob) -> str:
    """The command that verifies the model."""
    words = ["coremargin", "verify", str(job.out), str(job.store), *storage_words(job.out, job.store), *job.said_again]
    return f"check   {shlex.join(words)}"


class Command(ABC, Generic[A]):
    """``coremargin NAME MODEL``: a command about a model, with its answer for ``--json`` and for people.

    Modules with ``COMMANDS`` are imported for ``coremargin --help``: they import heavy modules inside of methods.
    """

    name: ClassVar[str]
    help: ClassVar[str]  #: its first sentence appears in the list of all commands

    @abstractmethod
    def answer(self, model: AnyModel) -> A:
        """The answer for a model. Raises UsageError for models without one."""

    @abstractmethod
    def describe(self, answer: A) -> list[str]:
        """The answer for people, line by line."""


AnyCommand = Command[Any]
