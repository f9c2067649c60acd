"""Values of a column, as Arrow has them, as numbers, texts or times; what is missing, and what is none of these."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.tables.arrow_arrays import (
    boolean_values,
    decode_dictionary,
    dictionary_codes,
    fixed_width_values,
    is_boolean,
    is_list,
    is_numeric,
    is_text,
    is_time,
    list_lengths,
    null_mask,
    numpy_type,
    numpy_values,
    to_float64,
)
from coremargin.data.tables.number_text import EXACT, PLAIN, first_rounded_text, read_numbers
from coremargin.errors import BadRow
from coremargin.formats.row_types import NARROW_TYPES

if TYPE_CHECKING:
    from coremargin.formats.columns import TextFormat

_TRUTHS = dict.fromkeys(("true", "True", "TRUE"), 1.0) | dict.fromkeys(("false", "False", "FALSE"), 0.0)
_DECIMAL = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?")  # no code that begins with a zero: 01 is not 1


@dataclass(frozen=True, slots=True)
class ParsedValues:
    """Values (m,) float64; missing (m,): where there is none (the value is NaN); bad: the first row of another kind.

    zoned (m,): of dates, which of them came with a time zone; None: these are no dates.
    """

    values: np.ndarray
    missing: np.ndarray
    bad: int | None = None
    zoned: np.ndarray | None = None

    def zoned_unlike(self, *, zoned: bool) -> int | None:
        """The first date that has a time zone where others have none, or the other way round."""
        return None if self.zoned is None else _first((self.zoned != zoned) & ~self.missing)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts by their codes (m,) int32, places in ``words``; -1 where none is there."""

    codes: np.ndarray
    words: list[str]


def as_numbers(column: Any, form: TextFormat = PLAIN, unit: str = "") -> ParsedValues:
    """Numbers of a column of numbers, booleans or texts that are numbers in this notation.

    unit: the sign with each number of a text. A value without it is of another kind.
    """
    import pyarrow as pa

    column = decode_dictionary(column)
    missing = null_mask(column)
    if is_text(column.type):
        if form == PLAIN and not unit:
            try:
                return ParsedValues(to_float64(column.cast(pa.float64())), missing)
            except pa.ArrowInvalid:
                pass
        values, odd = read_numbers(column, form, unit)
        return ParsedValues(values, missing, _first(odd))
    if (is_numeric(column.type) or is_boolean(column.type)) and not unit:
        values = to_float64(column)
        return ParsedValues(values, missing | np.isnan(values))
    return ParsedValues(np.full(len(column), np.nan), missing, _first(~missing))


def first_rounded_integer(column: Any, form: TextFormat = PLAIN, unit: str = "") -> int | None:
    """The first row of a column of integers, decimals or texts whose whole number float64 may not hold."""
    import pyarrow as pa

    column = decode_dictionary(column)
    if is_text(column.type):
        return first_rounded_text(column, form, unit)
    if pa.types.is_decimal(column.type):
        large = np.flatnonzero(np.abs(to_float64(column)) >= EXACT)
        found = zip(large.tolist(), column.take(pa.array(large)).to_pylist(), strict=True)
        return next((row for row, value in found if abs(value) > EXACT and value == int(value)), None)
    if not pa.types.is_integer(column.type) or column.type.bit_width < 64:
        return None
    values = fixed_width_values(column, "u8" if pa.types.is_unsigned_integer(column.type) else "i8")
    beyond = (values > EXACT) | (values < -EXACT) if values.dtype.kind == "i" else values > EXACT
    return _first(beyond & ~null_mask(column))


def as_truths(column: Any) -> ParsedValues:
    """1 and 0 of a column of booleans, or of texts that are true or false; of another kind are all others."""
    column = decode_dictionary(column)
    missing = null_mask(column)
    if is_boolean(column.type):
        return ParsedValues(to_float64(column), missing)
    if not is_text(column.type):
        return ParsedValues(np.full(len(column), np.nan), missing, _first(~missing))
    found = as_texts(column)
    table = np.array([*(_TRUTHS.get(word, np.nan) for word in found.words), np.nan])
    values = table[found.codes]
    return ParsedValues(values, missing, _first(np.isnan(values) & ~missing))


def as_texts(column: Any) -> Texts:
    """The values of a column as texts; a whole number has no fraction, whatever type it has: 1.0 and 1 are one."""
    import pyarrow as pa

    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = coded.dictionary.to_pylist()
    found = dictionary_codes(coded)
    if is_text(coded.dictionary.type) and None not in values:
        return Texts(found, values)
    words = [_as_text(value) for value in values]
    known = {word: code for code, word in enumerate(dict.fromkeys(word for word in words if word is not None))}
    table = np.array([*(-1 if word is None else known[word] for word in words), -1], dtype=np.int32)
    return Texts(table[found], list(known))


def canonical_text(text: str) -> str:
    """A text as other tables may have it: whole numbers without a fraction, 2.50 as 2.5, true as True; else itself."""
    if text in _TRUTHS:
        return "True" if _TRUTHS[text] else "False"
    if _DECIMAL.fullmatch(text) is None or abs(float(text)) > EXACT:
        return text
    return _as_text(float(text)) or text


