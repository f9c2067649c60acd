"""The soft ellipsoid: its solver against others, then as users meet it: trained, verified, forged, resumed, refused."""

from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from scipy.optimize import minimize

import coremargin
from coremargin.cli import main
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, CoremarginError, Interrupted, SpecError, UsageError
from coremargin.learn.train import Progress, train_job
from coremargin.maths.soft_ball import best_square
from coremargin.maths.soft_ellipsoid import ellipsoid_of, moments_of, solve_near_surface, solve_sample
from coremargin.models.registry import load
from coremargin.problems.registry import new_job
from coremargin.problems.soft_ellipsoid import soft_ellipsoid
from coremargin.verify.examine import examine
from model_kit import altered

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

EPSILON, NU = 1e-7, 0.05


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
    monkeypatch.setattr(soft_ellipsoid, "BAND_LEAST", 200)
    problem = soft_ellipsoid.SoftEllipsoid
    monkeypatch.setattr(problem, "__init__", partialmethod(problem.__init__, sample_bytes=1500))


def say(*words: object, code: int = 0) -> str:
    """What a command prints; code: that it ends with."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def value(rows: Any, model: Any, nu: float, weights: np.ndarray | None = None) -> float:
    """The volume radius at the root mean square of the farthest share of the rows, by its definition."""
    squares = (((np.asarray(rows, np.float64) - model.centre) @ model.axes.T) ** 2).sum(axis=1)
    s = np.ones(len(squares)) if weights is None else weights
    order = np.argsort(-squares)
    shares = np.diff(np.minimum(np.cumsum(np.append(0.0, s[order])) / (nu * s.sum()), 1.0))
    return float(np.sqrt(shares @ squares[order]) * np.exp(-np.log(np.diag(model.axes)).mean()))


# The solver


def gap(z: np.ndarray, boxes: np.ndarray, u: np.ndarray) -> tuple[float, float]:
    """log det S, and the mean square of the farthest share less d, which bounds what it may gain."""
    one = ellipsoid_of(moments_of(z, u))
    squares = np.square(one.levels(z))
    square = best_square(squares, boxes)
    most = square + float(boxes @ np.maximum(squares - square, 0.0))
    return float(-2 * np.log(np.diag(one.factor)).sum()), most - z.shape[1]


@pytest.mark.parametrize(("n", "d", "nu", "tails"), [
    (75, 3, 0.1, 0), (300, 2, 0.05, 2), (300, 2, 0.9, 2), (40, 4, 0.2, 0), (75, 3, 1 / 75, 0), (500, 3, 0.05, 1),
])  # fmt: skip
def test_weights_are_the_best_there_are(n: int, d: int, nu: float, tails: int) -> None:
    """Within their boxes, with a sum of 1, and a gap of rounding only; heavy tails need many steps."""
    rng = np.random.default_rng(n + d)
    z = rng.standard_t(tails, (n, d)) if tails else rng.standard_normal((n, d))
    boxes = np.full(n, 1 / (nu * n))
    u = solve_sample(z, boxes, 1e-9, 10**6)
    assert u is not None
    assert (u >= 0).all()
    assert (u <= boxes).all()
    assert abs(u.sum() - 1) < 1e-13
    assert abs(gap(z, boxes, u)[1]) < 1e-7


def test_a_general_solver_agrees() -> None:
    """The value itself, minimised over centre and factor by a method that knows nothing of weights."""
    rng = np.random.default_rng(3)
    z, nu = rng.standard_normal((40, 2)) * [1, 3], 0.2
    boxes = np.full(40, 1 / (nu * 40))
    u = solve_sample(z, boxes, 1e-10, 10**6)
    assert u is not None

    def log_value(p: np.ndarray) -> float:
        factor = np.array([[np.exp(p[0]), 0.0], [p[1], np.exp(p[2])]])
        squares = np.sort((((z - p[3:]) @ factor.T) ** 2).sum(axis=1))[::-1]
        return float(np.log(squares[:8].mean()) - p[0] - p[2])

    found = min(
        minimize(log_value, start, method="Nelder-Mead", options={"maxiter": 20000, "maxfev": 20000, "xatol": 1e-9,
                                                                  "fatol": 1e-13}).fun
        for start in (np.zeros(5), np.array([0.0, 0.1, -1.0, 0.1, 0.1]))
    )  # fmt: skip
    mine = gap(z, boxes, u)[0] / 2 + np.log(2)
    assert mine <= found + 1e-9
    assert found == pytest.approx(mine, abs=1e-5)


def test_working_sets_find_the_same() -> None:
    """150 of 3,000 rows at a time, and with the moments of rows that are fixed."""
    rng = np.random.default_rng(4)
    z, boxes = rng.standard_normal((3000, 4)), np.full(3000, 1 / (0.05 * 3000))
    whole, parts = solve_sample(z, boxes, 1e-9, 10**6), solve_sample(z, boxes, 1e-9, 150)
    assert whole is not None
    assert parts is not None
    assert gap(z, boxes, parts)[0] == pytest.approx(gap(z, boxes, whole)[0], abs=1e-8)
    levels = ellipsoid_of(moments_of(z, whole)).levels(z)
    near = np.abs(levels - np.sqrt(best_square(levels**2, boxes))) < 0.3
    fixed = moments_of(z[~near], whole[~near])
    again = solve_near_surface(z[near], boxes[near], fixed, np.zeros(near.sum()), 1e-9, 10**6)
    assert again is not None
    assert np.allclose(again, whole[near], atol=1e-3 * boxes[0])


# As users meet it


@pytest.mark.usefixtures("_in_parts")
def test_it_is_trained_verified_shown_and_reported(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """A job file, a certificate, and every command about models."""
    job, model = tmp_path / "job.toml", tmp_path / "m"
    job.write_text(
        f'job = "train"\nstore = "s.zarr"\nout = "m"\none_class = "ellipsoid"\nnu = {NU}\nepsilon = {EPSILON}\n'
    )
    assert "nu" in say("plan", job)
    text = say("run", job, "--cluster", "threads", "--quiet")
    assert text.startswith("certified: at most ")
    assert "of all 600 rows lie outside of the Mahalanobis radius" in text
    found: Any = load(model)
    claims, reached = found.certificate, value(rows, found, NU)
    assert reached <= claims.upper <= reached * (1 + EPSILON)
    assert claims.lower**3 >= claims.upper**3 * (1 - EPSILON)
    assert (claims.kind, found.kind, found.classes, found.labels) == ("volume_radius", "soft_ellipsoid", (), (-1, 1))
    assert coremargin.verify(model, store).ok
    assert "no ellipsoid has a volume below" in say("verify", model, store, "--quiet")
    assert f"radius         {found.radius!r}, nu 0.05" in say("show", model)
    page = (model / "report.html").read_text()
    assert "An ellipsoid around all 600 rows, nu 0.05" in page
    assert "The last bin also holds the rows beyond." in page
    assert "No row lies beyond" not in page
    assert json.loads(say("show", model, "--json"))["certificate"]["kind"] == "volume_radius"


def test_of_two_features_the_page_has_a_picture(tmp_path: Path, rng: np.random.Generator) -> None:
    """The ellipse and its centre."""
    coremargin.train(rng.standard_normal((50, 2)), one_class="ellipsoid", nu=0.1, out=tmp_path / "m")
    assert 'class="outline"' in (tmp_path / "m" / "report.html").read_text()


def test_it_predicts_and_is_exported(rows: np.ndarray) -> None:
    """At most the share nu lies outside; scikit-learn and ONNX predict the same."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for scaling in (None, "standard"):
        model: Any = coremargin.train(rows, one_class="ellipsoid", nu=NU, epsilon=EPSILON, scaling=scaling)
        asked = rows.astype(np.float64)
        predicted, decision = model.predict(asked), model.decision_function(asked)
        assert 600 * NU - 10 <= (model.predict(rows) == -1).sum() <= 600 * NU
        sure = np.abs(decision) > 1e-6
        assert (model.to_sklearn().predict(asked) == predicted)[sure].all()
        session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
        label, other = session.run(None, {"X": asked})
        assert np.allclose(other, decision, atol=1e-9)
        assert (label == predicted)[sure].all()


