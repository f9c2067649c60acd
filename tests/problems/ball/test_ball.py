"""The smallest enclosing ball as users meet it: trained, verified, forged, used, interrupted, retrained, refused."""

from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from pyarrow.parquet import read_table

import coremargin
from coremargin.cli import main
from coremargin.data.amend import set_weights
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import (
    BadRow,
    ClaimRefuted,
    CoremarginError,
    DataError,
    Interrupted,
    LabelError,
    SpecError,
    UsageError,
)
from coremargin.learn.train import Progress, train_job
from coremargin.models.evaluate import OneClassEvaluation, evaluate
from coremargin.models.registry import load
from coremargin.problems.ball import enclosing_ball
from coremargin.problems.registry import new_job
from coremargin.verify.examine import examine
from model_kit import altered

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

EPSILON = 1e-9
#: Rows of ``wrong_rows`` that lie far outside.
FAR = [3, 100, 101, 500]


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """600 rows, each coordinate of another size."""
    return (rng.standard_normal((600, 3)) * [1, 2, 0.5] + 5).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path, rows: np.ndarray) -> Path:
    """The rows, with two labels, in chunks of 16."""
    coremargin.ingest(rows, tmp_path / "s.zarr", labels=np.arange(600) % 2, chunk_bytes=16 * 12)
    return tmp_path / "s.zarr"


def wrong_rows() -> np.ndarray:
    """600 rows, of which four lie far outside."""
    rows = (np.random.default_rng(0).standard_normal((600, 3)) * [1, 2, 0.5] + 5).astype(np.float32)
    rows[FAR] += np.array([[30, 0, 0], [0, 40, 0], [0, 39, 1], [-50, -50, 0]], np.float32)
    return rows


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A store with four rows that lie far outside, and two models of it: of all rows, and without these."""
    folder = tmp_path_factory.mktemp("ball")
    store = folder / "s.zarr"
    coremargin.ingest(wrong_rows(), store, labels=np.arange(600) % 2, chunk_bytes=16 * 12)
    coremargin.train(store, one_class="ball", epsilon=EPSILON, out=folder / "all")
    coremargin.train(store, one_class="ball", outliers=4, epsilon=EPSILON, out=folder / "but")
    return store, folder / "all", folder / "but"


@pytest.fixture
def _in_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even small stores are read in stages."""
    problem = enclosing_ball.EnclosingBall
    monkeypatch.setattr(problem, "__init__", partialmethod(problem.__init__, sample_bytes=500))


def say(*words: object, code: int = 0) -> str:
    """What a command prints; code: that it ends with."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def radius_of(rows: np.ndarray, steps: int = 20_000) -> tuple[float, float]:
    """Bounds by Badoiu and Clarkson's steps towards the farthest row: within 1/steps of each other."""
    rows = rows.astype(np.float64)
    centre = rows[0].copy()
    for k in range(1, steps):
        off = rows - centre
        centre += off[int(np.einsum("ij,ij->i", off, off).argmax())] / (k + 1)
    reached = float(np.linalg.norm(rows - centre, axis=1).max())
    return reached * (1 - steps**-0.5), reached


