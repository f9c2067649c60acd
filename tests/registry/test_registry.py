"""Versions, names that move between them, and the log: what is there, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

import coremargin
from coremargin.data.locked import Locked
from coremargin.data.writer import StoreWriter
from coremargin.errors import Busy, DataError, OutputError, StoreError, UsageError
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.formats.versions import resolve_model
from coremargin.registry import registry as room
from coremargin.registry.add_version import add
from coremargin.registry.aliases import collect, promote, rollback
from coremargin.registry.registry import Registry
from registry_kit import append, check_whole, rows

if TYPE_CHECKING:
    from click.testing import Result

    Run = Callable[..., Result]

Three = tuple[Path, list[Path]]


def test_versions_are_what_they_were_made_of(registry: Registry, three: Three) -> None:
    """Each has its certificate, its parent, its commit; it is the model to the bit, and is not added twice."""
    check_whole(registry)
    records = [registry.record(number) for number in (1, 2, 3)]
    assert [record.parent for record in records] == [None, 1, 2]
    assert [(record.commit, record.rows) for record in records] == [(0, 100), (1, 200), (2, 300)]
    assert sum(count for _, count in records[2].classes) == 300
    assert records[0].status == "certified"
    assert (registry.folder(3) / "arrays.npz").read_bytes() == (three[1][2] / "arrays.npz").read_bytes()
    assert add(registry, three[1][2]) == 3
    assert add(registry, three[1][0]) == 4  # an older one is a version like any other
    assert registry.state().aliases["candidate"].version == 4


def test_names_move_and_move_back(registry: Registry) -> None:
    """A name is the version's that got it last; a rollback goes to the one before, as often as there is one."""
    assert promote(registry, 1) is not None
    assert promote(registry, 1) is None
    promote(registry, 2)
    promote(registry, 3, expected=2)
    assert rollback(registry, comment="too bold").version == 2
    assert rollback(registry).version == 1
    with pytest.raises(UsageError, match=r"no version was champion before version 1; choose one with --to"):
        rollback(registry)
    assert rollback(registry, to=3).version == 3
    lines = [(line.number, line.action, line.version, line.previous) for line in registry.state().lines[-3:]]
    assert lines == [(10, "rolled back", 2, 3), (11, "rolled back", 1, 2), (12, "rolled back", 3, 1)]
    assert registry.state().aliases["champion"].fence == 12


