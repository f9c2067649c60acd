"""Jobs with functions as kernels: the proofs and decisions of the kernels that they are, and what is refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import own_kernels
import pytest
import scipy.sparse as sp
from kernel_kit import run_interrupted
from msgspec.structs import replace
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import chi2_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.errors import CheckpointError, CoremarginError, UsageError
from coremargin.estimators import KernelCoresetClassifier
from coremargin.models.export import export
from coremargin.models.function import Named, imported
from coremargin.problems.kernel.kernel_margin import KernelMargin
from coremargin.problems.kernel.reduce import reduce
from coremargin.problems.registry import kind_of, new_job, problem_of
from coremargin.registry.add_version import add
from coremargin.registry.nightly import NightlyJob
from coremargin.registry.registry import Registry
from model_kit import altered, store_of

if TYPE_CHECKING:
    from click.testing import Result

    RunCli = Callable[..., Result]


def _ring(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two rings that a few rows have left."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    radius, angle = 1.0 + y + 0.2 * rng.normal(size=rows), rng.uniform(0, 2 * np.pi, rows)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


CASES = [{"loss": "hinge"}, {"loss": "squared_hinge", "C": 3.0}, {"loss": "hinge", "intercept": False}]


@pytest.mark.parametrize("asked", CASES, ids=str)
def test_a_function_that_is_rbf_has_the_machine_of_rbf(asked: dict[str, Any]) -> None:
    """The same bounds, and the same decisions as far as these say; its bounds are a little wider."""
    X, y = _ring(300)
    own = coremargin.train(X, y, kernel=own_kernels.rbf, epsilon=1e-9, **asked)
    judge = coremargin.train(X, y, kernel="rbf", gamma=own_kernels.GAMMA, epsilon=1e-9, **asked)
    assert judge.status == "certified"
    for name in ("lower", "upper"):
        assert getattr(own.certificate, name) == pytest.approx(getattr(judge.certificate, name), rel=1e-7)
    assert own.certificate.lower < judge.certificate.lower
    assert own.certificate.upper > judge.certificate.upper
    np.testing.assert_allclose(own.decision_function(X), judge.decision_function(X), atol=1e-9)


def test_it_decides_as_svc_does_with_the_same_function() -> None:
    """Of digits as histograms, ten classes, by what they have in common; SVC of one of them is the judge."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    model = coremargin.train(X, y, kernel=own_kernels.intersection, loss="hinge", C=1e-3, classes="ovr", epsilon=1e-6)
    assert model.status == "certified"
    judge = SVC(C=1e-3, kernel=own_kernels.intersection, tol=1e-9).fit(X, y == 4)
    np.testing.assert_allclose(model.decision_function(X)[:, 4], judge.decision_function(X), atol=1e-4)
    exported = model.to_sklearn()
    np.testing.assert_allclose(exported.decision_function(X[:9]), model.decision_function(X[:9]), atol=1e-9)
    assert (exported.predict(X) == model.predict(X)).all()


def test_rows_may_stand_for_what_is_no_row_of_numbers() -> None:
    """Words, by number: those with two letters "a" side by side are told by the pairs of letters that they have."""
    X = np.arange(len(own_kernels.WORDS), dtype=float)[:, None]
    y = np.array(["aa" in word for word in own_kernels.WORDS])
    model = coremargin.train(X, y, kernel=own_kernels.spectrum)
    assert model.status == "certified"
    assert model.certificate.kind == "margin"
    assert (model.predict(X) == y).all()


def test_sparse_rows_and_folds_and_values_of_c_by_the_same_scans() -> None:
    """The members of a fleet, and the best of them by rows that were held out."""
    X, y = load_digits(return_X_y=True)
    X, y = sp.csr_array(X[:240]), y[:240] > 4
    kernel = partial(chi2_kernel, gamma=0.01)
    fleet = coremargin.train(X, y, kernel=kernel, loss="hinge", C=[0.5, 5.0], folds=2, epsilon=1e-3)
    assert fleet.kind == "kernel_fleet"
    assert fleet.status == "certified"
    member = fleet.at(C=5.0).deciders()[0]
    judge = SVC(C=5.0, kernel=kernel, tol=1e-9).fit(X.toarray(), y)
    np.testing.assert_allclose(member.decision_function(X), judge.decision_function(X.toarray()), atol=1e-2)
    assert copy.deepcopy(fleet).predict(X).shape == (240,)


