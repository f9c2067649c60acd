"""The picture of a function of two features: lines where they are, and a page that has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_circles

import coremargin
from coremargin.problems.kernel import report
from coremargin.report.field import Field, extents, picture, segments


def _circle() -> Field:
    x, y = extents(np.array([[-2.0, -2.0], [2.0, 2.0]]))
    values = 1.0 - x[None, :] ** 2 - y[:, None] ** 2
    return Field(x, y, values, np.zeros((2, 2)), np.array([True, False]), ("a", "b"))


@pytest.mark.parametrize("level", [0.0, -1.0])
def test_lines_lie_where_the_function_has_the_level(level: float) -> None:
    """Of a circle: every end at its radius, and together as long as it is round."""
    pieces = np.array(segments(_circle(), level))
    radius = np.sqrt(1.0 - level)
    np.testing.assert_allclose(np.hypot(pieces[..., 0], pieces[..., 1]), radius, rtol=2e-3)
    assert np.hypot(*(pieces[:, 0] - pieces[:, 1]).T).sum() == pytest.approx(2 * np.pi * radius, rel=1e-2)


def test_saddles_are_drawn_whole() -> None:
    """Cells that a line crosses twice have two pieces."""
    x = y = np.linspace(-1.0, 1.0, 8)
    field = Field(x, y, np.outer(y, x), np.zeros((1, 2)), np.array([True]), ("a", "b"))
    assert len(segments(field, 0.0)) == 14


def test_the_picture_says_what_it_shows() -> None:
    """In words too, with labels that are no markup."""
    text = str(picture(_circle(), ["<b>", "in"], 520))
    assert "The boundary between &lt;b&gt; and in" in text
    assert "<b>" not in text
    assert "field-positive" in text


def test_a_page_of_two_features_has_it(tmp_path: Path) -> None:
    """Scaled rows are shown as they are; of three features there is none."""
    X, y = make_circles(200, noise=0.05, factor=0.5, random_state=0)
    coremargin.train(X * 100, y, out=tmp_path / "m", kernel="rbf", loss="hinge", scaling="standard")
    page = report.page_of(tmp_path / "m", "m")
    assert "<h2>The boundary</h2>" in page
    assert ">100<" in page
    coremargin.train(np.column_stack([X, y]), y, out=tmp_path / "n", kernel="rbf", loss="hinge")
    assert "<h2>The boundary</h2>" not in report.page_of(tmp_path / "n", "n")