@pytest.mark.usefixtures("_in_stages")
def test_it_is_trained_verified_shown_and_reported(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """A job file, a certificate to 1e-9, and every command about models, none of which finds classes."""
    job, model = tmp_path / "job.toml", tmp_path / "m"
    job.write_text(f'job = "train"\nstore = "s.zarr"\nout = "m"\none_class = "ball"\nepsilon = {EPSILON}\n')
    assert "one_class" in say("plan", job)
    text = say("run", job, "--cluster", "threads", "--quiet")
    assert text.startswith("certified: all 600 rows lie within")
    assert "stages" in text
    ball = load(model)
    claims, distances = ball.certificate, np.linalg.norm(rows.astype(np.float64) - ball.centre, axis=1)  # type: ignore[attr-defined]
    assert distances.max() <= claims.upper <= claims.lower / (1 - EPSILON)
    least, most = radius_of(rows)
    assert least <= claims.upper <= most
    assert (claims.kind, ball.kind, ball.classes, ball.labels) == ("radius", "ball", (), (-1, 1))
    assert {"classes", "intercept"}.isdisjoint(ball.record | ball.parameters)
    assert coremargin.verify(model, store).ok
    assert "no ball that contains the rows has a radius below" in say("verify", model, store, "--quiet")
    shown = say("show", model)
    assert f"at most {claims.upper!r} for all 600 rows" in shown
    assert "classes" not in shown
    page = (model / "report.html").read_text()
    assert "The smallest ball around all 600 rows" in page
    assert 'class="outline"' not in page
    assert json.loads(say("show", model, "--json"))["certificate"]["kind"] == "radius"


def test_of_two_features_the_page_has_a_picture(tmp_path: Path, rng: np.random.Generator) -> None:
    """The ball, its centre and the rows on it."""
    coremargin.train(rng.standard_normal((50, 2)), one_class="ball", out=tmp_path / "m")
    assert 'class="outline"' in (tmp_path / "m" / "report.html").read_text()


@pytest.mark.usefixtures("_in_stages")
def test_only_the_rows_of_one_class_are_enclosed(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """By its label or, on a command line, by its text; those without label and of other classes do not count."""
    model = coremargin.train(store, one_class="ball", only=1, epsilon=EPSILON, out=tmp_path / "m")
    alone = coremargin.train(rows[1::2], one_class="ball", epsilon=EPSILON)
    assert model.certificate.upper == pytest.approx(alone.certificate.upper, rel=1e-12)
    assert coremargin.verify(tmp_path / "m", store).ok
    assert (model.only, model.parameters["only"]) == (1, "1")
    words = ("--one-class", "ball", "--only", "1", "--epsilon", EPSILON, "--cluster", "threads", "--quiet")
    assert "all 300 rows of class 1 lie within" in say("train", store, "--out", tmp_path / "c", *words)
    assert "of the rows of class 1" in say("verify", tmp_path / "c", store)
    page = (tmp_path / "c" / "report.html").read_text()
    assert "around all 300 rows of class <bdi>1</bdi></h1>" in page
    assert "300 of 600 rows of 3 features" in page
    other = altered(tmp_path / "m", tmp_path / "o", {"only": 0, "parameters.only": 0})
    assert {check.name for check in examine(other, store).failures} == {"coreset"}
    unknown = altered(tmp_path / "m", tmp_path / "u", {"only": 7, "parameters.only": 7})
    assert {check.name for check in examine(unknown, store).failures} == {"classes"}
    with pytest.raises(DataError, match="only: expected one of its labels"):
        coremargin.train(store, one_class="ball", only="7")


def test_it_predicts_and_is_evaluated(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Rows of the store are inside, others outside; labels -1 and 1 are compared."""
    model = coremargin.train(store, one_class="ball", epsilon=EPSILON)
    assert (model.predict(rows) == 1).all()
    assert model.predict([[5, 5, 5], [50, 5, 5]]).tolist() == [1, -1]
    distances = model.distances(rows)
    assert np.allclose(distances, np.linalg.norm(rows - model.centre, axis=1), rtol=1e-12)
    assert np.allclose(model.decision_function(rows), model.radius - distances)
    model.save(tmp_path / "m")
    assert "600 rows: 0 of -1, 600 of 1" in say("predict", tmp_path / "m", store, tmp_path / "p.csv", "--quiet")
    known = np.concatenate([rows, rows + 50])
    coremargin.ingest(known, tmp_path / "known.zarr", labels=np.repeat([1, -1], 600))
    found = json.loads(say("evaluate", tmp_path / "m", tmp_path / "known.zarr", "--json"))
    assert (found["accuracy"], found["roc_auc"]) == (1.0, 1.0)
    for refused in (model.to_sklearn, model.coefficients):
        with pytest.raises(UsageError, match="a ball is no hyperplane"):
            refused()


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_outside_are_counted_by_label(tmp_path: Path, store: Path, rows: np.ndarray, *, weighted: bool) -> None:
    """Labels of other classes are no truth to compare with: rows outside are counted, also those without a label."""
    model = coremargin.train(store, one_class="ball", only="0", epsilon=EPSILON, out=tmp_path / "m")
    X, labels = np.concatenate([rows, rows + 2]), [f"c{i % 3}" for i in range(1200)]
    weights = np.arange(1200) % 7 * 0.5 if weighted else None
    coremargin.ingest(X, tmp_path / "new.zarr", labels=labels, weights=weights, chunk_bytes=16 * 12)
    unlabelled = list(range(0, 1200, 5))
    coremargin.write_labels(tmp_path / "new.zarr", unlabelled, [None] * len(unlabelled))
    labels = [None if i % 5 == 0 else label for i, label in enumerate(labels)]
    found = evaluate(model, tmp_path / "new.zarr")
    assert isinstance(found, OneClassEvaluation)
    outside = model.predict(X) == -1
    assert 0 < outside.sum() < 1200
    assert (found.rows, found.outside, found.share) == (1200, outside.sum(), outside.mean())
    assert found.lowest_decision == pytest.approx(model.decision_function(X).min(), rel=1e-6)
    expected = pytest.approx(weights[outside].sum() / weights.sum()) if weights is not None else None
    assert found.weighted_share == expected
    for one in found.classes:
        mine = np.array([label == one.label for label in labels])
        assert (one.rows, one.outside) == (mine.sum(), outside[mine].sum())
    text = say("evaluate", tmp_path / "m", tmp_path / "new.zarr", "--quiet")
    assert f"{outside.sum():,}, {outside.mean():.4%}" in text
    assert json.loads(say("evaluate", tmp_path / "m", tmp_path / "new.zarr", "--json")) == found.to_dict() | {
        "classes": [vars(one) for one in found.classes], "source": str(tmp_path / "new.zarr"),
    }  # fmt: skip
    np.save(tmp_path / "X.npy", X)
    assert "outside" in say("evaluate", tmp_path / "m", tmp_path / "X.npy", "--quiet")


@pytest.mark.parametrize(
    "options", [{}, {"scaling": "standard"}, {"scaling": "rownorm"}, {"map": "polynomial", "degree": 2, "coef0": 1.0}]
)
def test_onnx_predicts_the_same(tmp_path: Path, rows: np.ndarray, options: dict[str, Any]) -> None:
    """Labels, and decision values to rounding."""
    pytest.importorskip("onnxruntime")
    import onnxruntime

    model = coremargin.train(rows, one_class="ball", **options)
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
    asked = np.concatenate([rows, rows + 3]).astype(np.float64)
    label, decision = session.run(None, {"X": asked})
    assert np.allclose(decision, model.decision_function(asked), atol=1e-9)
    sure = np.abs(decision) > 1e-6
    assert (label == model.predict(asked))[sure].all()


@pytest.mark.parametrize("scaling", [None, "standard", "rownorm"])
def test_rows_of_any_form_are_enclosed(tmp_path: Path, rows: np.ndarray, scaling: str | None) -> None:
    """In memory, sparse, in float64, in a file, with labels, which do not matter, and with rows of weight 0."""
    known = coremargin.train(rows, one_class="ball", epsilon=EPSILON, scaling=scaling)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c", comments="")
    words = ["--one-class", "ball", "--epsilon", EPSILON, "--quiet", *(["--scaling", scaling] if scaling else [])]
    say("train", tmp_path / "rows.csv", "--out", tmp_path / "m", "--cluster", "threads", *words)
    outside, weights = np.concatenate([rows, rows[:2] + 100]), np.repeat([1.0, 0.0], [600, 2])
    others = [
        coremargin.train(sp.csr_array(rows), one_class="ball", epsilon=EPSILON, scaling=scaling),
        coremargin.train(rows.astype(np.float64), one_class="ball", epsilon=EPSILON, scaling=scaling),
        coremargin.train(rows, list("ab" * 300), one_class="ball", epsilon=EPSILON, scaling=scaling),
        load(tmp_path / "m"),
    ]
    if scaling != "standard":  # else rows of weight 0 have a part in the statistics of columns
        others.append(coremargin.train(outside, weights=weights, one_class="ball", epsilon=EPSILON, scaling=scaling))
    for model in others:
        assert np.isclose(model.certificate.upper, known.certificate.upper, rtol=1e-6)


@pytest.mark.specimens(6)
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("scale", [1e-120, 1e-30, 1.0, 1e15, 1e120])
@pytest.mark.parametrize("far", [0.0, 1e7])
def test_claims_hold_whatever_the_numbers(tmp_path: Path, form: str, scale: float, far: float) -> None:
    """Rows that are tiny, huge, far from the origin, wide: claims may be weak, never false."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((80, 6)) * [1, 1e-6, 1, 10, 1, 1] + far) * scale
    coremargin.ingest(
        sp.csr_array(X) if form == "sparse" else X,
        tmp_path / "s.zarr",
        dtype="float64",
        unlabelled=True,
        chunk_bytes=10 * 48,
    )
    model = coremargin.train(tmp_path / "s.zarr", one_class="ball", out=tmp_path / "m")
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, [check.text for check in result.failures]
    assert model.status == "certified"
    assert (model.predict(X) == 1).all()


@pytest.mark.specimens(3)
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("_in_stages")
def test_equal_rows_have_a_ball_of_radius_0(tmp_path: Path, value: float, dtype: Any) -> None:
    """A certified answer, which contains the rows; and no other radius is accepted as one."""
    coremargin.ingest(
        np.full((700, 3), value, dtype),
        tmp_path / "s.zarr",
        dtype=np.dtype(dtype).name,
        unlabelled=True,
        chunk_bytes=16 * 3 * np.dtype(dtype).itemsize,
    )
    said = say(
        "train", tmp_path / "s.zarr", "--out", tmp_path / "m", "--one-class", "ball", "--quiet", "--cluster", "threads"
    )
    assert "the smallest ball around them has radius 0" in said
    model = load(tmp_path / "m")
    claims = model.certificate
    assert (model.status, claims.lower, claims.upper, claims.ratio) == ("certified", 0.0, 0.0, 1.0)
    assert coremargin.verify(tmp_path / "m", tmp_path / "s.zarr").ok
    assert model.predict(np.full((1, 3), value, dtype)).tolist() == [1]
    assert model.predict(np.full((1, 3), value + 1, dtype)).tolist() == [-1]
    coremargin.ingest(
        np.full((700, 3), value + 1, dtype), tmp_path / "t.zarr", dtype=np.dtype(dtype).name, unlabelled=True
    )
    assert not examine(tmp_path / "m", tmp_path / "t.zarr").ok


CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"certificate.upper": lambda v: v * (1 - 1e-12), "certificate.ratio": 1.0}, {}, "upper bound"),
    ({"certificate.lower": lambda v: v * (1 + 1e-12), "certificate.ratio": 1.0}, {}, "lower bound"),
    ({"certificate.lower": None, "certificate.ratio": None}, {}, "status"),
    ({"certificate.upper": None, "certificate.ratio": None}, {}, "status"),
    ({"certificate.upper": 0.0, "certificate.lower": 0.0, "certificate.ratio": 1.0}, {}, "upper bound"),
    ({"certificate.ratio": 0.5}, {}, "ratio"),
    ({"certificate.radius": lambda v: v * 2}, {}, "radius"),
    ({"certificate.epsilon": 1e-12}, {}, "epsilon"),
    ({"certificate.epsilon": 1e-15, "parameters.epsilon": 1e-15}, {}, "status"),
    ({"status": "not_separable"}, {}, "status"),
    ({}, {"centre": lambda c: c + 1e-9}, "upper bound"),
    ({}, {"centre": lambda c: c * 1e300}, "upper bound"),
    ({}, {"alpha": lambda a: a * 2}, "dual weights"),
    ({}, {"alpha": lambda a: np.eye(len(a))[0]}, "lower bound"),
    ({}, {"coreset_ids": lambda i: i + 1}, "coreset"),
    ({}, {"coreset_ids": lambda i: i * 0 + 10**6}, "coreset"),
    ({}, {"coreset_ids": lambda i: np.full_like(i, i[0])}, "coreset"),
    ({}, {"coreset_x": lambda x: x * 2}, "coreset"),
]


