"""What axe-core finds in the page, and in the files that are written for people: nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser_kit import program, violations
from campaign_kit import CLASSES, rows_and_labels
from coremargin.active import Campaign
from coremargin.registry.add_version import add
from coremargin.registry.page import write_page
from coremargin.registry.registry import Registry
from page_kit import ROW, WHO, begun, row_of, served
from registry_kit import grown

if TYPE_CHECKING:
    from browser_kit import Browser

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(900),
    pytest.mark.skipif(program() is None, reason="no Chromium is installed"),
]  # fmt: skip


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_axe_finds_nothing(tmp_path: Path, chromium: Browser, dark: bool, width: int) -> None:
    """No violation, asked and asking back, typed labels, the end, in either theme, on a screen or a phone."""
    X, labels = rows_and_labels(60, 3)
    path = begun(tmp_path, X, classes=None, error=0.3, confidence=0.5)
    with served(path) as (_, url):
        tab = chromium.tab(url)
        tab.look(width, 800, dark=dark)
        tab.until("document.querySelector('#who') !== null")
        assert violations(tab) == []
        tab.open(url + WHO)
        seen = set[str]()
        while tab.until("view && view.ready && (view.ended ? 'ended' : view.question && 'asked')") != "ended":
            row = row_of(tab)
            typed = tab.run("!document.querySelector('#typed').hidden")
            if typed:
                tab.run(f"document.querySelector('#word').value = '{labels[row]}'; "
                        "document.querySelector('#typed').requestSubmit(); 0")  # fmt: skip
                if tab.until(f"(confirming && 'new') || ({ROW} !== {row} && 'taken')") == "new":
                    assert violations(tab) == []
                    seen.add("new")
                    tab.press("y")
            else:
                tab.press(str(1 + tab.run("view.classes").index(labels[row])))
            tab.until(f"view.ended || {ROW} !== {row}")
            if (state := "typed" if typed else "keys") not in seen:
                assert violations(tab) == []
                seen.add(state)
        assert violations(tab) == []
        assert seen >= {"typed", "new", "keys"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of a campaign of two people, amid a conflict and at its end, that of a model, the page of a registry."""
    folder = tmp_path_factory.mktemp("reports")
    X, labels = rows_and_labels(60, 3)
    path, rows = begun(folder, X, error=0.3, confidence=0.5, people=2), list[int]()
    with Campaign(path) as campaign:
        while asked := campaign.ask(1, who="anna", again=True) or campaign.ask(1, who="anna"):
            row = asked[0].row
            rows.append(row)
            right, wrong = labels[row], CLASSES[1 - CLASSES.index(labels[row])]
            campaign.tell([row], [right], who="anna")
            campaign.tell([row], [wrong if len(rows) == 8 else right], who="ben")
            if len(rows) == 8:
                shutil.copy(campaign.report(), folder / "conflict.html")
                campaign.tell([row], [right], who="cleo")
        assert campaign.status["status"] == "certified"
        found = {"conflict": folder / "conflict.html", "campaign": campaign.report()}
    assert "cleo" not in found["conflict"].read_text(encoding="utf-8")
    (folder / "models").mkdir()
    _, models = grown(folder / "models", 2)
    registry = Registry.create(folder / "registry")
    for model in models:
        add(registry, model)
    write_page(registry, folder / "models.html")
    return found | {"model": models[1] / "report.html", "registry": folder / "models.html"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("name", ["conflict", "campaign", "model", "registry"])
def test_axe_finds_nothing_in_files(
    files: dict[str, Path], chromium: Browser, name: str, dark: bool, width: int
) -> None:
    """No violation in what people are given to read, in either theme, on a screen or a phone."""
    tab = chromium.tab()
    tab.look(width, 800, dark=dark)
    tab.open(files[name].as_uri())
    tab.until("document.readyState === 'complete' && document.querySelector('main') !== null")
    assert violations(tab) == []
    tab.run("document.querySelector('main').append(document.createElement('img')); 0")
    assert [one.split()[0] for one in violations(tab)] == ["image-alt"]
