"""The ball of a kernel as users meet it: trained, verified, forged, used, interrupted, refused."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import daqp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import OneClassSVM

import coremargin
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import ClaimRefuted, CoremarginError, Interrupted, SpecError, StoreError, UsageError
from coremargin.learn.train import Progress, train_job
from coremargin.models.registry import load
from coremargin.problems.kernel_ball import kernel_ball
from coremargin.problems.registry import new_job
from coremargin.verify.examine import examine
from model_kit import altered

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.engine.protocols import Executor

EPSILON, NU, GAMMA = 1e-9, 0.05, 0.1


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """300 rows, each coordinate of another size."""
    return (rng.standard_normal((300, 3)) * [1, 2, 0.5]).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path, rows: np.ndarray) -> Path:
    """The rows, with two labels, in chunks of 16."""
    coremargin.ingest(rows, tmp_path / "s.zarr", labels=np.arange(300) % 2, chunk_bytes=16 * 12)
    return tmp_path / "s.zarr"


@pytest.fixture
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read has several stages, and working sets grow in steps."""
    monkeypatch.setattr(kernel_ball, "FIRST", 40)
    monkeypatch.setattr(kernel_ball, "SMALL", 0)
    problem = kernel_ball.KernelBall
    monkeypatch.setattr(problem, "__init__", partialmethod(problem.__init__, sample_bytes=1500))


def train(source: Any, *labels: Any, **options: Any) -> Any:
    """A ball of the rbf kernel, unless options say otherwise."""
    return coremargin.train(source, *labels, **({"one_class": "ball", "kernel": "rbf", "epsilon": EPSILON} | options))


