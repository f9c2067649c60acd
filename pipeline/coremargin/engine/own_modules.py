"""Modules that are imported from the working folder by name: workers, who may not have it, get what is in them.

Kept apart from payload.py so that whoever imports one loads no Dask.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

_folders: set[Path] = set()
#: Of each module that was loaded, whether it is of such a folder: asked for every question of a scan, of thousands.
_judged: dict[str, tuple[ModuleType, bool]] = {}


def importable_from_here() -> Path:
    """Have modules of the working folder found, as `python -m` does; the folder."""
    folder = Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if folder not in _folders:
        _folders.add(folder)
        _judged.clear()
    return folder


def own_modules() -> list[ModuleType]:
    """Those that were imported from such folders so far, and that these import from there."""
    if not _folders:
        return []
    loaded = sys.modules.copy()
    for name, module in loaded.items():
        known = _judged.get(name)
        if known is None or known[0] is not module:
            _judged[name] = module, any(_lies_in(module, name, folder) for folder in _folders)
    return [module for name, module in loaded.items() if _judged[name][1]]


def _lies_in(module: ModuleType, name: str, folder: Path) -> bool:
    """Whether it is a file of a folder or of a package there, and none that only was installed below it."""
    file, root = getattr(module, "__dict__", {}).get("__file__"), name.partition(".")[0]
    if not file or root in ("__main__", "coremargin"):
        return False
    path = Path(file)
    return path.parent == folder or path.is_relative_to(folder / root)
