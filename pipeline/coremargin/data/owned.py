"""What is ours: folders that hold what was written there and nothing else. Only these are replaced or removed.

A ``Kind`` of folder has a record, a JSON file that names its format, and a pattern for every path that may lie in it.
Everything else there is the user's: a file by another name, a symlink, a pipe, a folder in a folder.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.chunk_hashes import COLUMN as HASHES
from coremargin.data.format import KEY_PARTS
from coremargin.data.groups import GROUP_COLUMNS
from coremargin.data.local_storage import LocalStorage, name_meant
from coremargin.data.statistics import ChunkStatistics
from coremargin.formats.store_record import FORMAT

if TYPE_CHECKING:
    from coremargin.data.storage import Storage
    from coremargin.formats.storage import ReadableStorage

log = logging.getLogger(__name__)

_LARGEST_RECORD = 64 << 20


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
        return self.is_in(LocalStorage(folder))

    def is_in(self, storage: ReadableStorage) -> bool:
        """The same of a storage."""
        return any(stated_format(storage, name) == form for name, form in self.records.items() if "/" not in name)

    def owns(self, key: str, folder: bool) -> bool:
        """Whether an object, or a folder, is ours by its name."""
        return re.fullmatch(self.folders if folder else self.files, key) is not None

    def foreign_files(self, folder: Path, *, whole: bool = True) -> list[str]:
        """What keeps a folder from being ours alone: see ``foreign_keys``."""
        return self.foreign_keys(LocalStorage(folder), whole=whole)

    def foreign_keys(self, storage: Storage, *, whole: bool = True) -> list[str]:
        """What keeps a storage from being ours alone: keys with a word on each; none in an empty one.

        whole: records must say what they are. Without, only names count: what a killed writer left may lack any object.
        """
        found = list(self._foreign(storage, "", whole=whole))
        if found or not whole or self.is_in(storage) or not storage.list():
            return found
        return [f"no {' or '.join(name for name in self.records if '/' not in name)}"]

    def remove(self, root: Path, below: str = "") -> None:
        """Remove what is ours in the folder ``below`` root, and then the folder, unless something else lies in it."""
        LocalStorage(root).remove(below, self.owns)

    def sweep(self, folder: Path) -> None:
        """Remove what a killed writer left half-written, directly in a folder."""
        LocalStorage(folder).sweep("", self.owns)

    def make_way(self, path: Path) -> None:
        """Leave nothing at a path: what is ours is removed, anything else gets a name of its own next to it.

        Raises OSError: that is not allowed.
        """
        with suppress(OSError):
            if stat.S_ISDIR(path.lstat().st_mode):
                make_writable(path)
                self.remove(path)
        if os.path.lexists(path):
            move_aside(path)

    def _foreign(self, storage: Storage, prefix: str, *, whole: bool) -> Iterator[str]:
        for name, kind, _ in storage.list(prefix):
            below = f"{prefix}/" if prefix else ""
            key = below + name_meant(name)[0]
            if kind == "folder" and self.owns(key, True):
                yield from self._foreign(storage, below + name, whole=whole)
            elif not (kind == "object" and self.owns(key, False)):
                yield below + name + {"link": " (a link)", "folder": "/", "other": " (no file)"}.get(kind, "")
            elif whole and (form := self._stated(key)) is not None and stated_format(storage, below + name) != form:
                yield f"{below}{name} of another format"

    def _stated(self, key: str) -> str | None:
        """The format that an object must state; None for what is no record."""
        return next((form for name, form in self.records.items() if fnmatchcase(key, name)), None)


def make_writable(folder: Path) -> None:
    """Give the owner of a folder all rights. Raises OSError where they are missing and this user may not give them."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU)


def move_aside(path: Path) -> None:
    """Rename what is in the way to an unused name. Raises OSError."""
    place = path.with_name(f"{path.name.removeprefix('.')}-{secrets.token_hex(4)}")
    os.rename(path, place)
    log.warning("%s: found something unexpected there, and renamed it %s", path, place.name)


def stated_format(storage: ReadableStorage, key: str) -> str | None:
    """The format that a record states; None for what is no record. Never waits for a pipe."""
    try:
        with storage.open(key) as file:
            value: Any = json.loads(file.read(_LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    values = [value, value.get("attributes")] if isinstance(value, dict) else []
    found = [one.get("format") for one in values if isinstance(one, dict)]  # Zarr keeps it among the attributes
    return next((form for form in found if isinstance(form, str)), None)


#: Of commits that changed labels or weights.
_CHANGED = ("chunk", "array", "y", "weights_array", "weights")
_COLUMNS = "|".join((*ChunkStatistics.__dataclass_fields__, HASHES, *GROUP_COLUMNS, *_CHANGED))
_KEYS = rf"(?:group_)?keys/\d+-\d+/(?:{'|'.join(KEY_PARTS)})"
_ROWS = "X|X/data|X/indices|X/indptr|y|weights|groups|group_ids"
_ARRAY = rf"{_ROWS}|blocks/\d+/(?:{_COLUMNS})|changes/\d+/(?:y|weights)|{_KEYS}"
_GROUPS = r"(?:blocks|changes)(?:/\d+)?|(?:group_)?keys(?:/\d+-\d+)?"
#: A store, see format.py. Chunks lie flat as they are written here, or in folders as other writers may have them.
STORE = Kind(
    what="a store",
    records={"zarr.json": FORMAT},
    files=rf"zarr\.json|columns\.json|log\.jsonl|\.lock|(?:X|{_GROUPS})/zarr\.json|blocks/vectors/\d+\.\d+"
    rf"|changes/\d+/rows\.npz|(?:{_ARRAY})/(?:zarr\.json|c(?:[./]\d+)+)",
    folders=rf"{_ARRAY}|X|{_GROUPS}|blocks/vectors|(?:{_ARRAY})/c(?:/\d+)*",
)
