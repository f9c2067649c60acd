"""The corrected dual point of a squared hinge: a dual point indeed, whatever it is asked at, and no forgery passes."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

import coremargin
from coremargin.data.store import Store
from coremargin.errors import ClaimRefuted, DataError
from coremargin.formats.limits import CURVE_FEATURES
from coremargin.models.model import Model
from coremargin.problems.soft import make, near_margin
from coremargin.verify import verify
from coremargin.verify.corrected_dual import Slopes
from coremargin.verify.examine import examine
from coremargin.verify.sums import gamma
from forge_specimens import write_store
from model_kit import altered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS, CHUNK = 6000, 50


def rows_of(rng: np.random.Generator, n: int, d: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Noisy rows and their signs."""
    X = rng.standard_normal((n, d)) + shift
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(n) > shift, 1.0, -1.0)
    y[:2] = 1, -1
    return X, y


def slopes_of(X: np.ndarray, y: np.ndarray, c: np.ndarray, at: np.ndarray, ramp: float) -> Slopes:
    """The sums over rows, as the scan makes them."""
    slack = np.maximum(0.0, 1.0 - y * (X @ at[:-1] + at[-1]))
    share, z, each = c * np.minimum(1.0, slack / ramp), np.column_stack([X, np.ones(len(X))]), c * slack
    lengths = np.linalg.norm(X, axis=1)
    return Slopes(
        losses=float(each.sum()), squares=float(each @ slack), least=min(float(each[y == k].sum()) for k in (1, -1)),
        q=(each * y) @ z, t=(share * (slack - 1) * y) @ z, curve=(z.T * share) @ z,
        low=X.min(axis=0), high=X.max(axis=0), radius=float(lengths.max()), reach=float(each @ lengths),
        spread=np.zeros(X.shape[1]), error=gamma(len(X) + 16), curve_error=gamma(len(X) + 16), moved=0.0,
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.1, 0.5, 2.0]), st.sampled_from([0.0, 1e-3, 0.05, 0.3]),
    st.booleans(), st.sampled_from([0.0, 3.0]),
)  # fmt: skip
def test_what_is_found_is_the_value_of_a_dual_point(
    seed: int, ramp: float, away: float, intercept: bool, shift: float
) -> None:
    """The point made by NumPy is in balance and not negative, and its dual is no lower, where a bound is found."""
    rng = np.random.default_rng(seed)
    X, y = rows_of(rng, 80, 3, shift)
    c, z = rng.uniform(0.1, 3.0, 80), np.column_stack([X, np.full(80, float(intercept))])
    at = minimum_of(X, y, c, intercept) + away * rng.standard_normal(4) * np.append(np.ones(3), float(intercept))
    found = slopes_of(X, y, c, at, ramp).dual(at, ramp, intercept=intercept)
    if found == -np.inf:
        return
    slack, metric = np.maximum(0.0, 1.0 - y * (z @ at)), np.append(np.ones(3), 0.0)
    share = c * np.minimum(1.0, slack / ramp)
    gradient = metric * at - 2.0 * z.T @ (c * slack * y)
    move = -np.linalg.lstsq(np.diag(metric) + 2.0 * (z.T * share) @ z, gradient, rcond=None)[0]
    duals = 2.0 * (c * slack - share * y * (z @ move))
    assert (duals >= -1e-12).all()
    assert not intercept or abs(duals @ y) <= 1e-9 * duals.sum()
    v = X.T @ (duals * y)
    true = float(duals.sum() - 0.25 * duals @ (duals / c) - 0.5 * v @ v)
    assert found <= true + 1e-12 * (1 + abs(true))
    best = minimum_of(X, y, c, intercept)
    lowest = 0.5 * best[:-1] @ best[:-1] + c @ np.maximum(0.0, 1.0 - y * (z @ best)) ** 2
    assert found <= lowest * (1 + 1e-9)
    if away == 0.0:
        assert found >= lowest * (1 - 1e-6)


