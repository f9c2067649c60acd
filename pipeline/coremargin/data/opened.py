"""From a handle to its source: what travels to another process is opened there once, and kept."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from coremargin.data.source import Source, is_source
from coremargin.data.store import Store, StoreHandle, let_go, opened
from coremargin.data.view import ViewHandle, root

if TYPE_CHECKING:
    from coremargin.data.view import View

#: Views that a process keeps; more are made again when they are asked for.
_MOST_VIEWS = 1024
_views: dict[tuple[Any, ...], View] = {}
_opening = threading.RLock()


def open_source(handle: Any) -> Source:
    """The source that a handle stands for; stores and views of them are made once per process.

    Also takes a path (latest commit).

    Raises StoreError when the store no longer holds the commit that the handle speaks of.
    """
    if isinstance(handle, str | os.PathLike):
        handle = Store.open(handle).handle()
    if isinstance(handle, ViewHandle):
        return _open_view(handle)
    if isinstance(handle, StoreHandle):
        return opened(handle)
    if is_source(handle):
        return handle
    raise TypeError(f"expected a source's handle or a path, got {type(handle).__name__}")


def forget(path: str) -> None:
    """Let go of the stores with an address, and of their views: the next use opens it again."""
    with _opening:
        let_go(path)
        for name in [name for name, view in _views.items() if _address_of(view) == path]:
            del _views[name]


def _address_of(view: View) -> str | None:
    base = root(view)
    return base.storage.name if isinstance(base, Store) else None


def _open_view(handle: ViewHandle) -> Source:
    """The view over the source that is open here; one over arrays is made again, for these have no name to find it."""
    with _opening:
        base = open_source(handle.base)
        if not isinstance(root(base), Store):
            return handle.over(base)
        view = _views.pop(handle.key, None)
        if view is None or view.base is not base:
            view = handle.over(base)
            while len(_views) >= _MOST_VIEWS:
                del _views[next(iter(_views))]
        _views[handle.key] = view  # the one used last comes last
        return view
