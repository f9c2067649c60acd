"""Annotations of Label Studio, from exports and webhooks."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, json, structs

from coremargin.active.external_answers import ExternalAnswer, RowReport
from coremargin.data.line_file import append, locked_file
from coremargin.errors import DataError
from coremargin.formats.limits import LONGEST_LABEL, MOST_ROWS
from coremargin.formats.model_record import Count, Strict, Word
from coremargin.formats.strict_json import cut, read_object, typed

CONTROL = "label"  #: the name of the control tag in our labelling configurations


class ReceivedAnnotation(Strict, frozen=True, kw_only=True):
    """One annotation in its last received version.

    project, task, annotation: their ids in Label Studio. label: the chosen one; None if the task was skipped. gone: the
    annotation was deleted. decides: it is a ground truth. updated: time of the last change in Label Studio; at: time of
    receipt; both in seconds since 1970.
    """

    project: Count
    task: Count
    annotation: Count
    row: Count
    label: Annotated[str, Meta(max_length=LONGEST_LABEL)] | None
    who: Word
    updated: float
    at: float
    decides: bool = False
    gone: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """The identifier of the annotation."""
        return self.project, self.annotation

    def says_more_than(self, known: ReceivedAnnotation | None) -> bool:
        """Whether this version of the annotation is newer than a known one."""
        if known is None:
            return True
        if known.gone or self.updated < known.updated:  # ids are not reused; or this version is from an older export
            return False
        return (self.label, self.decides, self.gone) != (known.label, known.decides, known.gone)


class Task(NamedTuple):
    """A task of the campaign: its ids, and its row."""

    project: int
    task: int
    row: int
    updated: float | None


def task_of(values: Mapping[str, Any], key: str, place: str, project: int | None = None) -> Task:
    """The task in an export or event. key: of the campaign. Raises DataError for a task of another campaign."""
    data = values.get("data")
    if not isinstance(data, dict):
        raise DataError(
            f"{place}: expected a task with data and annotations, found none; export as JSON, which is not JSON-MIN"
        )
    found = data.get("campaign")
    if found != key:
        what = "none of a campaign" if found is None else f"one of {cut(repr(found))}"
        raise DataError(
            f"{place}: expected a task of the campaign {key}, found {what}: is it an export of another project, or of "
            "another campaign?"
        )
    row = data.get("row")
    if isinstance(row, str) and row.isascii() and row.isdigit() and len(row) < 20:
        row = int(row)
    if not _is_number(row):
        raise DataError(f"{place}: data.row: expected the number of a row, found {cut(repr(row))}; export again")
    updated = values.get("updated_at")
    of, number = _number(values.get("project", project), f"{place}: project"), _number(values.get("id"), f"{place}: id")
    return Task(of, number, _number(row, place), None if updated is None else parse_time(updated, place))


def annotation_of(task: Task, values: Any, place: str) -> ReceivedAnnotation:
    """The annotation of a task, with the present time as that of receipt. Raises DataError."""
    if not isinstance(values, dict):
        raise DataError(f"{place}: expected an annotation, found {type(values).__name__}; export again")
    place = f"{place}, annotation {cut(repr(values.get('id')))}"
    number = _number(values.get("id"), place)
    updated = values.get("updated_at") or values.get("created_at")
    return ReceivedAnnotation(
        project=task.project,
        task=task.task,
        annotation=number,
        row=task.row,
        label=_label(values, place),
        who=_who(values.get("completed_by")),
        updated=0.0 if updated is None else parse_time(updated, place),
        at=time.time(),
        decides=values.get("ground_truth") is True,
    )


def parse_time(text: Any, place: str) -> float:
    """Seconds since 1970, from a time in Label Studio's format. Raises DataError."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise DataError(f"{place}: expected a time, found {cut(repr(text))}; export again") from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _label(values: Mapping[str, Any], place: str) -> str | None:
    """The chosen label; None if the task was skipped, or submitted without a choice."""
    result = values.get("result")
    if values.get("was_cancelled") is True or result == []:
        return None
    if not isinstance(result, list) or not all(isinstance(one, dict) for one in result):
        raise DataError(f"{place}: result: expected a list of what was chosen, found {cut(repr(result))}; export again")
    chosen = [one for one in result if one.get("type") == "choices"]
    if len({str(one.get("from_name")) for one in chosen}) > 1:
        chosen = [one for one in chosen if one.get("from_name") == CONTROL]
    labels = [label for one in chosen for label in _choices(one)]
    if len(labels) != 1 or not isinstance(labels[0], str):
        raise DataError(
            f"{place}: expected one choice, found {len(labels)}: {cut(repr(labels))}; let the control be called "
            f'{CONTROL!r} and have choice="single"'
        )
    if len(labels[0]) > LONGEST_LABEL:
        raise DataError(
            f"{place}: expected a choice of at most {LONGEST_LABEL:,} characters, found {len(labels[0]):,}; correct it"
        )
    return labels[0]


def _choices(one: Mapping[str, Any]) -> Iterable[Any]:
    value = one.get("value")
    found = value.get("choices") if isinstance(value, dict) else None
    return found if isinstance(found, list) else ()


