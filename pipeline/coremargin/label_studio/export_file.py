"""Read an export of Label Studio, as JSON, one task at a time, and record its new annotations."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from coremargin.active.external_answers import refuse_several
from coremargin.errors import DataError, UsageError
from coremargin.formats.plain_file import opened_plain
from coremargin.formats.strict_json import LARGEST, cut, read_object
from coremargin.label_studio.annotations import ReceivedAnnotation, Task, annotation_of, task_of

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.external_answers import FollowResult
    from coremargin.label_studio.annotations import AnnotationLog


PIECE = 1 << 20  #: characters read at a time
_SPACE = " \t\r\n"


class _Text:
    """A sliding window over a text file."""

    def __init__(self, file: io.TextIOBase) -> None:
        self._file, self.window, self.at, self.ended = file, "", 0, False

    def more(self) -> None:
        """Read further characters, and drop the processed ones."""
        piece = self._file.read(max(PIECE, len(self.window) - self.at))
        self.window, self.at, self.ended = self.window[self.at :] + piece, 0, not piece

    def next(self) -> str:
        """The next character that is no space, without consuming it; "" at the end."""
        while True:
            while self.at < len(self.window) and self.window[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.window):
                return self.window[self.at]
            if self.ended:
                return ""
            self.more()


def begins_list(path: Path) -> bool:
    """Whether a file begins like a JSON list. FileNotFoundError and NotADirectoryError pass. Raises DataError."""
    with opened_plain(path) as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def elements(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, with their places for messages. Raises DataError: no such list, or a truncated one."""
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
    """The bytes of the next object."""
    decode = json.JSONDecoder(strict=False).raw_decode
    while True:
        try:
            _, end = decode(text.window, text.at)
        except RecursionError as error:
            raise DataError(
                f"{path}, task {number:,}: expected JSON, found it nested too deep; export again"
            ) from error
        except ValueError as error:
            if not text.ended and len(text.window) - text.at <= LARGEST:  # the window may end within the object
                text.more()
                continue
            what = "the end of the file in the middle of it" if text.ended else str(error)
            raise DataError(f"{path}, task {number:,}: expected JSON, found {what}; export again") from error
        found, text.at = text.window[text.at : end], end
        return found.encode("utf-8", "surrogatepass")


def _broken(text: _Text, path: Path, number: int, wanted: str) -> DataError:
    found = cut(repr(text.window[text.at : text.at + 20])) if text.next() else "the end of the file: it is not whole"
    return DataError(f"{path}: expected {wanted} after task {number:,}, found {found}; export again")


class Export:
    """The new content of an export.

    tasks: their number; rows: of these tasks. news: annotations that are new, changed or deleted. absent: known
    annotations whose tasks the export lacks: they are left unchanged, as an export may have only some tasks.
    """

    def __init__(self, path: Path, key: str, annotation_log: AnnotationLog, *, whole: bool, began: float) -> None:
        """whole: the export has all tasks of its projects (``download_all_tasks``), so that missing ones were deleted.

        began: when it was made; it may lack annotations that were received later.
        """
        self.tasks, self.rows, self.news, self.absent = 0, set[int](), list[ReceivedAnnotation](), 0
        known = annotation_log.known
        left = {one.key: one for one in known.values() if not one.gone and one.at < began}
        seen, projects = set[tuple[int, int]](), set[int]()
        by_task = dict[tuple[int, int], list[ReceivedAnnotation]]()
        for one in left.values():
            by_task.setdefault((one.project, one.task), []).append(one)
        for task, said in tasks_of(path, key):
            self.tasks += 1
            self.rows.add(task.row)
            projects.add(task.project)
            there = {one.key for one in said}
            self.news += [one for one in said if one.says_more_than(known.get(one.key))]
            for one in by_task.pop((task.project, task.task), ()):
                if one.key not in there and (task.updated is None or task.updated >= one.updated):
                    self.news.append(structs.replace(one, gone=True))
            for key_of in there & seen:
                raise DataError(f"{path}: annotation {key_of[1]}: expected it once, found it twice; export again")
            seen |= there
        rest = [one for some in by_task.values() for one in some]
        if whole:
            self.news += [structs.replace(one, gone=True) for one in rest if one.project in projects]
            rest = [one for one in rest if one.project not in projects]
        self.absent = len(rest)


def tasks_of(path: Path, key: str) -> Iterator[tuple[Task, list[ReceivedAnnotation]]]:
    """The tasks in an export, with their annotations. Raises DataError for a task of another campaign."""
    for place, values in elements(path):
        task = task_of(values, key, place)
        said: Any = values.get("annotations")
        if not isinstance(said, list):
            raise DataError(f"{place}: expected a task with annotations, found none; export as JSON")
        yield task, [annotation_of(task, one, place) for one in said]


def made_at(path: Path) -> float:
    """The best estimate of the time when a file was made."""
    return path.stat().st_mtime if path.exists() else 0.0


def take_export(
    campaign: Campaign,
    annotation_log: AnnotationLog,
    path: Path,
    *,
    examples: bool = False,
    whole: bool = False,
    strict: bool = True,
    began: float | None = None,
) -> tuple[Export, FollowResult]:
    """Record the annotations of an export as answers of a campaign; strict: all or none.

    Raises DataError, OutputError, and UsageError if the campaign asks several people about each row. whole: as in
    ``Export``. began: when the export was made; None: when its file was.
    """
    refuse_several(campaign.settings.people)
    with campaign.locked():
        annotation_log.refresh()
        made = made_at(path) if began is None else began
        export = Export(path, campaign.key, annotation_log, whole=whole, began=made)
        end = annotation_log.put(export.news)  # before the answers, for a restart
        try:
            rows = export.rows | {one.row for one in export.news} if strict else None  # also those of a killed process
            found = campaign.follow(annotation_log.reports(rows), examples=examples, strict=strict)
        except BaseException:
            annotation_log.take_back(end)
            raise
    return export, found
