"""Training on rows that are mapped as they are read: scikit-learn's transforms judge, verify agrees, forgeries fail."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler
from sklearn.svm import SVC

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.mapped import Mapped, mapped
from coremargin.data.transformed import fitted
from coremargin.errors import ClaimRefuted, CoremarginError, DataError
from coremargin.formats.map_asked import MapAsked
from coremargin.maths.feature_map import Fourier, Polynomial
from coremargin.maths.feature_map import Nystroem as NystroemMap
from coremargin.models.model import Model
from coremargin.problems.common import map_rounding
from coremargin.verify import verify
from coremargin.verify.feature_map import RowMap
from model_kit import altered

if TYPE_CHECKING:
    from pathlib import Path

MAPS: list[dict[str, Any]] = [
    {"map": "nystroem", "components": 30, "gamma": 1.0},
    {"map": "fourier", "components": 40, "scaling": "standard"},
    {"map": "polynomial", "degree": 3, "coef0": 1.0},
    {"map": "polynomial", "degree": 4, "coef0": 1.0, "components": 12},
]
PROBLEMS: list[dict[str, Any]] = [
    {}, {"loss": "hinge", "C": [0.1, 10.0]}, {"loss": "squared_hinge", "folds": 3}, {"outliers": 2, "epsilon": 0.1},
    {"classes": "crammer-singer", "loss": "hinge"},
]  # fmt: skip


def ring(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 2) float32 in a disc and a ring around it, and which they are in."""
    rng = np.random.default_rng(0)
    inside = np.arange(n) % 2
    angle, radius = rng.uniform(0, 2 * np.pi, n), np.where(inside, rng.uniform(0, 1, n), rng.uniform(1.6, 2.4, n))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]).astype(np.float32), inside


def as_sklearn(made: Any, X: np.ndarray) -> np.ndarray:
    """Rows mapped by scikit-learn's own transform, with the numbers of a map."""
    if isinstance(made, NystroemMap):
        other = Nystroem(gamma=made.gamma, n_components=made.width)
        other.components_, other.normalization_ = made.landmarks, made.normalization
        other.component_indices_, other._n_features_out = None, made.width
    elif isinstance(made, Fourier):
        other = RBFSampler(n_components=made.width)
        other.random_weights_, other.random_offset_ = made.weights, made.offsets
    else:
        other = PolynomialCountSketch(gamma=made.gamma, degree=made.degree, coef0=made.coef0, n_components=made.width)
        other.indexHash_, other.bitHash_ = made.index, made.sign
    other.n_features_in_ = X.shape[1]
    return np.asarray(other.transform(X.astype(np.float64)))


@pytest.mark.parametrize("asked", MAPS)
def test_mapped_rows_are_those_of_scikit_learn(asked: dict[str, Any]) -> None:
    """Its transform, or for exact polynomials the kernel, and verify's own evaluation give the same rows."""
    X, y = ring()
    plain = {name: value for name, value in asked.items() if name != "scaling"}
    made = fitted(ArraySource(X, y), MapAsked(**{"components": None, "gamma": "scale", **plain}))
    assert ("index" in made.numbers()) == (asked["map"] == "polynomial" and "components" in asked)
    found = made.of_rows(X)
    if isinstance(made, Polynomial) and made.index is None:
        exact = (made.gamma * X.astype(float) @ X.T.astype(float) + made.coef0) ** made.degree
        np.testing.assert_allclose(found @ found.T, exact, rtol=1e-12, atol=1e-12)
    else:
        np.testing.assert_allclose(found, as_sklearn(made, X), atol=1e-8)
    numbers = made.numbers()
    shape = getattr(made, "degree", 0), getattr(made, "coef0", 0.0), "index" in numbers
    other = RowMap(made.KIND, made.features, made.width, numbers, *shape)
    np.testing.assert_allclose(other.rows(X), found, atol=1e-9)
    np.testing.assert_allclose(made.of_rows(csr_array(X)), found, atol=1e-9)


@pytest.mark.parametrize("asked", MAPS)
def test_a_mapped_row_depends_on_no_other(asked: dict[str, Any]) -> None:
    """Rows by number and rows of chunks of any size have the same bits."""
    from coremargin.blas import one_blas_thread

    X, y = ring()
    plain = {name: value for name, value in asked.items() if name != "scaling"}
    made = fitted(ArraySource(X, y), MapAsked(**{"components": None, "gamma": 1.0, **plain}))
    source = mapped(ArraySource(X, y, chunk_rows=61), made)
    assert isinstance(source, Mapped)
    with one_blas_thread():
        rows = np.concatenate([source.read(chunk)[0] for chunk in range(source.chunks)])
        ids = np.array([399, 0, 60, 61, 200])
        assert np.array_equal(source.rows_at(ids)[0], rows[ids])
        assert np.array_equal(made.of_rows(X), rows)


