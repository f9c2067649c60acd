"""Labels that are written after the rows: a commit of its own, cheap, and nothing of older commits is lost."""

from __future__ import annotations

import json
import shutil
import textwrap
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from scipy.sparse import csr_array

from coremargin.cli import main
from coremargin.data import changes as changes_module
from coremargin.data import format as format_module
from coremargin.data.amend import set_weights, write_labels
from coremargin.data.arrays import ArraySource
from coremargin.data.check import check_store
from coremargin.data.local_storage import LocalStorage
from coremargin.data.opened import open_source
from coremargin.data.place import Place
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk, LabelError, StoreError, UsageError
from coremargin.verify.rows import Rows
from store_kit import FAULTS, edit_attributes, edit_json, quick_folder, rewrite_array, write_store

ROWS = 300


def labels_of(store: Store) -> list[Any]:
    """The label of each row, None for those without."""
    codes = np.concatenate([store.labels(chunk) for chunk in range(store.chunks)])
    return [None if code < 0 else store.classes[code] for code in codes]


def weights_of(store: Store) -> np.ndarray:
    """The weight of each row, 1 where there are none."""
    found = [store.weights(chunk) for chunk in range(store.chunks)]
    spans = [store.span(chunk) for chunk in range(store.chunks)]
    return np.concatenate([np.ones(b - a) if w is None else w for w, (a, b) in zip(found, spans, strict=True)])


def as_verified(path: Path, digest: str = "") -> tuple[str, list[Any], np.ndarray]:
    """The digest, the labels and the weights that ``verify`` finds by itself."""
    rows = Rows(path, digest)
    chunks = [chunk for chunk, _ in rows.scan(lambda chunk: None, threads=2)]
    codes = np.concatenate([chunk.codes for chunk in chunks])
    weights = [np.ones(len(chunk.codes)) if chunk.weights is None else chunk.weights for chunk in chunks]
    return rows.digest, [None if code < 0 else rows.classes[code] for code in codes], np.concatenate(weights)


def by_recipe(path: Path) -> list[Any]:
    """The last labels as data/format.py tells users of zarr-python to read them: its own lines are run."""
    lines = str(format_module.__doc__).partition("in the order of the\ncommits::\n\n")[2].splitlines()
    recipe = "\n".join(takewhile(lambda line: line.startswith("    "), lines))
    known: dict[str, Any] = {"group": zarr.open_group(path, mode="r")}
    exec(textwrap.dedent(recipe), known)  # noqa: S102 - this is what users do with it
    classes = known["group"].attrs["classes"]
    return [None if code < 0 else classes[code] for code in known["codes"]]


@pytest.fixture
def store(tmp_path: Path, rng: np.random.Generator) -> Path:
    """300 rows in chunks of 64, of classes a and b, every third without label."""
    X = rng.normal(size=(ROWS, 4)).astype(np.float32)
    y = np.where(X[:, 0] > 0, "a", "b").astype(object)
    y[::3] = None
    return write_store(tmp_path / "s.zarr", X, y).path


def write_part(writer: StoreWriter, parts: Any, part: slice) -> None:
    """A commit of some rows, labels and weights."""
    with writer:
        writer.write(*(None if values is None else values[part] for values in parts))


class Then(NamedTuple):
    """What a commit had."""

    number: int
    digest: str
    rows: int
    labels: list[Any]
    weights: np.ndarray | None


def check_opened(path: Path, X: np.ndarray, then: Then) -> None:
    """A commit opens as it was: as counted anew from arrays."""
    opened, count = Store.open(path, commit=then.number), then.rows
    assert (opened.digest, opened.rows, labels_of(opened)) == (then.digest, count, then.labels)
    assert opened.weighted == (then.weights is not None)
    assert np.array_equal(weights_of(opened), np.ones(count) if then.weights is None else then.weights)
    kept = csr_array(X[:count]) if opened.sparse else X[:count]
    again = ArraySource(kept, then.labels, weights=then.weights, classes=opened.classes)
    assert again.digest == then.digest
    assert opened.scalars().counts.sum(axis=0).tolist() == [then.labels.count(label) for label in opened.classes]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse and weighted", "compressed"])
