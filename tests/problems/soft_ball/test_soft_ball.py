"""The soft ball as users meet it: trained, verified, forged, used, interrupted, retrained, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import coremargin
from coremargin.cli import main
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, CoremarginError, Interrupted, SpecError, StoreError, UsageError
from coremargin.learn.train import Progress, train_job
from coremargin.models.registry import load
from coremargin.problems.registry import new_job
from coremargin.problems.soft_ball import soft_ball
from coremargin.verify.examine import examine
from model_kit import altered

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.engine.protocols import Executor

EPSILON, NU = 1e-9, 0.05


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """600 rows, each coordinate of another size."""
    return (rng.standard_normal((600, 3)) * [1, 2, 0.5] + 5).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path, rows: np.ndarray) -> Path:
    """The rows, with two labels, in chunks of 16."""
    coremargin.ingest(rows, tmp_path / "s.zarr", labels=np.arange(600) % 2, chunk_bytes=16 * 12)
    return tmp_path / "s.zarr"


@pytest.fixture
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample is read first, and scans send some of the rows."""
    monkeypatch.setattr(soft_ball, "BAND_LEAST", 200)
    monkeypatch.setattr(soft_ball.SoftBall, "__init__", partialmethod(soft_ball.SoftBall.__init__, sample_bytes=1500))


def say(*words: object, code: int = 0) -> str:
    """What a command prints; code: that it ends with."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def mean_square(rows: Any, centre: np.ndarray, nu: float, weights: np.ndarray | None = None) -> float:
    """Of the distances of the farthest share of the rows, by its definition."""
    squares = ((np.asarray(rows, np.float64) - centre) ** 2).sum(axis=1)
    s = np.ones(len(squares)) if weights is None else weights
    order = np.argsort(-squares)
    shares = np.diff(np.minimum(np.cumsum(np.append(0.0, s[order])) / (nu * s.sum()), 1.0))
    return float(shares @ squares[order])


@pytest.mark.usefixtures("_in_parts")
def test_it_is_trained_verified_shown_and_reported(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """A job file, a certificate to 1e-9, and every command about models, none of which finds classes."""
    job, model = tmp_path / "job.toml", tmp_path / "m"
    job.write_text(f'job = "train"\nstore = "s.zarr"\nout = "m"\none_class = "ball"\nnu = {NU}\nepsilon = {EPSILON}\n')
    assert "nu" in say("plan", job)
    text = say("run", job, "--cluster", "threads", "--quiet")
    assert text.startswith("certified: at most 4.9 % of all 600 rows lie outside of the radius")
    ball: Any = load(model)
    claims = ball.certificate
    found = mean_square(rows, ball.centre, NU)
    assert found <= claims.upper <= found * (1 + EPSILON)
    assert claims.lower >= claims.upper * (1 - EPSILON)
    assert (claims.kind, ball.kind, ball.classes, ball.labels) == ("duality_gap", "soft_ball", (), (-1, 1))
    assert coremargin.verify(model, store).ok
    assert "no ball has a value below" in say("verify", model, store, "--quiet")
    shown = say("show", model)
    assert f"radius         {ball.radius!r}, nu 0.05" in shown
    assert "classes" not in shown
    assert "A ball around all 600 rows, nu 0.05" in (model / "report.html").read_text()
    assert json.loads(say("show", model, "--json"))["certificate"]["kind"] == "duality_gap"


def test_of_two_features_the_page_has_a_picture(tmp_path: Path, rng: np.random.Generator) -> None:
    """The ball and its centre."""
    coremargin.train(rng.standard_normal((50, 2)), one_class="ball", nu=0.1, out=tmp_path / "m")
    assert 'class="outline"' in (tmp_path / "m" / "report.html").read_text()


def test_it_predicts_and_is_evaluated(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """At most the share nu lies outside; labels -1 and 1 are compared."""
    model: Any = coremargin.train(store, one_class="ball", nu=NU, epsilon=EPSILON)
    outside = int((model.predict(rows) == -1).sum())
    assert 600 * NU - 4 <= outside <= 600 * NU
    distances = model.distances(rows)
    assert np.allclose(distances, np.linalg.norm(rows - model.centre, axis=1), rtol=1e-12)
    assert np.allclose(model.decision_function(rows), model.radius - distances)
    model.save(tmp_path / "m")
    text = say("predict", tmp_path / "m", store, tmp_path / "p.csv", "--quiet")
    assert f"600 rows: {outside} of -1, {600 - outside} of 1" in text
    known = np.concatenate([rows, rows + 50])
    coremargin.ingest(known, tmp_path / "known.zarr", labels=np.repeat([1, -1], 600))
    found = json.loads(say("evaluate", tmp_path / "m", tmp_path / "known.zarr", "--json"))
    assert found["accuracy"] == pytest.approx(1 - outside / 1200)
    with pytest.raises(UsageError, match="a ball is no hyperplane"):
        model.to_sklearn()


def test_onnx_predicts_the_same(rows: np.ndarray) -> None:
    """Labels, and decision values to rounding."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model: Any = coremargin.train(rows, one_class="ball", nu=NU, scaling="standard")
    asked = rows.astype(np.float64)
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
    label, decision = session.run(None, {"X": asked})
    assert np.allclose(decision, model.decision_function(asked), atol=1e-9)
    sure = np.abs(decision) > 1e-6
    assert (label == model.predict(asked))[sure].all()


