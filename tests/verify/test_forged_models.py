"""Forgeries of single models by somebody who has read the verifier: each was accepted once, or could have been."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import coremargin
from coremargin.cli import main
from coremargin.data.store import Store
from coremargin.errors import CoremarginError
from coremargin.verify import verify
from coremargin.verify.examine import examine
from forge_arrays import members_of, zipped
from forge_assert import answer, forged, refused, with_files
from forge_judge import fold
from forge_specimens import write_store

if TYPE_CHECKING:
    from forge_plans import Draft
    from forge_specimens import Specimens

SINGLE = ["hard", "hinge", "outliers", "classes", "sparse-hard", "standard"]


def hopeless(radius: float) -> Callable[[Draft], None]:
    """Nothing separates, and the rows are said to be so long that the upper bound is nothing beside them."""

    def change(draft: Draft) -> None:
        draft.record["status"] = draft.claims["kind"] = "not_separable"
        draft.claims.update(lower=None, ratio=None, radius=radius)

    return change


@pytest.mark.parametrize(
    "name", ["hard", "hard-origin", "hard-stopped", "classes", "classes-origin", "outliers", "maxabs"]
)
@pytest.mark.parametrize("radius", [1e14, 1e300])
def test_a_margin_is_not_called_nothing_by_a_claimed_radius(
    specimens: Specimens, tmp_path: Path, name: str, radius: float
) -> None:
    """Rows that are separated by a certified margin are not "not separable", however long they are said to be."""
    refused(forged(specimens[name], tmp_path, hopeless(radius)), specimens[name].store)


@pytest.mark.parametrize("name", ["hard", "classes"])
def test_nor_by_a_claimed_constant(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """Nor by a constant of several classes that is as long."""

    def change(draft: Draft) -> None:
        hopeless(draft.claims["radius"])(draft)
        draft.record["constant"] = 2.0**60

    refused(forged(specimens[name], tmp_path, change), specimens[name].store)


def test_a_margin_is_not_called_nothing_by_the_size_of_the_coreset(tmp_path: Path) -> None:
    """A margin of 1e-9 stays one although the coreset holds one of its rows 300,000 times, without weight."""
    X = np.column_stack([np.tile([1e-9, -1e-9], 4), np.linspace(-1, 1, 8)])
    rows = write_store(tmp_path / "s.zarr", X, list("ba" * 4), dtype="float64")
    coremargin.train(rows.path, out=tmp_path / "m", cluster="threads")
    record = json.loads((tmp_path / "m" / "model.json").read_text())
    assert record["certificate"]["lower"] > 0.99e-9
    arrays = dict(np.load(tmp_path / "m" / "arrays.npz"))
    for name in ("coreset_ids", "coreset_x", "coreset_y", "alpha"):
        more = np.repeat(arrays[name][:1] * (name != "alpha"), 300_000, axis=0).astype(arrays[name].dtype)
        arrays[name] = np.concatenate([arrays[name], more])
    record["status"] = record["certificate"]["kind"] = "not_separable"
    record["certificate"].update(lower=None, ratio=None, coreset_rows=len(arrays["alpha"]))
    np.savez(tmp_path / "m" / "arrays.npz", **arrays)
    (tmp_path / "m" / "model.json").write_text(json.dumps(record))
    refused(tmp_path / "m", rows.path)


def test_one_store_is_not_separated_and_inseparable(specimens: Specimens, tmp_path: Path) -> None:
    """Beside a feature as long as a timestamp a margin of 0.5 is still one: not both claims are confirmed."""
    X = np.column_stack([[0.5, 0.5, 0.7, -0.5, -0.5, -0.9], 1.6e18 + np.array([0, 1e12, 2e12, 3e11, 0, 1e12])])
    rows = write_store(tmp_path / "s.zarr", X, list("bbbaaa"), dtype="float64")
    core = np.array([0, 4])

    def margin(draft: Draft) -> None:
        draft.record.update(features=2, rows=6, dtype="float64", classes=["a", "b"])
        del draft.record["compression"]
        radius = float(np.linalg.norm(X, axis=1).max()) * (1 + 1e-9)
        draft.claims.update(coreset_rows=2, store_digest=rows.digest, radius=radius)
        draft.bound(0.5, 0.5)
        draft.arrays = {
            "w": np.array([1.0, 0.0]), "b": np.zeros(1), "alpha": np.ones(2), "coreset_ids": core,
            "coreset_x": rows.X[core], "coreset_y": np.array([1, -1], np.int8),
        }  # fmt: skip

    def none(draft: Draft) -> None:
        margin(draft)
        hopeless(draft.claims["radius"])(draft)

    verify(forged(specimens["hard"], tmp_path / "margin", margin), rows.path)
    refused(forged(specimens["hard"], tmp_path / "none", none), rows.path)


def test_a_row_is_in_the_coreset_once(specimens: Specimens, tmp_path: Path) -> None:
    """A coreset that names a row twice has fewer rows than it says."""

    def change(draft: Draft) -> None:
        for name in ("coreset_ids", "coreset_x", "coreset_y", "alpha"):
            values = draft.arrays[name]
            draft.arrays[name] = np.concatenate([values, values[:1] * (name != "alpha")])
        draft.claims["coreset_rows"] += 1

    refused(forged(specimens["hard"], tmp_path, change), specimens["hard"].store)


def negated(draft: Draft) -> None:
    """No intercepts, it says, and keeps them behind a constant below 0."""
    draft.asked["intercept"] = False
    draft.record["constant"] *= -1
    for name in ("hypothesis", "reference"):
        if name in draft.arrays:
            draft.arrays[name][:, -1] *= -1


def vanished(draft: Draft) -> None:
    """With intercepts, it says, none of which can be different from 0."""
    draft.asked["intercept"] = True
    draft.record["constant"] = 1e-300


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("classes", negated),
        ("classes-hinge", negated),
        ("classes-origin", vanished),
        ("sparse-classes", negated),
    ],
)
def test_the_constant_of_several_classes_is_what_the_rows_say(
    specimens: Specimens, tmp_path: Path, name: str, change: Callable[[Draft], None]
) -> None:
    """With another constant the bounds are those of another problem: with intercepts, or without."""
    refused(forged(specimens[name], tmp_path, change), specimens[name].store)


@pytest.mark.parametrize("factor", [2.0**-40, 0.25, 0.5, 1.5, 3.0])
def test_a_constant_that_is_too_small_or_no_power_of_two_is_refused(
    specimens: Specimens, tmp_path: Path, factor: float
) -> None:
    """Scores and duals stay as they were, lengths do not: bounds that are scaled along are those of another problem."""
    specimen = specimens["classes"]

    def change(draft: Draft) -> None:
        draft.record["constant"] *= factor
        draft.arrays["hypothesis"][:, -1] /= factor
        size = float(np.linalg.norm(draft.arrays["hypothesis"]))
        draft.arrays["hypothesis"] /= size
        draft.bound(draft.claims["lower"] / size, draft.claims["upper"] * max(1.0, factor))
        draft.asked["epsilon"] = draft.claims["epsilon"] = 0.999

    refused(forged(specimen, tmp_path, change), specimen.store)


def test_a_view_that_hides_rows_is_refused_or_said(tmp_path: Path, specimens: Specimens) -> None:
    """A margin of the rows outside of a fold is not sold as one of all rows: not by verify, not by show."""
    specimen = specimens["hard"]
    rows, core = specimen.rows, specimen.arrays()["coreset_ids"].tolist()[:2]
    folds, seed = next(
        (folds, seed) for folds in (4, 6, 8, 12) for seed in range(20_000)
        if fold(core[0], folds, seed) == fold(core[1], folds, seed)
    )  # fmt: skip
    held = fold(core[0], folds, seed)
    labels = [None if fold(k, folds, seed) == held else label for k, label in enumerate(rows.labels)]
    fewer = write_store(tmp_path / "fewer.zarr", rows.X, labels)
    coremargin.train(fewer.path, out=tmp_path / "m", cluster="threads")
    record = json.loads((tmp_path / "m" / "model.json").read_text())
    assert record["certificate"]["lower"] > specimen.record["certificate"]["upper"]
    record["certificate"]["store_digest"] = rows.digest
    del record["certificate"]["store_sha256"]
    record["view"] = {"class": None, "fold": held, "folds": folds, "fold_seed": seed}
    (tmp_path / "m" / "model.json").write_text(json.dumps(record))
    verified = CliRunner().invoke(main, ["verify", str(tmp_path / "m"), str(rows.path)])
    if verified.exit_code == 0:
        shown = CliRunner().invoke(main, ["show", str(tmp_path / "m")]).stdout
        assert f"fold {held} of {folds}" in verified.stdout.strip().splitlines()[-1]
        assert f"fold {held} of {folds}" in shown
    else:
        assert verified.exit_code in (3, 4)


@pytest.mark.parametrize("folds", [1, 2**63, 2**64, 2**70, -3, 2.0, True, "2", [2], None])
@pytest.mark.parametrize("name", ["hard", "hinge", "classes"])
def test_views_that_make_no_sense(specimens: Specimens, tmp_path: Path, name: str, folds: Any) -> None:
    """Folds that hide every row, or that are no number of folds, are refused where they are read."""
    view = {"class": None, "fold": 0, "folds": folds, "fold_seed": 0}
    refused(forged(specimens[name], tmp_path, lambda draft: draft.record.update(view=view)), specimens[name].store)


@pytest.mark.parametrize(
    "change",
    [
        lambda draft: draft.record.update(rows=draft.record["rows"] + 0.5),
        lambda draft: draft.record.update(rows=float(draft.record["rows"])),
        lambda draft: draft.record.update(rows=str(draft.record["rows"])),
        lambda draft: draft.record.update(rows=float("inf")),
        lambda draft: draft.record.update(rows=float("nan")),
        lambda draft: draft.record.update(rows=10**400),
        lambda draft: draft.record.update(rows=[draft.record["rows"]]),
        lambda draft: draft.record.pop("rows"),
        lambda draft: draft.record.update(features=draft.record["features"] + 0.5),
        lambda draft: draft.record.update(features=True),
        lambda draft: draft.record.update(features=10**400),
        lambda draft: draft.claims.update(coreset_rows=draft.claims["coreset_rows"] + 0.5),
        lambda draft: draft.claims.update(coreset_rows=None),
        lambda draft: draft.claims.update(coreset_rows=10**400),
        lambda draft: draft.claims.update(coreset_rows=[]),
        lambda draft: draft.claims.pop("coreset_rows"),
        lambda draft: draft.claims.update(lower=10**400),
        lambda draft: draft.claims.update(upper=10**400),
        lambda draft: draft.claims.update(radius=10**400),
        lambda draft: draft.claims.update(epsilon=10**400),
        lambda draft: draft.claims.update(lower=float("nan")),
        lambda draft: draft.claims.update(upper=float("-inf")),
        lambda draft: draft.claims.update(more=1),
        lambda draft: draft.asked.update(epsilon=10**400),
        lambda draft: draft.asked.update(intercept=1),
        lambda draft: draft.asked.update(more=[1]),
        lambda draft: draft.asked.update(strategy=5),
        lambda draft: draft.asked.update(scaling=""),
        lambda draft: draft.asked.update(scaling=[]),
        lambda draft: draft.asked.update(outliers=77),
        lambda draft: draft.record.update(version=True),
        lambda draft: draft.record.update(version=1.0),
        lambda draft: draft.record.update(more=None),
        lambda draft: draft.record.update(software=5),
        lambda draft: draft.record.update(software={"coremargin": 5}),
        lambda draft: draft.record.update(classes="".join(map(str, draft.record["classes"]))),
        lambda draft: draft.record.update(classes={str(label): 1 for label in draft.record["classes"]}),
        lambda draft: draft.record.update(classes=[[label] for label in draft.record["classes"]]),
        lambda draft: draft.record.update(classes=[draft.record["classes"][0]] * len(draft.record["classes"])),
        lambda draft: draft.record.update(status=["certified"]),
        lambda draft: draft.record.update(parameters=None),
        lambda draft: draft.record.update(parameters=[]),
        lambda draft: draft.record.update(certificate=[]),
        lambda draft: draft.claims.update(store_digest=[1]),
        lambda draft: draft.claims.update(store_digest="\ud800"),
        lambda draft: draft.claims.update(store_digest="\x1b[31mred\x1b[0m"),
        lambda draft: draft.arrays.update(shift=np.zeros(3), factor=np.ones(3)),
        lambda draft: draft.arrays.update(more=np.zeros(3)),
        lambda draft: draft.arrays.update(coreset_ids=draft.arrays["coreset_ids"] + 0.9),
        lambda draft: draft.arrays.update(coreset_ids=draft.arrays["coreset_ids"].astype(float)),
        lambda draft: draft.arrays.update(coreset_ids=draft.arrays["coreset_ids"].astype("U9")),
        lambda draft: draft.arrays.update(coreset_ids=draft.arrays["coreset_ids"].astype("m8[s]")),
        lambda draft: draft.arrays.update(coreset_ids=np.array(3)),
        lambda draft: draft.arrays.update(coreset_ids=draft.arrays["coreset_ids"] + 2**62),
        lambda draft: draft.arrays.update(coreset_ids=np.full_like(draft.arrays["coreset_ids"], -(2**63))),
    ],
)  # fmt: skip
def test_what_is_no_such_thing_is_refused(specimens: Specimens, tmp_path: Path, change: Callable[[Draft], Any]) -> None:
    """Numbers of the wrong kind, keys that nobody knows, labels that are none: refused, for every kind of model."""
    answers = {name: answer(forged(specimens[name], tmp_path / name, change), specimens[name].store) for name in SINGLE}
    assert answers == dict.fromkeys(SINGLE, "refused")


@pytest.mark.parametrize("kind", ["complex", "text", "bytes", "times", "0-d", "object", "void"])
@pytest.mark.parametrize("name", ["hard", "hinge", "classes", "classes-hinge", "minmax", "outliers"])
def test_arrays_of_another_kind_are_refused(specimens: Specimens, tmp_path: Path, name: str, kind: str) -> None:
    """Imaginary parts are not dropped, texts are not parsed: each array is of its kind, or the model is refused."""
    changes: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "complex": lambda v: v + 1j,
        "text": lambda v: v.astype("U20"),
        "bytes": lambda v: v.astype("S20"),
        "times": lambda v: v.astype("i8").astype("m8[s]"),
        "0-d": lambda v: np.zeros((), v.dtype),
        "object": lambda v: v.astype(object),
        "void": lambda v: np.zeros(v.shape, "V8"),
    }
    specimen, answers = specimens[name], {}
    for array, values in specimen.arrays().items():
        if array.startswith("block_bounds_"):
            continue  # what the scans proved of each chunk: nothing rests on it
        other = {"arrays.npz": zipped(members_of(specimen.arrays() | {array: changes[kind](values)}))}
        answers[array] = answer(with_files(specimen, tmp_path, other), specimen.store)
    assert answers == dict.fromkeys(answers, "refused")


def test_prices_that_no_number_holds(specimens: Specimens, tmp_path: Path) -> None:
    """C so large that the price of a rarer class overflows is a message."""

    def change(draft: Draft) -> None:
        draft.asked.update(C=1.7e308, class_weight="balanced")

    for name in ("hinge", "squared", "classes-hinge"):
        refused(forged(specimens[name], tmp_path / name, change), specimens[name].store)


@pytest.mark.parametrize("factor", [1.01, 2.0, 12.0])
def test_a_deviation_is_that_of_the_column_however_large_its_mean(tmp_path: Path, factor: float) -> None:
    """Sparse rows scaled as if a column of mean 1e6 and deviation 0.5 had another deviation are refused."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=200), 1e6 + 0.5 * rng.normal(size=200)])
    labels = ["b" if value > 0 else "a" for value in X[:, 0] + X[:, 1] - 1e6]
    rows = write_store(tmp_path / "s.zarr", X, labels, dtype="float64", sparse=True)
    scale = np.array([1.0, factor]) / X.std(axis=0)
    scaled = write_store(tmp_path / "scaled.zarr", X * scale, labels, dtype="float64", sparse=True)
    coremargin.train(scaled.path, out=tmp_path / "m", loss="squared_hinge", C=0.01, cluster="threads")
    record = json.loads((tmp_path / "m" / "model.json").read_text())
    record["parameters"]["scaling"] = "standard"
    record["certificate"]["store_digest"] = rows.digest
    del record["certificate"]["store_sha256"]
    (tmp_path / "m" / "model.json").write_text(json.dumps(record))
    arrays = dict(np.load(tmp_path / "m" / "arrays.npz")) | {"shift": np.zeros(2), "factor": scale}
    np.savez(tmp_path / "m" / "arrays.npz", **arrays)
    refused(tmp_path / "m", rows.path)


