"""From what the columns of a table hold and what people say of them: the columns of a store; or what is yet to be said.

All columns that need a word are named at once, with words that would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coremargin.data.tables.column_options import AUTO, MOST_ONE_HOT, as_option
from coremargin.data.tables.encoders import BUCKETS, HASHED_BUCKETS
from coremargin.data.tables.number_text import PLAIN, Notation, notation_of, text_options
from coremargin.data.tables.survey import NGRAMS
from coremargin.errors import ColumnsUnclear, UsageError
from coremargin.formats.column_kinds import Categories, Column, Dates, Hashed, Lists, Numbers, Texts

if TYPE_CHECKING:
    from coremargin.data.tables.column_options import Words
    from coremargin.data.tables.survey import ColumnSurvey

_UNIQUE = 0.5  # more different values than this share of the rows are names, not categories
_FEW = 32  # as many different values are categories however few rows there are


@dataclass(frozen=True, slots=True)
class Open:
    """A column that needs a word: why, what is said where it is the only one, and which option would do for it.

    said: the column as options name it.
    """

    column: str
    said: str
    why: str
    alone: str
    option: str  #: "--categorical", "--dates", "--drop", "--missing median"; "": another one, or none
    notation: Notation | None = None  #: of what seem to be numbers


def fitted(surveys: Mapping[int, ColumnSurvey], words: Words, place: str, beside: str = "") -> list[Column]:
    """The columns in order. Raises ColumnsUnclear for those that need a word, all at once.

    place: of the table, for messages; beside: what else is to be known then.
    """
    columns, unclear, form = [], list[Open](), PLAIN
    for survey in surveys.values():
        form = survey.form
        found = _column(survey, words)
        if isinstance(found, Open):
            unclear.append(found)
        else:
            columns.append(found)
    for survey in surveys.values():
        gap = _gap(survey, words)
        if gap is not None:
            unclear.append(gap)
    if unclear:
        options, notes = list(suggestions(unclear)), [beside] if len(unclear) > 1 else []
        if sum(one.option == "--drop" for one in unclear) == len(surveys):
            options = []
            notes.append(
                "no other feature is there: name what is of use with --categorical or --text, or correct the file"
            )
        notations = [one.notation for one in unclear if one.notation is not None]
        if notations:
            on_text, said = text_options(notations, form)
            options = [word for pair in on_text for word in pair] + (options if on_text else [])
            notes.append(said or "correct the file")
            notes[-1] += ", or name columns that are categories all the same with --categorical"
        raise ColumnsUnclear(_told(unclear, place, [note for note in notes if note]), tuple(options))
    return columns


def policy_of(name: str, words: Words) -> str | None:
    """What is to become of a column's missing values; None: nobody has said."""
    policies = dict(words.missing)
    return policies.get(name, policies.get(""))


def _gap(survey: ColumnSurvey, words: Words) -> Open | None:
    """A column with missing values of which nobody has said what becomes of them."""
    if not survey.missing or survey.kind in (None, "text") or policy_of(survey.name, words) is not None:
        return None
    share = survey.missing / survey.rows
    option = "--missing median" if survey.kind in ("number", "boolean", "date") else "--missing indicator"
    why = f"{survey.missing:,} values are missing ({share:.1%}), the first in {survey.missing_at}"
    alone = (
        f"{survey.missing_at}, {survey.title}: found no value, expected one; {survey.missing:,} of "
        f"{survey.rows:,} are missing: fill them in, leave the column out with --drop {as_option([survey.said])}, or "
        f"say {option}"
    )
    return Open(survey.name, survey.said, why, alone, option)


def _column(survey: ColumnSurvey, words: Words) -> Column | Open:
    if survey.kind is None:
        return _open(survey, "no value is there in any row", "--drop")
    if survey.kind in ("number", "boolean"):
        fill, indicator = _filled(survey, words)
        boolean = survey.kind == "boolean"
        return Numbers(name=survey.name, fill=fill, indicator=indicator, boolean=boolean, unit=survey.unit)
    if survey.kind == "list":
        return Lists(name=survey.name, length=survey.length or 1)
    if survey.kind == "text":
        return _text(survey)
    if survey.kind == "date":
        return _dates(survey, words)
    return _categories(survey, words)


def _filled(survey: ColumnSurvey, words: Words) -> tuple[float | None, bool]:
    """The value where none is there, and whether a feature says so."""
    policy, numbers = policy_of(survey.name, words), survey.numbers
    if policy in (None, "refuse"):
        return None, False
    if policy == "median":
        return numbers.median, False
    if policy == "most-frequent":
        value = numbers.most_frequent
        if value is None and numbers.count:
            raise UsageError(
                f"--missing most-frequent: {survey.title} has too many different values to count; say "
                f"--missing {survey.name}=median"
            )
        return value or 0.0, False
    return numbers.mean, policy == "indicator" and survey.missing > 0


def _dates(survey: ColumnSurvey, words: Words) -> Column | Open:
    if survey.name not in words.dates and survey.code is not None:
        why, said = f"digits that may be dates, or codes: {survey.code!r}, ...", as_option([survey.said])
        alone = f"{survey.title}: {why}; say --dates {said} if they are dates, --categorical {said} if they are codes"
        return Open(survey.name, survey.said, f"{why}; --categorical if they are codes", alone, "--dates")
    if AUTO not in words.dates and survey.name not in words.dates:
        return _open(survey, "dates", "--dates")
    fill, indicator = _filled(survey, words)
    form, time, zoned = words.date_format, survey.time, bool(survey.zoned)
    return Dates(name=survey.name, format=form, time=time, zoned=zoned, fill=fill, indicator=indicator)