def minimum_of(X: np.ndarray, y: np.ndarray, c: np.ndarray, intercept: bool) -> np.ndarray:
    """The minimiser (w, b) by Newton's method in NumPy."""
    z, metric = np.column_stack([X, np.full(len(X), float(intercept))]), np.append(np.ones(X.shape[1]), 0.0)
    at = np.zeros(X.shape[1] + 1)

    def value(p: np.ndarray) -> float:
        return float(0.5 * (metric * p) @ p + c @ np.maximum(0.0, 1.0 - y * (z @ p)) ** 2)

    for _ in range(100):
        slack = np.maximum(0.0, 1.0 - y * (z @ at))
        some = z[slack > 0] * np.sqrt(2 * c[slack > 0])[:, None]
        gradient = metric * at - 2 * z.T @ (c * slack * y)
        step = np.linalg.lstsq(np.diag(metric) + some.T @ some, -gradient, rcond=None)[0]
        t = 1.0
        while value(at + t * step) > value(at) and t > 1e-9:
            t /= 2
        at = at + t * step
    return at


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.integers(0, 2**32 - 1), st.integers(-8, 8), st.sampled_from([0.0, 1.0, 1e3, 1e6]), st.floats(-6, 2),
    st.sampled_from([0.0, 1e-12, 1e-6, 1e-2]), st.booleans(),
)  # fmt: skip
def test_rounding_never_helps_a_claim(
    seed: int, scale: int, shift: float, ramp: float, away: float, intercept: bool
) -> None:
    """In exact numbers the point, put in balance, is one, and its dual is no lower than what was found in float64."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 14)), int(rng.integers(1, 4))
    X = rng.standard_normal((n, d)) * 10.0 ** (scale + rng.integers(-3, 4, d)) + shift
    y = rng.choice([-1.0, 1.0], n)
    y[:2] = 1, -1
    c, width = 10.0 ** rng.uniform(-8, 8) * rng.uniform(0.1, 2, n), float(10.0**ramp)
    at = minimum_of(X, y, c, intercept) * (1 + away * rng.standard_normal(d + 1))
    slopes = slopes_of(X, y, c, at, width)
    found = slopes.dual(at, width, intercept=intercept)
    if found == -np.inf:
        return
    move = slopes._move(at, intercept)
    assert move is not None
    slack = np.maximum(0.0, 1.0 - y * (X @ at[:-1] + at[-1]))
    share = np.minimum(1.0, slack / width)
    exact_y, exact_x, exact_c = exact(y), [exact(row) for row in X], exact(c)
    ways = [sum(map(mul, row, exact(move[:-1])), exact(move)[-1]) for row in exact_x]
    parts = zip(exact_c, exact(slack), exact(share), exact_y, ways, strict=True)
    duals = [2 * each * (xi - r * sign * way) for each, xi, r, sign, way in parts]
    assert min(duals) >= 0
    if intercept:
        excess = sum(map(mul, duals, exact_y))
        side = [(excess > 0) == (sign > 0) for sign in exact_y]
        total = sum(dual for dual, mine in zip(duals, side, strict=True) if mine)
        assert abs(excess) <= total
        kept = 1 - abs(excess) / total if total else 1
        duals = [dual * kept if mine else dual for dual, mine in zip(duals, side, strict=True)]
    v = [sum(map(mul, map(mul, duals, exact_y), column)) for column in zip(*exact_x, strict=True)]
    squares = sum(dual * dual / (4 * each) for dual, each in zip(duals, exact_c, strict=True))
    assert Fraction(found) <= sum(duals) - squares - sum(map(mul, v, v)) / 2


def exact(values: np.ndarray) -> list[Fraction]:
    """Floats as the numbers that they are."""
    return [Fraction(float(value)) for value in values]


def test_a_move_too_long_for_the_ramp_proves_nothing() -> None:
    """Far from the minimum the point would have negative duals: none is believed."""
    X, y = rows_of(np.random.default_rng(1), 200, 3, 0.0)
    at = np.array([5.0, -4.0, 2.0, 1.0])
    assert slopes_of(X, y, np.ones(200), at, 0.01).dual(at, 0.01, intercept=True) == -np.inf


def test_sums_that_are_no_numbers_prove_nothing() -> None:
    """Nor do sums that overflowed, nor a curve that is not positive."""
    X, y = rows_of(np.random.default_rng(2), 50, 2, 0.0)
    at = minimum_of(X, y, np.ones(50), intercept=True)
    slopes = slopes_of(X, y, np.ones(50), at, 0.5)
    assert slopes.dual(at, 0.5, intercept=True) > 0
    for name, value in (("q", np.full(3, np.inf)), ("curve", np.full((3, 3), np.nan)), ("curve", -slopes.curve)):
        broken = Slopes(**{**slopes.__dict__, name: value})
        assert broken.dual(at, 0.5, intercept=True) == -np.inf


@pytest.fixture(scope="module", params=["dense", "origin", "sparse", "weighted"])
def proven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model, store) of a squared hinge that one read proved by a corrected point."""
    rng, folder, kind = np.random.default_rng(3), tmp_path_factory.mktemp("correction"), request.param
    X, y = rows_of(rng, ROWS, 4, 0.0 if kind == "origin" else 0.2)
    X = X.astype(np.float32)
    if kind == "sparse":
        X[rng.random(X.shape) < 0.5] = 0
    labels: list[Any] = ["b" if one > 0 else "a" for one in y]
    labels[7] = None
    weights = rng.choice([0.5, 1.0, 2.0], ROWS) if kind == "weighted" else None
    store = write_store(folder / "s.zarr", X, labels, chunk_rows=CHUNK, weights=weights, sparse=kind == "sparse").path
    with pytest.MonkeyPatch.context() as patch:
        few = partial(near_margin.SoftMargin, memory_bytes=150_000, sample_bytes=8000, sample_share=0.1, in_stages=True)
        patch.setattr(make, "SoftMargin", lambda *given, **_: few(*given[:6]))
        patch.setattr(near_margin, "NEAR_BYTES_LEAST", 20_000)
        coremargin.train(
            store, out=folder / "m", loss="squared_hinge", C=0.5, epsilon=0.02, intercept=kind != "origin",
            cluster="threads",
        )  # fmt: skip
    return folder / "m", store


