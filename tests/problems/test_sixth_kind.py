"""What one more kind of problem takes: a folder, an entry, and one for the verifier; problems/README.md is the recipe.

The kind has one class: the smallest ball around all rows of a store, which need no labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from ball_problem import smallest_ball
from click.testing import CliRunner
from pyarrow.parquet import read_table
from scipy.optimize import minimize

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
def _ball(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two entries. Nothing else in the package changes."""
    monkeypatch.setitem(CLAIMS, "ball", "ball_verify")
    with with_a_line("ball", Parts("ball_kind", "ball_model", "ball_record")):
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
    """A job for a ball."""
    return registry.new_job(store=store, out=out, one_class="ball", epsilon=EPSILON, **more)


def say(*words: object) -> str:
    """What a command prints; it ends well."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def radius_of(rows: np.ndarray) -> float:
    """The radius by a general solver, to some digits."""
    rows = rows.astype(np.float64)

    def reach(at: np.ndarray) -> float:
        return float(np.linalg.norm(rows - at, axis=1).max())

    start = rows.mean(axis=0)
    for _ in range(20):
        start = minimize(reach, start, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12}).x
    return reach(start)


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_the_smallest_ball_holds_all_rows_and_its_dual_weights_prove_it(count: int, rng: np.random.Generator) -> None:
    """Of rows, repeated rows and rows on a line."""
    for rows in (
        rng.standard_normal((count, 4)),
        rng.integers(0, 2, (count, 4)) * 1.0,
        np.outer(np.arange(count), [1, 2]),
    ):
        weights = smallest_ball(rows)
        off = rows - weights @ rows
        assert weights.min() >= 0
        assert abs(weights.sum() - 1) < 1e-12
        assert np.sqrt(weights @ np.square(off).sum(axis=1)) >= np.linalg.norm(off, axis=1).max() * (1 - 1e-12)


@pytest.mark.usefixtures("_ball")
def test_it_is_trained_verified_shown_and_reported(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """A job file, a certificate to 1e-9, and every command about models, none of which finds classes."""
    job, model = tmp_path / "job.toml", tmp_path / "m"
    job.write_text(f'job = "train"\nstore = "s.zarr"\nout = "m"\none_class = "ball"\nepsilon = {EPSILON}\n')
    assert 'one_class = "ball"' in say("plan", job)
    assert say("run", job, "--cluster", "threads", "--quiet").startswith("certified: all 200 rows are within")
    ball = load(model)
    claims, distances = ball.certificate, np.linalg.norm(rows.astype(np.float64) - ball.centre, axis=1)  # type: ignore[attr-defined]
    assert distances.max() <= claims.upper <= claims.lower / (1 - EPSILON)
    assert abs(claims.upper - radius_of(rows)) < 1e-6
    assert (claims.kind, ball.kind, ball.classes, ball.labels) == ("radius", "ball", (), (-1, 1))
    assert {"classes", "intercept"}.isdisjoint(ball.record | ball.parameters)
    assert coremargin.verify(model, store).ok
    assert "no ball around all rows has a radius below" in say("verify", model, store, "--quiet")
    shown = say("show", model)
    assert f"radius    at most {claims.upper!r} for all rows" in shown
    assert "classes" not in shown
    assert "The radius of the smallest ball" in (model / "report.html").read_text()
    assert json.loads(say("show", model, "--json"))["certificate"]["kind"] == "radius"


@pytest.mark.usefixtures("_ball")
def test_it_predicts_and_is_evaluated(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Rows of the store are inside, others outside; labels -1 and 1 are compared, other labels refused."""
    model = coremargin.train(store, one_class="ball", epsilon=EPSILON)
    assert (model.predict(rows) == 1).all()
    assert model.predict([[5, 5, 5], [50, 5, 5]]).tolist() == [1, -1]
    model.save(tmp_path / "m")
    assert "200 rows: 0 of -1, 200 of 1" in say("predict", tmp_path / "m", store, tmp_path / "p.csv", "--quiet")
    known = np.concatenate([rows, rows + 50])
    coremargin.ingest(known, tmp_path / "known.zarr", labels=np.repeat([1, -1], 200))
    found = json.loads(say("evaluate", tmp_path / "m", tmp_path / "known.zarr", "--json"))
    assert (found["accuracy"], found["roc_auc"]) == (1.0, 1.0)
    with pytest.raises(LabelError, match="all 200 are without label"):
        evaluate(model, store)
    for refused in (model.to_sklearn, model.to_onnx, model.coefficients):
        with pytest.raises(UsageError, match="a ball is no hyperplane"):
            refused()


