"""The command line and tables: files in the place of stores, words about columns, and what is suggested."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin.cli.tables import extend_command
from coremargin.data.store import Store

if TYPE_CHECKING:
    from click.testing import Result

Run = Callable[..., "Result"]
WORDS = ("--label", "kind", "--categorical", "auto", "--missing", "median")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """120 rows of a number with gaps and a word, which tell two kinds apart."""
    rng = np.random.default_rng(4)
    lines = ["size,colour,kind"]
    for _ in range(120):
        big, red = rng.random() < 0.5, rng.random() < 0.5
        size = "" if rng.random() < 0.1 else f"{rng.normal(4 if big else 1, 0.2):.3f}"
        lines.append(f"{size},{'red' if red else 'blue'},{'a' if big else 'b'}")
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "rows.csv"


def test_training_on_a_file_makes_a_store_beside_the_model(run_cli: Run, table: Path) -> None:
    """The store is named after the model; it, and the model's claims about it, are as ever."""
    out = table.with_name("kinds.model")
    result = run_cli("train", table, "--out", out, "--loss", "auto", *WORDS)
    store = table.with_name("kinds.zarr")
    assert "wrote 120 rows of 3 features" in result.stdout
    assert Store.open(store).rows == 120
    run_cli("verify", out, store)
    found = json.loads(run_cli("evaluate", out, table, "--json").stdout)
    assert found["accuracy"] > 0.9


def test_json_of_training_on_a_file_is_one_object(run_cli: Run, table: Path) -> None:
    """What is said of the store does not stand in the way of programs."""
    out = table.with_name("kinds.model")
    result = run_cli("train", table, "--out", out, "--loss", "squared_hinge", *WORDS, "--json")
    assert json.loads(result.stdout)["status"] == "certified"


def test_a_store_that_is_there_is_taken_while_it_is_of_the_file(run_cli: Run, table: Path) -> None:
    """A model is in the way of another, its store is not; only --overwrite makes both anew; --resume has its answer."""
    out, store = table.with_name("kinds.model"), table.with_name("kinds.zarr")
    words = ("train", table, "--out", out, "--loss", "squared_hinge")
    run_cli(*words, *WORDS)
    digest = Store.open(store).digest
    assert "kinds.model: a model is there already" in run_cli(*words, *WORDS, exit_code=2).stderr
    told = run_cli(*words, *WORDS, "--resume").stdout
    assert f"{store}: reused, since it was made from the same files" in told
    table.write_text("\n".join(table.read_text().splitlines()[:100]) + "\n")
    refused = run_cli(*words, *WORDS, "--resume", exit_code=2).stderr
    assert f"it was made from {table} of 1," in refused
    assert f"by `coremargin train {store} --out {out} --resume`" in refused
    run_cli("train", store, "--out", out, "--loss", "squared_hinge", "--resume")
    assert Store.open(store).digest == digest
    run_cli(*words, *WORDS, "--overwrite")
    assert Store.open(store).digest != digest


def test_other_words_are_refused_when_resuming(run_cli: Run, table: Path) -> None:
    """What was said of columns then, and what is said now, stands in the message; how it is written is no matter."""
    words = ("train", table, "--out", table.with_name("kinds.model"), "--loss", "squared_hinge", "--label", "kind")
    run_cli(*words, "--categorical", "colour", "--missing", "median", "--missing", "size=mean")
    run_cli(*words, "--categorical", " colour ", "--missing", "size=mean", "--missing", "median", "--resume")
    refused = run_cli(*words, "--categorical", "auto", "--drop", "size", "--resume", exit_code=2).stderr
    for said in (
        "--categorical was colour, now auto",
        "--drop was not set, now size",
        "--missing was median,size=mean, now not set",
    ):
        assert said in refused


def test_a_command_that_failed_works_when_it_is_right(run_cli: Run, table: Path) -> None:
    """What a run that ended without a model left beside it is taken, or made anew, and that is said."""
    out, store = table.with_name("kinds.model"), table.with_name("kinds.zarr")
    words, rows = ("train", table, "--out", out, "--loss", "squared_hinge"), table.read_text()
    run_cli(*words, *WORDS, "--C", "-1", exit_code=2)
    assert not store.exists()
    one = "\n".join(line for line in rows.splitlines() if not line.endswith("b")) + "\n"
    table.write_text(one)
    assert "class" in run_cli(*words, *WORDS, exit_code=3).stderr  # of one class: known once there is a store
    made = store.stat().st_ino
    assert "reused, since it was made from the same files" in run_cli(*words, *WORDS, exit_code=3).stdout
    assert store.stat().st_ino == made
    table.write_text(rows)
    told = run_cli(*words, *WORDS).stdout
    assert f"{store}: replaced, since no model was trained on it: it was made from {table} of" in told
    assert Store.open(store).rows == 120
    assert [path.name for path in table.parent.iterdir() if path.name.startswith(".")] == []


