"""Labels and decision values for every row of a store, chunk by chunk, into a Zarr group or a Parquet file.

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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from coremargin.data.checksum import crc32c
from coremargin.data.files import ASIDE, output_errors, sync_folder, write_json, write_whole
from coremargin.data.plain import CRC_BYTES, array_metadata, group_metadata
from coremargin.errors import DataError, OutputError, UsageError
from coremargin.learn.fleet import AnyModel, FleetModel, read_model
from coremargin.learn.folder import recover, replacing
from coremargin.learn.locked import Locked
from coremargin.learn.trained import decided, label_array

if TYPE_CHECKING:
    from coremargin.data.source import Source

FORMAT = "coremargin-predictions"
VERSION = 1
_CHUNK_ROWS = 1 << 20  # 8 MiB of decision values
_BATCH_ROWS = 1 << 17  # rows of a row group in Parquet, at least

OnProgress = Callable[[int, int], object]


@dataclass(frozen=True)
class Prediction:
    """What was written where."""

    path: Path
    rows: int
    counts: dict[Any, int]  #: rows given each label
    least: float  #: smallest |decision value|, or lead over the second class: how near a row is to another label

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        classes = [{"label": label, "rows": rows} for label, rows in self.counts.items()]
        return {"out": str(self.path), "rows": self.rows, "classes": classes, "least_distance": self.least}


class _Sink(Protocol):
    """Where predictions go."""

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows: codes (n,) int32 and decision values (n,) float64."""


