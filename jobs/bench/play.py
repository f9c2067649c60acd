"""A campaign whose questions the store's own labels answer, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.active import Campaign
from coremargin.engine.loop import Callbacks

if TYPE_CHECKING:
    from coremargin.data.store import Store


@dataclass
class Course:
    """A campaign that has ended, and its hyperplane (w, b).

    waits: seconds from an answer to the next question, where no scan lay between; enough: after how many answers the
    hyperplane was good enough for the first time.
    """

    status: dict[str, Any] = field(default_factory=dict)
    plane: tuple[np.ndarray, float] = field(default_factory=lambda: (np.zeros(0), 0.0))
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    enough: int | None = None

    @property
    def queries(self) -> int:
        """Labels asked for but for those of draws."""
        return int(self.status["labels_asked"] - self.status["draws"])


def played(store: Store, out: Path, good: Callable[[np.ndarray, float], bool] | None = None) -> Course:
    """To its end. good: whether a hyperplane is good enough; asked after every answer until one is."""
    scans, found, told = list[int](), Course(), list[Any]()
    started = time.perf_counter()
    watch = Callbacks(on_scan=lambda which, _: scans.append(which.number))
    with Campaign.create(out, store.path, classes=store.classes, seed=1, watch=watch) as campaign:
        questions = campaign.ask()
        while questions:
            row = questions[0].row
            label, before = store.classes[int(store.rows_at(np.array([row]))[1][0])], len(scans)
            asked = time.perf_counter()
            campaign.tell([row], [label])
            questions = campaign.ask()
            if len(scans) == before:
                found.waits.append(time.perf_counter() - asked)
            told.append(label)
            if good is not None and found.enough is None and len(set(told)) == 2:
                model = campaign.model
                found.enough = len(told) if good(model.w, model.b) else None
        campaign.stop()
        found.status, model = campaign.status, campaign.model
    found.seconds, found.plane = time.perf_counter() - started, (model.w, model.b)
    return found
