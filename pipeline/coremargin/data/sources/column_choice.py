"""Which columns of a table are features, in which order; which hold labels, weights, keys and groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from coremargin.data.key_values import RESERVED
from coremargin.data.sources.options import COLUMN_NUMBER
from coremargin.data.tables.column_options import option_name, quote_columns
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.options import SourceOptions
    from coremargin.formats.columns import ColumnsRecord


def find_column(wanted: str | int, names: tuple[str, ...] | None, width: int, *, place: str) -> int:
    """Position of a column given by name or by number (from 0, negative from the end)."""
    if isinstance(wanted, str) and names is not None and wanted in names:
        if names.count(wanted) > 1:
            raise UsageError(f"{place}: {names.count(wanted)} columns are named {wanted!r}: give the number instead")
        return names.index(wanted)
    if isinstance(wanted, str) and not COLUMN_NUMBER.fullmatch(wanted):  # int would take 1_0 for 10
        known = f"the columns are {shorten(names)}" if names else "the file has no header line, so give a number from 0"
        raise UsageError(f"{place}: no column named {wanted[:80]!r}: {known}")
    number = int(wanted)
    if not -width <= number < width:
        raise UsageError(f"{place}: no column {number}: there are {width}, numbered from 0 (or from -1 backwards)")
    return number % width


def shorten(names: tuple[str, ...], limit: int = 8) -> str:
    """The first few names, for messages."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > limit else shown


LABEL_NAMES = ("label", "target", "class", "y")  #: columns that hold the label unless another one is named


def is_label_name(name: str) -> bool:
    """Whether a column is called like a label, also behind the mark of a comment, as the first one may be."""
    return name.lstrip("# ").strip().lower() in LABEL_NAMES


def label_column(
    label: str | int | None,
    names: tuple[str, ...] | None,
    width: int,
    *,
    place: str,
    others: Collection[int] = (),
) -> int:
    """Position of the label column: the one named, else the one called like a label, else the last.

    others: columns that are something else, whatever they are called. Raises UsageError where several are called like
    labels: one may be a copy of another.
    """
    if label is not None:
        return find_column(label, names, width, place=place)
    called = [column for column, name in enumerate(names or ()) if column not in others and is_label_name(name)]
    if names is not None and len({names[column] for column in called}) > 1:
        shown = [repr(names[column]) for column in called]
        raise UsageError(
            f"{place}: columns {', '.join(shown[:-1])} and {shown[-1]} are called like labels, expected one; name it "
            "with --label, and leave out with --drop what is a copy of it"
        )
    return called[0] if called else width - 1


def name_for_option(names: tuple[str, ...] | None, position: int) -> str:
    """A column as options of a command line find it: by its name, or else by a number that is no column's name."""
    if names is None:
        return f"{position}"
    name = names[position]
    if option_name(name, position) == name and names.count(name) == 1:
        return name
    return f"{position}" if f"{position}" not in names else f"{position - len(names)}"


