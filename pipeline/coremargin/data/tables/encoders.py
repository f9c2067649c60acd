"""Columns of a table as features, each in the way that the store's columns say; what does not fit them is refused.

scikit-learn's own classes hash texts and categories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coremargin.data.tables.arrow_arrays import decode_dictionary, fixed_width_values, is_double, is_list, is_text
from coremargin.data.tables.number_text import PLAIN
from coremargin.data.tables.values import (
    ParsedValues,
    as_numbers,
    as_texts,
    as_times,
    as_truths,
    canonical_text,
    describe_bad_date,
    describe_odd_zone,
    first_rounded_integer,
    list_values,
)
from coremargin.errors import BadRow
from coremargin.formats.column_kinds import Categories, Column, Dates, Hashed, Lists, Numbers

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coremargin.data.tables.table import TableBatch
    from coremargin.data.tables.values import Texts
    from coremargin.formats.column_kinds import Texts as TextColumn
    from coremargin.formats.columns import ColumnsRecord, TextFormat
    from coremargin.maths.rows import Rows

BUCKETS = 1 << 18  #: of texts


class DocumentFrequencies:
    """In how many texts each bucket occurs."""

    def __init__(self, ngrams: int) -> None:
        self.ngrams, self.rows = ngrams, 0
        self._counts = np.zeros(BUCKETS, dtype=np.int64)

    def add(self, texts: Texts) -> None:
        """Take texts; one that is missing has no words."""
        self.rows += len(texts.codes)
        found = word_counts(texts, BUCKETS, self.ngrams)
        self._counts += np.bincount(found.indices, minlength=BUCKETS)  # each bucket once a row

    @property
    def counts(self) -> list[int]:
        """By bucket."""
        return [int(count) for count in self._counts]


@lru_cache(maxsize=16)
def _hasher(buckets: int, ngrams: int) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=buckets, ngram_range=(1, ngrams), norm=None, alternate_sign=False)


def word_counts(texts: Texts, buckets: int, ngrams: int) -> csr_array:
    """How often (m, buckets) each bucket's words occur in each text."""
    from scipy.sparse import csr_array

    found = csr_array(_hasher(buckets, ngrams).transform([*texts.words, ""]))
    return found[np.where(texts.codes < 0, len(texts.words), texts.codes)]


def word_features(texts: Texts, column: TextColumn) -> csr_array:
    """Features (m, buckets) of texts: counts, weighed by how rare their words are, each row of length 1 or 0."""
    from scipy.sparse import csr_array, diags_array

    found = word_counts(texts, column.buckets, column.ngrams)
    if column.frequencies:
        weights = np.log((1 + column.rows) / (1 + np.array(column.frequencies, dtype=np.float64))) + 1
        found = csr_array(found @ diags_array(weights))
    lengths = np.sqrt(np.asarray(found.multiply(found).sum(axis=1)).reshape(-1))
    scale = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    return csr_array(diags_array(scale) @ found)


def hash_category(value: str, buckets: int) -> tuple[int, int]:
    """The bucket of a category, and 1 or -1, as scikit-learn's FeatureHasher has them."""
    from sklearn.utils import murmurhash3_32

    number = int(murmurhash3_32(value, seed=0))
    return abs(number) % buckets, 1 if number >= 0 else -1


Place = Callable[[int], str]
#: Features (m, w) of a column: all of them, as CSR, or as (codes, values, w) the one that is not 0 in each row, if any.
Features: TypeAlias = Any
OneHot: TypeAlias = "tuple[np.ndarray, np.ndarray, int]"

_SHOWN = 80  # characters of a value that a message shows
_YEAR, _DAY = 365.2425 * 86400.0, 86400.0
_Y2000 = 946684800.0  # seconds from 1970 to 2000
_MONDAY = 3  # days from 1 January 1970, a Thursday, back to Monday


def encode(
    batch: TableBatch,
    positions: Sequence[int],
    columns: ColumnsRecord,
    *,
    sparse: bool,
    form: TextFormat | None = None,
) -> Rows:
    """Features (m, d) of a batch, the columns of which lie at these positions of the table. Raises BadRow.

    form: how numbers are written in texts; None: as those of the columns were.
    """
    parts: list[Features] = []
    form = form or columns.text or PLAIN
    for position, column in zip(positions, columns.columns, strict=True):
        parts += _encode_column(column, batch.columns[position], batch.place, form)
    if sparse:
        return _stack_sparse(parts, batch.rows)
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        return parts[0]
    rows, at = np.empty((batch.rows, sum(map(_width, parts)))), 0
    for part in parts:
        width = _width(part)
        _write_features(rows[:, at : at + width], part)
        at += width
    return rows


def _width(part: Features) -> int:
    return int(part[2]) if isinstance(part, tuple) else int(part.shape[1])


