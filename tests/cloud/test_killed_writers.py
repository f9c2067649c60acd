"""Writers of a bucket are killed or stopped before each request that they make: no commit is lost, or half of one seen.

The bucket is in memory, so that every request can be tried; test_writing.py has the same protocol on a service.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from coremargin.data import conditional_puts, lease
from coremargin.data import vacuum as leftovers
from coremargin.data.amend import remove_rows
from coremargin.data.check import check_store
from coremargin.data.conditional_puts import ConditionalPuts
from coremargin.data.format import ROOT
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.owned import STORE
from coremargin.data.store import Store
from coremargin.data.vacuum import vacuum
from coremargin.errors import Busy, CoremarginError, NoAnswer, StoreError
from coremargin.formats.generation import FILE
from writing_kit import CHANGES, Buckets, Kill, Stop, append, create

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERY = pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 11])


@pytest.fixture
def buckets(monkeypatch: pytest.MonkeyPatch) -> Buckets:
    """All leases there have expired, and nobody renews one."""
    monkeypatch.setattr(lease, "now_there", lambda puts: time.time() + 1e6)
    monkeypatch.setattr(conditional_puts, "_PAUSE", 0.0)
    found = Buckets(monkeypatch)
    create(found.at("s"))
    remove_rows(found.at("s"), [7])
    return found


def changing(name: str) -> Callable[[Any], Any]:
    """What changes a store."""
    return CHANGES.get(name) or partial(create, count=70, overwrite=name == "overwrite")


@EVERY
@pytest.mark.parametrize("name", ["create", "overwrite", *CHANGES])
def test_killed_before_every_request(buckets: Buckets, name: str, step: int) -> None:
    """A reader sees what was there before, or all of it; then the next writer does it again, and nothing is left."""
    before = None if name == "create" else Store.open(buckets.at("s")).digest
    seen, n = set[Any](), 1
    while True:
        buckets.hooks.clear()
        address = buckets.at(f"s{n}")
        if before is not None:
            buckets.copy("s", f"s{n}")
        buckets.hooks["killed"] = kill = Kill(n)
        try:
            changing(name)(buckets.at(f"s{n}", "killed"))
        except CoremarginError:
            assert kill.happened
        try:
            found = Store.open(address).digest
            assert check_store(address).whole, n
        except StoreError:
            assert before is None, n
            assert not ObjectStorage(address).exists(), n
            found = None
        seen.add(found)
        if not kill.happened:
            break
        if found == before:
            changing(name)(address)
            assert check_store(address).whole, n
            assert Store.open(address).digest != before, n
        expected = Store.open(address).digest
        vacuum(address, older_than=0)
        assert Store.open(address).digest == expected, n
        assert check_store(address).whole, n
        assert not vacuum(address, older_than=0, dry_run=True).objects, n
        n += step
    assert len(seen) == 2
    assert n > 40


@EVERY
@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("name", ["append", "relabel", "compact", "overwrite"])
def test_stopped_before_every_request(buckets: Buckets, name: str, leftover: bool, step: int) -> None:
    """A writer is stopped, another one takes over and commits, and the first goes on: no commit is lost or mixed."""
    failures, n = 0, 1
    if leftover:
        buckets.hooks["killed"] = Kill(80)
        with pytest.raises(CoremarginError):
            append(buckets.at("s", "killed"), count=60, seed=7)
        assert Store.open(buckets.at("s")).rows == 100
    while True:
        address = buckets.at(f"s{n}")
        buckets.copy("s", f"s{n}")
        buckets.hooks["stopped"] = stop = Stop(n, partial(append, address, 21, 9))
        try:
            changing(name)(buckets.at(f"s{n}", "stopped"))
        except CoremarginError:
            failures += 1
            assert Store.open(address).rows == 121, n
        else:
            log = [entry.did for entry in Store.open(address).log]
            expected = {"compact": stop.happened}.get(name, 1 + stop.happened)
            if name == "overwrite":  # before, or of what was written
                expected = Store.open(address).rows > 70
            assert log.count("append") + log.count("labels") == expected, n
        assert check_store(address).whole, n
        if not stop.happened:
            break
        n += step
    assert failures > 3
    assert n > 40


def lose_answers(monkeypatch: pytest.MonkeyPatch, path: str, *lost: Callable[[], Any]) -> list[Callable[[], Any]]:
    """Requests about an object are done, then these are called, one for each, and no answer comes; those to come."""
    left, write = list(lost), ConditionalPuts._write

    def without_answer(puts: ConditionalPuts, request: Callable[[], Any], key: str) -> Any:
        result = write(puts, request, key)
        if key == path and left:
            left.pop(0)()
            raise NoAnswer("no answer")
        return result

    monkeypatch.setattr(ConditionalPuts, "_write", without_answer)
    return left


def interrupt() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def nothing() -> None:
    """Nothing happens."""


def replace_by_files(address: Any, folder: Path) -> None:
    """As models are replaced."""
    create(folder / "new", 70)
    with ObjectStorage(address).replacing(STORE, overwrite=True) as there:
        shutil.copytree(folder / "new", str(there.name), dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))


@pytest.mark.parametrize("lost", [(nothing, nothing), (interrupt,)])
@pytest.mark.parametrize("name", ["create", "overwrite", "compact", "files"])
def test_no_answer_about_the_current_generation(
    buckets: Buckets, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, lost: tuple[Callable[[], Any], ...]
) -> None:
    """What may be current by then is not removed, and the next writer goes on with it."""
    address = buckets.at("new" if name == "create" else "s")
    change = partial(replace_by_files, folder=tmp_path) if name == "files" else changing(name)
    left = lose_answers(monkeypatch, FILE, *lost)
    with pytest.raises((NoAnswer, KeyboardInterrupt)):
        change(address)
    assert not left
    assert Store.open(address).rows == {"create": 70, "overwrite": 70, "compact": 99, "files": 70}[name]
    assert check_store(address).whole
    if name != "files":  # whose record names all objects, as of models
        append(address)
        assert check_store(address).whole


def test_no_answer_about_a_commit(buckets: Buckets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer takes over: the commit is known as long as that one has not committed, and never done twice."""
    address = buckets.at("s")
    root = ObjectStorage(address).generation.prefix + ROOT  # type: ignore[union-attr]
    left = lose_answers(monkeypatch, root, ObjectStorage(address).fence)
    append(address)
    assert not left
    assert Store.open(address).rows == 130
    left = lose_answers(monkeypatch, root, partial(append, address, 21, 9))
    with pytest.raises(NoAnswer, match="whether this change came first is not known"):
        append(address)
    assert not left
    assert Store.open(address).rows == 181
    assert check_store(address).whole


