"""Commands and nightly jobs on registries in buckets, and several writers at once on a service."""

from __future__ import annotations

import html
import json
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

import coremargin
from cloud_kit import KEYS
from coremargin.data import conditional_puts
from coremargin.data.vacuum import vacuum
from coremargin.errors import OutputError, UsageError
from coremargin.formats.location import location
from coremargin.formats.object_storage import ObjectReader
from coremargin.registry.add_version import add
from coremargin.registry.aliases import promote
from coremargin.registry.registry import Registry
from coremargin.registry.run_lock import run_lock
from night_kit import job_in, put
from registry_kit import check_whole, grown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from cloud_kit import BucketServer, Proxy
    from coremargin.formats.location import Location

    Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where checkpoints of models at addresses lie."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of three commits of one store."""
    return grown(tmp_path_factory.mktemp("models"), 3)[1]


def everything(address: Location) -> dict[str, bytes]:
    """All objects of the bucket."""
    reader = ObjectReader(location("/".join(address.split("/")[:3]), address.options))
    return {key: reader.open(key).read() for key, _ in reader.list_all()}


def test_the_commands(run: Run, bucket: Callable[..., Location], models: list[Path], tmp_path: Path) -> None:
    """A registry is made, changed and read; its versions are models wherever one is taken; no secret is written."""
    place, store = bucket("a b%20c/models"), models[0].with_name("rows.zarr")
    options = ["--storage-option", f"endpoint={place.options['endpoint']}"]

    def registry(*words: object, code: int = 0) -> Result:
        found = run("registry", *map(str, words), *options)
        assert found.exit_code == code, found.output
        return found

    for number, model in enumerate(models, start=1):
        assert registry("add", place, model).stdout == f"version {number}: {place}/versions/00000{number}\n"
    assert json.loads(registry("add", place, f"{place}@3", "--json").stdout)["version"] == 3
    assert "champion is version 2 now, no version before" in registry("promote", place, "2").stdout
    registry("promote", place, "candidate", "--expect", "2", "--comment", "better")
    assert (
        "expected champion to be version 2, found version 3"
        in registry("promote", place, "1", "--expect", "2", code=5).stderr
    )
    assert json.loads(registry("list", place, "--json").stdout)["aliases"] == {"candidate": 3, "champion": 3}
    assert "parent   2" in registry("show", place, "champion").stdout
    assert "100 rows were added to 200" in registry("diff", place, "2", "3").stdout
    assert "champion is version 2 now, version 3 before" in registry("rollback", place).stdout
    assert "1 version removed: 1" in registry("gc", place, "--keep", "1").stdout
    assert "rolled back version 2 as champion, previously 3" in registry("log", place).stdout
    registry("page", place, "--out", tmp_path / "models.html")
    page = (tmp_path / "models.html").read_text()
    assert "Version 2 is the champion" in page
    assert f"{place}</bdi>" in page
    assert f"predict '{place}'@champion ROWS LABELS.csv {' '.join(options)}" in html.unescape(page)
    assert f"rollback '{place}' {' '.join(options)}" in html.unescape(page)
    check_whole(Registry(place))
    before = everything(place)

    for words in (
        ["show", f"{place}@champion"],
        ["predict", f"{place}@champion", store, tmp_path / "labels.csv"],
        ["evaluate", f"{place}@champion", store],
        ["verify", f"{place}@3", store],
        ["retrain", f"{place}@champion", store, "--out", tmp_path / "new.model"],
        ["export", f"{place}@champion", tmp_path / "champion.onnx"],
    ):
        found = run(*map(str, words), *options)
        assert found.exit_code == 0, found.output
    for name in ("champion", "3"):
        assert coremargin.load(f"{place}@{name}", storage_options=place.options).kind == "hard_margin"
    assert coremargin.verify(location(f"{place}@3", place.options), store).ok
    again = coremargin.retrain(location(f"{place}@champion", place.options), store)
    assert again.rows == 300
    (tmp_path / "job.toml").write_text(
        f'job = "retrain"\nstore = "{store}"\nout = "again.model"\n'
        f'model = {{ address = "{place}@champion", endpoint = "{place.options["endpoint"]}" }}\n'
    )
    done = run("run", str(tmp_path / "job.toml"))
    assert done.exit_code == 0, done.output
    assert everything(place) == before
    for secret in (KEYS["AWS_SECRET_ACCESS_KEY"], KEYS["AWS_ACCESS_KEY_ID"]):
        assert not any(secret.encode() in data for data in before.values())
        assert secret not in page


