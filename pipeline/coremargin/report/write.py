"""The report of whatever lies in a folder: a model, of two or of several classes, or a fleet."""

from __future__ import annotations

from pathlib import Path

from coremargin.report import classes, fleet, html


def write_report(folder: Path, *, name: str | None = None) -> Path:
    """Write ``report.html`` into a model's or a fleet's folder, aside and then renamed; the path of the page.

    ``name`` is what the page calls the folder (its own name unless it is about to be renamed).
    Raises DataError where the folder does not hold a readable model, OutputError where it cannot be written.
    """
    folder = Path(folder)
    if (folder / fleet.FILE).exists():
        return fleet.write_fleet_report(folder, name=name)
    write = classes.write_classes_report if classes.is_several(folder) else html.write_model_report
    return write(folder, name=name)
