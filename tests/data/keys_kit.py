"""Stores whose rows have keys, for tests: written in small runs, and held against a plain dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data import key_runs, plain
from coremargin.data.key_values import Keys, hashed, texts_of
from coremargin.data.row_selection import index_of
from coremargin.data.writer import StoreWriter
from coremargin.formats.columns import ColumnsRecord, plain_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from coremargin.data.store import Store

FEATURES = 3


def small_runs(put: Callable[[Any, str, Any], None], *, run: int = 64, merged: int = 8, file_bytes: int = 128) -> None:
    """Runs of few keys, in files of 16 of them: a few hundred rows are as a billion. put: as ``setattr``."""
    put(key_runs, "RUN_ROWS", run)
    put(key_runs, "_MERGE_ROWS", merged)
    put(plain, "_CHUNK_BYTES", file_bytes)


def keys_of(values: Iterable[Any], origin: str = "given") -> Keys:
    """Keys as a source gives them."""
    return Keys(hashed(texts_of(values, str)), lambda row: f"{origin}, row {row}")


def columns(key: str | None = "order") -> ColumnsRecord:
    """Three columns of numbers, and one of keys."""
    return ColumnsRecord(columns=plain_columns(["a", "b", "c"]), key=key)


def create(path: Path, **options: Any) -> StoreWriter:
    """A writer of a new store whose rows have keys."""
    return StoreWriter.create(path, features=FEATURES, columns=columns(), **options)


def put(writer: StoreWriter, values: Sequence[Any], labels: Any = None) -> None:
    """Rows of such keys; a row's numbers are its key's place."""
    rows = np.tile(np.arange(len(values), dtype=float)[:, None], FEATURES)
    writer.write(rows, ["a", "b"] * (len(values) // 2) + ["a"] * (len(values) % 2) if labels is None else labels,
                 keys=keys_of(values))  # fmt: skip


def write(writer: StoreWriter, *parts: Sequence[Any]) -> None:
    """Rows of such keys, a batch for each part, and the commit."""
    with writer:
        for values in parts:
            put(writer, values)


def found(store: Store, values: Iterable[Any]) -> list[int]:
    """The rows of keys, -1 where none has one."""
    index = index_of(store)
    assert index is not None
    rows: list[int] = index.find(hashed(texts_of(values, str))).tolist()
    return rows
