"""Mutations of JSON documents: of values, of keys, of the text itself. Each says what it did."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Place = tuple[str | int, ...]

#: Literals that no value of Python is written as: put in as a mark, and exchanged in the text.
LITERALS = (
    "1e400", "-1e400", "NaN", "Infinity", "-Infinity", "9" * 400, "-" + "9" * 400, "1" + "0" * 5000, "-0.0", "0.0",
    "1E5", "1e-400", "9007199254740993", "1e14", "true", "null", "[]", "{}", '""', '"\\ud800"', '"\\u0000"', "01",
    "+1", "0x10", ".5", "1.", "'a'", "[[[[[[[[]]]]]]]]", "1,", "undefined", "1e308", "5e-324",
)  # fmt: skip
_MARK = "@literal@"

NUMBERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("+1ulp", lambda v: math.nextafter(v, math.inf)),
    ("-1ulp", lambda v: math.nextafter(v, -math.inf)),
    ("*(1+1e-6)", lambda v: v * (1 + 1e-6)),
    ("*(1-1e-6)", lambda v: v * (1 - 1e-6)),
    ("*(1+1e-12)", lambda v: v * (1 + 1e-12)),
    ("*2", lambda v: v * 2),
    ("/2", lambda v: v / 2),
    ("*1e9", lambda v: v * 1e9),
    ("*1e-9", lambda v: v * 1e-9),
    ("negative", lambda v: -v),
    ("+1", lambda v: v + 1),
    ("-1", lambda v: v - 1),
    ("+0.5", lambda v: v + 0.5),
    ("+0.7", lambda v: v + 0.7),
    ("as float", float),
    ("as int", int),
    ("as text", str),
    ("as bool", bool),
    ("as list", lambda v: [v]),
)

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 0.5, 1e-3, 1e14, 1e300, 5e-324, 2**31, 2**53, 2**63, 2**64, 2**70,
    -(2**63) - 1, "", "a", "1", "\x1b[31mred\x1b[0m", "\ud800", "\0", "../..", "x" * 300, "x" * 70_000, "é" * 10, [],
    [1], [[1]], {}, {"a": 1}, [None, None],
)  # fmt: skip

#: Words that some field has somewhere.
WORDS: tuple[str, ...] = (
    "hard_margin", "soft_margin", "crammer_singer", "outliers", "certified", "not_separable", "stopped", "margin",
    "duality_gap", "hinge", "squared_hinge", "balanced", "standard", "minmax", "maxabs", "rownorm", "float32",
    "float64", "int32", "complex128", "fast", "paper", "any-violator", "exact", "heuristic", "published", "ovr",
    "crammer-singer", "validation", "only", "0..3", "0..99", "3", "coremargin-model", "coremargin-fleet",
    "coremargin-store", "yes", "no", "0", "000000", "array", "group", "regular", "default", "bytes", "crc32c", "blosc",
    "gzip", "zstd", "transpose", "sharding_indexed", "little", "big", "v2", "NaN", "/", ".",
)  # fmt: skip


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """All places below a value, inner ones included."""
    entries: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*here, key)
        yield from places(entry, (*here, key))


def at(value: Any, place: Place) -> Any:
    """What is there."""
    for key in place:
        value = value[key]
    return value


def put(value: Any, place: Place, new: Any) -> None:
    """Put something there."""
    at(value, place[:-1])[place[-1]] = new


def _number(rng: np.random.Generator, old: Any) -> tuple[str, Any]:
    name, change = NUMBERS[rng.integers(len(NUMBERS))]
    try:
        return name, change(old)
    except (OverflowError, ValueError):
        return "as text", str(old)


def _list(rng: np.random.Generator, old: list[Any]) -> tuple[str, Any]:
    """Another order, another length."""
    new = copy.deepcopy(old)
    if not new:
        return "[] gets an entry", [1]
    i, j = (int(k) for k in rng.integers(len(new), size=2))
    kind = rng.integers(6)
    if kind == 0:
        return "reversed", new[::-1]
    if kind == 1:
        new[i], new[j] = new[j], new[i]
        return f"{i} and {j} swapped", new
    if kind == 2:
        del new[i]
        return f"{i} dropped", new
    if kind == 3:
        return f"{i} twice", [*new[: i + 1], copy.deepcopy(new[i]), *new[i + 1 :]]
    if kind == 4:
        return f"{i} in the place of {j}", [copy.deepcopy(old[i]) if k == j else entry for k, entry in enumerate(new)]
    return "emptied", []


def _value(rng: np.random.Generator, document: Any, old: Any) -> tuple[str, Any]:
    """Another value: near the old one, or anything."""
    kind = rng.random()
    if isinstance(old, int | float) and not isinstance(old, bool) and kind < 0.6:
        return _number(rng, old)
    if isinstance(old, list) and kind < 0.6:
        return _list(rng, old)
    if isinstance(old, str) and kind < 0.4:
        return "a word", WORDS[rng.integers(len(WORDS))]
    if isinstance(old, bool) and kind < 0.4:
        return "flipped", not old
    if kind < 0.7:
        every = list(places(document))
        other = every[rng.integers(len(every))]
        return f"the value of {other}", copy.deepcopy(at(document, other))
    if kind < 0.8:
        return "a mark", _MARK
    return "anything", copy.deepcopy(VALUES[rng.integers(len(VALUES))])


def _change(rng: np.random.Generator, document: Any) -> str:
    """One change of a document, in place."""
    every = list(places(document))
    place = every[rng.integers(len(every))]
    above, kind = at(document, place[:-1]), rng.random()
    if kind < 0.06:
        del above[place[-1]]
        return f"{place} deleted"
    if kind < 0.1 and isinstance(above, dict):
        above[str(WORDS[rng.integers(len(WORDS))])] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
        return f"a key beside {place}"
    if kind < 0.12 and isinstance(above, dict):
        above[str(place[-1]) + " "] = above.pop(place[-1])
        return f"{place} renamed"
    what, new = _value(rng, document, above[place[-1]])
    old = above[place[-1]]
    above[place[-1]] = new
    return f"{place} {what}: {ascii(old)[:50]} -> {ascii(new)[:50]}"


def _broken(rng: np.random.Generator, text: bytes) -> tuple[str, bytes]:
    """Another text: cut, with other bytes, in another encoding, in another shape."""
    place = int(rng.integers(len(text)))
    kinds: tuple[tuple[str, Callable[[], bytes]], ...] = (
        ("cut", lambda: text[:place]),
        ("nothing", lambda: b""),
        ("a byte changed", lambda: text[:place] + bytes([rng.integers(256)]) + text[place + 1 :]),
        ("a byte more", lambda: text[:place] + bytes([rng.integers(256)]) + text[place:]),
        ("a byte less", lambda: text[:place] + text[place + 1 :]),
        ("NUL at the end", lambda: text + b"\0"),
        ("NUL at the beginning", lambda: b"\0" + text),
        ("byte order mark", lambda: b"\xef\xbb\xbf" + text),
        ("UTF-16", lambda: text.decode().encode("utf-16")),
        ("UTF-32", lambda: text.decode().encode("utf-32")),
        ("twice", lambda: text + text),
        ("in a list", lambda: b"[" + text + b"]"),
        ("nested", lambda: b"[" * 20_000),
        ("nested and closed", lambda: b"[" * 900 + text + b"]" * 900),
        ("spaces", lambda: b" " * 100_000 + text),
        ("latin-1", lambda: text[:place] + b"\xe9" + text[place:]),
        ("a number", lambda: b"5"),
        ("null", lambda: b"null"),
        ("a text", lambda: b'"coremargin-model"'),
        ("one line", lambda: json.dumps(json.loads(text)).encode()),
        ("keys in another order", lambda: json.dumps(dict(reversed(json.loads(text).items()))).encode()),
    )
    name, make = kinds[rng.integers(len(kinds))]
    return f"text: {name} ({place})", make()


def _doubled(rng: np.random.Generator, document: dict[str, Any]) -> tuple[str, bytes]:
    """A key that is there twice, with two values."""
    objects = [
        (),
        *(place for place in places(document) if isinstance(at(document, place), dict) and at(document, place)),
    ]
    inside = at(document, objects[rng.integers(len(objects))])
    key = list(inside)[rng.integers(len(inside))]
    _, other = _value(rng, document, inside[key])
    first = bool(rng.integers(2))
    marked = {("@first@" if first else "@last@"): other, **inside} if first else {**inside, "@last@": other}
    inside.clear()
    inside.update(marked)
    text = (
        _text(document).replace(b'"@first@"', json.dumps(key).encode()).replace(b'"@last@"', json.dumps(key).encode())
    )
    return f"{key!r} twice, {'first' if first else 'last'} {ascii(other)[:50]}", text


def _text(document: Any, literal: str = "0") -> bytes:
    return json.dumps(document, indent=1).replace(f'"{_MARK}"', literal).encode()


def mutated(rng: np.random.Generator, text: bytes) -> tuple[str, bytes]:
    """Another document, from one change to five, and what was done."""
    kind = rng.random()
    if kind < 0.05:
        return _broken(rng, text)
    document = json.loads(text)
    if kind < 0.08:
        return _doubled(rng, document)
    most = 1 if rng.random() < 0.75 else int(rng.integers(2, 6))
    told = [_change(rng, document) for _ in range(most) if document]
    literal = LITERALS[rng.integers(len(LITERALS))]
    words = "; ".join(told)
    return (f"{words} [mark: {literal[:20]}]" if _MARK in words else words), _text(document, literal)
