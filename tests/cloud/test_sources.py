"""Files of rows in buckets and on web servers: the same stores as from the same files of this machine, or refusals."""

from __future__ import annotations

import glob
import gzip
import json
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file

import coremargin
from coremargin.data import object_storage
from coremargin.data.ingest import ingest
from coremargin.data.object_storage import Prefetcher, prefetcher
from coremargin.data.sources.object_path import expand_addresses
from coremargin.data.store import Store
from coremargin.errors import CoremarginError, DataError, ObjectChanged, RunError, StoreError, UsageError
from coremargin.formats.location import Location, location
from coremargin.formats.object_storage import ObjectReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from cloud_kit import BucketServer
    from coremargin.formats.object_storage import Fetched

ROWS = 30_000


@pytest.fixture
def folder(server: BucketServer) -> Path:
    """The bucket as a folder."""
    return server.root / "buck"


@pytest.fixture
def store_of(at: Callable[..., Location], folder: Path, tmp_path: Path) -> Callable[..., Store]:
    """``store_of("rows.csv", label="c")``: the store of an object, the same as that of the file."""

    def make(name: str, place: Callable[..., Any] = at, **options: Any) -> Store:
        reports, stores = [], []
        for number, found in enumerate((place, lambda key: folder / key)):
            names = {key: found(value) if key == "labels" else value for key, value in options.items()}
            store = tmp_path / f"{number}.zarr"
            reports.append(ingest(found(name), store, overwrite=True, **names))
            stores.append(Store.open(store))
        assert stores[0].digest == stores[1].digest
        assert (reports[0].classes, reports[0].features) == (reports[1].classes, reports[1].features)
        assert stores[0].columns == stores[1].columns
        assert prefetcher.held_bytes == 0
        return stores[0]

    return make


def table(rows: int = ROWS, columns: int = 20, seed: int = 0) -> pa.Table:
    """Numbers, words and labels."""
    draws = np.random.default_rng(seed)
    X = draws.normal(size=(rows, columns))
    words = np.array(["red", "green", "blue"])[draws.integers(0, 3, rows)]
    names = {f"c{column}": X[:, column] for column in range(columns)}
    return pa.table(names | {"word": words, "label": (X[:, 0] > 0).astype(int)})


def test_parquet(store_of: Callable[..., Store], folder: Path, server: BucketServer) -> None:
    """Small row groups are fetched at once and ahead, a large one column by column."""
    pq.write_table(table(), folder / "small.parquet", row_group_size=2_000)
    pq.write_table(table(80_000), folder / "large.parquet")
    server.faults.delay = 0.02
    assert store_of("small.parquet", categorical="auto").rows == ROWS
    assert server.busiest > 1
    server.busiest = 0
    assert store_of("large.parquet", categorical="auto").rows == 80_000
    assert server.busiest > 2
    assert store_of("large.parquet", drop=("word", "c7")).features == 19


@pytest.mark.parametrize("pattern", ["hive", "hive/", "hive/year=*", "hive/*/*.parquet", "hive/**/*.parquet"])
def test_folders_and_patterns(store_of: Callable[..., Store], folder: Path, pattern: str) -> None:
    """Folders add their columns, empty files and hidden names are skipped."""
    for year in range(3):
        part = folder / "hive" / f"year={2020 + year}"
        (part / "_temporary").mkdir(parents=True)
        pq.write_table(table(100, 3, year), part / "a.parquet")
        pq.write_table(table(0, 3), part / "b.parquet")
        (part / "_SUCCESS").touch()
        (part / "_temporary" / "c.parquet").write_bytes(b"half")
        (part / ".hidden.parquet").write_bytes(b"half")
        (part / "empty.parquet").touch()
    if "*.parquet" in pattern:
        for part in (folder / "hive").iterdir():
            (part / "empty.parquet").unlink()
            if "**" in pattern:
                (part / "_temporary" / "c.parquet").unlink()
    found = store_of(pattern, label="label", drop="word")
    assert (found.rows, found.features) == (300, 4)


def test_text(store_of: Callable[..., Store], folder: Path, server: BucketServer) -> None:
    """Plain text and gzip are read in order, ahead of the parser; SVMlight twice."""
    pc.write_csv(table(), folder / "rows.csv")
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes(), 1))
    X = scipy.sparse.random(2_000, 500, 0.02, "csr", rng=np.random.default_rng(0))
    dump_svmlight_file(X, np.arange(2_000) % 3, str(folder / "rows.svm"))
    server.faults.delay = 0.02
    assert store_of("rows.csv", drop="word").rows == ROWS
    assert server.busiest > 2
    assert store_of("rows.csv.gz", categorical="word").rows == ROWS
    assert store_of("rows.svm").sparse