def test_what_is_no_registry(run: Run, bucket: Callable[..., Location], models: list[Path]) -> None:
    """Each command says so by the address, also of a version; options are for addresses alone."""
    place = bucket("none")
    options = ["--storage-option", f"endpoint={place.options['endpoint']}"]
    for words in (["list", place], ["promote", place, "1"], ["gc", place], ["page", place, "--out", "p.html"]):
        found = run("registry", *map(str, words), *options)
        assert found.exit_code == 3
        assert f"{place}: expected a registry, found no registry.json; check the path" in found.stderr
    assert "storage options are for addresses" in run("registry", "list", "models", *options).output
    whole = location(place.rpartition("/")[0], place.options)
    assert (
        "expected a place with a name, found a bucket"
        in run("registry", "add", str(whole), str(models[0]), *options).output
    )
    assert not everything(place)


def test_services_that_cannot_be_written_to(
    bucket: Callable[..., Location], proxy: Proxy, server: BucketServer, models: list[Path]
) -> None:
    """One that ignores conditions, or allows no puts, is refused before anything is written; all may be read."""
    place = bucket("models")
    add(Registry.create(place), models[0])
    before = everything(place)
    through = location(str(place), {"endpoint": proxy.endpoint})
    for ignored in ("if-none-match", "if-match"):
        conditional_puts._tested.clear()
        proxy.ignores = (ignored,)
        with pytest.raises(OutputError, match="this service ignores If-"):
            Registry.create(through)
        with pytest.raises(OutputError, match="this service ignores If-"):
            promote(Registry(through), 1)
    proxy.ignores = ()
    conditional_puts._tested.clear()
    proxy.refuse = lambda method, path: "AccessDenied" if method == "PUT" else ""
    with pytest.raises(OutputError, match="access denied .*writing needs the rights to") as denied:
        promote(Registry(through), 1)
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in str(denied.value)
    assert Registry(through).state().numbers == (1,)
    assert coremargin.load(f"{through}@candidate", storage_options=through.options).rows == 100
    assert everything(place) == before

    folder = server.root / "buck" / "models"  # the same objects on a web server, which lists nothing
    for key, data in before.items():
        path = folder.parent / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    web = f"{server.endpoint}/buck/models"
    assert coremargin.load(f"{web}@candidate").rows == 100
    assert coremargin.load(f"{web}@1").rows == 100
    with pytest.raises(UsageError, match="a web server is only read"):
        promote(Registry(web), 1)
    server.hidden = True  # without the right to list, a version is found all the same
    hidden = location("s3://buck/models@candidate", {"endpoint": server.endpoint})
    assert coremargin.load(hidden).rows == 100