def _write_features(rows: np.ndarray, part: Features) -> None:
    """Write the features of a column to their place among all."""
    if isinstance(part, tuple):
        codes, values, _ = part
        rows[...] = 0.0
        at = np.flatnonzero(codes >= 0)
        rows[at, codes[at]] = values[at]
    else:
        rows[...] = part if isinstance(part, np.ndarray) else part.toarray()


def _stack_sparse(parts: Sequence[Features], rows: int) -> csr_array:
    """The features of all columns as CSR without zeros."""
    from scipy.sparse import csr_array, hstack

    done: list[csr_array] = []
    run: list[Features] = []
    for part in parts:
        if isinstance(part, tuple | np.ndarray):
            run.append(part)
            continue
        done += [_stack_run(run, rows), part] if run else [part]
        run = []
    if run:
        done.append(_stack_run(run, rows))
    return done[0] if len(done) == 1 else csr_array(hstack(done, format="csr"))


def _stack_run(parts: Sequence[Features], rows: int) -> csr_array:
    """Columns with as many entries a row as they can fill, without zeros in the end. Faster than stacking them."""
    from scipy.sparse import csr_array

    sizes, first, at = [1 if isinstance(part, tuple) else part.shape[1] for part in parts], 0, 0
    indices, values = np.empty((rows, sum(sizes)), np.int32), np.empty((rows, sum(sizes)))
    usual = np.empty(sum(sizes), np.int32)
    for part, count in zip(parts, sizes, strict=True):
        usual[at : at + count] = np.arange(first, first + count)
        at, first = at + count, first + _width(part)
    indices[...], at = usual, 0
    for part, count in zip(parts, sizes, strict=True):
        if isinstance(part, tuple):
            codes, found, _ = part
            indices[:, at] += np.maximum(codes, 0).astype(np.int32)
            values[:, at] = np.where(codes >= 0, found, 0.0)
        else:
            values[:, at : at + count] = part
        at += count
    starts = np.arange(rows + 1, dtype=np.int32) * len(usual)
    found = csr_array((values.reshape(-1), indices.reshape(-1), starts), shape=(rows, first))
    found.eliminate_zeros()
    return found


def _encode_column(column: Column, values: Any, place: Place, form: TextFormat) -> list[Features]:
    """Features of a column, side by side in parts."""
    if isinstance(column, Numbers):
        return [_encode_numbers(column, values, place, form)]
    if isinstance(column, Lists):
        return [_encode_lists(column, values, place)]
    if isinstance(column, Categories):
        return [_encode_categories(column, values, place)]
    if isinstance(column, Hashed):
        return [_encode_hashed(column, values, place)]
    if isinstance(column, Dates):
        return _encode_dates(column, values, place)
    return [word_features(as_texts(values), column)]


def _encode_numbers(column: Numbers, values: Any, place: Place, form: TextFormat) -> np.ndarray:
    if column.plain and not values.null_count and is_double(values):  # as most are, of thousands of columns
        plain = fixed_width_values(values, np.float64)
        if not np.isnan(plain).any():
            return plain[:, None]
    found = as_truths(values) if column.boolean else as_numbers(values, form, column.unit)
    if column.boolean and found.bad is not None:
        found = _require_binary(as_numbers(values, form))  # 1 and 0 are true and false in other tables
    if found.bad is not None:
        wanted = "true or false" if column.boolean else _number_wanted(column, form)
        _refuse(column.name, values, found.bad, place, f"expected {wanted}; correct the value")
    beyond = first_rounded_integer(values, form, column.unit)
    if beyond is not None:
        wanted = "expected whole numbers up to 2^53, which float64 holds; convert the column"
        if is_text(decode_dictionary(values).type):
            wanted += ", or leave it out with --drop, or say --categorical or --key where it names things"
        _refuse(column.name, values, beyond, place, wanted)
    return _fill_missing(column, found, place)


def _number_wanted(column: Numbers, form: TextFormat) -> str:
    """What a column's numbers look like, for messages."""
    parts = ["a number"]
    if column.unit:
        parts.append(f"with {column.unit!r}, as all of the column have")
    if form.decimal != "." or form.thousands:
        thousands = f"thousands by {form.thousands!r}" if form.thousands else "thousands by nothing"
        parts.append(f"with {form.decimal!r} before decimals and {thousands} (--decimal, --thousands)")
    return " ".join(parts)


def _require_binary(found: ParsedValues) -> ParsedValues:
    """Numbers that are to be 1 or 0."""
    odd = ~np.isin(found.values, (0.0, 1.0)) & ~found.missing
    bad = int(np.argmax(odd)) if odd.any() else None
    return found if found.bad is not None else ParsedValues(found.values, found.missing, bad)


def _fill_missing(column: Numbers | Dates, found: ParsedValues, place: Place) -> np.ndarray:
    """Values (m, 1), and with an indicator (m, 2), whatever was missing filled in."""
    missing = found.missing
    if missing.any():
        if column.fill is None:
            _refuse_missing(column.name, missing, place)
        found.values[missing] = column.fill
    values = found.values[:, None]
    return np.hstack([values, missing[:, None]]) if column.indicator else values


