"""Fleets from the job to the folder: what is written, resumed, verified, predicted and evaluated."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.folds import fold_of
from coremargin.data.ingest import ingest
from coremargin.engine.executors import InProcess
from coremargin.errors import ClaimRefuted, DataError, Interrupted, LabelError, SpecError, UsageError
from coremargin.learn.train import Progress, check_output, train_job
from coremargin.models.evaluate import evaluate
from coremargin.models.fleet import FleetModel
from coremargin.models.fleet_record import chosen, validation
from coremargin.models.model import Model
from coremargin.models.predict import predict
from coremargin.models.registry import load
from coremargin.problems.registry import new_job
from coremargin.verify import verify
from coremargin.verify.examine import examine
from coremargin.verify.outcome import FleetVerification

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store
    from coremargin.engine.protocols import BlockResult, Executor
    from coremargin.problems.job import TrainJob

LABELS = np.array(["ant", "bee", "cat"], object)


def blobs(rng: np.random.Generator, rows: int = 240, apart: float = 2.5) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three classes around three points, and their labels."""
    y = rng.integers(0, 3, rows)
    y[:3] = 0, 1, 2
    return (rng.standard_normal((rows, 4)) + apart * np.eye(3, 4)[y]).astype(np.float32), LABELS[y]


@pytest.fixture
def store(rng: np.random.Generator, make_store: Callable[..., Store]) -> Store:
    """240 rows of three classes in six chunks."""
    return make_store(*blobs(rng), chunk_rows=40)


def job_of(store: Store, out: Path, **options: Any) -> TrainJob:
    """Three classes, two values of C, two folds: 18 members; options replace keys."""
    keys = {"loss": "hinge", "classes": "ovr", "C": [1.0, 0.1], "folds": 2, "sample": 0.2, "block": 1} | options
    given = {key: value for key, value in keys.items() if value is not None}
    return new_job(store=store.path, out=out, **given)


