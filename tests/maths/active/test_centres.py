"""Centres of the version space, against exact ones: by hand, by polar geometry, by a linear program, by each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, HalfspaceIntersection
from scipy.special import gammaln

from coremargin.maths.active.centres import permuted_perceptrons
from coremargin.maths.active.ep import bayes_point, expectation
from coremargin.maths.active.version_space import VersionSpace, chebyshev
from coremargin.maths.active.walks import analytic_centre, billiard, dikin_walk, gradient, hit_and_run

Vector = NDArray[np.float64]

WALKS: dict[str, Callable[[VersionSpace, int, int], Vector]] = {
    "hit-and-run": lambda space, seed, steps: hit_and_run(space, seed, 8 * steps).mean(axis=0),
    "billiard": billiard,
    "dikin": lambda space, seed, steps: dikin_walk(space, seed, 8 * steps).mean(axis=0),
}


def space_of(planes: Vector) -> VersionSpace:
    """The points of the ball with a.v >= 0 for all planes."""
    return VersionSpace.of(planes, np.ones(len(planes), np.int8))


def angle(a: Vector, b: Vector) -> float:
    """Between two vectors, in degrees."""
    return math.degrees(math.acos(min(1.0, float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b)))))


def sector(opening: float) -> tuple[Vector, Vector]:
    """Two planes that leave a sector of the disc, beginning at the first axis, and its centre of gravity."""
    planes = np.array([[0.0, 1.0], [math.sin(opening), -math.cos(opening)]])
    half = opening / 2
    return planes, 2 / 3 * math.sin(half) / half * np.array([math.cos(half), math.sin(half)])


def centre_of_three_planes(planes: Vector) -> Vector:
    """Of the ball within three planes: 3/4 of the mean unit vector of a spherical triangle.

    Its integral is half the sum of its sides (as angles) times their planes' normals; its area is Girard's excess.
    """
    corners = [np.cross(planes[(k + 1) % 3], planes[(k + 2) % 3]) for k in range(3)]
    corners = [c * np.sign(c @ planes[k]) / np.linalg.norm(c) for k, c in enumerate(corners)]
    sides = [math.acos(corners[(k + 1) % 3] @ corners[(k + 2) % 3]) for k in range(3)]
    excess = sum(math.pi - math.acos(planes[a] @ planes[b]) for a, b, c in permutations(range(3)) if a < b) - math.pi
    return np.asarray(0.75 * (np.array(sides) @ planes) / 2 / excess)


def some_planes(rng: np.random.Generator, count: int, dimensions: int) -> Vector:
    """Unit normals that leave something, and depend on all dimensions."""
    planes = rng.standard_normal((count, dimensions))
    planes *= np.sign(planes @ rng.standard_normal(dimensions))[:, None]
    return np.asarray(planes / np.linalg.norm(planes, axis=1)[:, None])


def slow(*values: float) -> Any:
    """Parameters that the quick tests leave out: walks take seconds."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize("opening", [slow(0.02), 0.7, slow(2.5)])
def test_walks_find_the_centre_of_a_sector(name: str, opening: float) -> None:
    """2/3 sin(a/2) / (a/2) along the bisector, thin or wide: within 3 % of the sector's length and of its width."""
    planes, centre = sector(opening)
    space = space_of(planes)
    found = space.up(WALKS[name](space, 1, 1000))[0]
    along = centre / np.linalg.norm(centre)
    across = np.array([-along[1], along[0]])
    assert found @ along == pytest.approx(np.linalg.norm(centre), abs=0.03)
    assert abs(found @ across) <= 0.03 * min(1.0, opening)


@pytest.mark.slow
@pytest.mark.parametrize("name", WALKS)
def test_walks_find_the_centre_within_three_planes(rng: np.random.Generator, name: str) -> None:
    """That of a spherical triangle's cone, within 2.5 % of the ball's radius, for any triangle."""
    for _ in range(2):
        planes = some_planes(rng, 3, 3)
        space = space_of(planes)
        found = space.up(WALKS[name](space, 2, 1000))[0]
        assert np.linalg.norm(found - centre_of_three_planes(planes)) < 0.025


