"""Ingest: rows from any source into a store, in bounded memory, all of them or none.

A batch is read, joined with its labels, filtered, checked value by value and written; the one commit comes at the end,
so that a bad row, a full disk or a kill changes nothing.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from coremargin.data.format import read_facts
from coremargin.data.groups import GroupRuns, group_runs
from coremargin.data.ingest_pass import IngestPass, IngestReport, SeparateInputs, lengths_differ, make_report
from coremargin.data.key_values import Keys
from coremargin.data.labels import LabelCoder
from coremargin.data.sizes import CHUNK_BYTES
from coremargin.data.sources.base import Batch, OnProgress, Progress, RowSource, batch_rows
from coremargin.data.sources.file_formats import kind_from_name
from coremargin.data.sources.files import Files, names_files
from coremargin.data.sources.memory import memory_errors_named
from coremargin.data.sources.opening import (
    TableObject,
    close_source,
    find_unclear_columns,
    label_files,
    open_rows,
    resolve_source,
)
from coremargin.data.sources.options import SourceOptions
from coremargin.data.sources.paths import AnyPath, expand, is_there, resolve_paths
from coremargin.data.sources.sidecars import GroupStream, LabelStream, WeightStream, name_features
from coremargin.data.storages import open_storage
from coremargin.data.store import Store
from coremargin.data.tables.column_options import ColumnArguments, ColumnOptions, parse_column_options
from coremargin.data.tables.conll import made_from_conll
from coremargin.data.tables.objects import with_label_name
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, DataError, LabelError, UsageError
from coremargin.formats.choices import ROW_TYPES
from coremargin.formats.location import is_remote, location
from coremargin.formats.row_types import WIDE_TYPES
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coremargin.data.commits import CommitInfo
    from coremargin.data.labels import Label
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.location import Location

DRY_BATCHES = 16  #: what a dry run reads: well under a second, and enough to guess the rest
#: For ``group``: the column that ``columns`` names.
GROUP_OF_COLUMNS: Any = object()


@memory_errors_named
def ingest(  # noqa: PLR0913 - one option for each decision about a file, all but two with a default
    source: Any,
    store: AnyPath,
    *,
    labels: Any = None,
    label: str | int | None = None,
    unlabelled: bool | None = False,
    weights: Any = None,
    key: str | int | None = None,
    group: Any = None,
    sparse: bool | None = None,
    only: Sequence[Label] | Label | None = None,
    append: bool = False,
    overwrite: bool = False,
    dtype: str | None = None,
    compression: str | None = None,
    chunk_bytes: int | None = None,
    format: str | None = None,  # noqa: A002 - the word for it, here and on the command line
    drop: Sequence[str | int] | str | int = (),
    delimiter: str | None = None,
    header: bool | None = None,
    features: int | None = None,
    zero_based: bool | None = None,
    columns: ColumnsRecord | None = None,
    columns_of: str = "",
    names: Sequence[str] | AnyPath | None = None,
    about: Mapping[str, Any] | None = None,
    new_labels: bool = False,
    dry_run: bool = False,
    commit_info: Callable[[], CommitInfo] | None = None,
    on_progress: OnProgress | None = None,
    storage_options: Mapping[str, str] | None = None,
    **column_options: Unpack[ColumnArguments],
) -> IngestReport:
    """Write the rows of ``source`` into the store at ``store``; nothing appears unless all of it is good.

    Labels are integers of 64 bits, finite floats, booleans, or texts of up to 1,000 characters (bytes must be UTF-8).
    Two of them never become one class because of what a float cannot hold or of white space: that is refused.

    Parameters
    ----------
    source : path-like, table, array or sparse matrix of shape (n, d), or batches of these
        A path, a pattern such as "part-*.csv", a folder of CSV, Parquet or SVMlight, or a list of these; also at
        addresses such as "s3://bucket/2026/", "az://container/part-*.csv" or "https://host/rows.csv". Files are
        .npy, .npz of ``numpy.savez(X=X, y=y)`` or ``scipy.sparse.save_npz``, CSV and other delimited text, Parquet or
        SVMlight; text may be compressed with gzip, bzip2 or xz. The name of a file need not be UTF-8. Folders named
        column=value below a folder, or below what all files share, add columns to CSV and Parquet, with the types that
        pyarrow infers.
        An array: NumPy, SciPy sparse, Dask. A table: a DataFrame of pandas, polars or Dask, a table, record batch,
        reader or dataset of Arrow, a Dataset of Hugging Face, or whatever else has
        ``__arrow_c_stream__``, such as a relation of DuckDB. The index of a data frame, also in Parquet and Arrow, is
        read only where one of its names is asked for, as label, key, weights or in options of columns.
        Batches: an iterator of tables, of arrays, of sparse matrices, or of pairs (X, y) of one with its labels; a list
        of them; or a function that returns a fresh iterator. What can be read once, an iterator, a reader or a
        DataFrame of Dask, is computed once: where columns must be looked at before rows are written, rows are kept in a
        file without a name next to the store, until they are. A function is called twice instead, or three times. Text
        that was parsed is kept so, too, where the disk has room, and parsed twice elsewhere.
    store : path-like
        Where the store is, or is to be: a path, or an address such as ``s3://bucket/rows.zarr``.
    labels : array_like of shape (n,) or path-like, optional
        Labels, or a path to them (.npy, or text with one per line); by default ``y.npy`` next to ``X.npy``.
    label : str or int, optional
        The label column by name or number (from 0, negative from the end); by default the one column called label,
        target, class or y, else the last.
    unlabelled : bool, optional
        There are no labels; None: there may be none.
    weights : array_like of shape (n,), path-like, str or int, optional
        Of tables, in files or not, a column by name or number; else weights or a path to them (.npy, or text with one
        per line): finite, not negative, not all zero.
    key : str or int, optional
        Of tables, in files or not, a column by name or number: whole numbers or texts, each once, by which rows can be
        named later, to take them out or to correct them. An append looks for the column that the store knows.
    group : str, int, array_like of shape (n,) or path-like, optional
        Groups of rows, such as sequences or queries: of tables, in files or not, a column by name or number; of
        SVMlight "qid"; else an id for each row, or a path to them (.npy, or text with one per line). Ids are texts or
        whole numbers. Rows of a group come one after the other, have one weight, and are at most as many as those of
        a chunk. An append looks for the column that the store knows, and has new groups only.
    sparse : bool, optional
        Keep rows as CSR; by default SciPy matrices are kept so, and SVMlight when less than a tenth of the values are
        stored. Explicit zeros are dropped then, and counted.
    only : label or sequence of labels, optional
        Keep rows with these labels.
    append : bool, default False
        Add to a store that exists.
    overwrite : bool, default False
        Replace a store that exists.
    dtype : {"float16", "bfloat16", "int8", "uint8", "int16", "float32", "float64"}, optional
        How a new store keeps values: by default as they come if all are of one of the first five types, else float32.
        Floats are rounded to the nearest; integer types refuse what they would round. Rows of narrow types are read as
        float32, exactly. Sparse rows are float32 or float64. An append follows the store, here and in the next two.
    compression : {"none", "lz4", "zstd", "auto"}, optional
        Of a new store's chunks, none by default.
    chunk_bytes : int, optional
        Size of a new store's chunks.
    format : str, optional
        Kind of the files; overrides name and content. "conll" is not recognised by content: a token a line, its columns
        separated by tabs or white space, the label last; a blank line ends a sentence, which is a group.
    drop : str, int or sequence of these
        Columns to leave out.
    delimiter : str, optional
        Of delimited text; found out by default.
    header : bool, optional
        Whether delimited text has one; found out by default.
    features : int, optional
        Of SVMlight; found out by a first pass by default.
    zero_based : bool, optional
        Whether SVMlight counts columns from 0; found out by a first pass by default.
    columns : ColumnsRecord, optional
        The columns that a new store is to have, those of a model for instance; no word is needed then.
    columns_of : str, optional
        Whose these are, for messages.
    names : sequence of str or path-like, optional
        Names of the features of a source that has none (a vocabulary of SVMlight, of arrays), or a path to a file with
        one per line.
    about : mapping, optional
        What a new store is to say about itself, as JSON has it; nothing here goes by it.
    new_labels : bool, default False
        Rows that are appended may have labels that no row in the store has.
    dry_run : bool, default False
        Read the beginning and say what would be written.
    commit_info : callable, optional
        Called when all rows were read, before they are committed: what the store's log is to say. What it raises leaves
        the store as it was.
    on_progress : callable, optional
        Called with a ``Progress`` after every batch.
    storage_options : mapping, optional
        Of the addresses of rows, labels, weights, names and store, such as {"region": "eu-central-1"}; credentials come
        from the environment.
    **column_options
        What becomes of columns of a table:

        - ``categorical``, one or several: their values are categories, each of which becomes a feature; "auto": all
          columns of words. Columns with more than 1,000 different values are hashed into 1,024 features.
        - ``dates``, one or several: years, and circles of the year, the week and the day; "auto": all columns of dates.
        - ``text``, one or several: prose, hashed words, weighed by how rare they are (tf-idf).
        - ``missing``, one or several: what becomes of values that are not there, "mean", "median", "most-frequent",
          "indicator" (the mean, and a feature that says so) or "refuse"; "COLUMN=median" for one column. Categories
          that are missing have a feature of their own, unless the most frequent takes their place.
        - ``unknown``: what becomes of categories that come later, in rows that are appended or predicted, "other" (the
          default) or "refuse".
        - ``categories``: so many values of a column have a feature each, the most frequent; all others share one.
        - ``date_format``: how dates are written, for ``strptime``; by default as in ISO 8601.
        - ``decimal``, ``thousands``: how numbers of delimited text are written: "," before decimals instead of ".";
          ",", ".", "space", "'" or "_" between thousands.
        - ``na_values``, ``keep_default_na``: more texts of delimited text that stand for a missing value; False: of
          NA, N/A, NaN, null, None, ? and the like none does. As in ``pandas.read_csv``.

        The store keeps the last four, and rows that are appended, corrected or predicted are read so, too.

    Returns
    -------
    IngestReport
        What was written, or would be.

    Raises
    ------
    UsageError
        Options that do not fit.
    DataError
        Of the classes BadRow and LabelError too: the data are wrong, at the place that is named.
    OutputError
        The store cannot be written.

    Examples
    --------
    >>> report = coremargin.ingest("rows.csv", "rows.zarr", label="class")  # doctest: +SKIP
    >>> report.rows, report.classes  # doctest: +SKIP
    (150, {'setosa': 50, 'versicolor': 50, 'virginica': 50})
    """
    started = time.perf_counter()
    path = location(store, storage_options if is_remote(store) else None)
    if not dry_run and is_remote(path):
        open_storage(path).resolved()  # raises where nothing can be written, before rows are read
    given = (source, labels, weights, names, group)
    source, labels, weights, names, group = _resolve_all(given, storage_options or {}, needed=not is_remote(path))
    _check_options(
        path, labels=labels, label=label, unlabelled=unlabelled, only=only, append=append, overwrite=overwrite
    )
    encoding = parse_column_options(**column_options)
    folder = Path(tempfile.gettempdir()) if is_remote(path) else Path(path).parent
    base = Store.open(path) if append else None
    if format is None and names_files(source) and _expects_conll(columns if base is None else base.columns, source):
        format = "conll"  # noqa: A001 - the word for it
    source = resolve_source(source, folder, format)
    _check_dtype(base, dtype, compression, chunk_bytes)
    labels = label_files(source, unlabelled=unlabelled) if labels is None and unlabelled is not True else labels
    column, weight_stream = _weights_of(source, weights)
    group = _known_group(source, columns) if group is GROUP_OF_COLUMNS else _group_of(base, source, group)
    group_column, group_stream = _groups_of(source, group)
    options = SourceOptions(
        format=format,
        label=label,
        drop=_as_tuple(drop),
        delimiter=delimiter,
        header=header,
        zero_based=zero_based,
        features=features if base is None or features is not None else _svmlight_features(source, base),
        unlabelled=unlabelled is True or labels is not None,
        weights=column,
        key=_key_of(base, key),
        group=group_column,
        groups_before=0 if base is None or base.groups is None else int(base.groups.counts.sum()),
        column_options=encoding,
        columns=_known_columns(base, columns, encoding),
        columns_of=columns_of if base is None else base.name,
        label_optional=unlabelled is None,
    )
    with _report_all_columns(source, options):
        rows = open_rows(source, options, on_progress)
        coder = LabelCoder(base.classes if base else ())
        stream = None if labels is None else LabelStream(labels, coder)
        separate = SeparateInputs(stream, weight_stream, group_stream)
        _check_fit(rows, separate, base, unlabelled=unlabelled is not False)
        _check_groups(rows, group_stream, base, only=only is not None)
        sparse = _store_sparse(rows, base, sparse)
        dtype = _store_dtype(rows, base, dtype, sparse=sparse)
        ingest_pass = IngestPass(
            rows,
            separate,
            coder,
            dtype,
            None if only is None else _as_tuple(only),
            sparse=sparse,
            fixed_labels=base is not None and bool(base.classes) and not new_labels,
        )
        if dry_run:
            deque(islice(ingest_pass.batches(), DRY_BATCHES), maxlen=0)
        else:
            shape = (dtype, compression or "none", chunk_bytes or CHUNK_BYTES)
            named = name_features(rows, names, append=append)
            named = None if named is None else with_label_name(named, labels)
            writer = (
                StoreWriter.append(path)
                if append
                else _create_writer(path, ingest_pass, shape, named, about, overwrite=overwrite)
            )
            _write(ingest_pass, writer, commit_info, on_progress)
    return make_report(ingest_pass, path, base, dtype, time.perf_counter() - started)


@contextmanager
def _report_all_columns(source: Any, options: SourceOptions) -> Iterator[None]:
    """Name all columns that need a decision, where a row of a table is not what the first rows promised."""
    try:
        yield
    except BadRow as error:
        unclear = find_unclear_columns(source, options)
        if unclear is not None:
            raise unclear from error
        raise
    finally:
        close_source(source)


def _known_columns(base: Store | None, columns: ColumnsRecord | None, options: ColumnOptions) -> ColumnsRecord | None:
    """The columns that the rows must have: those of the store for an append, else those given, if any."""
    if (base is not None or columns is not None) and options:
        whose = "the columns that are given" if base is None else base.name
        raise UsageError(
            f"{whose}: how columns become features is fixed: leave out options such as --categorical and --missing"
        )
    return columns if base is None else base.columns


def _resolve_all(given: Sequence[Any], options: Mapping[str, str], *, needed: bool) -> list[Any]:
    """Sources, the addresses among them with these options. needed: raise UsageError for options that none is for."""
    lists = [one if isinstance(one, list | tuple) else [one] for one in given]
    if needed and options and not any(is_remote(one) for each in lists for one in each):
        raise UsageError("storage options are for addresses such as s3://bucket/rows.parquet, found none")
    return [resolve_paths(given[0], options)] + [
        resolve_paths(one, options) if any(map(is_remote, each)) else one
        for one, each in zip(given[1:], lists[1:], strict=True)
    ]


def _expects_conll(columns: ColumnsRecord | None, source: Any) -> bool:
    """Whether rows must be tokens of CoNLL files, and no name of a file says that it is another kind."""
    return columns is not None and made_from_conll(columns) and not any(map(kind_from_name, expand(source)))


def _as_tuple(values: Sequence[Label] | Label) -> tuple[Any, ...]:
    """A tuple of one or several values: a text is one."""
    return (values,) if isinstance(values, str | int | float) else tuple(values)


def _create_writer(
    path: Location,
    ingest_pass: IngestPass,
    shape: tuple[str, str, int],
    columns: ColumnsRecord | None,
    about: Mapping[str, Any] | None,
    *,
    overwrite: bool,
) -> StoreWriter:
    dtype, compression, chunk_bytes = shape
    return StoreWriter.create(
        path,
        features=ingest_pass.source.features,
        sparse=ingest_pass.sparse,
        weighted=ingest_pass.weight_from is not None,
        grouped=ingest_pass.group_from is not None,
        dtype=dtype,
        chunk_bytes=chunk_bytes,
        compression=compression,
        overwrite=overwrite,
        columns=columns,
        about=about,
    )


def _write(
    ingest_pass: IngestPass,
    writer: StoreWriter,
    info: Callable[[], CommitInfo] | None,
    on_progress: OnProgress | None,
) -> None:
    with writer:  # commits at the end, unless an exception leaves it
        for batch in ingest_pass.batches():
            for part in _split_batch(batch, ingest_pass.labels_of(batch), dense=not ingest_pass.sparse):
                writer.write(*part, origin=batch.origin)
            if on_progress is not None:
                on_progress(
                    Progress("writing", ingest_pass.read, ingest_pass.done_bytes, ingest_pass.source.total_bytes)
                )
        if info is not None:
            writer.commit_info = info()


def _split_batch(
    batch: Batch, labels: np.ndarray | None, *, dense: bool
) -> Iterator[tuple[Any, Any, Any, Keys | None, GroupRuns | None]]:
    """Rows with all that belongs to them; sparse ones that are to become dense in parts that fit in memory then."""
    step = batch_rows(int(batch.rows.shape[1])) if dense and is_sparse(batch.rows) else batch.count
    keys = None if batch.keys is None else Keys(batch.keys, batch.place)
    if step >= batch.count:
        groups = None if batch.groups is None else group_runs(batch.groups, batch.count, batch.place)
        yield batch.rows, labels, batch.weights, keys, groups
        return
    for start in range(0, batch.count, step):
        part = slice(start, start + step)
        ids = None if batch.groups is None else batch.groups[part]
        yield (
            batch.rows[part],
            None if labels is None else labels[part],
            None if batch.weights is None else batch.weights[part],
            None if keys is None else keys.part(start, start + step),
            None if ids is None else group_runs(ids, len(ids), partial(_later, batch.place, start)),
        )


def _later(place: Callable[[int], str], start: int, row: int) -> str:
    return place(start + row)


def _check_options(
    path: Location,
    *,
    labels: Any,
    label: Any,
    unlabelled: bool | None,
    only: Any,
    append: bool,
    overwrite: bool,
) -> None:
    if labels is not None and (label is not None or unlabelled):
        raise UsageError("--labels cannot be combined with --label or --unlabelled: choose one")
    if unlabelled and (label is not None or only is not None):
        raise UsageError("--unlabelled cannot be combined with --label or --only: choose one")
    if append and overwrite:
        raise UsageError("--append cannot be combined with --overwrite: choose one")
    if only is not None and not _as_tuple(only):
        raise UsageError("--only names no label: expected at least one")
    if is_there(path) and not (append or overwrite):
        raise UsageError(f"{path}: exists already: say --append to add rows, or --overwrite to replace it")


def _check_dtype(base: Store | None, dtype: str | None, compression: str | None, chunk_bytes: int | None) -> None:
    """Refuse what no store has, and what differs from the store that rows are appended to."""
    if dtype is not None and dtype not in ROW_TYPES:
        raise UsageError(f"dtype {dtype!r}: expected one of {', '.join(ROW_TYPES)}")
    if base is None:
        return
    if dtype is not None and dtype != base.stored_dtype:
        kept = base.stored_dtype
        raise UsageError(f"{base.name}: holds {kept}, found --dtype {dtype}: leave the option out when appending")
    if compression is not None or chunk_bytes is not None:
        raise UsageError(f"{base.name}: compression and chunk size are fixed: leave these options out when appending")


def _store_dtype(rows: RowSource, base: Store | None, dtype: str | None, *, sparse: bool) -> str:
    """The type in which the store keeps rows: that of the store for an append, or the wanted one, or theirs."""
    if base is not None:
        return base.stored_dtype
    if not sparse:
        return dtype or rows.row_type
    if dtype is not None and dtype not in WIDE_TYPES:
        raise UsageError(
            f"{rows.name}: sparse rows are kept as {' or '.join(WIDE_TYPES)}, found --dtype {dtype}: leave it out, or "
            "keep the rows dense with --dense"
        )
    return dtype or "float32"


def _store_sparse(rows: RowSource, base: Store | None, wanted: bool | None) -> bool:
    """Whether the store keeps rows as CSR; an append follows the store."""
    if base is not None:
        if wanted is not None and wanted != base.sparse:
            kind = "sparse" if base.sparse else "dense"
            raise UsageError(f"{base.name}: its rows are {kind}: leave --sparse and --dense out when appending")
        return base.sparse
    return rows.sparse if wanted is None else wanted


def _check_fit(rows: RowSource, separate: SeparateInputs, base: Store | None, *, unlabelled: bool) -> None:
    """Refuse before the first row is read what can be refused."""
    labels, weights, _ = separate
    if weights is not None and weights.length is not None and rows.rows is not None and weights.length != rows.rows:
        raise lengths_differ(rows.name, rows.rows, weights.name, weights.length, "weights")
    weighted = weights is not None or rows.weight_from is not None
    with_weights = base is not None and read_facts(base.storage).weighted  # which may have been set after it was made
    if base is not None and weighted != with_weights:
        text = "has weights: say --weights" if with_weights else "has none: leave --weights out"
        raise UsageError(f"{base.name}: {text}, so that every row has one or none has")
    if labels is not None and labels.length is not None and rows.rows is not None and labels.length != rows.rows:
        raise lengths_differ(rows.name, rows.rows, labels.name, labels.length)
    if base is not None and rows.features != base.features:
        raise DataError(
            f"{rows.name}: found {rows.features} features, expected {base.features} as in {base.name}; append rows of "
            "the same features, or make a store of its own"
        )
    if labels is None and rows.label_from is None and not unlabelled:
        raise LabelError(
            f"{rows.name}: labels are missing: expected one per row; give --labels FILE, or say --unlabelled"
        )


def _check_groups(rows: RowSource, groups: GroupStream | None, base: Store | None, *, only: bool) -> None:
    """The same of groups; only: rows are left out by their labels."""
    if groups is not None and groups.length is not None and rows.rows is not None and groups.length != rows.rows:
        raise lengths_differ(rows.name, rows.rows, groups.name, groups.length, "groups")
    grouped = groups is not None or rows.group_from is not None
    if base is not None and grouped != (base.groups is not None):
        raise UsageError(
            f"{base.name}: {'its rows are in groups' if base.groups else 'its rows are in no groups'}, "
            f"found rows {'in some' if grouped else 'in none'}; ingest these into a store of their own"
        )
    if grouped and only:
        raise UsageError("--only cannot be combined with groups of rows: it would keep parts of groups")


def _svmlight_features(source: Any, base: Store) -> int | None:
    """How many features a store says that rows of SVMlight have; None of other sources, which say it themselves."""
    return base.features if isinstance(source, Files) and source.files[0].format == "svmlight" else None


def _weights_of(source: Any, weights: Any) -> tuple[str | int | None, WeightStream | None]:
    """The column that holds the weights, or what reads them elsewhere."""
    if weights is None:
        return None, None
    columns = isinstance(source, TableObject) or (isinstance(source, Files) and source.formats & {"csv", "parquet"})
    if columns and isinstance(weights, str | int) and not is_remote(weights):
        return weights, None
    return None, WeightStream(weights)


def _groups_of(source: Any, group: Any) -> tuple[str | int | None, GroupStream | None]:
    """The column that holds the groups, or what reads them elsewhere."""
    if group is None:
        return None, None
    columns = isinstance(source, TableObject) or (
        isinstance(source, Files) and source.formats & {"csv", "parquet", "svmlight", "conll"}
    )
    if columns and isinstance(group, str | int) and not is_remote(group):
        return group, None
    return None, GroupStream(group)


def _group_of(base: Store | None, source: Any, group: Any) -> Any:
    """The groups of rows; of rows that join others in groups the column that theirs came from. Raises UsageError."""
    if base is None or (base.groups is None and group is None):
        return group
    if base.groups is None:
        raise UsageError(
            f"{base.name}: its rows are in no groups: leave --group out, or give it when the store is made"
        )
    if group is not None:
        return group
    found = _known_group(source, base.columns)
    if found is None and not (isinstance(source, Files) and source.formats == {"conll"}):
        raise UsageError(f"{base.name}: its rows are in groups: say --group, so that every row has one")
    return found


def _known_group(source: Any, columns: ColumnsRecord | None) -> str | int | None:
    """The column of groups, for rows like those with these columns; None: not known, or each sentence is one."""
    formats = source.formats if isinstance(source, Files) else set()
    if formats == {"svmlight"}:
        return "qid"
    if formats == {"conll"} or columns is None or columns.group is None:
        return None
    return columns.group if columns.named else int(columns.group)


def _key_of(base: Store | None, key: str | int | None) -> str | int | None:
    """The column of keys; of rows that join others the one that has the name of theirs. Raises UsageError."""
    columns = None if base is None else base.columns
    if base is None or (columns is not None and columns.key is not None and key is not None):
        return key
    if key is not None:
        raise UsageError(f"{base.name}: its rows have no keys: leave --key out, or give it when the store is made")
    return None if columns is None or columns.key is None else columns.key if columns.named else int(columns.key)
