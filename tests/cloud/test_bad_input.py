"""Stores that are not whole, rights that are missing, names that are unusual: reported at once, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import numpy as np
import pytest

import coremargin
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.synth import Recipe, synth
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, StoreError
from coremargin.formats.object_storage import ObjectReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from cloud_kit import Proxy
    from coremargin.formats.location import Location


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where checkpoints of models at addresses lie."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def options(moto: str) -> list[str]:
    """Those of the bucket."""
    return ["--storage-option", f"endpoint={moto}"]


def copy_objects(source: Location, name: str, left_out: Callable[[str], bool]) -> None:
    """Copy a store as a tool does, object by object, and leave some out."""
    bucket, _, old = source.removeprefix("s3://").partition("/")
    client = boto3.client("s3", endpoint_url=source.options["endpoint"])
    for one in client.list_objects_v2(Bucket=bucket, Prefix=f"{old}/")["Contents"]:
        below = one["Key"].removeprefix(f"{old}/")
        if not left_out(below):
            place = {"Bucket": bucket, "Key": one["Key"]}
            client.copy_object(Bucket=bucket, Key=f"{name}/{below}", CopySource=place)


#: What a tool has not copied yet, commands that need it, and what they say.
HALVES: dict[str, tuple[Callable[[str], bool], tuple[str, ...], str]] = {
    "a chunk": (lambda key: key.endswith("/X/c.1.0"), ("train", "check", "verify"), "missing"),
    "all chunks": (lambda key: "/X/c." in key, ("train", "check"), "file X/c.0.0: the file is missing"),
    "statistics": (lambda key: "/blocks/" in key, ("train", "info", "check", "append"), "restore the file from a copy"),
    "the root": (
        lambda key: key.count("/") == 2 and key.endswith("zarr.json"),
        ("train", "info", "append"),
        "something",
    ),
    "the pointer": (lambda key: key == "current.json", ("train", "info", "append"), "expected a store, found nothing"),
    "all but the pointer": (lambda key: key != "current.json", ("train", "info", "append"), "copied in part"),
    "the log": (lambda key: key.endswith("log.jsonl"), ("check", "log", "append"), r"log.jsonl: expected"),
}


@pytest.mark.specimens(3)
@pytest.mark.parametrize("what", list(HALVES))
def test_a_store_that_was_half_copied(
    run: Callable[..., Result], bucket: Callable[..., Location], options: list[str], tmp_path: Path, what: str
) -> None:
    """What is missing is named by every command that needs it, and no row is read as NaN."""
    source, copy = bucket("rows.zarr"), bucket("copy.zarr")
    opened = synth(source, Recipe(400, 4, chunk_bytes=4_000))
    coremargin.train(opened, out=tmp_path / "rows.model", epsilon=0.01)
    left_out, commands, message = HALVES[what]
    copy_objects(source, "copy.zarr", left_out)
    lines = {
        "train": ["train", str(copy), "--out", str(tmp_path / "new.model")],
        "verify": ["verify", str(tmp_path / "rows.model"), str(copy)],
    } | {name: [name, str(copy)] for name in ("info", "check", "log")}
    for command in commands:
        if command == "append":
            with pytest.raises(StoreError, match=message), StoreWriter.append(copy) as writer:
                writer.write(np.zeros((3, 4), np.float32), [-1, 1, 1])
            continue
        result = run(*lines[command], *options)
        assert result.exit_code == 3, (command, result.output)
        assert message in result.output, (command, result.output)
    assert not (tmp_path / "new.model").exists()
    assert coremargin.Store.open(source).digest == opened.digest
    copy_objects(source, "copy.zarr", lambda key: not left_out(key))  # the tool goes on
    assert run("check", str(copy), *options).exit_code == 0
    assert run("verify", str(tmp_path / "rows.model"), str(copy), *options).exit_code == 0


def test_a_log_that_lost_its_end(tmp_path: Path) -> None:
    """Is not continued, in a store on this machine and in memory either."""
    for place in (tmp_path / "rows.zarr", "memory://log-that-lost-its-end"):
        with StoreWriter.create(place, features=2) as writer:
            writer.write(np.eye(3, 2, dtype=np.float32), ["a", "b", "a"])
        store = coremargin.Store.open(place)
        with store.storage.open("log.jsonl") as file:
            whole = file.read()
        for kept in (whole[:-1], b""):
            store.storage.write("log.jsonl", [kept])
            with pytest.raises(StoreError, match=r"log\.jsonl: expected"):
                coremargin.remove_rows(place, [0])
        store.storage.write("log.jsonl", [whole])
        assert coremargin.Store.open(place).commits == 1
        coremargin.remove_rows(place, [0])


def test_names_with_blanks_and_percent_signs(
    run: Callable[..., Result], bucket: Callable[..., Location], options: list[str], tmp_path: Path
) -> None:
    """Of stores, files and models: they are what they are, not decoded."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    lines = [f"{a},{b},{'x' if a > 0 else 'y'}" for a, b in X.tolist() if abs(a) > 0.1]
    folder = "a b%20c/d+e&f"
    ObjectStorage(bucket(folder)).write("rows 100%.csv", ["\n".join(["a,b,label", *lines]).encode()])
    source, store, model = bucket(f"{folder}/rows 100%.csv"), bucket(f"{folder}/rows 1%.zarr"), bucket(f"{folder}/m %")
    for words in (
        ["ingest", str(source), str(store)],
        ["train", str(store), "--out", str(model)],
        ["train", str(source), "--out", str(bucket(f"{folder}/50%.model"))],
        ["verify", str(model), str(store)],
        ["predict", str(model), str(source), str(bucket(f"{folder}/labels %41.csv"))],
        ["check", str(store)],
        ["vacuum", str(store)],
    ):
        result = run(*words, *options)
        assert result.exit_code == 0, result.output
    names = {key.split("/")[0] for key, _ in ObjectReader(bucket(folder)).list_all()}
    assert names == {"rows 100%.csv", "rows 1%.zarr", "m %", "50%.model", "50%.zarr", "labels %41.csv"}


