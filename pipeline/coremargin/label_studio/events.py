"""What Label Studio's webhooks send, as what is new in it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from coremargin.errors import DataError
from coremargin.label_studio.annotations import ReceivedAnnotation, Task, heard_of, task_of

if TYPE_CHECKING:
    from coremargin.label_studio.annotation_log import AnnotationLog

CHANGED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
SEVERAL = ("ANNOTATIONS_CREATED",)
DELETED = ("ANNOTATION_DELETED", "ANNOTATIONS_DELETED")
TASKS_DELETED = "TASKS_DELETED"


class News(NamedTuple):
    """What an event says. unclear: it does not say all, and an export has to."""

    heard: list[ReceivedAnnotation]
    unclear: bool = False


def news_of(event: Mapping[str, Any], key: str, hearsay: AnnotationLog) -> News | None:
    """What an event says that is not known yet; None of one that is about no annotation.

    key: of the campaign. Raises DataError for one about another campaign, or that is not as Label Studio sends it.
    """
    action = event.get("action")
    if action in DELETED:
        return _deleted(event, hearsay)
    if action == TASKS_DELETED:
        found = hearsay.of_tasks(_ids(event.get("tasks")), _project(event))
        return News([structs.replace(one, gone=True, at=time.time()) for one in found])
    if action not in (*CHANGED, *SEVERAL):
        return None
    if "annotation" not in event:  # a webhook that does not send what it is about
        return News([], unclear=True)
    annotations, tasks = event["annotation"], event.get("task")
    if action in CHANGED:
        annotations, tasks = [annotations], [tasks]
    found = [_changed(one, task, key, str(action), event) for one, task in _pairs(annotations, tasks, str(action))]
    return News([one for one in found if one.says_more_than(hearsay.known.get(one.key))])


def _pairs(annotations: Any, tasks: Any, place: str) -> Iterable[tuple[Any, Any]]:
    if not isinstance(annotations, list) or not isinstance(tasks, list) or len(annotations) != len(tasks):
        raise DataError(f"{place}: expected annotations with their tasks, found something else")
    return zip(annotations, tasks, strict=True)


def _changed(annotation: Any, values: Any, key: str, place: str, event: Mapping[str, Any]) -> ReceivedAnnotation:
    if not isinstance(values, dict):
        raise DataError(f"{place}: expected an annotation with its task, found none")
    task: Task = task_of(values, key, place, _project(event))
    return heard_of(task, annotation, place)


def _deleted(event: Mapping[str, Any], hearsay: AnnotationLog) -> News:
    """Its annotations, where it names them."""
    named = event.get("annotations", event.get("annotation"))
    numbers = _ids(named if isinstance(named, list) else [named])
    found = hearsay.gone(numbers, _project(event), time.time())
    known = {one.annotation for one in hearsay.known.values()}
    return News(found, unclear=not numbers or not known.issuperset(numbers))


def _project(event: Mapping[str, Any]) -> int | None:
    project = event.get("project")
    found = project.get("id") if isinstance(project, dict) else project
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _ids(values: Any) -> list[int]:
    found = [one.get("id") for one in values if isinstance(one, dict)] if isinstance(values, list) else []
    return [one for one in found if isinstance(one, int) and not isinstance(one, bool)]
