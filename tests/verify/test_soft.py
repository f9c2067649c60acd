"""Verification of duality gaps: true ones are confirmed, every false claim is named, exact arithmetic agrees."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn import datasets, svm

import coremargin
from coremargin.cli import main
from coremargin.data.arrays import ArraySource
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.protocols import Block
from coremargin.errors import ClaimRefuted, DataError
from coremargin.maths.exact import exact_decisions
from coremargin.models.model import Model
from coremargin.problems.soft import near_margin
from coremargin.problems.soft.losses.table import LOSSES
from coremargin.problems.soft.probe import NearMarginProbe
from coremargin.verify import soft_margin, verify
from coremargin.verify.examine import examine
from model_kit import altered, store_of

DATA = Path(__file__).parents[3] / "shared" / "data"
KINDS = [("hinge", True), ("hinge", False), ("squared_hinge", True), ("squared_hinge", False)]
#: Row 0 has no label; the rows of 200 are in 25 chunks.
UNLABELLED = 0


def noisy(rows: int = 200, features: int = 3, seed: int = 0) -> tuple[np.ndarray, list[Any]]:
    """Two overlapping classes, "a" and "b", and a row without label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features)).astype(np.float32) + np.float32(0.5)
    positive = X[:, 0] + X[:, 1] + rng.normal(size=rows) > 1.2
    labels: list[Any] = ["b" if one else "a" for one in positive]
    labels[UNLABELLED] = None
    return X, labels


def make_store(path: Path, X: np.ndarray, labels: list[Any], chunk_rows: int = 8) -> Path:
    """A store in small chunks."""
    return store_of(path, X, labels, chunk_rows)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], tuple[Path, Path]]:
    """(model, store) for a loss, with or without intercept; a narrow band, so that most rows are far from it."""
    folder = tmp_path_factory.mktemp("soft")
    store = make_store(folder / "s.zarr", *noisy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_margin, "NEAR_BYTES_LEAST", 1)
        for loss, intercept in KINDS:
            coremargin.train(
                store, out=folder / f"{loss}{intercept}", loss=loss, C=0.5, class_weight=(1.0, 2.0),
                intercept=intercept, epsilon=0.05, cluster="threads",
            )  # fmt: skip
    return lambda loss, intercept: (folder / f"{loss}{intercept}", store)


def failures(model: Path, store: Path) -> dict[str, str]:
    """Names and messages of the false claims."""
    return {check.name: check.text for check in examine(model, store).failures}


@pytest.mark.parametrize(("loss", "intercept"), KINDS)
def test_a_true_certificate_is_confirmed(trained: Any, loss: str, intercept: bool) -> None:
    """What training claims holds, with far rows at c and band rows of their own weight."""
    model, store = trained(loss, intercept)
    result = verify(model, store)
    assert result.status == "certified"
    assert (result.rows, result.unlabelled, result.problem) == (200, 1, "soft_margin")
    assert result.claimed_lower <= result.lower <= result.upper <= result.claimed_upper
    assert [check.name for check in result.checks] == [
        "rows", "classes", "hypothesis", "status", "content", "per-sample C", "coreset", "dual weights", "value",
        "dual bound", "errors", "radius",
    ]  # fmt: skip
    texts = {check.name: check.text for check in result.checks}
    assert "over all 199 rows, 1 without label not counted" in texts["value"]
    assert "C = 0.5: a row costs 0.5 (" in texts["per-sample C"]
    if loss == "hinge":
        assert 0 < len(Model.load(model).alpha) < 150
    assert json.loads(json.dumps(result.to_dict()))["ok"] is True


def exact_value(X: np.ndarray, signs: list[int], class_c: dict[int, Fraction], model: Model) -> Fraction:
    """f(w, b) in rational arithmetic."""
    w, b = [Fraction(x) for x in model.w.tolist()], Fraction(model.b)
    value = sum((x * x for x in w), Fraction(0)) / 2
    for x, y in zip(X.tolist(), signs, strict=True):
        if y:
            slack = 1 - y * (sum((Fraction(p) * q for p, q in zip(x, w, strict=True)), Fraction(0)) + b)
            loss = max(slack, Fraction(0))
            value += class_c[y] * (loss if model.parameters["loss"] == "hinge" else loss * loss)
    return value


