"""An export of Label Studio, as JSON, becomes what is new in it; the file is read one task at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from coremargin.active.external_answers import refuse_several
from coremargin.errors import DataError
from coremargin.label_studio.annotations import ReceivedAnnotation, Task, heard_of, task_of
from coremargin.label_studio.elements import elements

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.external_answers import Followed
    from coremargin.label_studio.annotation_log import AnnotationLog


class Export:
    """What an export says that is not known yet.

    tasks: how many it has; rows: which they are about. news: annotations that are new, changed or deleted. absent:
    annotations whose tasks it has not: they are left as they are, for an export need not be of all tasks.
    """

    def __init__(self, path: Path, key: str, hearsay: AnnotationLog, *, whole: bool, began: float) -> None:
        """whole: it has all tasks of its projects, as ``download_all_tasks`` gives: what it has not was deleted.

        began: when it was made; what was heard later need not be in it.
        """
        self.tasks, self.rows, self.news, self.absent = 0, set[int](), list[ReceivedAnnotation](), 0
        known = hearsay.known
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
    """The tasks in an export, with what is said of them. Raises DataError for one of another campaign."""
    for place, values in elements(path):
        task = task_of(values, key, place)
        said: Any = values.get("annotations")
        if not isinstance(said, list):
            raise DataError(f"{place}: expected a task with annotations, found none; export as JSON")
        yield task, [heard_of(task, one, place) for one in said]


def made_at(path: Path) -> float:
    """When a file was made, as far as that is known."""
    return path.stat().st_mtime if path.exists() else 0.0


def take_export(
    campaign: Campaign,
    hearsay: AnnotationLog,
    path: Path,
    *,
    examples: bool = False,
    whole: bool = False,
    strict: bool = True,
    began: float | None = None,
) -> tuple[Export, Followed]:
    """Bring the answers of a campaign to an export: strictly all of it, or nothing.

    Raises DataError, OutputError, and UsageError where several people are asked about each row.

    whole: as of ``Export``. began: when it was made; None: when its file was.
    """
    refuse_several(campaign.settings.people)
    with campaign.locked():
        hearsay.refresh()
        made = made_at(path) if began is None else began
        export = Export(path, campaign.key, hearsay, whole=whole, began=made)
        end = hearsay.put(export.news)  # first: whoever is killed in between takes it with what is heard next
        try:
            rows = export.rows | {one.row for one in export.news} if strict else None  # what a kill has left, too
            found = campaign.follow(hearsay.reports(rows), examples=examples, strict=strict)
        except BaseException:
            hearsay.take_back(end)
            raise
    return export, found
