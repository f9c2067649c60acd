"""A Label Studio that is small enough to look through: a project with tasks and annotations, as it exports them.

Shapes and names are those of Label Studio's ``data_export/serializers.py`` and ``webhooks/models.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Project:
    """One project. Every change gets a later time."""

    def __init__(self, number: int = 3) -> None:
        self.number, self.tasks, self.changes = number, list[dict[str, Any]](), 0
        self._annotations = 100

    def now(self) -> str:
        self.changes += 1
        return (BEGAN + timedelta(seconds=self.changes)).isoformat().replace("+00:00", "Z")

    def add(self, tasks: Iterable[dict[str, Any]]) -> None:
        for task in tasks:
            there = {"id": len(self.tasks) + 1, "project": self.number, "annotations": [], "predictions": []}
            self.tasks.append({**there, "data": task["data"], "created_at": self.now(), "updated_at": self.now()})

    def task(self, row: int) -> dict[str, Any]:
        return next(task for task in self.tasks if task["data"]["row"] == row)

    def answer(self, row: int, label: str | None, who: Any = 1, **more: Any) -> dict[str, Any]:
        """An annotation, and the event that its webhook sends; label: None for a task that is skipped."""
        self._annotations += 1
        task, now = self.task(row), self.now()
        annotation = {
            "id": self._annotations, "completed_by": who, "result": chosen(label), "was_cancelled": label is None,
            "ground_truth": False, "created_at": now, "updated_at": now, "lead_time": 2.5, "task": task["id"],
            "project": self.number, **more,
        }  # fmt: skip
        task["annotations"].append(annotation)
        task["updated_at"] = now
        return self.event("ANNOTATION_CREATED", annotation=annotation, task=self.bare(task))

    def change(self, row: int, label: str, place: int = 0, **more: Any) -> dict[str, Any]:
        task, now = self.task(row), self.now()
        annotation = task["annotations"][place]
        annotation |= {"result": chosen(label), "was_cancelled": False, "updated_at": now, **more}
        task["updated_at"] = now
        return self.event("ANNOTATION_UPDATED", annotation=annotation, task=self.bare(task))

    def delete(self, row: int, place: int = 0) -> dict[str, Any]:
        task = self.task(row)
        gone = task["annotations"].pop(place)
        task["updated_at"] = self.now()
        return self.event("ANNOTATIONS_DELETED", annotations=[{"id": gone["id"]}])

    def bare(self, task: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in task.items() if key not in ("annotations", "predictions")}

    def event(self, action: str, **more: Any) -> dict[str, Any]:
        return json.loads(json.dumps({"action": action, "project": {"id": self.number, "title": "rows"}, **more}))

    def export(self, path: Path, *, all_tasks: bool = True) -> Path:
        path.write_text(json.dumps([task for task in self.tasks if all_tasks or task["annotations"]]))
        return path


def chosen(label: str | None) -> list[dict[str, Any]]:
    """The result of an annotation."""
    if label is None:
        return []
    value = {"choices": [label]}
    return [{"id": "r1", "from_name": "label", "to_name": "row", "type": "choices", "origin": "manual", "value": value}]