@pytest.mark.slow
@pytest.mark.parametrize("asked", MAPS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_has_maps(tmp_path: Path, asked: dict[str, Any], problem: dict[str, Any]) -> None:
    """It is certified, verify agrees, and what is saved decides as what was trained."""
    X, y = ring()
    coremargin.ingest(X, tmp_path / "s", labels=y)
    model = coremargin.train(tmp_path / "s", out=tmp_path / "m", **asked, **problem)
    assert model.status == "certified"
    verify(tmp_path / "m", tmp_path / "s")
    if not isinstance(problem.get("C"), list):
        loaded = coremargin.load(tmp_path / "m")
        assert (loaded.predict(X) == y).mean() > 0.97
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


def test_value_is_that_of_mapped_rows(tmp_path: Path) -> None:
    """The certified value of a mapped hinge is what SVC finds on rows that are mapped before."""
    X, y = ring(200)
    model = coremargin.train(X, y, map="nystroem", components=20, gamma=1.0, loss="hinge", C=1.0, epsilon=1e-6)
    assert isinstance(model, Model)
    assert model.row_map is not None
    other = SVC(kernel="linear", C=1.0, tol=1e-9).fit(as_sklearn(model.row_map, X), y)
    signs = np.where(y == 1, 1, -1)
    slack = np.maximum(0, 1 - signs * other.decision_function(as_sklearn(model.row_map, X)))
    value = 0.5 * float((other.coef_**2).sum()) + float(slack.sum())
    assert model.certificate.upper == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(
    "asked",
    [
        {"map": "nystroem", "components": 40, "gamma": 1e-100}, {"map": "nystroem", "components": 40, "gamma": 1e12},
        {"map": "nystroem", "components": 40, "gamma": 1e100}, {"map": "polynomial", "degree": 2, "gamma": 1e100},
        {"map": "polynomial", "degree": 100, "gamma": 0.01, "coef0": 1.0},
    ],
)  # fmt: skip
def test_certificates_hold_of_any_gamma(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Kernels of almost no and of all distances: what products of lengths would cancel is claimed of no row."""
    X, y = ring(120)
    coremargin.ingest(X, tmp_path / "s", labels=y)
    coremargin.train(tmp_path / "s", out=tmp_path / "m", loss="hinge", **asked)
    verify(tmp_path / "m", tmp_path / "s")


def test_a_small_store_may_be_mapped_widely(tmp_path: Path) -> None:
    """What a chunk would take is that of its rows, however many more a chunk of the store could have."""
    X, y = ring(60)
    coremargin.ingest(X, tmp_path / "s", labels=y)
    model = coremargin.train(tmp_path / "s", out=tmp_path / "m", map="fourier", components=5000, loss="hinge")
    assert model.status == "certified"


def test_phases_that_rounding_decides_are_refused() -> None:
    """Of random frequencies so high that two who multiply differ in the cosine."""
    X, y = ring(60)
    with pytest.raises(CoremarginError, match="rounding would decide"):
        coremargin.train(X, y, map="fourier", components=5, gamma=1e20, loss="hinge")


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store s and a hard margin m of mapped rows."""
    place = tmp_path_factory.mktemp("maps")
    X, y = ring()
    coremargin.ingest(X, place / "s", labels=y)
    coremargin.train(place / "s", out=place / "m", map="nystroem", components=20, gamma=1.0)
    return place


def test_forged_bounds_and_maps_are_refuted(hard: Path, tmp_path: Path) -> None:
    """Bounds off by a ten-millionth to either side, another map, a wider radius: false, each by itself."""
    model = Model.load(hard / "m")
    claims, arrays = model.certificate, model.numbers
    assert claims.lower is not None
    assert claims.upper is not None
    moved = arrays["map_landmarks"].copy()
    moved[0] += 1e-3
    forged: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"certificate.lower": claims.lower * (1 + 1e-7), "certificate.upper": claims.upper * (1 + 1e-7)}, {}),
        ({"certificate.lower": claims.lower * (1 - 1e-7), "certificate.upper": claims.upper * (1 - 1e-7)}, {}),
        ({}, {"map_landmarks": moved}),
        ({}, {"map_normalization": 2 * arrays["map_normalization"]}),
        ({"certificate.radius": 2.0}, {}),
    ]
    for number, (record, changed) in enumerate(forged):
        place = altered(hard / "m", tmp_path / str(number), record, **changed)
        with pytest.raises(ClaimRefuted):
            verify(place, hard / "s")


