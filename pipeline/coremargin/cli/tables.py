"""Options for columns of tables, and suggestions if columns are unclear."""

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
        help="Categorical columns, one-hot encoded; auto: all text columns.",
    ),
    click.option("--dates", metavar="COLUMNS", help="Date columns (ISO 8601); auto: all columns with dates."),
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
        help="Most values of a column with a feature of their own; "
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
        help="CSV: read NA, N/A, NaN, null, None, ? and the like as text; only empty fields are missing.",
    ),
    click.option(
        "--unknown",
        type=click.Choice(["other", "refuse"]),
        metavar="POLICY",
        help="New categories: other (none of the known ones) or refuse.  [default: other]",
    ),
)


def column_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_column_options(options: dict[str, Any]) -> dict[str, Any]:
    """Move the column options from the options of a command to those of ``ingest``."""
    values = {name: options.pop(name) for name in COLUMN_ARGUMENTS}
    lists = ("categorical", "dates", "text", "na_values")
    values = {name: split(value) if name in lists else value for name, value in values.items()}
    return {name: value for name, value in values.items() if value or value is False}


def split(text: str | None) -> tuple[str, ...] | None:
    """Split at commas."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def show_ingest_progress(advance: Advance | None) -> OnProgress | None:
    """A progress callback for ``ingest``."""
    if advance is None:
        return None

    def show(step: Progress) -> None:
        advance(step.stage, step.done_bytes, step.total_bytes, f"{step.rows:,} rows")

    return show


@contextmanager
def suggest_columns() -> Iterator[None]:
    """Add to errors about unclear columns a command that would work."""
    try:
        yield
    except ColumnsUnclear as error:
        if error.options:
            error.add_note(f"for instance: {extend_command(sys.argv[1:], error.options)}")
        raise


def extend_command(words: Sequence[str], options: Sequence[str]) -> str:
    """The command line with further options; columns are added to an option that is there already."""
    found = [f"coremargin {words[0]}"] if words else ["coremargin"]
    rest, more = list(words[1:]), list(zip(options[::2], options[1::2], strict=True))
    for name, value in list(more):
        if name in rest[:-1] and name != "--missing":
            at = rest.index(name) + 1
            rest[at] = f"{rest[at]},{value}"
            more.remove((name, value))
    return " ".join([*found, shlex.join([*rest, *(word for pair in more for word in pair)])])


def load_columns(path: Path | None) -> Any:
    """Columns of a store or a model. Raises UsageError if they have no names."""
    from coremargin.data.owned import STORE
    from coremargin.data.store import Store
    from coremargin.errors import UsageError
    from coremargin.models.registry import load

    if path is None:
        return None
    found = Store.open(path).columns if STORE.is_at(path) else load(path).columns
    if found is None:
        raise UsageError(f"{path}: expected the columns of a table, found rows without column names")
    return found
