"""Training: from a source to a saved, certified model."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from coremargin.errors import CoremarginError, Interrupted, UsageError
from coremargin.learn.checkpoint import Checkpoint, NoCheckpoint
from coremargin.learn.loop import Engine, ScanCost, Watch, nothing, rounds
from coremargin.learn.outcome import Outcome, as_model, as_run, round_record
from coremargin.problems.hard_margin import HardMargin
from coremargin.scan.plan import plan_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.source import Source
    from coremargin.learn.job import TrainJob
    from coremargin.scan.protocols import Executor


Begin = Literal["new", "resume", "restart"]


@dataclass
class Progress(Watch):
    """Who wants to know: also called after each round with its record."""

    on_round: Callable[[dict[str, Any]], None] = nothing


@dataclass
class Meters:
    """What a job has cost so far; goes into checkpoints, so that a resumed job counts all of it."""

    seconds: float = 0.0
    scans: int = 0
    bytes_read: int = 0
    resumed: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


def problem_of(job: TrainJob, source: Source) -> HardMargin:
    """The problem that a job describes. Raises LabelError and StoreError before anything is read."""
    problem = HardMargin(
        source, job.epsilon, intercept=job.intercept, strategy=job.strategy, pool_bytes=job.memory,
        sample_share=job.sample, blocks=len(plan_blocks(source, job.block)),
    )  # fmt: skip
    problem.codes  # noqa: B018  refuses what cannot be trained, now
    return problem


def train_job(
    job: TrainJob,
    source: Source,
    executor: Executor,
    *,
    begin: Begin = "new",
    overwrite: bool = False,
    report: Callable[[Path], object] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run the job and save the model at ``job.out``.

    begin: "resume" goes on from a checkpoint if there is one, "restart" throws it away, "new" refuses it.
    Raises Busy, CheckpointError, UsageError (a checkpoint is there), Interrupted (Ctrl-C, SIGTERM: resumable).
    """
    identity = {"problem": "hard_margin", "store": source.digest, "rows": source.rows, **job.identity()}
    problem = problem_of(job, source)
    with Checkpoint(job.out, identity) as checkpoint:
        if begin == "restart":
            checkpoint.discard()
        elif checkpoint.exists() and begin == "new":
            raise UsageError(
                f"{job.out}: an interrupted run left a checkpoint; go on with --resume, or start again with --restart"
            )
        outcome = run_problem(job, problem, executor, checkpoint, progress or Progress())
        model = outcome.model
        model.save(job.out, outcome.run, outcome.rounds, report=report, overwrite=overwrite)
        checkpoint.discard()
    return outcome


def run_problem(
    job: TrainJob, problem: HardMargin, executor: Executor, checkpoint: Checkpoint, progress: Progress
) -> Outcome:
    """The rounds of a job, with limits, checkpoints and meters."""
    clock = time.perf_counter()
    engine = Engine(problem.source, executor, checkpoint, progress, job.block)
    with _interruptible(checkpoint, job.out):
        state, meters = _begin(problem, checkpoint, progress, clock)
        before = meters.seconds
        for state, cost in rounds(engine, problem, state):  # noqa: B020  the loop's state is the one to go on with
            _count(meters, state, cost, progress)
            meters.seconds = before + time.perf_counter() - clock
            checkpoint.history = vars(meters)
            if not problem.done(state) and _limit_reached(job, meters):
                break
    run = as_run(job, problem, state, meters, executor)
    return Outcome(as_model(job, problem, state), run, meters.rounds)


def _begin(problem: HardMargin, checkpoint: Checkpoint, progress: Progress, clock: float) -> tuple[Any, Meters]:
    """The state to start from: a checkpoint's, or that of the sample."""
    arrays = checkpoint.load()
    if arrays is not None:
        meters = Meters(**checkpoint.history)
        meters.resumed += 1
        return problem.restore(arrays), meters
    meters = Meters()
    state = problem.start()
    seconds = time.perf_counter() - clock
    cost = ScanCost(problem.source.chunks, 0, state.sample_bytes, 0.0, seconds)
    meters.bytes_read += cost.bytes_read
    meters.rounds.append(round_record("sample", state, cost))
    progress.on_round(meters.rounds[-1])
    checkpoint.history = vars(meters)
    return state, meters


def _count(meters: Meters, state: Any, cost: ScanCost, progress: Progress) -> None:
    meters.scans += 1
    meters.bytes_read += cost.bytes_read
    meters.rounds.append(round_record("scan", state, cost))
    progress.on_round(meters.rounds[-1])


def _limit_reached(job: TrainJob, meters: Meters) -> bool:
    over_scans = job.max_scans is not None and meters.scans >= job.max_scans
    return over_scans or (job.time_limit is not None and meters.seconds >= job.time_limit)


@contextmanager
def _interruptible(checkpoint: Checkpoint, out: Path) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the job with a checkpoint and a word on how to go on."""
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _raise_interrupt) if in_main else None
    try:
        yield
    except (KeyboardInterrupt, CoremarginError) as error:
        checkpoint.save()
        if isinstance(error, KeyboardInterrupt):
            hint = " go on with the same command and --resume" if checkpoint.exists() else " nothing was proven yet"
            raise Interrupted(f"{out}: interrupted;{hint}") from None
        raise
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)


def _raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def no_checkpoint() -> Checkpoint:
    """For models that stay in memory."""
    return NoCheckpoint()
