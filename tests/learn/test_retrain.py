"""Retraining from disk: only what is new is read, and what comes of it is what training from scratch comes to."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.cli.messages import describe_changes
from coremargin.data.amend import remove_rows, write_labels
from coremargin.data.folder import write_arrays
from coremargin.data.lazy_arrays import LazyArrays
from coremargin.data.local_storage import LocalStorage
from coremargin.data.locked import Locked
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.errors import (
    Busy,
    CheckpointError,
    DataError,
    Interrupted,
    LabelError,
    SpecError,
    StoreError,
    UsageError,
)
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.formats.npz import read_arrays
from coremargin.learn.retrain import RetrainJob, load_retrain_job, prepare_retraining, retrain_job_of
from coremargin.learn.train import Progress, open_store, train_job
from coremargin.models.kept import FILE, kept_bytes, read_kept, write_kept
from coremargin.verify import verify

if TYPE_CHECKING:
    from coremargin.problems.kind import Outcome

PLANE = np.array([0.6, 0.8, 0.0, 0.0])
CHUNK_ROWS = 50


def made(rows: int, margin: float, seed: int, plane: np.ndarray = PLANE) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows pushed apart along a plane."""
    X = np.random.default_rng(seed).standard_normal((rows, len(plane)))
    y = np.where(X @ plane >= 0, 1, -1)
    return (X + (margin * y)[:, None] * plane).astype(np.float32), y


