"""The header of an array in NumPy's format, from a file or from a member of an archive: one strict reader for both.

numpy.lib.format (2.4) takes any Python literal: it gives back a shape of (-3,) and a dtype without fields, and raises
IndexError, TypeError or RecursionError for other odd ones. Here a header is ``{'descr': '<f8', 'fortran_order': False,
'shape': (100, 6), }``, keys in any order, and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coremargin.errors import DataError, UsageError

MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}  # of the header's length, by version
_LONGEST = 10_000  # bytes of a header; that of a plain array has about a hundred
_MOST_AXES = 32  # what every NumPy can hold
_SHAPE = r"\(\s*\)|\((?:\s*\d{1,19}L?\s*,)+(?:\s*\d{1,19}L?)?\s*\)"  # Python 2 wrote 100L
_SPACE = " \t\n"
_ENTRY = re.compile(
    rf"""\s*(?P<q>['"])(?P<key>descr|fortran_order|shape)(?P=q)\s*:\s*"""
    rf"""(?:'(?P<descr>[^'\\]*)'|"(?P<text>[^"\\]*)"|(?P<truth>True|False)|(?P<shape>{_SHAPE}))\s*(?:,|(?=\}}))""",
    re.ASCII,
)
_KIND = re.compile(
    r"[<>|=]?[?biufcmMSUVOT]\d{0,19}(\[\w+\])?|bool|u?int\d+|float\d+|object"
)  # no fields, no sub-arrays
_EXPECTED = "expected {'descr': '<f8', 'fortran_order': False, 'shape': (rows, features), } of a plain dtype"


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What an array promises about itself."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int  #: bytes before the values

    @property
    def nbytes(self) -> int:
        """Bytes of the values, however large."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def whole(self) -> int:
        """Bytes of header and values."""
        return self.start + self.nbytes

    def described(self) -> str:
        """What is promised, for messages."""
        return f"{self.dtype} of shape {self.shape}"


def read_header(take: Callable[[int], bytes], place: str) -> NpyHeader:
    """The header of the array at the beginning of a stream; ``take(n)`` gives its next n bytes, fewer at its end.

    Raises DataError that names the place and what is wrong, UsageError for Python objects, which need a pickle.
    """
    start = take(len(MAGIC) + 2)
    if not start.startswith(MAGIC):
        raise DataError(
            f"{place}: not a whole .npy file: found {start[:6]!r} at its start, expected {MAGIC!r}; {AGAIN}"
        )
    version = start[len(MAGIC) :]
    if version not in _LENGTH_BYTES:
        raise DataError(f"{place}: header: found format version {list(version)}, expected [1, 0] to [3, 0]; {AGAIN}")
    count = take(_LENGTH_BYTES[version])
    length = int.from_bytes(count, "little")
    if length > _LONGEST:
        raise DataError(f"{place}: header: found a length of {length:,} bytes, expected at most {_LONGEST:,}; {AGAIN}")
    data = take(length)
    if len(count) < _LENGTH_BYTES[version] or len(data) < length:
        raise DataError(f"{place}: not a whole .npy file: it ends within its header; {AGAIN}")
    newest = version == b"\x03\x00"
    entries = _entries(data.decode("utf-8" if newest else "latin-1", errors="replace"), place)
    if newest and "L" in entries["shape"]:
        raise DataError(f"{place}: header: found the shape {shown(entries['shape'])}, expected whole numbers; {AGAIN}")
    dtype, shape = _dtype(entries["descr"], place), _shape(entries["shape"], place)
    return NpyHeader(dtype, shape, entries["fortran_order"] == "True", len(start) + len(count) + length)


AGAIN = "write it again"  #: what to do about a file that is not what it says


def _entries(text: str, place: str) -> dict[str, str]:
    """The three entries of a header as they are written."""
    found: dict[str, str] = {}
    body = text.strip(_SPACE)
    at = 1
    while body[:1] == "{" and (entry := _ENTRY.match(body, at)) is not None:
        kinds = {"descr": entry["descr"] if entry["text"] is None else entry["text"]}
        kinds |= {"fortran_order": entry["truth"], "shape": entry["shape"]}
        value = kinds[entry["key"]]
        if value is None or entry["key"] in found:
            break
        found[entry["key"]], at = value, entry.end()
    if len(found) < 3 or body[at:].strip(_SPACE) != "}":
        raise DataError(f"{place}: header: found {shown(body)}, {_EXPECTED}; {AGAIN}")
    return found


def _dtype(descr: str, place: str) -> np.dtype[Any]:
    """The type that a header names."""
    try:
        dtype = np.dtype(descr) if _KIND.fullmatch(descr) else None
    except (TypeError, ValueError, OverflowError):
        dtype = None
    if dtype is None:
        raise DataError(f"{place}: header: found the dtype {shown(descr)}, expected one such as '<f8'; {AGAIN}")
    if dtype.hasobject:
        raise UsageError(
            f"{place}: holds Python objects, which are never unpickled: expected numbers or strings; save it again "
            "with a plain dtype"
        )
    return dtype


def _shape(text: str, place: str) -> tuple[int, ...]:
    sizes = tuple(int(size.strip(_SPACE + "L")) for size in text.strip("()").split(",") if size.strip(_SPACE))
    if len(sizes) > _MOST_AXES:
        raise DataError(f"{place}: header: found {len(sizes)} axes, expected at most {_MOST_AXES}; {AGAIN}")
    return sizes


def shown(text: str, limit: int = 80) -> str:
    """A text as messages show it: quoted, and not all of a long one."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}... ({len(text):,} characters)"
