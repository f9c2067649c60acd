"""One pass over a source: its batches labelled, filtered, checked and counted; and the report of what was counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coremargin.data.labels import LabelCoder, label_from_text
from coremargin.data.narrow_rows import narrow, widen
from coremargin.data.rows import rounded_whole
from coremargin.data.sizes import scanned_bytes
from coremargin.data.sources.base import AscendingNumbers, Batch, RowSource, refuse_unfit, row_and_feature
from coremargin.data.sources.label_leaks import LeakDetector
from coremargin.data.weights import nothing_left, refused_weight
from coremargin.errors import BadRow, DataError, LabelError, UsageError
from coremargin.formats.column_kinds import Numbers
from coremargin.formats.row_types import stored_dtype
from coremargin.maths.rows import is_sparse, take

if TYPE_CHECKING:
    from coremargin.data.labels import Label
    from coremargin.data.sources.sidecars import ValueStream
    from coremargin.data.store import Store
    from coremargin.formats.columns import ColumnsRecord

_FEWEST_ROWS = 20  # in fewer, classes may have a row each


class SeparateInputs(NamedTuple):
    """Labels, weights and groups that do not come with the rows."""

    labels: ValueStream | None = None
    weights: ValueStream | None = None
    groups: ValueStream | None = None


class IngestPass:
    """Checked batches, and counts of what was read.

    coder: holds the classes of the store when rows are appended; row_type: stored type that must hold all values; only:
    labels of the rows to select, maybe as text; sparse: the store keeps rows as CSR; fixed_labels: the coder holds
    all labels that rows may have.
    """

    def __init__(
        self,
        source: RowSource,
        separate: SeparateInputs,
        coder: LabelCoder,
        row_type: str,
        only: Sequence[Label] | None,
        *,
        sparse: bool = False,
        fixed_labels: bool = False,
    ) -> None:
        self.source, self.coder, self.sparse = source, coder, sparse
        self.label_from = source.label_from if separate.labels is None else separate.labels.name
        self.weight_from = source.weight_from if separate.weights is None else separate.weights.name
        self.group_from = source.group_from if separate.groups is None else separate.groups.name
        self._groups = separate.groups
        self._labels, self._weights, self._row_type = separate.labels, separate.weights, row_type
        self._known = len(coder.classes) if fixed_labels else None
        self._only = None if only is None else [(wanted, _parse_label(wanted)) for wanted in only]
        self.read = 0  #: rows
        self.selected = 0  #: rows that are written
        self.done_bytes = 0  #: bytes of the source consumed
        self.complete = False  #: the source was read to its end
        self.nonzeros = 0  #: values of the selected rows that are not zero
        self.zeros = 0  #: zeros that sparse rows stored
        self.unsorted = 0  #: sparse rows whose indices were not in order
        self._leaks = LeakDetector(source.features, source.columns)
        self.rounded = 0  #: whole numbers that the stored type does not hold
        self.rounded_at: str | None = None  #: where the first of them is, and what it became
        self._weighted = False  # some selected row has a weight above 0
        self._counts = np.zeros(0, dtype=np.int64)

    @property
    def warnings(self) -> tuple[str, ...]:
        """About labels that seem to be no classes, and features that reveal the labels or number the rows."""
        found, classes, labelled = self._leaks.warnings(), len(self.classes), int(self._counts.sum())
        if 2 * classes > labelled >= _FEWEST_ROWS:
            place = f" from {self.label_from}" if self.label_from else ""
            found.insert(
                0,
                f"the labels{place} are {classes:,} different ones in {labelled:,} rows, as measurements and names of "
                "rows are; name the column of classes with --label if this is another one",
            )
        return tuple(found)

    @property
    def classes(self) -> dict[Label, int]:
        """Selected rows of each label, in order of first appearance."""
        return {self.coder.classes[k]: int(self._counts[k]) for k in np.flatnonzero(self._counts)}

    def batches(self) -> Iterator[Batch]:
        """Batches whose values are finite and whose labels are all known (or all absent: codes None)."""
        labelled = self._attach(self.source.batches(self.coder), "codes", self._labels)
        weighted = self._attach(labelled, "weights", self._weights)
        for found in self._attach(weighted, "groups", self._groups):
            self.read += found.count
            self.done_bytes = found.done_bytes
            batch = self._select(found)
            if batch.count:
                self._check_labels(batch)
                self._check_weights(batch)
                refuse_unfit(batch, self._row_type)
                self._note_rounded(batch)
                self._count(batch)
                self._leaks.add(batch.rows, batch.codes)
                yield batch
        self._check_end()
        self.complete = True

    def labels_of(self, batch: Batch) -> np.ndarray | None:
        """The labels (m,) of a batch as the store keeps them."""
        return None if batch.codes is None else _exact_array(self.coder.classes)[batch.codes]

    def _check_end(self) -> None:
        """After the last batch: every label that ``only`` names was there, and not every weight was 0."""
        if self.weight_from is not None and self.selected and not self._weighted:
            raise nothing_left(f"{self.source.name}, {self.weight_from}")
        for wanted, meant in self._only or ():
            if not any(_is_label(label, wanted, meant) for label in self.classes):
                known = ", ".join(repr(label) for label in self.coder.classes[:10])
                raise LabelError(
                    f"{self.source.name}: no row has the label {wanted!r} named by --only: expected one of {known}"
                )

    def _attach(self, batches: Iterator[Batch], field: str, separate: ValueStream | None) -> Iterator[Batch]:
        """The batches, this field of each taken from the separate values."""
        if separate is None:
            yield from batches
            return
        rows = 0
        for batch in batches:
            values = separate.take(batch.count)
            rows += batch.count
            if len(values) < batch.count:
                found = rows - batch.count + len(values)
                rows += sum(rest.count for rest in batches)
                raise lengths_differ(self.source.name, rows, separate.name, found, separate.kind)
            changed: dict[str, Any] = {field: values}
            yield replace(batch, **changed)
        rest = separate.count_rest()
        if rest:
            raise lengths_differ(self.source.name, rows, separate.name, rows + rest, separate.kind)

    def _select(self, batch: Batch) -> Batch:
        if self._only is None or batch.codes is None:
            return batch
        only = self._only
        wanted = [any(_is_label(label, *named) for named in only) for label in self.coder.classes]
        selected = np.array([*wanted, False])[batch.codes]  # code -1, no label, takes the last entry
        if selected.all():
            return batch
        numbers, rows = AscendingNumbers(0, selected), np.flatnonzero(selected)
        return replace(
            batch,
            rows=take(batch.rows, rows),
            codes=batch.codes[rows],
            weights=None if batch.weights is None else batch.weights[rows],
            keys=None if batch.keys is None else batch.keys[rows],
            place=lambda row: batch.place(numbers[row]),
        )

    def _check_weights(self, batch: Batch) -> None:
        if batch.weights is None:
            return
        bad = ~(np.isfinite(batch.weights) & (batch.weights >= 0))
        if bad.any():
            row = int(np.argmax(bad))
            place = f"{batch.place(row)}{_file(self._weights)}"
            raise BadRow(f"{place}: {refused_weight(batch.weights[row])}")
        self._weighted = self._weighted or bool(batch.weights.any())

    def _check_labels(self, batch: Batch) -> None:
        if batch.codes is None:
            return
        if batch.codes.min() < 0:
            place = batch.place(int(np.argmin(batch.codes)))
            raise LabelError(
                f"{place}: found no label{_file(self._labels)}, expected one for every row; fill it in or remove the "
                "row, or ingest rows without labels apart, with --unlabelled"
            )
        for code in self.coder.odd:
            at = np.flatnonzero(batch.codes == code)
            if len(at):
                labels = self.coder.classes
                raise LabelError(
                    f"{batch.place(int(at[0]))}: found the label {labels[code]!r}{_file(self._labels)}, expected one "
                    f"of the same kind as {labels[0]!r}; give all labels as numbers or all as text"
                )
        if self._known is not None and batch.codes.max() >= self._known:
            row, known = int(np.argmax(batch.codes >= self._known)), self.coder.classes[: self._known]
            few = ", ".join(map(repr, known[:10])) + ", ..." * (len(known) > 10)
            raise LabelError(
                f"{batch.place(row)}: found the label {self.coder.classes[batch.codes[row]]!r}"
                f"{_file(self._labels)}, which no row of the store has: expected one of {few}; correct it, or say "
                "--new-labels (new_labels in a job file)"
            )

    def _note_rounded(self, batch: Batch) -> None:
        """Count whole numbers that are about to lose digits."""
        values = np.asarray(batch.rows.data) if is_sparse(batch.rows) else batch.rows
        found = rounded_whole(values, self._row_type)
        self.rounded += len(found)
        if len(found) and self.rounded_at is None:
            row, feature = row_and_feature(batch.rows, int(found[0]))
            value = values.reshape(-1)[found[0]]
            became = int(widen(narrow(value.reshape(1), self._row_type))[0])
            self.rounded_at = f"{batch.place(row)}, {batch.column(feature)}: {int(value)} became {became}"

    def _count(self, batch: Batch) -> None:
        self.selected += batch.count
        self.unsorted += batch.unsorted
        if is_sparse(batch.rows):
            stored = int(np.count_nonzero(batch.rows.data))
            self.nonzeros += stored
            self.zeros += int(batch.rows.nnz) - stored
        elif self.sparse:
            self.nonzeros += int(np.count_nonzero(batch.rows))
        if batch.codes is not None:
            counts = np.bincount(batch.codes, minlength=len(self.coder.classes))
            counts[: len(self._counts)] += self._counts
            self._counts = counts


def lengths_differ(rows_name: str, rows: int, separate_name: str, separate: int, what: str = "labels") -> DataError:
    """The error for rows and labels or weights of different length."""
    return DataError(
        f"{rows_name} holds {rows:,} rows, {separate_name} holds {separate:,} {what}: expected as many; check both"
    )


def _file(separate: ValueStream | None) -> str:
    """The file that a value comes from, if it has one of its own."""
    return "" if separate is None or separate.name == separate.kind else f" in {separate.name}"


def _exact_array(labels: list[Label]) -> np.ndarray:
    """Labels (k,) as an array that holds them exactly: NumPy rounds large integers among floats, and drops NULs."""
    plain = np.array(labels)
    if [(type(label), label) for label in plain.tolist()] == [(type(label), label) for label in labels]:
        return plain
    found = np.empty(len(labels), dtype=object)
    found[:] = labels
    return found


def _parse_label(wanted: Label) -> Label | None:
    """What a label that may have been typed as text stands for."""
    try:
        return label_from_text(wanted) if isinstance(wanted, str) else wanted
    except LabelError as error:
        raise UsageError(f"--only: {error}") from error


def _is_label(label: Label, wanted: Label, meant: Label | None) -> bool:
    """Whether ``wanted``, which stands for ``meant`` where labels are no texts, names ``label``."""
    named = wanted if isinstance(label, str) else meant
    return named == label and isinstance(named, bool) == isinstance(label, bool)


@dataclass(frozen=True)
class IngestReport:
    """What was written, or would be (dry run)."""

    source: str
    store: str
    rows: int  #: rows written by this ingest
    features: int
    dtype: str
    classes: dict[Label, int]  #: rows of each label, in order of first appearance
    unlabelled: int
    skipped: int  #: rows that ``only`` does not select
    nbytes: int  #: bytes of the rows written, their labels and weights, uncompressed
    store_rows: int  #: rows in the store afterwards
    label_from: str | None
    seconds: float
    estimated: bool  #: a dry run has read the beginning only: rows, classes and skipped are scaled up from it
    sparse: bool  #: the store keeps rows as CSR
    nonzeros: int  #: values stored of the rows written; of dense rows all are
    zeros: int  #: explicit zeros of sparse rows, which a sparse store drops
    unsorted: int  #: sparse rows whose indices were not in order
    weight_from: str | None
    group_from: str | None
    key_from: str | None  #: the column that the keys of rows come from
    rounded: int  #: whole numbers with more digits than the store's precision keeps
    rounded_at: str | None  #: where the first of them is, and what it became
    left_out: dict[
        str, str
    ]  #: columns that are no features unless an option names them, such as an index, and what each is
    units: dict[str, str]  #: columns of numbers with the sign of a currency or of percent, and which
    warnings: tuple[str, ...]  #: columns that give the labels away, or number the rows


def _units(columns: ColumnsRecord) -> dict[str, str]:
    return {one.name: one.unit for one in columns.columns if isinstance(one, Numbers) and one.unit}


def make_report(ingest_pass: IngestPass, path: str, base: Store | None, dtype: str, seconds: float) -> IngestReport:
    """What the pass has counted; for a dry run that stopped early, scaled to all rows of the source."""
    scale, source = 1.0, ingest_pass.source
    if not ingest_pass.complete:
        read = (
            (ingest_pass.read, source.rows) if source.rows is not None else (ingest_pass.done_bytes, source.total_bytes)
        )
        scale = max(1.0, (read[1] or 0) / max(1, read[0]))
    rows = round(ingest_pass.selected * scale)
    itemsize, weighted = stored_dtype(dtype).itemsize, ingest_pass.weight_from is not None
    nonzeros = round(ingest_pass.nonzeros * scale) if ingest_pass.sparse else rows * source.features
    if ingest_pass.sparse:
        nbytes = scanned_bytes(rows, itemsize, nonzeros=nonzeros, weighted=weighted)
    else:
        nbytes = scanned_bytes(rows, source.features * itemsize, weighted=weighted)
    return IngestReport(
        source=source.name,
        store=str(path),
        rows=rows,
        features=source.features,
        dtype=dtype,
        classes={label: round(count * scale) for label, count in ingest_pass.classes.items()},
        unlabelled=0 if ingest_pass.classes else rows,
        skipped=round((ingest_pass.read - ingest_pass.selected) * scale),
        nbytes=nbytes,
        store_rows=rows + (base.rows if base else 0),
        label_from=ingest_pass.label_from,
        seconds=seconds,
        estimated=not ingest_pass.complete,
        sparse=ingest_pass.sparse,
        nonzeros=nonzeros,
        zeros=round(ingest_pass.zeros * scale) if ingest_pass.sparse else 0,
        unsorted=round(ingest_pass.unsorted * scale),
        weight_from=ingest_pass.weight_from,
        group_from=ingest_pass.group_from,
        key_from=None if source.columns is None else source.columns.key,
        rounded=round(ingest_pass.rounded * scale),
        rounded_at=ingest_pass.rounded_at,
        left_out=dict(source.excluded),
        units={} if source.columns is None else _units(source.columns),
        warnings=ingest_pass.warnings,
    )