def content(folder: Path) -> dict[str, bytes]:
    """What must be equal to the bit."""
    files = [*folder.glob("members/*/*"), folder / "fleet.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def trained(store: Store, tmp_path: Path) -> Path:
    """The folder of the fleet of ``job_of``."""
    train_job(job_of(store, tmp_path / "f"), store, InProcess(2))
    return tmp_path / "f"


def test_what_is_written(store: Store, trained: Path) -> None:
    """The record names all members, their folders hold ordinary models, and loading gives the same back."""
    record = json.loads((trained / "fleet.json").read_text())
    assert (record["format"], record["version"], record["status"]) == ("coremargin-fleet", 1, "certified")
    assert record["classes"] == ["ant", "bee", "cat"]
    assert record["parameters"]["C"] == [0.1, 1.0]
    assert len(record["members"]) == 3 * 2 * 3
    assert {(m["class"], m["C"], m["fold"]) for m in record["members"]} == {
        (label, cost, fold) for label in LABELS for cost in (0.1, 1.0) for fold in (None, 0, 1)
    }
    fleet = FleetModel.load(trained)
    for entry in record["members"]:
        member = Model.load(trained / "members" / entry["name"])
        assert member.classes == (False, True)
        assert member.record["view"]["class"] == entry["class"]
        assert (member.certificate.lower, member.certificate.upper) == (entry["lower"], entry["upper"])
        assert entry["lower"] >= (1 - 1e-3) * entry["upper"]
        assert (member.w == fleet.members[entry["name"]].w).all()
    assert all(model.facts is model.facts for model in (fleet, *fleet.members.values()))  # read and checked once
    run = json.loads((trained / "run.json").read_text())
    assert (run["members"], run["members_certified"]) == (18, 18)
    assert run["bytes_read"] == run["sample_bytes"] == store.nbytes + 4 * store.rows  # and labels, to count them
    lines = [json.loads(line) for line in (trained / "rounds.jsonl").read_text().splitlines()]
    assert [line["members_certified"] for line in lines][-1] == 18


def test_validation_is_what_the_members_say(store: Store, trained: Path, rng: np.random.Generator) -> None:
    """Accuracies on held-out rows, means, deviations and the choice, from the members' own decision values."""
    fleet = FleetModel.load(trained)
    X, y = blobs(np.random.default_rng(20060106))
    fold = fold_of(np.arange(len(X)), 2, 0)
    table = {}
    for cost in (0.1, 1.0):
        accuracies = []
        for held in (0, 1):
            mine = fold == held
            values = [
                fleet.members[f"class-{label}_C-{cost:g}_fold-{held}"].decision_function(X[mine]) for label in LABELS
            ]
            accuracies.append(float((LABELS[np.argmax(values, axis=0)] == y[mine]).mean()))
        table[cost] = accuracies
    for entry in fleet.record["validation"]:
        assert entry["accuracies"] == table[entry["C"]]
        assert entry["mean"] == pytest.approx(np.mean(table[entry["C"]]))
        assert entry["std"] == pytest.approx(np.std(table[entry["C"]]))
    best = max(np.mean(values) for values in table.values())
    assert min(cost for cost, values in table.items() if np.mean(values) == best) == fleet.C
    assert fleet.record["chosen"] == {"C": fleet.C, "by": "validation"}


def test_the_choice_of_c() -> None:
    """The best mean; of equal ones the smallest C; of one C that; of several without folds none."""
    told = [{"C": c, "fold": f, "accuracy": a} for c, f, a in
            [(0.1, 0, 0.5), (0.1, 1, 0.7), (1.0, 1, 0.6), (1.0, 0, 0.6), (10.0, 0, 0.5), (10.0, 1, 0.6)]]  # fmt: skip
    table = validation(told, [(0.1, None), (1.0, None), (10.0, None)])
    assert table is not None
    assert [entry["mean"] for entry in table] == pytest.approx([0.6, 0.6, 0.55])
    assert table[1]["accuracies"] == [0.6, 0.6]
    two = [(0.1, None), (1.0, None)]
    assert chosen([{"C": c, "mean": 0.6} for c in (0.1, 1.0)], two) == {"C": 0.1, "by": "validation"}
    assert chosen(None, [(0.5, None)]) == {"C": 0.5, "by": "only"}
    assert chosen(None, two) is None
    assert validation([{"C": 0.1, "fold": None, "accuracy": 1.0}], two[:1]) is None


def test_predictions_follow_the_largest_value(store: Store, trained: Path, tmp_path: Path) -> None:
    """From Python and into files; what is evaluated is what scikit-learn's metrics say."""
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, f1_score

    fleet = FleetModel.load(trained)
    X, y = blobs(np.random.default_rng(7), 100)
    values = fleet.decision_function(X)
    assert values.shape == (100, 3)
    for k, label in enumerate(LABELS):
        assert (values[:, k] == fleet.members[f"class-{label}_C-{fleet.C:g}"].decision_function(X)).all()
    found = fleet.predict(X)
    assert (found == LABELS[values.argmax(axis=1)]).all()
    told = evaluate(trained, ArraySource(X, y, chunk_rows=30))
    assert told.confusion == tuple(map(tuple, confusion_matrix(y, found, labels=list(LABELS)).tolist()))
    assert told.accuracy == pytest.approx(accuracy_score(y, found))
    assert told.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, found))
    assert told.f1 == pytest.approx(f1_score(y, found, average="macro"))
    assert told.roc_auc is None
    own = np.array([list(LABELS).index(label) for label in y])
    rest = np.where(np.eye(3, dtype=bool)[own], -np.inf, values).max(axis=1)
    assert told.lowest_margin == pytest.approx((values[np.arange(100), own] - rest).min())
    written = predict(trained, store, tmp_path / "p.zarr", C=1.0)
    import zarr

    group = zarr.open_group(str(written.path), mode="r")
    rows = np.concatenate([store.read(k)[0] for k in range(store.chunks)])
    decisions = fleet.at(1.0).decision_function(rows)
    assert (group["code"][:] == decisions.argmax(axis=1)).all()
    np.testing.assert_array_equal(group["decision"][:], decisions.max(axis=1))
    assert written.counts == {label: int((decisions.argmax(axis=1) == k).sum()) for k, label in enumerate(LABELS)}


