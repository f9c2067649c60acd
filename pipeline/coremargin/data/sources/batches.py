"""Batches of arrays or CSR matrices from Python, with or without their labels, as one source of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.labels import label_vector
from coremargin.data.sources.arrays import ArrayRows
from coremargin.data.sources.base import refuse_options
from coremargin.data.tables.batches import is_pair
from coremargin.errors import DataError, NoRows, UsageError
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from coremargin.data.sources.base import Batch, SourceOptions
    from coremargin.data.sources.vocabulary import Vocabulary
    from coremargin.data.tables.batches import Batches
    from coremargin.formats.columns import ColumnsRecord


def is_array(batch: Any) -> bool:
    """Whether a batch is an array of two dimensions or a sparse matrix, alone or with labels."""
    rows = batch[0] if is_pair(batch) else batch
    return is_sparse(rows) or (isinstance(rows, np.ndarray) and rows.ndim == 2)


class ArrayBatches:
    """Rows of arrays or matrices, each small enough for memory; the first one says how many features there are."""

    weight_from: str | None = None
    columns: ColumnsRecord | None = None
    rows: int | None = None
    total_bytes: int | None = None

    def __init__(self, batches: Batches, options: SourceOptions) -> None:
        self.name, self._batches = batches.name, batches
        refuse_options(options, batches.name, knows=())
        first, labels = _taken(batches.first)
        self.label_from = None if labels is None else "the batches"
        if labels is not None and options.unlabelled:
            raise UsageError(f"{self.name}: labels come with the rows: leave --labels and --unlabelled out")
        self.sparse, self.features = is_sparse(first), int(first.shape[1])
        self._options = options

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """All rows in order."""
        rows = 0
        for name, batch in self._batches.named():
            found, labels = self._part(name, batch)
            start = 0
            for part in [] if found is None else found.batches(vocabulary):
                codes = None
                if labels is not None:
                    mine = labels[start : start + part.count]
                    codes = vocabulary.encode(mine, part.place)
                start += part.count
                yield replace(part, codes=codes, done_bytes=0)
            rows += start
        if not rows:
            raise NoRows(f"{self.name}: no rows: expected at least one")

    def _part(self, name: str, batch: Any) -> tuple[ArrayRows | None, np.ndarray | None]:
        """The rows of a batch, None of one without, and its labels."""
        if not is_array(batch):
            found = type(batch[0] if is_pair(batch) else batch).__name__
            raise UsageError(f"{name}: found {found}, expected an array of two dimensions or a CSR matrix as the first")
        rows, labels = _taken(batch)
        if (labels is None) != (self.label_from is None):
            found, wanted = ("no labels", "labels") if labels is None else ("labels", "none")
            raise DataError(f"{name}: found {found}, expected {wanted} as in the first batch; give all of one kind")
        if rows.shape[1] != self.features:
            raise DataError(
                f"{name}: found {rows.shape[1]} features, expected {self.features} as in the first batch; give all of "
                "one kind"
            )
        column = None if labels is None else label_vector(labels, f"{name}, labels")
        if column is not None and column.shape != (rows.shape[0],):
            raise DataError(
                f"{name}: holds {rows.shape[0]:,} rows, labels of shape {column.shape}: expected as many; check both"
            )
        return ArrayRows(rows, self._options, name=name) if rows.shape[0] else None, column


def _taken(batch: Any) -> tuple[Any, Any]:
    return batch if is_pair(batch) else (batch, None)