@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy(store_of: Callable[..., Store], folder: Path, order: Any) -> None:
    """Arrays by rows and by columns, their labels next to them or named, and archives."""
    X = np.random.default_rng(0).normal(size=(ROWS, 40))
    y = (X[:, 0] > 0).astype(int)
    np.save(folder / "X.npy", np.asarray(X, order=order))
    np.save(folder / "y.npy", y)
    np.save(folder / "wide.npy", y[:, None])
    (folder / "words.txt").write_text("".join(f"class {label}\n" for label in y))
    np.savez_compressed(folder / "rows.npz", X=np.asarray(X, order=order), y=y)
    scipy.sparse.save_npz(folder / "Xs.npz", scipy.sparse.csr_array(np.where(X > 1, X, 0)))
    np.save(folder / "ys.npy", y)
    assert store_of("X.npy").rows == ROWS
    assert store_of("X.npy", labels="wide.npy").rows == ROWS
    assert set(store_of("X.npy", labels="words.txt").classes) == {"class 0", "class 1"}
    assert store_of("rows.npz").features == 40
    assert store_of("Xs.npz").sparse


def test_a_web_server(server: BucketServer, store_of: Callable[..., Store], folder: Path, tmp_path: Path) -> None:
    """Single files can be read over HTTP, folders and patterns cannot."""
    pq.write_table(table(), folder / "rows 1.parquet")
    place = lambda name: location(f"{server.endpoint}/buck/{name}")  # noqa: E731 - as at()
    assert store_of("rows 1.parquet", place, drop="word").rows == ROWS
    with pytest.raises(UsageError, match="buck: expected a readable file: no such object"):
        ingest(place(""), tmp_path / "no.zarr")


@pytest.mark.parametrize("faults", [{"busy": 0.2}, {"reset": 0.3}])
def test_faults_of_a_network(
    store_of: Callable[..., Store], folder: Path, server: BucketServer, faults: dict[str, float]
) -> None:
    """Refusals for the moment and broken connections are tried again."""
    pq.write_table(table(), folder / "rows.parquet", row_group_size=1_000)
    pc.write_csv(table(), folder / "rows.csv")
    for name, share in faults.items():
        setattr(server.faults, name, share)
    store_of("rows.parquet", drop="word")
    store_of("rows.csv", drop="word")
    assert sum(server.faults.happened.values()) > 0