def test_a_map_that_loses_all_digits_does_not_make_a_margin_nothing(hard: Path, tmp_path: Path) -> None:
    """Numbers that cancel but for rounding, which is larger than any margin: that nothing separates is refuted."""
    arrays, claims = Model.load(hard / "m").numbers, Model.load(hard / "m").certificate
    landmarks = arrays["map_landmarks"].copy()
    landmarks[1] = landmarks[0]
    twins = np.zeros(20)
    twins[:2] = 1.0, -1.0
    numbers = {"map_landmarks": landmarks, "map_normalization": 0.1 * np.eye(20) + 1e13 * np.outer(twins, twins)}
    assert claims.radius < 1.1
    said = {
        "status": "not_separable", "certificate.kind": "not_separable", "certificate.lower": None,
        "certificate.upper": 10.0, "certificate.ratio": None,
    }  # fmt: skip
    with pytest.raises(ClaimRefuted, match="1 claim is false.*\n- overlap"):
        verify(altered(hard / "m", tmp_path / "f", said, **numbers), hard / "s")


def exact_margins(model: Model) -> np.ndarray:
    """Margins of the rows of ``ring`` in extended precision, by the definition of the model's map: of length ||w||."""
    X, y = ring()
    rows, numbers = X.astype(np.longdouble), {name: np.asarray(v, np.longdouble) for name, v in model.numbers.items()}
    if "map_landmarks" in numbers:
        apart = ((rows[:, None, :] - numbers["map_landmarks"][None]) ** 2).sum(axis=2)
        mapped_rows = np.exp(-numbers["map_gamma"][0] * apart) @ numbers["map_normalization"].T
    else:
        phases = rows @ numbers["map_weights"] + numbers["map_offsets"]
        mapped_rows = np.sqrt(np.longdouble(2) / phases.shape[1]) * np.cos(phases)
    return np.asarray(np.where(y == 1, 1, -1) * (mapped_rows @ numbers["w"] + np.longdouble(model.b)))


def test_margins_hold_of_the_exact_map_and_no_more(hard: Path, tmp_path: Path) -> None:
    """What is claimed is true in extended precision, and what is just not true there is refuted."""
    model = Model.load(hard / "m")
    found = float((exact_margins(model) / np.sqrt((model.w.astype(np.longdouble) ** 2).sum())).min())
    claims = model.certificate
    assert claims.lower is not None
    assert claims.upper is not None
    assert found - 1e-9 < claims.lower <= found
    beyond = found * (1 + 1e-14)
    said = {"certificate.lower": beyond, "certificate.ratio": beyond / claims.upper}
    with pytest.raises(ClaimRefuted, match="lower bound"):
        verify(altered(hard / "m", tmp_path / "f", said), hard / "s")


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_values_hold_of_the_exact_map_and_no_more(hard: Path, tmp_path: Path, loss: str) -> None:
    """The same of a value, of random frequencies."""
    said = {"map": "fourier", "components": 16, "gamma": 1.0, "loss": loss, "epsilon": 1e-6}
    coremargin.train(hard / "s", out=tmp_path / "m", **said)
    verify(tmp_path / "m", hard / "s")
    model = Model.load(tmp_path / "m")
    lost = np.maximum(0, 1 - exact_margins(model))
    found = (model.w.astype(np.longdouble) ** 2).sum() / 2 + (lost if loss == "hinge" else lost**2).sum()
    claims, beyond = model.certificate, float(found) * (1 - 1e-14)
    assert claims.lower is not None
    assert claims.upper is not None
    assert float(found) <= claims.upper <= float(found) * (1 + 1e-5)
    forged = {"certificate.upper": beyond, "certificate.ratio": min(1.0, claims.lower / beyond)}
    with pytest.raises(ClaimRefuted, match="value"):
        verify(altered(tmp_path / "m", tmp_path / "f", forged), hard / "s")
    turned = {"map_offsets": model.numbers["map_offsets"] + 2e9 * np.pi}  # about the same map, were it not rounded
    with pytest.raises(ClaimRefuted, match="rounding may move"):
        verify(altered(tmp_path / "m", tmp_path / "g", {}, **turned), hard / "s")