def test_a_share_of_one_row_is_the_ellipsoid_of_least_volume(rows: np.ndarray) -> None:
    """nu = 1/n: no weight is at its box, and all rows are within."""
    hard = coremargin.train(rows, one_class="ellipsoid", epsilon=1e-8)
    soft = coremargin.train(rows, one_class="ellipsoid", nu=1 / 600, epsilon=1e-8)
    assert soft.certificate.upper == pytest.approx(hard.certificate.upper, rel=1e-8)


def test_linear_maps_change_nothing(rows: np.ndarray, rng: np.random.Generator) -> None:
    """The volume changes by the determinant, the share outside not at all; scales of 1e8 apart."""
    x, turn = rows.astype(np.float64), rng.standard_normal((3, 3))
    first = coremargin.train(x, one_class="ellipsoid", nu=NU, epsilon=EPSILON)
    for matrix in (turn, np.diag([1e-6, 1.0, 1e8])):
        other: Any = coremargin.train(x @ matrix + 3, one_class="ellipsoid", nu=NU, epsilon=EPSILON)
        factor = abs(np.linalg.det(matrix)) ** (1 / 3)
        assert other.certificate.upper == pytest.approx(first.certificate.upper * factor, rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"only": 1}, {"scaling": "standard"}])
def test_rows_of_any_form_have_the_same_ellipsoid(
    tmp_path: Path, rows: np.ndarray, store: Path, options: dict[str, Any]
) -> None:
    """In memory, sparse, in float64 and in a store; all are verified."""
    labels, asked = np.arange(600) % 2, {"one_class": "ellipsoid", "nu": NU, "epsilon": EPSILON, **options}
    known = coremargin.train(store, out=tmp_path / "m", **asked)
    assert known.status == "certified"
    assert coremargin.verify(tmp_path / "m", store).ok
    coremargin.ingest(sp.csr_array(rows), tmp_path / "p.zarr", labels=labels, chunk_bytes=16 * 12)
    others = [
        coremargin.train(rows.astype(np.float64), labels, **asked),
        coremargin.train(tmp_path / "p.zarr", out=tmp_path / "p", **asked),
    ]
    assert coremargin.verify(tmp_path / "p", tmp_path / "p.zarr").ok
    for model in others:
        assert np.isclose(model.certificate.upper, known.certificate.upper, rtol=1e-5)


