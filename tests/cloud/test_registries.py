"""Registries in buckets, whose writers are killed or stopped before each request: nothing is lost, twice, or half done.

The bucket is in memory, so that every request can be tried; test_registry_commands.py has the same on a service.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest

import coremargin
from coremargin.data import conditional_puts, lease
from coremargin.data.conditional_puts import ConditionalPuts
from coremargin.data.vacuum import vacuum
from coremargin.errors import Busy, CoremarginError, DataError, NoAnswer, Running, UsageError
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.registry import registry as room
from coremargin.registry.add_version import add
from coremargin.registry.aliases import collect, promote, rollback
from coremargin.registry.registry import Registry
from coremargin.registry.run_lock import run_lock
from registry_kit import check_whole, grown, version_files
from writing_kit import Kill, OneBucket, Stop

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of three commits of one store."""
    return grown(tmp_path_factory.mktemp("models"), 3)[1]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> OneBucket:
    """An empty one."""
    monkeypatch.setattr(conditional_puts, "_PAUSE", 0.0)
    conditional_puts._tested.clear()
    return OneBucket(monkeypatch)


@pytest.fixture
def two(bucket: OneBucket, models: list[Path]) -> Registry:
    """A registry of two versions, the second of which is the champion after the first."""
    registry = Registry.create(bucket.at("team/models"))
    for model in models[:2]:
        add(registry, model)
    promote(registry, 1)
    promote(registry, 2)
    return registry


def lines(registry: Registry) -> list[tuple[Any, ...]]:
    """What the log says, apart from times and hashes."""
    return [(line.action, line.version, line.alias, line.previous) for line in registry.state().lines]


def test_the_same_as_a_folder(two: Registry, models: list[Path], tmp_path: Path) -> None:
    """After the same changes the log says the same, and versions have the same files."""
    local = Registry.create(tmp_path / "models")
    for model in models[:2]:
        add(local, model)
    promote(local, 1)
    promote(local, 2)
    for registry in (two, local):
        assert add(registry, models[2]) == 3
        assert add(registry, models[2]) == 3
        promote(registry, 3, alias="shadow", comment="tried")
        assert add(registry, models[0]) == 4  # an older one is a version like any other
        assert rollback(registry).version == 1
        assert promote(registry, 1) is None
        assert collect(registry, keep=1, dry_run=True) == [2]
        assert collect(registry, keep=1) == [2]
        check_whole(registry)
        with pytest.raises(
            DataError, match=r"version 2 was removed \(.+\): not among the newest 1; choose one of 1, 3, 4"
        ):
            promote(registry, 2)
        with pytest.raises(Busy, match="expected champion to be version 3, found version 1"):
            promote(registry, 3, expected=3)
    assert lines(two) == lines(local)
    assert two.state().numbers == local.state().numbers == (1, 3, 4)
    assert two.state().aliases == local.state().aliases
    for number in (1, 3, 4):
        found, wanted = (version_files(registry.folder(number)) for registry in (two, local))
        assert found.keys() == wanted.keys()
        assert {name for name in found if found[name] != wanted[name]} <= {"version.json", "MLmodel"}  # have the time


CHANGES: dict[str, Callable[[Registry, list[Path]], Any]] = {
    "add": lambda registry, models: add(registry, models[2]),
    "promote": lambda registry, models: promote(registry, 1),
    "rollback": lambda registry, models: rollback(registry),
    "collect": lambda registry, models: collect(registry, keep=1),
}
DONE = {
    "add": [("trained", 3), ("promoted", 3)],
    "promote": [("promoted", 1)],
    "rollback": [("rolled back", 1)],
    "collect": [("removed", 1)],
}
STEPS = {"add": 4, "promote": 2, "rollback": 2, "collect": 1}  #: so many requests apart in the quick tests
EVERY = [
    pytest.param(name, step, marks=[pytest.mark.slow] * (step < STEPS[name]))
    for name in STEPS
    for step in sorted({1, STEPS[name]})
]


