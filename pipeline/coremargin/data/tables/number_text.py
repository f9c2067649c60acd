"""Numbers as they are written: which texts are numbers, in which notation, and what a missing value looks like."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from coremargin.data.labels import MISSING
from coremargin.data.tables.arrow_arrays import boolean_values, string_array, to_float64
from coremargin.formats.columns import TextFormat

PLAIN = TextFormat()
#: Spellings of what is missing in a text file: those of labels, and what Python and pandas write besides. "none" is a
#: value, as in none, few, many.
NULLS = tuple(
    sorted(
        {"None", "<NA>", "#N/A"}
        | {
            spelling
            for word in MISSING
            for spelling in {word, word.upper(), word.capitalize(), {"nan": "NaN", "n/a": "N/a"}.get(word, word)}
        }
    )
)
EXACT = 2**53  #: whole numbers beyond it are not all numbers of float64
_MINUS = "\u2212\u2013\u2011"  # minus; en dash and hyphen that word processors make of one
_SPACES = " \u00a0\u2009\u202f"
_SEPARATORS = {",": ",", ".": r"\.", "space": f"[{_SPACES}]", "'": "['\u2019]", "_": "_"}
_CURRENCIES = "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|INR|JPY|KRW|MXN|NOK|NZD|PLN|SEK|SGD|TRY|USD|ZAR|kr|Fr|zł"
_UNIT = re.compile(rf"[%‰$¢£¤¥₠-⃀]|(?<![A-Za-z])(?:[A-Z]{{0,2}}\$|{_CURRENCIES})(?![A-Za-z])")
#: Signs that tables show where there is no value.
DASHES = ("-", "--", "---", "\u2014", *_MINUS, ".", "..", "...", "*")


def null_texts(form: TextFormat) -> tuple[str, ...]:
    """Texts that stand for a missing value: an empty one always does."""
    return tuple(sorted({*form.na_values, *(NULLS if form.keep_default_na else ("",))}))


@lru_cache(maxsize=64)
def number_pattern(form: TextFormat, unit: str = "") -> str:
    """A regular expression, for Arrow and Python, of all texts that are a number in this notation."""
    digits = "[0-9]+"
    if form.thousands:
        mark = _SEPARATORS[form.thousands]
        digits = f"(?:[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}|[0-9]+)"
    point = _SEPARATORS[form.decimal]
    sign = f"[-+{_MINUS}]?"
    number = f"(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE]{sign}[0-9]+)?"
    if not unit:
        return f"^(?:{sign}{number}|[-+]?(?:(?i:nan|inf|infinity)))$"
    named, space = re.escape(unit), f"[{_SPACES}]?"
    return f"^(?:(?:{sign}{named}{space}|{named}{space}{sign}){number}|{sign}{number}{space}{named})$"


def read_numbers(texts: Any, form: TextFormat = PLAIN, unit: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Values (m,) float64 of an Arrow array of texts, and which (m,) of them are no number in this notation.

    unit: stands before or behind every number. What is null is NaN, and fits.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    fits = pc.match_substring_regex(texts, pattern=number_pattern(form, unit))
    odd = ~boolean_values(pc.fill_null(fits, True))
    if odd.any():
        texts = pc.if_else(fits, texts, pa.scalar(None, texts.type))
    return to_float64(_to_plain_notation(texts, form, unit).cast(pa.float64())), odd


def _to_plain_notation(texts: Any, form: TextFormat, unit: str) -> Any:
    """Texts that are numbers in a notation as Arrow and Python read them."""
    import pyarrow.compute as pc

    if unit:
        texts = pc.replace_substring_regex(texts, pattern=f"{re.escape(unit)}|[{_SPACES}]", replacement="")
    if form.thousands:
        texts = pc.replace_substring_regex(texts, pattern=_SEPARATORS[form.thousands], replacement="")
    if form.decimal != ".":
        texts = pc.replace_substring(texts, pattern=form.decimal, replacement=".")
    texts = pc.replace_substring_regex(texts, pattern=f"[{_MINUS}]", replacement="-")
    return pc.utf8_ltrim(texts, characters="+")


def first_rounded_text(texts: Any, form: TextFormat = PLAIN, unit: str = "") -> int | None:
    """The first of some numbers that is whole, written without an exponent, and that float64 may not hold.

    As Parquet's whole numbers of 64 bits beyond 2^53 are refused, so are these; larger ones, which no such type holds,
    only where float64 rounds them, as those with a decimal point: a program that writes floats without an exponent
    writes all of their digits.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest < len(str(EXACT)):
        return None
    texts = _to_plain_notation(pc.utf8_trim_whitespace(texts), form, unit)
    long = boolean_values(pc.fill_null(pc.match_substring_regex(texts, pattern=r"^-?0*[1-9][0-9]{15,}(\.0*)?$"), False))
    at = np.flatnonzero(long)
    for row, text in zip(at.tolist(), texts.take(pa.array(at)).to_pylist(), strict=True):
        digits, point, _ = text.partition(".")
        if is_rounded(digits, point=bool(point)):
            return row
    return None


