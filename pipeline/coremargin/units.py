"""Parse and format sizes and durations."""

from __future__ import annotations

import re
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, TypeGuard

from coremargin.errors import SpecError

_SIZES = {"b": 1}
for _power, _letter in enumerate("kmgtp", start=1):
    _SIZES |= {f"{_letter}b": 1000**_power, f"{_letter}ib": 1024**_power}
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "sec": Fraction(1)}
for _seconds, _names in ((1, "second"), (60, "min minute"), (3600, "h hour"), (86400, "d day")):
    _SECONDS |= {name + plural: Fraction(_seconds) for name in _names.split() for plural in ("", "s")}
#: Numbers are read exactly, so that digits are limited: 1e999999999 does not fit in memory.
_NUMBER = r"((?>[0-9]{1,30}(?:\.[0-9]{1,30})?(?:e[0-9]{1,2})?))"  # atomic: 1e5s is not "1 e", "5 s" as well
_LONGEST = 200  #: characters of a size or a duration
_SIZE_LIMIT = 1 << 63  # bytes are counted with 64 bits
_LONGEST_S = 1e12  # also the limit in run records


def parse_size(value: object) -> int:
    """Bytes from an integer or text such as ``"2 GiB"`` or ``"500MB"``. Raises SpecError."""
    found = _bytes(value)
    if found is None or not 0 <= found < _SIZE_LIMIT:
        hint = 'write whole bytes, or a size such as "2 GiB" (1 GiB = 1024^3 bytes) or "2 GB" (1 GB = 1000^3 bytes)'
        raise SpecError(f"not a size: {value!r:.200}; {hint}, less than 8,192 PiB")
    return found


def parse_size_with_unit(value: object) -> int:
    """Bytes from text such as ``"2 GiB"``; a number alone is refused. Raises SpecError."""
    found = _bytes(value)
    if found is not None and isinstance(value, str) and value.strip()[-1:].isalpha():
        return parse_size(value)
    hint = '"2 GiB" (1 GiB = 1024^3 bytes) or "2 GB" (1 GB = 1000^3 bytes)'
    if found is not None and 0 < found < _SIZE_LIMIT:
        meant = f"{found} GiB" if found < 1024 else exact_size(found)
        hint = f'"{meant}", or "{found} B" for bytes' if isinstance(meant, str) else f'"{found} B" for bytes'
    raise SpecError(f"not a size with a unit: {value!r:.200}; write {hint}")


def _bytes(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        return int(value)
    match = re.fullmatch(rf"\s*{_NUMBER}\s*([a-z]*)\s*", value.lower()) if _short(value) else None
    if match is None or match[2] not in _SIZES | {"": 1}:
        return None
    found = Fraction(match[1]) * _SIZES.get(match[2], 1)
    return int(found) if match[2] or found.denominator == 1 else None  # "1.3 GiB" is rounded down to whole bytes


def parse_seconds(value: object) -> float:
    """Seconds from a number or text such as ``"90s"`` or ``"1 h 30 min"``. Raises SpecError."""
    found = _time(value)
    if found is None or not 0 <= found <= _LONGEST_S:
        raise SpecError(
            f"not a duration: {value!r:.200}; write seconds as a number, or text such as "
            f'"90 s", "10 min", "1 h 30 min", at most {_LONGEST_S:g} s'
        )
    return float(found)


def _time(value: object) -> Any:
    """Seconds as a number of any type, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Real):
        return value
    text = value.strip().lower() if _short(value) else ""
    if re.fullmatch(_NUMBER, text):
        return Fraction(text)
    parts = re.findall(rf"{_NUMBER}\s*([a-z]+)", text)
    whole = re.fullmatch(rf"(?:{_NUMBER}\s*[a-z]+\s*)+", text)
    if whole is None or any(unit not in _SECONDS for _, unit in parts):
        return None
    return sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0))


def _short(value: object) -> TypeGuard[str]:
    """Whether it is text of a plausible length."""
    return isinstance(value, str) and len(value) <= _LONGEST


def exact_size(size: int) -> str | int:
    """A size in the unit with the smallest whole number, for job files; bytes as an integer if no unit is exact."""
    units = ("PiB", "TiB", "GiB", "MiB", "KiB", "PB", "TB", "GB", "MB", "kB")
    exact = [(size // _SIZES[unit.lower()], unit) for unit in units if size and size % _SIZES[unit.lower()] == 0]
    if not exact:
        return int(size)
    number, unit = min(exact, key=lambda each: each[0])
    return f"{number} {unit}"