def test_products_that_vanish_prove_nothing(specimens: Specimens, tmp_path: Path) -> None:
    """A row whose margin is below 0, by products that float64 loses, is not above the smallest number there is."""
    d = 100
    X = np.zeros((4, d))
    X[:2, 0], X[2:, 0] = 5e-324, -5e-324
    X[0, 1:] = X[2, 1:] = -1e-200
    X[1, 1:] = X[3, 1:] = 1e-200
    rows = write_store(tmp_path / "s.zarr", X, list("bbaa"), dtype="float64")

    def change(draft: Draft) -> None:
        draft.record.update(features=d, rows=4, dtype="float64", classes=["a", "b"])
        draft.claims.update(coreset_rows=4, store_digest=rows.digest, radius=1e-190)
        draft.bound(5e-324, 5e-324)
        w = np.full(d, 1e-124)
        w[0] = 1.0
        draft.arrays = {
            "w": w, "b": np.zeros(1), "alpha": np.full(4, 0.5), "coreset_ids": np.arange(4), "coreset_x": X,
            "coreset_y": np.array([1, 1, -1, -1], np.int8),
        }  # fmt: skip

    refused(forged(specimens["hard"], tmp_path / "m", change), rows.path)


@pytest.mark.parametrize("problem", ["hard_margin", "soft_margin", "outliers", "crammer_singer", "", None, [], 5])
def test_one_problem_is_not_another(specimens: Specimens, tmp_path: Path, problem: Any) -> None:
    """The arrays of one problem under the name of another are refused, whatever both have in common."""
    others = [name for name in SINGLE if specimens[name].record["problem"] != problem]
    answers = {
        name: answer(
            forged(specimens[name], tmp_path / name, lambda draft: draft.record.update(problem=problem)),
            specimens[name].store,
        )
        for name in others
    }
    assert answers == dict.fromkeys(others, "refused")


