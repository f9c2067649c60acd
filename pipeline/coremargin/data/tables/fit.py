"""From what the columns of a table hold and the options that name them: the columns of a store, or what is undecided.

All columns that need a decision are named at once, with options that would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coremargin.data.tables.column_options import AUTO, quote_columns
from coremargin.data.tables.encoders import BUCKETS
from coremargin.data.tables.number_text import PLAIN, Notation, detect_notation, suggest_text_options
from coremargin.data.tables.survey import NGRAMS
from coremargin.errors import ColumnsUnclear, UsageError
from coremargin.formats.column_kinds import Categories, Column, Dates, Hashed, Lists, Numbers, Texts

if TYPE_CHECKING:
    from coremargin.data.tables.column_options import ColumnOptions
    from coremargin.data.tables.survey import ColumnSurvey

_UNIQUE = 0.5  # more different values than this share of the rows are names, not categories
_FEW = 32  # as many different values are categories however few rows there are


@dataclass(frozen=True, slots=True)
class UndecidedColumn:
    """A column that needs a decision: why, the message where it is the only one, and which option would do for it."""

    name: str
    option_name: str  #: as options name it
    why: str
    alone: str
    option: str  #: "--categorical", "--dates", "--drop", "--missing median"; "": another one, or none
    notation: Notation | None = None  #: of what seem to be numbers


def fit_columns(
    surveys: Mapping[int, ColumnSurvey], options: ColumnOptions, place: str, label_note: str = ""
) -> list[Column]:
    """The columns in order. Raises ColumnsUnclear for those that need a decision, all at once.

    place: of the table, for messages; label_note: where the labels come from, added then.
    """
    columns, undecided, form = [], list[UndecidedColumn](), PLAIN
    for survey in surveys.values():
        form = survey.form
        found = _fit_column(survey, options)
        if isinstance(found, UndecidedColumn):
            undecided.append(found)
        else:
            columns.append(found)
    for survey in surveys.values():
        missing = _undecided_missing(survey, options)
        if missing is not None:
            undecided.append(missing)
    if undecided:
        suggested, notes = list(suggest_options(undecided)), [label_note] if len(undecided) > 1 else []
        if sum(one.option == "--drop" for one in undecided) == len(surveys):
            suggested = []
            notes.append(
                "no other feature is there: name what is of use with --categorical or --text, or correct the file"
            )
        notations = [one.notation for one in undecided if one.notation is not None]
        if notations:
            on_text, option = suggest_text_options(notations, form)
            suggested = [word for pair in on_text for word in pair] + (suggested if on_text else [])
            notes.append(option or "correct the file")
            notes[-1] += ", or name columns that are categories all the same with --categorical"
        raise ColumnsUnclear(_describe(undecided, place, [note for note in notes if note]), tuple(suggested))
    return columns


def missing_policy(name: str, options: ColumnOptions) -> str | None:
    """What becomes of a column's missing values; None: no option says."""
    policies = dict(options.missing)
    return policies.get(name, policies.get(""))


def _undecided_missing(survey: ColumnSurvey, options: ColumnOptions) -> UndecidedColumn | None:
    """A column with missing values, where no option says what becomes of them."""
    if not survey.missing or survey.kind in (None, "text") or missing_policy(survey.name, options) is not None:
        return None
    share = survey.missing / survey.rows
    option = "--missing median" if survey.kind in ("number", "boolean", "date") else "--missing indicator"
    why = f"{survey.missing:,} values are missing ({share:.1%}), the first in {survey.missing_at}"
    alone = (
        f"{survey.missing_at}, {survey.title}: found no value, expected one; {survey.missing:,} of "
        f"{survey.rows:,} are missing: fill them in, leave the column out with --drop "
        f"{quote_columns([survey.option_name])}, or say {option}"
    )
    return UndecidedColumn(survey.name, survey.option_name, why, alone, option)


