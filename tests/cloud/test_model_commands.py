"""Commands on models in buckets: written as generations, read by all commands, the same as on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin
from cloud_kit import KEYS
from coremargin.data import vacuum as leftovers
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.synth import Recipe, synth
from coremargin.errors import Busy, OutputError, RunError, StoreError, UsageError
from coremargin.formats.location import location
from coremargin.formats.object_storage import ObjectReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from cloud_kit import BucketServer, Proxy
    from coremargin.formats.location import Location


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where checkpoints of models at addresses lie."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def options(moto: str) -> list[str]:
    """Those of the bucket."""
    return ["--storage-option", f"endpoint={moto}"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows on this machine."""
    path: Path = tmp_path_factory.mktemp("rows") / "rows.zarr"
    synth(path, Recipe(4_000, 10, chunk_bytes=20_000))
    return path


def objects(address: Location) -> dict[str, bytes]:
    """All of a model."""
    reader = ObjectReader(address)
    return {key: reader.open(key).read() for key, _ in reader.list_all()}


def test_train_to_a_bucket(
    run: Callable[..., Result],
    bucket: Callable[..., Location],
    store: Path,
    options: list[str],
    tmp_path: Path,
    state: Path,
) -> None:
    """The model has the bytes of a local one, verifies, is replaced only on request, and leaves nothing behind."""
    local, address = tmp_path / "rows.model", bucket("a b%20c/rows.model")
    words = ["train", str(store), "--epsilon", "0.01"]
    assert run(*words, "--out", str(local)).exit_code == 0
    result = run(*words, "--out", str(address), *options)
    assert result.exit_code == 0, result.output
    assert f"verify '{address}' {store} --storage-option endpoint=" in result.output.replace("\n", " ")
    found = objects(address)
    assert f"report  {ObjectReader(address).address_of('report.html')}" in result.output
    assert found.keys() == {file.name for file in local.iterdir()}
    for name in ("arrays.npz", "retraining.npz"):
        assert found[name] == (local / name).read_bytes()
    assert json.loads(found["model.json"]) == json.loads((local / "model.json").read_bytes())
    assert json.loads(found["run.json"])["out"] == str(address)
    assert not list(state.rglob("*.checkpoint"))
    assert run("verify", str(address), str(store), *options).exit_code == 0
    again = run(*words, "--out", str(address), *options)
    assert again.exit_code == 2
    assert "a model is there already; choose another place, or give --overwrite" in again.output
    first = ObjectReader(address).generation
    assert run(*words, "--out", str(address), *options, "--overwrite").exit_code == 0
    second = ObjectReader(address).generation
    assert first is not None
    assert second is not None
    assert first != second
    everything = [key for key, _ in ObjectReader(bucket("a b%20c")).list_all()]
    assert not any(first.generation in key for key in everything)
    assert len(everything) == len(found) + 1
    resumed = run(*words, "--out", str(address), *options, "--resume")
    assert resumed.exit_code == 0
    assert "nothing to do" in resumed.output