def squares_from(matrix: np.ndarray, alpha: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Squared distances of all rows from sum alpha_i phi(x_i), by the kernel matrix (n, n)."""
    return np.asarray(
        matrix.diagonal() - 2 * matrix[:, ids] @ alpha + alpha @ matrix[np.ix_(ids, ids)] @ alpha, np.float64
    )


def least_by_daqp(matrix: np.ndarray, boxes: np.ndarray) -> float:
    """max sum a_i k_ii - a' K a over weights in their boxes that sum to 1, by an active-set method."""
    n = len(boxes)
    upper, lower = np.append(boxes, 1.0), np.append(np.zeros(n), 1.0)
    hessian = 2.0 * matrix + 1e-13 * np.eye(n)
    found = daqp.solve(hessian, -matrix.diagonal().copy(), np.ones((1, n)), upper, lower, np.zeros(n + 1, ctypes.c_int))
    assert found[2] == 1
    a = found[0]
    return float(a @ matrix.diagonal() - a @ matrix @ a)


@pytest.mark.usefixtures("_in_parts")
@pytest.mark.parametrize("nu", [None, NU])
def test_it_is_trained_verified_shown_and_reported(
    tmp_path: Path, store: Path, rows: np.ndarray, run_cli: Callable[..., Result], nu: float | None
) -> None:
    """A job file, a certificate to 1e-9 that holds by its definition, and every command about models."""
    job, model = tmp_path / "job.toml", tmp_path / "m"
    own = "" if nu is None else f"nu = {nu}\n"
    job.write_text(
        f'job = "train"\nstore = "s.zarr"\nout = "m"\none_class = "ball"\nkernel = "rbf"\ngamma = {GAMMA}\n'
        f"epsilon = {EPSILON}\n{own}"
    )
    assert "kernel matrix" in run_cli("plan", job).output
    text = run_cli("run", job, "--cluster", "threads", "--quiet").stdout
    assert text.startswith("certified: all 300 rows lie within" if nu is None else "certified: at most ")
    assert (nu is None) != (" % of all 300 rows lie outside of the radius" in text)
    ball: Any = load(model)
    claims = ball.certificate
    squares = squares_from(
        pairwise_kernels(rows.astype(float), metric="rbf", gamma=GAMMA), ball.row_duals, ball.coreset_ids
    )
    found = np.sqrt(squares.max())
    if nu is not None:
        found = np.sort(squares)[::-1][: int(nu * 300)].mean()
    assert found * (1 - 1e-12) <= claims.upper <= found * (1 + EPSILON)
    assert claims.lower >= claims.upper * (1 - EPSILON)
    assert (ball.kind, ball.classes, ball.labels) == ("kernel_ball", (), (-1, 1))
    assert claims.kind == ("radius" if nu is None else "duality_gap")
    assert coremargin.verify(model, store).ok
    assert "no ball" in run_cli("verify", model, store, "--quiet").output
    shown = run_cli("show", model).output
    assert "kernel         rbf, gamma 0.1" in shown
    assert "rows carry the ball and its proof" in shown
    assert "A ball around all 300 rows" in (model / "report.html").read_text()
    assert json.loads(run_cli("show", model, "--json").stdout)["certificate"]["kind"] == claims.kind


@pytest.mark.parametrize("nu", [0.02, 0.3])
def test_of_rbf_it_is_the_one_class_machine(rows: np.ndarray, nu: float) -> None:
    """The value of scikit-learn's OneClassSVM to 1e-8, the same rows outside, and a fitted one when exported."""
    ball = train(rows, nu=nu, gamma=GAMMA)
    judge = OneClassSVM(kernel="rbf", nu=nu, gamma=GAMMA, tol=1e-10).fit(rows)
    alpha = judge.dual_coef_[0] / (nu * len(rows))
    matrix = pairwise_kernels(judge.support_vectors_.astype(float), metric="rbf", gamma=GAMMA)
    value = 1.0 - alpha @ matrix @ alpha
    assert ball.certificate.lower - 1e-8 <= value <= ball.certificate.upper + 1e-8
    sure = np.abs(ball.decision_function(rows)) > 1e-5
    assert sure.sum() > 280
    assert (ball.predict(rows) == judge.predict(rows))[sure].all()
    assert (ball.predict(rows) == -1).sum() <= nu * len(rows)
    exported = ball.to_sklearn()
    assert np.allclose(exported.decision_function(rows), judge.decision_function(rows), atol=1e-5)
    assert (exported.predict(rows) == judge.predict(rows))[sure].all()


@pytest.mark.parametrize("options", [{"nu": NU}, {}])
def test_the_linear_kernel_is_the_linear_ball(rows: np.ndarray, options: dict[str, Any]) -> None:
    """Value, radius and distances of the kinds without a kernel."""
    ball = train(rows, kernel="linear", **options)
    plain: Any = coremargin.train(rows, one_class="ball", epsilon=EPSILON, **options)
    assert ball.certificate.upper == pytest.approx(plain.certificate.upper, rel=3 * EPSILON)
    assert np.allclose(ball.distances(rows), plain.distances(rows), atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "rbf", "gamma": 0.3},
        {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.0},
        {"kernel": "poly", "degree": 3, "gamma": 1.0, "coef0": 0.0},
        {"kernel": "linear"},
    ],
)
def test_of_few_rows_it_is_that_of_a_quadratic_program(options: dict[str, Any]) -> None:
    """Both balls of 25 rows, with weights and without."""
    rng = np.random.default_rng(5)
    X, weights = rng.standard_normal((25, 2)), rng.uniform(0.5, 2.0, 25)
    names = {name: value for name, value in options.items() if name != "kernel"}
    matrix = pairwise_kernels(X, metric=options["kernel"], **names)
    for nu, s in ((None, None), (0.2, None), (0.3, weights)):
        ball = train(X, weights=s, nu=nu, **options)
        share = np.ones(25) if s is None else s
        boxes = np.ones(25) if nu is None else share / (nu * share.sum())
        value = least_by_daqp(matrix, boxes)
        found = ball.certificate.upper if nu else ball.certificate.upper**2
        assert found == pytest.approx(value, rel=1e-7)
        squares = squares_from(matrix, ball.row_duals, ball.coreset_ids)
        assert np.allclose(ball.distances(X), np.sqrt(np.maximum(squares, 0)), atol=1e-7)


@pytest.mark.parametrize(
    "options", [{"nu": NU}, {"nu": NU, "only": 1}, {"scaling": "standard", "gamma": 0.3}, {"kernel": "poly"}]
)
def test_rows_of_any_form_have_the_same_ball(
    tmp_path: Path, rows: np.ndarray, store: Path, options: dict[str, Any]
) -> None:
    """In a store, sparse, in float64; all are verified."""
    known = train(store, out=tmp_path / "m", **options)
    assert known.status == "certified"
    assert coremargin.verify(tmp_path / "m", store).ok
    coremargin.ingest(sp.csr_array(rows), tmp_path / "p.zarr", labels=np.arange(300) % 2, chunk_bytes=16 * 12)
    sparse = train(tmp_path / "p.zarr", out=tmp_path / "p", **options)
    assert coremargin.verify(tmp_path / "p", tmp_path / "p.zarr").ok
    wide = train(rows.astype(np.float64), np.arange(300) % 2, **options)
    for model in (sparse, wide):
        assert np.isclose(model.certificate.upper, known.certificate.upper, rtol=1e-5)
    decisions = known.decision_function(rows)
    assert np.allclose(known.decision_function(sp.csr_array(rows)), decisions, atol=1e-9)
    if "only" in options:
        alone = train(rows[1::2], nu=NU, gamma=known.kernel.gamma)
        assert alone.certificate.upper == pytest.approx(known.certificate.upper, rel=1e-7)