def test_any_history_of_labels_and_rows(kind: str, rng: np.random.Generator) -> None:
    """Whatever is appended, relabelled and reweighed in turn, each commit opens by its number with the labels and
    weights it had, as counted anew from arrays; ``check`` and ``verify`` agree, and so does zarr-python by the recipe.
    """  # fmt: skip
    X = rng.normal(size=(1500, 3)).astype(np.float32) * (rng.random((1500, 3)) < (0.5 if "sparse" in kind else 2))
    y, came = rng.choice(np.array(["a", None], dtype=object), 1500), rng.random(1500) if "sparse" in kind else None
    y[:9], weights, reweighed = "a", np.ones(1500) if came is None else came, came is not None
    options: dict[str, Any] = {"compression": "zstd"} if kind == "compressed" else {}
    options |= {} if came is None else {"sparse": True, "weighted": True, "chunk_rows": 64}

    with quick_folder() as folder:
        path, rows, history = folder / "s.zarr", 400, list[Then]()
        parts = (X, y, None if came is None else weights)
        write_part(StoreWriter.create(path, features=3, chunk_bytes=64 * 12, **options), parts, slice(0, rows))
        for step in range(40):
            if step and rng.random() < 0.4:
                more = int(rng.integers(1, 90))
                write_part(StoreWriter.append(path), parts, slice(rows, rows + more))
                rows += more
            elif step and rng.random() < 0.4:
                ids = rng.choice(np.arange(9, rows), int(rng.integers(1, 12)), replace=False)
                given = rng.choice([0.0, 1.0, 2.5], len(ids))
                found_weights = set_weights(path, ids, given)
                assert found_weights.changed == np.count_nonzero(weights[ids] != given)
                assert found_weights.removed == np.count_nonzero((weights[ids] > 0) & (given == 0))
                weights[ids], reweighed = given, reweighed or bool(found_weights.changed)
            elif step:
                ids = rng.choice(np.arange(9, rows), int(rng.integers(1, 12)), replace=False)
                new = rng.choice(np.array(["a", "b", f"new {step // 10}", None], dtype=object), len(ids))
                was = y[ids].copy()
                found = write_labels(path, ids, list(new))
                y[ids] = new
                assert found.added == sum(a is None and b is not None for a, b in zip(was, new, strict=True))
                assert found.replaced == sum(
                    b is not None and a not in (None, b) for a, b in zip(was, new, strict=True)
                )
                assert found.removed == sum(a is not None and b is None for a, b in zip(was, new, strict=True))
            last = Store.open(path)
            heavy = weights[:rows].copy() if reweighed else None
            history.append(Then(last.commits - 1, last.digest, rows, list(y[:rows]), heavy))
        for then in history:
            check_opened(path, X, then)
        for then in history[::5]:
            found_digest, found_labels, found = as_verified(path, then.digest)
            assert (found_digest, found_labels) == (then.digest, then.labels)
            assert np.array_equal(found, np.ones(then.rows) if then.weights is None else then.weights)
            assert check_store(path, workers=1, digest=then.digest).whole
        assert by_recipe(path) == history[-1].labels


@pytest.mark.parametrize("fresh", [1, 21, 200])
def test_the_recipe_for_a_chunk_that_grows_after_two_changes(store: Path, rng: np.random.Generator, fresh: int) -> None:
    """Of a last chunk that was relabelled twice and then filled up, or not quite, the recipe reads the labels that it
    has, and no rows that were written for a commit that never came.
    """  # fmt: skip
    write_labels(store, [290], ["c"])
    write_labels(store, [291], ["d"])
    with StoreWriter.append(store) as writer:
        writer.write(rng.normal(size=(fresh, 4)).astype(np.float32), ["e"] * fresh)
    labels = labels_of(Store.open(store))
    assert (labels[290:292], labels[ROWS:]) == (["c", "d"], ["e"] * fresh)
    assert by_recipe(store) == labels
    edit_json(store / "y" / "zarr.json", lambda array: array.update(shape=[ROWS + fresh + 50]))
    assert by_recipe(store) == labels


