"""The report of whatever lies in a folder: the page of its kind."""

from __future__ import annotations

from pathlib import Path

from coremargin.errors import DataError
from coremargin.formats.kinds import KINDS
from coremargin.formats.model_record import FILE
from coremargin.models.registry import known_by_file
from coremargin.problems.registry import kind_named
from coremargin.report import page


def write_report(folder: Path, *, name: str | None = None) -> Path:
    """Write ``report.html`` into the folder of a model of whatever kind, aside and then renamed; the path of the page.

    ``name`` is what the page calls the folder (its own name unless it is about to be renamed).
    Raises DataError where the folder does not hold a readable model, OutputError where it cannot be written.
    """
    folder = Path(folder)
    kind = known_by_file(lambda file: (folder / file).exists()) or page.read_json(folder / FILE).get("problem")
    if kind not in KINDS:
        raise DataError(f"{folder / FILE}: expected a problem of {', '.join(KINDS)}, found {kind!r}")
    return page.written(folder, kind_named(kind).report(folder, name or folder.name))
