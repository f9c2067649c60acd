"""Answers that arrive while the campaign is locked: written to disk immediately, and to the log later.

A process that scans or solves holds the campaign's lock, sometimes for minutes. Annotators do not wait for it: their
answers are appended to ``inbox.jsonl``. The next holder of the lock records them first, in order of arrival. The line
of the log has the answer's id, so that each answer is recorded once, even if a process is killed in between.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import json

from coremargin.active.answers import Annotation
from coremargin.data.chained_log import now
from coremargin.data.line_file import append, locked_file
from coremargin.formats.answers import Action, AnswerId
from coremargin.formats.chained import LONGEST_LINE, When
from coremargin.formats.model_record import Count, Label, Strict, Word
from coremargin.formats.strict_json import read_object, typed

FILE = "inbox.jsonl"


class ReceivedAnswer(Strict, frozen=True, kw_only=True):
    """An answer as it was received; fields as in the log."""

    id: AnswerId
    row: Count
    label: Label | None
    action: Action
    who: Word
    when: When

    @property
    def given(self) -> Annotation:
        """The answer as ``Campaign.answer`` takes it."""
        return Annotation(self.row, self.label, self.action, f"row {self.row:,}", self.id, self.when)


class RefusedAnswer(NamedTuple):
    """An answer that was rejected, and the reason: usually another answer was recorded first."""

    answer: ReceivedAnswer
    why: str


def received_answer(row: int, label: Any, action: Action, who: str, id: str) -> ReceivedAnswer:  # noqa: A002 - as the field
    """An answer with the present time."""
    return ReceivedAnswer(id=id, row=row, label=label, action=action, who=who, when=now())


class Inbox:
    """The file of received answers in a campaign's folder. Any number of processes may append to it."""

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
        """The answers in order, and their size in bytes. Raises DataError that names the line."""
        if not self._path.exists():  # the usual case
            return [], 0
        with locked_file(self._path) as file:
            data = _whole(file)
        return list(self._parsed(data)), len(data)

    def _parsed(self, data: bytes) -> Iterator[ReceivedAnswer]:
        for number, line in enumerate(data.splitlines(), 1):
            yield _read_line(line, f"{self._path}, line {number}")

    def cleared(self, size: int) -> bool:
        """Empty the file if it still has the size at which it was read; returns whether it had."""
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
    """The content of an open file, up to the end of its last complete line."""
    data = os.pread(file, os.fstat(file).st_size, 0)
    return data[: data.rfind(b"\n") + 1]
