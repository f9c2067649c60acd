"""Rows similar to examples, about which a campaign asks first: they may well be of a rare class.

The similarity of a row x to examples e_1, ..., e_m is the mean of their cosines, x.v / ||x|| with v the mean of the
e_i / ||e_i||, of rows as they are stored, in float64; that of a row of zeros is 0. One scan of all rows finds it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.view import columns_of
from coremargin.errors import DataError, UsageError
from coremargin.formats.column_kinds import Texts
from coremargin.formats.local_path import local_path
from coremargin.maths.rows import as_float64, lengths
from coremargin.models.decision import PlaneScorer
from coremargin.models.executor import probe_in_order
from coremargin.models.rows import rows_in_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.data.store import Store
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Block

#: Rows that are asked about first.
FIRST = 10
#: Examples, at most: all are held in memory.
MOST_EXAMPLES = 10_000


@dataclass(frozen=True)
class _MostSimilar:
    """The probe: ids and similarities of the rows of each chunk of a block that are the most similar."""

    scorer: PlaneScorer
    most: int

    def __call__(self, source: Source, block: Block) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        return [self._of(source, chunk) for chunk in block.chunks]

    def _of(self, source: Source, chunk: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        rows, first = source.read(chunk)[0], source.span(chunk)[0]
        size, weights = lengths(rows), source.weights(chunk)
        values = self.scorer.values(rows, lambda row: f"{source.name}, row {first + row}")
        similar = np.divide(values, size, out=np.zeros(len(size)), where=size > 0)
        places = np.arange(len(size)) if weights is None else np.flatnonzero(weights > 0)
        places = places[np.argsort(-similar[places], kind="stable")[: self.most]]
        return places + first, similar[places]


def similar_rows(store: Store, examples: Any, cluster: Cluster = None, most: int = FIRST) -> list[int]:
    """The rows of positive weight that are the most similar to examples, the most similar first; ties by number.

    examples: numbers of rows of the store, or a path or table of rows as ``ingest`` takes them; of a store that was
    made of a column of texts also a file of texts, one a line, with the suffix .txt.
    Raises UsageError for other examples, and DataError for rows that do not fit the store or have no direction.
    """
    rows, where = _read_examples(store, examples)
    size = lengths(rows)
    if not size.all():
        raise DataError(
            f"{where}, row {int(np.argmin(size)):,}: expected a row with values, found zeros only; leave it out"
        )
    direction = np.asarray((1.0 / size) @ rows).ravel() / len(size)
    if not np.linalg.norm(direction) > 1e-9:
        raise DataError(f"{where}: the directions of these rows cancel, so that no row is similar to all; give fewer")
    ids, similar = np.zeros(0, np.int64), np.zeros(0)
    with probe_in_order(store, _MostSimilar(PlaneScorer((direction,), (0.0,)), most), cluster) as found:
        for part_ids, part_similar in (part for block in found for part in block):
            ids, similar = np.concatenate([ids, part_ids]), np.concatenate([similar, part_similar])
            best = np.argsort(-similar, kind="stable")[:most]
            ids, similar = ids[best], similar[best]
    return [int(row) for row in ids]


def _read_examples(store: Store, examples: Any) -> tuple[Any, str]:
    """Rows (m, d) float64, dense or csr_array, and what they are called in messages."""
    if isinstance(examples, Sequence) and not isinstance(examples, str | bytes):
        ids = np.array(_checked_ids(store, examples), np.int64)
        return store.rows_at(ids)[0], f"like: {store.name}"
    columns = columns_of(store)
    where, given = "like", examples
    if isinstance(examples, str | os.PathLike):
        where = str(examples)
        if Path(examples).suffix == ".txt":
            given = _table_of_texts(store, local_path(examples))
    with rows_in_columns(given, columns, store.features, str(store.dtype), "the store") as found:
        if found.features != store.features:
            raise DataError(
                f"{where}: expected rows of {store.features:,} features as in the store, found {found.features:,}"
            )
        if not 0 < found.rows <= MOST_EXAMPLES:
            raise UsageError(f"{where}: expected 1 to {MOST_EXAMPLES:,} rows as examples, found {found.rows:,}")
        rows = found.rows_at(np.arange(found.rows))[0]
    return as_float64(rows), where


def _checked_ids(store: Store, ids: Sequence[Any]) -> list[int]:
    if not 0 < len(ids) <= MOST_EXAMPLES:
        raise UsageError(f"like: expected 1 to {MOST_EXAMPLES:,} rows as examples, found {len(ids):,}")
    for row in ids:
        whole = isinstance(row, int | np.integer) and not isinstance(row, bool)
        if not whole or not 0 <= row < store.rows:
            raise UsageError(f"like: expected numbers of rows from 0 to {store.rows - 1:,}, found {row!r}")
    return [int(row) for row in ids]


def _table_of_texts(store: Store, file: Path) -> Any:
    """The lines of a file as the column of texts that a store was made of."""
    import pyarrow as pa

    columns = columns_of(store)
    if columns is None or [type(column) for column in columns.columns] != [Texts]:
        raise UsageError(
            f"{file}: a file of texts needs a store that was made of one column of texts (`coremargin ingest --text "
            f"COLUMN`); give rows of {store.features:,} numbers, or numbers of rows"
        )
    try:
        lines = [line for line in file.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: expected texts in UTF-8, one a line; cannot be read: {error}") from None
    if not lines:
        raise UsageError(f"{file}: expected texts, one a line, found none")
    return pa.table({columns.columns[0].name: lines})
