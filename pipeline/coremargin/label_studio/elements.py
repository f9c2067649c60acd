"""A long JSON list read one object at a time: memory for one of them, however many there are."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coremargin.errors import DataError, UsageError
from coremargin.formats.plain_file import opened_plain
from coremargin.formats.strict_json import LARGEST, cut, read_object

PIECE = 1 << 20  #: characters read at a time
_SPACE = " \t\r\n"


class _Text:
    """A window on a text that is read on as needed."""

    def __init__(self, file: io.TextIOBase) -> None:
        self._file, self.window, self.at, self.ended = file, "", 0, False

    def more(self) -> None:
        """Read on; what was done with is dropped."""
        piece = self._file.read(max(PIECE, len(self.window) - self.at))
        self.window, self.at, self.ended = self.window[self.at :] + piece, 0, not piece

    def next(self) -> str:
        """The next character that is no space, without taking it; nothing at the end."""
        while True:
            while self.at < len(self.window) and self.window[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.window):
                return self.window[self.at]
            if self.ended:
                return ""
            self.more()


def begins_list(path: Path) -> bool:
    """Whether a file begins as a JSON list does. FileNotFoundError and NotADirectoryError pass. Raises DataError."""
    with opened_plain(path) as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def elements(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, and where they stand, for messages. Raises DataError: no such list, or half of one."""
    try:
        with opened_plain(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            yield from _read(_Text(text), path)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: expected an export, found nothing there; give its path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8, found something else; export again") from error


def _read(text: _Text, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if text.next() != "[":
        raise DataError(f"{path}: expected a JSON list of tasks, found something else; export as JSON")
    text.at += 1
    number, first = 0, True
    while (sign := text.next()) != "]":
        if not first:
            if sign != ",":
                raise _broken(text, path, number, "a comma or the end of the list")
            text.at += 1
            sign = text.next()
        if sign != "{":
            raise _broken(text, path, number, "an object")
        first, number = False, number + 1
        place = f"{path}, task {number:,}"
        yield place, read_object(_object(text, path, number), place)
    text.at += 1
    if text.next():
        raise _broken(text, path, number, "the end of the file")


def _object(text: _Text, path: Path, number: int) -> bytes:
    """The bytes of the object that comes next."""
    decode = json.JSONDecoder(strict=False).raw_decode
    while True:
        try:
            _, end = decode(text.window, text.at)
        except RecursionError as error:
            raise DataError(
                f"{path}, task {number:,}: expected JSON, found it nested too deep; export again"
            ) from error
        except ValueError as error:
            if not text.ended and len(text.window) - text.at <= LARGEST:  # it may be only half of it
                text.more()
                continue
            what = "the end of the file in the middle of it" if text.ended else str(error)
            raise DataError(f"{path}, task {number:,}: expected JSON, found {what}; export again") from error
        found, text.at = text.window[text.at : end], end
        return found.encode("utf-8", "surrogatepass")


def _broken(text: _Text, path: Path, number: int, wanted: str) -> DataError:
    found = cut(repr(text.window[text.at : text.at + 20])) if text.next() else "the end of the file: it is not whole"
    return DataError(f"{path}: expected {wanted} after task {number:,}, found {found}; export again")
