"""(h) Searches that are long: what a second thread, or a second worker process, brings; all to the same bits."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Sample, Task, interleaved, paired_ratio, timed
from outlier_rows import rows_with_outliers
from table import Group, Row
from training import model_of, timing, train_with

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.clusters.connect import connect
from coremargin.engine.clusters.specs import Embedded
from coremargin.engine.executors import InProcess
from coremargin.models.model import Model
from coremargin.problems.outliers.outlier_table import outlier_table

if TYPE_CHECKING:
    from stores import Settings

    from coremargin.engine.protocols import Executor

#: Numbers of outliers that may be left out of 4,000 x 8 with 12 wrong labels at a margin of 0.1.
LONG = (26, 32)


def search_by_workers(settings: Settings, limit_s: float, *, quick: bool) -> Group:
    """The same searches by one thread and two, one worker process and two, in turn; clusters run already."""
    group = Group("h", "long searches: 4,000 x 8, 12 wrong labels at margin 0.1, kernels compiled, clusters running")
    x, y = rows_with_outliers(*((300, 3, 4) if quick else (4000, 8, 12)), "flipped", margin=0.1)
    store = settings.work / "long.zarr"
    with StoreWriter.create(store, features=x.shape[1], dtype="float32", overwrite=True) as writer:
        writer.write(x, y)
    with ExitStack() as stack:
        executors: dict[str, Executor] = {"1 thread": InProcess(1), "2 threads": InProcess(2)}
        for count in (1, 2):
            name = f"{count} worker process{'es' if count > 1 else ''}"
            executors[name] = stack.enter_context(connect(Embedded(workers=count, threads=1)))
        for k in (6,) if quick else LONG:
            tasks = {name: _task(store, executor, k, limit_s) for name, executor in executors.items()}
            samples = interleaved(tasks, 1 if quick else 3)
            group.rows += [_row(name, k, samples, store) for name in tasks]
            equal = len({(s[-1].answer["lower"], s[-1].answer["upper"]) for s in samples.values()}) == 1
            group.notes.append(f"k = {k}: bounds of all {'equal to the bit' if equal else 'DIFFER'}")
    group.notes.append("ratios against one thread, and of worker processes against one of them")
    return group


def _task(store: Path, executor: Executor, k: int, limit_s: float) -> Task:
    options: dict[str, Any] = {"outliers": k, "time_limit": limit_s}
    return lambda: timed(lambda: train_with(Store.open(store), executor, store, **options))


def _row(name: str, k: int, samples: dict[str, list[Sample]], store: Path) -> Row:
    mine, one = samples[name], samples["1 thread" if "thread" in name else "1 worker process"]
    step = outlier_table(Model.load(model_of(store))).steps[-1]
    note = f"{mine[-1].answer['status']}, {step.nodes:,} nodes"
    return Row(f"k {k}, {name}", **timing(mine), ratio=paired_ratio(mine, one), note=note)
