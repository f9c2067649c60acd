"""Records of delimited text, by RFC 4180: a quoted field may hold delimiters, line ends and doubled quotes."""

from __future__ import annotations

import re

import numpy as np

_QUOTE, _FEED, _RETURN, _SPACE, _TAB = b'"\n\r \t'


class RecordSyntax:
    """Finds records in bytes. mark: the delimiter; None: runs of spaces, and quotes mean nothing."""

    def __init__(self, mark: bytes | None) -> None:
        self.mark = mark
        end = rb"\s" if mark is None else re.escape(mark) + rb"\n"
        between = rb"\s" if mark is None else re.escape(mark)
        text, plain = rb'"[^"]*+(?:""[^"]*+)*+"', rb'[^"' + end + rb"][^" + end + rb"]*+"
        whole = rb"(?>" + text + rb"|" + plain + rb"|)"
        loose = rb"(?>" + text + rb"[^" + end + rb"]*+|" + plain + rb"|)"
        self._valid = re.compile(whole + rb"(?:" + between + whole + rb")*+")  # without its end
        self._any = re.compile(loose + rb"(?:" + between + loose + rb")*+(?:\n|\Z)")  # text may follow closing quotes

    def ends(self, data: bytes) -> np.ndarray:
        """Where records end, behind their line feeds."""
        text = np.frombuffer(data, np.uint8)
        feeds = np.flatnonzero(text == _FEED)
        if self.mark is None or b'"' not in data:
            return feeds + 1
        quotes = np.flatnonzero(text == _QUOTE)
        if self._is_regular(text, quotes):
            found: np.ndarray = feeds[np.searchsorted(quotes, feeds) % 2 == 0] + 1
            return found
        ends, at = [], 0
        while at < len(data) and (record := self._any.match(data, at)):
            at = record.end()
            if data[at - 1 : at] == b"\n":
                ends.append(at)
        return np.array(ends, np.intp)

    def last_end(self, data: bytes) -> int:
        """Where the last record that has ended ends; 0: none has."""
        ends = self.ends(data)
        return int(ends[-1]) if len(ends) else 0

    def is_open(self, data: bytes) -> bool:
        """Whether the last record ends within quotes."""
        rest = data[self.last_end(data) :]
        return bool(rest) and self._any.fullmatch(rest) is None

    def first_stray(self, data: bytes, ends: np.ndarray) -> int | None:
        """Where the first record begins that has text behind a quoted field, as "a"b, which would be read as ab."""
        text = np.frombuffer(data, np.uint8)
        if self.mark is not None and self._is_regular(text, np.flatnonzero(text == _QUOTE)):
            return None
        start = 0
        for end in ends.tolist():
            record = data[start:end]
            if b'"' in record and self._valid.fullmatch(record.removesuffix(b"\n")) is None:
                return start
            start = end
        return None

    def with_line_feeds(self, data: bytes) -> tuple[bytes, int | None]:
        """The records, ended by line feeds alone, and where the first lone carriage return is; quoted ones stay."""
        text = np.frombuffer(data, np.uint8)
        returns = np.flatnonzero(text == _RETURN)
        if b'"' in data and self.mark is not None:
            quotes = np.flatnonzero(text == _QUOTE)
            if self._is_regular(text, quotes):
                returns = returns[np.searchsorted(quotes, returns) % 2 == 0]
        follows = text[np.minimum(returns + 1, len(text) - 1)] == _FEED
        lone = None if follows.all() else int(returns[np.argmin(follows)])
        return np.delete(text, returns).tobytes(), lone

    def find_white_space(self, data: bytes) -> tuple[bool, bool]:
        """Whether some line may be blank, and whether there may be white space around a field, or within its quotes."""
        blank = b"\n\n" in data or data.startswith(b"\n")
        tabs = self.mark != b"\t" and b"\t" in data
        if b" " not in data and not tabs:
            return blank, False
        text = np.frombuffer(data, np.uint8)
        edge = np.zeros(len(text) + 2, bool)
        edge[0] = edge[-1] = True
        middle = edge[1:-1]
        middle |= text == _FEED
        middle |= text == (_SPACE if self.mark is None else self.mark[0])
        middle |= text == _QUOTE
        white = text == _SPACE
        if tabs:
            white |= text == _TAB
        padded = bool(np.any(white & (edge[:-2] | edge[2:])))
        return blank or (padded and re.search(rb"(?:\A|\n)[ \t]*(?:\n|\Z)", data) is not None), padded

    def _is_regular(self, text: np.ndarray, quotes: np.ndarray) -> bool:
        """Whether each quote begins or ends a field, or is one of two within quotes: every second one ends some."""
        if self.mark is None:
            return False
        opening, closing = quotes[::2], quotes[1::2]
        before = text[np.maximum(opening - 1, 0)]
        behind = text[np.minimum(closing + 1, len(text) - 1)]
        opens = (opening == 0) | (before == self.mark[0]) | (before == _FEED) | (before == _QUOTE)
        closes = (closing + 1 >= len(text)) | (behind == self.mark[0]) | (behind == _FEED) | (behind == _RETURN)
        return bool(opens.all() and (closes | (behind == _QUOTE)).all())
