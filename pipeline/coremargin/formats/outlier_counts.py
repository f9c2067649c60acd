"""Numbers of excluded rows, as users write them: 10, "1%", "0..10", "0,1,2,5", a list, a range, an array."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, cast

from coremargin.formats.strict_json import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: More than so many values of k in one run are a slip of the pen.
MOST_COUNTS = 1000
_MOST_DIGITS = 18


def outlier_counts(
    given: SupportsIndex | str | Iterable[SupportsIndex], rows: Callable[[], int] | None = None
) -> tuple[int, ...]:
    """The values of k in increasing order; a share is of ``rows()`` (rounded down), 0 while these are not known.

    Whole numbers may be NumPy's. Raises ValueError for anything else.
    """
    if not isinstance(given, str):
        counts = _numbers(given)
    elif given.endswith("%"):
        share = _share(given)
        return (math.floor(share * rows()) if rows is not None else 0,)
    elif ".." in given:
        first, last = (_whole(part, given) for part in given.split("..", 1))
        if last - first >= MOST_COUNTS:
            raise ValueError(f"outliers: expected at most {MOST_COUNTS:,} values, found {cut(repr(given))}")
        counts = tuple(range(first, last + 1))
    else:
        counts = tuple(_whole(part, given) for part in given.split(","))
    if not counts or min(counts) < 0 or len(set(counts)) < len(counts) or len(counts) > MOST_COUNTS:
        raise _refusal(given)
    return tuple(sorted(counts))


def _numbers(given: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    with suppress(TypeError):  # arrays have both doors, open or not
        return (index(cast("SupportsIndex", given)),)
    try:
        return tuple(map(index, cast("Iterable[SupportsIndex]", given)))
    except TypeError:
        raise _refusal(given) from None


def _share(given: str) -> Fraction:
    """A share as a fraction: exact, so that 29% of 100 rows are 29."""
    number = given[:-1].strip()
    try:
        if not number.isascii() or "_" in number:
            raise ValueError(number)  # float takes both, as whole numbers above do not
        share = Fraction(repr(float(number))) / 100
    except ValueError:
        raise _refusal(given) from None
    if not 0 <= share < Fraction(1, 2):
        raise _refusal(given)
    return share


def _whole(text: str, given: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= _MOST_DIGITS):
        raise _refusal(given)
    return int(stripped)


def _refusal(given: object) -> ValueError:
    return ValueError(
        f"outliers: expected a number of rows such as 10, a share below 50% such as 1%, a range such as 0..10, or "
        f"different numbers such as 0,1,2,5, none of them negative; found {cut(repr(given))}"
    )
