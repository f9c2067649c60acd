"""(d) Memory and time against the store's size, under the embedded cluster; (e) one worker against two."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

from measure import Sample, Task, evict, interleaved, median, paired_ratio, timed
from pure_pass import one_pass
from table import Group, Row
from training import model_of, pass_process, timing, train_process, train_with, trained_row

from coremargin.data.owned import STORE
from coremargin.data.store import Store
from coremargin.engine.clusters.connect import connect
from coremargin.engine.clusters.specs import Embedded
from coremargin.models.files import MODEL
from coremargin.spec import format_size

if TYPE_CHECKING:
    from pathlib import Path

    from stores import Settings

    from coremargin.data.source import Source
    from coremargin.engine.protocols import Executor

EMBEDDED = ("--cluster", "embedded")
SHAPES = ((1, 1), (1, 2), (2, 1))  #: worker processes, threads of each


def sizes(settings: Settings) -> list[Group]:
    """A store of each size is made, measured and removed."""
    group = Group("d", "memory and time against size, whole processes, --cluster embedded, page cache cold")
    for gigabytes in settings.sizes:
        if not settings.room_for(gigabytes):
            group.notes.append(f"{gigabytes:g} GB: skipped, no room in {settings.work}")
            continue
        store = settings.sized(gigabytes)
        try:
            group.rows += _one_size(gigabytes, settings)
        finally:
            if gigabytes != settings.workers_gb:
                STORE.remove(store)
                MODEL.remove(model_of(store))
    group.notes.append(
        "peak memory: driver and workers as the job counts them (high-water marks, mapped pages included); "
        "note: seconds of the last run without start-up and where they went; memory of all processes from outside"
    )
    return [group]


def _one_size(gigabytes: float, settings: Settings) -> list[Row]:
    store = settings.sized(gigabytes)
    repetitions = settings.repetitions if gigabytes <= 1 else 3 if gigabytes <= 4 else 1
    pass_process(store, *EMBEDDED)  # not counted: what the host of a virtual machine caches, it has cached for all runs
    samples = interleaved(
        {
            "pass": lambda: pass_process(store, *EMBEDDED, watch=True),
            "train": lambda: train_process(store, *EMBEDDED, epsilon=settings.epsilon, watch=True),
        },
        repetitions,
        warm_up=False,
        before=lambda: evict(store),
    )
    passes, trains = samples["pass"], samples["train"]
    peaks = {key: max(sample.answer["peak_rss_bytes"] for sample in found) for key, found in samples.items()}
    read = f"{sum(passes[-1].answer['seconds']):.1f} s"
    went = _within(store, trains[-1].answer["seconds"])
    ratio = paired_ratio(trains, passes)
    name = f"{gigabytes:g} GB"
    return [
        Row(
            f"{name}: pure pass", **timing(passes), ratio=1.0, read=1.0, memory=peaks["pass"],
            note=_outside(passes, read),
        ),
        trained_row(f"{name}: train", trains, ratio=ratio, memory=peaks["train"], note=_outside(trains, went)),
    ]  # fmt: skip


def _outside(samples: list[Sample], within: str) -> str:
    outside = max(sample.tree_bytes for sample in samples)
    return f"{within}; {format_size(outside)} from outside"


def _within(store: Path, seconds: float) -> str:
    """Where the seconds of the last training of a store went, by its rounds."""
    lines = (model_of(store) / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    first, *rounds = map(json.loads, lines)
    scans, solves = (sum(entry[key] for entry in rounds) for key in ("seconds", "solve_seconds"))
    return f"{seconds:.1f} s: sample {first['solve_seconds']:.1f}, scans {scans:.1f}, solves {solves:.1f}"


def workers(settings: Settings) -> list[Group]:
    """Clusters of each shape at the same time, measured in turn."""
    store = settings.sized(settings.workers_gb)
    source = Store.open(store)
    group = Group("e", f"workers, {format_size(source.nbytes)} x embedded cluster, page cache warm, cluster running")
    with ExitStack() as stack:
        clusters = {
            shape: stack.enter_context(connect(Embedded(workers=shape[0], threads=shape[1]))) for shape in SHAPES
        }
        passes = interleaved({_name(s): _pass(source, e) for s, e in clusters.items()}, settings.repetitions)
        trains = interleaved({_name(s): _train(store, e, settings) for s, e in clusters.items()}, settings.repetitions)
    first = _name(SHAPES[0])
    for name, samples in passes.items():
        rate = source.nbytes / median(samples) / 1e9
        group.rows.append(
            Row(
                f"pure pass, {name}",
                **timing(samples),
                ratio=paired_ratio(samples, passes[first]),
                note=f"{rate:.1f} GB/s",
            )
        )
    for name, samples in trains.items():
        group.rows.append(trained_row(f"train, {name}", samples, ratio=paired_ratio(samples, trains[first])))
    equal = len({(s[-1].answer["lower"], s[-1].answer["upper"]) for s in trains.values()}) == 1
    group.notes.append(
        f"wall ratios against one worker of one thread; bounds of all shapes "
        f"{'equal to the bit' if equal else 'DIFFER'}; memory maps are kept from run to run up to 512 MiB a process"
    )
    return [group]


def _name(shape: tuple[int, int]) -> str:
    count, threads = shape
    return f"{count} worker{'s' if count > 1 else ''} x {threads} thread{'s' if threads > 1 else ''}"


def _pass(source: Source, executor: Executor) -> Task:
    return lambda: timed(lambda: vars(one_pass(source, executor)))


def _train(store: Path, executor: Executor, settings: Settings) -> Task:
    return lambda: timed(lambda: train_with(Store.open(store), executor, store, epsilon=settings.epsilon))
