"""What was heard from Label Studio, in the folder of the campaign: on disk before anybody is told that it is taken.

Its webhooks are sent once, whether anybody listens or not, and those of a deletion name nothing but an annotation:
which row that was about is known from here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import json, structs

from coremargin.active.external_answers import Report, Said
from coremargin.data.line_file import append, locked_file
from coremargin.formats.strict_json import read_object, typed
from coremargin.label_studio.annotations import ReceivedAnnotation

FILE = "label-studio.jsonl"
LONGEST = 1 << 16  #: bytes of a line


class AnnotationLog:
    """The annotations that are known, by their key; ``refresh`` reads what other processes have heard since."""

    def __init__(self, folder: Path) -> None:
        self._path, self._read, self._lines = folder / FILE, 0, 0
        self.known = dict[tuple[int, int], ReceivedAnnotation]()
        self.refresh()

    def refresh(self) -> None:
        """Raises DataError that names the line."""
        if not self._path.exists():
            return
        with locked_file(self._path) as file:
            self._catch_up(file)

    def put(self, news: Iterable[ReceivedAnnotation]) -> int:
        """Add what is new; it is on disk when this returns. How long the file was before, for ``take_back``.

        Raises DataError for an annotation that ``refresh`` could not read again, OutputError; nothing is added then.
        """
        found = list(news)
        lines = [json.encode(one) + b"\n" for one in found]
        for one, line in zip(found, lines, strict=True):
            _read_line(line, f"annotation {one.annotation} of task {one.task}")
        with locked_file(self._path) as file:
            self._catch_up(file)
            end = self._read
            append(file, end, b"".join(lines), self._path)
            for one in found:
                self.known[one.key] = one
            self._read, self._lines = os.fstat(file).st_size, self._lines + len(found)
        return end

    def take_back(self, end: int) -> None:
        """Forget what was put since the file was so long: nothing of it was taken."""
        with locked_file(self._path) as file:
            os.ftruncate(file, end)
            os.fsync(file)
        self._read, self._lines, self.known = 0, 0, {}
        self.refresh()

    def gone(self, annotations: Iterable[int], project: int | None, at: float) -> list[ReceivedAnnotation]:
        """News of annotations that were deleted; of those that are not known there is none. project: None: any."""
        wanted = set(annotations)
        return [
            structs.replace(one, gone=True, at=at)
            for one in self.known.values()
            if one.annotation in wanted and not one.gone and project in (None, one.project)
        ]

    def of_tasks(self, tasks: Iterable[int], project: int | None) -> list[ReceivedAnnotation]:
        """What is known of some tasks, and is not gone. project: None: any."""
        wanted = set(tasks)
        there = [one for one in self.known.values() if not one.gone and one.task in wanted]
        return [one for one in there if project in (None, one.project)]

    def reports(self, rows: Iterable[int] | None = None) -> Mapping[int, Report]:
        """All that is known, by row. rows: only of these."""
        wanted = None if rows is None else set(rows)
        said, names = defaultdict[int, list[Said]](list), defaultdict[int, set[str]](set)
        for one in sorted(self.known.values(), key=lambda one: one.key):
            if wanted is not None and one.row not in wanted:
                continue
            names[one.row].add(one.who)
            if not one.gone:
                place = f"Label Studio, task {one.task}, annotation {one.annotation}"
                said[one.row].append(Said(one.label, one.who, one.at, one.decides, place))
        return {row: Report(said.get(row, ()), frozenset(them)) for row, them in names.items()}

    def _catch_up(self, file: int) -> None:
        for line in _lines(file, self._read):
            one = _read_line(line, f"{self._path}, line {self._lines + 1}")
            self.known[one.key] = one
            self._read, self._lines = self._read + len(line), self._lines + 1


def _read_line(line: bytes, place: str) -> ReceivedAnnotation:
    """The annotation in a line. Raises DataError."""
    found: ReceivedAnnotation = typed(ReceivedAnnotation, read_object(line, place, largest=LONGEST), place)
    return found


def _lines(file: int, start: int) -> Iterator[bytes]:
    """Whole lines from a place on."""
    rest, place = b"", start
    while piece := os.pread(file, 1 << 20, place):
        place += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(rest) > LONGEST:  # no line of ours: it ends below, and is not joined again and again
            yield rest
            return