def _who(completed_by: Any) -> str:
    """The name of the annotator: an id, or the address if the export has it."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    name = completed_by if isinstance(completed_by, str) else f"user {completed_by}"
    return f"{name[:150]} of Label Studio"


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_ROWS


def _number(value: Any, place: str) -> int:
    if not _is_number(value):
        raise DataError(f"{place}: expected a number, found {cut(repr(value))}; export as JSON again")
    return int(value)


FILE = "label-studio.jsonl"
LONGEST = 1 << 16  #: bytes of a line


class AnnotationLog:
    """The known annotations by key; ``refresh`` reads those that other processes received."""

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
        """Append new annotations, durably. Returns the earlier length of the file, for ``take_back``.

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
        """Remove all annotations that were appended after the file had this length."""
        with locked_file(self._path) as file:
            os.ftruncate(file, end)
            os.fsync(file)
        self._read, self._lines, self.known = 0, 0, {}
        self.refresh()

    def deletions(self, annotations: Iterable[int], project: int | None, at: float) -> list[ReceivedAnnotation]:
        """Updates for deleted annotations; unknown ones are skipped. project: None: any."""
        wanted = set(annotations)
        return [
            structs.replace(one, gone=True, at=at)
            for one in self.known.values()
            if one.annotation in wanted and not one.gone and project in (None, one.project)
        ]

    def of_tasks(self, tasks: Iterable[int], project: int | None) -> list[ReceivedAnnotation]:
        """The known annotations of some tasks, without deleted ones. project: None: any."""
        wanted = set(tasks)
        there = [one for one in self.known.values() if not one.gone and one.task in wanted]
        return [one for one in there if project in (None, one.project)]

    def reports(self, rows: Iterable[int] | None = None) -> Mapping[int, RowReport]:
        """All known annotations, by row. rows: of these only."""
        wanted = None if rows is None else set(rows)
        said, names = defaultdict[int, list[ExternalAnswer]](list), defaultdict[int, set[str]](set)
        for one in sorted(self.known.values(), key=lambda one: one.key):
            if wanted is not None and one.row not in wanted:
                continue
            names[one.row].add(one.who)
            if not one.gone:
                place = f"Label Studio, task {one.task}, annotation {one.annotation}"
                said[one.row].append(ExternalAnswer(one.label, one.who, one.at, one.decides, place))
        return {row: RowReport(said.get(row, ()), frozenset(them)) for row, them in names.items()}

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
    """Complete lines from this position on."""
    rest, place = b"", start
    while piece := os.pread(file, 1 << 20, place):
        place += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(rest) > LONGEST:  # too long for an annotation: stop reading it, the error is raised below
            yield rest
            return


CHANGED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
SEVERAL = ("ANNOTATIONS_CREATED",)
DELETED = ("ANNOTATION_DELETED", "ANNOTATIONS_DELETED")
TASKS_DELETED = "TASKS_DELETED"


class EventNews(NamedTuple):
    """The content of an event. unclear: it is incomplete, and an export is needed."""

    annotations: list[ReceivedAnnotation]
    unclear: bool = False


def news_of(event: Mapping[str, Any], key: str, annotation_log: AnnotationLog) -> EventNews | None:
    """The new content of an event; None for an event that is not about annotations.

    key: of the campaign. Raises DataError for an event of another campaign, or in another format.
    """
    action = event.get("action")
    if action in DELETED:
        return _deleted(event, annotation_log)
    if action == TASKS_DELETED:
        found = annotation_log.of_tasks(_ids(event.get("tasks")), _project(event))
        return EventNews([structs.replace(one, gone=True, at=time.time()) for one in found])
    if action not in (*CHANGED, *SEVERAL):
        return None
    if "annotation" not in event:  # the webhook is configured to send no payload
        return EventNews([], unclear=True)
    annotations, tasks = event["annotation"], event.get("task")
    if action in CHANGED:
        annotations, tasks = [annotations], [tasks]
    found = [_changed(one, task, key, str(action), event) for one, task in _pairs(annotations, tasks, str(action))]
    return EventNews([one for one in found if one.says_more_than(annotation_log.known.get(one.key))])


def _pairs(annotations: Any, tasks: Any, place: str) -> Iterable[tuple[Any, Any]]:
    if not isinstance(annotations, list) or not isinstance(tasks, list) or len(annotations) != len(tasks):
        raise DataError(f"{place}: expected annotations with their tasks, found something else")
    return zip(annotations, tasks, strict=True)


def _changed(annotation: Any, values: Any, key: str, place: str, event: Mapping[str, Any]) -> ReceivedAnnotation:
    if not isinstance(values, dict):
        raise DataError(f"{place}: expected an annotation with its task, found none")
    task: Task = task_of(values, key, place, _project(event))
    return annotation_of(task, annotation, place)


def _deleted(event: Mapping[str, Any], annotation_log: AnnotationLog) -> EventNews:
    """The deleted annotations, if the event names them."""
    named = event.get("annotations", event.get("annotation"))
    numbers = _ids(named if isinstance(named, list) else [named])
    found = annotation_log.deletions(numbers, _project(event), time.time())
    known = {one.annotation for one in annotation_log.known.values()}
    return EventNews(found, unclear=not numbers or not known.issuperset(numbers))


def _project(event: Mapping[str, Any]) -> int | None:
    project = event.get("project")
    found = project.get("id") if isinstance(project, dict) else project
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _ids(values: Any) -> list[int]:
    found = [one.get("id") for one in values if isinstance(one, dict)] if isinstance(values, list) else []
    return [one for one in found if isinstance(one, int) and not isinstance(one, bool)]
