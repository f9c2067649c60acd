"""Where the parts of a report lie: what is of one kind of problem lies in its folder, also inside of a zip."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.active import Campaign
from coremargin.data.arrays import ArraySource
from coremargin.formats.kinds import KINDS
from coremargin.problems.registry import write_report
from coremargin.report.numbers import SCALINGS
from model_kit import store_of

#: The kinds whose models are those of other kinds: so are their pages.
OF_OTHERS = {"hard_or_soft", "kernel_fleet"}

#: Where the kinds live that have pages: "problems/hard".
HOMES = {name: "/".join(parts.kind.split(".")[1:-1]) for name, parts in KINDS.items() if name not in OF_OTHERS}

#: What asks for a model of each kind.
ASKED: dict[str, dict[str, Any]] = {
    "hard_margin": {}, "soft_margin": {"loss": "hinge"}, "logistic": {"loss": "logistic"},
    "relative_margin": {"loss": "hinge", "relative_margin": 2.0},
    "outliers": {"outliers": [1, 2]},
    "fleet": {"classes": "ovr"}, "crammer_singer": {"classes": "crammer-singer"},
    "kernel": {"kernel": "rbf"}, "ball": {"one_class": "ball"}, "ellipsoid": {"one_class": "ellipsoid"},
    "soft_ellipsoid": {"one_class": "ellipsoid", "nu": 0.1},
    "structured": {"structure": "outputs"},
    "ranking": {"structure": "ranking", "loss": "hinge"},
    "soft_ball": {"one_class": "ball", "nu": 0.1}, "kernel_ball": {"one_class": "ball", "kernel": "rbf"},
}  # fmt: skip

#: Writes the pages of folders, by a package in a zip.
SCRIPT = """
import sys
from pathlib import Path
archive, *folders = sys.argv[1:]
sys.path.insert(0, archive)
import coremargin
from coremargin.problems.registry import write_report
assert coremargin.__file__.startswith(archive), coremargin.__file__
for folder in folders:
    write_report(Path(folder))
"""


def kinds_named() -> re.Pattern[str]:
    """Words that name one kind, or ask which one it is."""
    words = {*KINDS, *(home.rpartition("/")[2] for home in HOMES.values()), "crammer", "hinge", "duality_gap"}
    patterns = (word.removesuffix("s").replace("_", "[_ -]") for word in sorted(words))
    return re.compile(rf"\b(?:{'|'.join(patterns)})s?\b", re.IGNORECASE)


def test_shared_parts_of_a_report_name_no_kind(repository: Path) -> None:
    """No module or template of report/, and none that several kinds share, names a kind of problem."""
    package, named = repository / "pipeline" / "coremargin", kinds_named()
    homes = {package / home for home in HOMES.values()}
    texts = [*(package / "report").glob("*.py"), package / "problems" / "common" / "report.py"]
    texts += [path for room in ("report", "problems") for path in (package / room).rglob("*.j2")]
    offenders = [
        f"{path.relative_to(package)}:{number}: {line.strip()[:100]}"
        for path in texts
        if path.parent not in homes
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if named.search(line.replace(SCALINGS["ellipsoid"], ""))  # a scaling, of models of any kind
    ]
    assert offenders == []
    own = [path for path in texts if path.parent in homes]
    assert {path.parent for path in own} == homes
    speaking = {path.parent for path in own if named.search(path.read_text(encoding="utf-8"))}
    assert speaking == homes


def test_every_kind_extends_the_page_of_all(repository: Path) -> None:
    """The page of each kind is a template in its folder, which ends at base.html.j2 and begins no page of its own."""
    package = repository / "pipeline" / "coremargin"
    for home in HOMES.values():
        place = f"{home}/report.html.j2"
        while place != "report/base.html.j2":
            text = (package / place).read_text(encoding="utf-8")
            assert "<!doctype" not in text
            extended = re.search(r'^{% extends "([\w/.]+)" %}$', text, re.MULTILINE)
            assert extended is not None, place
            place = extended[1]
    assert '{% extends "report/frame.html.j2" %}' in (package / place).read_text(encoding="utf-8")
    assert "<!doctype" in (package / "report" / "frame.html.j2").read_text(encoding="utf-8")


def of_a_campaign(path: Path, X: np.ndarray, y: np.ndarray) -> bytes:
    """The page of a campaign's model, which is taken away."""
    store, classes = store_of(path.with_suffix(".zarr"), X, y.tolist(), 30), np.unique(y).tolist()
    with Campaign.create(path, store, classes=classes, error=0.2, cluster="threads") as campaign:
        campaign.run(lambda rows: {row: int(y[row]) for row in rows})
    page = write_report(path / "model")  # by the folder's own name; the campaign's page has that of the campaign
    found = page.read_bytes()
    page.unlink()
    return found


@pytest.mark.slow
def test_a_package_in_a_zip_writes_the_same_pages(repository: Path, tmp_path: Path) -> None:
    """Templates and the style sheet are found where no file system is: the page of every kind is the same there."""
    rng, y = np.random.default_rng(5), np.arange(60) % 2
    rows = ArraySource(rng.standard_normal((60, 3)) + 6 * y[:, None], y)
    ranked = ArraySource(rng.standard_normal((60, 3)), y, groups=np.arange(60) // 10)
    pages = {}
    for kind, asked in ASKED.items():
        coremargin.train(ranked if kind == "ranking" else rows, out=tmp_path / kind, cluster="threads", **asked)
        target = tmp_path / kind / "report.html"
        pages[kind] = target.read_bytes()
        target.unlink()
    pages["active"] = of_a_campaign(tmp_path / "active", rng.standard_normal((60, 3)) + 6 * y[:, None], y)
    three = np.arange(60) % 3
    corners = rng.standard_normal((60, 3)) + 12 * np.eye(3)[three]
    pages["active_classes"] = of_a_campaign(tmp_path / "active_classes", corners, three)
    assert set(pages) == set(HOMES)
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as package:
        for path in (repository / "pipeline").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                package.write(path, path.relative_to(repository / "pipeline"))
    folders = {kind: tmp_path / kind / ("model" if kind.startswith("active") else "") for kind in pages}
    subprocess.run([sys.executable, "-c", SCRIPT, archive, *folders.values()], check=True, timeout=60)
    assert {kind: (folder / "report.html").read_bytes() for kind, folder in folders.items()} == pages
