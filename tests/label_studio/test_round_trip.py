"""As many tasks as Label Studio advises for a project at most, out and back."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign_kit import CLASSES, rows_and_labels, unlabelled
from coremargin.active import Campaign
from coremargin.active.queried_rows import Question
from coremargin.label_studio.annotations import AnnotationLog
from coremargin.label_studio.export_file import Export, elements, take_export
from coremargin.label_studio.tasks import Tasks, write_tasks
from coremargin.page.row_view import RowView
from studio_kit import chosen

TASKS = 100_000
TEXT = "x" * 1_000  #: what people read of a task
WINDOW = 24 << 20  #: bytes of memory for reading, whatever is in the file: a piece and the next, as text and as bytes


def exported(source: Path, target: Path, labels: list[str]) -> None:
    """What Label Studio exports once all tasks in a file are answered, one at a time."""
    with open(target, "w") as file:
        for number, (_, task) in enumerate(elements(source), 1):
            now, row = "2026-01-01T00:00:00.000001Z", task["data"]["row"]
            annotation = {
                "id": number, "completed_by": 1 + number % 5, "result": chosen(labels[row]), "was_cancelled": False,
                "ground_truth": False, "created_at": now, "updated_at": now, "lead_time": 1.5,
            }  # fmt: skip
            data = {**task["data"], "text": TEXT}
            there = {"id": number, "data": data, "project": 3, "annotations": [annotation], "updated_at": now}
            file.write(("[" if number == 1 else ",") + json.dumps(there))
        file.write("]")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_thousand_tasks_lose_nothing(tmp_path: Path) -> None:
    """All rows go out as tasks and come back as answers with their labels; what people read costs no memory."""
    X, labels = rows_and_labels(TASKS, 2)
    campaign = Campaign.create(tmp_path / "c", unlabelled(tmp_path / "s", X, chunk_rows=20_000), classes=CLASSES)
    out, back = tmp_path / "tasks.json", tmp_path / "export.json"
    tasks = Tasks(campaign.key, RowView(campaign.store))

    def questions() -> Iterator[dict[str, Any]]:
        for row in range(TASKS):
            yield tasks.task(Question(row, "query", None, lambda row: X[row]))

    write_tasks(out, questions())
    exported(out, back, labels)
    assert back.stat().st_size > TASKS * len(TEXT)
    read = 0
    tracemalloc.start()
    for _, task in elements(back):
        read += 1
        assert len(task["annotations"]) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (read, peak < WINDOW) == (TASKS, True), peak
    export, found = take_export(campaign, AnnotationLog(campaign.path), back, examples=True)
    assert (export.tasks, found.new, found.conflicts, found.refused) == (TASKS, TASKS, [], [])
    assert [(one["row"], one["label"]) for one in campaign.answers] == list(enumerate(labels))
    assert Export(back, campaign.key, AnnotationLog(campaign.path), whole=True, began=2e9).news == []
    again = AnnotationLog(campaign.path)
    assert {one.row: one.label for one in again.known.values()} == dict(enumerate(labels))
    assert np.unique([one.who for one in again.known.values()]).size == 5
