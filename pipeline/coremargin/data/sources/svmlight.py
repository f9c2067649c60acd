"""SVMlight / LIBSVM text as sparse rows.

Lines are ``label index:value index:value ... # comment``, parsed with whole-array operations on a piece of text at a
time. Every token is checked for its shape, so that a slip never shifts values silently; a piece that fails is read
again line by line to name the place. Measured on 200 MB, 13.5 million values of 47,236 features: 57 MB per second of
CPU time, where scikit-learn's ``load_svmlight_file`` comes to 45 to 53; with the first pass, which counts, 35.

Of what tools disagree about: indices in any order are sorted and counted, an index that occurs twice in a line is
refused, explicit zeros are left to the writer of rows (a sparse store drops and counts them), query ids are groups of
rows on demand, and ignored else.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from coremargin.data.sources.base import AscendingNumbers, Batch, RowSource, check_width
from coremargin.data.sources.paths import FilePath, file_bytes
from coremargin.data.sources.text import Piece, read_pieces
from coremargin.data.sparse import csr_rows
from coremargin.data.tables.number_text import EXACT, is_rounded
from coremargin.errors import BadRow, DataError, NoRows, UsageError
from coremargin.formats.limits import MOST_FEATURES

if TYPE_CHECKING:
    from coremargin.data.labels import LabelCoder
    from coremargin.data.sources.options import SourceOptions

_COMMENT = re.compile(rb"#[^\n]*")
_QUERY = re.compile(rb"(?<=\s)qid:(\d+)(?=\s|$)")
_LONG = re.compile(rb":([+-]?0*[1-9][0-9]{15,})(?=\s|$)")
_TOKEN = re.compile(rb"\S+")
_NUMBER = rb"[+-]?(?:\d++\.?\d*+|\.\d++|nan|inf)(?:e[+-]?\d+)?"
_PAIRS = re.compile(rb"(?:\s+|\d{1,9}:" + _NUMBER + rb"(?!\S))*+", re.IGNORECASE)  # as usual ones are written
_SAFE_DIGITS = 15  # of a label: no two of such numbers are one float64
_MOST_DIGITS = 9  #: of an index: a billion features would not be made dense anyway
_SMALL_E, _LARGE_E = b"eE"
_LINE_FEED, _SPACE, _ZERO, _COLON = b"\n 0:"  #: white space is whatever is not above a space


@dataclass(frozen=True, slots=True)
class Parsed:
    """Rows of one piece in CSR form: values[starts[i]:starts[i + 1]] belong to row i."""

    labels: np.ndarray  #: (m,) float64
    unsorted: int  #: rows whose indices were not in order
    starts: np.ndarray  #: (m + 1,) int64
    indices: np.ndarray  #: (nnz,) int64, as written
    values: np.ndarray  #: (nnz,) float64
    lines: np.ndarray  #: (m,) int64 line numbers in the file, from 1
    texts: list[str] | None = None  #: the labels as written, when float64 may not tell them apart
    words: bool = False  #: some of the labels are no numbers


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are in some lines, before any number is read."""

    heads: np.ndarray  #: (m,) which of the tokens are the first of their line, the labels
    lines: np.ndarray  #: (m,) which line each label is in, from 0
    indices: np.ndarray  #: (nnz,) int64
    rest: bytes  #: the text with indices and colons blanked: labels and values
    data: bytes  #: the text, without comments and query ids
    begins: np.ndarray  #: (m,) where in it the labels begin

    @property
    def starts(self) -> np.ndarray:
        """Where the indices of each row begin (m + 1,)."""
        return np.append(self.heads - np.arange(len(self.heads)), len(self.indices))


def layout(piece: Piece) -> Layout:
    """Where things are in a piece; raises BadRow with file and line for what is not SVMlight."""
    found = _find_tokens(_strip_comments(piece.data))
    if found is None:
        _explain(piece)
    return found


def parse(piece: Piece) -> Parsed:
    """The rows of a piece; raises BadRow with file and line for what is not SVMlight."""
    found = layout(piece)
    lines = found.lines + piece.line
    numbers = _parse_numbers(found.rest, len(found.heads) + len(found.indices))
    if numbers is None:
        return _sort_rows(_parse_word_labels(found, piece, lines), piece)
    is_label = np.zeros(len(numbers), dtype=bool)
    is_label[found.heads] = True
    values = numbers[~is_label]
    _refuse_rounded(found, values, piece)
    return _sort_rows(
        Parsed(numbers[is_label], 0, found.starts, found.indices, values, lines, _label_texts(found)), piece
    )


