"""Progress of a training: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from coremargin.cli.common import PLAIN_SECONDS, compiler_announced
from coremargin.cli.printing import print_lines, rich_text
from coremargin.data.view import scan_bytes
from coremargin.formats.run_record import step_name
from coremargin.learn.train import Progress
from coremargin.maths.margin import ratio
from coremargin.report.numbers import plain_bounds
from coremargin.report.text import WORKING_SET
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.memory_need import MemoryNeed
    from coremargin.engine.problem import NextScan
    from coremargin.engine.protocols import BlockResult, Executor
    from coremargin.problems.registry import AnyKind


@contextmanager
def show_progress(source: Source, executor: Executor, kind: AnyKind, *, quiet: bool) -> Iterator[Progress]:
    """Callbacks that show progress on stderr."""
    if quiet:
        yield Progress()
        return
    size = format_size(scan_bytes(source))
    print_lines(f"{source.name}: {source.rows:,} rows x {source.features:,} features, {size}", err=True)
    print_lines(f"running {executor.description}", f"working set: {WORKING_SET}", err=True)
    with compiler_announced(quiet=quiet):
        if sys.stderr.isatty():
            with live_line() as show:
                yield Meter(show, 0.1, kind).progress()
        else:
            yield Meter(lambda text: print_lines(text, err=True), PLAIN_SECONDS, kind).progress()


@contextmanager
def live_line() -> Iterator[Callable[[str], None]]:
    """A line of a terminal that is updated, below everything else that is printed."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("solving on the sample") as status:
        yield lambda text: status.update(rich_text(text))


class Meter:
    """Formats progress; the kind of problem adds its own messages."""

    def __init__(self, show: Callable[[str], None], every: float, kind: AnyKind) -> None:
        self._show, self._every, self._kind = show, every, kind
        self._name, self._total, self._done, self._began, self._last_line_at = "", 0, 0, 0.0, time.monotonic()
        self._known, self._news, self._want = "", "", cast("MemoryNeed | None", None)

    def progress(self) -> Progress:
        """The callbacks."""
        return Progress(
            on_scan=self.scan,
            on_block=self.block,
            on_round=self.round,
            on_work=self.work,
            on_memory_need=self.memory_need,
            on_note=self.note,
        )

    def note(self, message: str) -> None:
        """Print a message before the run."""
        if message:
            print_lines(message, err=True)

    def memory_need(self, want: MemoryNeed | None) -> None:
        """Report if the rows have less memory than useful."""
        self._want = want
        if want is not None and want.short:
            print_lines(f"memory: {want.holds}; {want.less}", err=True)

    def scan(self, which: NextScan, total: int) -> None:
        """A scan, a stage or its next part begins and will read ``total`` bytes."""
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
            if self._every < 1:  # live line; elsewhere the line of the round follows soon
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
        """New figures between scans."""
        now = time.monotonic()
        self._print_notice(figures)
        if now - self._last_line_at >= self._every:
            self._last_line_at = now
            proven = {key: figures[key] if math.isfinite(figures[key]) else None for key in ("lower", "upper")}
            known = {**figures, **proven, "ratio": ratio(figures["lower"], figures["upper"])}
            self._show(self._kind.describe_work(self._bounds(known), known))

    def round(self, record: dict[str, Any]) -> None:
        """A scan, a stage or the sample is finished."""
        bounds, working_set = self._bounds(record), f"working set {record['working_set_rows']:,} rows"
        self._known = f"; {bounds}; {working_set}" if bounds else ""
        found = f"{bounds}; {working_set} (+{record['new_rows']:,}); " if bounds else ""
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
        self._print_notice(record)

    def _print_notice(self, record: Mapping[str, Any]) -> None:
        """Print the notice of the kind, if it is new."""
        news = self._kind.notice(record)
        if news and news != self._news:
            print_lines(news, err=True)
        self._news = news

    def _bounds(self, record: dict[str, Any]) -> str:
        """Bounds so far, with the ratio rounded down; "" if there are none."""
        if record["lower"] is None and record["upper"] is None:
            return ""
        lower, upper = (text or "?" for text in plain_bounds(record["lower"], record["upper"]))
        proven = None not in (record["lower"], record["upper"], record["ratio"])
        ratio = f" ({self._kind.ratio_name} {math.floor(record['ratio'] * 1e6) / 1e6:.6f})" if proven else ""
        return self._kind.describe_bounds(f"bounds {lower} to {upper}{ratio}", record)