def predict(
    model: AnyModel | str | os.PathLike[str],
    source: Source | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    C: float | None = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> Prediction:
    """Write label and decision value of every row of ``source`` to ``out``: ``*.parquet``, or else a Zarr group.

    model, source: opened, or paths. C: of a fleet, whose members decide. on_progress(rows done, rows in all) is called
    after each chunk.
    Raises DataError (other features, damaged store), OutputError (something is there, cannot be written), Busy (another
    job is writing there), UsageError (Parquet without pyarrow; a fleet with several values of C, none of them chosen).
    """
    model, source = opened_model(model, C), opened_rows(source)
    same_features(model, source)
    path = Path(os.path.abspath(out))
    _check_place(path, source)
    open_sink = _parquet if path.suffix.lower() == ".parquet" else _zarr
    counts: Counter[int] = Counter()
    least = np.inf
    with Locked(path, "these predictions"), open_sink(path, model, source, overwrite=overwrite) as sink:
        for decisions in _decisions(model, source, on_progress):
            codes = decided(decisions).astype(np.int32)
            sink.write(codes, decisions if decisions.ndim == 1 else decisions[np.arange(len(codes)), codes])
            counts.update(dict(enumerate(np.bincount(codes, minlength=len(model.classes)).tolist())))
            least = min(least, float(np.abs(leads(decisions, codes)).min()))
    return Prediction(path, source.rows, {label: counts[code] for code, label in enumerate(model.classes)}, least)


def _check_place(path: Path, source: Source) -> None:
    """Raises UsageError for a place in the store that is read."""
    store, real = getattr(source, "path", None), Path(os.path.realpath(path))
    if store is not None and Path(os.path.realpath(store)) in real.parents:
        raise UsageError(f"{path}: lies in the store {store}; choose another place for the predictions")


def _decisions(model: AnyModel, source: Source, on_progress: OnProgress | None) -> Iterator[np.ndarray]:
    """Decision values of all rows in order, in batches of a few chunks."""
    batch: list[np.ndarray] = []
    for chunk in range(source.chunks):
        batch.append(model.decision_function(source.read(chunk)[0]))
        if on_progress is not None:
            on_progress(source.span(chunk)[1], source.rows)
        if sum(map(len, batch)) >= _BATCH_ROWS or chunk == source.chunks - 1:
            yield np.concatenate(batch)
            batch.clear()


def opened_model(model: AnyModel | str | os.PathLike[str], C: float | None = None) -> AnyModel:
    """The model, loaded if it is a path; C: of a fleet, whose members decide. Raises UsageError without a choice."""
    found = read_model(model) if isinstance(model, str | os.PathLike) else model
    if isinstance(found, FleetModel):
        found = found if C is None else found.at(C)
        found.deciders()
    elif C is not None:
        raise UsageError("C: this model is one alone, with its own C; only of a fleet one is chosen")
    return found


def leads(decisions: np.ndarray, given: np.ndarray) -> np.ndarray:
    """How far (n,) the given classes (n,) are ahead by decision values (n,) or (n, k): negative when another is.

    Of two classes: y (w.x + b); of more: the value of the given class less the largest of the others.
    """
    if decisions.ndim == 1:
        return np.asarray(decisions * (2 * given - 1))
    rows, others = np.arange(len(given)), decisions.copy()
    others[rows, given] = -np.inf
    return np.asarray(decisions[rows, given] - others.max(axis=1))


def opened_rows(source: Source | str | os.PathLike[str]) -> Source:
    """The source, opened if it is a path."""
    if isinstance(source, str | os.PathLike):
        from coremargin.data.store import Store

        return Store.open(source)
    return source


def same_features(model: AnyModel, source: Source) -> None:
    """Raises DataError unless the rows have the model's features."""
    if source.features != model.features:
        raise DataError(
            f"{source.name}: expected rows of {model.features:,} features as the model was trained on, "
            f"found {source.features:,}; give a store with the same columns"
        )


class _Column:
    """A one-dimensional Zarr array that is written from batches, in chunks that appear whole."""

    def __init__(self, folder: Path, rows: int, dtype: str) -> None:
        self._folder, self._rows, self._dtype = folder, rows, np.dtype(dtype)
        self._step = min(rows, _CHUNK_ROWS)
        self._buffer = np.zeros(self._step, dtype=self._dtype.newbyteorder("<"))
        self._fill = self._next = 0
        folder.mkdir()
        fill = float("nan") if self._dtype.kind == "f" else 0
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
        if self._labels.dtype.kind in "bif":
            self._columns["label"] = _Column(folder / "label", rows, self._labels.dtype.name)

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows."""
        self._columns["code"].write(codes)
        self._columns["decision"].write(decisions)
        if "label" in self._columns:
            self._columns["label"].write(self._labels[codes])


def _attributes(model: AnyModel, source: Source) -> dict[str, Any]:
    proof = {"C": model.C} if isinstance(model, FleetModel) else {"certificate": model.record["certificate"]}
    return {
        "format": FORMAT,
        "version": VERSION,
        "rows": source.rows,
        "classes": list(model.classes),
        "model": {"status": model.status, **proof},
        "source": {"name": Path(source.name).name, "digest": source.digest},
    }


@contextmanager
def _zarr(path: Path, model: AnyModel, source: Source, *, overwrite: bool) -> Iterator[_Sink]:
    recover(path)
    if os.path.lexists(path):
        _check_old(path, overwrite=overwrite, ours=FORMAT in _text(path / "zarr.json"))
    with replacing(path) as folder:
        write_json(folder / "zarr.json", group_metadata(_attributes(model, source)))
        yield _ZarrSink(folder, source.rows, model.classes)
        for column in ("code", "decision", "label"):
            if (folder / column).is_dir():
                sync_folder(folder / column)


@contextmanager
def _parquet(path: Path, model: AnyModel, source: Source, *, overwrite: bool) -> Iterator[_Sink]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(
            f"{path}: Parquet needs pyarrow: pip install 'coremargin[arrow]', or write a Zarr group (NAME.zarr)"
        ) from None
    if os.path.lexists(path):
        _check_old(path, overwrite=overwrite, ours=path.is_file())
    labels = pa.array(list(model.classes)) if label_array(model.classes).dtype.kind != "O" else None
    if labels is None:  # kinds that differ have no common column type
        labels = pa.array([str(label) for label in model.classes])
    about = {"coremargin": json.dumps(_attributes(model, source))}
    names = [("row", pa.int64()), ("label", labels.type), ("code", pa.int32()), ("decision", pa.float64())]
    schema = pa.schema(names, metadata=about)
    aside = path.with_name(f".{path.name}{ASIDE}")
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(aside, "wb") as file:
                with pq.ParquetWriter(file, schema) as writer:
                    yield _ParquetSink(writer, schema, labels)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise
        sync_folder(path.parent)


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


def _check_old(path: Path, *, overwrite: bool, ours: bool) -> None:
    if not ours:
        raise OutputError(f"{path}: expected predictions or nothing, found something else there; choose another place")
    if not overwrite:
        raise OutputError(f"{path}: exists already; choose another place, or ask for it to be overwritten")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")[:4096]
    except OSError:
        return ""
