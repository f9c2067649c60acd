"""Modules that are imported from the working folder by name: workers, who may not have it, get what is in them.

Kept apart from payload.py so that whoever imports one loads no Dask.
"""

from __future__ import annotations

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
    return [module for name, module in sys.modules.copy().items() if any(_lies_in(module, name, f) for f in _folders)]


def _lies_in(module: ModuleType, name: str, folder: Path) -> bool:
    """Whether it is a file of a folder or of a package there, and none that only was installed below it."""
    file, root = getattr(module, "__file__", None), name.partition(".")[0]
    if not file or root in ("__main__", "coremargin"):
        return False
    path = Path(file)
    return path.parent == folder or path.is_relative_to(folder / root)
