"""The end of a place: what a thread writes there is whole before its writer gives it up, and nothing is begun after."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from coremargin.data.folder import replacing
from coremargin.data.local_storage import LocalStorage
from coremargin.data.place import Place
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import OutputError, StoreError, UsageError
from coremargin.formats.store_record import read_store_record
from coremargin.models.predictions.zarr_group import PREDICTIONS
from coremargin.verify.opener import open_store

#: What a test waits for something that has to happen, and for something that must not.
LONG_S, SHORT_S = 30.0, 0.1


def test_close_waits_for_a_thread_that_writes(tmp_path: Path) -> None:
    """The folder of a store that was never published goes away once the last file in it is whole, not before."""
    place = Place.new(tmp_path / "s.zarr")
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    seen: list[bool] = []

    def write() -> None:
        with place.writing():
            begun.set()
            go_on.wait(LONG_S)
            seen.extend([place.storage.exists(), closed.is_set()])
            place.storage.write("zarr.json", [b"whole"])

    def close() -> None:
        place.close()
        closed.set()

    threads = [threading.Thread(target=write), threading.Thread(target=close)]
    threads[0].start()
    assert begun.wait(LONG_S)
    threads[1].start()
    assert not closed.wait(SHORT_S)
    go_on.set()
    for thread in threads:
        thread.join(LONG_S)
    assert closed.is_set()
    assert seen == [True, False]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["mkdir", "lock"])
def test_a_signal_while_the_folder_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Ctrl-C while the folder of a new store is made or locked is raised once it can be removed, and it is."""
    mkdir, lock = Path.mkdir, FileLock.acquire

    def make(path: Path, *args: Any, **kwargs: Any) -> None:
        mkdir(path, *args, **kwargs)
        signal.raise_signal(signal.SIGINT)

    def acquire(self: FileLock, *args: Any, **kwargs: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return lock(self, *args, **kwargs)

    if step == "mkdir":
        monkeypatch.setattr(Path, "mkdir", make)
    else:
        monkeypatch.setattr(FileLock, "acquire", acquire)
    with pytest.raises(KeyboardInterrupt):
        Place.new(tmp_path / "s.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_a_folder_is_made_aside_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of a folder that is to replace another as a whole."""
    mkdir = Path.mkdir

    def make(path: Path, *args: Any, **kwargs: Any) -> None:
        mkdir(path, *args, **kwargs)
        if path != tmp_path:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Path, "mkdir", make)
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "p", PREDICTIONS, overwrite=False):
        pytest.fail("was entered")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_begun_once_a_place_is_closed(tmp_path: Path) -> None:
    """A thread that comes too late is refused by name, and the place is free for another writer."""
    place = Place.new(tmp_path / "s.zarr")
    place.close()
    with pytest.raises(OutputError, match=r"s\.zarr: nothing more is written there"), place.writing():
        pytest.fail("was let in")
    place.close()  # twice does no harm
    assert list(tmp_path.iterdir()) == []
    Place.new(tmp_path / "s.zarr").close()


def test_a_thread_that_fails_in_writing_is_not_waited_for(tmp_path: Path) -> None:
    """An error leaves the right to write, as the end does: nobody waits for a thread that has died."""
    place, ends = Place.new(tmp_path / "s.zarr"), list[str]()

    def fail() -> None:
        try:
            with place.writing():
                raise OSError("full")
        except OSError as error:
            ends.append(str(error))

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join(LONG_S)
    place.close()
    assert ends == ["full"]


def test_a_thread_may_close_what_it_is_writing_itself(tmp_path: Path) -> None:
    """A signal interrupts a thread in the middle of a file; closing then does not wait for the thread it runs in."""
    place, done = Place.new(tmp_path / "s.zarr"), threading.Event()

    def run() -> None:
        with place.writing():
            place.close()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(LONG_S)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_waits_for_a_thread_that_its_pool_does_not_know(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that is being written, in a thread that nobody joins, is whole before its store's folder goes away."""
    writer = StoreWriter.create(tmp_path / "s.zarr", features=2, chunk_rows=8)
    writer.write(rng.normal(size=(9, 2)), ["a"] * 9)
    sink, real = writer._sink, LocalStorage.write
    assert sink is not None
    begun, go_on, failed = threading.Event(), threading.Event(), list[BaseException]()

    def slow(storage: LocalStorage, key: str, parts: Any) -> Any:
        begun.set()
        go_on.wait(LONG_S)
        return real(storage, key, parts)

    def put() -> None:
        try:
            sink.put(1, np.zeros((8, 2), np.float32), np.zeros(8, np.int32), None, 1)
        except BaseException as error:  # noqa: BLE001 - whatever it was is told below
            failed.append(error)

    writer._pool.shutdown(wait=True)
    monkeypatch.setattr(LocalStorage, "write", slow)
    stray, closing = threading.Thread(target=put), threading.Thread(target=writer.close)
    stray.start()
    assert begun.wait(LONG_S)
    closing.start()
    closing.join(SHORT_S)
    assert closing.is_alive()
    go_on.set()
    for thread in (stray, closing):
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert failed == []
    assert list(tmp_path.iterdir()) == []


def test_paths_that_no_store_can_have_are_refused_before_rows_are_written(tmp_path: Path) -> None:
    """Names that are too long and links in a circle end in errors of ours, for writers and for readers."""
    long = tmp_path / ("x" * 300)
    with pytest.raises(OutputError, match="cannot be written"):
        Place.new(long)
    with pytest.raises(StoreError, match="cannot be read: File name too long"):
        Store.open(long)
    with pytest.raises(StoreError, match="cannot be read: File name too long"):
        read_store_record(open_store(long))
    circle = tmp_path / "circle.zarr"
    circle.symlink_to(circle.name)
    with pytest.raises(UsageError, match="links in a circle"):
        Place.new(circle)
