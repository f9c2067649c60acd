"""Training from Python on tables: they become a store as ``ingest`` makes it, for the moment or beside the model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from coremargin.argument_names import as_arguments
from coremargin.data.ingest import ingest
from coremargin.data.source import is_source
from coremargin.data.sources.files import names_files
from coremargin.data.sources.opening import needs_ingest
from coremargin.data.sources.paths import is_path
from coremargin.data.store_paths import is_store, store_beside
from coremargin.data.tables.column_options import COLUMN_ARGUMENTS
from coremargin.errors import ColumnsUnclear, DataWarning, UsageError
from coremargin.learn.files import ingest_beside

if TYPE_CHECKING:
    from coremargin.data.ingest_pass import IngestReport
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.learn.train import Begin

Said = Mapping[str, Any] | None  #: of columns, in words of ``ingest``
_WORDS = (*COLUMN_ARGUMENTS, "drop")


@contextmanager
def store_of(  # noqa: PLR0913 - rows, what belongs to them, and where they go
    source: Any,
    y: Any,
    weights: Any,
    columns: Said,
    out: Path | None = None,
    begin: Begin = "new",
    *,
    overwrite: bool = False,
    labelled: bool = True,
) -> Iterator[tuple[Any, Any, Any]]:
    """Source, y and weights as they are, or the path of the store that they became, which is gone at the end.

    y: labels, or the name or number of a column; columns: what ``ingest`` is to do with columns. out: of the model,
    beside which the store stays then, as that of files does. labelled: False if rows need no labels. Raises UsageError,
    and as ``ingest``.
    """
    if not becomes_store(source, y, columns):
        yield source, y, weights
        return
    words = _checked_words(columns) | _beside(y, weights)
    if y is None and not labelled:
        words["unlabelled"] = True
    if out is not None:
        with _suggesting(columns):
            made = ingest_beside(source, out, begin, overwrite=overwrite, **words)
        _warn(made.report)
        yield store_beside(out), None, None
        return
    with _for_the_moment(source, words, columns) as store:
        yield store, None, None


@contextmanager
def later_store_of(
    source: Any, y: Any, weights: Any, columns: Said, known: ColumnsRecord
) -> Iterator[tuple[Any, Any, Any]]:
    """The same of a batch after the first one, of which ``known`` is what its columns became.

    Of what is said of columns only those to drop are asked for: all else was decided.
    """
    dropped = _checked_words(columns).get("drop", ())
    words = {"columns": known, "columns_of": "the first batch", "drop": dropped} | _beside(y, weights)
    with _for_the_moment(source, words, columns) as store:
        yield store, None, None


@contextmanager
def _for_the_moment(source: Any, words: Mapping[str, Any], columns: Said) -> Iterator[Path]:
    with TemporaryDirectory(prefix="coremargin-rows-") as folder:
        store = Path(folder) / "rows.zarr"
        with _suggesting(columns):
            report = ingest(source, store, **words)
        _warn(report)
        yield store


def _warn(report: IngestReport | None) -> None:
    for text in () if report is None else report.warnings:
        warnings.warn(as_arguments(text), DataWarning, stacklevel=2)


def _beside(y: Any, weights: Any) -> dict[str, Any]:
    """Labels and weights, as ``ingest`` takes them."""
    return {"label" if y is None or _names_column(y) else "labels": y, "weights": weights}


def _checked_words(columns: Said) -> dict[str, Any]:
    """What is said of columns, as ``ingest`` takes it. Raises UsageError for a word that there is not."""
    given: Any = columns
    if given is not None and not isinstance(given, Mapping):
        example = "{'categorical': 'auto', 'missing': 'median'}"
        raise UsageError(f"columns: expected a mapping such as {example}, got {type(given).__name__}")
    words = {word: value for word, value in (columns or {}).items() if value is not None}
    strange = sorted(str(word) for word in words if word not in _WORDS)
    if strange:
        raise UsageError(f"columns: found {strange[0]!r}, expected some of {', '.join(_WORDS)}; correct it")
    return words


@contextmanager
def _suggesting(columns: Said) -> Iterator[None]:
    """Where columns need a word, say which would do, with the error as ever."""
    try:
        yield
    except ColumnsUnclear as error:
        if error.options:
            error.add_note(f"for instance: columns={_with_words(columns, error.options)}")
        raise


def _with_words(columns: Said, options: Sequence[str]) -> dict[str, Any]:
    """What was said of columns, and more of it: options of a command line, by turns their names and values."""
    words = _checked_words(columns)
    for option, value in zip(options[::2], options[1::2], strict=True):
        name, more = option.removeprefix("--"), value.split(",")
        there = words.get(name, ())
        found = [*(there.split(",") if isinstance(there, str) else there), *more]
        words[name] = found[0] if len(found) == 1 else found
    return words


def becomes_store(source: Any, y: Any, columns: Said) -> bool:
    """Whether ``ingest`` has to read the source first: columns are meant, or files, or batches."""
    own = is_source(source) or (is_path(source) and is_store(source))
    if own and columns is not None:
        raise UsageError("columns: a store has its own; give columns only with tables and files")
    said = columns is not None or _names_column(y)
    return not own and (names_files(source) or said or needs_ingest(source))


def _names_column(y: Any) -> bool:
    return isinstance(y, str | int)
