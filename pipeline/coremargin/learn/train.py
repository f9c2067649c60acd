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
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from coremargin.blas import one_blas_thread
from coremargin.data.folder import recover
from coremargin.data.local_storage import LocalStorage
from coremargin.data.resident import Resident, fits
from coremargin.data.storages import open_storage
from coremargin.data.store import Store
from coremargin.data.store_paths import has_model
from coremargin.data.view import columns_of, contradicts, sha256_entry
from coremargin.engine.allowance import Allowance, size_of
from coremargin.engine.checkpoint import EVERY_S, Checkpoint, NoCheckpoint, identity_then
from coremargin.engine.default_memory import need_known_memory
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Answer, Callbacks, Engine, OutOfTime, ScanCost, Step, no_labels, nothing, rounds
from coremargin.engine.problem import WarmStarts, WorksBetweenScans
from coremargin.errors import CoremarginError, DataError, Interrupted, MachineLimit, OutputError, StoreError, UsageError
from coremargin.formats.location import is_remote
from coremargin.formats.run_record import ROUNDS, RUN, read_run
from coremargin.interruption import interrupt_handled, raise_if_interrupted, terminable
from coremargin.learn.ellipsoid_scaling import FittedEllipsoid, earlier_ellipsoid, fit_ellipsoid, preliminary_ellipsoid
from coremargin.learn.record import RunCounters, run_record
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
    from coremargin.engine.checkpoint import Begin
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.problem import AnyProblem
    from coremargin.engine.protocols import Executor
    from coremargin.formats.location import Location
    from coremargin.learn.retrain import Retraining
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob


def _has_ended(out: Location) -> bool | None:
    """False for a model of a run that stopped at a limit, which --resume may replace. None: no readable model."""
    with suppress(DataError):
        return load(out).ended
    return None


def _stopped_at_limit(job: TrainJob, source: Source, checkpoint: Checkpoint) -> bool:
    """Whether the existing model is that of an unfinished run of this job."""
    return _has_ended(job.out) is False and (checkpoint.exists() or _is_model_of(job, source, load(job.out)))


def _is_model_of(job: TrainJob, source: Source, model: AnyModel) -> bool:
    same = model.store_digest == source.digest and not contradicts(source, model.store_sha256)
    return kind_of(job).is_model_of(job, model) and same


def _load_finished(job: TrainJob, source: Source) -> Outcome | None:
    """The model at ``job.out`` if this job has finished; None otherwise.

    A job may be killed after its model is in place and before its checkpoint is removed. Raises DataError if the model
    has no readable ``run.json``.
    """
    try:
        if not is_remote(job.out):
            recover(Path(os.path.realpath(job.out)), MODEL)
        model = load(job.out)
    except (DataError, OSError):
        return None
    storage = open_storage(job.out)
    if not (_is_model_of(job, source, model) and all(storage.exists(name) for name in (RUN, ROUNDS))):
        return None
    try:
        run, lines = storage.read_whole(lambda files: read_run(files, kind_of_model(model).run))
    except DataError:
        if model.ended:
            raise
        return None
    # a run may end without a proof: heuristics, or at the limits of float64
    over = model.ended or run.get("resumable") is False
    return Outcome(model, run, lines, found=True) if over else None


@dataclass
class Progress(Callbacks):
    """Callbacks of a training, besides those of the engine.

    on_memory_need: called first, with the memory that the rows need. on_note: with a further message. on_round: after
    each round, with its record. on_work: with figures between scans, and when queried labels arrive. answer: labels
    rows.
    """

    on_round: Callable[[dict[str, Any]], None] = nothing
    on_work: Callable[[dict[str, Any]], None] = nothing
    on_memory_need: Callable[[MemoryNeed | None], None] = nothing
    on_note: Callable[[str], None] = nothing
    answer: Answer = no_labels


def open_store(job: TrainJob, begin: Begin) -> Store:
    """The store of a job at its latest commit or, to resume, at that of the checkpoint.

    So an interrupted job gives the same bits even if rows were appended meanwhile.
    """
    digest = identity_then(job.out).get("store") if begin == "resume" else None
    with suppress(StoreError):  # no such commit: ``Checkpoint.check`` explains what differs
        if isinstance(digest, str):
            return Store.open(job.store, digest=digest)
    return Store.open(job.store)


def set_default_memory(job: TrainJob, begin: Begin = "new") -> TrainJob:
    """The job with its memory set: to resume, to that of the interrupted run; else to a share of the machine's.

    So a job that is resumed on another machine gives the same bits. Raises MachineLimit if the interrupted run had more
    memory than is available.
    """
    if job.memory is not None:
        return job
    then = identity_then(job.out).get("memory") if begin == "resume" else None
    if isinstance(then, int):
        need_known_memory(then, job.out)
        return structs.replace(job, memory=Size(then))
    return structs.replace(job, memory=Size(job.memory_bytes))


