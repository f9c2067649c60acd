"""Labels of any kind: what a text or a value means as a label, and codes, which are places in a list of classes.

``is_missing`` decides for all what a missing label is: None, NaN, pandas' NA and NaT, a masked entry, a blank text, and
the texts that NumPy and pandas make of such values ("nan", "<NA>", "NaT"). Two labels never become one class unless
they are the same number: bytes must be UTF-8, and what rounding or the white space around a text would make equal is
refused.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.format import UNLABELLED
from coremargin.errors import LabelError
from coremargin.formats.limits import LONGEST_LABEL, MOST_CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

Label = str | int | float | bool

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})  #: texts that stand for a missing label, lower case
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1  # what NumPy, and other readers of stores, can hold
_MISSING_TEXTS = frozenset({"nan", "<NA>", "NaT"})
_NAMED_ROWS = 5  #: so many rows are named in a message
_KINDS = {bool: "yes or no", int: "a whole number", float: "a number", str: "a text"}
_SOURCE_DTYPES = "biufSUOTV"  # NumPy's kinds of dtypes that may hold labels in a source
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]+)?")
_MEASUREMENT = f"expected at most {MOST_CLASSES} classes, got more; is this column a measurement rather than a label?"
_OTHER_COLUMN = (
    f"more than {MOST_CLASSES} different labels ({{few}}, ...): expected classes; name the right column with "
    "--label, or say --unlabelled"
)
_REMEMBERED = 16 * MOST_CLASSES  # spellings: a few of each label


class LabelCoder:
    """Codes of labels in order of first appearance: places in ``classes``, which grows; codes never change.

    ``encode`` takes labels of one kind, that of the classes before. The other methods take what sources hold: whole
    floats become integers there, and ``odd`` has the codes of labels that are of another kind than the first, which are
    refused once it is known that their rows are wanted.
    """

    def __init__(self, classes: Iterable[Any] = ()) -> None:
        """classes: those that already have codes (as stored: text, whole numbers, numbers, or booleans)."""
        self.classes: list[Any] = []
        self.odd: list[int] = []
        self._codes: dict[tuple[bool, Label], int] = {}
        self._in_bytes: dict[str, bool] = {}  # whether a text came as bytes
        self._texts: dict[str, int] = {}
        self._spelt: dict[int, Decimal | str] = {}  # how a label was first written, where that can matter
        try:
            for label in classes:
                self._add(self._as_kept(label), _MEASUREMENT)
        except LabelError as error:
            raise LabelError(f"classes: {error}") from error

    def encode(self, labels: Any, rows: int, place: str, first: int = 0) -> np.ndarray:
        """Codes (rows,) int32 of labels (rows,), or of None: all unlabelled. Missing entries are unlabelled.

        Raises LabelError: another length, not a vector, kinds that do not mix ("1" and 1), too many classes.
        """
        if labels is None:
            return np.full(rows, UNLABELLED, dtype=np.int32)
        if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels):
            raise LabelError(f"{place}: some labels are masked, expected all to be there; fill them in first")
        values = label_vector(labels, place)
        if len(values) != rows:
            raise LabelError(f"{place}: expected as many labels as rows, {rows}, got {len(values)}")
        before = len(self.classes)
        try:
            return _encode_each(values, self._code_of_one_kind, lambda row: f"{place}: row {first + row}")
        except LabelError:
            for label in self.classes[before:]:  # a refused batch leaves no classes behind
                del self._codes[isinstance(label, bool), label]
                self._in_bytes.pop(label, None)
            del self.classes[before:]
            raise

    def encode_values(self, values: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
        """Codes (m,) int32 of labels (m,) of any dtype, -1 of missing ones. place: names a row. Raises LabelError."""
        dtype = values.dtype
        if dtype.kind not in _SOURCE_DTYPES or dtype.names is not None or (dtype.kind == "f" and dtype.itemsize > 8):
            raise LabelError(
                f"{place(0)}: found labels of dtype {dtype}, expected integers, floats, strings or booleans"
            )
        return _encode_each(values, self._code_of_value, place)

    def encode_text(self, text: str, place: str, missing: Collection[str] = MISSING) -> int:
        """Code of the label that ``text`` stands for, -1 when it is missing, one of these texts in lower case."""
        code = self._texts.get(text)
        return self._encode_spelt(text, partial(label_from_text, missing=missing), place) if code is None else code

    def encode_number(self, text: str, place: str) -> int:
        """Code of the number that ``text`` is, whatever zeros it begins with; -1 for "nan"."""
        code = self._texts.get(text)
        if code is None:
            code = UNLABELLED if text.lower() == "nan" else self._encode_spelt(text, label_from_number, place)
        return code

    def _encode_spelt(self, text: str, meaning: Callable[[str], Label | None], place: str) -> int:
        """Code of a spelling that is new; refused when another one, with which it is not equal, has that code."""
        try:
            label = meaning(text)
            spelt = text if isinstance(label, str) else _exact(text) if isinstance(label, float) else None
            code = UNLABELLED if label is None else self._add(label, _OTHER_COLUMN)
            if spelt is not None and (known := self._spelt.setdefault(code, spelt)) != spelt:
                why = "differ in white space only" if isinstance(label, str) else "are one number in float64"
                raise LabelError(f"found the labels {str(known)!r} and {text!r}, which {why}; write them alike")
        except LabelError as error:
            raise LabelError(f"{place}: {error}") from error
        if code >= 0 and len(self._texts) < _REMEMBERED:  # a missing label ends the ingest
            self._texts[text] = code
        return code

    def _code_of_value(self, value: Any) -> int:
        label = label_from_value(value)
        if label is None:
            return UNLABELLED
        code = self._add(label, _OTHER_COLUMN)
        self._refuse_bytes_and_text(label, value)
        return code

    def _code_of_one_kind(self, value: Any) -> int:
        if is_missing(value):
            return UNLABELLED
        label = self._as_kept(value)
        self._refuse_bytes_and_text(label, value)
        return self._add(label, _MEASUREMENT)

    def _as_kept(self, value: Any) -> Label:
        """The label in the kind of the labels before it; 1 and 1.0 are the same, "1" and 1 are not."""
        label = checked_label(value)
        kind = type(self.classes[0]) if self.classes else type(label)
        if type(label) is kind:
            return label
        if kind is float and type(label) is int and float(label) == label:
            return float(label)
        if kind is int and type(label) is float and label.is_integer():
            return int(label)
        raise LabelError(
            f"expected {_KINDS[kind]} like the labels before it ({self.classes[0]!r}), got {_KINDS[type(label)]}, "
            f"{label!r}; give all labels in one kind"
        )

    def _refuse_bytes_and_text(self, label: Label, value: Any) -> None:
        in_bytes = isinstance(value, bytes)
        if isinstance(label, str) and self._in_bytes.setdefault(label, in_bytes) != in_bytes:
            raise LabelError(f"found the label {label!r} as text and as bytes, expected one; convert them")

    def _add(self, label: Label, too_many: str) -> int:
        """Code of a label. too_many: what the error says where there are more than may be classes."""
        key = (isinstance(label, bool), label)  # True and 1 are equal in Python, and two labels here
        code = self._codes.get(key)
        if code is None:
            if len(self.classes) >= MOST_CLASSES:
                few = ", ".join(repr(known)[:40] for known in self.classes[:5])
                raise LabelError(too_many.format(few=few))
            code = self._codes[key] = len(self.classes)
            self.classes.append(label)
            if _kind(label) != _kind(self.classes[0]):
                self.odd.append(code)
        return code


def _encode_each(values: np.ndarray, code_of: Callable[[Any], int], place: Callable[[int], str]) -> np.ndarray:
    """Codes (m,) int32 of values (m,), new ones in order of first appearance. place: names a row in errors."""

    def code_at(value: Any, row: int) -> int:
        try:
            return code_of(value)
        except LabelError as error:
            raise LabelError(f"{place(row)}: {error}") from error

    if values.dtype.kind in "OTV":
        return np.array([code_at(value, row) for row, value in enumerate(values.tolist())], dtype=np.int32)
    refuse_no_characters(values, place)
    unique, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    table = np.empty(len(unique), dtype=np.int32)
    for k in np.argsort(first, kind="stable"):
        table[k] = code_at(unique[k], int(first[k]))
    return table[inverse.reshape(-1)]


def _kind(label: Label) -> str:
    return "number" if type(label) in (int, float) else type(label).__name__


def label_from_text(text: str, missing: Collection[str] = MISSING) -> Label | None:
    """The label that a text stands for: an int, a float, a bool or the text; None when it is missing.

    "1", "+1" and "1.0" are the integer 1, so that CSV, SVMlight and arrays agree; "01" stays text. missing: texts that
    stand for no label, lower case.
    """
    text = text.strip()
    if text.lower() in missing:
        return None
    if text in ("True", "true", "TRUE"):
        return True
    if text in ("False", "false", "FALSE"):
        return False
    if _INTEGER.fullmatch(text) or (_FLOAT.fullmatch(text) and not re.match("[+-]?0[0-9]", text)):
        return label_from_number(text)
    return checked_label(text)


def label_from_number(text: str) -> Label:
    """The number that a text stands for, a whole one to its last digit."""
    exact, value = _exact(text), float(text)
    if exact == exact.to_integral_value():
        return checked_label(int(exact))
    if value.is_integer():
        raise LabelError(f"found the label {_shown(text)}, which float64 does not tell from {value:g}; round it first")
    return value


def _exact(text: str) -> Decimal:
    """A number as it is written. Raises LabelError: far too long, too large for a float, or no finite number."""
    try:
        exact = Decimal(text) if len(text) <= LONGEST_LABEL and np.isfinite(float(text)) else None
    except (InvalidOperation, ValueError):
        exact = None
    if exact is None:
        raise LabelError(f"found the label {_shown(text)}, expected a number in the range of float64")
    return exact


def label_from_value(value: Any) -> Label | None:
    """The label that a value stands for, None when it is missing; whole floats are integers."""
    if is_missing(value):
        return None
    label = checked_label(value)
    if isinstance(label, str) and is_missing(label):  # it came as bytes
        return None
    return checked_label(int(label)) if isinstance(label, float) and label.is_integer() else label


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}... ({len(text):,} characters)"


def checked_label(value: Any) -> Label:
    """One label as Python's own value, bytes as the text that they are; no two labels become one.

    Raises LabelError without a place: another kind of thing, bytes that are not UTF-8, half of a surrogate pair, NaN
    and infinity, and what a store cannot list: texts without end, whole numbers of more than 64 bits.
    """
    label = value.item() if isinstance(value, np.generic) and value.dtype.kind not in "mM" else value
    if isinstance(label, bytes | str):
        return _checked_text(label)
    if isinstance(label, bool) or (isinstance(label, float) and math.isfinite(label)):
        return label
    if not isinstance(label, int):
        found = str(label) if isinstance(label, float) else f"a {type(label).__name__}"
        raise LabelError(f"found {found}, expected a label: a text, a finite number or a boolean; convert it first")
    if not _LOWEST <= label <= _HIGHEST:
        digits = label.bit_length() * 30103 // 100000 + 1  # Python refuses to write out thousands of them
        raise LabelError(
            f"found a label that is a whole number of {digits} digits, expected at most 64 bits; give such labels as "
            "texts"
        )
    return int(label)


def _checked_text(label: bytes | str) -> str:
    try:
        text = label.decode() if isinstance(label, bytes) else str.__str__(label)
        text.encode().decode()  # NumPy's arrays may hold characters that there are not
    except UnicodeError as error:
        expected = "UTF-8, as all text" if isinstance(label, bytes) else "valid Unicode"
        raise LabelError(
            f"found the label {label[:60]!a}, expected {expected}; correct or decode the labels"
        ) from error
    if len(text) > LONGEST_LABEL:
        raise LabelError(
            f"found the label {text[:60]!r}... of {len(text):,} characters, expected at most {LONGEST_LABEL:,}; is "
            "this column a text rather than a label?"
        )
    return text


def refuse_no_characters(values: np.ndarray, place: Callable[[int], str]) -> None:
    """Raise LabelError for a text in an array (m,) of NumPy that holds what is no character: Python breaks over it."""
    if values.dtype.kind != "U" or not values.nbytes:
        return
    letters = np.ascontiguousarray(values).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    bad = letters.reshape(len(values), -1) > sys.maxunicode
    if bad.any():
        row = int(np.argmax(bad.any(axis=1)))
        found = int(letters.reshape(len(values), -1)[row][bad[row]][0])
        raise LabelError(
            f"{place(row)}: found the character {found:#x} in a label, expected at most 0x10ffff; correct it"
        )


def is_missing(label: Any) -> bool:
    """Whether a value stands for a label that is not there."""
    if label is None or type(label).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    if isinstance(label, str):
        return label in _MISSING_TEXTS or not label.strip()
    if isinstance(label, np.datetime64 | np.timedelta64):
        return bool(np.isnat(label))
    return isinstance(label, float | np.floating | Decimal) and label != label


def missing_labels(values: np.ndarray) -> NDArray[np.bool_]:
    """Which of the labels (n,), as ``label_vector`` gives them, are missing."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    if values.dtype.kind == "U":
        return np.asarray(np.isin(values, list(_MISSING_TEXTS)) | (np.strings.strip(values) == ""))
    if values.dtype.kind == "O":
        return np.fromiter(map(is_missing, values.tolist()), bool, len(values))
    return np.zeros(len(values), bool)