def _encode_lists(column: Lists, values: Any, place: Place) -> np.ndarray:
    if not len(values):
        return np.empty((0, column.length))
    if not is_list(values.type):
        _refuse(column.name, values, 0, place, f"expected a list of {column.length} numbers")
    return list_values(values, column.name, column.length, place)


def _encode_categories(column: Categories, values: Any, place: Place) -> OneHot:
    texts = as_texts(values)
    known = {value: code for code, value in enumerate(column.values)}
    other = len(known) if column.other else -1
    table = np.array([*_codes(texts.words, known, other), -1])
    codes, missing = table[texts.codes], texts.codes < 0
    width = len(known) + column.other + column.missing
    if missing.any():
        if column.fill is None and not column.missing:
            _refuse_missing(column.name, missing, place)
        codes[missing] = width - 1 if column.missing else known.get(column.fill or "", other)
    if column.refuse and not column.other and (strange := (codes < 0) & ~missing).any():
        few = ", ".join(repr(value[:30]) for value in column.values[:5])
        wanted = (
            f"which the store's rows did not have when it was made: expected one of {few}{', ...' * (len(known) > 5)}"
        )
        _refuse(column.name, values, int(np.argmax(strange)), place, wanted)
    return codes, np.ones(len(codes)), width


def _codes(words: Sequence[str], known: Mapping[str, int], other: int) -> list[int]:
    """The codes of categories: as they are written, or else of the only value that other tables may write so."""
    meant: dict[str, int] = {}
    if any(word not in known for word in words):
        for value, code in known.items():
            meant[canonical_text(value)] = other if canonical_text(value) in meant else code
    return [known[word] if word in known else meant.get(canonical_text(word), other) for word in words]


def _encode_hashed(column: Hashed, values: Any, place: Place) -> OneHot:
    texts = as_texts(values)
    table = np.array([*(hash_category(canonical_text(word), column.buckets) for word in texts.words), (-1, 0)])
    missing = texts.codes < 0
    if missing.any() and not column.missing:
        _refuse_missing(column.name, missing, place)
    found = table[texts.codes]
    codes, signs = found[:, 0], found[:, 1].astype(np.float64)
    if column.missing:
        codes, signs = np.where(missing, column.buckets, codes), np.where(missing, 1.0, signs)
    return codes, signs, column.buckets + column.missing


def _encode_dates(column: Dates, values: Any, place: Place) -> list[Features]:
    found = as_times(values, column.format)
    if found.bad is not None:
        _refuse(column.name, values, found.bad, place, describe_bad_date(column.format))
    odd = found.zoned_unlike(zoned=column.zoned)
    if odd is not None:
        raise BadRow(f"{place(odd)}, column {column.name!r}: {describe_odd_zone(zoned=column.zoned)}")
    filled = _fill_missing(column, found, place)
    seconds = filled[:, 0]
    days = np.floor(seconds / _DAY)
    weekday = (days.astype(np.int64) + _MONDAY) % 7
    year = 2 * np.pi * (seconds - _Y2000) / _YEAR
    years = np.column_stack([(seconds - _Y2000) / _YEAR, np.sin(year), np.cos(year)])
    parts: list[Features] = [years, (weekday, np.ones(len(weekday)), 7)]
    if column.time:
        parts.append(_circle_of_day(seconds - days * _DAY))
    return [*parts, filled[:, 1:]] if column.indicator else parts


def _circle_of_day(seconds: np.ndarray) -> np.ndarray:
    """Sine and cosine (m, 2) of the time of the day; those of whole seconds are looked up, which is much faster."""
    whole = seconds.astype(np.intp)
    if np.array_equal(whole, seconds) and whole.min(initial=0) >= 0 and whole.max(initial=0) < _DAY:
        return _whole_seconds().take(whole, axis=0)
    return _circle(np.mod(seconds, _DAY))


@lru_cache(maxsize=1)
def _whole_seconds() -> np.ndarray:
    return _circle(np.arange(_DAY))


def _circle(seconds: np.ndarray) -> np.ndarray:
    day = 2 * np.pi * seconds / _DAY
    return np.column_stack([np.sin(day), np.cos(day)])


def _refuse(name: str, values: Any, row: int, place: Place, wanted: str) -> None:
    found = values[row].as_py()
    raise BadRow(f"{place(row)}, column {name!r}: found {repr(found)[:_SHOWN]}, {wanted}")


def _refuse_missing(name: str, missing: np.ndarray, place: Place) -> None:
    row = int(np.argmax(missing))
    raise BadRow(
        f"{place(row)}, column {name!r}: found no value, expected one; fill it in, remove the row, or say what becomes "
        f"of missing values when the store is made, with --missing median or another policy"
    )