@pytest.mark.parametrize("options", [{}, {"only": 1}, {"scaling": "standard"}, {"map": "polynomial", "degree": 2}])
def test_rows_of_any_form_have_the_same_ball(
    tmp_path: Path, rows: np.ndarray, store: Path, options: dict[str, Any]
) -> None:
    """In memory, sparse, in float64 and in a store; all are verified."""
    labels = np.arange(600) % 2
    known = coremargin.train(store, one_class="ball", nu=NU, epsilon=1e-8, out=tmp_path / "m", **options)
    assert known.status == "certified"
    assert coremargin.verify(tmp_path / "m", store).ok
    coremargin.ingest(sp.csr_array(rows), tmp_path / "p.zarr", labels=labels, chunk_bytes=16 * 12)
    others = [
        coremargin.train(rows.astype(np.float64), labels, one_class="ball", nu=NU, epsilon=1e-8, **options),
        coremargin.train(tmp_path / "p.zarr", one_class="ball", nu=NU, epsilon=1e-8, out=tmp_path / "p", **options),
    ]
    assert coremargin.verify(tmp_path / "p", tmp_path / "p.zarr").ok
    for model in others:
        assert np.isclose(model.certificate.upper, known.certificate.upper, rtol=1e-5)
    if "only" in options:
        alone = coremargin.train(rows[1::2], one_class="ball", nu=NU, epsilon=1e-8)
        assert alone.certificate.upper == pytest.approx(known.certificate.upper, rel=1e-7)