def all_labels(labels: Any, place: str) -> np.ndarray:
    """The labels (n,) of rows that all have one. Raises LabelError, which names the rows without."""
    values = label_vector(labels, place)
    refuse_no_characters(values, lambda row: f"{place}: row {row}")
    missing = np.flatnonzero(missing_labels(values))
    if len(missing):
        raise LabelError(f"{place}: {describe_missing(values, missing)}")
    return values


def refuse_unclear(labels: Any, place: str) -> None:
    """Refuse missing labels where None says that a row is to have none. Raises LabelError that names the rows."""
    values = label_vector(labels, place)
    missing = missing_labels(values)
    if isinstance(labels, list | tuple) or (isinstance(labels, np.ndarray) and not np.ma.is_masked(labels)):
        missing &= np.array([value is not None for value in values.tolist()], bool)
    if missing.any():
        raise LabelError(f"{place}: {describe_missing(values, np.flatnonzero(missing))}; None takes a label away")


def describe_missing(values: np.ndarray, missing: NDArray[np.intp], first: int = 0) -> str:
    """Which rows have no label, and what was found instead; first: number of the first row."""
    rows = ", ".join(str(first + row) for row in missing[:_NAMED_ROWS]) + ", ..." * (len(missing) > _NAMED_ROWS)
    found = values[missing[0]]
    found = "NaN" if isinstance(found, float) else repr(found.item() if isinstance(found, np.generic) else found)
    which = f"row {rows} has" if len(missing) == 1 else f"rows {rows} have"
    return (
        f"{which} no label ({len(missing):,} of {len(values):,} rows; found {found}), expected one for every row; fill "
        "them in, or leave these rows out"
    )


