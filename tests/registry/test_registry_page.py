"""The page of a registry: what there is stands on it, nothing on it runs or loads, whatever names and reasons hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coremargin.registry.aliases import promote, rollback
from coremargin.registry.gates import evaluate
from coremargin.registry.nightly import Gates
from coremargin.registry.page import RunMark, ScoreMark, draw_runs, draw_scores, render
from coremargin.registry.registry import Registry
from registry_kit import append

if TYPE_CHECKING:
    from click.testing import Result

EVIL = "<script>alert(1)</script>\"'&\u202e"


class Elements(HTMLParser):
    """Names and attributes of all elements, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += f"{data} "


@pytest.fixture
def page(registry: Registry, three: tuple[Path, list[Path]]) -> str:
    """Of a registry in which much has happened."""
    held = three[0] / "seen.zarr"
    if not held.exists():
        append(held, 100, 55)
    asked = Gates(verify=False, held_out=held, accuracy=0.5, drift=5.0)
    promote(registry, 1, comment=EVIL)
    for number in (2, 3):
        evaluate(registry, number, asked)
    promote(registry, 3)
    rollback(registry, comment=EVIL)
    evaluate(registry, 3, Gates(verify=False, ratio=1.0))
    figures = {"seconds": 1.5, "rows": 120, "files": 2, "quarantined": 1, "expired": 0, "bytes_read": 5000}
    for code in (0, 10, 3):
        with registry.writing() as writing:
            writing.append("run", None, run={**figures, "exit_code": code, "text": f"{EVIL} {code}"})
    return render(registry)


def test_what_there_is_stands_on_it(page: str) -> None:
    """The champion, all versions with names and gates, drift, runs with their exit codes, the log."""
    text = " ".join(Elements(page).text.split())
    assert "Version 1 is the champion" in text
    assert re.search(r"3 candidate .* refused", text)
    assert "passed 4 of 4" in text
    assert "ratio of the bounds" in text
    assert "200 rows were added to the 100 of version 1, up to version 3" in text
    assert "Version 1 became again the champion" in text
    for code in (0, 10, 3):
        assert f"Run, exit code {code}" in text


def test_nothing_runs_or_loads(page: str) -> None:
    """No script, no address of anything, whatever reasons and names hold."""
    elements = Elements(page).found
    assert not {tag for tag, _ in elements} & {"script", "iframe", "object", "embed", "base", "form", "img"}
    sources = [value for _, attrs in elements for name, value in attrs.items() if name in ("src", "href", "xlink:href")]
    assert sources == ["data:,"]
    assert not [name for _, attrs in elements for name in attrs if name.startswith("on")]
    assert "alert(1)" in Elements(page).text
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_few_things_make_a_page_too(tmp_path: Path, registry: Registry, run_cli: Callable[..., Result]) -> None:
    """An empty registry, one without a champion; the command writes a file whole."""
    text = Elements(render(Registry.create(tmp_path / "empty"))).text
    assert "No versions yet" in text
    assert "No version is the champion yet" in Elements(render(registry)).text
    run_cli("registry", "page", registry.path, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == render(registry)
    run_cli("registry", "page", registry.path, "--out", tmp_path / "none" / "page.html", exit_code=5)


def test_rows_that_are_gone_leave_the_rest(registry: Registry, tmp_path: Path) -> None:
    """Without the store drift is not known, and the page says why."""
    promote(registry, 1)
    text = Elements(render(registry, store=tmp_path / "none.zarr")).text
    assert "is not known" in text
    assert "expected a store, found nothing there" in text


@pytest.mark.parametrize("width", [340, 1040])
@pytest.mark.parametrize("rows", [[0], [5, 0, 1_000_000], list(range(30))])
def test_charts_of_runs_stay_within_their_frame(width: int, rows: list[int]) -> None:
    """One run or thirty, none with rows or one with a million: every bar lies in the drawing, dates do not meet."""
    drawn = str(draw_runs([RunMark(f"11-{k:02d}", count, "good", EVIL) for k, count in enumerate(rows)], width))
    assert "<script>" not in drawn
    for x, y, wide, high in re.findall(
        r'<rect x="([-\d.]+)" y="([-\d.]+)" width="([-\d.]+)" height="([-\d.]+)"', drawn
    ):
        assert 0 <= float(x) <= float(x) + float(wide) <= width + 1
        assert 0 <= float(y) <= float(y) + float(high) <= 210
    places = [float(x) for x in re.findall(r'<text x="([-\d.]+)" y="190', drawn)]
    assert all(b - a >= 70 for a, b in pairwise(places))


def test_charts_of_scores_show_what_was_asked() -> None:
    """A dot for each version, a line below or above it; equal scores make a chart, too."""
    drawn = str(draw_scores([ScoreMark(1, 0.9, 0.0, True), ScoreMark(2, 0.8, 0.89, False)], "Accuracy", 520))
    assert (drawn.count("<circle"), drawn.count("mark-limit"), drawn.count("run-refused")) == (2, 1, 1)
    assert "version 2: 0.8, required at least 0.89" in drawn
    assert "nan" not in str(draw_scores([ScoreMark(k, 1.0, 1.0, True) for k in (1, 2)], "F1", 340))