def test_several_c_without_a_choice(store: Store, tmp_path: Path) -> None:
    """Without folds nobody can say which C is best: predicting asks for it."""
    fleet = coremargin.train(store.path, loss="squared_hinge", C=[0.1, 1.0], classes="ovr", sample=0.2)
    assert isinstance(fleet, FleetModel)
    assert fleet.record["validation"] is fleet.record["chosen"] is fleet.C is None
    with pytest.raises(UsageError, match=r"cannot decide yet: no C is chosen of 0.1, 1: say one .* --C 0.1.*--folds 5"):
        fleet.predict(np.zeros((1, 4)))
    with pytest.raises(UsageError, match="cannot decide yet"):
        evaluate(fleet, store)
    with pytest.raises(UsageError, match=r"expected one of those that were trained \(0.1, 1\), got 2"):
        fleet.at(2)
    assert set(fleet.at(0.1).predict(np.zeros((1, 4)))) <= set(LABELS)
    assert "3 classes, C 0.1, 1, 6 of 6 members certified" in repr(fleet)


def stop_after(blocks: int) -> Progress:
    """Ctrl-C after so many blocks."""
    left = [blocks]

    def count(_: BlockResult) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise KeyboardInterrupt

    return Progress(on_block=count)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("options", [{}, {"loss": None, "C": None, "epsilon": 0.5}], ids=["soft", "hard"])
def test_interrupted_and_resumed_gives_the_same_bits(
    rng: np.random.Generator, make_store: Callable[..., Store], tmp_path: Path, options: dict[str, Any]
) -> None:
    """A fleet that is interrupted every four blocks comes to the same end, and no block is done twice."""
    store = make_store(*blobs(rng, apart=2.5 if not options else 9.0), chunk_rows=40)
    alone = train_job(job_of(store, tmp_path / "alone", **options), store, InProcess(1))
    job = job_of(store, tmp_path / "f", **options)
    begin: Any = "new"
    breaks = sum(told["chunks_read"] for told in alone.rounds if told["kind"] != "sample") // 4
    for _ in range(breaks):
        with pytest.raises(Interrupted, match="--resume"):
            train_job(job, store, InProcess(1), begin=begin, progress=stop_after(4))
        begin = "resume"
    done = train_job(job, store, InProcess(2), begin="resume")
    assert done.run["resumed"] == breaks >= 1
    assert done.run["bytes_read"] == alone.run["bytes_read"]
    assert content(Path(job.out)) == content(tmp_path / "alone")
    assert train_job(job, store, InProcess(1), begin="resume").run == done.run  # whole: taken as it is


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [3, 2])
def test_members_that_separate_all_rows_are_not_judged_by_a_scan(
    rng: np.random.Generator, make_store: Callable[..., Store], tmp_path: Path, classes: int, *, weighted: bool
) -> None:
    """One read, and what is told of how they do together is what an evaluation of its own finds."""
    X, y = blobs(rng, apart=9.0)
    mine = np.isin(y, LABELS[:classes])
    X, y = X[mine], y[mine]
    weights = np.where(np.arange(len(y)) % 5 == 4, 0.0, 1.0) if weighted else None
    store = make_store(X, y, weights, chunk_rows=40)
    job = job_of(store, tmp_path / "f", loss=None, C=None, folds=None)
    done = train_job(job, store, InProcess(1))
    assert isinstance(done.model, FleetModel)
    assert done.model.status == "certified"
    assert done.run["bytes_read"] == store.nbytes
    counted = np.ones(len(y), bool) if weights is None else weights > 0
    told = evaluate(job.out, ArraySource(X[counted], y[counted], chunk_rows=30)).confusion
    assert [entry["confusion"] for entry in done.model.record["evaluations"]] == [[list(line) for line in told]]
    assert verify(job.out, store.path).ok