@pytest.mark.usefixtures("_ball")
@pytest.mark.parametrize("scaling", [None, "standard"])
def test_rows_of_any_form_are_enclosed(tmp_path: Path, rows: np.ndarray, scaling: str | None) -> None:
    """In memory, sparse, in a file, with labels, which do not matter, and with rows of weight 0, which do not count."""
    from scipy.sparse import csr_array

    known = coremargin.train(rows, one_class="ball", epsilon=EPSILON, scaling=scaling)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c", comments="")
    words = ["--one-class", "ball", "--epsilon", EPSILON, "--quiet", *(["--scaling", scaling] if scaling else [])]
    say("train", tmp_path / "rows.csv", "--out", tmp_path / "m", *words)
    weights = np.ones(202)
    weights[200:] = 0
    outside = np.concatenate([rows, rows[:2] + 100])
    others = [
        coremargin.train(csr_array(rows), one_class="ball", epsilon=EPSILON, scaling=scaling),
        coremargin.train(rows, list("ab" * 100), one_class="ball", epsilon=EPSILON, scaling=scaling),
        load(tmp_path / "m"),
    ]
    if scaling is None:  # else rows of weight 0 have a part in the statistics of columns
        others.append(coremargin.train(outside, weights=weights, one_class="ball", epsilon=EPSILON))
    for model in others:
        assert np.isclose(model.certificate.upper, known.certificate.upper, rtol=1e-6)
    if scaling is None:
        coremargin.ingest(csr_array(outside), tmp_path / "s.zarr", unlabelled=True, weights=weights)
        coremargin.train(tmp_path / "s.zarr", one_class="ball", epsilon=EPSILON, out=tmp_path / "w")
        assert coremargin.verify(tmp_path / "w", tmp_path / "s.zarr").ok


@pytest.mark.usefixtures("_ball")
def test_false_claims_are_rejected(tmp_path: Path, store: Path) -> None:
    """A smaller radius, a larger lower bound, a moved centre, other weights, another row: none of them is verified."""
    model = coremargin.train(store, one_class="ball", epsilon=EPSILON, out=tmp_path / "m")
    record, arrays = dict(model.record), dict(np.load(tmp_path / "m" / "arrays.npz"))
    claims = record["certificate"]
    forged: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"upper": claims["upper"] * (1 - 1e-12), "ratio": 1.0}, {}),
        ({"lower": claims["upper"], "ratio": 1.0}, {}),
        ({"radius": claims["radius"] * 2}, {}),
        ({"kind": "margin"}, {}),
        ({}, {"centre": arrays["centre"] + 1e-9}),
        ({}, {"alpha": arrays["alpha"] * 2}),
        ({}, {"alpha": np.eye(len(arrays["alpha"]))[0]}),
        ({}, {"coreset_ids": arrays["coreset_ids"] + 1}),
        ({}, {"coreset_x": arrays["coreset_x"] * 2}),
    ]
    for changed, numbers in forged:
        (tmp_path / "m" / "model.json").write_text(json.dumps(record | {"certificate": claims | changed}))
        np.savez(tmp_path / "m" / "arrays.npz", **(arrays | numbers))
        with pytest.raises((ClaimRefuted, DataError)):
            coremargin.verify(tmp_path / "m", store)


@pytest.mark.usefixtures("_ball")
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
        assert (broken.out / name).read_bytes() == (alone.out / name).read_bytes()
    done = coremargin.train(store, one_class="ball", epsilon=EPSILON, max_scans=1, out=stopped.out)
    assert done.status == "stopped"
    assert coremargin.verify(stopped.out, store).ok


