"""The slab method: the margin that it promises, within the steps that the lemma allows."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.svm import SVC

from coremargin.maths.active.slabs import Slab, slab_method, slab_of_labelled
from coremargin.maths.published_bounds import slab_steps

Labelled: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64]]


def apart(rng: np.random.Generator, rows: int, features: int, margin: float) -> Labelled:
    """Rows pushed apart by a plane, and their signs."""
    w = rng.standard_normal(features)
    w /= np.linalg.norm(w)
    X = rng.standard_normal((rows, features))
    signs = np.where(X @ w + 0.3 >= 0, 1, -1)
    return X + margin * signs[:, None] * w, signs


def hull_distance(X: NDArray[np.float64], signs: NDArray[np.int64]) -> float:
    """Between the hulls of the classes, by scikit-learn: twice the margin."""
    return 2.0 / float(np.linalg.norm(SVC(kernel="linear", C=1e10, tol=1e-9).fit(X, signs).coef_))


def ask(X: NDArray[np.float64], signs: NDArray[np.int64], epsilon: float) -> tuple[Slab, list[int]]:
    """The method with a person and a counterexample oracle that has the worst row; and the rows the person saw."""
    asked: list[int] = []

    def label(row: int) -> int:
        asked.append(row)
        return int(signs[row])

    def counterexample(places: NDArray[np.float64]) -> int | None:
        wrong = np.flatnonzero(places * signs <= 0)
        return int(wrong[(places * signs)[wrong].argmin()]) if len(wrong) else None

    black, white = int(np.flatnonzero(signs > 0)[0]), int(np.flatnonzero(signs < 0)[0])
    return slab_method(X, black, white, epsilon, label, counterexample), asked


def check(slab: Slab, X: NDArray[np.float64], signs: NDArray[np.int64], epsilon: float) -> None:
    """The slab separates, is wide enough, its points lie in the hulls, and the steps are as few as the lemma says."""
    distance = hull_distance(X, signs)
    assert (signs * slab.places()).min() >= 1 - epsilon
    assert slab.width >= distance * (1 - 1e-6)
    assert (1 - epsilon) * slab.width <= distance * (1 + 1e-6)  # so it is an approximation from above, too
    for sign, point in ((1, slab.black), (-1, slab.white)):
        mine = signs == sign
        assert slab.weights[mine].sum() == pytest.approx(1)
        assert slab.weights[mine] @ X[mine] == pytest.approx(point, abs=1e-9)
    assert (slab.weights >= 0).all()
    assert slab.steps <= slab_steps(float(pdist(X).max()), distance, epsilon)


@pytest.mark.parametrize("epsilon", [0.5, 0.2, 0.05])
@pytest.mark.parametrize("features", [2, 10])
def test_the_slab_separates_what_was_not_labelled(rng: np.random.Generator, features: int, epsilon: float) -> None:
    """Of width (1 - epsilon) times the distance of the hulls, within the lemma's steps; no row is asked about twice."""
    X, signs = apart(rng, 300, features, 0.2)
    slab, asked = ask(X, signs, epsilon)
    check(slab, X, signs, epsilon)
    assert asked == slab.labelled
    assert len(set(asked)) == len(asked)
    assert len(asked) + len(slab.refuted) < 150


@pytest.mark.parametrize("epsilon", [0.5, 0.1])
def test_remark_a_does_it_with_all_labels(rng: np.random.Generator, epsilon: float) -> None:
    """The same claims; and from the weights of a solution it is done at once."""
    X, signs = apart(rng, 400, 5, 0.3)
    slab = slab_of_labelled(X, signs, epsilon)
    check(slab, X, signs, epsilon)
    again = slab_of_labelled(X, signs, epsilon, start=slab.weights)
    assert again.steps == 0
    assert again.weights == pytest.approx(slab.weights)


def test_every_step_shrinks_the_slab_as_the_lemma_says(rng: np.random.Generator) -> None:
    """l' <= l sqrt(1 - (epsilon l / 2 diameter)^2), for a row within the slab or on its wrong side."""
    epsilon = 0.3
    for _ in range(300):
        rows = rng.standard_normal((3, 4))
        slab = Slab.between(rows, 0, 1)
        place, before = float(slab.places()[2]), slab.width
        sign = int(rng.choice([-1, 1]))
        if sign * place >= 1 - epsilon:
            continue
        slab.move(2, sign, np.array([sign > 0, sign < 0, False]))
        assert slab.width <= before * np.sqrt(1 - (epsilon * before / 2 / pdist(rows).max()) ** 2) * (1 + 1e-12)


def test_a_row_nearer_than_its_line_is_the_new_point() -> None:
    """The foot on the line would lie beyond the row, outside of the hull: the row itself is taken."""
    rows = np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 0.5]])
    slab = Slab.between(rows, 0, 1)
    slab.move(2, 1, np.array([True, False, False]))
    assert slab.black == pytest.approx([0.0, 0.5])
    assert slab.weights == pytest.approx([0.0, 1.0, 1.0])


def test_places_are_fractions_of_the_slab() -> None:
    """1 at the black point, -1 at the white one, 0 in the middle, wherever a row lies beside the line."""
    rows = np.array([[2.0, 0.0], [0.0, 0.0], [1.0, 7.0], [3.0, -1.0]])
    assert Slab.between(rows, 0, 1).places() == pytest.approx([1.0, -1.0, 0.0, 2.0])


def test_rows_that_nothing_separates_end_after_so_many_steps() -> None:
    """The same row in both classes: the error says what was expected, with all labels and with an oracle."""
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.5], [0.0, 0.5]])
    signs = np.array([1, -1, 1, -1])
    with pytest.raises(ValueError, match="within 500 steps"):
        slab_of_labelled(rows, signs, 0.1, most=500)
    with pytest.raises(ValueError, match="within 500 steps"):
        slab_method(rows, 0, 1, 0.1, lambda row: int(signs[row]), lambda places: 3, most=500)