_SHOWN = 8  # columns that a message names
_LONGEST_NEAR = 100  # characters of names that are compared to find the nearest


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Columns by position: features in order; label, weights, key and group where there are such."""

    features: tuple[int, ...]
    label: int | None
    weights: int | None
    key: int | None
    group: int | None

    @property
    def read(self) -> list[int]:
        """All of them, features first."""
        others = (self.label, self.weights, self.key, self.group)
        return [*self.features, *(column for column in others if column is not None)]


def choose_columns(
    names: tuple[str, ...] | None, width: int, options: SourceOptions, place: str, named: Callable[[int], str]
) -> ColumnChoice:
    """Choose among ``width`` columns. names: None where they are known by number only; named: one for messages.

    Where the options say which columns are expected, these are found by name, in whatever order they come, or by their
    number. Raises UsageError, and DataError for columns that do not fit.
    """
    known, label, weights, key, group = options.columns, None, None, None, None
    dropped = {find_column(column, names, width, place=place) for column in options.drop}
    if known is not None and {known.key, known.group} != {None} and not known.named and options.label_optional:
        # columns go by their numbers, and label, key and group may be there
        alone, found = len(known.columns), width - len(dropped)
        together = alone + sum(name is not None for name in known.other_names)
        if found not in (alone, together):
            raise DataError(
                f"{place}: found {found} columns, expected {alone} of features alone, or all {together}, in their "
                f"places, as in {options.columns_of}"
            )
    if not options.unlabelled:
        label = _find_label(names, width, options, place, dropped)
        if label in dropped and not options.label_optional:
            raise UsageError(f"{place}: {named(label)} is dropped and is the label: choose one")
    if options.weights is not None:
        weights = find_column(options.weights, names, width, place=place)
        if weights in dropped or weights == label:
            raise UsageError(f"{place}: {named(weights)} is dropped or is the label: choose one")
    if options.key is not None:
        if known is not None and known.key == options.key and names is not None and options.key not in names:
            raise DataError(
                f"{place}: found no column {options.key!r}, which holds the keys: the columns are {shorten(names)}; "
                "name the right one with --key"
            )
        key = find_column(options.key, names, width, place=place)
        if names is not None and names[key] in RESERVED:
            raise UsageError(
                f"{place}: column {names[key]!r} cannot be the key: tables that name rows by it mean something else "
                "with this name; rename it"
            )
        if key in dropped or key in (label, weights):
            raise UsageError(f"{place}: {named(key)} is dropped, or is the label or the weight: choose one")
    if options.group is not None:
        group = find_column(options.group, names, width, place=place)
        if group in dropped or group in (label, weights, key):
            raise UsageError(f"{place}: {named(group)} is dropped, or is the label, weight or key: choose one")
    others = {label, weights, key, group}
    features = [column for column in range(width) if column not in dropped and column not in others]
    if known is not None and known.named and names is not None:
        features = _match_by_name(names, features, known, options, place)
    elif known is not None:
        features = _match_by_position(features, known, options, place, by_number=label is not None)
    if options.label_optional:
        label = None  # it is not needed
    found_columns = ColumnChoice(tuple(features), label, weights, key, group)
    if names is not None:
        refuse_same_names(names, place, sorted(found_columns.read))
    return found_columns


def _find_label(
    names: tuple[str, ...] | None, width: int, options: SourceOptions, place: str, dropped: Collection[int]
) -> int | None:
    """The label's column; of rows that join others the one of their label's name, or number, where there is one."""
    known, others = options.columns, set(dropped)
    for one in (options.weights, options.key, options.group):
        by_number = names is None or not isinstance(one, str) or one.lstrip("+-").isdigit()
        if one is not None and (by_number or one in (names or ())):
            others.add(find_column(one, names, width, place=place))
    if options.label is not None or known is None:
        return label_column(options.label, names, width, place=place, others=others)
    if known.label is not None and known.named and names is not None:
        if known.label in names:
            return find_column(known.label, names, width, place=place)
        if options.label_optional:
            return None
        raise DataError(
            f"{place}: found no column {known.label!r}, which holds the labels: the columns are {shorten(names)}; "
            "rename the one that does, or ingest the rows with --label COLUMN, or --unlabelled"
        )
    if options.label_optional and width - len(dropped) == len(known.columns):
        return None  # all are features
    features = width - len(dropped) - sum(one is not None for one in (options.weights, options.key, options.group)) - 1
    if known.label is None or (known.named and features != len(known.columns)):
        if known.named and names is not None:  # a feature there is no label here
            others |= {at for at, name in enumerate(names) if name in known.names}
        called = sum(is_label_name(name) for at, name in enumerate(names or ()) if at not in others)
        if options.label_optional and called > 1:
            return None  # further columns are refused later
        found = label_column(None, names, width, place=place, others=others)  # too few or too many are refused later
        strange = names is not None and (names[found] in known.names or not is_label_name(names[found]))
        return None if options.label_optional and strange else found
    if known.named:
        raise DataError(
            f"{place}: no line names the columns, so which of the {width} holds the labels, {known.label!r} in "
            f"{options.columns_of}, is unknown: add the names, ingest it with --label NUMBER, or, to predict, leave "
            "the labels out with --drop NUMBER"
        )
    if int(known.label) < width:
        return int(known.label)
    if options.label_optional:
        return None
    raise DataError(
        f"{place}: found {width} columns, expected labels in column {known.label} as in {options.columns_of}"
    )


def refuse_same_names(names: Sequence[str], place: str, columns: Sequence[int] | None = None) -> None:
    """Raise DataError when two columns have one name: what is read by name could be either.

    columns: those that are read, of a table whose others can be dropped; None: all.
    """
    seen: dict[str, int] = {}
    for at in range(len(names)) if columns is None else columns:
        if seen.setdefault(names[at], at) != at:
            advice = "rename one" if columns is None else "rename one, or leave it out by its number with --drop"
            raise DataError(
                f"{place}: columns {seen[names[at]]} and {at} are both named {names[at]!r}, expected a name for each; "
                f"{advice}"
            )


def _match_by_position(
    features: list[int], known: ColumnsRecord, options: SourceOptions, place: str, *, by_number: bool
) -> list[int]:
    """The columns as they lie, where not all have names. by_number: the label is there, so all have their numbers."""
    expected = known.names
    if not known.named and len(features) > len(expected):
        features = [column for column in features if f"{column}" not in known.other_names]
    if len(features) != len(expected):
        raise DataError(
            f"{place}: found {len(features)} columns of features, expected {len(expected)} as in {options.columns_of}"
        )
    unnamed = options.label is None and known.label is not None and not known.named
    if by_number and unnamed and [f"{column}" for column in features] != list(expected):
        raise DataError(
            f"{place}: features lie in columns {shorten(tuple(map(str, features)))}, in {options.columns_of} in "
            f"{shorten(expected)}, with labels in column {known.label}; say --label or --drop, or put them in order"
        )
    return features


def _match_by_name(
    names: tuple[str, ...], features: list[int], known: ColumnsRecord, options: SourceOptions, place: str
) -> list[int]:
    """The columns in the order of those that are known. Raises DataError that shows the difference."""
    expected = known.names
    where = {names[i]: i for i in reversed(features) if names[i] not in known.other_names}
    problem = difference(expected, tuple(where), options.columns_of)
    if problem:
        extra = [name for name in where if name not in set(expected)]
        drop = quote_columns([name_for_option(names, where[name]) for name in extra[:_SHOWN]])
        missing = set(expected) - set(where)
        advice = "rename or add what is missing" if missing else f"leave out what is more with --drop {drop}"
        raise DataError(f"{place}: {problem}; {advice}")
    return [where[name] for name in expected]


def difference(expected: Sequence[str], found: Sequence[str], whose: str) -> str:
    """How names of columns differ, whatever their order, in words; "" when they do not. whose: "rows.zarr"."""
    there, wanted = set(found), set(expected)
    missing = [name for name in expected if name not in there]
    extra = [name for name in found if name not in wanted]
    if not missing and not extra:
        return ""
    parts = []
    for name in missing[:_SHOWN]:
        near = get_close_matches(name[:_LONGEST_NEAR], [one[:_LONGEST_NEAR] for one in extra[:1000]], n=1)
        parts.append(f"{name!r} is missing" + (f" (is it {near[0]!r} here?)" if near else ""))
    if len(missing) > _SHOWN:
        parts.append(f"{len(missing) - _SHOWN} more are missing")
    parts += [f"{name!r} is not known" for name in extra[:_SHOWN]]
    if len(extra) > _SHOWN:
        parts.append(f"{len(extra) - _SHOWN} more are not known")
    return f"other columns than those of {whose}: {', '.join(parts)}"