def test_an_estimator_takes_one_as_svc_does() -> None:
    """And a search clones it."""
    X, y = _ring(120)
    found = GridSearchCV(KernelCoresetClassifier(kernel=own_kernels.rbf), {"C": [1.0, 10.0]}, cv=2).fit(X, y)
    judge = SVC(C=found.best_params_["C"], kernel=own_kernels.rbf).fit(X, y)
    assert found.best_estimator_.model_.parameters["kernel_error"] == 1e-10
    np.testing.assert_allclose(found.decision_function(X), judge.decision_function(X), atol=2e-2)


def test_a_larger_error_is_a_stronger_claim() -> None:
    """Bounds are further apart by it; where it leaves no room for a proof, the run says so."""
    X, y = _ring(200)
    found = [
        coremargin.train(X, y, kernel=own_kernels.rbf, loss="hinge", epsilon=1e-3, kernel_error=error)
        for error in (1e-12, 1e-6, 1e-3)
    ]
    assert [model.status for model in found] == ["certified", "certified", "stopped"]
    assert found[2].certificate.ratio < min(model.certificate.ratio for model in found[:2])


def _problem(function: Any = own_kernels.rbf, **options: Any) -> KernelMargin:
    X, y = _ring(1200, 3)
    job = new_job(store="s", out="m", **{"kernel": "m:f", "loss": "hinge"} | options)
    problem = problem_of(replace(job, kernel=Named.of(function)), ArraySource(X, y, chunk_rows=100))
    assert isinstance(problem, KernelMargin)
    return problem


def test_a_job_that_was_killed_goes_on_with_the_same_bits() -> None:
    """After each question; with another function it does not go on."""
    problems = [_problem(), _problem()]
    state = run_interrupted(problems, 9000)
    assert state.status == "certified"
    with pytest.raises(
        UsageError, match="the checkpoint: the kernel own_kernels:other_rbf gives .* the model was trained with another"
    ):
        _problem(own_kernels.other_rbf).restore(state.to_arrays())


def test_its_rate_is_told_early() -> None:
    """Before a run, of a plan, and in what is kept of the run; of other kernels nothing is."""
    problem, kind = _problem(), kind_of(new_job(store="s", out="m", kernel="m:f"))
    problem.__dict__["rate"] = 2e5
    told = "gives 2e+05 values a second on one core: a scan takes it about 6.00 s for each 1,000 rows that carry"
    assert told in kind.note(problem)
    assert kind.facts(problem, problem.start())["kernel_rate"] == 2e5
    plain = problem_of(new_job(store="s", out="m", kernel="rbf"), problem.source)
    assert kind.note(plain) == ""


REFUSED: dict[str, tuple[Any, str]] = {
    "skew": (own_kernels.skew, "arrays, chunk 0, row 0: the kernel own_kernels:skew: .* it is not symmetric"),
    "indefinite": (
        own_kernels.indefinite,
        "own_kernels:indefinite: the kernel matrix of .* it is not positive semi-definite",
    ),
    "negative": (own_kernels.negative, r"row 0: the kernel own_kernels:negative: k\(x, x\) = -"),
    "sigmoid": (own_kernels.too_large, "at most the square root of their product"),
    "by shape": (own_kernels.by_shape, "when computed alongside other rows"),
    "shape": (own_kernels.of_one_row, "expected an array of shape"),
    "broken": (own_kernels.broken, "rows 0 to 199: the kernel own_kernels:broken: it raised ZeroDivisionError"),
    "nan": (own_kernels.with_nan, r"chunk 0, row 77: the kernel own_kernels:with_nan: k\(x, x\) = nan"),
    "infinity": (own_kernels.infinite, r"chunk 0, row 77: the kernel own_kernels:infinite: k\(x, x\) = inf"),
}


