"""The report of whatever lies in a folder: a model or a fleet."""

from __future__ import annotations

from pathlib import Path

from coremargin.report import fleet, html


def write_report(folder: Path, *, name: str | None = None) -> Path:
    """Write ``report.html`` into a model's or a fleet's folder, aside and then renamed; the path of the page.

    ``name`` is what the page calls the folder (its own name unless it is about to be renamed).
    Raises DataError where the folder does not hold a readable model, OutputError where it cannot be written.
    """
    folder = Path(folder)
    write = fleet.write_fleet_report if (folder / fleet.FILE).exists() else html.write_model_report
    return write(folder, name=name)