def _parse_word_labels(found: Layout, piece: Piece, lines: np.ndarray) -> Parsed:
    """The rows of a piece some of whose labels are words. Raises BadRow for what is not SVMlight."""
    rest, texts = bytearray(found.rest), list[str]()
    for begin, line in zip(found.begins.tolist(), lines.tolist(), strict=True):
        token = _TOKEN.match(found.data, begin)
        label = b"" if token is None else token.group()
        if b"," in label:
            _refuse(piece, line, label, " first, expected one label")
        try:
            texts.append(label.decode())
        except UnicodeDecodeError:
            _refuse(piece, line, label, " first, expected a label in UTF-8")
        rest[begin : begin + len(label)] = b" " * len(label)
    values = _parse_numbers(bytes(rest), len(found.indices))
    if values is None:
        _explain(piece)
    _refuse_rounded(found, values, piece)
    return Parsed(np.zeros(len(texts)), 0, found.starts, found.indices, values, lines, texts, words=True)


def _refuse_rounded(found: Layout, values: np.ndarray, piece: Piece) -> None:
    """Raise BadRow for a whole number that float64 may not hold, as other text does."""
    if not values.size or np.abs(values).max() < EXACT:
        return
    for number in _LONG.finditer(found.data):
        if is_rounded(number.group(1).decode()):
            line = piece.line + found.data.count(b"\n", 0, number.start())
            _refuse(piece, line, number.group(1), ", expected whole numbers up to 2^53, which float64 holds")


def _strip_comments(data: bytes) -> bytes:
    """The lines without comments and query ids."""
    data = _COMMENT.sub(b"", data) if b"#" in data else data
    return _QUERY.sub(b"", data) if b"qid:" in data else data


def query_ids(piece: Piece, lines: np.ndarray) -> np.ndarray:
    """The query id (m,), digits as text, of each row; lines (m,): numbers of their lines. Raises BadRow: there is none.

    What is not SVMlight is not looked for: ``parse`` refuses it.
    """
    data = _COMMENT.sub(b"", piece.data)
    found = list(_QUERY.finditer(data))
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_FEED)
    at = np.searchsorted(ends, np.array([one.start() for one in found], np.int64)) + piece.line
    for wrong, what in ((np.setdiff1d(lines, at), "no query id"), (at[1:][at[1:] == at[:-1]], "two query ids")):
        if len(wrong):
            raise BadRow(
                f"{piece.path}, line {wrong[0]}: found {what}, expected one such as qid:7 behind the label; "
                "correct the line, or leave --group out"
            )
    return np.array([one.group(1).decode() for one in found])


def _find_tokens(data: bytes) -> Layout | None:
    """Tokens and indices of some lines; None unless every token but a line's first is digits, a colon and a rest."""
    text = np.frombuffer(data, dtype=np.uint8)
    inside = text > _SPACE
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    tokens = np.flatnonzero(begins)
    ends = np.flatnonzero(text == _LINE_FEED)
    first = np.searchsorted(tokens, np.concatenate([[0], ends]))  # of each line, maybe of a later one if it is blank
    lines = np.flatnonzero(np.diff(first, append=len(tokens)))
    heads = first[lines]
    colons = np.flatnonzero(text == _COLON)
    if len(colons) != len(tokens) - len(heads):
        return None
    indices, digits = np.zeros(len(colons), dtype=np.int64), np.zeros(len(colons), dtype=np.int64)
    rest = text.copy()
    rest[colons] = _SPACE
    left = np.arange(len(colons))  # those whose index goes on to the left
    for place in range(1, _MOST_DIGITS + 1):
        left = left[colons[left] >= place]
        at = colons[left] - place
        digit = text[at] - _ZERO  # below zero wraps around to something large
        more = digit <= 9
        left, at, digit = left[more], at[more], digit[more]
        indices[left] += digit * np.int64(10 ** (place - 1))
        digits[left] = place
        rest[at] = _SPACE
        if not len(left):
            break
    is_pair = np.ones(len(tokens), dtype=bool)
    is_pair[heads] = False
    if not np.array_equal(colons - digits, tokens[is_pair]) or not digits.all():
        return None
    return Layout(heads, lines, indices, rest.tobytes(), data, tokens[heads])


