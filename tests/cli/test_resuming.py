"""The command that goes on with a job says all that the job says, in words that a shell and the command line take."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

import coremargin
from coremargin.cli.options import job_parameters
from coremargin.cli.tables import take_column_options
from coremargin.cli.train import train
from coremargin.problems.registry import job_of, new_job, trained
from coremargin.problems.resuming import resume_words, with_cluster

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store

JOBS: list[dict[str, Any]] = [
    {},
    {"epsilon": 0.02, "intercept": False, "strategy": "paper", "scaling": "standard", "cluster": "/c/slurm 1.toml"},
    {"memory": "64 MiB", "keep_for_retraining": "1 MiB", "block": 1_234_567, "sample": 0.1},
    {"loss": "hinge"},
    {"loss": "squared_hinge", "C": 0.125, "class_weight": [1.0, 1e-05]},
    {"loss": "hinge", "C": [0.1, 1e20], "folds": 5, "fold_seed": 7, "classes": "ovr", "class_weight": "balanced"},
    {"classes": "crammer-singer", "loss": "hinge", "C": 1.0},
    {"kernel": "rbf", "gamma": 0.25, "loss": "hinge", "C": 3.0, "classes": "ovr"}, {"kernel": "rbf"},
    {"kernel": "poly", "gamma": "scale", "degree": 2, "coef0": 1.5},
    {"kernel": "own_kernels:rbf", "kernel_error": 1e-9},
    {"map": "nystroem", "components": 20, "gamma": 0.5, "map_seed": 3, "loss": "hinge"},
    {"map": "polynomial", "degree": 2, "coef0": 1.0},
    {"outliers": 3}, {"outliers": "0..10", "outlier_search": "heuristic", "epsilon": 0.0},
    {"outliers": "1%"}, {"outliers": [0, 2, 5]}, {"one_class": "ball", "only": "a b", "outliers": 3},
    {"one_class": "ball", "nu": 0.1}, {"one_class": "ball", "kernel": "poly", "degree": 2, "nu": 0.1},
    {"structure": "chain", "loss": "hinge", "costs": "a b.csv"}, {"structure": "outputs"},
    {"structure": "outputs", "loss": "hinge", "ordinal": True},
    {"structure": "outputs", "loss": "hinge", "taxonomy": "tree.csv"},
    {"one_class": "ellipsoid", "only": "a b"}, {"one_class": "ellipsoid", "nu": 0.1},
    {"loss": "hinge", "relative_margin": 2.5}, {"strategy": "cutting-planes", "centre": "ep", "pick": "random"},
    {"kernel": "rbf", "loss": "hinge", "C": [0.1, 1.0], "relative_margin": 2.5}, {"kernel": "rbf", "strategy": "smo"},
    {"loss": "hinge", "C": [0.1, 1.0], "choose": "risk"},
]  # fmt: skip


@pytest.mark.parametrize("said", JOBS)
def test_a_command_says_all_that_the_job_says(said: dict[str, Any]) -> None:
    """Read as a shell and the command line do, the words are the job again, without its limits."""
    job = new_job(store="/d/a 'b'; $(rm) -x.zarr", out='/m/"model"', **said)
    limited = replace(job, max_scans=3, time_limit=60.0)
    words = shlex.split(shlex.join(resume_words(limited)))
    assert words[:2] == ["coremargin", "train"]
    context = train.make_context("train", words[2:])
    options = dict(context.params)
    assert options.pop("resume") is True
    for name in ("restart", "overwrite", "as_json", "quiet"):
        assert options.pop(name) is False
    assert not any(take_column_options(options).values())
    assert options.pop("label") is options.pop("drop") is None
    store, cluster = options.pop("store"), options.pop("cluster")
    given = {"job": "train", "store": str(store), **job_parameters(options), "cluster": cluster}
    assert job_of(given) == job


def test_every_parameter_is_tried() -> None:
    """The jobs above say each parameter of each kind, but limits, at least once."""
    names = {name for kind in trained() for name in kind.job.__struct_fields__}
    assert names - {name for said in JOBS for name in said} == {"store", "out", "max_scans", "time_limit"}


def test_where_to_run_is_said_again(tmp_path: Path) -> None:
    """A file and a word of --cluster are part of the command; an address, whose scheduler may be gone, is not."""
    (tmp_path / "c.toml").write_text('kind = "threads"\n')
    job = new_job(store="a", out="b")
    assert resume_words(with_cluster(job, tmp_path / "c.toml"))[-3:-1] == ["--cluster", str(tmp_path / "c.toml")]
    assert resume_words(with_cluster(job, "threads"))[-3:-1] == ["--cluster", "threads"]
    assert with_cluster(job, "tcp://127.0.0.1:8786") == with_cluster(job, None) == job


def test_the_command_that_is_shown_works(
    tmp_path: Path, make_separable: Callable[..., tuple[np.ndarray, np.ndarray]], make_store: Callable[..., Store],
    run_cli: Callable[..., Result],
) -> None:  # fmt: skip
    """A run that stopped at a limit prints the command, and so does its report; it ends with the proof."""
    store, out = make_store(*make_separable(800, 4), name="my rows.zarr"), tmp_path / "a model"
    words = ("--strategy", "paper", "--epsilon", "1e-2", "--memory", "1 MiB", "--no-intercept", "--cluster", "threads")
    told = run_cli("train", store.path, "--out", out, *words, "--max-scans", "1", exit_code=4).stdout
    command = re.search(r"^resume +(.+)$", told, re.MULTILINE)
    assert command is not None
    assert f"check   coremargin verify '{out}' '{store.path}'" in told
    assert command[1] in unescape((out / "report.html").read_text(encoding="utf-8"))
    assert json.loads(run_cli(*shlex.split(command[1])[1:], "--json").stdout)["status"] == "certified"
    run = json.loads((out / "run.json").read_text())
    assert run["resumed"] == 1
    assert run["scans"] > 1
    parameters = json.loads((out / "model.json").read_text())["parameters"]
    assert parameters == {"epsilon": 0.01, "intercept": False, "strategy": "paper"}


def test_rows_in_memory_have_no_command(tmp_path: Path) -> None:
    """What was trained on arrays cannot be gone on with from a shell, and no command pretends so."""
    coremargin.train([[0.0], [1.0], [3.0], [4.0]], ["a", "a", "b", "b"], out=tmp_path / "m")
    assert json.loads((tmp_path / "m" / "run.json").read_text())["resume"] is None
