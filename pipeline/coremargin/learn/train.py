"""Training: from a source to a saved, certified model."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import structs

from coremargin.data.folder import check_target, recover
from coremargin.data.local_storage import LocalStorage
from coremargin.data.resident import Resident, fits
from coremargin.data.store import Store
from coremargin.data.store_paths import has_model
from coremargin.data.view import columns_of
from coremargin.engine.allowance import Allowance, size_of
from coremargin.engine.checkpoint import EVERY_S, Checkpoint, identity_then
from coremargin.engine.default_memory import need_known_memory
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Answer, Callbacks, Engine, OutOfTime, ScanCost, Step, no_labels, nothing, rounds
from coremargin.engine.problem import WarmStarts, WorksBetweenScans
from coremargin.engine.task import one_blas_thread
from coremargin.errors import CoremarginError, DataError, Interrupted, MachineLimit, OutputError, StoreError, UsageError
from coremargin.formats.run_record import ROUNDS, RUN, read_run
from coremargin.interruption import interrupt_handled, raise_if_interrupted, terminable
from coremargin.learn.record import RunCounters, as_run
from coremargin.learn.start import Beginning
from coremargin.maths.breakdown import BREAKDOWNS, quiet
from coremargin.maths.stopping import stoppable
from coremargin.models.files import MODEL, check_outside, write_run
from coremargin.models.kept import kept_bytes, write_kept
from coremargin.models.registry import load
from coremargin.problems.common.result import STOPPED
from coremargin.problems.kind import Outcome
from coremargin.problems.registry import kind_of, kind_of_model, problem_of
from coremargin.spec import Size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.data.storage import Storage
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.problem import AnyProblem
    from coremargin.engine.protocols import Executor
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob

# Whether a job has been done already: what the model says that is at its place.


def ended(out: Path) -> bool | None:
    """False for the model of a run that stopped at a limit: resuming may replace it. None: no model can be read."""
    with suppress(DataError):
        return load(out).ended
    return None


def stopped(job: TrainJob, source: Source, checkpoint: Checkpoint) -> bool:
    """Whether the model that is there is what a run of this job left at a limit, if only before its first solve."""
    return ended(job.out) is False and (checkpoint.exists() or answers(job, source, load(job.out)))


def answers(job: TrainJob, source: Source, model: AnyModel) -> bool:
    """Whether a model is about the question of a job."""
    return kind_of(job).is_model_of(job, model) and model.store_digest == source.digest


def finished(job: TrainJob, source: Source) -> Outcome | None:
    """What is at ``job.out``, when it is a whole answer to this very question; None otherwise.

    A job may be killed after its model is in place and before its checkpoint is gone. Raises DataError when it is, but
    does not say how its run went.
    """
    try:
        recover(Path(os.path.realpath(job.out)), MODEL)
        model = load(job.out)
    except (DataError, OSError):
        return None
    if not (answers(job, source, model) and all((job.out / name).is_file() for name in (RUN, ROUNDS))):
        return None
    try:
        run, lines = read_run(job.out, kind_of_model(model).run)
    except DataError:
        if model.ended:
            raise
        return None
    # a run may be over without a proof: a heuristic's answer, or float64 at its end
    over = model.ended or run.get("resumable") is False
    return Outcome(model, run, lines, found=True) if over else None


Begin = Literal["new", "resume", "restart"]


@dataclass
class Progress(Callbacks):
    """Who wants to know: also called after each round with its record, and with figures between scans.

    on_memory_need: called first, with the memory that would help. on_note: then, with what else is worth a line.
    on_work: its figures come while a problem works, and when labels that it asked for have come. answer: who knows such
    labels.
    """

    on_round: Callable[[dict[str, Any]], None] = nothing
    on_work: Callable[[dict[str, Any]], None] = nothing
    on_memory_need: Callable[[MemoryNeed | None], None] = nothing
    on_note: Callable[[str], None] = nothing
    answer: Answer = no_labels


def open_store(job: TrainJob, begin: Begin) -> Store:
    """The store of a job: its latest commit or, to resume, the commit that the checkpoint is about.

    So a job that was interrupted ends with the same bits, whatever was appended meanwhile.
    """
    digest = identity_then(job.out).get("store") if begin == "resume" else None
    with suppress(StoreError):  # no such commit: the checkpoint will be refused, with what differs
        if isinstance(digest, str):
            return Store.open(job.store, digest=digest)
    return Store.open(job.store)


def with_memory(job: TrainJob, begin: Begin = "new") -> TrainJob:
    """The job with the memory that it runs with: its own; to resume, that of the run before; or the machine's share.

    So a job that goes on elsewhere, or at a busier hour, has the same answer. Raises MachineLimit where a run before
    had more than there is.
    """
    if job.memory is not None:
        return job
    then = identity_then(job.out).get("memory") if begin == "resume" else None
    if isinstance(then, int):
        need_known_memory(then, job.out)
        return structs.replace(job, memory=Size(then))
    return structs.replace(job, memory=Size(job.memory_bytes))


def check_output(job: TrainJob, begin: Begin, *, overwrite: bool = False) -> None:
    """Refuse what would fail after hours: another job at work, a model that is there, a folder that is read-only.

    Raises Busy, OutputError, UsageError. Takes the lock for a moment; ``train_job`` asks again when it has the lock.
    """
    check_outside(job.out)
    with Checkpoint(job.out, {}) as checkpoint:
        if begin != "resume" or checkpoint.exists() or ended(job.out) is not True:  # else it may be the answer
            _check_target(job, checkpoint, begin, overwrite=overwrite or begin == "resume")


def _check_target(job: TrainJob, checkpoint: Checkpoint, begin: Begin, *, overwrite: bool) -> None:
    check_target(checkpoint.out, MODEL, overwrite=overwrite)
    if begin == "new" and checkpoint.exists():
        raise UsageError(
            f"{job.out}: an interrupted run left a checkpoint; go on with --resume, or start again with --restart"
        )


def train_job(  # noqa: PLR0913 - the job, where it runs and how; all but three with a default
    job: TrainJob,
    source: Source,
    executor: Executor,
    *,
    begin: Begin = "new",
    overwrite: bool = False,
    report: Callable[[Path], object] | None = None,
    progress: Progress | None = None,
    beginning: Beginning | None = None,
) -> Outcome:
    """Run the job and save the model at ``job.out``; beginning: where it starts, None: from scratch.

    begin: "resume" goes on from a checkpoint if there is one, and takes a model that is already proven as it is;
    "restart" throws the checkpoint away, "new" refuses it. A run that stops at a limit, or asks for labels that nobody
    knows, leaves a model and a checkpoint.
    Raises Busy, CheckpointError, MachineLimit (``with_memory``), UsageError (a checkpoint is there), Interrupted
    (Ctrl-C, SIGTERM: resumable).
    """
    started, requested = time.perf_counter(), job.memory is not None
    job, beginning = with_memory(job, begin), beginning or Beginning()
    identity = {"store": source.digest, "rows": source.rows, "problem": kind_of(job).name, **job.identity()}
    identity |= beginning.identity
    resident = Resident(source)
    problem = problem_of(job, resident, beginning.kept_maps)
    resident.keeps = isinstance(executor, InProcess) and keeps_rows(problem, source, job, requested=requested)
    check_outside(job.out)
    with Checkpoint(job.out, identity, every_s=EVERY_S) as checkpoint:
        if begin == "resume" and checkpoint.exists():
            checkpoint.check()
        done = finished(job, source) if begin == "resume" else None
        if done is None:
            if begin == "restart":
                checkpoint.discard()
            overwrite = overwrite or (begin == "resume" and stopped(job, source, checkpoint))
            _check_target(job, checkpoint, begin, overwrite=overwrite)
            with _resumable(checkpoint, job.out):
                progress = progress or Progress()
                progress.on_memory_need(problem.memory_need)
                progress.on_note(kind_of(job).note(problem))
                done = run_problem(job, problem, executor, checkpoint, progress, resident.held, beginning, started)
                raise_if_interrupted()  # asked for while the last block was done, and swallowed there
                more = partial(_more, done, allowance_of(job, beginning), report)
                done.model.save(job.out, done.run, done.rounds, report=more, overwrite=overwrite)
                has_model(job.store)
                if done.resumable:  # stopped at a limit: with a larger one, --resume goes on from here
                    checkpoint.save()
                    return done
        checkpoint.discard()
    return done


def keeps_rows(problem: AnyProblem, source: Source, job: TrainJob, *, requested: bool) -> bool:
    """Whether chunks stay in memory once they were read, lest they are read again; in one process only.

    requested: somebody gave the memory. By default only problems that solve all rows anyway take more for larger
    stores.
    """
    return problem.reads_again and fits(source, job.memory_bytes, requested=requested or problem.holds_all_rows)


def allowance_of(job: TrainJob, beginning: Beginning) -> Allowance:
    """What a model may keep for its next retraining: one that is retrained now is likely to be so again."""
    return replace(job.allowance, requested=job.allowance.requested or beginning.retrains)


def _more(done: Outcome, allowance: Allowance, report: Callable[[Path], object] | None, folder: Path) -> None:
    """Write what lies beside the files of a model: what is kept for retraining, and the report.

    The seconds of the run are those until then, with all files on disk, and so written last.
    """
    started, model = done.elapsed(), LocalStorage(folder)
    if done.kept is not None and allowance.bytes:
        with one_blas_thread():
            kept = done.kept(allowance)
        done.run["retraining"] = _keep_for_retraining(kept, allowance, model)
    done.run["seconds"] = done.elapsed()
    if "retraining" in done.run:
        done.run["retraining"]["seconds"] = done.run["seconds"] - started
    write_run(model, done.run, done.rounds)
    if report is not None:
        report(folder)
        done.run["seconds_before_report"] = done.run["seconds"]  # those that the page shows
        done.run["seconds"] = done.elapsed()
        write_run(model, done.run, done.rounds)


def _keep_for_retraining(kept: Mapping[str, Any], allowance: Allowance, model: Storage) -> dict[str, Any]:
    """Write what is kept; how large it is and, where it is nothing as it would be larger than allowed, would be."""
    size = size_of(kept)
    if size > allowance.bytes:
        return {"bytes": 0, "most_bytes": allowance.bytes, "wanted_bytes": size}
    write_kept(model, kept)  # if only to tell a retraining that there was nothing to keep
    return {"bytes": (kept_bytes(model) or 0) if kept else 0, "most_bytes": allowance.bytes}


def run_problem(  # noqa: PLR0913 - a job, what runs it, and how it began
    job: TrainJob,
    problem: AnyProblem,
    executor: Executor,
    checkpoint: Checkpoint,
    progress: Progress,
    held: Callable[[], frozenset[int]] = frozenset,
    beginning: Beginning | None = None,
    started: float | None = None,
) -> Outcome:
    """The rounds of a job, with limits, checkpoints and meters; held: the chunks in memory; started: when it began."""
    clock = time.perf_counter() if started is None else started
    deadline = math.inf if job.time_limit is None else clock + job.time_limit
    block = max(job.block, problem.least_block_bytes)
    engine = Engine(
        problem.source, executor, checkpoint, progress, block, deadline, progress.answer, most_ahead=job.memory_bytes
    )
    with one_blas_thread(), quiet():  # the driver's solves give the same bits on any number of cores
        state, counters = _begin(problem, engine, clock, held, beginning or Beginning())
        engine = replace(engine, held=lambda: frozenset(counters.held))
        before, proven = counters.seconds, state if problem.done(state) else None
        # scans before a kill count, but one that is still to be finished
        finished_scans = counters.scans - (not problem.round_of(state).finished)
        scans_left = None if job.max_scans is None else max(0, job.max_scans - finished_scans)
        signals = list[str]()
        with _stoppable(problem, signals.append), stoppable(engine.check_time):
            engine.check_time()
            asks_more = scans_left is None and "from_nothing" in counters.about.get("retrained", {})
            asks_more = asks_more and job.allowance.bytes > 0
            for step in _steps(engine, problem, state, scans_left, asks_more=asks_more):
                state = step.state
                if step.cost is not None:
                    counters.scanned(step.round, step.cost)
                counters.holds(held())
                counters.seconds = before + time.perf_counter() - clock
                if isinstance(problem, WorksBetweenScans):
                    counters.worked(step.round)
                checkpoint.scan_begins(state, counters.as_now())  # a run that ends here can be resumed from here
                if step.cost is None:
                    progress.on_work(step.round.figures)
                elif step.round.finished or step.round.stage is not None:
                    progress.on_round(counters.rounds[-1])
                proven = state if problem.done(state) else proven
                if proven is not state:
                    engine.check_time()
        state = state if proven is None else proven  # what is asked for later retrainings may have been broken off
        counters.seconds = before + time.perf_counter() - clock
    resumable = not problem.done(state)
    run = as_run(job, problem, state, counters, executor) | {"resumable": resumable}
    if signals and resumable:
        ended = f"it was interrupted ({signals[0]})"
        run["reason"] = ended if run["reason"] == STOPPED["running"] else f"{run['reason']}; {ended}"
    model, columns = kind_of(job).model(job, problem, state), columns_of(problem.source)
    if columns is not None:
        model = model.with_columns(columns)
    kept = partial(problem.warm_start_state, state) if isinstance(problem, WarmStarts) else None
    return Outcome(
        model, run, counters.rounds, resumable, kept=kept, elapsed=lambda: before + time.perf_counter() - clock
    )


def _steps(
    engine: Engine, problem: AnyProblem, state: Any, scans_left: int | None, *, asks_more: bool
) -> Iterator[Step[Any]]:
    """Those of the rounds; of a retraining from scratch then those that bring what the next one goes on from.

    Where time is over before these have ended, the model is as it was proven before them.
    """
    for step in rounds(engine, problem, state, scans_left):
        state = step.state
        yield step
    if asks_more:
        more = problem.asking_more(state) if isinstance(problem, WarmStarts) and problem.done(state) else None
        if more is not None:
            yield from rounds(engine, problem, more)


@contextmanager
def _stoppable(problem: AnyProblem, interrupted: Callable[[str], None]) -> Iterator[None]:
    """A time limit ends the rounds, with what is proven; so does a signal where there is an answer at any time.

    interrupted: called with the name of the signal.
    """
    try:
        yield
    except OutOfTime:
        pass
    except KeyboardInterrupt:
        if not isinstance(problem, WorksBetweenScans):
            raise
        interrupted(interrupt_handled())


def _begin(
    problem: AnyProblem, engine: Engine, clock: float, held: Callable[[], frozenset[int]], beginning: Beginning
) -> tuple[Any, RunCounters]:
    """The state to start from: a checkpoint's, or the beginning's; where time is over before, one of nothing."""
    checkpoint, progress = engine.checkpoint, cast("Progress", engine.callbacks)
    resumed = checkpoint.load(lambda arrays: (problem.restore(arrays), RunCounters(**checkpoint.history)))
    if resumed is not None:
        resumed[1].resumed += 1
        checkpoint.history = resumed[1].as_now()
        return resumed
    counters = RunCounters()
    try:
        with stoppable(engine.check_time):
            state, counters.about = beginning.start(problem)
    except OutOfTime:  # another run begins as this one did: there is nothing to go on from
        return problem.unsolved(), counters
    except BREAKDOWNS:
        return problem.broken(problem.unsolved()), counters
    seconds = time.perf_counter() - clock
    if state.sample_bytes:  # else stages of the first read bring the rows to begin with
        cost = ScanCost(problem.source.chunks, 0, state.sample_bytes, 0.0, seconds)
        counters.sampled(problem.round_of(state), cost)
        counters.holds(held())
        progress.on_round(counters.rounds[-1])
    checkpoint.scan_begins(state, counters.as_now())  # where no scan is allowed, a later run goes on from here
    return state, counters


@contextmanager
def _resumable(checkpoint: Checkpoint, out: Path) -> Iterator[None]:
    """An end before the model is in place leaves a checkpoint and a word on how to go on."""
    try:
        with terminable():
            yield
    except KeyboardInterrupt:
        _keep(checkpoint)
        kept = "go on with the same command and --resume" if checkpoint.exists() else "nothing was proven yet"
        raise Interrupted(f"{out}: interrupted; {kept}") from None
    except (CoremarginError, MemoryError, OSError) as error:
        _keep(checkpoint)
        if checkpoint.exists() and "--resume" not in str(error):
            error.add_note("what was done is kept: when this is repaired, go on with the same command and --resume")
        raise


def _keep(checkpoint: Checkpoint) -> None:
    """Save what is new; what was saved before stays when that fails, and the error that ended the job matters more."""
    with suppress(OutputError, MachineLimit, MemoryError):
        checkpoint.save()