def exact_dual(X: np.ndarray, signs: list[int], class_c: dict[int, Fraction], model: Model) -> Fraction:
    """D in rational arithmetic; the hinge's duals as given, in the box and moved to balance."""
    reference = [Fraction(x) for x in model.numbers["reference"].tolist()]
    known = dict(zip(model.coreset_ids.tolist(), model.alpha.tolist(), strict=True))
    squared, intercept = model.parameters["loss"] == "squared_hinge", model.parameters["intercept"]
    a: dict[int, Fraction] = {}
    for i, (x, y) in enumerate(zip(X.tolist(), signs, strict=True)):
        if y:
            margin = y * (sum((Fraction(p) * q for p, q in zip(x, reference[:-1], strict=True)), Fraction(0)))
            slack = max(1 - margin - y * reference[-1], Fraction(0))
            far = class_c[y] * (slack if squared else Fraction(slack > 0))
            a[i] = min(Fraction(known[i]), class_c[y]) if i in known else far
    if squared and intercept:
        totals = {y: sum((v for i, v in a.items() if signs[i] == y), Fraction(0)) for y in (1, -1)}
        a = {i: v / totals[signs[i]] for i, v in a.items()}
    elif not squared and intercept:
        excess = sum((v * signs[i] for i, v in a.items()), Fraction(0))
        pick = max((i for i in known if signs[i] * excess > 0), key=lambda i: a[i], default=None)
        if pick is not None:
            a[pick] -= abs(excess)
    v = [sum((w * signs[i] * Fraction(float(X[i, j])) for i, w in a.items()), Fraction(0)) for j in range(X.shape[1])]
    total, curve = sum(a.values(), Fraction(0)), sum((x * x for x in v), Fraction(0)) / 2
    if squared:
        curve += sum((w * w / (4 * class_c[signs[i]]) for i, w in a.items()), Fraction(0))
        return total * total / (4 * curve)
    return total - curve


@pytest.mark.parametrize(("loss", "intercept"), KINDS)
def test_bounds_are_those_of_rational_arithmetic_rounded_outward(trained: Any, loss: str, intercept: bool) -> None:
    """The value found here is above the exact one and the dual bound below, both by less than 1e-12 of it."""
    path, store = trained(loss, intercept)
    X, labels = noisy()
    signs = [{"a": -1, "b": 1, None: 0}[label] for label in labels]
    class_c = {-1: Fraction(1, 2), 1: Fraction(1)}
    model, result = Model.load(path), verify(path, store)
    value, dual = exact_value(X, signs, class_c, model), exact_dual(X, signs, class_c, model)
    assert 0 <= Fraction(result.upper) - value <= value / 10**12
    assert 0 <= dual - Fraction(result.lower) <= dual / 10**12


def test_balanced_classes_have_prices_from_the_rows_that_are_labelled(tmp_path: Path) -> None:
    """With class_weight balanced, c is C n / (2 n_class) over labelled rows."""
    store = make_store(tmp_path / "s.zarr", *noisy())
    coremargin.train(store, out=tmp_path / "m", loss="hinge", class_weight="balanced", cluster="threads")
    labels = noisy()[1]
    text = next(check.text for check in verify(tmp_path / "m", store).checks if check.name == "per-sample C")
    assert f"a row costs {199 / 2 / labels.count('a'):.6g} ({labels.count('a')} of class 'a')" in text
    assert f"or {199 / 2 / labels.count('b'):.6g} ({labels.count('b')} of class 'b')" in text
    lie = altered(tmp_path / "m", tmp_path / "lie", {"parameters.class_weight": None})
    assert "dual weights" in failures(lie, store)


def scaled(factor: float) -> Callable[[Any], Any]:
    """Times ``factor``."""
    return lambda value: value * factor


def first(value: Any) -> Callable[[np.ndarray], np.ndarray]:
    """With another first entry."""

    def change(values: np.ndarray) -> np.ndarray:
        values[0] = value
        return values

    return change


