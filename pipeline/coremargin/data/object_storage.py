"""Objects of a bucket as a storage: ``s3://``, ``gs://``, ``az://``; of a web server, ``https://``, for reading.

Chunks cannot be mapped: they are fetched ahead, as far as memory allows, as a request takes some 30 ms before its first
byte and one connection carries some 90 MB/s. Measured at these figures, 16 requests at a time read as fast as a scan
computes, and 32 were slower on two cores (2026-11-28).
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from threading import Lock as ThreadLock
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeVar, cast

import msgspec
import numpy as np
from msgspec import UNSET

from coremargin.data.conditional_puts import ConditionalPuts, Found
from coremargin.data.folder import refuse
from coremargin.data.format import ROOT
from coremargin.data.lease import Lease, now_there
from coremargin.data.local_storage import LocalStorage
from coremargin.data.machine_memory import available_bytes
from coremargin.data.storage import ABSENT, Entry, check_length, check_most, check_size
from coremargin.errors import Busy, CoremarginError
from coremargin.formats.generation import FILE, FOLDER, LARGEST, Generation, below_the_address, new_generation
from coremargin.formats.location import Location
from coremargin.formats.object_storage import Fetched, ObjectReader, check_process, read_model_objects
from coremargin.formats.zarr_metadata import read_array_metadata

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from coremargin.data.checksum import Data
    from coremargin.data.storage import Lock, Owner, Owns, Storage, Tag, Writable
    from coremargin.formats.storage import ReadableStorage

T = TypeVar("T")
REQUESTS = 16  #: for chunks, at a time
PREFETCH_BYTES = 256 << 20  #: most bytes of a process that were fetched and not yet read
_MEMORY_SHARE = 8  # of what is available at the first fetch
_MOST_BYTES = 1 << 62
SPOOLED_BYTES = 32 << 20  #: of an object that is written piece by piece, in memory
_ONE_PUT_BYTES = 256 << 20  # of a file that is put by one request: a broken connection begins it again
_TRIES = 20  # of a change that other writers make at the same time
_ALIGNMENT = 16  # as NumPy's own arrays have it


class Part:
    """A byte range to fetch before it is read; ``over`` once it was taken or dropped."""

    def __init__(self, fetch: Callable[[], Fetched], nbytes: int) -> None:
        self.fetch, self.nbytes = fetch, nbytes
        self.started: Future[Fetched] | None = None
        self.over = False


class Prefetcher:
    """Fetches what is read soon, in the order in which it was requested, within a budget of bytes of this process."""

    def __init__(self, most_bytes: Callable[[], int]) -> None:
        """most_bytes: called once, at the first fetch."""
        self._most_bytes, self._most = most_bytes, 0
        self._lock = ThreadLock()
        self._waiting: deque[Part] = deque()
        self._held = 0
        self._pool: ThreadPoolExecutor | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes that were fetched, or are being fetched, and were not read yet."""
        with self._lock:
            return self._held

    def request(self, part: Part) -> None:
        """Fetch it as soon as there is room."""
        with self._lock:
            self._waiting.append(part)
        self._start()

    def take(self, part: Part) -> Fetched | None:
        """What was fetched, once, after waiting for it; None if that has not begun or it was dropped.

        Raises as its fetch.
        """
        with self._lock:
            if part.over:  # another thread dropped it, which gives its bytes back
                return None
            started, part.started, part.over = part.started, None, True  # the reader alone holds the bytes
        if started is None:
            return None
        try:
            return started.result()
        finally:
            self._give_back(part)

    def drop(self, part: Part) -> None:
        """Stop fetching it, unless it was taken."""
        with self._lock:
            if part.over:
                return
            started, part.started, part.over = part.started, None, True
        if started is not None:
            started.cancel()
            started.add_done_callback(lambda _: self._give_back(part))

    def _give_back(self, part: Part) -> None:
        with self._lock:
            self._held -= part.nbytes
        self._start()

    def _start(self) -> None:
        with self._lock:
            if self._pool is None:
                self._most = self._most_bytes()
                self._pool = ThreadPoolExecutor(REQUESTS, thread_name_prefix="coremargin-fetch")
            while self._waiting:
                part = self._waiting[0]
                needed = not part.over and part.nbytes <= self._most
                if needed and self._held + part.nbytes > self._most:
                    return
                self._waiting.popleft()
                if needed:
                    self._held += part.nbytes
                    part.started = self._pool.submit(part.fetch)