@pytest.mark.parametrize(("record", "arrays", "name"), CHANGES)
def test_false_claims_are_named(
    tmp_path: Path, honest: tuple[Path, Path, Path], record: dict[str, Any], arrays: dict[str, Any], name: str
) -> None:
    """Each by the check that it fails."""
    store, model, _ = honest
    failures = {check.name for check in examine(altered(model, tmp_path / "f", record, **arrays), store).failures}
    assert name in failures


@pytest.mark.parametrize(
    ("record", "arrays"),
    [
        ({"certificate.kind": "margin"}, {}),
        ({"classes": ["a", "b"]}, {}),
        ({"parameters.one_class": "cube"}, {}),
        ({"only": 1}, {}),
        ({"parameters.only": "1", "only": 2}, {}),
        ({}, {"alpha": lambda a: -a}),
        ({}, {"centre": lambda c: c[:-1]}),
        ({}, {"centre": lambda c: c * np.nan}),
        ({}, {"centre": None}),
    ],
)
def test_what_is_no_record_of_a_ball_is_refused(
    tmp_path: Path, honest: tuple[Path, Path, Path], record: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Before a row is read, by models and by the verifier."""
    store, model, _ = honest
    forged = altered(model, tmp_path / "f", record, **arrays)
    for read in (lambda: examine(forged, store), lambda: load(forged)):
        with pytest.raises(CoremarginError):
            read()


@pytest.mark.usefixtures("_in_stages")
def test_outliers_are_left_out(tmp_path: Path) -> None:
    """Exactly those that lie outside; the ball is that of the others, of all rows and of a class; it is verified."""
    wrong, rows = tmp_path / "w.zarr", wrong_rows()
    coremargin.ingest(rows, wrong, labels=np.arange(600) % 2, chunk_bytes=16 * 12)
    words = ("--one-class", "ball", "--outliers", "4", "--epsilon", EPSILON, "--cluster", "threads", "--quiet")
    said = say("train", wrong, "--out", tmp_path / "m", *words)
    assert said.startswith("certified: all 600 rows but 4 lie within")
    model = load(tmp_path / "m")
    assert model.outlier_ids.tolist() == FAR  # type: ignore[attr-defined]
    others = coremargin.train(np.delete(rows, FAR, axis=0), one_class="ball", epsilon=EPSILON)
    assert model.certificate.upper == pytest.approx(others.certificate.upper, rel=1e-9)  # type: ignore[attr-defined]
    assert "whatever 4 rows are left out" in say("verify", tmp_path / "m", wrong)
    assert "but 4" in say("show", tmp_path / "m")
    assert "Rows 3, 100, 101, 500." in (tmp_path / "m" / "report.html").read_text()
    one = coremargin.train(wrong, one_class="ball", only=0, outliers="1%", epsilon=0.5, out=tmp_path / "c")
    assert one.status == "certified"
    assert len(one.outlier_ids) <= 3
    assert coremargin.verify(tmp_path / "c", wrong).ok
    none = coremargin.train(wrong, one_class="ball", outliers=0, out=tmp_path / "z")
    assert none.outlier_ids.tolist() == []
    assert coremargin.verify(tmp_path / "z", wrong).ok
    coremargin.ingest(rows[:3], wrong, append=True, labels=[0, 0, 0])
    again = coremargin.retrain(tmp_path / "m", wrong, out=tmp_path / "r")
    assert again.status == "certified"


@pytest.mark.parametrize(
    ("record", "arrays", "name"),
    [
        ({"certificate.upper": lambda v: v * (1 - 1e-12), "certificate.ratio": 1.0}, {}, "upper bound"),
        ({"certificate.lower": lambda v: v * (1 + 1e-9), "certificate.ratio": 1.0}, {}, "lower bound"),
        ({"parameters.outliers": 3}, {}, "outliers"),
        ({"parameters.outliers": 5}, {}, "dual weights"),
        ({"parameters.outliers": "0..4"}, {}, "outliers"),
        ({}, {"outliers_ids": lambda i: i[1:]}, "upper bound"),
        ({}, {"outliers_ids": lambda i: np.append(i, 7)}, "outliers"),
        ({}, {"outliers_ids": lambda i: i + 10**6}, "outliers"),
        ({}, {"outliers_ids": lambda i: np.full_like(i, i[0])}, "outliers"),
        ({}, {"proof_weights": lambda w: w * 2}, "dual weights"),
        ({}, {"proof_weights": lambda w: w + 1e-3}, "dual weights"),
        ({}, {"proof_rows": lambda r: r * 0}, "dual weights"),
        ({}, {"proof_rows": lambda r: r + 10**6}, "dual weights"),
        ({}, {"proof_numbers": lambda n: n * 0}, "dual weights"),
        ({}, {"proof_numbers": lambda n: n - 10**6}, "dual weights"),
        ({}, {"proof_paths": lambda p: ~p}, "dual weights"),
        ({}, {"centre": lambda c: c + 1e-9}, "upper bound"),
    ],
)
def test_false_claims_about_outliers_are_named(
    tmp_path: Path, honest: tuple[Path, Path, Path], record: dict[str, Any], arrays: dict[str, Any], name: str
) -> None:
    """Each by the check that it fails."""
    wrong, _, model = honest
    failures = {check.name for check in examine(altered(model, tmp_path / "f", record, **arrays), wrong).failures}
    assert name in failures


def test_rows_of_one_distance_are_no_outliers(tmp_path: Path) -> None:
    """More rows than may be left out lie on the sphere, whose radius ingest has known."""
    corners = np.array([[a, b, c] for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)])
    coremargin.ingest(np.repeat(corners, 4, axis=0), tmp_path / "s.zarr", unlabelled=True)
    model: Any = coremargin.train(tmp_path / "s.zarr", one_class="ball", outliers=12, out=tmp_path / "m")
    assert (model.status, len(model.outlier_ids)) == ("certified", 0)
    assert coremargin.verify(tmp_path / "m", tmp_path / "s.zarr").ok


def test_it_is_verified_with_its_own_rows_only(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Of another store the content is another one."""
    coremargin.train(store, one_class="ball", out=tmp_path / "m")
    coremargin.ingest(rows[::-1], tmp_path / "o.zarr", labels=np.arange(600) % 2, chunk_bytes=16 * 12)
    assert "content" in {check.name for check in examine(tmp_path / "m", tmp_path / "o.zarr").failures}
    with pytest.raises(ClaimRefuted):
        coremargin.verify(tmp_path / "m", tmp_path / "o.zarr")


@pytest.mark.usefixtures("_in_stages")
def test_it_is_killed_and_resumed_and_stopped(tmp_path: Path, store: Path, embedded: Executor) -> None:
    """On threads, in processes, interrupted within each scan: the same bytes; stopped at a limit, bounds that hold."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    def job(name: str) -> Any:
        return new_job(store=store, out=tmp_path / name, one_class="ball", epsilon=EPSILON, block=1)

    alone, broken = job("a"), job("b")
    done = train_job(alone, Store.open(store), InProcess(1))
    assert len(done.rounds) > 3
    for interrupted in range(6):
        begin = "resume" if interrupted else "new"
        with pytest.raises(Interrupted):
            train_job(broken, Store.open(store), InProcess(1), begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
    assert train_job(broken, Store.open(store), InProcess(2), begin="resume").run["resumed"] == 6
    processes = job("p")
    train_job(processes, Store.open(store), embedded)
    for name in ("model.json", "arrays.npz"):
        assert Path(broken.out, name).read_bytes() == Path(alone.out, name).read_bytes()
        assert Path(processes.out, name).read_bytes() == Path(alone.out, name).read_bytes()
    stopped = coremargin.train(store, one_class="ball", epsilon=EPSILON, time_limit=1e-9, out=tmp_path / "c")
    assert stopped.status == "stopped"
    assert coremargin.verify(tmp_path / "c", store).ok


@pytest.mark.usefixtures("_in_stages")
def test_retraining_reads_new_rows_and_what_they_leave_unproven(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Rows inside cost a read of their chunks, a row outside more; removed rows shrink the ball."""

    def ingest(new: np.ndarray) -> None:
        coremargin.ingest(new.astype(np.float32), store, append=True, labels=np.zeros(len(new), int))

    coremargin.train(store, one_class="ball", epsilon=EPSILON, out=tmp_path / "m0")
    support = load(tmp_path / "m0").coreset_ids  # type: ignore[attr-defined]
    steps: list[tuple[Any, float]] = [
        (lambda: ingest(rows[:20] * 0.5 + 2.5), 0.2),
        (lambda: ingest(rows[:1] + 9), 1.2),
        (lambda: say("remove", store, 620), 1.2),
        (lambda: say("remove", store, *support), 1.2),
        (lambda: set_weights(store, support, np.ones(len(support))), 1.2),
        (lambda: None, 0.01),
    ]
    for k, (change, most) in enumerate(steps, 1):
        change()
        model = coremargin.retrain(tmp_path / f"m{k - 1}", store, out=tmp_path / f"m{k}")
        run = json.loads((tmp_path / f"m{k}" / "run.json").read_text())
        assert model.status == "certified"
        assert "from_scratch" not in run["retrained"], k
        assert run["bytes_read"] < most * run["store_bytes"], k
        assert coremargin.verify(tmp_path / f"m{k}", store).ok
        fresh = coremargin.train(store, one_class="ball", epsilon=EPSILON)
        assert model.certificate.upper == pytest.approx(fresh.certificate.upper, rel=1e-8)


def test_a_nightly_job_keeps_versions_of_it(tmp_path: Path, rows: np.ndarray) -> None:
    """Each commit becomes a version, which passes the gates, is promoted and predicts; commands compare two of them."""
    store = tmp_path / "s.zarr"
    coremargin.ingest(rows, store, unlabelled=True)
    coremargin.ingest(np.concatenate([rows, rows + 50]), tmp_path / "known.zarr", labels=np.repeat([1, -1], 600))
    np.savetxt(tmp_path / "today.csv", rows[:5] + 50, delimiter=",", header="a,b,c", comments="")
    job, place = tmp_path / "n.toml", tmp_path / "r"
    job.write_text(
        f'job = "nightly"\nstore = "s.zarr"\nregistry = "r"\n[train]\none_class = "ball"\nepsilon = {EPSILON}\n'
        '[gates]\nverify = true\ndrift = 5.0\nheld_out = "known.zarr"\naccuracy = 0.01\n'
        '[predict]\nrows = "today.csv"\nout = "today.parquet"\n'
    )
    for version in (1, 2):
        assert f"version {version} is certified" in say("run", job)
        coremargin.ingest(rows[:8] * 0.5 + 2.5, store, append=True, unlabelled=True)
    assert load(f"{place}@champion").predict(rows[:1]).tolist() == [1]
    assert set(read_table(tmp_path / "today.parquet").column("label").to_pylist()) == {-1}
    assert "class" not in say("registry", "diff", place, 1, 2)
    assert "classes" not in say("registry", "show", place, 2)
    say("registry", "page", place, "--out", tmp_path / "page.html")


def test_what_it_cannot_do_is_refused_by_name(tmp_path: Path, store: Path) -> None:
    """Options of other kinds, shapes that there are none of, rows whose squares overflow."""
    for options, text in (
        ({"loss": "hinge"}, r"loss: the smallest ball has none.*it belongs to .*a soft margin"),
        ({"C": 1.0}, "C: the smallest ball has none"),
        ({"classes": "ovr"}, "classes: the smallest ball has none"),
        ({"folds": 3}, "folds: the smallest ball has none"),
        ({"intercept": False}, "intercept: only hyperplanes have one"),
        ({"outliers": "0..3"}, "outliers: expected one number"),
        ({"outliers": -1}, "outliers: expected a number of rows"),
        ({"epsilon": 0.0}, "epsilon: expected a number between 0 and 1"),
    ):
        with pytest.raises(SpecError, match=text):
            new_job(store=store, out=store, one_class="ball", **options)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="one_class: invalid enum value 'cube'; expected 'ball'"):
        new_job(store=store, out=store, one_class="cube")
    with pytest.raises(SpecError, match="only: a hard margin has none.*the smallest ball"):
        new_job(store=store, out=store, only="a")
    with pytest.raises(BadRow, match="rescale the features"):
        coremargin.train([[1e200], [2e200]], one_class="ball")
    with pytest.raises(CoremarginError):
        coremargin.train([[np.nan], [1.0]], one_class="ball")
    with pytest.raises(CoremarginError):
        coremargin.train(np.zeros((0, 3)), one_class="ball")
    with pytest.raises(LabelError, match="found that all weigh 0"):
        coremargin.train([[1.0], [2.0]], ["a", "b"], weights=[1.0, 0.0], one_class="ball", only="b")
    with pytest.raises(UsageError, match="outliers: expected fewer than the 2 rows"):
        coremargin.train([[1.0], [2.0]], one_class="ball", outliers=2)
    assert "--one-class" in say("train", "--help")