def append(path: Path, rows: int, margin: float, seed: int) -> Store:
    """So many more rows."""
    with StoreWriter.append(path) as writer:
        writer.write(*made(rows, margin, seed), origin="test")
    return Store.open(path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """10,020 rows of 4 features in 201 chunks, the last of 20 rows."""
    path = tmp_path / "rows.zarr"
    with StoreWriter.create(path, features=4, dtype="float32", chunk_rows=CHUNK_ROWS) as writer:
        writer.write(*made(10_020, 0.5, 1), origin="test")
    return Store.open(path)


@pytest.fixture
def model(store: Store, tmp_path: Path) -> Path:
    """Trained on all of them."""
    out = tmp_path / "first"
    coremargin.train(store.path, out=out)
    return out


def again(
    model: Path, store: Path, out: Path, begin: Any = "new", progress: Progress | None = None, **said: Any
) -> Outcome:
    """Retrain, a chunk a block."""
    job = retrain_job_of({"model": model, "store": store, "out": out, "block": 1, **said}, where="test")
    begun = prepare_retraining(job, begin)
    rows = open_store(begun.job, begin)
    return train_job(begun.job, rows, InProcess(1), begin=begin, progress=progress, retraining=begun)


def chunks_read(outcome: Outcome) -> int:
    """In all rounds."""
    return sum(line["chunks_read"] for line in outcome.rounds)


def assert_as_good(outcome: Outcome, store: Path, tmp_path: Path) -> None:
    """Certified, verified by a reading of all rows, within epsilon of what training from scratch comes to."""
    claim = outcome.model.record["certificate"]
    assert outcome.model.status == "certified"
    assert verify(outcome.run["out"], store).ok
    fresh = coremargin.train(store).record["certificate"]
    assert claim["lower"] <= fresh["upper"]
    assert fresh["lower"] <= claim["upper"]
    assert claim["store_digest"] == Store.open(store).digest


def test_nights_of_new_rows(store: Store, model: Path, tmp_path: Path) -> None:
    """Six nights, 5 % new rows each, which come 1 % closer: what is read is the new and at most a tenth besides."""
    share, last = 0.0, model
    for night in range(1, 7):
        now = append(store.path, 500, 0.5 * 0.99**night, 100 + night)
        outcome = again(last, store.path, tmp_path / f"m{night}")
        assert outcome.model.status == "certified"
        assert outcome.run["bytes_read"] == sum(line["bytes_read"] for line in outcome.rounds)
        assert outcome.run["bytes_read"] >= 500 * now.nbytes // now.rows
        share += outcome.run["bytes_read"] / now.nbytes
        last = tmp_path / f"m{night}"
    assert share / 6 <= 0.15
    assert_as_good(outcome, store.path, tmp_path)


@pytest.mark.slow
def test_only_new_chunks_are_read(store: Store, model: Path, tmp_path: Path) -> None:
    """Rows beyond the bound: new chunks, and new rows of the one that grew; not a byte more, and the same bound."""
    now = append(store.path, 130, 0.52, 7)
    outcome = again(model, store.path, tmp_path / "m")
    assert chunks_read(outcome) == 2
    assert outcome.run["bytes_read"] == 130 * now.nbytes // now.rows
    assert outcome.model.certificate.upper == pytest.approx(coremargin.load(model).certificate.upper, rel=1e-9)
    assert_as_good(outcome, store.path, tmp_path)
    told = outcome.run["retrained"]
    assert (told["rows"], told["rows_appended"], told["rows_changed"]) == (10_020, 130, 0)
    assert told["store"] == store.digest
    assert "from_scratch" not in told


def test_nothing_new(store: Store, model: Path, tmp_path: Path) -> None:
    """Nothing is read, and the claims are those of the model before it."""
    outcome = again(model, store.path, tmp_path / "m")
    assert (outcome.run["bytes_read"], outcome.run["scans"], chunks_read(outcome)) == (0, 0, 0)
    assert outcome.model.record["certificate"] == coremargin.load(model).record["certificate"]
    assert verify(tmp_path / "m", store.path).ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_labels_that_change_and_rows_that_come(store: Store, tmp_path: Path, seed: int) -> None:
    """Labels and rows taken away, of the proof too, and given back, rows appended, in any order: as from scratch."""
    rng = np.random.default_rng(seed)
    last = tmp_path / "m0"
    hidden: dict[int, int] = {}
    coremargin.train(store.path, out=last)
    for night in range(1, 6):
        rows = Store.open(store.path)
        if rng.random() < 0.5:
            append(store.path, int(rng.integers(1, 200)), 0.5 * 0.99**night, 1000 * seed + night)
        core = coremargin.load(last).coreset_ids[:2].tolist() if rng.random() < 0.5 else []
        away = sorted({*core, *rng.integers(rows.rows, size=5).tolist()} - hidden.keys())
        codes = rows.rows_at(np.array(away))[1]
        back = dict(hidden) if rng.random() < 0.5 else {}
        write_labels(store.path, [*away, *back], [*[None] * len(away), *back.values()])
        weights = [rows.weights(chunk) for chunk in range(rows.chunks)]
        counting = np.arange(rows.rows) if weights[0] is None else np.flatnonzero(np.concatenate(weights) > 0)
        out = rng.choice(np.setdiff1d(counting, [*away, *back]), 4, replace=False)
        remove_rows(store.path, out)
        hidden = {row: label for row, label in hidden.items() if row not in back}
        hidden |= {row: rows.classes[code] for row, code in zip(away, codes.tolist(), strict=True)}
        outcome = again(last, store.path, tmp_path / f"m{night}")
        assert outcome.run["retrained"]["rows_changed"] == len({*away, *back, *out.tolist()})
        assert_as_good(outcome, store.path, tmp_path)
        last = tmp_path / f"m{night}"


@pytest.mark.slow
def test_epsilon_may_be_another(store: Store, model: Path, tmp_path: Path) -> None:
    """Looser: the proof is there; tighter: as much more is read as it takes."""
    append(store.path, 400, 0.4995, 3)
    for epsilon in (0.1, 1e-6):
        outcome = again(model, store.path, tmp_path / f"e{epsilon}", epsilon=epsilon)
        claim = outcome.model.record["certificate"]
        assert claim["epsilon"] == epsilon
        assert claim["lower"] >= (1 - epsilon) * claim["upper"]
        assert verify(tmp_path / f"e{epsilon}", store.path).ok


def test_a_model_replaces_the_one_before_it(store: Store, model: Path, tmp_path: Path) -> None:
    """Where it is asked for, in one step; the next night goes on from there."""
    append(store.path, 100, 0.5, 3)
    with pytest.raises(UsageError, match="is there already"):
        coremargin.retrain(model, store.path, out=model)
    coremargin.retrain(model, store.path, out=model, overwrite=True)
    append(store.path, 100, 0.5, 4)
    found = coremargin.retrain(model, store.path, out=model, overwrite=True)
    assert found.rows == 10_220
    assert verify(model, store.path).ok
    run = json.loads((model / "run.json").read_text())
    assert run["retrained"]["rows"] == 10_120
    assert coremargin.retrain(model, store.path).record == found.record  # in memory


# what a model keeps


def altered(model: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Rewrite what a model keeps, without its seal."""
    with (model / FILE).open("rb") as file:
        arrays = read_arrays(file, "kept", 1000)
    change(arrays)
    (model / FILE).unlink()
    write_arrays(model / FILE, arrays)


def flipped(path: Path) -> None:
    """A bit in the middle of a file is another one."""
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :])


def lift(arrays: dict[str, np.ndarray]) -> None:
    """Floors that promise more than is true."""
    arrays["block_bounds_lower"] = arrays["block_bounds_lower"] + 5


@pytest.mark.slow
def test_it_is_small_and_nothing_rests_on_it(store: Store, model: Path, tmp_path: Path) -> None:
    """A part of the rows; without it the model is the same, verified, and retrained from scratch, which is said."""
    kept = read_kept(model)
    assert kept is not None
    assert len(kept["working_set_ids"]) + len(kept["near_rows_ids"]) < store.rows / 2
    (model / FILE).unlink()
    assert verify(model, store.path).ok
    now = append(store.path, 100, 0.5, 3)
    outcome = again(model, store.path, tmp_path / "m")
    assert outcome.run["bytes_read"] >= now.nbytes
    assert "has no warm-start state" in outcome.run["retrained"]["from_scratch"]
    assert_as_good(outcome, store.path, tmp_path)
    assert read_kept(tmp_path / "m") is not None


@pytest.mark.specimens(1)
@pytest.mark.parametrize("what", ["floors", "cut", "bytes", "of another", "no seal"])
def test_a_file_that_is_not_this_models_is_not_believed(store: Store, model: Path, tmp_path: Path, what: str) -> None:
    """Altered floors, damage, the file of another model: found out, said, and the store is read."""
    path = model / FILE
    if what == "floors":
        altered(model, lift)
    elif what == "no seal":
        altered(model, lambda arrays: arrays.__delitem__("seal"))
    elif what == "of another":
        coremargin.train(store.path, out=tmp_path / "other", epsilon=0.01)
        shutil.copy(tmp_path / "other" / FILE, path)
    else:
        flipped(path)
        if what == "cut":
            path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=FILE):
        read_kept(model)
    append(store.path, 300, 0.4, 3)
    outcome = again(model, store.path, tmp_path / "m")
    assert FILE in outcome.run["retrained"]["from_scratch"]
    assert_as_good(outcome, store.path, tmp_path)


@pytest.mark.slow
def test_quiet_nights_share_one_file_of_near_rows(store: Store, model: Path, tmp_path: Path) -> None:
    """As long as nothing breaks the margin it has only another name; then it is written anew, as from scratch."""
    content, last = (model / NEAR_ROWS).read_bytes(), model
    for night in range(1, 4):
        append(store.path, 100, 0.5, night)
        outcome = again(last, store.path, tmp_path / f"m{night}")
        last = tmp_path / f"m{night}"
        assert (model / NEAR_ROWS).samefile(last / NEAR_ROWS)
        assert_as_good(outcome, store.path, tmp_path)
    shutil.rmtree(model)
    append(store.path, 300, 0.45, 9)
    outcome = again(last, store.path, tmp_path / "broken")
    assert_as_good(outcome, store.path, tmp_path)
    assert stat.S_IMODE((last / NEAR_ROWS).stat().st_mode) & 0o222 == 0  # whoever wrote there would write to all
    assert (last / NEAR_ROWS).read_bytes() == content != (tmp_path / "broken" / NEAR_ROWS).read_bytes()
    assert kept_bytes(last) == len(content) + (last / FILE).stat().st_size


def test_where_files_cannot_have_two_names_they_are_copied(
    store: Store, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file system, or one without such links; or another model has taken the name meanwhile."""
    append(store.path, 100, 0.5, 3)
    content = (model / NEAR_ROWS).read_bytes()

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)
        again(model, store.path, tmp_path / "apart")
    assert (tmp_path / "apart" / NEAR_ROWS).read_bytes() == content
    assert not (model / NEAR_ROWS).samefile(tmp_path / "apart" / NEAR_ROWS)
    kept = read_kept(model)
    assert kept is not None
    (model / NEAR_ROWS).rename(tmp_path / "old")
    (model / NEAR_ROWS).write_bytes(b"of another model")
    kept["near_rows_filed"].put(LocalStorage(tmp_path), "new")
    assert (tmp_path / "new").read_bytes() == content


@pytest.mark.slow
@pytest.mark.parametrize("what", ["cut", "of another"])
def test_a_file_of_near_rows_of_another_size_is_told_at_once(
    store: Store, model: Path, tmp_path: Path, what: str
) -> None:
    """Damage, the file of another model: found out, said, and the store is read."""
    path = model / NEAR_ROWS
    if what == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        append(store.path, 5000, 0.5, 4)
        coremargin.train(store.path, out=tmp_path / "other")
        shutil.copy(tmp_path / "other" / NEAR_ROWS, path)
    append(store.path, 100, 0.5, 3)
    outcome = again(model, store.path, tmp_path / "m")
    assert NEAR_ROWS in outcome.run["retrained"]["from_scratch"]
    assert_as_good(outcome, store.path, tmp_path)


@pytest.mark.slow
def test_without_its_file_of_near_rows_a_model_is_trained_from_nothing(
    store: Store, model: Path, tmp_path: Path
) -> None:
    """Missing, or no plain file: said, and the store is read."""
    append(store.path, 100, 0.5, 3)
    (model / NEAR_ROWS).unlink()
    for name in ("missing", "a folder"):
        outcome = again(model, store.path, tmp_path / name)
        assert NEAR_ROWS in outcome.run["retrained"]["from_scratch"]
        assert_as_good(outcome, store.path, tmp_path)
        if name == "missing":
            (model / NEAR_ROWS).mkdir()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["rows", "labels"])