def test_a_limit_leaves_a_fleet_that_goes_on(
    rng: np.random.Generator, make_store: Callable[..., Store], tmp_path: Path
) -> None:
    """Stopped when all is proven, before it is known how the members do together: --resume finds that out."""
    store = make_store(*blobs(rng, apart=9.0), chunk_rows=40)
    hard: dict[str, Any] = {"loss": None, "C": None}
    job = job_of(store, tmp_path / "f", max_scans=1, **hard)
    first = train_job(job, store, InProcess(1))
    assert first.resumable
    assert isinstance(first.model, FleetModel)
    assert first.model.record["evaluations"] == []
    assert verify(job.out, store.path).ok
    done = train_job(job_of(store, job.out, **hard), store, InProcess(1), begin="resume")
    alone = train_job(job_of(store, tmp_path / "alone", **hard), store, InProcess(1))
    assert isinstance(done.model, FleetModel)
    assert len(done.model.record["evaluations"]) == 3
    assert done.run["scans"] == alone.run["scans"] == 2
    assert content(Path(job.out)) == content(tmp_path / "alone")


@pytest.mark.slow
def test_the_same_bits_on_worker_processes(store: Store, trained: Path, tmp_path: Path, embedded: Executor) -> None:
    """Threads of this process and worker processes of a cluster write the same bytes."""
    train_job(job_of(store, tmp_path / "workers"), store, embedded)
    assert content(tmp_path / "workers") == content(trained)


def test_verify_says_what_holds(store: Store, trained: Path) -> None:
    """All members, the table and the confusion matrices are checked in one scan; each member also alone."""
    read: list[int] = []
    result = examine(trained, store.path, on_progress=lambda done, _: read.append(done))
    assert isinstance(result, FleetVerification)
    assert result.ok
    assert read == [40, 80, 120, 160, 200, 240]
    assert [check.name for check in result.tables] == [
        "classes", "members", "status", "evaluations", "validation", "choice",
    ]  # fmt: skip
    assert len(result.members) == 18
    assert json.loads(json.dumps(result.to_dict()))["ok"] is True
    for name in ("class-bee_C-1", "class-cat_C-0.1_fold-1"):
        alone = verify(trained / "members" / name, store.path)
        assert alone.ok


def edited(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a JSON file as a careless hand would."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def _entry(record: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in record["members"] if entry["name"] == name)


TAMPERED: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "a bound in the table": ("", lambda r: _entry(r, "class-ant_C-1").update(lower=1.0), "record: lower"),
    "a member left out": ("", lambda r: r["members"].pop(), "expected 18 members"),
    "the status": ("", lambda r: r.update(status="stopped"), "the status that follows from the members', 'certified'"),
    "one row in a matrix": (
        "", lambda r: _move(r["evaluations"][0]["confusion"]), "1 rows are given another class"),
    "an accuracy": ("", lambda r: r["evaluations"][0].update(accuracy=1.0), "do not follow from the matrix"),
    "rows of a matrix": (
        "", lambda r: r["evaluations"][0]["confusion"][0].__setitem__(0, 1), "rows, found 240"),
    "an evaluation left out": ("", lambda r: r["evaluations"].pop(), "no evaluation"),
    "a mean": ("", lambda r: r["validation"][1].update(mean=0.99), "C 1.0: found mean"),
    "the choice": ("", lambda r: r["chosen"].update(C=0.1 if r["chosen"]["C"] == 1 else 1.0), "expected C"),
    "the folds asked for": ("", lambda r: r["parameters"].update(fold_seed=5), "fold_seed"),
    "an epsilon": ("", lambda r: r["parameters"].update(epsilon=0.5), "record: epsilon"),
    "the loss": ("", lambda r: r["parameters"].update(loss="hinged"), "invalid enum value 'hinged'"),
    "a class weight": ("", lambda r: r["parameters"].update(class_weight="balanced"), "record: class_weight"),
    "a scaling": ("", lambda r: r["parameters"].update(scaling="standard"), "record: scaling"),
    "the features": ("", lambda r: r.update(features=9), "record: features"),
    "the dtype": ("", lambda r: r.update(dtype="float64"), "record: dtype"),
    "a member's bound": (
        "class-ant_C-1", lambda r: r["certificate"].update(lower=r["certificate"]["upper"]), "record: lower"),
    "a member's class": ("class-ant_C-1", lambda r: r["view"].update({"class": "bee"}), "record: class"),
    "a member's fold": ("class-ant_C-1_fold-0", lambda r: r["view"].update(fold=1), "record: fold"),
    "a member's seed": ("class-ant_C-1_fold-0", lambda r: r["view"].update(fold_seed=9), "record: fold_seed"),
    "a member's C": ("class-ant_C-1", lambda r: r["parameters"].update(C=0.5), "record: C"),
    "a member's epsilon": ("class-ant_C-1", lambda r: r["parameters"].update(epsilon=0.5), "epsilon"),
}  # fmt: skip


