"""The start along coordinates: against LIBLINEAR on the same problem, and as a start for Newton's steps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from coremargin.maths import coordinates, smooth
from coremargin.maths.coordinates import descended
from coremargin.maths.row_model import RowModel

LOSSES = ("hinge", "squared_hinge")


def texts(loss: str, cost: float, *, intercept: bool = True) -> RowModel:
    """Rows of length 1 or so in many features, few of which each of them has; a tenth of the labels is wrong."""
    rng = np.random.default_rng(0)
    rows, features, words = 400, 900, 12
    places = np.sort(rng.integers(0, features, (rows, words)), axis=1).astype(np.int32)
    X = csr_array((np.ones(rows * words), places.ravel(), np.arange(0, rows * words + 1, words, dtype=np.int32)))
    X.sum_duplicates()
    X.data /= np.sqrt(words)
    truth = rng.standard_normal(X.shape[1])
    signs = np.where((X @ truth > 0.2) ^ (rng.random(rows) < 0.1), 1, -1).astype(np.int8)
    row_c = np.full(rows, cost)
    return RowModel(
        linear=np.zeros(X.shape[1] + 1), rows=X, signs=signs, intercept=intercept, target=np.ones(rows),
        curvatures=2 * row_c, limit=row_c if loss == "hinge" else np.full(rows, np.inf),
    )  # fmt: skip


def value(model: RowModel, p: np.ndarray, loss: str, edge: float = np.inf) -> float:
    """The objective by its definition; edge: the length that the intercept has."""
    xi = np.maximum(0.0, model.target - model.signs * (model.rows @ p[:-1] + p[-1]))
    lost = model.curvatures / 2 @ (xi if loss == "hinge" else xi * xi)
    return float(0.5 * p[:-1] @ p[:-1] + 0.5 * (p[-1] / edge) ** 2 - model.linear @ p + lost)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_goes_where_liblinear_goes(loss: str, intercept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With turns enough, the same value to five digits; the duals are within their limits and make the point."""
    monkeypatch.setattr(coordinates, "VIOLATION", 1e-6)
    monkeypatch.setattr(coordinates, "TURNS", 5000)
    model = texts(loss, 1.0, intercept=intercept)
    edge = float(np.sqrt((model.rows.data**2).sum() / len(model.signs))) if intercept else np.inf
    p, duals = descended(model)
    theirs = LinearSVC(loss=loss, C=1.0, tol=1e-8, max_iter=100_000, fit_intercept=intercept)
    theirs.set_params(intercept_scaling=edge if intercept else 1.0).fit(model.rows, model.signs)
    known = np.append(theirs.coef_[0], theirs.intercept_)
    assert value(model, p, loss, edge) == pytest.approx(value(model, known, loss, edge), rel=1e-5)
    assert duals is not None
    assert (duals >= 0).all()
    assert (duals <= model.limit).all()
    assert p[:-1] == pytest.approx(model.rows.T @ (model.signs * duals), abs=1e-9)
    assert p[-1] == pytest.approx(edge**2 * (model.signs @ duals) if intercept else 0.0, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_a_start_near_the_end(loss: str) -> None:
    """Within a hundredth of the minimum in its few turns, the same each time."""
    model = texts(loss, 0.3)
    p, duals = descended(model)
    assert duals is not None
    best = solved(model, loss, p)
    assert value(model, p, loss) <= 1.01 * value(model, best, loss)
    again, same = descended(model)
    np.testing.assert_array_equal(p, again)
    np.testing.assert_array_equal(duals, same)


def solved(model: RowModel, loss: str, start: np.ndarray) -> np.ndarray:
    """The minimiser to six digits."""
    if loss == "hinge":
        return smooth.minimise_hinge(model, start, None, 1e-6)[0]
    return smooth.minimise_squared_hinge(model, start, 1e-6)


def test_duals_that_are_not_near_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where losses cost much, few turns do not get there: the point is better than nothing, and said to be no more."""
    monkeypatch.setattr(coordinates, "TURNS", 3)
    model = texts("hinge", 100.0)
    p, duals = descended(model)
    assert duals is None
    assert value(model, p, "hinge") < value(model, np.zeros(len(p)), "hinge")


@pytest.mark.parametrize(
    ("promising", "close", "most", "near"), [(0.0, 10.0, 8, True), (10.0, 10.0, 12, True), (10.0, 0.0, 12, False)]
)
def test_more_turns_are_made_where_they_promise_an_end(
    promising: float, close: float, most: int, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many visits and no more; duals that are near enough after them are handed on."""
    model, visits = texts("hinge", 1.0), list[int]()
    changes = {"VIOLATION": 0.0, "TURNS": 8, "MORE": 4, "PROMISING": promising, "CLOSE": close}
    for name, value_of in changes.items():
        monkeypatch.setattr(coordinates, name, value_of)

    def counted(rows: object, terms: object, edge: float, order: np.ndarray, *rest: object) -> object:
        visits.append(len(order))
        return coordinates.turn(rows, terms, edge, order, *rest)

    monkeypatch.setattr(coordinates, "_compiled", lambda: counted)
    _, duals = descended(model)
    assert (most - 1) * 400 <= sum(visits[:-1]) < most * 400 <= sum(visits)
    assert (duals is not None) == near


@pytest.mark.parametrize("loss", LOSSES)
def test_solves_of_many_values_start_so(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same minimum as from scratch; not from a point that somebody knew, and not on few features."""
    model, used = texts(loss, 1.0), []
    monkeypatch.setattr(smooth, "NARROW", 100)
    plain = solved(model, loss, np.zeros(len(model.linear)))
    monkeypatch.setattr(smooth, "MANY", 1)
    monkeypatch.setattr(smooth, "descended", lambda model: used.append(model) or descended(model))
    quick = solved(model, loss, np.zeros(len(model.linear)))
    assert len(used) == 1
    assert value(model, quick, loss) == pytest.approx(value(model, plain, loss), rel=1e-5)
    solved(model, loss, plain)
    monkeypatch.setattr(smooth, "NARROW", 2000)
    solved(model, loss, np.zeros(len(model.linear)))
    assert len(used) == 1


def test_rows_that_cost_nothing_stay_out() -> None:
    """Their duals are 0, and all other numbers are numbers."""
    model = texts("squared_hinge", 1.0)
    model.curvatures[::2] = 0.0
    p, duals = descended(model)
    assert np.isfinite(p).all()
    assert duals is not None
    assert not duals[::2].any()
