"""Training from Python on tables: ingest them into a store, temporarily or next to the model."""

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
from coremargin.learn.files import ingest_for_model

if TYPE_CHECKING:
    from coremargin.data.ingest_pass import IngestReport
    from coremargin.engine.checkpoint import Begin
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.location import Location

ColumnOptions = Mapping[str, Any] | None  #: as keyword arguments of ``ingest``
_OPTIONS = (*COLUMN_ARGUMENTS, "drop")


@contextmanager
def store_of(  # noqa: PLR0913 - rows, what belongs to them, and where they go
    source: Any,
    y: Any,
    weights: Any,
    columns: ColumnOptions,
    out: Location | None = None,
    begin: Begin = "new",
    *,
    groups: Any = None,
    overwrite: bool = False,
    labelled: bool = True,
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield source, y and weights unchanged, or the path of a store that contains them (with None for y and weights).

    y: labels, or the name or number of a column. out: folder of the model; the store next to it is permanent, without
    ``out`` it is temporary. groups: ids of groups, or the name or number of a column, which go into the store, too.
    labelled: False if rows need no labels. Raises UsageError, and as ``ingest``.
    """
    if not becomes_store(source, y, columns, groups):
        yield source, y, weights
        return
    options = _check_columns(columns) | _label_options(y, weights)
    if groups is not None:
        options["group"] = groups
    if y is None and not labelled:
        options["unlabelled"] = True
    if out is not None:
        with _suggest_columns(columns):
            made = ingest_for_model(source, out, begin, overwrite=overwrite, **options)
        _warn(made.report)
        yield store_beside(out), None, None
        return
    with _temporary_store(source, options, columns) as store:
        yield store, None, None


@contextmanager
def store_of_next_batch(
    source: Any, y: Any, weights: Any, columns: ColumnOptions, known: ColumnsRecord
) -> Iterator[tuple[Any, Any, Any]]:
    """As ``store_of`` for a batch after the first one; known: the columns of the first batch.

    Of ``columns``, only ``drop`` is used: the first batch has decided the rest.
    """
    dropped = _check_columns(columns).get("drop", ())
    options = {"columns": known, "columns_of": "the first batch", "drop": dropped} | _label_options(y, weights)
    with _temporary_store(source, options, columns) as store:
        yield store, None, None


@contextmanager
def _temporary_store(source: Any, options: Mapping[str, Any], columns: ColumnOptions) -> Iterator[Path]:
    with TemporaryDirectory(prefix="coremargin-rows-") as folder:
        store = Path(folder) / "rows.zarr"
        with _suggest_columns(columns):
            report = ingest(source, store, **options)
        _warn(report)
        yield store


def _warn(report: IngestReport | None) -> None:
    for text in () if report is None else report.warnings:
        warnings.warn(as_arguments(text), DataWarning, stacklevel=2)


def _label_options(y: Any, weights: Any) -> dict[str, Any]:
    """Labels and weights as options of ``ingest``."""
    return {"label" if y is None or _names_column(y) else "labels": y, "weights": weights}


def _check_columns(columns: ColumnOptions) -> dict[str, Any]:
    """The options that are set. Raises UsageError for unknown ones."""
    value: Any = columns
    if value is not None and not isinstance(value, Mapping):
        example = "{'categorical': 'auto', 'missing': 'median'}"
        raise UsageError(f"columns: expected a mapping such as {example}, got {type(value).__name__}")
    unknown = sorted(str(name) for name, value in (columns or {}).items() if value is not None and name not in _OPTIONS)
    if unknown:
        raise UsageError(f"columns: unknown option {unknown[0]!r}, expected some of {', '.join(_OPTIONS)}")
    return {name: value for name, value in (columns or {}).items() if value is not None}


@contextmanager
def _suggest_columns(columns: ColumnOptions) -> Iterator[None]:
    """Add a suggestion to errors about unclear columns."""
    try:
        yield
    except ColumnsUnclear as error:
        if error.options:
            error.add_note(f"for instance: columns={_add_options(columns, error.options)}")
        raise


def _add_options(columns: ColumnOptions, options: Sequence[str]) -> dict[str, Any]:
    """options: names and values of a command line, alternating; lists of columns are joined."""
    found = _check_columns(columns)
    for option, value in zip(options[::2], options[1::2], strict=True):
        name = option.removeprefix("--")
        before = found.get(name, ())
        names = [*(before.split(",") if isinstance(before, str) else before), *value.split(",")]
        found[name] = names[0] if len(names) == 1 else names
    return found


def becomes_store(source: Any, y: Any, columns: ColumnOptions, groups: Any = None) -> bool:
    """Whether the source has to be ingested: files, batches, or tables with options for columns."""
    own = is_source(source) or (is_path(source) and is_store(source))
    if own and columns is not None:
        raise UsageError("columns: a store has its own; pass columns with tables and files only")
    has_options = columns is not None or _names_column(y) or _names_column(groups)
    return not own and (names_files(source) or has_options or needs_ingest(source))


def _names_column(y: Any) -> bool:
    return isinstance(y, str | int)
