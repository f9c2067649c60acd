from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from coremargin.models.model import Model

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store

RunCli = Callable[..., "Result"]

X = np.array([[-1, 0], [1, 0], [-2, 3], [4, -1], [-1.5, -2], [3, 5]], dtype=np.float32)
Y = ["a", "b", "a", "b", "a", "b"]


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    """Two classes in the plane, 2 apart in the first feature."""
    return make_store(X, Y, chunk_rows=4)


@pytest.fixture
def save_model(store: Store, tmp_path: Path) -> Callable[..., Path]:
    """Saves the maximum-margin model of that store: w = (1, 0), b = 0, margin 1; claims can be replaced."""

    def save(status: str = "certified", **claims: Any) -> Path:
        certificate = {
            "kind": "margin", "lower": 1.0, "upper": 1.0, "ratio": 1.0, "epsilon": 0.001, "coreset_rows": 2,
            "store_digest": store.digest, "radius": float(store.scalars().max_norm.max()),
        }  # fmt: skip
        record = {
            "format": "coremargin-model", "version": 1, "problem": "hard_margin", "status": status,
            "parameters": {"epsilon": 0.001, "intercept": True, "strategy": "fast"}, "classes": ["a", "b"],
            "features": 2, "rows": 6, "dtype": "float32", "certificate": certificate | claims,
            "software": {"coremargin": "0.1.0"},
        }  # fmt: skip
        plane = {"w": np.array([1.0, 0.0]), "b": np.zeros(1), "alpha": np.ones(2)}
        model = Model(record, {**plane, "coreset_ids": np.arange(2), "coreset_y": np.array([-1, 1])}, X[:2])
        run = {"started": "2026-01-02T03:04:05Z", "scans": 3, "bytes_read": 1 << 20, "seconds": 61.0}
        model.save(tmp_path / "rows.model", run, [], overwrite=True)
        return tmp_path / "rows.model"

    return save


def test_verify_prints_what_was_checked_and_what_was_not(
    run_cli: RunCli, save_model: Callable[..., Path], store: Store
) -> None:
    """A true certificate gives a checklist with numbers, the limits of the check, and exit code 0."""
    text = run_cli("verify", save_model(), store.path).stdout
    for name in ("rows", "classes", "hypothesis", "status", "upper bound", "content", "coreset", "lower bound"):
        assert f"ok     {name}" in text
    assert "FALSE" not in text
    assert "not checked:\n  that the labels are right" in text
    assert text.endswith("verified: the margin is at least (1 - 0.001) of the best possible\n")


def test_verify_refutes(run_cli: RunCli, save_model: Callable[..., Path], store: Store) -> None:
    """A false claim is marked, named on stderr and gives exit code 4."""
    result = run_cli("verify", save_model(lower=1.5, upper=1.5), store.path, exit_code=4)
    assert "FALSE  lower bound" in result.stdout
    assert result.stdout.endswith("refuted: 1 of 10 checks failed\n")
    assert result.stderr.startswith("error: ")
    assert "- lower bound: model claims 1.5, row 0 (class 'a') has margin 1; 2 of 6 rows are below" in result.stderr


@pytest.mark.parametrize(("claims", "code"), [({}, 0), ({"lower": 2.0, "upper": 2.0}, 4)])
def test_verify_for_machines(
    run_cli: RunCli, save_model: Callable[..., Path], store: Store, claims: dict[str, Any], code: int
) -> None:
    """With --json stdout is one object, whether the claims hold or not."""
    result = run_cli("verify", save_model(**claims), store.path, "--json", exit_code=code)
    found = json.loads(result.stdout)
    assert found["ok"] is (code == 0)
    assert (found["lower"], found["upper"]) == (1.0, 1.0)
    assert {check["name"] for check in found["checks"]} >= {"lower bound", "upper bound"}


