"""Values of a column, as Arrow has them, as numbers, texts or times; what is missing, and what is none of these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from coremargin.data.sources.text import is_number
from coremargin.data.sources.vocabulary import MISSING

#: Spellings of what is missing in a text file: those of labels, and what pandas takes for missing besides.
NULLS = tuple(
    sorted(
        spelling
        for word in {*MISSING, "none", "<na>", "#n/a"}
        for spelling in {word, word.upper(), word.capitalize(), {"nan": "NaN", "n/a": "N/a"}.get(word, word)}
    )
)
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
EXACT = 2**53  #: whole numbers beyond it are not all numbers of float64


@dataclass(frozen=True, slots=True)
class Found:
    """Values (m,) float64; missing (m,): where there is none (the value is NaN); bad: the first row of another kind."""

    values: np.ndarray
    missing: np.ndarray
    bad: int | None = None


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or categories that are."""
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_string_view(plain))


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type is numbers; booleans are not."""
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_integer(plain) or pa.types.is_floating(plain) or pa.types.is_decimal(plain))


def is_boolean(kind: Any) -> bool:
    """Whether an Arrow type is booleans."""
    import pyarrow as pa

    return bool(pa.types.is_boolean(kind.value_type if pa.types.is_dictionary(kind) else kind))


def is_time(kind: Any) -> bool:
    """Whether an Arrow type is dates, or dates with times."""
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def undone(column: Any) -> Any:
    """The array without Arrow's dictionary, where it has one."""
    import pyarrow as pa

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def as_numbers(column: Any) -> Found:
    """Numbers of a column of numbers, booleans or texts that are numbers as NumPy's parser reads them."""
    import pyarrow as pa

    column = undone(column)
    missing = np.asarray(column.is_null())
    if is_text(column.type):
        try:
            return Found(_floats(column.cast(pa.float64())), missing)
        except pa.ArrowInvalid:
            return _spelt(column, missing)
    if is_numeric(column.type) or pa.types.is_boolean(column.type):
        values = _floats(column.cast(pa.int8() if pa.types.is_boolean(column.type) else column.type))
        return Found(values, missing | np.isnan(values))
    present = np.flatnonzero(~missing)
    return Found(np.full(len(column), np.nan), missing, int(present[0]) if len(present) else None)


def _floats(column: Any) -> np.ndarray:
    """An array of numbers as float64, NaN where one is missing."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_decimal(kind) or (pa.types.is_floating(kind) and kind != pa.float64()):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _spelt(column: Any, missing: np.ndarray) -> Found:
    """The same of texts that Arrow does not read: "+1" is a number to NumPy, 1_0 to neither."""
    coded = column.dictionary_encode()
    known = [_number(text) for text in coded.dictionary.to_pylist()]
    table = np.array([np.nan if value is None else value for value in known] or [np.nan])
    odd = np.array([value is None for value in known] or [False])
    codes = np.asarray(coded.indices.fill_null(0))
    bad = odd[codes] & ~missing
    values = np.where(missing, np.nan, table[codes])
    return Found(values, missing, int(np.argmax(bad)) if bad.any() else None)


def _number(text: str) -> float | None:
    return float(text) if is_number(text) else None


def whole_beyond(column: Any) -> int | None:
    """The first row of a column of integers whose number float64 does not hold; None for other columns."""
    import pyarrow as pa

    column = undone(column)
    if not pa.types.is_integer(column.type) or column.type.bit_width < 64:
        return None
    values = np.asarray(column.fill_null(0))
    bad = (values > EXACT) | (values < -EXACT)
    return int(np.argmax(bad)) if bad.any() else None


def as_truths(column: Any) -> Found:
    """1 and 0 of a column of booleans, or of texts that are true or false; of another kind are all others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = undone(column)
    missing = np.asarray(column.is_null())
    if pa.types.is_boolean(column.type):
        return Found(_floats(column.cast(pa.int8())), missing)
    if not is_text(column.type):
        return Found(np.full(len(column), np.nan), missing, _first(~missing))
    true, false = (np.asarray(pc.is_in(column, value_set=pa.array(words, column.type))) for words in (_TRUE, _FALSE))
    values = np.where(true, 1.0, np.where(false, 0.0, np.nan))
    return Found(values, missing, _first(~(true | false | missing)))


