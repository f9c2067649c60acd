"""The job files that come with the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from coremargin.problems.registry import kind_of, load_job


@pytest.mark.parametrize(("name", "problem"), [("train", "hard_margin"), ("kernel", "kernel"), ("kdd", "kernel")])
def test_a_job_of_training_is_read(repository: Path, name: str, problem: str) -> None:
    """As the problem that it is, about a store beside the folder."""
    job = load_job(repository / "jobs" / f"{name}.toml")
    assert kind_of(job).name == problem
    assert Path(job.store).parent == repository
