"""(a) Training against one pure pass over the same store, in this process and as whole processes, warm and cold."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import training
from measure import Sample, evict, interleaved, median, paired_ratio, stopwatch, timed
from pure_pass import one_pass
from table import Group, Row
from training import model_of, pass_here, pass_process, timing, train_here, train_process, trained_row

from coremargin.data.store import Store
from coremargin.engine import checkpoint
from coremargin.engine.executors import InProcess
from coremargin.models import model
from coremargin.problems.hard import hard_margin
from coremargin.spec import format_size
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from pathlib import Path

    from stores import Settings

WATCHED: dict[str, tuple[Any, str]] = {
    "solve": (hard_margin, "solve_hard_margin"),
    "update": (hard_margin.HardMargin, "update"),
    "enter": (checkpoint.Checkpoint, "__enter__"),
    "known": (checkpoint.Checkpoint, "known"),
    "block": (checkpoint.Checkpoint, "block_done"),
    "begins": (checkpoint.Checkpoint, "scan_begins"),
    "discard": (checkpoint.Checkpoint, "discard"),
    "save": (model.Model, "save"),
    "report": (training, "write_report"),
}


def threads() -> int:
    """Threads of all runs in this process: one per core."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def against_pass(settings: Settings) -> Iterator[Group]:
    """The groups of part (a)."""
    store = settings.million()
    size = f"{settings.rows:,} x {settings.features} float32, {format_size(Store.open(store).nbytes)}"
    spent: list[tuple[Sample, Mapping[str, list[float]]]] = []

    def watched() -> Sample:
        with stopwatch(WATCHED) as calls:
            sample = train_here(store, threads(), epsilon=settings.epsilon)
        spent.append((sample, calls))
        return sample

    warm = Group("a", f"train against one pure pass, {size}, page cache warm")
    samples = interleaved(
        {
            "pass": lambda: pass_here(store, threads()),
            "train": watched,
            "pass process": lambda: pass_process(store),
            "train process": lambda: train_process(store, epsilon=settings.epsilon),
        },
        settings.repetitions,
    )
    warm.rows = _rows(samples) + _others(store, samples["pass"], settings)
    warm.notes.append(
        f"in process: {threads()} threads for both, store opened again in each run (maps made, checksums verified); "
        f"median of {settings.repetitions} interleaved repetitions (least-most), one more before them as warm-up"
    )
    yield warm
    yield _cold(store, size, settings)
    yield _breakdown(spent[1:], samples["train process"])


def _rows(samples: Mapping[str, list[Sample]]) -> list[Row]:
    return [
        Row("pure pass, in process", **timing(samples["pass"]), ratio=1.0, read=1.0),
        trained_row("train, in process", samples["train"], ratio=paired_ratio(samples["train"], samples["pass"])),
        Row("pure pass, whole process", **timing(samples["pass process"]), ratio=1.0, read=1.0),
        trained_row(
            "train, whole process", samples["train process"],
            ratio=paired_ratio(samples["train process"], samples["pass process"]),
        ),
    ]  # fmt: skip


def _others(store: Path, reference: list[Sample], settings: Settings) -> list[Row]:
    """A pass over maps that are already there, and ``verify``: what one may also want to know."""
    source, executor = Store.open(store), InProcess(threads())
    again = [timed(lambda: vars(one_pass(source, executor))) for _ in range(settings.repetitions + 1)][1:]
    checked = [timed(lambda: examine(model_of(store), store, threads=threads()).to_dict()) for _ in range(3)]
    ok = all(sample.answer["ok"] for sample in checked)
    return [
        Row("pure pass, maps kept open", **timing(again), ratio=paired_ratio(again, reference), read=1.0),
        Row(
            "verify, in process (reader of its own)", **timing(checked), ratio=median(checked) / median(reference),
            read=1.0, note="all claims hold" if ok else "CLAIMS REFUTED",
        ),
    ]  # fmt: skip


def _cold(store: Path, size: str, settings: Settings) -> Group:
    group = Group("a", f"train against one pure pass, {size}, page cache cold")
    stayed: list[float] = []
    samples = interleaved(
        {
            "pass": lambda: pass_here(store, threads()),
            "train": lambda: train_here(store, threads(), epsilon=settings.epsilon),
            "pass process": lambda: pass_process(store),
            "train process": lambda: train_process(store, epsilon=settings.epsilon),
        },
        settings.repetitions,
        warm_up=False,
        before=lambda: stayed.append(evict(store)),
    )
    group.rows = _rows(samples)
    group.notes.append(
        f"every file of the store dropped from the page cache before each run (posix_fadvise; at most "
        f"{max(stayed):.1%} of its pages stayed, says mincore); what train reads again it finds in the cache, "
        f"as it does a store smaller than memory"
    )
    return group


def _breakdown(spent: list[tuple[Sample, Mapping[str, list[float]]]], processes: list[Sample]) -> Group:
    """Where the time of train goes: medians over the runs in process."""
    parts: dict[str, list[float]] = {}
    for sample, calls in spent:
        for name, seconds in _parts(sample, calls).items():
            parts.setdefault(name, []).append(seconds)
    total = statistics.median(sample.seconds for sample, _ in spent)
    outside = median(processes) - total
    group = Group("a", f"where the {total:.2f} s of train in process go, and what a process adds (warm)")
    for name, values in parts.items():
        middle = statistics.median(values)
        group.rows.append(Row(name, middle, min(values), max(values), note=f"{middle / total:.0%}"))
    group.rows.append(
        Row("Python, imports, exit: whole process less the above", outside, note=f"{outside / total:.0%}")
    )
    return group


def _parts(sample: Sample, calls: Mapping[str, list[float]]) -> dict[str, float]:
    total = {name: sum(seconds) for name, seconds in calls.items()}
    scans = sum(entry["seconds"] for entry in sample.answer["rounds"])
    remembering = sum(total[name] for name in ("enter", "known", "block", "begins", "discard"))
    parts = {
        f"reading, stages and scans ({len(sample.answer['rounds'])})": scans,
        "between them: exact solves": total["solve"],
        "between them: bounds, working set": total["update"] - total["solve"],
        "checkpoint and lock": remembering,
        "report": total["report"],
        "model files (fsync)": total["save"] - total["report"],
    }
    # the bookkeeping of blocks happens within the scans
    within = total["known"] + total["block"] + total["begins"]
    return parts | {"the rest": sample.seconds - sum(parts.values()) + within}
