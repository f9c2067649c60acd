"""Several files read one after the other as one source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coremargin.errors import DataError

if TYPE_CHECKING:
    from coremargin.data.sources.base import Batch, RowSource
    from coremargin.data.sources.vocabulary import Vocabulary


class Chain:
    """Several files read one after the other as one source."""

    def __init__(self, parts: Sequence[RowSource]) -> None:
        self._parts = parts
        for part in parts[1:]:
            _agree(parts[0], part)
        self.name = parts[0].name if len(parts) == 1 else f"{len(parts)} files ({parts[0].name}, ...)"
        self.features = parts[0].features
        self.label_from, self.weight_from = parts[0].label_from, parts[0].weight_from
        self.sparse, self.columns = parts[0].sparse, parts[0].columns
        self.left_out = {name: what for part in parts for name, what in left_out_of(part).items()}
        counts = [part.rows for part in parts]
        sizes = [part.total_bytes for part in parts]
        self.rows: int | None = None if None in counts else sum(count or 0 for count in counts)
        self.total_bytes: int | None = None if None in sizes else sum(size or 0 for size in sizes)

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """All batches of all files, in the order of the files."""
        before = 0
        for part in self._parts:
            for batch in part.batches(vocabulary):
                yield replace(batch, done_bytes=before + batch.done_bytes)
            before += part.total_bytes or 0


def left_out_of(rows: RowSource) -> Mapping[str, str]:
    """Columns of a table that nobody asked for and that are no features, such as an index, and what each is."""
    found: Mapping[str, str] = getattr(rows, "left_out", {})
    return found


def _agree(first: RowSource, other: RowSource) -> None:
    """Files of one ingest must have the same features."""
    if other.features != first.features:
        raise DataError(
            f"{other.name}: found {other.features} features, expected {first.features} as in {first.name}; ingest "
            "files of one kind only"
        )