def as_texts(column: Any) -> Any:
    """The column as texts in a dictionary array of Arrow, null where missing.

    A whole number is written without fraction, whatever type it has: 1.0 and 1 are one category.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        words = as_texts(column.dictionary)
        return pa.DictionaryArray.from_arrays(words.indices.take(column.indices), words.dictionary)
    if is_text(column.type):
        return column.dictionary_encode()
    if is_numeric(column.type):
        column = column.cast(pa.float64()) if pa.types.is_floating(column.type) else column
        coded = column.dictionary_encode()
        values = [_as_text(value) for value in coded.dictionary.to_pylist()]
    else:
        coded = column.dictionary_encode()
        values = [None if value is None else str(value) for value in coded.dictionary.to_pylist()]
    return (
        pa.DictionaryArray.from_arrays(pa.array(np.arange(len(values), dtype=np.int32)), pa.array(values, pa.string()))
        .take(coded.indices)
        .cast(pa.string())
        .dictionary_encode()
    )  # what is NaN is null now


def _as_text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    whole = int(value) if value == value // 1 else None
    return str(value) if whole is None else str(whole)


def as_times(column: Any, form: str) -> Found:
    """Seconds since 1970 of dates, or of texts in a format of ``strptime`` ("": ISO 8601); zones become UTC."""
    column = undone(column)
    missing = np.asarray(column.is_null())
    if is_text(column.type):
        times = _formatted(column, form) if form else _iso(column)
        bad = np.asarray(times.is_null()) & ~missing
        return Found(_seconds(times), missing, _first(bad))
    if not is_time(column.type):
        return Found(np.full(len(column), np.nan), missing, _first(~missing))
    return Found(_seconds(column), missing)


def _iso(column: Any) -> Any:
    """Timestamps of texts, null where one is no date of ISO 8601."""
    import pyarrow as pa

    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    coded = column.dictionary_encode()  # some are none, or some have a zone and some have not
    times = [_one_iso(text) for text in coded.dictionary.to_pylist()]
    return pa.array(times, pa.timestamp("us")).take(coded.indices)


def _formatted(column: Any, form: str) -> Any:
    """Timestamps of texts in a format, null where one is no such date.

    Arrow takes 31 February for 3 March; only the first days of a month may be such, and these are read once more.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    times = pc.strptime(column, format=form, unit="us", error_is_null=True)
    early = np.flatnonzero(np.asarray(pc.less_equal(pc.day(times), 3).fill_null(False)))
    if not len(early):
        return times
    coded = column.take(pa.array(early)).dictionary_encode()
    known = np.array([_is_date(text, form) for text in coded.dictionary.to_pylist()])
    kept = np.ones(len(times), dtype=bool)
    kept[early] = known[np.asarray(coded.indices)]
    return pc.if_else(pa.array(kept), times, pa.scalar(None, times.type))


def _is_date(text: str, form: str) -> bool:
    from datetime import datetime

    try:
        datetime.strptime(text, form)  # noqa: DTZ007 - whether there is such a day
    except ValueError:
        return False
    return True


def _one_iso(text: str) -> Any:
    from datetime import UTC, datetime

    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def _seconds(times: Any) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s"))
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[times.type.unit]
    ticks = times.cast(pa.int64())
    return np.asarray(ticks.to_numpy(zero_copy_only=False), dtype=np.float64) / scale


def _first(bad: np.ndarray) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


_SHAPE = re.compile(r"\d{4}-\d{2}-\d{2}")


def looks_like_date(text: str) -> bool:
    """Whether a text is written as a date of ISO 8601, whether there is such a day or not."""
    return _SHAPE.match(text.strip()) is not None