def test_verify_can_demand_an_epsilon(run_cli: RunCli, save_model: Callable[..., Path], store: Store) -> None:
    """--epsilon gives exit code 4 when true bounds do not prove it, as those of a run that was stopped."""
    stopped = save_model("stopped", lower=0.75, ratio=0.75)
    assert "verified: the bounds hold; they do not prove epsilon 0.001" in run_cli("verify", stopped, store.path).stdout
    run_cli("verify", stopped, store.path, "--epsilon", "0.3")
    result = run_cli("verify", stopped, store.path, "--epsilon", "0.2", exit_code=4)
    assert "prove epsilon 0.250000 instead of epsilon 0.2" in result.stderr
    nothing = save_model("stopped", lower=None, ratio=None)
    assert "prove nothing" in run_cli("verify", nothing, store.path, "--epsilon", "0.2", exit_code=4).stderr


def test_damage_is_exit_code_3(run_cli: RunCli, save_model: Callable[..., Path], store: Store) -> None:
    """A damaged store and a model that cannot be read are data errors, without a traceback."""
    model = save_model()
    (store.path / "X" / "c.0.0").unlink()
    assert "is missing" in run_cli("verify", model, store.path, exit_code=3).stderr
    (model / "arrays.npz").write_bytes(b"")
    assert "arrays.npz" in run_cli("verify", model, store.path, exit_code=3).stderr
    assert "arrays.npz" in run_cli("show", model, exit_code=3).stderr
    assert "found nothing there" in run_cli("show", model.parent / "other", exit_code=3).stderr
    assert "found the root of the file system" in run_cli("show", "/", exit_code=3).stderr


def test_predict_writes_labels(run_cli: RunCli, save_model: Callable[..., Path], store: Store, tmp_path: Path) -> None:
    """predict writes codes and decision values and says how many rows got which label; it never overwrites unasked."""
    out = tmp_path / "p.zarr"
    text = run_cli("predict", save_model(), store.path, out).stdout
    assert text == f"{out}: 6 rows: 3 of 'a', 3 of 'b'\n"
    np.testing.assert_array_equal(zarr.open_group(out, mode="r")["decision"][:], X[:, 0])
    assert "is there already" in run_cli("predict", save_model(), store.path, out, exit_code=2).stderr
    found = json.loads(run_cli("predict", save_model(), store.path, out, "--overwrite", "--json").stdout)
    assert found["classes"] == [{"label": "a", "rows": 3}, {"label": "b", "rows": 3}]


def test_evaluate_prints_metrics(run_cli: RunCli, save_model: Callable[..., Path], store: Store) -> None:
    """evaluate prints a table per class and the usual metrics, or all of it as JSON."""
    text = run_cli("evaluate", save_model(), store.path).stdout
    assert "accuracy       1.000000" in text
    assert "ROC AUC        1.000000" in text
    assert "predicted 'a'" in text
    found = json.loads(run_cli("evaluate", save_model(), store.path, "--json").stdout)
    assert found["confusion"] == [[3, 0], [0, 3]]
    assert found["lowest_margin"] == 1.0


