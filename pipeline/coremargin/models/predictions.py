"""Files of predictions: labels and decision values for every row of a store, in a Zarr group or a Parquet file.

::

    name.zarr/                attributes: format, version, rows, classes (negative, positive), model, source digest
      code                    (n,) int32: 0 the negative class, 1 the positive one; ``classes[code]`` is the label
      decision                (n,) float64: w.x + b; of more than two classes, that of the class that is given
      label                   (n,) the label itself, where labels are numbers; texts are decoded by ``classes``

    name.parquet              columns row, label (decoded), code, decision; the attributes above as metadata

The output appears under its name when all of it is on disk; memory does not grow with the store.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.files import output_errors, put_in_place, sync_folder, write_json, write_whole
from coremargin.data.folder import refuse, replacing
from coremargin.data.owned import Kind
from coremargin.data.plain import array_metadata, group_metadata
from coremargin.errors import UsageError
from coremargin.formats.raw_array import CRC_BYTES
from coremargin.models.decision import label_array

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel

FORMAT = "coremargin-predictions"
VERSION = 1
_CHUNK_ROWS = 1 << 20  # 8 MiB of decision values
_COLUMNS = ("row", "label", "code", "decision")
#: The Zarr group.
PREDICTIONS = Kind(
    what="a group of predictions",
    records={"zarr.json": FORMAT},
    files=r"zarr\.json|(?:code|decision|label)/(?:zarr\.json|c\.\d+)",
    folders="code|decision|label",
)


class Sink(Protocol):
    """Where predictions go."""

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows: codes (n,) int32 and decision values (n,) float64."""


def predictions(path: Path, model: AnyModel, source: Source, *, overwrite: bool) -> AbstractContextManager[Sink]:
    """Takes all rows in order; ``*.parquet`` is Parquet, any other name a Zarr group; a link leads to what is replaced.

    Raises UsageError (something is there, Parquet without pyarrow), OutputError (cannot be written).
    """
    make = _parquet if path.suffix.lower() == ".parquet" else _zarr
    return make(Path(os.path.realpath(path)), model, source, overwrite=overwrite)


class _Column:
    """A one-dimensional Zarr array that is written from batches, in chunks that appear whole."""

    def __init__(self, folder: Path, rows: int, dtype: str) -> None:
        self._folder, self._rows, self._dtype = folder, rows, np.dtype(dtype)
        self._step = min(rows, _CHUNK_ROWS)
        self._buffer = np.zeros(self._step, dtype=self._dtype.newbyteorder("<"))
        self._fill = self._next = 0
        folder.mkdir()
        fill = {"f": float("nan"), "b": False}.get(self._dtype.kind, 0)  # Zarr's booleans are JSON's
        metadata = array_metadata((rows,), (self._step,), self._dtype, fill=fill, names=("row",))
        write_json(folder / "zarr.json", metadata)

    def write(self, values: np.ndarray) -> None:
        """The next values."""
        done = 0
        while done < len(values):
            step = min(len(values) - done, self._step - self._fill)
            self._buffer[self._fill : self._fill + step] = values[done : done + step]
            self._fill, done = self._fill + step, done + step
            last = self._next * self._step + self._fill == self._rows
            if self._fill == self._step or last:
                self._buffer[self._fill :] = 0  # Zarr stores the last chunk at full size
                data = self._buffer.data.cast("B")
                write_whole(self._folder / f"c.{self._next}", [data, crc32c(data).to_bytes(CRC_BYTES, "little")])
                self._next, self._fill = self._next + 1, 0


class _ZarrSink:
    def __init__(self, folder: Path, rows: int, classes: tuple[Any, ...]) -> None:
        self._labels = label_array(classes)
        self._columns = {"code": _Column(folder / "code", rows, "int32")}
        self._columns["decision"] = _Column(folder / "decision", rows, "float64")
        if self._labels.dtype.kind in "biuf":
            self._columns["label"] = _Column(folder / "label", rows, self._labels.dtype.name)

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows."""
        self._columns["code"].write(codes)
        self._columns["decision"].write(decisions)
        if "label" in self._columns:
            self._columns["label"].write(self._labels[codes])


def _attributes(model: AnyModel, source: Source) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "rows": source.rows,
        "classes": list(model.classes),
        "model": {"status": model.status, **model.proof},
        "source": {"name": Path(source.name).name, "digest": source.digest},
    }


@contextmanager
def _zarr(path: Path, model: AnyModel, source: Source, *, overwrite: bool) -> Iterator[Sink]:
    with replacing(path, PREDICTIONS, overwrite=overwrite) as folder:
        write_json(folder / "zarr.json", group_metadata(_attributes(model, source)))
        yield _ZarrSink(folder, source.rows, model.classes)
        for column in ("code", "decision", "label"):
            if (folder / column).is_dir():
                sync_folder(folder / column)


@contextmanager
def _parquet(path: Path, model: AnyModel, source: Source, *, overwrite: bool) -> Iterator[Sink]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(
            f"{path}: Parquet needs pyarrow: pip install 'coremargin[arrow]', or write a Zarr group (NAME.zarr)"
        ) from None
    _check_old(path, overwrite=overwrite)
    labels = _arrow_labels(model.classes)
    about = {"coremargin": json.dumps(_attributes(model, source))}
    kinds = (pa.int64(), labels.type, pa.int32(), pa.float64())
    schema = pa.schema(zip(_COLUMNS, kinds, strict=True), metadata=about)
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with put_in_place(path) as aside, open(aside, "xb") as file:
            with pq.ParquetWriter(file, schema) as writer:
                yield _ParquetSink(writer, schema, labels)
            file.flush()
            os.fsync(file.fileno())
            _check_old(path, overwrite=overwrite)  # hours may have passed
        sync_folder(path.parent)


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


def _check_old(path: Path, *, overwrite: bool) -> None:
    """Raises UsageError for a Parquet file that must not be replaced, and for whatever else is there."""
    if os.path.lexists(path):
        refuse(path, "a file of predictions", [] if _is_ours(path) else ["other data"], overwrite=overwrite)


def _is_ours(path: Path) -> bool:
    """Whether a Parquet file holds predictions and nothing else: any other one is somebody's data."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not stat.S_ISREG(path.lstat().st_mode):
        return False
    try:
        with path.open("rb") as file:  # a name that is not UTF-8 is not for Arrow
            schema = pq.read_schema(file)
        about = json.loads((schema.metadata or {}).get(b"coremargin", b""))
    except (pa.ArrowException, OSError, ValueError):
        return False
    return isinstance(about, dict) and about.get("format") == FORMAT and tuple(schema.names) == _COLUMNS