@pytest.mark.usefixtures("_in_parts")
def test_weights_count_as_repeated_rows(tmp_path: Path, rows: np.ndarray) -> None:
    """Rows of weight 2 are as if they were there twice, those of weight 0 are not there; the verifier agrees."""
    weights = np.repeat([0.0, 1.0, 2.0], 200)
    coremargin.ingest(rows, tmp_path / "w.zarr", unlabelled=True, weights=weights, chunk_bytes=16 * 12)
    asked: dict[str, Any] = {"one_class": "ellipsoid", "nu": NU, "epsilon": EPSILON}
    model: Any = coremargin.train(tmp_path / "w.zarr", out=tmp_path / "m", **asked)
    twice = coremargin.train(np.concatenate([rows[200:], rows[400:]]), **asked)
    assert model.status == "certified"
    assert model.certificate.upper == pytest.approx(twice.certificate.upper, rel=EPSILON)
    assert model.certificate.upper == pytest.approx(value(rows, model, NU, weights), rel=EPSILON)
    assert coremargin.verify(tmp_path / "m", tmp_path / "w.zarr").ok


@pytest.mark.usefixtures("_in_parts")
@pytest.mark.parametrize("late", [False, True])
def test_rows_in_a_flat_have_the_ellipsoid_of_their_span(tmp_path: Path, rows: np.ndarray, late: bool) -> None:
    """The same as of the columns that determine the others; a row off the flat, far from the sample, widens it."""
    x = rows.astype(np.float64)
    x = np.column_stack([x, 2 * x[:, :1] - x[:, 1:2] + 3])
    x[411, 3] += late
    coremargin.ingest(x, tmp_path / "f.zarr", unlabelled=True, dtype="float64", chunk_bytes=16 * 32)
    asked: dict[str, Any] = {"one_class": "ellipsoid", "nu": NU, "epsilon": EPSILON}
    model: Any = coremargin.train(tmp_path / "f.zarr", out=tmp_path / "m", **asked)
    assert (model.status, model.rank) == ("certified", 3 + late)
    result = examine(tmp_path / "m", tmp_path / "f.zarr")
    assert result.ok, result.failures
    if late:
        return
    chosen = coremargin.train(x[:, model.span_columns], **asked)
    assert model.certificate.upper == pytest.approx(chosen.certificate.upper, rel=1e-6)
    for record, arrays in (
        ({"rank": 4}, {}), ({}, {"span_offsets": lambda o: o + 1e-3}), ({}, {"span_residuals": lambda r: r + 1.0}),
    ):  # fmt: skip
        forged = altered(tmp_path / "m", tmp_path / f"x{len(record)}{len(str(arrays))}", record, **arrays)
        try:
            assert {check.name for check in examine(forged, tmp_path / "f.zarr").failures} & {"flat", "value"}
        except CoremarginError:
            assert record


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("scale", "far"), [(1e-120, 0), (1e120, 0), (1.0, 1e7), (1e-30, 1e-25)])
def test_claims_hold_whatever_the_numbers(tmp_path: Path, form: str, scale: float, far: float) -> None:
    """Rows that are tiny, huge, far from the origin: claims may be weak, never false."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((80, 4)) * [1, 1e-6, 1, 10]) * scale + far
    given = sp.csr_array(X) if form == "sparse" else X
    coremargin.ingest(given, tmp_path / "s.zarr", dtype="float64", unlabelled=True, chunk_bytes=10 * 32)
    model = coremargin.train(tmp_path / "s.zarr", one_class="ellipsoid", nu=0.1, out=tmp_path / "m")
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, [check.text for check in result.failures]
    assert model.status == "certified" or far == 1e7


@pytest.mark.parametrize(("far", "epsilon"), [(1e6, 1e-3), (1e8, 0.1)])
def test_a_row_very_far_away_leaves_the_claim_true(tmp_path: Path, far: float, epsilon: float) -> None:
    """It stretches the ellipsoid so much that rounding moves levels by far more than units; both sides allow for it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 5))
    X[rng.integers(20)] *= far
    coremargin.ingest(X, tmp_path / "s.zarr", dtype="float64", unlabelled=True)
    model: Any = coremargin.train(
        tmp_path / "s.zarr", one_class="ellipsoid", nu=0.1, epsilon=epsilon, out=tmp_path / "m"
    )
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, [check.text for check in result.failures]
    assert model.status == "certified"
    assert value(X, model, 0.1) <= model.certificate.upper


