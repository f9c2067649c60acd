"""The report of whatever lies in a folder: the page of its kind."""

from __future__ import annotations

from pathlib import Path

from coremargin.errors import DataError
from coremargin.formats.fleet_record import FILE as FLEET
from coremargin.formats.model_record import FILE as MODEL
from coremargin.problems import registry
from coremargin.report import page


def write_report(folder: Path, *, name: str | None = None) -> Path:
    """Write ``report.html`` into a model's or a fleet's folder, aside and then renamed; the path of the page.

    ``name`` is what the page calls the folder (its own name unless it is about to be renamed).
    Raises DataError where the folder does not hold a readable model, OutputError where it cannot be written.
    """
    folder = Path(folder)
    kind = "fleet" if (folder / FLEET).exists() else page.read_json(folder / MODEL).get("problem")
    if kind not in registry.KINDS:
        raise DataError(f"{folder / MODEL}: expected a problem of {', '.join(registry.KINDS)}, found {kind!r}")
    return page.written(folder, registry.kind_named(kind).report(folder, name or folder.name))
