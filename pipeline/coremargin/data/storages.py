"""From a path or an address to its storage: the one door that stores and models are opened by."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeAlias, cast

from coremargin.data.local_storage import LocalStorage
from coremargin.data.memory_storage import InMemoryStorage
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.storage import Storage
from coremargin.formats.local_path import local_path
from coremargin.formats.location import is_remote, location

#: What people name a store by.
Address: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes] | Storage

#: What opens addresses of each scheme; all other addresses are refused, or those of files (``file://``).
_BACKENDS: dict[str, Callable[[str], Storage]] = {"memory": InMemoryStorage.at}
_SCHEME = re.compile(r"([a-z][a-z0-9+-]+):/{1,2}(.+)", re.DOTALL)  # pathlib leaves one slash of two


def open_storage(address: Address) -> Storage:
    """Where a store lies; a ``Location`` brings the options of its address.

    Raises UsageError for an address that nothing opens, and for what no file can be called.
    """
    if not isinstance(address, str | bytes | os.PathLike):
        return address
    if is_remote(address):
        return ObjectStorage(location(cast("str", address)))
    scheme = _SCHEME.match(os.fsdecode(address))
    if scheme is not None and scheme[1] in _BACKENDS:
        return _BACKENDS[scheme[1]](f"{scheme[1]}://{scheme[2]}")
    return LocalStorage(os.path.abspath(local_path(address)))
