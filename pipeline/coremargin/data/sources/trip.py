"""One trip over a source: its batches labelled, filtered, checked and counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.base import Batch, RowSource, refuse_bad
from coremargin.data.sources.labels import Label, LabelStream, Vocabulary, label_from_text
from coremargin.errors import DataError, LabelError

if TYPE_CHECKING:
    from collections.abc import Callable


class Trip:
    """Batches fit to be written, and what was met on the way.

    labels: labels from beside the source, if any; vocabulary: holds the classes of the store when rows are appended;
    dtype: what values must be finite in; only: labels of the rows to keep, maybe as text.
    """

    def __init__(
        self,
        source: RowSource,
        labels: LabelStream | None,
        vocabulary: Vocabulary,
        dtype: np.dtype[Any],
        only: Sequence[Label] | None,
    ) -> None:
        self.source, self.vocabulary = source, vocabulary
        self._labels, self._dtype, self._only = labels, dtype, only
        self.read = 0  #: rows met
        self.kept = 0  #: rows that went on
        self.done_bytes = 0  #: bytes of the source consumed
        self.whole = False  #: the source was read to its end
        self._counts = np.zeros(0, dtype=np.int64)

    @property
    def label_from(self) -> str | None:
        """Where the labels come from."""
        return self._labels.name if self._labels else self.source.label_from

    @property
    def classes(self) -> dict[Label, int]:
        """Rows kept of each label, in order of first appearance."""
        return {self.vocabulary.labels[k]: int(self._counts[k]) for k in np.flatnonzero(self._counts)}

    def batches(self) -> Iterator[Batch]:
        """Batches whose values are finite and whose labels are all known (or all absent: codes None)."""
        for found in self._labelled():
            self.read += len(found.rows)
            self.done_bytes = found.done_bytes
            batch = self._selected(found)
            if len(batch.rows):
                self._check_labels(batch)
                refuse_bad(batch, self._dtype)
                self._count(batch)
                yield batch
        self._check_end()
        self.whole = True

    def labels_of(self, batch: Batch) -> np.ndarray | None:
        """The labels (m,) of a batch as the store keeps them."""
        return None if batch.codes is None else np.array(self.vocabulary.labels)[batch.codes]

    def _check_end(self) -> None:
        """After the last batch: every label that ``only`` names was there."""
        for wanted in self._only or ():
            if not any(_same(label, wanted) for label in self.classes):
                known = ", ".join(repr(label) for label in self.vocabulary.labels[:10])
                raise LabelError(
                    f"{self.source.name}: no row has the label {wanted!r} named by --only: expected one of {known}"
                )

    def _labelled(self) -> Iterator[Batch]:
        batches = self.source.batches(self.vocabulary)
        if self._labels is None:
            yield from batches
            return
        rows = 0
        for batch in batches:
            codes = self._labels.take(len(batch.rows), self.vocabulary)
            rows += len(batch.rows)
            if len(codes) < len(batch.rows):
                labels = rows - len(batch.rows) + len(codes)
                raise lengths_differ(
                    self.source.name, rows + sum(len(rest.rows) for rest in batches), self._labels.name, labels
                )
            yield replace(batch, codes=codes)
        rest = self._labels.count_rest(self.vocabulary)
        if rest:
            raise lengths_differ(self.source.name, rows, self._labels.name, rows + rest)

    def _selected(self, batch: Batch) -> Batch:
        if self._only is None or batch.codes is None:
            return batch
        only = self._only
        wanted = [any(_same(label, name) for name in only) for label in self.vocabulary.labels]
        kept = np.flatnonzero(np.array([*wanted, False])[batch.codes])  # code -1, no label, takes the last entry
        if len(kept) == len(batch.rows):
            return batch
        return replace(batch, rows=batch.rows[kept], codes=batch.codes[kept], place=_among(batch.place, kept))

    def _check_labels(self, batch: Batch) -> None:
        if batch.codes is None:
            return
        if batch.codes.min() < 0:
            place = batch.place(int(np.argmin(batch.codes)))
            raise LabelError(
                f"{place}: found no label, expected one for every row; fill it in or remove the row, or ingest rows "
                "without labels apart, with --unlabelled"
            )
        for code in self.vocabulary.odd:
            at = np.flatnonzero(batch.codes == code)
            if len(at):
                labels = self.vocabulary.labels
                raise LabelError(
                    f"{batch.place(int(at[0]))}: found the label {labels[code]!r}, expected one of the same kind as "
                    f"{labels[0]!r}; give all labels as numbers or all as text"
                )

    def _count(self, batch: Batch) -> None:
        self.kept += len(batch.rows)
        if batch.codes is not None:
            counts = np.bincount(batch.codes, minlength=len(self.vocabulary.labels))
            counts[: len(self._counts)] += self._counts
            self._counts = counts


def lengths_differ(rows_name: str, rows: int, labels_name: str, labels: int) -> DataError:
    """The error for X and y of different length."""
    return DataError(
        f"{rows_name} holds {rows:,} rows, {labels_name} holds {labels:,} labels: expected as many; check both"
    )


def _among(place: Callable[[int], str], kept: np.ndarray) -> Callable[[int], str]:
    return lambda row: place(int(kept[row]))


def _same(label: Label, wanted: Label) -> bool:
    """Whether ``wanted``, maybe typed as text, names ``label``."""
    named = label_from_text(wanted) if isinstance(wanted, str) and not isinstance(label, str) else wanted
    return named == label and isinstance(named, bool) == isinstance(label, bool)