@pytest.mark.specimens(11)
@pytest.mark.parametrize(
    ("loss", "change", "failing", "message"),
    [
        ("hinge", {"w": scaled(1.2)}, "value", "model claims at most"),
        ("squared_hinge", {"w": scaled(0.7)}, "value", "over all 199 rows"),
        ("hinge", {"b": scaled(3.0)}, "value", "model claims at most"),
        ("hinge", {"record": {"certificate.upper": scaled(1 - 1e-9)}}, "value", "model claims at most"),
        ("squared_hinge", {"record": {"certificate.upper": scaled(1 - 1e-9)}}, "value", "model claims at most"),
        ("hinge", {"record": {"certificate.lower": scaled(1 + 1e-9)}}, "dual bound", "the dual weights prove"),
        ("squared_hinge", {"record": {"certificate.lower": scaled(1 + 1e-9)}}, "dual bound", "the dual weights prove"),
        ("hinge", {"record": {"parameters.C": 0.6}}, "value", "model claims at most"),
        ("hinge", {"record": {"parameters.C": 0.4}}, "dual bound", "the dual weights prove"),
        ("hinge", {"record": {"parameters.C": 0.4}}, "dual weights", "expected at least 0 and at most 0."),
        ("squared_hinge", {"record": {"parameters.C": 0.6}}, "value", "model claims at most"),
        ("squared_hinge", {"record": {"parameters.C": 0.4}}, "dual bound", "the dual weights prove"),
        ("hinge", {"record": {"parameters.class_weight": [2.0, 1.0]}}, "dual weights", "at least 0 and at most"),
        ("squared_hinge", {"record": {"parameters.class_weight": [1.0, 1.0]}}, "dual bound", "the dual weights prove"),
        ("squared_hinge", {"record": {"parameters.class_weight": "balanced"}}, "dual bound", "the dual weights"),
        ("hinge", {"record": {"parameters.loss": "squared_hinge"}}, "coreset", "no rows with weights of their own"),
        ("squared_hinge", {"record": {"parameters.loss": "hinge"}}, "dual weights", "the classes' weights differ by"),
        ("hinge", {"record": {"parameters.intercept": False}}, "hypothesis", "expected b = 0 (no intercept)"),
        ("hinge", {"record": {"parameters.epsilon": 0.5}}, "epsilon", "parameters say 0.5, certificate says 0.05"),
        (
            "hinge",
            {"record": {"parameters.epsilon": 1e-12, "certificate.epsilon": 1e-12}},
            "status",
            "model claims to be certified, its own numbers do not say so: value",
        ),
        ("hinge", {"record": {"certificate.lower": scaled(0.5)}}, "status", "its own numbers do not say so"),
        ("hinge", {"record": {"certificate.lower": None}}, "status", "dual bound none"),
        ("hinge", {"record": {"certificate.ratio": 0.5}}, "ratio", "model claims 0.5, its own bounds give"),
        ("hinge", {"record": {"status": "not_separable"}}, "status", "status 'not_separable' of a soft margin"),
        ("hinge", {"record": {"certificate.store_digest": f"sha256:{1:064}"}}, "content", "model claims sha256:0"),
        ("hinge", {"record": {"certificate.radius": 1.0}}, "radius", "model claims 1, the longest row has norm"),
        ("hinge", {"record": {"rows": 201}}, "rows", "model claims 201 rows"),
        ("hinge", {"record": {"classes": ["b", "a"]}}, "value", "model claims at most"),
        ("hinge", {"record": {"classes": ["a", "c"]}}, "classes", "and 'c' (positive), the store has"),
        ("hinge", {"alpha": first(-0.25)}, "dual weights", "is -0.25, expected at least 0"),
        ("hinge", {"alpha": first(7.0)}, "dual weights", "is 7, expected at least 0 and at most"),
        ("hinge", {"alpha": scaled(0.5)}, "dual weights", "the classes' weights differ by"),
        ("hinge", {"alpha": np.zeros_like}, "dual bound", "the dual weights prove"),
        ("hinge", {"coreset_ids": first(500)}, "coreset", "row 500 is not in the store, which ends at row 199"),
        ("hinge", {"coreset_ids": first(-3)}, "coreset", "row -3 is not in the store"),
        ("hinge", {"coreset_ids": first(UNLABELLED)}, "coreset", "row 0 is without label in the store"),
        ("hinge", {"coreset_ids": lambda ids: np.append(ids[1], ids[1:])}, "coreset", "is named more than once"),
        ("hinge", {"coreset_y": lambda y: -y}, "coreset", "are of another class in the store"),
        ("hinge", {"reference": np.zeros_like}, "dual bound", "the dual weights prove"),
        ("squared_hinge", {"reference": np.zeros_like}, "dual bound", "the dual weights prove"),
        ("squared_hinge", {"reference": first(1e200)}, "dual bound", "the dual weights prove"),
        ("squared_hinge", {"reference": scaled(1e300)}, "dual bound", "the dual weights prove"),
        ("hinge", {"w": scaled(1e300)}, "value", "rows, 1 without label not counted: inf"),
    ],
)  # fmt: skip
def test_every_false_claim_has_its_own_message(
    trained: Any, tmp_path: Path, loss: str, change: dict[str, Any], failing: str, message: str
) -> None:
    """A lie in any field is found, and said where it is; the command ends with exit code 4."""
    model, store = trained(loss, True)
    path = altered(model, tmp_path / "m", **change)
    found = failures(path, store)
    assert message in found.get(failing, str(found))
    with pytest.raises(ClaimRefuted) as error:
        verify(path, store)
    assert error.value.exit_code == 4
    assert found[failing] in str(error.value)


