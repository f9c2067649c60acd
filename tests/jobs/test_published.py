"""The published experiments, done again: small runs of their scripts, and the pictures that these draw."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def published(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder, importable as its scripts import each other."""
    monkeypatch.syspath_prepend(str(repository / "jobs" / "published"))


def test_a_picture_is_whole_whatever_its_words(tmp_path: Path) -> None:
    """Signs that XML has a meaning for stay words, and every line and every published value is drawn."""
    from curves import Panel, draw

    panels = [Panel("a < b & c", "x", {"one>": [(0, 1), (2, 3)], "two": [(0, 3), (2, 0)]}, ((1, 2),)) for _ in range(2)]
    draw(tmp_path / "a.svg", panels, 'said "so"')
    root = ET.fromstring((tmp_path / "a.svg").read_text())  # noqa: S314 - our own
    of = "{http://www.w3.org/2000/svg}"
    texts = [one.text for one in root.iter(f"{of}text")]
    assert [texts.count(text) for text in ("a < b & c", "one>", "two", 'said "so"')] == [2, 2, 2, 1]
    lines = [one for one in root.iter(f"{of}path") if one.get("class") == "line"]
    assert (len(lines), len(list(root.iter(f"{of}circle")))) == (8, 2)


def test_statements_are_held_against_what_is_measured() -> None:
    """A few runs of Figures 2 and 3 are within what is stated of the largest error; other numbers are not."""
    from cutting_planes import measure, stated

    measured = [measure(gamma, 5) for gamma in (0.1, 0.3)]
    assert stated(measured)[0][2]
    measured[0]["picks"]["largest"]["most_planes"] = 7
    assert not stated(measured)[0][2]


def test_on_the_circle_all_labels_are_asked_for() -> None:
    """Whoever is to prove that none is wrong asks about every row, and finds the only one of its class."""
    from circle import asked

    assert asked(12, 0.5 / 12, 1 - 1 / 12) == (12, True)


def test_an_svm_on_banana_errs_as_published(real_data: Path) -> None:
    """Some splits: certified, and within three deviations of the published mean."""
    from banana_svm import measured

    wrong, gaps, rows = measured(real_data, 3)
    assert max(gaps) <= 1e-4
    assert abs(sum(wrong) / 3 - 0.115) < 3 * 0.007
    assert all(2 <= one < 400 for one in rows)


def test_times_are_drawn_by_their_logarithms(tmp_path: Path) -> None:
    """A dot and its word for each run, ticks at 1, 2 and 5 times powers of ten, at equal distances for equal ratios."""
    from maps import Run, picture

    asked = (("exact", 701, 4.0), ("nystroem", 123, 0.5), ("nystroem", 456, 1.0), ("fourier", 123, 2.0))
    runs = [
        Run(how, m, cpu=seconds, reads=1.0, gap=1e-4, wrong=0.1, predict_us=100 * seconds) for how, m, seconds in asked
    ]
    picture(tmp_path / "a.svg", runs)
    root = ET.fromstring((tmp_path / "a.svg").read_text())  # noqa: S314 - our own
    of = "{http://www.w3.org/2000/svg}"
    texts = [one.text for one in root.iter(f"{of}text")]
    assert [texts.count(word) for word in ("701 rows", "123", "456", "0.5", "500")] == [2, 4, 2, 1, 1]
    exact, early, late, other = (float(str(one.get("cx"))) for one in list(root.iter(f"{of}circle"))[:4])
    assert exact - other == pytest.approx(late - early, abs=0.05)
    assert other - late == pytest.approx(late - early, abs=0.05)
