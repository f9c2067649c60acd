"""SVMlight / LIBSVM text as sparse rows; the first pass, which counts them, included 35 MB per second, or 54 without.

Of what tools disagree about: indices in any order are sorted and counted, an index that occurs twice in a line is
refused, explicit zeros are for whoever writes the rows (a sparse store drops and counts them), query ids are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.base import Batch, SourceOptions, check_width
from coremargin.data.sources.paths import file_bytes
from coremargin.data.sources.svmlight_lines import Layout, Parsed, layout, parse
from coremargin.data.sources.text import Piece, pieces
from coremargin.data.sparse import csr_rows
from coremargin.errors import BadRow, DataError, NoRows, UsageError
from coremargin.formats.limits import MOST_FEATURES

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary
    from coremargin.formats.columns import ColumnsRecord

SPARSE_BELOW = 0.1  #: rows are best kept sparse below this share of stored values: a fifth of the bytes, or less


@dataclass(frozen=True, slots=True)
class Survey:
    """What a first pass finds out: the smallest and largest index, the number of rows and of pairs."""

    low: int
    high: int
    rows: int
    pairs: int


class SvmlightFile:
    """Rows of one SVMlight file; ``base`` is the index of the first feature, 0 or 1."""

    label_from: str | None
    weight_from: str | None = None
    columns: ColumnsRecord | None = None

    def __init__(
        self, path: Path, *, features: int, base: int, rows: int | None, unlabelled: bool, density: float
    ) -> None:
        self.sparse = density < SPARSE_BELOW
        self.name, self.path = str(path), path
        self.features, self.rows = features, rows
        self.total_bytes: int | None = file_bytes(path)
        self.label_from = None if unlabelled else "the first token of each line"
        self._base = base

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """One batch of sparse rows per piece of text; explicit zeros are still among their values."""
        for piece in pieces(self.path):
            if piece.blank:
                continue
            parsed = parse(piece)
            self._check_range(parsed)
            place = _place(self.name, parsed.lines)
            codes = None if self.label_from is None else _codes(parsed, vocabulary, place)
            if not len(parsed.labels):
                continue
            indices = (parsed.indices - self._base).astype(np.int32)
            yield Batch(
                rows=csr_rows(parsed.values, indices, parsed.starts.astype(np.int32), self.features),
                codes=codes,
                origin=self.name,
                place=place,
                column=lambda feature: f"index {feature + self._base}",
                done_bytes=piece.done_bytes,
                unsorted=parsed.unsorted,
            )

    def _check_range(self, parsed: Parsed) -> None:
        outside = (parsed.indices < self._base) | (parsed.indices >= self.features + self._base)
        if outside.any():
            at = int(np.argmax(outside))
            row = int(np.searchsorted(parsed.starts, at, side="right")) - 1
            raise BadRow(
                f"{self.name}, line {parsed.lines[row]}: found index {parsed.indices[at]}, expected {self._base} to "
                f"{self.features + self._base - 1}; say --features or --zero-based / --one-based as the data needs"
            )


def open_svmlight(
    paths: Sequence[Path], options: SourceOptions, on_survey: Callable[[int, int, int], None]
) -> list[SvmlightFile]:
    """The files with a common number of features, found by a first pass unless the options say it.

    ``on_survey(rows, done_bytes, total_bytes)`` is called as the first pass proceeds.
    """
    features, zero_based = options.features, options.zero_based
    if features is not None and not 1 <= features <= MOST_FEATURES:
        raise UsageError(f"--features {features}: expected 1 to {MOST_FEATURES:,}")
    surveys: list[Survey] = []
    if features is None or zero_based is None:
        surveys = survey(paths, on_survey)
        low, high = min(s.low for s in surveys), max(s.high for s in surveys)
        zero_based = low == 0 if zero_based is None else zero_based
        features = high + (1 if zero_based else 0) if features is None else features
        if features < 1:
            raise DataError(
                f"{paths[0]}: zero features: no line holds an index:value pair; say --features if that is right"
            )
    check_width(features, str(paths[0]))
    rows: list[int | None] = [None] * len(paths)
    if surveys:
        rows = [found.rows for found in surveys]
    met = surveys or [_first_look(paths[0])]
    density = sum(found.pairs for found in met) / max(1, features * sum(found.rows for found in met))
    common: dict[str, Any] = {"features": features, "base": 0 if zero_based else 1, "density": density}
    return [
        SvmlightFile(path, rows=count, unlabelled=options.unlabelled, **common)
        for path, count in zip(paths, rows, strict=True)
    ]


def _first_look(path: Path) -> Survey:
    """The survey of a file's first piece: of no more than its density."""
    piece = next(iter(pieces(path)))
    found = layout(piece)
    return Survey(0, 0, len(found.heads), len(found.indices))


def survey(paths: Sequence[Path], on_survey: Callable[[int, int, int], None]) -> list[Survey]:
    """One pass over all files for the range of the indices and the number of rows; values are not looked at."""
    found: list[Survey] = []
    total, before, seen = sum(file_bytes(path) for path in paths), 0, 0
    for path in paths:
        low, high, rows, pairs, done = 1, -1, 0, 0, 0
        for piece in pieces(path):
            if piece.blank:
                continue
            lines = layout(piece)
            rows += len(lines.heads)
            pairs += len(lines.indices)
            if len(lines.indices):
                _refuse_beyond(lines, piece)
                low, high = min(low, int(lines.indices.min())), max(high, int(lines.indices.max()))
            done = piece.done_bytes
            on_survey(seen + rows, before + done, total)
        if rows == 0:
            raise NoRows(f"{path}: no rows: expected lines such as '1 3:0.5 7:1'")
        before, seen = before + done, seen + rows
        found.append(Survey(low, high, rows, pairs))
    return found


def _refuse_beyond(lines: Layout, piece: Piece) -> None:
    """Raise BadRow for an index that no store has a feature for."""
    at = int(np.argmax(lines.indices))
    if lines.indices[at] > MOST_FEATURES:
        row = int(np.searchsorted(lines.starts, at, side="right")) - 1
        raise BadRow(
            f"{piece.path}, line {piece.line + lines.lines[row]}: found index {lines.indices[at]}, expected at most "
            f"{MOST_FEATURES:,}; correct the line"
        )


def _codes(parsed: Parsed, vocabulary: Vocabulary, place: Callable[[int], str]) -> np.ndarray:
    """Codes (m,) int32 of the labels, to the last digit where there are more than float64 holds."""
    if parsed.texts is None:
        return vocabulary.encode(parsed.labels, place)
    if parsed.words:
        return np.array([vocabulary.encode_text(text, place(row)) for row, text in enumerate(parsed.texts)], np.int32)
    return np.array([vocabulary.encode_number(text, place(row)) for row, text in enumerate(parsed.texts)], np.int32)


def _place(name: str, lines: np.ndarray) -> Callable[[int], str]:
    return lambda row: f"{name}, line {lines[row]}"