@pytest.mark.parametrize(("name", "step"), EVERY)
def test_killed_before_every_request(
    bucket: OneBucket, two: Registry, models: list[Path], name: str, step: int
) -> None:
    """What is there is whole, before or after; the change is made again, once; then nothing is left over."""
    if name == "collect":
        add(two, models[2])
        promote(two, 3)
    before, content, n = len(lines(two)), bucket.content(), 1
    seen = set[int]()
    while True:
        bucket.hooks.clear()
        bucket.restore(content)
        bucket.hooks["killed"] = kill = Kill(n)
        try:
            CHANGES[name](Registry(bucket.at("team/models", "killed")), models)
        except CoremarginError:
            assert kill.happened
        check_whole(two)
        done = len(lines(two)) - before
        seen.add(done)
        if not kill.happened:
            break
        if not done or name == "add":  # where it is known to be done it is no second version
            CHANGES[name](two, models)
        two.complete()
        check_whole(two)
        assert [line[:2] for line in lines(two)[before:]] == DONE[name], n
        vacuum(two.path, older_than=0)
        check_whole(two)
        assert not vacuum(two.path, older_than=0, dry_run=True).objects, n
        assert {key.split("/")[3] for key in bucket.content() if "/versions/" in key} == {
            f"{number:06d}" for number in two.state().numbers
        }
        n += step
    assert seen == {0, len(DONE[name])}
    assert n > 9


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_it_is_made(bucket: OneBucket, step: int) -> None:
    """There is no registry, or an empty one; the next writer makes it."""
    n = 1
    while True:
        bucket.hooks["killed"] = kill = Kill(n)
        conditional_puts._tested.clear()
        address = bucket.at(f"r{n}")
        try:
            Registry.create(bucket.at(f"r{n}", "killed"))
        except CoremarginError:
            assert kill.happened
        bucket.hooks.clear()
        assert Registry.create(address).state().lines == ()
        vacuum(address, older_than=0)
        if not kill.happened:
            break
        assert {key.rpartition("/")[2] for key in bucket.content() if key.startswith(f"r{n}/")} == {
            "log.jsonl", "registry.json", "writer.json",
        }  # fmt: skip
        n += step
    assert n > 10


@pytest.mark.parametrize("other", ["add", "promote"])
@pytest.mark.parametrize(("name", "step"), EVERY[:-1])
def test_stopped_before_every_request(
    bucket: OneBucket, two: Registry, models: list[Path], name: str, step: int, other: str
) -> None:
    """Another writer changes the registry meanwhile: both changes are there, one after the other, each once."""
    before, content, n = len(lines(two)), bucket.content(), 1
    changes = {"add": lambda: add(two, models[0]), "promote": lambda: promote(two, 1, alias="shadow")}
    while True:
        bucket.hooks.clear()
        bucket.restore(content)
        bucket.hooks["stopped"] = stop = Stop(n, changes[other])
        made = CHANGES[name](Registry(bucket.at("team/models", "stopped")), models)
        bucket.hooks.clear()
        check_whole(two)
        found = [line[:2] for line in lines(two)[before:]]
        first = [("trained", made), ("promoted", made)] if name == "add" else DONE[name]
        second: list[tuple[Any, Any]] = [("promoted", 1)]
        if other == "add":
            second = [(action, 3 if made != 3 else 4) for action in ("trained", "promoted")]
        assert found in ([first + second, second + first] if stop.happened else [first]), n
        if not stop.happened:
            break
        n += step
    assert n > 9