def check_output(job: TrainJob, begin: Begin, *, overwrite: bool = False) -> None:
    """Fail early if another job is running, a model exists, or the folder is read-only.

    Raises Busy, OutputError, UsageError. ``train_job`` checks again, under its lock.
    """
    check_outside(job.out)
    with Checkpoint(job.out, {}) as checkpoint:
        if (
            begin != "resume" or checkpoint.exists() or _has_ended(job.out) is not True
        ):  # else the job may have finished
            _check_target(job, checkpoint, begin, overwrite=overwrite or begin == "resume")


def _check_target(job: TrainJob, checkpoint: Checkpoint, begin: Begin, *, overwrite: bool) -> None:
    open_storage(job.out).resolved().check_replaceable(MODEL, overwrite=overwrite)
    if begin == "new" and checkpoint.exists():
        raise UsageError(
            f"{job.out}: an interrupted run left a checkpoint; continue with --resume, or start again with --restart"
        )


def train_job(  # noqa: PLR0913 - all but three have a default
    job: TrainJob,
    source: Source,
    executor: Executor,
    *,
    begin: Begin = "new",
    overwrite: bool = False,
    report: Callable[[Path], object] | None = None,
    progress: Progress | None = None,
    retraining: Retraining | None = None,
) -> Outcome:
    """Run the job and save the model at ``job.out``; retraining: start from an earlier model.

    begin: "resume" continues from a checkpoint if there is one, and returns the model of a finished run; "restart"
    discards the checkpoint, "new" refuses it. A run that stops at a limit, or needs labels that are not known yet,
    leaves a model and a checkpoint.
    Raises Busy, CheckpointError, MachineLimit (``set_default_memory``), UsageError (a checkpoint exists), Interrupted
    (Ctrl-C, SIGTERM: resumable).
    """
    started, requested = time.perf_counter(), job.memory is not None
    job = set_default_memory(job, begin)
    identity = {"store": source.digest, "rows": source.rows, "problem": kind_of(job).name, **job.identity()}
    identity |= sha256_entry(source) | ({} if retraining is None else retraining.identity)
    resident, maps = Resident(source), () if retraining is None else retraining.maps
    problem = problem_of(job, resident, maps, preliminary_ellipsoid(job, source))
    resident.keeps = isinstance(executor, InProcess) and keeps_rows(problem, source, job, requested=requested)
    check_outside(job.out)
    with Checkpoint(job.out, identity, every_s=EVERY_S) as checkpoint:
        if begin == "resume" and checkpoint.exists():
            checkpoint.check()
        done = _load_finished(job, source) if begin == "resume" else None
        if done is None:
            if begin == "restart":
                checkpoint.discard()
            overwrite = overwrite or (begin == "resume" and _stopped_at_limit(job, source, checkpoint))
            _check_target(job, checkpoint, begin, overwrite=overwrite)
            with _save_checkpoint_on_failure(checkpoint, job.out):
                progress = progress or Progress()
                progress.on_memory_need(problem.memory_need)
                progress.on_note(kind_of(job).note(problem))
                fitted = fitted_ellipsoid(job, resident, executor, started, resident.held, retraining)
                if fitted is not None:
                    problem = problem_of(job, resident, maps, fitted.arrays)
                done = run_problem(job, problem, executor, checkpoint, progress, resident.held, retraining, started)
                add_cost(done.run, fitted)
                raise_if_interrupted()  # a signal during the last block, which may have swallowed it
                allowance = job.allowance  # a model that is retrained now will probably be retrained again
                allowance = replace(allowance, requested=allowance.requested or retraining is not None)
                finish = partial(_write_state_and_report, done, allowance, report)
                done.model.save(job.out, done.run, done.rounds, report=finish, overwrite=overwrite)
                has_model(job.store)
                if done.resumable:  # stopped at a limit: --resume continues with a larger one
                    checkpoint.save()
                    return done
        checkpoint.discard()
    return done


def train_in_memory(
    job: TrainJob, source: Source, executor: Executor, progress: Progress, retraining: Retraining | None = None
) -> AnyModel:
    """Run the job without a checkpoint and without files; returns the model."""
    started, maps = time.perf_counter(), () if retraining is None else retraining.maps
    preliminary = preliminary_ellipsoid(job, source)
    if preliminary is not None:
        problem_of(job, source, maps, preliminary)  # raises what is wrong before the ellipsoid takes a read
    fitted = fitted_ellipsoid(job, source, executor, started, retraining=retraining)
    problem = problem_of(job, source, maps, None if fitted is None else fitted.arrays)
    return run_problem(job, problem, executor, NoCheckpoint(), progress, retraining=retraining, started=started).model


