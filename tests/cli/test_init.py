"""`coremargin init`, which writes files to edit, and `coremargin run --check`, which reads them."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coremargin.cli import init
from coremargin.cli.init import TEMPLATES

if TYPE_CHECKING:
    from click.testing import Result

Cli = Callable[..., "Result"]
JOBS = ("train", "retrain", "nightly", "active")
CLUSTERS = tuple(name for name, one in TEMPLATES.items() if one.path.startswith("cluster/") and name != "dockerfile")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_below(folder: Path) -> list[str]:
    """All files and links below a folder, hidden ones included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def test_without_names_all_templates_are_listed(run_cli: Cli, here: Path) -> None:
    """With the file that each becomes, and nothing is written."""
    lines = run_cli("init").stdout.splitlines()
    assert [line.split()[:2] for line in lines[: len(TEMPLATES)]] == [
        [name, TEMPLATES[name].path] for name in TEMPLATES
    ]
    assert files_below(here) == []


def test_templates_are_the_files_of_the_repository(repository: Path) -> None:
    """The package has links to them, not copies; all cluster files and all jobs of general use are templates."""
    folder = repository / "pipeline" / "coremargin" / "templates"
    assert files_below(folder) == sorted(one.path for one in TEMPLATES.values())
    for one in TEMPLATES.values():
        assert (folder / one.path).is_symlink()
        assert (folder / one.path).resolve() == repository / one.path
    assert {f"cluster/{path.name}" for path in (repository / "cluster").glob("*.toml")} < {
        one.path for one in TEMPLATES.values()
    }


def test_files_are_written_as_they_are_in_the_repository(run_cli: Cli, here: Path, repository: Path) -> None:
    """All at once, each with a line on what to edit and what to run next; names may be repeated."""
    printed = run_cli("init", *TEMPLATES, "train").stdout.splitlines()
    assert files_below(here) == sorted(one.path for one in TEMPLATES.values())
    for one, line in zip(TEMPLATES.values(), printed, strict=True):
        assert (here / one.path).read_bytes() == (repository / one.path).read_bytes()
        assert not (here / one.path).is_symlink()
        assert line.startswith(f"{one.path}: edit ")
        assert line.endswith(one.then)