def _as_text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    if isinstance(value, bool | str | int):
        return str(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def as_times(column: Any, form: str) -> ParsedValues:
    """Seconds since 1970 of dates, or of texts in a format of ``strptime`` ("": ISO 8601); zones become UTC."""
    column = decode_dictionary(column)
    missing = null_mask(column)
    if is_text(column.type):
        seconds, zoned = (_formatted(column, form), _fill(column, "%z" in form)) if form else _iso(column)
        return ParsedValues(seconds, missing, _first(np.isnan(seconds) & ~missing), zoned)
    if not is_time(column.type):
        return ParsedValues(np.full(len(column), np.nan), missing, _first(~missing))
    return ParsedValues(_seconds(column), missing, zoned=_fill(column, getattr(column.type, "tz", None)))


def _fill(column: Any, zone: object) -> np.ndarray:
    return np.full(len(column), bool(zone))


def _iso(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of texts, NaN where one is no date of ISO 8601, and which have a time zone."""
    import pyarrow as pa

    for zone in (None, "UTC"):
        try:
            return _seconds(column.cast(pa.timestamp("us", tz=zone))), _fill(column, zone)
        except pa.ArrowInvalid:
            continue
    found = as_texts(column)  # some are none, or some have a zone and some have not
    dates = [*map(_one_iso, found.words), None]
    seconds = np.array(
        [np.nan if one is None else (one if one.tzinfo else one.replace(tzinfo=UTC)).timestamp() for one in dates]
    )
    zoned = np.array([one is not None and one.tzinfo is not None for one in dates])
    return np.asarray(seconds[found.codes]), np.asarray(zoned[found.codes])


def _formatted(column: Any, form: str) -> np.ndarray:
    """Seconds of texts in a format, NaN where one is no such date.

    Arrow takes 31 February for 3 March; only the first days of a month may be such, and these are read once more.
    """
    import pyarrow.compute as pc

    seconds = _seconds(pc.strptime(column, format=form, unit="us", error_is_null=True))
    days = np.where(np.isnan(seconds), 0, seconds // 86400).astype("datetime64[D]")
    early = np.flatnonzero((days - days.astype("datetime64[M]")).astype(int) < 3)
    known: dict[str, bool] = {}
    for row in early[~np.isnan(seconds[early])].tolist():
        text = column[row].as_py()
        if text not in known:
            known[text] = _is_date(text, form)
        if not known[text]:
            seconds[row] = np.nan
    return seconds


def _is_date(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)  # noqa: DTZ007 - whether there is such a day
    except ValueError:
        return False
    return True


def _one_iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _seconds(times: Any) -> np.ndarray:
    """Timestamps or dates as seconds since 1970, NaN where one is missing."""
    import pyarrow as pa

    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s"))
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[times.type.unit]
    found = fixed_width_values(times, "i8") / scale
    found[null_mask(times)] = np.nan
    return np.asarray(found)


def _first(bad: np.ndarray) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


_SHAPE = re.compile(r"\d{4}-\d{2}-\d{2}")


def first_not_digits(column: Any) -> int | None:
    """The first text of a column that is not of digits alone."""
    import pyarrow.compute as pc

    digits = pc.fill_null(pc.utf8_is_digit(pc.utf8_trim_whitespace(decode_dictionary(column))), True)
    return _first(~boolean_values(digits))


def looks_like_date(text: str) -> bool:
    """Whether a text is written as a date of ISO 8601, whether there is such a day or not."""
    return _SHAPE.match(text.strip()) is not None


def list_values(column: Any, name: str, width: int, place: Callable[[int], str]) -> np.ndarray:
    """Values (m, width) of one column, lists of a narrow type in that type, all others in float64.

    A null or a list of another length is refused.
    """
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise BadRow(
            f"{place(row)}, column {name!r}: found null, expected a number; fill in the value or leave the column out "
            f"with --drop {name}"
        )
    if not is_list(column.type):
        return _floats(column, name, place).reshape(-1, 1)
    lengths = list_lengths(column)
    if np.any(lengths != width):
        row = int(np.argmax(lengths != width))
        raise BadRow(
            f"{place(row)}, column {name!r}: found {lengths[row]} values, expected {width} as in the first row; make "
            "all lists of one length"
        )
    flat = column.flatten()
    if flat.null_count:
        row = int(np.argmax(np.asarray(flat.is_null()))) // width
        raise BadRow(f"{place(row)}, column {name!r}: found null in the list, expected numbers; fill it in")
    return _floats(flat, name, lambda at: place(at // width)).reshape(-1, width)


def _floats(column: Any, name: str, place: Callable[[int], str]) -> np.ndarray:
    """A column of numbers without nulls, in its type where that is narrow, else as float64."""
    column = decode_dictionary(column)
    if column.null_count:
        row = int(np.argmax(null_mask(column)))
        raise BadRow(f"{place(row)}, column {name!r}: found null, expected a number; fill in the value")
    beyond = first_rounded_integer(column)
    if beyond is not None:
        raise BadRow(
            f"{place(beyond)}, column {name!r}: found {column[beyond]}, expected whole numbers up to 2^53, which "
            f"float64 holds; convert the column, or leave it out with --drop {name}"
        )
    return numpy_values(column) if numpy_type(column.type) in NARROW_TYPES else to_float64(column)


def describe_odd_zone(*, zoned: bool) -> str:
    """What is wrong with a date that has a time zone where others have none, or the other way round, for messages."""
    found, expected = ("without", "with") if zoned else ("with", "without")
    return (
        f"found a date {found} time zone, expected one {expected}, as others of the column are; write all of them in "
        "one way"
    )


def describe_bad_date(form: str) -> str:
    """What is wrong with a text that is no date, for messages."""
    wanted = f"a date as {form!r} has it" if form else "a date of ISO 8601, such as 2026-02-28 or 2026-02-28 13:05:00"
    return f"expected {wanted}; correct the value, or name another format with --date-format"