def _move(confusion: list[list[int]]) -> None:
    """One row of the first class is given the second."""
    confusion[0][0] -= 1
    confusion[0][1] += 1


@pytest.mark.specimens(2)
@pytest.mark.parametrize("what", list(TAMPERED))
def test_verify_refuses_what_was_tampered_with(store: Store, trained: Path, tmp_path: Path, what: str) -> None:
    """Whatever is changed, in the fleet's record or a member's, is refused with words that say what."""
    member, change, words = TAMPERED[what]
    place = trained / "members" / member / "model.json" if member else trained / "fleet.json"
    edited(place, change)
    with pytest.raises((ClaimRefuted, DataError)) as caught:
        verify(trained, store.path)
    assert words in str(caught.value)
    if isinstance(caught.value, DataError):  # what does not fit together is not used either
        with pytest.raises(DataError, match=re.escape(words)):
            load(trained)


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["evaluations"][0].update(fold="a"),
        lambda r: r["validation"][0].update(mean=float("nan")),
        lambda r: r["parameters"].update(classes="all"),
    ],
    ids=["a fold that is no number", "a mean that is no number", "unknown classes"],
)
def test_verify_refuses_tables_that_make_no_sense(
    store: Store, trained: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    """They are refused as an altered fleet, not met halfway."""
    edited(trained / "fleet.json", change)
    for use in (lambda: verify(trained, store.path), lambda: load(trained)):
        with pytest.raises(DataError, match="get an unaltered copy"):
            use()


def test_verify_refuses_members_that_changed_places(store: Store, trained: Path) -> None:
    """The models of two classes in each other's folders: every table tells."""
    folder = trained / "members"
    (folder / "class-ant_C-1").rename(folder / "x")
    (folder / "class-bee_C-1").rename(folder / "class-ant_C-1")
    (folder / "x").rename(folder / "class-bee_C-1")
    with pytest.raises(DataError, match="class-ant_C-1: differs from the fleet's record: class"):
        verify(trained, store.path)


def test_verify_refuses_another_hypothesis(store: Store, trained: Path) -> None:
    """A member's arrays from another member: its value over all rows is not what is claimed."""
    bee, ant = (trained / "members" / f"class-{name}_C-1" for name in ("bee", "ant"))
    shutil.copy(bee / "arrays.npz", ant / "arrays.npz")
    rows = json.loads((bee / "model.json").read_text())["certificate"]["coreset_rows"]
    edited(ant / "model.json", lambda r: r["certificate"].update(coreset_rows=rows))
    assert "class-ant_C-1: value" in {check.name for check in examine(trained, store.path).failures}


@pytest.mark.specimens(1)
@pytest.mark.parametrize("missing", ["fleet.json", "members/class-ant_C-1/model.json", "members/class-ant_C-1"])
def test_incomplete_folders_are_not_read(store: Store, trained: Path, missing: str) -> None:
    """A file or a member that is gone is named; nothing half is used."""
    place = trained / missing
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    with pytest.raises(DataError):
        load(trained)
    with pytest.raises(DataError):
        verify(trained, store.path)


@pytest.mark.specimens(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(version=2), lambda r: r.pop("chosen"), lambda r: r["members"][0].update(name="../x"),
        lambda r: r["members"][0].update(upper=1.0), lambda r: r.update(status="stopped"),
        lambda r: r["members"][1].update(name=r["members"][0]["name"]), lambda r: r.update(features=5),
    ],
)  # fmt: skip
def test_records_that_do_not_fit_are_not_loaded(trained: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Another version, missing keys, names that lead elsewhere, bounds or shapes that are not the members'."""
    edited(trained / "fleet.json", change)
    with pytest.raises(DataError, match=r"fleet\.json|members/"):
        FleetModel.load(trained)


def test_a_fleet_is_replaced_only_with_leave(store: Store, trained: Path) -> None:
    """A fleet in the way is an error, and with ``overwrite`` the new members take the place of the old ones."""
    with pytest.raises(UsageError, match="a model is there already"):
        check_output(job_of(store, trained), "new")
    train_job(job_of(store, trained, C=[0.5], folds=None), store, InProcess(1), overwrite=True)
    assert isinstance(load(trained), FleetModel)
    assert sorted(path.name for path in (trained / "members").iterdir()) == [
        "class-ant_C-0.5", "class-bee_C-0.5", "class-cat_C-0.5",
    ]  # fmt: skip


def test_more_than_two_classes_without_a_word_about_them(store: Store, tmp_path: Path) -> None:
    """The error names the way out; a C list or folds alone do not decide it."""
    for options in ({"C": 1.0, "folds": None}, {"C": [0.1, 1.0]}):
        with pytest.raises(LabelError, match="train each against the rest with --classes ovr"):
            train_job(job_of(store, tmp_path / "m", classes=None, **options), store, InProcess(1))


def test_matrices_that_do_not_fit_are_done_without(rng: np.random.Generator, make_store: Callable[..., Store]) -> None:
    """Squared hinge sums up a d x d matrix for each member; where all of them are too many, models are kept as rows."""
    store = make_store(rng.standard_normal((60, 150)).astype(np.float32), LABELS[np.arange(60) % 3])
    small = coremargin.train(store.path, loss="squared_hinge", classes="ovr", C=[1.0, 2.0], memory="4 MiB")
    large = coremargin.train(store.path, loss="squared_hinge", classes="ovr", C=[1.0, 2.0], memory="64 MiB")
    assert small.status == large.status == "certified"
    for one, other in zip(small.record["members"], large.record["members"], strict=True):
        assert one["lower"] <= other["upper"]
        assert other["lower"] <= one["upper"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": []}, "C: expected different numbers"),
        ({"C": [1.0, 1.0]}, "C: expected different numbers"),
        ({"C": [1.0, 0.0]}, "C: expected a number above 0"),
        ({"C": [1.0, float("nan")]}, "C: expected a number above 0"),
        ({"folds": 1}, "folds: expected int >= 2"),
        ({"folds": None, "fold_seed": 3}, "fold_seed: .* give folds too"),
        ({"fold_seed": -1}, "fold_seed: expected int >= 0"),
        ({"classes": "ovo"}, "classes: invalid enum value 'ovo'"),
        ({"loss": None}, "C: a hard margin has none, found"),
        ({"loss": None, "C": None, "strategy": "paper"}, "strategy: a fleet of models has none"),
    ],
)
def test_wrong_values(store: Store, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """Values out of range are refused with what was expected."""
    with pytest.raises(SpecError, match=message):
        job_of(store, tmp_path / "m", **options)


def test_scaled_rows(store: Store, tmp_path: Path) -> None:
    """A fleet on scaled rows is certified and verified, and predicts for rows as they are."""
    job = job_of(store, tmp_path / "f", scaling="standard", C=[1.0])
    done = train_job(job, store, InProcess(1))
    assert verify(job.out, store.path).ok
    assert isinstance(done.model, FleetModel)
    told = next(entry for entry in done.model.record["evaluations"] if entry["fold"] is None)
    assert evaluate(job.out, store).accuracy == told["accuracy"]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", None])
def test_sparse_rows_with_weights(rng: np.random.Generator, tmp_path: Path, loss: str | None) -> None:
    """Sparse rows, some of weight 0, which count for nothing: certified, verified, and equal to the dense fleet."""
    from coremargin.data.writer import StoreWriter

    X, y = blobs(rng, 150, apart=9.0)
    X[np.abs(X) < 0.3] = 0
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], 150)
    weights[:6] = 1.0
    found = {}
    for kind, rows in (("dense", X), ("sparse", csr_array(X))):
        path = tmp_path / f"{kind}.zarr"
        options = {"sparse": True} if kind == "sparse" else {}
        with StoreWriter.create(path, features=4, dtype="float32", weighted=True, **options) as writer:
            writer.write(rows, y, weights=weights, origin="test")
        prices: dict[str, Any] = {"loss": loss, "C": [0.5, 1.0]} if loss else {}
        fleet = coremargin.train(path, out=tmp_path / kind, classes="ovr", folds=2, sample=0.2, **prices)
        assert fleet.status == "certified"
        assert verify(tmp_path / kind, path).ok
        found[kind] = fleet
    counted = int((weights > 0).sum())
    for one, other in zip(found["dense"].record["members"], found["sparse"].record["members"], strict=True):
        assert one["lower"] <= other["upper"]
        assert other["lower"] <= one["upper"]
    assert found["sparse"].record["evaluations"][0]["rows"] == counted