def test_only_labels_of_changed_chunks_are_written(store: Path) -> None:
    """A commit that changes two chunks of five writes two files of labels and their entries, and leaves all others."""
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    found = write_labels(store, [290, 3, 299], ["c", "c", "c"])
    after = {path for path in store.rglob("*") if path.is_file()}
    assert [path for path, time in sorted(before.items()) if path.stat().st_mtime_ns != time] == [
        store / "log.jsonl",
        store / "zarr.json",
    ]
    assert {path.relative_to(store).as_posix() for path in after - set(before)} == {
        *(f"changes/000001/y/{name}" for name in ("zarr.json", "c.0", "c.4")), "changes/000001/zarr.json",
        "changes/000001/rows.npz", "changes/zarr.json", "blocks/000001/zarr.json",
        *(f"blocks/000001/{name}/zarr.json" for name in ("chunk", "array", "y", "unlabelled", "counts", "sha256")),
        *(f"blocks/000001/{name}/c.0" for name in ("chunk", "array", "y", "unlabelled")), "blocks/000001/counts/c.0.0",
        "blocks/000001/sha256/c.0.0.0",
    }  # fmt: skip
    assert (found.given, found.added + found.replaced) == (3, 3)
    assert Store.open(store).classes[2:] == ("c",)


def test_labels_are_taken_away_where_they_are_those_named(store: Path) -> None:
    """A withdrawn label goes where the row has it, wherever it lies, and no other; a row is not given one as well."""
    before = labels_of(Store.open(store))
    with pytest.raises(UsageError, match="expected each row once, found row 1 twice"):
        write_labels(store, [1], ["c"], withdrawn={1: [before[1]]})
    with pytest.raises(UsageError, match="expected row ids from 0 to 299, got 300 to 300"):
        write_labels(store, [], [], withdrawn={300: ["a"]})
    named = {1: ["c", before[1]], 290: [before[290]], 2: ["c", True], 3: ["a", "b"], 4: []}
    found = write_labels(store, [0], ["c"], withdrawn=named)
    assert (found.given, found.added, found.replaced, found.removed, found.changed) == (1, 1, 0, 2, 3)
    assert found.examples == ((1, before[1], None), (290, before[290], None))
    after = ["c", None, *before[2:290], None, *before[291:]]
    assert labels_of(Store.open(store)) == after
    assert write_labels(store, [0], ["c"], withdrawn=named).changed == 0


def test_rows_of_another_store_get_no_labels(store: Path) -> None:
    """Row numbers about a commit that the store never had change nothing; any of those that it had will do."""
    first = Store.open(store).digest
    write_labels(store, [0], ["c"], after=first)
    assert write_labels(store, [1], ["c"], after=first).changed == 1
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="expected a commit with the content sha256:0, found sha256:"):
        write_labels(store, [2], ["c"], after="sha256:0")
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_the_same_labels_are_no_commit(store: Path) -> None:
    """Labels that all rows have already, or none at all, change no byte of the store."""
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    opened = Store.open(store)
    assert write_labels(store, np.arange(ROWS), labels_of(opened)).changed == 0
    assert write_labels(store, [], []).digest == opened.digest
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_store_that_is_open_keeps_its_labels(store: Path) -> None:
    """Who opened a store before goes on with the labels that it had, and so does another process by its handle."""
    opened = Store.open(store)
    labels = labels_of(opened)
    write_labels(store, np.arange(0, ROWS, 3), ["c"] * 100)
    assert labels_of(opened) == labels == labels_of(open_source(opened.handle()))  # type: ignore[arg-type]
    assert opened.rows_at(np.array([0]))[1].tolist() == [-1]
    now = Store.open(store)
    assert labels_of(now)[::3] == ["c"] * 100
    assert now.rows_at(np.array([297, 1]))[1].tolist() == [2, now.labels(0)[1]]
    assert labels_of(Store.open(store, digest=opened.digest)) != labels_of(now)


def test_versions(store: Path, tmp_path: Path) -> None:
    """Stores say format 5; another one is refused, with what to do."""
    write_labels(store, [0], ["a"])
    assert json.loads((store / "zarr.json").read_text())["attributes"]["version"] == 5
    for version in (1, 4, 6):
        edit_attributes(store, version=version)
        with pytest.raises(StoreError, match=f"expected a store of format 5, found {version}; .*ingest the rows again"):
            Store.open(store)


