"""The log of a campaign as it is written: each line is on disk before anybody hears that it is taken."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coremargin.data.files import output_errors, sync_folder, write_whole
from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.answers import GROW, Answers, Entry, Growth, Line, bytes_of, hash_of, read_answers
from coremargin.formats.held import Held, check_lines
from coremargin.formats.plain_file import opened_plain
from coremargin.formats.strict_json import cut

if TYPE_CHECKING:
    from coremargin.active.told import Given
    from coremargin.formats.choices import Why

log = logging.getLogger(__name__)

TELLING = "telling"  #: lines that are to be in the log together; there while they are written, with where they begin


class Log:
    """``answers.jsonl``, and the labels that it holds; whoever uses it holds the lock of the campaign.

    first: the hash of ``campaign.toml``; rows: of the store; classes: where they are known.
    """

    def __init__(self, path: Path, first: str, rows: int, classes: list[Any] | None) -> None:
        self._path, self._first, self._rows, self._classes = path, first, rows, classes
        self._telling = path.with_name(TELLING)
        self.answers = Answers((), (), 0)
        self.held = Held(classes)
        self.ids = set[str]()  #: of lines that have one
        self._classes_after = [self.held.classes]

    @property
    def lines(self) -> tuple[Line, ...]:
        """Those about rows."""
        return self.answers.lines

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All of them."""
        return self.answers.entries

    @property
    def examples(self) -> list[Line]:
        """The lines that it begins with, as long as they are labels of examples that were given before any scan."""
        found = list[Line]()
        for line in self.lines:
            if line.number > len(found) + 1 or (line.why, line.action, line.scans) != ("example", "label", 0):
                break
            found.append(line)
        return found

    @property
    def last(self) -> str:
        """The hash of the last line, or of ``campaign.toml``."""
        return self.answers.hashes[-1] if self.answers.hashes else self._first

    def classes(self, number: int) -> list[Any]:
        """All of them as far as they are known after so many lines, of two (negative, positive)."""
        return self._classes_after[number]

    def _know(self, answers: Answers) -> None:
        for line in answers.entries[len(self.entries) :]:
            if isinstance(line, Line):
                self.held.take(line.row, line.action, line.label)
                if line.id is not UNSET:
                    self.ids.add(line.id)
            self._classes_after.append(self.held.classes)
        self.answers = answers

    def refresh(self) -> None:
        """Read what others have written since; half a line, as a killed writer leaves it, is cut off.

        Lines that were to be written together are written to their end. Raises DataError: the file is missing or
        shorter than it was, or a line is not as written here.
        """
        known = self.answers.whole
        self._finish()
        try:
            with opened_plain(self._path) as file:
                size = os.fstat(file.fileno()).st_size
                if size == known:
                    return
                file.seek(known)
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(f"{self._path}: expected the log of a campaign, found nothing; get a whole copy") from None
        except OSError as error:
            raise_if_limit(error, self._path)
            raise DataError(f"{self._path}: cannot be read: {error.strerror}; get a whole copy") from error
        if size < known:
            raise DataError(
                f"{self._path}: expected at least {known:,} bytes, found {size:,}: lines are gone; get a copy"
            )
        found = read_answers(data, self._first, str(self._path), after=self.answers)
        check_lines(found.entries, self._rows, self._classes, str(self._path))
        if found.whole < size:
            log.warning(
                "%s: %d bytes of half a line after line %d are cut off: a writer was killed before its answer was kept",
                self._path, size - found.whole, len(found.entries),
            )  # fmt: skip
            self._cut(found.whole)
        self._know(found)

    def refuse_fewer(self, lines: int) -> None:
        """Raises DataError where the log has fewer lines than somebody has seen."""
        if lines > len(self.entries):
            raise DataError(
                f"{self._path}: expected {lines:,} lines at least, which the campaign's state is about, found "
                f"{len(self.entries):,}: lines are gone; get a whole copy, or remove the folder of the state as well"
            )

    def append(self, entries: Iterable[dict[str, Any]]) -> None:
        """Write lines, all but their numbers and hashes, to the disk, all of them or, after an OutputError, none.

        Whoever reads the log after a kill in between writes the rest.
        """
        self.refresh()  # what an interrupted call has left
        before, texts = self.last, []
        for number, entry in enumerate(entries, start=len(self.entries) + 1):
            kind = Growth if entry["action"] == GROW else Line
            text = bytes_of(kind(number=number, before=before, **entry))
            before = hash_of(text)
            texts.append(text + b"\n")
        data = b"".join(texts)
        written = read_answers(data, self._first, str(self._path), after=self.answers)  # as whoever reads it will
        if len(texts) > 1:
            write_whole(self._telling, [f"{self.answers.whole}\n".encode(), data])
            sync_folder(self._path.parent)
        with output_errors(self._path, len(data)):
            try:
                self._write(data)
            except OSError:
                self._cut(self.answers.whole)  # before that which would have them written to their end
                self._telling.unlink(missing_ok=True)
                raise
        self._know(written)
        with suppress(OSError):  # all is there: whoever reads next removes it
            self._telling.unlink(missing_ok=True)

    def _finish(self) -> None:
        """Write what a killed writer has not of lines that go together."""
        try:
            with opened_plain(self._telling) as file:
                start, _, data = file.read().partition(b"\n")
            if not start.isdigit():
                raise DataError(f"{self._telling}: expected where its lines begin in the log, found {cut(repr(start))}")
            with opened_plain(self._path) as file:
                file.seek(int(start))
                there = file.read(len(data) + 1)
        except FileNotFoundError:  # as nearly always
            return
        with output_errors(self._path, len(data)):
            if data.startswith(there) and self._path.stat().st_size >= int(start):
                self._write(data[len(there) :])
            self._telling.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        with open(self._path, "ab", buffering=0) as file:
            view = memoryview(data)
            while view:  # a raw write may stop early on a signal or a nearly full disk
                view = view[file.write(view) or 0 :]
            os.fsync(file.fileno())

    def _cut(self, length: int) -> None:
        with output_errors(self._path), open(self._path, "r+b", buffering=0) as file:
            file.truncate(length)
            os.fsync(file.fileno())


def entry_of(
    given: Given, who: str, why: Why, attempt: int | None, scans: int, tried: str | None = None
) -> dict[str, Any]:
    """A line of an answer that comes now, all but its number and hash; tried: of a draw, what it tries."""
    return {
        "row": given.row, "label": given.label, "action": given.action, "who": who, "when": given.when or now(),
        "why": why, "attempt": attempt, "scans": scans, **({} if tried is None else {"tried": tried}),
        **({} if given.id is None else {"id": given.id}),
    }  # fmt: skip


def growth_of(rows: int, digest: str, who: str, attempt: int, scans: int) -> dict[str, Any]:
    """A line of a store that has grown, all but its number and hash."""
    return {
        "action": GROW, "rows": rows, "digest": digest, "attempt": attempt, "who": who, "when": now(), "scans": scans,
    }  # fmt: skip


def now() -> str:
    """The time, as lines have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