def test_damaged_near_rows_cost_a_reading_where_they_are_needed(
    store: Store, model: Path, tmp_path: Path, way: str
) -> None:
    """Quiet nights never look at them; a night that needs them reads the store instead, and says so."""
    flipped(model / NEAR_ROWS)
    append(store.path, 100, 0.5, 3)
    quiet = again(model, store.path, tmp_path / "quiet")
    assert "near_rows_lost" not in quiet.run
    assert_as_good(quiet, store.path, tmp_path)
    if way == "rows":
        append(store.path, 200, 0.49, 4)
    else:
        core = quiet.model.coreset_ids
        write_labels(store.path, core.tolist(), [None] * len(core))
    outcome = again(tmp_path / "quiet", store.path, tmp_path / "m")
    assert outcome.run["near_rows_lost"] is True
    assert "from_scratch" not in outcome.run["retrained"]
    assert any(NEAR_ROWS in text for _, text in describe_changes(outcome.run))
    assert outcome.run["bytes_read"] > 0.8 * store.nbytes
    assert_as_good(outcome, store.path, tmp_path)
    assert "near_rows_lost" not in again(tmp_path / "m", store.path, tmp_path / "same").run
    append(store.path, 100, 0.5, 5)
    later = again(tmp_path / "m", store.path, tmp_path / "later")  # what was kept then is whole
    assert later.run["bytes_read"] < 0.1 * store.nbytes
    assert_as_good(later, store.path, tmp_path)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("of_one_class", [True, False])
