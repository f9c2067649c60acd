"""Campaigns as people meet them: start, ask, tell, run, label, status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store

Cli = Callable[..., "Result"]
SAID = (
    "status", "labels_asked", "draws", "draws_wrong", "scans", "bytes_read", "store_bytes", "lower", "upper",
    "error_bound", "confidence",
)  # fmt: skip


@pytest.fixture
def pool(make_separable: Callable[..., Any], make_store: Callable[..., Store], tmp_path: Path) -> tuple[Store, Path]:
    """300 rows of 3 features without labels, and a file that has them."""
    X, y = make_separable(300, 3)
    words = ["spam" if one > 0 else "ham" for one in y]
    oracle = tmp_path / "labels.csv"
    oracle.write_text("row,label\n" + "".join(f"{row},{word}\n" for row, word in enumerate(words)))
    return make_store(X, None), oracle


def test_from_a_store_to_a_proof(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """A file plays the person: exit code 0, a model like any other, figures as JSON; a campaign that has ended says
    so.
    """
    store, oracle = pool
    out, model = tmp_path / "c", tmp_path / "c" / "model"
    begun = run_cli("active", "start", store.path, "--out", out, "--classes", "ham,spam", "--error", "0.05")
    assert f"`coremargin active label {out}`" in begun.stdout
    ran = run_cli("active", "run", out, "--oracle", oracle, "--json")
    found = json.loads(ran.stdout.splitlines()[-1])
    assert set(SAID) <= set(found)
    assert (found["status"], found["confidence"]) == ("certified", 0.99)
    assert 0 <= found["error_bound"] <= 15
    assert found["labels_asked"] > found["draws"] > 0
    text = run_cli("active", "status", out).stdout
    assert "certified" in text
    assert f"at most {found['error_bound']:,} of" in text
    assert f"coremargin verify {out.resolve()} {store.path}" in text
    assert "nothing to ask: the campaign has ended (certified)" in run_cli("active", "ask", out).stdout
    shown = run_cli("show", model).stdout
    assert "are labelled wrongly: 0 of" in shown
    assert "'ham' (negative), 'spam' (positive)" in shown
    page = (model / "report.html").read_text(encoding="utf-8")
    assert "rows without an answer are labelled wrongly" in page
    predicted = json.loads(run_cli("predict", model, store.path, tmp_path / "p.zarr", "--json").stdout)
    assert {one["label"]: one["rows"] for one in predicted["classes"]} == {
        word: oracle.read_text().count(word) for word in ("ham", "spam")
    }
    run_cli("export", model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 0


def test_questions_go_out_and_come_back_as_files(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """CSV and JSONL that people fill in: what is empty waits, what is asked again is the same, mistakes are refused."""
    store, oracle = pool
    labels = dict(line.split(",") for line in oracle.read_text().splitlines()[1:])
    out = tmp_path / "c"
    run_cli("active", "start", store.path, "--out", out, "--classes", "ham,spam", "--json")
    asked = run_cli("active", "ask", out, "-n", "6", "--to", tmp_path / "q.csv").stdout
    assert f"coremargin active tell {out} {tmp_path / 'q.csv'}" in asked
    head, *lines = (tmp_path / "q.csv").read_text().splitlines()
    assert (head, len(lines)) == ("row,why,attempt,label,action", 6)
    rows = [line.split(",")[0] for line in lines]
    filled = [f"{row},start,,{labels[row]}," for row in rows[:3]]
    (tmp_path / "q.csv").write_text("\n".join([head, *filled, f"{rows[3]},start,,,skip", *lines[4:]]) + "\n")
    told = json.loads(run_cli("active", "tell", out, tmp_path / "q.csv", "--who", "anna", "--json").stdout)
    assert (told["new"], told["labels_asked"], told["passed"], told["awaited"]) == (4, 3, 1, 2)
    assert "1 new answers" in run_cli("active", "tell", out, tmp_path / "q.csv").stdout  # put off once more
    run_cli("active", "ask", out, "--again", "--to", tmp_path / "again.jsonl")
    again = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert [str(one["row"]) for one in again] == rows[4:]
    (tmp_path / "again.jsonl").write_text(json.dumps({"row": again[0]["row"], "label": "egg"}) + "\n")
    refused = run_cli("active", "tell", out, tmp_path / "again.jsonl", exit_code=3)
    assert "expected 'ham' or 'spam', found 'egg'" in refused.stderr
    found = json.loads(run_cli("active", "ask", out, "-n", "2", "--json").stdout)
    assert len(found["questions"]) == 2
    assert {"row", "why", "attempt"} <= set(found["questions"][0])
    first = json.loads((out / "answers.jsonl").read_text().splitlines()[0])
    assert (first["who"], first["action"], first["why"]) == ("anna", "label", "start")


def test_questions_replace_no_file(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Answers that people have typed are never written over, and no row is booked for a file that cannot be written;
    where there is no question, there is no file.
    """
    out, held = tmp_path / "c", tmp_path / "q.csv"
    run_cli("active", "start", pool[0].path, "--out", out, "--classes", "ham,spam")
    run_cli("active", "ask", out, "-n", "4", "--to", held)
    filled = held.read_bytes().replace(b"start,,,", b"start,,ham,")
    held.write_bytes(filled)
    booked = (out / "asked.json").read_bytes()
    for target in (held, tmp_path / "nowhere" / "q.csv"):
        for again in ([], ["--again"]):
            refused = run_cli("active", "ask", out, "-n", "4", "--to", target, *again, exit_code=5).stderr
            assert f"`coremargin active tell {out} {held}`" in refused or "nowhere" in refused
    assert (held.read_bytes(), (out / "asked.json").read_bytes()) == (filled, booked)
    run_cli("active", "tell", out, held)
    assert "nothing" in run_cli("active", "ask", out, "--again", "--to", tmp_path / "none.csv").stdout
    assert not (tmp_path / "none.csv").exists()


