"""Machines with kernels under attack: whatever is claimed and is not so, is refuted; what is so, is not.

The judge knows the definitions only: kernel values by differences in long doubles, one row after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator
from scipy.optimize import nnls
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC

import coremargin
from coremargin.verify.examine import examine
from forge_specimens import KERNELS, Arrays, Record, Rows, Specimen, Specimens, entry, refused, write_store


@pytest.mark.parametrize("name", KERNELS)
def test_what_training_claims_holds(specimens: Specimens, name: str) -> None:
    """Certified, and by the judge's sums too."""
    specimen = specimens[name]
    assert examine(specimen.model, specimen.store).ok
    assert specimen.record["status"] == "certified"
    assert _true(specimen.record, specimen.arrays(), specimen.rows)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", None])
def test_what_is_claimed_of_few_rows_holds_too(tmp_path: Path, loss: str | None) -> None:
    """Where kernel values lose next to nothing, trainers give away as much as what is summed here may lose."""
    rng = np.random.default_rng(0)
    for n in (2, 5):
        X = rng.normal(size=(n, 2)) + np.outer(np.arange(n) % 2, [9.0, 0.0])
        coremargin.ingest(X, tmp_path / "s", labels=np.arange(n) % 2, overwrite=True)
        for kernel, cost in (("rbf", 1e-3), ("linear", 1e-2)):
            about: dict[str, Any] = {"loss": loss, "C": cost} if loss else {}
            coremargin.train(tmp_path / "s", out=tmp_path / "m", kernel=kernel, overwrite=True, **about)
            assert not examine(tmp_path / "m", tmp_path / "s").failures


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
def test_the_gamma_of_rows_far_from_the_origin_is_what_their_means_allow(tmp_path: Path, scaling: str) -> None:
    """Means of columns near 3e8 are known to 6e-8, whatever is taken from them afterwards to scale rows 1e-5 apart."""
    y = np.arange(6) % 2
    for seed in range(4):
        X = 3e8 + 1e-5 * np.random.default_rng(seed).normal(size=(6, 2))
        coremargin.ingest(X, tmp_path / "s", labels=y, dtype="float64", overwrite=True)
        coremargin.train(
            tmp_path / "s", out=tmp_path / "m", kernel="rbf", loss="hinge", C=1.0, scaling=scaling, overwrite=True
        )
        failures = examine(tmp_path / "m", tmp_path / "s").failures
        assert not [check for check in failures if check.name == "gamma"]


CLAIMS: dict[str, Callable[[Record], None]] = {
    "better bound": entry("certificate.lower", lambda was: was * (1 + 1e-5)),
    "better value": entry("certificate.upper", lambda was: was * (1 - 1e-5)),
    "smaller epsilon": entry("certificate.epsilon", 1e-9),
    "other gamma": entry("kernel.gamma", lambda was: was * 1.01),
    "other kernel": entry("kernel", {"name": "linear"}),
    "unknown kernel": entry("kernel.name", "laplacian"),
    "no intercept": entry("parameters.intercept", lambda was: not was),
    "other digest": entry("certificate.store_digest", "sha256:" + 64 * "0"),
    "more rows": entry("rows", lambda was: was + 1),
    "longer rows": entry("certificate.radius", lambda was: was * 2),
    "other ratio": entry("certificate.ratio", 1.0),
    "other classes": entry("classes", lambda was: was[::-1]),
}


@pytest.mark.parametrize(
    "name", ["kernel-hinge", "kernel-hard", "kernel-classes", "kernel-relative", "kernel-outliers"]
)
@pytest.mark.parametrize("claim", CLAIMS)
def test_no_other_claim_is_taken(specimens: Specimens, tmp_path: Path, name: str, claim: str) -> None:
    """Of the record."""
    assert refused(specimens[name], tmp_path / "m", CLAIMS[claim])


def _both(value: float) -> Callable[[Record], None]:
    def change(record: Record) -> None:
        record["parameters"]["gamma"] = record["kernel"]["gamma"] = value

    return change


