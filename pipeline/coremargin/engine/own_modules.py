"""Modules that are imported from the working folder by name: workers, who may not have it, get what is in them.

Kept apart from payload.py so that whoever imports one loads no Dask.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

_folders: set[Path] = set()


def importable_from_here() -> Path:
    """Have modules of the working folder found, as `python -m` does; the folder."""
    folder = Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    _folders.add(folder)
    return folder


def own_modules() -> list[ModuleType]:
    """Those that were imported from such folders so far, and that these import from there."""
    within = tuple(f"{folder}{os.sep}" for folder in _folders)
    files = [(name, one, getattr(one, "__dict__", {}).get("__file__")) for name, one in sys.modules.copy().items()]
    # Asked for every question of a scan, of thousands of modules: what lies elsewhere is told by its first letters.
    near = [(name, module, Path(file)) for name, module, file in files if file and file.startswith(within)]
    return [module for name, module, file in near if any(_lies_in(file, name, folder) for folder in _folders)]


def _lies_in(file: Path, name: str, folder: Path) -> bool:
    """Whether it is a file of a folder or of a package there, and none that only was installed below it."""
    root = name.partition(".")[0]
    return root not in ("__main__", "coremargin") and (file.parent == folder or file.is_relative_to(folder / root))