def fitted_ellipsoid(
    job: TrainJob,
    source: Source,
    executor: Executor,
    started: float,
    held: Callable[[], frozenset[int]] = frozenset,
    retraining: Retraining | None = None,
) -> FittedEllipsoid | None:
    """The ellipsoid that scales the rows; None for other scalings. Of a retraining the earlier one, if it still is."""
    if not job.scaling_takes_read:
        return None
    kept = None if retraining is None else earlier_ellipsoid(retraining.model, source)
    deadline = math.inf if job.time_limit is None else started + job.time_limit
    return kept or fit_ellipsoid(job, source, executor, deadline, held)


def add_cost(run: dict[str, Any], fitted: FittedEllipsoid | None) -> None:
    """Add the reads for an ellipsoid to the record of a run."""
    if fitted is not None:
        run["scaling"] = fitted.cost
        run["bytes_read"] += fitted.cost["bytes_read"]


def keeps_rows(problem: AnyProblem, source: Source, job: TrainJob, *, requested: bool) -> bool:
    """Whether chunks that were read stay in memory; in one process only.

    requested: the user set the memory. By default only problems that hold all rows anyway use more for larger stores.
    """
    again = problem.reads_again or job.scaling_takes_read
    return again and fits(source, job.memory_bytes, requested=requested or problem.holds_all_rows)


def _write_state_and_report(
    done: Outcome, allowance: Allowance, report: Callable[[Path], object] | None, folder: Path
) -> None:
    """Add the warm-start state and the report to a model's folder.

    ``run.json`` is written last, since its seconds include the other files.
    """
    started, model = done.elapsed(), LocalStorage(folder)
    if done.kept is not None and allowance.bytes:
        with one_blas_thread():
            state = done.kept(allowance)
        done.run["retraining"] = _write_warm_start_state(state, allowance, model)
    done.run["seconds"] = done.elapsed()
    if "retraining" in done.run:
        done.run["retraining"]["seconds"] = done.run["seconds"] - started
    write_run(model, done.run, done.rounds)
    if report is not None:
        report(folder)
        done.run["seconds_before_report"] = done.run["seconds"]  # as the report shows them
        done.run["seconds"] = done.elapsed()
        write_run(model, done.run, done.rounds)


def _write_warm_start_state(state: Mapping[str, Any], allowance: Allowance, model: Storage) -> dict[str, Any]:
    """Returns the bytes written: 0 for a state that is larger than allowed, with the bytes that it would need."""
    size = size_of(state)
    if size > allowance.bytes:
        return {"bytes": 0, "most_bytes": allowance.bytes, "wanted_bytes": size}
    write_kept(model, state)  # an empty state, too, so that a retraining knows that there is none
    return {"bytes": (kept_bytes(model) or 0) if state else 0, "most_bytes": allowance.bytes}


def run_problem(  # noqa: PLR0913 - three have a default
    job: TrainJob,
    problem: AnyProblem,
    executor: Executor,
    checkpoint: Checkpoint,
    progress: Progress,
    held: Callable[[], frozenset[int]] = frozenset,
    retraining: Retraining | None = None,
    started: float | None = None,
) -> Outcome:
    """Run the rounds of a job, within its limits; held: chunks in memory; started: ``time.perf_counter()``."""
    clock = time.perf_counter() if started is None else started
    deadline = math.inf if job.time_limit is None else clock + job.time_limit
    block = max(job.block, problem.least_block_bytes)
    engine = Engine(
        problem.source, executor, checkpoint, progress, block, deadline, progress.answer, most_ahead=job.memory_bytes
    )
    with one_blas_thread(), quiet():  # solves of the driver give the same bits on any number of cores
        state, counters = _load_or_start(problem, engine, clock, held, retraining)
        counters.holds(held())  # read before, for an ellipsoid
        engine = replace(engine, held=lambda: frozenset(counters.held))
        before, proven = counters.seconds, state if problem.done(state) else None
        # scans before a kill count, except one that has not finished
        finished_scans = counters.scans - (not problem.round_of(state).finished)
        scans_left = None if job.max_scans is None else max(0, job.max_scans - finished_scans)
        signals = list[str]()
        with _stop_with_bounds(problem, signals.append), stoppable(engine.check_time):
            engine.check_time()
            improves_state = scans_left is None and "from_scratch" in counters.about.get("retrained", {})
            improves_state = improves_state and job.allowance.bytes > 0
            for step in _run_rounds(engine, problem, state, scans_left, improves_state=improves_state):
                state = step.state
                if step.cost is not None:
                    counters.scanned(step.round, step.cost)
                counters.holds(held())
                counters.seconds = before + time.perf_counter() - clock
                if isinstance(problem, WorksBetweenScans):
                    counters.worked(step.round)
                checkpoint.scan_begins(state, counters.as_now())  # --resume continues from here
                if step.cost is None:
                    progress.on_work(step.round.figures)
                elif step.round.finished or step.round.stage is not None:
                    progress.on_round(counters.rounds[-1])
                proven = state if problem.done(state) else proven
                if proven is not state:
                    engine.check_time()
        state = state if proven is None else proven  # improving the warm-start state may have been interrupted
        counters.seconds = before + time.perf_counter() - clock
    resumable = not problem.done(state)
    run = run_record(job, problem, state, counters, executor) | {"resumable": resumable}
    if signals and resumable:
        ended = f"it was interrupted ({signals[0]})"
        run["reason"] = ended if run["reason"] == STOPPED["running"] else f"{run['reason']}; {ended}"
    model, columns = kind_of(job).model(job, problem, state), columns_of(problem.source)
    if columns is not None:
        model = model.with_columns(columns)
    warm_start = partial(problem.warm_start_state, state) if isinstance(problem, WarmStarts) else None
    return Outcome(
        model, run, counters.rounds, resumable, kept=warm_start, elapsed=lambda: before + time.perf_counter() - clock
    )