def test_a_gamma_that_is_called_scale_is(specimens: Specimens, tmp_path: Path) -> None:
    """And another one that is not called so is another problem, whose bounds these are not."""
    scaled = specimens["kernel-scaled"]
    assert scaled.record["parameters"]["gamma"] == "scale"
    assert "gamma" in refused(scaled, tmp_path / "a", entry("kernel.gamma", lambda was: was * (1 + 1e-3)))
    assert refused(specimens["kernel-hinge"], tmp_path / "b", _both(0.9))


def _doubled(arrays: Arrays) -> None:
    arrays["duals"] *= 2.0


def _of_one_class(arrays: Arrays) -> None:
    arrays["duals"][arrays["coreset_classes"] == 0] *= 1.001


def _moved(arrays: Arrays) -> None:
    arrays["offsets"] += 0.05


def _one_row(arrays: Arrays) -> None:
    arrays["coreset_x"][0] += 1e-3


def _one_class(arrays: Arrays) -> None:
    arrays["coreset_classes"][0] = 1 - arrays["coreset_classes"][0]


def _twice(arrays: Arrays) -> None:
    arrays["coreset_ids"][1], arrays["coreset_x"][1] = arrays["coreset_ids"][0], arrays["coreset_x"][0]


def _better_column(arrays: Arrays) -> None:
    arrays["lowers"] *= 1 + 1e-5


def _worse_column(arrays: Arrays) -> None:
    arrays["uppers"] *= 1 - 1e-5


def _huge(arrays: Arrays) -> None:
    arrays["duals"] *= 1e300


CHANGES = [_huge, _doubled, _of_one_class, _moved, _one_row, _one_class, _twice, _better_column, _worse_column]


