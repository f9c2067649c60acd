"""A job as it runs: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from coremargin.learn.train import Progress
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.scan.protocols import BlockResult, Executor

PLAIN_SECONDS = 5.0  #: without a terminal a running scan says something this often


@contextmanager
def live(source: Source, executor: Executor, *, quiet: bool) -> Iterator[Progress]:
    """Progress that is shown on stderr."""
    if quiet:
        yield Progress()
        return
    size = format_size(source.nbytes)
    click.echo(f"{source.name}: {source.rows:,} rows x {source.features:,} features, {size}", err=True)
    click.echo(f"running {executor.description}", err=True)
    if sys.stderr.isatty():
        with _line() as show:
            yield _Meter(show, every=0.1).progress()
    else:
        yield _Meter(lambda text: click.echo(text, err=True), every=PLAIN_SECONDS).progress()


@contextmanager
def _line() -> Iterator[Callable[[str], None]]:
    """One line that is written over."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("solving on the sample") as status:
        yield status.update


class _Meter:
    """Turns blocks and rounds into text."""

    def __init__(self, show: Callable[[str], None], every: float) -> None:
        self._show, self._every = show, every
        self._round, self._total, self._done, self._began, self._said = 0, 0, 0, 0.0, time.monotonic()
        self._bounds = ""

    def progress(self) -> Progress:
        return Progress(on_scan=self.scan, on_block=self.block, on_round=self.round)

    def scan(self, number: int, total: int) -> None:
        self._round, self._total, self._done, self._began = number, total, 0, time.monotonic()

    def block(self, result: BlockResult) -> None:
        self._done += result.bytes_read
        now = time.monotonic()
        if now - self._said < self._every or self._done >= self._total:
            return
        self._said = now
        spent = max(now - self._began, 1e-9)
        left = format_seconds(spent * (self._total - self._done) / self._done)
        self._show(
            f"scan {self._round}: {self._done / self._total:4.0%} of {format_size(self._total)}, "
            f"{format_size(self._done / spent)}/s, {left} left{self._bounds}"
        )

    def round(self, record: dict[str, Any]) -> None:
        lower = "-" if record["lower"] is None else f"{record['lower']:.6g}"
        upper = "-" if record["upper"] is None else f"{record['upper']:.6g}"
        name = "sample" if record["kind"] == "sample" else f"scan {record['round']}"
        self._bounds = f"; bounds {lower} to {upper}"
        skipped = (
            f", {record['chunks_skipped']:,} chunks skipped"
            if record["kind"] == "scan" and record["chunks_skipped"]
            else ""
        )
        click.echo(
            f"{name}: margin proven {lower}, at most {upper}, ratio {record['ratio']:.6f}; "
            f"pool {record['pool_rows']:,} rows (+{record['new_rows']:,}), "
            f"read {format_size(record['bytes_read'])}{skipped}, scan {format_seconds(record['seconds'])}, "
            f"solve {format_seconds(record['solve_seconds'])}",
            err=True,
        )  # fmt: skip
