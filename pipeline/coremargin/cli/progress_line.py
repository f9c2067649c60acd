"""A job as it runs: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from coremargin.cli.common import PLAIN_SECONDS, compiler_announced
from coremargin.cli.printing import print_lines, rich_text
from coremargin.formats.run_record import step_name
from coremargin.learn.train import Progress
from coremargin.maths.margin import ratio
from coremargin.report.numbers import plain_bounds
from coremargin.report.words import POOL
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.problem import NextScan
    from coremargin.engine.protocols import BlockResult, Executor
    from coremargin.problems.registry import AnyKind


@contextmanager
def live(source: Source, executor: Executor, kind: AnyKind, *, quiet: bool) -> Iterator[Progress]:
    """Progress that is shown on stderr."""
    if quiet:
        yield Progress()
        return
    size = format_size(source.nbytes)
    print_lines(f"{source.name}: {source.rows:,} rows x {source.features:,} features, {size}", err=True)
    print_lines(f"running {executor.description}", f"pool: {POOL}", err=True)
    with compiler_announced(quiet=quiet):
        if sys.stderr.isatty():
            with line_written_over() as show:
                yield Meter(show, 0.1, kind).progress()
        else:
            yield Meter(lambda text: print_lines(text, err=True), PLAIN_SECONDS, kind).progress()


@contextmanager
def line_written_over() -> Iterator[Callable[[str], None]]:
    """One line of a terminal that is written over, below all that is printed meanwhile."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("solving on the sample") as status:
        yield lambda text: status.update(rich_text(text))


class Meter:
    """Turns blocks and rounds into text; what only a kind of problem tells is in the kind's words."""

    def __init__(self, show: Callable[[str], None], every: float, kind: AnyKind) -> None:
        self._show, self._every, self._kind = show, every, kind
        self._name, self._total, self._done, self._began, self._last_line_at = "", 0, 0, 0.0, time.monotonic()
        self._known, self._news, self._want = "", "", cast("MemoryNeed | None", None)

    def progress(self) -> Progress:
        """What is called as the job goes on."""
        return Progress(
            on_scan=self.scan,
            on_block=self.block,
            on_round=self.round,
            on_work=self.work,
            on_memory_need=self.memory_need,
            on_note=self.note,
        )

    def note(self, told: str) -> None:
        """What is worth a line before a run begins."""
        if told:
            print_lines(told, err=True)

    def memory_need(self, want: MemoryNeed | None) -> None:
        """What memory the rows would like; a word where they have less."""
        self._want = want
        if want is not None and want.short:
            print_lines(f"memory: {want.holds}; {want.less}", err=True)

    def scan(self, which: NextScan, total: int) -> None:
        """A scan begins, a stage, or its next part, which will read so many bytes."""
        name = f"scan {which.number}" if which.stage is None else f"stage {which.stage} of {which.stages}"
        if name == self._name:  # its next part
            self._total += total
            return
        self._name, self._total, self._done, self._began = name, total, 0, time.monotonic()

    def block(self, result: BlockResult) -> None:
        """A block was read."""
        self._done += result.bytes_read
        now = time.monotonic()
        if self._done >= self._total:
            if self._every < 1:  # a line that is written over; elsewhere the round's own line follows soon
                self._show(f"{self._name}: all read, solving{self._known}")
            return
        if now - self._last_line_at < self._every:
            return
        self._last_line_at = now
        spent = max(now - self._began, 1e-9)
        left = format_seconds(spent * (self._total - self._done) / self._done)
        self._show(
            f"{self._name}: {self._done / self._total:4.0%} of {format_size(self._total)}, "
            f"{format_size(self._done / spent)}/s, {left} left{self._known}"
        )

    def work(self, figures: dict[str, Any]) -> None:
        """Something became known between scans."""
        now = time.monotonic()
        self._say(figures)
        if now - self._last_line_at >= self._every:
            self._last_line_at = now
            proven = {key: figures[key] if math.isfinite(figures[key]) else None for key in ("lower", "upper")}
            known = {**figures, **proven, "ratio": ratio(figures["lower"], figures["upper"])}
            self._show(self._kind.describe_work(self._bounds(known), known))

    def round(self, record: dict[str, Any]) -> None:
        """A scan or a stage is finished, or the sample is solved."""
        bounds, pool = self._bounds(record), f"pool {record['pool_rows']:,} rows"
        self._known = f"; {bounds}; {pool}" if bounds else ""
        found = f"{bounds}; {pool} (+{record['new_rows']:,}); " if bounds else ""
        skipped = f", {record['chunks_skipped']:,} chunks skipped" if record["kind"] == "scan" else ""
        spent = "" if record["kind"] == "sample" else f" in {format_seconds(record['seconds'])}"
        scans, status = record["round"], record["status"]
        short = self._want and scans > 1 and self._want.shortage(scans=scans, status=status)
        if short:
            self._known += f"; {short}"
        print_lines(
            f"{step_name(record)}: {found}read {format_size(record['bytes_read'])}{spent}"
            f"{skipped if record['chunks_skipped'] else ''}, solved in {format_seconds(record['solve_seconds'])}",
            err=True,
        )
        self._say(record)

    def _say(self, record: Mapping[str, Any]) -> None:
        """What is new, in a line that stays."""
        news = self._kind.notice(record)
        if news and news != self._news:
            print_lines(news, err=True)
        self._news = news

    def _bounds(self, record: dict[str, Any]) -> str:
        """What is proven so far, the ratio never rounded up; nothing where the sample proves nothing."""
        if record["lower"] is None and record["upper"] is None:
            return ""
        lower, upper = (text or "?" for text in plain_bounds(record["lower"], record["upper"]))
        proven = None not in (record["lower"], record["upper"], record["ratio"])
        ratio = f" (ratio {math.floor(record['ratio'] * 1e6) / 1e6:.6f})" if proven else ""
        return self._kind.describe_bounds(f"bounds {lower} to {upper}{ratio}", record)