def test_damaged_near_rows_and_no_others(store: Store, tmp_path: Path, *, intercept: bool, of_one_class: bool) -> None:
    """Without the rows of the proof nothing is left to go on from: said, and the store is read."""
    model = tmp_path / "m"
    coremargin.train(store.path, out=model, intercept=intercept)
    flipped(model / NEAR_ROWS)
    kept = read_kept(model)
    assert kept is not None
    away = kept["working_set_ids"][kept["working_set_signs"] > 0] if of_one_class else kept["working_set_ids"]
    write_labels(store.path, away.tolist(), [None] * len(away))
    outcome = again(model, store.path, tmp_path / "night")
    assert intercept == ("is damaged" in outcome.run["retrained"].get("from_scratch", "")) or not of_one_class
    assert outcome.model.status == "certified"
    assert verify(tmp_path / "night", store.path).ok


def test_a_class_near_and_the_other_in_the_proof(store: Store, model: Path, tmp_path: Path) -> None:
    """Rows of both classes are at hand, of one among the rows near, of the other among those that carry the bound."""
    kept = read_kept(model)
    assert kept is not None
    away = [kept["coreset_ids"][kept["coreset_signs"] > 0], kept["near_rows_ids"][kept["near_rows_signs"] < 0]]
    ids = np.concatenate(away)
    write_labels(store.path, ids.tolist(), [None] * len(ids))
    outcome = again(model, store.path, tmp_path / "night")
    assert "from_scratch" not in outcome.run["retrained"]
    assert_as_good(outcome, store.path, tmp_path)


