"""Files in the place of a store: what `train` makes of them before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.cli.common import progress
from coremargin.cli.ingest import report_lines, warning_lines
from coremargin.cli.printing import print_lines
from coremargin.cli.tables import ingest_shown, split, suggesting
from coremargin.errors import UsageError
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.learn.train import Begin
    from coremargin.problems.job import TrainJob


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


def ingest_files(source: Path, job: TrainJob, of_files: dict[str, Any], begin: Begin, flags: dict[str, bool]) -> None:
    """Make the store beside a model, where it is not there, and say so; refuse before what would fail after it."""
    from coremargin.learn.files import ingest_beside
    from coremargin.learn.train import check_output

    quiet, overwrite = flags["quiet"] or flags["as_json"], flags["overwrite"]
    options = {**of_files, "drop": split(of_files["drop"]) or ()}
    with suggesting(), terminable():
        check_output(job, begin, overwrite=overwrite)
        with progress(quiet=quiet) as advance:
            shown = ingest_shown(advance)
            made = ingest_beside(str(source), job.out, begin, overwrite=overwrite, on_progress=shown, **options)
    if not quiet:
        told = [made.told] if made.told else []
        print_lines(*told, *(report_lines(made.report) if made.report else []), "")
    elif made.report:
        print_lines(*warning_lines(made.report), err=True)