def test_a_hypothesis_through_the_origin_has_no_intercept(trained: Any, tmp_path: Path) -> None:
    """Without intercept b must be 0, and duals that need not be in balance prove nothing with one."""
    for loss in ("hinge", "squared_hinge"):
        model, store = trained(loss, False)
        lie = altered(model, tmp_path / f"{loss}1", b=np.array([1e-6]))
        assert failures(lie, store)["hypothesis"].endswith("expected b = 0 (no intercept)")
        lie = altered(model, tmp_path / f"{loss}2", {"parameters.intercept": True})
        assert "dual bound" in failures(lie, store)


def test_weaker_claims_are_true_as_well(trained: Any, tmp_path: Path) -> None:
    """Bounds further apart are confirmed when they claim no more than they prove; none at all claim nothing."""
    model, store = trained("hinge", True)
    value = json.loads((model / "model.json").read_text())["certificate"]["upper"]
    weaker = {"status": "stopped", "certificate.lower": 1.0, "certificate.ratio": lambda _: 1.0 / value}
    assert verify(altered(model, tmp_path / "1", weaker), store).status == "stopped"
    nothing = {"status": "stopped", "certificate.lower": None, "certificate.upper": None, "certificate.ratio": None}
    result = verify(altered(model, tmp_path / "2", nothing), store)
    assert (result.claimed_lower, result.claimed_upper) == (None, None)
    trivial = {"status": "stopped", "certificate.lower": 0.0, "certificate.ratio": 0.0}
    path = altered(model, tmp_path / "3", trivial, alpha=np.zeros_like, reference=np.zeros_like)
    assert verify(path, store).claimed_lower == 0.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parameters.C", 0), ("parameters.C", -1.0), ("parameters.C", None), ("parameters.C", True),
        ("parameters.loss", "log"), ("parameters.loss", None), ("parameters.class_weight", [1.0]),
        ("parameters.class_weight", [1.0, 0.0]), ("parameters.class_weight", "even"),
        ("parameters.class_weight", 2.0),
    ],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_unreadable(trained: Any, tmp_path: Path, key: str, value: Any) -> None:
    """Loss, C and class weight of another kind are damage, for the verifier and for those who load the model."""
    model, store = trained("hinge", True)
    path = altered(model, tmp_path / "m", {key: value})
    for use in (lambda: verify(path, store), lambda: Model.load(path)):
        with pytest.raises(DataError, match=key):
            use()


def test_kind_and_parameters_go_with_the_problem(trained: Any, tmp_path: Path) -> None:
    """A record is refused whose certificate is of another kind than its problem, or that lacks a parameter."""
    model, store = trained("hinge", True)
    with pytest.raises(DataError, match="expected a certificate of kind duality_gap, found 'margin'"):
        Model.load(altered(model, tmp_path / "1", {"certificate.kind": "margin"}))
    path = altered(model, tmp_path / "2", {"parameters": {"epsilon": 0.05, "intercept": True, "loss": "hinge", "C": 1}})
    for use in (lambda: verify(path, store), lambda: Model.load(path)):
        with pytest.raises(DataError, match="parameters: key 'strategy' is missing"):
            use()


