"""The wheel, installed into a virtual environment of its own: it has the templates, and its commands accept them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from coremargin.cli.init import TEMPLATES
from wheel_kit import build_wheel, site_packages

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("source", ["clone", "source distribution"])
def test_an_installed_wheel_writes_files_that_it_accepts(repository: Path, tmp_path: Path, source: str) -> None:
    """Built from a clone or from the source distribution, it writes the files of the repository, byte for byte."""
    project = repository
    if source == "source distribution":
        pytest.importorskip("hatchling")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path / "sdist")]
        subprocess.run(command, cwd=repository, check=True, capture_output=True, timeout=300)
        (archive,) = (tmp_path / "sdist").iterdir()
        with tarfile.open(archive) as file:
            file.extractall(tmp_path / "sdist", filter="data")
        project = next(path for path in (tmp_path / "sdist").iterdir() if path.is_dir())
    wheel = build_wheel(project, tmp_path / "dist")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=120)
    own = next((venv / "lib").iterdir()) / "site-packages"
    (own / "dependencies.pth").write_text("\n".join(site_packages()))
    pip = [sys.executable, "-m", "pip", "--python", str(venv), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, wheel], check=True, timeout=300)

    def coremargin(*words: str) -> str:
        done = subprocess.run(
            [venv / "bin" / "coremargin", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    where = [venv / "bin" / "python", "-c", "import coremargin; print(coremargin.__file__)"]
    assert subprocess.run(where, capture_output=True, text=True, check=True).stdout.startswith(str(own))
    printed = coremargin("init", *TEMPLATES).splitlines()
    for line, one in zip(printed, TEMPLATES.values(), strict=True):
        assert (tmp_path / one.path).read_bytes() == (repository / one.path).read_bytes()
        program, *words = line.rpartition("then: ")[2].replace("JOB", "jobs/train.toml").split()
        if program == "coremargin":
            assert f"{one.path}: a valid" in coremargin(*words)
