"""All output of commands: lines, tables, JSON, errors, log records. Nothing else writes to a terminal.

Text from files (labels, paths, names, messages that quote them) may contain escape sequences, line breaks that forge a
verdict, bidirectional controls, invalid surrogates, or megabytes. So output is a list of lines; characters that are not
printable, line breaks included, are escaped (``\\x1b``), and long lines are cut. JSON is ASCII with its own escapes.
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
    """Print lines, escaping what is not printable or not in the encoding of the terminal."""
    _echo("\n".join(cut(visible(line), LONGEST_LINE) for line in lines), err=err)


def print_error(message: str, *notes: str) -> None:
    """``error: message`` on stderr, bold red on a terminal; further lines of the message are indented."""
    text = "\n  ".join(cut(visible(line), LONGEST_LINE) for line in message.split("\n"))
    _echo(f"{click.style('error:', fg='red', bold=True)} {text}", err=True)
    for note in notes:
        print_lines(note, err=True)


def print_json(value: Any) -> None:
    """Print one JSON object; non-finite numbers become null."""
    from coremargin.models.record import plain

    _echo(json.dumps(plain(value), allow_nan=False))


def print_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error; for ``sys.excepthook``."""
    print_lines(*"".join(traceback.format_exception(kind, error, trace)).rstrip().split("\n"), err=True)


def screen_width() -> int:
    """Width of the terminal; 100 without one."""
    return shutil.get_terminal_size((100, 24)).columns


def _echo(text: str, *, err: bool = False) -> None:
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    # not err=True, with which click would bypass a live display
    file = sys.stderr if err else None
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), file=file)


def rich_text(line: str) -> Text:
    """A line for a live display, without markup."""
    from rich.text import Text

    return Text(cut(visible(line), LONGEST_LINE))


class Records(logging.Handler):
    """Prints log records to stderr like all other output."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record; errors are handled by ``handleError``."""
        try:
            print_lines(*self.format(record).split("\n"), err=True)
        except Exception:  # noqa: BLE001 - the contract of logging handlers
            self.handleError(record)


class Formatter(logging.Formatter):
    """Escapes log records line by line."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record, with its traceback."""
        return "\n".join(cut(visible(line), LONGEST_LINE) for line in super().format(record).split("\n"))
