"""Modules that are imported from the working folder by name: workers may not have them, so their content is sent.

Separate from probe_transport.py, so that importing this does not load Dask.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

_folders: set[Path] = set()
#: Whether a loaded module, by name, is in such a folder: a cache, as each of thousands of probes needs it.
_own_by_name: dict[str, tuple[ModuleType, bool]] = {}


def importable_from_here() -> Path:
    """Let modules of the working folder be imported, as `python -m` does; returns the folder."""
    folder = Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if folder not in _folders:
        _folders.add(folder)
        _own_by_name.clear()
    return folder


def own_modules() -> list[ModuleType]:
    """The modules that were imported from folders of ``importable_from_here`` so far, directly or by each other."""
    if not _folders:
        return []
    loaded = sys.modules.copy()
    for name, module in loaded.items():
        known = _own_by_name.get(name)
        if known is None or known[0] is not module:
            _own_by_name[name] = module, any(_is_in_folder(module, name, folder) for folder in _folders)
    return [module for name, module in loaded.items() if _own_by_name[name][1]]


def _is_in_folder(module: ModuleType, name: str, folder: Path) -> bool:
    """Whether a module is a file in a folder or in a package there; False for modules installed deeper below it."""
    file, root = getattr(module, "__dict__", {}).get("__file__"), name.partition(".")[0]
    if not file or root in ("__main__", "coremargin"):
        return False
    path = Path(file)
    return path.parent == folder or path.is_relative_to(folder / root)
