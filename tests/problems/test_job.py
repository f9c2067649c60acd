"""Job files: what a training job may say, and what is said about mistakes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

import coremargin
from coremargin import spec as specs
from coremargin.active.stream import StreamJob, load_stream_job
from coremargin.engine.clusters.specs import load_cluster
from coremargin.errors import SpecError, UsageError
from coremargin.problems.active.spec import ActiveJob
from coremargin.problems.registry import job_of, kind_of, load_job, new_job, own_parameters, trained
from coremargin.problems.resuming import resume_words

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
    job = load_job(path)
    assert (Path(job.store), Path(job.out), job.cluster) == (
        tmp_path / "rows.zarr",
        tmp_path / "models/m",
        str(tmp_path / "two.toml"),
    )
    assert (job.epsilon, job.intercept, job.strategy, job.max_scans) == (0.01, False, "paper", 7)
    assert (job.memory, job.block, job.time_limit, job.sample) == (64 << 20, 16 << 20, 7200, 0.1)
    assert job_of(specs.parse_toml(specs.dump(job))) == job


@pytest.mark.parametrize("cluster", ["tcp://127.0.0.1:8786", "gateway://hub:8000/a.b", "threads", "embedded", "auto"])
def test_a_cluster_without_a_file(cluster: str, tmp_path: Path) -> None:
    """Addresses and names are kept as they stand, in the text of the job and in the command that resumes it."""
    text = f'job = "train"\nstore = "a"\nout = "b"\ncluster = "{cluster}"'
    job = job_of(specs.parse_toml(text), base=tmp_path)
    assert job.cluster == cluster
    assert job_of(specs.parse_toml(specs.dump(job))) == job
    assert resume_words(job)[-3:-1] == ["--cluster", cluster]
    assert load_cluster(job.cluster).__struct_config__.tag in (cluster, "address")


@pytest.mark.parametrize("cluster", ["inproc://127.0.0.1/1/1", "s3://bucket/slurm.toml", "tcp:/127.0.0.1:8786"])
def test_an_address_that_no_scheduler_has(cluster: str) -> None:
    """The message names the key, and what is possible."""
    text = f'job = "train"\nstore = "a"\nout = "b"\ncluster = "{cluster}"'
    with pytest.raises(SpecError, match=f"cluster: expected a cluster file, an address with tcp://.*found '{cluster}'"):
        job_of(specs.parse_toml(text))
    with pytest.raises(UsageError, match="cluster: expected a cluster file, an address with tcp://"):
        load_cluster(cluster)


def test_a_short_job_file() -> None:
    """A store and an output are enough."""
    job = job_of(specs.parse_toml('job = "train"\nstore = "a"\nout = "b"'))
    assert (job.epsilon, job.intercept, job.strategy, job.cluster) == (1e-3, True, "fast", None)


def test_the_example_names_every_key_with_its_default(repository: Path) -> None:
    """jobs/train.toml has all keys of a training job, those that have no default as comments, and changes none of the
    others.
    """
    path = repository / "jobs" / "train.toml"
    keys = set(re.findall(r"^(?:# )?(\w+) = ", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert keys == {"job", *(name for kind in trained() for name in kind.job.__struct_fields__)}
    job = load_job(path)
    assert job == new_job(store=job.store, out=job.out)


def test_the_example_of_a_campaign_names_every_key_with_its_default(repository: Path) -> None:
    """jobs/active.toml has all keys of a campaign, and changes no default."""
    path = repository / "jobs" / "active.toml"
    keys = set(re.findall(r"^(?:# )?(\w+) = ", path.read_text(encoding="utf-8"), re.MULTILINE))
    not_of_a_campaign = {"max_scans", "time_limit", "sample", "keep_for_retraining"}
    assert keys == {"job", *ActiveJob.__struct_fields__} - not_of_a_campaign
    job = load_job(path)
    assert job == ActiveJob(store=job.store, out=job.out, oracle=job.oracle)  # type: ignore[attr-defined]


def test_the_example_of_a_stream_names_every_key_with_its_default(repository: Path) -> None:
    """jobs/stream.toml has all keys of a stream, and changes no default."""
    path = repository / "jobs" / "stream.toml"
    keys = set(re.findall(r"^(?:# )?(\w+) = ", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert keys == {"job", *StreamJob.__struct_fields__}
    job = load_stream_job(path)
    assert job is not None
    assert job == StreamJob(rows=job.rows, out=job.out, label=job.label)


@pytest.mark.parametrize("epsilon", ["0", "0.0", "1", "1.5", "-0.1", "nan", "inf"])
def test_epsilon_out_of_range(epsilon: str) -> None:
    """An epsilon that is not strictly between 0 and 1 is refused with the range."""
    with pytest.raises(SpecError, match="epsilon: expected a number between 0 and 1, both excluded; found"):
        job_of(specs.parse_toml(f'job = "train"\nstore = "a"\nout = "b"\nepsilon = {epsilon}'))


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
        load_job(path)
    assert str(caught.value).startswith(str(path))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["store", "out"])
def test_required_keys(key: str) -> None:
    """A job without a store or an output is refused by name."""
    lines: dict[str, Any] = {"store": 'store = "a"', "out": 'out = "b"'}
    del lines[key]
    with pytest.raises(SpecError, match=f"required key '{key}' is missing"):
        job_of(specs.parse_toml("\n".join(['job = "train"', *lines.values()])))


def test_identity_leaves_out_what_does_not_change_the_result() -> None:
    """Limits, places and clusters may differ between a run and its resumption; what decides about bits may not."""
    base: dict[str, Any] = {"store": Path("a"), "out": Path("b")}
    job = new_job(**base)
    for same in ({"max_scans": 3}, {"time_limit": 5.0}, {"cluster": Path("c")}, {"out": Path("d")}):
        assert new_job(**base | same).identity() == job.identity()
    for other in (
        {"epsilon": 0.1},
        {"intercept": False},
        {"strategy": "paper"},
        {"memory": 1},
        {"sample": 1.0},
        {"block": 1},
    ):
        assert new_job(**base | other).identity() != job.identity()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, "hard_margin"),
        ({"strategy": "paper"}, "hard_margin"),
        ({"strategy": "fast", "C": None, "fold_seed": None, "class_weight": None}, "hard_margin"),
        ({"loss": "hinge"}, "soft_margin"),
        ({"loss": "squared_hinge", "C": 3, "strategy": None}, "soft_margin"),
        ({"loss": "hinge", "folds": 3, "fold_seed": 0}, "fleet"),
        ({"loss": "hinge", "C": [3.0]}, "fleet"),
        ({"classes": "ovr"}, "fleet"),
        ({"loss": "hinge", "folds": 3, "fold_seed": 7}, "fleet"),
        ({"classes": "crammer-singer", "loss": "hinge"}, "crammer_singer"),
        ({"outliers": "0..10", "epsilon": 0}, "outliers"),
    ],
)
def test_what_is_said_decides_which_kind_is_meant(said: dict[str, Any], kind: str) -> None:
    """What is not said, None, is of no kind."""
    assert kind_of(new_job(store="a", out="b", **said)).name == kind


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"C": 1.0}, "C: a hard margin has none, found 1.0; it belongs to .*a soft margin .give loss"),
        ({"C": [1.0]}, r"C: a hard margin has none, found \[1.0\]; give loss too"),
        ({"classes": "ovr", "C": 1.0}, "C: a hard margin has none, found 1.0; give loss too"),
        ({"classes": "crammer-singer", "C": 1.0}, "C: a hard margin has none, found 1.0; give loss too"),
        ({"outliers": 3, "C": 1.0}, "C: a margin with outliers has none, found 1.0"),
        ({"C": 2.0}, "C: a hard margin has none, found 2.0; it belongs to .*a soft margin .give loss"),
        ({"class_weight": "balanced"}, "class_weight: a hard margin has none"),
        ({"loss": "hinge", "strategy": "paper"}, "strategy: a soft margin has none, found 'paper'.* a hard margin"),
        ({"classes": "ovr", "strategy": "paper"}, "strategy: a fleet of models has none"),
        ({"outliers": 3, "folds": 2}, "folds: a margin with outliers has none"),
        ({"outliers": 3, "loss": "hinge"}, "loss: a margin with outliers has none"),
        ({"outlier_search": "exact"}, "outlier_search: a hard margin has none, found 'exact'; it .* .give outliers"),
        ({"loss": "hinge", "strategy": "fast"}, "strategy: a soft margin has none, found 'fast'.* a hard margin"),
        ({"loss": "auto", "strategy": "fast"}, "strategy: loss 'auto' has none, found 'fast'"),
        ({"outliers": 3, "strategy": "fast"}, "strategy: a margin with outliers has none, found 'fast'"),
        ({"fold_seed": 0}, "fold_seed: a hard margin has none, found 0; it belongs to a fleet of models"),
        ({"loss": "hinge", "fold_seed": 0}, "fold_seed: a soft margin has none, found 0; it belongs to a fleet"),
        ({"classes": "ovr", "fold_seed": 0}, "fold_seed: it assigns rows to folds; give folds too"),
        ({"classes": "ovr", "fold_seed": 3}, "fold_seed: it assigns rows to folds; give folds too"),
        ({"classes": "crammer-singer", "folds": 3}, "folds: a margin of several classes at once has none"),
        ({"classes": "crammer-singer", "C": [1.0, 2.0], "loss": "hinge"}, "C: expected float, got a list"),
        (
            {"classes": "crammer-singer", "loss": "squared_hinge"},
            "loss: .* has only 'hinge', found 'squared_hinge'",
        ),
        ({"classes": "crammer-singer", "C": 2.0}, "C: a hard margin has none, found 2.0; give loss too"),
        (
            {"classes": "ovr", "class_weight": [1.0, 2.0]},
            r"class_weight: a hard margin has none, found \[1.0, 2.0\]; give loss too",
        ),
        ({"loss": "hinge", "class_weight": [0.0, 2.0]}, "class_weight: expected two numbers above 0"),
        (
            {"classes": "ovo"},
            r"'ovo'; did you mean 'ovr'\? expected 'ovr' or 'crammer-singer'",
        ),
        ({"epsilon": 0}, "epsilon: expected a number between 0 and 1"),
        ({"fodls": 3}, "unknown key 'fodls'; did you mean 'folds'"),
    ],
)
def test_what_does_not_belong_together(said: dict[str, Any], message: str) -> None:
    """A parameter of another kind is refused with the kinds that have it and how they are asked for."""
    with pytest.raises(SpecError, match=message):
        new_job(store="a", out="b", **said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('job = "activ"', "job = 'activ' is not known; did you mean 'active'. known: active, train"),
        ("job = 3", "job = 3 is not known; known: active, train"),
        ("", "required key 'job' is missing; expected 'active' or 'train'"),
        ('job = "train"\nseed = 0', r'seed: a hard margin has none, found 0; it belongs to a campaign .job = "active"'),
        ('job = "train"\nmethod = "coreset"', "method: a hard margin has none, found 'coreset'"),
        ('job = "active"\nfolds = 3', "folds: a campaign has none, found 3; it belongs to .* models .give"),
        ('job = "active"\nC = 1.0', "C: it belongs to a loss, found 1.0; give loss too"),
        (
            'job = "active"\nloss = "hinge"\nC = 1\nmethod = "ep"',
            "method: expected coreset, stream or random with a loss, found 'ep'",
        ),
        ('job = "active"\nloss = "hinge"', "C: expected a number above 0, or 'auto', with loss 'hinge'; found none"),
        ('job = "active"\nloss = "hinge"\nC = -1', "C: expected a number above 0, from 1e-100 to 1e.100; found -1"),
    ],
)
def test_the_word_that_a_job_begins_with(tmp_path: Path, text: str, message: str) -> None:
    """One that is none is refused with those that there are; jobs of one word have no parameters of another."""
    path = tmp_path / "job.toml"
    path.write_text(f'{text}\nstore = "a"\nout = "b"\n')
    with pytest.raises(SpecError, match=message) as caught:
        load_job(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_python_says_the_same_as_job_files() -> None:
    """``coremargin.train`` has a keyword for every parameter of every kind, with the default that all jobs have.

    Where it has none, or kinds have others or lack it, it is None: nothing is said. All other keywords are about the
    call, or of kinds that others add.
    """
    about_the_call = {
        "parameters", "source", "y", "weights", "groups", "columns", "out", "cluster", "begin", "overwrite", "on_round",
        "storage_options",
    }  # fmt: skip
    keywords = {
        name: keyword.default
        for name, keyword in inspect.signature(coremargin.train).parameters.items()
        if name not in about_the_call
    }
    found = set()
    defaults: dict[str, set[Any]] = {}
    for kind in trained():
        for field in fields(kind.job):
            defaults.setdefault(field.name, set()).add(field.default)
    for kind in trained():
        for field in fields(kind.job):
            if field.name in {"store", "out", "cluster"}:
                continue
            found.add(field.name)
            own = field.default is NODEFAULT or field.name in own_parameters() or len(defaults[field.name]) > 1
            default = None if own else field.default
            assert keywords[field.name] == default, f"{field.name} of {kind.name}"
    assert found == set(keywords)