def test_a_store_that_may_be_needed_is_not_made_anew(run_cli: Run, table: Path) -> None:
    """Once there was a model, once rows were added, or where `ingest` made it, only people decide about a store."""
    out, store = table.with_name("kinds.model"), table.with_name("kinds.zarr")
    words = ("train", table, "--out", out, "--loss", "squared_hinge", *WORDS)
    run_cli(*words)
    shutil.rmtree(out)
    run_cli(*words)  # the file is what it was
    shutil.rmtree(out)
    with table.open("a") as file:
        file.write("4.1,red,a\n")
    refused = run_cli(*words, exit_code=2).stderr
    assert "kinds.zarr: exists already, and was made from other files or options: it was made from" in refused
    assert "replace it with --overwrite" in refused
    run_cli(*words, "--overwrite")
    shutil.rmtree(out)
    run_cli("ingest", table, store, "--append")
    for more in ((), ("--overwrite",), ("--resume",)):
        assert "was not made by `train` from files" in run_cli(*words, *more, exit_code=2).stderr
    assert Store.open(store).rows == 242
    record = json.loads((store / "zarr.json").read_text())
    first = json.loads((store / "log.jsonl").read_text().splitlines()[0])["commit"]
    for odd in ({}, {"provenance": 3}, {"provenance": {"source": "x", "state": "y", "options": 3}}):
        log = record["attributes"]["log"] | {"commits": 1}
        record["attributes"] |= {"about": odd, "commits": [first], "rows": 121, "log": log}
        (store / "zarr.json").write_text(json.dumps(record))
        assert "was not made by `train` from files" in run_cli(*words, "--resume", exit_code=2).stderr
    run_cli("ingest", table, store, "--overwrite", *WORDS)
    assert "was not made by `train` from files" in run_cli(*words, "--overwrite", exit_code=2).stderr


def test_words_about_columns_are_for_files(run_cli: Run, table: Path) -> None:
    """A store's columns are what they are."""
    run_cli("ingest", table, table.with_name("rows.zarr"), *WORDS)
    store = table.with_name("rows.zarr")
    result = run_cli("train", store, "--out", table.with_name("m"), "--categorical", "auto", exit_code=2)
    assert f"--categorical is for files, {store} is a store" in result.stderr


def test_what_needs_a_word_comes_with_a_command(run_cli: Run, table: Path) -> None:
    """Behind the error stands a command line with the options that would do."""
    result = run_cli("ingest", table, table.with_name("rows.zarr"), "--label", "kind", exit_code=3)
    assert "colour  words ('" in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("for instance: coremargin ")
    assert last.endswith("--categorical colour --missing median")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ingest a.csv a.zarr", "coremargin ingest a.csv a.zarr --categorical job --missing median"),
        (
            "ingest a.csv a.zarr --categorical x",
            "coremargin ingest a.csv a.zarr --categorical x,job --missing median",
        ),
        ("train 'my file.csv'", "coremargin train 'my file.csv' --categorical job --missing median"),
    ],
)
def test_suggestions_join_what_was_said(given: str, expected: str) -> None:
    """Columns that were named stay named; words are quoted for a shell."""
    import shlex

    assert extend_command(shlex.split(given), ("--categorical", "job", "--missing", "median")) == expected


def test_columns_of_another_store_or_model(run_cli: Run, table: Path) -> None:
    """A test set takes the columns of the training set's store, or of the model."""
    store, out = table.with_name("rows.zarr"), table.with_name("m")
    run_cli("ingest", table, store, *WORDS)
    run_cli("train", store, "--out", out, "--loss", "squared_hinge")
    part = table.with_name("part.csv")
    part.write_text("kind,colour,size\na,green,4.1\nb,blue,\n")
    for source in (store, out):
        run_cli("ingest", part, table.with_name("part.zarr"), "--columns-of", source, "--overwrite")
        made = Store.open(table.with_name("part.zarr"))
        assert made.columns == Store.open(store).columns
        assert made.rows_at(np.arange(2))[0][0].tolist() == [pytest.approx(4.1, rel=1e-6), 0, 0]
    again = ("ingest", part, table.with_name("p.zarr"), "--columns-of", out)
    assert "how columns become features is fixed" in run_cli(*again, "--missing", "mean", exit_code=2).stderr
    part.write_text("kind,colour\na,red\n")
    assert "'size' is missing" in run_cli(*again, exit_code=3).stderr