@pytest.mark.parametrize("name", JOBS)
def test_job_files_are_accepted(run_cli: Cli, here: Path, name: str) -> None:
    """By the command that `init` names; their stores need not exist."""
    command = run_cli("init", name).stdout.strip().rpartition("then: coremargin ")[2]
    assert run_cli(*command.split()).stdout == f'jobs/{name}.toml: a valid job, "{name}"\n'
    assert files_below(here) == [f"jobs/{name}.toml"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_cluster_files_are_accepted(run_cli: Cli, here: Path, name: str) -> None:
    """By the command that `init` names, with a job; with --json, too."""
    printed = run_cli("init", "train", name).stdout.splitlines()
    words = printed[1].rpartition("then: coremargin ")[2].replace("JOB", "jobs/train.toml").split()
    assert run_cli(*words).stdout.splitlines()[1] == f'cluster/{name}.toml: a valid cluster, "{name}"'
    assert json.loads(run_cli(*words, "--json").stdout) == {"job": "train", "cluster": name}


@pytest.mark.parametrize("name", [*JOBS, *CLUSTERS])
def test_keys_to_edit_are_in_the_file(repository: Path, name: str) -> None:
    """What `init` tells to edit are keys and tables of the file, which may be comments, or all of its sizes."""
    text = (repository / TEMPLATES[name].path).read_text()
    words = re.findall(r"\[?[a-z_]+\]?", TEMPLATES[name].edit.partition(";")[0])
    missing = [word for word in words if not re.search(rf"^(?:# )?(?:{word} = |{re.escape(word)})", text, re.MULTILINE)]
    assert set(missing) <= {"nothing", "or", "and", "sizes"}


@pytest.mark.parametrize("there", ["file", "dangling link", "folder"])
def test_nothing_is_replaced(run_cli: Cli, here: Path, there: str) -> None:
    """If one of the files exists, the error names it, and none is written."""
    target = here / "cluster" / "slurm.toml"
    target.parent.mkdir()
    if there == "file":
        target.write_text("mine")
    elif there == "folder":
        target.mkdir()
    else:
        target.symlink_to(here / "nowhere")
    before = files_below(here)
    found = run_cli("init", "train", "slurm", exit_code=2).stderr
    assert "cluster/slurm.toml already exists and is not replaced: rename or remove it; nothing was written" in found
    assert files_below(here) == before
    assert there != "file" or target.read_text() == "mine"


def test_a_file_that_appears_meanwhile_is_not_replaced(
    run_cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may write it after the check; nothing else is left behind."""
    run_cli("init", "train")
    (here / "jobs" / "train.toml").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(init.os.path, "lexists", lambda path: False)
        assert "already exists" in run_cli("init", "train", exit_code=2).stderr
    assert files_below(here) == ["jobs/train.toml"]
    assert (here / "jobs" / "train.toml").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_an_error(run_cli: Cli, here: Path) -> None:
    """The message names the path."""
    (here / "jobs").write_text("a file")
    assert "jobs" in run_cli("init", "train", exit_code=None).stderr
    assert files_below(here) == ["jobs"]


def test_unknown_names_are_corrected(run_cli: Cli, here: Path) -> None:
    """A typing error is an error with the nearest name, and nothing is written."""
    assert "did you mean 'slurm'" in run_cli("init", "train", "slrum", exit_code=2).stderr
    assert files_below(here) == []


def test_an_installation_without_templates_says_so(
    run_cli: Cli, here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archives without symbolic links hold the path of the template in its place, which is no job file."""
    package = tmp_path_factory.mktemp("package")
    monkeypatch.setattr(importlib.resources, "files", lambda name: package)
    assert "jobs/train.toml is missing in this installation" in run_cli("init", "train", exit_code=2).stderr
    (package / "templates" / "jobs").mkdir(parents=True)
    (package / "templates" / "jobs" / "train.toml").write_text("../../../../jobs/train.toml")
    assert "jobs/train.toml is missing in this installation" in run_cli("init", "train", exit_code=2).stderr
    assert files_below(here) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("epsilom = 0.1", "did you mean 'epsilon'"),
        ('cluster = "none.toml"', "none.toml: cannot be read"),
        ('cluster = "bad.toml"', "memory: not a size with a unit: 4"),
    ],
)
def test_check_refuses_what_run_would(run_cli: Cli, here: Path, line: str, message: str) -> None:
    """Mistakes in the job file and in the cluster file that it names, with exit code 2."""
    (here / "bad.toml").write_text('kind = "slurm"\ninsecure = true\nmemory = 4\n')
    (here / "job.toml").write_text(f'job = "train"\nstore = "rows.zarr"\nout = "m"\n{line}\n')
    assert message in run_cli("run", "job.toml", "--check", exit_code=2).stderr
    assert message in run_cli("run", "job.toml", exit_code=2).stderr


@pytest.mark.parametrize("option", ["--resume", "--restart", "--overwrite", "--step=ingest"])
def test_check_runs_nothing(run_cli: Cli, here: Path, option: str) -> None:
    """It cannot be combined with options of a run."""
    run_cli("init", "nightly")
    found = run_cli("run", "jobs/nightly.toml", "--check", option, exit_code=2).stderr
    assert f"cannot be combined with {option.partition('=')[0]}" in found


def test_a_killed_write_leaves_no_half_file(run_cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file appears under its name when all of it is on disk; a later run is not disturbed by what was left."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        run_cli("init", "train", exit_code=130)
    assert files_below(here) == []
    (here / "jobs" / ".train.toml.new").write_text("half")
    run_cli("init", "train")
    assert files_below(here) == ["jobs/train.toml"]