def test_perceptrons_on_permutations_are_near_the_centre(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the version space, in about the direction of the centre of gravity; one that takes long is refused."""
    for _ in range(5):
        planes = some_planes(rng, 3, 3)
        found = permuted_perceptrons(space_of(planes), 1)
        assert np.array_equal(found, permuted_perceptrons(space_of(planes), 1))
        w = space_of(planes).up(found)[0]
        assert (planes @ w > 0).all()
        assert angle(w, centre_of_three_planes(planes)) < 20
    monkeypatch.setattr("coremargin.maths.active.centres.PASSES", 1)
    with pytest.raises(ValueError, match="within 1 passes"):
        permuted_perceptrons(space_of(some_planes(rng, 40, 5)), 1)


def test_the_centre_of_three_planes_is_that_of_the_polytope(rng: np.random.Generator) -> None:
    """The tests' own formula agrees with SciPy's polytope of many half-spaces around the ball, cut into tetrahedra."""
    around = rng.standard_normal((3000, 3))
    around /= np.linalg.norm(around, axis=1)[:, None]
    planes = some_planes(rng, 3, 3)
    walls = np.vstack([np.column_stack([-planes, np.zeros(3)]), np.column_stack([around, -np.ones(3000)])])
    space = space_of(planes)
    corners = HalfspaceIntersection(walls, space.up(chebyshev(space)[0])[0]).intersections
    hull = ConvexHull(corners)
    fans = corners[hull.simplices] - corners[0]
    volumes = np.abs(np.linalg.det(fans))
    centre = (volumes[:, None] * fans.sum(axis=1) / 4).sum(axis=0) / volumes.sum() + corners[0]
    assert np.linalg.norm(centre - centre_of_three_planes(planes)) < 5e-3


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [3, slow(12)])
def test_the_orthant_has_its_centre_on_the_diagonal(dimensions: int) -> None:
    """Each coordinate is q / (q + 1) E|u_1|, u uniform on the sphere: EP to rounding, walks within 0.035."""
    q = dimensions
    space = space_of(np.eye(q))
    coordinate = q / (q + 1) * math.exp(gammaln(q / 2) - gammaln((q + 1) / 2)) / math.sqrt(math.pi)
    assert space.up(bayes_point(space))[0] == pytest.approx(np.full(q, coordinate), rel=1e-12)
    for name, walk in WALKS.items():
        assert space.up(walk(space, 3, 500))[0] == pytest.approx(np.full(q, coordinate), abs=0.035), name


@pytest.mark.slow
@pytest.mark.parametrize(("planes", "dimensions"), [slow(8, 20), (30, 10)])
def test_the_four_centres_of_gravity_agree(rng: np.random.Generator, planes: int, dimensions: int) -> None:
    """Directions of the walks within 4 degrees of each other, EP's within 5; lengths within 3 %."""
    space = space_of(some_planes(rng, planes, dimensions))
    found = {name: walk(space, 4, 600) for name, walk in WALKS.items()} | {"ep": bayes_point(space)}
    for one in found:
        for other in found:
            assert angle(found[one], found[other]) < (5.0 if "ep" in (one, other) else 4.0), (one, other)
    lengths = [float(np.linalg.norm(centre)) for centre in found.values()]
    assert max(lengths) < 1.03 * min(lengths)


def test_ep_has_the_moments_of_a_truncated_normal() -> None:
    """One plane: the mean sqrt(2 / pi) and the variance 1 - 2 / pi across it, in closed form."""
    mean, spread = expectation(np.array([[1.0, 0.0]]))
    assert mean == pytest.approx([math.sqrt(2 / math.pi), 0.0])
    assert spread == pytest.approx(np.diag([1 - 2 / math.pi, 1.0]))


def test_ep_is_near_the_moments_of_samples(rng: np.random.Generator) -> None:
    """Of N(0, I) between two planes, by throwing away what lies beyond: an approximation, 10 % and 3 degrees off."""
    planes = some_planes(rng, 2, 2)
    samples = rng.standard_normal((400_000, 2))
    samples = samples[(samples @ planes.T >= 0).all(axis=1)]
    mean = expectation(planes)[0]
    known = samples.mean(axis=0)
    assert angle(mean, known) < 3
    assert np.linalg.norm(mean) == pytest.approx(np.linalg.norm(known), rel=0.1)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_chebyshev_centre_is_that_of_a_linear_program(rng: np.random.Generator, dimensions: int) -> None:
    """The largest ball within the planes and many tangents of the sphere, by SciPy: the same but for the tangents."""
    around = rng.standard_normal((4000, dimensions))
    around /= np.linalg.norm(around, axis=1)[:, None]
    for _ in range(5):
        planes = some_planes(rng, dimensions + 2, dimensions)
        normals = np.vstack([-planes, around])
        limits = np.concatenate([np.zeros(len(planes)), np.ones(len(around))])
        goal = np.append(np.zeros(dimensions), -1.0)
        program = linprog(goal, np.column_stack([normals, np.ones(len(normals))]), limits, bounds=(None, None))
        space = space_of(planes)
        centre, radius = chebyshev(space)
        assert radius == pytest.approx(-program.fun, rel=5e-3)
        assert np.linalg.norm(space.up(centre)[0] - program.x[:-1]) < 0.02


def test_the_chebyshev_ball_touches_the_sphere_and_a_plane(rng: np.random.Generator) -> None:
    """Its radius is its distance to the sphere and the least of those to the planes."""
    space = space_of(some_planes(rng, 30, 12))
    centre, radius = chebyshev(space)
    assert 1 - np.linalg.norm(centre) == pytest.approx(radius)
    assert (space.planes @ centre).min() == pytest.approx(radius)


def test_the_analytic_centre_has_no_slope(rng: np.random.Generator) -> None:
    """The barrier's gradient vanishes there, and the point lies inside."""
    space = space_of(some_planes(rng, 25, 10))
    centre = analytic_centre(space, chebyshev(space)[0])
    assert (space.planes @ centre).min() > 0
    assert np.linalg.norm(gradient(space, centre)) < 1e-6


@pytest.mark.parametrize("constant", [0.0, 2.0])
def test_rows_across_their_span_change_nothing(rng: np.random.Generator, constant: float) -> None:
    """Rows of many features, sparse or dense, have the centres of the same rows turned into fewer dimensions."""
    few = rng.standard_normal((6, 6))
    signs = np.where(few @ rng.standard_normal(6) + constant * 0.3 >= 0, 1, -1).astype(np.int8)
    turn = np.linalg.qr(rng.standard_normal((60, 6)))[0]
    here, there = VersionSpace.of(few, signs, constant), VersionSpace.of(few @ turn.T, signs, constant)
    scarce = VersionSpace.of(sp.csr_array(few @ turn.T), signs, constant)
    assert here.dimensions == there.dimensions == scarce.dimensions == 6
    w, b = here.up(bayes_point(here))
    for space in (there, scarce):
        again, offset = space.up(bayes_point(space))
        assert again == pytest.approx(turn @ w, abs=1e-7)
        assert offset == pytest.approx(b, abs=1e-7)
    assert (signs * (few @ w + b) > 0).all()


def test_the_same_seed_gives_the_same_points(rng: np.random.Generator) -> None:
    """To the bit; another seed gives others."""
    space = space_of(some_planes(rng, 8, 5))
    for walk in (hit_and_run, dikin_walk, billiard):
        assert np.array_equal(walk(space, 7, 50), walk(space, 7, 50))
        assert not np.array_equal(walk(space, 7, 50), walk(space, 8, 50))


def test_labels_that_nothing_separates_leave_no_centre() -> None:
    """A row with both labels: the error says what was expected."""
    with pytest.raises(ValueError, match="a hyperplane separates"):
        chebyshev(VersionSpace.of(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1, -1])))


@pytest.mark.parametrize("walk", [hit_and_run, dikin_walk])
def test_in_one_dimension_points_are_spread_evenly(walk: Callable[..., Vector]) -> None:
    """Between the plane and the ball, (0, 1): no share of the points below any number differs from it by 0.03."""
    points = np.sort(walk(space_of(np.array([[1.0]])), 5, 2000)[:, 0])
    points *= np.sign(points[0])
    assert np.abs(np.sort(points) - (np.arange(len(points)) + 0.5) / len(points)).max() < 0.03
