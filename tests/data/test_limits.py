"""Limits of the machine: few maps where few files may be open, and errors that speak of the limit, not of damage."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from filelock import FileLock
from scipy.sparse import csr_array

from coremargin.data import maps
from coremargin.data.check import check_store
from coremargin.data.files import write_whole
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, MachineLimit, StoreError, machine_limit, raise_if_limit
from limits_kit import limited
from store_kit import all_rows, write_store

if TYPE_CHECKING:
    from coremargin.errors import CoremarginError

CHUNKS = 245


def open_files(below: Path | None = None) -> int:
    """How many descriptors this process has; with a folder: of the files in it, whatever other threads have open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # what was open while the folder was listed: the folder
            found.append(link.readlink())
    return len(found) if below is None else sum(path.is_relative_to(below) for path in found)


@contextmanager
def no_files_left(but: int = 0) -> Iterator[None]:
    """All files that may be open are open, but so many; the limit is small while this lasts."""
    if not but:  # below the descriptors that are there: none becomes free when another thread closes a file
        with limited(resource.RLIMIT_NOFILE, 3):
            yield
        return
    with limited(resource.RLIMIT_NOFILE, open_files() + 20), ExitStack() as stack:
        held = []
        with suppress(OSError):
            while True:
                held.append(stack.enter_context(open(os.devnull, "rb")))
        for file in held[:but]:
            file.close()
        yield


@pytest.fixture
def many_chunks(tmp_path: Path, rng: np.random.Generator) -> tuple[Path, np.ndarray]:
    """A store of 245 chunks."""
    X = rng.normal(size=(CHUNKS * 8, 3)).astype(np.float32)
    write_store(tmp_path / "s.zarr", X, rng.integers(0, 2, len(X)), chunk_rows=8)
    return tmp_path / "s.zarr", X