@pytest.mark.parametrize(("function", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_kernel_is_refused(function: Any, message: str) -> None:
    """With the row that shows it, where one does."""
    X, y = _ring(200)
    X[77, 0] = 6.0
    with pytest.raises(UsageError, match=message):
        coremargin.train(X, y, kernel=function, loss="hinge")


def test_a_row_far_down_is_named_with_its_chunk() -> None:
    """It is found by a scan, not by the rows that are tried before."""
    X, y = _ring(1200, 3)
    X[1150, 0] = 6.0
    source = ArraySource(X, y, chunk_rows=100)
    problem = problem_of(
        replace(new_job(store="s", out="m", kernel="m:f"), kernel=Named.of(own_kernels.with_nan)), source
    )
    problem.__dict__["sample_bytes"] = 9000
    with pytest.raises(UsageError, match=r"chunk 11, row 1150: the kernel own_kernels:with_nan: k\(x, x\) = nan"):
        run_interrupted([problem, problem], 9000)


ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "gamma": ({"gamma": 1.0}, "gamma: the kernel 'own_kernels:rbf' has none"),
    "degree": ({"degree": 2}, "degree: the kernel 'own_kernels:rbf' has none"),
    "coef0": ({"coef0": 1.0}, "coef0: the kernel 'own_kernels:rbf' has none"),
    "gammas": ({"gamma": [1.0, 2.0]}, "gamma: the kernel 'own_kernels:rbf' has none"),
    "error too small": ({"kernel_error": 1e-14}, "kernel_error: expected a number from 1e-13 to 0.001; found 1e-14"),
    "error too large": ({"kernel_error": 0.1}, "kernel_error: expected a number from 1e-13 to 0.001; found 0.1"),
    "error nan": ({"kernel_error": float("nan")}, "kernel_error: expected a number from 1e-13 to 0.001; found nan"),
    "error of rbf": ({"kernel": "rbf", "kernel_error": 1e-9}, "kernel_error: applies to a function only"),
    "no function": ({"kernel": 3.0}, r"expected a function k\(X, Z\)"),
    "the word": ({"kernel": "callable"}, "expected linear, poly, rbf, or a function as module:function"),
    "no module": ({"kernel": "no_such:f"}, "no_such cannot be imported from .*ModuleNotFoundError"),
    "no attribute": ({"kernel": "own_kernels:f"}, "'own_kernels:f' is not there: own_kernels has no f"),
    "a number": ({"kernel": "own_kernels:NUMBER"}, "'own_kernels:NUMBER', which is 3"),
    "an expression": ({"kernel": "os:system('x')"}, "expected module:name, such as my_kernels:intersection"),
    "a path": ({"kernel": "../own_kernels.py:rbf"}, "expected module:name"),
}


@pytest.mark.parametrize(("asked", "message"), ASKED.values(), ids=ASKED)
def test_what_cannot_be_asked_for_is_refused(asked: dict[str, Any], message: str) -> None:
    """Before a row is read."""
    with pytest.raises(CoremarginError, match=message):
        coremargin.train(*_ring(50), **{"kernel": own_kernels.rbf} | asked)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a store and a module of kernels, from where commands import."""
    X, y = _ring(160)
    store_of(tmp_path / "rows.zarr", X, y.tolist(), 40)
    (tmp_path / "brought_kernels.py").write_text(
        "import numpy as np\n\n\ndef rbf(X, Z):\n    return np.exp(-0.7 * ((X[:, None] - Z[None]) ** 2).sum(-1))\n"
    )
    (tmp_path / "brought_evil.py").write_text("from pathlib import Path\n\nPath('was-run').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("brought_kernels", "brought_evil"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


WITH = ("--kernel", "brought_kernels:rbf")


def test_a_command_imports_what_it_is_told_and_nothing_else(folder: Path, run_cli: RunCli) -> None:
    """Trained, verified, used, reduced, shown: with the function said each time; without it an error that names it."""
    asked = ("--loss", "hinge", "--cluster", "threads")
    done = run_cli("train", "rows.zarr", "--out", "m", *WITH, *asked)
    assert "check   coremargin verify" in done.stdout
    assert "--kernel brought_kernels:rbf" in done.stdout
    assert "for every positive semi-definite kernel k" in done.stdout
    done = run_cli("verify", "m", "rows.zarr", *WITH)
    assert "verified: no hypothesis" in done.stdout
    assert "every positive semi-definite kernel k from which the function's values are off by 1e-10" in done.stdout
    assert "160 rows" in run_cli("predict", "m", "rows.zarr", "p.csv", *WITH).stdout
    run_cli("evaluate", "m", "rows.zarr", *WITH)
    run_cli("reduce", "m", "rows.zarr", "--out", "small", "--rows", "20", *WITH)
    run_cli("verify", "small", "rows.zarr", *WITH)
    assert "the function 'brought_kernels:rbf'" in run_cli("show", "m").stdout
    page = (folder / "m" / "report.html").read_text()
    assert "verify m " in page
    assert "--kernel MODULE:FUNCTION" in page
    assert "for every positive semi-definite kernel k" in page
    without: list[tuple[str, ...]] = [
        ("verify", "m", "rows.zarr"),
        ("predict", "m", "rows.zarr", "q.csv"),
        ("evaluate", "m", "rows.zarr"),
        ("reduce", "m", "rows.zarr", "--out", "n", "--rows", "9"),
        ("retrain", "m", "rows.zarr", "--out", "n"),
    ]
    for words in without:
        failed = run_cli(*words, exit_code=2)
        assert "is a function, 'brought_kernels:rbf'" in failed.stderr
        assert "--kernel MODULE:FUNCTION" in failed.stderr
    failed = run_cli("export", "m", "m.onnx", exit_code=2)
    assert "is a Python function, and an exported file cannot hold one" in failed.stderr


def test_a_module_that_ends_itself_is_told(folder: Path, run_cli: RunCli) -> None:
    """As a script does that has no guard: the command says so, and does not end without a word."""
    (folder / "brought_script.py").write_text("raise SystemExit(0)\n")
    failed = run_cli("verify", "m", "rows.zarr", "--kernel", "brought_script:rbf", exit_code=2)
    assert "brought_script cannot be imported from" in failed.stderr
    assert "(SystemExit: 0)" in failed.stderr


def test_no_record_makes_a_command_run_anything(folder: Path, run_cli: RunCli) -> None:
    """A model of a stranger whose record and run name a module that would write a file, however it is used."""
    run_cli("train", "rows.zarr", "--out", "m", *WITH, "--loss", "hinge", "--cluster", "threads")
    evil = altered(folder / "m", folder / "stranger", {"kernel.function": "brought_evil:run"})
    run = json.loads((evil / "run.json").read_text())
    run["job"] = run["job"].replace("brought_kernels:rbf", "brought_evil:run")
    run["resume"] = [word.replace("brought_kernels:rbf", "brought_evil:run") for word in run["resume"]]
    (evil / "run.json").write_text(json.dumps(run))
    assert "brought_evil:run" in run["job"]
    run_cli("show", "stranger")
    for command in ("verify", "evaluate"):
        run_cli(command, "stranger", "rows.zarr", exit_code=2)
        run_cli(command, "stranger", "rows.zarr", *WITH)
    run_cli("predict", "stranger", "rows.zarr", "p.csv", exit_code=2)
    run_cli("retrain", "stranger", "rows.zarr", "--out", "n", exit_code=2)
    run_cli("retrain", "stranger", "rows.zarr", "--out", "n", *WITH)
    run_cli("reduce", "stranger", "rows.zarr", "--rows", "9", "--out", "r", exit_code=2)
    run_cli("export", "stranger", "e.onnx", exit_code=2)
    with pytest.raises(UsageError, match="is a function, 'brought_evil:run' where it was trained"):
        coremargin.load("stranger").predict([[0.0, 1.0]])
    for name, asked in (("plain", {}), ("curved", {"kernel": "rbf"})):  # whose runs tell of another training
        coremargin.train("rows.zarr", out=name, loss="hinge", cluster="threads", **asked)
        (folder / name / "run.json").write_text(json.dumps(run))
        run_cli("retrain", name, "rows.zarr", "--out", "n", "--overwrite", exit_code=2)
    assert not (folder / "was-run").exists()
    assert "brought_evil" not in sys.modules
    run_cli("verify", "stranger", "rows.zarr", "--kernel", "brought_evil:run", exit_code=2)
    assert (folder / "was-run").exists()  # it would have


def test_another_function_than_it_was_trained_with_is_refused(folder: Path) -> None:
    """By the values that the model keeps; what is the same function under another name is taken."""
    coremargin.train("rows.zarr", out="m", kernel="brought_kernels:rbf", loss="hinge", cluster="threads")
    model = coremargin.load("m", kernel=own_kernels.rbf)
    assert coremargin.verify("m", "rows.zarr", kernel=own_kernels.rbf).ok
    assert model.predict([[0.0, 1.0]]).shape == (1,)
    with pytest.raises(
        UsageError,
        match="the model: the kernel own_kernels:other_rbf gives .* the model was trained with another function",
    ):
        coremargin.load("m", kernel=own_kernels.other_rbf)
    with pytest.raises(UsageError, match="an exported file cannot hold one"):
        export("m", "m.skops", format="sklearn-skops")
    with pytest.raises(UsageError, match="an ONNX graph cannot hold one"):
        model.to_onnx()
    coremargin.train("rows.zarr", out="plain", kernel="rbf", loss="hinge", cluster="threads")
    for use in (coremargin.load, partial(coremargin.verify, store_path="rows.zarr")):
        with pytest.raises(UsageError, match="none that is a function"):
            use("plain", kernel=own_kernels.rbf)


@pytest.mark.parametrize("use", ["train", "reduce"])
def test_a_function_that_fails_at_any_time_is_named(folder: Path, use: str) -> None:
    """Whichever question it does not answer, the last ones too: nobody sees a traceback."""
    function = own_kernels.Failing()

    def used() -> Any:
        if use == "train":
            return coremargin.train(*_ring(120), kernel=function, loss="hinge", epsilon=0.05)
        return reduce("m", "rows.zarr", "small", rows=5, kernel=function, overwrite=True)

    coremargin.train("rows.zarr", out="m", kernel=own_kernels.rbf, loss="hinge", epsilon=0.05, cluster="threads")
    used()
    every = range(function.asked)
    for answered in [*every[:: max(1, len(every) // 4)], *every[-6:]]:
        function.asked, function.answered = 0, answered
        try:
            used()
        except UsageError as error:
            assert "the kernel own_kernels:Failing: it raised ZeroDivisionError: no such" in str(error)  # noqa: PT017
        else:  # how fast the function is was measured with fewer questions than before
            assert function.asked <= answered


def test_a_registry_refuses_it_and_a_nightly_job_before_it_trains(folder: Path) -> None:
    """Gates and MLflow would have to run it."""
    coremargin.train("rows.zarr", out="m", kernel="brought_kernels:rbf", loss="hinge", cluster="threads")
    with pytest.raises(UsageError, match="a version of a registry, which gates and MLflow run on their own"):
        add(Registry.create(folder / "versions"), Path("m"))
    night = NightlyJob(store=folder / "rows.zarr", registry=folder / "versions", train={"kernel": "brought_evil:run"})
    with pytest.raises(UsageError, match="a version of a registry"):
        night.train_job(folder / "n")
    assert not (folder / "was-run").exists()


def test_a_checkpoint_of_another_text_is_of_no_use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that was changed between a run and its --resume; of the same one it goes on, and is done once."""
    asked: dict[str, Any] = {"out": "m", "kernel": "brought_kernels:rbf", "loss": "hinge", "cluster": "threads"}
    assert coremargin.train("rows.zarr", **asked, max_scans=1).status == "stopped"
    text = (folder / "brought_kernels.py").read_text()
    (folder / "brought_kernels.py").write_text(text.replace("-0.7", "-0.8 "))
    monkeypatch.delitem(sys.modules, "brought_kernels")
    with pytest.raises(CheckpointError, match="kernel_text"):
        coremargin.train("rows.zarr", **asked, begin="resume")
    (folder / "brought_kernels.py").write_text(text)
    monkeypatch.delitem(sys.modules, "brought_kernels")
    model = coremargin.train("rows.zarr", **asked, begin="resume")
    assert model.status == "certified"
    before = (folder / "m" / "arrays.npz").read_bytes()
    coremargin.train("rows.zarr", **asked, begin="resume")
    assert (folder / "m" / "arrays.npz").read_bytes() == before
    with pytest.raises(UsageError):
        coremargin.train("rows.zarr", **asked | {"kernel": own_kernels.other_rbf}, begin="resume")


def test_a_job_file_is_the_word_of_who_runs_it(folder: Path, run_cli: RunCli) -> None:
    """It names a function; `plan` tells its rate, and no parameter of other kernels."""
    (folder / "job.toml").write_text(
        'job = "train"\nstore = "rows.zarr"\nout = "m"\nkernel = "brought_kernels:rbf"\nloss = "hinge"\n'
        "kernel_error = 1e-9\n"
    )
    plan = run_cli("plan", "job.toml").stdout
    assert "values a second on one core" in plan
    assert not {"gamma", "degree", "coef0"} & {line.partition(" =")[0] for line in plan.splitlines()}
    run_cli("run", "job.toml", "--cluster", "threads")
    assert json.loads((folder / "m" / "model.json").read_text())["kernel"] == {
        "name": "callable",
        "error": 1e-9,
        "function": "brought_kernels:rbf",
    }


def test_retraining_takes_the_function_again(folder: Path) -> None:
    """From nothing, as all machines with kernels; no other model takes one."""
    coremargin.train("rows.zarr", out="m", kernel="brought_kernels:rbf", loss="hinge", cluster="threads")
    again = coremargin.retrain("m", "rows.zarr", kernel=imported("brought_kernels:rbf"), epsilon=1e-4)
    assert again.status == "certified"
    with pytest.raises(UsageError, match="is a function, 'brought_kernels:rbf'"):
        coremargin.retrain("m", "rows.zarr")
    coremargin.train("rows.zarr", out="plain", loss="hinge", cluster="threads")
    with pytest.raises(UsageError, match="has none that is a function"):
        coremargin.retrain("plain", "rows.zarr", kernel=own_kernels.rbf)


@pytest.mark.slow
def test_workers_get_what_lies_in_the_working_folder(folder: Path) -> None:
    """A function of a module there, with what that imports from there, which they could not import; and a lambda."""
    (folder / "brought_more.py").write_text("GAMMA = 0.7\n")
    text = (folder / "brought_kernels.py").read_text()
    (folder / "brought_kernels.py").write_text(f"import brought_more\n{text}".replace("0.7 *", "brought_more.GAMMA *"))
    asked: dict[str, Any] = {"loss": "hinge", "cluster": "embedded"}
    own = coremargin.train("rows.zarr", out="m", kernel="brought_kernels:rbf", **asked)
    here = coremargin.train("rows.zarr", out="n", kernel=lambda X, Z: own_kernels.rbf(X, Z) + 1.0, **asked)
    assert own.status == here.status == "certified"
    threads = coremargin.train("rows.zarr", out="t", kernel="brought_kernels:rbf", **asked | {"cluster": "threads"})
    np.testing.assert_array_equal(threads.duals, own.duals)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_with_the_same_bytes(folder: Path) -> None:
    """SIGKILL at some moments, then the same command and --resume, in processes of their own."""
    (folder / "brought_slow.py").write_text(
        "import time\nfrom brought_kernels import rbf as quick\n\n\n"
        "def rbf(X, Z):\n    time.sleep(0.004)\n    return quick(X, Z)\n"
    )
    X, y = _ring(3000)
    store_of(folder / "large.zarr", X, y.tolist(), 100)
    words = [
        sys.executable,
        "-m",
        "coremargin",
        "train",
        "large.zarr",
        "--kernel",
        "brought_slow:rbf",
        "--loss",
        "hinge",
    ]
    words += ["--cluster", "threads", "-q"]
    subprocess.run([*words, "--out", "whole"], check=True, timeout=120)
    kills = 0
    for seconds in (3.0, 4.0, 5.0, 6.0):
        process = subprocess.Popen([*words, "--out", "killed", "--resume"])
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    subprocess.run([*words, "--out", "killed", "--resume"], check=True, timeout=120)
    assert kills
    for name in ("model.json", "arrays.npz"):
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes()
