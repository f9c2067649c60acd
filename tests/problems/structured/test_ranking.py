"""Rankings: the certificate, agreement with LIBLINEAR on all pairs, the same bits after kills, refusals, scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from ranking_kit import Ranked
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from structured_kit import write_sequences

import coremargin
from coremargin.cli import main
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import CoremarginError, Interrupted, LabelError, SpecError, UsageError
from coremargin.learn.train import Progress, train_job
from coremargin.maths.structures.pairs import count_pairs, weigh_cuts
from coremargin.models.evaluate import evaluate
from coremargin.problems import registry

OPTIONS: dict[str, Any] = {"structure": "ranking", "loss": "hinge", "C": 0.2}


def test_pairs_are_counted_by_sorting(rng: np.random.Generator) -> None:
    """Against all pairs one by one, with ties in scores and differences equal to the threshold."""
    scores, levels = rng.integers(-4, 5, 60) / 2.0, rng.integers(0, 4, 60).astype(np.int32)
    groups = np.sort(rng.integers(0, 7, 60))
    for threshold in (-0.5, 0.0, 1.0):
        pair = (groups[:, None] == groups) & (levels[:, None] > levels)
        pair &= scores[:, None] - threshold < scores
        better, worse = count_pairs(scores, levels, groups, threshold)
        assert better.tolist() == pair.sum(axis=1).tolist()
        assert worse.tolist() == pair.sum(axis=0).tolist()


def test_weights_of_cuts_are_feasible_and_best(rng: np.random.Generator) -> None:
    """The optimum of two cuts in one dimension is known: they cross at w = 1."""
    found = weigh_cuts(np.array([3.0, 0.5]), np.array([[2.5], [0.0]]), 1.0, np.zeros(2), 1e-12)
    assert found.sum() <= 1
    assert found @ [2.5, 0.0] == pytest.approx(1.0)
    counts, directions = rng.uniform(1, 5, 8), rng.normal(size=(8, 3))
    a = weigh_cuts(counts, directions, 2.0, np.zeros(8), 1e-10)
    w = a @ directions
    value = 0.5 * w @ w + 2.0 * max(0.0, float((counts - directions @ w).max()))
    assert (a >= 0).all()
    assert value - (a @ counts - 0.5 * w @ w) <= 1e-9


@pytest.mark.parametrize(("seed", "sparse", "weighted"), [(1, False, False), (2, True, True)])
def test_the_value_is_proven_and_that_of_another_solver(
    tmp_path: Path, seed: int, sparse: bool, weighted: bool
) -> None:
    """Both bounds enclose the optimum over all pairs, and verify finds the same."""
    ranked = Ranked(seed, weighted=weighted)
    store = ranked.write(tmp_path / "s.zarr", sparse=sparse)
    model = coremargin.train(store, out=tmp_path / "m", cluster="threads", epsilon=1e-4, **OPTIONS)
    claims = model.certificate  # type: ignore[attr-defined]
    assert model.status == "certified"
    assert coremargin.verify(tmp_path / "m", store).ok
    best = ranked.best(0.2)
    assert claims.lower <= best
    assert best <= claims.upper * (1 + 1e-6)
    assert claims.lower >= (1 - 1e-4) * claims.upper
    assert ranked.value(model.array("w"), 0.2) <= claims.upper  # type: ignore[attr-defined]
    assert model.predict(ranked.X) == pytest.approx(ranked.X.astype(float) @ model.array("w"))  # type: ignore[attr-defined]


def test_one_group_is_the_area_under_the_curve(tmp_path: Path, rng: np.random.Generator) -> None:
    """Two labels in one group: the share of pairs in order is the ROC AUC; scaled rows are verified, too."""
    X = rng.normal(size=(300, 3)).astype(np.float32) * [1, 10, 0.1]
    y = X @ [1, 0.1, 5] + rng.normal(size=300) > 0.5
    write_sequences(tmp_path / "s.zarr", X.astype(np.float32), y.astype(int), np.zeros(300, int), chunk_rows=300)
    model = coremargin.train(tmp_path / "s.zarr", scaling="standard", out=tmp_path / "m", **OPTIONS)
    assert coremargin.verify(tmp_path / "m", tmp_path / "s.zarr").ok
    found = evaluate(model, tmp_path / "s.zarr").to_dict()
    assert found["in_order"] == found["mean_in_order"] == pytest.approx(roc_auc_score(y, model.predict(X)))
    assert found["pairs"] == y.sum() * (~y).sum()


def test_evaluation_counts_pairs(tmp_path: Path) -> None:
    """Ties count half, rows without a label are counted aside; the command prints the same."""
    ranked = Ranked(4)
    ranked.X[::3] = 0.0  # equal scores
    store = ranked.write(tmp_path / "s.zarr")
    model = coremargin.train(store, out=tmp_path / "m", cluster="threads", **OPTIONS)
    psi, _ = ranked.pairs()
    scores = model.predict(ranked.X)
    rank = rankdata(scores)
    same = sum(
        rank[i] == rank[j]
        for i, a in enumerate(ranked.labels)
        for j, b in enumerate(ranked.labels)
        if a is not None and b is not None and a > b and ranked.groups[i] == ranked.groups[j]
    )
    done = CliRunner().invoke(main, ["evaluate", str(tmp_path / "m"), str(store), "--json"])
    found = json.loads(done.stdout)
    assert (found["pairs"], found["ties"], found["unlabelled"]) == (len(psi), same, 3)
    right = float((psi @ model.array("w") > 1e-12).sum()) + same / 2  # type: ignore[attr-defined]
    assert found["in_order"] == pytest.approx(right / len(psi))
    shown = CliRunner().invoke(main, ["evaluate", str(tmp_path / "m"), str(store)]).output
    assert f"{len(psi):,}, {same:,} tied" in shown
    for name in ("p.csv", "p.jsonl", "p.parquet", "p"):
        done = CliRunner().invoke(main, ["predict", str(tmp_path / "m"), str(store), str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert [float(line.split(",")[3]) for line in lines[1:]] == scores.tolist()
    assert "A ranking" in (tmp_path / "m" / "report.html").read_text()
    (plane,) = model.coefficients(top=2)
    assert (plane.label, plane.against, plane.intercept) == ("score", None, 0.0)
    largest = np.argsort(-np.abs(model.array("w")))[:2].tolist()  # type: ignore[attr-defined]
    assert [one.feature for one in plane.coefficients] == [f"feature {j}" for j in largest]
    done = CliRunner().invoke(main, ["coefficients", str(tmp_path / "m")])
    assert done.exit_code == 0, done.output
    assert "score: the higher, the further ahead" in done.output


def test_it_is_killed_and_resumed_and_stopped(tmp_path: Path) -> None:
    """Interrupted in its scans and resumed, it leaves the same bytes; a limit leaves bounds that hold."""
    store = Ranked(5).write(tmp_path / "s.zarr")

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    alone, broken, other = (
        registry.new_job(store=store, out=tmp_path / name, block=1, **OPTIONS) for name in ("a", "b", "c")
    )
    train_job(alone, Store.open(store), InProcess(1))
    train_job(other, Store.open(store), InProcess(2))
    for begin in ("new", *["resume"] * 7):
        with pytest.raises(Interrupted):
            train_job(broken, Store.open(store), InProcess(1), begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
    train_job(broken, Store.open(store), InProcess(1), begin="resume")
    for name in ("model.json", "arrays.npz"):
        assert Path(broken.out, name).read_bytes() == Path(alone.out, name).read_bytes()
        assert Path(other.out, name).read_bytes() == Path(alone.out, name).read_bytes()
    done = coremargin.train(store, max_scans=2, out=tmp_path / "d", cluster="threads", **OPTIONS)
    assert done.status == "stopped"
    assert coremargin.verify(tmp_path / "d", store).ok


def test_what_cannot_be_ranked_is_refused(tmp_path: Path) -> None:
    """Stores without groups, labels that are words or all equal, options of others, other formats."""
    ranked = Ranked(6)
    X, n = ranked.X, len(ranked.labels)
    coremargin.ingest(X, tmp_path / "none.zarr", labels=np.arange(n) % 2)
    with pytest.raises(UsageError, match="expected rows in groups"):
        coremargin.train(tmp_path / "none.zarr", **OPTIONS)
    for name, labels in (("words", ["a", "b"] * n), ("one", [1] * n)):
        write_sequences(tmp_path / f"{name}.zarr", X, labels[:n], ranked.groups)
        with pytest.raises(LabelError, match="numbers, the higher the better, found 'a'|found only 1"):
            coremargin.train(tmp_path / f"{name}.zarr", **OPTIONS)
    store = ranked.write(tmp_path / "s.zarr")
    for more, text in (
        ({"loss": None}, "loss: expected 'hinge' for a ranking"),
        ({"intercept": False}, "intercept: only hyperplanes"),
        ({"map": "polynomial"}, "map: a ranking has none"),
        ({"ordinal": True}, "ordinal: a ranking has none"),
        ({"C": -1.0}, "C: expected a number above 0"),
    ):
        with pytest.raises(SpecError, match=text):
            registry.new_job(store=store, out=tmp_path / "m", **(OPTIONS | more))
    model = coremargin.train(store, cluster="threads", **OPTIONS)
    for refused in (model.to_sklearn, model.to_onnx):
        with pytest.raises(CoremarginError, match="scores and no classes"):
            refused()
