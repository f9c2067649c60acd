"""Questions as tasks of Label Studio, and the labelling configuration that they need.

Tasks contain no prediction: annotators agree too often with a suggestion, and the draws that test the model would
overestimate it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from coremargin.data.files import output_errors
from coremargin.errors import UsageError
from coremargin.label_studio.annotations import CONTROL

if TYPE_CHECKING:
    from coremargin.active.queried_rows import Question
    from coremargin.page.row_view import Content, Picture, RowView

CUT = "the text is longer; only its beginning is here"
#: By part of a row: the name of the object, which is also that of its value, and its tag.
OBJECTS = {"image": ("image", "Image"), "text": ("text", "Text"), "features": ("row", "Table")}


class Tasks:
    """Creates tasks for questions of a campaign. key: of the campaign; shown: what people see of a row."""

    def __init__(self, key: str, shown: RowView) -> None:
        self._key, self._shown = key, shown

    def task(self, question: Question) -> dict[str, Any]:
        """The task to import, with every part that the project shows, as Label Studio rejects a task without one."""
        found = self._shown.content(question.row)
        data = {"row": question.row, "campaign": self._key, "why": question.why}
        for part in self._shown.parts:
            data[part] = self._part(part, question.row, found)
        left = [*found["missing"], *([CUT] if found.get("cut") else [])]
        return {"data": data | ({"not_shown": "; ".join(left)} if left else {})}

    def _part(self, part: str, row: int, found: Content) -> Any:
        """The text, the image with all its bytes, or name and value, as the tag Table shows them."""
        if part == "features":
            return dict(found[part])
        if part not in found:
            return "" if part == "image" else "(no text)"
        return as_address(self._shown.picture(row)) if part == "image" else found[part]


def as_address(picture: Picture) -> str:
    """The image as a data URL, so that Label Studio needs no access to the file."""
    return f"data:{picture.kind};base64,{base64.b64encode(picture.data).decode('ascii')}"


def configuration(classes: Iterable[Any], parts: Sequence[str] = ("features",)) -> str:
    """The labelling configuration of a project for such tasks. Raises UsageError for fewer than two classes.

    parts: as ``RowView.parts``.
    """
    labels = [str(label) for label in classes]
    if len(labels) < 2:
        raise UsageError(
            f"expected a campaign that knows its classes, found {len(labels)} of them; name them when it begins "
            "(--classes), or give an example of each"
        )
    choices = "\n".join(f"    <Choice value={quoteattr(label)}/>" for label in labels)
    objects = [(*OBJECTS[part], part) for part in parts]
    seen = "".join(f'  <{tag} name="{name}" value="${part}"/>\n' for name, tag, part in objects)
    head = f'  <Choices name="{CONTROL}" toName="{objects[0][0]}" choice="single" showInLine="true">'
    return f"<View>\n{seen}{head}\n{choices}\n  </Choices>\n</View>\n"


def pieces(tasks: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The text of a JSON list, in one piece per task."""
    between = "[\n"
    for task in tasks:
        yield between + json.dumps(task, ensure_ascii=False, allow_nan=False)
        between = ",\n"
    yield "[]\n" if between == "[\n" else "\n]\n"


def write_tasks(path: Path, tasks: Iterable[dict[str, Any]]) -> None:
    """Write a file for Label Studio to import, one task at a time. Raises OutputError if the file exists."""
    with output_errors(path), open(path, "x", encoding="utf-8") as file:
        file.writelines(pieces(tasks))
