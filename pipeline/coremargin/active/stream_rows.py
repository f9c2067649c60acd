"""Rows of a stream, in batches of a fixed number: from pipes, files, and folders to which files are added.

A batch does not depend on how its bytes arrive, and ends where a file ends. So a source that begins again gives the
same batches, and a state between two of them can be continued from: what was seen is read again and compared by a hash,
whole files by their size and time.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coremargin.data.labels import LabelCoder
from coremargin.data.sources.column_choice import choose_columns, find_column, is_label_name
from coremargin.data.sources.files import find_files, list_data_files
from coremargin.data.sources.options import SourceOptions
from coremargin.data.sources.text import is_number
from coremargin.data.tables.arrow import ArrowTable
from coremargin.data.tables.rows import TableRows, columns_by_type
from coremargin.errors import BadRow, DataError, UsageError, raise_if_limit
from coremargin.formats.strict_json import cut

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord

PIPE = "-"  #: standard input
FORMATS = ("csv", "parquet")
_READ_BYTES = 1 << 18
_LONGEST_LINE = 64 << 20
_AHEAD = 2  # batches of each source that wait to be taken
_POLL_S = 1.0
_ARROW = b"\xff\xff\xff\xff"  # how a stream of Arrow's begins


class SeenFile(NamedTuple):
    """A file whose rows were all seen: its name, size and time of change."""

    name: str
    size: int
    changed: int


@dataclass(frozen=True)
class Position:
    """How far a source was read.

    files: that were read whole. batches: of the one that was not; chain: the hash of their rows and labels; current:
    its name, "" of a pipe. ended: the source has no more rows.
    """

    files: tuple[SeenFile, ...] = ()
    batches: int = 0
    chain: str = ""
    ended: bool = False
    current: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: getattr(self, name) for name in ("files", "batches", "chain", "ended", "current")}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Position:
        """Inverse of ``to_dict``."""
        return cls(**{**found, "files": tuple(SeenFile(*one) for one in found["files"])})


@dataclass(frozen=True)
class LabelledBatch:
    """Rows (m, d); labels, None for rows without one, or None where the source has none; names of the features (d,);
    the position after them.
    """

    rows: np.ndarray
    labels: list[Any] | None
    features: tuple[str, ...]
    position: Position


@dataclass(frozen=True)
class StreamOptions:
    """How rows are read: the column of their labels, columns to leave out, and how delimited text is written.

    size: rows of a batch. header: None: where the first line has no number. follow: wait for further files.
    """

    label: str | int | None = None
    drop: tuple[str | int, ...] = ()
    delimiter: str = ","
    header: bool | None = None
    size: int = 1000
    follow: bool = False


@dataclass
class StreamSource:
    """A pipe, a file, or a folder, by its name.

    continued: a pipe goes on after the rows that were seen, instead of beginning with them again. columns: of the first
    file, which all others must have.
    """

    name: str
    options: StreamOptions
    position: Position
    continued: bool = False
    columns: ColumnsRecord | None = None

    @property
    def is_pipe(self) -> bool:
        """Whether what is read cannot be read again."""
        return self.name == PIPE or (Path(self.name).exists() and _is_pipe(os.stat(self.name).st_mode))

    # batches

    def batches(self) -> Iterator[LabelledBatch]:
        """Batches after the position, the last one without rows. Raises DataError: seen rows are others by now."""
        for name in self._names():
            seen = SeenFile(name, *self._identity(name))
            skipped, chain = (0, "") if self.continued else (self.position.batches, self.position.chain)
            known, number = "", 0
            for rows, labels in self._sized(name):
                known, number = _chained(known, rows, labels), number + 1
                if number == skipped and known != chain:
                    self._refuse_others(name)
                if number > skipped:
                    current = "" if self.is_pipe else name
                    self.position = Position(self.position.files, number, known, current=current)
                    yield LabelledBatch(rows, labels, self._features, self.position)
            if number < skipped:
                self._refuse_others(name)
            if SeenFile(name, *self._identity(name)) != seen:
                raise DataError(f"{name}: was changed while it was read; write files elsewhere, and move them here")
            self.continued = False
            if not self.is_pipe:
                self.position = Position((*self.position.files, seen))
        self.position = replace(self.position, ended=True)
        yield LabelledBatch(np.zeros((0, 0)), None, self._features, self.position)

    @property
    def _features(self) -> tuple[str, ...]:
        return () if self.columns is None else tuple(self.columns.features)

    def _refuse_others(self, name: str) -> None:
        raise DataError(
            f"{name}: expected the rows that were seen before, found others in the first {self.position.batches:,} "
            "batches; give the same rows again"
            + (", or say new-rows if the pipe goes on after them" if self.is_pipe else "")
        )

    def _names(self) -> Iterator[str]:
        """The pipe, or the files that were not read whole, as they appear: first the one that was begun.

        Raises DataError: a file whose rows were seen is another by now, or one that was begun is gone.
        """
        if self.is_pipe:
            yield self.name
            return
        follow, settled = self.options.follow, dict[str, SeenFile]()
        if follow and not Path(self.name).is_dir():
            raise UsageError(f"{self.name}: expected a folder to follow, found none; make it, or read without --follow")
        while True:
            done, begun = {one.name: one for one in self.position.files}, self.position.current
            present = self._present()
            for one in present:
                if done.get(one.name, one) != one:
                    raise DataError(
                        f"{one.name}: was changed after its rows were seen; restore it, and put new rows into new files"
                    )
            coming = sorted((one for one in present if one.name not in done), key=lambda one: one.name != begun)
            if begun and (not coming or coming[0].name != begun):
                raise DataError(f"{begun}: expected the file whose first rows were seen, found none; restore it")
            ready = [one for one in coming if not follow or one.name == begun or settled.get(one.name) == one]
            for one in ready[:1] if follow else ready:
                self._require_rows(one.name)
                yield one.name
            if not ready:
                if not follow:
                    return
                settled = {one.name: one for one in coming}
                time.sleep(_POLL_S)

    def _present(self) -> list[SeenFile]:
        """The files of the source."""
        if self.options.follow:
            names = [str(path) for path in list_data_files(Path(self.name))]
        else:
            found = find_files(self.name, None)
            names = [] if found is None else [str(file.path) for file in found.files]
        seen = list[SeenFile]()
        for name in names:
            try:
                seen.append(SeenFile(name, *self._identity(name)))
            except FileNotFoundError:  # it is gone since the folder was listed
                continue
        return seen

    def _require_rows(self, name: str) -> None:
        """Raises UsageError unless a file is CSV or Parquet."""
        found = find_files(Path(name), None)
        if found is not None and (other := next((one for one in found.files if one.format not in FORMATS), None)):
            raise UsageError(f"{other.path}: is {other.format}, expected CSV or Parquet in a stream; convert it")

    def _identity(self, name: str) -> tuple[int, int]:
        if self.is_pipe:
            return 0, 0
        found = os.stat(name)
        return found.st_size, found.st_mtime_ns

    # rows

    def _sized(self, name: str) -> Iterator[tuple[np.ndarray, list[Any] | None]]:
        """Rows and labels of a file, ``size`` at a time."""
        rows, labels, size = list[np.ndarray](), list[Any](), self.options.size
        for more, own in self._rows(name):
            rows.append(more)
            labels += own or ()
            if sum(map(len, rows)) < size:
                continue
            whole, first = np.concatenate(rows), 0
            for first in range(0, len(whole) - size + 1, size):
                yield whole[first : first + size].copy(), None if own is None else labels[first : first + size]
            rows, labels = [whole[first + size :].copy()], labels[first + size :]
        if last := [part for part in rows if len(part)]:
            yield np.concatenate(last), labels or None

    def _rows(self, name: str) -> Iterator[tuple[np.ndarray, list[Any] | None]]:
        """Rows (m, d) and labels of a file, as they arrive."""
        first, coder = 0, LabelCoder()
        for table in self._tables(name):
            source = self._open(ArrowTable.of(f"{self._shown(name)} from row {first:,} on", table))
            for batch in source.batches(coder):
                codes = None if batch.codes is None else batch.codes.tolist()
                yield batch.rows, None if codes is None else [coder.classes[k] if k >= 0 else None for k in codes]
            first += len(table)

    def _open(self, table: ArrowTable) -> TableRows:
        """The rows of a table, whose columns are those of the first one. Raises UsageError, DataError."""
        options, columns = self.options, self.columns
        asked = SourceOptions(label=options.label, drop=options.drop, unlabelled=options.label is None, columns=columns)
        if columns is None:
            choice = choose_columns(table.names, table.width, asked, table.name, table.named)
            if columns_by_type(table, choice.features) is None:
                named = ", ".join(table.column_name(one) for one in choice.features[:8])
                raise UsageError(
                    f"{self._shown(self.name)}: expected columns of numbers, found other ones among {named}; name the "
                    "labels with --label, and leave others out with --drop"
                )
            like = [name for one in choice.features if is_label_name(name := table.column_name(one))]
            if options.label is None and like:
                raise UsageError(
                    f"{self._shown(self.name)}: column {like[0]!r} is called like a label; name it with --label, or "
                    "leave it out with --drop"
                )
        source = TableRows(table, asked)
        self.columns = source.columns
        return source

    def _tables(self, name: str) -> Iterator[Any]:
        """Tables of Arrow, in order, of some rows each."""
        import pyarrow as pa

        try:
            if name.endswith((".parquet", ".pq")):
                yield from _parquet_tables(name, self.options.size)
                return
            with _opened(name) as file:
                begin = _Rest(b"", file).read(len(_ARROW))
                if begin == _ARROW:
                    with pa.ipc.open_stream(_Rest(begin, file)) as reader:
                        yield from (pa.Table.from_batches([records]) for records in reader if len(records))
                else:
                    yield from self._parsed(begin, file, name)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise DataError(f"{self._shown(name)}: cannot be read: {cut(str(error))}; correct it") from error
        except OSError as error:
            raise_if_limit(error, name)
            raise DataError(f"{self._shown(name)}: cannot be read: {error.strerror or error}") from error

    def _parsed(self, begin: bytes, file: Any, name: str) -> Iterator[Any]:
        """Tables of the whole lines of delimited text, as they arrive."""
        from pyarrow import csv as arrow_csv

        names, rest, first = list[str](), begin, 0
        parse = arrow_csv.ParseOptions(delimiter=self.options.delimiter)
        while True:
            data = file.read(_READ_BYTES)
            text, feed, rest = (rest + data).rpartition(b"\n") if data else (rest, b"", b"")
            if len(rest) > _LONGEST_LINE:
                raise DataError(f"{self._shown(name)}: expected lines, found {len(rest):,} bytes without an end of one")
            if not data and text and self.is_pipe:  # half a number is a number, too
                after = f"after row {first - 1:,}" if first else "before the first row"
                raise BadRow(f"{self._shown(name)}: ended within a line, {after}; end the last line with a line break")
            text += feed
            if not names:
                text = text.lstrip(b"\r\n")  # as empty lines between rows
            if text and not names:
                names, text = self._head(text, name)
            if text:
                label = self.options.label
                texts = set() if label is None else {names[find_column(label, tuple(names), len(names), place=name)]}
                kinds = {one: "string" if one in texts | self._dropped(names) else "float64" for one in names}
                read = arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(text), 1 << 20))
                convert = arrow_csv.ConvertOptions(column_types=kinds, strings_can_be_null=True, null_values=[""])
                try:
                    table = arrow_csv.read_csv(io.BytesIO(text), read, parse, convert)
                except Exception as error:
                    if "Arrow" not in type(error).__name__:
                        raise
                    place = f"{self._shown(name)}, after row {first - 1:,}" if first else self._shown(name)
                    raise BadRow(f"{place}: {cut(str(error))}; correct the line") from error
                first += len(table)
                yield table
            if not data:
                return

    def _dropped(self, names: list[str]) -> set[str]:
        return {names[find_column(one, tuple(names), len(names), place=self.name)] for one in self.options.drop}

    def _head(self, text: bytes, name: str) -> tuple[list[str], bytes]:
        """The names of the columns, their numbers where there are none; and the lines of the rows."""
        line, _, others = text.partition(b"\n")
        try:
            fields = next(csv.reader([line.decode("utf-8-sig").rstrip("\r")], delimiter=self.options.delimiter))
        except csv.Error as error:
            raise DataError(f"{self._shown(name)}: the first line cannot be read: {error}; correct it") from error
        numbers, header = sum(map(is_number, fields)), self.options.header
        if header is None and 0 < numbers < len(fields):
            raise UsageError(
                f"{self._shown(name)}: the first line has numbers and other words ({cut(line.decode()[:80])}); say "
                "whether it holds the names of the columns: --header or --no-header"
            )
        if not (header if header is not None else numbers == 0):
            return [str(number) for number in range(len(fields))], text
        if len(set(fields)) < len(fields):
            raise DataError(f"{self._shown(name)}: expected different names of columns, found {cut(', '.join(fields))}")
        return fields, others

    def _shown(self, name: str) -> str:
        return "standard input" if name == PIPE else name


def _is_pipe(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def _opened(name: str) -> Any:
    """A file or a pipe to read from, unpacked where its name ends like a packed one's."""
    import pyarrow as pa

    if name == PIPE:
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    if _is_pipe(os.stat(name).st_mode):
        return open(name, "rb", buffering=0)
    return pa.input_stream(name, compression="detect")


