"""Files of answers and questions, and files that answer in place of a person."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coremargin.active.answers import Annotation
from coremargin.data.files import output_errors
from coremargin.data.labels import label_from_text, label_from_value
from coremargin.data.sources.numpy_files import is_npy, map_npy
from coremargin.data.sources.sidecars import parse_labels
from coremargin.data.store import Store
from coremargin.errors import DataError, OutputError, UsageError
from coremargin.formats.current_answers import same
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import cut, read_object

if TYPE_CHECKING:
    from coremargin.active.queried_rows import Question


Kind = Literal["csv", "jsonl", "parquet"]
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")


def kind_of(path: Path) -> Kind:
    """The format of a file, by its name."""
    return "jsonl" if path.suffix in JSON_LINES else "parquet" if path.suffix in PARQUET else "csv"


def write_table(
    path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type], kind: Kind | None = None
) -> None:
    """Write rows to a new file. columns: the type of the values by column name; a value may be missing.

    kind: the file format; None: by its name. JSON lines have the keys of their rows. Raises OutputError if the file
    exists: none is overwritten.
    """
    makers = {"csv": _csv_bytes, "jsonl": _json_bytes, "parquet": _parquet_bytes}
    data = makers[kind or kind_of(path)](rows, columns)
    with output_errors(path), open(path, "xb") as file:
        file.write(data)


def _json_bytes(rows: Sequence[Mapping[str, Any]], _: Mapping[str, type]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv_bytes(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type]) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return file.getvalue().encode()


def _parquet_bytes(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {int: pa.int64(), str: pa.string()}
    arrays = {name: pa.array([_as(kind, row.get(name)) for row in rows], kinds[kind]) for name, kind in columns.items()}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), sink)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _as(kind: type, value: Any) -> Any:
    return value if value is None else kind(value)


def parquet_batches(path: Path, needed: Sequence[str], wanted: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """The rows of a Parquet file, in batches. needed: columns that it must have; wanted: columns that it may have.

    Raises DataError, UsageError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise UsageError(f"{path}: expected a Parquet file, found none there; give its path")
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if not set(needed) <= set(names):
                raise DataError(
                    f"{path}: expected columns {' and '.join(needed)}, found {', '.join(names)}; rename them"
                )
            for batch in file.iter_batches(columns=[*needed, *(one for one in wanted if one in names)]):
                yield batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: expected Parquet, cannot be read: {error}; get a whole copy") from error


LARGEST = 1 << 31  #: bytes of a file of answers
_DELIMITERS = ",;\t"
DIGITS = 20  #: most digits of a row number
COLUMNS = {"row": int, "why": str, "attempt": int, "label": str, "action": str}

Oracle = Callable[[Sequence[int]], Mapping[int, Any]]  #: labels of some of the rows, by row


def read_answers_of(path: Path) -> list[Annotation]:
    """The answers in a CSV, JSONL or Parquet file with the columns of ``write_questions``; rows without a label are
    skipped.

    Raises DataError that names the line.
    """
    if path.suffix in PARQUET:
        lines = _parquet_lines(path)
    else:
        text = _text(path)
        lines = _json_lines(text, path) if path.suffix in JSON_LINES else _csv_lines(text, path)
    found = []
    for place, values in lines:
        action: Any = values.get("action") or "label"
        label = values.get("label")
        missing = label is None or (isinstance(label, str) and not label.strip())
        if missing and action in ("label", "correct"):
            continue
        found.append(Annotation(_row_number(values.get("row"), place), None if missing else label, action, place))
    return found


def refuse_taken(path: Path, campaign: Path) -> None:
    """Raises UsageError if the file exists, as it may hold answers; OutputError if the folder cannot be written.

    campaign: its folder, for the message.
    """
    if os.path.lexists(path):
        raise UsageError(
            f"{path}: expected no file for the questions yet, found one, which may hold answers; take them with "
            f"`coremargin active tell {campaign} {path}`, or choose another name"
        )
    with output_errors(path), TemporaryFile(dir=path.parent):  # a folder that can be written to
        pass


def write_questions(path: Path, questions: Iterable[Question], kind: Kind | None = None) -> None:
    """Write questions for people to fill in. kind: the file format; None: by its name. Raises OutputError."""
    rows = [{"row": one.row, "why": one.why, "attempt": one.attempt, "label": None} for one in questions]
    write_waiting(lambda: write_table(path, rows, COLUMNS, kind))


def write_waiting(write: Callable[[], object]) -> None:
    """Write questions that are already recorded as asked. Raises OutputError with the command that repeats them."""
    try:
        write()
    except OutputError as error:
        raise OutputError(f"{error}; the questions wait: `coremargin active ask --again --to` another file") from error


def oracle_of(path: Path, *rows: int) -> Oracle:
    """An oracle that answers from a file: a store with labels; CSV, JSONL or Parquet of row and label; or one label per
    row, as text or NPY. Raises DataError, UsageError.

    rows: the numbers of rows of the campaign's commit and of the store's last commit.
    """
    if path.is_dir():
        return _store_oracle(Store.open(path))
    if is_npy(path):
        return _array_oracle(map_npy(path), path, rows)
    text = "" if path.suffix in PARQUET else _text(path)
    if path.suffix in (*PARQUET, *JSON_LINES, ".csv", ".tsv") or _delimiter(text) is not None:
        return _oracle_of_rows(((one.place, one.row, one.label) for one in read_answers_of(path)), rows)
    lines = text.split("\n")  # not splitlines: labels may contain its other line ends
    while lines and not lines[-1].strip():
        lines.pop()
    found = list(parse_labels(lines))
    _one_a_row(len(found), rows, path)
    return _oracle_of_rows(
        ((f"{path}, line {line + 1}", row, label_from_text(label)) for row, (line, label) in enumerate(found)), rows
    )