def test_an_answer_without_its_end_is_fetched_again(
    store_of: Callable[..., Store], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that a service promised and did not send are fetched again, and reported if they never come."""
    pc.write_csv(table(), folder / "rows.csv")
    fetch, calls = ObjectReader.fetch, list[int]()

    def short(self: ObjectReader, key: str, start: int = 0, stop: int | None = None, **more: Any) -> Fetched:
        found = fetch(self, key, start, stop, **more)
        calls.append(start)
        return found._replace(data=found.data[: len(found.data) // 2]) if calls.count(start) % 2 else found

    monkeypatch.setattr(ObjectReader, "fetch", short)
    store_of("rows.csv", drop="word")
    assert len(calls) > 8

    def never(self: ObjectReader, key: str, start: int = 0, stop: int | None = None, **more: Any) -> Fetched:
        found = fetch(self, key, start, stop, **more)
        return found._replace(data=found.data[:-1])

    monkeypatch.setattr(ObjectReader, "fetch", never)
    with pytest.raises(RunError, match=r"rows.csv: the service sent [\d,]+ bytes of [\d,]+; run again"):
        store_of("rows.csv", drop="word")


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "X.npy"])
@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_an_object_that_changes_is_refused_by_name(
    at: Callable[..., Location],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: str,
) -> None:
    """Rows of two contents never make one store, and nothing is left."""
    path = folder / name
    pc.write_csv(table(), folder / "rows.csv")
    pq.write_table(table(), folder / "rows.parquet", row_group_size=1_000)
    np.save(folder / "X.npy", np.random.default_rng(0).normal(size=(ROWS, 30)))
    np.save(folder / "y.npy", np.arange(ROWS) % 2)
    fetch, calls = ObjectReader.fetch, list[str]()

    def meanwhile(self: ObjectReader, key: str, *arguments: Any, **more: Any) -> Fetched:
        calls.append(key)
        if calls.count(name) == 4:
            if change == "removed":
                path.unlink(missing_ok=True)
            else:
                path.with_name("next").write_bytes(path.read_bytes())
                path.with_name("next").rename(path)
        return fetch(self, key, *arguments, **more)

    monkeypatch.setattr(ObjectReader, "fetch", meanwhile)
    what = "was removed" if change == "removed" else "changed"
    with pytest.raises(DataError, match=f"s3://buck/{name}: the object {what} while it was read; run again"):
        ingest(at(name), tmp_path / "rows.zarr", **({} if name == "X.npy" else {"drop": "word"}))
    assert not (tmp_path / "rows.zarr").exists()
    assert prefetcher.held_bytes == 0


def test_memory_for_what_is_fetched_ahead_is_bounded(
    store_of: Callable[..., Store], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within whatever bytes there are for it, also none."""
    pq.write_table(table(60_000, 30), folder / "rows.parquet")
    pc.write_csv(table(60_000), folder / "rows.csv")
    for most in (0, 5 << 20):
        limited, peak = Prefetcher(lambda most=most: most), 0
        give_back = limited._give_back

        def watched(part: Any, limited: Any = limited, give_back: Any = give_back) -> None:
            nonlocal peak
            peak = max(peak, limited.held_bytes)
            give_back(part)

        monkeypatch.setattr(limited, "_give_back", watched)
        monkeypatch.setattr(object_storage, "prefetcher", limited)
        store_of("rows.parquet", drop="word")
        store_of("rows.csv", drop="word")
        assert peak <= most
        assert bool(peak) == bool(most)
        assert limited.held_bytes == 0


MISTAKES: list[tuple[str, dict[str, Any], type[CoremarginError], str]] = [
    ("bad.csv", {}, DataError, "line 3"),
    ("empty.csv", {}, DataError, "the file is empty: expected rows"),
    ("none.csv", {}, UsageError, "expected a readable file: no such object"),
    ("none-*.csv", {}, UsageError, "no object matches this pattern"),
    ("none/", {}, UsageError, "expected a readable file: no such object"),
    ("mixed", {}, UsageError, "expected files of one kind"),
    ("lake", {}, UsageError, "is a table of Delta Lake"),
    ("rows.zarr", {}, UsageError, "is a Zarr store"),
    ("half.parquet", {}, DataError, "not a whole Parquet file"),
    ("book.xlsx", {}, DataError, "a zip archive"),
    ("short.npy", {"unlabelled": True}, DataError, "not a whole .npy file: found"),
    ("X.npy", {}, DataError, "labels are missing"),
]


@pytest.mark.parametrize(("name", "options", "kind", "message"), MISTAKES, ids=[one[0] for one in MISTAKES])
def test_mistakes_are_reported_as_of_files(
    at: Callable[..., Location],
    folder: Path,
    tmp_path: Path,
    name: str,
    options: dict[str, Any],
    kind: type[CoremarginError],
    message: str,
) -> None:
    """The messages are those about files, with the address in the place of the path."""
    import zipfile

    for one in ("mixed", "lake/_delta_log", "rows.zarr"):
        (folder / one).mkdir(parents=True)
    (folder / "bad.csv").write_text("a,b,label\n1,2,0\n1,x,1\n" + "3,4,1\n" * 30)
    (folder / "empty.csv").touch()
    (folder / "mixed/a.csv").write_text("a,label\n1,0\n2,1\n")
    pq.write_table(table(5), folder / "mixed/b.parquet")
    pq.write_table(table(5), folder / "lake/b.parquet")
    (folder / "lake/_delta_log/0.json").write_text("{}")
    (folder / "rows.zarr/zarr.json").write_text("{}")
    pq.write_table(table(500), folder / "half.parquet")
    os.truncate(folder / "half.parquet", 20_000)
    with zipfile.ZipFile(folder / "book.xlsx", "w") as archive:
        archive.writestr("a.txt", "b")
    np.save(folder / "X.npy", np.ones((5, 3)))
    np.save(folder / "short.npy", np.ones((500, 3)))
    os.truncate(folder / "short.npy", 5_000)
    texts = []
    for source in (at(name), folder / name):
        with pytest.raises(kind) as caught:
            ingest(source, tmp_path / "no.zarr", **options)
        texts.append(str(caught.value).replace(str(folder), "s3://buck"))
    assert message in texts[0]
    assert texts[0].startswith(f"s3://buck/{name.rstrip('/')}")
    if "no such object" not in message and "no object" not in message:
        assert texts[0] == texts[1]


def test_services_that_refuse(server: BucketServer, at: Callable[..., Location], folder: Path, tmp_path: Path) -> None:
    """Missing buckets, refused access and servers without ranges are reported by name."""
    pc.write_csv(table(100), folder / "rows.csv")
    nowhere = location("s3://nowhere/rows.csv", {"endpoint": server.endpoint})
    with pytest.raises(StoreError, match="s3://nowhere: there is no such bucket"):
        ingest(nowhere, tmp_path / "no.zarr")
    server.hidden = True
    ingest(at("rows.csv"), tmp_path / "rows.zarr", drop="word")  # which needs no right to list
    with pytest.raises(RunError, match="access denied"):
        ingest(at("other.csv"), tmp_path / "no.zarr")
    server.hidden, server.ranges = False, False
    with pytest.raises(RunError, match="this server sends whole objects where parts of them were requested"):
        ingest(at("rows.csv"), tmp_path / "no.zarr")
    server.allow = lambda header: "AccessDenied"
    with pytest.raises(RunError, match=r"s3://buck/rows.csv: access denied \("):
        ingest(at("rows.csv"), tmp_path / "no.zarr")


def test_patterns_match_as_those_of_files(at: Callable[..., Location], folder: Path) -> None:
    """Every pattern finds what ``glob`` finds in the same folders."""
    draws = random.Random(7)  # noqa: S311
    names = ["a", "b", ".c", "a.csv", "b[1].csv", "[b]"]
    for _ in range(60):
        parts = [draws.choice(names) for _ in range(draws.randint(1, 4))]
        path = folder.joinpath(*parts)
        if not path.exists() and not any(folder.joinpath(*parts[:n]).is_file() for n in range(1, len(parts))):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
    pieces = ["*", "**", "a", "?", "*.csv", "[ab]*", ".*", "b[[]1].csv", "[[]b]"]
    for _ in range(150):
        pattern = "/".join(draws.choice(pieces) for _ in range(draws.randint(1, 4)))
        wanted = glob.glob(f"{folder}/{pattern}", recursive=True)
        if "**" in pattern:
            wanted = [one for one in wanted if not Path(one).is_dir()]
        wanted = sorted({one.removeprefix(f"{folder}/").rstrip("/") for one in wanted} - {"", str(folder)})
        try:
            found = sorted(one.key for part in expand_addresses([at(pattern)]) for one in part)
        except UsageError:
            found = []
        if glob.has_magic(pattern):
            assert found == wanted, pattern


def test_reads_in_any_order(at: Callable[..., Location], folder: Path) -> None:
    """An object is a file like others, wherever it is read and whatever is expected of it."""
    data = np.random.default_rng(0).integers(0, 256, 9 << 20, dtype=np.uint8).tobytes()
    (folder / "any.bin").write_bytes(data)
    (path,) = next(expand_addresses([at("any.bin")]))
    draws, content = random.Random(3), path.open().raw  # type: ignore[attr-defined] # noqa: S311
    for step in range(300):
        if step % 60 == 20:
            starts = sorted(draws.randrange(len(data)) for _ in range(4))
            spans = list(zip(starts[::2], starts[1::2], strict=True))
            content.expect([*spans, (len(data) - 5, len(data) + 5), (7, 3)], 1 << 18, draws.choice([None, 0, 2]))
        start = draws.randrange(len(data) + 10) if step % 3 else content.tell()
        content.seek(start)
        size = draws.choice([0, 1, 100, 70_000, 3 << 20])
        assert content.read(size) == data[start : start + size]
        assert content.tell() == min(start + size, max(start, len(data)))
    content.close()
    while prefetcher.held_bytes:  # what is being fetched now, until it comes
        time.sleep(0.01)


def test_training_from_an_object(
    run: Callable[..., Result], server: BucketServer, folder: Path, tmp_path: Path
) -> None:
    """The command again uses the store of an object that has the same ETag, and replaces that of another one."""
    pc.write_csv(table(300, 3), folder / "rows.csv")
    words = ["--storage-option", f"endpoint={server.endpoint}"]
    model = str(tmp_path / "rows.model")
    train = ["train", "s3://buck/rows.csv", "--out", model, "--loss", "hinge", "--drop", "word", *words]
    first = run(*train)
    assert first.exit_code == 0, first.output
    assert run("verify", model, str(tmp_path / "rows.zarr")).exit_code == 0
    again = run(*train, "--overwrite")
    assert "reused, since it was made from the same files" not in again.output
    other = run(*train[:3], str(tmp_path / "rows.model"), *train[4:], "--resume")
    assert "reused, since it was made from the same files" in other.output, other.output
    pc.write_csv(table(300, 3, seed=1), folder / "rows.csv")
    refused = run(*train, "--resume")
    assert refused.exit_code == 2
    assert "it was made from s3://buck/rows.csv of" in refused.output
    out = tmp_path / "found.csv"
    assert run("predict", model, "s3://buck/rows.csv", str(out), "--drop", "word", *words).exit_code == 0
    assert len(out.read_text().splitlines()) == 301
    np.save(folder / "weights.npy", np.ones(300))
    weights = ["--weights", "s3://buck/weights.npy"]
    evaluated = run("evaluate", model, "s3://buck/rows.csv", "--drop", "word", "--json", *weights, *words)
    assert json.loads(evaluated.stdout)["rows"] == 300


def test_a_folder_is_told_from_a_store(
    run: Callable[..., Result], server: BucketServer, folder: Path, tmp_path: Path
) -> None:
    """An address without an ending is that of files if there is no store."""
    (folder / "parts").mkdir()
    pq.write_table(table(300, 3), folder / "parts/a.parquet")
    words = ["--storage-option", f"endpoint={server.endpoint}", "--loss", "hinge"]
    out = str(tmp_path / "parts.model")
    assert run("train", "s3://buck/parts", "--out", out, "--drop", "word", *words).exit_code == 0
    refused = run("train", "s3://buck/nothing", "--out", str(tmp_path / "no.model"), *words)
    assert refused.exit_code == 3
    assert "s3://buck/nothing" in refused.output


def test_the_command(run: Callable[..., Result], server: BucketServer, folder: Path, tmp_path: Path) -> None:
    """Options of addresses are for rows, labels and weights; without an address they are refused."""
    X = np.random.default_rng(0).normal(size=(100, 3))
    np.save(folder / "rows.npy", X)
    np.save(folder / "labels.npy", np.arange(100) % 2)
    np.save(folder / "weights.npy", np.ones(100))
    (folder / "names.txt").write_text("a\nb\nc\n")
    words = ["--storage-option", f"endpoint={server.endpoint}"]
    out = str(tmp_path / "rows.zarr")
    sides = ["--labels", "s3://buck/labels.npy", "--weights", "s3://buck/weights.npy", "--names", "s3://buck/names.txt"]
    dry = run("ingest", "s3://buck/rows.npy", out, *sides, *words, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "would write" in dry.output
    assert run("ingest", "s3://buck/rows.npy", out, *sides, *words).exit_code == 0
    found = Store.open(out)
    assert found.columns is not None
    assert list(found.columns.names) == ["a", "b", "c"]
    refused = run("ingest", str(folder / "rows.npy"), str(tmp_path / "no.zarr"), *words)
    assert refused.exit_code == 2
    assert "storage options are for addresses such as s3://bucket/rows.zarr" in refused.output
    with pytest.raises(UsageError, match="storage options are for addresses such as .*; there is none"):
        coremargin.train(X, np.arange(100) % 2, storage_options={"region": "x"})


def test_an_object_that_is_replaced_by_a_shorter_one(at: Callable[..., Location], folder: Path) -> None:
    """What lies behind its new end is no error of the service."""
    path = folder / "rows.csv"
    path.write_bytes(bytes(200_000))
    (found,) = next(expand_addresses([at("rows.csv")]))
    with found.open() as file:
        file.read(10)
        path.write_bytes(b"short")
        with pytest.raises(ObjectChanged, match="s3://buck/rows.csv: the object changed while it was read"):
            file.read()
    with pytest.raises(ObjectChanged):
        found.fetch(150_000, 160_000)


def test_python(at: Callable[..., Location], server: BucketServer, folder: Path, tmp_path: Path) -> None:
    """Addresses with options, in a list, too."""
    for part in range(2):
        pq.write_table(table(200, 3, part), folder / f"{part}.parquet")
    options = {"endpoint": server.endpoint}
    names = ["s3://buck/0.parquet", "s3://buck/1.parquet"]
    report = coremargin.ingest(names, tmp_path / "rows.zarr", storage_options=options, drop="word")
    assert report.rows == 400
    model = coremargin.train(at("0.parquet"), loss="hinge", columns={"drop": ["word"]})
    assert model.status == "certified"
