"""What is ours: folders that hold what was written there and nothing else. Only these are replaced or removed.

A ``Kind`` of folder has a record, a JSON file that names its format, and a pattern for every path that may lie in it.
Whatever else is there belongs to somebody: a file by another name, a symlink, a pipe, a folder in a folder. ``remove``
takes what is ours, one name at a time, and never what has come between since somebody looked. It follows no link.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from coremargin.data.files import ASIDE
from coremargin.data.key_runs import PARTS
from coremargin.data.statistics import ChunkStatistics
from coremargin.formats.store_record import FORMAT

log = logging.getLogger(__name__)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_LARGEST_RECORD = 64 << 20
_NAMED = 3  # foreign files that a message names


@dataclass(frozen=True)
class Kind:
    """One kind of folder.

    what: in words, as in "a model". records: files that say what a folder is, and the format that they state; a name
    may have a ``*``. One of those in the folder itself must be there. files, folders: patterns of whole paths below the
    folder, with slashes; a name that is still being written (``.NAME.aside``) stands for NAME.
    """

    what: str
    records: Mapping[str, str]
    files: str
    folders: str = ""

    def is_at(self, folder: Path) -> bool:
        """Whether a folder says that it is of this kind; what else it holds is another matter."""
        return any(_format(folder / name) == form for name, form in self.records.items() if "/" not in name)

    def foreign_files(self, folder: Path, *, whole: bool = True) -> list[str]:
        """What keeps a folder from being ours alone: paths below it with a word on each; none in an empty folder.

        whole: records must say what they are. Without, only names count: what a killed writer left may lack any file.
        """
        found = list(self._foreign_files(folder, "", whole=whole))
        if found or not whole or self.is_at(folder) or not any(folder.iterdir()):
            return found
        return [f"no {' or '.join(name for name in self.records if '/' not in name)}"]

    def remove(self, root: Path, below: str = "") -> None:
        """Remove what is ours in the folder ``below`` root, and then the folder, unless something else lies in it."""
        folder = root / below
        with suppress(FileNotFoundError):
            self._empty(os.open(folder, _FOLDER), below and f"{below}/")
            _remove_folder(folder)

    def make_way(self, path: Path) -> None:
        """Leave nothing at a path: what is ours is removed, anything else gets a name of its own beside it.

        Raises OSError: that is not allowed.
        """
        with suppress(OSError):
            if stat.S_ISDIR(path.lstat().st_mode):
                make_writable(path)
                self.remove(path)
        if os.path.lexists(path):
            move_aside(path)

    def sweep(self, root: Path, below: str = "") -> None:
        """Remove what a killed writer left aside, directly in the folder ``below`` root."""
        with suppress(OSError):  # nothing to sweep, or a link
            self._empty(os.open(root / below, _FOLDER), below and f"{below}/", asides=True)

    def _foreign_files(self, folder: Path, below: str, *, whole: bool) -> Iterator[str]:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path, _ = _meant(below, entry.name)
            if entry.is_dir(follow_symlinks=False) and re.fullmatch(self.folders, path):
                yield from self._foreign_files(Path(entry.path), f"{path}/", whole=whole)
            elif not (entry.is_file(follow_symlinks=False) and re.fullmatch(self.files, path)):
                yield below + entry.name + _looks(entry)
            elif whole and (form := self._stated(path)) is not None and _format(Path(entry.path)) != form:
                yield f"{below}{entry.name} of another format"

    def _stated(self, path: str) -> str | None:
        """The format that a file must state; None for what is no record."""
        return next((form for name, form in self.records.items() if fnmatchcase(path, name)), None)

    def _empty(self, handle: int, below: str, *, asides: bool = False) -> None:
        """Remove what is ours in an open folder, which is closed; asides: only what has the name of such."""
        try:
            for name in os.listdir(handle):
                path, aside = _meant(below, name)
                mode = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
                if asides and not aside:
                    continue
                if stat.S_ISREG(mode) and re.fullmatch(self.files, path):
                    os.unlink(name, dir_fd=handle)
                elif stat.S_ISDIR(mode) and re.fullmatch(self.folders, path):
                    self._empty(os.open(name, _FOLDER, dir_fd=handle), f"{path}/")
                    _remove_folder(name, handle)
        finally:
            os.close(handle)


def make_writable(folder: Path) -> None:
    """Give the owner of a folder all rights. Raises OSError where they are missing and this user may not give them."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU)


def move_aside(path: Path) -> None:
    """Give what is in the way a name of its own, where it harms nobody. Raises OSError."""
    place = path.with_name(f"{path.name.removeprefix('.')}-{secrets.token_hex(4)}")
    os.rename(path, place)
    log.warning("%s: found something unexpected there, and renamed it %s", path, place.name)


def named(foreign: Iterable[str]) -> str:
    """The first foreign files, for a message."""
    found = list(foreign)
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _meant(below: str, name: str) -> tuple[str, bool]:
    """The path that a name stands for, and whether it is still being written."""
    aside = name.startswith(".") and name.endswith(ASIDE)
    return below + (name[1 : -len(ASIDE)] if aside else name), aside


def _looks(entry: os.DirEntry[str]) -> str:
    """A word on what is no ordinary file."""
    if entry.is_symlink():
        return " (a link)"
    return "/" if entry.is_dir() else "" if entry.is_file() else " (no file)"


def _remove_folder(name: str | Path, parent: int | None = None) -> None:
    """Remove an empty folder; one that is not stays."""
    with suppress(OSError):
        os.rmdir(name, dir_fd=parent)


def _format(path: Path) -> str | None:
    """The format that a record states; None for what is no record. Never waits for a pipe."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            value: Any = json.loads(file.read(_LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    values = [value, value.get("attributes")] if isinstance(value, dict) else []
    found = [one.get("format") for one in values if isinstance(one, dict)]  # Zarr keeps it among the attributes
    return next((form for form in found if isinstance(form, str)), None)


# squares: of stores before 2026-11-21; the last ones are of commits that changed labels or weights
_COLUMNS = "|".join(
    (*ChunkStatistics.__dataclass_fields__, "squares", "chunk", "array", "y", "weights_array", "weights")
)
_KEYS = rf"keys/\d+-\d+/(?:{'|'.join(PARTS)})"
_ARRAY = rf"X|X/data|X/indices|X/indptr|y|weights|blocks/\d+/(?:{_COLUMNS})|changes/\d+/(?:y|weights)|{_KEYS}"
_GROUPS = r"(?:blocks|changes)(?:/\d+)?|keys(?:/\d+-\d+)?"
#: A store, see format.py. Chunks lie flat as they are written here, or in folders as other writers may have them.
STORE = Kind(
    what="a store",
    records={"zarr.json": FORMAT},
    files=rf"zarr\.json|columns\.json|log\.jsonl|\.lock|(?:X|{_GROUPS})/zarr\.json|blocks/vectors/\d+\.\d+"
    rf"|changes/\d+/rows\.npz|(?:{_ARRAY})/(?:zarr\.json|c(?:[./]\d+)+)",
    folders=rf"{_ARRAY}|X|{_GROUPS}|blocks/vectors|(?:{_ARRAY})/c(?:/\d+)*",
)
