"""Labels of any one kind to codes: the order of first appearance gives the code, -1 is unlabelled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.format import UNLABELLED
from coremargin.errors import LabelError
from coremargin.formats.limits import MOST_CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = {bool: "yes or no", int: "a whole number", float: "a number", str: "a text"}


class LabelCoder:
    """Codes for labels that arrive in batches. ``classes`` grows; the codes given never change."""

    def __init__(self, classes: Sequence[Any] = ()) -> None:
        """classes: those that already have codes (as stored: text, whole numbers, numbers, or booleans)."""
        self.classes: list[Any] = []
        self._codes: dict[Any, int] = {}
        for label in classes:
            self._code(label, "classes")

    def encode(self, labels: Any, rows: int, place: str, first: int = 0) -> np.ndarray:
        """Codes (rows,) int32 of labels (rows,), or of None: all unlabelled. None and NaN entries are unlabelled.

        Raises LabelError: another length, not a vector, kinds that do not mix ("1" and 1), too many classes.
        """
        codes = np.full(rows, UNLABELLED, dtype=np.int32)
        if labels is None:
            return codes
        values = _vector(labels, place)
        if len(values) != rows:
            raise LabelError(f"{place}: expected as many labels as rows, {rows}, got {len(values)}")
        before = len(self.classes)
        try:
            if values.dtype.kind == "O":
                self._encode_objects(values, codes, place, first)
            else:
                self._encode_plain(values, codes, place, first)
        except LabelError:
            for label in self.classes[before:]:  # a refused batch leaves no classes behind
                del self._codes[label]
            del self.classes[before:]
            raise
        return codes

    def _encode_objects(self, values: np.ndarray, codes: np.ndarray, place: str, first: int) -> None:
        for k, label in enumerate(values.tolist()):
            if not _missing(label):
                codes[k] = self._code(label, f"{place}: row {first + k}")

    def _encode_plain(self, values: np.ndarray, codes: np.ndarray, place: str, first: int) -> None:
        known = np.flatnonzero(~np.isnan(values)) if values.dtype.kind == "f" else np.arange(len(values))
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

    def _as_kept(self, label: Any, place: str) -> Any:
        """The label in the kind of the labels before it; 1 and 1.0 are the same, "1" and 1 are not."""
        if isinstance(label, np.generic):
            label = label.item()
        if isinstance(label, bytes):
            label = label.decode("utf-8", errors="replace")
        if type(label) not in _KINDS or (isinstance(label, float) and not math.isfinite(label)):
            raise LabelError(f"{place}: expected a label (a text or a finite number), got {label!r}")
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


def _vector(labels: Any, place: str) -> np.ndarray:
    """Labels as an array of one dimension; a list keeps its elements' kinds apart ("1" and 1)."""
    if isinstance(labels, np.ndarray):
        values = labels
    elif hasattr(labels, "__array__"):
        values = np.asarray(labels)
    else:
        items = list(labels)
        values = np.empty(len(items), dtype=object)
        for k, item in enumerate(items):
            values[k] = item
        if items and all(type(item) in (int, float) for item in items) and len({type(item) for item in items}) == 1:
            values = np.asarray(items)
    if values.ndim != 1:
        raise LabelError(f"{place}: expected labels as a vector, got an array of shape {values.shape}; use one column")
    if values.dtype.kind == "S":
        values = values.astype(object)
    if values.dtype.kind not in "biufUO":
        raise LabelError(f"{place}: expected texts or numbers as labels, got {values.dtype}")
    return values


def _missing(label: Any) -> bool:
    return label is None or (isinstance(label, float | np.floating) and math.isnan(label))


def _too_many(place: str) -> str:
    return (
        f"{place}: expected at most {MOST_CLASSES} classes, got more; is this column a measurement rather than a label?"
    )