@pytest.mark.usefixtures("_in_parts")
def test_weights_count_as_repeated_rows(tmp_path: Path, rows: np.ndarray) -> None:
    """Rows of weight 2 are as if they were there twice, those of weight 0 are not there; the verifier agrees."""
    weights = np.repeat([0.0, 1.0, 2.0], 200)
    coremargin.ingest(rows, tmp_path / "w.zarr", unlabelled=True, weights=weights, chunk_bytes=16 * 12)
    model: Any = coremargin.train(tmp_path / "w.zarr", one_class="ball", nu=NU, epsilon=EPSILON, out=tmp_path / "m")
    twice = coremargin.train(np.concatenate([rows[200:], rows[400:]]), one_class="ball", nu=NU, epsilon=EPSILON)
    assert model.status == "certified"
    assert model.certificate.upper == pytest.approx(twice.certificate.upper, rel=1e-8)
    assert model.certificate.upper == pytest.approx(mean_square(rows, model.centre, NU, weights), rel=1e-8)
    assert coremargin.verify(tmp_path / "m", tmp_path / "w.zarr").ok


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("scale", [1e-120, 1e-30, 1e15, 1e120])
@pytest.mark.parametrize("far", [0.0, 1e6])
def test_claims_hold_whatever_the_numbers(tmp_path: Path, form: str, scale: float, far: float) -> None:
    """Rows that are tiny, huge, far from the origin: claims may be weak, never false."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((80, 6)) * [1, 1e-6, 1, 10, 1, 1] + far) * scale
    given = sp.csr_array(X) if form == "sparse" else X
    coremargin.ingest(given, tmp_path / "s.zarr", dtype="float64", unlabelled=True, chunk_bytes=10 * 48)
    model = coremargin.train(tmp_path / "s.zarr", one_class="ball", nu=0.1, out=tmp_path / "m")
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, [check.text for check in result.failures]
    assert model.status == "certified" or form == "sparse"


CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"certificate.upper": lambda v: v * (1 - 1e-10), "certificate.ratio": 1.0}, {}, "value"),
    ({"certificate.lower": lambda v: v * (1 + 1e-10), "certificate.ratio": 1.0}, {}, "dual bound"),
    ({"certificate.lower": None, "certificate.ratio": None}, {}, "status"),
    ({"certificate.ratio": 0.5}, {}, "ratio"),
    ({"certificate.radius": lambda v: v * 2}, {}, "radius"),
    ({"certificate.epsilon": 1e-12}, {}, "epsilon"),
    ({"certificate.epsilon": 1e-15, "parameters.epsilon": 1e-15}, {}, "status"),
    ({"parameters.nu": 0.06}, {}, "dual bound"),
    ({"parameters.nu": 0.04}, {}, "value"),
    ({"parameters.nu": 1e-5}, {}, "nu"),
    ({"status": "not_separable"}, {}, "status"),
    ({}, {"centre": lambda c: c + 1e-3}, "value"),
    ({}, {"centre": lambda c: c * 1e300}, "value"),
    ({}, {"square": lambda r: r * 1.001}, "value"),
    ({}, {"square": lambda r: r * 0.99}, "value"),
    ({}, {"reference": lambda c: c + 0.1}, "dual bound"),
    ({}, {"threshold": lambda r: r * 0.9}, "dual bound"),
    ({}, {"threshold": lambda r: r * 1.1}, "dual bound"),
    ({}, {"alpha": lambda a: a * 0}, "dual bound"),
    ({}, {"alpha": lambda a: a * 100}, "dual weights"),
    ({}, {"coreset_ids": lambda i: i + 1}, "dual bound"),
    ({}, {"coreset_ids": lambda i: i * 0 + 10**6}, "coreset"),
    ({}, {"coreset_ids": lambda i: np.full_like(i, i[0])}, "coreset"),
]


@pytest.mark.parametrize(("record", "arrays", "name"), CHANGES)
def test_false_claims_are_named(
    tmp_path: Path, store: Path, record: dict[str, Any], arrays: dict[str, Any], name: str
) -> None:
    """Each by the check that it fails."""
    coremargin.train(store, one_class="ball", nu=NU, epsilon=EPSILON, out=tmp_path / "m")
    forged = altered(tmp_path / "m", tmp_path / "f", record, **arrays)
    failures = {check.name for check in examine(forged, store).failures}
    assert name in failures


@pytest.mark.parametrize(
    ("record", "arrays"),
    [
        ({"certificate.kind": "radius"}, {}),
        ({"parameters.nu": 1.5}, {}),
        ({"parameters.nu": 0}, {}),
        ({"problem": "ball"}, {}),
        ({}, {"alpha": lambda a: -a - 1}),
        ({}, {"square": lambda r: -r}),
        ({}, {"centre": lambda c: c[:-1]}),
        ({}, {"reference": lambda c: c * np.nan}),
        ({}, {"threshold": None}),
    ],
)
def test_what_is_no_record_of_a_soft_ball_is_refused(
    tmp_path: Path, store: Path, record: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Before a row is read, by models and by the verifier."""
    coremargin.train(store, one_class="ball", nu=NU, out=tmp_path / "m")
    forged = altered(tmp_path / "m", tmp_path / "f", record, **arrays)
    for read in (lambda: examine(forged, store), lambda: load(forged)):
        with pytest.raises(CoremarginError):
            read()


