"""The page of structured output: transitions, features of labels, confusions of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import coremargin
from coremargin.problems.structured.report import draw_transitions, list_transitions

LABELS = np.array(["<a>", "b", "c"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a chain about rows in memory."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("report") / "chain.model"
    lengths = rng.integers(1, 8, 40)
    codes = np.concatenate([(rng.integers(3) + np.arange(length)) % 3 for length in lengths])
    X = rng.normal(size=(3, 4))[codes] + rng.normal(size=(len(codes), 4))
    groups = np.repeat(np.arange(40), lengths)
    model: Any = coremargin.train(X, LABELS[codes], groups=groups, structure="chain", loss="hinge", C=0.5, out=folder)
    given = model.predict(X, groups=groups)
    confusion = [[int(((LABELS[codes] == a) & (given == b)).sum()) for b in model.labels] for a in model.labels]
    assert json.loads((folder / "run.json").read_text())["confusion"] == confusion
    return folder


def test_the_page_shows_transitions_features_and_confusions(trained: Path) -> None:
    """Sections, labels escaped, and the share of the rows that is predicted correctly."""
    page = (trained / "report.html").read_text()
    for title in ("Which label follows which", "What is taken for what", "Which features decide", "Label by label"):
        assert f"<h2>{title}</h2>" in page
    assert "<a>" not in page
    assert "&lt;a&gt;, then b" in page
    confusion = np.array(json.loads((trained / "run.json").read_text())["confusion"])
    assert f"{100 * np.trace(confusion) / confusion.sum():.2f}" in page


def test_transitions_are_drawn_and_listed() -> None:
    """A cell for each two labels, shaded by the size of the score; the highest and the lowest in two lists."""
    transitions = np.array([[0.0, 2.0, -1.0], [4.0, 0.5, 0.0], [0.0, 0.0, -3.0]])
    root = ET.fromstring(str(draw_transitions(transitions, ["a", "b", "c"], 620)))  # noqa: S314 - our own
    cells = {cell.find("title").text: cell.attrib for cell in root.iter("rect")}  # type: ignore[union-attr]
    assert len(cells) == 9
    assert cells["b, then a: 4"]["class"] == "bar-positive"
    assert cells["b, then a: 4"]["style"] == "fill-opacity:1.000"
    assert cells["c, then c: \u22123"]["class"] == "bar-negative"
    assert cells["a, then b: 2"]["style"] == "fill-opacity:0.500"
    found = list_transitions(transitions, ["a", "b", "c"])
    assert found["highest"][0] == {"before": "b", "after": "a", "score": 4.0}
    assert found["lowest"][0] == {"before": "c", "after": "c", "score": -3.0}
    assert len(found["highest"]) + len(found["lowest"]) == 9


def test_output_lists_have_no_transitions(tmp_path: Path) -> None:
    """The page of single rows has no section of transitions."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 3)), LABELS[rng.integers(3, size=60)]
    coremargin.train(X, y, structure="outputs", loss="hinge", C=0.01, out=tmp_path / "m")
    page = (tmp_path / "m" / "report.html").read_text()
    assert "Which label follows which" not in page
    assert "3 labels with costs" in page
