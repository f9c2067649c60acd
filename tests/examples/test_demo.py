"""`make demo`: its data, and the whole tour."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coremargin.data.synth import Recipe, synth


def test_the_demo_data_are_digits_and_cancer_measurements(repository: Path, tmp_path: Path) -> None:
    """jobs/demo_data.py writes 1797 images of 64 pixels with their digits, and 569 rows of 30 finite measurements."""
    subprocess.run([sys.executable, repository / "jobs" / "demo_data.py", tmp_path], check=True, timeout=120)
    X, y = np.load(tmp_path / "digits.X.npy"), np.load(tmp_path / "digits.y.npy")
    assert (X.shape, set(y.tolist())) == ((1797, 64), set(range(10)))
    words = (tmp_path / "zeros.txt").read_text(encoding="utf-8").splitlines()
    assert [word == "zero" for word in words] == (y == 0).tolist()
    assert set(words) == {"zero", "other"}
    with (tmp_path / "cancer.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert (len(rows), len(header), header[-1]) == (569, 31, "diagnosis")
    assert {row[-1] for row in rows} == {"malignant", "benign"}
    values = np.array([row[:-1] for row in rows], dtype=float)
    assert np.allclose(values.mean(axis=0), 0)
    assert np.allclose(values.std(axis=0), 1)


@pytest.mark.slow
def test_an_earlier_demo_is_forgotten_and_nothing_else(repository: Path, tmp_path: Path) -> None:
    """Stores and models by the tour's names go when its data are written again; what lies in them or beside stays."""
    synth(tmp_path / "digits.zarr", Recipe(10, 2))
    synth(tmp_path / "cancer.zarr", Recipe(10, 2))
    (tmp_path / "cancer.zarr" / "notes.txt").write_text("mine")
    (tmp_path / "digits.model").mkdir()
    (tmp_path / "digits.model" / "arrays.npz").touch()
    (tmp_path / "mine.txt").write_text("mine")
    subprocess.run([sys.executable, repository / "jobs" / "demo_data.py", tmp_path], check=True, timeout=120)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    written = {"cancer.csv", "digits.X.npy", "digits.y.npy", "zeros.txt"}
    assert left == {"cancer.zarr", "cancer.zarr/notes.txt", "mine.txt"} | written
    subprocess.run(
        [sys.executable, repository / "jobs" / "demo_data.py", tmp_path, "--forget"], check=True, timeout=120
    )
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left == {"cancer.zarr", "cancer.zarr/notes.txt", "mine.txt"}


@pytest.mark.slow
def test_forgetting_leaves_no_empty_folder(repository: Path, tmp_path: Path) -> None:
    """`make clean` leaves nothing behind."""
    for words in ([], ["--forget"], ["--forget"]):
        command = [sys.executable, repository / "jobs" / "demo_data.py", tmp_path / "demo", *words]
        subprocess.run(command, check=True, timeout=120)
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_the_demo_certifies_verifies_and_reports(repository: Path, tmp_path: Path) -> None:
    """The tour ends well on a fresh machine: all models verified, all reports where the last lines say."""
    for room in ("jobs", "cluster"):
        shutil.copytree(repository / room, tmp_path / room)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", tmp_path / "jobs" / "demo.sh"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("$ coremargin verify") == 3
    reports = [Path(line.strip()) for line in done.stdout.splitlines() if line.strip().endswith("report.html")][-3:]
    assert len(reports) == 3
    assert "coremargin active page demo/zeros.campaign --pixels 8x8" in done.stdout
    assert all(report.stat().st_size > 1000 for report in reports)
    assert_shown(tour_of((repository / "README.md").read_text()), done.stdout + done.stderr)


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def tour_of(page: str) -> list[str]:
    """What the page says that the tour prints: the lines of its first section on a first job."""
    section = page.split("## A first job")[1].split("From Python:", maxsplit=1)[0]
    blocks = section.split("```")[1::2]
    lines = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) > 8
    return lines


def assert_shown(lines: list[str], printed: str) -> None:
    """Each line was printed, but for what follows its dots; its numbers are as said, other than times and cores."""
    known = [" ".join(line.split()) for line in printed.splitlines()]
    for line in lines:
        if line.startswith("running "):  # where: on another number of cores it is another line
            continue
        wanted = " ".join(line.removesuffix("...").split())
        found = [text for text in known if NUMBER.sub("#", text).startswith(NUMBER.sub("#", wanted))]
        assert found, f"README says what the tour does not print: {line}"
        if not re.search(r"\d s\b", wanted):
            said = [float(number) for number in NUMBER.findall(wanted)]
            others = [[float(number) for number in NUMBER.findall(text)][: len(said)] for text in found]
            assert any(said == pytest.approx(numbers, rel=1e-6) for numbers in others), line


def test_numbers_of_the_tour_are_held_but_for_times_and_cores() -> None:
    """The tour may run on any number of cores and take any time; another number of rows, or another word, is found."""
    said = ["running embedded Dask, 1 worker x 2 threads", "wrote 356 rows in 0.21 s", "upper bound 33 rows ..."]
    printed = "running embedded Dask, 4 workers x 1 thread\nwrote 356 rows in 0.2 s\nupper bound 33 rows of all"
    assert_shown(said, printed)
    for wrong in ("upper bound 34 rows ...", "lower bound 33 rows ..."):
        with pytest.raises(AssertionError):
            assert_shown([wrong], printed)
