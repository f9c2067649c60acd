"""From the name of an output to the format in which predictions are written there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.data.folder import refuse
from coremargin.errors import UsageError
from coremargin.models.predictions.lines import csv_file, jsonl_file
from coremargin.models.predictions.parquet import parquet
from coremargin.models.predictions.zarr_group import zarr_group

if TYPE_CHECKING:
    from coremargin.models.predictions.common import Sink, Subject

FORMATS: dict[str, Callable[..., AbstractContextManager[Sink]]] = {
    ".parquet": parquet,
    ".csv": csv_file,
    ".jsonl": jsonl_file,
    ".zarr": zarr_group,
    "": zarr_group,
}


def predictions(path: Path, about: Subject, *, overwrite: bool) -> AbstractContextManager[Sink]:
    """Takes all rows in order; the suffix of the name selects the format. Links are followed.

    The output appears under its name when all of it is on disk; memory does not grow with the rows.
    Raises UsageError (an ending of no format) at once; as it is entered UsageError (something is there),
    OutputError (cannot be written).
    """
    make = format_of(path)
    return make(Path(os.path.realpath(path)), about, overwrite=overwrite)


def refuse_output(path: Path, *, overwrite: bool) -> None:
    """Raises UsageError for an output of which it is plain, before a row is read, that it will not be written."""
    format_of(path)
    if not overwrite and os.path.lexists(path):
        refuse(path, "another file or folder", [], overwrite=False)


def format_of(path: Path) -> Callable[..., AbstractContextManager[Sink]]:
    """The writer for the suffix of a name. Raises UsageError for an unknown one."""
    make = FORMATS.get(path.suffix.lower())
    if make is None:
        known = ", ".join(f"NAME{ending}" for ending in FORMATS if ending)
        raise UsageError(
            f"{path}: expected {known}, or a name without an ending for Zarr, found the ending {path.suffix!r}; "
            f"choose one of them"
        )
    return make