def _oracle_of_rows(found: Iterable[tuple[str, int, Any]], rows: Sequence[int]) -> Oracle:
    """An oracle of (place in the file, row, label)."""
    labels = dict[int, Any]()
    for place, row, label in found:
        if not 0 <= row < max(rows):
            raise DataError(
                f"{place}: expected a row from 0 to {max(rows) - 1:,}, found {row:,}; is it another store's file?"
            )
        if label is not None and not _agree(labels.setdefault(row, label), label):
            raise DataError(
                f"{place}: row {row:,}: expected {labels[row]!r} as before, found {cut(repr(label))}; leave one out"
            )
    return lambda asked: {row: labels[row] for row in asked if row in labels}


def _agree(first: Any, second: Any) -> bool:
    """Whether two texts are spellings of one label."""
    one, other = (label_from_text(label) if isinstance(label, str) else label for label in (first, second))
    return same(one, other)


def _one_a_row(found: int, rows: Sequence[int], path: Path) -> None:
    if found not in rows:
        wanted = " or ".join(f"{many:,}" for many in sorted(set(rows)))
        raise DataError(
            f"{path}: expected a label for each of the {wanted} rows, found {found:,}; give those of this store, or a "
            "table with the columns row and label"
        )


def _store_oracle(store: Store) -> Oracle:
    if not store.classes:
        raise DataError(f"{store.name}: expected a store with labels to answer from, found none; give another file")

    def answer(rows: Sequence[int]) -> dict[int, Any]:
        known = [row for row in rows if row < store.rows]
        codes = {row: int(store.labels(row // store.chunk_rows)[row % store.chunk_rows]) for row in known}
        return {row: store.classes[code] for row, code in codes.items() if code >= 0}

    return answer


def _array_oracle(values: np.ndarray, path: Path, rows: Sequence[int]) -> Oracle:
    if values.ndim == 2 and values.shape[1] == 2:
        places = (f"{path}, pair {k}" for k in range(len(values)))
        pairs = zip(places, values, strict=False)
        return _oracle_of_rows(
            ((at, _row_number(row, at), label_from_value(label)) for at, (row, label) in pairs), rows
        )
    if values.ndim != 1:
        raise DataError(
            f"{path}: expected labels (rows,) or pairs of row and label (m, 2), found shape {values.shape}; convert it"
        )
    _one_a_row(len(values), rows, path)
    return lambda asked: {
        row: label for row in asked if row < len(values) and (label := label_from_value(values[row])) is not None
    }


def _parquet_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    for batch in parquet_batches(path, ("row", "label"), ("action",)):
        for values in batch:
            number += 1
            yield f"{path}, line {number}", {**values, "label": label_from_value(values["label"])}


def _text(path: Path) -> str:
    try:
        return read_plain(path, LARGEST).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: expected a file of labels, found nothing there; give its path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8, found something else at byte {error.start}") from error


def _delimiter(text: str) -> str | None:
    """The separator of a table with the columns row and label; None if the text is no such table."""
    head = text.split("\n", 1)[0]
    for mark in _DELIMITERS:
        names = {name.strip().strip('"').lower() for name in head.split(mark)}
        if {"row", "label"} <= names:
            return mark
    return None


def _csv_lines(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    mark, skipped = _delimiter(text), 0
    if mark is None and text.lower().startswith("sep="):  # as Excel writes it
        text, skipped = text.split("\n", 1)[-1], 1
        mark = _delimiter(text)
    if mark is None:
        raise DataError(
            f"{path}, line 1: expected a head with the columns row and label, separated by a comma, a semicolon or a "
            "tab, found none; add it"
        )
    _check_line_end(text, path)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    try:
        names = [name.strip().lower() for name in reader.fieldnames or ()]
        if len(set(names)) < len(names):
            raise DataError(f"{path}, line 1: expected different columns, found {cut(', '.join(names))}; rename one")
        for values in reader:
            within = sum(str(value).count("\n") for value in values.values())
            place = f"{path}, line {reader.line_num + skipped - within}"  # where the record begins
            if None in values or None in values.values():
                found = "more" if None in values else "fewer"
                wanted = len(reader.fieldnames or ())
                raise DataError(f"{place}: expected {wanted} columns as in the head, found {found}; correct the line")
            yield place, {name.strip().lower(): value for name, value in values.items()}
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num + 1}: cannot be read: {error}; correct the line") from error


def _json_lines(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{path}, line {number}"
            values = {name.strip().lower(): value for name, value in read_object(line.encode(), place).items()}
            if "row" not in values or not {"label", "action"} & set(values):
                found = ", ".join(values) or "none"
                raise DataError(f"{place}: expected the keys row and label, found {cut(found)}; correct the line")
            yield place, values


def _check_line_end(text: str, path: Path) -> None:
    """Raises DataError if the last line has no line end: its label may be truncated."""
    if not text.endswith("\n"):
        raise DataError(
            f"{path}, line {text.count(chr(10)) + 1}: expected the end of the line, found the end of the file: it may "
            "be half a line; write the rest of it, with a line feed at its end"
        )


def _row_number(value: Any, place: str) -> int:
    """The number of a row. Raises DataError."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():  # of pairs, whose labels are such
        return int(value)
    text = str(value).strip() if isinstance(value, str) else ""
    whole, point, zeros = text.partition(".")
    if point and not zeros.strip("0"):  # as programs write a column of numbers with gaps
        text = whole
    if text.isascii() and text.isdigit() and len(text) <= DIGITS:
        return int(text)
    raise DataError(f"{place}: row: expected a whole number, found {cut(repr(value))}; correct the line")
