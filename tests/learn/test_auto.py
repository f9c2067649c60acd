"""``loss="auto"``: a hard margin where there is one, else a loss by the same read, with the proof of why."""

from __future__ import annotations

import json
import re
from functools import partial, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import OutOfTime
from coremargin.errors import DataError, Interrupted, SpecError
from coremargin.learn.train import Progress, train_job
from coremargin.models.model import Model
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.registry import kind_of, new_job, write_report
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.problems.soft.report import of_value
from coremargin.verify import verify
from coremargin.verify.examine import examine
from model_kit import altered

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.engine.protocols import BlockResult

CHUNKS, ROWS = 60, 50
#: Which rows have the wrong label: some everywhere, or one that is read in the last stage.
OVERLAPS = {"everywhere": slice(0, None, 20), "late": slice(8 * ROWS, 8 * ROWS + 1)}
TRIED = {"tried_ids", "tried_y", "tried_alpha"}


@pytest.fixture(autouse=True)
def _small_first_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first stage of a few chunks, so that there are several."""
    for problem in (HardMargin, SoftMargin):
        monkeypatch.setattr(problem, "__init__", partialmethod(problem.__init__, sample_bytes=3_000))


@pytest.fixture
def rows(make_separable: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    """3,000 separable rows of 4 features, with labels."""
    X, y = make_separable(ROWS * CHUNKS, 4, margin=0.2)
    return X, y


def stored(path: Path, X: np.ndarray, y: Any, weights: Any = None, **options: Any) -> Store:
    """Rows, 50 a chunk."""
    with StoreWriter.create(
        path, features=X.shape[1], dtype="float32", chunk_rows=ROWS, weighted=weights is not None, **options
    ) as writer:
        writer.write(X, y, weights, origin="test")
    return Store.open(path)


def overlapping(path: Path, rows: tuple[np.ndarray, np.ndarray], where: str) -> Store:
    """The rows, some of them with the wrong label."""
    X, y = rows[0], rows[1].copy()
    y[OVERLAPS[where]] *= -1
    return stored(path, X, y)


def trained(store: Store, out: Path, loss: str | None, **options: Any) -> Any:
    """What a job came to that reads every chunk anew, as one on workers does."""
    progress, begin = options.pop("progress", None), options.pop("begin", "new")
    report = partial(write_report, name=out.name)
    job = new_job(**{"store": store.path, "out": out, "block": 1, "memory": 60_000, "loss": loss, **options})
    return train_job(job, store, InProcess(1), report=report, progress=progress, begin=begin)


def after(blocks: int, error: type[BaseException]) -> Progress:
    """An end after so many blocks."""
    left = [blocks]

    def count(_: BlockResult) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error

    return Progress(on_block=count)


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a model."""
    with np.load(folder / "arrays.npz") as arrays:
        return dict(arrays)


def exact(model: Path) -> list[bytes]:
    """What must be equal to the bit."""
    return [(model / name).read_bytes() for name in ("model.json", "arrays.npz")]


def test_separable_classes_have_their_hard_margin(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    """Record, arrays and rounds are those of a hard-margin job, to the bit; no word of a loss."""
    store = stored(tmp_path / "rows.zarr", *rows)
    auto, plain = (trained(store, tmp_path / name, loss) for name, loss in (("auto", "auto"), ("plain", None)))
    assert auto.model.status == "certified"
    assert exact(tmp_path / "auto") == exact(tmp_path / "plain")
    told = ("round", "kind", "lower", "upper", "stage", "chunks_read", "bytes_read")
    assert [[line.get(name) for name in told] for line in auto.rounds] == [
        [line.get(name) for name in told] for line in plain.rounds
    ]
    assert verify(tmp_path / "auto", store.path).ok


@pytest.mark.specimens(1)
@pytest.mark.parametrize("where", OVERLAPS)
def test_classes_that_overlap_have_a_loss(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], where: str) -> None:
    """The model is that of the loss alone, to the bit, with the proof of why; what was read before it counts."""
    store = overlapping(tmp_path / "rows.zarr", rows, where)
    runs = {loss: trained(store, tmp_path / str(loss), loss) for loss in ("auto", "squared_hinge", None)}
    auto, plain = runs["auto"], runs["squared_hinge"]
    assert (auto.model.status, auto.model.problem, runs[None].model.status) == (
        "certified", "soft_margin", "not_separable",
    )  # fmt: skip
    tried, margin = auto.model.record["tried"], runs[None].model
    assert tried == {
        "problem": "hard_margin", "upper": margin.certificate.upper, "coreset_rows": len(margin.coreset_ids)
    }  # fmt: skip
    assert {**plain.model.record, "tried": tried} == auto.model.record
    mine, its = arrays_of(tmp_path / "auto"), arrays_of(tmp_path / "squared_hinge")
    assert mine.keys() - its.keys() == TRIED
    assert all(np.array_equal(mine[name], its[name]) for name in its)
    assert np.array_equal(mine["tried_ids"], margin.coreset_ids)
    before = 0 if where == "everywhere" else runs[None].run["bytes_read"]
    assert auto.run["bytes_read"] == before + plain.run["bytes_read"]
    assert verify(tmp_path / "auto", store.path).ok


