"""Changes of small stores, and buckets in the memory of this process, whose requests tests may stop or refuse."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import obstore
from obstore.store import MemoryStore

from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.compact import compact
from coremargin.data.writer import StoreWriter
from coremargin.errors import AccessDenied
from coremargin.formats import object_storage
from coremargin.formats.location import location
from coremargin.formats.object_storage import ObjectReader

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from coremargin.formats.location import Location

FEATURES = 6


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels."""
    X = np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32)
    return X, np.where(X[:, 0] > 0, "a", "b")


def create(address: Any, count: int = 100, **options: Any) -> None:
    """A new store of chunks of 40 rows."""
    with StoreWriter.create(address, features=FEATURES, chunk_rows=40, **options) as writer:
        writer.write(*rows(count))


def append(address: Any, count: int = 30, seed: int = 1) -> None:
    """Rows at the end, in the chunk that is not full and in another one."""
    with StoreWriter.append(address) as writer:
        writer.write(*rows(count, seed))


def relabel(address: Any) -> None:
    """Three labels."""
    write_labels(address, [1, 2, 50], ["b", "a", None])


CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": append,
    "relabel": relabel,
    "remove": lambda address: remove_rows(address, [3, 41]),
    "reweigh": lambda address: set_weights(address, [4, 99], [2.0, 0.5]),
    "compact": compact,
}


class Buckets:
    """Objects in memory below any address. ``hooks[region]`` is called before each request of who has this region."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores = dict[str, MemoryStore]()
        self.hooks: dict[str, Callable[[], None]] = {}
        call = ObjectReader._call

        def counted(reader: ObjectReader, request: Callable[[], Any], key: str) -> Any:
            hook = self.hooks.get(reader.name.options.get("region", ""))
            if hook is not None:
                hook()
            return call(reader, request, key)

        def in_memory(address: Location) -> tuple[Any, Any]:
            return self.stores.setdefault(str(address), MemoryStore()), object_storage._Unsigned()

        monkeypatch.setattr(ObjectReader, "_call", counted)
        monkeypatch.setattr(object_storage, "_store_of", in_memory)

    def at(self, name: str, region: str = "") -> Location:
        """An address."""
        return location(f"s3://buck/{name}", {"region": region} if region else {})

    def copy(self, name: str, new: str) -> None:
        """All objects at another address."""
        old, copy = self.stores[str(self.at(name))], MemoryStore()
        for page in obstore.list(old):
            for one in page:
                obstore.put(copy, one["path"], obstore.get(old, one["path"]).bytes())
        self.stores[str(self.at(new))] = copy


class OneBucket(Buckets):
    """The same, with all addresses in one bucket: an address has what lies below another one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.all, self.copied = MemoryStore(), list[str]()
        monkeypatch.setattr(object_storage, "_store_of", lambda address: (address, object_storage._Unsigned()))
        monkeypatch.setattr(obstore, "copy", self._copy(obstore.copy))
        for name in ("get", "head", "put", "delete", "list", "list_with_delimiter"):
            monkeypatch.setattr(obstore, name, self._with_prefix(getattr(obstore, name)))

    def _with_prefix(self, request: Callable[..., Any]) -> Callable[..., Any]:
        """A function of obstore that takes an address for a store."""

        def relative(found: Any, start: int) -> Any:
            return {**found, "path": found["path"][start:]}

        def call(address: Any, path: Any = None, *args: Any, **options: Any) -> Any:
            if not isinstance(address, str):
                return request(address, path, *args, **options)
            prefix = "".join(f"{name}/" for name in address.split("/")[3:])
            start = len(prefix)
            below = [prefix + one for one in path] if isinstance(path, list) else (prefix + (path or "")).rstrip("/")
            found = request(self.all, below, *args, **options)
            if request.__name__ == "list":
                return ([relative(one, start) for one in page] for page in found)
            if request.__name__ == "list_with_delimiter":
                folders = [one[start:] for one in found["common_prefixes"]]
                return {"common_prefixes": folders, "objects": [relative(one, start) for one in found["objects"]]}
            return found

        return call

    def _copy(self, copy: Callable[..., Any]) -> Callable[..., Any]:
        """That function of obstore, which counts what it copied."""

        def call(address: str, source: str, target: str) -> None:
            prefix = "".join(f"{name}/" for name in address.split("/")[3:])
            copy(self.all, prefix + source, prefix + target)
            self.copied.append(target)

        return call

    def content(self) -> dict[str, bytes]:
        """All objects, by the key in the bucket."""
        return {
            one["path"]: bytes(obstore.get(self.all, one["path"]).bytes())
            for page in obstore.list(self.all)
            for one in page
        }

    def restore(self, content: dict[str, bytes]) -> None:
        """Let the bucket have these objects and no others."""
        self.all = MemoryStore()
        for key, data in content.items():
            obstore.put(self.all, key, data)


class Kill:
    """Nothing of the n-th request and of all later ones arrives, as if their process were killed."""

    def __init__(self, n: int) -> None:
        self._left = n
        self._counting = threading.Lock()
        self.happened = False

    def __call__(self) -> None:
        with self._counting:
            self._left -= 1
            self.happened |= self._left <= 0
        if self.happened:
            raise AccessDenied("killed")


class Stop:
    """Lets another writer do its work, once, before the n-th request of one that is stopped meanwhile.

    Not before those that fetch metadata ahead: the thread that waits for them has the lock that Python 3.11 has for
    each cached property, of all objects.
    """

    def __init__(self, n: int, other: Callable[[], Any]) -> None:
        self._left, self._other = n, other
        self._counting = threading.Lock()
        self.happened = False

    def __call__(self) -> None:
        if threading.current_thread().name.startswith("coremargin-metadata"):
            return
        with self._counting:
            self._left -= 1
            if self._left == 0:
                self._other()
                self.happened = True