def _most_prefetch_bytes() -> int:
    return min(PREFETCH_BYTES, available_bytes() // _MEMORY_SHARE)


#: Of this process.
prefetcher = Prefetcher(_most_prefetch_bytes)


class ObjectStorage(ObjectReader):
    """The objects below an address."""

    remote = True

    def __init__(self, address: Location) -> None:
        super().__init__(address)
        self._begin()

    def _begin(self) -> None:
        self._puts = ConditionalPuts(self.name, self._store, self._call)
        self._lease = Lease(self._puts)
        self._replaces: ObjectStorage | None = None  # of a generation that is not published
        self.copies: dict[str, str] = {}  #: addresses in this bucket of what ``replacing`` need not upload, by key
        self._pointer: Tag = ABSENT  # tag of the object that named the current generation before ``prepare``

    def reopened(self) -> Self:
        """The objects as they are now, for another reader or writer."""
        found = super().reopened()
        found._begin()  # noqa: SLF001 - of the same class
        return found

    @property
    def snapshot(self) -> Location:
        """The address of this generation."""
        return Location(self.name, self.name.options, self.generation)

    def _forget(self) -> None:
        super()._forget()
        self._requested: dict[tuple[str, int], Part] = {}
        self._requesting = ThreadLock()

    def list(self, prefix: str = "") -> list[Entry]:
        """By name."""
        found = self.list_level(prefix)
        folders = [Entry(name, "folder", 0) for name in found.folders]
        return sorted(folders + [Entry(name, "object", nbytes) for name, nbytes in found.objects])

    def stored_bytes(self, prefix: str = "") -> int:
        """By one listing."""
        return sum(nbytes for _, nbytes in self.list_all(prefix))

    def chunks(self, nbytes: int | None, content_bytes: int, map_bytes: int) -> _Chunks:
        """What fetches the objects of an array."""
        return _Chunks(self, nbytes)

    def prefetch(self, key: str, start: int, nbytes: int) -> None:
        """Do nothing: no cache would keep it for another process. ``fetching`` is what helps."""

    @contextmanager
    def fetching(self, ranges: Sequence[tuple[str, int, int]]) -> Iterator[None]:
        """Fetch them in the background, in this order."""
        check_process()
        parts = {
            (key, start): Part(partial(self.fetch, key, start, start + size), size)
            for key, start, size in ranges
            if size
        }
        with self._requesting:
            self._requested |= parts
        for part in parts.values():
            prefetcher.request(part)
        try:
            yield
        finally:
            with self._requesting:
                for at, part in parts.items():
                    if self._requested.get(at) is part:
                        del self._requested[at]
            for part in parts.values():
                prefetcher.drop(part)

    def take(self, key: str, start: int) -> Fetched | None:
        """What was fetched of an object from there on, once; None where it was not."""
        with self._requesting:
            part = self._requested.pop((key, start), None)
        return None if part is None else prefetcher.take(part)

    def write(self, key: str, parts: Sequence[Data], *, replaces: Tag | None = None) -> Tag:
        """By a put, which shows an object whole or not at all.

        While this writer has the lease, all puts are on condition: a writer that was stopped, and whose lease another
        one took over, must not replace what that one wrote.
        """
        self._preloaded.pop(key, None)
        path = self._object_path(key)
        if self._replaces is not None or not self._lease.held:
            return self._puts.put(path, parts, replaces)
        if replaces is not None:
            self._lease.check()  # else the tag might be one that was read after another writer took over
            return self._puts.put(path, parts, replaces)
        with suppress(Busy):
            return self._puts.put(path, parts, ABSENT)
        for _ in range(_TRIES):  # the place of what grows, or of what a killed writer left
            there = self._puts.tag(path)
            self._lease.check()  # after the tag: who took over has others from then on
            with suppress(Busy):
                return self._puts.put(path, parts, there)
        raise Busy(f"{self.name}: another writer changes {key} again and again; nothing was committed, do it again")

    @contextmanager
    def batch(self) -> Iterator[Writable]:
        """Each put takes the latency of the service, and hardly any CPU."""
        with ThreadPoolExecutor(REQUESTS, thread_name_prefix="coremargin-put") as pool:
            batch = _Batch(self, pool)
            yield batch
            batch.finish()

    @contextmanager
    def create(self, key: str) -> Iterator[BinaryIO]:
        """A temporary file of this machine, which is then put: archives are not written from their first byte on."""
        with SpooledTemporaryFile(max_size=SPOOLED_BYTES) as file:
            yield cast("BinaryIO", file)
            self.write_file(key, cast("BinaryIO", file))

    def write_file(self, key: str, file: BinaryIO, *, replaces: Tag | None = None) -> None:
        """Put an open file as an object, whole or not at all. replaces: as of ``write``.

        A file of more than _ONE_PUT_BYTES takes several requests, which no service makes conditional: the tag of what
        it replaces is only compared before. Not while this writer has the lease, as for ``write``.
        """
        nbytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        leased = self._replaces is None and self._lease.held
        if leased or (replaces is not None and nbytes <= _ONE_PUT_BYTES):
            self.write(key, [_content(file, nbytes)], replaces=replaces)
            return
        self._preloaded.pop(key, None)
        path = self._object_path(key)
        if replaces is not None and self._puts.tag(path) != replaces:
            raise Busy(f"{self.name}: another writer has changed {key} meanwhile; nothing was written, do it again")
        self._puts.put_file(path, file)

    def link(self, key: str, file: BinaryIO, place: Path) -> bool:
        """No object is a file."""
        return False

    def protect(self, key: str) -> None:
        """Each object belongs to one model."""

    def append(self, key: str, length: int, data: Data) -> None:
        """Put the longer object in the place of the one that was read."""
        try:
            found = self.fetch(key)
        except FileNotFoundError:
            found = Fetched(memoryview(b""), "", 0)
        check_length(self.address_of(key), len(found.data), length)
        self.write(key, [found.data[:length], data], replaces=found.tag or ABSENT)

    def sync(self, *prefixes: str) -> None:
        """What was written lasts."""

    def remove(self, key: str, owns: Owns) -> None:
        """One by one, as far as they are listed; in what is current nothing, while this writer has the lease.

        No service deletes on condition, so what seems left over might be another writer's by then: ``vacuum`` removes
        what nothing replaces.
        """
        if self._replaces is None and self._lease.held:
            return
        names = [name for name, _ in self.list_all(key) if owns(name, False)]
        with suppress(FileNotFoundError):
            names += [key] if key and owns(key, False) and self.tag(key) else []
        self._puts.delete([self._object_path(name) for name in names])

    def sweep(self, prefix: str, owns: Owns) -> None:
        """Nothing is half-written."""

    def resolved(self) -> ObjectStorage:
        """What lies there now, once a test has shown that conditional writes work. Raises UsageError, OutputError."""
        self._puts.check(FOLDER)
        return self if self._lease.held else self.reopened()

    def lock_writers(self, called: str = "") -> Lock:
        """A lease, which a writer that has it holds once more: the one of the address, whatever the generation."""
        first = not self._lease.held
        if self._lease.hold():
            try:
                (self._replaces or self).fence()
            except BaseException:
                self._lease.abandon()
                raise
        if first and self._replaces is None:
            self._forget()  # what was there before
        return _Right(self._lease)

    def fence(self) -> None:
        """Let commits fail that a writer prepared before now: the objects that they replace get other tags.

        Raises OutputError.
        """
        for _ in range(_TRIES):
            with suppress(Busy):  # it was faster this once
                generation, tag = self.current_generation()
                root = f"{generation.prefix if generation else ''}{ROOT}"
                found = self._puts.read(root, LARGEST)
                if generation is not None:
                    data = self._puts.read(FILE, LARGEST)
                    if data is None or data.data is None or data.tag != tag:
                        continue
                    changed = self._puts.put(FILE, [data.data, b"\n"], tag)
                elif found is not None:
                    changed = self._puts.put(FILE, [below_the_address().encoded()], ABSENT)
                else:  # there is nothing to commit to
                    return
                if self._pointer == (tag or ABSENT):
                    self._pointer = changed
                if found is not None and found.data is not None:
                    self._puts.put(root, [found.data, b"\n"], found.tag)
                return
        raise Busy(f"{self.name}: another writer commits again and again; wait for it to end")

    def lock_removal(self) -> Lock:
        """Nothing: whoever removes cannot ask readers."""
        return _NoLock()

    def without_readers(self) -> AbstractContextManager[None]:
        """Readers go on with what they opened, until ``vacuum`` removes it."""
        return nullcontext()

    def prepare(self) -> ObjectStorage:
        """A generation of its own, which no other writer knows. Raises Busy: another is current than was read."""
        generation, tag = self.current_generation()
        if generation != self.generation:
            raise Busy(f"{self.name}: another writer has replaced what was there; nothing was written, do it again")
        self._pointer = tag or ABSENT
        found = self.reopened()
        found._generation.append(new_generation())  # noqa: SLF001 - of the same class
        found._lease, found._replaces = self._lease, self  # noqa: SLF001
        return found

    def prepared(self) -> None:
        """No generation is continued by another writer."""

    def publish(self, prepared: Storage, owns: Owns) -> None:
        """By one conditional put, of the object that names the current generation; ``vacuum`` removes the other."""
        generation = cast("Generation", cast("ObjectStorage", prepared).generation)
        if self._lease.held:
            self._lease.check()  # as in ``write``
        own = cast("ObjectStorage", prepared)
        own._replaces = None  # noqa: SLF001 - from now on it may be current, and ``remove`` removes nothing of it
        try:
            self._pointer = self._puts.put(FILE, [generation.encoded()], self._pointer)
        except Busy:  # it is not
            own._replaces = self  # noqa: SLF001
            raise
        self._forget()
        self._generation.append(generation)

    def list_found(self) -> Iterator[Found]:
        """All objects below the address, whatever the generation, by their paths."""
        return self._puts.list()

    def delete_found(self, paths: Sequence[str]) -> None:
        """Delete some of these. Raises OutputError."""
        self._puts.delete(paths)

    def clock(self) -> float:
        """Seconds since 1970 by the clock of the service, which dates all objects. Raises OutputError."""
        return now_there(self._puts)

    def check_replaceable(self, kind: Owner, *, overwrite: bool) -> None:
        """By what lies there now, and whether the service takes conditional writes of this process."""
        _check_old(self.resolved().reopened(), kind, overwrite=overwrite)

    @contextmanager
    def replacing(self, kind: Owner, *, overwrite: bool) -> Iterator[Storage]:
        """A folder of this machine, whose files are then put as a new generation; what was there is removed.

        Readers of what was there find objects missing, and start again. A process that is killed leaves objects that
        nothing names.
        """
        self.check_replaceable(kind, overwrite=overwrite)
        with TemporaryDirectory(prefix="coremargin-") as folder:
            yield LocalStorage(folder)
            generation, tag = self.current_generation()
            old = self.of_generation(self.name, generation)
            _check_old(old, kind, overwrite=overwrite)  # hours may have passed
            files = {str(path.relative_to(folder)): path for path in Path(folder).rglob("*") if path.is_file()}
            new = new_generation({key: path.stat().st_size for key, path in files.items()})
            put = partial(self._put_files, {new.prefix + key: path for key, path in files.items()})
            self._replace_generation(new, put, tag)
        with suppress(CoremarginError):  # the new one is in place
            old.remove("", kind.owns)

    def _replace_generation(self, new: Generation, put: Callable[[], None], tag: Tag | None) -> None:
        """Put the objects of a generation and then what names it. tag: of what names the one before, None for none."""
        may_be_current = False
        try:
            put()
            may_be_current = True
            self._puts.put(FILE, [new.encoded()], ABSENT if tag is None else tag)
        except BaseException as error:
            if not may_be_current or isinstance(error, Busy):
                with suppress(CoremarginError):
                    self._puts.delete([new.prefix + key for key in cast("dict[str, int]", new.objects)])
            raise

    def _put_files(self, files: Mapping[str, Path]) -> None:
        def put(path: str) -> None:
            source = self.copies.get(path.split("/", 2)[2])  # of a key in a generation
            if source is not None and self._copied(source, path):
                return
            with files[path].open("rb") as file:
                self._puts.put_file(path, file)

        with ThreadPoolExecutor(REQUESTS, thread_name_prefix="coremargin-put") as pool:
            for _ in pool.map(put, files):
                pass

    def _copied(self, source: str, path: str) -> bool:
        """Whether the service has copied an object."""
        import obstore

        bucket = ObjectReader(Location("/".join(self.name.split("/")[:3]), self.name.options))
        start = len(bucket.name) + 1
        with suppress(CoremarginError, OSError):
            target = f"{self.name}/{path}"[start:]
            self._call(lambda: obstore.copy(bucket._store, source[start:], target), path)  # noqa: SLF001
            return True
        return False

    def read_whole(self, read: Callable[[ReadableStorage], T]) -> T:
        """Of one generation, or of objects that have the same tags after the last was read."""
        return read_model_objects(self, read)

    def free_bytes(self) -> int:
        """Without a limit that is known."""
        return _MOST_BYTES

    def zarr_node(self, key: str) -> Any:
        """Its metadata alone, as they were checked: a server might send others the second time."""
        from zarr.core.buffer.cpu import Buffer
        from zarr.storage import MemoryStore, StorePath

        metadata = msgspec.json.encode(read_array_metadata(self, key))
        return StorePath(MemoryStore({f"{key}/zarr.json": Buffer.from_bytes(metadata)}), key)


def _check_old(storage: ObjectStorage, kind: Owner, *, overwrite: bool) -> None:
    """Raises UsageError: something is there that must not be replaced."""
    if not storage.exists():
        return
    known = None if storage.generation is None else storage.generation.objects
    if known is None or known is UNSET:
        foreign = kind.foreign_keys(storage)
    else:  # they were written together; another writer may have removed them by now
        foreign = [key for key in known if not kind.owns(key, False)]
    refuse(storage.name, kind.what, foreign, overwrite=overwrite)


def _content(file: BinaryIO, nbytes: int) -> Data:
    """All bytes of a file; a large one stays on disk."""
    if nbytes <= SPOOLED_BYTES:
        return file.read()
    return memoryview(mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ))