def test_on_the_command_line(store: Store, tmp_path: Path, run_cli: Callable[..., Result]) -> None:
    """Train, verify, show, predict, evaluate, plan: each knows fleets."""
    out = tmp_path / "f"
    words = ["--classes", "ovr", "--loss", "hinge", "--C", "0.1,1", "--folds", "2"]
    text = run_cli("train", store.path, "--out", out, *words).stdout
    assert "certified: all 18 models are proven to be within 0.001 of the best possible" in text
    assert "held-out accuracy" in text
    assert "all claims hold of 18 of 18 members" in run_cli("verify", out, store.path, "--epsilon", "1e-3").stdout
    assert "class-bee_C-0.1_fold-1" in run_cli("show", out).stdout
    shown = run_cli("evaluate", out, store.path, "--C", "0.1", env={"COLUMNS": "80"}).stdout
    assert "predicted 'cat' for 'ant'" in shown
    assert "240 rows" in run_cli("predict", out, store.path, tmp_path / "p.parquet").stdout
    told = json.loads(run_cli("train", store.path, "--out", out, *words, "--overwrite", "--json", "-q").stdout)
    assert (told["members"], told["members_certified"], len(told["validation"])) == (18, 18, 2)
    job = tmp_path / "job.toml"
    job.write_text(f'job = "train"\nstore = "{store.path}"\nout = "x"\nclasses = "ovr"\nloss = "hinge"\nC = [0.1, 1]\n')
    assert "models  6, trained in the same scans" in run_cli("plan", job).stdout
    run_cli("train", store.path, "--out", out, "--C", "0.1,x", exit_code=2)