def _label_texts(found: Layout) -> list[str] | None:
    """The labels as written, when float64 may not hold one of them: it is long, or has an exponent."""
    text = np.frombuffer(found.data, dtype=np.uint8)
    at = found.begins
    for _ in range(_SAFE_DIGITS + 1):
        letters = text[at]
        if ((letters == _SMALL_E) | (letters == _LARGE_E)).any():
            break
        at = at[letters > _SPACE] + 1
        at = at[at < len(text)]
        if not len(at):
            return None
    tokens = (_TOKEN.match(found.data, begin) for begin in found.begins.tolist())
    return ["" if token is None else token.group().decode("ascii", errors="replace") for token in tokens]


def _parse_numbers(text: bytes, expected: int) -> np.ndarray | None:
    """The ``expected`` numbers in a text separated by white space, or None when it holds anything else."""
    if expected == 0 or not text.strip():  # NumPy complains about a text that holds no number, or makes one up
        return np.empty(0) if expected == 0 else None
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # for what is no number
        try:
            numbers = np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    return numbers if len(numbers) == expected else None


def _sort_rows(parsed: Parsed, piece: Piece) -> Parsed:
    """The same rows with indices ascending; raises BadRow for an index that occurs twice in a line."""
    rows = np.repeat(np.arange(len(parsed.labels)), np.diff(parsed.starts))
    same = rows[1:] == rows[:-1]
    falls = same & (parsed.indices[1:] <= parsed.indices[:-1])
    if not falls.any():
        return parsed
    order = np.lexsort((parsed.indices, rows))
    indices = parsed.indices[order]
    twice = same & (indices[1:] == indices[:-1])
    if twice.any():
        at = int(np.argmax(twice))
        raise BadRow(
            f"{piece.path}, line {parsed.lines[rows[at]]}: index {indices[at]} occurs twice, expected once; "
            "correct the line"
        )
    unsorted = len(np.unique(rows[1:][falls]))
    return replace(parsed, unsorted=unsorted, indices=indices, values=parsed.values[order])


def _explain(piece: Piece) -> NoReturn:
    """Raise BadRow for the first line of the piece that is not SVMlight."""
    for number, line in enumerate(piece.data.split(b"\n"), start=piece.line):
        bare = _strip_comments(line)
        token = _TOKEN.search(bare)
        if token is not None and b":" in token.group():
            _refuse(piece, number, token.group(), " first, expected a label")
        while token is not None:
            pairs = _PAIRS.match(bare, token.end())
            token = _TOKEN.match(bare, token.end() if pairs is None else pairs.end())
            if token is not None and not _is_pair(token.group()):
                _refuse(piece, number, token.group(), ", expected index:value with a whole index and a number")
    raise BadRow(f"{piece.path}, lines {piece.line} and after: expected lines such as '1 3:0.5 7:1'; check the file")


def _is_pair(token: bytes) -> bool:
    index, _, value = token.partition(b":")
    whole = index.isdigit() and len(index) <= _MOST_DIGITS
    return whole and b":" not in value and _parse_numbers(value, 1) is not None


def _refuse(piece: Piece, line: int, token: bytes, expected: str) -> NoReturn:
    found = token[:80].decode("utf-8", errors="replace")
    raise BadRow(f"{piece.path}, line {line}: found {found!r}{expected}; correct the line")


SPARSE_BELOW = 0.1  #: rows are best kept sparse below this share of stored values: a fifth of the bytes, or less


@dataclass(frozen=True, slots=True)
class Survey:
    """What a first pass finds out: the smallest and largest index, the number of rows and of pairs."""

    low: int
    high: int
    rows: int
    pairs: int


