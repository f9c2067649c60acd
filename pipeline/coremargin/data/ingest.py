"""Ingest: rows from any source into a store, in bounded memory, all of them or none.

A batch is read, joined with its labels, filtered, checked value by value and written; the one commit comes at the end,
so that a bad row, a full disk or a kill leaves what was there before.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sizes import CHUNK_BYTES
from coremargin.data.sources.base import OnProgress, Progress, RowSource, SourceOptions
from coremargin.data.sources.labels import Label, LabelStream, Vocabulary
from coremargin.data.sources.npy import companion
from coremargin.data.sources.opening import kinds_of, open_rows
from coremargin.data.sources.trip import Trip, lengths_differ
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DataError, LabelError, UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

DTYPES = ("float32", "float64")
DRY_BATCHES = 16  #: what a dry run reads: well under a second, and enough to guess the rest


@dataclass(frozen=True)
class IngestReport:
    """What was written, or would be (dry run)."""

    source: str
    store: str
    rows: int  #: rows written by this ingest
    features: int
    dtype: str
    classes: dict[Label, int]  #: rows of each label, in order of first appearance
    unlabelled: int
    skipped: int  #: rows left out by ``only``
    nbytes: int  #: bytes of the rows written and their labels, uncompressed
    store_rows: int  #: rows in the store afterwards
    label_from: str | None
    seconds: float
    estimated: bool  #: a dry run has read the beginning only: rows, classes and skipped are scaled up from it


def ingest(  # noqa: PLR0913 - one word for each decision about a file, all but two with a default
    source: Any,
    store: str | os.PathLike[str],
    *,
    labels: Any = None,
    label: str | int | None = None,
    unlabelled: bool = False,
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

    source: a path, a pattern such as "part-*.csv", a list of these, or an array (NumPy, SciPy sparse, Dask) of shape
    (rows, features). Files are .npy, CSV and other delimited text, Parquet (extra ``arrow``) or SVMlight; text may be
    compressed with gzip, bzip2 or xz. ``format`` overrides what name and content say.

    labels: labels (rows,) or a path to them (.npy, or text with one per line); by default ``y.npy`` beside ``X.npy``.
    label: the label column by name or number (from 0, negative from the end); by default the one column called label,
    target, class or y, else the last. unlabelled: there are none. only: keep rows with these labels.

    append: add to a store that exists; overwrite: replace it. dtype ("float32" or "float64"), compression ("none",
    "lz4", "zstd" or "auto") and chunk_bytes shape a new store; an append follows the store.

    drop: columns to leave out; delimiter, header: of delimited text, found out by default; features, zero_based: of
    SVMlight, found out by a first pass by default. dry_run: read the beginning and say what would be written.

    Raises UsageError for options that do not fit, DataError (BadRow, LabelError) with the place of what is wrong with
    the data, OutputError when the store cannot be written.
    """
    started = time.perf_counter()
    path = Path(store)
    _check_options(
        path, labels=labels, label=label, unlabelled=unlabelled, only=only, append=append, overwrite=overwrite
    )
    base = Store.open(path) if append else None
    dtype = _store_dtype(base, dtype, compression, chunk_bytes)
    labels = _companions(source, format) if labels is None and not unlabelled else labels
    options = SourceOptions(
        format=format,
        label=label,
        drop=_several(drop),
        delimiter=delimiter,
        header=header,
        features=features if base is None or features is not None else _svmlight_features(source, format, base),
        zero_based=zero_based,
        unlabelled=unlabelled or labels is not None,
    )
    rows = open_rows(source, options, on_progress)
    stream = None if labels is None else LabelStream(labels)
    _check_fit(rows, stream, base, unlabelled=unlabelled)
    trip = Trip(
        rows,
        stream,
        Vocabulary(base.classes if base else ()),
        np.dtype(dtype),
        None if only is None else _several(only),
    )
    if dry_run:
        deque(islice(trip.batches(), DRY_BATCHES), maxlen=0)
    else:
        shape = (dtype, compression or "none", chunk_bytes or CHUNK_BYTES)
        writer = StoreWriter.append(path) if append else _new(path, rows.features, shape, overwrite=overwrite)
        _write(trip, writer, on_progress)
    return _report(trip, path, base, dtype, time.perf_counter() - started)


def _several(words: Sequence[Label] | Label) -> tuple[Any, ...]:
    """A tuple of what may be one word: a text is no sequence of letters here."""
    return (words,) if isinstance(words, str | int | float) else tuple(words)


def _new(path: Path, features: int, shape: tuple[str, str, int], *, overwrite: bool) -> StoreWriter:
    dtype, compression, chunk_bytes = shape
    return StoreWriter.create(
        path,
        features=features,
        dtype=dtype,
        chunk_bytes=chunk_bytes,
        compression=compression,
        overwrite=overwrite,
    )


def _write(trip: Trip, writer: StoreWriter, on_progress: OnProgress | None) -> None:
    with writer:  # commits at the end, unless an exception leaves it
        for batch in trip.batches():
            writer.write(batch.rows, trip.labels_of(batch), origin=batch.origin)
            if on_progress is not None:
                on_progress(Progress("writing", trip.read, trip.done_bytes, trip.source.total_bytes))


def _report(trip: Trip, path: Path, base: Store | None, dtype: str, seconds: float) -> IngestReport:
    """What the trip has counted; for a dry run that stopped early, scaled to all rows of the source."""
    scale, source = 1.0, trip.source
    if not trip.whole:
        read = (trip.read, source.rows) if source.rows is not None else (trip.done_bytes, source.total_bytes)
        scale = max(1.0, (read[1] or 0) / max(1, read[0]))
    rows = round(trip.kept * scale)
    return IngestReport(
        source=source.name,
        store=str(path),
        rows=rows,
        features=source.features,
        dtype=dtype,
        classes={label: round(count * scale) for label, count in trip.classes.items()},
        unlabelled=0 if trip.classes else rows,
        skipped=round((trip.read - trip.kept) * scale),
        nbytes=rows * (source.features * np.dtype(dtype).itemsize + 4),
        store_rows=rows + (base.rows if base else 0),
        label_from=trip.label_from,
        seconds=seconds,
        estimated=not trip.whole,
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
    if path.exists() and not (append or overwrite):
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
    if kinds is not None and {kind for _, kind in kinds} != {"npy"}:
        return None
    if kinds is None:
        raise LabelError("labels are missing: expected one per row; give labels=..., or say unlabelled=True")
    found = [companion(path) for path, _ in kinds]
    for (path, _), beside in zip(kinds, found, strict=True):
        if beside is None:
            raise LabelError(
                f"{path}: labels are missing: expected them in --labels FILE, or in y.npy beside X.npy; or --unlabelled"
            )
    return [beside for beside in found if beside is not None]


def _svmlight_features(source: Any, wanted: str | None, base: Store) -> int | None:
    kinds = kinds_of(source, wanted)
    return base.features if kinds and kinds[0][1] == "svmlight" else None


def _check_fit(rows: RowSource, labels: LabelStream | None, base: Store | None, *, unlabelled: bool) -> None:
    """Refuse before the first row is read what can be refused."""
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
