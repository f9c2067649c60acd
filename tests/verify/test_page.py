"""The page about the verifier speaks of code that is there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np

import coremargin
from coremargin.verify.margins import overlap

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim

PAGE = Path(coremargin.__path__[0]) / "verify" / "README.md"


def places() -> Iterator[tuple[str, str]]:
    """File and name of each ``file.py: name``, and in tables of each ``name`` behind one in its cell: of that file.

    The name is empty where there is none.
    """
    for cell in re.findall(r"[^|\n]+", PAGE.read_text()):
        file, table = None, cell.startswith(" `")
        for word in re.findall(r"`([^`]+)`", cell):
            if found := re.fullmatch(r"((?:\w+/)?\w+)\.py(?:: ([\w.]+))?", word):
                file, name = found.groups()
            elif file is not None and table:
                name = word
            else:
                continue
            if name or table:
                yield file, name or ""


def test_every_place_that_the_page_names_exists() -> None:
    """What the page says checks a claim is a function, a class or a method of the file that it names, and all files are
    there.
    """
    assert len(list(places())) > 30
    for file, name in places():
        place = file.replace("/", ".")
        found = importlib.import_module(f"coremargin.{'' if place.startswith('formats.') else 'verify.'}{place}")
        for part in filter(None, name.split(".")):
            found = getattr(found, part)
        assert not name or callable(found), name


def test_the_page_is_short() -> None:
    """Nobody reads for long to learn what is believed: at most 75 lines, and 2,100 words."""
    text = PAGE.read_text()
    assert len(text.splitlines()) <= 75
    assert len(text.split()) <= 2100


def test_the_limit_of_zero_is_the_one_on_the_page() -> None:
    """The numbers that tell zero from a margin are those that the code uses."""
    text = " ".join(PAGE.read_text().split())
    found = re.search(r"rounding: (\d+) \(2 d \+ 18\) 2\^-53, and no more than ([\de-]+), of the weighed length", text)
    assert found is not None
    for features in (1, 30, 10**6):
        limit = min(int(found[1]) * (2 * features + 18) * 2.0**-53, float(found[2])) * 3.0
        for size, ok in ((limit, True), (np.nextafter(limit, 1.0), False)):
            claim = cast("Claim", SimpleNamespace(status="not_separable", features=features, moved=0.0, radius=1.0))
            assert [check.ok for check in overlap(claim, size, 3.0)] == [ok]