@pytest.mark.usefixtures("_in_parts")
def test_weights_count_as_repeated_rows(tmp_path: Path, rows: np.ndarray) -> None:
    """Rows of weight 2 are as if they were there twice, those of weight 0 are not there; the verifier agrees."""
    weights = np.repeat([0.0, 1.0, 2.0], 100)
    coremargin.ingest(rows, tmp_path / "w.zarr", unlabelled=True, weights=weights, chunk_bytes=16 * 12)
    model = train(tmp_path / "w.zarr", nu=NU, gamma=GAMMA, out=tmp_path / "m")
    twice = train(np.concatenate([rows[100:], rows[200:]]), nu=NU, gamma=GAMMA)
    assert model.status == "certified"
    assert model.certificate.upper == pytest.approx(twice.certificate.upper, rel=1e-8)
    assert coremargin.verify(tmp_path / "m", tmp_path / "w.zarr").ok


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("scale", "far"), [(1e-20, 0.0), (1e3, 10.0), (1e8, 0.0), (1.0, 1e5)])
def test_claims_hold_whatever_the_numbers(tmp_path: Path, form: str, scale: float, far: float) -> None:
    """Rows that are tiny, huge, far from the origin: claims may be weak, never false."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((60, 4)) * [1, 1e-6, 1, 10] + far) * scale
    given = sp.csr_array(X) if form == "sparse" else X
    coremargin.ingest(given, tmp_path / "s.zarr", dtype="float64", unlabelled=True, chunk_bytes=10 * 32)
    for kernel, nu in (("rbf", None), ("rbf", 0.1), ("poly", 0.1), ("linear", None)):
        try:
            train(tmp_path / "s.zarr", kernel=kernel, nu=nu, epsilon=1e-3, out=tmp_path / "m", overwrite=True)
        except CoremarginError as error:
            assert "gamma" in str(error)  # noqa: PT017 - some leave no digit
            continue
        result = examine(tmp_path / "m", tmp_path / "s.zarr")
        assert result.ok, [check.text for check in result.failures]


@pytest.mark.parametrize("nu", [None, 0.1])
@pytest.mark.parametrize("scale", [1e-8, 1e-30, 1e20])
def test_balls_of_small_and_large_rows_are_certified(rng: np.random.Generator, scale: float, nu: float | None) -> None:
    """The radius of linear and homogeneous kernels scales with the rows, and so do rounding errors."""
    X = rng.standard_normal((200, 3))
    for options, power in (({"kernel": "linear"}, 1), ({"kernel": "poly", "gamma": 1.0, "degree": 2, "coef0": 0.0}, 2)):
        if not 1e-70 < scale**power < 1e30:  # squares underflow, or the kernel is refused
            continue
        plain = coremargin.train(X, one_class="ball", nu=nu, epsilon=1e-6, **options)
        scaled = coremargin.train(X * scale, one_class="ball", nu=nu, epsilon=1e-6, **options)
        assert (plain.status, scaled.status) == ("certified", "certified")
        by = scale ** (power if nu is None else 2 * power)
        assert scaled.certificate.upper == pytest.approx(plain.certificate.upper * by, rel=1e-5)


CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"certificate.upper": lambda v: v * (1 - 1e-9), "certificate.ratio": 1.0}, {}, "upper"),
    ({"certificate.lower": lambda v: v * (1 + 1e-9), "certificate.ratio": 1.0}, {}, "lower"),
    ({"certificate.lower": None, "certificate.ratio": None}, {}, "status"),
    ({"certificate.ratio": 0.5}, {}, "ratio"),
    ({"certificate.radius": lambda v: v * 2}, {}, "radius"),
    ({"certificate.epsilon": 1e-12}, {}, "epsilon"),
    ({"certificate.epsilon": 1e-15, "parameters.epsilon": 1e-15}, {}, "status"),
    ({"status": "not_separable"}, {}, "status"),
    ({"kernel.gamma": 0.2, "parameters.gamma": 0.2}, {}, "upper"),
    ({"kernel.gamma": 0.05, "parameters.gamma": 0.05}, {}, "lower"),
    ({"parameters.gamma": "scale"}, {}, "gamma"),
    ({"rows": 299}, {}, "rows"),
    ({}, {"alpha": lambda a: a * 0}, "upper"),
    ({}, {"alpha": lambda a: a * 2}, "upper"),
    ({}, {"alpha": lambda a: a * 1e300}, "upper"),
    ({}, {"alpha": lambda a: a[::-1]}, "lower"),
    ({}, {"coreset_ids": lambda i: i * 0 + 10**6}, "coreset"),
    ({}, {"coreset_ids": lambda i: np.full_like(i, i[0])}, "coreset"),
    ({}, {"coreset_x": lambda x: x + 1e-3}, "coreset"),
]
SOFT_CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"parameters.nu": 0.06}, {}, "lower"),
    ({"parameters.nu": 0.04}, {}, "upper"),
    ({"parameters.nu": 1e-5}, {}, "nu"),
    ({}, {"square": lambda r: r * 1.001}, "upper"),
    ({}, {"square": lambda r: r * 0.99}, "upper"),
]
SOFT_NAMES = {"upper": "value", "lower": "dual bound"}
HARD_NAMES = {"upper": "upper bound", "lower": "lower bound"}


@pytest.mark.parametrize("nu", [None, NU])
def test_false_claims_are_named(tmp_path: Path, store: Path, nu: float | None) -> None:
    """Each by the check that it fails."""
    train(store, nu=nu, gamma=GAMMA, out=tmp_path / "m")
    names = HARD_NAMES if nu is None else SOFT_NAMES
    for k, (record, arrays, name) in enumerate([*CHANGES, *(SOFT_CHANGES if nu else ())]):
        forged = altered(tmp_path / "m", tmp_path / f"f{k}", record, **arrays)
        failures = {check.name for check in examine(forged, store).failures}
        assert names.get(name, name) in failures, (record, arrays, failures)


def test_what_is_no_record_of_such_a_ball_is_refused(tmp_path: Path, store: Path) -> None:
    """Before a row is read, by models and by the verifier."""
    train(store, nu=NU, gamma=GAMMA, out=tmp_path / "m")
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"certificate.kind": "radius"}, {}),
        ({"parameters.nu": 1.5}, {}),
        ({"parameters.nu": 0}, {}),
        ({"problem": "ball"}, {}),
        ({"kernel.name": "linear"}, {}),
        ({"kernel.gamma": 0.2}, {}),
        ({"kernel.degree": 2}, {}),
        ({"parameters.outliers": 3}, {}),
        ({"only": 1}, {}),
        ({}, {"alpha": lambda a: -a}),
        ({}, {"alpha": lambda a: a * np.nan}),
        ({}, {"alpha": lambda a: a[1:]}),
        ({}, {"square": lambda r: -r}),
        ({}, {"square": None}),
        ({}, {"coreset_x": lambda x: x[:, 1:]}),
    ]
    for k, (record, arrays) in enumerate(changes):
        forged = altered(tmp_path / "m", tmp_path / f"f{k}", record, **arrays)
        for read in (lambda forged=forged: examine(forged, store), lambda forged=forged: load(forged)):
            with pytest.raises(CoremarginError):
                read()


@pytest.mark.usefixtures("_in_parts")
@pytest.mark.parametrize("nu", [None, NU])
def test_it_is_killed_and_resumed_and_stopped(
    tmp_path: Path, store: Path, embedded: Executor, nu: float | None
) -> None:
    """On threads, in processes, interrupted within each scan: the same bytes; stopped at a limit, bounds that hold."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    def job(name: str) -> Any:
        return new_job(
            store=store, out=tmp_path / name, one_class="ball", kernel="rbf", nu=nu, epsilon=EPSILON, block=1
        )

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
    for limit in ({"time_limit": 1e-9}, {"max_scans": 1}, {"max_scans": 2}):
        stopped = train(store, nu=nu, out=tmp_path / str(limit), **limit)
        assert stopped.status == "stopped"
        assert coremargin.verify(tmp_path / str(limit), store).ok
        stopped.predict(np.zeros((1, 3)))