def test_a_fleet_leaves_no_rows_out(trained: Path, run_cli: Callable[..., Result]) -> None:
    """The command for outliers says what the folder holds instead."""
    found = run_cli("outliers", trained, exit_code=2)
    assert "this model is of problem 'soft_margin': no rows were excluded" in found.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_ten_classes_and_ten_prices_cost_the_scans_of_one(tmp_path: Path, real_data: Path, loss: str) -> None:
    """All of MNIST: a hundred models, each proven, from no more than the bytes of one, in the default memory."""
    images, digits = (
        np.frombuffer(gzip.decompress((real_data / f"mnist/train-{name}-ubyte.gz").read_bytes()), "u1", offset=offset)
        for name, offset in (("images-idx3", 16), ("labels-idx1", 8))
    )
    store = tmp_path / "digits.zarr"
    ingest((images.reshape(-1, 784) / 255).astype(np.float32), store, labels=digits)
    costs = np.geomspace(1e-4, 3, 10).tolist()
    keys: dict[str, Any] = {"loss": loss, "classes": "ovr", "cluster": "threads"}
    fleet = coremargin.train(store, out=tmp_path / "many", C=costs, **keys)
    assert [member.status for member in fleet.members.values()] == ["certified"] * 100
    coremargin.train(store, out=tmp_path / "few", C=costs[5], **keys)
    many, few = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("many", "few"))
    assert many["bytes_read"] == few["bytes_read"]
    assert many["scans"] == 1
    assert verify(tmp_path / "many", store).ok
