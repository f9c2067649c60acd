"""What an ingest has written, or would write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.sizes import scanned_bytes
from coremargin.data.sources.chain import left_out_of
from coremargin.formats.column_kinds import Numbers

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.labels import Label
    from coremargin.data.sources.ingest_pass import IngestPass
    from coremargin.data.store import Store
    from coremargin.formats.columns import ColumnsRecord


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
    skipped: int  #: rows left out by ``only``
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
    key_from: str | None  #: the column that the keys of rows come from
    rounded: int  #: whole numbers with more digits than the store's precision keeps
    rounded_at: str | None  #: where the first of them was met, and what it became
    left_out: dict[str, str]  #: columns that are no features unless asked for, an index for one, and what each is
    units: dict[str, str]  #: columns of numbers that had a sign of a currency or of percent beside them, and which
    warnings: tuple[str, ...]  #: columns that give the labels away, or number the rows


def _units(columns: ColumnsRecord) -> dict[str, str]:
    return {one.name: one.unit for one in columns.columns if isinstance(one, Numbers) and one.unit}


def report_of(ingest_pass: IngestPass, path: Path, base: Store | None, dtype: str, seconds: float) -> IngestReport:
    """What the pass has counted; for a dry run that stopped early, scaled to all rows of the source."""
    scale, source = 1.0, ingest_pass.source
    if not ingest_pass.whole:
        read = (
            (ingest_pass.read, source.rows) if source.rows is not None else (ingest_pass.done_bytes, source.total_bytes)
        )
        scale = max(1.0, (read[1] or 0) / max(1, read[0]))
    rows = round(ingest_pass.kept * scale)
    itemsize, weighted = np.dtype(dtype).itemsize, ingest_pass.weight_from is not None
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
        skipped=round((ingest_pass.read - ingest_pass.kept) * scale),
        nbytes=nbytes,
        store_rows=rows + (base.rows if base else 0),
        label_from=ingest_pass.label_from,
        seconds=seconds,
        estimated=not ingest_pass.whole,
        sparse=ingest_pass.sparse,
        nonzeros=nonzeros,
        zeros=round(ingest_pass.zeros * scale) if ingest_pass.sparse else 0,
        unsorted=round(ingest_pass.unsorted * scale),
        weight_from=ingest_pass.weight_from,
        key_from=None if source.columns is None else source.columns.key,
        rounded=round(ingest_pass.rounded * scale),
        rounded_at=ingest_pass.rounded_at,
        left_out=dict(left_out_of(source)),
        units={} if source.columns is None else _units(source.columns),
        warnings=ingest_pass.warnings,
    )