@pytest.mark.slow
def test_several_writers_at_once(bucket: Callable[..., Location], models: list[Path]) -> None:
    """No version and no move is lost, twice, or half there; readers meet whole versions only."""
    place = bucket("models")
    registry, failures, done = Registry.create(place), list[Exception](), threading.Event()
    add(registry, models[0])
    promote(registry, 1)
    added, moved = list[int](), list[int]()

    def write(number: int) -> None:
        mine = Registry(place)
        for k in range(3):
            added.append(add(mine, models[(number + k) % 3]))
            line = promote(mine, added[-1], alias=f"alias-{number}")
            if line is not None:
                moved.append(line.number)
            mine.append("predicted", 1, source="rows", out=f"{number}-{k}")

    def read() -> None:
        while not done.is_set():
            assert coremargin.load(f"{place}@candidate", storage_options=place.options).rows in (100, 200, 300)
            assert registry.state().numbers

    def caught(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - of a thread
                failures.append(error)

        return run

    writers = [threading.Thread(target=caught(partial(write, number))) for number in range(3)]
    reader = threading.Thread(target=caught(read))
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert failures == []
    check_whole(registry)
    state = registry.state()
    assert sorted(line.out for line in state.lines if line.action == "predicted") == sorted(
        f"{number}-{k}" for number in range(3) for k in range(3)
    )
    trained = [line.version for line in state.lines if line.action == "trained"]
    assert trained == list(range(1, len(trained) + 1))
    assert set(added) <= set(trained)
    assert set(trained) == {1, *added}
    assert len(set(moved)) == len(moved)
    vacuum(place, older_than=0)
    check_whole(registry)
    assert not vacuum(place, older_than=0, dry_run=True).objects


NIGHTLY = """
job = "nightly"
store = { address = "%(store)s", endpoint = "%(endpoint)s" }
registry = { address = "%(registry)s", endpoint = "%(endpoint)s" }

[ingest]
inbox = "inbox"
label = "paid"
settle = "5 s"

[train]
epsilon = 1e-2

[gates]
class_shares = { yes = [0.1, 0.9] }

[predict]
rows = "new.csv"
out = "labels.csv"
"""


def test_a_nightly_job(run: Run, bucket: Callable[..., Location], tmp_path: Path) -> None:
    """Rows and versions in a bucket: models are trained here, gates verify them there; a second run is refused."""
    place = bucket("team/models")
    values = {"store": bucket("rows.zarr"), "registry": place, "endpoint": place.options["endpoint"]}
    job, job_file = job_in(tmp_path, NIGHTLY % values), str(tmp_path / "nightly.toml")
    assert job.work_folder == tmp_path / "nightly.work"
    nothing = run("run", job_file)
    assert nothing.exit_code == 0, nothing.output
    assert "no store yet" in nothing.output
    put(tmp_path, "a.csv", 60, 1)
    first = run("run", job_file)
    assert first.exit_code == 0, first.output
    assert "version 1 passed 4 gates" in first.output
    assert "nothing new: nothing was done" in run("run", job_file).output
    put(tmp_path, "b.csv", 40, 2)
    second = run("run", job_file)
    assert second.exit_code == 0, second.output
    assert "version 2 is the champion, version 1 before" in second.output
    registry = Registry(place)
    check_whole(registry)
    assert registry.record(2).parent == 1
    assert registry.record(2).rows == 100
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 11
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "inbox", "labels.csv", "new.csv", "nightly.toml", "nightly.work",
    ]  # fmt: skip
    options = ["--storage-option", f"endpoint={place.options['endpoint']}"]
    assert run("verify", f"{place}@champion", str(values["store"]), *options).exit_code == 0
    put(tmp_path, "c.csv", 4, 3)
    shrunk = NIGHTLY.replace("[0.1, 0.9]", "[0.99, 1.0]")
    (tmp_path / "nightly.toml").write_text(shrunk % values)
    refused = run("run", job_file)
    assert refused.exit_code == 10, refused.output
    assert "version 3 was refused" in refused.output
    assert registry.state().version_of("champion") == 2
    with run_lock(place):
        busy = run("run", job_file)
    assert busy.exit_code == 75
    assert f"{place}: another writer is at work there: process " in busy.stderr
    scheduled = run("schedule", job_file, "--on", "cron")
    assert scheduled.exit_code == 0, scheduled.output
    assert not vacuum(place, older_than=0, dry_run=True).objects


@pytest.mark.slow
def test_a_nightly_job_goes_on(
    run: Run, bucket: Callable[..., Location], tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails before its version is logged: the next one logs that version, and trains no other."""
    place = bucket("models")
    values = {"store": bucket("rows.zarr"), "registry": place, "endpoint": proxy.endpoint}
    job_in(tmp_path, NIGHTLY % values)
    put(tmp_path, "a.csv", 60, 1)
    assert run("run", str(tmp_path / "nightly.toml")).exit_code == 0
    put(tmp_path, "b.csv", 40, 2)
    uploaded = list[str]()

    def refuse(method: str, path: str) -> str:
        if method == "PUT" and path.endswith("versions/000002/current.json"):
            uploaded.append(path)
        return "AccessDenied" if uploaded and method == "PUT" and path.endswith("log.jsonl") else ""

    proxy.refuse = refuse
    failed = run("run", str(tmp_path / "nightly.toml"))
    assert failed.exit_code == 5, failed.output
    assert "access denied" in failed.stderr
    assert Registry(place).state().numbers == (1,)
    proxy.refuse = lambda method, path: ""
    done = run("run", str(tmp_path / "nightly.toml"))
    assert done.exit_code == 0, done.output
    assert "version 2 is up to date" in done.output
    assert "version 2 is the champion" in done.output
    registry = Registry(place)
    check_whole(registry)
    assert registry.state().numbers == (1, 2)
