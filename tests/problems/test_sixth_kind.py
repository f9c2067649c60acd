"""How much one more kind of problem takes: a folder, a line, and one for the verifier. README.md is the recipe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import coremargin
from coremargin.cli import kinds, main
from coremargin.cli.common import Main
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import DataError, Interrupted, SpecError, UsageError
from coremargin.formats.kinds import Parts
from coremargin.learn.train import Progress, train_job
from coremargin.models.registry import load
from coremargin.problems import registry
from coremargin.report import page
from coremargin.verify.registry import KINDS as CLAIMS
from kinds_kit import with_a_line
from model_kit import store_of


@pytest.fixture
def _farthest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The line, in front of the kind that takes what is left, and the verifier's. Nothing else of the house changes."""
    monkeypatch.setitem(CLAIMS, "farthest", "far_verify")
    with with_a_line("farthest", Parts("far_kind", "far_model", "far_record", "far_commands")):
        yield


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """200 rows."""
    return rng.standard_normal((200, 3)).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path, rows: np.ndarray) -> Path:
    """The rows in chunks of 16."""
    return store_of(tmp_path / "s.zarr", rows, list("ab" * 100), 16)


def say(*words: object) -> str:
    """What a command prints; it ends well."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("_farthest")
def test_it_is_trained_verified_shown_and_reported(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """A job file that asks for it ends with a certified model, which every command knows; NumPy finds the same row."""
    job, model = tmp_path / "job.toml", tmp_path / "m"
    job.write_text('job = "train"\nstore = "s.zarr"\nout = "m"\nfarthest = true\n')
    longest = int(np.linalg.norm(rows.astype(np.float64), axis=1).argmax())
    assert "farthest = true" in say("plan", job)
    told = say("run", job, "--cluster", "threads", "--quiet")
    assert told.startswith(f"certified: row {longest} is the longest.")
    claims = load(model).certificate
    square = max(sum(Fraction(float(value)) ** 2 for value in row) for row in rows)
    assert 0 < Fraction(claims.lower) ** 2 < square < Fraction(claims.upper) ** 2
    assert claims.kind == "length"
    assert coremargin.verify(model, store).ok
    assert say("verify", model, store, "--quiet").endswith("verified: no row is longer\n")
    assert f"length    from {claims.lower!r} to {claims.upper!r}" in say("show", model)
    assert "The longest row." in (model / "report.html").read_text()
    assert load(model).kind == "farthest"
    (command,) = (command for command in kinds.commands() if command.name == "farthest")
    assert json.loads(CliRunner().invoke(command, [str(model), "--json"]).stdout) == {"row": longest}
    assert CliRunner().invoke(command, [str(model)]).stdout == f"row {longest}\n"


@pytest.mark.usefixtures("_farthest")
def test_it_is_asked_for_by_an_option_and_by_a_keyword(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """The command line and ``coremargin.train`` take what only this kind has.

    What all kinds have is on the command line what this one says, in Python what the signature says.
    """
    longest = int(np.linalg.norm(rows.astype(np.float64), axis=1).argmax())
    told = say("train", store, "--out", tmp_path / "m", "--farthest", "--cluster", "threads", "--quiet")
    assert told.startswith(f"certified: row {longest} is the longest.")
    model = coremargin.train(store, farthest=np.True_)
    assert (model.kind, model.parameters["epsilon"]) == ("farthest", 1e-3)
    assert load(tmp_path / "m").parameters["epsilon"] == 0.01
    shown = " ".join(say("train", "--help").split())
    assert "--farthest Find the longest row." in shown
    assert "[default: 0.001; the longest row: 0.01]" in shown


@pytest.mark.parametrize("name", ["farthest", "job", "store"])
def test_a_keyword_of_no_kind_is_refused(name: str) -> None:
    """Without its line nobody knows it, and what a job file says of the store is no keyword."""
    words: dict[str, Any] = {name: True}
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        coremargin.train([[0.0], [1.0]], [0, 1], **words)
    assert "--farthest" not in say("train", "--help")


@pytest.mark.usefixtures("_farthest")
def test_it_is_killed_and_goes_on(tmp_path: Path, store: Path) -> None:
    """Interrupted within its scan and resumed, it leaves the same bytes as a run without a break."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    alone, broken = (registry.new_job(store=store, out=tmp_path / name, farthest=True, block=1) for name in "ab")
    train_job(alone, Store.open(store), InProcess(1))
    with pytest.raises(Interrupted):
        train_job(broken, Store.open(store), InProcess(1), progress=Progress(on_block=stop))
    done = train_job(broken, Store.open(store), InProcess(1), begin="resume")
    assert done.run["resumed"] == 1
    for name in ("model.json", "arrays.npz"):
        assert (broken.out / name).read_bytes() == (alone.out / name).read_bytes()


@pytest.mark.usefixtures("_farthest")
def test_its_parameters_are_refused_elsewhere() -> None:
    """Jobs of other kinds are told who has the parameter, its own are told what it has not."""
    with pytest.raises(SpecError, match=r"loss: the longest row has none.*it belongs to .*a soft margin"):
        registry.new_job(store="a", out="b", farthest=True, loss="hinge")


@pytest.mark.usefixtures("_farthest")
def test_its_certificate_is_of_its_own_kind(tmp_path: Path, store: Path) -> None:
    """A certificate that claims what its record does not list is refused: a length of another kind, or no length."""
    coremargin.train(store, farthest=True, out=tmp_path / "far")
    coremargin.train(store, loss="hinge", out=tmp_path / "soft")
    for name, kind, expected in (("far", "margin", "length"), ("soft", "length", "duality_gap")):
        file = tmp_path / name / "model.json"
        record = json.loads(file.read_text())
        record["certificate"]["kind"] = kind
        file.write_text(json.dumps(record))
        with pytest.raises(DataError, match=f"expected a certificate of kind {expected}, found '{kind}'"):
            load(tmp_path / name)


def test_its_page_may_be_a_template_of_its_own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template of another package is found by its name, has the words of all, and takes in those of this one."""
    (tmp_path / "far_pages").mkdir()
    (tmp_path / "far_pages" / "__init__.py").touch()
    text = '{% import "report/confusion.html.j2" as taken %}<p>{{ 12345 | count }} {{ taken.section is defined }}'
    (tmp_path / "far_pages" / "report.html.j2").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert page.template("far_pages:report.html.j2").render() == "<p>12,345 True"


def test_its_command_replaces_no_other() -> None:
    """A command whose name another one has is refused, and that one stays what it was."""
    group, first, other = Main("coremargin"), click.Command("show"), click.Command("show")
    group.add_to_section("Models", first)
    with pytest.raises(UsageError, match="coremargin show: two commands have this name"):
        group.add_to_section("Models", other)
    assert group.commands == {"show": first}


def test_without_its_lines_nobody_knows_it() -> None:
    """What is registered for a test is gone after it."""
    with pytest.raises(SpecError, match="unknown key 'farthest'"):
        registry.new_job(store="a", out="b", farthest=True)