def test_commands_read_models_from_buckets(
    run: Callable[..., Result], bucket: Callable[..., Location], store: Path, options: list[str], tmp_path: Path
) -> None:
    """Their outputs are those of the local copy, by bytes."""
    local, address = tmp_path / "rows.model", bucket("rows.model")
    made = run("train", str(store), "--out", str(local), "--loss", "hinge", "--C", "0.1,1", "--folds", "2")
    assert made.exit_code == 0, made.output
    for file in (file for file in local.rglob("*") if file.is_file()):
        ObjectStorage(address).write(str(file.relative_to(local)), [file.read_bytes()])
    for words in (
        ["show", "{}"],
        ["show", "{}", "--json"],
        ["coefficients", "{}", "--csv"],
        ["evaluate", "{}", str(store), "--json", "-q"],
        ["verify", "{}", str(store), "--json", "-q"],
    ):
        expected = run(*(word.format(local) for word in words))
        found = run(*(word.format(address) for word in words), *options)
        assert expected.exit_code == found.exit_code == 0, found.output
        assert found.output.replace(str(address), str(local)) == expected.output
    for name in ("a.csv", "b.csv", "a.parquet", "b.parquet"):
        model = [str(local)] if name[0] == "a" else [str(address), *options]
        assert run("predict", model[0], str(store), str(tmp_path / name), *model[1:]).exit_code == 0
    for ending in ("csv", "parquet"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    assert coremargin.load(str(address), storage_options=address.options).record == coremargin.load(local).record
    assert run("registry", "add", str(tmp_path / "models"), str(address), *options).exit_code == 0
    assert run("verify", f"{tmp_path}/models@candidate", str(store)).exit_code == 0


def test_retrain_in_a_bucket(
    run: Callable[..., Result], bucket: Callable[..., Location], options: list[str], tmp_path: Path
) -> None:
    """The earlier model with its warm-start state is read there; a model may take its own place."""
    store, address = tmp_path / "rows.zarr", bucket("rows.model")
    opened = synth(store, Recipe(4_000, 10, chunk_bytes=20_000))
    assert run("train", str(store), "--out", str(address), "--epsilon", "0.01", *options).exit_code == 0
    coremargin.remove_rows(store, [5])
    result = run("retrain", str(address), str(store), "--out", str(address), "--overwrite", *options)
    assert result.exit_code == 0, result.output
    record = json.loads(objects(address)["run.json"])
    assert record["retrained"]["model"] == str(address)
    assert "from_scratch" not in record["retrained"]
    assert record["bytes_read"] < opened.nbytes / 2
    assert run("verify", str(address), str(store), *options).exit_code == 0


def test_interrupted_and_resumed(
    run: Callable[..., Result],
    bucket: Callable[..., Location],
    store: Path,
    options: list[str],
    tmp_path: Path,
    state: Path,
) -> None:
    """A run that stops at a limit leaves a model in the bucket, a checkpoint here, and resumes to the same bits."""
    local, address = tmp_path / "rows.model", bucket("rows.model")
    words = ["train", str(store), "--strategy", "paper", "--epsilon", "0.001"]
    assert run(*words, "--out", str(local)).exit_code == 0
    stopped = run(*words, "--out", str(address), *options, "--max-scans", "2")
    assert stopped.exit_code == 4, stopped.output
    assert list(state.rglob("*.checkpoint"))
    again = run(*words, "--out", str(address), *options)
    assert again.exit_code == 2
    resumed = run(*words, "--out", str(address), *options, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert objects(address)["arrays.npz"] == (local / "arrays.npz").read_bytes()
    assert not list(state.rglob("*.checkpoint"))


def test_what_cannot_be_written_is_refused_before_training(
    run: Callable[..., Result], bucket: Callable[..., Location], store: Path, proxy: Proxy, tmp_path: Path
) -> None:
    """Read-only credentials, a missing bucket, a web server, another thing in the way: nothing is trained."""
    options = ["--storage-option", f"endpoint={proxy.endpoint}"]
    address = bucket("rows.model")
    words = ["train", str(store), "--epsilon", "0.01", *options]
    proxy.refuse = lambda method, path: "AccessDenied" if method in ("PUT", "POST") else ""
    refused = run(*words, "--out", str(address))
    assert refused.exit_code == 5, refused.output
    assert "access denied (AccessDenied), with the credentials that botocore found (env)" in refused.output
    assert "writing needs the rights to read, list, write and delete there" in refused.output
    proxy.refuse = lambda method, path: ""
    assert "there is no such bucket" in run(*words, "--out", "s3://missing-bucket/rows.model").output
    assert "a web server is only read" in run("train", str(store), "--out", "http://127.0.0.1:1/rows.model").output
    assert "found a bucket" in run(*words, "--out", str(address).rpartition("/")[0]).output
    notes = bucket("notes")
    ObjectStorage(notes).write("notes.txt", [b"mine"])
    other = run(*words, "--out", str(notes), "--overwrite")
    assert other.exit_code == 2
    assert "expected a model or nothing, found something else: notes.txt" in other.output
    assert run(*words, "--out", str(address)).exit_code == 0
    inside = run(*words, "--out", f"{address}/inner.model")
    assert inside.exit_code == 2
    assert f"lies in a store or a model, {address}; choose another place" in inside.output


def test_another_process_was_faster(bucket: Callable[..., Location], store: Path, proxy: Proxy, tmp_path: Path) -> None:
    """Of two that write one model the first wins, and the other says so and leaves nothing."""
    model = coremargin.train(store, out=tmp_path / "rows.model", epsilon=0.01)
    slow, fast = bucket("rows.model", endpoint=proxy.endpoint), bucket("rows.model")
    saved = list[str]()

    def save_meanwhile(method: str, path: str) -> str:
        if method == "PUT" and path.endswith("run.json") and not saved:
            saved.append(path)
            model.save(fast, {"name": "fast"})
        return ""

    proxy.refuse = save_meanwhile
    with pytest.raises(Busy, match=r"another writer has changed current\.json meanwhile; nothing was written"):
        model.save(slow, {"name": "slow"}, overwrite=True)
    assert saved
    found = objects(fast)
    assert json.loads(found["run.json"]) == {"name": "fast"}
    everything = list(ObjectReader(location(fast.rpartition("/")[0], fast.options)).list_all())
    assert len(everything) == len(found) + 1
    with pytest.raises(UsageError, match="a model is there already"):
        model.save(fast)


def test_no_secret_in_models(
    run: Callable[..., Result], bucket: Callable[..., Location], store: Path, options: list[str], state: Path
) -> None:
    """Not in objects, checkpoints or messages."""
    address, seen = bucket("rows.model"), list[bytes]()
    for more in (["--max-scans", "1"], ["--resume"], ["--restart", "--overwrite"]):
        result = run("train", str(store), "--strategy", "paper", "--out", str(address), *options, *more)
        seen += [result.output.encode(), repr(result.exception).encode(), *objects(address).values()]
        seen += [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    for secret in (KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"]):
        assert not any(secret.encode() in data for data in seen)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_predictions_in_a_bucket(
    run: Callable[..., Result],
    bucket: Callable[..., Location],
    store: Path,
    options: list[str],
    tmp_path: Path,
    ending: str,
) -> None:
    """One object, with the bytes of a local file; only predictions are replaced, and only on request."""
    model, local, address = tmp_path / "rows.model", tmp_path / f"labels.{ending}", bucket(f"a b%20/labels.{ending}")
    coremargin.train(store, out=model, epsilon=0.01)
    assert run("predict", str(model), str(store), str(local)).exit_code == 0
    words = ["predict", str(model), str(store), str(address), *options]
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert f"{address}: 4,000 rows" in result.output
    folder, _, name = address.rpartition("/")
    reader = ObjectReader(location(folder, address.options))
    assert [key for key, _ in reader.list_all()] == [name]
    assert reader.open(name).read() == local.read_bytes()
    assert "a file of predictions is there already" in run(*words).output
    assert run(*words, "--overwrite").exit_code == 0
    ObjectStorage(reader.name).write(name, [b"mine"])
    other = run(*words, "--overwrite")
    assert other.exit_code == 2
    assert "found something else: other data" in other.output
    assert reader.open(name).read() == b"mine"


def test_predictions_that_are_refused(
    run: Callable[..., Result], bucket: Callable[..., Location], store: Path, proxy: Proxy, tmp_path: Path
) -> None:
    """A group of Zarr, another ending, a bucket that is read only: before a row is read."""
    model = tmp_path / "rows.model"
    coremargin.train(store, out=model, epsilon=0.01)
    options = ["--storage-option", f"endpoint={proxy.endpoint}"]
    for name, message in (
        ("labels.zarr", "of a Zarr group would not appear at once"),
        ("labels", "of a Zarr group would not appear at once"),
        ("labels.txt", "found the ending '.txt'"),
    ):
        result = run("predict", str(model), str(store), bucket(name), *options)
        assert result.exit_code == 2
        assert message in result.output
    proxy.refuse = lambda method, path: "AccessDenied" if method in ("PUT", "POST") else ""
    denied = run("predict", str(model), str(store), bucket("labels.csv"), *options)
    assert denied.exit_code == 5
    assert "access denied (AccessDenied)" in denied.output
    assert "a web server is only read" in run("predict", str(model), str(store), "http://127.0.0.1:1/a.csv").output


def test_a_nightly_job(
    run: Callable[..., Result], bucket: Callable[..., Location], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, held-out rows and labels in a bucket; the inbox and the registry on this machine."""
    monkeypatch.chdir(tmp_path)
    inbox, endpoint = tmp_path / "inbox", bucket("x").options["endpoint"]
    inbox.mkdir()
    generator = np.random.default_rng(0)

    def write_rows(name: str, rows: int) -> None:
        lines = [f"{a},{b},{'x' if a > 0 else 'y'}" for a, b in generator.normal(size=(rows, 2)) if abs(a) > 0.2]
        (inbox / name).write_text("\n".join(["a,b,label", *lines]) + "\n")

    def table(name: str) -> str:
        return f'{{ address = "{bucket(name)}", endpoint = "{endpoint}" }}'

    (tmp_path / "nightly.toml").write_text(
        f"""job = "nightly"
store = {table("rows.zarr")}
registry = "models"
[ingest]
inbox = "inbox"
settle = "0 s"
[predict]
rows = {table("rows.zarr")}
out = {table("labels.csv")}
"""
    )
    nothing = run("run", "nightly.toml")
    assert nothing.exit_code == 0, nothing.output
    assert "no store yet" in nothing.output
    write_rows("monday.csv", 300)
    first = run("run", "nightly.toml")
    assert first.exit_code == 0, first.output
    reader = ObjectReader(location(bucket("labels.csv").rpartition("/")[0], {"endpoint": endpoint}))
    labels = reader.open("labels.csv").read()
    again = run("run", "nightly.toml")
    assert "nothing new" in again.output
    write_rows("tuesday.csv", 100)
    second = run("run", "nightly.toml")
    assert second.exit_code == 0, second.output
    assert "version 2 is the champion" in second.output
    assert len(reader.open("labels.csv").read().splitlines()) > len(labels.splitlines())
    shown = json.loads(run("registry", "show", "models", "2", "--json").stdout)
    assert shown["store"] == str(bucket("rows.zarr"))
    assert shown["store_sha256"]["digest"].startswith("sha256:")
    options = ["--storage-option", f"endpoint={endpoint}"]
    assert run("verify", "models@champion", str(bucket("rows.zarr")), *options).exit_code == 0


def test_several_models(
    run: Callable[..., Result], bucket: Callable[..., Location], store: Path, options: list[str]
) -> None:
    """All members are in one generation; without one of their objects, none is read."""
    address = bucket("fleet.model")
    made = run("train", str(store), "--loss", "hinge", "--C", "0.1,1", "--out", str(address), *options)
    assert made.exit_code == 0, made.output
    assert sum(key.endswith("/model.json") for key in objects(address)) == 2
    assert run("verify", str(address), str(store), *options).exit_code == 0
    reader = ObjectReader(address)
    assert reader.generation is not None
    lost = next(key for key, _ in reader.list_all() if key.endswith("/arrays.npz"))
    ObjectStorage(address).remove(lost, lambda key, folder: True)
    for words in (["show", str(address)], ["verify", str(address), str(store)]):
        result = run(*words, *options)
        assert result.exit_code == 3
        assert f"found a folder without {address}/{reader.generation.prefix}{lost}" in result.output


def test_what_a_killed_upload_leaves_is_removed(
    run: Callable[..., Result],
    bucket: Callable[..., Location],
    store: Path,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer that can neither name its generation nor remove it: the old model stays, and `vacuum` clears up."""
    model = coremargin.train(store, out=tmp_path / "rows.model", epsilon=0.01)
    address = bucket("rows.model")
    model.save(address)
    before = objects(address)
    broken = bucket("rows.model", endpoint=proxy.endpoint)
    ObjectStorage(broken).resolved()
    denied = {("PUT", "current.json"), ("POST", "?delete"), ("DELETE", "generations")}
    proxy.refuse = lambda method, path: "AccessDenied" if any(method == m and t in path for m, t in denied) else ""
    with pytest.raises(OutputError, match=r"current\.json: access denied"):
        model.save(broken, overwrite=True)
    assert objects(address) == before
    whole = ObjectReader(location(address.rpartition("/")[0], address.options))
    assert len(list(whole.list_all())) > len(before) + 1
    options = ["--storage-option", f"endpoint={address.options['endpoint']}"]
    kept = run("vacuum", str(address), "--older-than", "0 s", *options)
    assert "objects kept, younger than 0 s, or than a day" in kept.output, "it may be in progress"
    monkeypatch.setattr(leftovers, "IN_PROGRESS_SECONDS", 0.0)
    assert run("vacuum", str(address), "--older-than", "0 s", *options).exit_code == 0
    assert {key.rpartition("/")[2] for key, _ in whole.list_all()} == {*before, "current.json", "writer.json"}
    assert objects(address) == before


def test_refused_access_is_reported_at_once(server: BucketServer, at: Callable[..., Location], tmp_path: Path) -> None:
    """By name; a missing bucket, too."""
    server.allow = lambda header: "InvalidAccessKeyId"
    with pytest.raises(RunError, match=r"current\.json: access denied \(InvalidAccessKeyId\)"):
        coremargin.load(at("rows.model"))
    server.allow = lambda header: ""
    with pytest.raises(StoreError, match="there is no such bucket"):
        coremargin.load(location("s3://missing/rows.model", at("x").options))


def test_job_files(
    run: Callable[..., Result], bucket: Callable[..., Location], options: list[str], tmp_path: Path
) -> None:
    """Each address with options of its own; `plan` shows them, and a retraining takes them over."""
    synth(tmp_path / "rows.zarr", Recipe(2_000, 5, chunk_bytes=20_000))
    first, second = bucket("first.model"), bucket("second.model")

    def table(address: Location) -> str:
        return f'{{ address = "{address}", endpoint = "{address.options["endpoint"]}" }}'

    job = tmp_path / "job.toml"
    job.write_text(f'job = "train"\nstore = "rows.zarr"\nepsilon = 0.01\nout = {table(first)}\n')
    planned = run("plan", str(job))
    assert planned.exit_code == 0, planned.output
    assert f'address = "{first}"' in planned.output
    done = run("run", str(job))
    assert done.exit_code == 0, done.output
    again = tmp_path / "again.toml"
    again.write_text(f'job = "retrain"\nmodel = {table(first)}\nstore = "rows.zarr"\nout = {table(second)}\n')
    coremargin.remove_rows(tmp_path / "rows.zarr", [3])
    assert f"{first}" in run("plan", str(again)).output
    done = run("run", str(again))
    assert done.exit_code == 0, done.output
    assert run("verify", str(second), str(tmp_path / "rows.zarr"), *options).exit_code == 0
    written = objects(second)["run.json"].decode()
    assert f"endpoint={second.options['endpoint']}" in written
    for wrong, message in (
        ('{ address = "s3://b/m", aws_secret_access_key = "hidden" }', "job.toml: out: storage option"),
        ('{ region = "hidden" }', "job.toml: out: not an address"),
        ('"s3://key:hidden@b/m"', "job.toml: out: s3://: expected an address without user and password"),
    ):
        job.write_text(f'job = "train"\nstore = "rows.zarr"\nout = {wrong}\n')
        refused = run("run", str(job))
        assert refused.exit_code == 2
        assert message in refused.output
        assert "hidden" not in refused.output


def test_options_are_for_addresses(run: Callable[..., Result], store: Path, tmp_path: Path) -> None:
    """One address of the command is enough; without any the options are refused."""
    for words in (
        ["show", "rows.model"],
        ["verify", "rows.model", str(store)],
        ["train", str(store), "--out", str(tmp_path / "rows.model")],
    ):
        result = run(*words, "--storage-option", "region=x")
        assert result.exit_code == 2
        assert "storage options are for addresses such as s3://bucket/rows.zarr" in result.output
    with pytest.raises(UsageError, match="is a path"):
        coremargin.load("rows.model", storage_options={"region": "x"})