@pytest.mark.slow
def test_many_commits_are_opened_by_few_files(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred commits that change labels, of one chunk or of many, are read from a few groups."""
    reads: list[str] = []
    real = changes_module.read_raw_array

    def counted(storage: Any, array: str, *args: Any) -> Any:
        reads.append(array)
        return real(storage, array, *args)

    with quick_folder() as folder:
        path = write_store(folder / "s.zarr", rng.normal(size=(640, 4)).astype(np.float32), None, chunk_rows=4).path
        for number in range(100):
            write_labels(path, [int(rng.integers(640)), 5], ["a", "bc"[number % 2]])
        monkeypatch.setattr(changes_module, "read_raw_array", counted)
        store = Store.open(path)
        store.scalars()
        assert store.commits == 101
        assert len({one.rpartition("/")[0] for one in reads}) <= 8
        assert labels_of(store)[5] == "c"


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_labels_are_named(store: Path, fault: str) -> None:
    """Whatever becomes of a file of changed labels is refused with file, chunk and rows, by reader, check and verify;
    the commit before is whole.
    """  # fmt: skip
    before = Store.open(store).digest
    write_labels(store, [70, 71], ["c", "c"])
    file = store / "changes" / "000001" / "y" / "c.1"
    data = FAULTS[fault](file.read_bytes())
    file.unlink() if data is None else file.write_bytes(data)
    with pytest.raises(DamagedChunk, match=r"chunk 1 \(rows 64 to 127\), file changes/000001/y/c.1"):
        labels_of(Store.open(store))
    [damage] = check_store(store).damaged
    assert (damage.chunk, damage.start, damage.stop) == (1, 64, 128)
    with pytest.raises(DamagedChunk, match=r"chunk 1 \(rows 64 to 127\)"):
        as_verified(store)
    assert check_store(store, digest=before).whole
    assert as_verified(store, before)[0] == before


def test_forged_entries_are_refused(store: Path) -> None:
    """Entries of another chunk, another array, another order or with other sums do not pass as what was committed."""
    write_labels(store, [70], ["c"])
    write_labels(store, [70, 200], ["d", "c"])
    folder = store / "blocks" / "000002"
    lies: dict[str, Any] = {"chunk": [[1, 2], [3, 1], [1, 1], [-1, 3], [1, 99]], "y": [[1, 2]], "array": []}
    lies["array"] = [[1, 2], [0, 2], [7, 2], [-1, 2]]
    for name, wrong in lies.items():
        for values in wrong:
            copy = shutil.copytree(store, store.parent / "copy.zarr", dirs_exist_ok=True)
            array: Any = zarr.open_array(copy / "blocks" / "000002" / name, mode="r+")
            array[:] = np.array(values).astype(array.dtype)
            with pytest.raises((StoreError, DamagedChunk)):
                labels_of(Store.open(copy))
            with pytest.raises((StoreError, DamagedChunk)):
                as_verified(copy)
            assert not (folder / name).samefile(copy / "blocks" / "000002" / name)
            shutil.rmtree(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"changed": 0}, "does not follow from the one before"),
        ({"changed": 99}, "changes 99 chunks of 5"),
        ({"rows": 299}, "expected the rows of the last commit, 299, got 300"),
        ({"first": 3}, "covers 3 to 5"),
        ({"last": 6}, "covers 5 to 6"),
        ({"since": 0}, "repeats changes since commit 0, which made none"),
        ({"since": 3}, "repeats changes since commit 3"),
        ({"classes": 1}, "expected the classes of the last commit, 1, got 4"),
        ({"changed": 1}, "expected the content"),
        ({"since": 2}, None),
    ],
)
def test_forged_commits_are_refused(store: Path, change: dict[str, int], message: str | None) -> None:
    """A record of a change that does not follow from the commit before is refused; one may repeat less than it says, as
    long as the content is the same.
    """  # fmt: skip
    write_labels(store, [70], ["c"])
    write_labels(store, [70, 200], ["d", "c"])
    edit_json(store / "zarr.json", lambda root: root["attributes"]["commits"][-1].update(change))
    if message is None:
        assert as_verified(store)[1] == labels_of(Store.open(store))
        return
    for read in (lambda: labels_of(Store.open(store)), lambda: as_verified(store)):
        with pytest.raises(StoreError, match=message):
            read()


def test_refusals(store: Path) -> None:
    """Rows that are not there, or twice, labels of another kind, and stores of other writers are refused as a whole."""
    for ids, labels, kind, message in (
        ([ROWS], ["a"], UsageError, "expected row ids from 0 to 299, got 300"),
        ([4, 2, 4], ["a", "b", "a"], UsageError, "expected each row once, found row 4 twice"),
        ([4, 2], ["a", 1], LabelError, "labels in the order given: row 1: expected a text"),
        ([4], ["a", "b"], LabelError, "expected as many labels as rows, 1, got 2"),
    ):
        with pytest.raises(kind, match=message):
            write_labels(store, ids, labels)
    assert not (store / "changes").exists()
    rewrite_array(store, "y", compressors=None)
    with pytest.raises(StoreError, match="expected codecs and chunk names as this writer makes them"):
        write_labels(store, [0], ["c"])


def test_what_a_killed_writer_left_is_cleared_away(store: Path) -> None:
    """Labels that no commit has are removed by the next writer, whoever else's files stay where they are."""
    write_labels(store, [0], ["c"])
    left = store / "changes" / "000002" / "y"
    left.mkdir(parents=True)
    (left / "c.0").write_bytes(b"half")
    (store / "changes" / "000001" / "y" / ".c.0.aside").write_bytes(b"half")
    Place.existing(store).close()
    assert sorted(path.name for path in (store / "changes").rglob("*")) == [
        "000001", "c.0", "rows.npz", "y", *["zarr.json"] * 3
    ]  # fmt: skip
    write_labels(store, [1], ["c"])
    assert check_store(store).whole


def test_a_store_with_changed_labels_may_be_overwritten(store: Path, rng: np.random.Generator) -> None:
    """It holds nothing but what is ours."""
    write_labels(store, [0], ["c"])
    fresh = write_store(store, rng.normal(size=(10, 4)).astype(np.float32), ["a"] * 10, overwrite=True)
    assert not (store / "changes").exists()
    assert fresh.commits == 1


def test_info_and_check_of_commits(store: Path) -> None:
    """``info`` lists what each commit did, and ``check --commit`` examines one of them."""
    before = Store.open(store).digest
    write_labels(store, [0, 70], ["c", "c"])
    run = CliRunner().invoke
    shown = json.loads(run(main, ["info", str(store), "--json"]).stdout)
    told = json.loads(run(main, ["log", str(store), "--json"]).stdout)["commits"]
    assert [(one["rows"], one["counts"]) for one in told] == [
        (ROWS, {"labels_added": 1, "labels_replaced": 1}),
        (ROWS, {"added": ROWS}),
    ]
    assert [one["digest"] for one in told] == [shown["digest"], before]
    text = run(main, ["info", str(store)]).stdout
    assert "1 row with a first label, 1 row with another label" in text
    assert before in text
    (store / "changes" / "000001" / "y" / "c.1").unlink()
    assert run(main, ["check", str(store)]).exit_code == 3
    whole = run(main, ["check", str(store), "--commit", before])
    assert (whole.exit_code, "undamaged" in whole.stdout) == (0, True)


def test_a_writer_that_comes_late_removes_nothing_that_is_committed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer ends between the first look at a store and the lock: its labels are nobody's leavings."""
    lock, other = LocalStorage.lock_writers, list[str]()

    def late(storage: LocalStorage, called: str = "") -> Any:
        if not other:
            other.append("begins and ends here")
            write_labels(store, [5, 6], ["a", "b"])
        return lock(storage, called)

    monkeypatch.setattr(LocalStorage, "lock_writers", late)
    write_labels(store, [7], ["b"])
    assert [labels_of(Store.open(store))[row] for row in (5, 6, 7)] == ["a", "b", "b"]
    assert as_verified(store)[1] == labels_of(Store.open(store))
    assert check_store(store).whole


def test_labels_set_and_set_back_are_the_last_commit_of_their_digest(store: Path) -> None:
    """Whoever opens or verifies a digest that two commits have reads the later one: nothing has changed since."""
    before, digest = labels_of(Store.open(store)), Store.open(store).digest
    other = next(label for label in ("a", "b") if label != before[0])
    write_labels(store, [0], [other])
    write_labels(store, [0], [before[0]])
    assert Store.open(store).digest == digest
    assert Store.open(store, digest=digest).commits == Store.open(store).commits == 3
    assert Rows(store, digest).amended == 0


def test_a_folder_of_labels_that_is_gone_is_damage(store: Path) -> None:
    """Where the labels of a commit were removed ``check`` says so, with the file that is missing, and exit code 3."""
    write_labels(store, [7], ["b"])
    shutil.rmtree(store / "changes" / "000001")
    found = CliRunner().invoke(main, ["check", str(store)])
    assert found.exit_code == 3
    assert "changes/000001/y/zarr.json: missing" in found.output
