"""Labels of any one kind to codes: the order of first appearance gives the code, -1 is unlabelled.

``is_missing`` decides for all what a missing label is: None, NaN, pandas' NA and NaT, a masked entry, a blank text, and
the texts that NumPy and pandas make of such values ("nan", "<NA>", "NaT").
"""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.format import UNLABELLED
from coremargin.errors import LabelError
from coremargin.formats.limits import LONGEST_LABEL, MOST_CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Label = str | int | float | bool


_LOWEST, _HIGHEST = -(2**63), 2**64 - 1  # what NumPy, and other readers of stores, can hold
_MISSING_TEXTS = frozenset({"nan", "<NA>", "NaT"})
_NAMED_ROWS = 5  #: so many rows are named in a message
_KINDS = {bool: "yes or no", int: "a whole number", float: "a number", str: "a text"}


class LabelCoder:
    """Codes for labels that arrive in batches. ``classes`` grows; the codes given never change."""

    def __init__(self, classes: Sequence[Any] = ()) -> None:
        """classes: those that already have codes (as stored: text, whole numbers, numbers, or booleans)."""
        self.classes: list[Any] = []
        self._codes: dict[Any, int] = {}
        self._in_bytes: dict[str, bool] = {}  # whether a text came as bytes
        for label in classes:
            self._code(label, "classes")
        self._in_bytes.clear()  # how those came is not known

    def encode(self, labels: Any, rows: int, place: str, first: int = 0) -> np.ndarray:
        """Codes (rows,) int32 of labels (rows,), or of None: all unlabelled. Missing entries are unlabelled.

        Raises LabelError: another length, not a vector, kinds that do not mix ("1" and 1), too many classes.
        """
        codes = np.full(rows, UNLABELLED, dtype=np.int32)
        if labels is None:
            return codes
        if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels):
            raise LabelError(f"{place}: some labels are masked, expected all to be there; fill them in first")
        values = label_vector(labels, place)
        if len(values) != rows:
            raise LabelError(f"{place}: expected as many labels as rows, {rows}, got {len(values)}")
        before = len(self.classes)
        try:
            if values.dtype.kind == "O":
                self._encode_objects(values, codes, place, first)
            else:
                refuse_no_characters(values, lambda row: f"{place}: row {first + row}")
                self._encode_plain(values, codes, place, first)
        except LabelError:
            for label in self.classes[before:]:  # a refused batch leaves no classes behind
                del self._codes[label]
                self._in_bytes.pop(label, None)
            del self.classes[before:]
            raise
        return codes

    def _encode_objects(self, values: np.ndarray, codes: np.ndarray, place: str, first: int) -> None:
        for k, label in enumerate(values.tolist()):
            if not is_missing(label):
                codes[k] = self._code(label, f"{place}: row {first + k}")

    def _encode_plain(self, values: np.ndarray, codes: np.ndarray, place: str, first: int) -> None:
        known = np.flatnonzero(~missing_labels(values))
        unique, index, inverse = np.unique(values[known], return_index=True, return_inverse=True)
        if len(unique) > MOST_CLASSES:
            raise LabelError(_too_many(place))
        table = np.zeros(len(unique), dtype=np.int32)
        for k in np.argsort(index, kind="stable"):
            table[k] = self._code(unique[k].item(), f"{place}: row {first + int(known[index[k]])}")
        codes[known] = table[inverse.reshape(-1)]

    def _code(self, label: Any, place: str) -> int:
        label = self._as_kept(label, place)
        code = self._codes.get(label)
        if code is None:
            if len(self.classes) >= MOST_CLASSES:
                raise LabelError(_too_many(place))
            code = self._codes[label] = len(self.classes)
            self.classes.append(label)
        return code

    def _as_kept(self, given: Any, place: str) -> Any:
        """The label in the kind of the labels before it; 1 and 1.0 are the same, "1" and 1 are not."""
        try:
            label = checked_label(given)
        except LabelError as error:
            raise LabelError(f"{place}: {error}") from error
        in_bytes = isinstance(given, bytes)
        if isinstance(label, str) and self._in_bytes.setdefault(label, in_bytes) != in_bytes:
            raise LabelError(f"{place}: found the label {label!r} as text and as bytes, expected one; convert them")
        kind = type(self.classes[0]) if self.classes else type(label)
        if type(label) is kind:
            return label
        if kind is float and type(label) is int and float(label) == label:
            return float(label)
        if kind is int and type(label) is float and label.is_integer():
            return int(label)
        raise LabelError(
            f"{place}: expected {_KINDS[kind]} like the labels before it ({self.classes[0]!r}), "
            f"got {_KINDS[type(label)]}, {label!r}; give all labels in one kind"
        )


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


def _too_many(place: str) -> str:
    return (
        f"{place}: expected at most {MOST_CLASSES} classes, got more; is this column a measurement rather than a label?"
    )