def label_vector(labels: Any, place: str) -> np.ndarray:
    """Labels as an array of one dimension; a list keeps its elements' kinds apart ("1" and 1).

    Entries that are missing stay so, whatever the labels come in: masked entries and nulls become None.
    """
    if isinstance(labels, np.ma.MaskedArray):
        values = labels.data
        if np.ma.is_masked(labels):
            values = values.astype(object)
            values[np.ma.getmaskarray(labels)] = None
    elif hasattr(labels, "to_pylist") and labels.null_count:
        values = _objects(labels.to_pylist())  # of whole numbers with nulls Arrow makes floats
    elif hasattr(labels, "__array__"):
        values = np.asarray(labels)
    else:
        values = _objects(list(labels))
    if values.ndim != 1:
        raise LabelError(f"{place}: expected labels as a vector, got an array of shape {values.shape}; use one column")
    if values.dtype.kind in "ST":
        values = values.astype(object)
    if values.dtype.kind == "O":
        values = _of_one_kind(values)
    if values.dtype.kind not in "biufUO":
        raise LabelError(f"{place}: expected texts or numbers as labels, got {values.dtype}")
    return values


def _objects(items: list[Any]) -> np.ndarray:
    values = np.empty(len(items), dtype=object)
    for k, item in enumerate(items):
        values[k] = item
    return values