def _run_rounds(
    engine: Engine, problem: AnyProblem, state: Any, scans_left: int | None, *, improves_state: bool
) -> Iterator[Step[Any]]:
    """The rounds of a job and, for a retraining from scratch, further ones that improve its warm-start state.

    If time runs out in the latter, the model is the one proven before.
    """
    for step in rounds(engine, problem, state, scans_left):
        state = step.state
        yield step
    if improves_state:
        more = problem.extend_for_warm_start(state) if isinstance(problem, WarmStarts) and problem.done(state) else None
        if more is not None:
            yield from rounds(engine, problem, more)


@contextmanager
def _stop_with_bounds(problem: AnyProblem, interrupted: Callable[[str], None]) -> Iterator[None]:
    """End the rounds at a time limit, with the bounds reached; also at a signal, if a problem has bounds at any time.

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


def _load_or_start(
    problem: AnyProblem,
    engine: Engine,
    clock: float,
    held: Callable[[], frozenset[int]],
    retraining: Retraining | None,
) -> tuple[Any, RunCounters]:
    """The state of the checkpoint, or the first state; an unsolved one if time runs out before."""
    checkpoint, progress = engine.checkpoint, cast("Progress", engine.callbacks)
    resumed = checkpoint.load(lambda arrays: (problem.restore(arrays), RunCounters(**checkpoint.history)))
    if resumed is not None:
        resumed[1].resumed += 1
        checkpoint.history = resumed[1].as_now()
        return resumed
    counters, held_before = RunCounters(), held()
    try:
        with stoppable(engine.check_time):
            state, counters.about = (problem.start(), {}) if retraining is None else retraining.start(problem)
    except OutOfTime:  # nothing to resume from: another run starts in the same way
        return problem.unsolved(), counters
    except BREAKDOWNS:
        return problem.broken(problem.unsolved()), counters
    seconds = time.perf_counter() - clock
    if state.sample_bytes:  # else the stages of the first read bring the first rows
        read = state.sample_bytes if len(held_before) < problem.source.chunks else 0
        cost = ScanCost(problem.source.chunks, 0, read, 0.0, seconds)
        counters.sampled(problem.round_of(state), cost)
        counters.holds(held())
        progress.on_round(counters.rounds[-1])
    checkpoint.scan_begins(state, counters.as_now())  # with max_scans=0, --resume continues from here
    return state, counters


@contextmanager
def _save_checkpoint_on_failure(checkpoint: Checkpoint, out: Location) -> Iterator[None]:
    """If the job fails or is interrupted, save a checkpoint, and say in the error how to resume."""
    try:
        with terminable():
            yield
    except KeyboardInterrupt:
        _try_to_save(checkpoint)
        advice = "continue with the same command and --resume" if checkpoint.exists() else "nothing was proven yet"
        raise Interrupted(f"{out}: interrupted; {advice}") from None
    except (CoremarginError, MemoryError, OSError) as error:
        _try_to_save(checkpoint)
        if checkpoint.exists() and "--resume" not in str(error):
            error.add_note(
                "the work so far is saved: after solving the problem, continue with the same command and --resume"
            )
        raise


def _try_to_save(checkpoint: Checkpoint) -> None:
    """If that fails, the previous checkpoint stays, and the error that ended the job is the one to report."""
    with suppress(OutputError, MachineLimit, MemoryError):
        checkpoint.save()