@pytest.mark.slow
def test_a_matrix_that_is_too_wide_gives_way_to_mistakes(
    run_cli: RunCli, tmp_path: Path, make_store: Callable[..., Store], rng: np.random.Generator
) -> None:
    """Of many classes no line is wider than the terminal: the largest confusions stand in place of the matrix."""
    y = np.arange(600) % 20
    rows = (rng.standard_normal((600, 6)) + 2 * rng.standard_normal((20, 6))[y]).astype(np.float32)
    store = make_store(rows, [f"class {label:02}" for label in y], weights=np.where(y == 3, 2.5, 1.0))
    run_cli(
        "train", store.path, "--out", tmp_path / "m", "--cluster", "threads", "--classes", "ovr", "--loss", "hinge",
        "--epsilon", "0.1",
    )  # fmt: skip
    confusion = np.array(json.loads(run_cli("evaluate", tmp_path / "m", store.path, "--json").stdout)["confusion"])
    wrong = confusion - np.diag(np.diag(confusion))
    plain, weighted = run_cli("evaluate", tmp_path / "m", store.path, env={"COLUMNS": "100"}).stdout.split("weighted:")
    for text, unit in ((plain, r"[\d,]+ rows?"), (weighted, r"weight [\d.,]+")):
        assert max(map(len, text.split("\n"))) <= 100
        assert f"the 10 largest of {(wrong > 0).sum()} confusions; --json has the whole matrix:" in text
        found = re.findall(rf"^  predicted 'class (\d\d)' for 'class (\d\d)': {unit}$", text, re.MULTILINE)
        assert len(found) == 10
        assert text.count("'class 07' ") >= 1
    first = re.search(r"predicted 'class (\d\d)' for 'class (\d\d)': ([\d,]+) rows", plain)
    assert first is not None
    given, own, most = (int(number) for number in first.groups())
    assert wrong[own, given] == most == wrong.max()
    wide = run_cli("evaluate", tmp_path / "m", store.path, env={"COLUMNS": "500"}).stdout
    assert "predicted 'class 19'" in wide.split("\n")[6]
    assert "though" not in wide


def test_evaluate_tells_rows_from_weights(
    run_cli: RunCli, save_model: Callable[..., Path], make_store: Callable[..., Store]
) -> None:
    """Of a store with weights both are printed: how many rows are right, and how much of the weight."""
    turned = ["b", *Y[1:]]
    store = make_store(X, turned, weights=np.array([5.0, 1.0, 1.0, 1.0, 2.0, 0.0]), name="weighed.zarr")
    plain, weighted = run_cli("evaluate", save_model(), store.path).stdout.split("weighted:")
    assert "accuracy       0.833333" in plain
    assert "weights        10 in total" in weighted
    assert "accuracy       0.500000" in weighted
    found = json.loads(run_cli("evaluate", save_model(), store.path, "--json", "--cluster", "threads").stdout)
    assert found["confusion"] == [[2, 0], [1, 3]]
    assert found["weighted"]["confusion"] == [[3.0, 0.0], [5.0, 2.0]]


def test_predict_and_evaluate_run_where_they_are_told(
    run_cli: RunCli, save_model: Callable[..., Path], store: Store, tmp_path: Path
) -> None:
    """--cluster takes what train takes; a file that is not there is wrong usage, and nothing is written."""
    for words in (("predict", save_model(), store.path, tmp_path / "p.zarr"), ("evaluate", save_model(), store.path)):
        assert "no.toml" in run_cli(*words, "--cluster", "no.toml", exit_code=2).stderr
    assert not (tmp_path / "p.zarr").exists()
    assert "6 rows" in run_cli("predict", save_model(), store.path, tmp_path / "p.zarr", "--cluster", "threads").stdout


def test_show_says_what_a_model_claims(run_cli: RunCli, save_model: Callable[..., Path]) -> None:
    """show prints status, classes, bounds and how the run went; a missing run.json does not matter."""
    model = save_model()
    text = run_cli("show", model).stdout
    assert "'a' (negative), 'b' (positive)" in text
    assert "1.0 proven for all rows" in text
    assert "3 scans and a sample, 1.0 MiB in" in text
    assert json.loads(run_cli("show", model, "--json").stdout)["run"]["scans"] == 3
    (model / "run.json").unlink()
    assert json.loads(run_cli("show", model, "--json").stdout)["run"] == {}
    assert "scans" not in run_cli("show", model).stdout


@pytest.mark.parametrize("epsilon", ["nan", "0", "1", "-1", "inf"])
def test_an_epsilon_that_is_none_is_refused(
    run_cli: RunCli, save_model: Callable[..., Path], store: Store, epsilon: str
) -> None:
    """Nothing is below a share that is no number: it demands nothing, and is a usage error."""
    result = run_cli("verify", save_model(), store.path, "--epsilon", epsilon, exit_code=2)
    assert "--epsilon: expected a number between 0 and 1" in result.stderr