def _text(survey: ColumnSurvey) -> Column:
    frequencies = survey.words
    if frequencies is None:
        return Texts(name=survey.name, buckets=BUCKETS, ngrams=NGRAMS)
    return Texts(
        name=survey.name, buckets=BUCKETS, ngrams=NGRAMS, rows=frequencies.rows, frequencies=frequencies.counts
    )


def _categories(survey: ColumnSurvey, words: Words) -> Column | Open:
    named, counts = survey.name in words.categorical, survey.values.counts
    few = counts is not None and len(counts) <= max(_FEW, _UNIQUE * survey.values.count)
    numbers = None if named else _numbers(survey)
    if numbers is not None:
        return numbers
    if not named and (AUTO not in words.categorical or not few):
        return _unclear(survey, few=few)
    policy = policy_of(survey.name, words)
    missing = survey.missing > 0 and policy not in ("most-frequent", "refuse", None)
    if counts is None or (len(counts) > MOST_ONE_HOT and words.categories is None):
        return Hashed(name=survey.name, buckets=HASHED_BUCKETS, missing=policy not in ("refuse", None))
    kept, other = sorted(counts), False
    if words.categories is not None and len(kept) > words.categories:
        kept, other = sorted(sorted(counts, key=lambda value: (-counts[value], value))[: words.categories]), True
    fill = None if missing or policy in ("refuse", None) else survey.values.most_frequent()
    if fill is not None and fill not in kept:
        fill = None
    return Categories(
        name=survey.name, values=kept, other=other, refuse=words.unknown == "refuse", fill=fill, missing=missing
    )


def _numbers(survey: ColumnSurvey) -> Open | None:
    """A column of words that seem to be numbers, which are not made categories unless that is said; None: others."""
    notation = notation_of(survey.values.sample, survey.form)
    if notation is None:
        return None
    written = next(iter(notation.formats), None)
    counts, as_said = survey.values.counts, written == survey.form and not notation.dashes and not notation.signs
    if as_said and not notation.mixed and counts is not None and len(counts) <= _FEW:
        return None  # such as 0, 1, 2, 3+
    if survey.typed:
        if written == PLAIN and not notation.advice:
            return None  # digits that were said to be texts
        why = f"{notation.found}, but its type is text: convert it"
        alone = f"{survey.title}: {why}, or say --categorical {as_option([survey.said])}"
        return Open(survey.name, survey.said, why, alone, "")
    if survey.was == "number" and as_said:
        why = f"found {survey.first!r}, expected a number, as the values before it are; correct the value"
        said = f"say what becomes of the column with --drop or --categorical {as_option([survey.said])}"
        alone = f"{survey.first_at}, {survey.title}: {why}, or {said}"
        return Open(survey.name, survey.said, f"{survey.first!r} in {survey.first_at}: {why}", alone, "")
    why = notation.found
    if notation.dashes:
        why += f", and {' and '.join(map(repr, notation.dashes))} where there may be no value"
    if notation.advice:
        why += f"; {notation.advice}"
    return Open(survey.name, survey.said, why, f"{survey.title}: {why}", "", notation)


def _unclear(survey: ColumnSurvey, *, few: bool) -> Open:
    """A column of words of which nobody has said what they are."""
    counts, count = survey.values.counts, survey.values.count
    many = "too many to count" if counts is None else f"{len(counts):,} different ones in {count:,} rows"
    examples = ", ".join(repr(value[:30]) for value in survey.values.examples)
    if survey.copies_label:
        why = f"words ({examples}, ...), one for each class, as a copy of the label has"
        return _open(survey, why, "--drop")
    if survey.was is not None:
        what = {"number": "a number", "boolean": "true or false", "date": "a date"}[survey.was]
        option = "--categorical" if few else "--drop"
        alone = (
            f"{survey.first_at}, {survey.title}: found {survey.first!r}, expected {what}, as the values before "
            "it are; correct the value, or say what becomes of the column with --drop or --categorical "
            f"{as_option([survey.said])}"
        )
        why = f"{survey.first!r} in {survey.first_at}, values before it are {what}"
        return Open(survey.name, survey.said, why, alone, option)
    why = f"words ({examples}, ...): {many}"
    if few:
        return _open(survey, why, "--categorical")
    return _open(survey, f"{why}; --text if it is prose", "--drop")


def _open(survey: ColumnSurvey, why: str, option: str) -> Open:
    return Open(
        survey.name, survey.said, why, f"{survey.title}: {why}; say {option} {as_option([survey.said])}", option
    )


def suggestions(unclear: Sequence[Open]) -> tuple[str, ...]:
    """Options that would do, as a command line has them."""
    named: dict[str, list[str]] = {}
    for one in unclear:
        option, _, value = one.option.partition(" ")
        if not option:
            continue
        named.setdefault(option, []).append(value or one.said)
    if "--missing" in named:  # one policy for all
        named["--missing"] = ["median" if "median" in named["--missing"] else "indicator"]
    return tuple(word for option, values in named.items() for word in (option, ",".join(values)))


def _told(unclear: Sequence[Open], place: str, notes: Sequence[str]) -> str:
    if len(unclear) == 1:
        alone = (
            unclear[0].alone.removesuffix(f"; say --drop {as_option([unclear[0].said])}") if notes else unclear[0].alone
        )
        alone = "; ".join([alone, *notes])
        return f"{place}: {alone}" if alone.startswith("column") else alone
    width = max(len(one.column) for one in unclear)
    lines = [f"  {one.column.ljust(width)}  {one.why}" for one in unclear]
    return "\n".join([f"{place}: these columns need a decision on how to encode them:", *lines, *notes])
