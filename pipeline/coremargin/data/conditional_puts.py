"""Puts on condition (If-None-Match, If-Match), by which several processes write to one bucket without locks.

A put of which no answer comes may have been done: it is settled by reading the object back. A service that ignores
conditions would lose commits without a word, so a test precedes the first write of a process to an address.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from coremargin.data.storage import ABSENT, Tag
from coremargin.errors import AccessDenied, Busy, NoAnswer, OutputError, RunError, UsageError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from coremargin.data.checksum import Data
    from coremargin.formats.location import Location

T = TypeVar("T")
_TRIES = 6  # of a put whose object is still the one to be replaced, or that nothing answers
_FENCES = 1 << 10  # most bytes that those who take over add to an object
_PAUSE = 0.2  # seconds before the second try, twice as many before each further one
_tested = set[tuple[str, frozenset[tuple[str, str]]]]()  # addresses, of this process


class Stored(NamedTuple):
    """An object: bytes if they were asked for, tag, and seconds since 1970 by the clock of the service."""

    data: bytes | None
    tag: str
    modified: float


class Found(NamedTuple):
    """An object in a listing; modified: as in ``Stored``."""

    path: str
    nbytes: int
    modified: float


class ConditionalPuts:
    """Writes objects of a bucket, by their paths below an address."""

    def __init__(self, address: Location, store: ObjectStore, call: Callable[[Callable[[], Any], str], Any]) -> None:
        """call: makes a request about a path, and raises what readers raise for it."""
        self.address, self._store, self._call = address, store, call

    def put(self, path: str, parts: Sequence[Data], replaces: Tag | None = None) -> str:
        """Write an object and return its tag. replaces: only in the place of the object of this tag, or ABSENT.

        Raises OutputError; NoAnswer: whether it was written is not known; Busy: another object is there.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        views: Any = [memoryview(part).cast("B") for part in parts]
        if replaces is None:
            return self._tag(
                self._write(lambda: obstore.put(self._store, path, views, use_multipart=False), path), path
            )
        mode: Any = "create" if replaces == ABSENT else self._match(str(replaces))

        def put() -> Any:
            try:
                return obstore.put(self._store, path, views, mode=mode)
            except (AlreadyExistsError, PreconditionError):
                return None

        unanswered = False
        for attempt in range(_TRIES):
            problem = None
            try:
                if (result := self._write(put, path)) is not None:
                    return self._tag(result, path)
            except NoAnswer as error:
                problem, unanswered = error, True
            content = b"".join(views)
            found = self.read(path, len(content) + _FENCES)
            if found is not None and (found.data == content or _is_fenced(path, content, found.data)):
                return found.tag  # the answer was lost, not the put
            if (ABSENT if found is None else found.tag) != replaces:
                if unanswered and replaces != ABSENT:
                    raise NoAnswer(
                        f"{self.address}: the service did not answer when {path} was written, and another writer has "
                        "changed it since: whether this change came first is not known; see what is there before you "
                        "do it again"
                    )
                raise Busy(
                    f"{self.address}: another writer has changed {path} meanwhile; nothing was written, do it again"
                )
            if problem is not None and attempt == _TRIES - 1:
                raise problem
            time.sleep(_PAUSE * 2**attempt)
        raise OutputError(
            f"{self.address}/{path}: cannot be written: the service refused {_TRIES} times to replace the object that "
            "is there, without another one being there; see whether it supports conditional writes"
        )

    def put_file(self, path: str, file: BinaryIO) -> None:
        """Write an object from a file, in several requests where it is large. Raises OutputError."""
        import obstore

        self._write(lambda: obstore.put(self._store, path, file), path)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; some may be gone. Raises OutputError."""
        import obstore

        try:
            if paths:
                self._write(lambda: obstore.delete(self._store, paths), paths[0])
        except FileNotFoundError:  # of services without a request for many: the others of them are left
            for path in paths:
                with suppress(FileNotFoundError):
                    self._write(partial(obstore.delete, self._store, path), path)

    def check(self, folder: str) -> None:
        """Test, once for each process and address, that writing is allowed and conditions are kept.

        folder: below which a small object is put, and deleted again. Raises UsageError, OutputError.
        """
        if self.address.startswith("http"):
            raise UsageError(
                f"{self.address}: a web server is only read; expected a path on this machine, or an address such as "
                "s3://bucket/rows.zarr"
            )
        key = str(self.address), frozenset(self.address.options.items())
        if key in _tested:
            return
        path = f"{folder}/{secrets.token_hex(8)}"
        first = self.put(path, [b"a"], ABSENT)
        try:
            accepted = [self._accepts(path, "create"), self._accepts(path, self._match(_other(first)))]
        finally:
            self.delete([path])
        if any(accepted):
            ignored = " and ".join(
                name for name, yes in zip(("If-None-Match", "If-Match"), accepted, strict=True) if yes
            )
            raise OutputError(
                f"{self.address}: this service ignores {ignored}, so that two writers would lose each other's commits "
                "without a word; write to one with conditional writes (S3, Azure, SeaweedFS, ...), or to a path on "
                "this machine, and copy what was written"
            )
        _tested.add(key)

    def _accepts(self, path: str, mode: Any) -> bool:
        """Whether a put whose condition is false is done."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put() -> bool:
            try:
                obstore.put(self._store, path, b"b", mode=mode)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        return bool(self._write(put, path))

    def _write(self, request: Callable[[], T], path: str) -> T:
        """Make a request. Raises OutputError, Busy, FileNotFoundError."""
        try:
            return self._call(request, path)  # type: ignore[no-any-return]
        except AccessDenied as error:
            raise OutputError(f"{error}; writing needs the rights to read, list, write and delete there") from None
        except OutputError:
            raise
        except RunError as error:
            raise NoAnswer(str(error)) from None

    def read(self, path: str, most: int) -> Stored | None:
        """An object as it is now, None where there is none; without its bytes if these are more than ``most``."""
        import obstore

        def get() -> Stored:
            result = obstore.get(self._store, path)
            content: Any = result.bytes() if int(result.meta["size"]) <= most else None
            return Stored(
                None if content is None else bytes(memoryview(content)),
                str(result.meta["e_tag"]),
                result.meta["last_modified"].timestamp(),
            )

        try:
            return self._write(get, path)
        except FileNotFoundError:
            return None

    def list(self) -> Iterator[Found]:
        """All objects below the address."""
        import obstore

        pages = self._write(lambda: iter(obstore.list(self._store)), "")
        while (page := self._write(lambda: next(pages, None), "")) is not None:
            yield from (Found(str(one["path"]), int(one["size"]), one["last_modified"].timestamp()) for one in page)

    def tag(self, path: str) -> Tag:
        """Of an object as it is now, or ABSENT."""
        import obstore

        try:
            return self._tag(self._write(lambda: obstore.head(self._store, path), path), path)
        except FileNotFoundError:
            return ABSENT

    def _match(self, tag: str) -> Any:
        return {"e_tag": tag}

    def _tag(self, result: Any, path: str) -> str:
        if not result["e_tag"]:
            raise OutputError(f"{self.address}/{path}: the service gives no ETags, without which none can be replaced")
        return str(result["e_tag"])


def _is_fenced(path: str, content: bytes, found: bytes | None) -> bool:
    """Whether an object is what was put there, with the blank lines of those who took over since (see lease.py)."""
    if found is None or not path.endswith(".json") or not found.startswith(content):
        return False
    return not found[len(content) :].strip(b"\n")


def _other(tag: str) -> str:
    """A tag that no object has."""
    return '"' + "0" * 32 + '"' if tag.strip('"') != "0" * 32 else '"' + "1" * 32 + '"'
