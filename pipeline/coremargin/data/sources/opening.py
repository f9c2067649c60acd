"""From what the user gave (files, patterns, arrays) to one ``RowSource``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.sources.arrays import ArrayRows, DaskRows, is_dask
from coremargin.data.sources.base import Batch, OnProgress, Progress, RowSource, SourceOptions
from coremargin.data.sources.delimited import DelimitedFile
from coremargin.data.sources.npy import NpyFile, is_npy
from coremargin.data.sources.npz import open_npz
from coremargin.data.sources.parquet import ParquetFile
from coremargin.data.sources.paths import FORMATS, expand, file_bytes, is_path, kind_from_content, kind_from_name
from coremargin.data.sources.svmlight import open_svmlight
from coremargin.data.sources.text import first_lines
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary


class Chain:
    """Several files read one after the other as one source."""

    def __init__(self, parts: Sequence[RowSource]) -> None:
        self._parts = parts
        for part in parts[1:]:
            _agree(parts[0], part)
        self.name = parts[0].name if len(parts) == 1 else f"{len(parts)} files ({parts[0].name}, ...)"
        self.features = parts[0].features
        self.label_from, self.weight_from = parts[0].label_from, parts[0].weight_from
        self.sparse = parts[0].sparse
        counts = [part.rows for part in parts]
        sizes = [part.total_bytes for part in parts]
        self.rows: int | None = None if None in counts else sum(count or 0 for count in counts)
        self.total_bytes: int | None = None if None in sizes else sum(size or 0 for size in sizes)

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """All batches of all files, in the order of the files."""
        before = 0
        for part in self._parts:
            for batch in part.batches(vocabulary):
                yield replace(batch, done_bytes=before + batch.done_bytes)
            before += part.total_bytes or 0


def open_rows(source: Any, options: SourceOptions, on_progress: OnProgress | None = None) -> RowSource:
    """The rows of ``source``: a path, a pattern, a list of these, or a NumPy, SciPy sparse or Dask array.

    SVMlight files are read once in advance to count features and rows, unless the options say both the number of
    features and the first index; ``on_progress`` hears of it.
    """
    if is_dask(source):
        return DaskRows(source, options)
    kinds = kinds_of(source, options.format)
    if kinds is None:
        return ArrayRows(source, options)
    paths = [path for path, _ in kinds]
    if "svmlight" in {kind for _, kind in kinds}:
        other = next(((path, kind) for path, kind in kinds if kind != "svmlight"), None)
        if other is not None:
            raise UsageError(f"{other[0]}: is {other[1]}, other files are svmlight: ingest them apart, with --append")
        _refuse_for_svmlight(options, paths[0])

        def on_survey(rows: int, done: int, total: int) -> None:
            if on_progress is not None:
                on_progress(Progress("first pass", rows, done, total))

        return Chain(open_svmlight(paths, options, on_survey))
    opened: dict[str, Callable[[Path, SourceOptions], RowSource]] = {
        "npy": NpyFile,
        "npz": open_npz,
        "csv": DelimitedFile,
        "parquet": ParquetFile,
    }
    return Chain([opened[kind](path, options) for path, kind in kinds])


def kinds_of(source: Any, wanted: str | None) -> list[tuple[Path, str]] | None:
    """The files of a source in order, each with its format; None when the source is an array."""
    is_list = isinstance(source, list | tuple) and len(source) > 0
    if is_path(source) or (is_list and all(is_path(item) for item in source)):
        return [(path, _kind(path, wanted)) for path in expand(source)]
    return None


def _kind(path: Path, wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in FORMATS:
            raise UsageError(f"unknown format {wanted!r}: expected one of {', '.join(FORMATS)}")
        return wanted
    file_bytes(path)
    named = kind_from_name(path)
    if named is not None:
        return named
    if is_npy(path):
        return "npy"
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            return "parquet"
    return kind_from_content(path, first_lines(path, 20))


def _refuse_for_svmlight(options: SourceOptions, path: Path) -> None:
    for option in ("label", "drop", "delimiter", "header", "weights"):
        if getattr(options, option) not in (None, ()):
            raise UsageError(f"--{option} does not apply to {path}, an SVMlight file: leave it out")


def _agree(first: RowSource, other: RowSource) -> None:
    """Files of one ingest must have the same features."""
    if other.features != first.features:
        raise DataError(
            f"{other.name}: found {other.features} features, expected {first.features} as in {first.name}; ingest "
            "files of one kind only"
        )
    names, expected = getattr(other, "feature_names", None), getattr(first, "feature_names", None)
    if names is not None and expected is not None and names != expected:
        at = next(i for i, (a, b) in enumerate(zip(names, expected, strict=True)) if a != b)
        raise DataError(
            f"{other.name}: found column {names[at]!r} where {first.name} has {expected[at]!r}; put the columns of all "
            "files in the same order"
        )
