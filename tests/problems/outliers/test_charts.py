"""The picture of the bounds against time: what it draws, and when the page has it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import coremargin
from coremargin.problems.outliers.report import HEIGHT, Bounds, against_time, known_bounds, page_of
from coremargin.report.numbers import precision_for
from outlier_loop import noisy

WIDTH = 700


def line_of(bounds: list[Bounds], name: str) -> np.ndarray:
    """The points (m, 2) of a line of the picture."""
    drawn = str(against_time(bounds, precision_for(1.0, 1.2), WIDTH))
    found = re.search(rf'd="M([^"]+)" class="line-{name}"', drawn)
    return np.array([point.split() for point in found[1].split("L")], float) if found else np.zeros((0, 2))


BOUNDS: dict[str, list[Bounds]] = {
    "a search": [(0.1, None, 9.0), (0.2, 0.5, 9.0), (1.0, 0.5, 1.0), (30.0, 0.6, 0.7), (60.0, 0.6, 0.7)],
    "no upper bound": [(0.1, 0.1, None), (3.0, 0.5, None), (9.0, 0.5, None)],
    "nothing is reached": [(1.0, None, 3.0), (2.0, None, 2.0), (2.5, None, 2.0)],
    "within a clock's tick": [(0.0, 0.5, 1.0), (0.0, 0.5, 0.75), (0.0, 0.5, 0.75)],
    "days": [(0.0, 0.1, 0.5), (40.0, 0.2, 0.4), (3e5, 0.2, 0.3)],
    "not separable": [(1.0, 0.0, 1.0), (2.0, 0.0, 0.0), (2.1, 0.0, 0.0)],
}


@pytest.mark.parametrize("name", BOUNDS)
def test_lines_go_from_moment_to_moment(name: str) -> None:
    """Time runs to the right, to the end; the lower line rises, the upper falls, and they do not cross."""
    bounds = BOUNDS[name]
    lower, upper = line_of(bounds, "lower"), line_of(bounds, "upper")
    for line, direction, place in ((lower, -1, 1), (upper, 1, 2)):
        known = [entry for entry in bounds if entry[place] is not None]
        assert len(line) == max(0, 2 * len(known) - 1)
        assert (np.diff(line[:, 0]) >= 0).all()
        assert (direction * np.diff(line[:, 1]) >= 0).all()
        assert ((line[:, 1] >= 0) & (line[:, 1] <= HEIGHT)).all()
        assert not len(line) or bounds[-1][0] == 0.0 or line[-1, 0] == pytest.approx(WIDTH - 16)
    if len(lower) and len(upper):
        assert upper[-1, 1] <= lower[-1, 1]


def test_moments_that_say_nothing_are_no_part_of_it() -> None:
    """Before any bound there is nothing to draw; a hyperplane that separates nothing reaches no margin."""
    found = [[0.0, None, None], [0.5, -0.25, None], [1.0, 0.5, 2.0]]
    assert known_bounds(found) == [(0.5, 0.0, None), (1.0, 0.5, 2.0)]
    assert known_bounds([]) == []


def test_the_page_of_a_long_search_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that came to no end has words of what makes it hard below the picture; a short one has no picture."""
    monkeypatch.setattr("coremargin.maths.outliers.search.MOST_CERTIFICATES", 60)
    x, y = noisy(400, 6, 4, seed=2)
    store = tmp_path / "s.zarr"
    coremargin.ingest(x, store, labels=y)
    coremargin.train(store, out=tmp_path / "m", outliers=12)
    page = page_of(tmp_path / "m", "m")
    assert "against-time-" in page
    assert "The heuristic finds 4 wrong labels and 12 rows may be excluded" in page
    x, y = noisy(60, 2, 0, seed=2)
    coremargin.train(x, y, out=tmp_path / "easy", outliers=0)
    assert "against-time-" not in page_of(tmp_path / "easy", "easy")