def _fit_column(survey: ColumnSurvey, options: ColumnOptions) -> Column | UndecidedColumn:
    if survey.kind is None:
        return _undecided(survey, "no value is there in any row", "--drop")
    if survey.kind in ("number", "boolean"):
        fill, indicator = _fill_value(survey, options)
        boolean = survey.kind == "boolean"
        return Numbers(name=survey.name, fill=fill, indicator=indicator, boolean=boolean, unit=survey.unit)
    if survey.kind == "list":
        return Lists(name=survey.name, length=survey.length or 1)
    if survey.kind == "text":
        return _fit_text(survey)
    if survey.kind == "date":
        return _fit_dates(survey, options)
    return _fit_categories(survey, options)


def _fill_value(survey: ColumnSurvey, options: ColumnOptions) -> tuple[float | None, bool]:
    """The value where none is there, and whether a feature says so."""
    policy, numbers = missing_policy(survey.name, options), survey.numbers
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


def _fit_dates(survey: ColumnSurvey, options: ColumnOptions) -> Column | UndecidedColumn:
    if survey.name not in options.dates and survey.digits is not None:
        why, columns = (
            f"digits that may be dates, or codes: {survey.digits!r}, ...",
            quote_columns([survey.option_name]),
        )
        alone = (
            f"{survey.title}: {why}; say --dates {columns} if they are dates, --categorical {columns} if they are codes"
        )
        return UndecidedColumn(
            survey.name, survey.option_name, f"{why}; --categorical if they are codes", alone, "--dates"
        )
    if AUTO not in options.dates and survey.name not in options.dates:
        return _undecided(survey, "dates", "--dates")
    fill, indicator = _fill_value(survey, options)
    form, time, zoned = options.date_format, survey.time, bool(survey.zoned)
    return Dates(name=survey.name, format=form, time=time, zoned=zoned, fill=fill, indicator=indicator)


def _fit_text(survey: ColumnSurvey) -> Column:
    frequencies = survey.words
    if frequencies is None:
        return Texts(name=survey.name, buckets=BUCKETS, ngrams=NGRAMS)
    return Texts(
        name=survey.name, buckets=BUCKETS, ngrams=NGRAMS, rows=frequencies.rows, frequencies=frequencies.counts
    )


def _fit_categories(survey: ColumnSurvey, options: ColumnOptions) -> Column | UndecidedColumn:
    named, counts = survey.name in options.categorical, survey.values.counts
    few = counts is not None and len(counts) <= max(_FEW, _UNIQUE * survey.values.count)
    numbers = None if named else _undecided_numbers(survey)
    if numbers is not None:
        return numbers
    if not named and (AUTO not in options.categorical or not few):
        return _undecided_words(survey, few=few)
    policy = missing_policy(survey.name, options)
    missing = survey.missing > 0 and policy not in ("most-frequent", "refuse", None)
    sizes = options.vocabulary
    if counts is None or (len(counts) > sizes.one_hot and options.categories is None):
        return Hashed(name=survey.name, buckets=sizes.buckets, missing=policy not in ("refuse", None))
    kept = sorted(value for value, count in counts.items() if count >= sizes.least)
    other = len(kept) < len(counts)
    if options.categories is not None and len(kept) > options.categories:
        kept, other = sorted(sorted(counts, key=lambda value: (-counts[value], value))[: options.categories]), True
    fill = None if missing or policy in ("refuse", None) else survey.values.most_frequent()
    if fill is not None and fill not in kept:
        fill = None
    return Categories(
        name=survey.name, values=kept, other=other, refuse=options.unknown == "refuse", fill=fill, missing=missing
    )


