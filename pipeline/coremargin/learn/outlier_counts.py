"""How many rows may be left out, as people write it: 10, "1%", "0..10", "0,1,2,5" or a list."""

from __future__ import annotations

import math

#: More than so many values of k in one run are a slip of the pen.
MOST_COUNTS = 1000
#: From this many outliers on the exact search is not tried unless it is asked for.
MANY = 1000


def outlier_counts(asked: int | str | tuple[int, ...], rows: int | None = None) -> tuple[int, ...]:
    """The values of k in increasing order; a share is of ``rows`` (rounded down), 0 while these are not known.

    Raises ValueError that says what is expected.
    """
    if isinstance(asked, int):
        counts: tuple[int, ...] = (asked,)
    elif isinstance(asked, tuple):
        counts = asked
    elif asked.endswith("%"):
        share = _number(asked[:-1], asked)
        if not 0 <= share < 50:
            raise _refusal(asked)
        return (math.floor(share / 100 * (rows or 0)),)
    elif ".." in asked:
        first, last = (_whole(part, asked) for part in asked.split("..", 1))
        if last - first >= MOST_COUNTS:
            raise ValueError(f"outliers: expected at most {MOST_COUNTS:,} values, found {asked!r}")
        counts = tuple(range(first, last + 1))
    else:
        counts = tuple(_whole(part, asked) for part in asked.split(","))
    if not counts or min(counts) < 0 or len(set(counts)) < len(counts) or len(counts) > MOST_COUNTS:
        raise _refusal(asked)
    return tuple(sorted(counts))


def _whole(text: str, asked: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()):
        raise _refusal(asked)
    return int(stripped)


def _number(text: str, asked: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _refusal(asked) from None


def _refusal(asked: object) -> ValueError:
    return ValueError(
        f"outliers: expected a number of rows such as 10, a share below 50% such as 1%, a range such as 0..10, or "
        f"different numbers such as 0,1,2,5, none of them negative; found {asked!r}"
    )
