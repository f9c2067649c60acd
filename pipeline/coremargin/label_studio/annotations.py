"""Annotations as Label Studio writes them: in exports, and in what its webhooks send."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from coremargin.errors import DataError
from coremargin.formats.limits import LONGEST_LABEL, MOST_ROWS
from coremargin.formats.model_record import Count, Strict, Word
from coremargin.formats.strict_json import cut

CONTROL = "label"  #: the name of the control tag in our labelling configurations


class ReceivedAnnotation(Strict, frozen=True, kw_only=True):
    """One annotation as it was heard of last.

    project, task, annotation: their numbers there. label: what was chosen; None where the task was put off. gone: it
    was deleted. decides: it is a ground truth there. updated: there, as seconds since 1970; at: heard.
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
        """What tells annotations apart."""
        return self.project, self.annotation

    def says_more_than(self, known: ReceivedAnnotation | None) -> bool:
        """Whether this is news to whoever knows that."""
        if known is None:
            return True
        if known.gone or self.updated < known.updated:  # its numbers are given once; and this is an older export
            return False
        return (self.label, self.decides, self.gone) != (known.label, known.decides, known.gone)


class Task(NamedTuple):
    """A task of ours: its numbers, and its row."""

    project: int
    task: int
    row: int
    updated: float | None


def task_of(values: Mapping[str, Any], key: str, place: str, project: int | None = None) -> Task:
    """The task in an export, or in what a webhook sends. key: of the campaign. Raises DataError for one of others."""
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
    return Task(of, number, _number(row, place), None if updated is None else when(updated, place))


def heard_of(task: Task, values: Any, place: str) -> ReceivedAnnotation:
    """What an annotation says of a task, heard now. Raises DataError."""
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
        updated=0.0 if updated is None else when(updated, place),
        at=time.time(),
        decides=values.get("ground_truth") is True,
    )


def when(text: Any, place: str) -> float:
    """Seconds since 1970 of a time as Label Studio writes it. Raises DataError."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise DataError(f"{place}: expected a time, found {cut(repr(text))}; export again") from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _label(values: Mapping[str, Any], place: str) -> str | None:
    """What was chosen; None where the task was skipped, or submitted without a choice."""
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
    """Whoever has submitted it: a number, or where the export has more of them, the address."""
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
