"""What an ingest has written, or would write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.sizes import scanned_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.labels import Label
    from coremargin.data.sources.trip import Trip
    from coremargin.data.store import Store


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
    rounded: int  #: whole numbers with more digits than the store's precision keeps
    rounded_at: str | None  #: where the first of them was met, and what it became


def report_of(trip: Trip, path: Path, base: Store | None, dtype: str, seconds: float) -> IngestReport:
    """What the trip has counted; for a dry run that stopped early, scaled to all rows of the source."""
    scale, source = 1.0, trip.source
    if not trip.whole:
        read = (trip.read, source.rows) if source.rows is not None else (trip.done_bytes, source.total_bytes)
        scale = max(1.0, (read[1] or 0) / max(1, read[0]))
    rows = round(trip.kept * scale)
    itemsize, weighted = np.dtype(dtype).itemsize, trip.weight_from is not None
    nonzeros = round(trip.nonzeros * scale) if trip.sparse else rows * source.features
    if trip.sparse:
        nbytes = scanned_bytes(rows, itemsize, nonzeros=nonzeros, weighted=weighted)
    else:
        nbytes = scanned_bytes(rows, source.features * itemsize, weighted=weighted)
    return IngestReport(
        source=source.name,
        store=str(path),
        rows=rows,
        features=source.features,
        dtype=dtype,
        classes={label: round(count * scale) for label, count in trip.classes.items()},
        unlabelled=0 if trip.classes else rows,
        skipped=round((trip.read - trip.kept) * scale),
        nbytes=nbytes,
        store_rows=rows + (base.rows if base else 0),
        label_from=trip.label_from,
        seconds=seconds,
        estimated=not trip.whole,
        sparse=trip.sparse,
        nonzeros=nonzeros,
        zeros=round(trip.zeros * scale) if trip.sparse else 0,
        unsorted=round(trip.unsorted * scale),
        weight_from=trip.weight_from,
        rounded=round(trip.rounded * scale),
        rounded_at=trip.rounded_at,
    )