@pytest.mark.specimens(3)
@pytest.mark.parametrize("stop", [1, 2])
@pytest.mark.parametrize("seed", [0, 2, 3, 5, 8, 12, 13])
def test_damaged_near_rows_and_a_run_that_is_broken_off(tmp_path: Path, seed: int, stop: int) -> None:
    """A scan takes near rows to be known: it is gone on with as it was asked, and what is lost is read after it."""
    path, rng = tmp_path / "rows.zarr", np.random.default_rng(seed)
    along, across = np.array([0.6, 0.8]), np.array([-0.8, 0.6])
    (X, y), (far, its) = made(200, 0.5, seed, along), made(1800, 3.0, seed + 1000, along)
    X[120:] += ((2 * y[120:])[:, None] * along).astype(np.float32)
    with StoreWriter.create(path, features=2, dtype="float32", chunk_rows=200) as writer:
        writer.write(np.concatenate([X, far]), np.append(y, its), origin="test")
    coremargin.train(path, out=tmp_path / "first")
    kept = read_kept(tmp_path / "first")
    assert kept is not None
    some = np.setdiff1d(np.arange(120, 200), [*kept["near_rows_ids"], *kept["working_set_ids"]])[:60]
    rows = Store.open(path)
    labels = [rows.classes[code] for code in rows.rows_at(some)[1]]
    write_labels(path, some.tolist(), [None] * len(some))
    again(tmp_path / "first", path, tmp_path / "second")
    write_labels(
        path, some.tolist(), labels
    )  # more than a quarter of the chunk of the near rows: it is read as a whole
    flipped(tmp_path / "second" / NEAR_ROWS)
    side, size, new = rng.choice([-1, 1]), rng.uniform(2, 4), np.where(rng.random(400) < 0.5, 1, -1)
    turned = (side * new * size * rng.uniform(0.5, 1, 400))[:, None] * across * rng.choice([-1, 1])
    beyond = (new * rng.uniform(0.1, 0.3, 400))[:, None] * along
    with StoreWriter.append(path) as writer:
        writer.write((turned + beyond).astype(np.float32), new, origin="test")
    with pytest.raises(Interrupted):
        again(tmp_path / "second", path, tmp_path / "broken off", progress=stop_after(stop))
    outcome = again(tmp_path / "second", path, tmp_path / "broken off", begin="resume")
    assert verify(tmp_path / "broken off", path).ok
    straight = again(tmp_path / "second", path, tmp_path / "straight")
    assert outcome.model.record == straight.model.record
    assert outcome.run["near_rows_lost"]


def test_a_forger_is_found_out_by_verify(store: Store, model: Path, tmp_path: Path) -> None:
    """Floors that are lies, sealed as the program would: a claim that is false, which a reading of all rows refutes."""
    kept = read_kept(model)
    assert kept is not None
    near = kept["near_rows_ids"] % 2 == 0
    assert len(near) > 20
    for name in ("near_rows_ids", "near_rows_signs", "near_rows_places"):
        kept[name] = kept[name][near]  # half of the rows near are gone, and no floor speaks of them
    rows = kept["near_rows_filed"].arrays()["rows"]
    kept |= {
        "near_rows_places": np.arange(np.count_nonzero(near)),
        "near_rows_filed": LazyArrays.of({"rows": rows[near]}),
    }
    (model / FILE).unlink()
    (model / NEAR_ROWS).unlink()
    write_kept(LocalStorage(model), kept)
    write_labels(
        store.path, coremargin.load(model).coreset_ids.tolist(), [None] * len(coremargin.load(model).coreset_ids)
    )
    outcome = again(model, store.path, tmp_path / "m")
    assert outcome.model.status == "certified"
    with pytest.raises(coremargin.CoremarginError, match="claims are false|claim is false"):
        verify(tmp_path / "m", store.path)