class _Batch:
    """Writes objects in the threads of a pool; most that wait: twice as many as are written at a time."""

    def __init__(self, storage: ObjectStorage, pool: ThreadPoolExecutor) -> None:
        self._storage, self._pool = storage, pool
        self._pending: deque[Future[Tag]] = deque()

    def write(self, key: str, parts: Sequence[Data], *, replaces: Tag | None = None) -> Tag:
        """Begin to write an object. Raises what an earlier one has raised."""
        while len(self._pending) >= 2 * REQUESTS:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._storage.write, key, parts, replaces=replaces))
        return None

    def finish(self) -> None:
        """Wait for all, and raise what the first that failed has raised."""
        while self._pending:
            self._pending.popleft().result()


class _Right:
    """A lease that is given back once."""

    def __init__(self, lease: Lease) -> None:
        self._lease: Lease | None = lease

    def release(self) -> None:
        """Let other writers take it, unless this one holds it once more."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()


class _NoLock:
    def release(self) -> None:
        """Do nothing."""


class _Chunks:
    """The objects of one array. Nothing that was fetched is trusted later: the next fetch may be damaged on its way."""

    def __init__(self, storage: ObjectStorage, nbytes: int | None) -> None:
        self._storage, self._nbytes = storage, nbytes

    def read(self, key: str, start: int, stop: int, out: np.ndarray | None = None) -> tuple[np.ndarray, Tag]:
        """Fetched ahead, or now; of an empty range, which no service answers, without a tag."""
        if start == stop:
            return np.empty(0, np.uint8), ""
        found = self._storage.take(key, start)
        if found is None or (len(found.data) < stop - start and found.nbytes >= stop):
            found = self._storage.fetch(key, start, stop)
        if self._nbytes is not None:
            check_size(found.nbytes, self._nbytes)
        if len(found.data) < stop - start:
            raise OSError(f"expected {stop - start:,} bytes, the service sent {len(found.data):,}")
        data = np.frombuffer(found.data, np.uint8, stop - start)
        if out is not None:
            out[:] = data
            return out, found.tag
        return _aligned(data), found.tag

    def read_all(self, key: str, most: int) -> tuple[np.ndarray, Tag]:
        """Fetched ahead, or now."""
        found = self._storage.take(key, 0)
        if found is None or len(found.data) != found.nbytes:
            found = self._storage.fetch(key, most=most)
        check_most(found.nbytes, most)
        if len(found.data) != found.nbytes:
            raise OSError(f"expected {found.nbytes:,} bytes, the service sent {len(found.data):,}")
        return np.frombuffer(found.data, np.uint8), found.tag

    def read_pieces(self, key: str, starts: Sequence[int], out: np.ndarray, tag: Tag) -> bool:
        """False: pieces have no checksums, and cost a request each."""
        return False

    def in_memory(self, key: str) -> bool:
        """Nothing stays."""
        return False


def _aligned(data: np.ndarray) -> np.ndarray:
    """As it is where its address is a multiple of what arrays have, so that all products have the same bits."""
    return data if data.ctypes.data % _ALIGNMENT == 0 else data.copy()