def test_maps_leave_room_for_other_files(many_chunks: tuple[Path, np.ndarray]) -> None:
    """However many chunks a store has, the maps take less than half of the files that may be open, and none is needed;
    what is not mapped is read, the same rows.
    """
    path, X = many_chunks
    gc.collect()
    before, others = maps.budget.maps, open_files()
    for most in (20, 64, 100, 200, 300):
        soft = 2 * others + most  # maps may have half; what other tests left open has to fit into the other half
        store = Store.open(path)
        with limited(resource.RLIMIT_NOFILE, soft):
            np.testing.assert_array_equal(all_rows(store)[0], X)
            kept = maps.budget.maps
            assert kept <= max(before, soft // 2)
            assert (kept > before) == (soft - 64 >= 2 * (before + 1))
            assert open_files(path) == kept - before + 1  # its folder is held as long as it is read
        del store
        gc.collect()
        assert maps.budget.maps == before


def test_maps_take_a_share_of_a_limited_address_space(
    many_chunks: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the address space is limited, maps take a quarter of it at most."""
    path, X = many_chunks
    chunk = 8 * 3 * 4
    room = maps.budget.used_bytes + 10 * chunk
    real = resource.getrlimit
    limits = {resource.RLIMIT_AS: (4 * room, 4 * room)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.get(kind) or real(kind))
    store = Store.open(path)
    np.testing.assert_array_equal(all_rows(store)[0], X)
    assert room - chunk < maps.budget.used_bytes <= room


def test_a_map_counts_as_long_as_its_rows_are_used(many_chunks: tuple[Path, np.ndarray]) -> None:
    """Rows of a store that is closed hold their map, whose file stays open: it is given back when they go."""
    gc.collect()
    before = maps.budget.maps
    rows = Store.open(many_chunks[0]).read(5)[0]
    gc.collect()
    assert (maps.budget.maps, open_files(many_chunks[0])) == (before + 1, 1)
    np.testing.assert_array_equal(rows, many_chunks[1][40:48])
    del rows
    gc.collect()
    assert (maps.budget.maps, open_files(many_chunks[0])) == (before, 0)


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
@pytest.mark.parametrize("sparse", [False, True])
def test_what_cannot_be_mapped_is_read(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, number: int, sparse: bool
) -> None:
    """A map that the system refuses for want of memory or descriptors costs speed, not the job."""
    X = rng.normal(size=(100, 4)).astype(np.float32)
    write_store(tmp_path / "s.zarr", csr_array(X) if sparse else X, rng.integers(0, 2, 100), sparse=sparse)
    before = maps.budget.maps

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(mmap, "mmap", refused)
    store = Store.open(tmp_path / "s.zarr")
    rows = (store.read(chunk)[0] for chunk in range(store.chunks))
    copies = [part.toarray() if sparse else np.array(part) for part in rows]
    np.testing.assert_array_equal(np.concatenate(copies), X)
    assert maps.budget.maps == before


KINDS: dict[str, dict[str, Any]] = {
    "mapped": {},
    "compressed": {"compression": "zstd"},
    "sparse": {"sparse": True},
    "sparse, compressed": {"sparse": True, "compression": "lz4"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.read(3),
        lambda store: store.rows_at(np.array([70, 3])),
        lambda store: store.labels(1),
        lambda store: store.statistics(),
        lambda store: Store.open(store.path),
        lambda store: check_store(store.path),
        lambda store: StoreWriter.append(store.path),
    ],
    ids=["rows", "few rows", "labels", "statistics", "open", "check", "append"],
)
def test_no_file_may_be_opened(
    tmp_path: Path, rng: np.random.Generator, kind: str, read: Callable[[Store], object]
) -> None:
    """When no file can be opened any more, the error names the limit and how to raise it; nothing is called damaged,
    `check` is not advised, and the exit code is that of a run that failed. Afterwards all is as it was.
    """
    X = rng.normal(size=(320, 4)).astype(np.float32)
    options = KINDS[kind]
    path = tmp_path / "s.zarr"
    write_store(path, csr_array(X) if "sparse" in options else X, rng.integers(0, 2, 320), **options)
    store = Store.open(path, map_bytes=0)
    store.read(0)  # imports what it needs
    check_store(path)
    gc.collect()  # stores that were read hold their folders
    with no_files_left(), pytest.raises(MachineLimit, match=r"may have [\d,]+ files open \(ulimit -n\)") as caught:
        read(store)
    assert caught.value.exit_code == 5
    assert "coremargin check" not in str(caught.value)
    assert "ulimit -n" in str(caught.value).split(";")[1]
    assert check_store(path).whole


def test_every_step_knows_the_limit(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit that is met between two files that could be opened, or at the lock, is named as such."""
    path = tmp_path / "s.zarr"
    write_store(path, rng.normal(size=(320, 4)).astype(np.float32), rng.integers(0, 2, 320))
    too_many = OSError(errno.EMFILE, "Too many open files")
    real = os.open

    def refused(path: Any, *given: Any, **named: Any) -> int:
        if Path(path).name.startswith("c."):
            raise too_many
        return real(path, *given, **named)

    store = Store.open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(MachineLimit, match=r"c\.0.*ulimit -n"):
            store.scalars()

    def unlocked(*_: Any, **__: Any) -> None:
        raise too_many

    monkeypatch.setattr(FileLock, "acquire", unlocked)
    with pytest.raises(MachineLimit, match=r"s.zarr: .*ulimit -n"):
        StoreWriter.append(path)


def test_no_file_can_be_written(tmp_path: Path) -> None:
    """An output that cannot be opened for want of descriptors names the limit; without the limit it is written."""
    with no_files_left(), pytest.raises(MachineLimit, match=r"x: this process may have .* files open"):
        write_whole(tmp_path / "x", [b"abc"])
    with no_files_left(but=1):
        write_whole(tmp_path / "x", [b"abc"])
    assert (tmp_path / "x").read_bytes() == b"abc"


def test_a_file_may_not_be_so_large(tmp_path: Path) -> None:
    """A file beyond `ulimit -f` is an error that names the limit; it does not appear."""
    with limited(resource.RLIMIT_FSIZE, 1000), pytest.raises(MachineLimit, match=r"files of 1,000 bytes \(ulimit -f\)"):
        write_whole(tmp_path / "x", [bytes(2000)])
    assert list(tmp_path.iterdir()) == []


def caused(error: Exception, cause: BaseException) -> Exception:
    """An error that was raised from another."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EMFILE, "Too many open files", "f"), "ulimit -n"),
        (OSError(errno.ENFILE, "Too many open files in system"), "fs.file-max"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory"),
        (MemoryError(), "out of memory"),
        (np._core._exceptions._ArrayMemoryError((9,), np.dtype("f8")), "out of memory"),  # type: ignore[attr-defined]
        (ImportError("libx.so: failed to map segment from shared object"), "out of memory"),
        (ImportError("libx.so: cannot open shared object file: Too many open files"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "ulimit -u"),
        (caused(DamagedChunk("c.3.0 cannot be read"), OSError(errno.EMFILE, "Too many open files")), "ulimit -n"),
        (caused(RuntimeError("failed to start"), caused(KeyError("x"), MemoryError())), "out of memory"),
        (caused(RuntimeError("x"), MachineLimit("no more threads")), "no more threads"),
    ],
)
def test_limits_are_recognised(error: Exception, says: str) -> None:
    """Whatever form a limit takes, by itself or as the cause of another error, it is recognised and named."""
    limit = machine_limit(error)
    assert limit is not None
    assert says in str(limit)
    with pytest.raises(MachineLimit, match=says):
        raise_if_limit(error, "place")


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EFBIG, "File too large"),
        OSError("ended after 3 of 4 bytes"),
        ImportError("No module named 'x'"),
        RuntimeError("x"),
        DamagedChunk("the bytes were altered"),
        caused(StoreError("no"), KeyError("rows")),
        caused(StoreError("rows: expected what fits into memory, found 10**15"), MemoryError()),
    ],
)
def test_other_errors_are_no_limits(error: CoremarginError | OSError) -> None:
    """What is wrong with files, disks and data is not taken for a limit."""
    assert machine_limit(error) is None
    raise_if_limit(error)


def test_a_circle_of_causes_ends() -> None:
    """Errors that name each other as their cause are looked at once."""
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert machine_limit(first) is None