class _Rest(io.RawIOBase):
    """A file whose first bytes have been read."""

    def __init__(self, begin: bytes, file: Any) -> None:
        self._begin, self._file = begin, file

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """All of so many bytes, unless the end comes first."""
        found, self._begin = self._begin[:size], self._begin[size:] if size >= 0 else b""
        while len(found) < size and (more := self._file.read(size - len(found))):
            found += more
        return found


def _parquet_tables(name: str, size: int) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(name, pre_buffer=False) as file:
        for records in file.iter_batches(batch_size=size):
            yield pa.Table.from_batches([records])


def _chained(chain: str, rows: np.ndarray, labels: list[Any] | None) -> str:
    found = hashlib.sha256(chain.encode())
    found.update(np.ascontiguousarray(rows).tobytes())
    found.update(repr(labels).encode())
    return found.hexdigest()


def read_sources(sources: Sequence[StreamSource], turn: int) -> Generator[tuple[int, LabelledBatch]]:
    """Batches of the sources in turn, from that of number ``turn`` on, each with the number of its source.

    Each source is read and parsed by a thread of its own, ahead of the batch that is taken.
    """
    readers = {number: _read_ahead(source.batches) for number, source in enumerate(sources)}
    over = {number for number, source in enumerate(sources) if source.position.ended}
    try:
        while len(over) < len(sources):
            if turn not in over:
                batch = next(readers[turn])
                if batch.position.ended:
                    over.add(turn)
                yield turn, batch
            turn = (turn + 1) % len(sources)
    finally:
        for reader in readers.values():
            reader.close()


def _read_ahead(start: Callable[[], Iterator[LabelledBatch]]) -> Generator[LabelledBatch]:
    """The batches of an iterator that a thread takes; errors are raised where their batch would come."""
    found: queue.Queue[LabelledBatch | BaseException] = queue.Queue(_AHEAD)
    closed = threading.Event()

    def put(one: LabelledBatch | BaseException) -> bool:
        while not closed.is_set():
            try:
                found.put(one, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def read() -> None:
        try:
            for batch in start():
                if not put(batch):
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised where the batches are taken
            put(error)

    def batches() -> Generator[LabelledBatch]:
        threading.Thread(target=read, name="coremargin-stream", daemon=True).start()
        try:
            while True:
                one = found.get()
                if isinstance(one, BaseException):
                    raise one
                yield one
        finally:
            closed.set()

    return batches()