@pytest.mark.usefixtures("_in_parts")
def test_it_is_killed_and_resumed_and_stopped(tmp_path: Path, store: Path, embedded: Executor) -> None:
    """On threads, in processes, interrupted within each scan: the same bytes; stopped at a limit, bounds that hold."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    def job(name: str) -> Any:
        return new_job(store=store, out=tmp_path / name, one_class="ball", nu=NU, epsilon=EPSILON, block=1)

    alone, broken = job("a"), job("b")
    train_job(alone, Store.open(store), InProcess(1))
    for interrupted in range(4):
        begin: Any = "resume" if interrupted else "new"
        with pytest.raises(Interrupted):
            train_job(broken, Store.open(store), InProcess(1), begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
    assert train_job(broken, Store.open(store), InProcess(2), begin="resume").run["resumed"] == 4
    processes = job("p")
    train_job(processes, Store.open(store), embedded)
    for name in ("model.json", "arrays.npz"):
        assert Path(broken.out, name).read_bytes() == Path(alone.out, name).read_bytes()
        assert Path(processes.out, name).read_bytes() == Path(alone.out, name).read_bytes()
    stopped = coremargin.train(store, one_class="ball", nu=NU, epsilon=EPSILON, time_limit=1e-9, out=tmp_path / "c")
    assert stopped.status == "stopped"
    assert coremargin.verify(tmp_path / "c", store).ok


@pytest.mark.usefixtures("_in_parts")
def test_retraining_begins_with_the_earlier_ball(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """One scan proves it again where little has changed; rows that are removed or appended count."""
    coremargin.train(store, one_class="ball", nu=NU, out=tmp_path / "m0")
    changes: list[Any] = [
        lambda: coremargin.ingest(rows[:20] * 0.9, store, append=True, labels=np.zeros(20, int)),
        lambda: say("remove", store, 3, 4, 5),
    ]
    for k, change in enumerate(changes, 1):
        change()
        model = coremargin.retrain(tmp_path / f"m{k - 1}", store, out=tmp_path / f"m{k}")
        run = json.loads((tmp_path / f"m{k}" / "run.json").read_text())
        assert model.status == "certified"
        assert "from_scratch" not in run["retrained"]
        assert run["bytes_read"] < 2.5 * run["store_bytes"]
        assert coremargin.verify(tmp_path / f"m{k}", store).ok
        fresh = coremargin.train(store, one_class="ball", nu=NU, epsilon=EPSILON)
        assert model.certificate.lower <= fresh.certificate.upper
        assert fresh.certificate.lower <= model.certificate.upper


def test_what_it_cannot_do_is_refused_by_name(tmp_path: Path, store: Path) -> None:
    """A share that is none, or none of the rows, equal rows, squares that overflow, options of other kinds."""
    for nu in (0.0, 1.0, -0.1, 1.5):
        with pytest.raises(SpecError, match="nu: "):
            new_job(store=store, out=store, one_class="ball", nu=nu)
    with pytest.raises(SpecError, match="nu: a hard margin has none"):
        new_job(store=store, out=store, nu=0.1)
    with pytest.raises(SpecError, match="C: the soft ball has none"):
        new_job(store=store, out=store, one_class="ball", nu=0.1, C=1.0)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nu: expected at least 1/n for n = 600 rows"):
        coremargin.train(store, one_class="ball", nu=0.001)
    with pytest.raises(StoreError, match="all are equal: the smallest ball around them has radius 0"):
        coremargin.train(np.full((50, 2), 3.0), one_class="ball", nu=0.1)
    with pytest.raises(BadRow, match="rescale the features"):
        coremargin.train([[1e200], [2e200]], one_class="ball", nu=0.5)
    assert "--nu" in say("train", "--help")


def test_the_command_takes_nu(tmp_path: Path, store: Path, run_cli: Callable[..., Result]) -> None:
    """From the command line the model is that from Python; shares that are none and outliers beside nu are refused."""
    command = ["train", store, "--one-class", "ball", "--out", tmp_path / "a.model"]
    run_cli(*command, "--nu", "0.1")
    model = coremargin.train(store, out=tmp_path / "b.model", one_class="ball", nu=0.1)
    assert coremargin.load(tmp_path / "a.model").certificate == model.certificate
    run_cli(*command, "--overwrite", "--nu", "1.5", exit_code=2)
    run_cli(*command, "--overwrite", "--nu", "x", exit_code=2)
    refused = run_cli(*command, "--overwrite", "--nu", "0.1", "--outliers", "2", exit_code=2)
    assert "leave one of the two out" in refused.stderr


def test_rows_of_weight_0_do_not_count_for_nu(tmp_path: Path, rows: np.ndarray) -> None:
    """Trainer and verifier agree about 1/n, which division rounds."""
    weights = np.repeat([1.0, 0.0], [49, 51])
    coremargin.ingest(rows[:100], tmp_path / "w.zarr", unlabelled=True, weights=weights)
    coremargin.ingest(rows[:49], tmp_path / "s.zarr", unlabelled=True)
    for place in ("w.zarr", "s.zarr"):
        with pytest.raises(UsageError, match="1/n for n = 49 rows, found 0.02,"):
            coremargin.train(tmp_path / place, one_class="ball", nu=0.02)
        model = coremargin.train(tmp_path / place, one_class="ball", nu=1 / 49, out=tmp_path / f"{place}.m")
        assert model.status == "certified"
        assert coremargin.verify(tmp_path / f"{place}.m", tmp_path / place).ok


def certificate(lower: float | None, upper: float, coreset_rows: int) -> dict[str, Any]:
    """The record of these bounds."""
    values = {"lower": lower, "upper": upper, "ratio": None if lower is None else lower / upper}
    values["coreset_rows"] = coreset_rows
    status = "stopped" if lower is None else "certified"
    return {f"certificate.{name}": value for name, value in values.items()} | {"status": status}


def test_a_row_whose_box_underflows_hides_no_other(tmp_path: Path, rows: np.ndarray) -> None:
    """The smallest ball around all rows is no soft ball, though 0 / 0 is no number."""
    weights = np.where(np.arange(600) == 0, 5e-324, np.where(np.arange(600) < 300, 100.0, 1.0))
    coremargin.ingest(rows, tmp_path / "s.zarr", unlabelled=True, weights=weights)
    coremargin.train(tmp_path / "s.zarr", one_class="ball", epsilon=1e-9, out=tmp_path / "b")
    coremargin.train(tmp_path / "s.zarr", one_class="ball", nu=0.5, out=tmp_path / "m", max_scans=1)
    upper = load(tmp_path / "b").certificate.upper
    assert upper is not None
    with np.load(tmp_path / "b" / "arrays.npz") as arrays:
        centre, square, ids = arrays["centre"], upper**2, np.append(0, arrays["coreset_ids"])
        alpha = np.append(0.0, arrays["alpha"])
    forged = altered(
        tmp_path / "m",
        tmp_path / "f",
        certificate(square * (1 - 1e-6), square * (1 + 1e-6), len(ids)),
        centre=centre,
        reference=centre[None],
        square=np.array([square * (1 + 1e-9)]),
        threshold=np.array([1e300]),
        alpha=alpha,
        coreset_ids=ids,
        coreset_x=np.zeros((len(ids), 0)),
    )
    assert {check.name for check in examine(forged, tmp_path / "s.zarr").failures} == {"dual weights", "dual bound"}


@pytest.mark.parametrize(("scale", "weight"), [(1e-10, 1e-307), (1e-120, 1e-200)])
def test_what_underflows_counts_against_a_claim(tmp_path: Path, scale: float, weight: float) -> None:
    """Small weights times small squares are 0 in float64, and no proof that no row lies outside."""
    rows = np.random.default_rng(0).standard_normal((100, 3)) * scale
    coremargin.ingest(rows, tmp_path / "s.zarr", unlabelled=True, weights=np.full(100, weight), dtype="float64")
    model = coremargin.train(tmp_path / "s.zarr", one_class="ball", nu=0.5, out=tmp_path / "m")
    assert examine(tmp_path / "m", tmp_path / "s.zarr").ok
    claims, nothing = certificate(None, model.certificate.upper * 1e-9, 0), np.zeros(0)
    given = {"alpha": nothing, "coreset_ids": nothing.astype(np.int64), "coreset_x": np.zeros((0, 0))}
    forged = altered(tmp_path / "m", tmp_path / "f", claims, square=np.zeros(1), **given)
    assert [check.name for check in examine(forged, tmp_path / "s.zarr").failures] == ["value"]


def tied(kind: str) -> np.ndarray:
    """400 rows of which more than a band holds are equally far from the best centre."""
    rng = np.random.default_rng(6)
    if kind == "sphere":
        rows = rng.standard_normal((400, 3))
        return rows / np.linalg.norm(rows, axis=1)[:, None]
    return np.sign(rng.standard_normal((400, 1))) if kind == "signs" else np.round(rng.standard_normal((400, 2)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("nu", [0.07, 0.8])
@pytest.mark.parametrize("kind", ["sphere", "signs", "integers"])
def test_ties_at_the_radius_are_solved_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, nu: float, weighted: bool
) -> None:
    """Where a band does not hold them, all rows are sent."""
    monkeypatch.setattr(soft_ball, "BAND_LEAST", 60)
    monkeypatch.setattr(soft_ball.SoftBall, "__init__", partialmethod(soft_ball.SoftBall.__init__, sample_bytes=500))
    weights = np.random.default_rng(7).uniform(0.1, 2.0, 400) if weighted else None
    options: dict[str, Any] = {} if weights is None else {"weights": weights}
    coremargin.ingest(tied(kind), tmp_path / "s.zarr", unlabelled=True, chunk_bytes=200, **options)
    model: Any = coremargin.train(tmp_path / "s.zarr", one_class="ball", nu=nu, epsilon=1e-9, out=tmp_path / "m")
    assert model.status == "certified"
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, result.failures
    stored = np.asarray(tied(kind), np.float32).astype(float)
    assert model.certificate.upper == pytest.approx(mean_square(stored, model.centre, nu, weights), rel=1e-8)


def test_ties_beyond_the_memory_are_the_reason_of_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at +1 and -1 of which a scan sends 60: they are counted, and the bounds hold."""
    monkeypatch.setattr(soft_ball, "BAND_LEAST", 60)
    monkeypatch.setattr(soft_ball, "BAND_PART", 1e-4)
    monkeypatch.setattr(soft_ball.SoftBall, "__init__", partialmethod(soft_ball.SoftBall.__init__, sample_bytes=500))
    coremargin.ingest(tied("signs"), tmp_path / "s.zarr", unlabelled=True, chunk_bytes=200)
    model = coremargin.train(
        tmp_path / "s.zarr", one_class="ball", nu=0.8, epsilon=1e-9, memory="8MiB", out=tmp_path / "m"
    )
    assert model.status == "stopped"
    reason = json.loads((tmp_path / "m" / "run.json").read_text())["reason"]
    assert "rows lie on the sphere, besides those for which there is memory" in reason
    assert examine(tmp_path / "m", tmp_path / "s.zarr").ok


