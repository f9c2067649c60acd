"""Cutting planes on rows with labels: they end with a point of the version space, after so few planes and updates."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.svm import SVC

from coremargin.maths.active.cutting_planes import (
    Pick,
    active_cutting_planes,
    cutting_planes,
    largest_error,
    localise,
    nearest,
    perceptron,
    perceptron_cutting_planes,
    random_error,
    smallest_error,
)
from coremargin.maths.active.ep import bayes_point
from coremargin.maths.active.version_space import VersionSpace, chebyshev
from coremargin.maths.published_bounds import perceptron_updates

if TYPE_CHECKING:
    from coremargin.maths.rows import Rows

Vector = NDArray[np.float64]

PICKS: dict[str, Pick] = {"largest": largest_error, "smallest": smallest_error, "random": random_error(5)}


def rows_apart(rng: np.random.Generator, count: int, dimensions: int, margin: float) -> Vector:
    """Rows z = y x of length 1 with z.w >= margin for some w of length 1."""
    w = rng.standard_normal(dimensions)
    z = rng.standard_normal((20 * count, dimensions))
    z /= np.linalg.norm(z, axis=1)[:, None]
    along = z @ w / np.linalg.norm(w)
    z *= np.sign(along)[:, None]
    return z[np.abs(along) >= margin][:count]


def chebyshev_query(normals: Vector) -> Vector:
    """The Chebyshev centre; that of the ball without planes."""
    if not len(normals):
        return np.zeros(normals.shape[1])
    space = VersionSpace.of(normals, np.ones(len(normals), np.int8))
    return space.up(chebyshev(space)[0])[0]


def gravity_query(normals: Vector) -> Vector:
    """The centre of gravity by EP."""
    if not len(normals):
        return np.zeros(normals.shape[1])
    space = VersionSpace.of(normals, np.ones(len(normals), np.int8))
    return space.up(bayes_point(space))[0]


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("query", [chebyshev_query, gravity_query], ids=["chebyshev", "gravity"])
def test_algorithm_2_ends_in_the_version_space(rng: np.random.Generator, query: object, pick: str) -> None:
    """All rows on the right side, and no plane twice: what has cut once is never wrong again."""
    z = rows_apart(rng, 400, 6, 0.05)
    found = cutting_planes(z, query, PICKS[pick])  # type: ignore[arg-type]
    assert (z @ found.w > 0).all()
    assert len(set(found.planes)) == len(found.planes) < 60


@pytest.mark.parametrize("query", [chebyshev_query, gravity_query], ids=["chebyshev", "gravity"])
def test_the_planes_are_a_compression_set(rng: np.random.Generator, query: object) -> None:
    """Proposition 1: from the rows that cut alone, in their order, the same point comes to the bit."""
    z = rows_apart(rng, 300, 5, 0.05)
    found = cutting_planes(z, query, largest_error)  # type: ignore[arg-type]
    again = cutting_planes(z[found.planes], query, largest_error)  # type: ignore[arg-type]
    assert np.array_equal(again.w, found.w)
    assert again.planes == list(range(len(found.planes)))


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("margin", [0.02, 0.1])
def test_algorithm_3_makes_no_more_updates_than_proposition_2_allows(
    rng: np.random.Generator, pick: str, margin: float
) -> None:
    """1 / gamma^2, gamma being the radius of the largest ball in the version space of rows of length 1."""
    for dimensions in (2, 5, 20):
        z = rows_apart(rng, 300, dimensions, margin)
        found = perceptron_cutting_planes(z, PICKS[pick])
        radius = chebyshev(VersionSpace.of(z, np.ones(len(z), np.int8)))[1]
        assert (z @ found.w > 0).all()
        assert len(found.updates) == len(found.planes)
        assert sum(found.updates) <= perceptron_updates(1.0, radius)


def test_rows_of_other_lengths_need_the_bound_of_novikoff(rng: np.random.Generator) -> None:
    """Points of a 20 x 20 square, margin 0.1: always within (R / gamma)^2, not always within 1 / gamma^2 = 100."""
    most = 0
    for _ in range(20):
        x = rng.uniform(-10, 10, (1000, 2))
        along = x @ np.array([0.6, 0.8])
        z = (x * np.sign(along)[:, None])[np.abs(along) >= 0.1]
        updates = sum(perceptron_cutting_planes(z, largest_error).updates)
        assert updates <= perceptron_updates(np.linalg.norm(z, axis=1).max(), 0.1)
        most = max(most, updates)
    assert most > perceptron_updates(1.0, 0.1)


def test_the_perceptron_is_that_of_a_plain_loop(rng: np.random.Generator) -> None:
    """The least z.w is added until none is at most 0: written out once more, to the bit, wide or not."""
    for shape in ((40, 4), (8, 30)):
        z = rng.standard_normal(shape)
        z *= np.sign(z @ rng.standard_normal(shape[1]))[:, None]
        w, updates = np.zeros(shape[1]), 0
        while (z @ w).min() <= 0:
            w, updates = w + z[(z @ w).argmin()], updates + 1
        found = perceptron(z, np.zeros(shape[1]))
        assert found.updates == updates
        assert np.array_equal(found.w, w)


def test_picks_are_what_they_are_called() -> None:
    """Of scores 3, -1, -5, 0, -5: the largest error is row 2, the smallest row 3, a random one is at most 0."""
    scores = np.array([3.0, -1.0, -5.0, 0.0, -5.0])
    assert largest_error(scores) == 2
    assert smallest_error(scores) == 3
    assert {random_error(seed)(scores) for seed in range(40)} == {1, 2, 3, 4}


def test_without_an_end_there_is_an_error() -> None:
    """An oracle that always cuts, and rows that nothing separates, end with what was expected."""
    with pytest.raises(ValueError, match="after 20 planes"):
        localise(2, lambda normals: np.zeros(2), lambda point: (0, np.ones(2)), most=20)
    with pytest.raises(ValueError, match="within 50 updates"):
        perceptron(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.zeros(2), most=50)


def svm(rows: Rows, signs: NDArray[np.int8]) -> tuple[Vector, float]:
    """The Chebyshev centre of the version space of rows and signs."""
    space = VersionSpace.of(rows, signs)
    return space.up(chebyshev(space)[0])


def test_active_svm_asks_for_the_row_nearest_to_the_svm(rng: np.random.Generator) -> None:
    """Row after row it is that of scikit-learn's SVM without an intercept on the rows known so far."""
    z = rows_apart(rng, 80, 4, 0.05)
    signs = rng.choice([-1, 1], len(z))
    rows = z * signs[:, None]
    known = [0, 1]
    for asked in islice(active_cutting_planes(rows, lambda k: int(signs[k]), svm, np.array([0, 1])), 15):
        both = np.vstack([z[known], -z[known]])  # reflected rows: the best hyperplane passes through the origin
        fit = SVC(kernel="linear", C=1e8, tol=1e-10).fit(both, np.repeat([1, -1], len(known)))
        away = np.abs(rows @ fit.coef_[0])
        away[known] = np.inf
        assert asked.row == int(away.argmin())
        assert asked.sign == signs[asked.row]
        known.append(asked.row)


def test_as_printed_only_errors_cut(rng: np.random.Generator) -> None:
    """Then a right answer leaves the centre where it was, and no row is asked about twice; with all it moves."""
    z = rows_apart(rng, 60, 3, 0.05)
    signs = rng.choice([-1, 1], len(z))
    rows = z * signs[:, None]
    seen = list(active_cutting_planes(rows, lambda k: int(signs[k]), svm, np.array([0]), cuts="errors"))
    assert sorted(asked.row for asked in seen) == list(range(1, len(rows)))
    for asked, later in pairwise(seen):
        right = asked.sign * float(rows[asked.row] @ asked.w) > 0
        assert np.array_equal(asked.w, later.w) == right


def test_the_nearest_row_is_that_of_angles() -> None:
    """A long row counts by its direction; a row that is not open never counts."""
    rows = np.array([[100.0, 10.0], [1.0, 0.5], [1.0, 0.0]])
    assert nearest(rows, np.array([0.0, 1.0]), 0.0, np.array([True, True, False])) == 0
