"""JSON read strictly: one object, whose every key is there once and every number is one that a machine can hold."""

from __future__ import annotations

import json
import math
import re
from typing import Any, TypeVar

import msgspec

from coremargin.errors import DataError

T = TypeVar("T")

LARGEST = 16 << 20  #: bytes of a record beyond which it is none
_WHOLE = (-(1 << 63), 1 << 64)  # what 64 bits hold, with a sign or without
_DIGITS = 20
_DEEPEST = 100  # levels of a record; what goes over one later, level by level, then needs no care
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN = 200


class _Refused(ValueError):
    """What json's hooks found."""


def read_object(
    data: bytes, place: str, *, largest: int = LARGEST, error: type[DataError] = DataError, names: bool = False
) -> dict[str, Any]:
    """The JSON object in some bytes; ``place`` names the file in messages. names: of files, which may be any bytes, are
    in it.

    Raises ``error``: longer than ``largest``, not UTF-8, not one object, a key twice, a number beyond 64 bits or beyond
    the floats, NaN or Infinity, nested too deep, and without ``names`` half of a surrogate pair.
    """
    if len(data) > largest:
        raise error(f"{place}: expected at most {largest:,} bytes of JSON, found more; get an unaltered copy")
    try:
        value = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_unique,
            parse_constant=_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
        if not names and _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as problem:
        raise error(f"{place}: expected JSON, found it nested too deep; get an unaltered copy") from problem
    except ValueError as problem:
        raise error(f"{place}: expected JSON, cannot be read: {problem}; get an unaltered copy") from problem
    if deeper(value, _DEEPEST):
        text = f"expected at most {_DEEPEST} levels of JSON, found it nested too deep"
        raise error(f"{place}: {text}; get an unaltered copy")
    if not isinstance(value, dict):
        raise error(f"{place}: expected a JSON object, found {type(value).__name__}; get an unaltered copy")
    return value


def deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested in more levels."""
    level = [value]
    for _ in range(levels + 1):
        level = [
            entry
            for one in level
            if isinstance(one, dict | list)
            for entry in (one.values() if isinstance(one, dict) else one)
            if isinstance(entry, dict | list)
        ]
        if not level:
            return False
    return True


def typed(kind: type[T] | Any, values: Any, place: str, *, error: type[DataError] = DataError) -> T:
    """Values from JSON as a msgspec Struct, or a tagged union of them: no kind is taken for another.

    Raises ``error`` that names the key, what was expected and what was found.
    """
    try:
        found: T = msgspec.convert(values, kind, strict=True)
    except msgspec.ValidationError as problem:
        raise error(f"{place}: {_explained(str(problem), values)}; get an unaltered copy") from problem
    return found


def cut(text: str, limit: int = _SHOWN) -> str:
    """Text as long as a message takes."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"


def _explained(message: str, values: Any) -> str:
    """msgspec's message with the key in front and what was found behind."""
    text, _, at = message.partition(" - at `")
    at = at.removesuffix("`")
    names = [name or index for name, index in re.findall(r"\.([^.\[\]]+)|\[([0-9]+|\.\.\.)\]", at)]
    where = f"{'.'.join(names)}: " if names else ""
    key = text.rpartition(" ")[2].replace("`", "'")
    if text.startswith("Object missing required field"):
        return f"{where}key {key} is missing"
    if text.startswith("Object contains unknown field"):
        return f"{where}unknown key {key}"
    text = text[:1].lower() + text[1:].replace("`", "").replace("object", "an object").replace("array", "a list")
    return f"{where}{text}; found {cut(repr(_look_up(values, names)))}" if names else text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        for name, _ in pairs:
            if name in seen:
                raise _Refused(f"the key {cut(repr(name))} is there twice")
            seen.add(name)
    return found


def _constant(word: str) -> float:
    raise _Refused(f"{word} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"{cut(text)} is beyond what a float holds")
    return value


def _whole(text: str) -> int:
    if len(text) > _DIGITS or not _WHOLE[0] <= int(text) < _WHOLE[1]:
        raise _Refused(f"{cut(text)} is beyond 64 bits")
    return int(text)


def _look_up(values: Any, names: list[str]) -> Any:
    for name in names:
        if isinstance(values, dict) and name in values:
            values = values[name]
        elif isinstance(values, list) and name.isdigit() and int(name) < len(values):
            values = values[int(name)]
        else:
            return None
    return values