@pytest.mark.usefixtures("_in_parts")
@pytest.mark.parametrize(("weighted", "epsilon"), [(False, 0.2), (False, 1e-9), (True, 1e-9)])
def test_the_share_outside_is_never_understated(
    tmp_path: Path, rows: np.ndarray, weighted: bool, epsilon: float
) -> None:
    """Though a ball that is best to a large epsilon may leave out more than nu, and nu is about weights."""
    weights = 10.0 ** np.random.default_rng(8).uniform(-3, 3, 600) if weighted else np.ones(600)
    options: dict[str, Any] = {"weights": weights} if weighted else {}
    coremargin.ingest(rows, tmp_path / "s.zarr", unlabelled=True, chunk_bytes=16 * 12, **options)
    for nu in (0.05, 0.3, 0.9):
        command = ("train", tmp_path / "s.zarr", "--one-class", "ball", "--epsilon", epsilon, "--overwrite")
        text = say(*command, "--nu", nu, "--out", tmp_path / "m", "--quiet")
        model: Any = load(tmp_path / "m")
        outside = (
            weights[((rows - model.centre) ** 2).sum(axis=1) > model.radius**2 * (1 + 1e-12)].sum() / weights.sum()
        )
        stated = json.loads((tmp_path / "m" / "run.json").read_text())["share_outside"]
        assert outside <= stated
        assert stated <= 1.2 * nu + 0.01
        assert ("the weight of all 600 rows lies" if weighted else "of all 600 rows lie outside") in text
        assert "of their weight; nu" in say("verify", tmp_path / "m", tmp_path / "s.zarr", "--quiet")


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    """4,000 rows in chunks of 50, in order of a column, that are read in stages."""
    monkeypatch.setattr(soft_ball, "SMALL_BYTES", 0)
    monkeypatch.setattr(soft_ball, "BAND_LEAST", 1000)
    monkeypatch.setattr(soft_ball.SoftBall, "__init__", partialmethod(soft_ball.SoftBall.__init__, sample_bytes=8000))
    rows = (rng.standard_normal((4000, 3)) * [1, 2, 0.5] + 100).astype(np.float32)
    rows = rows[np.argsort(rows[:, 2])]
    coremargin.ingest(rows, tmp_path / "t.zarr", unlabelled=True, chunk_bytes=50 * 12)
    return tmp_path / "t.zarr"