def tied(kind: str) -> np.ndarray:
    """400 rows of which more than a band holds are on the surface of the best ellipsoid."""
    rng = np.random.default_rng(6)
    if kind == "sphere":
        rows = rng.standard_normal((400, 3))
        return rows / np.linalg.norm(rows, axis=1)[:, None]
    return np.sign(rng.standard_normal((400, 2))) if kind == "signs" else np.round(rng.standard_normal((400, 2)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("nu", [0.07, 0.8])
@pytest.mark.parametrize("kind", ["sphere", "signs", "integers"])
def test_ties_on_the_surface_are_solved_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, nu: float, weighted: bool
) -> None:
    """Where a band does not hold them, all rows are sent."""
    monkeypatch.setattr(soft_ellipsoid, "BAND_LEAST", 60)
    problem = soft_ellipsoid.SoftEllipsoid
    monkeypatch.setattr(problem, "__init__", partialmethod(problem.__init__, sample_bytes=500))
    weights = np.random.default_rng(7).uniform(0.1, 2.0, 400) if weighted else None
    options: dict[str, Any] = {} if weights is None else {"weights": weights}
    coremargin.ingest(tied(kind), tmp_path / "s.zarr", unlabelled=True, chunk_bytes=200, **options)
    asked: dict[str, Any] = {"one_class": "ellipsoid", "nu": nu, "epsilon": EPSILON}
    model: Any = coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m", **asked)
    assert model.status == "certified"
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, result.failures
    stored = np.asarray(tied(kind), np.float32).astype(float)
    assert model.certificate.upper == pytest.approx(value(stored, model, nu, weights), rel=EPSILON)


CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"certificate.upper": lambda v: v * (1 - 1e-7), "certificate.ratio": 1.0}, {}, "value"),
    ({"certificate.lower": lambda v: v * (1 + 1e-7), "certificate.ratio": 1.0}, {}, "dual bound"),
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
    ({}, {"axes": lambda a: a + 0.1 * np.tril(np.ones(a.shape), -1)}, "value"),
    ({}, {"axes": lambda a: a * 1e200}, "value"),
    ({}, {"axes": lambda a: a * 1e-308}, "value"),
    ({}, {"square": lambda r: r * 1.001}, "value"),
    ({}, {"square": lambda r: r * 0.99}, "value"),
    ({}, {"reference_centre": lambda c: c + 0.1}, "dual bound"),
    ({}, {"reference_axes": lambda a: a * 1.1}, "dual bound"),
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
    coremargin.train(store, one_class="ellipsoid", nu=NU, epsilon=EPSILON, out=tmp_path / "m")
    forged = altered(tmp_path / "m", tmp_path / "f", record, **arrays)
    failures = {check.name for check in examine(forged, store).failures}
    assert name in failures


