"""Objects are replaced on condition; a service that ignores conditions is refused, and a lost answer loses nothing."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import pytest

from coremargin.data import conditional_puts, object_storage
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.storage import ABSENT
from coremargin.errors import Busy, CoremarginError, OutputError, StoreError, UsageError
from coremargin.formats.location import location

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloud_kit import BucketServer, Proxy
    from coremargin.formats.location import Location


def every(key: str, folder: bool) -> bool:
    """All is owned."""
    return True


def content(storage: ObjectStorage, key: str) -> bytes:
    """All bytes of an object."""
    with storage.open(key) as file:
        return file.read()


@pytest.mark.parametrize("name", ["s", "with a blank/and 100%25 \u00e9"])
def test_objects(bucket: Callable[..., Location], name: str) -> None:
    """What was written is read, listed, and gone once it is removed."""
    storage = ObjectStorage(bucket(name))
    storage.write("a/b", [b"abc", memoryview(b"de")])
    storage.write("a/c/d", [b""])
    with storage.create("e") as file:
        file.write(b"0123")
        file.seek(1)
        file.write(b"x")
    assert content(storage, "e") == b"0x23"
    with pytest.raises(KeyError), storage.create("never"):
        raise KeyError
    assert [(one.name, one.kind) for one in storage.list()] == [("a", "folder"), ("e", "object")]
    assert storage.stored_bytes() == 9
    storage.append("log", 0, b"one,")
    storage.append("log", 4, b"two,")
    storage.append("log", 4, b"three,")
    assert content(storage, "log") == b"one,three,"
    storage.sync("a", "")
    storage.remove("a", lambda key, folder: key == "a/b")
    assert [one.name for one in storage.list("a")] == ["c"]
    storage.remove("e", every)
    storage.remove("none", every)
    assert [one.name for one in storage.list()] == ["a", "log"]
    storage.remove("", every)
    assert not storage.list()


def test_conditions(bucket: Callable[..., Location]) -> None:
    """Another object, or none, is not replaced, and is named."""
    storage = ObjectStorage(bucket("s"))
    first = storage.write("k", [b"1"], replaces=ABSENT)
    assert storage.tag("k") == first
    second = storage.write("k", [b"2"], replaces=first)
    for wrong in (first, ABSENT):
        with pytest.raises(Busy, match=f"{storage.name}: another writer has changed k"):
            storage.write("k", [b"3"], replaces=wrong)
    assert content(storage, "k") == b"2"
    storage.remove("k", every)
    with pytest.raises(Busy):
        storage.write("k", [b"4"], replaces=second)
    assert not storage.exists("k")


def test_one_of_many_writers_wins(bucket: Callable[..., Location]) -> None:
    """Each number is written once."""
    storage = ObjectStorage(bucket("s"))

    def write(one: int) -> bool:
        try:
            storage.write(f"k{one // 8}", [b"%d" % one], replaces=ABSENT)
        except Busy:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(64)))
    assert [sum(won[k : k + 8]) for k in range(0, 64, 8)] == [1] * 8


@pytest.mark.parametrize("first", [True, False])
def test_a_lost_answer(bucket: Callable[..., Location], proxy: Proxy, first: bool) -> None:
    """A put that was done, though no answer came, is not repeated, and is no conflict."""
    storage = ObjectStorage(bucket("s", endpoint=proxy.endpoint))
    tag = ABSENT if first else storage.write("k", [b"before"], replaces=ABSENT)
    lost = list[str]()

    def lose(method: str, path: str) -> bool:
        if method == "PUT" and not lost:
            lost.append(path)
            return True
        return False

    proxy.lose = lose
    assert storage.write("k", [b"after"], replaces=tag) == storage.tag("k")
    assert lost
    assert content(storage, "k") == b"after"
    lost.clear()
    with pytest.raises(Busy):
        storage.write("k", [b"other"], replaces=tag)


def test_a_server_that_ignores_conditions(bucket: Callable[..., Location], proxy: Proxy) -> None:
    """It is refused before anything is written; objects are still read."""
    for ignored, named in [(("if-none-match",), "If-None-Match"), (("if-match",), "If-Match")]:
        conditional_puts._tested.clear()
        proxy.ignores = ignored
        storage = ObjectStorage(bucket("s", endpoint=proxy.endpoint))
        with pytest.raises(OutputError, match=f"this service ignores {named}, so that two writers"):
            storage.resolved()
        proxy.ignores = ()
        storage.resolved()
        assert not storage.list(), "the test leaves nothing"
        proxy.requests.clear()
        storage.resolved()
        assert not proxy.requests, "once for each process"


def test_what_cannot_be_written(bucket: Callable[..., Location], proxy: Proxy, server: BucketServer) -> None:
    """No right, no bucket, a web server: each is reported at once, without a secret."""
    conditional_puts._tested.clear()
    proxy.refuse = lambda method, path: "AccessDenied" if method == "PUT" else ""
    storage = ObjectStorage(bucket("s", endpoint=proxy.endpoint))
    with pytest.raises(OutputError, match="access denied .*writing needs the rights to") as denied:
        storage.resolved()
    assert "planted" not in str(denied.value)
    missing = location("s3://no-such-bucket/s", {"endpoint": storage.name.options["endpoint"]})
    proxy.refuse = lambda method, path: ""
    with pytest.raises(CoremarginError, match="no such bucket") as absent:
        ObjectStorage(missing).resolved()
    assert isinstance(absent.value, StoreError | OutputError)
    with pytest.raises(UsageError, match="a web server is only read"):
        ObjectStorage(location(f"{server.endpoint}/buck/s")).resolved()


def test_a_large_file_stays_on_disk(bucket: Callable[..., Location], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a lease it is mapped, and put on condition; one of more than a put takes is compared before."""
    storage = ObjectStorage(bucket("rows"))
    monkeypatch.setattr(object_storage, "SPOOLED_BYTES", 1000)
    monkeypatch.setattr(object_storage, "_ONE_PUT_BYTES", 5000)
    lock = storage.lock_writers()
    with storage.create("leased") as file:
        file.write(bytes(range(256)) * 40)
    lock.release()
    assert content(storage, "leased") == bytes(range(256)) * 40
    for nbytes in (4000, 6000):
        with TemporaryFile() as file:
            file.write(bytes(nbytes))
            storage.write_file(f"{nbytes}", file, replaces=ABSENT)
            file.seek(0, os.SEEK_END)
            file.write(b"more")
            with pytest.raises(Busy, match="meanwhile; nothing was written"):
                storage.write_file(f"{nbytes}", file, replaces=ABSENT)
            storage.write_file(f"{nbytes}", file, replaces=storage.tag(f"{nbytes}"))
        assert content(storage, f"{nbytes}") == bytes(nbytes) + b"more"
