"""Bounds on the error of hard margins on new rows: what they rest on, where there are none, and that they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist

import coremargin
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.maths import published_bounds as bounds
from coremargin.problems.common.balls import enclosing_radius
from coremargin.problems.fleet.report import page_of as fleet_page_of
from coremargin.problems.hard.generalization import CONFIDENCE, read_fleet_generalization, read_generalization
from coremargin.problems.hard.report import page_of

if TYPE_CHECKING:
    from click.testing import Result

D = 5


def drawn(rng: np.random.Generator, n: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a distribution whose classes a hyperplane separates with a margin of 0.1."""
    X = rng.normal(size=(4 * n, D))
    w = np.ones(D) / np.sqrt(D)
    X = X[np.abs(X @ w) > 0.1][:n]
    return X + shift, np.where(X @ w > 0, 1, -1)


def stored(folder: Path, X: Any, y: np.ndarray) -> Store:
    """A store of chunks of 64 rows."""
    options = {"sparse": isinstance(X, csr_array), "chunk_rows": 64, "features": X.shape[1], "overwrite": True}
    with StoreWriter.create(folder / "s.zarr", dtype="float64", **options) as writer:
        writer.write(X, y.tolist())
    return Store.open(folder / "s.zarr")


def trained(folder: Path, X: Any, y: np.ndarray, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The model of some rows, and the record of its run."""
    stored(folder, X, y)
    options = {"epsilon": 1e-3} | options
    model = coremargin.train(folder / "s.zarr", out=folder / "m.model", overwrite=True, **options)
    return model, json.loads((folder / "m.model" / "run.json").read_text())


def test_the_error_on_new_rows_is_within_the_bounds(tmp_path: Path, rng: np.random.Generator) -> None:
    """Of several trainings; all bounds are ordered as they should be, and their numbers are those of the model."""
    for _ in range(3):
        X, y = drawn(rng, 600)
        model, run = trained(tmp_path, X, y)
        found = read_generalization(run)
        assert found is not None
        new, labels = drawn(rng, 20_000)
        error = float((model.predict(new) != labels).mean())
        assert found.compression is not None
        assert error <= found.compression < found.guaranteed_risk <= 1
        assert found.deciding_rows == found.coreset_rows == model.certificate.coreset_rows < found.coreset_sharp
        assert found.coreset_sharp == pytest.approx(16 * (found.radius / found.margin) ** 2 / 1e-3)
        assert found.coreset_bound == 4 * found.coreset_sharp
        assert found.guaranteed_risk is not None
        assert found.margin == model.certificate.lower
        assert (found.rows, found.features, found.confidence) == (600, D, CONFIDENCE)
        assert found.dimension <= D + 1


@pytest.mark.parametrize("shift", [0.0, 100.0])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_ball_of_the_radius_holds_all_rows(
    tmp_path: Path, rng: np.random.Generator, shift: float, sparse: bool
) -> None:
    """About the mean of the chunks, or the origin; far from the origin it is not larger for that."""
    X, y = drawn(rng, 500, shift)
    source = stored(tmp_path, csr_array(X) if sparse else X, y)
    farthest = float(np.linalg.norm(X - X.mean(axis=0), axis=1).max())
    assert enclosing_radius(source, origin=True) >= float(np.linalg.norm(X, axis=1).max())
    assert pdist(X).max() / 2 <= enclosing_radius(source) <= 2.5 * farthest
    for how in ("standard", "rownorm") if not sparse else ("maxabs",):
        view = scaled(source, how)
        parts = [view.read(chunk)[0] for chunk in range(view.chunks)]
        rows = np.concatenate([part.toarray() if sparse else part for part in parts])
        assert enclosing_radius(view) >= np.linalg.norm(rows - rows.mean(axis=0), axis=1).max() / 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"scaling": "standard"}, "scaling 'standard' depends on all rows"),
        ({"map": "fourier", "components": 40}, "the feature map may depend on the rows, by its landmarks or gamma"),
        ({"scaling": "rownorm"}, ""),
        ({"intercept": False}, ""),
        ({"strategy": "paper"}, ""),
    ],
)
def test_other_rows_that_decide_leave_no_compression_bound(
    tmp_path: Path, rng: np.random.Generator, options: dict[str, Any], reason: str
) -> None:
    """Where scaling or a map are made of all rows, the rows of the proof alone do not determine the hyperplane."""
    _, run = trained(tmp_path, *drawn(rng, 300), **options)
    found = read_generalization(run)
    assert found is not None
    assert found.no_compression == reason
    assert (found.compression is None) == bool(reason)
    assert (found.guaranteed_risk is None) == (found.simple is None) == ("map" in options)


@pytest.mark.parametrize("how", ["unlabelled", "removed"])
def test_rows_that_do_not_count_are_no_evidence(tmp_path: Path, rng: np.random.Generator, how: str) -> None:
    """A hyperplane of 100 of 600 rows has the bounds of 100 rows."""
    X, y = drawn(rng, 600)
    stored(tmp_path, X, y)
    others = np.arange(100, 600)
    if how == "removed":
        coremargin.remove_rows(tmp_path / "s.zarr", others)
    else:
        coremargin.write_labels(tmp_path / "s.zarr", others, [None] * len(others))
    coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m.model", epsilon=1e-3)
    found = read_generalization(json.loads((tmp_path / "m.model" / "run.json").read_text()))
    assert found is not None
    assert found.rows == 100
    assert found.compression == bounds.compression(100, found.deciding_rows, 1 - CONFIDENCE)


def test_an_offset_that_other_rows_decide_costs_two_rows(tmp_path: Path, rng: np.random.Generator) -> None:
    """Of an early hypothesis the scan sets the offset: the rows with dual weights do not determine it."""
    X, y = drawn(rng, 600)
    model, run = trained(tmp_path, X, y, strategy="paper")
    exact = read_generalization(run)
    model, run = trained(tmp_path, X, y, strategy="paper", epsilon=0.5)
    found = read_generalization(run)
    assert exact is not None
    assert found is not None
    margins = model.coreset_y * (model.coreset_x @ model.w + model.b)
    assert np.ptp(margins) > 0.01
    assert exact.deciding_rows == exact.coreset_rows
    assert found.deciding_rows == found.coreset_rows + 2
    pairs = comb(found.deciding_rows, 2)
    assert found.compression == bounds.compression(600, found.deciding_rows, 1 - CONFIDENCE, choices=pairs)
    assert found.compression > bounds.compression(600, found.deciding_rows, 1 - CONFIDENCE)


def test_a_shift_of_the_columns_counts_as_an_intercept(tmp_path: Path, rng: np.random.Generator) -> None:
    """Hyperplanes through the mean of the rows are not fixed before these are drawn."""
    for options, dimension in (({}, D), ({"scaling": "maxabs"}, D), ({"scaling": "standard"}, D + 1)):
        _, run = trained(tmp_path, *drawn(rng, 300), intercept=False, **options)
        found = read_generalization(run)
        assert found is not None
        assert found.all_hyperplanes == dimension


def test_nothing_is_said_of_what_does_not_separate(tmp_path: Path, rng: np.random.Generator) -> None:
    """A proof that the classes overlap bounds no error."""
    X, y = drawn(rng, 300)
    _, run = trained(tmp_path, np.concatenate([X, X[:1]]), np.append(y, -y[0]))
    assert "generalization" not in run


def test_show_and_report_have_the_bounds(
    tmp_path: Path, rng: np.random.Generator, run_cli: Callable[..., Result]
) -> None:
    """Vacuous ones are called so; a damaged record of a run leaves them out."""
    _, run = trained(tmp_path, *drawn(rng, 60))
    folder = tmp_path / "m.model"
    text, page = run_cli("show", folder).stdout, page_of(folder, "m.model")
    assert "if all rows are drawn independently" in text
    assert "of 60 rows determine the hyperplane" in text
    assert "vacuous: at most 100 % by Vapnik's bound" in text
    assert "Lemma 3.1 allows" in text
    assert 'id="new-rows"' in page
    assert "vacuous: VC dimension" in page
    for damaged in (None, [], {}, run["generalization"] | {"compression": "<b>"}):
        (folder / "run.json").write_text(json.dumps(run | {"generalization": damaged}))
        assert "new rows" not in run_cli("show", folder).stdout
        assert 'id="new-rows"' not in page_of(folder, "m.model")


@pytest.mark.parametrize("loss", [(), ("--loss", "auto")])
def test_bounds_stand_before_and_after_a_training(
    tmp_path: Path, rng: np.random.Generator, run_cli: Callable[..., Result], loss: tuple[str, ...]
) -> None:
    """``plan`` has Lemma 3.1's for any margin, ``train`` for the proven one, as text and as JSON."""
    store, model = stored(tmp_path, *drawn(rng, 400)), tmp_path / "m.model"
    text = run_cli("train", store.path, "--out", model, *loss).stdout
    run = json.loads((model / "run.json").read_text())
    found = read_generalization(run)
    assert found is not None
    assert f"{found.deciding_rows:,} of 400 rows determine the hyperplane" in text
    assert f"Lemma 3.1 allows {found.coreset_bound:,.3g}" in text
    record = json.loads(run_cli("train", store.path, "--out", model, "--overwrite", "--json", *loss).stdout)
    assert record["error_bound"] == found.compression
    assert (record["coreset_bound"], record["coreset_sharp"]) == (found.coreset_bound, found.coreset_sharp)
    if loss:
        return
    job = tmp_path / "job.toml"
    job.write_text('job = "train"\nstore = "s.zarr"\nout = "p.model"\n')
    planned = json.loads(run_cli("plan", job, "--json").stdout)["published"]
    assert planned["radius"] == found.radius
    assert planned["coreset_bound"] / found.margin**2 == pytest.approx(found.coreset_bound)
    assert f"R {found.radius:.3g}" in run_cli("plan", job).stdout


def of_three_classes(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three classes, each of which a hyperplane separates from the rest."""
    X = rng.normal(size=(20 * n, D))
    scores = X[:, :3] @ np.array([[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]])
    offsets = scores - 0.6
    clear = (np.abs(offsets).min(axis=1) > 0.1) & ((offsets > 0).sum(axis=1) == 1)
    return X[clear][:n], offsets[clear][:n].argmax(axis=1)


def test_models_of_several_classes_have_bounds_that_hold_at_once(
    tmp_path: Path, rng: np.random.Generator, run_cli: Callable[..., Result]
) -> None:
    """Each at a third of the error probability; where all are right so is the class: the sums bound its error."""
    X, y = of_three_classes(rng, 900)
    model, run = trained(tmp_path, X, y, classes="ovr")
    found = read_fleet_generalization(run)
    assert found is not None
    new, labels = of_three_classes(rng, 20_000)
    wrong = (model.predict(new) != labels).mean()
    joint = found.joint[0]
    assert joint.compression is not None
    assert joint.compression == sum(one.bounds.compression or 0.0 for one in found.models)
    assert wrong <= joint.compression < 1
    assert (joint.classes, joint.gamma, len(found.models), found.confidence) == (3, None, 3, CONFIDENCE)
    for one, name in zip(found.models, model.members, strict=True):
        own, certificate = one.bounds, model.members[name].certificate
        assert one.name == name
        assert own.confidence == pytest.approx(1 - (1 - CONFIDENCE) / 3, rel=1e-15)
        assert own.compression == bounds.compression(900, own.deciding_rows, 1 - own.confidence)
        assert own.guaranteed_risk == bounds.guaranteed_risk(900, own.dimension, 1 - own.confidence)
        assert (own.margin, own.coreset_rows) == (certificate.lower, certificate.coreset_rows)
        assert own.radius == enclosing_radius(Store.open(tmp_path / "s.zarr"))
        right = model.members[name].predict(new) == (labels == int(name[-1]))
        assert (~right).mean() <= own.compression
    folder = tmp_path / "m.model"
    text, page = run_cli("show", folder).stdout, fleet_page_of(folder, "m.model")
    assert "for all 3 models at once" in text
    assert "wrong, the sum over the models by compression" in text
    assert "is twice the margin here" in text
    assert "The bounds of a column hold for all 3 models at once" in page
    (folder / "run.json").write_text(json.dumps(run | {"generalization": {"models": "<b>"}}))
    assert "new rows" not in run_cli("show", folder).stdout
    assert 'id="new-rows"' not in fleet_page_of(folder, "m.model")


def test_models_without_held_out_rows_alone_have_bounds(tmp_path: Path, rng: np.random.Generator) -> None:
    """Of two classes with folds it is the one of all rows, as if it were trained alone; with a loss none has."""
    X, y = drawn(rng, 300)
    _, alone = trained(tmp_path, X, y)
    _, run = trained(tmp_path, X, y, folds=2)
    found, single = read_fleet_generalization(run), read_generalization(alone)
    assert found is not None
    assert single is not None
    assert (len(found.models), found.joint) == (1, [])
    assert found.models[0].bounds.compression == single.compression
    assert found.models[0].bounds.confidence == pytest.approx(CONFIDENCE, rel=1e-15)
    _, run = trained(tmp_path, X, y, folds=2, loss="hinge")
    assert "generalization" not in run


def test_one_class_that_overlaps_leaves_no_bound_for_all_classes(tmp_path: Path, rng: np.random.Generator) -> None:
    """The others keep theirs; what the class of a new row is, is not bounded."""
    X, y = of_three_classes(rng, 300)
    first = int(np.flatnonzero(y == 0)[0])
    X, y = np.concatenate([X, X[[first]]]), np.append(y, 1)
    _, run = trained(tmp_path, X, y, classes="ovr")
    found = read_fleet_generalization(run)
    assert found is not None
    assert [one.name for one in found.models] == ["class-2"]
    assert found.joint == []


def test_the_bounds_of_several_maps_hold_at_once(tmp_path: Path, rng: np.random.Generator) -> None:
    """With two gammas and three classes six models; of maps neither compression nor VC dimension bound an error."""
    X, y = of_three_classes(rng, 300)
    options = {"classes": "ovr", "map": "fourier", "components": 200, "gamma": [0.01, 0.02]}
    _, run = trained(tmp_path, X, y, **options)
    found = read_fleet_generalization(run)
    assert found is not None
    assert len(found.models) == 6
    assert found.models[0].bounds.confidence == pytest.approx(1 - (1 - CONFIDENCE) / 6, rel=1e-15)
    assert [(one.gamma, one.compression, one.guaranteed_risk_all) for one in found.joint] == [
        (0.01, None, None),
        (0.02, None, None),
    ]
    assert len({one.bounds.margin for one in found.models}) == 6