def test_arrays_that_are_missing_or_of_another_shape_are_named(trained: Any, tmp_path: Path) -> None:
    """The reference belongs to the proof: without it, or with one of other features, nothing can be checked."""
    model, store = trained("squared_hinge", True)
    with pytest.raises(DataError, match=r"reference: expected shape \(4\) as the record says, found \(3,\)"):
        verify(altered(model, tmp_path / "1", reference=np.zeros(3)), store)
    with pytest.raises(DataError, match="reference: expected finite numbers"):
        verify(altered(model, tmp_path / "2", reference=np.full(4, np.nan)), store)
    path = altered(model, tmp_path / "3")
    with np.load(path / "arrays.npz") as found:
        rest = {name: values for name, values in found.items() if name != "reference"}
    np.savez(path / "arrays.npz", **rest)
    with pytest.raises(DataError, match="reference"):
        verify(path, store)


def test_another_store_is_refused(trained: Any, tmp_path: Path) -> None:
    """Rows appended, a label turned: the content differs, and what no longer holds is said."""
    model, store = trained("hinge", True)
    grown = tmp_path / "grown.zarr"
    shutil.copytree(store, grown)
    with StoreWriter.append(grown) as writer:
        writer.write(np.full((50, 3), -5, dtype=np.float32), ["b"] * 50)
    found = failures(model, grown)
    assert "rows were appended after training" in found["rows"]
    assert {"content", "value"} <= set(found)
    X, labels = noisy()
    near_margin = int(Model.load(model).coreset_ids[0])
    labels[near_margin] = {"a": "b", "b": "a"}[labels[near_margin]]
    other_class = make_store(tmp_path / "turned.zarr", X, labels)
    found = failures(model, other_class)
    assert f"row {near_margin} is of another class in the store" in found["coreset"]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_threads_and_slabs_change_nothing_that_counts(trained: Any, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of threads gives the same bits; other slabs the same claims, and bounds equal to rounding."""
    model, store = trained(loss, True)
    one, three = verify(model, store, threads=1), verify(model, store, threads=3)
    assert one == three
    monkeypatch.setattr(soft_margin, "SLAB_ROWS", 1)
    rows = verify(model, store)
    assert rows.ok
    assert (rows.lower, rows.upper) == pytest.approx((one.lower, one.upper), rel=1e-13)


def test_the_command_says_it_in_terms_of_the_value(trained: Any, tmp_path: Path) -> None:
    """The checklist speaks of the value and the dual bound; exit codes are 0, 3 for damage, 4 for a false claim."""
    model, store = trained("hinge", True)
    run = CliRunner().invoke
    good = run(main, ["verify", str(model), str(store), "--quiet"])
    assert good.exit_code == 0
    assert "verified: no hypothesis has a value below (1 - 0.05) of this one's" in good.output
    assert "no hypothesis has a value below" in good.output
    assert "ledger" not in good.output
    told = json.loads(run(main, ["verify", str(model), str(store), "--json"]).output)
    assert (told["ok"], told["problem"]) == (True, "soft_margin")
    shown = run(main, ["show", str(model)]).output
    assert "loss           hinge, C 0.5, class weight (1.0, 2.0)" in shown
    assert f"at most {Model.load(model).certificate.upper!r} over all rows" in shown
    strict = run(main, ["verify", str(model), str(store), "--quiet", "--epsilon", "1e-15"])
    assert strict.exit_code == 4
    lie = altered(model, tmp_path / "m", {"parameters.C": 1.0})
    bad = run(main, ["verify", str(lie), str(store), "--quiet"])
    assert bad.exit_code == 4
    assert "FALSE  value" in bad.output
    damaged = tmp_path / "s.zarr"
    shutil.copytree(store, damaged)
    (damaged / "X" / "c.3.0").write_bytes(b"nothing")
    assert run(main, ["verify", str(model), str(damaged), "--quiet"]).exit_code == 3


def hand_made(path: Path, store: Path, cost: float, intercept: bool, **arrays: np.ndarray) -> Path:
    """A hinge model w = 0, b = 1 that claims no bounds, with the duals given."""
    opened = Store.open(store)
    d, m = opened.features, len(arrays["alpha"])
    record = {
        "format": "coremargin-model", "version": 1, "problem": "soft_margin", "status": "stopped",
        "parameters": {
            "epsilon": 0.1, "intercept": intercept, "strategy": "fast", "loss": "hinge", "C": cost,
            "class_weight": None,
        },
        "classes": ["a", "b"], "features": d, "rows": opened.rows, "dtype": opened.dtype.name,
        "certificate": {
            "kind": "duality_gap", "lower": 1e-9, "upper": None, "ratio": None, "epsilon": 0.1, "coreset_rows": m,
            "store_digest": opened.digest, "radius": float(opened.scalars().max_norm.max()),
        },
        "software": {},
    }  # fmt: skip
    model = Model(record, {"w": np.zeros(d), "b": np.array([float(intercept)]), **arrays}, np.zeros((m, 0)))
    model.save(path, {}, [])
    return path


@pytest.mark.parametrize(
    ("few", "many", "wrong"),
    [(1.0, 1.0, "differ by 47"), (5.0, 15 / 97, "is 2.5, expected at least 0 and at most 0.5"), (-1.0, 1.0, "is -0.5")],
    ids=["out of balance", "above c", "below 0"],
)
def test_no_duals_prove_more_than_is_true(tmp_path: Path, few: float, many: float, wrong: str) -> None:
    """All rows at the origin, 3 of one class and 97 of the other: no value is below 6 c, whatever the duals say.

    few and many are the duals of the two classes in units of c. A sum of duals of 100 c, or of 30 c in balance, is
    brought down to what feasible ones may prove.
    """
    store = make_store(tmp_path / "s.zarr", np.zeros((100, 2), np.float32), ["a"] * 3 + ["b"] * 97)
    signs = np.repeat([-1, 1], [3, 97])
    alpha = 0.5 * np.where(signs < 0, few, many)
    path = hand_made(
        tmp_path / "m", store, 0.5, True, alpha=alpha, coreset_ids=np.arange(100), coreset_y=signs,
        reference=np.array([0.0, 0.0, 1.0]),
    )  # fmt: skip
    result = examine(path, store)
    assert result.upper == pytest.approx(3.0)
    assert result.lower <= 3.0
    assert wrong in {check.name: check.text for check in result.failures}["dual weights"]


def near_ties(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Rows whose margin at (w, b) is 1 up to the last bits, on both sides, and others that are not."""
    rng = np.random.default_rng(seed)
    w, b = np.array([0.1, 0.7, -0.3, 0.9]), 0.2
    X = np.round(rng.normal(size=(rows, 4)) * 8) / 8
    X[:, 3] = (1 - b - X[:, :3] @ w[:3]) / w[3]
    X[:, 3] += rng.integers(-2, 3, size=rows) * np.spacing(X[:, 3])
    return X, w, b


def test_dots_of_the_trainer_are_rounded_once() -> None:
    """Rows at the margin get the nearest float64 to their decision value, as rational arithmetic has it."""
    X, w, b = near_ties(50, 1)
    for row, value in zip(X.tolist(), exact_decisions(X, w, b).tolist(), strict=True):
        exact = sum((Fraction(p) * Fraction(q) for p, q in zip(row, w.tolist(), strict=True)), Fraction(b))
        assert value == float(exact)


def test_trainer_and_verifier_find_the_same_sides() -> None:
    """Rows at the margin up to the last bit are on the side of their margin rounded once, wherever they lie."""
    X, w, b = near_ties(400, 2)
    exact = exact_decisions(X, w, b)
    assert 0 < np.count_nonzero(exact < 1) < np.count_nonzero(exact <= 1) < 400
    probe = NearMarginProbe(
        base=np.append(w, b)[:, None], points=np.ones(1), codes=(0, 1), class_c=np.ones(2), loss=LOSSES["hinge"],
        keep=0, cached=np.zeros(0, np.int64), curve=False, low=0.0, high=2.0, bins=4, chunk_rows=400, dtype="float64",
        sparse=False,
    )  # fmt: skip
    for shift in range(5):
        part = X[shift:]
        source = ArraySource(part, np.zeros(len(part), int), classes=(0, 1), chunk_rows=400)
        answer = probe(source, Block(0, (0,)))
        assert answer.far_c[0] == np.count_nonzero(exact[shift:] < 1)


def test_the_verifier_puts_rows_at_the_margin_on_the_same_side(tmp_path: Path) -> None:
    """With no row in the band, the dual bound is that of the rows below the margin, rounded once, and of no other."""
    X, w, b = near_ties(400, 3)
    X[0] = -100.0
    store = make_store(tmp_path / "s.zarr", X, ["a"] + ["b"] * 399, chunk_rows=7)
    losing = np.flatnonzero(exact_decisions(X[1:], w, b) < 1) + 1
    cost = 1e-4
    nothing = {"alpha": np.zeros(0), "coreset_ids": np.zeros(0, np.int64), "coreset_y": np.zeros(0, np.int8)}
    path = hand_made(tmp_path / "m", store, cost, False, reference=np.append(w, b), **nothing)
    v = cost * X[losing].sum(axis=0)
    assert 100 < len(losing) < 300
    assert verify(path, store).lower == pytest.approx(cost * len(losing) - 0.5 * v @ v, rel=1e-11)


def test_a_dual_with_many_rows_at_the_margin_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few distinct rows, thousands of each: most rows at the margin are not in the band, and the claims still hold."""
    monkeypatch.setattr(near_margin, "NEAR_BYTES_LEAST", 1)
    rng = np.random.default_rng(5)
    kinds = rng.normal(size=(7, 3)).round(1)
    kind = rng.integers(0, 7, size=4000)
    labels = ["b" if one else "a" for one in rng.random(4000) < np.linspace(0.05, 0.95, 7)[kind]]
    store = make_store(tmp_path / "s.zarr", kinds[kind].astype(np.float32), labels, chunk_rows=500)
    for C in (0.01, 1.0):
        coremargin.train(store, out=tmp_path / "m", loss="hinge", C=C, cluster="threads", overwrite=True)
        assert verify(tmp_path / "m", store).ok


@pytest.mark.parametrize("seed", range(12))
def test_nothing_honest_is_refuted(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features in odd units, far from the origin, in chunks of any size: what the trainer claims is confirmed."""
    rng = np.random.default_rng(seed)
    X, labels = noisy(120, 5, seed)
    X = X.astype(np.float64) * 10.0 ** rng.integers(-3, 5, size=5) + rng.normal(size=5) * 10.0 ** rng.integers(0, 4)
    monkeypatch.setattr(near_margin, "NEAR_BYTES_LEAST", int(rng.choice([1, 1 << 20])))
    store = make_store(
        tmp_path / "s.zarr", X.astype(rng.choice(["float32", "float64"])), labels, int(rng.choice([3, 60]))
    )
    model = coremargin.train(
        store, out=tmp_path / "m", loss=str(rng.choice(["hinge", "squared_hinge"])),
        C=float(10.0 ** rng.integers(-3, 3)), intercept=bool(rng.random() < 0.7),
        class_weight=[None, "balanced", (0.2, 3.0)][rng.integers(3)], cluster="threads",
    )  # fmt: skip
    assert verify(tmp_path / "m", store).status == model.status == "certified"


@pytest.mark.parametrize("intercept", [True, False])
def test_a_few_huge_values_do_not_cost_the_proof(tmp_path: Path, intercept: bool) -> None:
    """A feature with a few values of a billion makes rows long, but sums along it are small: certified, confirmed."""
    X, labels = noisy(4000, 5, 7)
    X[:, 0] *= np.float32(100)
    X[[5, 700, 3000], 0] = 7e8, -3e8, 5e8
    store = make_store(tmp_path / "s.zarr", X, labels, chunk_rows=500)
    model = coremargin.train(
        store, out=tmp_path / "m", loss="squared_hinge", C=0.001, intercept=intercept, epsilon=1e-6, cluster="threads"
    )
    assert verify(tmp_path / "m", store).status == model.status == "certified"


def peers(X: np.ndarray, y: np.ndarray, cost: float, loss: str) -> tuple[np.ndarray, float]:
    """(w, b) of scikit-learn at a tight tolerance: SVC for the hinge, LinearSVC without intercept for its square."""
    if loss == "hinge":
        fitted = svm.SVC(kernel="linear", C=cost, tol=1e-8).fit(X, y)
        return fitted.coef_[0], float(fitted.intercept_[0])
    fitted = svm.LinearSVC(
        C=cost, loss="squared_hinge", dual=False, tol=1e-10, fit_intercept=False, max_iter=100_000
    ).fit(X, y)
    return fitted.coef_[0], 0.0


def value_of(X: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, cost: float, loss: str) -> float:
    """f(w, b)."""
    slack = np.maximum(0.0, 1.0 - y * (X @ w + b))
    return float(0.5 * w @ w + cost * (slack if loss == "hinge" else slack**2).sum())


def real(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Real rows and labels -1 and 1, standardised."""
    if name == "breast_cancer":
        X, target = datasets.load_breast_cancer(return_X_y=True)
    else:
        path = next(DATA.glob(f"*/{name}.tsv.gz"), None)
        if path is None:
            pytest.skip("needs the real data beside the clone")
        with gzip.open(path, "rt") as lines:
            column = lines.readline().rstrip("\n").split("\t").index("target")
            table = np.loadtxt(lines, delimiter="\t")
        X, target = np.delete(table, column, 1), table[:, column] == 1
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X.astype(np.float32), np.where(target, 1, -1)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("name", ["breast_cancer", "heart_statlog", "spambase"])
def test_certificates_hold_against_scikit_learn(tmp_path: Path, name: str, loss: str) -> None:
    """No other solver gets below the dual bound, and ours is no worse than the gap claimed above theirs."""
    X, y = real(name)
    store = make_store(tmp_path / "s.zarr", X, y.tolist(), chunk_rows=200)
    model = coremargin.train(
        store, out=tmp_path / "m", loss=loss, C=0.1, intercept=loss == "hinge", epsilon=1e-5, cluster="threads"
    )
    result = verify(tmp_path / "m", store)
    rows = X.astype(np.float64)
    theirs = value_of(rows, y, *peers(rows, y, 0.1, loss), 0.1, loss)
    ours = value_of(rows, y, model.w, model.b, 0.1, loss)
    assert ours == pytest.approx(result.upper, rel=1e-10)
    assert result.lower <= theirs * (1 + 1e-12)
    assert ours <= theirs * (1 + 1e-5)


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("loss", "optimum"), [("squared_hinge", 1376.236), ("hinge", 1149.541)])
def test_a9a_is_certified_at_its_known_optimum(tmp_path: Path, loss: str, optimum: float) -> None:
    """a9a at C = 0.1 has the value that others found, between the two verified bounds."""
    from sklearn.datasets import load_svmlight_file

    path = DATA / "libsvm" / "a9a.gz"
    if not path.exists():
        pytest.skip("needs the real data beside the clone")
    with gzip.open(path) as file:
        X, y = load_svmlight_file(file, n_features=123)
    store = make_store(tmp_path / "s.zarr", X.toarray().astype(np.float32), y.astype(int).tolist(), chunk_rows=4096)
    coremargin.train(store, out=tmp_path / "m", loss=loss, C=0.1, cluster="threads")
    result = verify(tmp_path / "m", store)
    assert result.lower - 1e-3 <= optimum <= result.upper + 1e-3
    assert result.upper - result.lower <= 1e-3 * result.upper


@pytest.mark.parametrize(("seed", "rows", "chunk"), [(26, 8000, 666), (5, 3000, 250)])
def test_rows_about_as_long_as_what_counts_as_long(tmp_path: Path, seed: int, rows: int, chunk: int) -> None:
    """Features in odd units, some rows just longer than 1024 and others not: what training claims is confirmed."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3)) * np.array([260.0, 10.0, 1e-2])
    X *= 1040.0 / np.sqrt((X * X).sum(axis=1)).max()
    y = np.where(rng.random(rows) < 0.3, -1, 1) * np.where(X[:, 0] > 0, 1, -1)
    store = make_store(tmp_path / "s.zarr", X.astype(np.float32), y.tolist(), chunk_rows=chunk)
    for class_weight in (None, "balanced"):
        coremargin.train(
            store, out=tmp_path / "m", loss="squared_hinge", C=1.0, class_weight=class_weight, epsilon=1e-2,
            sample=0.1, cluster="threads", overwrite=True,
        )  # fmt: skip
        assert verify(tmp_path / "m", store).ok
