"""Everything that commands print: lines, tables, JSON, errors, log records. Nothing else writes to a terminal.

What comes out of files (labels, paths, records, names, messages that quote them) may hold anything: escape sequences
that repaint a terminal, line breaks that forge a verdict, characters that turn text around, halves of characters,
megabytes. So what is printed is a list of lines, and here every character of a line that is not printable is spelled
out (``\\x1b``), a line break too, and what is endless is cut. JSON is ASCII, which says the same in its own way.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from coremargin.formats.strict_json import cut
from coremargin.report.numbers import visible

if TYPE_CHECKING:
    from rich.text import Text

LONGEST_LINE = 20_000  #: characters of a line; a table of a thousand classes has some ten thousand


def print_lines(*lines: str, err: bool = False) -> None:
    """Print lines, whatever is in them; the encoding of the terminal need not have their characters."""
    _echo("\n".join(cut(visible(line), LONGEST_LINE) for line in lines), err=err)


def print_error(message: str, *notes: str) -> None:
    """``error: message`` on stderr, bold red on a terminal; further lines of the message are indented."""
    text = "\n  ".join(cut(visible(line), LONGEST_LINE) for line in message.split("\n"))
    _echo(f"{click.style('error:', fg='red', bold=True)} {text}", err=True)
    for note in notes:
        print_lines(note, err=True)


def print_json(value: Any) -> None:
    """Print one JSON object; what is not finite is null."""
    from coremargin.models.record import plain

    _echo(json.dumps(plain(value), allow_nan=False))


def print_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The traceback of what nobody foresaw, for ``sys.excepthook``."""
    print_lines(*"".join(traceback.format_exception(kind, error, trace)).rstrip().split("\n"), err=True)


def screen_width() -> int:
    """Characters of a line of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns


def _echo(text: str, *, err: bool = False) -> None:
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    # by its name: click would find the terminal behind a live display, which puts lines above what it writes over
    file = sys.stderr if err else None
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), file=file)


def rich_text(line: str) -> Text:
    """A line for a live display: no markup is looked for in it."""
    from rich.text import Text

    return Text(cut(visible(line), LONGEST_LINE))


class Records(logging.Handler):
    """Puts log records on stderr like everything else, wherever that leads when they come."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record; as of every handler, what goes wrong here is no error of who logs."""
        try:
            print_lines(*self.format(record).split("\n"), err=True)
        except Exception:  # noqa: BLE001 - the contract of logging handlers
            self.handleError(record)


class Formatter(logging.Formatter):
    """Log records, line by line as ``print_lines`` prints them."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record, a traceback too."""
        return "\n".join(cut(visible(line), LONGEST_LINE) for line in super().format(record).split("\n"))
