"""Chained logs: append-only files of JSON lines, in which lines cannot be changed, removed or reordered unnoticed.

Every line has its number and the hash of the line before (SHA-256 of its bytes without the line feed; the first line
has the hash of what the log is about). Bytes behind the last line feed are an incomplete line of a killed writer, which
had not been acknowledged.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, BinaryIO, Generic, Protocol, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, to_builtins

from coremargin.errors import DataError

LONGEST_LINE = 1 << 16  #: bytes

Number: TypeAlias = Annotated[int, Meta(ge=1)]
When: TypeAlias = Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
Hash: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Linked(Protocol):
    """What every line has."""

    @property
    def number(self) -> int:
        """Position in the log, from 1."""
        ...

    @property
    def before(self) -> str:
        """Hash of the line before."""
        ...


E = TypeVar("E", bound=Linked)


@dataclass(frozen=True)
class Chain(Generic[E]):
    """Lines and their hashes, in order; whole: bytes of complete lines."""

    entries: tuple[E, ...]
    hashes: tuple[str, ...]
    whole: int


def hash_of(text: bytes) -> str:
    """The hash of a line without its line feed."""
    return hashlib.sha256(text).hexdigest()


def bytes_of(line: Struct) -> bytes:
    """A line without its line feed."""
    values = {name: value for name in line.__struct_fields__ if (value := getattr(line, name)) is not UNSET}
    return json.dumps(values, allow_nan=False, ensure_ascii=False, default=to_builtins).encode("utf-8")


def read_chain(
    data: bytes | BinaryIO, first: str, place: str, line_of: Callable[[bytes, str], E], after: Chain[E] | None = None
) -> Chain[E]:
    """Read the lines of a log, and check their numbers and hashes.

    first: hash in the first line. place: path, for messages. line_of: parses a line, or raises DataError. after: lines
    that were read before; data continues after them. Raises DataError, which names the line.
    """
    lines, hashes = ([], []) if after is None else (list(after.entries), list(after.hashes))
    whole = 0 if after is None else after.whole
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    while text := file.readline(LONGEST_LINE + 1):
        if text[-1:] != b"\n" and len(text) <= LONGEST_LINE:
            break
        whole, text = whole + len(text), text.removesuffix(b"\n")
        line = line_of(text, f"{place}, line {len(lines) + 1}")
        expected = hashes[-1] if hashes else first
        if line.number != len(lines) + 1 or line.before != expected:
            what = "number" if line.number != len(lines) + 1 else "hash of the line before"
            found, wanted = (line.number, len(lines) + 1) if what == "number" else (line.before, expected)
            raise DataError(
                f"{place}, line {len(lines) + 1}: {what}: expected {wanted}, found {found}: lines were changed, "
                "removed or moved; get an unaltered copy"
            )
        lines.append(line)
        hashes.append(hash_of(text))
    return Chain(tuple(lines), tuple(hashes), whole)