# what is refused


def test_another_store(store: Store, model: Path, tmp_path: Path) -> None:
    """A store that never had these rows, and one that was written anew."""
    for path, seed in ((tmp_path / "other.zarr", 5), (store.path, 6)):
        shutil.rmtree(path, ignore_errors=True)
        with StoreWriter.create(path, features=4, dtype="float32", chunk_rows=CHUNK_ROWS) as writer:
            writer.write(*made(11_000, 0.5, seed), origin="test")
        with pytest.raises(StoreError, match="expected a commit with the content") as caught:
            again(model, path, tmp_path / "m")
        assert "train a new model" in "".join(caught.value.__notes__)


def test_the_last_rows_of_a_class_are_out(store: Store, model: Path, tmp_path: Path) -> None:
    """A class without rows is named."""
    ids = np.flatnonzero(np.concatenate([store.labels(chunk) for chunk in range(store.chunks)]) == 1)
    write_labels(store.path, ids, [None] * len(ids))
    with pytest.raises(LabelError, match="expected two classes, found only"):
        again(model, store.path, tmp_path / "m")


def test_a_third_class(store: Store, model: Path, tmp_path: Path) -> None:
    """Rows of a new label are more than a model of two classes can take."""
    with StoreWriter.append(store.path) as writer:
        writer.write(made(10, 0.5, 2)[0], [7] * 10, origin="test")
    with pytest.raises(LabelError, match="expected two classes, found 3"):
        again(model, store.path, tmp_path / "m")


def test_parameters_of_a_training_are_refused(store: Store, model: Path, tmp_path: Path) -> None:
    """With the reason; unknown ones with the nearest that is known."""
    for name, value in (("intercept", False), ("loss", "hinge"), ("scaling", "standard"), ("strategy", "paper")):
        with pytest.raises(SpecError, match=f"{name}: a retraining keeps the value of the earlier model"):
            coremargin.retrain(model, store.path, **{name: value})
    with pytest.raises(SpecError, match="did you mean 'epsilon'"):
        coremargin.retrain(model, store.path, epsilom=1)
    with pytest.raises(UsageError, match="between 0 and 1"):
        coremargin.retrain(model, store.path, epsilon=2.0)


def test_two_at_once(store: Store, model: Path, tmp_path: Path) -> None:
    """The second one is refused."""
    with Locked(tmp_path / "m", "this model"), pytest.raises(Busy):
        again(model, store.path, tmp_path / "m")


# killed and gone on with