def test_an_oracle_that_does_not_know_all(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """Exit code 4 where answers are missing; there is a model that says how far it came, and it can be gone on with."""
    store, oracle = pool
    out, some = tmp_path / "c", tmp_path / "some.csv"
    run_cli("active", "start", store.path, "--out", out, "--examples", oracle)
    assert json.loads(run_cli("active", "status", out, "--json").stdout)["labels_asked"] == 300
    out = tmp_path / "d"
    run_cli("active", "start", store.path, "--out", out)
    some.write_text("\n".join(oracle.read_text().splitlines()[:150]) + "\n")
    run_cli("active", "run", out, "--oracle", some, exit_code=4)
    run_cli("active", "run", out, "--oracle", oracle, "--most", "40", exit_code=4)
    assert "status" in run_cli("active", "stop", out).stdout
    assert "nothing is shown of the rows without an answer" in run_cli("show", out / "model").stdout
    run_cli("active", "run", out, "--oracle", oracle, "--batch", "5")


def test_a_key_an_answer(tmp_path: Path, pool: tuple[Store, Path]) -> None:
    """In a terminal 1 and 2 answer, s puts off, ? gives up, u takes back, q ends; rows are shown with their numbers."""
    from click.testing import CliRunner

    from coremargin.cli import main

    store, _ = pool
    out = tmp_path / "c"
    CliRunner().invoke(main, ["active", "start", str(store.path), "--out", str(out), "--classes", "ham,spam"])
    done = CliRunner().invoke(main, ["active", "label", str(out), "--who", "eva"], input="x1s?2uu2q")
    assert done.exit_code == 0, done.stdout
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert [line["action"] for line in lines] == ["label", "skip", "unsure", "label", "undo", "undo", "label"]
    assert [line["label"] for line in lines if line["label"]] == ["ham", "spam", "spam"]
    assert {line["who"] for line in lines} == {"eva"}
    numbers = ", ".join(f"{k}: {value:.6g}" for k, value in enumerate(store.rows_at(np.array([lines[0]["row"]]))[0][0]))
    assert f"row {lines[0]['row']} (start)" in done.stdout
    assert numbers in done.stdout
    words = CliRunner().invoke(main, ["active", "start", str(store.path), "--out", str(tmp_path / "d")])
    assert words.exit_code == 0
    done = CliRunner().invoke(main, ["active", "label", str(tmp_path / "d")], input="one\ntwo\n1q")
    assert done.exit_code == 0, done.stdout
    labels = [json.loads(line)["label"] for line in (tmp_path / "d" / "answers.jsonl").read_text().splitlines()]
    assert labels == ["one", "two", "one"]


def test_a_job_file(tmp_path: Path, pool: tuple[Store, Path], run_cli: Cli) -> None:
    """`coremargin run` begins the campaign that a file describes, or goes on with it; another one is refused."""
    store, _ = pool
    job = tmp_path / "job.toml"
    text = f'job = "active"\nstore = "{store.path}"\nout = "c"\noracle = "labels.csv"\nerror = 0.05\nbatch = 3\n'
    job.write_text(text)
    found = json.loads(run_cli("run", job, "--json").stdout)
    assert set(SAID) <= set(found)
    assert found["status"] == "certified"
    assert json.loads(run_cli("run", job, "--resume", "--json").stdout)["labels_asked"] == found["labels_asked"]
    assert json.loads(run_cli("plan", job, "--json").stdout)["rows"] == 300
    job.write_text(text.replace("0.05", "0.04"))
    assert "error: expected 0.05 as the campaign there says, found 0.04" in run_cli("run", job, exit_code=2).stderr
    for line, message in [
        ("max_scans = 3", "max_scans: a campaign has none"),
        ("folds = 3", "folds: a campaign has none, found 3; it belongs to"),
    ]:
        job.write_text(text + line + "\n")
        assert message in run_cli("run", job, exit_code=2).stderr
    job.write_text(text.replace("oracle", "# oracle"))
    assert "oracle: required key is missing" in run_cli("run", job, exit_code=2).stderr
    assert "it belongs to a campaign" in run_cli("run", bad_job(job, store), exit_code=2).stderr


def bad_job(job: Path, store: Store) -> Path:
    """A training job with a word that only campaigns have."""
    job.write_text(f'job = "train"\nstore = "{store.path}"\nout = "m"\nconfidence = 0.9\n')
    return job