def is_rounded(digits: str, *, point: bool = False) -> bool:
    """Whether float64 may not hold a whole number other than 0, in digits that a decimal point may follow."""
    digits = digits.lstrip("+-0")
    if math.isinf(float(digits)):  # int() refuses thousands of digits
        return True
    number = int(digits)
    is_exact = int(float(digits)) == number
    if point:
        return number > EXACT and not is_exact
    return number > EXACT and (number < 1 << 64 or number > 10**308 or not is_exact)


def find_unit(text: str) -> str:
    """The sign of a currency or of percent with a number; "" where there is none."""
    found = _UNIT.search(text)
    rest = text.replace(found.group(), "", 1) if found else ""
    return found.group() if found and re.search("[0-9]", rest) else ""


@dataclass(frozen=True, slots=True)
class Notation:
    """How the numbers of a column seem to be written.

    found: in words. numbers: texts that are numbers, without signs of units. formats: those that agree with what was
    said of the file and in which all of these are numbers. dashes: signs that stand where no value is. signs: of units
    and of negative numbers as accounts have them. advice: what is to be done where no option helps; "" where one does.
    """

    found: str
    numbers: tuple[str, ...]
    formats: tuple[TextFormat, ...]
    dashes: tuple[str, ...]
    signs: tuple[str, ...]
    mixed: bool
    advice: str


_FORMATS = (
    PLAIN,
    TextFormat(decimal=","),
    TextFormat(thousands=","),
    TextFormat(thousands="space"),
    TextFormat(thousands="'"),
    TextFormat(thousands="_"),
    TextFormat(thousands=".", decimal=","),
    TextFormat(thousands="space", decimal=","),
    TextFormat(thousands="'", decimal=","),
)
#: Negative numbers of accounting: (1.50), and 1.50- as SAP writes them.
_ACCOUNTING = re.compile(rf"\(([^()]*[0-9][^()]*)\)|([^-()]*[0-9][^-()]*)[-{_MINUS}]")


