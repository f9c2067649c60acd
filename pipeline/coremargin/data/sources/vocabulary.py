"""Labels as sources carry them: integers, floats, strings, booleans; what a text or value means, and its code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from coremargin.errors import LabelError
from coremargin.formats.limits import MOST_CLASSES

Label = str | int | float | bool

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})  #: texts that stand for a missing label, lower case
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def label_from_text(text: str) -> Label | None:
    """The label that a text stands for: an int, a float, a bool or the text; None when it is missing.

    "1", "+1" and "1.0" are the integer 1, so that CSV, SVMlight and arrays agree; "01" stays text.
    """
    text = text.strip()
    if text.lower() in MISSING:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if text in ("True", "true", "TRUE"):
        return True
    if text in ("False", "false", "FALSE"):
        return False
    if _FLOAT.fullmatch(text) and not (len(text) > 1 and text[0] == "0" and text[1].isdigit()):
        return label_from_value(float(text))
    return text


def label_from_value(value: Any) -> Label | None:
    """The label that a value stands for: whole floats are integers; None, NaN and "" are missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bytes):
        return label_from_value(value.decode("utf-8", errors="replace"))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool | int | float | str):
        return value
    raise LabelError(f"label {value!r} is a {type(value).__name__}: expected an integer, float, string or boolean")


class Vocabulary:
    """The labels met so far, in order of first appearance; a code is a position in ``labels``."""

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        """labels: those that already have codes, when rows are appended."""
        self.labels: list[Label] = []
        self.odd: list[int] = []  #: codes of labels that are of another kind than the first (text and numbers, ...)
        self._codes: dict[tuple[bool, Label], int] = {}
        self._texts: dict[str, int] = {}
        for label in labels:
            self.add(label, "the store")

    def add(self, label: Label | None, source: str) -> int:
        """Code of a label, -1 for None; raises LabelError when there are too many to be classes."""
        if label is None:
            return -1
        key = (isinstance(label, bool), label)  # True and 1 are equal in Python, and two labels here
        code = self._codes.get(key)
        if code is None:
            if len(self.labels) == MOST_CLASSES:
                few = ", ".join(repr(known) for known in self.labels[:5])
                raise LabelError(
                    f"{source}: more than {MOST_CLASSES} different labels ({few}, ...): expected classes; "
                    "name the right column with --label, or say --unlabelled"
                )
            code = self._codes[key] = len(self.labels)
            self.labels.append(label)
            if _kind(label) != _kind(self.labels[0]):
                self.odd.append(code)
        return code

    def encode_text(self, text: str, source: str) -> int:
        """Code of the label that ``text`` stands for, -1 when it is missing."""
        code = self._texts.get(text)
        if code is None:
            code = self.add(label_from_text(text), source)
            if code >= 0:  # a missing label ends the ingest, so it need not be remembered
                self._texts[text] = code
        return code

    def encode(self, values: np.ndarray, source: str) -> np.ndarray:
        """Codes (m,) int32 of labels (m,) of any dtype, new ones in order of first appearance."""
        if values.dtype.kind in "OTV":
            codes = [self.add(label_from_value(value), source) for value in values.tolist()]
            return np.array(codes, dtype=np.int32)
        if values.dtype.kind == "c":
            raise LabelError(
                f"{source}: labels of dtype {values.dtype}: expected integers, floats, strings or booleans"
            )
        kinds, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        table = np.empty(len(kinds), dtype=np.int32)
        for position in np.argsort(first, kind="stable"):
            table[position] = self.add(label_from_value(kinds[position]), source)
        return table[inverse.reshape(-1)]


def _kind(label: Label) -> str:
    return "number" if type(label) in (int, float) else type(label).__name__
