"""The report of a fleet: what it claims is what fleet.json says, whatever is in it."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from sklearn.datasets import load_iris

import coremargin
from coremargin.problems.fleet.report import render as render_fleet
from coremargin.problems.registry import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet of iris: three classes, three values of C, three folds."""
    X, y = load_iris(return_X_y=True)
    out = tmp_path_factory.mktemp("fleet") / "iris"
    names = np.array(["setosa", "versicolor", "virginica"])
    coremargin.train(X, names[y], out=out, classes="ovr", C=[0.1, 1.0, 10.0], folds=3, loss="hinge")
    return out


@pytest.fixture
def parts(folder: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """What the page is made of, to be changed at will."""
    lines = (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    fleet, run = (json.loads((folder / name).read_text(encoding="utf-8")) for name in ("fleet.json", "run.json"))
    return fleet, run, [json.loads(line) for line in lines]


def text_of(page: str) -> str:
    """What a reader sees: no tags, single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("</style>")[2])).replace(" .", ".")


def test_training_writes_the_page(folder: Path) -> None:
    """`train` leaves a page; writing it again gives the same bytes."""
    page = (folder / "report.html").read_bytes()
    assert write_report(folder).read_bytes() == page
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_the_page_says_what_the_record_says(parts: Any) -> None:
    """Models, chosen C, held-out accuracy, all cells of the confusion matrix and all models are on the page."""
    fleet, run, rounds = parts
    page = render_fleet(fleet, run, rounds, name="iris")
    seen = text_of(page)
    assert "All 36 models are proven" in seen
    cost = fleet["chosen"]["C"]
    best = next(row for row in fleet["validation"] if row["C"] == cost)
    assert f"C = {cost:g} has the best accuracy on held-out rows: {100 * best['mean']:.2f} %" in seen
    held = sum(np.array(e["confusion"]) for e in fleet["evaluations"] if e["fold"] is not None and e["C"] == cost)
    assert held.sum() == 150
    lines = re.findall(r"<tr>(.*?)</tr>", page.partition('class="matrix"')[2].partition("</table>")[0], re.DOTALL)[1:]
    shown = [[int(cell or 0) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", line)] for line in lines]
    assert np.array_equal(shown, held)
    assert all(member["name"] in page for member in fleet["members"])
    assert "coremargin verify iris" in page


def test_the_page_needs_nothing_else(parts: Any) -> None:
    """No script, nothing loaded, drawings that are well-formed with a title and a description."""
    page = render_fleet(*parts)
    assert not re.search(r"<script|<link rel=\"stylesheet|src=|https?://(?!www\.w3\.org)", page)
    drawings = re.findall(r"<svg class=.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 7
    for drawing in drawings:
        root = ET.fromstring(drawing)  # noqa: S314  written by us, a moment ago
        assert [child.tag for child in root[:2]] == ["title", "desc"]


def test_labels_cannot_break_out(parts: Any) -> None:
    """Labels are text, whatever they hold."""
    fleet, run, rounds = copy.deepcopy(parts)
    evil = '<img src=x onerror="alert(1)">'
    fleet["classes"][0] = evil
    for member in fleet["members"]:
        member["class"] = evil if member["class"] == "setosa" else member["class"]
    page = render_fleet(fleet, run, rounds, name="a b;rm")
    assert "<img" not in page
    assert "&lt;img" in page
    assert "verify &#39;a b;rm&#39;" in page


def test_what_is_not_proven_is_not_claimed(parts: Any) -> None:
    """A stopped member shows first, the headline counts it, and the command resumes."""
    fleet, run, rounds = copy.deepcopy(parts)
    fleet["status"], run["resumable"] = "stopped", True
    fleet["members"][7] |= {"status": "stopped", "lower": None, "ratio": None}
    fleet["evaluations"], fleet["validation"], fleet["chosen"] = [], None, None
    page = render_fleet(fleet, run, rounds)
    seen = text_of(page)
    assert "35 of 36 models are proven" in seen
    assert "1 stopped before a proof" in seen
    assert "--resume" in page
    assert "right class" not in seen
    names = re.findall(r"<code>(class-[^<]*)</code>", page)
    assert names[0] == fleet["members"][7]["name"]


def test_many_classes_are_listed_by_their_mistakes(parts: Any) -> None:
    """Beyond 40 classes the most frequent mistakes stand for the matrix."""
    fleet, run, rounds = copy.deepcopy(parts)
    k = 60
    confusion = np.diag(np.full(k, 5))
    confusion[3, 17] = 9
    member = fleet["members"][0]
    fleet["classes"] = [f"c{i}" for i in range(k)]
    fleet["members"] = [member | {"name": f"m{i}", "class": f"c{i}", "C": 1.0, "fold": None} for i in range(k)]
    fleet["validation"], fleet["chosen"] = None, {"C": 1.0, "by": "only"}
    fleet["evaluations"] = [
        {"C": 1.0, "fold": None, "rows": 309, "accuracy": 300 / 309, "confusion": confusion.tolist()}
    ]
    page = render_fleet(fleet, run, rounds)
    assert 'class="matrix"' not in page
    assert re.search(r"c3</bdi></th><td class=\"words\"><bdi>c17</bdi></td><td>9</td>", page)