@pytest.mark.parametrize("name", ["kernel-hinge", "kernel-squared", "kernel-hard", "kernel-poly", "kernel-relative"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_nor_are_other_numbers(
    specimens: Specimens, tmp_path: Path, name: str, change: Callable[[Arrays], None]
) -> None:
    """Of the arrays."""
    assert refused(specimens[name], tmp_path / "m", None, change)


def _without_bound(record: Record) -> None:
    del record["parameters"]["relative_margin"]


RELATIVE: dict[str, tuple[Callable[[Record], None] | None, Callable[[Arrays], None] | None, str]] = {
    "a bound that a row exceeds": (
        entry("parameters.relative_margin", lambda was: was * (1 - 1e-6)), None, "relative margin",
    ),
    "a wider bound, within which values may be less": (
        entry("parameters.relative_margin", lambda was: was * 1.01), None, "lower bound",
    ),
    "no bound": (_without_bound, None, "unreadable"),
    "a bound of 1": (entry("parameters.relative_margin", 1.0), None, "unreadable"),
    "a bound of another loss": (entry("parameters.loss", "squared_hinge"), None, "unreadable"),
    "a hard margin": (entry("parameters.loss", None), None, "unreadable"),
    "functions that are a little longer": (None, lambda arrays: _scale(arrays, 1 + 1e-6), "relative margin"),
    "functions that are much shorter": (None, lambda arrays: _scale(arrays, 0.9), "upper bound"),
    "weights whose sign is another": (None, lambda arrays: _scale(arrays, -1.0), "lower bound"),
    "another status": (entry("status", "not_separable"), None, "status"),
}  # fmt: skip


def _scale(arrays: Arrays, factor: float) -> None:
    arrays["duals"] *= factor
    arrays["offsets"] *= factor


@pytest.mark.parametrize("name", ["kernel-relative", "kernel-relative-classes"])
@pytest.mark.parametrize("what", RELATIVE)
def test_no_other_relative_margin_is_taken(specimens: Specimens, tmp_path: Path, name: str, what: str) -> None:
    """The bound, the loss, the size of functions, the signs of weights: each is refuted by the check about it."""
    record, arrays, check = RELATIVE[what]
    found = refused(specimens[name], tmp_path / "m", record, arrays)
    assert found
    assert check == "unreadable" or check in found, found


def test_values_are_not_claimed_of_rows_beyond_the_bound(specimens: Specimens, tmp_path: Path) -> None:
    """Without the weights below 0, which keep functions within it."""
    specimen = specimens["kernel-relative"]
    assert (specimen.arrays()["duals"] < 0).any()

    def change(arrays: Arrays) -> None:
        arrays["duals"] = np.maximum(arrays["duals"], 0.0)

    assert "relative margin" in refused(specimen, tmp_path / "m", None, change)


def test_a_machine_without_a_bound_does_not_pass_as_one_that_keeps_it(specimens: Specimens, tmp_path: Path) -> None:
    """Its bounds hold for a relative margin too, which it hides by claiming nothing of its column."""

    def change(arrays: Arrays) -> None:
        arrays["lowers"][:] = arrays["uppers"][:] = np.nan

    found = refused(specimens["kernel-hinge"], tmp_path / "m", entry("parameters.relative_margin", 1.05), change)
    assert found == {"relative margin"}


def test_one_column_that_is_not_proven_is_not_hidden_by_others(specimens: Specimens, tmp_path: Path) -> None:
    """Sums that are good enough, of columns of which one is not."""

    def change(arrays: Arrays) -> None:
        arrays["duals"][:, 0] *= 0.9
        arrays["lowers"][0] *= 0.9

    def loose(record: Record) -> None:
        claims = record["certificate"]
        claims["lower"] *= 0.96
        claims["ratio"] = claims["lower"] / claims["upper"]
        record["parameters"]["epsilon"] = claims["epsilon"] = 0.05

    assert "columns" in refused(specimens["kernel-classes"], tmp_path / "m", loose, change)


def test_weights_that_do_not_balance_pay_for_it(specimens: Specimens, tmp_path: Path) -> None:
    """A little too much on one side is no dual point of a machine with an intercept: the bound is lower by |r| |b|."""
    specimen = specimens["kernel-squared"]

    def change(arrays: Arrays) -> None:
        arrays["duals"][0, 0] += 1e-3

    assert "lower bound" in refused(specimen, tmp_path / "m", None, change)


def _texts(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of few of many features, as texts are: what a sum over them loses is little, over all features it is not."""
    X = np.zeros((60, 3000))
    np.put_along_axis(X, rng.integers(0, 300, (60, 6)), 1.0 + rng.random((60, 6)), axis=1)
    return X, np.ones(60)


def _one_far_away(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """A row far from all others, which moves the mean of the few that carry functions, and weighs next to nothing."""
    X, weights = 0.1 * rng.normal(size=(400, 3)) + np.arange(400)[:, None] % 2, np.ones(400)
    X[0], weights[0] = 1e4, 1e-9
    return X, weights


@pytest.mark.parametrize(("made", "sparse"), [(_texts, True), (_one_far_away, False)])
def test_what_rounding_may_do_is_bounded_alike(tmp_path: Path, made: Any, sparse: bool) -> None:
    """Training and verify bound it apart, by code and about centres of their own; neither refutes what is so."""
    X, weights = made(np.random.default_rng(3))
    rows = write_store(
        tmp_path / "rows.zarr", X, [0, 1] * (len(X) // 2), weights=weights, dtype="float64", sparse=sparse
    )
    for number, loss in enumerate(("hinge", "squared_hinge")):
        out, asked = tmp_path / str(number), {"gamma": 0.5, "epsilon": 1e-7}
        model = coremargin.train(rows.path, out=out, kernel="rbf", loss=loss, **asked)
        assert model.status == "certified"
        assert examine(out, rows.path).ok


def _judged_values(record: Record, arrays: Arrays, x: np.ndarray) -> np.ndarray:
    """The functions (n, k) without intercepts at rows x (n, d)."""
    z, kernel = arrays["coreset_x"].astype(np.longdouble), record["kernel"]
    weights = _signs(record, arrays["coreset_classes"]) * arrays["duals"]
    found = np.zeros((len(x), weights.shape[1]), np.longdouble)
    for n, row in enumerate(x.astype(np.longdouble)):
        if kernel["name"] == "rbf":
            values = np.exp(-np.longdouble(kernel["gamma"]) * ((row - z) ** 2).sum(axis=1))
        else:
            values = z @ row
            if kernel["name"] == "poly":
                values = (np.longdouble(kernel["gamma"]) * values + kernel["coef0"]) ** kernel["degree"]
        found[n] = values @ weights
    return found


def _signs(record: Record, places: np.ndarray) -> np.ndarray:
    positive = np.array([1]) if len(record["classes"]) == 2 else np.arange(len(record["classes"]))
    return np.where(places[:, None] == positive, 1, -1)


def _true(record: Record, arrays: Arrays, rows: Rows) -> bool:
    """Whether the bounds of the certificate hold, by plain sums and a share of 1e-12 of them."""
    if "coreset_x" not in arrays:
        shape = arrays["coreset_x_shape"]
        parts = (arrays[f"coreset_x_{name}"] for name in ("data", "indices", "indptr"))
        from scipy.sparse import csr_array

        arrays = {**arrays, "coreset_x": csr_array(tuple(parts), shape=tuple(shape)).toarray()}
    mine = rows.weighed > 0
    x = rows.X[mine]
    if "shift" in arrays:
        held = np.dtype(rows.dtype)
        shift, factor = (arrays[name].astype(held) for name in ("shift", "factor"))
        x = ((x.astype(held) - shift) * factor).astype(np.float64)
    labels = [label for label, known in zip(rows.labels, mine, strict=True) if known]
    signs = _signs(record, np.array([record["classes"].index(label) for label in labels]))
    margins = signs * (_judged_values(record, arrays, x) + arrays["offsets"])
    if "outliers" in record["parameters"]:
        ids = arrays["outliers_ids"]
        if len(set(ids.tolist())) < len(ids) or len(ids) > record["parameters"]["outliers"] or not mine[ids].all():
            return False
        margins = margins[~np.isin(np.flatnonzero(mine), ids)]
    weights = _signs(record, arrays["coreset_classes"]) * arrays["duals"]
    square = (weights * _judged_values(record, arrays, arrays["coreset_x"])).sum(axis=0)
    asked, claims = record["parameters"], record["certificate"]
    if "loss" not in asked:
        value, dual = 0.5 * square / margins.min(axis=0) ** 2, arrays["duals"].sum(axis=0) - 0.5 * square
        lower = math.sqrt(0.5 / value.max())
        if "outliers" in asked:
            best = _largest_without(record, rows)
            return bool(claims["lower"] <= lower * (1 + 1e-12) and claims["upper"] >= best * (1 - 1e-9))
        upper = math.sqrt(0.5 / dual.max())
        return bool(claims["lower"] <= lower * (1 + 1e-12) and claims["upper"] >= upper * (1 - 1e-12))
    weight = asked["class_weight"] or [1.0, 1.0]
    costs = asked["C"] * np.where(signs > 0, weight[1], weight[0]) * rows.weighed[mine][:, None]
    slack = np.maximum(1 - margins, 0)
    value = 0.5 * square + (costs * (slack if asked["loss"] == "hinge" else slack**2)).sum(axis=0)
    dual = arrays["duals"].sum(axis=0) - 0.5 * square
    own = dict(zip(np.flatnonzero(mine).tolist(), costs.tolist(), strict=True))
    c = np.array([own[row] for row in arrays["coreset_ids"].tolist()])
    if asked["loss"] == "squared_hinge":
        dual = dual - (arrays["duals"] ** 2 / (4 * c)).sum(axis=0)
    if "relative_margin" in asked:
        g, bound = arrays["duals"], asked["relative_margin"]
        dual = np.min([bound * g, g, c - bound * (g - c)], axis=0).sum(axis=0) - 0.5 * square
        if not np.abs(margins).max() <= bound * (1 + 1e-12):
            return False
    upper, lower = float(value.sum()), float(dual.sum())
    return claims["lower"] <= lower * (1 + 1e-12) and claims["upper"] >= upper * (1 - 1e-12)


_REACHED: dict[str, float] = {}


def _largest_without(record: Record, rows: Rows) -> float:
    """A margin that scikit-learn's SVC reaches without some choice of so many rows, of all choices."""
    kernel, most, key = record["kernel"], record["parameters"]["outliers"], repr((record["kernel"], rows.path))
    key += repr((record["parameters"]["outliers"], record["parameters"]["intercept"]))
    if key not in _REACHED:
        matrix = pairwise_kernels(rows.X, metric=kernel["name"], **{k: v for k, v in kernel.items() if k != "name"})
        side, best = np.where(np.array(rows.labels) == record["classes"][1], 1.0, -1.0), 0.0
        for away in itertools.combinations(range(len(side)), most):
            stay = np.setdiff1d(np.arange(len(side)), away)
            inner = matrix[np.ix_(stay, stay)]
            if record["parameters"]["intercept"]:
                found = SVC(kernel="precomputed", C=1e8, tol=1e-6, max_iter=20_000).fit(inner, side[stay])
                weights = np.zeros(len(stay))
                weights[found.support_] = found.dual_coef_[0]
                values = inner @ weights + found.intercept_[0]
            else:
                signed = side[stay][:, None] * inner * side[stay]
                factor = np.linalg.cholesky(signed + 1e-12 * np.trace(signed) * np.eye(len(stay)))
                weights = side[stay] * nnls(factor.T, np.linalg.solve(factor, np.ones(len(stay))))[0]
                values = inner @ weights
            length = float(weights @ inner @ weights)
            best = max(best, float((side[stay] * values).min()) / math.sqrt(length) if length > 0 else 0.0)
        _REACHED[key] = best
    return _REACHED[key]


OUTLIERS: dict[str, Callable[[Arrays], None]] = {
    "none left out": lambda arrays: arrays.update(outliers_ids=arrays["outliers_ids"][:0]),
    "one twice": lambda arrays: arrays.update(outliers_ids=arrays["outliers_ids"][[0, 0]]),
    "others left out": lambda arrays: arrays.update(outliers_ids=(arrays["outliers_ids"] + 1) % 20),
    "no leaves": lambda arrays: arrays.update(
        {f"proof_{name}": arrays[f"proof_{name}"][:0] for name in ("paths", "paths_ends", "numbers", "numbers_ends")}
    ),
    "no certificate": lambda arrays: arrays.update(proof_numbers=arrays["proof_numbers"] + 100),
    "one certificate": lambda arrays: arrays.update(proof_numbers=0 * arrays["proof_numbers"]),
    "weights of nothing": lambda arrays: arrays.update(proof_weights=0 * arrays["proof_weights"]),
    "half of the weights": lambda arrays: arrays.update(proof_weights=arrays["proof_weights"] / 2),
    "weights below 0": lambda arrays: arrays.update(proof_weights=-arrays["proof_weights"]),
    "other rows": lambda arrays: arrays.update(proof_rows=arrays["proof_rows"][::-1].copy()),
}


@pytest.mark.parametrize("name", ["kernel-outliers", "kernel-outliers-origin"])
@pytest.mark.parametrize("what", OUTLIERS)
def test_no_other_rows_are_left_out_and_no_other_proof_is_taken(
    specimens: Specimens, tmp_path: Path, name: str, what: str
) -> None:
    """Of a margin with outliers."""
    assert refused(specimens[name], tmp_path / "m", None, OUTLIERS[what])


def test_more_rows_may_not_be_left_out_than_the_proof_is_about(specimens: Specimens, tmp_path: Path) -> None:
    """Nor all rows; fewer may, as far as the model leaves out no more."""
    specimen = specimens["kernel-outliers"]
    for most in (3, 1, 20, "50%", "2..3", 10**15):
        assert refused(specimen, tmp_path / str(most), entry("parameters.outliers", most)), most
    assert not refused(specimen, tmp_path / "same", entry("parameters.outliers", "10%"))
    assert refused(specimens["kernel-hard"], tmp_path / "plain", entry("parameters.outliers", 2))


def _mutated_removal(rng: Generator, arrays: Arrays) -> None:
    """One number of the proof, or of the rows that are left out, is another one."""
    names = [name for name in arrays if name.startswith("proof_") or name == "outliers_ids"]
    name = str(rng.choice(names))
    if arrays[name].dtype.kind == "f":
        arrays[name][rng.integers(len(arrays[name]))] *= float(rng.choice([1 + 1e-9, 1.01, 0.9, 0.0, -1.0, 1e300]))
    elif len(arrays[name]):
        arrays[name][rng.integers(len(arrays[name]))] += int(rng.choice([-21, -2, -1, 1, 2, 10**12]))


def _mutated(rng: Generator, record: Record, arrays: Arrays) -> None:
    """One number somewhere is another one: by a little, by much, or by its sign."""
    factor = float(rng.choice([1 + 1e-6, 1 - 1e-6, 1.01, 0.99, 2.0, 0.0, -1.0]))
    if rng.random() < 0.4:
        places = [
            (record["certificate"], "lower"), (record["certificate"], "upper"), (record["kernel"], "gamma"),
            (record["certificate"], "radius"),
        ]  # fmt: skip
        if "C" in record["parameters"]:
            places.append((record["parameters"], "C"))
        if "relative_margin" in record["parameters"]:
            places.append((record["parameters"], "relative_margin"))
        where, name = places[int(rng.integers(len(places)))]
        where[name] *= factor
        return
    name = str(rng.choice(["duals", "offsets", "coreset_x", "lowers", "uppers"]))
    place = tuple(int(rng.integers(size)) for size in arrays[name].shape)
    arrays[name][place] *= factor


def _replaced(new: dict[str, Any], kept: dict[str, Any]) -> None:
    kept.update(new)


def _attack(specimen: Specimen, folder: Path, seed: int, count: int) -> int:
    """How many of so many mutations were taken, all of which were true."""
    taken, rng = 0, np.random.default_rng(seed)
    for k in range(count):
        record, arrays = dict(specimen.record), specimen.arrays()
        record = {**record, **{name: dict(record[name]) for name in ("certificate", "kernel", "parameters")}}
        arrays = {name: values.copy() for name, values in arrays.items()}
        if "outliers" in record["parameters"] and rng.random() < 0.6:
            _mutated_removal(rng, arrays)
        else:
            _mutated(rng, record, arrays)
        place = folder / str(k)
        if not refused(specimen, place, partial(_replaced, record), partial(_replaced, arrays)):
            taken += 1
            assert _true(record, arrays, specimen.rows), f"seed {seed}, mutation {k}"
    return taken


@pytest.mark.parametrize("name", ["kernel-hinge", "kernel-squared", "kernel-relative", "kernel-outliers"])
def test_mutated_models_are_taken_only_where_they_are_true(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """Some are: a bound that claims less, a weight that changed by less than rounding."""
    taken = _attack(specimens[name], tmp_path, 0, 60)
    assert taken < 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("kernel-hinge", 5),
        ("kernel-squared", 5),
        ("kernel-relative", 7),
        ("kernel-relative-classes", 3),
        ("kernel-outliers", 2),
        ("kernel-outliers-origin", 2),
    ],
)
def test_thousands_of_them_are(specimens: Specimens, tmp_path: Path, name: str, seeds: int) -> None:
    """The same, 1,000 for each seed: 10,000 of relative margins."""
    for seed in range(1, 1 + seeds):
        _attack(specimens[name], tmp_path / str(seed), seed, 1000)