def detect_notation(words: Iterable[str], given: TextFormat = PLAIN) -> Notation | None:
    """How different texts of a column are written, if at least half of them are numbers in some notation; else None.

    given: the notation that the options give.
    """
    texts = [word for word in words if word]
    dashes = tuple(dict.fromkeys(word for word in texts if word in DASHES))
    texts = [word for word in texts if word not in DASHES]
    negative = [word for word in texts if _ACCOUNTING.fullmatch(word)]
    inner = [_ACCOUNTING.sub(r"\1\2", word) if word in negative else word for word in texts]
    units = [find_unit(word) for word in inner]
    bare = [word.replace(unit, "", 1).strip(_SPACES) for word, unit in zip(inner, units, strict=True)]
    if not texts:
        return None
    count = {form: int(np.count_nonzero(~np.isnan(parse_numbers(bare, form)))) for form in _FORMATS}
    most = max(count.values())
    if 2 * most < len(texts):
        return None
    best = [form for form in _FORMATS if count[form] == most]
    agreeing = tuple(form for form in best if _agrees(form, given))
    form = (agreeing or best)[0]
    fits = ~np.isnan(parse_numbers(bare, form))
    numbers = tuple(word for word, fit in zip(bare, fits.tolist(), strict=True) if fit)
    odd = [word for word, fit in zip(texts, fits.tolist(), strict=True) if not fit]
    signs = list(dict.fromkeys(unit for unit in units if unit))
    usual = re.compile(number_pattern(PLAIN))
    shown = [word for word in texts if not usual.match(word)] or texts
    elsewhere = np.any([~np.isnan(parse_numbers(odd, form)) for form in _FORMATS], axis=0)
    otherwise = [word for word, fit in zip(odd, elsewhere.tolist(), strict=True) if fit]
    advice = ""
    if negative:
        advice = f"write negative numbers with a minus sign in front, not as {negative[0][:30]!r}"
    elif len(set(units)) > 1:
        mixed = f"some with {' and '.join(map(repr, signs[:3]))}{', some without' if '' in units else ''}"
        advice = f"{mixed}: write all of the column in one unit"
    elif otherwise:
        advice = (
            f"others are written otherwise, such as {otherwise[0][:30]!r}: write all numbers of the file in one way"
        )
    elif odd:
        advice = (
            f"others are none, such as {odd[0][:30]!r}: correct them, or say --na-values if they stand for no value"
        )
    elif not agreeing:
        advice = (
            "they are written otherwise than --decimal and --thousands say: write all numbers of the file in one way"
        )
    unclear = {form.decimal for form in agreeing} == {".", ","} and not agreeing[0].thousands
    described = " with commas" if unclear and form != PLAIN else _described(form)
    found = f"numbers{described} ({', '.join(repr(word[:30]) for word in shown[:3])}, ...)"
    return Notation(found, numbers, agreeing, dashes, (*signs, *negative[:1]), bool(otherwise), advice)


def parse_numbers(texts: Sequence[str], form: TextFormat) -> np.ndarray:
    """Values (m,) of texts, NaN where one is no number in this notation."""
    return read_numbers(string_array(texts), form)[0]


def _agrees(form: TextFormat, given: TextFormat) -> bool:
    return given.decimal in (".", form.decimal) and given.thousands in ("", form.thousands)


def _described(form: TextFormat) -> str:
    if form.thousands and form.decimal == ",":
        return " with decimal commas and separated thousands"
    return " with separated thousands" if form.thousands else " with decimal commas" if form.decimal == "," else ""


def suggest_text_options(notations: Sequence[Notation], given: TextFormat) -> tuple[list[tuple[str, str]], str]:
    """The options by which a file's columns become numbers, none where that is not clear; and advice in words."""
    forms = [form for form in _FORMATS if all(form in one.formats for one in notations)]
    texts = [text for one in notations for text in one.numbers]
    if not forms or any(one.advice for one in notations):
        return [], ""
    read = {form: parse_numbers(texts, form) for form in forms}
    other = next((form for form in forms if not np.array_equal(read[form], read[forms[0]])), None)
    if other is not None:
        at = int(np.argmax(read[other] != read[forms[0]]))
        each = (f"{read[form][at]:g} with {_option_text(form, given)}" for form in (forms[0], other))
        return [], f"{texts[at]!r} is {' or '.join(each)}: say which"
    dashes = list(dict.fromkeys(dash for one in notations for dash in one.dashes))
    options = [*_options(forms[0], given), *([("--na-values", ",".join(dashes))] if dashes else [])]
    return options, f"say {_shown(options)}" if options else ""


def _options(form: TextFormat, given: TextFormat) -> list[tuple[str, str]]:
    found = (("--decimal", form.decimal, given.decimal), ("--thousands", form.thousands, given.thousands))
    return [(option, value) for option, value, known in found if value != known]


def _option_text(form: TextFormat, given: TextFormat) -> str:
    return _shown(_options(form, given)) or "neither option"


def _shown(options: Sequence[tuple[str, str]]) -> str:
    """Options as a person types them."""
    quoted = [(option, value if value.isalnum() else f'"{value}"') for option, value in options]
    return " ".join(f"{option} {value}" for option, value in quoted)
