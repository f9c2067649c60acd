"""What commands write to addresses besides stores, models of stores and predictions: the same as on this machine."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import coremargin
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.synth import Recipe, synth
from coremargin.errors import Busy, UsageError
from coremargin.formats.location import location
from coremargin.formats.object_storage import ObjectReader
from coremargin.models.materialise import materialise
from coremargin.models.output_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Rows that a hyperplane separates, as text."""
    path, X = tmp_path / "rows.csv", np.random.default_rng(0).normal(size=(300, 3))
    X = X[np.abs(X[:, 0]) > 0.2]
    lines = [f"{a},{b},{c},{'x' if a > 0 else 'y'}" for a, b, c in X.tolist()]
    path.write_text("\n".join(["a,b,c,label", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows on this machine."""
    path: Path = tmp_path_factory.mktemp("rows") / "rows.zarr"
    synth(path, Recipe(600, 5, chunk_bytes=4_000))
    return path


def names(address: Location) -> set[str]:
    """Of all objects in the bucket of an address."""
    return {key for key, _ in ObjectReader(location("/".join(address.split("/")[:3]), address.options)).list_all()}


def object_bytes(address: Location) -> bytes:
    """Of one object."""
    folder, _, name = address.rpartition("/")
    return ObjectReader(location(folder, address.options)).open(name).read()


def contents(data: bytes) -> object:
    """Of an archive the sizes of its members, whose names differ each time; other bytes as they are."""
    if not data.startswith(b"PK"):
        return data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.comment, sorted(one.file_size for one in archive.infolist())


def test_train_files_to_an_address(
    run: Callable[..., Result], bucket: Callable[..., Location], table: Path, options: list[str], tmp_path: Path
) -> None:
    """The store of the rows lies next to the model, is used again, and is replaced as long as it has no model."""
    out, local = bucket("a b/rows.model"), tmp_path / "rows.model"
    words = ["train", str(table), "--out", str(out), *options]
    assert run("train", str(table), "--out", str(local)).exit_code == 0
    refused = run(*words, "--max-scans", "0")
    assert refused.exit_code == 2
    assert names(out) == set()
    one_class = table.with_name("one.csv")
    one_class.write_text("a,b,c,label\n1,2,3,x\n2,3,4,x\n")
    ended = run("train", str(one_class), *words[2:])
    assert ended.exit_code == 3, ended.output
    assert "a b/.rows.zarr.unfinished" in names(out)
    made = run(*words)
    assert made.exit_code == 0, made.output
    assert "replaced, since no model was trained on it" in made.output
    assert "a b/.rows.zarr.unfinished" not in names(out)
    store = bucket("a b/rows.zarr")
    assert run("verify", str(out), str(store), *options).exit_code == 0
    for name in ("arrays.npz", "columns.json"):
        assert ObjectReader(out).open(name).read() == (local / name).read_bytes()
    again = run(*words, "--resume")
    assert "reused, since it was made from the same files" in again.output
    assert "nothing to do" in again.output
    other = run("train", str(one_class), *words[2:])
    assert other.exit_code == 2
    assert "a model is there already" in other.output
    other = run("train", str(one_class), "--out", str(out), *options, "--resume")
    assert other.exit_code == 2
    assert "was made from other files or options" in other.output
    assert run("verify", str(out), str(store), *options).exit_code == 0
    ObjectStorage(bucket("mine.zarr")).write("notes.txt", [b"mine"])
    taken = run("train", str(table), "--out", str(bucket("mine.model")), *options, "--overwrite")
    assert taken.exit_code == 2
    assert "exists already, and was not made by `train` from files" in taken.output


def test_train_files_from_python(bucket: Callable[..., Location], table: Path, moto: str) -> None:
    """Files and the model at addresses, with one set of options; a list of files, too."""
    half = table.read_bytes().splitlines(keepends=True)
    for name, lines in (("1.csv", half[:100]), ("2.csv", half[:1] + half[100:])):
        ObjectStorage(bucket("in")).write(name, [b"".join(lines)])
    sources, out = [str(bucket("in/1.csv")), str(bucket("in/2.csv"))], str(bucket("rows.model"))
    given = {"endpoint": moto}
    model = coremargin.train(sources, out=out, storage_options=given)
    assert model.certificate == coremargin.train(table).certificate
    assert coremargin.train(str(bucket("in/*.csv")), storage_options=given).certificate == model.certificate
    store = coremargin.Store.open(str(bucket("rows.zarr")), storage_options=given)
    assert store.digest == model.store_digest
    assert coremargin.verify(location(out, given), bucket("rows.zarr"))
    with pytest.raises(UsageError, match="storage options are for addresses"):
        coremargin.train([table], storage_options=given)


def test_a_folder_that_may_not_be_written_is_refused_before_rows_are_read(
    run: Callable[..., Result], bucket: Callable[..., Location], table: Path, proxy: Proxy
) -> None:
    """Neither a store nor a mark appears."""
    proxy.refuse = lambda method, path: "AccessDenied" if method in ("PUT", "POST") else ""
    out = bucket("rows.model")
    result = run("train", str(table), "--out", str(out), "--storage-option", f"endpoint={proxy.endpoint}")
    assert result.exit_code == 5
    assert "writing needs the rights to read, list, write and delete there" in result.output
    assert names(out) == set()


def test_export_to_an_address(
    run: Callable[..., Result],
    bucket: Callable[..., Location],
    rows: Path,
    options: list[str],
    tmp_path: Path,
) -> None:
    """One object with the bytes of the file; only exported models are replaced, and only on request."""
    coremargin.train(rows, out=tmp_path / "rows.model", epsilon=0.01)
    for kind in ("onnx", "sklearn-skops"):
        local, address = tmp_path / f"rows.{kind}", bucket(f"out/rows.{kind}")
        words = ["export", str(tmp_path / "rows.model"), str(address), "--format", kind, *options]
        assert run(*words[:2], str(local), *words[3:5]).exit_code == 0
        made = run(*words)
        assert made.exit_code == 0, made.output
        assert contents(object_bytes(address)) == contents(local.read_bytes())
        assert "an exported model is there already" in run(*words).output
        assert run(*words, "--overwrite").exit_code == 0
        ObjectStorage(bucket("out")).write(f"rows.{kind}", [b"mine"])
        assert "found something else: other data" in run(*words, "--overwrite").output
        assert object_bytes(address) == b"mine"
    assert names(bucket("x")) == {"out/rows.onnx", "out/rows.sklearn-skops"}


def test_an_output_that_another_process_writes_meanwhile(bucket: Callable[..., Location]) -> None:
    """Is not replaced: the put is on condition. Between the begin and the end of a job, one of its kind may be."""
    address, storage = bucket("out/page.txt"), ObjectStorage(bucket("out"))

    waiting = list[bytes]()

    def is_page(_: object) -> bool:
        if waiting:
            storage.write("page.txt", [waiting.pop()])
        return True

    def write(data: bytes, *, overwrite: bool, before_put: bytes = b"") -> None:
        with whole_file(address, "a page", is_page, overwrite=overwrite) as file:
            file.write(data)
            waiting.extend([before_put] if before_put else [])

    write(b"first", overwrite=False)
    with pytest.raises(UsageError, match="a page is there already"):
        write(b"second", overwrite=False)
    with whole_file(address, "a page", is_page, overwrite=True) as file:
        file.write(b"second")
        storage.write("page.txt", [b"of another job"])
    assert object_bytes(address) == b"second"
    with pytest.raises(Busy, match=r"another writer has changed page\.txt meanwhile"):
        write(b"third", overwrite=True, before_put=b"of a faster one")
    assert object_bytes(address) == b"of a faster one"
    with pytest.raises(KeyError), whole_file(bucket("out/never"), "a page", is_page, overwrite=True):
        raise KeyError
    assert names(address) == {"out/page.txt"}


def test_materialise_to_an_address(
    run: Callable[..., Result], bucket: Callable[..., Location], rows: Path, options: list[str], tmp_path: Path
) -> None:
    """The store has the rows of a local one."""
    model, out = tmp_path / "mapped.model", bucket("mapped.zarr")
    coremargin.train(rows, out=model, epsilon=0.01, map="polynomial", degree=2)
    words = ["materialise", str(model), str(rows), "--out", str(out), *options]
    made = run(*words)
    assert made.exit_code == 0, made.output
    local = materialise(model, rows, tmp_path / "mapped.zarr")
    assert coremargin.Store.open(out).digest == local.digest
    assert "something is there already" in run(*words).output
    assert run(*words, "--overwrite").exit_code == 0
    onto = run("materialise", str(model), str(out), "--out", str(out), "--overwrite", *options)
    assert onto.exit_code == 2
    assert "expected another place than that of the rows, which would be lost" in onto.output
    with pytest.raises(UsageError, match="which would be lost"):
        materialise(model, rows, rows, overwrite=True)


def test_reduce_to_an_address(
    run: Callable[..., Result], bucket: Callable[..., Location], rows: Path, options: list[str], tmp_path: Path
) -> None:
    """The model has the bytes of a local one, and verifies; that of the model to reduce is no place for it."""
    model, out = bucket("rows.model"), bucket("small.model")
    assert run("train", rows, "--out", str(model), "--kernel", "rbf", "--epsilon", "0.01", *options).exit_code == 0
    words = ["reduce", str(model), str(rows), "--rows", "3", *options, "--out"]
    made = run(*words, str(out))
    assert made.exit_code == 0, made.output
    assert run(*words, str(tmp_path / "small.model")).exit_code == 0
    assert ObjectReader(out).open("arrays.npz").read() == (tmp_path / "small.model" / "arrays.npz").read_bytes()
    assert b"</html>" in ObjectReader(out).open("report.html").read()
    assert run("verify", str(out), str(rows), *options).exit_code == 0
    assert "a model is there already" in run(*words, str(out)).output
    onto = run(*words, str(model), "--overwrite")
    assert onto.exit_code == 2
    assert "expected another folder than that of the model to reduce" in onto.output


def test_compare_at_addresses(
    run: Callable[..., Result], bucket: Callable[..., Location], options: list[str], tmp_path: Path, rows: Path
) -> None:
    """A store and a page there; no other file is taken for a page, on this machine neither."""
    store, page = bucket("rows.zarr"), bucket("page.html")
    synth(store, Recipe(200, 3, chunk_bytes=4_000))
    words = ["compare", str(store), "--strategies", "fast", *options, "--out"]
    made = run(*words, str(page))
    assert made.exit_code == 0, made.output
    assert b"--storage-option endpoint=" in object_bytes(page)
    assert "a page of strategies is there already" in run(*words, str(page)).output
    assert run(*words, str(page), "--overwrite").exit_code == 0
    notes = tmp_path / "notes.html"
    notes.write_text("mine")
    refused = run(*words, str(notes), "--overwrite")
    assert refused.exit_code == 2
    assert "found something else: other data" in refused.output
    assert notes.read_text() == "mine"


def test_nothing_is_written_into_a_store_at_the_root_of_a_bucket(
    run: Callable[..., Result], bucket: Callable[..., Location], rows: Path, options: list[str], tmp_path: Path
) -> None:
    """One that another tool copied there, or a generation of one."""
    coremargin.train(rows, out=tmp_path / "rows.model", epsilon=0.01)
    inside = bucket("new/rows.onnx")
    root = inside.rpartition("/new/")[0]
    words = ["export", str(tmp_path / "rows.model"), str(inside), *options]
    for file in (file for file in rows.rglob("*") if file.is_file()):
        ObjectStorage(location(root, inside.options)).write(str(file.relative_to(rows)), [file.read_bytes()])
    assert coremargin.Store.open(location(root, inside.options)).rows == 600
    refused = run(*words)
    assert refused.exit_code == 2
    assert f"lies in a store or a model, {root}; choose another place" in refused.output.replace("\n", " ")
