"""Files in the place of a store: what `train` makes of them before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.cli.common import progress
from coremargin.cli.ingest import report_lines
from coremargin.cli.printing import print_lines
from coremargin.cli.tables import ingest_shown, split, suggesting
from coremargin.engine.interruption import terminable
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from coremargin.learn.train import Begin


def rows_of(given: Path, out: Path, of_files: dict[str, Any]) -> Path:
    """The store to train on: the one that is given, or that of the files that are. Raises UsageError."""
    from coremargin.data.store_paths import is_store, store_beside

    if not is_store(given):
        return store_beside(Path(out))
    said = [name for name, value in of_files.items() if value]
    if said:
        option = "--" + said[0].replace("_", "-")
        raise UsageError(f"{option} does not apply to {given}, a store, whose columns are what they are: leave it out")
    return given


def ingest_files(source: Path, out: Path, of_files: dict[str, Any], flags: dict[str, bool]) -> None:
    """Make the store beside a model, and say so."""
    from coremargin.learn.files import ingest_beside

    begin: Begin = "resume" if flags["resume"] else "restart" if flags["restart"] else "new"
    quiet = flags["quiet"] or flags["as_json"]
    options = {**of_files, "drop": split(of_files["drop"]) or ()}
    with suggesting(), terminable(), progress(quiet=quiet) as advance:
        report = ingest_beside(
            str(source), out, begin, overwrite=flags["overwrite"], on_progress=ingest_shown(advance), **options
        )
    if report is not None and not quiet:
        print_lines(*report_lines(report), "", err=flags["as_json"])
