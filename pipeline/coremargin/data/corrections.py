"""Tables that say which rows of a store change, and how: a column ``row``, or one of keys, and labels or weights."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from coremargin.data.key_values import GivenKeys, Placed, column_texts, hashed, place_among
from coremargin.data.labels import MISSING, LabelCoder
from coremargin.data.row_selection import key_column
from coremargin.data.sources.column_choice import find_column, shorten
from coremargin.data.sources.files import Files
from coremargin.data.sources.opening import TableObject, close_source, open_table, resolve_source
from coremargin.data.sources.options import SourceOptions
from coremargin.data.tables.arrow_arrays import label_values
from coremargin.data.tables.values import as_numbers
from coremargin.data.weights import refused_weight
from coremargin.errors import BadRow, LabelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from coremargin.data.store import Store
    from coremargin.data.tables.table import Table, TableBatch

Part = Literal["label", "weight"]
ROW = "row"  #: the column of row ids


class Corrections(NamedTuple):
    """Row ids (m,) int64 or keys, and what the rows are to have: labels or weights, None where they are only named."""

    ids: np.ndarray | None
    keys: GivenKeys | None
    values: Any


def read_corrections(source: Any, store: Store, part: Part | None, *, new_labels: bool = False) -> Corrections:
    """What a file of CSV or Parquet, or a table in memory, says of rows of a store, all of it in memory.

    part: which column there is beside ``row``. new_labels: labels may be others than the store has.
    Raises UsageError, and DataError with the place of what cannot be read.
    """
    named = str(source) if isinstance(source, str | os.PathLike) else type(source).__name__
    source = resolve_source(source, Path(), None)
    try:
        asked = SourceOptions(unlabelled=True, label=ROW, weights=part, key=key_column(store), columns=store.columns)
        table = open_table(source, asked) if isinstance(source, Files) else source
        if isinstance(table, TableObject):
            table.reveal(asked.names)
        if table is None or not hasattr(table, "pieces"):
            found = ", ".join(sorted(source.formats)) if isinstance(source, Files) else "no columns"
            raise UsageError(f"{named}: expected CSV, Parquet or a table with a column that names rows, found {found}")
        return _read(table, store, part, new_labels=new_labels)
    finally:
        close_source(source)


def _read(table: Table, store: Store, part: Part | None, *, new_labels: bool) -> Corrections:
    by_key = _names_keys(table, store)
    name = (key_column(store) if by_key else None) or ROW
    columns = [find_column(one, table.names, table.width, place=table.name) for one in (name, part) if one]
    coder = LabelCoder(store.classes)
    known = len(coder.classes)
    ids, texts, values, places = [np.zeros(0, np.int64)], list[str](), list[np.ndarray](), list[Placed]()
    for piece in table.pieces(columns):
        batch = table.batch(piece, columns)
        if by_key:
            places.append((len(texts), batch.place))
            texts += column_texts(batch.columns[columns[0]], _beside(table, batch, columns[0]))
        else:
            ids.append(_row_ids(table, batch, columns[0], store))
        if part == "weight":
            values.append(_weights(table, batch, columns[1]))
        elif part == "label":
            text = None if store.columns is None else store.columns.text
            missing = MISSING if text is None or text.keep_default_na else ("",)
            codes = _codes(table, batch, columns[1], coder, missing)
            _refuse_others(batch, codes, coder, None if new_labels or not known else known)
            values.append(codes)
    found: Any = np.concatenate([np.zeros(0), *values])
    if part == "label":
        found = [coder.classes[code] for code in found.astype(int).tolist()]
    keys = GivenKeys(texts, hashed(texts), partial(place_among, places)) if by_key else None
    return Corrections(None if by_key else np.concatenate(ids), keys, None if part is None else found)


def _names_keys(table: Table, store: Store) -> bool:
    """Whether a table names rows by keys. Raises UsageError: by both ids and keys."""
    key, names = key_column(store), table.names or ()
    if key is None or key not in names:
        if key is not None and names and ROW not in names:
            raise UsageError(
                f"{table.name}: expected a column {key!r} of keys, or {ROW!r} of row ids, found {shorten(names)}"
            )
        return False
    if ROW in names:
        raise UsageError(
            f"{table.name}: found columns {ROW!r} and {key!r}, expected one that names rows; leave one out"
        )
    return True


def _beside(table: Table, batch: TableBatch, column: int) -> Callable[[int], str]:
    """Names a row of a batch and its column."""
    return lambda row: f"{batch.place(row)}, {table.named(column)}"


def _row_ids(table: Table, batch: TableBatch, column: int, store: Store) -> np.ndarray:
    found = as_numbers(batch.columns[column])
    bad = found.missing | (found.values != np.floor(found.values)) | (found.values < 0) | (found.values >= store.rows)
    if found.bad is not None or bad.any():
        at = int(np.argmax(bad)) if found.bad is None else found.bad
        value = batch.columns[column][at].as_py()
        raise BadRow(
            f"{batch.place(at)}, {table.named(column)}: found {str(value)[:80]!r}, expected a row id of {store.name}, "
            f"a whole number from 0 to {store.rows - 1}; correct it"
        )
    return found.values.astype(np.int64)


def _weights(table: Table, batch: TableBatch, column: int) -> np.ndarray:
    found = as_numbers(batch.columns[column])
    bad = found.missing | ~(np.isfinite(found.values) & (found.values >= 0))
    if found.bad is not None or bad.any():
        at = int(np.argmax(bad)) if found.bad is None else found.bad
        raise BadRow(f"{batch.place(at)}, {table.named(column)}: {refused_weight(float(found.values[at]))}")
    return found.values


def _codes(table: Table, batch: TableBatch, column: int, coder: LabelCoder, missing: Collection[str]) -> np.ndarray:
    values = label_values(batch.columns[column])
    if table.types is not None:
        return coder.encode_values(values, batch.place)
    return np.array(
        [
            -1 if text is None else coder.encode_text(text, batch.place(at), missing)
            for at, text in enumerate(values.tolist())
        ],
        np.int32,
    )


def _refuse_others(batch: TableBatch, codes: np.ndarray, coder: LabelCoder, known: int | None) -> None:
    """Raise LabelError for a row without a label, or with one beyond the ``known`` ones."""
    if (codes < 0).any():
        raise LabelError(
            f"{batch.place(int(np.argmin(codes)))}: found no label, expected one for every row; fill it in"
        )
    if known is not None and codes.size and codes.max() >= known:
        at = int(np.argmax(codes >= known))
        few = ", ".join(map(repr, coder.classes[: min(known, 10)])) + ", ..." * (known > 10)
        raise LabelError(
            f"{batch.place(at)}: found the label {coder.classes[codes[at]]!r}, which no row of the store has: "
            f"expected one of {few}; correct it, or say --new-labels"
        )
