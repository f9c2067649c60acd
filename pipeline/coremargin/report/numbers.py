"""Numbers and labels for people.

Lower bounds are rounded down and upper bounds up, so that rounded numbers are as true as the certificate. Missing and
non-finite values become a dash.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from functools import lru_cache
from typing import Any

from coremargin.formats.choices import ELLIPSOID_SCALING
from coremargin.spec import format_seconds, format_size

DASH = "\u2013"
MINUS = "\u2212"
NO_BREAK = "\u00a0"  # a number keeps its unit
#: Descriptions of scalings.
SCALINGS = {
    "standard": "each column minus its mean (not for sparse rows), divided by its standard deviation",
    "minmax": "each column from 0 to 1",
    "maxabs": "each column divided by its largest absolute value",
    "rownorm": "each row divided by its length",
    ELLIPSOID_SCALING: "rows in the metric of the ellipsoid of least volume around them",
}
#: A unit of a scaled feature, in raw values.
UNITS = {
    "standard": "one standard deviation",
    "minmax": "the range from the smallest to the largest value",
    "maxabs": "the largest absolute value",
}
_SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
_PLAIN = range(-3, 7)  # powers of ten that are written without an exponent
_LABEL_LIMIT = 80
_SMALLEST_PERCENT = 6  # digits after the point of a percentage without an exponent


def finite(value: Any) -> float | None:
    """The number, or None for anything that is not a finite real number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def power_of_ten(exponent: int) -> str:
    """``10^exponent`` with raised digits: for HTML and SVG."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def count(value: Any) -> str:
    """A whole number with thousands separators."""
    number = finite(value)
    return DASH if number is None else f"{int(number):,}".replace("-", MINUS)


def size(value: Any) -> str:
    """Bytes."""
    number = finite(value)
    return DASH if number is None else format_size(number).replace(" ", NO_BREAK)


def seconds(value: Any) -> str:
    """A time."""
    number = finite(value)
    return DASH if number is None else format_seconds(number).replace(" ", NO_BREAK)


def without_unit(text: str) -> str:
    """A formatted number without its power of ten."""
    return text.partition(NO_BREAK)[0]


@dataclass(frozen=True)
class Precision:
    """Format numbers with ``decimals`` digits after the point, in units of ``10^exponent``."""

    decimals: int
    exponent: int = 0

    def down(self, value: Any) -> str:
        """Rounded towards minus infinity: for lower bounds."""
        return self._write(value, ROUND_FLOOR)

    def up(self, value: Any) -> str:
        """Rounded towards plus infinity: for upper bounds."""
        return self._write(value, ROUND_CEILING)

    def nearest(self, value: Any) -> str:
        """Rounded to the nearest: for numbers that claim nothing."""
        return self._write(value, ROUND_HALF_EVEN)

    def tick(self, value: float) -> str:
        """Nearest, without the power of ten, for axes."""
        return without_unit(self.nearest(value))

    @property
    def unit(self) -> str:
        """The power of ten, or ""."""
        return power_of_ten(self.exponent) if self.exponent else ""

    def _write(self, value: Any, rounding: str) -> str:
        number = finite(value)
        if number is None:
            return DASH
        with localcontext() as context:
            context.prec = 800  # exact for every float: only ``quantize`` rounds
            scaled = Decimal(number).scaleb(-self.exponent)
            digits = scaled.quantize(Decimal(1).scaleb(-self.decimals), rounding=rounding)
        text = f"{abs(digits):,f}"
        sign = MINUS if digits < 0 else ""
        return sign + text + (f"{NO_BREAK}\u00d7{NO_BREAK}{self.unit}" if self.exponent else "")


def magnitude(value: float) -> int:
    """Exponent of the leading decimal digit; 0 for zero."""
    return math.floor(math.log10(abs(value))) if value else 0


def precision_for(lower: Any, upper: Any) -> Precision:
    """Digits that show two digits of the gap between bounds: five to twelve in total, six without a gap."""
    values = [v for v in (finite(lower), finite(upper)) if v is not None]
    leading = max((magnitude(v) for v in values if v), default=0)
    gap = abs(values[-1] - values[0]) if values else 0.0
    digits = leading - magnitude(gap) + 2 if gap else 6
    digits = min(max(digits, 5), 12)
    exponent = 0 if leading in _PLAIN else leading
    return Precision(max(digits - 1 - (leading - exponent), 0), exponent)


def significant(value: Any, digits: int = 3) -> str:
    """Nearest, to ``digits`` significant digits, without trailing zeros."""
    number = finite(value)
    if number is None:
        return DASH
    leading = magnitude(float(f"{number:.{digits - 1}e}"))
    exponent = 0 if leading in _PLAIN else leading
    text = Precision(max(digits - 1 - (leading - exponent), 0), exponent).nearest(number)
    mantissa, space, unit = text.partition(NO_BREAK)
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return mantissa + space + unit


def percent_down(ratio: Any) -> str:
    """A ratio of bounds as a percentage, rounded down, with enough digits to differ from 100 %."""
    number = finite(ratio)
    if number is None:
        return DASH
    missing = 100.0 * (1.0 - number)
    if missing <= 0.0:
        return f"100{NO_BREAK}%"
    decimals = min(max(-magnitude(missing), 2), 12)
    return f"{Precision(decimals).down(100.0 * number)}{NO_BREAK}%"


def plain_bounds(lower: Any, upper: Any) -> tuple[str, str]:
    """Both bounds for a terminal, rounded down and up; "" for unknown ones."""
    digits = precision_for(lower, upper)
    down = "" if finite(lower) is None else digits.down(lower)
    up = "" if finite(upper) is None else digits.up(upper)
    return down.replace(NO_BREAK, " "), up.replace(NO_BREAK, " ")


def plain_share(ratio: Any) -> str:
    """``percent_down`` for a terminal."""
    return percent_down(ratio).replace(NO_BREAK, " ")


def percent_up(share: Any) -> str:
    """A percentage rounded up to two digits."""
    number = finite(share)
    if number is None:
        return DASH
    if number <= 0.0:
        return f"0{NO_BREAK}%"
    leading = magnitude(100.0 * number)
    exponent = 0 if leading >= -_SMALLEST_PERCENT else leading
    return f"{Precision(max(1 - leading + exponent, 0), exponent).up(100.0 * number)}{NO_BREAK}%"


def relative_gap(bounds: Mapping[str, Any]) -> float | None:
    """(upper - lower) / upper, or None if it is not defined."""
    lower, upper = finite(bounds.get("lower")), finite(bounds.get("upper"))
    if lower is None or upper is None or upper <= 0.0:
        return None
    return finite(max(upper - lower, 0.0) / upper)


def label_text(value: Any) -> str:
    """A class label as one printable line of at most 80 characters."""
    text = value if isinstance(value, str) else str(value)
    text = visible(text if text.strip() else repr(text))
    return text if len(text) <= _LABEL_LIMIT else text[: _LABEL_LIMIT - 1] + "\u2026"


def visible(text: str) -> str:
    """Escape characters that are not printable, such as line breaks and bidirectional controls."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@lru_cache(maxsize=1024)  # charts of all widths have the same bars
def rows_between(rows: float, low: float, high: float) -> str:
    """Tooltip of a bar."""
    return f"{count(rows)} rows between {significant(low)} and {significant(high)}"