@pytest.mark.parametrize("killed", [False, True])
def test_the_log_lasts_before_an_alias_follows(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Or a power cut could lose the line and keep the alias; also where the next writer moves it after a kill."""
    events, replace, fsync = list[tuple[str, str]](), os.replace, os.fsync
    root = Path(registry.path)
    if killed:
        promote(registry, 2)
        (root / "aliases/champion").unlink()

    def replaced(source: str, target: str, **options: int) -> None:
        events.append(("replace", str(target)))
        replace(source, target, **options)

    def synced(handle: int) -> None:
        if os.path.samestat(os.fstat(handle), root.stat()):
            events.append(("fsync", str(root)))
        fsync(handle)

    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(os, "fsync", synced)
    registry.complete() if killed else promote(registry, 2)
    alias = events.index(("replace", str(root / "aliases/champion")))
    written = -1 if killed else events.index(("replace", str(root / "log.jsonl")))
    assert ("fsync", str(root)) in events[written + 1 : alias]
    assert registry.state().version_of("champion") == 2


def test_a_name_is_a_model_wherever_one_is_taken(registry: Registry, three: Three, run_cli: Run) -> None:
    """Commands, job files and Python take REGISTRY@NAME and REGISTRY@NUMBER; a folder of that name comes first."""
    promote(registry, 2)
    store = three[0] / "rows.zarr"
    assert coremargin.load(f"{registry.path}@champion").rows == 200
    assert coremargin.verify(f"{registry.path}@3", store).ok
    assert "rows           200 of 3" in run_cli("show", f"{registry.path}@champion").output
    run_cli("evaluate", f"{registry.path}@3", store)
    run_cli("predict", f"{registry.path}@champion", store, registry.path.parent / "labels.csv")
    out = registry.path.parent / "new.model"
    run_cli("retrain", f"{registry.path}@champion", store, "--out", out, "-q")
    assert coremargin.load(out).rows == 300
    own = registry.path.with_name("registry@champion")
    shutil.copytree(registry.folder(1), own)
    assert coremargin.load(own).rows == 100


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("nobody", DataError, "no version has the alias 'nobody'"),
        ("7", DataError, "has no version 7"),
        ("Champion", UsageError, "expected an alias or a version number after @, found 'Champion'"),
        ("", UsageError, "found ''"),
    ],
)
def test_names_that_are_no_ones(registry: Registry, name: str, error: type[Exception], message: str) -> None:
    """They are refused with what there is."""
    with pytest.raises(error, match=message):
        resolve_model(registry.path.with_name(f"registry@{name}"))


def test_of_two_promotions_at_once_one_is_told_of_the_other(registry: Registry) -> None:
    """Who expects another champion than there is by now is refused, and told who was faster; nothing has moved."""
    promote(registry, 1)
    promote(registry, 2, expected=1)
    with pytest.raises(
        Busy,
        match=r"expected champion to be version 1, found version 2: another process .* first \(.+@.+\)",
    ):
        promote(registry, 3, expected=1)
    assert registry.state().aliases["champion"].version == 2


def test_a_lock_that_is_held_too_long_is_told(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever cannot write in time is told so, and has changed nothing; readers do not wait."""
    monkeypatch.setattr(room, "LOCK_TIMEOUT_S", 0.05)
    with Locked(registry.path / "log.jsonl", "this"):
        with pytest.raises(Busy, match="another job is writing this registry; try again in a moment"):
            promote(registry, 1)
        assert registry.state().aliases.keys() == {"candidate"}


def test_old_versions_go_and_are_remembered(registry: Registry, three: Three) -> None:
    """Those without a name, which no rollback would need, go; to roll back to one says that it was removed."""
    for model in (three[1][0], three[1][1], three[1][2], three[1][0]):
        add(registry, model)
    promote(registry, 2)
    promote(registry, 3)
    assert collect(registry, keep=2, dry_run=True) == [1, 4, 5]
    assert collect(registry, keep=2) == [1, 4, 5]
    assert registry.state().numbers == (2, 3, 6, 7)
    check_whole(registry)
    with pytest.raises(
        DataError, match=r"version 4 was removed \(.+\): not among the newest 2; choose one of 2, 3, 6, 7"
    ):
        rollback(registry, to=4)
    with pytest.raises(DataError, match="version 1 was removed"):
        promote(registry, 1)
    assert add(registry, three[1][2]) == 8  # no number is given twice


def test_versions_of_quiet_nights_share_their_near_rows(
    registry: Registry, three: Three, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file with a name in each version, which outlives the versions before; else it is copied."""
    store = tmp_path / "more.zarr"
    with StoreWriter.create(store, features=3, chunk_bytes=50 * 12) as writer:
        writer.write(*rows(5000, 1), origin="test")
    coremargin.train(store, out=tmp_path / "first")
    add(registry, tmp_path / "first", store)
    append(store, 50, 2)
    coremargin.retrain(f"{registry.path}@4", store, out=tmp_path / "second")
    assert (tmp_path / "first" / NEAR_ROWS).samefile(tmp_path / "second" / NEAR_ROWS)
    add(registry, tmp_path / "second")
    assert (registry.folder(5) / NEAR_ROWS).stat().st_nlink == 4
    check_whole(registry)
    append(store, 50, 3)
    coremargin.retrain(f"{registry.path}@5", store, out=tmp_path / "third")
    add(registry, tmp_path / "third")
    for name in ("first", "second", "third"):
        shutil.rmtree(tmp_path / name)
    collect(registry, keep=1)
    assert registry.state().numbers == (5, 6)
    assert (registry.folder(6) / NEAR_ROWS).stat().st_nlink == 2
    check_whole(registry)

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused)
    append(store, 50, 4)
    coremargin.retrain(f"{registry.path}@6", store, out=tmp_path / "fourth")
    add(registry, tmp_path / "fourth")
    assert (registry.folder(7) / NEAR_ROWS).stat().st_nlink == 1
    check_whole(registry)


def test_a_pipe_in_place_of_near_rows_is_refused(registry: Registry, three: Three, tmp_path: Path) -> None:
    """At once: whoever read it would wait for ever, and hold the lock."""
    coremargin.train(three[0] / "rows.zarr", out=tmp_path / "other", epsilon=0.5)
    model = tmp_path / "other"
    (model / NEAR_ROWS).unlink(missing_ok=True)
    os.mkfifo(model / NEAR_ROWS)
    with pytest.raises(OutputError, match="named pipe"):
        add(registry, model)
    assert registry.state().numbers == (1, 2, 3)


def test_who_reads_goes_on_with_what_the_name_was(registry: Registry) -> None:
    """A path that was looked up stays that of the old champion, which is there as long as a rollback would need it."""
    promote(registry, 2)
    place = resolve_model(Path(f"{registry.path}@champion"))
    promote(registry, 3)
    collect(registry, keep=1)
    assert coremargin.load(place).rows == 200


def test_a_version_may_lie_on_another_disk(registry: Registry, tmp_path: Path) -> None:
    """A folder that was moved, with a link in its place, is the version still; one without a log line is none."""
    shutil.move(registry.folder(1), tmp_path / "moved")
    Path(registry.folder(1)).symlink_to(tmp_path / "moved")
    (registry.path / "versions" / "000009").mkdir()
    assert registry.state().numbers == (1, 2, 3)
    assert promote(registry, 1) is not None
    check_whole(registry)


def test_models_of_other_rows_are_refused(registry: Registry, three: Three, tmp_path: Path) -> None:
    """A model of another store, of a commit that is gone, or without a word on its store: nothing is added."""
    append(tmp_path / "other.zarr", 60, 9)
    with pytest.raises(StoreError, match="sha256"):
        add(registry, three[1][0], tmp_path / "other.zarr")
    with pytest.raises(StoreError, match="nothing.zarr: expected a store, found nothing there"):
        add(registry, three[1][0], tmp_path / "nothing.zarr")
    coremargin.train(*rows(60, 1)).save(tmp_path / "own.model")
    with pytest.raises(UsageError, match="the model has no record of its store"):
        add(registry, tmp_path / "own.model")
    assert registry.state().numbers == (1, 2, 3)
    assert not list((registry.path / "versions").glob(".*"))


def test_altered_registries_are_found(registry: Registry) -> None:
    """A line of the log, a version's record, an alias that the log does not know: each is told."""
    promote(registry, 2)
    record = registry.folder(2) / "version.json"
    text = record.read_text()
    record.write_text(text.replace('"parent": 1', '"parent": 3'))
    with pytest.raises(DataError, match="the record was changed"):
        registry.record(2)
    record.write_text(text)
    alias = registry.path / "aliases" / "champion"
    alias.write_text(json.dumps({"version": 3, "fence": 99}))
    with pytest.raises(DataError, match="was moved by line 99 of the log, which has 7 lines"):
        promote(registry, 3)
    shutil.rmtree(registry.path / "versions" / "000001")
    with pytest.raises(DataError, match="has no version 1"):
        registry.record(1)
    log = registry.path / "log.jsonl"
    log.write_text(log.read_text().replace('"version": 2', '"version": 3', 1))
    with pytest.raises(DataError, match=r"log.jsonl, line 4: hash of the line before"):
        registry.state()


def test_a_clock_that_jumps_changes_no_order(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came last is what the log has last, whatever the clock says."""
    monkeypatch.setattr(room, "now", lambda: "1999-01-01T00:00:00Z")
    promote(registry, 1)
    promote(registry, 2)
    monkeypatch.setattr(room, "now", lambda: "2999-01-01T00:00:00Z")
    assert rollback(registry).version == 1
    assert [line.when[:4] for line in registry.state().lines[-3:]] == ["1999", "1999", "2999"]


def test_a_disk_that_is_read_only_can_be_read(
    registry: Registry, run_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are found and versions listed where nothing can be written; what would write says so."""
    promote(registry, 1)

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(FileLock, "acquire", refused)
    assert coremargin.load(f"{registry.path}@champion").rows == 100
    assert "champion" in run_cli("registry", "list", registry.path).output
    assert "the file system is read-only" in run_cli("registry", "promote", registry.path, "2", exit_code=5).stderr
    assert "the file system is read-only" in run_cli("registry", "gc", registry.path, exit_code=5).stderr
    assert registry.state().aliases["champion"].version == 1


def test_what_is_no_registry(tmp_path: Path, run_cli: Run) -> None:
    """A folder with other files becomes none; what is none is not read as one."""
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="expected a registry or an empty folder, found 'mine.txt'"):
        Registry.create(tmp_path)
    assert "expected a registry, found no registry.json" in run_cli("registry", "list", tmp_path, exit_code=3).stderr
    empty = Registry.create(tmp_path / "empty")
    assert "no versions yet" in run_cli("registry", "list", empty.path).output
    assert "nothing to roll back" in run_cli("registry", "rollback", empty.path, exit_code=3).stderr


def test_the_commands(registry: Registry, run_cli: Run) -> None:
    """List, show, promote, roll back, collect, log: for people, and as JSON."""
    place = registry.path
    assert "champion is version 2 now, no version before" in run_cli("registry", "promote", place, "2").output
    run_cli("registry", "promote", place, "candidate", "--expect", "2", "--comment", "better")
    stale = run_cli("registry", "promote", place, "1", "--expect", "2", exit_code=5).stderr
    assert "expected champion to be version 2, found version 3" in stale
    listed = json.loads(run_cli("registry", "list", place, "--json").output)
    assert listed["aliases"] == {"candidate": 3, "champion": 3}
    assert [entry["version"] for entry in listed["versions"]] == [3, 2, 1]
    assert "candidate, champion" in run_cli("registry", "list", place).output
    shown = json.loads(run_cli("registry", "show", place, "champion", "--json").output)
    assert (shown["version"], shown["parent"], shown["decision"]) == (3, 2, None)
    assert "store" in run_cli("registry", "show", place, "3").output
    started = time.perf_counter()
    assert "champion is version 2 now, version 3 before" in run_cli("registry", "rollback", place).output
    assert time.perf_counter() - started < 1.0
    assert "1 version would be removed: 1" in run_cli("registry", "gc", place, "--keep", "1", "--dry-run").output
    assert json.loads(run_cli("registry", "gc", place, "--keep", "1", "--json").output)["removed"] == [1]
    said = run_cli("registry", "log", place, "--last", "3").output
    assert "rolled back version 2 as champion, previously 3" in said
    assert json.loads(run_cli("registry", "log", place, "--json").output)["lines"][0]["action"] == "removed"
    assert (
        "expected a version number or an alias, found 'best'"
        in run_cli("registry", "show", place, "best", exit_code=3).stderr
    )