def test_vacuum_leaves_what_others_named(buckets: Buckets, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that happens to be called ``generations`` is not ours; what a killed writer put there is."""
    storage = ObjectStorage(buckets.at("mine"))
    for key in ("generations/2026/rows.csv", "generations/notes.txt", "generations/0123456789abcdef/X/c.0"):
        storage.write(key, [b"x"])
    assert not vacuum(buckets.at("mine"), older_than=0).objects, "it may be a model in progress"
    monkeypatch.setattr(leftovers, "IN_PROGRESS_SECONDS", 0.0)
    assert vacuum(buckets.at("mine"), older_than=0).objects == 1
    assert {found.path for found in storage.list_found() if found.path.startswith("generations")} == {
        "generations/2026/rows.csv",
        "generations/notes.txt",
        lease.FILE,
    }


@pytest.mark.parametrize("wrong", [{"since": 1e300}, {"since": -1e300}, {"seconds": 1e300}])
def test_a_lease_that_makes_no_sense(
    buckets: Buckets, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, float]
) -> None:
    """It is somebody's for as long as others are, and then taken over."""
    record = msgspec.json.encode({"token": "t", "owner": "me", **wrong})
    ObjectStorage(buckets.at("s"))._puts.put(lease.FILE, [record])
    monkeypatch.setattr(lease, "now_there", lambda puts: time.time())
    with pytest.raises(Busy, match="another writer is at work there: .* of unknown"):
        append(buckets.at("s"))
    monkeypatch.setattr(lease, "now_there", lambda puts: time.time() + 1e6)
    append(buckets.at("s"))
    assert Store.open(buckets.at("s")).rows == 130