def stop_after(blocks: int) -> Progress:
    """Ctrl-C after so many blocks."""
    left = [blocks]

    def count(_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return Progress(on_block=count)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("blocks", [1, 4, 11])
def test_broken_off_and_gone_on_with(store: Store, model: Path, tmp_path: Path, blocks: int) -> None:
    """--resume ends with the same bits and counts, whatever was appended meanwhile."""
    append(store.path, 600, 0.48, 3)
    alone = again(model, store.path, tmp_path / "alone")
    with pytest.raises(Interrupted):
        again(model, store.path, tmp_path / "m", progress=stop_after(blocks))
    append(store.path, 600, 0.4, 4)
    resumed = again(model, store.path, tmp_path / "m", begin="resume")
    for name in ("model.json", "arrays.npz", FILE):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    assert resumed.run["bytes_read"] == alone.run["bytes_read"]
    assert resumed.run["retrained"] == alone.run["retrained"]


@pytest.mark.slow
def test_killed_anywhere(store: Store, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL before each block, checkpoints of each: --resume ends with the same bits."""
    monkeypatch.setattr("coremargin.learn.train.EVERY_S", 0.0)
    append(store.path, 600, 0.48, 3)
    again(model, store.path, tmp_path / "alone")
    killed = 0
    for blocks in range(1, 40):
        child = os.fork()
        if child == 0:
            left = [blocks]

            def die(_: object, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            try:
                again(model, store.path, tmp_path / "m", begin="resume", progress=Progress(on_block=die))
            finally:
                os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        killed += 1
    assert killed >= 3
    for name in ("model.json", "arrays.npz", FILE):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_the_checkpoint_of_another_parent(store: Store, model: Path, tmp_path: Path) -> None:
    """Is refused: what it holds goes on from another model."""
    append(store.path, 600, 0.48, 3)
    coremargin.train(store.path, out=tmp_path / "other", epsilon=0.01)
    with pytest.raises(Interrupted):
        again(model, store.path, tmp_path / "m", progress=stop_after(3))
    with pytest.raises(CheckpointError, match="parent was"):
        again(tmp_path / "other", store.path, tmp_path / "m", begin="resume", epsilon=1e-3)


# jobs and commands


def test_a_job_file(store: Store, model: Path, tmp_path: Path) -> None:
    """Paths are relative to it; what is no retraining is left to others."""
    path = tmp_path / "night.toml"
    path.write_text('job = "retrain"\nmodel = "first"\nstore = "rows.zarr"\nout = "second"\nmemory = "64 MiB"\n')
    job = load_retrain_job(path)
    assert isinstance(job, RetrainJob)
    assert (job.model, job.store, job.out) == (str(model), str(store.path), str(tmp_path / "second"))
    path.write_text('job = "retrain"\nmodel = "first"\nstore = "rows.zarr"\nout = "second"\nfolds = 3\n')
    with pytest.raises(SpecError, match="folds: a retraining keeps"):
        load_retrain_job(path)
    path.write_text('job = "train"\nstore = "rows.zarr"\nout = "second"\n')
    assert load_retrain_job(path) is None


def test_the_commands(store: Store, model: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    """`retrain` and `run` say what was new and what was read; `show` where a model comes from and what it keeps."""
    append(store.path, 100, 0.5, 3)
    done = run_cli("retrain", model, store.path, "--out", tmp_path / "m")
    assert "changed rows: " in done.output
    assert "sample: " not in done.output
    assert done.exit_code == 0, done.output
    assert "of 10,020 rows; since then 100 rows appended" in done.output
    assert "new rows" in done.output
    shown = run_cli("show", tmp_path / "m").output
    assert f"from           {model}" in shown
    assert "of rows and bounds for `coremargin retrain`" in shown
    job = tmp_path / "night.toml"
    job.write_text('job = "retrain"\nmodel = "m"\nstore = "rows.zarr"\nout = "n"\n')
    found = json.loads(run_cli("run", job, "--json").stdout)
    assert (found["status"], found["bytes_read"]) == ("certified", 0)
    (model / FILE).unlink()
    told = run_cli("retrain", model, store.path, "--out", tmp_path / "o").output
    assert "from scratch: " in told
    assert "changed rows: " not in told


def test_a_run_that_stops_says_how_to_go_on(store: Store, model: Path, tmp_path: Path) -> None:
    """With the command of a retraining, its own options, and no limits."""
    append(store.path, 100, 0.5, 3)
    outcome = again(model, store.path, tmp_path / "m", memory="64 MiB", max_scans=5)
    words = outcome.run["resume"]
    assert words[:3] == ["coremargin", "retrain", str(model)]
    assert words[3:6] == [str(store.path), "--out", str(tmp_path / "m")]
    assert words[6:] == ["--memory", "64 MiB", "--block", "1", "--resume"]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("options", [{"scaling": "standard"}, {"strategy": "paper"}])
def test_what_cannot_go_on_is_trained_from_nothing(store: Store, tmp_path: Path, options: dict[str, Any]) -> None:
    """And says why: scalings of all rows, strategies that look at all rows."""
    coremargin.train(store.path, out=tmp_path / "a", epsilon=0.05, **options)
    append(store.path, 100, 0.5, 3)
    outcome = again(tmp_path / "a", store.path, tmp_path / "b")
    assert outcome.run["retrained"]["from_scratch"]
    assert outcome.model.status == "certified"
    assert outcome.model.parameters == coremargin.load(tmp_path / "a").parameters
    assert verify(tmp_path / "b", store.path).ok