def refuse_mixed(values: np.ndarray, place: Callable[[int], str]) -> None:
    """Raise LabelError where objects (n,) are of several kinds: booleans, numbers, texts and bytes do not mix."""
    families = ((bool, np.bool), (int, float, np.number), (str,), (bytes,))
    kinds = [type(value) for value in values.tolist()]
    family = {kind: next((k for k, one in enumerate(families) if issubclass(kind, one)), None) for kind in set(kinds)}
    known = [number for number in family.values() if number is not None]
    if len(set(known)) < 2:
        return
    rows = [row for row, kind in enumerate(kinds) if family[kind] is not None and not is_missing(values[row])]
    odd = next((row for row in rows if family[kinds[row]] != family[kinds[rows[0]]]), None)
    if odd is not None:
        raise LabelError(
            f"{place(odd)}: found the label {values[odd]!r}, expected one of the same kind as {values[rows[0]]!r}; "
            "give all labels in one kind"
        )


def _of_one_kind(values: np.ndarray) -> np.ndarray:
    """Objects that are all Python's numbers of one kind as an array of it; others stay objects, to the last digit."""
    items = [item.item() if isinstance(item, np.number | np.bool) else item for item in values.tolist()]
    kinds = set(map(type, items))
    if kinds not in ({int}, {float}, {bool}):
        return values
    plain = np.asarray(items)  # of large whole numbers of both signs NumPy makes floats, some of them equal
    wanted = {int: "iu", float: "f", bool: "b"}[kinds.pop()]
    return plain if plain.dtype.kind in wanted else values
