"""What the columns of a table hold, found out in bounded memory from all of its rows: kinds, values, missing ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coremargin.data.tables.arrow_arrays import (
    is_boolean,
    is_list,
    is_numeric,
    is_text,
    is_time,
    list_lengths,
    null_mask,
)
from coremargin.data.tables.column_options import Vocabulary
from coremargin.data.tables.encoders import DocumentFrequencies
from coremargin.data.tables.number_text import PLAIN, find_unit
from coremargin.data.tables.values import (
    ParsedValues,
    Texts,
    as_numbers,
    as_texts,
    as_times,
    as_truths,
    describe_bad_date,
    describe_odd_zone,
    first_not_digits,
    looks_like_date,
)
from coremargin.errors import BadRow, UsageError
from coremargin.formats.column_kinds import LONGEST_CATEGORY, MOST_CATEGORIES

if TYPE_CHECKING:
    from coremargin.data.tables.column_options import ColumnOptions
    from coremargin.data.tables.table import Hint, TableBatch
    from coremargin.formats.columns import TextFormat

SAMPLE = 1 << 17  #: values of which a median is that of all, exactly; of more it is that of a random sample as large
_SAMPLE_WORDS = 1000
SAMPLES = 1 << 23  #: of all columns together


class NumberStatistics:
    """Of numbers: the mean; "median" and "most-frequent" where they are wanted, the median of a sample this large."""

    def __init__(self, wanted: Collection[str] = (), sample: int = SAMPLE, seed: int = 0) -> None:
        self.count = 0
        self._total = 0.0
        self._sample = sample if "median" in wanted else 0
        self._random = np.random.default_rng(seed)
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []  # values and their ranks
        self._held, self._most = 0, 1.0  # how many; a rank that none of the smallest has
        self._counts: Counter[float] | None = Counter() if "most-frequent" in wanted else None

    def add(self, values: np.ndarray) -> None:
        """Take finite values (m,)."""
        self.count += len(values)
        self._total += float(np.sum(values))
        if self._sample:
            ranks = self._random.random(len(values))
            low = np.flatnonzero(ranks < self._most)
            self._parts.append((values[low], ranks[low]))
            self._held += len(low)
            if self._held > 2 * self._sample:
                self._thin()
        if self._counts is not None:
            found, counts = np.unique(values, return_counts=True)
            self._counts.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
            if len(self._counts) > MOST_CATEGORIES:
                self._counts = None

    def _thin(self) -> None:
        """Keep the values of the smallest ranks: a sample in which each value is as likely as any other."""
        values, ranks = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.argpartition(ranks, self._sample)[: self._sample]
        self._parts, self._held = [(values[order], ranks[order])], len(order)
        self._most = float(ranks[order].max())

    @property
    def mean(self) -> float:
        """Of all values; 0 of none."""
        return self._total / max(1, self.count)

    @property
    def median(self) -> float:
        """Of all values, or of the sample; 0 of none."""
        if self._held > self._sample:
            self._thin()
        return float(np.median(np.concatenate([values for values, _ in self._parts]))) if self._held else 0.0

    @property
    def most_frequent(self) -> float | None:
        """The smallest of those that are there most often, as scikit-learn has it; None: too many to count."""
        if not self._counts:
            return None
        most = max(self._counts.values())
        return min(value for value, count in self._counts.items() if count == most)


class ValueCounts:
    """Of categories: how often each occurs, as long as there are at most ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0  #: values that are there
        self.counts: Counter[str] | None = Counter()  #: None: too many, or far too long
        self.examples: tuple[str, ...] = ()  #: the first few
        self.sample: tuple[str, ...] = ()  #: the first some hundred different ones

    def add(self, texts: Texts) -> None:
        """Take texts; those that are missing do not count."""
        there = texts.codes[texts.codes >= 0]
        self.count += len(there)
        if self.counts is None:
            return
        words, found = texts.words, np.bincount(there, minlength=len(texts.words))
        self.counts.update({word: count for word, count in zip(words, found.tolist(), strict=True) if count})
        if len(self.sample) < _SAMPLE_WORDS:
            self.sample = tuple(islice(self.counts, _SAMPLE_WORDS))
            self.examples = self.sample[:3]
        if len(self.counts) > self._most or any(len(word) > LONGEST_CATEGORY for word in words):
            self.counts = None

    def most_frequent(self) -> str | None:
        """The first in order of the alphabet of those that are there most often; None: too many to count."""
        if not self.counts:
            return None
        most = max(self.counts.values())
        return min(value for value, count in self.counts.items() if count == most)


