"""Ingest: rows from any source into a store, in bounded memory, all of them or none.

A batch is read, joined with its labels, filtered, checked value by value and written; the one commit comes at the end,
so that a bad row, a full disk or a kill leaves what was there before.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.format import DTYPES
from coremargin.data.ingest_report import IngestReport, report_of
from coremargin.data.sizes import CHUNK_BYTES
from coremargin.data.sources.base import Batch, OnProgress, Progress, RowSource, SourceOptions, batch_rows
from coremargin.data.sources.ingest_pass import IngestPass, SeparateInputs, lengths_differ
from coremargin.data.sources.labels import LabelStream
from coremargin.data.sources.memory import memory_errors_named
from coremargin.data.sources.npy import companion
from coremargin.data.sources.opening import kinds_of, open_rows
from coremargin.data.sources.paths import AnyPath, is_there, usable_path
from coremargin.data.sources.vocabulary import Vocabulary
from coremargin.data.sources.weights import WeightStream
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DataError, LabelError, UsageError
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coremargin.data.labels import Label

DRY_BATCHES = 16  #: what a dry run reads: well under a second, and enough to guess the rest


@memory_errors_named
def ingest(  # noqa: PLR0913 - one word for each decision about a file, all but two with a default
    source: Any,
    store: AnyPath,
    *,
    labels: Any = None,
    label: str | int | None = None,
    unlabelled: bool = False,
    weights: Any = None,
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
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> IngestReport:
    """Write the rows of ``source`` into the store at ``store``; nothing appears unless all of it is good.

    Labels are integers of 64 bits, finite floats, booleans, or texts of up to 1,000 characters (bytes must be UTF-8).
    Two of them never become one class because of what a float cannot hold or of white space: that is refused.

    Parameters
    ----------
    source : path-like, sequence of path-like, or array or sparse matrix of shape (n, d)
        A path, a pattern such as "part-*.csv", a list of these, or an array (NumPy, SciPy sparse, Dask). Files are
        .npy, .npz of ``scipy.sparse.save_npz``, CSV and other delimited text, Parquet (extra ``arrow``) or SVMlight;
        text may be compressed with gzip, bzip2 or xz. The name of a file need not be UTF-8.
    store : path-like
        Where the store is, or is to be.
    labels : array_like of shape (n,) or path-like, optional
        Labels, or a path to them (.npy, or text with one per line); by default ``y.npy`` beside ``X.npy``.
    label : str or int, optional
        The label column by name or number (from 0, negative from the end); by default the one column called label,
        target, class or y, else the last.
    unlabelled : bool, default False
        There are no labels.
    weights : array_like of shape (n,), path-like, str or int, optional
        Of delimited text and Parquet a column by name or number; else weights or a path to them (.npy, or text with one
        per line): finite, not negative, not all zero.
    sparse : bool, optional
        Keep rows as CSR; by default SciPy matrices are kept so, and SVMlight when less than a tenth of the values are
        stored. Explicit zeros are dropped then, and counted.
    only : label or sequence of labels, optional
        Keep rows with these labels.
    append : bool, default False
        Add to a store that exists.
    overwrite : bool, default False
        Replace a store that exists.
    dtype : {"float32", "float64"}, optional
        Of a new store, float32 by default; an append follows the store, here and in the next two.
    compression : {"none", "lz4", "zstd", "auto"}, optional
        Of a new store's chunks, none by default.
    chunk_bytes : int, optional
        Size of a new store's chunks.
    format : str, optional
        Kind of the files; overrides name and content.
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
    dry_run : bool, default False
        Read the beginning and say what would be written.
    on_progress : callable, optional
        Called with a ``Progress`` after every batch.

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
    path = usable_path(store)
    _check_options(
        path, labels=labels, label=label, unlabelled=unlabelled, only=only, append=append, overwrite=overwrite
    )
    base = Store.open(path) if append else None
    dtype = _store_dtype(base, dtype, compression, chunk_bytes)
    labels = _companions(source, format) if labels is None and not unlabelled else labels
    column, weight_stream = _weights(source, format, weights)
    options = SourceOptions(
        format=format,
        label=label,
        drop=_several(drop),
        delimiter=delimiter,
        header=header,
        features=features if base is None or features is not None else _svmlight_features(source, format, base),
        zero_based=zero_based,
        unlabelled=unlabelled or labels is not None,
        weights=column,
    )
    rows = open_rows(source, options, on_progress)
    vocabulary = Vocabulary(base.classes if base else ())
    stream = None if labels is None else LabelStream(labels, vocabulary)
    separate = SeparateInputs(stream, weight_stream)
    _check_fit(rows, separate, base, unlabelled=unlabelled)
    ingest_pass = IngestPass(
        rows,
        separate,
        vocabulary,
        np.dtype(dtype),
        None if only is None else _several(only),
        sparse=_kept_sparse(rows, base, sparse),
    )
    if dry_run:
        deque(islice(ingest_pass.batches(), DRY_BATCHES), maxlen=0)
    else:
        shape = (dtype, compression or "none", chunk_bytes or CHUNK_BYTES)
        writer = StoreWriter.append(path) if append else _new(path, ingest_pass, shape, overwrite=overwrite)
        _write(ingest_pass, writer, on_progress)
    return report_of(ingest_pass, path, base, dtype, time.perf_counter() - started)