@pytest.mark.parametrize("file", ["model.json", "arrays.npz"])
@pytest.mark.parametrize("name", SINGLE)
def test_files_of_two_models_do_not_make_one(specimens: Specimens, tmp_path: Path, name: str, file: str) -> None:
    """The record of one model and the arrays of another are refused."""
    specimen, others = specimens[name], [other for other in SINGLE if other != name]
    answers = {
        other: answer(with_files(specimen, tmp_path, {file: specimens[other].files[file]}), specimen.store)
        for other in others
    }
    assert answers == dict.fromkeys(others, "refused")


@pytest.mark.parametrize("name", SINGLE)
def test_a_model_of_other_rows_is_refused(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """Every model is refused with every store but its own."""
    for kind in ("apart", "apart64", "mixed", "noisy", "holes", "wrong", "corners"):
        rows = specimens.rows(kind)
        if rows.path != specimens[name].store:
            refused(specimens[name].model, rows.path)


@pytest.mark.parametrize("change", ["labels swapped", "a label moved", "a row moved", "a row less", "a row more"])
@pytest.mark.parametrize("name", ["hard", "hinge", "classes", "outliers"])
def test_rows_ingested_anew_are_judged_anew(specimens: Specimens, tmp_path: Path, name: str, change: str) -> None:
    """With every checksum right and the digest forged, what is false of the new rows is refused."""
    specimen = specimens[name]
    X, labels = specimen.rows.X.copy(), list(specimen.rows.labels)
    weights = None if specimen.rows.weights is None else np.maximum(specimen.rows.weights, 0.5)
    out = specimen.arrays().get("outliers_ids", np.zeros(0, int)).tolist()
    core = next(int(row) for row in specimen.arrays()["coreset_ids"] if row not in out)
    other = {label: next(one for one in specimen.rows.classes if one != label) for label in specimen.rows.classes}
    if change == "labels swapped":
        labels = [other.get(label) for label in labels]
    elif change == "a label moved":
        labels[core] = other[labels[core]]
    elif change == "a row moved":
        X[core] = -X[core]
    elif change == "a row less":
        X, labels = np.delete(X, core, axis=0), [*labels[:core], *labels[core + 1 :]]
        weights = None if weights is None else np.delete(weights, core)
    else:
        X, labels = np.vstack([X, X[core : core + 1]]), [*labels, other[labels[core]]]
        weights = None if weights is None else np.append(weights, 1.0)
    rows = write_store(tmp_path / "s.zarr", X, labels, weights=weights, dtype=specimen.rows.dtype)

    def digest(draft: Draft) -> None:
        draft.claims["store_digest"] = rows.digest
        draft.record["rows"] = len(X)

    model = forged(specimen, tmp_path / "m", digest)
    refused(model, rows.path)


def test_weaker_claims_are_true(specimens: Specimens, tmp_path: Path) -> None:
    """A verifier that refused everything would pass all other tests here: what is true is still confirmed."""

    def weaker(draft: Draft) -> None:
        draft.bound(draft.claims["lower"] * 0.99995, draft.claims["upper"] * 1.00005)
        draft.record["software"]["coremargin"] = "0.0.1"

    for name in ("hard", "hard-origin", "classes", "outliers-one", "rownorm", "sparse-hard"):
        result = examine(forged(specimens[name], tmp_path / name, weaker), specimens[name].store)
        assert result.ok, result.failures

    def stopped(draft: Draft) -> None:
        draft.record["status"] = "stopped"
        draft.bound(draft.claims["lower"] * 0.5, draft.claims["upper"] * 2)

    for name in ("hard", "hinge", "squared", "classes", "classes-hinge", "standard"):
        result = examine(forged(specimens[name], tmp_path / f"{name}-stopped", stopped), specimens[name].store)
        assert result.ok, result.failures


def test_stores_of_specimens_are_whole(specimens: Specimens) -> None:
    """What the forgeries are held against opens without complaint."""
    for name in SINGLE:
        try:
            assert Store.open(specimens[name].store).rows == len(specimens[name].rows.labels)
        except CoremarginError as error:
            pytest.fail(str(error))