class SvmlightFile(RowSource):
    """Rows of one SVMlight file; ``base`` is the index of the first feature, 0 or 1."""

    def __init__(
        self,
        path: FilePath,
        *,
        features: int,
        base: int,
        rows: int | None,
        unlabelled: bool,
        density: float,
        grouped: bool,
    ) -> None:
        self.sparse = density < SPARSE_BELOW
        self.name, self.path = str(path), path
        self.features, self.rows = features, rows
        self.total_bytes = file_bytes(path)
        self.label_from = None if unlabelled else "the first token of each line"
        self.group_from = "qid" if grouped else None
        self._base = base

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """One batch of sparse rows per piece of text; explicit zeros are still among their values."""
        for piece in read_pieces(self.path):
            if piece.blank:
                continue
            parsed = parse(piece)
            self._check_range(parsed)
            codes = None if self.label_from is None else _codes(parsed, coder, _place(self.name, parsed.lines))
            if not len(parsed.labels):
                continue
            indices = (parsed.indices - self._base).astype(np.int32)
            yield Batch(
                rows=csr_rows(parsed.values, indices, parsed.starts.astype(np.int32), self.features),
                codes=codes,
                origin=self.name,
                place=_place(self.name, _small(parsed.lines)),
                column=lambda feature: f"index {feature + self._base}",
                done_bytes=piece.done_bytes,
                groups=None if self.group_from is None else query_ids(piece, parsed.lines),
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
    paths: Sequence[FilePath], options: SourceOptions, on_survey: Callable[[int, int, int], object]
) -> list[SvmlightFile]:
    """The files with a common number of features, found by a first pass unless the options say it.

    ``on_survey(rows, done_bytes, total_bytes)`` is called as the first pass proceeds.
    """
    features, zero_based = options.features, options.zero_based
    if options.group not in (None, "qid"):
        raise UsageError(f"--group {options.group}: expected qid, the groups that SVMlight files have")
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
    seen = surveys or [_first_look(paths[0])]
    density = sum(found.pairs for found in seen) / max(1, features * sum(found.rows for found in seen))
    common: dict[str, Any] = {"features": features, "base": 0 if zero_based else 1, "density": density}
    common["grouped"] = options.group is not None
    return [
        SvmlightFile(path, rows=count, unlabelled=options.unlabelled, **common)
        for path, count in zip(paths, rows, strict=True)
    ]


def _first_look(path: FilePath) -> Survey:
    """The survey of a file's first piece: of no more than its density."""
    piece = next(iter(read_pieces(path)))
    found = layout(piece)
    return Survey(0, 0, len(found.heads), len(found.indices))


def survey(paths: Sequence[FilePath], on_survey: Callable[[int, int, int], object]) -> list[Survey]:
    """One pass over all files for the range of the indices and the number of rows; values are not looked at."""
    found: list[Survey] = []
    total, before, seen = sum(file_bytes(path) for path in paths), 0, 0
    for path in paths:
        low, high, rows, pairs, done = 1, -1, 0, 0, 0
        for piece in read_pieces(path):
            if piece.blank:
                continue
            lines = layout(piece)
            rows += len(lines.heads)
            pairs += len(lines.indices)
            if len(lines.indices):
                _refuse_large_index(lines, piece)
                low, high = min(low, int(lines.indices.min())), max(high, int(lines.indices.max()))
            done = piece.done_bytes
            on_survey(seen + rows, before + done, total)
        if rows == 0:
            raise NoRows(f"{path}: no rows: expected lines such as '1 3:0.5 7:1'")
        before, seen = before + done, seen + rows
        found.append(Survey(low, high, rows, pairs))
    return found


def _refuse_large_index(lines: Layout, piece: Piece) -> None:
    """Raise BadRow for an index that no store has a feature for."""
    at = int(np.argmax(lines.indices))
    if lines.indices[at] > MOST_FEATURES:
        row = int(np.searchsorted(lines.starts, at, side="right")) - 1
        raise BadRow(
            f"{piece.path}, line {piece.line + lines.lines[row]}: found index {lines.indices[at]}, expected at most "
            f"{MOST_FEATURES:,}; correct the line"
        )


def _codes(parsed: Parsed, coder: LabelCoder, place: Callable[[int], str]) -> np.ndarray:
    """Codes (m,) int32 of the labels, to the last digit where there are more than float64 holds."""
    if parsed.texts is None:
        return coder.encode_values(parsed.labels, place)
    if parsed.words:
        return np.array([coder.encode_text(text, place(row)) for row, text in enumerate(parsed.texts)], np.int32)
    return np.array([coder.encode_number(text, place(row)) for row, text in enumerate(parsed.texts)], np.int32)


def _place(name: str, lines: Sequence[int] | np.ndarray) -> Callable[[int], str]:
    return lambda row: f"{name}, line {lines[row]}"


def _small(lines: np.ndarray) -> Sequence[int]:
    """Numbers (m,) of lines, at least one, which ascend, in a bit each: they are kept until all rows are read."""
    first = int(lines[0])
    present = np.zeros(int(lines[-1]) - first + 1, bool)
    present[lines - first] = True
    return AscendingNumbers(first, present)
