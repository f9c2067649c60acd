"""Tables that people and other programs read: CSV, JSONL or Parquet, by the name of the file or as somebody says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from coremargin.data.files import output_errors
from coremargin.errors import DataError, UsageError

Kind = Literal["csv", "jsonl", "parquet"]
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")


def kind_of(path: Path) -> Kind:
    """What a file of this name is."""
    return "jsonl" if path.suffix in JSON_LINES else "parquet" if path.suffix in PARQUET else "csv"


def write_table(
    path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type], kind: Kind | None = None
) -> None:
    """Write rows to a new file. columns: names, and of what kind their values are; a value may be missing.

    kind: of the file; None: by its name. JSON lines have the keys that their rows have. Raises OutputError where a file
    is there: nothing is ever written over one.
    """
    makers = {"csv": _csv, "jsonl": _json, "parquet": _parquet}
    data = makers[kind or kind_of(path)](rows, columns)
    with output_errors(path), open(path, "xb") as file:
        file.write(data)


def _json(rows: Sequence[Mapping[str, Any]], _: Mapping[str, type]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type]) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return file.getvalue().encode()


def _parquet(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type]) -> bytes:
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
    """The rows of a Parquet file, some at a time. needed: columns that it must have; wanted: those that it may have.

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
