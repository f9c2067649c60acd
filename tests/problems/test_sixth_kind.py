"""What one more kind of problem takes: a folder, an entry, and one for the verifier; problems/README.md is the recipe.

The kind has one class: the longest row of a store, whose rows need no labels. It is as small as a kind can be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import coremargin
from coremargin.cli import main
from coremargin.cli.common import Main
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import ClaimRefuted, DataError, Interrupted, LabelError, SpecError, UsageError
from coremargin.formats.kinds import Parts
from coremargin.learn.train import Progress, train_job
from coremargin.models.evaluate import evaluate
from coremargin.models.registry import load
from coremargin.problems import registry
from coremargin.report import page
from coremargin.verify.registry import KINDS as CLAIMS
from kinds_kit import with_a_line

EPSILON = 1e-9


@pytest.fixture
def _longest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two entries. Nothing else in the package changes."""
    monkeypatch.setitem(CLAIMS, "longest", "longest_verify")
    with with_a_line("longest", Parts("longest_kind", "longest_model", "longest_record")):
        yield


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """200 rows, each coordinate of another size."""
    return (rng.standard_normal((200, 3)) * [1, 2, 0.5] + 5).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path, rows: np.ndarray) -> Path:
    """The rows, without labels, in chunks of 16."""
    coremargin.ingest(rows, tmp_path / "s.zarr", unlabelled=True, chunk_bytes=16 * 12)
    return tmp_path / "s.zarr"


def job_of(store: Path, out: Path, **more: Any) -> Any:
    """A job for the longest row."""
    return registry.new_job(store=store, out=out, extreme="longest", epsilon=EPSILON, **more)


def say(*words: object) -> str:
    """What a command prints; it ends well."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("_longest")
def test_it_is_trained_verified_shown_and_reported(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """A job file, a certificate to 1e-9, and every command about models, none of which finds classes."""
    job, model = tmp_path / "job.toml", tmp_path / "m"
    job.write_text(f'job = "train"\nstore = "s.zarr"\nout = "m"\nextreme = "longest"\nepsilon = {EPSILON}\n')
    assert 'extreme = "longest"' in say("plan", job)
    assert say("run", job, "--cluster", "threads", "--quiet").startswith("certified: no row of 200 is longer than")
    found = load(model)
    claims, long = found.certificate, np.linalg.norm(rows.astype(np.float64), axis=1).max()  # type: ignore[attr-defined]
    assert claims.lower <= long <= claims.upper <= claims.lower / (1 - EPSILON)
    assert (claims.kind, found.kind, found.classes, found.labels) == ("length", "longest", (), (-1, 1))
    assert {"classes", "intercept"}.isdisjoint(found.record | found.parameters)
    assert coremargin.verify(model, store).ok
    assert "no row is longer" in say("verify", model, store, "--quiet")
    shown = say("show", model)
    assert f"at most {claims.upper!r} for all rows" in shown
    assert "classes" not in shown
    assert "No row is longer" in (model / "report.html").read_text()
    assert json.loads(say("show", model, "--json"))["certificate"]["kind"] == "length"


@pytest.mark.usefixtures("_longest")
def test_it_predicts_and_is_evaluated(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Rows of the store are inside, others outside; labels -1 and 1 are compared."""
    model = coremargin.train(store, extreme="longest", epsilon=EPSILON)
    assert model.predict([[5, 5, 5], [50, 5, 5]]).tolist() == [1, -1]
    model.save(tmp_path / "m")
    assert "200 rows: 0 of -1, 200 of 1" in say("predict", tmp_path / "m", store, tmp_path / "p.csv", "--quiet")
    known = np.concatenate([rows, rows + 50])
    coremargin.ingest(known, tmp_path / "known.zarr", labels=np.repeat([1, -1], 200))
    found = json.loads(say("evaluate", tmp_path / "m", tmp_path / "known.zarr", "--json"))
    assert (found["accuracy"], found["roc_auc"]) == (1.0, 1.0)
    assert evaluate(model, store).to_dict()["outside"] == 0
    for refused in (model.to_sklearn, model.to_onnx, model.coefficients):
        with pytest.raises(UsageError, match="no hyperplane"):
            refused()


@pytest.mark.usefixtures("_longest")
def test_false_claims_are_rejected(tmp_path: Path, store: Path) -> None:
    """A smaller length, a larger lower bound, another row: none of them is verified."""
    model = coremargin.train(store, extreme="longest", epsilon=EPSILON, out=tmp_path / "m")
    record, arrays = dict(model.record), dict(np.load(tmp_path / "m" / "arrays.npz"))
    claims = record["certificate"]
    forged: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"upper": claims["upper"] * (1 - 1e-12), "ratio": 1.0}, {}),
        ({"lower": claims["upper"], "ratio": 1.0}, {}),
        ({"kind": "margin"}, {}),
        ({}, {"coreset_ids": arrays["coreset_ids"] - 1}),
        ({}, {"coreset_x": arrays["coreset_x"] * 2}),
    ]
    for changed, numbers in forged:
        (tmp_path / "m" / "model.json").write_text(json.dumps(record | {"certificate": claims | changed}))
        np.savez(tmp_path / "m" / "arrays.npz", **(arrays | numbers))
        with pytest.raises((ClaimRefuted, DataError)):
            coremargin.verify(tmp_path / "m", store)


