"""What the bytes of a delimited text show at a glance, before they are parsed: lines, padding, quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

_BLANK, _BLANK_OF_TABS = re.compile(rb"\n[ \t]*\n"), re.compile(rb"\n *\n")  # fields between tabs are no white space
_QUOTE, _SPACE, _TAB, _FEED = b'" \t\n'


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Lines of a text without the feed after the last one."""

    rows: int  #: lines, blank ones too
    blank: bool  #: some line is blank
    padded: bool  #: there is white space around some field, or within its quotes
    quoted: bool  #: there are quotes
    stray: bool  #: some quote neither begins nor ends a field, nor stands beside another one, or text is behind ""


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
    edge = between.copy()
    edge[_QUOTE] = True
    padded = bool(np.any(edge[text[spaces - 1]] | edge[text[spaces + 1]]))
    white_only = _BLANK_OF_TABS if mark == b"\t" else _BLANK
    blank = bool(np.any(np.diff(feeds) == 1)) or (padded and white_only.search(b"\n" + data + b"\n") is not None)
    quotes = np.flatnonzero(text == _QUOTE) if b'"' in data else spaces[:0]
    before, after = text[quotes - 1], text[quotes + 1]
    doubled = (before == _QUOTE) | (after == _QUOTE)
    next_but_one = text[np.minimum(quotes + 2, len(text) - 1)]
    behind_empty = between[before] & (after == _QUOTE) & ~edge[next_but_one]  # ""a
    stray = not bool(np.all((between[before] | between[after] | doubled) & ~behind_empty))
    return LookedAt(len(feeds) - 1, blank, padded, len(quotes) > 0, stray)