def test_one_read_in_stages_proves_it(tmp_path: Path, staged: Path) -> None:
    """To 1 %, with a sphere for each stage; to 1e-9 after a scan more; the share outside is true of both."""
    rows = np.concatenate([Store.open(staged).read(chunk)[0] for chunk in range(80)])
    for epsilon, reads in ((0.01, 1.0), (1e-9, 2.0)):
        model: Any = coremargin.train(staged, one_class="ball", nu=0.1, epsilon=epsilon, out=tmp_path / f"{epsilon}")
        run = json.loads((tmp_path / f"{epsilon}" / "run.json").read_text())
        assert model.status == "certified"
        assert run["bytes_read"] <= 1.01 * reads * run["store_bytes"]
        result = examine(tmp_path / f"{epsilon}", staged)
        assert result.ok, result.failures
        least = mean_square(rows, model.centre, 0.1)
        assert model.certificate.lower <= least <= model.certificate.upper
        outside = np.mean(((rows - model.centre) ** 2).sum(axis=1) > model.radius**2 * (1 + 1e-12))
        assert outside <= run["share_outside"] <= 0.2
    with np.load(tmp_path / "0.01" / "arrays.npz") as arrays:
        assert len(arrays["reference_of"]) == 80
        assert len(arrays["threshold"]) == len(arrays["reference"]) == arrays["reference_of"].max() + 1 > 3
    assert "the stage that read the row" in (tmp_path / "0.01" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        ({"reference_of": lambda of: of[::-1].copy()}, "dual bound"),
        ({"reference_of": np.zeros_like}, "dual bound"),
        ({"reference_of": lambda of: of[:-1]}, "dual weights"),
        ({"reference_of": lambda of: np.append(of, 0)}, "dual weights"),
        ({"threshold": lambda squares: squares * 1.5}, "dual bound"),
        ({"reference": lambda centres: centres + 1}, "dual bound"),
        ({"coreset_ids": lambda ids: ids + 1}, "dual bound"),
    ],
)
def test_forged_stages_are_refused(tmp_path: Path, staged: Path, arrays: dict[str, Any], name: str) -> None:
    """Spheres of other chunks, too few or too many of them, and moved ones."""
    coremargin.train(staged, one_class="ball", nu=0.1, epsilon=0.01, out=tmp_path / "m")
    forged = altered(tmp_path / "m", tmp_path / "f", {"certificate.epsilon": 0.01}, **arrays)
    assert name in {check.name for check in examine(forged, staged).failures}