def _several(words: Sequence[Label] | Label) -> tuple[Any, ...]:
    """A tuple of what may be one word: a text is no sequence of letters here."""
    return (words,) if isinstance(words, str | int | float) else tuple(words)


def _new(path: Path, ingest_pass: IngestPass, shape: tuple[str, str, int], *, overwrite: bool) -> StoreWriter:
    dtype, compression, chunk_bytes = shape
    return StoreWriter.create(
        path,
        features=ingest_pass.source.features,
        sparse=ingest_pass.sparse,
        weighted=ingest_pass.weight_from is not None,
        dtype=dtype,
        chunk_bytes=chunk_bytes,
        compression=compression,
        overwrite=overwrite,
    )


def _write(ingest_pass: IngestPass, writer: StoreWriter, on_progress: OnProgress | None) -> None:
    with writer:  # commits at the end, unless an exception leaves it
        for batch in ingest_pass.batches():
            for rows, labels, weights in _cut(batch, ingest_pass.labels_of(batch), dense=not ingest_pass.sparse):
                writer.write(rows, labels, weights, origin=batch.origin)
            if on_progress is not None:
                on_progress(
                    Progress("writing", ingest_pass.read, ingest_pass.done_bytes, ingest_pass.source.total_bytes)
                )


def _cut(batch: Batch, labels: np.ndarray | None, *, dense: bool) -> Iterator[tuple[Any, Any, Any]]:
    """Rows, labels and weights; sparse rows that are to become dense in parts that fit in memory when they are."""
    step = batch_rows(int(batch.rows.shape[1])) if dense and is_sparse(batch.rows) else batch.count
    for start in range(0, batch.count, step):
        part = slice(start, start + step)
        yield (
            batch.rows[part],
            None if labels is None else labels[part],
            None if batch.weights is None else batch.weights[part],
        )


def _check_options(
    path: Path, *, labels: Any, label: Any, unlabelled: bool, only: Any, append: bool, overwrite: bool
) -> None:
    if labels is not None and (label is not None or unlabelled):
        raise UsageError("--labels goes with neither --label nor --unlabelled: choose one")
    if unlabelled and (label is not None or only is not None):
        raise UsageError("--unlabelled goes with neither --label nor --only: choose one")
    if append and overwrite:
        raise UsageError("--append goes not with --overwrite: choose one")
    if only is not None and not _several(only):
        raise UsageError("--only names no label: expected at least one")
    if is_there(path) and not (append or overwrite):
        raise UsageError(f"{path}: exists already: say --append to add rows, or --overwrite to replace it")


def _store_dtype(base: Store | None, dtype: str | None, compression: str | None, chunk_bytes: int | None) -> str:
    """The dtype of the store to write; an append takes it from the store and refuses another one."""
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    if base is None:
        return dtype or "float32"
    if dtype is not None and np.dtype(dtype) != base.dtype:
        raise UsageError(f"{base.name}: holds {base.dtype}, found --dtype {dtype}: leave the option out when appending")
    if compression is not None or chunk_bytes is not None:
        raise UsageError(f"{base.name}: compression and chunk size are fixed: leave these options out when appending")
    return str(base.dtype)


def _companions(source: Any, wanted: str | None) -> list[Path] | None:
    """The label files beside ``X.npy`` files; None for sources that carry their labels themselves."""
    kinds = kinds_of(source, wanted)
    if kinds is not None and not {kind for _, kind in kinds} <= {"npy", "npz"}:
        return None
    if kinds is None:
        raise LabelError("labels are missing: expected one per row; give labels=..., or say unlabelled=True")
    found = [companion(path) for path, _ in kinds]
    for (path, _), separate in zip(kinds, found, strict=True):
        if separate is None:
            raise LabelError(
                f"{path}: labels are missing: expected them in --labels FILE, or in y.npy beside X.npy; or --unlabelled"
            )
    return [separate for separate in found if separate is not None]


def _svmlight_features(source: Any, wanted: str | None, base: Store) -> int | None:
    kinds = kinds_of(source, wanted)
    return base.features if kinds and kinds[0][1] == "svmlight" else None


def _weights(source: Any, wanted: str | None, weights: Any) -> tuple[str | int | None, WeightStream | None]:
    """The column that holds the weights, or what reads them from beside the rows."""
    if weights is None:
        return None, None
    kinds = {kind for _, kind in kinds_of(source, wanted) or ()}
    if kinds & {"csv", "parquet"} and isinstance(weights, str | int):
        return weights, None
    return None, WeightStream(weights)


def _kept_sparse(rows: RowSource, base: Store | None, wanted: bool | None) -> bool:
    """Whether the store keeps rows as CSR; an append follows the store."""
    if base is not None:
        if wanted is not None and wanted != base.sparse:
            kind = "sparse" if base.sparse else "dense"
            raise UsageError(f"{base.name}: its rows are {kind}: leave --sparse and --dense out when appending")
        return base.sparse
    return rows.sparse if wanted is None else wanted


def _check_fit(rows: RowSource, separate: SeparateInputs, base: Store | None, *, unlabelled: bool) -> None:
    """Refuse before the first row is read what can be refused."""
    labels, weights = separate
    if weights is not None and weights.length is not None and rows.rows is not None and weights.length != rows.rows:
        raise lengths_differ(rows.name, rows.rows, weights.name, weights.length, "weights")
    weighted = weights is not None or rows.weight_from is not None
    if base is not None and weighted != base.weighted:
        text = "has weights: say --weights" if base.weighted else "has none: leave --weights out"
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
