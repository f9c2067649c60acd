"""The strategies of the hard margin on the same rows, compared by what they prove.

Every strategy runs until its own hyperplane is certified, its own rule ends it, or a limit is reached. A limit in reads
gives the same table on any machine; one in seconds does not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from msgspec import structs

from coremargin.data.view import scan_bytes
from coremargin.engine.checkpoint import NoCheckpoint
from coremargin.engine.loop import OutOfTime
from coremargin.engine.task import block_bytes
from coremargin.errors import BadRow, UsageError
from coremargin.formats.choices import Strategy
from coremargin.formats.location import Location
from coremargin.learn.ellipsoid_scaling import fit_ellipsoid, preliminary_ellipsoid
from coremargin.learn.train import Progress, run_problem, set_default_memory
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.maths.rows import lengths
from coremargin.problems.common.result import STOPPED
from coremargin.problems.hard.comparison import Comparison, Lesson, Point, Run
from coremargin.problems.hard.strategies.iterative import RowBlock
from coremargin.problems.hard.strategies.table import STRATEGIES as STRATEGY_OBJECTS
from coremargin.problems.registry import job_of, problem_of
from coremargin.spec import unknown_word

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.protocols import BlockResult, Executor
    from coremargin.models.single import SingleModel
    from coremargin.problems.hard.hard_margin import HardMargin
    from coremargin.problems.hard.state import Carried
    from coremargin.problems.hard.strategies.iterative import Walk

STRATEGIES: tuple[str, ...] = get_args(Strategy)


def names_of(text: str) -> list[str]:
    """Names of strategies in a list with commas; "all": every one. Raises SpecError for none, or an unknown one."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*STRATEGIES, "all"):
            raise unknown_word("compare", "strategies", name, [*STRATEGIES, "all"])
    return list(dict.fromkeys(each for name in names for each in (STRATEGIES if name == "all" else [name])))


def compare(  # noqa: PLR0913 - rows, executor, and options of jobs; all but two with a default
    source: Source,
    executor: Executor,
    strategies: Sequence[str] = STRATEGIES,
    *,
    epsilon: float = 1e-2,
    intercept: bool = True,
    scaling: str | None = None,
    memory: int | str | None = None,
    reads: float | None = 100.0,
    limit: float | None = 60.0,
    on_run: Callable[[Run], None] = lambda _: None,
) -> Comparison:
    """Run the strategies one after the other.

    Parameters
    ----------
    source : rows with labels of two classes.
    executor : that scans them.
    strategies : names, in the order of the result.
    epsilon : relative gap at which a strategy's own hyperplane counts as proven.
    intercept, scaling, memory : as of ``coremargin.train``. Scaling "ellipsoid" takes a read for all strategies
        together, which counts for none of them.
    reads : most reads of the store by each strategy; None: no limit.
    limit : most seconds of each strategy; None: no limit.
    on_run : called after each strategy.

    Returns
    -------
    Comparison
        A run for each strategy; one that cannot solve these rows has a reason in ``refused``.

    Raises
    ------
    UsageError
        For a limit that is not a finite number above 0, and for no strategies.
    SpecError
        For an unknown strategy.
    DataError
        For rows that no strategy can train on: labels of one class, or of more than two.
    """
    for name, value in (("reads", reads), ("limit", limit)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"compare: {name}: expected a number above 0, or none for no limit, found {value}")
    if not strategies:
        raise UsageError("compare: strategies: expected at least one, found none")
    if unknown := [name for name in strategies if name not in STRATEGIES]:
        raise unknown_word("compare", "strategies", unknown[0], STRATEGIES)
    runs = list[Run]()
    shared = {"epsilon": epsilon, "intercept": intercept, "scaling": scaling, "memory": memory, "time_limit": limit}
    options = {key: value for key, value in shared.items() if value is not None}
    ellipsoid: Mapping[str, Any] | None = None
    for name in strategies:
        job = job_of({"job": "train", "store": "rows", "out": "model", "strategy": name, **options}, where="compare")
        job = structs.replace(set_default_memory(job), store=Location(source.name))
        if job.scaling_takes_read and ellipsoid is None:
            problem_of(job, source, (), preliminary_ellipsoid(job, source))  # raises what is wrong before the read
            ellipsoid = fit_ellipsoid(job, source, executor, deadline=math.inf).arrays
        problem = replace(cast("HardMargin", problem_of(job, source, (), ellipsoid)), to_its_end=True)
        runs.append(_run(job, problem, executor, reads))
        on_run(runs[-1])
    return Comparison(
        store=source.name,
        rows=source.rows,
        features=source.features,
        store_bytes=scan_bytes(source),
        epsilon=epsilon,
        intercept=intercept,
        reads=reads,
        limit=limit,
        runs=runs,
    )