@pytest.mark.parametrize(
    ("record", "arrays"),
    [
        ({"certificate.kind": "duality_gap"}, {}),
        ({"parameters.nu": 1.5}, {}),
        ({"parameters.nu": 0}, {}),
        ({"problem": "ellipsoid"}, {}),
        ({}, {"alpha": lambda a: -a - 1}),
        ({}, {"square": lambda r: -r}),
        ({}, {"centre": lambda c: c[:-1]}),
        ({}, {"reference_axes": lambda a: a * np.nan}),
        ({}, {"threshold": None}),
        ({}, {"axes": lambda a: -a}),
        ({"rank": 2}, {}),
    ],
)
def test_what_is_no_record_of_a_soft_ellipsoid_is_refused(
    tmp_path: Path, store: Path, record: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Before a row is read, by models and by the verifier."""
    coremargin.train(store, one_class="ellipsoid", nu=NU, out=tmp_path / "m")
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
        return new_job(store=store, out=tmp_path / name, one_class="ellipsoid", nu=NU, epsilon=EPSILON, block=1)

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
    stopped = coremargin.train(
        store, one_class="ellipsoid", nu=NU, epsilon=EPSILON, time_limit=1e-9, out=tmp_path / "c"
    )
    assert stopped.status == "stopped"
    assert coremargin.verify(tmp_path / "c", store).ok


@pytest.mark.usefixtures("_in_parts")
def test_retraining_begins_with_the_earlier_ellipsoid(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """One scan proves it again where little has changed; rows that are removed or appended count."""
    coremargin.train(store, one_class="ellipsoid", nu=NU, out=tmp_path / "m0")
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
        fresh = coremargin.train(store, one_class="ellipsoid", nu=NU, epsilon=EPSILON)
        assert model.certificate.lower <= fresh.certificate.upper
        assert fresh.certificate.lower <= model.certificate.upper


def test_what_it_cannot_do_is_refused_by_name(store: Path) -> None:
    """A share that is none, or none of the rows, equal rows, squares that overflow, options of other kinds."""
    for nu in (0.0, 1.0, -0.1, 1.5):
        with pytest.raises(SpecError, match="nu: "):
            new_job(store=store, out=store, one_class="ellipsoid", nu=nu)
    with pytest.raises(SpecError, match="C: the soft ellipsoid has none"):
        new_job(store=store, out=store, one_class="ellipsoid", nu=0.1, C=1.0)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="map: an ellipsoid is about columns as they are"):
        new_job(store=store, out=store, one_class="ellipsoid", nu=0.1, map="polynomial")
    with pytest.raises(UsageError, match="nu: expected at least 1/n for n = 600 rows"):
        coremargin.train(store, one_class="ellipsoid", nu=0.001)
    with pytest.raises(UsageError, match="expected at most .* features for a soft ellipsoid in"):
        coremargin.train(np.eye(300), one_class="ellipsoid", nu=0.1, memory="64MiB")
    with pytest.raises(BadRow, match="found that all rows are equal: no ellipsoid around them has a volume"):
        coremargin.train(np.full((50, 2), 3.0), one_class="ellipsoid", nu=0.1)
    with pytest.raises(BadRow, match="rescale the features"):
        coremargin.train([[1e200], [2e200]], one_class="ellipsoid", nu=0.5)


def test_a_row_whose_box_underflows_hides_no_other(tmp_path: Path, rows: np.ndarray) -> None:
    """The ellipsoid of least volume around all rows is no soft one, though 0 / 0 is no number."""
    weights = np.where(np.arange(600) == 0, 5e-324, np.where(np.arange(600) < 300, 100.0, 1.0))
    coremargin.ingest(rows, tmp_path / "s.zarr", unlabelled=True, weights=weights)
    coremargin.train(tmp_path / "s.zarr", one_class="ellipsoid", epsilon=1e-9, out=tmp_path / "b")
    coremargin.train(tmp_path / "s.zarr", one_class="ellipsoid", nu=0.5, out=tmp_path / "m", max_scans=1)
    hard: Any = load(tmp_path / "b")
    with np.load(tmp_path / "b" / "arrays.npz") as arrays:
        ids, alpha = np.append(0, arrays["coreset_ids"]), np.append(0.0, arrays["alpha"])
        same = {"centre": arrays["centre"], "axes": arrays["axes"]}
        same |= {"reference_centre": arrays["centre"], "reference_axes": arrays["axes"]}
    lower, upper = hard.certificate.lower * (1 - 1e-9), hard.certificate.upper * (1 + 1e-9)
    claims = {"lower": lower, "upper": upper, "ratio": (lower / upper) ** 3, "coreset_rows": len(ids)}
    forged = altered(
        tmp_path / "m",
        tmp_path / "f",
        {f"certificate.{name}": one for name, one in claims.items()} | {"status": "certified"},
        **same,
        square=np.array([hard.radius**2 * (1 + 1e-9)]),
        threshold=np.array([1e300]),
        alpha=alpha,
        coreset_ids=ids,
        coreset_x=np.zeros((len(ids), 0)),
    )
    assert {check.name for check in examine(forged, tmp_path / "s.zarr").failures} == {"dual weights", "dual bound"}
