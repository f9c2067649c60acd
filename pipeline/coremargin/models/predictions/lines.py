"""Predictions in text: CSV with the header row,label,code,decision, and JSONL with an object of these keys a row.

Decision values are written so that they are read back to the bit. Nothing but rows is there, as every reader of such
files expects; what the predictions are of stands in the other formats.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from coremargin.models.output_file import whole_file
from coremargin.models.predictions.common import COLUMNS, WHAT

if TYPE_CHECKING:
    import numpy as np

    from coremargin.formats.location import Location
    from coremargin.models.predictions.common import Sink, Subject

_HEADER = (",".join(COLUMNS) + "\n").encode()
_LONGEST_LINE = 16 << 20  # bytes of a first line that is looked at: labels may be long


@contextmanager
def csv_file(path: Path | Location, about: Subject, *, overwrite: bool) -> Iterator[Sink]:
    """A file that appears whole. Raises UsageError (something is there), OutputError."""
    middles = [f",{_quoted(label)},{code}," for code, label in enumerate(about.model.labels)]
    with whole_file(path, WHAT, lambda file: file.readline(len(_HEADER)) == _HEADER, overwrite=overwrite) as file:
        file.write(_HEADER)
        yield _Lines(file, "", middles, "\n")


@contextmanager
def jsonl_file(path: Path | Location, about: Subject, *, overwrite: bool) -> Iterator[Sink]:
    """A file that appears whole. Raises UsageError (something is there), OutputError."""
    middles = [
        f', "label": {json.dumps(label)}, "code": {code}, "decision": ' for code, label in enumerate(about.model.labels)
    ]
    with whole_file(path, WHAT, _has_our_keys, overwrite=overwrite) as file:
        yield _Lines(file, '{"row": ', middles, "}\n")


@dataclass
class _Lines:
    """A line is begun, then come the row, what stands between for its class, the decision value, the end.

    So labels are quoted once a class, not once a row.
    """

    file: BinaryIO
    begun: str
    between: Sequence[str]
    end: str
    row: int = 0

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows."""
        begun, between, end = self.begun, self.between, self.end
        values = enumerate(zip(codes.tolist(), decisions.tolist(), strict=True), self.row)
        lines = "".join(f"{begun}{row}{between[code]}{value!r}{end}" for row, (code, value) in values)
        self.file.write(lines.encode())
        self.row += len(codes)


def _quoted(label: object) -> str:
    """A label as a field of a CSV."""
    field = io.StringIO()
    csv.writer(field).writerow(["", label])  # a field that is alone would be quoted when empty
    return field.getvalue()[1:-2]


def _has_our_keys(file: BinaryIO) -> bool:
    try:
        first = json.loads(file.readline(_LONGEST_LINE))
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and tuple(first) == COLUMNS