class _OneBlockAtATime:
    """An executor for scans that may end after any block, so that they end after the same one on any machine."""

    workers = 1

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def _run(job: Any, problem: HardMargin, executor: Executor, reads: float | None) -> Run:
    refusal = problem.rule.refusal(problem.source, problem.working_set_bytes)
    if refusal:
        return Run(job.strategy, refusal)
    started, source, read, over = time.perf_counter(), problem.source, 0, False
    size, points = scan_bytes(source), list[Point]()

    def on_scan(*_: object) -> None:
        nonlocal over
        over = reads is not None and read >= reads * size * (1 - 1e-9)
        if over:
            raise OutOfTime

    def on_block(result: BlockResult) -> None:
        nonlocal read
        read += block_bytes(source, result.block)

    def on_round(record: dict[str, Any]) -> None:
        nonlocal read
        if record["kind"] == "sample":  # rows to begin with, which no scan reads
            read += record["bytes_read"]
        seconds = time.perf_counter() - started
        own = record["lower_now"] if problem.rule.iterates or problem.rule.proposes else record["lower"]
        points.append(Point(read / size, seconds, own, record["lower"], record["upper"]))

    progress = Progress(on_scan=on_scan, on_block=on_block, on_round=on_round)
    if problem.eager:
        executor = cast("Executor", _OneBlockAtATime(executor))
    try:
        outcome = run_problem(job, problem, executor, NoCheckpoint(), progress)
    except BadRow as error:
        if not problem.rule.iterates:
            raise
        return Run(job.strategy, str(error))  # a row that this strategy cannot take, such as one of zeros
    run, found = outcome.run, cast("SingleModel", outcome.model).certificate
    own = run.get("own", {})
    return Run(
        strategy=job.strategy,
        status=outcome.model.status,
        ended=_ending(outcome.model.status, run, over=over),
        reads=run["bytes_read"] / size,
        scans=run["scans"],
        seconds=run["seconds"],
        bytes_read=run["bytes_read"],
        rows=run["working_set_rows"],
        coreset_rows=found.coreset_rows,
        updates=own.get("updates"),
        updates_at_most=own.get("updates_at_most"),
        own=max((point.own for point in points if point.own is not None), default=None),
        lower=found.lower,
        upper=found.upper if found.upper is not None and np.isfinite(found.upper) else None,
        points=points,
    )


_ENDED = {STOPPED["converged"]: "its own rule", STOPPED["full"]: "memory is full"}


def _ending(status: str, run: dict[str, Any], *, over: bool) -> str:
    if status in ("certified", "not_separable"):
        return status.replace("_", " ")
    if over:
        return "limit of reads"
    if run["resumable"]:
        return "limit of time"
    return _ENDED.get(run["reason"], "stalled")


def exponential_rows(d: int) -> tuple[np.ndarray, np.ndarray]:
    """d rows of d numbers in {-1, 0, 1} on which the perceptron needs 2^(d-1) updates, and their labels.

    y x is -1 before place i, 1 at place i and 0 after it: a separating w of whole numbers has w_i > w_1 + ... +
    w_{i-1}, hence w_d >= 2^(d-1), and every update raises it by 1 at most (Shalev-Shwartz, Ben-David 2014, chapter 9).
    """
    z = np.where(np.arange(d)[None, :] < np.arange(d)[:, None], -1.0, 0.0) + np.eye(d)
    y = np.where(np.arange(d) % 2 == 0, 1, -1)
    return z * y[:, None], y


def exponential_lesson(dimensions: Sequence[int] = tuple(range(2, 8))) -> Lesson:
    """Updates on ``exponential_rows``, by the number of dimensions."""
    names = ("raw-perceptron", "perceptron", "romma")
    found: dict[str, list[int]] = {name: [] for name in (*names, "fast")}
    for d in dimensions:
        rows, y = exponential_rows(d)
        for name in names:
            found[name].append(_updates(name, rows, y, constant=0.0))
        found["fast"].append(_support(rows, y, intercept=False))
    return Lesson([float(d) for d in dimensions], found, [2 ** (d - 1) for d in dimensions])


def rescaled_lesson(factors: Sequence[float] = (1, 2, 5, 10, 20)) -> Lesson:
    """Updates on 200 rows of two columns, the first of them, which does not separate, times a factor."""
    rng = np.random.default_rng(0)
    plain, y = rng.normal(size=(200, 2)), np.where(np.arange(200) % 2 == 0, 1, -1)
    plain[:, 1] = y * (0.2 + np.abs(plain[:, 1]))
    names = ("perceptron", "raw-perceptron", "romma")
    found: dict[str, list[int]] = {name: [] for name in (*names, "fast")}
    for factor in factors:
        rows = plain * np.array([factor, 1.0])
        for name in names:
            found[name].append(_updates(name, rows, y, constant=float(lengths(rows).max())))
        found["fast"].append(_support(rows, y, intercept=True))
    return Lesson([float(factor) for factor in factors], found)


def _updates(name: str, rows: np.ndarray, y: np.ndarray, *, constant: float) -> int:
    """Updates of a walk over rows in memory until a pass makes none."""
    rule, d = cast("Walk", STRATEGY_OBJECTS[cast("Any", name)]), rows.shape[1]
    numbers = {"last": 0.0, "late_last": 0.0, "constant": constant, "least": 0.0, "updates": 0, "seen": 0}
    carried: Carried = {"w": np.zeros(d), "late": np.zeros(d)} | {key: np.array(one) for key, one in numbers.items()}
    block = RowBlock(rows, y.astype(np.int8), np.arange(len(y)), "rows")
    while True:
        carried, touched = rule.walk(block, carried)
        if not len(touched):
            return int(carried["updates"])


def _support(rows: np.ndarray, y: np.ndarray, *, intercept: bool) -> int:
    """Rows that carry the largest margin."""
    return int(np.count_nonzero(solve_hard_margin(rows, y, intercept=intercept).weights > 0))
