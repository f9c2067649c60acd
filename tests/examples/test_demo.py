"""`make demo`: its data, and the whole tour."""

from __future__ import annotations

import csv
import os
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
    with (tmp_path / "cancer.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert (len(rows), len(header), header[-1]) == (569, 31, "diagnosis")
    assert {row[-1] for row in rows} == {"malignant", "benign"}
    values = np.array([row[:-1] for row in rows], dtype=float)
    assert np.allclose(values.mean(axis=0), 0)
    assert np.allclose(values.std(axis=0), 1)


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
    assert left == {"cancer.csv", "cancer.zarr", "cancer.zarr/notes.txt", "digits.X.npy", "digits.y.npy", "mine.txt"}
    subprocess.run(
        [sys.executable, repository / "jobs" / "demo_data.py", tmp_path, "--forget"], check=True, timeout=120
    )
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left == {"cancer.zarr", "cancer.zarr/notes.txt", "mine.txt"}


def test_forgetting_leaves_no_empty_folder(repository: Path, tmp_path: Path) -> None:
    """`make clean` leaves nothing behind."""
    for words in ([], ["--forget"], ["--forget"]):
        command = [sys.executable, repository / "jobs" / "demo_data.py", tmp_path / "demo", *words]
        subprocess.run(command, check=True, timeout=120)
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_the_demo_certifies_verifies_and_reports(repository: Path, tmp_path: Path) -> None:
    """The tour ends well on a fresh machine: both models verified, both reports where the last lines say."""
    for room in ("jobs", "cluster"):
        shutil.copytree(repository / room, tmp_path / room)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", tmp_path / "jobs" / "demo.sh"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("$ coremargin verify") == 2
    reports = [Path(line.strip()) for line in done.stdout.splitlines() if line.strip().endswith("report.html")][-2:]
    assert len(reports) == 2
    assert all(report.stat().st_size > 1000 for report in reports)