def test_rounds_tell_first_of_the_margin_then_of_the_value(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    """The round of the proof says so and claims no bounds; scans are counted on; a report draws those of the value."""
    store = overlapping(tmp_path / "rows.zarr", rows, "late")
    done = trained(store, tmp_path / "m", "auto")
    told = ["overlap" in line for line in done.rounds]
    at = told.index(True)
    assert told.count(True) == 1
    assert 0 < at < len(told) - 1
    assert done.rounds[0]["upper"] is not None
    assert [done.rounds[at][name] for name in ("lower", "upper", "status")] == [None, None, "running"]
    assert done.rounds[at]["overlap"] == len(done.model.numbers["tried_ids"])
    numbers = [line["round"] for line in done.rounds]
    assert numbers == sorted(numbers)
    assert done.run["scans"] == numbers[-1] == len(set(numbers))
    shown = of_value(done.rounds)
    assert all(line["upper"] is None for line in shown[: at + 1])
    assert shown[at + 1 :] == done.rounds[at + 1 :]
    assert "Why there is a loss" in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")


@pytest.mark.specimens(2)
@pytest.mark.parametrize("options", [{}, {"scaling": "standard"}, {"intercept": False}, {"class_weight": "balanced"}])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_all_kinds(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], rng: np.random.Generator, sparse: bool, weighted: bool,
    options: dict[str, Any],
) -> None:  # fmt: skip
    """Dense or sparse, weighted, scaled, through the origin: the proof of the overlap holds, and the loss's own."""
    X, y = rows[0][:800], rows[1][:800].copy()
    y[::10] *= -1
    weights = rng.integers(0, 3, len(y)).astype(float) if weighted else None
    options = {} if sparse and "scaling" in options else options
    store = stored(tmp_path / "rows.zarr", csr_array(X) if sparse else X, y, weights, sparse=sparse)
    done = trained(store, tmp_path / "m", "auto", memory=1 << 20, **options)
    plain = trained(store, tmp_path / "n", "squared_hinge", memory=1 << 20, **options)
    assert done.model.status == "certified"
    assert (
        done.run["bytes_read"] <= store.nbytes + done.rounds[0]["bytes_read"]
    )  # all that it wants, or again the start
    assert np.array_equal(done.model.w, plain.model.w)
    assert verify(tmp_path / "m", store.path).ok


@pytest.mark.slow
@pytest.mark.parametrize("where", [pytest.param("everywhere", marks=pytest.mark.slow), "late"])
@pytest.mark.parametrize("error", [OutOfTime, KeyboardInterrupt])
def test_broken_off_anywhere(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], where: str, error: type[BaseException]
) -> None:
    """While the margin is tried and after: what is proven by then verifies, and resuming ends with the same bits."""
    store = overlapping(tmp_path / "rows.zarr", rows, where)
    blocks: list[BlockResult] = []
    alone = trained(store, tmp_path / "alone", "auto", progress=Progress(on_block=blocks.append))
    problems = set()
    for count in [1, *range(8, len(blocks), 17), len(blocks) - 1]:
        out = tmp_path / f"m{count}"
        if error is KeyboardInterrupt:
            with pytest.raises(Interrupted, match="--resume|nothing was proven yet"):
                trained(store, out, "auto", progress=after(count, error))
        else:
            stopped = trained(store, out, "auto", progress=after(count, error))
            assert (stopped.model.status, stopped.resumable) == ("stopped", True)
            problems.add(stopped.model.problem)
            assert verify(out, store.path).ok
        ended = trained(store, out, "auto", begin="resume")
        assert exact(out) == exact(tmp_path / "alone")
        assert ended.run["bytes_read"] == alone.run["bytes_read"]
    assert error is KeyboardInterrupt or problems == {"hard_margin", "soft_margin"}