def test_two_writers_write_the_same_line(bucket: OneBucket, two: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one second, by one user: that of the other is not taken for a lost answer about one's own."""
    promote(two, 1)
    promote(two, 2)
    monkeypatch.setattr(room, "now", lambda: "2026-01-01T00:00:00Z")
    content, n, failed = bucket.content(), 1, 0
    while True:
        bucket.hooks.clear()
        bucket.restore(content)
        before = len(lines(two))
        bucket.hooks["stopped"] = stop = Stop(n, lambda: promote(two, 1, expected=2))
        try:
            assert promote(Registry(bucket.at("team/models", "stopped")), 1, expected=2) is not None
        except Busy:
            failed += 1
        assert len(lines(two)) == before + 1
        if not stop.happened:
            break
        n += 1
    assert failed > 5


def lose_answer(monkeypatch: pytest.MonkeyPatch, ending: str, then: Callable[[], Any]) -> list[int]:
    """The next put of an object is done, ``then`` is called, and no answer comes, whatever is done to find out."""
    left, write = [1], ConditionalPuts._write

    def without_answer(puts: ConditionalPuts, request: Callable[[], Any], key: str) -> Any:
        result = write(puts, request, key)
        if left and f"{puts.address}/{key}".endswith(ending) and isinstance(result, dict):
            left.pop()
            then()
            raise NoAnswer("no answer")
        return result

    monkeypatch.setattr(ConditionalPuts, "_write", without_answer)
    return left


@pytest.mark.parametrize("ending", ["log.jsonl", "versions/000003/current.json"])
@pytest.mark.parametrize("other", [False, True])
def test_a_lost_answer_adds_nothing_twice(
    two: Registry, models: list[Path], monkeypatch: pytest.MonkeyPatch, ending: str, other: bool
) -> None:
    """Also if another writer has changed the registry since: the log says whether a line came first."""
    before = len(lines(two))
    left = lose_answer(monkeypatch, ending, partial(promote, two, 1, alias="shadow") if other else lambda: None)
    assert add(two, models[2]) == 3
    assert not left
    assert sorted(line[:2] for line in lines(two)[before:]) == sorted([*DONE["add"], *([("promoted", 1)] * other)])
    check_whole(two)
    left = lose_answer(monkeypatch, "log.jsonl", partial(promote, two, 2, alias="third") if other else lambda: None)
    assert promote(two, 3) is not None
    assert not left
    assert len([line for line in lines(two) if line[:2] == ("promoted", 3)]) == 2
    check_whole(two)


def test_near_rows_of_quiet_nights_are_copied(
    two: Registry, models: list[Path], bucket: OneBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the service, from the version before, if they are the same; else, or if it does not, they are uploaded."""
    quiet = tmp_path / "quiet.model"
    shutil.copytree(models[2], quiet)
    shutil.copy(models[1] / NEAR_ROWS, quiet / NEAR_ROWS)
    assert not bucket.copied
    assert add(two, quiet) == 3
    (target,) = bucket.copied
    assert target.startswith("team/models/versions/000003/generations/")
    assert target.endswith(NEAR_ROWS)
    check_whole(two)

    def refused(*_: object) -> None:
        raise OSError("refused")

    bucket.copied.clear()
    monkeypatch.setattr(obstore, "copy", refused)
    assert add(two, models[1]) == 4
    assert not bucket.copied
    check_whole(two)


def test_an_upload_that_lost_objects_is_no_version(two: Registry, models: list[Path], bucket: OneBucket) -> None:
    """Whoever finds it, killed before it was logged, removes it; its number is not used again."""
    content = bucket.content()
    add(two, models[2])
    log = bucket.content()
    bucket.restore({**log, "team/models/log.jsonl": content["team/models/log.jsonl"]})
    lost = next(key for key in log if "000003" in key and key.endswith("arrays.npz"))
    obstore.delete(bucket.all, lost)
    assert two.state().numbers == (1, 2)
    two.complete()
    assert two.state().numbers == (1, 2)
    assert two.state().lines[-1].action == "removed"
    assert not any("000003" in key for key in bucket.content())
    assert add(two, models[2]) == 4
    check_whole(two)


def test_what_is_in_progress_stays(two: Registry, models: list[Path], bucket: OneBucket, monkeypatch: Any) -> None:
    """`vacuum` leaves an upload alone for a day, as it may become a version."""
    bucket.hooks["killed"] = Kill(38)
    with pytest.raises(CoremarginError):
        add(Registry(bucket.at("team/models", "killed")), models[2])
    found = vacuum(two.path, older_than=0)
    assert [one.what.partition("generations/")[0] for one in found.kept] == ["perhaps in progress: versions/000003/"]
    monkeypatch.setattr("coremargin.data.object_storage.now_there", lambda puts: time.time() + 86_500)
    monkeypatch.setattr(lease, "now_there", lambda puts: time.time() + 86_500)
    found = vacuum(two.path, older_than=0)
    assert not found.kept
    assert found.objects
    assert not any("000003" in key for key in bucket.content())
    check_whole(two)


def test_a_run_at_a_time(two: Registry, bucket: OneBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one is told of the first; whoever only changes an alias need not wait; what ended may run again."""
    with run_lock(two.path):
        second = r"another writer is at work there: process \d+ of .*; nothing was done"
        with pytest.raises(Running, match=second), run_lock(two.path):
            raise AssertionError
        with pytest.raises(Busy, match="another writer is at work there"):
            vacuum(two.path, older_than=0)
        promote(two, 1)
    with run_lock(two.path):
        pass
    with run_lock(bucket.at("team/models", "killed")):
        bucket.hooks["killed"] = Kill(1)  # the lease stays
    with pytest.raises(Running, match=r"if it was killed, for \d+ seconds"), run_lock(two.path):
        raise AssertionError
    monkeypatch.setattr(lease, "now_there", lambda puts: time.time() + 61)
    with run_lock(two.path):
        promote(two, 2)


def test_names_at_addresses(two: Registry, models: list[Path], bucket: OneBucket) -> None:
    """A model that has such a name comes first; numbers and aliases that are none are refused by both loaders."""
    address = two.path
    assert coremargin.load(f"{address}@champion").rows == 200
    assert coremargin.load(f"{address}@1").rows == 100
    store = models[0].with_name("rows.zarr")
    with pytest.raises(CoremarginError, match=r"versions/000002: \d claims are false of"):
        coremargin.verify(f"{address}@champion", store)
    for name, error, message in (
        ("nobody", DataError, "no version has the alias 'nobody'"),
        ("7", DataError, "has no version 7"),
        ("Champion", UsageError, "expected an alias or a version number after @, found 'Champion'"),
    ):
        with pytest.raises(error, match=message):
            coremargin.load(f"{address}@{name}")
        with pytest.raises(error, match=message):
            coremargin.verify(f"{address}@{name}", store)
    coremargin.load(models[2]).save(bucket.at("team/models@champion"))
    assert coremargin.load(f"{address}@champion").rows == 300
    with pytest.raises(DataError, match="expected a model, found nothing there"):
        coremargin.load(bucket.at("team/none@champion"))


def test_altered_registries_are_found(two: Registry, models: list[Path], bucket: OneBucket) -> None:
    """A line of the log, a log that is cut, the record of a version: by both loaders, and by who lists."""
    content, key = bucket.content(), "team/models/log.jsonl"
    store = models[0].with_name("rows.zarr")
    whole = content[key].splitlines(keepends=True)
    for wrong in (
        content[key].replace(b'"version": 1', b'"version": 2', 1),
        b"".join([*whole[:1], *whole[2:]]),
        b"".join([*whole[:-2], whole[-1]]),
    ):
        bucket.restore({**content, key: wrong})
        for read in (partial(coremargin.load, f"{two.path}@champion"), two.state, partial(promote, two, 1)):
            with pytest.raises(DataError, match=r"log\.jsonl, line \d"):
                read()
        with pytest.raises(DataError, match=r"log\.jsonl, line \d"):
            coremargin.verify(f"{two.path}@champion", store)
        assert bucket.content()[key] == wrong
    record = next(key for key in content if key.endswith("version.json") and "000002" in key)
    bucket.restore({**content, record: content[record].replace(b'"parent": 1', b'"parent": 2')})
    with pytest.raises(DataError, match="the record was changed"):
        two.record(2)
    del content[key]
    bucket.restore(content)
    with pytest.raises(DataError, match="expected the log of a registry, found nothing"):
        coremargin.load(f"{two.path}@champion")


def test_a_damaged_answer_is_no_state(two: Registry, bucket: OneBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a network alters in the last line, which no later hash covers, is neither believed nor written back."""
    from coremargin.formats import object_storage

    damaged, real, key = list[int](), object_storage.ObjectReader.open, "log.jsonl"

    def flipped(reader: Any, name: str) -> Any:
        import io

        file = real(reader, name)
        if name != key or len(damaged) % 2:
            damaged.append(0) if name == key else None
            return file
        damaged.append(1)
        data = file.read()
        at = data.rindex(b'"version": 2') + len(b'"version": 2') - 1
        return io.BytesIO(data[:at] + b"1" + data[at + 1 :])

    monkeypatch.setattr(object_storage.ObjectReader, "open", flipped)
    assert coremargin.load(f"{two.path}@champion").rows == 200
    assert two.state().version_of("champion") == 2
    assert rollback(two).version == 1
    monkeypatch.undo()
    bucket_again = OneBucket(monkeypatch)
    bucket_again.all = bucket.all
    check_whole(Registry(two.path))
    assert sum(damaged) >= 3


def test_what_is_no_registry(bucket: OneBucket, models: list[Path], tmp_path: Path) -> None:
    """Nothing is written where a model or other objects lie, in a bucket itself, or below a model."""
    coremargin.load(models[0]).save(bucket.at("a.model"))
    obstore.put(bucket.all, "mine/text.txt", b"mine")
    content = bucket.content()
    for name, message in (
        ("a.model", "expected a registry or an empty folder, found"),
        ("mine", "expected a registry or an empty folder, found 'text.txt'"),
        ("a.model/below", "lies in a store or a model"),
    ):
        with pytest.raises(UsageError, match=message):
            Registry.create(bucket.at(name))
        with pytest.raises(DataError, match="expected a registry, found no registry.json"):
            Registry(bucket.at(name))
    assert bucket.content() == content
    registry = Registry.create(bucket.at("mine too"))
    with pytest.raises(UsageError, match="expected a model or nothing, found something else"):
        coremargin.load(models[0]).save(registry.path)