def failures(model: Path, store: Path) -> dict[str, str]:
    """Names and messages of the false claims."""
    return {check.name: check.text for check in examine(model, store).failures}


def test_a_true_certificate_is_confirmed(proven: tuple[Path, Path]) -> None:
    """What one read has proven holds, and the point proves more than was claimed of it."""
    model, store = proven
    known = Model.load(model)
    assert known.numbers["ramp"].shape == (1,)
    assert known.numbers["reference"].shape == (5,)
    result = verify(model, store)
    assert result.status == "certified"
    assert result.claimed_lower <= result.lower <= result.upper <= result.claimed_upper
    assert result.upper - result.lower <= 1e-3 * result.upper  # the point is better than what was known of it


def test_a_public_solver_finds_no_lower_value(proven: tuple[Path, Path]) -> None:
    """LIBLINEAR, which has no intercept as ours, ends at or above the bound of a job without one."""
    model, path = proven
    known, store = Model.load(model), Store.open(path)
    if known.intercept or store.sparse:
        return
    X, codes = (np.concatenate(parts) for parts in zip(*(store.read(c) for c in range(store.chunks)), strict=True))
    some = codes >= 0
    y = np.where(codes[some] == known.classes.index("b"), 1.0, -1.0)
    w = LinearSVC(C=0.5, loss="squared_hinge", fit_intercept=False, tol=1e-8).fit(X[some], y).coef_[0]
    value = 0.5 * w @ w + 0.5 * (np.maximum(0.0, 1.0 - y * (X[some].astype(float) @ w)) ** 2).sum()
    found = verify(model, path)
    assert found.lower <= value * (1 + 1e-9)
    assert value <= found.upper * (1 + 1e-6)


def first(place: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    """With another entry."""

    def change(values: np.ndarray) -> np.ndarray:
        values.flat[place] = value
        return values

    return change


@pytest.mark.specimens(4)
@pytest.mark.parametrize(
    "change",
    [
        {"reference": np.zeros_like},
        {"reference": lambda v: v * 1.5},
        {"reference": first(0, 1e200)},
        {"record": {"certificate.lower": lambda v: v * 1.02}},
        {"record": {"certificate.upper": lambda v: v * 0.97}},
        {"record": {"parameters.C": 0.45}},
        {"record": {"parameters.C": 0.6}},
        {"w": lambda v: v * 2},
    ],
    ids="-".join,
)
def test_forgeries_are_refuted(proven: tuple[Path, Path], tmp_path: Path, change: dict[str, Any]) -> None:
    """Other points, other bounds: no claim beyond what they prove passes."""
    model, store = proven
    path = altered(model, tmp_path / "m", **change)
    with pytest.raises(ClaimRefuted):
        verify(path, store)


@pytest.mark.specimens(4)
@pytest.mark.parametrize("ramp", [1e-300, 1e-9, 0.01, 0.05, 0.3, 0.8, 2.0, 5.0, 1e9, 1e300])
def test_no_ramp_proves_more_than_there_is(proven: tuple[Path, Path], tmp_path: Path, ramp: float) -> None:
    """Any ramp makes a dual point or none: what it proves is never above the value of a hypothesis."""
    model, store = proven
    lie = {"certificate.lower": lambda v: v * 1.05, "certificate.ratio": 1.0}
    found = examine(altered(model, tmp_path / "m", lie, ramp=lambda v: v * 0 + ramp), store)
    assert found.failures
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower <= found.upper


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ramp": first(0, 0.0)}, "ramp: expected a number above 0"),
        ({"ramp": first(0, -1.0)}, "ramp: expected a number above 0"),
        ({"ramp": first(0, np.nan)}, "ramp: expected finite numbers"),
        ({"ramp": lambda v: np.repeat(v, 2)}, "ramp: expected shape"),
        ({"ramp": lambda v: v.astype(np.float32)}, "ramp: expected float64"),
        ({"record": {"parameters.loss": "hinge"}}, "ramp: expected the squared hinge"),
    ],
)
def test_ramps_that_make_no_sense_are_unreadable(
    proven: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """They are looked at before any row is read."""
    model, store = proven
    with pytest.raises(DataError, match=message):
        verify(altered(model, tmp_path / "m", **change), store)


def test_a_ramp_is_for_few_features(monkeypatch: pytest.MonkeyPatch, proven: tuple[Path, Path], tmp_path: Path) -> None:
    """A model that would have a verifier make room for a huge matrix is refused before it does."""
    model, store = proven
    assert 4 <= CURVE_FEATURES <= 4096
    monkeypatch.setattr("coremargin.formats.soft_margin.CURVE_FEATURES", 3)
    with pytest.raises(DataError, match="on at most 3 features"):
        verify(altered(model, tmp_path / "m"), store)