def _undecided_numbers(survey: ColumnSurvey) -> UndecidedColumn | None:
    """A column of words that seem to be numbers, which are made categories on request only; None: others."""
    notation = detect_notation(survey.values.sample, survey.form)
    if notation is None:
        return None
    written = next(iter(notation.formats), None)
    counts, as_said = survey.values.counts, written == survey.form and not notation.dashes and not notation.signs
    if as_said and not notation.mixed and counts is not None and len(counts) <= _FEW:
        return None  # such as 0, 1, 2, 3+
    if survey.typed:
        if written == PLAIN and not notation.advice:
            return None  # digits that are declared to be texts
        why = f"{notation.found}, but its type is text: convert it"
        alone = f"{survey.title}: {why}, or say --categorical {quote_columns([survey.option_name])}"
        return UndecidedColumn(survey.name, survey.option_name, why, alone, "")
    if survey.kind_before == "number" and as_said:
        why = f"found {survey.odd!r}, expected a number, as the values before it are; correct the value"
        options = f"say what becomes of the column with --drop or --categorical {quote_columns([survey.option_name])}"
        alone = f"{survey.odd_at}, {survey.title}: {why}, or {options}"
        return UndecidedColumn(survey.name, survey.option_name, f"{survey.odd!r} in {survey.odd_at}: {why}", alone, "")
    why = notation.found
    if notation.dashes:
        why += f", and {' and '.join(map(repr, notation.dashes))} where there may be no value"
    if notation.advice:
        why += f"; {notation.advice}"
    return UndecidedColumn(survey.name, survey.option_name, why, f"{survey.title}: {why}", "", notation)


def _undecided_words(survey: ColumnSurvey, *, few: bool) -> UndecidedColumn:
    """A column of words that no option names."""
    counts, count = survey.values.counts, survey.values.count
    many = "too many to count" if counts is None else f"{len(counts):,} different ones in {count:,} rows"
    examples = ", ".join(repr(value[:30]) for value in survey.values.examples)
    if survey.copies_label:
        why = f"words ({examples}, ...), one for each class, as a copy of the label has"
        return _undecided(survey, why, "--drop")
    if survey.kind_before is not None:
        what = {"number": "a number", "boolean": "true or false", "date": "a date"}[survey.kind_before]
        option = "--categorical" if few else "--drop"
        alone = (
            f"{survey.odd_at}, {survey.title}: found {survey.odd!r}, expected {what}, as the values before "
            "it are; correct the value, or say what becomes of the column with --drop or --categorical "
            f"{quote_columns([survey.option_name])}"
        )
        why = f"{survey.odd!r} in {survey.odd_at}, values before it are {what}"
        return UndecidedColumn(survey.name, survey.option_name, why, alone, option)
    why = f"words ({examples}, ...): {many}"
    if few:
        return _undecided(survey, why, "--categorical")
    return _undecided(survey, f"{why}; --text if it is prose", "--drop")


def _undecided(survey: ColumnSurvey, why: str, option: str) -> UndecidedColumn:
    return UndecidedColumn(
        survey.name,
        survey.option_name,
        why,
        f"{survey.title}: {why}; say {option} {quote_columns([survey.option_name])}",
        option,
    )


def suggest_options(undecided: Sequence[UndecidedColumn]) -> tuple[str, ...]:
    """Options that would do, as a command line has them."""
    named: dict[str, list[str]] = {}
    for one in undecided:
        option, _, value = one.option.partition(" ")
        if not option:
            continue
        named.setdefault(option, []).append(value or one.option_name)
    if "--missing" in named:  # one policy for all
        named["--missing"] = ["median" if "median" in named["--missing"] else "indicator"]
    return tuple(word for option, values in named.items() for word in (option, ",".join(values)))


def _describe(undecided: Sequence[UndecidedColumn], place: str, notes: Sequence[str]) -> str:
    if len(undecided) == 1:
        alone = (
            undecided[0].alone.removesuffix(f"; say --drop {quote_columns([undecided[0].option_name])}")
            if notes
            else undecided[0].alone
        )
        alone = "; ".join([alone, *notes])
        return f"{place}: {alone}" if alone.startswith("column") else alone
    width = max(len(one.name) for one in undecided)
    lines = [f"  {one.name.ljust(width)}  {one.why}" for one in undecided]
    return "\n".join([f"{place}: these columns need a decision on how to encode them:", *lines, *notes])