def test_a_finished_model_is_an_answer_to_its_own_job_only(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    """Resumed, it is taken as it is; a refusal by a hard-margin job, or a loss that nobody had to take, is none."""
    store = overlapping(tmp_path / "rows.zarr", rows, "everywhere")
    made = {loss: trained(store, tmp_path / str(loss), loss) for loss in ("auto", "squared_hinge", None)}
    again = trained(store, tmp_path / "auto", "auto", begin="resume")
    assert (again.found, again.model.record) == (True, made["auto"].model.record)
    job = new_job(store=store.path, out=tmp_path / "auto", loss="auto", C=1.0)
    fitting = [loss for loss, done in made.items() if kind_of(job).is_model_of(job, done.model)]
    assert fitting == ["auto"]
    other = new_job(store=store.path, out=tmp_path / "auto", loss="auto", C=2.0)
    assert not kind_of(other).is_model_of(other, made["auto"].model)


def test_an_end_that_float64_cannot_tell_names_the_loss(tmp_path: Path) -> None:
    """A margin of a billionth, far from the origin: neither it nor an overlap is proven, and the way on is the loss."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = np.where(X[:, 0] > 0, 1, -1)
    X[:, 0] = y * (1e-9 + np.abs(X[:, 0]) * (rng.random(200) > 0.5))
    with StoreWriter.create(tmp_path / "rows.zarr", features=3, dtype="float64", chunk_rows=ROWS) as writer:
        writer.write(X + 1e6, y, origin="test")
    store = Store.open(tmp_path / "rows.zarr")
    told = {}
    for limit in (None, 1e-9):
        done = trained(store, tmp_path / str(limit), "auto", memory=1 << 20, time_limit=limit)
        job = new_job(store=store.path, out=tmp_path / str(limit), loss="auto")
        assert (done.model.problem, done.model.status, done.resumable) == ("hard_margin", "stopped", limit is not None)
        told[limit] = "with --loss squared_hinge" in "\n".join(kind_of(job).next_steps(done, job))
    assert told == {None: True, 1e-9: False}  # at a limit nothing is decided: it goes on


def test_several_classes_are_each_trained_against_the_rest(tmp_path: Path, rng: np.random.Generator) -> None:
    """Of three classes a fleet with the loss comes, that of a job which says so, and an end with a word of why."""
    y = rng.integers(0, 3, 600)
    X = (rng.standard_normal((600, 4)) + 2 * np.eye(4)[y]).astype(np.float32)
    store = stored(tmp_path / "rows.zarr", X, y)
    options: dict[str, Any] = {"C": 0.5, "memory": 1 << 20}
    auto = trained(store, tmp_path / "auto", "auto", **options)
    plain = trained(store, tmp_path / "plain", "squared_hinge", classes="ovr", **options)
    assert auto.model.status == "certified"
    assert auto.model.record == plain.model.record
    job = new_job(store=store.path, out=tmp_path / "auto", loss="auto", **options)
    assert "3 classes: each is trained against the rest" in kind_of(job).verdict(auto, job)[0]
    assert trained(store, tmp_path / "auto", "auto", begin="resume", **options).found
    assert verify(tmp_path / "auto", store.path).ok


@pytest.mark.specimens(2)
@pytest.mark.parametrize(
    ("record", "arrays", "failed"),
    [
        ({}, {"tried_alpha": lambda a: np.roll(a, 1)}, {"dual weights", "upper bound", "overlap"}),
        ({}, {"tried_alpha": lambda a: a / 2}, {"dual weights", "overlap"}),
        ({}, {"tried_ids": lambda a: np.roll(a, 1)}, {"hard margin", "upper bound", "overlap"}),
        ({}, {"tried_ids": lambda a: a + 10**6}, {"hard margin"}),
        ({}, {"tried_y": lambda a: -a}, {"hard margin"}),
        ({"tried.upper": 0.0}, {}, {"upper bound"}),
    ],
)
def test_a_forged_proof_of_the_overlap_is_found(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], record: dict[str, Any], arrays: dict[str, Any],
    failed: set[str],
) -> None:  # fmt: skip
    """Other weights, rows, signs or a bound that is too good: each is named, and the proof is not believed."""
    store = overlapping(tmp_path / "rows.zarr", rows, "everywhere")
    trained(store, tmp_path / "m", "auto")
    forged = altered(tmp_path / "m", tmp_path / "forged", record, **arrays)
    found = {check.name for check in examine(forged, store.path).failures}
    assert found
    assert found <= failed


def test_a_proof_by_rows_that_do_not_count_is_found(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    """Rows of weight 0, or without label, prove nothing about the others: they are named as what they are."""
    X, y = rows[0][:800], rows[1][:800].copy()
    y[::10] *= -1
    proof = trained(stored(tmp_path / "all.zarr", X, y), tmp_path / "all", "auto", memory=1 << 20).model
    weights = np.ones(len(y))
    weights[proof.numbers["tried_ids"]] = 0.0
    store = stored(tmp_path / "rows.zarr", X, y, weights)
    trained(store, tmp_path / "m", "squared_hinge", memory=1 << 20)
    forged = altered(
        tmp_path / "m",
        tmp_path / "forged",
        {"tried": proof.record["tried"]},
        **{name: proof.numbers[name] for name in TRIED},
    )
    (failure,) = examine(forged, store.path).failures
    assert failure.name == "hard margin"
    assert "without label or weight" in failure.text


def test_a_hard_margin_is_not_denied(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    """On separable rows nobody can claim that there is no margin: not by the best dual weights, nor by one class."""
    store = stored(tmp_path / "rows.zarr", *rows)
    margin = trained(store, tmp_path / "hard", None, memory=1 << 20).model
    trained(store, tmp_path / "m", "squared_hinge", memory=1 << 20)
    for number, some in enumerate((np.arange(len(margin.coreset_ids)), np.arange(1))):
        ids, alpha = margin.coreset_ids[some], margin.alpha[some]
        proof = {"tried_ids": ids, "tried_y": rows[1][ids].astype(np.int8), "tried_alpha": alpha}
        tried = {"problem": "hard_margin", "upper": margin.certificate.upper, "coreset_rows": len(ids)}
        forged = altered(tmp_path / "m", tmp_path / f"forged{number}", {"tried": tried}, **proof)
        assert "overlap" in {check.name for check in examine(forged, store.path).failures}


@pytest.mark.slow
def test_a_model_without_the_proof_claims_no_overlap(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], run_cli: Callable[..., Any]
) -> None:
    """What tells of the hard margin may be left out, as of any model with a loss: then nothing is said of it."""
    store = overlapping(tmp_path / "rows.zarr", rows, "everywhere")
    trained(store, tmp_path / "m", "auto")
    less = altered(tmp_path / "m", tmp_path / "less", **dict.fromkeys(TRIED))
    record = json.loads((less / "model.json").read_text())
    del record["tried"]
    (less / "model.json").write_text(json.dumps(record))
    whole, found = (examine(path, store.path) for path in (tmp_path / "m", less))
    assert found.ok
    names = [check.name for check in found.checks]
    assert [check.name for check in whole.checks if "hard margin" in check.name + check.text] == [
        "hard margin", "dual weights", "upper bound", "overlap"
    ]  # fmt: skip
    assert not {"hard margin", "overlap"} & set(names)
    write_report(less)
    texts = [run_cli(*words).stdout for words in (["show", less], ["verify", less, store.path])]
    for text in (*texts, (less / "report.html").read_text(encoding="utf-8")):
        assert "overlap" not in text
        assert "hard margin" not in text


def test_a_record_and_arrays_that_do_not_go_together_are_refused(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    """Arrays without the word, the word without arrays, or with fewer of them, are no model.

    Nor are rows that are named twice or carry nothing, or more of them than ever are needed: few bytes could name a
    store's worth of rows.
    """
    store = overlapping(tmp_path / "rows.zarr", rows, "everywhere")
    trained(store, tmp_path / "m", "auto")
    seven = {"tried_ids": np.arange(7), "tried_y": np.ones(7, np.int8), "tried_alpha": np.full(7, 1 / 7)}
    for number, (record, arrays) in enumerate([
        ({}, {"tried_y": None}), ({"tried.coreset_rows": 2}, {}), ({"tried.problem": "outliers"}, {}),
        ({}, {"tried_y": np.zeros_like}), ({}, {"tried_alpha": lambda a: -a}), ({}, {"tried_ids": lambda a: a * 0}),
        ({}, {"tried_alpha": lambda a: a * (np.arange(len(a)) > 0)}), ({"tried.coreset_rows": 7}, seven),
    ]):  # fmt: skip
        forged = altered(tmp_path / "m", tmp_path / f"forged{number}", record, **arrays)
        with pytest.raises(DataError, match="tried"):
            Model.load(forged)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"C": [0.1, 1.0]}, "C: expected float, got a list; found [0.1, 1.0]"),
        ({"C": 0.0}, "C: expected a number above 0"),
        ({"class_weight": [1.0, -1.0]}, "class_weight: expected two numbers above 0"),
        ({"folds": 3}, "folds: loss 'auto' has none"),
        ({"outliers": 3}, "outliers: loss 'auto' has none"),
        ({"strategy": "paper"}, "strategy: loss 'auto' has none"),
        ({"classes": "crammer-singer"}, "classes: loss 'auto' has only 'ovr'"),
    ],
)
def test_what_leaves_no_choice_is_refused(options: dict[str, Any], said: str) -> None:
    """Parameters of one kind of problem, or several models, do not go with a job that may come to another one."""
    with pytest.raises(SpecError, match=re.escape(said)):
        coremargin.train([[0.0], [1.0]], [0, 1], loss="auto", **options)


@pytest.mark.slow
def test_the_command_line_says_what_happened(
    tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], run_cli: Callable[..., Any]
) -> None:
    """As it happens, in the end, in `show` and as JSON; a job without a loss names the way, and ends with 4."""
    store = overlapping(tmp_path / "rows.zarr", rows, "everywhere")
    refused = run_cli("train", store.path, "--out", tmp_path / "n", exit_code=4)
    assert "the same command with --loss auto --overwrite" in refused.stdout
    done = run_cli("train", store.path, "--out", tmp_path / "n", "--overwrite", "--loss", "auto")
    assert re.search(
        r"^the classes overlap: proven by \d rows; continuing with squared hinge$", done.stderr, re.MULTILINE
    )
    assert "the classes overlap: no hyperplane separates them, as the hulls of" in done.stdout
    assert "trained with squared hinge, C 1, instead of a hard margin:" in done.stdout
    assert "certified: the value" in done.stdout
    assert re.search(
        r"^tried +a hard margin: the classes overlap, proven by", run_cli("show", tmp_path / "n").stdout, re.MULTILINE
    )
    assert "of the hard margin that was tried" in run_cli("verify", tmp_path / "n", store.path).stdout
    told = json.loads(run_cli("train", store.path, "--out", tmp_path / "j", "--loss", "auto", "--json").stdout)
    assert told["status"] == "certified"


def test_a_fleet_of_hard_margins_names_the_way(
    tmp_path: Path, rng: np.random.Generator, run_cli: Callable[..., Any]
) -> None:
    """Where nothing separates a class from the rest, the end names a loss."""
    store = stored(tmp_path / "rows.zarr", rng.standard_normal((90, 2)).astype(np.float32), np.arange(90) % 3)
    told = run_cli("train", store.path, "--out", tmp_path / "m", "--classes", "ovr", exit_code=4)
    assert "the same command with --loss squared_hinge --overwrite" in told.stdout
