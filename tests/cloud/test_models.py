"""Models in buckets: what reads a model from a folder reads it from an address, whole, whatever happens meanwhile."""

from __future__ import annotations

import json
import pickle  # noqa: TID251 - as Dask sends handles to workers
import shutil
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.data.object_storage import ObjectStorage
from coremargin.errors import Busy, DataError
from coremargin.formats.generation import FILE, FOLDER, new_generation, parse_generation
from coremargin.formats.location import location
from coremargin.formats.object_storage import ObjectReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloud_kit import BucketServer
    from coremargin.formats.location import Location
    from coremargin.formats.storage import ReadableStorage


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model on this machine."""
    folder = tmp_path_factory.mktemp("local") / "rows.model"
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[:, 0] += np.repeat([-5.0, 5.0], 30)
    coremargin.train(X, np.repeat(["a", "b"], 30), out=folder)
    return folder


@pytest.fixture(scope="module")
def other(local: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one."""
    folder = tmp_path_factory.mktemp("other") / "rows.model"
    coremargin.train([[0.0], [9.0]], ["a", "b"], out=folder)
    return folder


@pytest.fixture
def folder(server: BucketServer) -> Path:
    """Where the server has what lies at ``address``."""
    return server.root / "buck" / "a b%20c" / "rows.model"


@pytest.fixture
def address(at: Callable[..., Location]) -> Location:
    """With a space and a ``%``."""
    return at("a b%20c/rows.model")


def put_generation(folder: Path, model: Path, *, known: bool = True) -> Path:
    """Let a model be the current generation: where its files lie."""
    sizes = {str(file.relative_to(model)): file.stat().st_size for file in model.rglob("*") if file.is_file()}
    generation = new_generation(sizes if known else None)
    place = folder / generation.prefix
    shutil.copytree(model, place)
    (folder / FILE).write_bytes(generation.encoded())
    return place


def same(found: Any, model: Path) -> bool:
    """Whether a model is that of a folder."""
    return bool(found.record == coremargin.load(model).record)


@pytest.mark.parametrize("known", [True, False, None])
def test_a_model_is_loaded_from_its_address(folder: Path, address: Location, local: Path, known: bool | None) -> None:
    """From its current generation, or, None, from objects as other tools upload them."""
    if known is None:
        shutil.copytree(local, folder)
    else:
        put_generation(folder, local, known=known)
    found = coremargin.load(address)
    assert same(found, local)
    assert same(coremargin.Model.load(address), local)
    reader = pickle.loads(pickle.dumps(ObjectStorage(address)))  # noqa: S301
    assert reader.open("model.json").read() == (local / "model.json").read_bytes()
    assert {name for name, _ in reader.list_all()} == {file.name for file in local.iterdir()}
    assert [entry.name for entry in reader.list()] == sorted(file.name for file in local.iterdir())
    assert reader.exists("model.json")
    assert not reader.exists("fleet.json")
    assert not reader.exists("generations")


def test_a_generation_needs_no_right_to_list(
    server: BucketServer, folder: Path, address: Location, local: Path
) -> None:
    """As its record names its objects."""
    put_generation(folder, local)
    server.hidden = True
    assert same(coremargin.load(address), local)
    assert not any(key.endswith(("fleet.json", "columns.json")) for method, key in server.requests if method == "HEAD")


@pytest.mark.parametrize("generations", [True, False])
def test_a_model_that_is_replaced_is_read_whole(
    server: BucketServer, folder: Path, address: Location, local: Path, other: Path, generations: bool
) -> None:
    """Old or new: with generations, whose old one is removed at once, and without, by the tags of objects."""
    if generations:
        put_generation(folder, local)
    else:
        shutil.copytree(local, folder)
    replaced = list[str]()

    def replace(header: str) -> str:
        if not replaced and server.requests[-1][1].endswith("arrays.npz"):
            replaced.append("")
            if generations:
                old = next((folder / FOLDER).iterdir())
                put_generation(folder, other)
                shutil.rmtree(old)
            else:
                shutil.rmtree(folder)
                shutil.copytree(other, folder)
        return ""

    server.allow = replace
    found = coremargin.load(address)
    assert replaced
    assert same(found, other)


def test_what_is_missing_is_named(folder: Path, address: Location, local: Path) -> None:
    """An object of a model, or all of it."""
    with pytest.raises(DataError, match="expected a model, found nothing there; `coremargin train STORE --out s3://"):
        coremargin.load(address)
    place = put_generation(folder, local)
    (place / "arrays.npz").unlink()
    with pytest.raises(DataError, match=r"found a folder without s3://buck/.*/generations/.*/arrays\.npz"):
        coremargin.load(address)
    (folder / FILE).write_bytes(b"{}")
    with pytest.raises(DataError, match=r"current\.json: expected a record of format"):
        coremargin.load(address)


@pytest.mark.parametrize("name", ["../x", "0123", "0123456789abcdeg", "0123456789abcdef/"])
def test_a_generation_is_one_folder(name: str) -> None:
    """No other place is read, whatever a record names."""
    record = new_generation().encoded().decode()
    own = parse_generation(record.encode(), "here").generation
    with pytest.raises(DataError, match="generation"):
        parse_generation(record.replace(own, name).encode(), "here")


def test_readers_stay_with_their_generation(folder: Path, address: Location, local: Path, other: Path) -> None:
    """One that has begun, also where it travels to; one that is opened later has the new one."""
    put_generation(folder, local)
    reader = ObjectReader(address)
    assert reader.open("model.json").read() == (local / "model.json").read_bytes()
    put_generation(folder, other)
    again = pickle.loads(pickle.dumps(reader))  # noqa: S301
    assert again == reader
    assert again.open("model.json").read() == (local / "model.json").read_bytes()
    assert reader.reopened().open("model.json").read() == (other / "model.json").read_bytes()
    assert ObjectReader(address).open("model.json").read() == (other / "model.json").read_bytes()


def test_writers_and_readers_at_once(bucket: Callable[..., Location], local: Path, other: Path) -> None:
    """Four writers replace one model; whoever reads it meanwhile gets one of them whole, with its own record."""
    models = [coremargin.load(path) for path in (local, other)]
    address, seen, done = bucket("rows.model"), list[tuple[int, bool]](), threading.Event()
    models[0].save(address, {"model": 0})
    saved, busy, wrong = list[int](), list[int](), list[Exception]()

    def write(number: int) -> None:
        for k in range(6):
            which = (number + k) % 2
            try:
                models[which].save(address, {"model": which}, overwrite=True)
                saved.append(which)
            except Busy:
                busy.append(which)

    def read() -> None:
        def whole(files: ReadableStorage) -> tuple[int, Any]:
            return json.loads(files.open("run.json").read())["model"], coremargin.Model.read(files)

        while not done.is_set():
            which, found = ObjectStorage(address).read_whole(whole)
            seen.append((which, found.record == models[which].record and np.array_equal(found.w, models[which].w)))

    def caught(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - of a thread
                wrong.append(error)

        return run

    writers = [threading.Thread(target=caught(partial(write, number))) for number in range(4)]
    readers = [threading.Thread(target=caught(read)) for _ in range(2)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert wrong == []
    assert len(saved) + len(busy) == 24
    assert saved
    assert {which for which, _ in seen} <= {0, 1}
    assert all(whole for _, whole in seen)
    current = ObjectReader(address).generation
    assert current is not None
    everything = [key for key, _ in ObjectReader(location(address.rpartition("/")[0], address.options)).list_all()]
    left = {key.split("/")[2] for key in everything if f"/{FOLDER}/" in f"/{key}"}
    assert left == {current.generation}