@pytest.mark.usefixtures("_ball")
def test_it_is_retrained_by_its_new_rows(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Rows inside of the ball cost a read of their chunks, a row outside a read of all; the proof is about all."""
    coremargin.train(store, one_class="ball", epsilon=EPSILON, out=tmp_path / "m0")
    for k, (new, most) in enumerate([(rows[:20] * 0.5 + 2.5, 0.25), (rows[:1] + 20, 2.5)], 1):
        coremargin.ingest(new.astype(np.float32), store, append=True, unlabelled=True)
        model = coremargin.retrain(tmp_path / f"m{k - 1}", store, out=tmp_path / f"m{k}")
        run = json.loads((tmp_path / f"m{k}" / "run.json").read_text())
        assert model.status == "certified"
        assert "from_nothing" not in run["retrained"]
        assert run["bytes_read"] < most * run["store_bytes"]
        assert coremargin.verify(tmp_path / f"m{k}", store).ok


@pytest.mark.usefixtures("_ball")
def test_a_nightly_job_keeps_versions_of_it(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Each commit becomes a version, which passes the gates, is promoted and predicts; commands compare two of them."""
    coremargin.ingest(np.concatenate([rows, rows + 50]), tmp_path / "known.zarr", labels=np.repeat([1, -1], 200))
    np.savetxt(tmp_path / "today.csv", rows[:5] + 50, delimiter=",", header="a,b,c", comments="")
    job, place = tmp_path / "n.toml", tmp_path / "r"
    job.write_text(
        f'job = "nightly"\nstore = "s.zarr"\nregistry = "r"\n[train]\none_class = "ball"\nepsilon = {EPSILON}\n'
        '[gates]\nverify = true\ndrift = 5.0\nheld_out = "known.zarr"\naccuracy = 0.01\n'
        '[predict]\nrows = "today.csv"\nout = "today.parquet"\n'
    )
    for version in (1, 2):
        assert f"version {version} is certified" in say("run", job)
        coremargin.ingest(rows[:8] * 0.5 + 2.5, store, append=True, unlabelled=True)
    assert load(f"{place}@champion").predict(rows[:1]).tolist() == [1]
    assert set(read_table(tmp_path / "today.parquet").column("label").to_pylist()) == {-1}
    assert "class" not in say("registry", "diff", place, 1, 2)
    assert "classes" not in say("registry", "show", place, 2)
    say("registry", "page", place, "--out", tmp_path / "page.html")


@pytest.mark.usefixtures("_ball")
def test_it_is_asked_for_by_an_option_and_by_a_keyword(tmp_path: Path, store: Path) -> None:
    """What all kinds have is on the command line what this one says, in Python what the signature says."""
    say("train", store, "--out", tmp_path / "m", "--one-class", "ball", "--cluster", "threads", "--quiet")
    assert load(tmp_path / "m").parameters == {"epsilon": 0.01, "one_class": "ball"}
    assert coremargin.train(store, one_class="ball").parameters["epsilon"] == 1e-3
    shown = " ".join(say("train", "--help").split())
    assert "Enclose all rows, whatever their labels." in shown
    assert "[default: 0.001; the smallest ball: 0.01]" in shown


@pytest.mark.usefixtures("_ball")
def test_parameters_of_other_kinds_are_refused(store: Path) -> None:
    """By name; and an unlabelled store by kinds with classes."""
    with pytest.raises(SpecError, match=r"loss: the smallest ball has none.*it belongs to .*a soft margin"):
        job_of(store, store, loss="hinge")
    with pytest.raises(SpecError, match="intercept: only hyperplanes have one"):
        job_of(store, store, intercept=False)
    with pytest.raises(LabelError, match="found no labelled row"):
        coremargin.train(store)
    with pytest.raises(UsageError, match="y: expected labels"):
        coremargin.train([[0.0], [1.0]])


@pytest.mark.usefixtures("_ball")
def test_its_certificate_is_of_its_own_kind(tmp_path: Path, store: Path) -> None:
    """A certificate of a kind that its record does not list is refused, and so are classes."""
    coremargin.train(store, one_class="ball", out=tmp_path / "ball")
    file = tmp_path / "ball" / "model.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"certificate": record["certificate"] | {"kind": "margin"}}))
    with pytest.raises(DataError, match="expected a certificate of kind radius, found 'margin'"):
        load(tmp_path / "ball")
    file.write_text(json.dumps(record | {"classes": ["a", "b"]}))
    with pytest.raises(DataError, match="classes"):
        load(tmp_path / "ball")


@pytest.mark.parametrize("name", ["one_class", "job", "store"])
def test_a_keyword_of_no_kind_is_refused(name: str) -> None:
    """Without its entry nobody knows the option; what a job file says of the store is no keyword."""
    words: dict[str, Any] = {name: True}
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        coremargin.train([[0.0], [1.0]], [0, 1], **words)
    assert "--one-class" not in say("train", "--help")
    with pytest.raises(SpecError, match="unknown key 'one_class'"):
        registry.new_job(store="a", out="b", one_class="ball")


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