Kind = Literal["number", "boolean", "date", "category", "text", "list"]
Place = Callable[[int], str]
_ENOUGH, _MOST_FOLLOWED = 10, 1000  # rows that show a copy of the labels, and labels
NGRAMS = 1  #: words of text that make one feature together


class ColumnSurvey:
    """What one column holds. ``declared``: what an option says it is; else it is what all of its values are.

    A column of a text file is numbers as long as all of its values are; then booleans, dates, and else categories.
    """

    def __init__(  # noqa: PLR0913 - what is known of a column
        self,
        name: str,
        title: str,
        option_name: str,
        *,
        typed: bool,
        declared: Kind | None,
        date_format: str,
        numbers: NumberStatistics,
        form: TextFormat = PLAIN,
        most: int = Vocabulary().counted,
    ) -> None:
        """title: the column in messages; option_name: in options.

        numbers: takes those of a column of numbers, of booleans as 1 and 0, of dates as seconds since 1970. form: how
        numbers are written. most: categories that are counted.
        """
        self.form, self.unit = form, ""  #: unit: the sign with every number
        self.name, self._typed, self._declared, self._format = name, typed, declared, date_format
        self.title, self.option_name, self.numbers = title, option_name, numbers
        self.kind: Kind | None = declared  #: None: no value has been there
        self.rows = self.missing = 0
        self.missing_at: str | None = None  #: where the first value is missing
        self.odd = self.odd_at = ""  #: the first value that is not of the kind before, and its place
        self.kind_before: Kind | None = None  #: what the column was until ``first``
        self.uncounted = False  #: there were batches before that are not counted among its categories
        self.time = False  #: some date has a time
        self.zoned: bool | None = None  #: dates have a time zone; None: there was no date
        self.digits: str | None = None  #: the first date, where all so far are texts of digits alone
        self.length: int | None = None  #: of lists
        self.values = ValueCounts(most)
        self.by_label: dict[str, str] | None = {}  #: the word of each label; None: some label has two
        self.words = DocumentFrequencies(NGRAMS) if declared == "text" else None

    @property
    def typed(self) -> bool:
        """Whether the type of the column says what it holds: texts are no numbers then."""
        return self._typed

    def add(self, column: Any, place: Place) -> None:
        """Take the values of some rows; place: names a row of them. Raises BadRow, UsageError."""
        self.rows += len(column)
        if is_list(column.type) and self._declared is not None:
            raise UsageError(
                f"{self.title}: found type {column.type}, expected no lists, as --categorical or others say"
            )
        if self.kind == "text":
            self._add_words(column, place)
        elif self.kind == "category":
            self._add_texts(column, place)
        elif self._typed and not is_text(column.type):
            self._add_typed(column, place)
        else:
            self._add_found_out(column, place)

    def follow(self, column: Any, labels: Texts) -> None:
        """Note whether each label has a word of its own, as in a copy of the labels."""
        if self.by_label is None or self.kind != "category":
            return
        for rows in (slice(0, 64), slice(64, None)):
            texts, codes = as_texts(column[rows]), labels.codes[rows]
            pairs = np.unique(np.stack([codes, texts.codes]), axis=1).T.tolist()
            for label, word in pairs:
                known = labels.words[label] if label >= 0 else ""
                found = texts.words[word] if word >= 0 else ""
                if self.by_label.setdefault(known, found) != found or len(self.by_label) > _MOST_FOLLOWED:
                    self.by_label = None
                    return

    @property
    def copies_label(self) -> bool:
        """Whether the words of the column tell the labels, and the other way round."""
        words = list((self.by_label or {}).values())
        return self.rows >= _ENOUGH and 1 < len(set(words)) == len(words)

    def _add_typed(self, column: Any, place: Place) -> None:
        """A column whose type says what it is."""
        if is_list(column.type):
            self._add_lists(column, place)
            return
        kind: Kind = "number" if is_numeric(column.type) else "boolean" if is_boolean(column.type) else "date"
        if kind == "date" and not is_time(column.type):
            raise UsageError(f"{self.title}: found type {column.type}, expected numbers, dates or texts")
        if self._declared == "date" and kind != "date":
            raise UsageError(f"{self.title}: found type {column.type}, expected dates, as --dates says")
        self.kind = kind
        found = as_times(column, "") if kind == "date" else as_numbers(column)
        self._take(found, place)

    def _add_lists(self, column: Any, place: Place) -> None:
        self.kind = "list"
        self._note_missing(null_mask(column), place)
        lengths = list_lengths(column.drop_null())
        if self.length is None and len(lengths):
            self.length = int(lengths[0])

    def _add_found_out(self, column: Any, place: Place) -> None:
        """A column of texts: of the kind that it was so far, or else of the first that all of these are."""
        if column.null_count == len(column):
            self._note_missing(np.ones(len(column), dtype=bool), place)
            return
        if self.kind is None and not self._typed and is_text(column.type):
            self.unit = find_unit(next((word for word in as_texts(column.drop_null().slice(0, 1)).words), ""))
        readers: dict[Kind, Callable[[Any], ParsedValues]] = {
            "number": lambda values: as_numbers(values, self.form, self.unit),
            "boolean": as_truths,
            "date": lambda values: as_times(values, self._format),
        }
        tried: tuple[Kind, ...] = ("number", "boolean", "date") if self.kind is None else (self.kind,)
        if self._typed:
            tried = ("date",)  # where columns have types, texts are no numbers, but often dates
        farthest: tuple[int, Kind] = (-1, "number")
        for kind in tried:
            found = readers[kind](column)
            if found.bad is None:
                if kind == "date" and not self._format:
                    self._note_digits(column)
                self.kind = kind
                self.unit = self.unit if kind == "number" else ""
                self._take(found, place)
                return
            farthest = max(farthest, (found.bad, kind), key=lambda one: one[0])
        self._become_categories(column, *farthest, place)

    def _become_categories(self, column: Any, bad: int, kind: Kind, place: Place) -> None:
        """The value in row ``bad`` is of another kind than the column was declared, or seemed, to be until then."""
        text = str(column[bad].as_py())
        if kind == "date" and (self._declared == "date" or looks_like_date(text)):
            raise BadRow(f"{place(bad)}, {self.title}: found {text[:80]!r}, {describe_bad_date(self._format)}")
        self.uncounted = self.kind is not None
        if self.uncounted or column.slice(0, bad).null_count < bad:
            self.kind_before = kind
        self.odd, self.odd_at, self.kind, self.unit = text[:80], place(bad), "category", ""
        self._add_texts(column, place)

    def _note_digits(self, column: Any) -> None:
        """20240105 is a date, or a code that may be taken for one."""
        if self.kind is None or self.digits is not None:
            only = first_not_digits(column) is None
            self.digits = (self.digits or str(column.drop_null()[0].as_py())) if only else None

    def _take(self, found: ParsedValues, place: Place) -> None:
        self._note_missing(found.missing, place)
        values = found.values[~found.missing] if found.missing.any() else found.values
        finite = np.isfinite(values)
        self.numbers.add(values if finite.all() else values[finite])
        if self.kind == "date" and len(values):
            self.time = self.time or bool(np.any(np.mod(values, 86400.0)))
            self._note_zones(found, place)

    def _note_zones(self, found: ParsedValues, place: Place) -> None:
        """Raises BadRow for a date with a time zone among others without, whose hour is unknown."""
        if self.zoned is None and found.zoned is not None:
            self.zoned = bool(found.zoned[np.argmin(found.missing)])
        odd = found.zoned_unlike(zoned=bool(self.zoned))
        if odd is not None:
            raise BadRow(f"{place(odd)}, {self.title}: {describe_odd_zone(zoned=bool(self.zoned))}")

    def _add_texts(self, column: Any, place: Place) -> None:
        texts = as_texts(column)
        self._note_missing(texts.codes < 0, place)
        self.values.add(texts)

    def _add_words(self, column: Any, place: Place) -> None:
        texts = as_texts(column)
        self._note_missing(texts.codes < 0, place)
        if self.words is not None:
            self.words.add(texts)

    def _note_missing(self, missing: np.ndarray, place: Place) -> None:
        count = int(np.count_nonzero(missing))
        if count and self.missing_at is None:
            self.missing_at = place(int(np.argmax(missing)))
        self.missing += count


def text_hints(surveys: Mapping[int, ColumnSurvey], options: ColumnOptions) -> dict[int, Hint]:
    """What columns of texts seem to hold so far."""
    hints: dict[Kind | None, Hint] = {"number": "number", "category": "category"}
    if not options.date_format:
        hints["date"] = "date"
    return {position: hints[one.kind] for position, one in surveys.items() if one.kind in hints and not one.unit}


def survey_batch(surveys: Mapping[int, ColumnSurvey], batch: TableBatch, label: int | None = None) -> None:
    """Take a batch of the table: each column's values to its survey. label: the column of labels."""
    labels = None if label is None else as_texts(batch.columns[label])
    for position, survey in surveys.items():
        survey.add(batch.columns[position], batch.place)
        if labels is not None:
            survey.follow(batch.columns[position], labels)