def test_gamma_is_the_one_that_it_is_said_to_be(hard: Path, tmp_path: Path) -> None:
    """The scale of the store's rows is counted again."""
    with pytest.raises(ClaimRefuted, match="model claims scale"):
        verify(altered(hard / "m", tmp_path / "f", {"parameters.gamma": "scale"}), hard / "s")


@pytest.fixture(scope="module")
def sketch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store s and a squared hinge m of rows that a sketch of a polynomial maps."""
    place = tmp_path_factory.mktemp("sketch")
    X, y = ring(200)
    coremargin.ingest(X, place / "s", labels=y)
    said = {"map": "polynomial", "degree": 4, "coef0": 1.0, "components": 12}
    coremargin.train(place / "s", out=place / "m", loss="squared_hinge", **said)
    return place


def test_forged_polynomials_are_refuted(sketch: Path, tmp_path: Path) -> None:
    """Another constant, and one sign turned: bounds do not hold of rows that are mapped so."""
    verify(sketch / "m", sketch / "s")
    turned = Model.load(sketch / "m").numbers["map_sign"].copy()
    turned[0, 0] *= -1
    forged: list[tuple[dict[str, Any], dict[str, Any]]] = [({"parameters.coef0": 2.0}, {}), ({}, {"map_sign": turned})]
    for number, (record, changed) in enumerate(forged):
        place = altered(sketch / "m", tmp_path / str(number), record, **changed)
        with pytest.raises(ClaimRefuted):
            verify(place, sketch / "s")


def test_broken_sketches_are_refused(sketch: Path, tmp_path: Path) -> None:
    """Places beyond the components, signs that are none, another degree: no verdict, no prediction."""
    arrays = Model.load(sketch / "m").numbers
    broken: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"map_index": arrays["map_index"] + 12}), ({}, {"map_index": arrays["map_index"] - 12}),
        ({}, {"map_sign": 0 * arrays["map_sign"]}), ({"parameters.degree": 5}, {}),
    ]  # fmt: skip
    for number, (record, changed) in enumerate(broken):
        place = altered(sketch / "m", tmp_path / str(number), record, **changed)
        for look in (lambda: verify(place, sketch / "s"), lambda: Model.load(place)):  # noqa: B023 - called at once
            with pytest.raises(DataError):
                look()


def test_broken_maps_are_refused(hard: Path, tmp_path: Path) -> None:
    """Arrays of another shape, NaN, huge numbers, and maps that are not known: no verdict, no prediction."""
    arrays = Model.load(hard / "m").numbers
    huge, missing = np.full_like(arrays["map_landmarks"], 1e80), np.full_like(arrays["map_landmarks"], np.nan)
    broken: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"map_landmarks": arrays["map_landmarks"][:-1]}), ({}, {"map_landmarks": missing}),
        ({}, {"map_landmarks": huge}), ({}, {"map_gamma": np.array([-1.0])}), ({"parameters.map": "spline"}, {}),
        ({"parameters.components": 19}, {}), ({"parameters.gamma": 0.5}, {}),
    ]  # fmt: skip
    for number, (record, changed) in enumerate(broken):
        place = altered(hard / "m", tmp_path / str(number), record, **changed)
        for look in (lambda: verify(place, hard / "s"), lambda: Model.load(place)):  # noqa: B023 - called at once
            with pytest.raises(DataError):
                look()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"components": 5}, "only a map has it"), ({"map": "nystroem"}, "components: expected"),
        ({"map": "nystroem", "components": 5, "gamma": 0.0}, "gamma: expected scale, or a number above 0"),
        ({"map": "nystroem", "components": 5, "gamma": 1e-101}, "a number above 0, from 1e-100 to"),
        ({"map": "nystroem", "components": 5, "gamma": float("nan")}, "gamma: expected scale, or a number above 0"),
        ({"map": "nystroem", "components": 0}, "components"), ({"map": "nystroem", "components": 5000}, "at most the"),
        ({"map": "nystroem", "components": 5, "degree": 2}, "only a polynomial map"),
        ({"map": "polynomial", "degree": 0}, "degree"), ({"map": "polynomial", "degree": 1.5}, "degree"),
        ({"map": "polynomial", "coef0": -1.0}, "coef0: expected"),
        ({"map": "fourier", "kernel": "rbf"}, "cannot be combined with kernel"),
        ({"map": "nystroem", "components": 5, "gamma": [1.0, 0.1], "outliers": 1}, "gamma: expected one"),
        ({"map": "nystroem", "components": 5, "gamma": [1.0, 1.0]}, "gamma: expected different numbers"),
        ({"map": "nystroem", "components": 5, "gamma": [1.0, 1e101]}, "gamma: expected scale, or a number above 0"),
        ({"gamma": [1.0, 0.1]}, "only a map has it"),
        ({"map": "nystroem", "components": 5, "scaling": "rownorm"}, "gamma 'scale'"),
    ],
)  # fmt: skip
def test_what_is_no_map_is_refused(said: dict[str, Any], message: str) -> None:
    """Each with what is wrong with it."""
    X, y = ring(60)
    with pytest.raises(CoremarginError, match=message):
        coremargin.train(X, y, **said)


def test_constant_features_have_no_scale() -> None:
    """Numbers that are all equal are named, and what to do about them."""
    with pytest.raises(CoremarginError, match="all numbers are equal"):
        coremargin.train(np.ones((20, 3)), np.arange(20) % 2, map="fourier", components=5, loss="hinge")


@pytest.mark.parametrize("size", [1e-60, 1e60])
@pytest.mark.parametrize("asked", MAPS)
def test_a_scale_that_no_model_may_have_is_refused_before_training(asked: dict[str, Any], size: float) -> None:
    """Of numbers so small or so large that gamma is beyond what is checked: what to do about it is said."""
    said = {"gamma": "scale", **{name: value for name, value in asked.items() if name not in ("scaling", "gamma")}}
    with pytest.raises(DataError, match="scale the rows"):
        coremargin.train(ring(40)[0].astype(float) * size, ring(40)[1], loss="hinge", **said)


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_same_model(hard: Path, tmp_path: Path) -> None:
    """Stopped after a scan and resumed, it is the model of a run in one go: the map is fitted again to the bit."""
    said = {"map": "nystroem", "components": 20, "loss": "hinge", "memory": "1 MiB", "epsilon": 1e-6}
    coremargin.train(hard / "s", out=tmp_path / "one", **said)
    coremargin.train(hard / "s", out=tmp_path / "two", max_scans=1, **said)
    coremargin.train(hard / "s", out=tmp_path / "two", begin="resume", **said)
    for name in ("model.json", "arrays.npz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1.0, "scale"])
def test_retraining_keeps_the_map(hard: Path, tmp_path: Path, gamma: float | str) -> None:
    """Appended rows are mapped by the map of the model before, with its gamma, and the new certificate is checked."""
    shutil.copytree(hard / "s", tmp_path / "s")
    coremargin.train(tmp_path / "s", out=tmp_path / "m", map="nystroem", components=20, gamma=gamma)
    X, y = ring(100)
    coremargin.ingest(X[::-1] * np.float32(1.01), tmp_path / "s", labels=y[::-1], append=True)
    model = coremargin.retrain(tmp_path / "m", tmp_path / "s", out=tmp_path / "n")
    assert isinstance(model, Model)
    before = Model.load(tmp_path / "m").numbers
    assert np.array_equal(model.numbers["map_landmarks"], before["map_landmarks"])
    assert model.parameters["gamma"] == before["map_gamma"][0]
    verify(tmp_path / "n", tmp_path / "s")


@pytest.mark.parametrize("more", [{}, {"C": [1.0, 2.0]}, {"gamma": [1.0, 2.0]}])
def test_what_rounding_takes_is_said_alike(
    hard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    """A bound that is widened beyond what was asked for is certified neither by the model nor by its run."""
    monkeypatch.setattr(map_rounding, "moves_of", lambda _: 1e-4)
    said = {"map": "nystroem", "components": 8, "gamma": 1.0, "loss": "hinge"} | more
    model = coremargin.train(hard / "s", out=tmp_path / "m", **said)
    run = json.loads((tmp_path / "m" / "run.json").read_text())
    assert model.status == "stopped"
    assert "certified" not in run["reason"]
    assert run.get("members_certified", 0) == 0


def test_what_overflows_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rounding may move rows by more than float64 can square, a value loses all of its lower bound."""
    X, y = ring(60)
    monkeypatch.setattr(map_rounding, "moves_of", lambda _: 1e160)
    below, _ = map_rounding.value_rounding(ArraySource(X, y), 1e10, lambda margin, _: margin)
    assert below == np.inf