@pytest.mark.usefixtures("_longest")
def test_it_is_killed_and_resumed_and_stopped(tmp_path: Path, store: Path) -> None:
    """Interrupted within its scans and resumed, it leaves the same bytes; stopped at a limit, a bound that holds."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    alone, broken, stopped = (job_of(store, tmp_path / name, block=1) for name in "abc")
    train_job(alone, Store.open(store), InProcess(1))
    for begin in ("new", "resume"):
        with pytest.raises(Interrupted):
            train_job(broken, Store.open(store), InProcess(1), begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
    assert train_job(broken, Store.open(store), InProcess(1), begin="resume").run["resumed"] == 2
    for name in ("model.json", "arrays.npz"):
        assert Path(broken.out, name).read_bytes() == Path(alone.out, name).read_bytes()
    done = coremargin.train(store, extreme="longest", epsilon=EPSILON, max_scans=1, out=stopped.out)
    assert done.status == "stopped"
    assert coremargin.verify(stopped.out, store).ok


@pytest.mark.usefixtures("_longest")
def test_it_is_retrained_by_its_new_rows(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """New rows cost a read of their chunks; the proof is about all."""
    coremargin.train(store, extreme="longest", epsilon=EPSILON, out=tmp_path / "m0")
    for k, new in enumerate([rows[:20] * 0.5, rows[:1] + 20], 1):
        coremargin.ingest(new.astype(np.float32), store, append=True, unlabelled=True)
        model = coremargin.retrain(tmp_path / f"m{k - 1}", store, out=tmp_path / f"m{k}")
        run = json.loads((tmp_path / f"m{k}" / "run.json").read_text())
        assert model.status == "certified"
        assert "from_scratch" not in run["retrained"]
        assert run["bytes_read"] < 0.25 * run["store_bytes"]
        assert coremargin.verify(tmp_path / f"m{k}", store).ok


@pytest.mark.usefixtures("_longest")
def test_it_is_asked_for_by_an_option_and_by_a_keyword(tmp_path: Path, store: Path) -> None:
    """What all kinds have is on the command line what this one says, in Python what the signature says."""
    say("train", store, "--out", tmp_path / "m", "--extreme", "longest", "--cluster", "threads", "--quiet")
    assert load(tmp_path / "m").parameters == {"epsilon": 0.01, "extreme": "longest"}
    assert coremargin.train(store, extreme="longest").parameters["epsilon"] == 1e-3
    shown = " ".join(say("train", "--help").split())
    assert "Find a row, whatever the labels." in shown
    assert "[default: 0.001; the longest row: 0.01]" in shown


@pytest.mark.usefixtures("_longest")
def test_parameters_of_other_kinds_are_refused(store: Path) -> None:
    """By name; and an unlabelled store by kinds with classes."""
    with pytest.raises(SpecError, match=r"loss: the longest row has none.*it belongs to .*a soft margin"):
        job_of(store, store, loss="hinge")
    with pytest.raises(SpecError, match="intercept: only hyperplanes have one"):
        job_of(store, store, intercept=False)
    with pytest.raises(LabelError, match="found no labelled row"):
        coremargin.train(store)
    with pytest.raises(UsageError, match="y: expected labels"):
        coremargin.train([[0.0], [1.0]])


@pytest.mark.usefixtures("_longest")
def test_its_certificate_is_of_its_own_kind(tmp_path: Path, store: Path) -> None:
    """A certificate of a kind that its record does not list is refused, and so are classes."""
    coremargin.train(store, extreme="longest", out=tmp_path / "m")
    file = tmp_path / "m" / "model.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"certificate": record["certificate"] | {"kind": "margin"}}))
    with pytest.raises(DataError, match="expected a certificate of kind length, found 'margin'"):
        load(tmp_path / "m")
    file.write_text(json.dumps(record | {"classes": ["a", "b"]}))
    with pytest.raises(DataError, match="classes"):
        load(tmp_path / "m")


@pytest.mark.parametrize("name", ["extreme", "job", "store"])
def test_a_keyword_of_no_kind_is_refused(name: str) -> None:
    """Without its entry nobody knows the option; what a job file says of the store is no keyword."""
    words: dict[str, Any] = {name: True}
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        coremargin.train([[0.0], [1.0]], [0, 1], **words)
    assert "--extreme" not in say("train", "--help")
    with pytest.raises(SpecError, match="unknown key 'extreme'"):
        registry.new_job(store="a", out="b", extreme="longest")


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