@pytest.mark.parametrize(
    "arrays",
    [
        {"reference_of": lambda of: of - 1},
        {"reference_of": lambda of: of + 1},
        {"reference_of": lambda of: of[:0]},
        {"reference_of": None},
        {"threshold": lambda squares: squares[:-1]},
    ],
)
def test_what_are_no_stages_is_no_record(tmp_path: Path, staged: Path, arrays: dict[str, Any]) -> None:
    """A sphere that is not there, or several spheres without a choice."""
    coremargin.train(staged, one_class="ball", nu=0.1, epsilon=0.01, out=tmp_path / "m")
    forged = altered(tmp_path / "m", tmp_path / "f", {}, **arrays)
    with pytest.raises(CoremarginError):
        examine(forged, staged)


def test_stages_are_resumed_and_stopped(tmp_path: Path, staged: Path) -> None:
    """Interrupted within each stage: the same bytes; stopped between stages: nothing is claimed, then all of it."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    def job(name: str) -> Any:
        return new_job(store=staged, out=tmp_path / name, one_class="ball", nu=0.1, epsilon=EPSILON, block=1)

    alone, broken = job("a"), job("b")
    train_job(alone, Store.open(staged), InProcess(1))
    for interrupted in range(5):
        begin: Any = "resume" if interrupted else "new"
        with pytest.raises(Interrupted):
            train_job(broken, Store.open(staged), InProcess(1), begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
    train_job(broken, Store.open(staged), InProcess(2), begin="resume")
    for name in ("model.json", "arrays.npz"):
        assert Path(broken.out, name).read_bytes() == Path(alone.out, name).read_bytes()
    stopped = coremargin.train(staged, one_class="ball", nu=0.1, epsilon=1e-15, max_scans=1, out=tmp_path / "c")
    assert stopped.status == "stopped"
    assert examine(tmp_path / "c", staged).ok


def test_bands_that_miss_the_share_end_the_stages(
    tmp_path: Path, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ties beyond the bands: scans of all rows follow, and the share outside is not understated."""
    monkeypatch.setattr(soft_ball, "BAND_LEAST", 40)
    monkeypatch.setattr(soft_ball, "BAND_SHARE", 0.01)
    for place in ("signs", "integers"):
        rows = np.repeat(tied(place), 10, axis=0)
        coremargin.ingest(rows, tmp_path / f"{place}.zarr", unlabelled=True, chunk_bytes=200)
        model = coremargin.train(
            tmp_path / f"{place}.zarr", one_class="ball", nu=0.3, epsilon=EPSILON, out=tmp_path / place
        )
        assert model.status == "certified"
        assert examine(tmp_path / place, tmp_path / f"{place}.zarr").ok


@pytest.mark.parametrize("weight", [1e-100, 1e100])
def test_one_row_of_another_weight_is_no_hindrance(tmp_path: Path, rows: np.ndarray, weight: float) -> None:
    """Though it is so light that it moves nothing, or so heavy that all others move nothing."""
    weights = np.ones(60)
    weights[3] = weight
    coremargin.ingest(rows[:60], tmp_path / "s.zarr", unlabelled=True, weights=weights)
    model = coremargin.train(tmp_path / "s.zarr", one_class="ball", nu=0.5, epsilon=1e-6, out=tmp_path / "m")
    assert examine(tmp_path / "m", tmp_path / "s.zarr").ok
    assert model.status == "certified"


def test_weights_that_are_too_small_are_refused(tmp_path: Path, rows: np.ndarray) -> None:
    """Float64 has no C for them."""
    coremargin.ingest(rows[:60], tmp_path / "s.zarr", unlabelled=True, weights=np.full(60, 1e-310))
    with pytest.raises(StoreError, match="multiply all of them by one number"):
        coremargin.train(tmp_path / "s.zarr", one_class="ball", nu=0.5)
