"""Predictions in a Zarr group: arrays that any reader of Zarr opens, of any number of rows.

::

    name.zarr/                attributes: format, version, rows, classes (negative, positive), model, source digest
      code                    (n,) int32: 0 the negative class, 1 the positive one; ``classes[code]`` is the label
      decision                (n,) float64: w.x + b; of more than two classes, that of the class that is given
      label                   (n,) the label itself, where labels are numbers; texts are decoded by ``classes``
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.files import sync_folder, write_json, write_whole
from coremargin.data.folder import replacing
from coremargin.data.owned import Kind
from coremargin.data.plain import array_metadata, group_metadata
from coremargin.formats.raw_array import CRC_BYTES
from coremargin.models.decision import label_array
from coremargin.models.predictions.common import FORMAT

if TYPE_CHECKING:
    from coremargin.models.predictions.common import Sink, Subject

_CHUNK_ROWS = 1 << 20  # 8 MiB of decision values
#: Such a group.
PREDICTIONS = Kind(
    what="a group of predictions",
    records={"zarr.json": FORMAT},
    files=r"zarr\.json|(?:code|decision|label)/(?:zarr\.json|c\.\d+)",
    folders="code|decision|label",
)


@contextmanager
def zarr_group(path: Path, about: Subject, *, overwrite: bool) -> Iterator[Sink]:
    """A group that appears whole. Raises UsageError (something is there), OutputError."""
    with replacing(path, PREDICTIONS, overwrite=overwrite) as folder:
        write_json(folder / "zarr.json", group_metadata(about.attributes()))
        yield _ZarrSink(folder, about.source.rows, about.model.labels)
        for column in ("code", "decision", "label"):
            if (folder / column).is_dir():
                sync_folder(folder / column)


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
