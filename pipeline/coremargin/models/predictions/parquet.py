"""Predictions in a Parquet file: columns row, label (decoded), code, decision; what they are as its metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from coremargin.models.decision import label_array
from coremargin.models.output_file import whole_file
from coremargin.models.predictions.common import COLUMNS, FORMAT, WHAT

if TYPE_CHECKING:
    from coremargin.formats.location import Location
    from coremargin.models.predictions.common import Sink, Subject


@contextmanager
def parquet(path: Path | Location, about: Subject, *, overwrite: bool) -> Iterator[Sink]:
    """A file that appears whole. Raises UsageError (something is there), OutputError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = _arrow_labels(about.model.labels)
    metadata = {"coremargin": json.dumps(about.attributes())}
    kinds = (pa.int64(), labels.type, pa.int32(), pa.float64())
    schema = pa.schema(zip(COLUMNS, kinds, strict=True), metadata=metadata)
    with whole_file(path, WHAT, _is_ours, overwrite=overwrite) as file, pq.ParquetWriter(file, schema) as writer:
        yield _ParquetSink(writer, schema, labels)


def _arrow_labels(classes: tuple[Any, ...]) -> Any:
    """The labels as an Arrow array; as texts where they have no common type: kinds or ranges that differ."""
    import pyarrow as pa

    kind = label_array(classes).dtype.kind
    if kind == "O":
        return pa.array([str(label) for label in classes])
    return pa.array(list(classes), type=pa.uint64() if kind == "u" else None)


class _ParquetSink:
    def __init__(self, writer: Any, schema: Any, labels: Any) -> None:
        self._writer, self._schema, self._labels, self._row = writer, schema, labels, 0

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows."""
        import pyarrow as pa

        rows = np.arange(self._row, self._row + len(codes), dtype=np.int64)
        self._row += len(codes)
        columns = [pa.array(rows), self._labels.take(pa.array(codes)), pa.array(codes), pa.array(decisions)]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))


def _is_ours(file: BinaryIO) -> bool:
    """Whether a Parquet file holds predictions and nothing else: by its metadata and its columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)  # from the open file: a name that is not UTF-8 is not for Arrow
        about = json.loads((schema.metadata or {}).get(b"coremargin", b""))
    except (pa.ArrowException, OSError, ValueError, RecursionError):
        return False
    return isinstance(about, dict) and about.get("format") == FORMAT and tuple(schema.names) == COLUMNS