def test_a_changed_store_is_trained_from_scratch(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """With the options of before; the earlier claim is then about other rows."""
    train(store, nu=NU, gamma=GAMMA, out=tmp_path / "m")
    coremargin.ingest(rows[:40] * 3, store, append=True, labels=np.zeros(40, int))
    with pytest.raises(ClaimRefuted, match="rows were appended"):
        coremargin.verify(tmp_path / "m", store)
    model = coremargin.retrain(tmp_path / "m", store, out=tmp_path / "n")
    fresh = train(store, nu=NU, gamma=GAMMA)
    assert model.certificate.upper == fresh.certificate.upper
    assert coremargin.verify(tmp_path / "n", store).ok


def test_a_working_set_that_is_full_ends_with_bounds_that_hold(tmp_path: Path, rng: np.random.Generator) -> None:
    """The run says so, and how much memory would do."""
    rows = rng.standard_normal((400, 30))
    coremargin.ingest(rows, tmp_path / "s.zarr", unlabelled=True, chunk_bytes=40 * 120)
    model = train(tmp_path / "s.zarr", gamma=0.02, memory=8_000, out=tmp_path / "m")
    run = json.loads((tmp_path / "m" / "run.json").read_text())
    assert model.status == "stopped"
    assert "the working set is full" in run["reason"]
    assert coremargin.verify(tmp_path / "m", tmp_path / "s.zarr").ok


def test_it_predicts_and_is_evaluated(
    tmp_path: Path, store: Path, rows: np.ndarray, run_cli: Callable[..., Result]
) -> None:
    """At most the share nu lies outside; labels -1 and 1 are compared; columns and graphs give the same."""
    model = train(store, nu=NU, gamma=GAMMA, out=tmp_path / "m")
    outside = int((model.predict(rows) == -1).sum())
    assert outside <= 300 * NU
    assert np.allclose(model.decision_function(rows), model.radius - model.distances(rows))
    text = run_cli("predict", tmp_path / "m", store, tmp_path / "p.csv", "--quiet").output
    assert f"300 rows: {outside} of -1, {300 - outside} of 1" in text
    known = np.concatenate([rows, rows + 50])
    coremargin.ingest(known, tmp_path / "known.zarr", labels=np.repeat([1, -1], 300))
    found = json.loads(run_cli("evaluate", tmp_path / "m", tmp_path / "known.zarr", "--json").stdout)
    assert found["accuracy"] == pytest.approx(1 - outside / 600)
    with pytest.raises(UsageError, match="scikit-learn has no ball of the kernel 'poly'"):
        train(rows, kernel="poly").to_sklearn()


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_onnx_predicts_the_same(rows: np.ndarray, kernel: str) -> None:
    """Labels, and decision values to rounding."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = train(rows, kernel=kernel, nu=NU, scaling="standard")
    asked = rows.astype(np.float64)
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
    label, decision = session.run(None, {"X": asked})
    assert np.allclose(decision, model.decision_function(asked), atol=1e-6)
    sure = np.abs(decision) > 1e-5
    assert (label == model.predict(asked))[sure].all()


def test_of_two_features_the_page_has_a_picture(tmp_path: Path, rng: np.random.Generator) -> None:
    """The boundary in the rows' own space."""
    train(rng.standard_normal((50, 2)), nu=0.1, out=tmp_path / "m")
    assert "field-bound" in (tmp_path / "m" / "report.html").read_text()


def test_what_it_cannot_do_is_refused_by_name(tmp_path: Path, store: Path, rng: np.random.Generator) -> None:
    """Outliers, functions, maps, several gammas, kernels too narrow, powers that overflow, too little memory."""
    for options, message in (
        ({"outliers": 3}, "outliers: the ball of a kernel has none"),
        ({"loss": "hinge"}, "loss: the ball of a kernel has none"),
        ({"kernel": "math:hypot"}, "kernel: a ball has linear, poly or rbf"),
        ({"kernel": "sigmoid"}, "kernel: 'sigmoid' is not positive semi-definite"),
        ({"map": "nystroem", "components": 5}, "map: cannot be combined with kernel"),
        ({"gamma": (0.1, 0.2)}, "gamma"),
        ({"gamma": -1.0}, "gamma: expected scale, or a number above 0"),
        ({"nu": 1.5}, "nu"),
        ({"intercept": False}, "intercept"),
        ({"coef0": 1.0}, "coef0: the kernel 'rbf' has none"),
    ):
        with pytest.raises(SpecError, match=message):
            new_job(**({"store": store, "out": store, "one_class": "ball", "kernel": "rbf"} | options))
    with pytest.raises(UsageError, match=r"gamma: 50 is so large that \d+ of the first 300 rows carry the ball"):
        train(store, gamma=50.0)
    with pytest.raises(UsageError, match="gamma: 50 is so large"):
        train(store, gamma=50.0, nu=0.2)
    with pytest.raises(UsageError, match="overflows; scale the rows"):
        train(store, kernel="poly", degree=20, gamma=1e10)
    with pytest.raises(UsageError, match="nu: expected at least 1/n for n = 300 rows"):
        train(store, nu=0.001)
    with pytest.raises(UsageError, match="leaves about 150 of 300 rows outside.*memory='1MiB' is enough; or"):
        train(store, nu=0.5, memory=20_000)
    with pytest.raises(StoreError, match="all are equal"):
        train(np.full((50, 2), 3.0), gamma=1.0)
    with pytest.raises(CoremarginError, match="only: expected one of its labels"):
        train(store, only="x")
