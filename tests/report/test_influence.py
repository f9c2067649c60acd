"""Which features decide, on the page of a model: the names are shown, never obeyed, and the bars are the weights."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import coremargin
from coremargin.problems.registry import write_report
from coremargin.report.influence import influence

HEADING = "Which features decide"
HOSTILE = '</svg><script>alert("1")</script>'


def page_of(path: Path, X: Any, y: Any, **options: Any) -> str:
    """The page of a model of these rows."""
    coremargin.train(X, y, out=path, **options)
    return (path / "report.html").read_text(encoding="utf-8")


def section(page: str) -> str:
    """The section about features."""
    return page[page.index(HEADING) :].partition("</section>")[0]


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in the corners of four features, which have different units."""
    y = np.arange(90) % 3
    return (rng.normal(size=(90, 4)) + 5 * np.eye(4)[y]) * [1, 10, 0.1, 1], y


def test_the_page_shows_the_features_by_influence(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """Of two classes there is one picture, with a bar for each feature in the order of the effects, and a table."""
    X, y = rows
    page = page_of(tmp_path / "m", X[y < 2], y[y < 2], loss="hinge", scaling="standard")
    shown = section(page)
    (plane,) = coremargin.Model.load(tmp_path / "m").coefficients()
    names = [one.feature for one in plane.coefficients]
    wide = shown[shown.index('class="w1040"') :].partition("</svg>")[0]
    assert re.findall(r'class="tick"[^>]*>(feature \d)<', wide) == names
    sides = ["positive" if one.effect > 0 else "negative" for one in plane.coefficients]
    assert re.findall(r'class="bar-(\w+)"', wide) == sides
    assert "for one standard deviation of it" in shown
    assert "coremargin coefficients m<" in shown
    assert re.findall(r"<bdi>(feature \d)</bdi>", shown) == names
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("options", "planes", "said"),
    [
        ({"classes": "ovr", "loss": "hinge", "C": [0.1, 1.0]}, 3, "C\u00a0=\u00a01. All of them"),
        ({"classes": "crammer-singer", "scaling": "rownorm"}, 3, "in rows divided by their lengths"),
        ({"outliers": 1}, 1, "Features with different units do not compare"),
        ({}, 1, "coremargin coefficients m<"),
    ],
)
def test_every_kind_of_model_has_them(
    rows: tuple[np.ndarray, np.ndarray], tmp_path: Path, options: dict[str, Any], planes: int, said: str
) -> None:
    """Several classes have a picture each; what the bars are for is said, and how the rest is seen."""
    X, y = rows
    some = slice(None) if planes > 1 else y < 2
    shown = section(page_of(tmp_path / "m", X[some], y[some], **options))
    assert len(set(re.findall(r'id="(influence-\d+)-', shown))) == planes
    assert said in shown


def test_many_features_without_names_are_not_shown(rng: np.random.Generator, tmp_path: Path) -> None:
    """Number 17 of a thousand says nothing; with names they are shown, however many there are."""
    X, y = rng.normal(size=(40, 301)), np.arange(40) % 2
    assert HEADING not in page_of(tmp_path / "bare", X, y)
    head = ",".join([f"c{k}" for k in range(301)] + ["label"])
    lines = [",".join([*map(repr, row), label]) for row, label in zip(X.tolist(), y.astype(str), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([head, *lines]) + "\n")
    coremargin.ingest(tmp_path / "t.csv", tmp_path / "t.zarr")
    coremargin.train(tmp_path / "t.zarr", out=tmp_path / "m")
    assert "15 of 301 features are shown" in section((tmp_path / "m" / "report.html").read_text(encoding="utf-8"))


def test_a_model_that_separates_nothing_has_none(tmp_path: Path) -> None:
    """Where it is proven that there is no hyperplane, none is shown."""
    X = np.array([[0.0], [1.0], [0.5], [2.0]])
    assert HEADING not in page_of(tmp_path / "m", X, [0, 0, 1, 1])


def test_names_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    """Markup in names of columns is text; what is long is cut beside its bar, and whole in the tip."""
    long = "n" * 400
    (tmp_path / "t.csv").write_text(
        f'"{HOSTILE.replace(chr(34), chr(34) * 2)}",{long},label\n1,2,a\n3,1,b\n0,2,a\n4,2,b\n'
    )
    coremargin.ingest(tmp_path / "t.csv", tmp_path / "t.zarr")
    coremargin.train(tmp_path / "t.zarr", out=tmp_path / "m", loss="hinge")
    shown = section(write_report(tmp_path / "m").read_text(encoding="utf-8"))
    assert "<script" not in shown
    assert html.escape(HOSTILE, quote=False).replace('"', "&#34;") in shown
    assert long in shown
    assert "n\u2026<" in shown


def test_drawings_hold_their_bars_and_numbers() -> None:
    """Bars, names and numbers stay inside of the drawing and beside each other, whatever the signs and sizes."""
    for effects in ([("a", 1e-9), ("b", -3e-10)], [("a", -5.0)], [("x" * 90, 7.0), ("b", 0.0)], [("a", 0.0)]):
        for width in (1040, 520, 340):
            tree = ET.fromstring(influence("k", effects, "it", width))  # noqa: S314 - our own
            names = [part for part in tree.iter("text") if part.get("class") == "tick"]
            bars = [part for part in tree.iter("rect") if str(part.get("class")).startswith("bar-")]
            numbers = [part for part in tree.iter("text") if part.get("class") == "note"]
            assert len(names) == len(bars) == len(numbers) == len(effects)
            for name, bar, number in zip(names, bars, numbers, strict=True):
                size, at = len(number.text or "") * 6.7, float(number.get("x", "nan"))
                start, end = (at - size, at) if number.get("text-anchor") == "end" else (at, at + size)
                assert float(name.get("x", "nan")) <= start
                assert end <= width
                left = float(bar.get("x", "nan"))
                assert start >= left + float(bar.get("width", "nan")) or end <= left
