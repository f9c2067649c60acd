"""Questions as tasks of Label Studio, and the labelling configuration that they need.

No task says what the model thinks of its row: whoever is shown an answer agrees with it too often, and the draws that
try the model would find it better than it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np

from coremargin.data.files import output_errors
from coremargin.data.view import columns_of
from coremargin.errors import UsageError
from coremargin.label_studio.annotations import CONTROL

if TYPE_CHECKING:
    from coremargin.active.asked import Question
    from coremargin.data.store import Store

SHOWN = 24  #: features of a row: all where there are few, else the first that are not zero


class Tasks:
    """Makes tasks of questions of one campaign. key: of the campaign; store: its rows."""

    def __init__(self, key: str, store: Store) -> None:
        columns = columns_of(store)
        self._key = key
        self._names = None if columns is None else [name for column in columns.columns for name in column.features]

    def task(self, question: Question) -> dict[str, Any]:
        """What Label Studio imports."""
        data = {"row": question.row, "campaign": self._key, "why": question.why, "features": self._features(question)}
        return {"data": data}

    def _features(self, question: Question) -> dict[str, str]:
        """Name and value, as the tag Table shows them."""
        row = question.features
        values = np.asarray(row.toarray() if hasattr(row, "toarray") else row, np.float64).reshape(-1)
        places = np.arange(len(values)) if len(values) <= SHOWN else np.flatnonzero(values)[:SHOWN]
        return {self._name(int(place)): f"{values[place]:.6g}" for place in places}

    def _name(self, place: int) -> str:
        return f"feature {place}" if self._names is None else self._names[place]


def configuration(classes: Iterable[Any]) -> str:
    """The labelling configuration of a project for such tasks. Raises UsageError where fewer than two are known."""
    labels = [str(label) for label in classes]
    if len(labels) < 2:
        raise UsageError(
            f"expected a campaign that knows its classes, found {len(labels)} of them; name them when it begins "
            "(--classes), or give an example of each"
        )
    choices = "\n".join(f"    <Choice value={quoteattr(label)}/>" for label in labels)
    head = f'  <Choices name="{CONTROL}" toName="row" choice="single" showInLine="true">'
    return f'<View>\n  <Table name="row" value="$features"/>\n{head}\n{choices}\n  </Choices>\n</View>\n'


def pieces(tasks: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The text of a JSON list, a piece a task."""
    between = "[\n"
    for task in tasks:
        yield between + json.dumps(task, ensure_ascii=False, allow_nan=False)
        between = ",\n"
    yield "[]\n" if between == "[\n" else "\n]\n"


def write_tasks(path: Path, tasks: Iterable[dict[str, Any]]) -> None:
    """Write a file for Label Studio to import, one task at a time. Raises OutputError where a file is there."""
    with output_errors(path), open(path, "x", encoding="utf-8") as file:
        file.writelines(pieces(tasks))
