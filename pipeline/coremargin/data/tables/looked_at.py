"""What the bytes of a delimited text show at a glance, before they are parsed: lines, padding, quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

_BLANK = re.compile(rb"\n[ \t]*\n")
_QUOTE, _SPACE, _TAB, _FEED = b'" \t\n'


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Lines of a text without the feed after the last one."""

    rows: int  #: lines, blank ones too
    blank: bool  #: some line is blank
    padded: bool  #: there is white space around some field
    quoted: bool  #: there are quotes
    stray: bool  #: some quote neither begins nor ends a field, nor stands beside another one


def looked_at(data: bytes, mark: bytes) -> LookedAt:
    """One pass over the bytes. mark: what separates fields."""
    text = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    between = np.zeros(256, dtype=bool)  # bytes beside which a field begins or ends
    between[[_FEED, *mark]] = True
    feeds = np.flatnonzero(text == _FEED)
    white = text == _SPACE
    if mark != b"\t" and b"\t" in data:
        white |= text == _TAB
    spaces = np.flatnonzero(white)
    padded = bool(np.any(between[text[spaces - 1]] | between[text[spaces + 1]]))
    blank = bool(np.any(np.diff(feeds) == 1)) or (padded and _BLANK.search(b"\n" + data + b"\n") is not None)
    quotes = np.flatnonzero(text == _QUOTE) if b'"' in data else spaces[:0]
    before, after = text[quotes - 1], text[quotes + 1]
    doubled = (before == _QUOTE) | (after == _QUOTE)
    stray = not bool(np.all(between[before] | between[after] | doubled))
    return LookedAt(len(feeds) - 1, blank, padded, len(quotes) > 0, stray)
