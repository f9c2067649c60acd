"""What the package asks of a kind of problem: README.md beside this says how to add one."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from coremargin.errors import UsageError
from coremargin.formats.run_record import Run

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.problem import AnyProblem
    from coremargin.engine.want import Want
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob
    from coremargin.problems.outcome import Outcome

J = TypeVar("J", bound="TrainJob")  #: what a job says about this kind
P = TypeVar("P", bound="AnyProblem")  #: the problem that the loop solves
M = TypeVar("M", bound="AnyModel")  #: its model


#: Scans that follow a sample on most data, where a job is not done by one read in stages.
SCANS_AFTER_SAMPLE = 2


class Kind(ABC, Generic[J, P, M]):
    """One kind of problem, from what a job says to what people are told.

    Objects of this class have no state. Their modules import little at the top: commands ask every kind whether a job
    means it, and only the one that is meant may load its solvers.
    """

    name: ClassVar[str]  #: of its line in the registry, or of the first; records of its models have one of these
    job: ClassVar[type[TrainJob]]  #: what a job says
    title: ClassVar[str]  #: "a hard margin", for messages
    selected_by: ClassVar[str]  #: how a job asks for it, for messages
    run: ClassVar[type[Run]] = Run  #: what ``run.json`` holds at least

    scan_told: ClassVar[str] = "counts the held-out rows with the final models"  #: what scans after the read are for
    #: What is read beside the one read in stages and the scans that follow it.
    again_told: ClassVar[str] = "chunks that the read leaves unproven are read again, on most data none"

    @abstractmethod
    def matches(self, options: Mapping[str, Any]) -> bool:
        """Whether a job that says this means this kind; kinds are asked in the order of the registry."""

    @abstractmethod
    def problem(self, job: J, source: Source) -> P:
        """The problem on rows that are scaled as the job says.

        Raises LabelError, StoreError, UsageError for what cannot be trained, before anything is read.
        """

    def scans_after(self, job: J) -> int:
        """Scans of all rows that follow the read that proves, whatever it found."""
        return 0

    def reads_needed(self, job: J, problem: P, *, in_memory: bool) -> int:
        """How many times all rows of the store are read, on most data; a sample before that is not counted.

        in_memory: rows stay in memory after they were read. Else they are read in stages, once, and by the scans that
        follow; or by scans that follow a sample.
        """
        if in_memory:
            return 1
        return 1 + self.scans_after(job) if problem.stage_chunks else SCANS_AFTER_SAMPLE

    def memory_told(self, problem: P) -> str:
        """What the memory of a job is for."""
        return "for rows in the driver, as much again while they are solved"

    def members(self, problem: P) -> int:
        """How many models there will be."""
        return 1

    def wanted(self, problem: P, state: Any) -> Want | None:
        """What memory would have served the run that came to this state."""
        want: Want | None = problem.want
        return want

    def answered_by(self, job: J, model: AnyModel) -> bool:
        """Whether a model is one that this job asks for, of whatever rows."""
        return model.kind == self.name and model.parameters == job.parameters()

    def asked_again(self, options: Mapping[str, Any], kernel: str | None) -> dict[str, Any]:
        """What a retraining asks for: the options of the run before; kernel: a function that its user names now.

        No function that a run names is ever imported. Raises UsageError for a function that a model has not, or lacks.
        """
        if kernel is not None:
            raise UsageError(f"kernel: {self.title} has none that is a function; leave it out")
        return dict(options)

    @abstractmethod
    def model(self, job: J, problem: P, state: Any) -> M:
        """The model that a state stands for; nothing in it depends on the run: no clock, no host."""

    def note(self, problem: P) -> str:
        """What is worth a line before a run begins, "" where nothing is."""
        return ""

    @abstractmethod
    def facts(self, problem: P, state: Any) -> dict[str, Any]:
        """What ``run.json`` says beside the costs: ``reason`` is why the run ended, for people."""

    @abstractmethod
    def summary(self, model: M, run: Mapping[str, Any]) -> dict[str, Any]:
        """What is claimed, flat, for machines."""

    @abstractmethod
    def verdict(self, outcome: Outcome, job: J) -> list[str]:
        """What a finished job has found, for people."""

    def inseparable(self, model: M) -> str:
        """Why there is no answer where nothing separates the classes, and what to choose: a line for Python."""
        return f"{self.title}: nothing separates the classes"

    @abstractmethod
    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """What the driver held in memory, in a word and in a sentence."""

    def work_told(self, bounds: str, figures: Mapping[str, Any]) -> str:
        """Where a problem stands that works between scans, in a line; bounds: what is proven, "" where nothing is."""
        return f"between scans: {bounds or 'nothing is proven yet'}"

    def bounds_told(self, bounds: str, record: Mapping[str, Any]) -> str:
        """What is proven after a round, whose record is a line of ``rounds.jsonl``."""
        return bounds

    def news(self, record: Mapping[str, Any]) -> str:
        """What a round has shown that is worth a line of its own, "" where nothing is."""
        return ""

    def next_steps(self, outcome: Outcome, job: J) -> list[str]:
        """What can be done now."""
        return [*places(job), *go_on(outcome), check_of(job)]

    @abstractmethod
    def described(self, path: Path, model: M, made: Sequence[tuple[str, str]]) -> list[str]:
        """What a model is and claims, for people; made: when, and what it cost."""

    @abstractmethod
    def report(self, folder: Path, name: str) -> str:
        """The page of a model's folder. Raises DataError where it does not hold what training writes."""


def places(job: TrainJob) -> list[str]:
    """Where model and report are."""
    return [f"model   {job.out}", f"report  {job.out / 'report.html'}"]


def go_on(outcome: Outcome) -> list[str]:
    """How a run that stopped at a limit goes on, if it did: without that limit."""
    words = outcome.run.get("resume")  # older runs do not say it
    return [f"go on   {shlex.join(words)}"] if outcome.resumable and words else []


def with_loss(loss: str, *, instead_of: str = "") -> str:
    """What to do about classes that overlap; instead_of: a parameter of the job that does not go with a loss."""
    words = f"--loss {loss} --overwrite{f' instead of --{instead_of}' if instead_of else ''}"
    return f'try     the same command with {words} (job file: loss = "{loss}"), if classes overlap'


def check_of(job: TrainJob) -> str:
    """The command that checks the model."""
    return f"check   {shlex.join(['coremargin', 'verify', str(job.out), str(job.store), *job.said_again])}"
