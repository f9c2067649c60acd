"""What all files of predictions have in common: what goes in, what they say of themselves, how a file appears."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from coremargin.data.files import output_errors, put_in_place, sync_folder
from coremargin.data.folder import refuse

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel

FORMAT = "coremargin-predictions"
VERSION = 1
COLUMNS = ("row", "label", "code", "decision")  #: of a table


class Sink(Protocol):
    """Where predictions go."""

    def write(self, codes: np.ndarray, decisions: np.ndarray) -> None:
        """The next rows: codes (n,) int32 and decision values (n,) float64."""


@dataclass(frozen=True)
class Subject:
    """What predictions are about: who made them, of which rows."""

    model: AnyModel
    source: Source

    def attributes(self) -> dict[str, Any]:
        """What predictions say of themselves, where their format has a place for it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "rows": self.source.rows,
            "classes": list(self.model.labels),
            "model": {"status": self.model.status, **self.model.proof},
            "source": {"name": Path(self.source.name).name, "digest": self.source.digest},
        }


@contextmanager
def whole_file(path: Path, is_ours: Callable[[BinaryIO], bool], *, overwrite: bool) -> Iterator[BinaryIO]:
    """A file to fill, which appears at ``path`` when all of it is on disk.

    is_ours: whether a file holds predictions in this format and nothing else; any other may be the user's data.
    Raises UsageError (something is there), OutputError.
    """
    _check_old(path, is_ours, overwrite=overwrite)
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with put_in_place(path) as aside, open(aside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _check_old(path, is_ours, overwrite=overwrite)  # hours may have passed
        sync_folder(path.parent)


def _check_old(path: Path, is_ours: Callable[[BinaryIO], bool], *, overwrite: bool) -> None:
    if os.path.lexists(path):
        ours = _opens(path, is_ours)
        refuse(path, "a file of predictions", [] if ours else ["other data"], overwrite=overwrite)


def _opens(path: Path, is_ours: Callable[[BinaryIO], bool]) -> bool:
    """Whether a file, which is no pipe and no link, is one of ours."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return False
    try:
        with path.open("rb") as file:
            return is_ours(file)
    except OSError:
        return False
