"""Answers that came while the campaign was at work: on disk at once, and in its log as soon as that is free.

Whoever scans or solves holds the lock of the campaign, for minutes if need be. Nobody who answers waits for it: an
answer goes to ``inbox.jsonl``, and whoever holds the campaign next takes what lies there, in the order in which it
came, before anything else. Each answer has an id, which its line of the log has, too: it is taken once, whatever is
killed between the two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import json

from coremargin.active.answers import Given
from coremargin.data.chained_log import now
from coremargin.data.line_file import append, locked_file
from coremargin.formats.answers import Action, AnswerId
from coremargin.formats.chained import LONGEST_LINE, When
from coremargin.formats.model_record import Count, Label, Strict, Word
from coremargin.formats.strict_json import read_object, typed

FILE = "inbox.jsonl"


class ReceivedAnswer(Strict, frozen=True, kw_only=True):
    """An answer as it came, in the words of the log."""

    id: AnswerId
    row: Count
    label: Label | None
    action: Action
    who: Word
    when: When

    @property
    def given(self) -> Given:
        """For ``Campaign.answer``."""
        return Given(self.row, self.label, self.action, f"row {self.row:,}", self.id, self.when)


class RefusedAnswer(NamedTuple):
    """An answer that was refused, and why: usually another answer came first."""

    answer: ReceivedAnswer
    why: str


def received_answer(row: int, label: Any, action: Action, who: str, id: str) -> ReceivedAnswer:  # noqa: A002 - as the field
    """An answer that comes now."""
    return ReceivedAnswer(id=id, row=row, label=label, action=action, who=who, when=now())


class Inbox:
    """Answers in a file of a campaign's folder. Any number of processes may put some there."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def put(self, one: ReceivedAnswer) -> None:
        """Add an answer; it is on disk when this returns.

        Raises DataError for one that ``read`` could not read again, OutputError; nothing is added then.
        """
        line = json.encode(one) + b"\n"
        _read_line(line, f"row {one.row}")
        with locked_file(self._path, len(line)) as file:
            append(file, len(_whole(file)), line, self._path)

    def read(self) -> tuple[list[ReceivedAnswer], int]:
        """The answers in their order, and the bytes that they take up. Raises DataError that names the line."""
        if not self._path.exists():  # as nearly always
            return [], 0
        with locked_file(self._path) as file:
            data = _whole(file)
        return list(self._parsed(data)), len(data)

    def _parsed(self, data: bytes) -> Iterator[ReceivedAnswer]:
        for number, line in enumerate(data.splitlines(), 1):
            yield _read_line(line, f"{self._path}, line {number}")

    def cleared(self, size: int) -> bool:
        """Empty it, if it is as long as it was when it was read; whether that is so."""
        with locked_file(self._path) as file:
            if len(_whole(file)) != size:
                return False
            os.ftruncate(file, 0)
            return True


def _read_line(line: bytes, place: str) -> ReceivedAnswer:
    """The answer in a line. Raises DataError."""
    found: ReceivedAnswer = typed(ReceivedAnswer, read_object(line, place, largest=LONGEST_LINE), place)
    return found


def _whole(file: int) -> bytes:
    """What is in an open file, up to the end of its last whole line."""
    data = os.pread(file, os.fstat(file).st_size, 0)
    return data[: data.rfind(b"\n") + 1]
