"""(b) The fast strategy against the paper's (one example a scan) and any-violator (Corollary 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from against_pass import threads
from measure import Sample, interleaved, paired_ratio
from peers import margin_of
from table import Group, Row
from training import model_of, train_here, trained_row

from coremargin.data.store import Store
from coremargin.models.model import Model
from coremargin.spec import format_size

if TYPE_CHECKING:
    from pathlib import Path

    from stores import Settings

NAMES = {"fast": "fast", "paper": "paper: Figure 1, one example a scan", "any-violator": "any-violator: Corollary 3.2"}


def strategies(settings: Settings) -> Iterator[Group]:
    """A small store where all end, and the large one, where the references meet their limits."""
    small = settings.synthetic(settings.small_rows, settings.small_features, "small")
    yield _compare(small, settings, 3)
    yield _compare(settings.million(), settings, 1)


def _compare(store: Path, settings: Settings, repetitions: int) -> Group:
    source = Store.open(store)
    group = Group(
        "b", f"strategies, {source.rows:,} x {source.features} float32, {format_size(source.nbytes)}, in process, warm"
    )
    limits = {"max_scans": settings.max_scans, "time_limit": f"{settings.strategy_s} s"}

    def task(strategy: str) -> Any:
        options: dict[str, Any] = {} if strategy == "fast" else limits
        return lambda: _judged(
            store, train_here(store, threads(), epsilon=settings.epsilon, strategy=strategy, **options)
        )

    samples = interleaved({name: task(name) for name in NAMES}, repetitions, warm_up=repetitions > 1)
    bound = samples["fast"][-1].answer["upper"]
    group.rows = [_row(name, samples[name], samples["fast"], bound) for name in NAMES]
    group.notes.append(
        f"epsilon {settings.epsilon:g}; the references stop after {settings.max_scans:,} scans or "
        f"{settings.strategy_s:g} s; margin/bound: margin of the best or last hypothesis over all rows, with the best "
        f"offset, against the upper bound that fast proved"
    )
    return group


def _judged(store: Path, sample: Sample) -> Sample:
    """With the margin that its hypothesis reaches over all rows, proven by it or not; not counted in its time."""
    return replace(
        sample, answer={**sample.answer, "reached": margin_of(Model.load(model_of(store)).w, Store.open(store))}
    )


def _row(name: str, samples: list[Sample], fast: list[Sample], bound: float) -> Row:
    answer = samples[-1].answer
    reached = answer["reached"] / bound if bound else None
    note = "" if answer["status"] == "certified" else f"stopped, proved a ratio of {answer['ratio'] or 0:.4f}"
    return trained_row(NAMES[name], samples, ratio=paired_ratio(samples, fast), margin=reached, note=note)
