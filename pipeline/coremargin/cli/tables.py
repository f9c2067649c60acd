"""Options about the columns of tables, and the command that would work where a column needs a word."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import WHOLE
from coremargin.data.tables.column_options import COLUMN_ARGUMENTS
from coremargin.errors import ColumnsUnclear

if TYPE_CHECKING:
    from coremargin.cli.common import Advance
    from coremargin.data.sources.base import OnProgress, Progress

_OPTIONS = (
    click.option(
        "--categorical",
        metavar="COLUMNS",
        help="Categorical columns, one-hot encoded; auto: all columns of words.",
    ),
    click.option("--dates", metavar="COLUMNS", help="Date columns (ISO 8601); auto: all that are."),
    click.option("--date-format", metavar="FORMAT", help="Format of dates, such as %d/%m/%Y."),
    click.option("--text", metavar="COLUMNS", help="Text columns: hashed words with tf-idf weights."),
    click.option(
        "--missing",
        metavar="POLICY",
        multiple=True,
        help="Missing values: mean, median, most-frequent, indicator or refuse; COLUMN=POLICY for one column.",
    ),
    click.option(
        "--categories",
        type=WHOLE,
        metavar="NUMBER",
        help="Most values of a column with a feature each; "
        "the others share one.  [default: 1,000; columns with more are hashed]",
    ),
    click.option("--decimal", metavar="CHARACTER", help="CSV: decimal separator, . or ,  [default: .]"),
    click.option(
        "--thousands", metavar="CHARACTER", help="CSV: thousands separator, one of , . space ' _  [default: none]"
    ),
    click.option("--na-values", metavar="TEXTS", help="CSV: further texts for missing values, such as -."),
    click.option(
        "--no-default-na",
        "keep_default_na",
        is_flag=True,
        flag_value=False,
        default=None,
        help="CSV: read NA, N/A, NaN, null, None, ? and the like as words; only empty fields are missing.",
    ),
    click.option(
        "--unknown",
        type=click.Choice(["other", "refuse"]),
        metavar="POLICY",
        help="New categories: other (none of the known ones) or refuse.  [default: other]",
    ),
)


def column_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, for a command that reads tables."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def column_words(options: dict[str, Any]) -> dict[str, Any]:
    """These options, taken out of those of a command, as ``ingest`` takes them."""
    taken = {name: options.pop(name) for name in COLUMN_ARGUMENTS}
    lists = ("categorical", "dates", "text", "na_values")
    said = {name: split(value) if name in lists else value for name, value in taken.items()}
    return {name: value for name, value in said.items() if value or value is False}


def split(text: str | None) -> tuple[str, ...] | None:
    """Words between commas."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def ingest_shown(advance: Advance | None) -> OnProgress | None:
    """What shows how far an ingest has come."""
    if advance is None:
        return None

    def show(step: Progress) -> None:
        advance(step.stage, step.done_bytes, step.total_bytes, f"{step.rows:,} rows")

    return show


@contextmanager
def suggesting() -> Iterator[None]:
    """Where columns need a word, print the command that would work, with the error as ever."""
    try:
        yield
    except ColumnsUnclear as error:
        if error.options:
            error.add_note(f"for instance: {command_with(sys.argv[1:], error.options)}")
        raise


def command_with(words: Sequence[str], options: Sequence[str]) -> str:
    """The command line that was given, with more options; of those that name columns, with more of these."""
    found = [f"coremargin {words[0]}"] if words else ["coremargin"]
    rest, more = list(words[1:]), list(zip(options[::2], options[1::2], strict=True))
    for name, value in list(more):
        if name in rest[:-1] and name != "--missing":
            at = rest.index(name) + 1
            rest[at] = f"{rest[at]},{value}"
            more.remove((name, value))
    return " ".join([*found, shlex.join([*rest, *(word for pair in more for word in pair)])])


def columns_from(path: Path | None) -> Any:
    """What the columns of a store or a model are. Raises UsageError where it has none with names."""
    from coremargin.data.owned import STORE
    from coremargin.data.store import Store
    from coremargin.errors import UsageError
    from coremargin.models.registry import load

    if path is None:
        return None
    found = Store.open(path).columns if STORE.is_at(path) else load(path).columns
    if found is None:
        raise UsageError(f"{path}: its columns have no names, expected those of a table")
    return found