def test_keys_without_the_right_to_list(
    run: Callable[..., Result], bucket: Callable[..., Location], proxy: Proxy, tmp_path: Path
) -> None:
    """Stores and models are read without it; what needs it says so before anything is written."""
    store, table = bucket("rows.zarr"), tmp_path / "rows.csv"
    synth(store, Recipe(400, 4, chunk_bytes=4_000))
    table.write_text("a,label\n-1,0\n1,1\n-2,0\n2,1\n")
    before = {key for key, _ in ObjectReader(bucket("rows.zarr")).list_all()}
    proxy.refuse = lambda method, path: "AccessDenied" if method == "GET" and "list-type" in path else ""
    words = ["--storage-option", f"endpoint={proxy.endpoint}"]
    assert run("train", str(store), "--out", str(tmp_path / "rows.model"), *words).exit_code == 0
    assert run("verify", str(tmp_path / "rows.model"), str(store), *words).exit_code == 0
    for line in (
        ["ingest", str(table), str(bucket("new.zarr"))],
        ["ingest", str(bucket("*.csv")), str(tmp_path / "new.zarr")],
        ["train", str(store), "--out", str(bucket("new.model"))],
        ["train", str(table), "--out", str(bucket("new.model"))],
        ["vacuum", str(store)],
    ):
        result = run(*line, *words)
        assert result.exit_code == 5, result.output
        assert "access denied (AccessDenied), with the credentials that botocore found (env)" in result.output
        assert "list" in result.output
    assert {key for key, _ in ObjectReader(bucket("rows.zarr")).list_all()} == before


def test_a_chunk_that_is_replaced_during_a_job(bucket: Callable[..., Location], proxy: Proxy) -> None:
    """Other rows, in a file that is whole, are noticed by the checksums of the store."""
    synth(bucket("rows.zarr"), Recipe(500, 4, chunk_bytes=4_000))
    store, direct = (
        coremargin.Store.open(bucket("rows.zarr", endpoint=proxy.endpoint)),
        ObjectStorage(bucket("rows.zarr")),
    )

    def replace_meanwhile(method: str, path: str) -> str:
        if path.endswith("X/c.1.0"):
            direct.write("X/c.1.0", [bytes(direct.fetch("X/c.0.0").data)])
        return ""

    store.scalars()
    proxy.refuse = replace_meanwhile
    with pytest.raises(DamagedChunk, match=r"chunk 1 .*X/c\.1\.0"):
        coremargin.train(store, cluster="threads")
