"""Labels as sources carry them: integers, floats, strings, booleans; what a text or value means, and its code.

Two labels never become one class unless they are the same number: bytes must be UTF-8, and what rounding or the white
space around a text would make equal is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import numpy as np

from coremargin.data.labels import Label, checked_label, is_missing, refuse_no_characters
from coremargin.errors import LabelError
from coremargin.formats.limits import LONGEST_LABEL, MOST_CLASSES

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})  #: texts that stand for a missing label, lower case
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]+)?")
_REMEMBERED = 16 * MOST_CLASSES  # spellings: a few of each label
_KINDS = "biufSUOTV"  # of NumPy's types that may hold labels


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


class Vocabulary:
    """The labels so far, in order of first appearance; a code is a position in ``labels``."""

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        """labels: those that already have codes, when rows are appended."""
        self.labels: list[Label] = []
        self.odd: list[int] = []  #: codes of labels that are of another kind than the first (text and numbers, ...)
        self._codes: dict[tuple[bool, Label], int] = {}
        self._texts: dict[str, int] = {}
        self._spelt: dict[int, Decimal | str] = {}  # how a label was first written, where that can matter
        self._as_bytes: dict[int, bool] = {}  # whether a text came as bytes
        for label in labels:
            self.add(label, "the store")

    def add(self, label: Label | None, place: str) -> int:
        """Code of a label, -1 for None; raises LabelError when there are too many to be classes."""
        if label is None:
            return -1
        key = (isinstance(label, bool), label)  # True and 1 are equal in Python, and two labels here
        code = self._codes.get(key)
        if code is None:
            if len(self.labels) == MOST_CLASSES:
                few = ", ".join(repr(known)[:40] for known in self.labels[:5])
                raise LabelError(
                    f"{place}: more than {MOST_CLASSES} different labels ({few}, ...): expected classes; "
                    "name the right column with --label, or say --unlabelled"
                )
            code = self._codes[key] = len(self.labels)
            self.labels.append(label)
            if _kind(label) != _kind(self.labels[0]):
                self.odd.append(code)
        return code

    def encode_text(self, text: str, place: str, missing: Collection[str] = MISSING) -> int:
        """Code of the label that ``text`` stands for, -1 when it is missing, one of these texts in lower case."""
        code = self._texts.get(text)
        return self._encode_spelt(text, partial(label_from_text, missing=missing), place) if code is None else code

    def encode_number(self, text: str, place: str) -> int:
        """Code of the number that ``text`` is, whatever zeros it begins with; -1 for "nan"."""
        code = self._texts.get(text)
        if code is None:
            code = -1 if text.lower() == "nan" else self._encode_spelt(text, label_from_number, place)
        return code

    def _encode_spelt(self, text: str, meaning: Callable[[str], Label | None], place: str) -> int:
        """Code of a spelling that is new; refused when another one, with which it is not equal, has that code."""
        try:
            label = meaning(text)
            spelt = text if isinstance(label, str) else _exact(text) if isinstance(label, float) else None
        except LabelError as error:
            raise LabelError(f"{place}: {error}") from error
        code = self.add(label, place)
        if spelt is not None and self._spelt.setdefault(code, spelt) != spelt:
            first = self._spelt[code]
            why = "differ in white space only" if isinstance(label, str) else "are one number in float64"
            raise LabelError(f"{place}: found the labels {str(first)!r} and {text!r}, which {why}; write them alike")
        if code >= 0 and len(self._texts) < _REMEMBERED:  # a missing label ends the ingest
            self._texts[text] = code
        return code

    def encode(self, values: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
        """Codes (m,) int32 of labels (m,) of any dtype, new ones in order of first appearance."""
        dtype = values.dtype
        if dtype.kind not in _KINDS or dtype.names is not None or (dtype.kind == "f" and dtype.itemsize > 8):
            raise LabelError(
                f"{place(0)}: found labels of dtype {dtype}, expected integers, floats, strings or booleans"
            )
        if dtype.kind in "OTV":
            codes = [self._encode_value(value, row, place) for row, value in enumerate(values.tolist())]
            return np.array(codes, dtype=np.int32)
        refuse_no_characters(values, place)
        kinds, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        table = np.empty(len(kinds), dtype=np.int32)
        for position in np.argsort(first, kind="stable"):
            table[position] = self._encode_value(kinds[position], int(first[position]), place)
        return table[inverse.reshape(-1)]

    def _encode_value(self, value: Any, row: int, place: Callable[[int], str]) -> int:
        try:
            label = label_from_value(value)
        except LabelError as error:
            raise LabelError(f"{place(row)}: {error}") from error
        code = self._codes.get((isinstance(label, bool), label)) if label is not None else -1
        if code is None:
            code = self.add(label, place(row))
        in_bytes = isinstance(value, bytes)
        if isinstance(label, str) and self._as_bytes.setdefault(code, in_bytes) != in_bytes:
            raise LabelError(
                f"{place(row)}: found the label {label!r} as text and as bytes, expected one; convert them"
            )
        return code


def _kind(label: Label) -> str:
    return "number" if type(label) in (int, float) else type(label).__name__
