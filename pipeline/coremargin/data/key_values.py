"""Keys of rows, such as numbers of orders: what a value is as a key, and the hash that stands for it in a store.

A key is a whole number or a text, and is one however it is written: 1, 1.0 and the text "1" are, 01 is another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from coremargin.errors import BadRow, UsageError

_HASH_BYTES = 16
_WHOLE = re.compile(r"([+-]?)(0|[1-9][0-9]*)(?:\.0*)?")
_EXACT = 2**53  # whole numbers beyond it are not all numbers of float64
_SHOWN = 80  # characters of a value that a message shows
Placed = tuple[int, Callable[[int], str]]  #: the number of a batch's first row, and what names its rows
RESERVED = ("row", "label", "weight")  #: what tables of corrections call something else


class Keys(NamedTuple):
    """Keys of rows in order: hashes (m, 2) uint64, the high half first; place(i) names row i for messages."""

    hashes: np.ndarray
    place: Callable[[int], str]

    def part(self, start: int, stop: int) -> Keys:
        """Those of the rows [start, stop)."""
        place = self.place
        return Keys(self.hashes[start:stop], lambda row: place(start + row))


class GivenKeys(NamedTuple):
    """Keys that name rows: their texts, hashes (m, 2), and where each was found; None: no file."""

    texts: Sequence[str]
    hashes: np.ndarray
    place: Callable[[int], str] | None = None


def place_among(batches: Sequence[Placed], row: int) -> str:
    """Where a row is, of batches in order; by its number where it is of none."""
    at = bisect_right(batches, row, key=lambda batch: batch[0]) - 1
    return f"row {row:,}" if at < 0 else batches[at][1](row - batches[at][0])


def key_text(value: Any) -> str | None:
    """A key as one text, None where none is there. Raises ValueError for what is neither whole number nor text."""
    if isinstance(value, str):
        text = value.strip()
        found = _WHOLE.fullmatch(text)
        if found is None:
            return text or None
        return "-" * (found[1] == "-" and found[2] != "0") + found[2]
    if value is None or (not isinstance(value, Decimal) and value != value):
        return None
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if isinstance(value, float | np.floating):
        whole = float(value).is_integer() and abs(float(value)) <= _EXACT
    elif isinstance(value, Decimal):
        if value.is_nan():
            return None
        whole = value.is_finite() and value == value.to_integral_value()
    if not whole:
        raise ValueError(value)
    return str(int(value))


def hashed(texts: Iterable[str]) -> np.ndarray:
    """Hashes (m, 2) uint64 of keys as they are kept: no two of 10^12 keys have one, but for a chance of 10^-14."""
    data = b"".join(blake2b(text.encode(), digest_size=_HASH_BYTES).digest() for text in texts)
    return np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, 2)


def texts_of(values: Iterable[Any], place: Callable[[int], str]) -> list[str]:
    """The texts of keys. place: names a row and the column. Raises BadRow: none is there, or what is no key."""
    found = list[str]()
    for row, value in enumerate(values):
        try:
            text = key_text(value)
            if text is not None:
                text.encode()
        except (TypeError, ValueError):  # as pandas' own NA raises
            raise BadRow(
                f"{place(row)}: found {repr(value)[:_SHOWN]}, expected a whole number or a text as the row's key; "
                "convert the column"
            ) from None
        if text is None:
            raise BadRow(f"{place(row)}: found no key, expected one for every row; fill it in, or remove the row")
        found.append(text)
    return found


def column_texts(column: Any, place: Callable[[int], str]) -> list[str]:
    """The same of a column of Arrow's."""
    import pyarrow as pa

    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_integer(plain.type) and not plain.null_count:
        texts: list[str] = plain.cast(pa.string()).to_pylist()
        return texts
    return texts_of(plain.to_pylist(), place)


def given_keys(keys: Any) -> GivenKeys:
    """Keys that were given in Python: a vector of whole numbers or texts. Raises UsageError."""
    if isinstance(keys, GivenKeys):
        return keys
    values = keys.tolist() if hasattr(keys, "tolist") else keys
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"keys: expected several of them, got {type(keys).__name__}; put it into a list")
    try:
        texts = texts_of(values, lambda at: f"keys, number {at}")
    except BadRow as error:
        raise UsageError(str(error)) from error
    return GivenKeys(texts, hashed(texts))
