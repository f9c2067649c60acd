"""What the bytes of a delimited text show at a glance, before they are parsed: lines, padding, quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_BLANK, _BLANK_OF_TABS = re.compile(rb"\n[ \t]*\n"), re.compile(rb"\n *\n")  # fields between tabs are no white space
_QUOTE, _SPACE, _TAB, _FEED = b'" \t\n'
_TILE = 1 << 16  # bytes that are looked at together: they stay in the cache, and so does what is found of them
_BEFORE, _BEHIND = 1, 2  # bytes that are looked at beside each byte


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Lines of a text without the feed after the last one."""

    rows: int  #: lines, blank ones too
    blank: bool  #: some line is blank
    padded: bool  #: there is white space around some field, or within its quotes
    quoted: bool  #: there are quotes
    stray: bool  #: some quote neither begins nor ends a field, nor stands beside another one, or text is behind ""


def looked_at(data: bytes, mark: bytes, length: int | None = None) -> LookedAt:
    """One pass over the bytes, or the first of them: so many. mark: what separates fields."""
    rows, blank, padded, stray = 0, False, False, False
    tabs = mark != b"\t" and b"\t" in data
    for tile in _tiles(np.frombuffer(data, np.uint8, -1 if length is None else length)):
        feed, quote, white = tile == _FEED, tile == _QUOTE, tile == _SPACE
        if tabs:
            white |= tile == _TAB
        between = tile == mark[0]  # bytes beside which a field begins or ends
        between |= feed
        edge = between | quote
        rows += int(np.count_nonzero(feed[_BEFORE : _BEFORE + _TILE]))
        blank = blank or bool(np.any(feed[:-1] & feed[1:]))
        beside = edge[:-2] | edge[2:]
        # one look for both, as there is hardly ever one of them: white space beside an edge, a quote beside none
        if np.any((white | quote)[1:-1] & (beside ^ quote[1:-1])):
            padded = padded or bool(np.any(white[1:-1] & beside))
            stray = stray or bool(np.any(quote[1:-1] & ~beside))
        empty = quote[1:-2] & quote[2:-1]  # quotes side by side: "" is a field, or a quote within one
        if np.any(empty):
            stray = stray or bool(np.any(empty & between[:-3] & ~edge[3:]))  # ""a
    if padded and not blank:
        white_only = _BLANK_OF_TABS if mark == b"\t" else _BLANK
        blank = white_only.search(b"\n" + data[:length] + b"\n") is not None
    return LookedAt(rows, blank, padded, b'"' in data, stray)


def _tiles(text: np.ndarray) -> Iterator[np.ndarray]:
    """A text with a line feed at both ends, some bytes at a time with those before and behind them, as far as there are
    any; each is overwritten by the next.
    """
    tile = np.full(_BEFORE + _TILE + _BEHIND, _FEED, np.uint8)
    for first in range(0, len(text) + 1, _TILE):
        part = text[max(first - _BEFORE, 0) : first + _TILE + _BEHIND]
        start = _BEFORE if first == 0 else 0
        stop = start + len(part)
        tile[start:stop] = part
        tile[stop : stop + 1] = _FEED
        yield tile[: stop + 1]
