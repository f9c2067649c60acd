"""Job files: what a training job may say, and what is said about mistakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from coremargin import spec as specs
from coremargin.errors import SpecError
from coremargin.learn.job import TrainJob

WHOLE = """\
job = "train"
store = "rows.zarr"
out = "models/m"
epsilon = 1e-2
intercept = false
strategy = "paper"
memory = "64 MiB"
sample = 0.1
block = "16 MiB"
max_scans = 7
time_limit = "2 h"
cluster = "two.toml"
"""


def test_a_job_file(tmp_path: Path) -> None:
    """Every key is read, paths are relative to the file, and the text that is kept reads back as the same job."""
    path = tmp_path / "train.toml"
    path.write_text(WHOLE)
    job = specs.load(path, TrainJob)
    assert (job.store, job.out, job.cluster) == (tmp_path / "rows.zarr", tmp_path / "models/m", tmp_path / "two.toml")
    assert (job.epsilon, job.intercept, job.strategy, job.max_scans) == (0.01, False, "paper", 7)
    assert (job.memory, job.block, job.time_limit, job.sample) == (64 << 20, 16 << 20, 7200, 0.1)
    assert specs.parse(specs.dump(job), TrainJob) == job


def test_a_short_job_file() -> None:
    """A store and an output are enough."""
    job = specs.parse('job = "train"\nstore = "a"\nout = "b"', TrainJob)
    assert (job.epsilon, job.intercept, job.strategy, job.cluster) == (1e-3, True, "fast", None)


def test_the_example_names_every_key_with_its_default(repository: Path) -> None:
    """jobs/train.toml has all keys of a job, those that have no default as comments, and changes none of the others."""
    path = repository / "jobs" / "train.toml"
    keys = set(re.findall(r"^(?:# )?(\w+) = ", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert keys == {"job", *TrainJob.__struct_fields__}
    job = specs.load(path, TrainJob)
    assert job == TrainJob(store=job.store, out=job.out)


@pytest.mark.parametrize("epsilon", ["0", "0.0", "1", "1.5", "-0.1", "nan", "inf"])
def test_epsilon_out_of_range(epsilon: str) -> None:
    """An epsilon that is not strictly between 0 and 1 is refused with the range."""
    with pytest.raises(SpecError, match="epsilon: expected a number between 0 and 1, both excluded; found"):
        specs.parse(f'job = "train"\nstore = "a"\nout = "b"\nepsilon = {epsilon}', TrainJob)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("epsilom = 0.1", "epsilom.*did you mean 'epsilon'"),
        ('epsilon = "0.1"', "epsilon: expected float, got str"),
        ("sample = 0", "sample: expected a share above 0 and up to 1"),
        ("sample = nan", "sample: expected a share above 0 and up to 1"),
        ('memory = "1 parsec"', "memory.*parsec"),
        ("memory = 0", "memory: expected at least 1 byte"),
        ("block = -1", "block"),
        ("max_scans = 0", "max_scans: expected int >= 1"),
        ("max_scans = 1.5", "max_scans: expected int"),
        ('strategy = "clever"', "strategy.*clever"),
        ('time_limit = "soon"', "time_limit.*soon"),
        ("intercept = 1", "intercept: expected bool"),
        ("store = 3", "store"),
        ("[cluster]", "cluster"),
        ('loss = "hinge"\nC = 0.0', "C: expected a number above 0"),
        ('loss = "hinge"\nC = 1e160', "C: expected a number above 0, from 1e-100 to 1e"),
        ('loss = "hinge"\nC = nan', "C: expected a number above 0"),
    ],
)
def test_mistakes(tmp_path: Path, line: str, message: str) -> None:
    """Unknown keys, wrong types and values out of range are refused with file and key; exit code 2."""
    key = line.split(" = ", maxsplit=1)[0]
    kept = [text for text in ('job = "train"', 'store = "a"', 'out = "b"') if not text.startswith(key)]
    path = tmp_path / "train.toml"
    path.write_text("\n".join([*kept, line]))
    with pytest.raises(SpecError, match=message) as caught:
        specs.load(path, TrainJob)
    assert str(caught.value).startswith(str(path))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["store", "out"])
def test_required_keys(key: str) -> None:
    """A job without a store or an output is refused by name."""
    lines: dict[str, Any] = {"store": 'store = "a"', "out": 'out = "b"'}
    del lines[key]
    with pytest.raises(SpecError, match=f"required key '{key}' is missing"):
        specs.parse("\n".join(['job = "train"', *lines.values()]), TrainJob)


def test_identity_leaves_out_what_does_not_change_the_result() -> None:
    """Limits, places and clusters may differ between a run and its resumption; what decides about bits may not."""
    base: dict[str, Any] = {"store": Path("a"), "out": Path("b")}
    job = TrainJob(**base)
    for same in ({"max_scans": 3}, {"time_limit": 5.0}, {"cluster": Path("c")}, {"out": Path("d")}):
        assert TrainJob(**base | same).identity() == job.identity()
    for other in (
        {"epsilon": 0.1},
        {"intercept": False},
        {"strategy": "paper"},
        {"memory": 1},
        {"sample": 1.0},
        {"block": 1},
    ):
        assert TrainJob(**base | other).identity() != job.identity()
