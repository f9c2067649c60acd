"""The page about the verifier speaks of code that is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import coremargin

PAGE = Path(coremargin.__path__[0]) / "verify" / "README.md"


def test_every_place_that_the_page_names_exists() -> None:
    """``file.py: name`` on the page is a function, a class or a method of that file."""
    places = re.findall(r"`((?:formats/)?\w+)\.py: ([\w.]+)`", PAGE.read_text())
    assert len(places) > 20
    for file, name in places:
        room = file.replace("/", ".") if "/" in file else f"verify.{file}"
        found = importlib.import_module(f"coremargin.{room}")
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)


def test_the_page_is_one_screen() -> None:
    """Nobody scrolls to learn what is believed."""
    assert len(PAGE.read_text().splitlines()) <= 50


def test_the_limit_of_zero_is_the_one_on_the_page() -> None:
    """The number that tells zero from a margin is the one that the code uses."""
    text = (PAGE.parent / "checks.py").read_text()
    assert "_ZERO = 64" in text
    assert "_MOST = 1e-12" in text
    assert "min(_ZERO * (2 * claim.features + 18) * UNIT, _MOST) * size" in text
